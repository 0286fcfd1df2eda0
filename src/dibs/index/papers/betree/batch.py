"""betree-batch: the BE-Tree of index.betree built from all subscriptions at once (BE-B of Sadoghi and Jacobsen 2011).

The idea: a tree that grows row by row chooses the attributes of the root from the few rows that came first. When all
rows are known, the ranks of all attributes are known too: every row goes to the highest ranking of its attributes, and
each p-node gets all its rows before they are clustered and partitioned further. Then the nodes are laid side by side in
the order of a walk through the tree, with nothing between them. From then on it is the same tree.

The rank of an attribute is the paper's, gain - loss: the rows that have it, less the average size of the buckets of a
histogram over its values, which is the sum of the shares of its domain that their predicates cover.

Useful for: large sets of subscriptions that are known beforehand. Not useful for: what `betree` is not useful for.
Differs from the paper: it does not say how ranks follow when rows are taken away by higher ranking attributes; here
they stay, and only attributes that fewer than min_size rows choose are given up.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dibs.coding.clauses import Clauses
from dibs.index.papers.betree.betree import BETree
from dibs.index.papers.betree.layout import LISTS, MIN_SIZE, NODES, PLANT, WORDS
from dibs.jit.kernel import kernel


class BETreeBatch(BETree):
    name: ClassVar[str] = "betree-batch"
    about: ClassVar[str] = (
        "BE-Tree built from all subscriptions at once (Sadoghi and Jacobsen 2011): better statistics at the root"
    )

    def _first(self, clauses: Clauses) -> None:
        from dibs.index.papers.betree.kernels import pack

        c = clauses
        chosen = _choices(c.offsets, c.attribute, c.lo, c.hi, c.span_lo, c.span_hi, self._about, self._state[MIN_SIZE])
        rows = np.argsort(np.where(chosen < 0, c.attributes, chosen), kind="stable")
        self._update(PLANT, rows, chosen, c)
        state = self._state
        packed = np.zeros_like(state)
        packed[:LISTS], packed[LISTS:], packed[WORDS] = state[:LISTS], -1, 0
        words = np.empty(state[WORDS], np.int32)
        pack(self._words, words, packed, self._place, np.empty((state[NODES], 4), np.int32))
        self._words, self._state = words[: packed[WORDS]].copy(), packed


@kernel
def _choices(offsets, attribute, lo, hi, span_lo, span_hi, about, least):
    """The attribute under which each row goes at the root, -1: none."""
    rows = len(offsets) - 1
    rank, count = np.zeros(len(about)), np.zeros(len(about), np.int64)
    for r in range(rows):
        for p in range(offsets[r], offsets[r + 1]):
            a = attribute[p]
            if p == offsets[r] or attribute[p - 1] != a:
                low, high = lo[p], hi[p]
                if high < 0:
                    low, high = span_lo[low], span_hi[low - high - 1]
                rank[a] += 1.0 - (high - low + 1) / about[a, 0]
                count[a] += 1
    for a in range(len(about)):
        if count[a] < least:
            rank[a] = -np.inf
    chosen = np.empty(rows, np.int64)
    for time in range(3):
        last = time == 2  # then only attributes that enough rows have chosen count
        if time == 1:
            for a in range(len(about)):
                if 0 < count[a] < least:
                    rank[a] = -np.inf
        if not last:
            count[:] = 0
        for r in range(rows):
            best = -1
            for p in range(offsets[r], offsets[r + 1]):
                a = attribute[p]
                usable = rank[a] > -np.inf and (not last or count[a] >= least)
                if usable and (best < 0 or rank[a] > rank[best]):
                    best = a
            chosen[r] = best
            if best >= 0 and not last:
                count[best] += 1
    return chosen
