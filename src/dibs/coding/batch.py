"""Events to cells: the long form of coding.values against the domains of one set of clauses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import FEW_EVENTS, LONGEST_EVENT, Arranged, writable
from dibs.coding.batch_kernels import (
    are_single_valued,
    by_event,
    code_numbers,
    code_strings,
    code_time_texts,
    code_times,
    find_string,
    reverse_strings,
)
from dibs.coding.cell_kernels import code_few_values, code_values
from dibs.coding.clauses import runs
from dibs.coding.domain import NUMBER_BASE, Domains, number_cell, time_cell
from dibs.coding.groups import CodedRoom, Constants, Texts, TimeConstants
from dibs.coding.lookup import NOTHING
from dibs.coding.patterns import Piece, pattern_pieces
from dibs.coding.values import EventValues, Names, Range, Strings
from dibs.jit.memory import fresh
from dibs.language.expression import Kind, Literal, literal, microseconds, number, number_key
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

    def between(self, first: int, behind: int) -> CodedEvents:
        """A run of events, without a copy of their entries."""
        run = slice(int(self.offsets[first]), int(self.offsets[behind]))
        lo = self.lo[run]
        hi = lo if self.points else self.hi[run]
        return CodedEvents(self.offsets[first : behind + 1] - run.start, self.attribute[run], lo, hi, self.points)

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
        return are_single_valued(self.offsets, self.attribute, self.lo, self.hi)


# Where an open range ends; a kind that is not here has no least (greatest) value.
LEAST = {Kind.NUMBER: number(-math.inf), Kind.STRING: literal("")}
GREATEST = {Kind.NUMBER: number(math.nan)}


def code_events(values: EventValues, domains: Domains) -> CodedEvents:
    """The coded batch. Attributes that no predicate mentions leave no entry."""
    known = number_names(values.names, domains)
    own = known[Facet.VALUE]
    in_order = values.arranged if known.in_order else None
    if in_order is not None and own is not None:
        return _code(in_order, values.strings, own, known.timed, domains)
    return _sort(list(pieces(values, domains)), values.events)


def _code(
    values: Arranged, strings: Strings, own: NDArray[np.int32], timed: NDArray[np.int32], d: Domains
) -> CodedEvents:
    few = len(values.offsets) - 1 <= FEW_EVENTS.value
    lookup = NOTHING if d.lookup is None or few else d.lookup
    n = len(values.name) * (2 if len(timed) else 1) + 1  # a value may have an entry of its own, and one as a time
    room = CodedRoom(fresh(len(values.offsets), np.int64), fresh(n, np.int32), fresh(n, np.int32), fresh(n, np.int32))
    texts = writable(strings.offsets), writable(strings.data)
    kernel = code_few_values if few else code_values
    kept, points = kernel(own, timed, *values, *texts, *lookup, *Constants.of(d), *room)
    cell = room.cell[:kept]
    return CodedEvents(room.offsets, room.attribute[:kept], cell, cell, points)


def _sort(pieces: list[Piece], events: int) -> CodedEvents:
    """From entries in any order."""
    found = [p for p in pieces if len(p[0])]
    if not found:
        none = np.empty(0, np.int32)
        return CodedEvents(np.zeros(events + 1, np.int64), none, none, none, True)
    event, attribute, lo, hi = (
        found[0] if len(found) == 1 else tuple(np.concatenate([p[i] for p in found]) for i in range(4))
    )
    longest = LONGEST_EVENT.value
    if len(event) > longest and np.bincount(event).max() > longest:
        order = np.lexsort((lo, attribute, event))  # by_event inserts, which is quadratic in long unsorted runs
        event, attribute, lo, hi = event[order], attribute[order], lo[order], hi[order]
    offsets, attribute, lo, hi, points = by_event(event, attribute, lo, hi, events)
    return CodedEvents(offsets, attribute, lo, lo if points else hi, points)


_NO_TIMES = np.empty(0, np.int32)


class Numbered:
    """The attribute number of each name of a batch, by facet; -1 where no predicate mentions it. Batch after batch has
    the same list of names, so the domains keep the last one."""

    def __init__(self, names: list[str], domains: Domains, code: NDArray[np.int32] | None = None):
        """code: the place of each attribute's name among the names, if that is known."""
        self.names = names
        if code is None:
            codes = names.codes if isinstance(names, Names) else Names(names).codes
            found = map(codes.get, (name for name, _ in domains.attributes), repeat(-1))
            code = np.fromiter(found, np.int32, len(domains.attributes))
        self.code = code
        self.complete = not len(code) or int(code.min()) >= 0  # the batch has all names that predicates mention
        self._of: dict[Facet, NDArray[np.int32]] = {}
        several = bool(domains.facet.any())
        for facet in Facet if several else (Facet.VALUE,):
            mentioned = np.flatnonzero((domains.facet == facet) & (code >= 0)) if several else np.flatnonzero(code >= 0)
            if len(mentioned) or facet == Facet.VALUE:
                numbers = np.full(len(names), -1, np.int32)
                numbers[code[mentioned]] = mentioned
                self._of[facet] = numbers
        self.timed = self._of.get(Facet.TIME, _NO_TIMES)
        # Whether values in the order of their names are in the order of their attributes, and there is nothing else but
        # times: that of a name comes behind its value, also if these are not sorted otherwise.
        known = code if self.complete else code[code >= 0]
        plain = not several or set(self._of) <= {Facet.VALUE, Facet.TIME}
        ascending = bool((known[1:] > known[:-1]).all())
        if several and plain and not ascending:
            facets = domains.facet if self.complete else domains.facet[code >= 0]
            ascending = bool(((known[1:] > known[:-1]) | ((known[1:] == known[:-1]) & (facets[1:] > 0))).all())
        self.in_order = plain and ascending
        self.disordered = plain and not ascending

    def among_more(self, names: Names) -> Numbered:
        """The same for names that extend those of before, of a batch that had all that predicates mention."""
        result = copy(self)
        result.names = names
        more = np.full(len(names) - len(self.names), -1, np.int32)
        result._of = {facet: np.concatenate([numbers, more]) for facet, numbers in self._of.items()}
        result.timed = result._of.get(Facet.TIME, _NO_TIMES)
        return result

    def __getitem__(self, facet: Facet) -> NDArray[np.int32] | None:
        """None: no predicate looks at this facet of any name."""
        return self._of.get(facet)


