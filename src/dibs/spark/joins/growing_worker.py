"""What a stream with a history runs in Spark's Python workers.

land        the events of a micro-batch, as they are kept: with their times and keys, in a file of their own
find_home   the events that are at home in a task, and the documents before them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.arrange import writable
from dibs.coding.values import EventValues
from dibs.history.history import History
from dibs.history.keys import TIME
from dibs.history.retention import Retain, earlier, without
from dibs.history.state import HistoryState, latest_time
from dibs.history.state import Part as HistoryPart
from dibs.language.time_kernels import read_times
from dibs.spark.joins.columns import name_columns, read_keys
from dibs.spark.joins.growing_parts import (
    LANDED,
    NEVER,
    Kept,
    OpenPart,
    RowNumbers,
    StoredPart,
    expand,
    new_name,
    open_part,
    place_of,
    write_rows,
)
from dibs.spark.joins.hashes import hash_documents, hash_events
from dibs.spark.joins.keys import Pair


@dataclass(frozen=True)
class Landing:
    places: list[int]  # the columns that hold attributes
    names: list[str]
    attributes: str | None
    wanted: frozenset[str]  # the attributes that subscriptions mention: they decide what is readable
    pairs: list[tuple[str, str]]
    key_attributes: list[str]
    by: str | None  # the attribute that holds the time by which documents are retained


def land(batches: Iterable[pa.RecordBatch], landing: Landing, folder: str) -> Iterator[pa.RecordBatch]:
    """Writes the events that can be read, with the columns LANDED, and tells of it in one row: task, file (null: none
    can be read), unreadable events."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    dropped = [0]
    rows = _land(batches, landing, dropped)
    first = next(rows, None)
    name = None
    if first is not None:
        name = new_name("rows")

        def all_rows() -> Iterator[pa.RecordBatch]:
            yield first
            yield from rows

        write_rows(Path(folder) / name, first.schema, all_rows())
    yield pa.RecordBatch.from_pydict(
        {
            "task": pa.array([task], pa.int32()),
            "file": pa.array([name], pa.string()),
            "unreadable": pa.array(dropped, pa.int64()),
        }
    )


def _land(batches: Iterable[pa.RecordBatch], landing: Landing, dropped: list[int]) -> Iterator[pa.RecordBatch]:
    """dropped: how many events could not be read, counted here."""
    pairs = [Pair(*pair) for pair in landing.pairs]
    timed = [] if landing.by is None else [landing.by]
    wanted = frozenset((*landing.wanted, *landing.key_attributes, *timed))
    for batch in batches:
        columns = name_columns([batch.column(p) for p in landing.places], landing.names, landing.attributes)
        values = read_keys(columns, wanted, landing.attributes)
        own = [
            _nullable(_latest_times(values, landing.by)),
            hash_documents(values, landing.key_attributes, every=False),
            hash_events(values, pairs),
        ]
        landed = pa.RecordBatch.from_arrays(
            [*batch.columns, *own], names=[*(f"c{i}" for i in range(batch.num_columns)), *LANDED]
        )
        if len(values.unreadable_events):
            readable = np.ones(len(batch), np.bool_)
            readable[values.unreadable_events] = False
            dropped[0] += int((~readable).sum())
            landed = landed.filter(pa.array(readable))
        if len(landed):
            yield landed


def _latest_times(values: EventValues, by: str | None) -> NDArray[np.int64]:
    result = np.full(values.events, NEVER)
    if by is not None:
        t, s, code = values.times, values.strings, list(values.names).index(by)
        own = np.flatnonzero(t.name == code)
        np.maximum.at(result, t.event[own], t.microseconds[own])
        own = np.flatnonzero(s.name == code)
        if len(own):
            is_time, read = read_times(writable(s.data), s.offsets[own], s.offsets[own + 1])
            np.maximum.at(result, s.event[own][is_time], read[is_time])
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

    def find_kept(self, state: HistoryState, all_times: bool = False) -> HistoryState:
        """What the next event sees."""
        turn = state.end - self._held
        if not 0 <= turn < len(self._newest):
            return state
        if self.retain.count is not None:
            oldest = int(self._numbers[state.end]) - self.retain.count
            first = min(int(np.searchsorted(self._numbers, oldest)), state.end)
            return state if first <= state.first else replace(state, first=first)
        age, newest = self.retain.microseconds, int(self._newest[turn])
        if age is None or newest == NEVER:
            return state
        return without(state, self._too_old(state, newest - age))

    def _too_old(self, state: HistoryState, limit: int) -> list[int]:
        low = (TIME,) if self._limit is None else (TIME, self._limit)
        rows = earlier(state, self.retain.by, low, limit)
        if state.end > state.first:
            last = state.column(self.retain.by)[state.end - 1 - state.base]
            time = latest_time(last)
            if time is not None and time < limit:
                rows.append(state.end - 1)
        self._limit = limit
        return rows


