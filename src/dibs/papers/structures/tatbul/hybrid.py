"""hybrid: clusters first, elementary intervals within each. Tatbul (2001), the Hybrid Index.

The idea: the Cluster Index is quick to split profiles that overlap little, but has to verify large clusters profile by
profile. So it stops at clusters of a minimum size (or larger ones that cannot be split), and each leaf gets an Interval
Index of its own, which says exactly which of its profiles match.

Arrays (besides those of tatbul.attribute_trees and tatbul.bit_vectors; a slot is an elementary interval of a leaf):
    nodes  int32  n x 3: key, left, right, as in tatbul.cluster
    roots  int64  attributes + 1: the nodes of each attribute
    leaf   int64  leaves + 1: the slots of each leaf
    leaves int64  attributes + 1: the leaves of each attribute
    spans  int32  slots x 2: first and last cell, as the nodes of tatbul.interval

Useful for: profiles of which some overlap much and others do not.
Not useful for: little overlap throughout, where changing from one tree to the other costs a comparison (the paper).

Where it differs from the paper: a leaf of one interval has a tree of one node, instead of none, so that all leaves are
exact. The elementary intervals of an attribute are one list, cut where a leaf begins as well.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.groups import EventArrays
from dibs.jit.kernel import kernel, phase
from dibs.papers.structures.tatbul.attribute_trees import AttributeTrees
from dibs.papers.structures.tatbul.bit_vectors import Covered, bit_vectors, sizes
from dibs.papers.structures.tatbul.cluster import depth, find_cluster, split
from dibs.papers.structures.tatbul.interval import FIRST, elementary, find_elementary
from dibs.papers.structures.tatbul.intervals import NONE, FoundIntervals, Intervals, collect_slots
from dibs.tuning import tuned

HYBRID_CLUSTER = tuned("hybrid_cluster", 16, 1, "intervals", "of a cluster that gets an interval index")


class HybridTree(NamedTuple):
    nodes: NDArray[np.int32]
    roots: NDArray[np.int64]
    leaf: NDArray[np.int64]
    leaves: NDArray[np.int64]
    spans: NDArray[np.int32]


class Hybrid(AttributeTrees):
    name: ClassVar[str] = "hybrid"
    about: ClassVar[str] = "clusters, and elementary intervals within each (Tatbul); ranges of mixed overlap"
    TREE = HybridTree._fields

    @classmethod
    def _grow(cls, intervals: Intervals) -> dict[str, NDArray[Any]]:
        own = intervals.start, intervals.lo, intervals.hi
        nodes, roots, cuts, leaves, _, _ = split(*own, HYBRID_CLUSTER.value)
        spans, slots, first, last = elementary(*own, leaves, cuts, False)
        vectors = bit_vectors(intervals, Covered(first, last, slots))
        leaf = _slots_of(cuts, leaves, spans, slots)
        return {"nodes": nodes, "roots": roots, "leaf": leaf, "leaves": leaves, "spans": spans} | vectors

    def plan(self) -> dict[str, Any]:
        within = np.diff(self._arrays["leaf"])
        return {
            "nodes": len(self._arrays["nodes"]) + len(self._arrays["spans"]),
            "leaves": len(within),
            "depth": int(depth(self._arrays["nodes"], self._arrays["roots"])),
            "depth within a leaf": int(within.max(initial=0)).bit_length(),
            **sizes(self._arrays),
            "grounds": "each value goes to a cluster of its attribute and to one of its elementary intervals",
        }

    def _find(self, events: tuple[Any, ...], found: tuple[Any, ...]) -> None:
        _find(self._tree, events, found)


@kernel
def _slots_of(cuts, leaves, spans, slots):
    """Where the slots of each leaf begin: a leaf has those from its first cell to that of the next."""
    leaf = np.empty(len(cuts) + 1, np.int64)
    for a in range(len(leaves) - 1):
        s = slots[a]
        for n in range(leaves[a], leaves[a + 1]):
            while s < slots[a + 1] and spans[s, FIRST] < cuts[n]:
                s += 1
            leaf[n] = s
    leaf[len(cuts)] = slots[-1]
    return leaf


@kernel
def _find(tree, events, found):
    collect_slots(HybridTree(*tree), EventArrays(*events), FoundIntervals(*found), _search)


@phase
def _search(tree, a, v):
    first = tree.leaves[a]
    if first == tree.leaves[a + 1]:
        return np.int64(NONE), np.int64(0), np.int64(0)
    leaf, keys = find_cluster(tree.nodes, tree.roots, a, v)
    span, steps = find_elementary(tree.spans, tree.leaf[first + leaf], tree.leaf[first + leaf + 1], v)
    return span - tree.leaf[first] if span >= 0 else np.int64(NONE), keys + steps, keys + steps
