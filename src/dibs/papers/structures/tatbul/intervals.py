"""Conjunctions as intervals by attribute, over rows in a new order: what the trees of one attribute are built from.

Rows get new numbers, their places: sorted by their pivot, the attribute of their least likely predicate, and then by
that predicate, narrow ones first, ascending. A row can only match an event that satisfies its pivot predicate, so of
all places a few short runs are enough. Within an attribute the intervals are sorted by place, then by cell: a predicate
of several spans is several intervals, which are disjoint, so one value is in at most one of them.

    row      int32  rows: the row at each place
    size     uint16 (uint32 if some row has 2**16 predicates) rows: how many predicates the row at each place has
    group    int64  attributes + 1: the places with this pivot
    start    int64  attributes + 1: the intervals of each attribute
    lo, hi   int32  intervals: first and last cell
    place    int32  intervals: whose it is
    block    int64  1: of how many bits the number of a place in its block is (8: 256 places are ruled out together)

What the trees of all attributes find for some events, FoundIntervals, is the hand-over from trees to combination.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.index.groups import ClauseArrays
from dibs.index.statistics import access_predicates, guess_presence, highest_cells, probabilities
from dibs.jit.kernel import kernel, phase
from dibs.tuning import tuned

TATBUL_BLOCK = tuned("tatbul_block", 8, 1, "bits", "of a place: 256 places are ruled out together")


class Intervals(NamedTuple):
    row: NDArray[np.int32]
    size: NDArray[Any]
    group: NDArray[np.int64]
    start: NDArray[np.int64]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    place: NDArray[np.int32]
    block: NDArray[np.int64]


def intervals_of(clauses: Clauses) -> Intervals:
    """The intervals of conjunctions, each of at least one predicate."""
    c = clauses
    share = probabilities(c, guess_presence(c), highest_cells(c))
    rows, pivot, _ = access_predicates(c, share)
    lo, hi = c.lo[pivot], c.hi[pivot]
    several = np.flatnonzero(hi < 0)
    end = lo[several] - hi[several] - 1
    lo[several], hi[several] = c.span_lo[lo[several]], c.span_hi[end]
    width = np.log2(hi - lo + 1.0).astype(np.int8)
    row = rows[np.lexsort((lo, width, c.attribute[pivot]))].astype(np.int32)
    group = np.zeros(c.attributes + 1, np.int64)
    np.cumsum(np.bincount(c.attribute[pivot], minlength=c.attributes), out=group[1:])
    sizes = np.diff(c.offsets)[row]
    size = sizes.astype(np.uint16 if sizes.max(initial=0) < 1 << 16 else np.uint32)
    start, low, high, place = _intervals(row, ClauseArrays.of(c), c.attributes)
    return Intervals(row, size, group, start, low, high, place, np.array([TATBUL_BLOCK.value]))


@kernel
def _intervals(row, clauses, attributes):
    """start, lo, hi and place."""
    offsets, attribute, lo, hi, span_lo, span_hi = clauses
    start = np.zeros(attributes + 1, np.int64)
    for p in range(len(attribute)):
        start[attribute[p] + 1] += 1 if hi[p] >= 0 else -hi[p]
    for a in range(attributes):
        start[a + 1] += start[a]
    end = start.copy()
    n = start[-1]
    low, high, place = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    for x in range(len(row)):
        for p in range(offsets[row[x]], offsets[row[x] + 1]):
            a = attribute[p]
            if hi[p] >= 0:
                low[end[a]], high[end[a]], place[end[a]] = lo[p], hi[p], x
                end[a] += 1
                continue
            for s in range(lo[p], lo[p] - hi[p]):
                low[end[a]], high[end[a]], place[end[a]] = span_lo[s], span_hi[s], x
                end[a] += 1
    return start, low, high, place


NONE = -1  # instead of a slot: nothing was found; NONE - n: n runs were


class FoundIntervals(NamedTuple):
    """What the trees found for some events. Entry i of the events (from the first event's first on) has slot[i] of its
    attribute's bit vectors, or NONE, or NONE - n if it has n runs. Event e (counted from the first) has the runs
    start[e]:start[e + 1], those of its entries in order, each of length[r] places from entries[first[r]] on; a negative
    length takes places away."""

    first_event: int
    slot: NDArray[np.int32]
    start: NDArray[np.int64]  # events + 1
    first: NDArray[np.int64]
    length: NDArray[np.int32]
    evaluations: NDArray[np.int64]  # by event
    nodes: NDArray[np.int64]  # by event


def room_for(first_event: int, events: int, entries: int, runs: int) -> tuple[Any, ...]:
    """A FoundIntervals, as kernels take it: nothing so far; `runs` is how many there are at most."""
    return tuple(
        FoundIntervals(
            first_event,
            np.full(entries, NONE, np.int32),
            np.zeros(events + 1, np.int64),
            np.empty(runs, np.int64),
            np.empty(runs, np.int32),
            np.zeros(events, np.int64),
            np.zeros(events, np.int64),
        )
    )


@phase
def collect_slots(tree, events, found, search):
    """For trees that end in slots: asks search(tree, attribute, value) for every value of the events: its slot or NONE,
    comparisons, and nodes."""
    entry = events.offsets[found.first_event]
    for k in range(len(found.evaluations)):
        e = found.first_event + k
        compared, seen = np.int64(0), np.int64(0)
        for i in range(events.offsets[e], events.offsets[e + 1]):
            slot, steps, nodes = search(tree, events.attribute[i], events.lo[i])
            found.slot[i - entry] = slot
            compared += steps
            seen += nodes
        found.evaluations[k], found.nodes[k] = compared, seen


@phase
def collect_runs(tree, events, found, collect):
    """For trees that end in runs: asks collect(tree, attribute, value, found, n) for every value of the events. It
    writes runs from found[n] on, and returns how many, comparisons, and nodes."""
    n, entry = np.int64(0), events.offsets[found.first_event]
    for k in range(len(found.evaluations)):
        e = found.first_event + k
        compared, seen = np.int64(0), np.int64(0)
        for i in range(events.offsets[e], events.offsets[e + 1]):
            runs, steps, nodes = collect(tree, events.attribute[i], events.lo[i], found, n)
            found.slot[i - entry] -= runs
            n += runs
            compared += steps
            seen += nodes
        found.start[k + 1] = n
        found.evaluations[k], found.nodes[k] = compared, seen
