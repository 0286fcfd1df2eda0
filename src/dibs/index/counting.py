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
from numba import njit
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.lanes import count_bits, lowest_bit, prefetch
from dibs.index.postings import Postings, slots_of, write_out

ROWS_A_POSTING = 16  # with fewer, all counters are set back in one pass instead of one by one
EVERY_BYTE = 0x0101010101010101


class Counting:
    name: ClassVar[str] = "counting"
    about: ClassVar[str] = "SIFT counting: a list for each attribute and cell, a counter for each row; for sparse data"
    takes: ClassVar[Takes] = Takes()

    def __init__(self, clauses: Clauses, postings: Postings):
        self._postings = postings
        sizes = np.diff(clauses.offsets)
        largest = int(sizes.max(initial=0)) + 1  # an exclusion makes it one more for a moment
        # Whole words: the rows behind the last have the size 1 and are never counted.
        self._size = np.ones(-(-len(sizes) // 8) * 8, _counter_type(largest))
        self._size[: len(sizes)] = sizes
        self._rate = Rate()
        self._spaces: list[tuple[NDArray[Any], ...]] = []  # work space of past calls, counters set back

    @classmethod
    def build(cls, clauses: Clauses) -> Counting:
        return cls(clauses, write_out(cls.name, clauses, np.zeros(len(clauses), np.uint16), 1))

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Counting:
        return cls(clauses, Postings(**arrays))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._postings._asdict()

    @property
    def nbytes(self) -> int:
        return self._postings.nbytes + self._size.nbytes

    def plan(self) -> dict[str, Any]:
        p = self._postings
        return {
            "lists": p.lists,
            "postings": len(p.rows),
            "longest list": p.longest,
            "counter bytes": self._size.itemsize,
            "grounds": "each event counts the rows in the lists of its values",
        }

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        widest = int(np.diff(events.offsets).max(initial=0))
        included, excluded = (np.empty(0, np.int64) for _ in range(2))
        del included, excluded

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            space = self._spaces.pop() if self._spaces else (self._size.copy(), np.empty(len(self._size) + 1, np.int32))
            _count(
                *self._postings,
                self._size,
                self._size.view(np.uint64),
                space[0],
                space[0].view(np.uint64),
                space[1],
                *np.empty((2, 2 * widest), np.int64),
                events.offsets,
                events.attribute,
                events.lo,
                last,
                *room,
                done,
            )
            self._spaces.append(space)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)
