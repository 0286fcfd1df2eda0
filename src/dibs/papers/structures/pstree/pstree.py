"""pstree: subscriptions in the predicate spaces of their access predicates, a PS-Tree for each attribute.

The idea (Ji and Jacobsen 2018, sections 3.3 to 4): the least likely predicate of a subscription is its access
predicate, and the subscription is in the list of every space that this predicate covers (.forest). An
event finds the space of each of its values; the lists of these spaces are its candidates, and each subscription is in
one of them at most. What is left of a candidate is tested.

Arrays: those of .rows (the subscriptions) and .forest (trees and lists). An entry of a list is
    [code, attribute, lo, hi]   the next less likely predicate (its hull, if it has several spans) and what is left to
                                do when it holds, see .rows
A list is one run of memory and its entries are tested without branches, so most candidates fall without a look at the
subscription itself. Nodes visited are inner nodes and leaves of the trees.

Useful for: data of many attributes, where a space has few subscriptions; updates while events come.
Not useful for: many subscriptions over few attributes (lists are long: see psthash); wide access predicates over
domains of many constants (a subscription is in as many lists as its access predicate covers spaces).

Access predicates (option `access`): before events were seen, by operators as the paper has it, = before IN before
BETWEEN before inequalities before NOT IN before <>, and among equal operators by the number of cells covered; or by
statistics (ours): the share of events that have the attribute, guessed from how many subscriptions mention it, times
the share of its domain. Once events were seen, rows that come are ranked by the event counters of the spaces that their
predicates cover, and by the above where these are equal.

Where it differs from the paper: a list is a chunk of an array, not linked; an entry carries a predicate; a partition
copies lists but a batch of rows is inserted by partitioning first, so that each list is made once.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes
from dibs.index.groups import NEXT_EVENT, PAIRS
from dibs.index.options import Option
from dibs.jit.kernel import kernel
from dibs.papers.structures.pstree.forest import ACCESS, OPERATORS, Forest
from dibs.papers.structures.pstree.lists import (
    NEXT_ATTRIBUTE,
    NEXT_HI,
    NEXT_LO,
    begin_event,
    finish_event,
    no_candidates,
    screen_spaces,
    stop_before,
    verify,
)
from dibs.papers.structures.pstree.rows import Rows
from dibs.papers.structures.pstree.spaces import (
    ATTRIBUTE,
    CODE,
    ENTRY,
    HI,
    HIGHEST,
    LO,
    EventSpaces,
    ListArrays,
    RowArrays,
)


class PSTree:
    name: ClassVar[str] = "pstree"
    about: ClassVar[str] = "PS-Tree: subscriptions listed by disjoint predicate spaces; for many attributes"
    takes: ClassVar[Takes] = Takes(updates=True)
    options: ClassVar[tuple[Option, ...]] = (ACCESS,)

    def __init__(self, rows: Rows, forest: Forest):
        self.rows, self.forest = rows, forest
        self._rate = Rate()

    @classmethod
    def build(cls, clauses: Clauses, access: str = OPERATORS) -> PSTree:
        index = cls(Rows.none(), Forest.empty(access))
        index.insert(clauses)
        return index

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> PSTree:
        return cls(Rows(*(arrays[name] for name in Rows.ARRAYS)), Forest(arrays))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.rows.arrays() | self.forest.arrays()

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.forest.nbytes

    def plan(self) -> dict[str, Any]:
        return self.forest.plan() | {
            "grounds": "each subscription is in the lists of all spaces that its least likely predicate covers"
        }

    def insert(self, clauses: Clauses) -> None:
        rows, forest = self.rows, self.forest
        rank = forest.ranks(clauses, len(rows) + len(clauses))
        which = rows.by_access(rows.add(clauses, rank))
        forest.partition(rows.boundaries(which, 1))
        forest.cover(rows, rows.offsets[which], 1)
        forest.attach(rows, rows.offsets[which], words(which, rows.group()))

    def delete(self, rows: NDArray[np.int64]) -> None:
        own, forest = self.rows, self.forest
        forest.detach(own, own.offsets[rows], words(rows, own.group())[:, CODE].copy())
        forest.cover(own, own.offsets[rows], -1)
        forest.merge(own.boundaries(rows, 1))
        own.mark_deleted(rows)

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        return self.forest.match(_match, self.rows, (), events, threads, self._rate, sink)


@kernel
def words(which, rows):
    """The entries of some rows: what is left after their first predicate, and the second one."""
    predicate, span = rows.predicate, rows.span
    result = np.empty((len(which), ENTRY), np.int32)
    for i in range(len(which)):
        r, p, end = which[i], rows.offsets[which[i]], rows.offsets[which[i] + 1]
        if end == p + 1:  # a second one that always holds
            result[i, CODE], result[i, NEXT_ATTRIBUTE] = r, predicate[p, ATTRIBUTE]
            result[i, NEXT_LO], result[i, NEXT_HI] = 0, HIGHEST
            continue
        low, high, left = predicate[p + 1, LO], predicate[p + 1, HI], p + 2
        if high < 0:
            low, high, left = span[low, 0], span[low - high - 1, 1], p + 1
        result[i, CODE], result[i, NEXT_ATTRIBUTE] = r if left == end else ~left, predicate[p + 1, ATTRIBUTE]
        result[i, NEXT_LO], result[i, NEXT_HI] = low, high
    return result


@kernel
def _match(attributes, block, last_event, lists, rows, events, room, progress):
    """See index.base.in_parts. block: candidates that are verified together."""
    lists, rows, events = ListArrays(*lists), RowArrays(*rows), EventSpaces(*events)
    waiting = no_candidates(attributes, block)
    found = np.int64(0)
    for e in range(progress[NEXT_EVENT], last_event):
        before = found
        begin_event(e, events, waiting.slot)
        n, found = screen_spaces(e, last_event, found, lists, rows, events, waiting, room)
        found = verify(n, e, found, waiting, rows, room)
        if found < 0:
            stop_before(e, before, progress)
            return
        finish_event(e, events, waiting, progress)
    progress[NEXT_EVENT], progress[PAIRS] = last_event, found
