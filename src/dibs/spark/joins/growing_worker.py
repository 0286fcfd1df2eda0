"""What a stream with a history runs in Spark's Python workers.

land     the events of a micro-batch, as they are kept: with their places, times and keys
rekey    documents that were kept when other attributes were keys
match    the events of some homes, each with the documents before it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.values import EventValues
from dibs.history.history import History
from dibs.history.keys import TIME
from dibs.history.retention import Retain, earlier, without
from dibs.history.state import Part, State
from dibs.matcher import Matcher
from dibs.spark.joins.columns import name_columns, read_keys
from dibs.spark.joins.hashes import hash_documents, hash_events
from dibs.spark.joins.keys import Pair
from dibs.spark.living_worker import Counts, MatchColumns, make_rows

AT_ONCE = 16_384  # events that are matched together
NEVER = np.iinfo(np.int64).min  # no time


@dataclass(frozen=True)
class Landing:
    places: list[int]  # the columns that hold attributes
    names: list[str]
    attributes: str | None
    wanted: list[str]  # the attributes that subscriptions mention: they decide what is readable
    pairs: list[tuple[str, str]]
    key_attributes: list[str]
    by: str | None  # the attribute that holds the time by which documents are retained


def land(
    batches: Iterable[pa.RecordBatch], landing: Landing, task: int, count: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """The events with the columns of growing_log.OWN."""
    pairs = [Pair(*pair) for pair in landing.pairs]
    timed = [] if landing.by is None else [landing.by]
    wanted = {*landing.wanted, *landing.key_attributes, *timed}
    before, newest, rows = 0, NEVER, 0
    for batch in batches:
        columns = name_columns([batch.column(p) for p in landing.places], landing.names, landing.attributes)
        values = read_keys(columns, wanted, landing.attributes)
        readable = np.ones(len(batch), np.bool_)
        readable[values.unreadable_events] = False
        times = _latest_times(values, landing.by)
        running = np.maximum.accumulate(np.append(newest, times))
        counted = before + np.append(0, np.cumsum(readable))
        own = [
            pa.array(np.full(len(batch), task, np.int32)),
            pa.array(counted[:-1]),
            pa.array(readable),
            _nullable(times),
            _nullable(running[:-1]),
            hash_documents(values, landing.key_attributes, every=False),
            hash_events(values, pairs),
        ]
        names = ["part", "before", "readable", "time", "newest", "keys", "asks"]
        yield pa.RecordBatch.from_arrays([*batch.columns, *own], names=[*batch.schema.names, *names])
        before, newest, rows = int(counted[-1]), running[-1], rows + len(batch)
    count(rows)


def rekey(batches: Iterable[pa.RecordBatch], landing: Landing) -> Iterator[pa.RecordBatch]:
    """The documents with the keys of other attributes, in the column `keys`, which is the last one."""
    for batch in batches:
        columns = name_columns([batch.column(p) for p in landing.places], landing.names, landing.attributes)
        values = read_keys(columns, landing.key_attributes, landing.attributes)
        keys = hash_documents(values, landing.key_attributes, every=False)
        yield pa.RecordBatch.from_arrays([*batch.columns[:-1], keys], names=batch.schema.names)


def _latest_times(values: EventValues, by: str | None) -> NDArray[np.int64]:
    result = np.full(values.events, NEVER)
    if by is not None:
        t = values.times
        own = np.flatnonzero(t.name == list(values.names).index(by))
        np.maximum.at(result, t.event[own], t.microseconds[own])
    return result


def _nullable(times: NDArray[np.int64]) -> pa.Array:
    return pa.array(times, mask=times == NEVER)


# ---- matching ----


class Growing(History):
    """The documents of some homes, of which an event sees those that it would see among all: the limits of retention
    come with the events, as most documents that count are elsewhere.

    numbers: of the documents, in order, the first `held` of which are there from the beginning. newest: before each of
    the others, the greatest time."""

    def __init__(self, retain: Retain, numbers: NDArray[np.int64], held: int, newest: NDArray[np.int64]):
        super().__init__(retain)
        self._numbers, self._held, self._newest = numbers, held, newest
        self._limit: int | None = None  # what is earlier went before, but for the document that came last

    def find_kept(self, state: State, all_times: bool = False) -> State:
        """What the next event sees."""
        turn = state.end - self._held
        if not 0 <= turn < len(self._newest):
            return state
        if self.retain.count is not None:
            oldest = int(self._numbers[state.end]) - self.retain.count
            first = min(int(np.searchsorted(self._numbers, oldest)), state.end)
            return state if first <= state.first else replace(state, first=first, answers={})
        age, newest = self.retain.microseconds, int(self._newest[turn])
        if age is None or newest == NEVER:
            return state
        return without(state, self._too_old(state, newest - age))

    def _too_old(self, state: State, limit: int) -> list[int]:
        low = (TIME,) if self._limit is None else (TIME, self._limit)
        rows = earlier(state, self.retain.by, low, limit)
        if state.end > state.first:
            last = state.column(self.retain.by)[state.end - 1 - state.base]
            times = [key for kind, key in last if kind == TIME]
            if times and max(times) < limit:
                rows.append(state.end - 1)
        self._limit = limit
        return rows


def match(
    batches: Iterable[pa.RecordBatch],
    matcher: Matcher,
    names: list[str],
    attributes: str | None,
    retain: Retain,
    start: int,
    timed: bool,
    output: MatchColumns,
    count: Callable[[Counts], None],
) -> Iterator[pa.RecordBatch]:
    """Rows of matches, of the events of one partition. The columns: number, what (1: an event, which is at home here;
    0: a document), newest, the event's id, its time if `timed`, and the attributes called `names`. Rows come by number,
    an event before itself as a document. start: the number of the batch's first event."""
    began = time.perf_counter()
    table = pa.Table.from_batches(list(batches)) if (batches := list(batches)) else None
    if table is None:
        count(Counts())
        return
    numbers = table.column(0).to_numpy()
    table = table.filter(pa.array(np.append(True, np.diff(numbers) != 0))).combine_chunks()
    numbers = table.column(0).to_numpy()
    what, newest = table.column(1).to_numpy(), table.column(2).fill_null(NEVER).to_numpy()
    arrays = [_one(column) for column in table.columns]
    columns = name_columns(arrays[len(arrays) - len(names) :], names, attributes)
    held = int(np.searchsorted(numbers, start))
    history = Growing(retain, numbers, held, newest[held:])
    _hold(history, columns.slice(0, held), attributes)
    events = matches = malformed = 0
    for first in range(held, len(numbers), AT_ONCE):
        part = columns.slice(first, AT_ONCE)
        at_home = what[first : first + AT_ONCE] == 1
        found = matcher.match_after(history, part, attributes, "skip")
        pairs = found.pairs(output.weight, output.subscription_version)
        pairs = pairs.filter(pa.array(at_home[pairs["event"].to_numpy()]))
        yield from make_rows(arrays[3].slice(first, AT_ONCE), pairs, output)
        events += int(at_home.sum())
        matches += len(pairs)
        malformed += len({problem.event for problem in found.problems if at_home[problem.event]})
    oldest = None
    if timed:
        oldest = _oldest(arrays[4].filter(pa.array(what == 1)))
    count(Counts(events, matches, malformed, oldest, 0.0, time.perf_counter() - began))


def _hold(history: Growing, documents: pa.RecordBatch, attributes: str | None) -> None:
    """The documents that are there before the first event. Retention has left them, up to the first event here."""
    table = pa.Table.from_batches([documents])

    def hold() -> None:
        state = history.state
        if len(table):
            values = history.read(state, table, attributes, on_error="skip")
            state = history.extend_by(state, Part(state.end, table, attributes), None, values)
        history.put(history.find_kept(state))

    history.change(hold)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _oldest(times: pa.Array) -> float | None:
    first = pa.compute.min(times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())).as_py()
    return None if first is None else first / 1e6
