"""interval: a binary search tree of elementary intervals for each attribute. Tatbul (2001), the Interval Index.

The idea: the ends of an attribute's intervals cut its values into elementary intervals, within which every value
satisfies the same predicates. Each one that satisfies any is a node of a balanced search tree, with the bit vector of
the profiles that it satisfies. A search stops at the node that contains the value, often before it reaches a leaf, so
it takes between 1 and log n comparisons however much the profiles overlap.

Arrays (besides those of tatbul.attribute_trees and tatbul.bit_vectors; a slot is an elementary interval):
    nodes    int32  slots x 2: first and last cell, disjoint and ascending within an attribute
    slots    int64  attributes + 1: the nodes of each attribute; the tree is in its order, so it has no links: the root
                    of n nodes is the (n + 1) / 2-th, and so on in either half

Useful for: overlapping ranges; the fewest comparisons of the five.
Not useful for: profiles of which most predicates hold: each is counted, one by one.

Where it differs from the paper: cuts are made only where some profile begins or ends. (The paper cuts before and after
each end, (2, 5) from [5, 5], even if no profile tells them apart; with closed intervals that is up to twice as many
nodes.) Bit vectors are lists of differences and are combined by counting.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.groups import EventArrays
from dibs.jit.kernel import kernel, phase
from dibs.papers.structures.tatbul.attribute_trees import AttributeTrees
from dibs.papers.structures.tatbul.bit_vectors import Covered, bit_vectors, sizes
from dibs.papers.structures.tatbul.intervals import NONE, FoundIntervals, Intervals, collect_slots

FIRST, LAST = range(2)  # the columns of `nodes`: cells


class IntervalIndex(NamedTuple):
    nodes: NDArray[np.int32]
    slots: NDArray[np.int64]


class Interval(AttributeTrees):
    name: ClassVar[str] = "interval"
    about: ClassVar[str] = "a search tree of elementary intervals for each attribute (Tatbul); overlapping ranges"
    TREE = IntervalIndex._fields

    @classmethod
    def _grow(cls, intervals: Intervals) -> dict[str, NDArray[Any]]:
        no_cuts = np.zeros(len(intervals.start), np.int64), np.empty(0, np.int32)
        nodes, slots, first, last = elementary(intervals.start, intervals.lo, intervals.hi, *no_cuts, False)
        return {"nodes": nodes, "slots": slots} | bit_vectors(intervals, Covered(first, last, slots))

    def plan(self) -> dict[str, Any]:
        counts = np.diff(self._arrays["slots"])
        return {
            "nodes": int(counts.sum()),
            "depth": int(counts.max(initial=0)).bit_length(),
            **sizes(self._arrays),
            "grounds": "each value is searched among the elementary intervals of its attribute",
        }

    def _find(self, events: tuple[Any, ...], found: tuple[Any, ...]) -> None:
        _find(self._tree, events, found)


@kernel
def elementary(start, lo, hi, cut_start, cuts, gaps):
    """The elementary intervals that some interval covers (with `gaps`, also those between them), attribute by
    attribute; which of its attribute's each interval covers, first and last. `cuts` (those of attribute a from
    cut_start[a] on) are cells before which to cut as well."""
    attributes = len(start) - 1
    room, cells = np.int64(0), np.int64(0)
    for a in range(attributes):
        highest = np.int64(0)
        for i in range(start[a], start[a + 1]):
            highest = max(highest, np.int64(hi[i]))
        cells = max(cells, highest)
        room += min(highest, 2 * (start[a + 1] - start[a]) + cut_start[a + 1] - cut_start[a])
    nodes, slots = np.empty((room, 2), np.int32), np.zeros(attributes + 1, np.int64)
    first, last = np.empty(len(lo), np.int32), np.empty(len(lo), np.int32)
    change, cut = np.zeros(cells + 2, np.int64), np.zeros(cells + 2, np.bool_)
    slot_of = np.empty(cells + 2, np.int32)
    n = np.int64(0)
    for a in range(attributes):
        highest = np.int64(0)
        for i in range(start[a], start[a + 1]):
            change[lo[i]] += 1
            change[hi[i] + 1] -= 1
            cut[lo[i]] = cut[hi[i] + 1] = True
            highest = max(highest, np.int64(hi[i]))
        for i in range(cut_start[a], cut_start[a + 1]):
            cut[cuts[i]] = True
        over, inside = np.int64(0), False
        for c in range(highest + 2):
            if cut[c]:
                if inside:
                    nodes[n - 1, LAST] = c - 1
                over += change[c]
                inside = over > 0 or (gaps and inside and c <= highest)
                if inside:
                    nodes[n, FIRST] = c
                    n += 1
            slot_of[c] = n - 1 - slots[a]
            change[c], cut[c] = 0, False
        for i in range(start[a], start[a + 1]):
            first[i], last[i] = slot_of[lo[i]], slot_of[hi[i]]
        slots[a + 1] = n
    return nodes[:n].copy(), slots, first, last


@phase
def find_elementary(nodes, begin, end, v):
    """Which elementary interval from begin to end (not included) contains the value, -1 if none, and with how many it
    is compared."""
    compared = np.int64(0)
    while begin < end:
        m = (begin + end - 1) >> 1
        compared += 1
        if v < nodes[m, FIRST]:
            end = m
        elif v > nodes[m, LAST]:
            begin = m + 1
        else:
            return m, compared
    return np.int64(-1), compared


@kernel
def _find(tree, events, found):
    collect_slots(IntervalIndex(*tree), EventArrays(*events), FoundIntervals(*found), _search)


@phase
def _search(tree, a, v):
    node, compared = find_elementary(tree.nodes, tree.slots[a], tree.slots[a + 1], v)
    return node - tree.slots[a] if node >= 0 else np.int64(NONE), compared, compared
