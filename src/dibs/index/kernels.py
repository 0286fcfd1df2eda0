"""The test of one clause against one event, shared by every structure that verifies candidates.

An event is laid out by attribute before its clauses are tested: slot_lo and slot_hi hold the first span of the
attribute's value (0, 0 where it has none), slot_more the entries after the first as (start, end) in the batch.
`clear` undoes `lay_out`, so the slots are filled with zeros once per batch, not once per event.

The entries of an attribute stand by their first cells. `lay_out` sees to it that their last cells grow as well, so that
the one entry that may meet a span is found by halving: an event of very many values costs a clause a few steps more.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.spans import meets_spans
from dibs.jit.groups import Clean, Columns
from dibs.jit.kernel import kernel, phase
from dibs.language.table import ACCEPT


class Slots(NamedTuple):
    """One event by attribute; all zero between events."""

    lo: Annotated[NDArray[np.int32], Clean("attributes")]
    hi: Annotated[NDArray[np.int32], Clean("attributes")]
    more: Annotated[NDArray[np.int64], Columns(2), Clean("attributes")]


class Jumps(NamedTuple):
    """The jumps of programs (see coding.clauses): rows before `first_program` are conjunctions."""

    on_true: NDArray[np.int32]
    on_false: NDArray[np.int32]
    first_program: int


@kernel
def lay_out(first, last, attribute, lo, hi, slot_lo, slot_hi, slot_more):
    """Entries first to last of the batch into the slots. One that ends before the entry in front of it lies within
    that one, and says the same if both end alike."""
    previous = -1
    for i in range(first, last):
        a = attribute[i]
        if a == previous:
            if slot_more[a, 1] == 0:
                slot_more[a, 0] = i
            slot_more[a, 1] = i + 1
            if hi[i] < hi[i - 1]:
                hi[i] = hi[i - 1]
        else:
            slot_lo[a], slot_hi[a] = lo[i], hi[i]
            previous = a


@kernel
def clear(first, last, attribute, slot_lo, slot_hi, slot_more):
    for i in range(first, last):
        a = attribute[i]
        slot_lo[a], slot_hi[a] = 0, 0
        slot_more[a, 0], slot_more[a, 1] = 0, 0


@phase(inline=False)
def holds_several(a, lo, hi, spans, slots, events):
    """Whether a predicate (lo, hi; see index.spans) on attribute a holds for the event in the slots: the way for
    predicates of several spans and for values of several entries. The common case, one span against one entry, is
    tested where it comes up."""
    if meets_spans(slots.lo[a], slots.hi[a], lo, hi, spans):
        return True
    first, last = slots.more[a, 0], slots.more[a, 1]
    if hi >= 0:
        return meets_entries(lo, hi, first, last, events)
    if -np.int64(hi) < last - first:  # fewer spans than entries
        for s in range(lo, lo - hi):
            if meets_entries(spans.span_lo[s], spans.span_hi[s], first, last, events):
                return True
        return False
    for i in range(first, last):
        if meets_spans(events.lo[i], events.hi[i], lo, hi, spans):
            return True
    return False


@phase
def meets_entries(x, y, first, last, events):
    """Whether the cells x to y meet one of these entries of an attribute, which were laid out."""
    a, b = first, last  # the first entry that ends at x or later
    while a < b:
        m = (a + b) >> 1
        if events.hi[m] < x:
            a = m + 1
        else:
            b = m
    return a < last and events.lo[a] <= y


@kernel(inline="always")
def holds(p, clauses, slots, events):
    """Whether predicate p of the clauses holds for the event in the slots."""
    at = np.uint64(p)  # an unsigned place needs no look whether it counts from the end: a scan takes a fifth less
    low, high = clauses.lo[at], clauses.hi[at]
    a = np.uint64(clauses.attribute[at])
    ok = (low <= slots.hi[a]) & (slots.lo[a] <= high)  # never for several spans: `high` is negative then
    if not ok and (high < 0 or slots.more[a, np.uint64(1)] != 0):
        ok = holds_several(a, low, high, clauses, slots, events)
    return ok


@kernel(inline="always")
def test_conjunction(row, clauses, slots, events):
    """Whether the row holds for the event in the slots, and how many predicates were tested."""
    matched, tests = True, np.int64(0)
    for p in range(clauses.offsets[row], clauses.offsets[row + 1]):
        tests += 1
        if not holds(p, clauses, slots, events):
            matched = False
            break
    return matched, tests


@kernel(inline="always")
def test_program(row, clauses, jumps, slots, events):
    """The same for a row that is a program: it follows its jumps."""
    first, first_jump = clauses.offsets[row], clauses.offsets[jumps.first_program]
    step, tests = np.int64(0), np.int64(0)
    while step >= 0:
        p = first + step
        ok = holds(p, clauses, slots, events)
        step = np.int64(jumps.on_true[p - first_jump] if ok else jumps.on_false[p - first_jump])
        tests += 1
    return step == ACCEPT, tests
