"""What runs in Spark's Python workers for `match` and `stream`: Arrow batches of events in, one row per event with its
matches out (found.py). Who is matched by whom, and with which documents, is dealt out first (dealing.py)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dibs.jit.parcel import Parcel, unpack
from dibs.jit.ready import is_ready
from dibs.matches import Matches
from dibs.spark.cold import Texts
from dibs.spark.dealing import DocumentSource, EventColumns, Mapped, Shipment, Turn, deal
from dibs.spark.found import Found, find_columns, make_rows, no_columns, problem_texts
from dibs.spark.joins.growing_worker import Reading
from dibs.spark.shipping import Artifact, receive

# Events are matched in slices, chosen so that the pairs of one slice stay about so many, however often they match.
PAIRS_AT_ONCE = 2_000_000
FIRST_SLICE, LARGEST_SLICE = 256, 65_536
HISTORY_SLICE = 16_384  # the first, where documents grow: each of them is read anew

log = logging.getLogger("dibs.spark")


@dataclass(frozen=True)
class Task:
    """What a worker must know."""

    subscriptions: Mapped | Shipment | Texts
    events: EventColumns
    found: Found
    documents: DocumentSource = None
    kernels: tuple[str, bytes] | Artifact | None = None  # compiled on the driver, so that workers need not compile
    warn: bool = False  # nobody counts the problems, so say it in the worker's log


@dataclass
class Counts:
    """Of one partition."""

    events: int = 0
    matches: int = 0
    malformed: int = 0
    oldest: float | None = None  # time of the oldest event, seconds since 1970
    follow_seconds: float = 0.0  # to bring the matcher to the snapshot
    match_seconds: float = 0.0


def run(
    batches: Iterable[pa.RecordBatch], task: Task, counts: Any = None, sent: Any = None, kernels: Any = None
) -> Iterator[pa.RecordBatch]:
    """Rows (carried columns, those of Found), one for each event.

    counts: an accumulator that is told at the end, by stage and partition, what there was. sent, kernels: broadcasts of
    the files of a Shipment's base and of the driver's kernels, for workers that do not see them."""
    unpack_kernels(task.kernels if kernels is None else kernels.value)
    began = time.perf_counter()
    turns = deal(batches, task.subscriptions, task.documents, task.events, sent)
    followed = time.perf_counter() - began
    told: dict[int, Counts] = {}
    yield from match_turns(turns, task, told)
    if counts is not None:
        from pyspark import TaskContext

        context = TaskContext.get()
        stage = 0 if context is None else context.stageId()
        counts.add({(stage, number): replace(own, follow_seconds=followed) for number, own in told.items()})
    malformed = sum(own.malformed for own in told.values())
    if malformed and task.warn:
        events = sum(own.events for own in told.values())
        log.warning(
            "%d of %d events of a partition could not be read entirely (see dibs.spark.problems)", malformed, events
        )


def unpack_kernels(sent: tuple[str, bytes] | Artifact | None) -> None:
    """Those of the driver, unless this machine has its own."""
    if sent is not None and not is_ready():
        unpack(Parcel(*receive(sent)))


class Slices:
    """How many events are matched at once."""

    def __init__(self, task: Task) -> None:
        self.size = HISTORY_SLICE if isinstance(task.documents, Reading) else FIRST_SLICE
        self._largest = LARGEST_SLICE if isinstance(task.subscriptions, (Mapped, Shipment)) else FIRST_SLICE

    def note(self, events: int, pairs: int) -> None:
        self.size = max(1, min(self._largest, events * PAIRS_AT_ONCE // max(pairs, 1)))


def match_turns(
    turns: Iterable[Turn], task: Task, told: dict[int, Counts], slices: Slices | None = None
) -> Iterator[pa.RecordBatch]:
    """told: what each partition has had, by its number. slices: as they were before."""
    slices = Slices(task) if slices is None else slices
    for turn in turns:
        counts = told.setdefault(turn.number, Counts())
        counts.match_seconds += turn.seconds
        start = 0
        while start < turn.events.num_rows:
            part = turn.slice(start, slices.size)
            start += part.events.num_rows
            rows, pairs = _match(part, task, counts)
            yield rows
            slices.note(part.events.num_rows, pairs)


def _match(turn: Turn, task: Task, counts: Counts) -> tuple[pa.RecordBatch, int]:
    """The rows of some events, and how many pairs were found. Tells what was counted."""
    began = time.perf_counter()
    batch, found, problem = turn.events, task.found, turn.problem
    pairs = malformed = 0
    if turn.matcher is None:
        columns = no_columns(len(batch), found)
    else:
        events = task.events.select(batch)
        matches = _find(turn, task, events)
        columns = find_columns(matches, found, turn.matcher, events, task.events.attributes, turn.now)
        pairs = matches.count
        if problem is None and matches.problems:
            texts = problem_texts(matches.problems)
            malformed = sum(turn.here is None or bool(turn.here[event]) for event in texts)
            problem = pa.array([texts.get(event) for event in range(len(batch))], pa.string())
    carried = {name: batch.column(place) for place, name in enumerate(task.events.carried)}
    seconds = time.perf_counter() - began
    rows, matched = make_rows(carried, columns, problem, found, turn.here, seconds)
    own = batch if turn.here is None else batch.filter(pa.array(turn.here))
    counts.events += len(own)
    counts.matches += matched
    counts.match_seconds += seconds
    counts.malformed += malformed
    oldest = [each for each in (counts.oldest, task.events.find_oldest(own)) if each is not None]
    counts.oldest = min(oldest, default=None)
    return rows, pairs


def _find(turn: Turn, task: Task, events: pa.RecordBatch) -> Matches:
    if turn.history is not None:
        return turn.matcher.match_after(turn.history, events, task.events.attributes, "skip", now=turn.now)
    top = None if task.found.count_only else task.found.top
    return turn.matcher.match_batch(events, attributes=task.events.attributes, on_error="skip", top=top, now=turn.now)
