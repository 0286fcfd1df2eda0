"""`compile`: a table of subscriptions to a version of index files, as a Spark job.

    new table ──┐ by id             what changed, by shard        segment files
    old version ┴──> find_changes ───────────────────────> build ──────────────> one small file: the version
                                                                  (merge_parts)

Tasks write the files (spark.building); what comes back to the driver are JSON texts about them. The first version of an
index that is not sharded needs no second shuffle: build_at_once.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from dibs.arguments import OnError, check_number, check_on_error
from dibs.errors import ArgumentError, DibsError, FormatError, Rejected, SubscriptionErrors, show
from dibs.index import AUTO
from dibs.intake import check_choice
from dibs.matcher import Matcher
from dibs.segments.segment import Choice
from dibs.spark.access import Cuts, cuts_of, route, widen
from dibs.spark.frames import Subscriptions, is_frame, not_subscriptions, session_of, subscription_columns, table_frame
from dibs.spark.merging import due
from dibs.spark.places import Place, place_of
from dibs.spark.tasks import PARTITION_BITS, Job
from dibs.storage import versions
from dibs.storage.versions import Version, VersionSegment
from dibs.thresholds import thresholds

SAMPLED = 50_000  # rows that the number of shards and their cuts are found from
ROOMY = 2_000  # bytes that no subscription takes on average: so few rows need no sample
LISTED = 1_000  # bad subscriptions that an error lists
log = logging.getLogger("dibs.spark")

Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class Compilation:
    """What `compile` has made: the version (see dibs.spark.versions), and the subscriptions that it refused, as a
    DataFrame(position, id, expression, error)."""

    path: str
    version: Version
    rejected: DataFrame


def compile(
    subscriptions: DataFrame | Matcher | str | os.PathLike[str],
    path: str | os.PathLike[str],
    shards: int | str = "auto",
    *,
    changes: bool = False,
    index: str = AUTO,
    options: Mapping[str, Any] | None = None,
    on_error: OnError = "raise",
    memory: int | None = None,
    progress: Progress | None = None,
) -> Compilation:
    """Compiles subscriptions on Spark's workers, as the next version of the index at `path`.

    subscriptions  a DataFrame (id, expression[, weight]); the path of such a table (Parquet, Delta); or a Matcher. Of a
                   version that is there already, what is the same stays: only what changed is compiled. Its ids decide:
                   a subscription that the table does not have any more is gone.
    path           a folder that the driver and all workers see, or a URL (dibs.spark.versions says more). Nothing that
                   a job may be using is changed; remove_versions removes old versions.
    shards         into how many parts the index is cut, so that no worker needs all of it: "auto", as many as it takes
                   for each to fit into `memory`; or a number. Of an index that is there already it stays.
    changes        the frame holds changes, not the whole table: (id, expression[, weight, deleted]). What it does not
                   name stays. Of several changes of one id the last one in the frame counts.
    index, options  how they are indexed, as for a Matcher. Of an index that is there already both stay.
    on_error       "raise": SubscriptionErrors lists the bad ones (the first 1,000), and there is no new version.
                   "skip": the others are compiled, and `rejected` of the result has the bad ones. A bad change changes
                   nothing.
    memory         bytes of the index that a worker may hold (half of this machine's memory by default).
    progress       called with what is being done, and how many of about 100 parts of the work are done.

    Returns the version and the bad subscriptions. Raises FormatError when somebody else writes to `path` meanwhile.
    """
    check_on_error(on_error)
    choice = check_choice(index, None, None, options)
    session = session_of(subscriptions)
    table = subscription_columns(_frame(session, subscriptions), feed=changes)
    place = place_of(path)
    compiling = _Compiling(session, place, table, changes, choice, progress)
    memory = half_of_memory() if memory is None else check_number("memory", memory)
    version, files = compiling.run(shards, memory)
    rejected = frame_rejected(session, place, version, table.id_type)
    if version.rejected and on_error == "raise":
        rows = rejected.orderBy("position").limit(LISTED).collect()
        place.discard(files)
        raise SubscriptionErrors([Rejected(r.position, r.id, r.expression, DibsError(r.error)) for r in rows])
    place.commit(version)
    compiling.tell("done", 100)
    return Compilation(place.name, version, rejected)


def half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _frame(session: SparkSession, subscriptions: Any) -> DataFrame:
    if isinstance(subscriptions, Matcher):
        return session.createDataFrame(rows_of(subscriptions))
    if isinstance(subscriptions, (str, os.PathLike)):
        frame = table_frame(session, subscriptions)
        if frame is None:
            raise FormatError(f"{subscriptions} is no table of subscriptions: expected Parquet files, or a Delta table")
        return frame
    if not is_frame(subscriptions):
        raise not_subscriptions(subscriptions)
    return subscriptions


def rows_of(matcher: Matcher) -> pa.Table:
    """The subscriptions of a matcher as a table."""
    parts = []
    for layer in matcher.snapshot().layers:
        rows = layer.gone.find_kept()
        chosen, segment = pa.array(rows), layer.segment
        weights = pa.array(segment.weights_at(rows))
        columns = [segment.ids.ids.take(chosen), segment.texts.take(chosen), weights]
        parts.append(pa.table(columns, names=["id", "expression", "weight"]))
    if len({str(part.schema.field("id").type) for part in parts}) > 1:
        raise DibsError("the ids of the matcher are integers and strings, and a column of Spark has one type")
    if not parts:
        return pa.table({"id": pa.array([], pa.string()), "expression": pa.array([], pa.string())})
    table = pa.concat_tables(parts)
    return table if matcher.weighted else table.drop_columns("weight")


class _Compiling:
    def __init__(
        self,
        session: SparkSession,
        place: Place,
        table: Subscriptions,
        feed: bool,
        choice: Choice,
        progress: Progress | None,
    ):
        self._session, self._place, self._table, self._feed = session, place, table, feed
        self._progress = progress
        self._began = time.perf_counter()
        there = place.numbers()
        self._old = place.read(there[-1]) if there else None
        if self._old is not None and self._old.segments and (self._old.ids == "int64") == table.text_ids:
            raise DibsError(
                f"the ids in {place.name} are of the type {self._old.ids}, those of the table are not: cast them, or "
                "compile to another path"
            )
        self._job = Job(
            path=place.name,
            version=1 if self._old is None else self._old.version + 1,
            index=choice.name if self._old is None else self._old.index,
            options=dict(choice.options) if self._old is None else self._old.options,
            weighted=table.weighted or (self._old is not None and self._old.weighted),
            text_ids=table.text_ids,
            rows_of_a_segment=thresholds.spark_segment,
            cuts=None,
            feed=feed,
            old=self._old,
        )

    def tell(self, what: str, parts: int) -> None:
        log.info("compiling %s: %s (%d %%)", self._place.name, what, parts)
        if self._progress is not None:
            self._progress(what, parts)

    def run(self, shards: int | str, memory: int) -> tuple[Version, list[str]]:
        """The version, which is not written yet, and the new files."""
        self.tell("counting", 0)
        count = self._table.frame.count()
        cuts = self._cuts(count, shards, memory)
        job = self._job = replace(self._job, cuts=cuts)
        self.tell(f"building {count:,} subscriptions", 10)
        news = self._build(count, job)
        self.tell("merging", 80)
        segments = self._segments(news)
        files = [s.file for s in segments if s.file not in self._read_known()]
        segments, merged = self._merge(segments, job)
        version = self._version(segments, news, job)
        counted: dict[str, int] = {}  # rows of each partition of the table
        for partition, rows in (item for n in news for item in n.get("counted", {}).items()):
            counted[partition] = counted.get(partition, 0) + rows
        about = {
            "rows": count,
            "changes": self._feed,
            "seconds": round(time.perf_counter() - self._began, 3),
            "merged": merged,
            "counted": counted,
        }
        files = sorted({*files, *(s.file for s in segments if s.file not in self._read_known())})
        files += [n["file"] for n in news if "file" in n]
        return replace(version, about=about), files

    def _read_known(self) -> set[str]:
        return set() if self._old is None else {s.file for s in self._old.segments}

    # ---- shards ----

    def _cuts(self, count: int, shards: int | str, memory: int) -> Cuts | None:
        if self._old is not None:
            cuts = self._old.sharding.get("cuts")
            return None if cuts is None else Cuts(tuple((a, k, v) for a, k, v in cuts))
        if shards != "auto" and not isinstance(shards, int):
            raise ArgumentError(f'shards must be "auto" or a positive number, not {show(shards)}')
        wanted = None if shards == "auto" else check_number("shards", shards)
        if wanted == 1 or (wanted is None and count * ROOMY <= memory):
            return None
        self.tell("sampling", 5)
        some = self._table.frame.select("id", "expression").sample(min(1.0, SAMPLED / max(count, 1)), 7)
        told = self._collect(some.coalesce(2), "sample", replace(self._job, index=AUTO, options={}))
        rows = sum(t["rows"] for t in told)
        if wanted is None:
            wanted = math.ceil(count * sum(t["bytes"] for t in told) / max(rows, 1) / memory)
        keys: dict[Any, int] = {}
        for (attribute, kind, value), number in (item for t in told for item in t["keys"]):
            keys[attribute, kind, value] = keys.get((attribute, kind, value), 0) + number
        return None if wanted <= 1 else cuts_of(keys, wanted)

    # ---- jobs ----

    def _build(self, count: int, job: Job) -> list[dict[str, Any]]:
        cores = cores_of(self._session)
        parts = max(min(cores, count // thresholds.spark_task), math.ceil(count / job.rows_of_a_segment), 1)
        new = self._table.frame.withColumn("position", F.monotonically_increasing_id())
        new = new.withColumn("segment", F.lit(None).cast("int")).withColumn("row", F.lit(None).cast("long"))
        if self._old is None and job.cuts is None:
            return self._collect(new.repartition(parts, "id"), "build_at_once", job)
        rows = new
        if self._old is not None and self._old.segments:
            number = self._session.range(0, len(self._old.segments), 1, len(self._old.segments))
            rows = new.unionByName(number.mapInArrow(_task("old_rows", job), _nullable(new.schema)))
            parts = max(parts, min(cores, self._old.subscriptions // thresholds.spark_task))
        schema = StructType(
            [
                StructField("what", IntegerType()),
                StructField("part", IntegerType()),
                StructField("id", self._table.id_type),
                StructField("expression", StringType()),
                *new.select("weight").schema.fields,
                StructField("position", LongType()),
                StructField("row", LongType()),
                StructField("error", StringType()),
            ]
        )
        changed = rows.repartition(parts, "id").mapInArrow(_task("find_changes", job), schema)
        return self._collect(changed.repartition(max(cores, job.shards), "part"), "build", job)

    def _collect(self, frame: DataFrame, task: str, job: Job) -> list[dict[str, Any]]:
        told = frame.mapInArrow(_task(task, job), "told string").collect()
        return [json.loads(row.told) for row in told]

    # ---- the version ----

    def _segments(self, news: list[dict[str, Any]]) -> list[VersionSegment]:
        """Those of the old version, without what goes, and the new ones."""
        old = [] if self._old is None else list(self._old.segments)
        for n in news:
            if "removed" in n:
                stored = old[n["removed"]]
                old[n["removed"]] = replace(stored, removed=n["file"], removed_head=n["head"], removed_rows=n["rows"])
        new = [VersionSegment(**n["segment"]) for n in news if "segment" in n]
        return [s for s in old if s.removed_rows < s.rows] + sorted(new, key=lambda s: (s.shard, -s.rows, s.file))

    def _merge(self, segments: list[VersionSegment], job: Job) -> tuple[list[VersionSegment], int]:
        """With those merged that should be."""
        groups = due(segments)
        if not groups:
            return segments, 0
        texts = [(json.dumps([asdict(s) for s in group]),) for group in groups]
        frame = self._session.createDataFrame(texts, "parts string").repartition(len(texts))
        told = self._collect(frame, "merge_parts", job)
        gone = {name for t in told for name in t["merged"]}
        new = [VersionSegment(**t["segment"]) for t in told if "segment" in t]
        return [s for s in segments if s.file not in gone] + new, len(groups)

    def _version(self, segments: list[VersionSegment], news: list[dict[str, Any]], job: Job) -> Version:
        kinds = {} if self._old is None else dict(self._old.kinds)
        for n in news:
            versions.add_kinds(kinds, n.get("kinds", {}))
        sharding: dict[str, Any] = {}
        if job.cuts is not None:
            before = self._old.sharding["reach"] if self._old is not None else [{} for _ in range(job.cuts.shards)]
            reach = [{name: list(asked) for name, asked in its.items()} for its in before]
            for n in news:
                for attribute, asked in n.get("reach", {}).items():
                    widen(reach[n["segment"]["shard"]], attribute, asked)
            sharding = {"cuts": [list(key) for key in job.cuts.cuts], "reach": reach, "routes": list(map(route, reach))}
        return Version(
            version=job.version,
            index=job.index,
            options=job.options,
            ids="string" if job.text_ids else "int64",
            weighted=job.weighted,
            kinds=kinds,
            segments=tuple(segments),
            rejected=sum(n.get("rejected", 0) for n in news),
            sharding=sharding,
        )


def _nullable(schema: StructType) -> StructType:
    return StructType([StructField(f.name, f.dataType) for f in schema.fields])


def cores_of(session: SparkSession) -> int:
    """How many tasks run at once, as far as one can know."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return int(session.conf.get("spark.default.parallelism", "") or os.cpu_count() or 2)


def _task(name: str, job: Job) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What Spark pickles: by value, and with plain values, so that a worker without Dibs can say so."""
    fields = job.pack()

    def dibs_compile(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib.util
        import sys

        if importlib.util.find_spec("dibs") is None:
            raise RuntimeError(
                f"Dibs is not installed in the Python of Spark's workers, {sys.executable}: install it there"
            )
        from dibs.spark import building
        from dibs.spark.tasks import Job

        return getattr(building, name)(batches, Job.unpack(fields))

    return dibs_compile


listed = ["position", "id", "expression", "error"]  # the columns of what was rejected


def frame_rejected(
    session: SparkSession, place: Place, version: Version, id_type: DataType, shared: bool = True
) -> DataFrame:
    """The bad subscriptions with their positions in the table: as many rows as the partitions before theirs have, and
    their own place in it. shared: Spark sees the place."""
    types = [LongType(), id_type, StringType(), StringType()]
    schema = StructType([StructField(name, kind) for name, kind in zip(listed, types)])
    if not version.rejected:
        return session.createDataFrame([], schema)
    folder = f"{place.name}/{versions.REJECTED}/{version.version:012d}"
    rows = session.read.schema(schema).parquet(folder) if shared else session.createDataFrame(pq.read_table(folder))
    offsets, total = [], 0
    for partition, count in sorted((int(p), count) for p, count in version.about["counted"].items()):
        offsets.append((partition, total))
        total += count
    joined = rows.withColumn("partition", F.shiftright("position", PARTITION_BITS)).join(
        F.broadcast(session.createDataFrame(offsets, "partition long, before long")), "partition"
    )
    own = F.col("position") - F.shiftleft("partition", PARTITION_BITS)
    return joined.select((F.col("before") + own).alias("position"), "id", "expression", "error")