@dataclass(frozen=True)
class Reading:
    """Which documents and events a micro-batch has, and how they are read."""

    folder: str  # of the parts
    before: tuple[StoredPart, ...]
    own: StoredPart
    kept: Kept  # of the documents before the first event
    homes: int  # tasks; an event is at home where the first key is that it asks for
    every: bool  # each event asks for all documents
    names: tuple[str, ...]  # the columns that hold attributes
    attributes: str | None
    event_id: str
    keep: tuple[str, ...]
    event_time: str | None
    retain: Retain


@dataclass(frozen=True)
class Home:
    """Events of a micro-batch that see the same documents: what is carried of them, their attributes[, their time]."""

    events: pa.RecordBatch
    here: NDArray[np.bool_]  # which of them are at home; the others are documents for those
    history: Growing


def find_home(home: int, reading: Reading, carried: Sequence[str]) -> Home | None:
    """None: no event is at home there."""
    own = open_part(Path(reading.folder), reading.own)
    is_home, asked = _find_home(own, home, reading)
    if not is_home.any():
        return None
    guests = np.arange(reading.own.rows) if reading.every else own.find(asked)
    rows = np.union1d(np.flatnonzero(is_home), guests)
    turn = np.argsort(own.number[rows])

    def take(name: str) -> pa.Array:
        return own.take(rows, place_of(reading.own, name)).take(pa.array(turn))

    kinds = [own.kind(place_of(reading.own, name)) for name in reading.names]
    numbers, held = _find_held(reading, asked, kinds)
    all_numbers = np.append(numbers, own.number[rows][turn])
    history = Growing(reading.retain, all_numbers, len(numbers), own.newest[rows][turn])
    _hold(history, name_columns(held, reading.names, reading.attributes), reading.attributes)
    times = () if reading.event_time is None else (reading.event_time,)
    columns = [take(name) for name in (reading.event_id, *reading.keep, *reading.names, *times)]
    names = [*carried, *(f"a{i}" for i in range(len(reading.names))), *times]
    return Home(pa.RecordBatch.from_arrays(columns, names=names), is_home[rows][turn], history)


def _find_home(own: OpenPart, home: int, reading: Reading) -> tuple[NDArray[np.bool_], RowNumbers]:
    """Which rows are at home here, and the keys that they ask for."""
    ends, keys = own.asked()
    counts = np.diff(ends)
    first = own.number.copy()
    first[counts > 0] = keys[ends[:-1][counts > 0]]
    is_home = first % reading.homes == home
    return is_home, np.unique(keys[expand(ends[:-1][is_home], counts[is_home])])


def _find_held(reading: Reading, asked: RowNumbers, kinds: list[pa.DataType]) -> tuple[RowNumbers, list[pa.Array]]:
    """The documents before the first event that are asked for, in order: their numbers and columns."""
    numbers = [np.empty(0, np.int64)]
    columns = [[pa.array([], kind)] for kind in kinds]
    for part in reading.before:
        opened = open_part(Path(reading.folder), part)
        rows = np.arange(part.rows) if reading.every else opened.find(asked)
        rows = rows[reading.kept.among(opened, rows)]
        if len(rows):
            numbers.append(opened.number[rows])
            for name, kind, column in zip(reading.names, kinds, columns):
                column.append(opened.take(rows, place_of(part, name), kind))
    number = np.concatenate(numbers)
    order = np.argsort(number)
    return number[order], [pa.concat_arrays(column).take(pa.array(order)) for column in columns]


def _hold(history: Growing, documents: pa.RecordBatch, attributes: str | None) -> None:
    """The documents that are there before the first event. Retention has left them, up to the first event here."""
    table = pa.Table.from_batches([documents])

    def hold() -> None:
        state = history.state
        if len(table):
            values = history.read(state, table, attributes, on_error="skip")
            state = history.extend_by(state, HistoryPart(state.end, table, attributes), None, values)
        history.put(history.find_kept(state))

    history.change(hold)
