"""What all tasks of `compile` share: what they must know, the rows that they hand on, and what they tell the driver."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from dibs.errors import DuplicateId, Rejected
from dibs.matcher import Matcher
from dibs.segments.segment import Choice
from dibs.spark.access import Cuts
from dibs.spark.places import Place, spark_path
from dibs.storage import versions
from dibs.storage.versions import Version

ADD, GONE, BAD, COUNT = range(4)  # what the rows that go from find_changes to build are
PARTITION_BITS = 33  # of Spark's monotonically_increasing_id: below are the rows of an input partition
LISTED = ["position", "id", "expression", "error"]  # the columns of what is bad
TWICE = "the table has it twice: keep one row of each id"
NO_JOINS = "in an index that is cut into shards"


@dataclass(frozen=True)
class Job:
    """What tasks must know."""

    path: str
    version: int  # that is being made
    index: str
    options: dict[str, Any]  # of the index
    weighted: bool
    text_ids: bool
    rows_of_a_segment: int
    cuts: Cuts | None  # None: not sharded
    feed: bool  # rows are changes, not the whole table
    unique_ids: bool  # whoever builds segments has met all rows of each id, so that no two segments have the same one
    old: Version | None
    types: dict[str, str] = field(default_factory=dict)  # of attributes, where they are declared
    clash: str = ""  # what is told of changes that nothing orders

    @property
    def choice(self) -> Choice:
        return Choice(self.index, options=tuple(self.options.items()))

    @property
    def id_type(self) -> pa.DataType:
        return pa.large_string() if self.text_ids else pa.int64()

    @property
    def shards(self) -> int:
        return 1 if self.cuts is None else self.cuts.shards


def tell_rows(what: dict[str, Any]) -> pa.RecordBatch:
    return pa.record_batch({"told": [json.dumps(what)]})


def collect_rows(batches: Iterable[pa.RecordBatch], job: Job) -> pa.Table:
    """All rows, in the columns of the job's table."""
    kept = list(batches)
    if not kept:
        names = ["id", "expression", "weight", "deleted", "position", "segment", "row", "rank"]
        ints = [pa.int64(), pa.int32(), pa.int64(), pa.int32()]
        types = [job.id_type, pa.large_string(), pa.float64(), pa.bool_(), *ints]
        return pa.schema(list(zip(names, types))).empty_table()
    table = pa.Table.from_batches(kept)
    table = table.set_column(0, "id", table["id"].cast(job.id_type))
    return table.set_column(1, "expression", table["expression"].cast(pa.large_string())).combine_chunks()


def collect_segments(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.Table]:
    """The rows in the order of their positions, as many at a time as a segment may have."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        while rows + batch.num_rows >= job.rows_of_a_segment:
            cut = job.rows_of_a_segment - rows
            yield _sort_positions(collect_rows([*waiting, batch.slice(0, cut)], job))
            waiting, rows, batch = [], 0, batch.slice(cut)
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
    if waiting:
        yield _sort_positions(collect_rows(waiting, job))


def _sort_positions(table: pa.Table) -> pa.Table:
    in_order = (np.diff(table["position"].to_numpy()) > 0).all()
    return table if in_order else table.sort_by("position")


def count_rows(new: pa.Table) -> dict[str, int]:
    """How many rows came from each input partition, by its number."""
    found, count = np.unique(new["position"].to_numpy() >> PARTITION_BITS, return_counts=True)
    return dict(zip(map(str, found.tolist()), count.tolist()))


def compile_rows(table: pa.Table, job: Job) -> tuple[Matcher, list[Rejected]]:
    """The rows of the table, compiled, and the bad ones by their places in it."""
    matcher = Matcher(index=job.index, threads=1, options=job.options, types=job.types)
    matcher.changes.no_joins = "" if job.cuts is None else NO_JOINS
    columns = ["id", "expression", "weight"] if job.weighted else ["id", "expression"]
    return matcher, [advise(bad) for bad in matcher.add_table(table.select(columns), on_error="skip")]


def advise(bad: Rejected) -> Rejected:
    """With advice for whoever has a table, not a matcher."""
    return replace(bad, error=DuplicateId(bad.id, TWICE)) if isinstance(bad.error, DuplicateId) else bad


def rows(job: Job, what: int, **columns: pa.Array) -> pa.RecordBatch:
    """Rows that are handed on, with nulls for what is not given."""
    count = len(next(iter(columns.values())))
    types = {
        "what": pa.int32(),
        "part": pa.int32(),
        "id": pa.string() if job.text_ids else pa.int64(),
        "expression": pa.string(),
        "weight": pa.float64(),
        "position": pa.int64(),
        "row": pa.int64(),
        "error": pa.string(),
    }
    columns = {"what": pa.array(np.full(count, what, np.int32)), **columns}
    arrays = [columns[n].cast(t) if n in columns else pa.nulls(count, t) for n, t in types.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def counted_rows(job: Job, new: pa.Table) -> pa.RecordBatch:
    counted = count_rows(new)
    return rows(
        job,
        COUNT,
        part=pa.array(np.zeros(len(counted), np.int32)),
        position=pa.array(map(int, counted), pa.int64()),
        row=pa.array(counted.values(), pa.int64()),
    )


def bad_rows(job: Job, bad: list[Rejected], positions: pa.ChunkedArray) -> pa.RecordBatch:
    return rows(
        job,
        BAD,
        part=pa.array([r.position % 64 for r in bad], pa.int32()),
        id=pa.array([r.id for r in bad], pa.string() if job.text_ids else pa.int64()),
        expression=pa.array([r.expression for r in bad], pa.string()),
        position=positions.take(pa.array([r.position for r in bad])).combine_chunks(),
        error=pa.array([str(r.error) for r in bad], pa.string()),
    )


def write_bad(place: Place, bad: pa.RecordBatch, job: Job) -> dict[str, Any]:
    """Writes such rows; what the driver has to know of them."""
    staged = place.staging
    name = f"{versions.REJECTED}/{job.version:012d}/{secrets.token_hex(8)}.parquet"
    (staged / name).parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(bad).select(LISTED), staged / name)
    place.upload(staged, [name])
    return {"rejected": bad.num_rows, "file": name}


# ---- what is bad, on the driver ----


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
