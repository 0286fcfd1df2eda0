"""interval-tree: intervals kept at the highest endpoint that they contain. Tatbul (2001), the Interval Tree Index,
after the structure of computational geometry.

The idea: the middle one of an attribute's endpoints is the root. The intervals that contain it are kept there, twice:
by their first cell, ascending, and by their last, descending. Those to the left of it and those to the right make the
two subtrees. A value below the root's point satisfies the first intervals of the first list, as long as they begin no
later than the value, and then goes left; above it likewise the other list, then right. Each interval is kept once, but
lists are compared interval by interval.

Arrays (besides those of index.attribute_trees):
    nodes   int32  n x 5: point, left, right (counted from the attribute's first node, -1: none), and its intervals:
                   start and end, counted from the attribute's first interval
    roots   int64  attributes + 1: the nodes of each attribute; the first is the root
    start   int64  attributes + 1: the intervals of each attribute
    bounds  int32  2 x intervals: first cells by node, ascending; then last cells by node, ascending (read from behind)
    entries int32  2 x intervals: whose they are

Useful for: little memory: two entries an interval and a node, whatever the overlap.
Not useful for: few comparisons: every interval that holds, and one more on each level, is compared.

Where it differs from the paper: a value that is the point of a node satisfies all that the node has, without
comparisons. The middle is that of all endpoints, repeated ones included, of the intervals that are left.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.index.papers.tatbul.attribute_trees import AttributeTrees
from dibs.index.papers.tatbul.combination import Found
from dibs.index.papers.tatbul.intervals import Intervals
from dibs.jit.kernel import kernel


class IntervalTree(AttributeTrees):
    name: ClassVar[str] = "interval-tree"
    about: ClassVar[str] = "intervals kept at the highest endpoint that they contain (Tatbul); small"
    TREE = ("nodes", "roots", "start", "bounds")
    VECTORS = False

    def __init__(self, clauses: Any, arrays: dict[str, NDArray[Any]]):
        super().__init__(clauses, arrays)
        self._depth = int(_depth(arrays["nodes"], arrays["roots"]))

    @classmethod
    def _grow(cls, intervals: Intervals) -> dict[str, NDArray[Any]]:
        start, lo, hi = intervals.start, intervals.lo, intervals.hi
        orders = _sorted(start, lo), _sorted(start, hi)
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

    def _find(self, events: CodedEvents, first: int, last: int, found: Found) -> None:
        _find(*self._tree(), events.offsets, events.attribute, events.lo, first, last, *found)


@kernel
def _sorted(start, cell):
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
    nodes, roots = np.empty((len(lo), 5), np.int32), np.zeros(attributes + 1, np.int64)
    most = np.int64(1)
    for a in range(attributes):
        most = max(most, start[a + 1] - start[a])
    kept, right = np.empty(most, np.int64), np.empty(most, np.int64)
    stack = np.empty((most + 2, 3), np.int64)  # intervals x to y (not included), and where to link the subtree
    n = np.int64(0)
    for a in range(attributes):
        top = 0
        if start[a] < start[a + 1]:
            stack[0, 0], stack[0, 1], stack[0, 2] = start[a], start[a + 1], -1
            top = 1
        while top > 0:
            top -= 1
            x, y, link = stack[top, 0], stack[top, 1], stack[top, 2]
            if link >= 0:
                nodes[link >> 1, 1 + (link & 1)] = n - roots[a]
            # The middle of 2 (y - x) endpoints: as many are taken from the two sorted lists.
            i, j, point = x, x, np.int32(0)
            for _ in range(y - x):
                if i < y and lo[by_lo[i]] <= hi[by_hi[j]]:
                    point = lo[by_lo[i]]
                    i += 1
                else:
                    point = hi[by_hi[j]]
                    j += 1
            middle, after = x, x
            for which in range(2):
                to, k, r = x, 0, 0
                for i in range(x, y):
                    interval = by_lo[i] if which == 0 else by_hi[i]
                    if hi[interval] < point:
                        if which == 0:
                            by_lo[to] = interval
                        else:
                            by_hi[to] = interval
                        to += 1
                    elif lo[interval] > point:
                        right[r] = interval
                        r += 1
                    else:
                        kept[k] = interval
                        k += 1
                middle, after = to, to + k
                for i in range(k + r):
                    interval = kept[i] if i < k else right[i - k]
                    if which == 0:
                        by_lo[to + i] = interval
                    else:
                        by_hi[to + i] = interval
            nodes[n, 0], nodes[n, 1], nodes[n, 2] = point, -1, -1
            nodes[n, 3], nodes[n, 4] = middle - start[a], after - start[a]
            if after < y:
                stack[top, 0], stack[top, 1], stack[top, 2] = after, y, 2 * n + 1
                top += 1
            if x < middle:
                stack[top, 0], stack[top, 1], stack[top, 2] = x, middle, 2 * n
                top += 1
            n += 1
        roots[a + 1] = n
    return nodes[:n].copy(), roots


@kernel
def _depth(nodes, roots):
    """The most nodes from a root down. A child comes after its parent."""
    result = 0
    levels = np.ones(len(nodes), np.int32)
    for a in range(len(roots) - 1):
        for n in range(roots[a], roots[a + 1]):
            result = max(result, levels[n])
            for side in range(1, 3):
                if nodes[n, side] >= 0:
                    levels[roots[a] + nodes[n, side]] = levels[n] + 1
    return result


@kernel
def _find(
    nodes,
    roots,
    start,
    bounds,
    event_offsets,
    event_attribute,
    event_cell,
    first_event,
    last_event,
    slot,
    run_start,
    run_first,
    run_length,
    evaluations,
    visited,
):
    intervals = start[-1]
    n, entry = np.int64(0), event_offsets[first_event]
    for e in range(first_event, last_event):
        compared, seen = np.int64(0), np.int64(0)
        for i in range(event_offsets[e], event_offsets[e + 1]):
            a, v = event_attribute[i], event_cell[i]
            at = np.int64(0) if roots[a] < roots[a + 1] else np.int64(-1)
            while at >= 0:
                m = roots[a] + at
                seen += 1
                compared += 1
                x, y = start[a] + nodes[m, 3], start[a] + nodes[m, 4]
                first, count = x, y - x
                if v < nodes[m, 0]:
                    k = x
                    while k < y and bounds[k] <= v:
                        k += 1
                    count = k - x
                    compared += count + (k < y)
                    at = np.int64(nodes[m, 1])
                elif v > nodes[m, 0]:
                    k = intervals + y - 1
                    while k >= intervals + x and bounds[k] >= v:
                        k -= 1
                    first, count = k + 1, intervals + y - 1 - k
                    compared += count + (k >= intervals + x)
                    at = np.int64(nodes[m, 2])
                else:
                    at = np.int64(-1)
                if count > 0:
                    slot[i - entry] -= 1
                    run_first[n], run_length[n] = first, count
                    n += 1
        k = e - first_event
        run_start[k + 1] = n
        evaluations[k], visited[k] = compared, seen