def number_names(names: list[str], domains: Domains) -> Numbered:
    found: Numbered | None = domains.numbered
    if found is None or found.names is not names:
        # Whole: another thread may be looking.
        if found is not None and found.complete and isinstance(names, Names) and names.extends(found.names):
            found = domains.numbered = found.among_more(names)
        else:
            found = domains.numbered = Numbered(names, domains)
    return found


def pieces(values: EventValues, domains: Domains) -> Iterator[Piece]:
    """The coded values, kind by kind."""
    if not domains.attributes:  # nobody looks at any
        return
    numbers_of = number_names(values.names, domains)
    own, timed = numbers_of[Facet.VALUE], numbers_of[Facet.TIME]
    assert own is not None
    n, t, b, s, u = values.numbers, values.times, values.booleans, values.strings, values.unreadable
    if len(n.event):
        numbers = (domains.number_offsets, domains.number_value, domains.number_rests)
        yield _points(n.event, *code_numbers(own, n.name, writable(n.value), writable(n.rest), *numbers))
    if len(t.event):
        times = (domains.time_offsets, domains.time_value, domains.time_base)
        for to in (own, timed):
            if to is not None:
                yield _points(t.event, *code_times(to, t.name, writable(t.microseconds), *times))
    if len(b.event):
        yield _points(b.event, own[b.name], 1 + b.value.astype(np.int32))
    if len(s.event):
        s = Strings(s.event, s.name, writable(s.offsets), writable(s.data))
        for facet in (Facet.VALUE, Facet.REVERSED):
            to = numbers_of[facet]
            if to is not None:
                data = s.data if facet == Facet.VALUE else reverse_strings(to, s.name, s.offsets, s.data)
                found = code_strings(
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
        if timed is not None:
            yield _points(s.event, *code_time_texts(timed, s.name, Texts(s.offsets, s.data), TimeConstants.of(domains)))
        for facet in (Facet.PATTERN, Facet.NO_PATTERN):
            to = numbers_of[facet]
            if to is not None:
                yield from pattern_pieces(s, to, domains, matching=facet == Facet.PATTERN)
    if len(u.event):
        attribute = own[u.name]
        known = attribute >= 0
        yield _points(u.event[known], attribute[known], domains.cells[attribute[known]])
    if values.ranges:
        yield _range_piece(values.ranges, own, domains)
        if timed is not None:
            times_only = [each for each in values.ranges if _kind_of(each[2]) == Kind.TIME]
            yield _range_piece(times_only, timed, domains)


def _points(event: NDArray[Any], attribute: NDArray[Any], cell: NDArray[Any]) -> Piece:
    known = attribute >= 0
    if not known.all():
        event, attribute, cell = event[known], attribute[known], cell[known]
    cell = cell.astype(np.int32, copy=False)
    return writable(event), attribute, cell, cell


def _range_piece(ranges: list[tuple[int, int, Range]], own: NDArray[np.int32], domains: Domains) -> Piece:
    rows = []
    for event, name, r in ranges:
        a = int(own[name])
        if a >= 0:
            kind = _kind_of(r)
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


def _kind_of(r: Range) -> Kind:
    return literal(r.hi if r.lo is None else r.lo).kind


def cell_of(value: Literal, attribute: int, domains: Domains) -> int:
    """The cell of one value."""
    d, a = domains, attribute
    if value.kind == Kind.BOOLEAN:
        return 1 + int(value.value)
    if value.kind == Kind.NUMBER:
        near, rest = number_key(value.value)
        return NUMBER_BASE + number_cell(
            near, rest, d.number_offsets[a], d.number_offsets[a + 1], d.number_value, d.number_rests
        )
    if value.kind == Kind.TIME:
        at = microseconds(value.value)
        return int(d.time_base[a]) + time_cell(at, d.time_offsets[a], d.time_offsets[a + 1], d.time_value)
    data = np.frombuffer(bytearray(value.value.encode()), np.uint8)
    first, last = d.string_offsets[a], d.string_offsets[a + 1]
    found = find_string(data, first, last, d.string_starts, d.string_bytes, d.string_prefix)
    return int(d.string_base[a]) + found
