"""vectors: which clauses hold for a value, a bit for each, by cell. For conjunctions over the same attributes.

The idea: clauses that ask for the same attributes are a *group*. For each attribute and each value that an event may
have there, a group has a vector of bits, one for each of its clauses: whether the clause takes the value. The clauses
that hold for an event are the AND of a vector for each attribute: 512 clauses by one instruction for each of these,
however likely their predicates are. (Bitmap indexes; counting, by ANDs instead of counters.) A group is filed under the
attribute of it that the fewest events have, and looked at only if the event has all others too.

Values are told apart as far as predicates of groups do: cells that the same of them cover are one *segment*. Where that
would be too many (a vector takes a bit for each clause), neighbours are put together: a vector then says which clauses
may hold, and those that remain are verified. Room is in proportion to the text: 32 bytes for a predicate, 8 for each
further span of a list, or 64 where clauses are at most 2,048 (`vector_bytes`).

The clauses of a group stand in the order of their least likely predicate's first cell, so that the ones of a vector
cluster where predicates are ranges. A summary of each vector says which of its lines of 512 bits are not empty, and the
AND of summaries which lines are looked at.

Arrays (groups are ordered by the attribute that they are filed under, clauses by group):
    segment         int32   by attribute and cell: the segment, from 1 on; of a cell that no predicate covers, minus the
                            last one before it
    cells           int64   attributes + 1: where those of each attribute begin. Cells behind its last are not covered
    segments        int64   attributes + 1: how many segments the attributes before have
    groups_of       int32   attributes + 1: the groups filed under each
    slots           int32   groups + 1: the slots of each, one for each predicate of its clauses
    slot_attribute  int32   of each slot
    slot_vector     int64   the line where a slot's vectors begin: that of segment s is s - 1 times `lines` further
    slot_summary    int64   the same of its summaries, in words
    lines           int32   of a vector of each group
    start           int64   groups + 1: where the clauses of each begin
    row             int32   of each clause
    exact           uint8   of each group: its segments tell all apart, so that nothing is verified
    vectors         uint64  lines of 8 words, at a multiple of 64 bytes
    summaries       uint64  a bit for each line of a vector

An event with several values for an attribute, or a range, takes the OR of their segments: still exact, as a predicate
holds when some value satisfies it, each predicate on its own.

Useful for: many clauses over few attributes, each of which holds for many events (long lists, rectangles, wide ranges);
events that lack one of the attributes. Single events too.
Not useful for: clauses that each ask for other attributes; predicates that hardly any event satisfies (records).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.vector_building import build_vectors
from dibs.index.auto.vector_groups import Groups
from dibs.index.auto.vector_kernels import FiledVectors, match_vectors
from dibs.index.auto.vector_layout import VectorArrays, VectorSizes, VectorSpace
from dibs.index.base import Rate
from dibs.index.groups import ClauseArrays
from dibs.jit.groups import Table, allocate
from dibs.jit.pools import Pool, Space


class Vectors:
    ARRAYS = VectorArrays._fields

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self.rate = Rate()
        self._arrays = arrays
        self.size = len(arrays["row"])
        self.inexact = not bool(arrays["exact"].all())
        self.groups = len(arrays["lines"])
        self.own = VectorArrays(*(arrays[name] for name in self.ARRAYS))
        self.sizes = VectorSizes(clauses.attributes, int(arrays["segments"][-1]))  # of the space for a search
        self._filed = Table(FiledVectors(self.own, ClauseArrays.of(clauses)))
        self._pool = Pool()

    @classmethod
    def build(
        cls, clauses: Clauses, groups: Groups, chosen: NDArray[np.bool_], presence: NDArray[np.float64],
        share: NDArray[np.float32], highest: NDArray[np.int32],
    ) -> Vectors:  # fmt: skip
        """chosen: of the groups; presence, share: how many events have each attribute, and satisfy each predicate;
        highest: the highest cell that predicates of an attribute cover."""
        return cls(clauses, build_vectors(clauses, groups, chosen, presence, share, highest))

    @classmethod
    def empty(cls, clauses: Clauses) -> Vectors:
        none, highest = np.empty(0), np.zeros(clauses.attributes, np.int32)
        groups = Groups.none(len(clauses))
        return cls.build(clauses, groups, none.astype(np.bool_), none, none.astype(np.float32), highest)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._arrays

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._arrays.values())

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows that are matched here, in order."""
        return np.sort(self._arrays["row"]).astype(np.int64)

    def match(
        self, events: CodedEvents, last: int, room: tuple[NDArray[Any], NDArray[Any]], progress: NDArray[np.int64]
    ) -> None:
        """See index.base.in_parts."""
        taken = self._pool.take(self._space)
        match_vectors(
            events.points, self.inexact, last, progress, self._filed.address, taken.space[0].address,
            events.offsets, events.attribute, events.lo, events.hi, *room,
        )  # fmt: skip
        self._pool.give(taken)

    def _space(self) -> Space:
        return (Table(allocate(VectorSpace, self.sizes)),)
