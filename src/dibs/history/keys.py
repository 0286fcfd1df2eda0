"""Values of events and documents as keys that Python can compare.

A cell is (kind, key). Keys of one kind are ordered as the language orders values: numbers by mathematical value (Python
compares int and float exactly), with NaN as TOP, above all others; strings by code point; times as microseconds since
1970 UTC; booleans. Keys of two kinds are never compared: the kind stands before.

The cells of an event may be ranges: a `Span`. Documents have none.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import total_ordering
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.values import (
    Booleans,
    EventValues,
    Numbers,
    Range,
    Strings,
    Times,
    number_key,
    rows_where,
    without_names,
)
from dibs.language.expression import EPOCH, Kind, Literal, microseconds
from dibs.reference.values import OfNoKind

BOOLEAN, NUMBER, STRING, TIME = (int(kind) for kind in (Kind.BOOLEAN, Kind.NUMBER, Kind.STRING, Kind.TIME))
UNREADABLE = 4  # a kind after those of Kind: a document's value that is there, and of which nothing is known
Cell = tuple[int, Any]


@total_ordering
class _Top:
    """Above every number, and equal to itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __hash__(self) -> int:
        return hash(_Top)

    def __repr__(self) -> str:
        return "NaN"


TOP: Any = _Top()


class Span(NamedTuple):
    """All values from low to high, both included; None: without an end."""

    kind: int
    low: Any
    high: Any


Cells = tuple[Cell, ...]
EventCells = tuple["Cell | Span", ...]
NONE: Cells = ()


def number_of(value: float, rest: int) -> int | float:
    """The key of a number as EventValues has it."""
    if not rest:
        return value
    return TOP if math.isinf(value) else int(value) + rest


def literal_cell(constant: Literal) -> Cell:
    """The cell of a constant."""
    value = constant.value
    if constant.kind == Kind.TIME:
        value = microseconds(value)
    elif constant.kind == Kind.NUMBER and value != value:
        value = TOP
    return int(constant.kind), value


def time_at(microseconds: int) -> dt.datetime | np.datetime64:
    """The time so long after 1970 UTC."""
    try:
        return EPOCH + dt.timedelta(microseconds=microseconds)
    except OverflowError:
        return np.datetime64(microseconds, "us")


def plain_value(cell: Cell) -> Any:
    """A cell as a Python value."""
    kind, key = cell
    if kind == TIME:
        return time_at(key)
    if key is TOP:
        return math.nan
    return int(key) if kind == NUMBER and isinstance(key, float) and key.is_integer() else key


def plain_values(cells: EventCells) -> list[Any]:
    """Cells as the reference has values."""
    return [_plain_span(each) if isinstance(each, Span) else _plain(each) for each in cells]


def _plain(cell: Cell) -> Any:
    return OfNoKind("it cannot be read") if cell[0] == UNREADABLE else plain_value(cell)


def _plain_span(span: Span) -> Range:
    low, high = (None if end is None else plain_value((span.kind, end)) for end in (span.low, span.high))
    return Range(low, high)


def cells_of(values: EventValues, wanted: Collection[str]) -> dict[str, dict[int, EventCells]]:
    """The cells of the wanted attributes, by name and event."""
    found: dict[str, dict[int, EventCells]] = {name: {} for name in wanted}
    by_code = [found.get(name) for name in values.names]
    is_wanted = np.array([each is not None for each in by_code], np.bool_)
    arrays: list[tuple[Any, int]] = []  # where there are several cells: in a list until all are there

    def add(of_name: Any, e: int, cell: Any) -> None:
        old = of_name.get(e)
        if old is None:
            of_name[e] = (cell,)
        elif type(old) is list:
            old.append(cell)
        else:
            of_name[e] = [*old, cell]
            arrays.append((of_name, e))

    def put(kind: int, event: list[int], name: list[int], keys: Iterable[Any]) -> None:
        for e, code, key in zip(event, name, keys):
            add(by_code[code], e, (kind, key))

    n, s, t, b, u = values.numbers, values.strings, values.times, values.booleans, values.unreadable
    if len(n.event):
        event, name, value, rest = _rows(is_wanted, n.event, n.name, n.value, n.rest)
        put(NUMBER, event, name, map(number_of, value, rest) if any(rest) else value)
    if len(s.event):
        event, name, start, end = _rows(is_wanted, s.event, s.name, s.offsets[:-1], s.offsets[1:])
        data = s.data.tobytes()
        put(STRING, event, name, (data[a:z].decode() for a, z in zip(start, end)))
    if len(t.event):
        put(TIME, *_rows(is_wanted, t.event, t.name, t.microseconds))
    if len(b.event):
        put(BOOLEAN, *_rows(is_wanted, b.event, b.name, b.value.astype(np.bool_)))
    if len(u.event):
        put(UNREADABLE, *_rows(is_wanted, u.event, u.name, np.zeros(len(u.event))))
    for e, code, each in values.ranges:
        if is_wanted[code]:
            add(by_code[code], e, span_of(each))
    for of_name, e in arrays:
        of_name[e] = tuple(of_name[e])
    return found


