"""What each micro-batch of a stream was: counted in the workers, put together on the driver."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.accumulators import AccumulatorParam

from dibs.spark.living_worker import Counts


@dataclass(frozen=True)
class BatchMetrics:
    """One micro-batch."""

    batch: int
    version: int  # of the subscriptions that it was matched against
    subscriptions: int
    changes: int  # of subscriptions, since the batch before
    replayed: bool  # it had been begun before, and was run again with the same version
    events: int
    matches: int
    malformed_events: int
    rejected: int  # changes of subscriptions that were left out since the batch before
    lag_seconds: float | None  # from the time of the oldest event to the end of the batch; None: no event_time
    compile_seconds: float  # on the driver and in the slowest worker
    match_seconds: float  # in all workers together
    seconds: float  # for all of it
    finished_at: float  # seconds since 1970


class CountsByPartition(AccumulatorParam):  # type: ignore[misc]  # pyspark is untyped here
    """A task that is run again counts in place of the one before, not beside it."""

    def zero(self, value: dict[int, Counts]) -> dict[int, Counts]:
        return {}

    def addInPlace(self, value1: dict[int, Counts], value2: dict[int, Counts]) -> dict[int, Counts]:
        value1.update(value2)
        return value1


@dataclass(frozen=True)
class Taken:
    """What is known of a batch before it is matched."""

    batch: int
    version: int
    subscriptions: int
    changes: int
    rejected: int
    replayed: bool
    started: float
    compile_seconds: float


def put_together(taken: Taken, counted: dict[int, Counts]) -> BatchMetrics:
    parts, now = list(counted.values()), time.time()
    oldest = [part.oldest for part in parts if part.oldest is not None]
    return BatchMetrics(
        batch=taken.batch,
        version=taken.version,
        subscriptions=taken.subscriptions,
        changes=taken.changes,
        replayed=taken.replayed,
        events=sum(part.events for part in parts),
        matches=sum(part.matches for part in parts),
        malformed_events=sum(part.malformed for part in parts),
        rejected=taken.rejected,
        lag_seconds=now - min(oldest) if oldest else None,
        compile_seconds=taken.compile_seconds + max((part.follow_seconds for part in parts), default=0.0),
        match_seconds=sum(part.match_seconds for part in parts),
        seconds=time.perf_counter() - taken.started,
        finished_at=now,
    )
