"""records: clauses beside their rarest attribute, packed into one stream of 64-bit words. Half of `auto`.

The idea: each conjunction is filed under one attribute that few events have (its access attribute). An event reads
only the groups of the attributes it has, and each group is one run of memory: for each clause a header and then its
predicates, a word each. Memory latency is the cost, so the next group is prefetched while the current one is tested;
mispredicted branches come second, so a clause is tested without early exit and clauses of one length stand together.

Arrays:
    words  uint64  for each clause a header  row << 32 | verify << 16 | n   and n tests
                   negate << 63 | attribute << 32 | lo << 16 | (hi - lo),  in coarse cells
    start  int64   attributes + 1: the words of each access attribute
    count  int32   attributes: how many clauses it has
    shift  uint8   attributes: a coarse cell is cell >> shift, below 65,536

A predicate of several spans is its hull and, negated, the holes in it. Where a test would be inexact (coarse cells,
long lists) it is wider than the predicate and the header's `verify` sends the candidate to the clauses themselves; so
do events with several values or ranges for an attribute.

Useful for: attributes that are in few events (sparse, high-dimensional data).
Not useful for: attributes that most events have: every clause filed there would be tested for every event.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.kernels import clear, holds_several, lay_out

COARSE = 1 << 16
MOST_SPANS = 8  # a predicate of more spans is tested by its hull and verified
LINES = 16  # cache lines of a group that are prefetched


class Records:
    ARRAYS = ("words", "start", "count", "shift")

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self._words, self._start, self._count, self._shift = (arrays[name] for name in self.ARRAYS)

    def __len__(self) -> int:
        return int(self._count.sum())

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, f"_{name}") for name in self.ARRAYS}

    @classmethod
    def build(cls, clauses: Clauses, rows: NDArray[np.int64], access: NDArray[np.int64]) -> Records:
        """rows: conjunctions with at least one predicate; access: the predicate of each under which it is filed."""
        size = np.diff(clauses.offsets)[rows]
        predicate, owner = _predicates_of(clauses, rows, size)
        other = np.where(predicate == access[owner], np.int32(0x7FFFFFFF), clauses.attribute[predicate])
        starts = np.cumsum(size) - size
        second = np.minimum.reduceat(other, starts) if len(rows) else np.empty(0, np.int32)
        # By attribute, then length (loops of one length are predicted), then another attribute (failures cluster).
        filed = clauses.attribute[access]
        if clauses.attributes < 1 << 22:
            order = np.argsort((filed.astype(np.int64) << 40) | (np.minimum(size, 255) << 32) | second, kind="stable")
        else:
            order = np.lexsort((second, size, filed))
        rows, access = rows[order], access[order]
        words, length = _words(clauses, rows, size[order])
        filed = clauses.attribute[access]
        start = np.zeros(clauses.attributes + 1, np.int64)
        start[1:] = np.cumsum(np.bincount(filed, weights=length, minlength=clauses.attributes))
        count = np.bincount(filed, minlength=clauses.attributes).astype(np.int32)
        return cls(clauses, {"words": words, "start": start, "count": count, "shift": _shifts(clauses)})

    def match(
        self, events: CodedEvents, last: int, room: tuple[NDArray[Any], NDArray[Any]], done: NDArray[np.int64]
    ) -> None:
        """See index.base.in_parts; done[1] is the entry of the event to go on with."""
        c = self._clauses
        _match(
            self._words,
            self._start,
            self._count,
            self._shift,
            c.offsets,
            c.attribute,
            c.lo,
            c.hi,
            c.span_lo,
            c.span_hi,
            events.offsets,
            events.attribute,
            events.lo,
            events.hi,
            events.points,
            last,
            *room,
            done,
        )


def _predicates_of(
    clauses: Clauses, rows: NDArray[np.int64], size: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All predicates of the rows, and for each the place of its row."""
    owner = np.repeat(np.arange(len(rows)), size)
    return np.repeat(clauses.offsets[rows] - (np.cumsum(size) - size), size) + np.arange(len(owner)), owner


def _shifts(clauses: Clauses) -> NDArray[np.uint8]:
    highest = np.zeros(clauses.attributes, np.int64)
    single = clauses.hi >= 0
    np.maximum.at(highest, clauses.attribute[single], clauses.hi[single])
    several = np.flatnonzero(~single)
    np.maximum.at(highest, clauses.attribute[several], clauses.span_hi[clauses.lo[several] - clauses.hi[several] - 1])
    bits = np.ceil(np.log2(highest + 4)).astype(np.int64)  # room for "above every span" and "never"
    return np.maximum(bits - 16, 0).astype(np.uint8)


