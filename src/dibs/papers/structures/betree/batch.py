"""betree-batch: the BE-Tree of betree.betree built from all subscriptions at once (BE-B of Sadoghi and Jacobsen 2011).

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
from dibs.index.groups import ClauseArrays
from dibs.index.spans import hull_of
from dibs.jit.kernel import kernel
from dibs.jit.undisturbed import bring
from dibs.papers.structures.betree.betree import BETree
from dibs.papers.structures.betree.layout import ABOUT, C_NODES, LISTS, MIN_SIZE, PLANT, TO_COPY, WORDS, TreeArrays


class BETreeBatch(BETree):
    name: ClassVar[str] = "betree-batch"
    about: ClassVar[str] = (
        "BE-Tree built from all subscriptions at once (Sadoghi and Jacobsen 2011): better statistics at the root"
    )

    def _first(self, clauses: Clauses) -> None:
        pack = bring("dibs.papers.structures.betree.shape").pack

        chosen = _choices(
            ClauseArrays.of(clauses), self._tree.about.view(ABOUT)["ceiling"].ravel(), self._state[MIN_SIZE]
        )
        rows = np.argsort(np.where(chosen < 0, clauses.attributes, chosen), kind="stable")
        self._update(PLANT, rows, chosen, clauses)
        state = self._state
        packed = np.zeros_like(state)
        packed[:LISTS], packed[LISTS:], packed[WORDS] = state[:LISTS], -1, 0
        words = np.empty(state[WORDS], np.int32)
        _, _, place, about = self._tree
        pack(self._words, (words, packed, place, about), np.empty(state[C_NODES], TO_COPY))
        self._tree = TreeArrays(words[: packed[WORDS]].copy(), packed, place, about)


@kernel
def _choices(clauses, ceiling, least):
    """The attribute under which each row goes at the root, -1: none. `ceiling`: the highest cell of each attribute."""
    attribute, rows = clauses.attribute, len(clauses.offsets) - 1
    rank, count = _ranks(clauses, ceiling)
    for a in range(len(rank)):
        if count[a] < least:
            rank[a] = -np.inf
    chosen = np.empty(rows, np.int64)
    for time in range(3):
        last = time == 2  # then only attributes that enough rows have chosen count
        if time == 1:
            for a in range(len(rank)):
                if 0 < count[a] < least:
                    rank[a] = -np.inf
        if not last:
            count[:] = 0
        for r in range(rows):
            best = -1
            for p in range(clauses.offsets[r], clauses.offsets[r + 1]):
                a = attribute[p]
                usable = rank[a] > -np.inf and (not last or count[a] >= least)
                if usable and (best < 0 or rank[a] > rank[best]):
                    best = a
            chosen[r] = best
            if best >= 0 and not last:
                count[best] += 1
    return chosen


@kernel
def _ranks(clauses, ceiling):
    """Gain less loss of each attribute, and how many rows have it."""
    rank, count = np.zeros(len(ceiling)), np.zeros(len(ceiling), np.int64)
    for r in range(len(clauses.offsets) - 1):
        first = clauses.offsets[r]
        for p in range(first, clauses.offsets[r + 1]):
            a = clauses.attribute[p]
            if p == first or clauses.attribute[p - 1] != a:
                low, high = hull_of(p, clauses)
                rank[a] += 1.0 - (high - low + 1) / ceiling[a]
                count[a] += 1
    return rank, count
