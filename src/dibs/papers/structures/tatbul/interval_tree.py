"""interval-tree: intervals kept at the highest endpoint that they contain. Tatbul (2001), the Interval Tree Index,
after the structure of computational geometry.

The idea: the middle one of an attribute's endpoints is the root. The intervals that contain it are kept there, twice:
by their first cell, ascending, and by their last, descending. Those to the left of it and those to the right make the
two subtrees. A value below the root's point satisfies the first intervals of the first list, as long as they begin no
later than the value, and then goes left; above it likewise the other list, then right. Each interval is kept once, but
lists are compared interval by interval.

Arrays (besides those of tatbul.attribute_trees):
    nodes   int32  n x 5: point, left, right (counted from the attribute's first node, -1: none), and its intervals:
                   start and end, counted from the attribute's first interval
    roots   int64  attributes + 1: the nodes of each attribute; the first is the root
    start   int64  attributes + 1: the intervals of each attribute
    bounds  int32  2 x intervals: first cells by node, ascending; then last cells by node, ascending (read from behind)
    entries int32  2 x intervals: whose they are

Useful for: little memory: two entries per interval and one node, whatever the overlap.
Not useful for: few comparisons: every interval that holds, and one more on each level, is compared.

Where it differs from the paper: a value that is the point of a node satisfies all that the node has, without
comparisons. The middle is that of all endpoints, repeated ones included, of the intervals that are left.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.groups import EventArrays
from dibs.jit.kernel import kernel, phase
from dibs.papers.structures.tatbul.attribute_trees import AttributeTrees
from dibs.papers.structures.tatbul.cluster import depth
from dibs.papers.structures.tatbul.intervals import FoundIntervals, Intervals, collect_runs

COLUMNS = 5
POINT, LEFT, RIGHT, START, END = range(COLUMNS)  # the columns of `nodes`
FROM, TO, LINK = range(3)  # of subtrees that are yet to be divided: intervals from, to (not included), where to link
ROOT = -1  # the LINK of a root; else 2 * node, + 1 if it is the right child
NO_CHILD = -1


class PointTree(NamedTuple):
    nodes: NDArray[np.int32]
    roots: NDArray[np.int64]
    start: NDArray[np.int64]
    bounds: NDArray[np.int32]


class IntervalTree(AttributeTrees):
    name: ClassVar[str] = "interval-tree"
    about: ClassVar[str] = "intervals kept at the highest endpoint that they contain (Tatbul); small"
    TREE = PointTree._fields
    VECTORS = False

    def __init__(self, clauses: Any, arrays: dict[str, NDArray[Any]]):
        super().__init__(clauses, arrays)
        self._depth = int(depth(arrays["nodes"], arrays["roots"]))

    @classmethod
    def _grow(cls, intervals: Intervals) -> dict[str, NDArray[Any]]:
        start, lo, hi = intervals.start, intervals.lo, intervals.hi
        orders = _sort(start, lo), _sort(start, hi)
        nodes, roots = _divide(start, lo, hi, *orders)
        order = np.concatenate(orders)
        bounds = np.concatenate([lo[orders[0]], hi[orders[1]]])
        entries = intervals.place[order]
        return {"nodes": nodes, "roots": roots, "start": start, "bounds": bounds, "entries": entries}

    def plan(self) -> dict[str, Any]:
        return {
            "nodes": len(self._arrays["nodes"]),
            "depth": self._depth,
            "entries": len(self._arrays["entries"]),
            "grounds": "each value goes down the tree of its attribute and through a sorted list at each node",
        }

    def _most_runs(self) -> int:
        return max(self._depth, 1)

    def _find(self, events: tuple[Any, ...], found: tuple[Any, ...]) -> None:
        _find(self._tree, events, found)


@kernel
def _sort(start, cell):
    """The intervals of each attribute, sorted by a cell of theirs."""
    highest = np.int64(0)
    for i in range(len(cell)):
        highest = max(highest, np.int64(cell[i]))
    place, order = np.empty(highest + 2, np.int64), np.empty(len(cell), np.int64)
    for a in range(len(start) - 1):
        top = np.int64(0)
        for i in range(start[a], start[a + 1]):
            top = max(top, np.int64(cell[i]))
        for c in range(top + 2):
            place[c] = 0
        for i in range(start[a], start[a + 1]):
            place[cell[i] + 1] += 1
        place[0] = start[a]
        for c in range(top + 1):
            place[c + 1] += place[c]
        for i in range(start[a], start[a + 1]):
            order[place[cell[i]]] = i
            place[cell[i]] += 1
    return order


@kernel
def _divide(start, lo, hi, by_lo, by_hi):
    """The trees. Both orders are rearranged so that the intervals of each node stand together: left subtree, node,
    right subtree, each still sorted."""
    attributes = len(start) - 1
    nodes, roots = np.empty((len(lo), COLUMNS), np.int32), np.zeros(attributes + 1, np.int64)
    most = np.int64(1)
    for a in range(attributes):
        most = max(most, start[a + 1] - start[a])
    kept, right = np.empty(most, np.int64), np.empty(most, np.int64)
    stack = np.empty((most + 2, 3), np.int64)
    n = np.int64(0)
    for a in range(attributes):
        top = 0
        if start[a] < start[a + 1]:
            stack[0, FROM], stack[0, TO], stack[0, LINK] = start[a], start[a + 1], ROOT
            top = 1
        while top > 0:
            top -= 1
            x, y, link = stack[top, FROM], stack[top, TO], stack[top, LINK]
            if link != ROOT:
                nodes[link >> 1, LEFT + (link & 1)] = n - roots[a]
            point = _middle(lo, hi, by_lo, by_hi, x, y)
            begin, end = _part(by_lo[x:y], lo, hi, point, kept, right)
            _part(by_hi[x:y], lo, hi, point, kept, right)
            begin, end = x + begin, x + end
            nodes[n, POINT], nodes[n, LEFT], nodes[n, RIGHT] = point, NO_CHILD, NO_CHILD
            nodes[n, START], nodes[n, END] = begin - start[a], end - start[a]
            if end < y:
                stack[top, FROM], stack[top, TO], stack[top, LINK] = end, y, 2 * n + 1
                top += 1
            if x < begin:
                stack[top, FROM], stack[top, TO], stack[top, LINK] = x, begin, 2 * n
                top += 1
            n += 1
        roots[a + 1] = n
    return nodes[:n].copy(), roots


@kernel
def _middle(lo, hi, by_lo, by_hi, x, y):
    """The middle one of the 2 (y - x) endpoints: as many are taken from the two sorted lists."""
    i, j, point = x, x, np.int32(0)
    for _ in range(y - x):
        if i < y and lo[by_lo[i]] <= hi[by_hi[j]]:
            point = lo[by_lo[i]]
            i += 1
        else:
            point = hi[by_hi[j]]
            j += 1
    return point


@kernel
def _part(order, lo, hi, point, kept, right):
    """Puts the intervals below the point first, then those that contain it, then those above, each in the order that
    they had: where those that contain it begin and end. (`kept` and `right` are room.)"""
    begin, k, r = 0, 0, 0
    for i in range(len(order)):
        interval = order[i]
        if hi[interval] < point:
            order[begin] = interval
            begin += 1
        elif lo[interval] > point:
            right[r] = interval
            r += 1
        else:
            kept[k] = interval
            k += 1
    end = begin + k
    for i in range(k):
        order[begin + i] = kept[i]
    for i in range(r):
        order[end + i] = right[i]
    return begin, end


@kernel
def _find(tree, events, found):
    collect_runs(PointTree(*tree), EventArrays(*events), FoundIntervals(*found), _collect)


@phase
def _collect(tree, a, v, found, n):
    """The intervals that contain a value, by node on its way down the tree of attribute a, as runs from found[n] on:
    how many runs, comparisons, and nodes."""
    nodes, start = tree.nodes, tree.start[a]
    runs, compared, seen = np.int64(0), np.int64(0), np.int64(0)
    at = np.int64(0) if tree.roots[a] < tree.roots[a + 1] else np.int64(NO_CHILD)
    while at != NO_CHILD:
        m = tree.roots[a] + at
        seen += 1
        compared += 1
        begin, end = start + nodes[m, START], start + nodes[m, END]
        first, count = begin, end - begin
        if v < nodes[m, POINT]:
            count = _count_by_first(tree.bounds, begin, end, v)
            compared += count + (count < end - begin)
            at = np.int64(nodes[m, LEFT])
        elif v > nodes[m, POINT]:
            last = tree.start[-1] + end  # the other half of bounds
            count = _count_by_last(tree.bounds, last - (end - begin), last, v)
            compared += count + (count < end - begin)
            first = last - count
            at = np.int64(nodes[m, RIGHT])
        else:
            at = np.int64(NO_CHILD)
        if count > 0:
            found.first[n + runs], found.length[n + runs] = first, count
            runs += 1
    return runs, compared, seen


@phase
def _count_by_first(bounds, begin, end, v):
    """How many of a list by first cell begin at the value or before: those in front."""
    k = begin
    while k < end and bounds[k] <= v:
        k += 1
    return k - begin


@phase
def _count_by_last(bounds, begin, end, v):
    """How many of a list by last cell end at the value or behind: those at its end."""
    k = end
    while k > begin and bounds[k - 1] >= v:
        k -= 1
    return end - k
