"""counting: count, for each row, how many of its predicates hold. The counting algorithm of SIFT.

The idea (Yan and Garcia-Molina 1994, extended to ranges by writing them out as Whang et al. 2009 do, as the comparison
in Sadoghi and Jacobsen 2011 describes it): an inverted list for each attribute and cell names the rows with a predicate
that holds there. An event reads the list of each of its values and counts every row named; a row whose count reaches
its number of predicates matches. No predicate is ever compared with a value.

Counters count down from the size of the row, so a match is a zero. They are bytes where sizes allow it: those of a
million rows stay in the second-level cache, and lists are ascending, so that each one is one sweep over them. After an
event the counters are set back: row by row if it touched few, all in one pass over whole words if it touched many.
That pass then also finds the zeros, and counting itself is nothing but decrements.

Arrays: those of structures.postings, with one group, and
    left   uint8, uint16 or uint32   by row, work space: predicates that do not hold yet; between events, its size

Counters of work: a node is a list with a posting that was read, each of its postings a predicate that holds (evaluated,
so to speak, when the index was built), a candidate a row of which at least one predicate holds.

Useful for: subscriptions that share few attributes with an event (sparse data); values of few cells.
Not useful for: popular attributes (every row with a predicate that holds is touched, however selective its others are);
wide ranges over many cells (memory: see structures.postings).

Published (option `profile`): all counters are set back after each event, however few rows it touched.

Differs from the papers: counters count down in flat arrays instead of up in a hash table; ranges are written out over
cells, not values; inequalities have the strong semantics (an event without the attribute does not satisfy `a <> 5`)
without a default value for every attribute that an event lacks: the list `any` of structures.postings is only read for
attributes that it has. An excluded row is counted up before `any` counts it down, so that no count is ever too low.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES, EventArrays, Room
from dibs.index.options import Option
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch
from dibs.jit.pools import Pool
from dibs.papers.structures.counters import counters, take_zeros
from dibs.papers.structures.postings import Postings, SlotsRead, slots_of, write_out
from dibs.papers.structures.profiles import OURS, PROFILE, PUBLISHED, is_published, save_profile
from dibs.tuning import tuned

ROWS_A_POSTING = tuned("rows_a_posting", 16, 0, "rows", "for each posting read; with fewer, all counters are set back")

LINES = 16  # cache lines of a list that are asked for before it is read
POSTINGS_A_LINE = 16
ONE_GROUP = np.zeros(1, np.int32)


class Counters(NamedTuple):
    """Work space that is kept from call to call, and what it is set back to."""

    size: NDArray[Any]  # by row: its number of predicates, the type of `left`; ones up to a multiple of 64
    left: NDArray[Any]  # by row: predicates that do not hold yet; between events, its size
    found: NDArray[np.int32]  # the rows that match an event, and one place that is written to in vain

    @classmethod
    def at_rest(cls, size: NDArray[Any]) -> Counters:
        return cls(size, size.copy(), np.empty(len(size) + 1, np.int32))


class Counting:
    name: ClassVar[str] = "counting"
    about: ClassVar[str] = "SIFT counting: a list for each attribute and cell, a counter for each row; for sparse data"
    takes: ClassVar[Takes] = Takes()
    options: ClassVar[tuple[Option, ...]] = (PROFILE,)

    def __init__(self, clauses: Clauses, postings: Postings, published: bool, groups: NDArray[np.int32] = ONE_GROUP):
        """groups: by group of the postings, how many values an event must have at least."""
        self._postings, self._published, self._groups = postings, published, groups
        sizes = np.diff(clauses.offsets)
        # Each predicate of a row may be excluded, which counts it up by one until `any` counts it down again.
        self._size = counters(sizes, 2 * int(sizes.max(initial=0)))
        self._rate = Rate()
        self._pool = Pool()

    @classmethod
    def build(cls, clauses: Clauses, profile: str = OURS) -> Counting:
        return cls(clauses, write_out(cls.name, clauses, np.zeros(len(clauses), np.uint16), 1), profile == PUBLISHED)

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Counting:
        return cls(clauses, Postings(*(arrays[name] for name in Postings._fields)), is_published(arrays))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._postings._asdict() | save_profile(self._published)

    @property
    def nbytes(self) -> int:
        return self._postings.nbytes + self._size.nbytes

    def plan(self) -> dict[str, Any]:
        return self._postings.plan() | {"grounds": "each event counts the rows in the lists of its values"}

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        arrays, widest = EventArrays.of(events), int(np.diff(events.offsets).max(initial=0))

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            taken = self._pool.take(Counters.at_rest, self._size)
            slots = SlotsRead.for_events(widest * len(self._groups))
            least = 2**31 if self._published else ROWS_A_POSTING.value
            groups = self._groups
            _count(least, self._postings, groups, slots, taken.space, arrays, last, Room(*room), progress)
            self._pool.give(taken)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)


@kernel
def _count(rows_a_posting, postings, groups, slots, counters, events, last_event, room, progress):
    """See index.base.in_parts. An event whose matches do not fit is counted again in the next call."""
    _count_events(rows_a_posting, postings, groups, slots, counters, events, last_event, room, progress)


@phase(inline=False)
def _count_events(rows_a_posting, postings, groups, slots, counters, events, last_event, room, progress):
    _, _, start, rows = postings
    included, excluded = slots
    size, left, found = counters
    pairs = np.int64(0)
    for e in range(progress[NEXT_EVENT], last_event):
        n, x = slots_of(events, e, postings, slots)
        if len(groups) > 1:
            values = events.offsets[e + 1] - events.offsets[e]
            n, x = _lists_of_groups(groups, values, included, n), _lists_of_groups(groups, values, excluded, x)
        lists, read = _ask_for(start, rows, included, n)
        few = read * rows_a_posting < len(left)
        more_lists, more_read = _count_up(start, rows, excluded, x, left)
        if few:
            k = _count_down_and_find(start, rows, included, n, left, found)
            candidates = _set_back(start, rows, included, n, left, size)
        else:
            _count_down(start, rows, included, n, left)
            k, candidates = take_zeros(left, size, found)
        if pairs + k > len(room.event):
            progress[NEXT_EVENT], progress[PAIRS] = e, pairs
            return
        for i in range(k):
            room.event[pairs + i] = e
            room.row[pairs + i] = found[i]
        pairs += k
        progress[CANDIDATES] += candidates
        progress[PREDICATES] += read + more_read
        progress[NODES] += lists + more_lists
    progress[NEXT_EVENT], progress[PAIRS] = last_event, pairs


# The phases of an event. `slots` are the first n of the included or of the excluded ones.


@phase
def _lists_of_groups(groups, values, slots, n):
    """From slots to the numbers of their lists, of the groups that ask for so many values at most; how many there are
    then. From behind, so that no slot is overwritten before it has been read."""
    some = np.int64(0)
    for g in range(len(groups)):
        some += groups[g] <= values
    for j in range(n - 1, -1, -1):
        slot, k = slots[j], some * (j + 1)
        for g in range(len(groups) - 1, -1, -1):
            if groups[g] <= values:
                k -= 1
                slots[k] = slot * len(groups) + g
    return some * n


@phase
def _ask_for(start, rows, slots, n):
    """Asks for the beginnings of the lists: (how many have postings, how many postings these are)."""
    lists, read = np.int64(0), np.int64(0)
    for j in range(n):
        first, last = start[slots[j]], start[slots[j] + 1]
        lists += first < last
        read += last - first
        for p in range(first, min(last, first + LINES * POSTINGS_A_LINE), POSTINGS_A_LINE):
            prefetch(rows, np.int64(p))
    return lists, read


@phase
def _count_up(start, rows, slots, n, left):
    """Rows whose inequality does not hold, which `any` will count down all the same: (lists, postings)."""
    lists, read = np.int64(0), np.int64(0)
    for j in range(n):
        first, last = np.uint32(start[slots[j]]), np.uint32(start[slots[j] + 1])
        lists += first < last
        read += last - first
        for p in range(first, last):
            left[rows[p]] += 1
    return lists, read


@phase
def _count_down(start, rows, slots, n, left):
    for j in range(n):
        for p in range(np.uint32(start[slots[j]]), np.uint32(start[slots[j] + 1])):
            left[rows[p]] -= 1


@phase
def _count_down_and_find(start, rows, slots, n, left, found):
    """How many rows match; they are the first of `found`."""
    k = np.int64(0)
    for j in range(n):
        for p in range(np.uint32(start[slots[j]]), np.uint32(start[slots[j] + 1])):
            r = rows[p]
            now = left[r] - 1
            left[r] = now
            found[k] = r
            k += now == 0
    return k


@phase
def _set_back(start, rows, slots, n, left, size):
    """Sets back the counters that were counted down: how many were."""
    candidates = np.int64(0)
    for j in range(n):
        for p in range(np.uint32(start[slots[j]]), np.uint32(start[slots[j] + 1])):
            r = rows[p]
            candidates += left[r] != size[r]
            left[r] = size[r]
    return candidates