def _words(
    clauses: Clauses, rows: NDArray[np.int64], size: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The stream of the rows in this order, and the words of each."""
    shift = _shifts(clauses)
    predicate, owner = _predicates_of(clauses, rows, size)
    spans = np.where(clauses.hi[predicate] < 0, -clauses.hi[predicate], 1).astype(np.int64)
    coarse = shift[clauses.attribute[predicate]] > 0
    holes = np.where((spans > MOST_SPANS) | coarse, 0, spans - 1)
    inexact = (spans - 1 > holes) | coarse
    tests = np.bincount(owner, weights=1 + holes, minlength=len(rows)).astype(np.int64)
    verify = np.bincount(owner, weights=inexact, minlength=len(rows)) > 0
    long = tests > 0xFFFF  # more tests than a header can count: all are left to the clauses
    tests[long], verify[long] = 0, True
    kept = ~long[owner]
    predicate, owner, spans, holes = predicate[kept], owner[kept], spans[kept], holes[kept]
    length = tests + 1
    begin = np.cumsum(length) - length
    words = np.empty(int(length.sum()), np.uint64)
    words[begin] = ((rows << 32) | (verify.astype(np.int64) << 16) | tests).astype(np.uint64)
    each = 1 + holes
    at = begin[owner] + 1 + (np.cumsum(each) - each) - (np.cumsum(tests) - tests)[owner]
    single = spans == 1
    first, final = clauses.lo[predicate].astype(np.int64), clauses.hi[predicate].astype(np.int64)
    low, high = first.copy(), final.copy()
    several = np.flatnonzero(~single)
    low[several] = clauses.span_lo[first[several]]
    high[several] = clauses.span_hi[first[several] - final[several] - 1]
    words[at] = _test(clauses.attribute[predicate], low, high, shift, False)
    holed = np.flatnonzero(holes > 0)
    count = holes[holed]
    if len(holed):
        side = np.repeat(first[holed] - (np.cumsum(count) - count), count) + np.arange(count.sum())
        place = np.repeat(at[holed] + 1 - (np.cumsum(count) - count), count) + np.arange(count.sum())
        words[place] = _test(
            np.repeat(clauses.attribute[predicate[holed]], count),
            clauses.span_hi[side].astype(np.int64) + 1,
            clauses.span_lo[side + 1].astype(np.int64) - 1,
            shift,
            True,
        )
    return words, length


def _test(
    attribute: NDArray[Any], low: NDArray[np.int64], high: NDArray[np.int64], shift: NDArray[np.uint8], negate: bool
) -> NDArray[np.uint64]:
    by = shift[attribute].astype(np.int64)
    empty = low > high  # never holds: no coarse cell is 65,535 (see _shifts)
    low, high = np.where(empty, COARSE - 1, low >> by), np.where(empty, COARSE - 1, high >> by)
    packed = (attribute.astype(np.int64) << 32) | (low << 16) | (high - low)
    return packed.astype(np.uint64) | np.uint64(int(negate) << 63)


@intrinsic
def _prefetch(typingctx, array, at):  # type: ignore[no-untyped-def]
    """Asks for the cache line of array[at]."""

    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], fnty=kind)
        place = builder.bitcast(builder.gep(data, [args[1]]), pointer)
        builder.call(fetch, [place, *(ir.Constant(number, x) for x in (0, 3, 1))])  # read, keep in all caches, data
        return context.get_dummy_value()

    return types.void(array, at), code


@njit(cache=True, nogil=True)
def _match(  # type: ignore[no-untyped-def]
    words,
    start,
    count,
    shift,
    offsets,
    attribute,
    lo,
    hi,
    span_lo,
    span_hi,
    event_offsets,
    event_attribute,
    event_lo,
    event_hi,
    points,
    last_event,
    out_event,
    out_row,
    done,
):
    attributes = len(count)
    coarse = np.zeros(attributes, np.uint16)
    slot_lo, slot_hi = np.zeros(attributes, np.int32), np.zeros(attributes, np.int32)
    slot_more = np.zeros((attributes, 2), np.int64)
    one, low_half, short, top = np.uint64(1), np.uint64(0xFFFF), np.uint64(16), np.uint64(63)
    half, attribute_bits = np.uint64(32), np.uint64(0x7FFFFFFF)
    found = 0
    entry = done[1]
    for e in range(done[0], last_event):
        first, last = event_offsets[e], event_offsets[e + 1]
        lay_out(first, last, event_attribute, event_lo, event_hi, slot_lo, slot_hi, slot_more)
        for i in range(first, last):
            a = event_attribute[i]
            coarse[a] = np.uint16(min(event_lo[i] >> shift[a], COARSE - 2))  # above every span, below "never"
        for i in range(first + entry, last):
            a = event_attribute[i]
            if i + 1 < last or e + 1 < last_event:
                if i + 1 < len(event_attribute):
                    b = event_attribute[i + 1]
                    at, end = start[b], min(start[b + 1], start[b] + 8 * LINES)
                    while at < end:
                        _prefetch(words, at)
                        at += 8
            if i > first and event_attribute[i - 1] == a:
                continue  # another value of the same attribute: its group is done
            if count[a] == 0:
                continue
            if found + count[a] > len(out_event):
                done[0], done[1], done[2] = e, i - first, found
                return
            p, end = np.uint64(start[a]), np.uint64(start[a + 1])
            done[3] += count[a]
            done[4] += np.int64(end - p) - count[a]
            while p < end:
                header = words[p]
                after = p + (header & low_half) + one
                fails = np.uint64(0)
                if points:
                    p += one
                    while p < after:
                        test = words[p]
                        v = np.uint64(coarse[(test >> half) & attribute_bits])
                        outside = np.uint64((v - ((test >> short) & low_half)) > (test & low_half))
                        fails |= outside ^ (test >> top)
                        p += one
                p = after
                row = header >> half
                if fails == 0 and (not points or (header >> short) & one):
                    for q in range(offsets[row], offsets[row + one]):
                        b, low, high = attribute[q], lo[q], hi[q]
                        if high >= 0 and slot_more[b, 1] == 0:
                            ok = low <= slot_hi[b] and slot_lo[b] <= high
                        else:
                            ok = holds_several(
                                b, low, high, span_lo, span_hi, slot_lo, slot_hi, slot_more, event_lo, event_hi
                            )
                        if not ok:
                            fails = one
                            break
                out_event[found] = e
                out_row[found] = row
                found += fails == 0
        entry = 0
        for i in range(first, last):
            coarse[event_attribute[i]] = 0
        clear(first, last, event_attribute, slot_lo, slot_hi, slot_more)
    done[0], done[1], done[2] = last_event, 0, found
