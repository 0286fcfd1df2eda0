"""The steps of `compile`, on the driver: runs the jobs, and writes the version from their reports.

    the first version
        table ─> build_at_once ─────────────────────────┐ segment files     ids that come twice     one small file:
        table ─> find_shards ── by shard ──> build ─────┴──────────────> find_repeated ──────────> the version
    a later one
        new table ──┐ by id            what changed, by shard    segment files
        old version ┴──> find_changes ──────────────────> build ──────────────> merge_parts ─────> the version

Tasks write the files (spark.building); what comes back to the driver are JSON texts about them. Of a first version no
row is shuffled for the sake of its id: ids that come twice are found by hashes (spark.repeated).
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

from dibs.arguments import check_number
from dibs.errors import ArgumentError, DibsError, show
from dibs.index import AUTO
from dibs.language.types import Types
from dibs.segments.segment import Choice
from dibs.spark.access import Cuts, cuts_of, route, widen
from dibs.spark.frames import Subscriptions, cores_of
from dibs.spark.merging import SPARK_SEGMENT, due
from dibs.spark.ordering import Ordering, clash
from dibs.spark.places import Place
from dibs.spark.shipping import in_worker
from dibs.spark.tasks import Job
from dibs.storage import versions
from dibs.storage.versions import Version, VersionSegment
from dibs.tuning import tuned

SPARK_TASK = tuned("spark_task", 20_000, 10, "subscriptions", "that are worth a task of their own")

SAMPLED = 50_000  # rows that the number of shards and their cuts are found from
ROOMY = 2_000  # bytes that no subscription takes on average: so few rows need no sample
UNEVEN = 2  # times its share of the rows that a partition may have
HASHED_SEGMENTS = 4  # full segments, the hashes of whose ids one task compares
log = logging.getLogger("dibs.spark")

Progress = Callable[[str, int], None]


class Compiling:
    """One call of `compile`."""

    def __init__(
        self,
        session: SparkSession,
        place: Place,
        table: Subscriptions,
        feed: bool,
        choice: Choice,
        progress: Progress | None,
        types: Types | None = None,
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
        own = dict(types or {}) if self._old is None else self._old.types
        if types is not None and dict(types) != own:
            raise ArgumentError(
                f"{place.name} has {f'the types {own}' if own else 'no types'}, which stay: leave types out, or "
                "compile to another path"
            )
        self._job = Job(
            path=place.name,
            version=1 if self._old is None else self._old.version + 1,
            index=choice.name if self._old is None else self._old.index,
            options=dict(choice.options) if self._old is None else self._old.options,
            weighted=table.weighted or (self._old is not None and self._old.weighted),
            text_ids=table.text_ids,
            rows_of_a_segment=SPARK_SEGMENT.value,
            cuts=None,
            types=own,
            feed=feed,
            unique_ids=feed or self._old is not None,
            clash="" if table.ordering is None else str(clash(table.ordering.why)),
            old=self._old,
        )

    def tell(self, what: str, parts: int) -> None:
        log.info("compiling %s: %s (%d %%)", self._place.name, what, parts)
        if self._progress is not None:
            self._progress(what, parts)

    def run(self, shards: int | str, memory: int) -> tuple[Version, list[str]]:
        """The version, which is not written yet, and the new files."""
        self.tell("counting", 0)
        sizes = self._count()
        count = sum(sizes)
        cuts = self._cuts(count, shards, memory)
        job = self._job = replace(self._job, cuts=cuts)
        self.tell(f"building {count:,} subscriptions", 10)
        news = self._build(sizes, job)
        self.tell("looking for ids that come twice", 75)
        news += self._find_repeated(news, job)
        self.tell("merging", 80)
        segments = self._segments(news)
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
        files = {s.file for s in segments if s.file not in self._read_known()}
        files |= {n["segment"]["file"] for n in news if "segment" in n} | {n["file"] for n in news if "file" in n}
        merged_away = {name for name in files if name.startswith(versions.SEGMENTS)} - set(version.files())
        self._place.discard(merged_away)
        return replace(version, about=about), sorted(files - merged_away)

    def _count(self) -> list[int]:
        """How many rows the partitions of the table have that have any; if rows go by id, only how many there are."""
        if self._job.unique_ids:
            return [self._table.frame.count()]
        frame = self._table.frame.groupBy(F.spark_partition_id().alias("partition"))
        return [row["count"] for row in frame.count().collect()]

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

    def _build(self, sizes: list[int], job: Job) -> list[dict[str, Any]]:
        count, cores = sum(sizes), cores_of(self._session)
        parts = max(min(cores, count // SPARK_TASK.value), math.ceil(count / job.rows_of_a_segment), 1)
        new = self._table.frame.withColumn("position", F.monotonically_increasing_id())
        if job.unique_ids:
            changed = self._beside_old(new, parts, job).mapInArrow(_task("find_changes", job), self._changed_schema)
        else:
            named = ["id", "expression", *(["weight"] if job.weighted else []), "position"]
            new = _deal_out(new.select(*named), sizes, parts, cores)
            if job.cuts is None:
                return self._collect(new, "build_at_once", job)
            changed = new.mapInArrow(_task("find_shards", job), self._changed_schema)
        return self._collect(changed.repartition(max(cores, job.shards), "part"), "build", job)

    def _beside_old(self, new: DataFrame, parts: int, job: Job) -> DataFrame:
        """The new rows and those of the old version, by id."""
        rows = new.withColumn("segment", F.lit(None).cast("int")).withColumn("row", F.lit(None).cast("long"))
        named = [name for name in rows.columns if self._ordering is None or name not in self._ordering.columns]
        if self._old is not None and self._old.segments:
            number = self._session.range(0, len(self._old.segments), 1, len(self._old.segments))
            old = number.mapInArrow(_task("old_rows", job), _nullable(rows.select(*named).schema))
            rows = rows.unionByName(old, allowMissingColumns=True)
            parts = max(parts, min(cores_of(self._session), self._old.subscriptions // SPARK_TASK.value))
        rows = rows.repartition(parts, "id")
        if self._ordering is None:
            return rows
        # By id and segment, so that old rows, of which no two are alike in both, have ranks of their own.
        return rows.select(*named, self._ordering.rank("position", "id", "segment").alias("rank"))

    @property
    def _ordering(self) -> Ordering | None:
        return self._table.ordering

    @property
    def _changed_schema(self) -> StructType:
        """Of the rows that go to `build`."""
        return StructType(
            [
                StructField("what", IntegerType()),
                StructField("part", IntegerType()),
                StructField("id", self._table.id_type),
                StructField("expression", StringType()),
                StructField("weight", DoubleType()),
                StructField("position", LongType()),
                StructField("row", LongType()),
                StructField("error", StringType()),
            ]
        )

    def _find_repeated(self, news: list[dict[str, Any]], job: Job) -> list[dict[str, Any]]:
        """What is told of ids that several new segments have; their files of ids go."""
        built = [n for n in news if "ids" in n]
        found: list[dict[str, Any]] = []
        try:
            if len(built) < 2:
                return []
            segments, names = [n["segment"] for n in built], [n["ids"] for n in built]
            parts = math.ceil(sum(s["rows"] for s in segments) / (HASHED_SEGMENTS * job.rows_of_a_segment))
            common = {"segments": segments, "ids": names, "parts": parts}
            found = self._collect_each([{**common, "part": part} for part in range(parts)], "find_repeated", job)
            lost_of: dict[int, list[str]] = {}  # the files that name rows of a segment
            for number, name in ((number, t["lost"]) for t in found for number in t["segments"]):
                lost_of.setdefault(number, []).append(name)
            losing = [{"number": n, "segment": segments[n], "lost": names} for n, names in sorted(lost_of.items())]
            return self._collect_each(losing, "remove_repeated", job)
        finally:
            self._place.discard([n["ids"] for n in built] + [t["lost"] for t in found])

    def _collect(self, frame: DataFrame, task: str, job: Job) -> list[dict[str, Any]]:
        told = frame.mapInArrow(_task(task, job), "told string").collect()
        return [json.loads(row.told) for row in told]

    def _collect_each(self, items: Sequence[Any], task: str, job: Job) -> list[dict[str, Any]]:
        """What tasks tell that get these, as texts of JSON."""
        if not items:
            return []
        frame = self._session.createDataFrame(pa.table({"item": [json.dumps(item) for item in items]}))
        return self._collect(frame.coalesce(1) if len(items) == 1 else frame.repartition(len(items)), task, job)

    # ---- the version ----

    def _segments(self, news: list[dict[str, Any]]) -> list[VersionSegment]:
        """Those of the old version, without what goes, and the new ones."""
        old = [] if self._old is None else list(self._old.segments)
        for n in news:
            if "removed" in n:
                stored = old[n["removed"]]
                old[n["removed"]] = replace(stored, removed=n["file"], removed_head=n["head"], removed_rows=n["rows"])
        new = [VersionSegment(**n["segment"]) for n in news if "segment" in n]
        lost = {n["repeated"]: n for n in news if "repeated" in n}
        for place, stored in enumerate(new):
            if stored.file in lost:
                told = lost[stored.file]
                new[place] = replace(stored, removed=told["file"], removed_head=told["head"], removed_rows=told["rows"])
        new = [s for s in new if s.removed_rows < s.rows]
        return [s for s in old if s.removed_rows < s.rows] + sorted(new, key=lambda s: (s.shard, -s.rows, s.file))

    def _merge(self, segments: list[VersionSegment], job: Job) -> tuple[list[VersionSegment], int]:
        """With those merged that should be."""
        groups = due(segments)
        if not groups:
            return segments, 0
        told = self._collect_each([[asdict(s) for s in group] for group in groups], "merge_parts", job)
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
            routes = [route(each, job.types) for each in reach]
            sharding = {"cuts": [list(key) for key in job.cuts.cuts], "reach": reach, "routes": routes}
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
            types=job.types,
        )


def _deal_out(rows: DataFrame, sizes: list[int], parts: int, cores: int) -> DataFrame:
    """The rows in at most about so many partitions: as they are or neighbours together; shuffled, by id, only if too
    few tasks would have most of them. sizes: of the partitions that they have."""
    count = sum(sizes)
    tasks = min(parts, cores)
    if len(sizes) < tasks or max(sizes, default=0) * tasks > UNEVEN * count:
        return rows.repartition(parts, "id")
    return rows.coalesce(parts)


def _nullable(schema: StructType) -> StructType:
    return StructType([StructField(f.name, f.dataType) for f in schema.fields])


def _task(name: str, job: Job) -> Callable[[Iterable[Any]], Iterator[Any]]:
    return in_worker(f"dibs.spark.building:{name}", job, called=f"dibs_{name}")
