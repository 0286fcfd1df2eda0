"""Documents to the partitions whose events ask for them.

    events      asks (keys of documents), home (a number)   ─> routes: which home wants which key ─┐
    documents   keys                                        ─> a row for each key ─────────────────┴─> home

An event has one home, and a document goes to every home in which an event asks for one of its keys. So nothing is
answered in parts, although an event may ask for several keys (of an array, or of several joins) and a document may have
several. By two of them it may reach one home twice: whoever reads it there takes it once.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dibs.spark.joins.hashes import EVERY


def bring_together(
    events: DataFrame, documents: DataFrame, every: bool, homes: int, order: Sequence[Column], partitions: int | None
) -> DataFrame:
    """All rows at their homes, without the keys. Those of one home are in one partition, by `order`.

    every: all homes want all documents, which have the key EVERY. partitions: how many; None: Spark decides."""
    routes = events.select(F.explode("asks").alias("key"), "home").distinct()
    if every:
        all_homes = events.sparkSession.range(homes).select(F.col("id").cast("int").alias("home"))
        routes = routes.union(all_homes.select(F.lit(int(EVERY)).cast("bigint"), "home"))
    sent = documents.withColumn("key", F.explode("keys")).join(routes, "key").drop("key", "keys")
    rows = events.drop("asks").unionByName(sent, allowMissingColumns=True)
    rows = rows.repartition("home") if partitions is None else rows.repartition(partitions, "home")
    return rows.sortWithinPartitions(*order)


def count_homes(frame: DataFrame, partitions: int | None) -> int:
    """As many as there are partitions after a shuffle; Spark puts small ones together."""
    return partitions or int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200)
