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
from dibs.index.growing import grown
from dibs.index.papers.pstree.kernels import ATTRIBUTE, HI, HIGHEST, LO, ROW
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch
from dibs.thresholds import thresholds

AHEAD = 4  # candidates whose predicates are asked for before their turn


class Rows:
    """See above."""

    ARRAYS = ("offsets", "predicate", "span")

    def __init__(self, offsets: NDArray[np.int64], predicate: NDArray[np.int32], span: NDArray[np.int32]):
        self.offsets, self.predicate, self.span = offsets, predicate, span
        self._rows, self._spans = len(offsets) - 1, len(span)

    @classmethod
    def none(cls) -> Rows:
        return cls(np.zeros(1, np.int64), np.zeros((0, 4), np.int32), np.zeros((0, 2), np.int32))

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
        self.offsets = grown(self.offsets, rows + len(c) + 1)
        self.predicate = grown(self.predicate, predicates + len(c.attribute))
        self.span = grown(self.span, spans + len(c.span_lo))
        self.span[spans : spans + len(c.span_lo), 0] = c.span_lo
        self.span[spans : spans + len(c.span_lo), 1] = c.span_hi
        _add(c.offsets, c.attribute, c.lo, c.hi, rank, self.offsets, self.predicate, rows, spans)
        self._rows, self._spans = rows + len(c), spans + len(c.span_lo)
        return np.arange(rows, rows + len(c))

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
        if len(predicates) < thresholds.pstree_sorted:
            return slice(None)
        return np.argsort(_places(predicates, self.predicate))

    def mark_deleted(self, rows: NDArray[np.int64]) -> None:
        first = self.offsets[rows]
        self.predicate[first, ATTRIBUTE] = ~self.predicate[first, ATTRIBUTE]

    def boundaries(self, rows: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the first `most` predicates of the rows begin and, next to it, end: sorted attribute << 32 | value,
        and for how many predicates each is."""
        keys = _boundaries(rows, most, self.offsets, self.predicate, self.span)
        keys.sort()
        return _runs(keys)


@kernel
def _places(predicates, predicate):
    result = np.empty(len(predicates), np.int64)
    for i in range(len(predicates)):
        p = predicates[i]
        result[i] = (np.int64(predicate[p, ATTRIBUTE]) << 32) | predicate[p, LO]
    return result


@kernel
def _add(offsets, attribute, lo, hi, rank, to, predicate, rows, spans):
    n = to[rows]
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
        predicate[end - 1, ROW] = rows + r
        to[rows + r + 1] = end
        n = end


@kernel
def _boundaries(rows, most, offsets, predicate, span):
    n = 0
    for r in rows:
        for p in range(offsets[r], min(offsets[r] + most, offsets[r + 1])):
            n += 2 * max(1, -predicate[p, HI])
    keys = np.empty(n, np.int64)
    n = 0
    for r in rows:
        for p in range(offsets[r], min(offsets[r] + most, offsets[r + 1])):
            spans = max(1, -predicate[p, HI])
            for s in range(spans):
                low, high = predicate[p, LO], predicate[p, HI]
                if high < 0:
                    low, high = span[predicate[p, LO] + s, 0], span[predicate[p, LO] + s, 1]
                base = np.int64(predicate[p, ATTRIBUTE]) << 32
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


@kernel
def verify(codes, n, slot, predicate, span, event, found, out_event, out_row):
    """Tests what is left of n candidates, given by their codes, against the event in `slot` (by attribute, 0 where it
    has no value) and writes those that match from `found` on. Returns the end of the matches, -1 if there is no room
    for all, and the number of predicates evaluated."""
    tests, room = np.int64(0), len(out_event)
    for k in range(n):
        if k + AHEAD < n and codes[k + AHEAD] < 0:
            prefetch(predicate, 4 * np.int64(~codes[k + AHEAD]))
        row = codes[k]
        if row < 0:
            p = np.uint64(~row)
            while True:
                tests += 1
                low, high = predicate[p, LO], predicate[p, HI]
                v = slot[np.uint64(predicate[p, ATTRIBUTE])]
                if high >= 0:
                    ok = low <= v and v <= high
                else:
                    ok = False
                    for s in range(low, low - high):
                        if span[s, 0] <= v and v <= span[s, 1]:
                            ok = True
                row = predicate[p, ROW]
                if not ok or row >= 0:
                    break
                p += np.uint64(1)
            if not ok:
                continue
        if found == room:
            return np.int64(-1), tests
        out_event[found] = event
        out_row[found] = row
        found += 1
    return found, tests
