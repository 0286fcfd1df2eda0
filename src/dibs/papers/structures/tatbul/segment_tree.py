"""segment-tree: elementary intervals joined in pairs, each profile as high as it covers all. Tatbul (2001), the Segment
Tree Index, after the structure of computational geometry.

The idea: the leaves are the elementary intervals of an attribute in order; each inner node is the union of two nodes
below. A profile's interval is kept at the highest nodes that it covers whole: at most two on a level, and exactly one
on the way from the root to any leaf that it covers. A value goes down to its leaf, and the profiles kept on the way
are those that it satisfies: always log n comparisons, whatever the overlap.

Arrays (besides those of tatbul.attribute_trees):
    cells   int32  leaves + attributes: the first cell of each leaf, ascending within an attribute, and behind its last
                   leaf the cell at which that ends (not included)
    leaves  int64  attributes + 1: where the cells of each attribute begin
    nodes   int64  attributes + 1: the nodes of each attribute: its leaves from left to right, then their parents, and
                   so on to the root; node i of a level has the children 2 i and 2 i + 1 of the level below (the last
                   one perhaps only one child)
    starts  int32  nodes + 1: where the list of each node begins in `entries`, counted from the attribute's base
    base    int64  attributes + 1

Useful for: overlapping ranges; its size does not depend on the overlap.
Not useful for: short searches: it always goes down to a leaf and visits a list on each level.

Where it differs from the paper: as in tatbul.interval, cuts are made only where some profile begins or ends, and
vectors are combined by counting. The vectors of nodes are plain lists: no profile is in many.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.groups import EventArrays
from dibs.jit.kernel import kernel, phase
from dibs.papers.structures.tatbul.attribute_trees import AttributeTrees
from dibs.papers.structures.tatbul.interval import FIRST, LAST, elementary
from dibs.papers.structures.tatbul.intervals import FoundIntervals, Intervals, collect_runs


class Segments(NamedTuple):
    cells: NDArray[np.int32]
    leaves: NDArray[np.int64]
    nodes: NDArray[np.int64]
    starts: NDArray[np.int32]
    base: NDArray[np.int64]


class SegmentTree(AttributeTrees):
    name: ClassVar[str] = "segment-tree"
    about: ClassVar[str] = "elementary intervals joined in pairs for each attribute (Tatbul); overlapping ranges"
    TREE = Segments._fields
    VECTORS = False
    ORDERED = True

    @classmethod
    def _grow(cls, intervals: Intervals) -> dict[str, NDArray[Any]]:
        no_cuts = np.zeros(len(intervals.start), np.int64), np.empty(0, np.int32)
        own = intervals.start, intervals.lo, intervals.hi
        spans, slots, first, last = elementary(*own, *no_cuts, True)
        cells, leaves = _first_cells(spans, slots)
        nodes, starts, base, entries = _store(intervals.start, intervals.place, first, last, slots)
        return {"cells": cells, "leaves": leaves, "nodes": nodes, "starts": starts, "base": base, "entries": entries}

    def plan(self) -> dict[str, Any]:
        return {
            "nodes": int(self._arrays["nodes"][-1]),
            "leaves": len(self._arrays["cells"]) - self._clauses.attributes,
            "depth": self._most_runs(),
            "entries": len(self._arrays["entries"]),
            "grounds": "each value goes from the root of its attribute to an elementary interval",
        }

    def _most_runs(self) -> int:
        return (int(np.diff(self._arrays["leaves"]).max(initial=1)) - 1).bit_length() + 1

    def _find(self, events: tuple[Any, ...], found: tuple[Any, ...]) -> None:
        _find(self._tree, events, found)


@kernel
def _first_cells(spans, slots):
    attributes = len(slots) - 1
    cells, leaves = np.zeros(len(spans) + attributes, np.int32), np.zeros(attributes + 1, np.int64)
    for a in range(attributes):
        leaves[a] = slots[a] + a
        for s in range(slots[a], slots[a + 1]):
            cells[s + a] = spans[s, FIRST]
            cells[s + a + 1] = spans[s, LAST] + 1
    leaves[attributes] = len(cells)
    return cells, leaves


@kernel
def _store(start, place, first, last, slots):
    """The lists of all nodes. Once to count, once to fill; intervals come by place, so each list is sorted."""
    attributes = len(start) - 1
    nodes = np.zeros(attributes + 1, np.int64)
    most = np.int64(0)
    for a in range(attributes):
        width = slots[a + 1] - slots[a]
        nodes[a + 1] = nodes[a] + width
        while width > 1:
            width = (width + 1) >> 1
            nodes[a + 1] += width
        most = max(most, nodes[a + 1] - nodes[a])
    starts, base = np.empty(nodes[-1] + 1, np.int32), np.zeros(attributes + 1, np.int64)
    where = np.empty(most, np.int64)  # by node: where to put the next; while counting, how many
    entries = np.empty(0, np.int32)
    for filling in range(2):
        if filling == 1:
            entries = np.empty(base[-1], np.int32)
        for a in range(attributes):
            count = nodes[a + 1] - nodes[a]
            for k in range(count):
                where[k] = base[a] + starts[nodes[a] + k] if filling == 1 else 0
            for i in range(start[a], start[a + 1]):
                x, y = np.int64(first[i]), np.int64(last[i])
                width, level = slots[a + 1] - slots[a], np.int64(0)
                while x <= y:
                    # Taken here if the parent has a leaf that the interval does not cover.
                    if x & 1 == 1 or width == 1:
                        if filling == 1:
                            entries[where[level + x]] = place[i]
                        where[level + x] += 1
                        x += 1
                    if x <= y and y & 1 == 0 and y + 1 < width:
                        if filling == 1:
                            entries[where[level + y]] = place[i]
                        where[level + y] += 1
                        y -= 1
                    if width == 1:
                        break
                    level += width
                    width = (width + 1) >> 1
                    x, y = x >> 1, y >> 1
            if filling == 0:
                at = np.int64(0)
                for k in range(count):
                    starts[nodes[a] + k] = at
                    at += where[k]
                base[a + 1] = base[a] + at
    starts[nodes[-1]] = 0
    return nodes, starts, base, entries


@kernel
def _find(tree, events, found):
    collect_runs(Segments(*tree), EventArrays(*events), FoundIntervals(*found), _collect)


@phase
def _collect(tree, a, v, found, n):
    """The lists of the nodes on the way from the root of attribute a to the leaf of a value, as runs from found[n] on:
    how many, comparisons, and nodes."""
    low, leaves = tree.leaves[a], tree.leaves[a + 1] - tree.leaves[a] - 1
    runs, compared, seen = np.int64(0), np.int64(0), np.int64(0)
    if leaves == 0:
        return runs, compared, seen
    compared += 1
    if v < tree.cells[low] or v >= tree.cells[low + leaves]:
        return runs, compared, seen
    # Node `at` of a level has the leaves from at << level on; `top` is the number of the level's first node.
    level, at, top = np.int64(0), np.int64(0), tree.nodes[a + 1] - 1
    while (leaves - 1) >> level > 0:
        level += 1
    while True:
        seen += 1
        begin, end = _list_of(tree, a, top + at)
        if begin < end:
            found.first[n + runs], found.length[n + runs] = begin, end - begin
            runs += 1
        if level == 0:
            return runs, compared, seen
        level -= 1
        top -= (leaves + (np.int64(1) << level) - 1) >> level
        at = 2 * at
        right = (at + 1) << level
        if right < leaves:
            compared += 1
            at += v >= tree.cells[low + right]


@phase
def _list_of(tree, a, node):
    """Where in `entries` the profiles of a node of attribute a are."""
    base = tree.base[a]
    last = node + 1 == tree.nodes[a + 1]
    return base + tree.starts[node], tree.base[a + 1] if last else base + tree.starts[node + 1]
