"""One micro-batch after the other: a snapshot of the subscriptions, a record of it, a job, a sink."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampNTZType, TimestampType

from dibs.errors import ArgumentError, DibsError
from dibs.jit.parcel import pack
from dibs.language.present import read_clock
from dibs.matcher import Matcher
from dibs.spark.describing import describe_jobs
from dibs.spark.events import RESULT_NAMES, attribute_places, check_arrow, column_name, event_place
from dibs.spark.fed import Feed, Heard
from dibs.spark.frames import is_local
from dibs.spark.joins.growing import GrowingHistory
from dibs.spark.joins.growing_log import Record
from dibs.spark.joins.history import missing_history
from dibs.spark.ledger import Ledger
from dibs.spark.living import Living
from dibs.spark.living_worker import MatchColumns, Shipment
from dibs.spark.metrics import BatchMetrics, CountsByPartition, Taken, put_together
from dibs.spark.mistakes import Mistakes, SegmentMistakes
from dibs.spark.output import check_output
from dibs.spark.sinks import Parquet, Sink
from dibs.spark.snapshots import BASES, Follower, Snapshot, id_type_of, refuse_mixed_ids, step_path

log = logging.getLogger("dibs.spark")
CARRIED = ("version", "subscription_version", "weight")
REMEMBERED = 1_000  # batches whose metrics are kept
BROADCAST_BYTES = 2**30
QUERY_ID = "sql.streaming.queryId"  # the property that names the query of a batch, the same while its checkpoint lives


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


def find_wanted(
    events: DataFrame,
    event_id: Any,
    attributes: Any,
    carry: Iterable[str],
    event_time: Any,
    keep: Iterable[Any],
    top: int | None,
) -> Wanted:
    """What is asked for, with the names that the columns have."""
    output = check_output("long", top, keep, False, False)
    kept = tuple(column_name(events, given, "keep") for given in output.keep)
    optional = {"attributes": attributes, "event_time": event_time}
    names = {p: None if given is None else column_name(events, given, p) for p, given in optional.items()}
    return Wanted(column_name(events, event_id, "event_id"), carry=tuple(carry), keep=kept, top=output.top, **names)


class MicroBatches:
    def __init__(
        self,
        ledger: Ledger,
        checkpoint: str,
        living: Living,
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
            if isinstance(self._sink, Parquet) and not self.recent:  # later ones are next to its own
                self._sink.check_new(events.sparkSession, batch)
            snapshot = replace(self._living.now(), now=read_clock())
            self._prepared = ()
            self._ledger.write(batch, snapshot, query)
        self._ledger.tidy(batch, snapshot, query, *self._prepared)
        matcher = self._follower.bring_to(self._base(snapshot), snapshot, self._ledger.state)
        id_type = self._check_id_type(id_type_of(matcher))
        changes = 0 if self._before is None else max(0, snapshot.version - self._before)
        taken = Taken(
            batch=batch,
            version=snapshot.version,
            subscriptions=len(matcher),
            changes=changes,
            rejected=heard.rejected,
            notice=heard.notice,
            mistakes=self._check_mistakes(matcher),
            replayed=replayed,
            started=started,
            compile_seconds=time.perf_counter() - started,
        )
        counts = events.sparkSession.sparkContext.accumulator({}, CountsByPartition())
        past = None
        if self._history is not None:
            with describe_jobs(events.sparkSession, f"batch {batch} joins the history"):
                past = self._history.begin(events, batch, query, matcher)
        elif matcher.joins:
            raise missing_history(matcher.joins[0])
        joined = past if matcher.joins else None
        told = f"batch {batch} against {len(matcher):,} subscriptions, version {snapshot.version:,}"
        with describe_jobs(events.sparkSession, told):
            self._sink.write(self._matches(events, snapshot, id_type, counts, joined), batch)
        metrics = put_together(taken, counts.value, 0 if past is None else past.unreadable)
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

    def _matches(
        self, events: DataFrame, snapshot: Snapshot, id_type: pa.DataType, counts: Any, past: Record | None
    ) -> DataFrame:
        """past: what joins over history see, if there are any."""
        wanted = self._wanted
        id_place = event_place(events, wanted.event_id, "event_id")
        places = attribute_places(events, self._find_mentioned(snapshot), id_place, wanted.attributes)
        # By position, as columns of a frame may be called the same but for upper and lower case, or hold dots.
        numbered = events.toDF(*(f"c{i}" for i in range(len(events.columns))))
        kept = [event_place(events, name, "keep") for name in wanted.keep]
        columns = [F.col(f"c{id_place}").alias("event_id")]
        columns += [F.col(f"c{p}").alias(f"k{i}") for i, p in enumerate(kept)]
        columns += [F.col(f"c{p}").alias(f"a{p}") for p in places]
        if wanted.event_time is not None:
            columns.append(F.col(f"c{event_place(events, wanted.event_time, 'event_time')}").alias("event_time"))
        columns.append(F.spark_partition_id().alias("partition"))
        text_ids = id_type != pa.int64()
        carry = ("weight" in wanted.carry, "subscription_version" in wanted.carry)
        output = MatchColumns(text_ids, *carry, keep=wanted.keep, top=wanted.top)
        fields = [
            StructField("event_id", events.schema.fields[id_place].dataType),
            *(StructField(name, events.schema.fields[p].dataType) for name, p in zip(wanted.keep, kept)),
            StructField("subscription_id", StringType() if text_ids else LongType()),
        ]
        if output.weight:
            fields.append(StructField("weight", DoubleType()))
        if output.subscription_version:
            fields.append(StructField("subscription_version", LongType()))
        shipment = self._shipment(events, snapshot)
        if past is not None:
            assert self._history is not None
            arguments = (events, past, self._follower.matcher, shipment, output, fields, counts)
            return self._with_version(self._history.match(*arguments), snapshot)
        function = _worker_function(
            counts,
            shipment=shipment,
            names=[events.columns[p] for p in places],
            attributes=wanted.attributes,
            timed=wanted.event_time is not None,
            output=output,
        )
        return self._with_version(numbered.select(*columns).mapInArrow(function, StructType(fields)), snapshot)

    def _with_version(self, matches: DataFrame, snapshot: Snapshot) -> DataFrame:
        if "version" not in self._wanted.carry:
            return matches
        return matches.withColumn("version", F.lit(snapshot.version).cast("bigint"))

    def _find_mentioned(self, snapshot: Snapshot) -> frozenset[str]:
        """The attributes that subscriptions mention, if the events' columns are attributes."""
        if self._wanted.attributes is not None:
            return frozenset()
        key = snapshot.base, snapshot.version
        if self._attributes is None or self._attributes[0] != key:
            self._attributes = key, self._follower.matcher.attributes
        return self._attributes[1]

    def _shipment(self, events: DataFrame, snapshot: Snapshot) -> Shipment:
        state = self._ledger.state
        if is_local(events.sparkSession):
            return Shipment(str(state), snapshot, None, None, None)
        steps = {step.name: step_path(state, step.name).read_bytes() for step in snapshot.steps}
        if self._kernels is None:
            kernels = pack()
            content = None if kernels is None else (kernels.processor, kernels.content)
            self._kernels = events.sparkSession.sparkContext.broadcast(content)
        return Shipment(str(state), snapshot, steps, self._broadcast_of(events, snapshot), self._kernels)

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


def _worker_function(counts: Any, **arguments: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def dibs_match(batches: Iterable[Any]) -> Iterator[Any]:
        from dibs.spark.living_worker import match_snapshot
        from dibs.spark.metrics import count_into

        return match_snapshot(batches, count=count_into(counts), **arguments)

    return dibs_match
