"""One tree for each attribute: what Tatbul's five structures share.

For each value of an event, the tree of its attribute finds the profiles whose predicate on that attribute holds, as a
bit vector (tatbul.bit_vectors) or as runs of a list; tatbul.combination says which profiles have all of theirs. Trees
are built from intervals (tatbul.intervals), which also number the profiles.

Arrays: row, size, group, block of tatbul.intervals, `entries` int32 (places in runs), and those of the tree; with bit
vectors, those of tatbul.bit_vectors; `pivots` bool: the option.

Every profile is counted, where the paper ANDs the bits of all of them; published (option `profile`), that is done
(tatbul.whole_vectors). Option `pivots` (ours): profiles whose least likely
predicate fails are ruled out before anything is counted (tatbul.combination).

Counters: candidates are the profiles that are compared with their size: whose pivot predicate holds, and neighbours;
predicates are value comparisons in trees and lists, the paper's "evaluations", and those of verifying; nodes are the
tree nodes visited.

Kernels that Python calls at every match take their groups as plain tuples and give them their names inside: named ones
cost such a call twice as much, and a structure hands over thirty arrays. What never changes is grouped at build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.groups import NEXT_EVENT, PAIRS, ClauseArrays, EventArrays
from dibs.index.options import Option
from dibs.jit.pools import Pool
from dibs.papers.structures.profiles import OURS, PROFILE, PUBLISHED, is_published, save_profile
from dibs.papers.structures.tatbul.bit_vectors import Vectors, no_vectors, runs_of_slots
from dibs.papers.structures.tatbul.combination import Profiles, combine, work_space
from dibs.papers.structures.tatbul.intervals import Intervals, intervals_of, room_for
from dibs.papers.structures.tatbul.whole_vectors import WholeVectors, combine_whole, whole_vectors
from dibs.tuning import tuned

if TYPE_CHECKING:
    from typing_extensions import Self

VECTOR_ARRAYS = ("table", "members", "words", "rank", "runs", "entries")

TATBUL_EVENTS = tuned("tatbul_events", 64, 1, "events", "that go through the trees before they are combined")


class AttributeTrees:
    """A structure needs a name, `about`, the names of its arrays, and the methods below that raise."""

    name: ClassVar[str]
    about: ClassVar[str]
    takes: ClassVar[Takes] = Takes()
    options: ClassVar[tuple[Option, ...]] = (
        Option("pivots", "whether profiles whose least likely predicate fails are ruled out first", False),
        PROFILE,
    )
    TREE: ClassVar[tuple[str, ...]]  # the arrays of the tree, in the order of its group
    VECTORS: ClassVar[bool] = True  # whether trees end in slots of bit vectors; else in runs
    ORDERED: ClassVar[bool] = False  # whether all runs are sorted by place
    VERIFIES: ClassVar[bool] = False  # whether what they find only may match

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self._clauses = clauses
        self._arrays = arrays
        row, size, group, entries = (arrays[n] for n in ("row", "size", "group", "entries"))
        block = int(arrays["block"][0])
        pivots = bool(arrays["pivots"][0]) if "pivots" in arrays else True  # earlier versions always had them
        self._profiles = tuple(Profiles(row, size, group, entries, block, self.ORDERED, self.VERIFIES, pivots))
        self._published = is_published(arrays)
        kept = WholeVectors._fields if self._published else Vectors._fields if self.VECTORS else ()
        self._vectors = tuple(arrays[n] for n in kept) or tuple(no_vectors())
        self._columns = tuple(ClauseArrays.of(clauses))
        self._tree = tuple(arrays[n] for n in self.TREE)
        self._rate = Rate()
        self._pool = Pool()

    @classmethod
    def build(cls, clauses: Clauses, pivots: bool = False, profile: str = OURS) -> Self:
        intervals = intervals_of(clauses)
        own = {name: getattr(intervals, name) for name in ("row", "size", "group", "block")}
        own["pivots"] = np.array([pivots])
        made = cls._grow(intervals)
        if profile == PUBLISHED:
            own |= whole_vectors(cls.name, intervals, made) | save_profile(True)
            if cls.VECTORS:  # they stand for these
                made = {name: array[:0] if name in VECTOR_ARRAYS else array for name, array in made.items()}
        return cls(clauses, own | made)

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

    def _find(self, events: tuple[Any, ...], found: tuple[Any, ...]) -> None:
        """Fills `found` for its events: slots, or runs. Both are groups as kernels take them."""
        raise NotImplementedError

    def _most_runs(self) -> int:
        """The most runs that one value of an event can find."""
        return 2

    def plan(self) -> dict[str, Any]:
        raise NotImplementedError

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        coded = tuple(EventArrays.of(events))
        most = self._most_runs()
        size, block = self._arrays["size"], int(self._arrays["block"][0])

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            taken = self._pool.take(work_space, size, self._clauses.attributes, block)
            progress[PAIRS] = 0
            while progress[NEXT_EVENT] < last:
                first = int(progress[NEXT_EVENT])
                end = min(first + TATBUL_EVENTS.value, last)
                entries = int(events.offsets[end] - events.offsets[first])
                found = room_for(first, end - first, entries, most * entries)
                self._find(coded, found)
                if self.VECTORS and not self._published:
                    runs_of_slots(self._arrays["table"], self._arrays["runs"], coded, found)
                combined = combine_whole if self._published else combine
                combined(self._profiles, self._vectors, self._columns, coded, found, taken.space, room, progress)
                if progress[NEXT_EVENT] < end:
                    break  # no room for the next event
            self._pool.give(taken)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)
