"""One micro-batch after the other: a snapshot of the subscriptions, a record of it, a job, a sink."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, TimestampNTZType, TimestampType

from dibs.errors import ArgumentError, DibsError
from dibs.jit.parcel import pack
from dibs.language.present import read_clock
from dibs.matcher import Matcher
from dibs.spark.dealing import EventColumns, Shipment
from dibs.spark.events import RESULT_NAMES, attribute_places, check_arrow, column_name, event_place
from dibs.spark.fed import Feed, Heard
from dibs.spark.found import Found
from dibs.spark.frames import is_local
from dibs.spark.joins.growing import GrowingHistory
from dibs.spark.joins.growing_log import Record
from dibs.spark.joins.history import missing_history
from dibs.spark.ledger import Ledger
from dibs.spark.metrics import BatchMetrics, Counted, CountsByPartition, put_together
from dibs.spark.mistakes import Mistakes, SegmentMistakes
from dibs.spark.options import StreamOptions
from dibs.spark.output import Output, check_output, shape_result, worker_schema
from dibs.spark.parquet_files import SPARK_VERSION, TOLD, Target, arrow_type, begin, commit, find_folder
from dibs.spark.session import describe_jobs
from dibs.spark.shipping import in_worker
from dibs.spark.sinks import QUERY_ID, Catalog, Parquet, Sink
from dibs.spark.snapshots import BASES, Follower, Snapshot, id_type_of, refuse_mixed_ids, step_path
from dibs.spark.subscription_sources import SubscriptionSource
from dibs.spark.worker import Task

log = logging.getLogger("dibs.spark")
CARRIED = ("version", "subscription_version", "weight")
REMEMBERED = 1_000  # batches whose metrics are kept
BROADCAST_BYTES = 2**30
MATCH, WRITE = "dibs.spark.worker:run", "dibs.spark.parquet_files:write"
CARRIED_LISTS = {"weights": "weight", "versions": "subscription_version"}


@dataclass(frozen=True)
class Wanted:
    """How events are read, and what the matches are to have."""

    event_id: str
    attributes: str | None
    carry: tuple[str, ...]
    event_time: str | None
    keep: tuple[str, ...] = ()
    top: int | None = None

    def check(self, events: DataFrame) -> None:
        id_place = event_place(events, self.event_id, "event_id")
        for place in (id_place, *attribute_places(events, frozenset(), id_place, self.attributes)):
            check_arrow(events.columns[place], events.schema.fields[place].dataType)
        for name in self.keep:
            kind = events.schema.fields[event_place(events, name, "keep")].dataType
            check_arrow(name, kind)
            if name in (*RESULT_NAMES, *CARRIED):
                raise DibsError(f"keep={name!r} is the name of a column of the result: rename it in the events")
        for name in self.carry:
            if name not in CARRIED:
                raise ArgumentError(f"carry takes {', '.join(map(repr, CARRIED))}, not {name!r}")
        if self.event_time is not None:
            kind = events.schema.fields[event_place(events, self.event_time, "event_time")].dataType
            if not isinstance(kind, (TimestampType, TimestampNTZType)):
                raise ArgumentError(
                    f"event_time={self.event_time!r} is a column of the type {kind.simpleString()}; expected a "
                    "timestamp"
                )


def find_wanted(events: DataFrame, options: StreamOptions) -> Wanted:
    """What is asked for, with the names that the columns have."""
    output = check_output("long", options.get("top"), options.get("keep", ()), False, False)
    kept = tuple(column_name(events, given, "keep") for given in output.keep)
    optional = {"attributes": options.get("attributes"), "event_time": options.get("event_time")}
    names = {p: None if given is None else column_name(events, given, p) for p, given in optional.items()}
    id, carry = column_name(events, options.get("event_id", "id"), "event_id"), tuple(options.get("carry", ()))
    return Wanted(id, carry=carry, keep=kept, top=output.top, **names)


class MicroBatches:
    def __init__(
        self,
        events: DataFrame,
        ledger: Ledger,
        checkpoint: str,
        living: SubscriptionSource,
        feed: Feed | None,
        sink: Sink,
        wanted: Wanted,
        mistakes: Mistakes,
        history: GrowingHistory | None = None,
        strict: bool = False,
    ) -> None:
        """checkpoint: stands for the query where there is none, as in a backfill. history: None: joins are refused.
        strict: so are subscriptions that do not fit the events."""
        self._mistakes, self._strict = SegmentMistakes(mistakes), strict
        self._prepared: tuple[Snapshot, ...] = ()  # before the first batch that is new
        self._history = history
        self._ledger, self._checkpoint = ledger, checkpoint
        self._living, self._feed, self._sink, self._wanted = living, feed, sink, wanted
        self._events, self._schema, self._spark_version = events, events.schema, events.sparkSession.version
        self._carried = [event_place(events, wanted.event_id, "event_id")]
        self._carried += [event_place(events, name, "keep") for name in wanted.keep]
        self._called = ("event_id", *(f"k{i}" for i in range(len(wanted.keep))))
        self._output = Output("long", wanted.top, wanted.keep, explain=False, count_only=False)
        self._direct: tuple[tuple[Path, str] | None] | None = None  # where workers write themselves, once it is known
        self._follower = Follower()
        self._id_type: pa.DataType | None = None
        self._attributes: tuple[tuple[str, int], frozenset[str]] | None = None  # of a base at a version
        self._broadcast: tuple[str, Any] | None = None  # of a base
        self._kernels: Any = None  # a broadcast
        self._before: int | None = None  # the version of the batch before
        self.recent: deque[BatchMetrics] = deque(maxlen=REMEMBERED)
        self.on_batch: Callable[[BatchMetrics], None] | None = None
        self.options: dict[str, str] = {}  # for the next start

    def prepare(self) -> None:
        """Before the first batch: whether the subscriptions as they are can be matched at all."""
        snapshot = self._living.now()
        self._prepared = (snapshot,)
        matcher = self._follower.bring_to(self._base(snapshot), snapshot, self._ledger.state)
        if self._history is None and matcher.joins:
            raise missing_history(matcher.joins[0])
        self._mistakes.tell(self._mistakes.find(matcher), self._strict, 4, matcher)

    def run(self, events: DataFrame, batch: int) -> None:
        """What Spark calls for each micro-batch."""
        started = time.perf_counter()
        heard = Heard() if self._feed is None else self._feed.check()
        query = events.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or self._checkpoint
        snapshot = self._ledger.read(batch, query)
        replayed = snapshot is not None
        if snapshot is None:
            if isinstance(self._sink, (Parquet, Catalog)) and not self.recent:  # later ones are next to its own
                self._sink.check_new(events.sparkSession, batch)
            snapshot = replace(self._living.now(), now=read_clock())
            self._prepared = ()
            self._ledger.write(batch, snapshot, query)
        self._ledger.tidy(batch, snapshot, query, *self._prepared)
        matcher = self._follower.bring_to(self._base(snapshot), snapshot, self._ledger.state)
        id_type = self._check_id_type(id_type_of(matcher))
        changes = 0 if self._before is None else max(0, snapshot.version - self._before)
        known = {
            "batch": batch,
            "version": snapshot.version,
            "subscriptions": len(matcher),
            "changes": changes,
            "rejected": heard.rejected,
            "notice": heard.notice,
            "mistakes": self._check_mistakes(matcher),
            "replayed": replayed,
        }
        compiled = time.perf_counter() - started
        past = None
        if self._history is not None:
            with describe_jobs(events.sparkSession, f"batch {batch} joins the history"):
                past = self._history.begin(events, batch, query, matcher)
        elif matcher.joins:
            raise missing_history(matcher.joins[0])
        joined = past if matcher.joins else None
        told = f"batch {batch} against {len(matcher):,} subscriptions, version {snapshot.version:,}"
        with describe_jobs(events.sparkSession, told):
            counted = self._write(events, *self._plan(events, snapshot, id_type, joined), batch)
        metrics = put_together(started, compiled, counted, 0 if past is None else past.unreadable, **known)
        self._before = snapshot.version
        self.recent.append(metrics)
        if self.on_batch is not None:
            self.on_batch(metrics)

    def _check_mistakes(self, matcher: Matcher) -> tuple[str, ...]:
        found = self._mistakes.find(matcher)
        if self._strict:
            self._mistakes.tell(found, True, 2, matcher)
        told = self._mistakes.describe(found)
        for text in told:
            if text not in (self.recent[-1].mistakes if self.recent else ()):
                log.warning("%s", text)
        return told

    def _base(self, snapshot: Snapshot) -> Path:
        base = self._ledger.state / BASES / snapshot.base
        if not base.is_dir():
            raise DibsError(f"{base} is missing, which a batch that must be run again was begun with: put it back")
        return base

    def _check_id_type(self, found: pa.DataType | None) -> pa.DataType:
        """The type of the column of ids: that of the first ids that there were. It cannot change."""
        if found is None:
            return self._id_type or pa.large_string()
        if self._id_type is not None and self._id_type != found:
            raise refuse_mixed_ids()
        self._id_type = found
        return found

    def _plan(
        self, events: DataFrame, snapshot: Snapshot, id_type: pa.DataType, past: Record | None
    ) -> tuple[DataFrame, Task, list[StructField]]:
        """What workers are given, what they are to do, and the columns that they carry. past: what joins over history
        see, if there are any."""
        wanted, schema = self._wanted, self._schema
        reading = None
        if past is not None:
            assert self._history is not None
            reading = self._history.read(events, past, self._follower.matcher)
            names = reading.names
            frame = events.sparkSession.range(0, reading.homes, 1, reading.homes)
        else:
            places = attribute_places(self._events, self._find_mentioned(snapshot), self._carried[0], wanted.attributes)
            names = tuple(schema.names[p] for p in places)
            times = [] if wanted.event_time is None else [event_place(self._events, wanted.event_time, "event_time")]
            # By position, as columns of a frame may be called the same but for upper and lower case, or hold dots.
            numbered = events.toDF(*(f"c{i}" for i in range(len(schema))))
            columns = [f"c{p} AS {name}" for p, name in zip(self._carried, self._called)]
            columns += [f"c{p} AS a{p}" for p in places] + [f"c{p} AS event_time" for p in times]
            frame = numbered.selectExpr(*columns, "spark_partition_id() AS partition")
        lists = ("ids", *(name for name, called in CARRIED_LISTS.items() if called in wanted.carry))
        found = Found(id_type != pa.int64(), lists, top=wanted.top, every_event=False, problem=False)
        aged = wanted.event_time is not None
        layout = EventColumns(self._called, names, wanted.attributes, aged=aged, numbered=past is None)
        fields = [StructField(name, schema[p].dataType) for name, p in zip(self._called, self._carried)]
        return frame, Task(self._ship(events, snapshot), layout, found, reading), fields

    def _write(self, events: DataFrame, frame: DataFrame, task: Task, fields: list[StructField], batch: int) -> Counted:
        assert isinstance(task.subscriptions, Shipment)
        snapshot, session = task.subscriptions.snapshot, events.sparkSession
        counts = session.sparkContext.accumulator({}, CountsByPartition())
        live = {"counts": counts, **self._send(events, snapshot)}
        called = f"dibs_match[version {snapshot.version}, {len(self._follower.matcher)} subscriptions]"
        version = snapshot.version if "version" in self._wanted.carry else None
        if isinstance(self._sink, Parquet) and self._sink.files is None:
            if self._direct is None:
                self._direct = (find_folder(self._sink.path, fields, session),)
            if self._direct[0] is not None:
                path, codec = self._direct[0]
                folder = begin(path, batch)
                target = Target(str(folder), self._describe_rows(fields, task.found, version), codec, version)
                function = in_worker(WRITE, task, target, called=called, **live)
                files = [row.file for row in frame.mapInArrow(function, TOLD).collect()]
                commit(folder, path, batch, files, target)
                return counts.value
        rows = frame.mapInArrow(in_worker(MATCH, task, called=called, **live), worker_schema(fields, task.found))
        matches = shape_result(rows, self._output, list(self._wanted.keep))
        if version is not None:
            matches = matches.withColumn("version", F.lit(version).cast("bigint"))
        self._sink.write(matches, batch)
        return counts.value

    def _describe_rows(self, fields: list[StructField], found: Found, version: int | None) -> pa.Schema:
        """The columns of the matches."""
        names = ["event_id", *self._wanted.keep]
        carried = [pa.field(name, arrow_type(field.dataType)) for name, field in zip(names, fields)]
        called = {"ids": "subscription_id", **CARRIED_LISTS}
        own = [pa.field(called[name], found.kind(name)) for name in found.lists]
        own += [] if version is None else [pa.field("version", pa.int64())]
        return pa.schema([*carried, *own], {SPARK_VERSION: self._spark_version.encode()})

    def _find_mentioned(self, snapshot: Snapshot) -> frozenset[str]:
        """The attributes that subscriptions mention, if the events' columns are attributes."""
        if self._wanted.attributes is not None:
            return frozenset()
        key = snapshot.base, snapshot.version
        if self._attributes is None or self._attributes[0] != key:
            self._attributes = key, self._follower.matcher.attributes
        return self._attributes[1]

    def _ship(self, events: DataFrame, snapshot: Snapshot) -> Shipment:
        state = self._ledger.state
        if is_local(events.sparkSession):
            return Shipment(str(state), snapshot)
        steps = {step.name: step_path(state, step.name).read_bytes() for step in snapshot.steps}
        return Shipment(str(state), snapshot, steps)

    def _send(self, events: DataFrame, snapshot: Snapshot) -> dict[str, Any]:
        """Broadcasts for workers that do not see this machine's files."""
        if is_local(events.sparkSession):
            return {}
        if self._kernels is None:
            kernels = pack()
            content = None if kernels is None else (kernels.processor, kernels.content)
            self._kernels = events.sparkSession.sparkContext.broadcast(content)
        return {"kernels": self._kernels, "sent": self._broadcast_of(events, snapshot)}

    def _broadcast_of(self, events: DataFrame, snapshot: Snapshot) -> Any:
        """The files of the base, for workers that do not see them: sent once to each machine."""
        if self._broadcast is None or self._broadcast[0] != snapshot.base:
            base = self._base(snapshot)
            paths = sorted(path for path in base.rglob("*") if path.is_file())
            size = sum(path.stat().st_size for path in paths)
            if size > BROADCAST_BYTES:
                return None  # only a state folder that all see will do: a worker that does not says so
            files = {str(path.relative_to(base)): path.read_bytes() for path in paths}
            self._broadcast = snapshot.base, events.sparkSession.sparkContext.broadcast(files)
        return self._broadcast[1]

    @property
    def state(self) -> Path:
        return self._ledger.state

    def close(self) -> None:
        self._living.close()
        if self._history is not None:
            self._history.close()
        self._follower.matcher.close()
        self._ledger.close()
