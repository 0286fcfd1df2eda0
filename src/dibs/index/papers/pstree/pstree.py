"""pstree: subscriptions in the predicate spaces of their access predicates, a PS-Tree for each attribute.

The idea (Ji and Jacobsen 2018, sections 3.3 to 4): the least likely predicate of a subscription is its access
predicate, and the subscription is in the list of every space that this predicate covers (index.pstree_forest). An
event finds the space of each of its values; the lists of these spaces are its candidates, and each subscription is in
one of them at most. What is left of a candidate is tested.

Arrays: those of index.pstree_rows (the subscriptions) and index.pstree_forest (trees and lists). An entry of a list is
    [code, attribute, lo, hi]   the next less likely predicate (its hull, if it has several spans) and what is left to
                                do when it holds, see index.pstree_rows
A list is one run of memory and its entries are tested without branches, so most candidates fall without a look at the
subscription itself. Nodes visited are inner nodes and leaves of the trees.

Useful for: data of many attributes, where a space has few subscriptions; updates while events come.
Not useful for: many subscriptions over few attributes (lists are long: see psthash); wide access predicates over
domains of many constants (a subscription is in as many lists as its access predicate covers spaces).

Where it differs from the paper: a list is a chunk of an array, not linked; an entry carries a predicate; a partition
copies lists but a batch of rows is inserted by partitioning first, so that each list is made once.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.papers.pstree.forest import Forest
from dibs.index.papers.pstree.kernels import AT, ATTRIBUTE, HI, HIGHEST, LO, SIZE
from dibs.index.papers.pstree.rows import Rows, verify
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch
from dibs.thresholds import thresholds


class PSTree:
    name: ClassVar[str] = "pstree"
    about: ClassVar[str] = "PS-Tree: subscriptions listed by disjoint predicate spaces; for many attributes"
    takes: ClassVar[Takes] = Takes(updates=True)

    def __init__(self, rows: Rows, forest: Forest):
        self.rows, self.forest = rows, forest
        self._rate = Rate()

    @classmethod
    def build(cls, clauses: Clauses) -> PSTree:
        index = cls(Rows.none(), Forest.empty())
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
        rank = self.forest.ranks(clauses, len(self.rows) + len(clauses))
        which = self.rows.by_access(self.rows.add(clauses, rank))
        self.forest.partition(*self.rows.boundaries(which, 1))
        self.forest.cover(self.rows, self.rows.offsets[which], 1)
        self.forest.attach(
            self.rows, self.rows.offsets[which], words(which, self.rows.offsets, self.rows.predicate, self.rows.span)
        )

    def delete(self, rows: NDArray[np.int64]) -> None:
        own = words(rows, self.rows.offsets, self.rows.predicate, self.rows.span)
        self.forest.detach(self.rows, self.rows.offsets[rows], own[:, 0].copy())
        self.forest.cover(self.rows, self.rows.offsets[rows], -1)
        self.forest.merge(*self.rows.boundaries(rows, 1))
        self.rows.mark_deleted(rows)

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        space = np.empty(len(events.attribute), np.int32)
        forest, rows = self.forest, self.rows

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            if not done[5]:
                done[5] = 1
                forest.find(events, int(done[0]), last, space, done)
            _match(
                thresholds.pstree_block,
                forest.leaf,
                forest.entry,
                forest.attributes,
                rows.predicate,
                rows.span,
                events.offsets,
                events.attribute,
                events.lo,
                space,
                last,
                *room,
                done,
            )

        found = in_parts(work, len(events), threads, rate=self._rate, sink=sink)
        forest.observe(len(events), space)
        return found


@kernel
def words(rows, offsets, predicate, span):
    """The entries of the rows: what is left after their first predicate, and the second one."""
    result = np.empty((len(rows), 4), np.int32)
    for i in range(len(rows)):
        p, end = offsets[rows[i]], offsets[rows[i] + 1]
        if end == p + 1:
            result[i, 0], result[i, 1], result[i, 2], result[i, 3] = rows[i], predicate[p, ATTRIBUTE], 0, HIGHEST
            continue
        low, high, left = predicate[p + 1, LO], predicate[p + 1, HI], p + 2
        if high < 0:
            low, high, left = span[low, 0], span[low - high - 1, 1], p + 1
        result[i, 0] = rows[i] if left == end else ~left
        result[i, 1], result[i, 2], result[i, 3] = predicate[p + 1, ATTRIBUTE], low, high
    return result


@kernel
def _match(
    block,
    leaf,
    entry,
    attributes,
    predicate,
    span,
    event_offsets,
    event_attribute,
    event_value,
    space,
    last_event,
    out_event,
    out_row,
    done,
):
    """See index.base.in_parts. An event whose matches do not fit is begun again."""
    slot = np.zeros(attributes, np.int32)
    left = np.empty(block + 1, np.int32)
    found = np.int64(0)
    entries_end = event_offsets[last_event]
    for e in range(done[0], last_event):
        first, last = event_offsets[e], event_offsets[e + 1]
        for i in range(first, last):
            slot[event_attribute[i]] = event_value[i]
        candidates, tests, before, n = np.int64(0), np.int64(0), found, np.uint64(0)
        for i in range(first, last):
            if i + 2 < entries_end:
                prefetch(entry, 4 * np.int64(leaf[np.uint64(space[i + 2]), AT]))
            here = np.uint64(space[i])
            at = np.uint64(leaf[here, AT])
            end = at + np.uint64(leaf[here, SIZE])
            candidates += np.int64(end - at)
            while at < end:
                stop = min(end, at + np.uint64(block) - n)
                while at < stop:
                    v = slot[np.uint64(entry[at, np.uint64(1)])]
                    left[n] = entry[at, np.uint64(0)]
                    n += np.uint64((entry[at, np.uint64(2)] <= v) & (v <= entry[at, np.uint64(3)]))
                    at += np.uint64(1)
                if n == np.uint64(block):
                    found, more = verify(left, np.int64(n), slot, predicate, span, e, found, out_event, out_row)
                    tests += more
                    n = np.uint64(0)
                    if found < 0:
                        done[0], done[2] = e, before
                        return
        found, more = verify(left, np.int64(n), slot, predicate, span, e, found, out_event, out_row)
        if found < 0:
            done[0], done[2] = e, before
            return
        done[3] += candidates
        done[4] += candidates + tests + more
        for i in range(first, last):
            slot[event_attribute[i]] = 0
    done[0], done[2] = last_event, found
