"""The subscriptions of the PS-Tree family, each with its predicates from the least to the most likely one.

So the access predicates are the first ones, and a candidate is tested in the order that ends soonest, by reading one
run of memory that also holds its row.

Arrays, which grow (those of `arrays` are cut to what is used):
    offsets    int64   rows + 1: the predicates of row r are offsets[r] to offsets[r + 1]
    predicate  int32   (predicates, 4): attribute, lo, hi as in coding.clauses (hi = -k: k spans from lo on), and the
                       row for the last predicate of each row, -1 for the others
    span       int32   (spans, 2): lo, hi

Rows are never taken out: the first predicate of a deleted row has the attribute ~a. A code says what is left to do for
a row that was found: r >= 0 that nothing is, ~p < 0 that its predicates from p on are to be tested.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.index.base import refuse_too_many
from dibs.index.groups import ClauseArrays
from dibs.jit.kernel import kernel
from dibs.papers.structures.growing import grow_array
from dibs.papers.structures.pstree.lists import span_count, span_of
from dibs.papers.structures.pstree.spaces import ATTRIBUTE, HI, HIGHEST, LO, PREDICATE, ROW, Boundaries, RowArrays
from dibs.tuning import tuned

PSTREE_SORTED = tuned("pstree_sorted", 1_000, 0, "predicates", "that are worth sorting")


class Rows:
    """See above."""

    ARRAYS = ("offsets", "predicate", "span")

    def __init__(self, offsets: NDArray[np.int64], predicate: NDArray[np.int32], span: NDArray[np.int32]):
        self.offsets, self.predicate, self.span = offsets, predicate, span
        self._rows, self._spans = len(offsets) - 1, len(span)

    @classmethod
    def none(cls) -> Rows:
        return cls(np.zeros(1, np.int64), np.zeros((0, PREDICATE), np.int32), np.zeros((0, 2), np.int32))

    def group(self) -> RowArrays:
        """With spare room."""
        return RowArrays(self.offsets, self.predicate, self.span)

    def __len__(self) -> int:
        return self._rows

    @property
    def predicates(self) -> int:
        return int(self.offsets[self._rows])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "offsets": self.offsets[: self._rows + 1],
            "predicate": self.predicate[: self.predicates],
            "span": self.span[: self._spans],
        }

    @property
    def nbytes(self) -> int:
        return self.offsets.nbytes + self.predicate.nbytes + self.span.nbytes

    def add(self, clauses: Clauses, rank: NDArray[np.float64]) -> NDArray[np.int64]:
        """More rows, each with its predicates in the order of their rank; the numbers of the rows."""
        c = clauses
        rows, predicates, spans = self._rows, self.predicates, self._spans
        refuse_too_many("pstree", predicates + len(c.attribute), "predicates")
        self.offsets = grow_array(self.offsets, rows + len(c) + 1)
        self.predicate = grow_array(self.predicate, predicates + len(c.attribute))
        self.span = grow_array(self.span, spans + len(c.span_lo))
        self.span[spans : spans + len(c.span_lo), 0] = c.span_lo
        self.span[spans : spans + len(c.span_lo), 1] = c.span_hi
        _add(ClauseArrays.of(c), rank, self.group(), rows, spans)
        self._rows, self._spans = rows + len(c), spans + len(c.span_lo)
        return np.arange(rows, rows + len(c))

    def forget(self, count: int) -> None:
        """The last rows, which are in no list."""
        self._rows -= count

    def by_access(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows in the order of their first predicates, so that work on their spaces stays in one place."""
        return rows[self._by_place(self.offsets[rows])]

    def positions(self, rows: NDArray[np.int64], first: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where predicates first to most of the rows stand, in the order of their spaces, and whose each is (a place
        in `rows`)."""
        start = self.offsets[rows] + first
        counts = np.maximum(np.minimum(self.offsets[rows + 1], start + most - first) - start, 0)
        found = runs(start, counts)
        order = self._by_place(found)
        return found[order], np.repeat(np.arange(len(rows)), counts)[order]

    def _by_place(self, predicates: NDArray[np.int64]) -> Any:
        """The order of the predicates by attribute and lo; a few need none."""
        if len(predicates) < PSTREE_SORTED.value:
            return slice(None)
        return np.argsort(_places(predicates, self.predicate))

    def mark_deleted(self, rows: NDArray[np.int64]) -> None:
        first = self.offsets[rows]
        self.predicate[first, ATTRIBUTE] = ~self.predicate[first, ATTRIBUTE]

    def boundaries(self, rows: NDArray[np.int64], most: int) -> Boundaries:
        """Where the first `most` predicates of the rows begin and, next to it, end."""
        keys = _boundaries(rows, most, self.group())
        keys.sort()
        return Boundaries(*_runs(keys))


@kernel
def _places(predicates, predicate):
    result = np.empty(len(predicates), np.int64)
    for i in range(len(predicates)):
        p = predicates[i]
        result[i] = (np.int64(predicate[p, ATTRIBUTE]) << 32) | predicate[p, LO]
    return result


@kernel
def _add(clauses, rank, rows, count, spans):
    """Behind the rows that there are, `count` with so many spans."""
    offsets, attribute, lo, hi, _, _ = clauses
    predicate = rows.predicate
    n = rows.offsets[count]
    for r in range(len(offsets) - 1):
        for p in range(offsets[r], offsets[r + 1]):
            at = n + p - offsets[r]
            while at > n and rank[predicate[at - 1, ROW]] > rank[p]:
                predicate[at, ROW] = predicate[at - 1, ROW]
                at -= 1
            predicate[at, ROW] = p  # sorts the numbers of the predicates first
        end = n + offsets[r + 1] - offsets[r]
        for at in range(n, end):
            p = predicate[at, ROW]
            predicate[at, ATTRIBUTE], predicate[at, LO], predicate[at, HI] = attribute[p], lo[p], hi[p]
            if hi[p] < 0:
                predicate[at, LO] += spans
            predicate[at, ROW] = -1
        predicate[end - 1, ROW] = count + r
        rows.offsets[count + r + 1] = end
        n = end


@kernel
def _boundaries(which, most, rows):
    offsets = rows.offsets
    n = 0
    for r in which:
        for p in range(offsets[r], min(offsets[r] + most, offsets[r + 1])):
            n += 2 * span_count(p, rows)
    keys = np.empty(n, np.int64)
    n = 0
    for r in which:
        for p in range(offsets[r], min(offsets[r] + most, offsets[r + 1])):
            base = np.int64(rows.predicate[p, ATTRIBUTE]) << 32
            for s in range(span_count(p, rows)):
                low, high = span_of(p, s, rows)
                keys[n] = base + low
                n += 1
                if high < HIGHEST:  # nothing lies behind the last value
                    keys[n] = base + high + 1
                    n += 1
    return keys[:n]


@kernel
def _runs(keys):
    counts = np.empty(len(keys), np.int64)
    n = 0
    for i in range(len(keys)):
        if n > 0 and keys[n - 1] == keys[i]:
            counts[n - 1] += 1
        else:
            keys[n], counts[n] = keys[i], 1
            n += 1
    return keys[:n], counts[:n]
