"""The kernel of coding.clauses: the spans of each predicate, from the cells of its literals."""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import NUMBER_BASE
from dibs.coding.groups import Literals, Sections, SpanRoom
from dibs.jit.kernel import kernel
from dibs.language.expression import Kind
from dibs.language.table import Op

_BOOLEAN, _NUMBER, _STRING = (int(k) for k in (Kind.BOOLEAN, Kind.NUMBER, Kind.STRING))
_EQ, _NE, _LT, _LE, _GT, _GE = (int(x) for x in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE))
_BETWEEN, _NOT_BETWEEN, _IN, _NOT_IN = (int(x) for x in (Op.BETWEEN, Op.NOT_BETWEEN, Op.IN, Op.NOT_IN))
_WITHIN, _NOT_WITHIN, _ANY_STRING = (int(x) for x in (Op.WITHIN, Op.NOT_WITHIN, Op.STRING))
_IS_NULL, _NOT_NULL, _PATTERN = (int(x) for x in (Op.IS_NULL, Op.NOT_NULL, Op.PATTERN))


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
        elif op in (_NE, _NOT_BETWEEN, _NOT_WITHIN):
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
        lowest, highest = _section(kind[i] if i < end else np.uint8(_STRING), a, sections)
        if op in (_IN, _NOT_IN, _NE, _NOT_BETWEEN, _NOT_WITHIN):
            after = used
            if op in (_IN, _NOT_IN):
                after = _of_list(op, a, i, end, literals, sections, used, spans)
            elif i < end:
                j = i if op == _NE else i + 1
                _, last = _section(kind[j], a, sections)
                below, above = np.int64(cell[i]) - 1, np.int64(cell[j]) + (0 if op == _NOT_WITHIN else 1)
                if above < lowest:  # the ends are of two kinds
                    after = _add(above, last, used, after, spans)
                    after = _add(lowest, below, used, after, spans)
                else:
                    after = _add(lowest, below, used, after, spans)
                    after = _add(above, last, used, after, spans)
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
            low, high = lowest, highest
        elif op in (_EQ, _PATTERN):
            low = high = np.int64(cell[i])
        elif op in (_LT, _LE):
            low, high = lowest, np.int64(cell[i]) - (1 if op == _LT else 0)
        elif op in (_GT, _GE):
            low, high = np.int64(cell[i]) + (1 if op == _GT else 0), highest
        elif op in (_BETWEEN, _WITHIN) and kind[i] == kind[i + 1]:  # with ends of two kinds it never holds
            low, high = np.int64(cell[i]), np.int64(cell[i + 1]) - (1 if op == _WITHIN else 0)
        if low > high:
            low, high = np.int64(1), np.int64(0)
        lo[p], hi[p] = low, high
    return lo, hi, span_lo[:used].copy(), span_hi[:used].copy()


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
    _sort(listed, n)
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


@kernel
def _sort(listed, n):
    """Shell sort of the first n: lists are short, and Numba takes a second to compile its own sort."""
    gap = 1
    while 3 * gap + 1 < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            x, j = listed[i], i
            while j >= gap and listed[j - gap] > x:
                listed[j] = listed[j - gap]
                j -= gap
            listed[j] = x
        gap //= 3
