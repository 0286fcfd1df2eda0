"""The kernel of coding.clauses: the spans of each predicate, from the cells of its literals."""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import NUMBER_BASE
from dibs.coding.groups import Literals, Sections, SpanRoom
from dibs.coding.operators import FIRST, HIGH, HIGH_OPEN, LOW, LOW_OPEN, NO
from dibs.jit.kernel import kernel, phase
from dibs.jit.sorting import sort_run
from dibs.language.expression import Kind
from dibs.language.table import Op

_BOOLEAN, _NUMBER, _STRING = (int(k) for k in (Kind.BOOLEAN, Kind.NUMBER, Kind.STRING))
_IN, _NOT_IN, _ANY_STRING, _IS_NULL, _NOT_NULL = map(int, (Op.IN, Op.NOT_IN, Op.STRING, Op.IS_NULL, Op.NOT_NULL))


@kernel
def spans_of(operator, attribute, literal_offsets, kind, cell, string_base, time_base, cells):
    """(lo, hi, span_lo, span_hi) as in Clauses."""
    # Where a type is said, it is so that no function is compiled for several.
    room, longest = 0, 0
    for p in range(len(operator)):
        op = operator[p]
        if op in (_IN, _NOT_IN):
            size = literal_offsets[p + 1] - literal_offsets[p]
            longest = max(longest, size)
            room += size + 1
        elif FIRST[op + 1] - FIRST[op] > 1:
            room += 2
    lo, hi = np.empty(len(operator), np.int32), np.empty(len(operator), np.int32)
    span_lo, span_hi, listed = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(longest, np.int32)
    literals, sections, spans = (
        Literals(kind, cell),
        Sections(string_base, time_base, cells),
        SpanRoom(span_lo, span_hi, listed),
    )
    used = np.int64(0)
    for p in range(len(operator)):
        op, a, i, end = operator[p], attribute[p], literal_offsets[p], literal_offsets[p + 1]
        low, high = np.int64(1), np.int64(0)
        first, last = FIRST[op], FIRST[op + 1]
        if op in (_IN, _NOT_IN) or last - first > 1:
            after = used
            if op in (_IN, _NOT_IN):
                after = _of_list(op, a, i, end, literals, sections, used, spans)
            elif i < end:
                after = _of_intervals(first, a, i, literals, sections, used, spans)
            if after > used + 1:
                lo[p], hi[p] = used, used - after
                used = after
                continue
            if after == used + 1:
                low, high = np.int64(span_lo[used]), np.int64(span_hi[used])
        elif op == _IS_NULL:
            low = np.int64(0)
        elif op == _NOT_NULL:
            high = np.int64(cells[a]) - 1
        elif op == _ANY_STRING:
            low, high = _section(np.uint8(_STRING), a, sections)
        elif first < last:
            low, high = _interval(first, a, i, literals, sections)
        if low > high:
            low, high = np.int64(1), np.int64(0)
        lo[p], hi[p] = low, high
    return lo, hi, span_lo[:used].copy(), span_hi[:used].copy()


@phase
def _interval(r, a, i, literals, sections):
    """The cells of interval r of an operator whose literals begin at i; if there are none, first > last."""
    kind, cell = literals
    low, high = i + LOW[r], i + HIGH[r]
    if LOW[r] != NO and HIGH[r] != NO and kind[low] != kind[high]:
        return np.int64(1), np.int64(0)
    first, last = _section(kind[high if LOW[r] == NO else low], a, sections)
    if LOW[r] != NO:
        first = np.int64(cell[low]) + LOW_OPEN[r]
    if HIGH[r] != NO:
        last = np.int64(cell[high]) - HIGH_OPEN[r]
    return first, last


@kernel
def _of_intervals(r, a, i, literals, sections, start, spans):
    """Writes the spans of the two intervals from r on, from `start` on; returns one past the last."""
    low, high = _interval(r, a, i, literals, sections)
    next_low, next_high = _interval(r + 1, a, i, literals, sections)
    if next_low < low:  # the literals are of two kinds
        low, high, next_low, next_high = next_low, next_high, low, high
    return _add(next_low, next_high, start, _add(low, high, start, start, spans), spans)


@kernel
def _of_list(op, a, i, end, literals, sections, start, spans):
    """Writes the spans of IN or NOT IN from `start` on; returns one past the last."""
    kind, cell = literals
    listed = spans.listed
    n, at = end - i, start
    if n == 0:
        return at
    least, most = kind[i], kind[i]
    for k in range(n):
        listed[k] = cell[i + k]
        least, most = min(least, kind[i + k]), max(most, kind[i + k])
    sort_run(listed, 0, n)
    if op == _IN:
        for k in range(n):
            at = _add(np.int64(listed[k]), np.int64(listed[k]), start, at, spans)
    else:
        # Between neighbouring constants lies a span, and one before the first and after the last.
        low, _ = _section(least, a, sections)
        for k in range(n):
            at = _add(low, np.int64(listed[k]) - 1, start, at, spans)
            low = np.int64(listed[k]) + 1
        _, last = _section(most, a, sections)
        at = _add(low, last, start, at, spans)
    return at


@kernel
def _add(low, high, start, at, spans):
    """A span behind those in [start, at), none of which starts later; what overlaps or is adjacent becomes one."""
    if low > high:
        return at
    if at > start and low <= spans.hi[at - 1] + 1:
        spans.hi[at - 1] = max(np.int64(spans.hi[at - 1]), high)
        return at
    spans.lo[at], spans.hi[at] = low, high
    return at + 1


@kernel
def _section(kind, a, sections):
    """First and last cell of a kind of values of an attribute (VALUE, REVERSED and TIME facets)."""
    if kind == _BOOLEAN:
        return np.int64(1), np.int64(2)
    if kind == _NUMBER:
        return np.int64(NUMBER_BASE), np.int64(sections.string_base[a]) - 1
    if kind == _STRING:
        return np.int64(sections.string_base[a]), np.int64(sections.time_base[a]) - 1
    return np.int64(sections.time_base[a]), np.int64(sections.cells[a]) - 1
