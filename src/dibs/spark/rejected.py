"""Bad subscriptions, which tasks of `compile` have written as Parquet files, as a frame."""

from __future__ import annotations

from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from dibs.spark.places import Place, spark_path
from dibs.spark.tasks import LISTED, PARTITION_BITS
from dibs.storage import versions
from dibs.storage.versions import Version


def frame_rejected(
    session: SparkSession, place: Place, version: Version, id_type: DataType, shared: bool = True
) -> DataFrame:
    """The bad subscriptions with their positions in the table: as many rows as the partitions before theirs have, and
    their own place in it. shared: Spark sees the place."""
    types = [LongType(), id_type, StringType(), StringType()]
    schema = StructType([StructField(name, kind) for name, kind in zip(LISTED, types)])
    if not version.rejected:
        return session.createDataFrame([], schema)
    folder = f"{place.name}/{versions.REJECTED}/{version.version:012d}"
    if shared:
        rows = session.read.schema(schema).parquet(spark_path(folder))
    else:
        rows = session.createDataFrame(parquet.read_table(folder))
    offsets, total = [], 0
    for partition, count in sorted((int(p), count) for p, count in version.about["counted"].items()):
        offsets.append((partition, total))
        total += count
    joined = rows.withColumn("partition", F.shiftright("position", PARTITION_BITS)).join(
        F.broadcast(session.createDataFrame(offsets, "partition long, before long")), "partition"
    )
    own = F.col("position") - F.shiftleft("partition", PARTITION_BITS)
    return joined.select((F.col("before") + own).alias("position"), "id", "expression", "error")
