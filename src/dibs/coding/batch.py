"""Events to cells: the long form of coding.values against the domains of one set of clauses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from dibs.coding.clauses import runs
from dibs.coding.domain import NUMBER_BASE, Domains, number_cell, string_cell, time_cell
from dibs.coding.patterns import PatternSet
from dibs.coding.prefetching import prefetch
from dibs.coding.values import EventValues, Names, Range, Strings
from dibs.language.expression import Kind, Literal, literal, number, number_key
from dibs.language.flatten import microseconds
from dibs.language.table import Facet


@dataclass
class CodedEvents:
    """Event e has the entries offsets[e]:offsets[e + 1], sorted by (attribute, lo): the value of `attribute` lies in
    the cells lo to hi. An attribute without an entry has the cell 0 (no value). `points`: every entry is one cell
    and no event has two entries of one attribute; then hi is lo itself."""

    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    points: bool

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, events: NDArray[np.int64], points: bool) -> CodedEvents:
        """The given events; `points` must be true of them."""
        sizes = np.diff(self.offsets)[events]
        entries = runs(self.offsets[events], sizes)
        offsets = np.zeros(len(events) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        lo = self.lo[entries]
        return CodedEvents(offsets, self.attribute[entries], lo, lo if points else self.hi[entries], points)

    def single_valued(self) -> NDArray[np.bool_]:
        """Which events have one cell for each of their attributes."""
        if self.points:
            return np.ones(len(self), np.bool_)
        return _single_valued(self.offsets, self.attribute, self.lo, self.hi)


@njit(cache=True, nogil=True)
def _single_valued(offsets, attribute, lo, hi):  # type: ignore[no-untyped-def]
    result = np.ones(len(offsets) - 1, np.bool_)
    for e in range(len(result)):
        for i in range(offsets[e], offsets[e + 1]):
            if lo[i] != hi[i] or (i > offsets[e] and attribute[i] == attribute[i - 1]):
                result[e] = False
    return result


MANY_ENTRIES = 1000
AHEAD = 12  # values whose constants are asked for before they are needed
# Where an open range ends; a kind that is not here has no least (greatest) value.
LEAST = {Kind.NUMBER: number(-math.inf), Kind.STRING: literal("")}
GREATEST = {Kind.NUMBER: number(math.nan)}
Piece = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]  # event, attribute, lo, hi


def code_events(values: EventValues, domains: Domains) -> CodedEvents:
    """The coded batch. Attributes that no predicate mentions leave no entry."""
    found = [p for p in pieces(values, domains) if len(p[0])]
    if not found:
        none = np.empty(0, np.int32)
        return CodedEvents(np.zeros(values.events + 1, np.int64), none, none, none, True)
    event, attribute, lo, hi = (
        found[0] if len(found) == 1 else tuple(np.concatenate([p[i] for p in found]) for i in range(4))
    )
    if len(event) > MANY_ENTRIES and np.bincount(event).max() > MANY_ENTRIES:
        order = np.lexsort((lo, attribute, event))  # _by_event inserts, which is quadratic in long unsorted runs
        event, attribute, lo, hi = event[order], attribute[order], lo[order], hi[order]
    offsets, attribute, lo, hi, points = _by_event(event, attribute, lo, hi, values.events)
    return CodedEvents(offsets, attribute, lo, lo if points else hi, points)


def pieces(values: EventValues, domains: Domains) -> Iterator[Piece]:
    """The coded values, kind by kind."""

    def numbers_of(facet: Facet) -> NDArray[np.int32]:
        """The attribute number of each name of the batch, -1 where no predicate mentions it. Batch after batch has
        the same list of names, so this is kept."""
        named = domains.named
        if named[0] is not values.names:
            named = domains.named = (values.names, {})
        known = named[1]
        if facet not in known:
            names = values.names if isinstance(values.names, Names) else Names(values.names)
            numbers = np.full(len(names), -1, np.int32)
            codes = map(names.codes.get, (name for name, _ in domains.attributes), repeat(-1))
            code = np.fromiter(codes, np.int32, len(domains.attributes))
            mentioned = np.flatnonzero((domains.facet == facet) & (code >= 0))
            numbers[code[mentioned]] = mentioned
            known[facet] = numbers  # whole: another thread may be looking
        return known[facet]

    own = numbers_of(Facet.VALUE)
    n, t, b, s, u = values.numbers, values.times, values.booleans, values.strings, values.unreadable
    if len(n.event):
        numbers = (domains.number_offsets, domains.number_value, domains.number_rest)
        yield _points(n.event, *_code_numbers(own, n.name, _writable(n.value), _writable(n.rest), *numbers))
    if len(t.event):
        times = (domains.time_offsets, domains.time_value, domains.time_base)
        yield _points(t.event, *_code_times(own, t.name, _writable(t.microseconds), *times))
    if len(b.event):
        yield _points(b.event, own[b.name], 1 + b.value.astype(np.int32))
    if len(s.event):
        s = Strings(s.event, s.name, _writable(s.offsets), _writable(s.data))
        for facet in (Facet.VALUE, Facet.REVERSED):
            to = own if facet == Facet.VALUE else numbers_of(facet)
            if (to >= 0).any():
                data = s.data if facet == Facet.VALUE else _reversed(s.offsets, s.data)
                found = _code_strings(
                    to,
                    s.name,
                    s.offsets,
                    data,
                    domains.string_offsets,
                    domains.string_starts,
                    domains.string_bytes,
                    domains.string_prefix,
                    domains.string_base,
                )
                yield _points(s.event, *found)
        yield from _pattern_pieces(s, numbers_of(Facet.PATTERN), domains, matching=True)
        yield from _pattern_pieces(s, numbers_of(Facet.NO_PATTERN), domains, matching=False)
    if len(u.event):
        attribute = own[u.name]
        yield _points(u.event, attribute, np.where(attribute < 0, 0, domains.cells[attribute]))
    if values.ranges:
        yield _range_piece(values.ranges, own, domains)


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    """Kernels are compiled once, for writable arrays; what comes straight from Arrow is read-only."""
    return array if array.flags.writeable else array.copy()


def _points(event: NDArray[Any], attribute: NDArray[Any], cell: NDArray[Any]) -> Piece:
    known = attribute >= 0
    if not known.all():
        event, attribute, cell = event[known], attribute[known], cell[known]
    cell = cell.astype(np.int32, copy=False)
    return _writable(event), attribute, cell, cell


def _pattern_pieces(s: Strings, to: NDArray[np.int32], domains: Domains, matching: bool) -> Iterator[Piece]:
    """Each distinct string of an attribute is matched once against all its patterns."""
    attribute = to[s.name]
    for a in np.unique(attribute[attribute >= 0]).tolist():
        rows = np.flatnonzero(attribute == a)
        encoded = _strings_at(s, rows).dictionary_encode()
        patterns = domains.patterns.get(a)
        if patterns is None:
            patterns = domains.patterns[a] = PatternSet(domains.strings_of(a))
        spans = [
            _pattern_spans(patterns.find(x), int(domains.cells[a]), matching) for x in encoded.dictionary.to_pylist()
        ]
        starts = np.concatenate([[0], np.cumsum([len(x) for x in spans])])
        flat = np.array([x for group in spans for x in group], np.int32).reshape(-1, 2)
        which = encoded.indices.to_numpy()
        count = np.diff(starts)[which]
        take = np.repeat(starts[which], count) + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        event = np.repeat(s.event[rows], count)
        yield event, np.full(len(event), a, np.int32), flat[take, 0], flat[take, 1]


def _pattern_spans(found: list[int], cells: int, matching: bool) -> list[tuple[int, int]]:
    if matching:
        return [(1 + i, 1 + i) for i in found]
    gaps, at = [], 1
    for i in found:
        if at < 1 + i:
            gaps.append((at, i))
        at = 2 + i
    if at < cells:
        gaps.append((at, cells - 1))
    return gaps


def _strings_at(s: Strings, rows: NDArray[np.int64]) -> pa.Array:
    everything = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(s.offsets) - 1, [None, pa.py_buffer(s.offsets), pa.py_buffer(s.data)]
    )
    return everything.take(pa.array(rows))


def _range_piece(ranges: list[tuple[int, int, Range]], own: NDArray[np.int32], domains: Domains) -> Piece:
    rows = []
    for event, name, r in ranges:
        a = int(own[name])
        if a >= 0:
            kind = literal(r.hi if r.lo is None else r.lo).kind
            first, last = domains.section(np.array([kind]), np.array([a]))
            lo = LEAST.get(kind) if r.lo is None else literal(r.lo)
            hi = GREATEST.get(kind) if r.hi is None else literal(r.hi)
            ends = (
                (int(first[0]) if lo is None else cell_of(lo, a, domains)),
                (int(last[0]) if hi is None else cell_of(hi, a, domains)),
            )
            rows.append((event, a, *ends))
    table = np.array(rows, np.int32).reshape(-1, 4)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy(), table[:, 3].copy()


def cell_of(value: Literal, attribute: int, domains: Domains) -> int:
    """The cell of one value."""
    d, a = domains, attribute
    if value.kind == Kind.BOOLEAN:
        return 1 + int(value.value)
    if value.kind == Kind.NUMBER:
        near, rest = number_key(value.value)
        return NUMBER_BASE + number_cell(
            near, rest, d.number_offsets[a], d.number_offsets[a + 1], d.number_value, d.number_rest
        )
    if value.kind == Kind.TIME:
        at = microseconds(value.value)
        return int(d.time_base[a]) + time_cell(at, d.time_offsets[a], d.time_offsets[a + 1], d.time_value)
    data = np.frombuffer(bytearray(value.value.encode()), np.uint8)
    first, last = d.string_offsets[a], d.string_offsets[a + 1]
    found = string_cell(data, 0, len(data), first, last, d.string_starts, d.string_bytes, d.string_prefix)
    return int(d.string_base[a]) + found


@njit(cache=True, nogil=True)
def _code_numbers(own, name, value, rest, offsets, values, rests):  # type: ignore[no-untyped-def]
    n = len(name)
    attribute, cell = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        if i + 2 * AHEAD < n:
            prefetch(offsets, np.int64(max(own[name[i + 2 * AHEAD]], 0)))
        if i + AHEAD < n:
            a = max(own[name[i + AHEAD]], 0)
            prefetch(values, (offsets[a] + offsets[a + 1]) >> 1)
        a = own[name[i]]
        attribute[i] = a
        cell[i] = 0
        if a >= 0:
            cell[i] = NUMBER_BASE + number_cell(value[i], rest[i], offsets[a], offsets[a + 1], values, rests)
    return attribute, cell


@njit(cache=True, nogil=True)
def _code_times(own, name, value, offsets, values, base):  # type: ignore[no-untyped-def]
    n = len(name)
    attribute, cell = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        a = own[name[i]]
        attribute[i] = a
        cell[i] = 0
        if a >= 0:
            cell[i] = base[a] + time_cell(value[i], offsets[a], offsets[a + 1], values)
    return attribute, cell


@njit(cache=True, nogil=True)
def _code_strings(own, name, starts, data, offsets, constant_starts, constants, prefixes, base):  # type: ignore[no-untyped-def]
    n = len(name)
    attribute, cell = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        a = own[name[i]]
        attribute[i] = a
        cell[i] = 0
        if a >= 0:
            cell[i] = base[a] + string_cell(
                data, starts[i], starts[i + 1], offsets[a], offsets[a + 1], constant_starts, constants, prefixes
            )
    return attribute, cell


@njit(cache=True, nogil=True)
def _reversed(starts, data):  # type: ignore[no-untyped-def]
    result = np.empty(len(data), np.uint8)
    for i in range(len(starts) - 1):
        a, b = starts[i], starts[i + 1]
        for k in range(b - a):
            result[a + k] = data[b - 1 - k]
    return result


@njit(cache=True, nogil=True)
def _by_event(event, attribute, lo, hi, events):  # type: ignore[no-untyped-def]
    """Entries grouped by event (counting sort) and sorted by (attribute, lo) in each; repeated entries are dropped."""
    offsets = np.zeros(events + 1, np.int64)
    for i in range(len(event)):
        offsets[event[i] + 1] += 1
    for e in range(events):
        offsets[e + 1] += offsets[e]
    n = len(event)
    a, x, y = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    end = offsets[:-1].copy()
    for i in range(n):
        # Insertion from the back: columns mostly come in attribute order, so there is little to move.
        e = event[i]
        at = end[e]
        end[e] += 1
        while at > offsets[e] and (a[at - 1] > attribute[i] or (a[at - 1] == attribute[i] and x[at - 1] > lo[i])):
            a[at], x[at], y[at] = a[at - 1], x[at - 1], y[at - 1]
            at -= 1
        a[at], x[at], y[at] = attribute[i], lo[i], hi[i]
    points = True
    kept, start = 0, 0
    for e in range(events):
        first = kept
        for i in range(start, offsets[e + 1]):
            if kept > first and a[kept - 1] == a[i] and x[kept - 1] == x[i] and y[kept - 1] == y[i]:
                continue
            if x[i] != y[i] or (kept > first and a[kept - 1] == a[i]):
                points = False
            a[kept], x[kept], y[kept] = a[i], x[i], y[i]
            kept += 1
        start = offsets[e + 1]
        offsets[e + 1] = kept
    return offsets, a[:kept], x[:kept], y[:kept], points
