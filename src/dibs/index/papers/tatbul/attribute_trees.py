"""One tree for each attribute: what Tatbul's five structures share.

For each value of an event, the tree of its attribute finds the profiles whose predicate on that attribute holds, as a
bit vector (index.bit_vectors) or as runs of a list; index.combination says which profiles have all of theirs. Trees
are built from intervals (index.intervals), which also number the profiles.

Arrays: row, size, group of index.intervals, `entries` int32 (places in runs), and those of the tree; with bit vectors,
those of index.bit_vectors.

Counters: candidates are the profiles that are compared with their size: whose pivot predicate holds, and neighbours;
predicates are value comparisons in trees and lists, the paper's "evaluations", and those of verifying; nodes are the
tree nodes visited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.papers.tatbul import bit_vectors
from dibs.index.papers.tatbul.combination import Found, combine, room_for, work_space
from dibs.index.papers.tatbul.intervals import Intervals, intervals_of
from dibs.jit.pools import Pool
from dibs.thresholds import thresholds

if TYPE_CHECKING:
    from typing_extensions import Self

VECTORS = ("table", "members", "words", "rank")


class AttributeTrees:
    """A structure needs a name, `about`, the names of its arrays, and the methods below that raise."""

    name: ClassVar[str]
    about: ClassVar[str]
    takes: ClassVar[Takes] = Takes()
    TREE: ClassVar[tuple[str, ...]]
    VECTORS: ClassVar[bool] = True  # whether trees end in slots of bit vectors; else in runs
    ORDERED: ClassVar[bool] = False  # whether all runs are sorted by place
    VERIFIES: ClassVar[bool] = False  # whether what they find only may match

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self._arrays = arrays
        self._rate = Rate()
        self._pool = Pool()

    @classmethod
    def build(cls, clauses: Clauses) -> Self:
        intervals = intervals_of(clauses)
        own = {"row": intervals.row, "size": intervals.size, "group": intervals.group}
        own["block"] = np.array([thresholds.tatbul_block])
        return cls(clauses, own | cls._grow(intervals))

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Self:
        return cls(clauses, dict(arrays))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return dict(self._arrays)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._arrays.values())

    @classmethod
    def _grow(cls, intervals: Intervals) -> dict[str, NDArray[Any]]:
        """The arrays of the tree, `entries`, and those of bit vectors."""
        raise NotImplementedError

    def _find(self, events: CodedEvents, first: int, last: int, found: Found) -> None:
        """Fills `found` for the events first to last: slots, or runs."""
        raise NotImplementedError

    def _most_runs(self) -> int:
        """The most runs that one value of an event can find."""
        return 2

    def plan(self) -> dict[str, Any]:
        raise NotImplementedError

    def _tree(self) -> tuple[NDArray[Any], ...]:
        return tuple(self._arrays[n] for n in self.TREE)

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        c = self._clauses
        places = tuple(self._arrays[n] for n in ("row", "size", "group", "entries"))
        vectors = tuple(self._arrays[n] for n in VECTORS) if self.VECTORS else _no_vectors()
        columns = c.offsets, c.attribute, c.lo, c.hi, c.span_lo, c.span_hi
        coded = events.offsets, events.attribute, events.lo
        most, block = self._most_runs(), int(self._arrays["block"][0])

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            taken = self._pool.take(work_space, places[1], c.attributes, block)
            done[2] = 0
            while done[0] < last:
                first, end = int(done[0]), min(int(done[0]) + thresholds.tatbul_events, last)
                entries = int(events.offsets[end] - events.offsets[first])
                found = room_for(end - first, entries, most * entries)
                self._find(events, first, end, found)
                if self.VECTORS:
                    bit_vectors.runs_of_slots(vectors[0], self._arrays["runs"], *coded[:2], first, end, *found[:4])
                combine(
                    *places,
                    block,
                    *vectors,
                    self.ORDERED,
                    self.VERIFIES,
                    *columns,
                    *coded,
                    *found,
                    first,
                    end,
                    *taken.space,
                    *room,
                    done,
                )
                if done[0] < end:
                    break  # no room for the next event
            self._pool.give(taken)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)


def _no_vectors() -> tuple[NDArray[Any], ...]:
    none = np.empty(0, np.int32)
    return np.empty((0, 8), np.int64), none, np.empty(0, np.uint64), none
