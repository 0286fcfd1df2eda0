"""counting: count, for each row, how many of its predicates hold. The counting algorithm of SIFT.

The idea (Yan and Garcia-Molina 1994, extended to ranges by writing them out as Whang et al. 2009 do, as the comparison
in Sadoghi and Jacobsen 2011 describes it): an inverted list for each attribute and cell names the rows with a predicate
that holds there. An event reads the list of each of its values and counts every row named; a row whose count reaches
its number of predicates matches. No predicate is ever compared with a value.

Counters count down from the size of the row, so a match is a zero. They are bytes where sizes allow it: those of a
million rows stay in the second-level cache, and lists are ascending, so that each one is one sweep over them. After an
event the counters are set back: row by row if it touched few, all in one pass over whole words if it touched many.
That pass then also finds the zeros, and counting itself is nothing but decrements.

Arrays: those of index.postings, with one group, and
    left   uint8, uint16 or uint32   by row, work space: predicates that do not hold yet; between events, its size

Counters of work: a node is a list with a posting that was read, each of its postings a predicate that holds (evaluated,
so to speak, when the index was built), a candidate a row of which at least one predicate holds.

Useful for: subscriptions that share few attributes with an event (sparse data); values of few cells.
Not useful for: popular attributes (every row with a predicate that holds is touched, however selective its others are);
wide ranges over many cells (memory: see index.postings).

Differs from the papers: counters count down in flat arrays instead of up in a hash table; ranges are written out over
cells, not values; inequalities have the strong semantics (an event without the attribute does not satisfy `a <> 5`)
without a default value for every attribute that an event lacks: the list `any` of index.postings is only read for
attributes that it has. An excluded row is counted up before `any` counts it down, so that no count is ever too low.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.papers.counters import counters, take_zeros
from dibs.index.papers.postings import Postings, slots_of, write_out
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch
from dibs.jit.pools import Pool, Space
from dibs.thresholds import thresholds

LINES = 16  # cache lines of a list that are asked for before it is read
POSTINGS_A_LINE = 16


class Counting:
    name: ClassVar[str] = "counting"
    about: ClassVar[str] = "SIFT counting: a list for each attribute and cell, a counter for each row; for sparse data"
    takes: ClassVar[Takes] = Takes()

    def __init__(self, clauses: Clauses, postings: Postings):
        self._postings = postings
        sizes = np.diff(clauses.offsets)
        # Each predicate of a row may be excluded, which counts it up by one until `any` counts it down again.
        self._size = counters(sizes, 2 * int(sizes.max(initial=0)))
        self._rate = Rate()
        self._pool = Pool()

    @classmethod
    def build(cls, clauses: Clauses) -> Counting:
        return cls(clauses, write_out(cls.name, clauses, np.zeros(len(clauses), np.uint16), 1))

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Counting:
        return cls(clauses, Postings(*(arrays[name] for name in Postings._fields)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._postings._asdict()

    @property
    def nbytes(self) -> int:
        return self._postings.nbytes + self._size.nbytes

    def plan(self) -> dict[str, Any]:
        return self._postings.plan() | {"grounds": "each event counts the rows in the lists of its values"}

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        widest = int(np.diff(events.offsets).max(initial=0))

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            taken = self._pool.take(_work_space, self._size)
            _count(
                thresholds.rows_a_posting,
                *self._postings,
                self._size,
                *taken.space,
                np.empty(2 * widest, np.int64),
                np.empty(widest, np.int64),
                events.offsets,
                events.attribute,
                events.lo,
                last,
                *room,
                done,
            )
            self._pool.give(taken)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)


def _work_space(size: NDArray[Any]) -> Space:
    """Counters, set back to the sizes between calls, and room for the rows that match."""
    return size.copy(), np.empty(len(size) + 1, np.int32)


@kernel
def _count(
    rows_a_posting,
    block,
    limits,
    start,
    rows,
    size,
    left,
    found,
    included,
    excluded,
    event_offsets,
    event_attribute,
    event_cell,
    last_event,
    out_event,
    out_row,
    done,
):
    """See index.base.in_parts. An event whose matches do not fit is counted again in the next call."""
    pairs = np.int64(0)
    for e in range(done[0], last_event):
        n, x = slots_of(
            event_offsets[e], event_offsets[e + 1], event_attribute, event_cell, block, limits, included, excluded
        )
        nodes, postings = np.int64(0), np.int64(0)
        for j in range(n):
            first, last = start[included[j]], start[included[j] + 1]
            nodes += first < last
            postings += last - first
            for p in range(first, min(last, first + LINES * POSTINGS_A_LINE), POSTINGS_A_LINE):
                prefetch(rows, np.int64(p))
        few = postings * rows_a_posting < len(left)
        for j in range(x):
            first, last = np.uint32(start[excluded[j]]), np.uint32(start[excluded[j] + 1])
            nodes += first < last
            postings += last - first
            for p in range(first, last):
                left[rows[p]] += 1
        k, candidates = np.int64(0), np.int64(0)
        if few:
            for j in range(n):
                for p in range(np.uint32(start[included[j]]), np.uint32(start[included[j] + 1])):
                    r = rows[p]
                    now = left[r] - 1
                    left[r] = now
                    found[k] = r
                    k += now == 0
            for j in range(n):
                for p in range(np.uint32(start[included[j]]), np.uint32(start[included[j] + 1])):
                    r = rows[p]
                    candidates += left[r] != size[r]
                    left[r] = size[r]
        else:
            for j in range(n):
                for p in range(np.uint32(start[included[j]]), np.uint32(start[included[j] + 1])):
                    left[rows[p]] -= 1
            k, candidates = take_zeros(left, size, found)
        if pairs + k > len(out_event):
            done[0], done[2] = e, pairs
            return
        for i in range(k):
            out_event[pairs + i] = e
            out_row[pairs + i] = found[i]
        pairs += k
        done[3] += candidates
        done[4] += postings
        done[6] += nodes
    done[0], done[2] = last_event, pairs
