"""What each micro-batch of a stream was: counted in the workers, put together on the driver."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pyspark.accumulators import AccumulatorParam

from dibs.spark.worker import Counts

Counted = dict[tuple[int, int], Counts]  # by stage and partition


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
    notice: str | None  # what is wrong with the table of subscriptions, which are those of its last good version
    mistakes: tuple[str, ...]  # attributes that no event has, constants of a kind that no event's value is
    lag_seconds: float | None  # from the time of the oldest event to the end of the batch; None: no event_time
    compile_seconds: float  # on the driver and in the slowest worker
    match_seconds: float  # in all workers together
    event_microseconds: float | None  # the same for one event; None: there was none
    seconds: float  # for all of it
    finished_at: float  # seconds since 1970


class CountsByPartition(AccumulatorParam):  # type: ignore[misc]  # pyspark is untyped here
    """A task that is run again counts in place of the one before, not beside it."""

    def zero(self, value: dict[Any, Any]) -> dict[Any, Any]:
        return {}

    def addInPlace(self, value1: dict[Any, Any], value2: dict[Any, Any]) -> dict[Any, Any]:
        value1.update(value2)
        return value1


def put_together(started: float, compiled: float, counted: Counted, unreadable: int, **known: Any) -> BatchMetrics:
    """A sink may compute the matches several times, and some of them only; then the run that saw the most events
    counts. started: when the batch began. compiled: seconds on the driver. unreadable: events that no task was given.
    known: what was known before."""
    runs: dict[int, list[Counts]] = {}
    for (stage, _), part in counted.items():
        runs.setdefault(stage, []).append(part)
    parts = max(runs.values(), key=lambda run: sum(part.events for part in run), default=[])
    matching, events = sum(part.match_seconds for part in parts), sum(part.events for part in parts)
    now = time.time()
    oldest = [part.oldest for part in parts if part.oldest is not None]
    return BatchMetrics(
        **known,
        events=events + unreadable,
        matches=sum(part.matches for part in parts),
        malformed_events=sum(part.malformed for part in parts) + unreadable,
        lag_seconds=now - min(oldest) if oldest else None,
        compile_seconds=compiled + max((part.follow_seconds for part in parts), default=0.0),
        match_seconds=matching,
        event_microseconds=1e6 * matching / events if events else None,
        seconds=time.perf_counter() - started,
        finished_at=now,
    )
