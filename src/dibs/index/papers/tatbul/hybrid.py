"""hybrid: clusters first, elementary intervals within each. Tatbul (2001), the Hybrid Index.

The idea: the Cluster Index is quick to split profiles that overlap little, but has to verify large clusters profile by
profile. So it stops at clusters of a minimum size (or larger ones that cannot be split), and each leaf gets an Interval
Index of its own, which says exactly which of its profiles match.

Arrays (besides those of index.attribute_trees and index.bit_vectors; a slot is an elementary interval of a leaf):
    nodes  int32  n x 3: key, left, right, as in index.cluster
    roots  int64  attributes + 1: the nodes of each attribute
    leaf   int64  leaves + 1: the slots of each leaf
    leaves int64  attributes + 1: the leaves of each attribute
    spans  int32  slots x 2: first and last cell, as the nodes of index.interval

Useful for: profiles of which some overlap much and others do not.
Not useful for: little overlap throughout, where changing from one tree to the other costs a comparison (the paper).

Where it differs from the paper: a leaf of one interval has a tree of one node, instead of none, so that all leaves are
exact. The elementary intervals of an attribute are one list, cut where a leaf begins as well.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.index.papers.tatbul.attribute_trees import AttributeTrees
from dibs.index.papers.tatbul.bit_vectors import bit_vectors, sizes
from dibs.index.papers.tatbul.cluster import depth, split
from dibs.index.papers.tatbul.combination import Found
from dibs.index.papers.tatbul.interval import elementary
from dibs.index.papers.tatbul.intervals import Intervals
from dibs.jit.kernel import kernel
from dibs.thresholds import thresholds


class Hybrid(AttributeTrees):
    name: ClassVar[str] = "hybrid"
    about: ClassVar[str] = "clusters, and elementary intervals within each (Tatbul); ranges of mixed overlap"
    TREE = ("nodes", "roots", "leaf", "leaves", "spans")

    @classmethod
    def _grow(cls, intervals: Intervals) -> dict[str, NDArray[Any]]:
        own = intervals.start, intervals.lo, intervals.hi
        nodes, roots, cuts, leaves, _, _ = split(*own, thresholds.hybrid_cluster)
        spans, slots, first, last = elementary(*own, leaves, cuts, False)
        vectors = bit_vectors(intervals, first, last, slots)
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

    def _find(self, events: CodedEvents, first: int, last: int, found: Found) -> None:
        coded = events.offsets, events.attribute, events.lo
        _find(*self._tree(), *coded, first, last, found.slot, found.evaluations, found.nodes)


@kernel
def _slots_of(cuts, leaves, spans, slots):
    """Where the slots of each leaf begin: a leaf has those from its first cell to that of the next."""
    leaf = np.empty(len(cuts) + 1, np.int64)
    for a in range(len(leaves) - 1):
        s = slots[a]
        for n in range(leaves[a], leaves[a + 1]):
            while s < slots[a + 1] and spans[s, 0] < cuts[n]:
                s += 1
            leaf[n] = s
    leaf[len(cuts)] = slots[-1]
    return leaf


@kernel
def _find(
    nodes,
    roots,
    leaf,
    leaves,
    spans,
    event_offsets,
    event_attribute,
    event_cell,
    first_event,
    last_event,
    slot,
    evaluations,
    visited,
):
    entry = event_offsets[first_event]
    for e in range(first_event, last_event):
        compared = np.int64(0)
        for i in range(event_offsets[e], event_offsets[e + 1]):
            a, v = event_attribute[i], event_cell[i]
            if leaves[a] == leaves[a + 1]:
                continue
            at = np.int64(0) if roots[a] < roots[a + 1] else np.int64(-1)
            while at >= 0:
                compared += 1
                at += roots[a]
                at = np.int64(nodes[at, 1]) if v < nodes[at, 0] else np.int64(nodes[at, 2])
            x, y = leaf[leaves[a] + ~at], leaf[leaves[a] + ~at + 1]
            while x < y:
                m = (x + y - 1) >> 1
                compared += 1
                if v < spans[m, 0]:
                    y = m
                elif v > spans[m, 1]:
                    x = m + 1
                else:
                    slot[i - entry] = m - leaf[leaves[a]]
                    break
        evaluations[e - first_event] = visited[e - first_event] = compared