class CellsByName(Mapping[str, Mapping[int, Cells]]):
    """The cells of documents by name and document, made for those names that somebody asks for."""

    def __init__(self, values: EventValues):
        self._values = values
        self._made: dict[str, Mapping[int, Cells]] = {}

    def __getitem__(self, name: str) -> Mapping[int, Cells]:
        if name not in self:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = cells_of(self._values, [name])[name]  # type: ignore[assignment]
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values.names

    def __iter__(self) -> Iterator[str]:
        return iter(self._values.names)

    def __len__(self) -> int:
        return len(self._values.names)


def _rows(is_wanted: NDArray[np.bool_], event: Any, name: Any, *columns: Any) -> Any:
    keep = is_wanted[name]
    return [column[keep].tolist() for column in (event, name, *columns)]


def span_of(value: Range) -> Span:
    ends = [None if end is None else cell_of(end) for end in (value.lo, value.hi)]
    kind = next(end[0] for end in ends if end is not None)
    return Span(kind, *(None if end is None else end[1] for end in ends))


def cell_of(value: Any) -> Cell:
    """The cell of a plain value, as EventValues or the reference has it."""
    if isinstance(value, bool):
        return BOOLEAN, value
    if isinstance(value, (int, float)):
        return NUMBER, TOP if value != value else value
    if isinstance(value, np.datetime64):
        return TIME, int(value.astype("datetime64[us]").astype(np.int64))
    return (STRING, value) if isinstance(value, str) else (TIME, microseconds(value))


# ---- values that were derived ----

Derived = tuple[int, int, Cell]  # event, number of the name, cell


def with_derived(values: EventValues, codes: NDArray[np.bool_], derived: list[Derived]) -> EventValues:
    """The values with those of the joins. codes: which names are joins; what an event itself has under such a name is
    none of them and is left out."""
    values = without_names(values, codes)
    by_kind: list[list[Derived]] = [[], [], [], []]
    for each in derived:
        by_kind[each[2][0]].append(each)
    n, s, t, b = values.numbers, values.strings, values.times, values.booleans
    if rows := by_kind[NUMBER]:
        keys = [number_key(plain_value(cell)) for _, _, cell in rows]
        value, rest = np.array([k[0] for k in keys]), np.array([k[1] for k in keys], np.int16)
        n = Numbers(*_append(n[:2], rows), np.append(n.value, value), np.append(n.rest, rest))
    if rows := by_kind[TIME]:
        t = Times(*_append(t[:2], rows), np.append(t.microseconds, np.array([c[1] for *_, c in rows], np.int64)))
    if rows := by_kind[BOOLEAN]:
        b = Booleans(*_append(b[:2], rows), np.append(b.value, np.array([c[1] for *_, c in rows], np.uint8)))
    if rows := by_kind[STRING]:
        texts = [cell[1].encode() for *_, cell in rows]
        ends = s.offsets[-1] + np.cumsum([len(text) for text in texts])
        data = np.append(s.data, np.frombuffer(b"".join(texts), np.uint8))
        s = Strings(*_append(s[:2], rows), np.append(s.offsets, ends), data)
    return replace(values, numbers=n, strings=s, times=t, booleans=b)


def _append(columns: Iterable[Any], rows: list[Derived]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    event, name = columns
    more = np.array([row[:2] for row in rows], np.int32)
    return np.append(event, more[:, 0]), np.append(name, more[:, 1])


def events_between(values: EventValues, first: int, end: int) -> EventValues:
    """These events, numbered from 0."""

    def is_between(event: NDArray[np.int32], name: NDArray[np.int32]) -> NDArray[np.bool_]:
        return (event >= first) & (event < end)

    kept = {key: rows._replace(event=rows.event - first) for key, rows in rows_where(values, is_between).items()}
    ranges = [(event - first, name, each) for event, name, each in values.ranges if first <= event < end]
    return EventValues(end - first, values.names, ranges=ranges, **kept)


def join_events(values: EventValues, parts: Sequence[EventValues]) -> EventValues:
    """The events of a batch, from parts of it that follow each other and have all its names."""
    firsts = np.cumsum([0, *(part.events for part in parts[:-1])])
    rows: dict[str, Any] = {}
    for key in ("numbers", "times", "booleans", "unreadable"):
        own = [getattr(p, key)._replace(event=getattr(p, key).event + np.int32(f)) for p, f in zip(parts, firsts)]
        rows[key] = type(own[0])(*map(np.concatenate, zip(*own)))
    strings = [part.strings for part in parts]
    ends = np.cumsum([0, *(len(s.data) for s in strings[:-1])])
    offsets = [np.zeros(1, np.int64), *(s.offsets[1:] + end for s, end in zip(strings, ends))]
    rows["strings"] = Strings(
        np.concatenate([s.event + np.int32(f) for s, f in zip(strings, firsts)]),
        np.concatenate([s.name for s in strings]),
        np.concatenate(offsets),
        np.concatenate([s.data for s in strings]),
    )
    return replace(values, **rows)
