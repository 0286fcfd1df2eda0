"""cluster: intervals split into smaller and smaller clusters by keys, for each attribute. Tatbul (2001), the Cluster
Index.

The idea: a key splits the intervals of an attribute: those that begin below it go to the left cluster, those that end
at it or above to the right one, and those that do both to both. Clusters are split until they have one interval or
cannot be split: whatever the key, one side would be the whole cluster. A value goes down by one comparison a level, to
the leaf whose profiles may match; what all attributes of an event leave is verified at the end. So it is fast while
few profiles overlap, and verifies them one by one where they all do.

The key of a cluster is one of its endpoints. A good one balances the tree and repeats few profiles, so its score is
the difference of the two sides plus the number of intervals on both, and the least score wins. Candidates are taken by
halving: the middle endpoint first, then the middle of the side with more intervals, and so on.

Arrays (besides those of tatbul.attribute_trees and tatbul.bit_vectors; a slot is a leaf):
    nodes  int32  n x 3: key, left, right; values below the key go left. A child is a node, counted from the first of
                  the attribute, or ~leaf, counted likewise
    roots  int64  attributes + 1: the nodes of each attribute
    slots  int64  attributes + 1: its leaves. The root is node 0, or leaf 0 if there are no nodes

Clusters are never copied to be split: with the endpoints sorted, a cluster is a run of them, and how many intervals
begin before, or end before, each endpoint gives the size of any cluster by a subtraction.

Useful for: ranges that overlap little.
Not useful for: ranges that overlap much, above all nested ones: no key splits them.

Where it differs from the paper: the vectors of inner nodes are not kept (the paper draws them for illustration). If no
key that halving looks at is of use but another one is, that one is taken: keys that split well form one run. A
predicate of several spans is several intervals. Bit vectors are lists of differences and are combined by counting.
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

MINIMUM = 1  # clusters of so many intervals are not split
KEY, LEFT, RIGHT = range(3)  # the columns of `nodes`
FROM, TO, LINK = range(3)  # of clusters that are yet to be split: endpoints from, to (not included), and where to link
ROOT = -1  # the LINK of a root; else 2 * node, + 1 if it is the right child


class ClusterTree(NamedTuple):
    nodes: NDArray[np.int32]
    roots: NDArray[np.int64]
    slots: NDArray[np.int64]


class Cluster(AttributeTrees):
    name: ClassVar[str] = "cluster"
    about: ClassVar[str] = "intervals split by keys for each attribute, leaves verified (Tatbul); little overlap"
    TREE = ClusterTree._fields
    VERIFIES = True

    @classmethod
    def _grow(cls, intervals: Intervals) -> dict[str, NDArray[Any]]:
        nodes, roots, _, slots, first, last = split(intervals.start, intervals.lo, intervals.hi, MINIMUM)
        _once(intervals.start, intervals.place, first, last)
        return {"nodes": nodes, "roots": roots, "slots": slots} | bit_vectors(intervals, Covered(first, last, slots))

    def plan(self) -> dict[str, Any]:
        return {
            "nodes": len(self._arrays["nodes"]),
            "leaves": int(self._arrays["slots"][-1]),
            "depth": int(depth(self._arrays["nodes"], self._arrays["roots"])),
            **sizes(self._arrays),
            "grounds": "each value goes to a cluster of its attribute; profiles in all clusters are verified",
        }

    def _find(self, events: tuple[Any, ...], found: tuple[Any, ...]) -> None:
        _find(self._tree, events, found)


@kernel
def split(start, lo, hi, minimum):
    """The trees: nodes, roots, the first cell of each leaf but the first of an attribute (0 for that), slots, and
    for each interval the first and the last leaf that it is in."""
    attributes = len(start) - 1
    room, cells = np.int64(0), np.int64(0)
    for a in range(attributes):
        highest = np.int64(0)
        for i in range(start[a], start[a + 1]):
            highest = max(highest, np.int64(hi[i]))
        cells = max(cells, highest)
        room += min(highest, 2 * (start[a + 1] - start[a]))
    nodes, roots = np.empty((room, 3), np.int32), np.zeros(attributes + 1, np.int64)
    leaf_cell, slots = np.empty(room, np.int32), np.zeros(attributes + 1, np.int64)
    first, last = np.empty(len(lo), np.int32), np.empty(len(lo), np.int32)
    begins, ends = np.zeros(cells + 1, np.int64), np.zeros(cells + 1, np.int64)
    leaf_of = np.empty(cells + 1, np.int32)  # by cell, where that is an endpoint
    # Endpoint k: its cell, how many intervals begin below it, how many end below it; one more for "all".
    point = np.empty(cells + 2, np.int64)
    began, ended = np.empty(cells + 2, np.int64), np.empty(cells + 2, np.int64)
    stack = np.empty((cells + 2, 3), np.int64)
    n, leaves = np.int64(0), np.int64(0)
    for a in range(attributes):
        highest = np.int64(0)
        for i in range(start[a], start[a + 1]):
            begins[lo[i]] += 1
            ends[hi[i]] += 1
            highest = max(highest, np.int64(hi[i]))
        points, open_, closed = np.int64(0), np.int64(0), np.int64(0)
        for c in range(highest + 1):
            if begins[c] + ends[c] > 0:
                point[points], began[points], ended[points] = c, open_, closed
                points += 1
                open_ += begins[c]
                closed += ends[c]
                begins[c] = ends[c] = 0
        began[points], ended[points] = open_, closed
        top = 0
        if points > 0:
            stack[0, FROM], stack[0, TO], stack[0, LINK] = 0, points, ROOT
            top = 1
        while top > 0:
            top -= 1
            i, j, link = stack[top, FROM], stack[top, TO], stack[top, LINK]
            key = np.int64(-1)
            if began[j] - ended[i] > minimum:
                key = best_key(began, ended, i, j)
            if link != ROOT:
                nodes[link >> 1, LEFT + (link & 1)] = n - roots[a] if key >= 0 else ~(leaves - slots[a])
            if key >= 0:
                nodes[n, KEY] = point[key]
                # The left cluster comes off the stack first, so leaves come in order.
                stack[top, FROM], stack[top, TO], stack[top, LINK] = key, j, 2 * n + 1
                stack[top + 1, FROM], stack[top + 1, TO], stack[top + 1, LINK] = i, key, 2 * n
                top += 2
                n += 1
            else:
                for k in range(i, j):
                    leaf_of[point[k]] = leaves - slots[a]
                leaf_cell[leaves] = point[i] if i > 0 else 0
                leaves += 1
        for i in range(start[a], start[a + 1]):
            first[i], last[i] = leaf_of[lo[i]], leaf_of[hi[i]]
        roots[a + 1], slots[a + 1] = n, leaves
    return nodes[:n].copy(), roots, leaf_cell[:leaves].copy(), slots, first, last


@kernel
def best_key(began, ended, i, j):
    """The endpoint (after i, before j) by which to split the cluster of the endpoints i to j; -1 if none splits it.
    The cluster has began[j] - ended[i] intervals: those that begin below j but for those that ended before i."""
    size = began[j] - ended[i]
    # A key is of use if some interval ends below it and some begins at it or above.
    x, y = i + 1, j
    while x < y:
        m = (x + y) >> 1
        if ended[m] > ended[i]:
            y = m
        else:
            x = m + 1
    lowest = x
    y = j
    while x < y:
        m = (x + y) >> 1
        if began[m] < began[j]:
            x = m + 1
        else:
            y = m
    highest = x  # not included
    if lowest >= highest:
        return np.int64(-1)
    best, least = np.int64(-1), np.int64(0)
    for attempt in range(2):
        x, y = (i + 1, j) if attempt == 0 else (lowest, highest)
        while x < y:
            key = (x + y - 1) >> 1
            left, right = began[key] - ended[i], began[j] - ended[key]
            score = abs(left - right) + (left + right - size)
            if lowest <= key < highest and (best < 0 or score < least):
                best, least = key, score
            if left > right:
                y = key
            else:
                x = key + 1
        if best >= 0:
            break
    return best


@kernel
def _once(start, place, first, last):
    """Lets no leaf have a profile twice: a leaf with several spans of a predicate has it by the first of them."""
    for a in range(len(start) - 1):
        for i in range(start[a] + 1, start[a + 1]):
            if place[i] == place[i - 1]:
                first[i] = max(first[i], last[i - 1] + 1)


@kernel
def depth(nodes, roots):
    """The most nodes from a root down: of any tree whose nodes have their children in LEFT and RIGHT, counted from the
    root, and behind themselves."""
    result = 0
    levels = np.ones(len(nodes), np.int32)
    for a in range(len(roots) - 1):
        for n in range(roots[a], roots[a + 1]):
            result = max(result, levels[n])
            for side in range(LEFT, RIGHT + 1):
                if nodes[n, side] >= 0:
                    levels[roots[a] + nodes[n, side]] = levels[n] + 1
    return result


@phase
def find_cluster(nodes, roots, a, v):
    """The leaf of attribute a that a value goes to, counted from its first, and with how many keys it is compared."""
    at, compared = np.int64(0) if roots[a] < roots[a + 1] else ~np.int64(0), np.int64(0)
    while at >= 0:
        compared += 1
        n = roots[a] + at
        at = np.int64(nodes[n, LEFT]) if v < nodes[n, KEY] else np.int64(nodes[n, RIGHT])
    return ~at, compared


@kernel
def _find(tree, events, found):
    collect_slots(ClusterTree(*tree), EventArrays(*events), FoundIntervals(*found), _search)


@phase
def _search(tree, a, v):
    if tree.slots[a] == tree.slots[a + 1]:
        return np.int64(NONE), np.int64(0), np.int64(0)
    leaf, keys = find_cluster(tree.nodes, tree.roots, a, v)
    return leaf, keys, keys + 1
