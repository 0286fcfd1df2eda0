"""One micro-batch after the other: a snapshot of the subscriptions, a record of it, a job, a sink."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampNTZType, TimestampType

from dibs.errors import ArgumentError, DibsError
from dibs.jit.parcel import pack
from dibs.spark.events import attribute_places, check_arrow, event_place
from dibs.spark.feeds import Feed
from dibs.spark.frames import is_local
from dibs.spark.joins.growing import GrowingHistory
from dibs.spark.joins.growing_log import Record
from dibs.spark.joins.history import missing_history
from dibs.spark.ledger import Ledger
from dibs.spark.living import Living
from dibs.spark.living_worker import Counts, MatchColumns, Shipment
from dibs.spark.metrics import BatchMetrics, CountsByPartition, Taken, put_together
from dibs.spark.sinks import Parquet, Sink
from dibs.spark.snapshots import BASES, Follower, Snapshot, id_type_of, refuse_mixed_ids, step_path

CARRIED = ("version", "subscription_version", "weight")
UNREADABLE = -1  # in place of a partition: events that no task was given
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

    def check(self, events: DataFrame) -> None:
        id_place = event_place(events, self.event_id, "event_id")
        for place in (id_place, *attribute_places(events, frozenset(), id_place, self.attributes)):
            check_arrow(events.columns[place], events.schema.fields[place].dataType)
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


class MicroBatches:
    def __init__(
        self,
        ledger: Ledger,
        checkpoint: str,
        living: Living,
        feed: Feed | None,
        sink: Sink,
        wanted: Wanted,
        history: GrowingHistory | None = None,
    ) -> None:
        """checkpoint: stands for the query where there is none, as in a backfill. history: None: joins are refused."""
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

    def run(self, events: DataFrame, batch: int) -> None:
        """What Spark calls for each micro-batch."""
        started = time.perf_counter()
        rejected = 0 if self._feed is None else self._feed.check()
        query = events.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or self._checkpoint
        snapshot = self._ledger.read(batch, query)
        replayed = snapshot is not None
        if snapshot is None:
            if isinstance(self._sink, Parquet) and not self.recent:  # later ones are next to its own
                self._sink.check_new(events.sparkSession, batch)
            snapshot = self._living.now()
            self._ledger.write(batch, snapshot, query)
        self._ledger.tidy(batch, snapshot, query)
        matcher = self._follower.bring_to(self._base(snapshot), snapshot, self._ledger.state)
        id_type = self._check_id_type(id_type_of(matcher))
        changes = 0 if self._before is None else max(0, snapshot.version - self._before)
        taken = Taken(
            batch=batch,
            version=snapshot.version,
            subscriptions=len(matcher),
            changes=changes,
            rejected=rejected,
            replayed=replayed,
            started=started,
            compile_seconds=time.perf_counter() - started,
        )
        counts = events.sparkSession.sparkContext.accumulator({}, CountsByPartition())
        past = None
        if self._history is not None:
            past = self._history.begin(events, batch, query, matcher)
            counts.add({UNREADABLE: Counts(past.unreadable, 0, past.unreadable)})
        elif matcher.joins:
            raise missing_history(matcher.joins[0])
        joined = past if matcher.joins else None
        self._sink.write(self._matches(events, snapshot, id_type, counts, joined), batch)
        metrics = put_together(taken, counts.value)
        self._before = snapshot.version
        self.recent.append(metrics)
        if self.on_batch is not None:
            self.on_batch(metrics)

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
        columns = [F.col(f"c{id_place}").alias("event_id"), *(F.col(f"c{p}").alias(f"a{p}") for p in places)]
        if wanted.event_time is not None:
            columns.append(F.col(f"c{event_place(events, wanted.event_time, 'event_time')}").alias("event_time"))
        text_ids = id_type != pa.int64()
        output = MatchColumns(text_ids, "weight" in wanted.carry, "subscription_version" in wanted.carry)
        fields = [
            StructField("event_id", events.schema.fields[id_place].dataType),
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

    def close(self) -> None:
        self._living.close()
        self._follower.matcher.close()


def _worker_function(counts: Any, **arguments: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def dibs_match(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        from dibs.spark.living_worker import match_snapshot

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        return match_snapshot(batches, count=lambda found: counts.add({partition: found}), **arguments)

    return dibs_match
