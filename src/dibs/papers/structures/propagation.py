"""propagation: find all satisfied predicates first, then test the clauses that one of them gives access to.

The idea (Fabret et al. 2001): every distinct predicate has one bit. The first phase finds the predicates that an event
satisfies and sets their bits. Each clause is filed under its most selective equality predicate, its access predicate;
one without equality is under none, and looked at for every event. Clauses with one access predicate and the same number
of other predicates are a cluster. The second phase reads the clusters of the satisfied access predicates, and a clause
matches when the bits of its other predicates are set. A test in the second phase is the same for all operators, and a
cluster is a table of predicate numbers, read from front to back.

The two phases, and the arrays, are those of index.auto.bits.

Counters: a candidate is a clause of a cluster that was read, a node is an access predicate whose clusters were read;
predicates are those found satisfied in the first phase and those whose bits were read in the second.

Option access="any" (ours): any predicate may give access, as the first phase finds all of them, so that no clause has
to be looked at for every event.

Useful for: many equality predicates over large domains; many clauses that share few distinct predicates (dense data):
the bits of all of them fit into the first cache.
Not useful for: clauses without a selective predicate; very many distinct predicates: their bits leave the caches.

Published (option `profile`): the bits of all predicates are cleared after each event, as the later papers have it.

Differs from the paper: the option `access`; the first phase searches sorted arrays instead of
hash tables and B-trees; bits are cleared attribute by attribute, not all for each event, which is what later papers
blame Propagation for; clusters of one access predicate stand in one table, since most hold one or two clauses, and its
first two columns are tested for all clauses without a branch, the others only for those that are left. A cluster at a
time, with a column for each predicate, took a third longer on dense data. Access by several predicates at once (the
paper's clustering by schemas, from statistics of events) is not here; the papers that compare themselves with
Propagation leave it out too.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.bit_kernels import match_events
from dibs.index.auto.bit_layout import Clusters, ClusterSpace, Predicates
from dibs.index.auto.bits import Bits, Own, file_clauses
from dibs.index.base import Pairs, Sink, Takes, in_parts
from dibs.index.groups import NEXT_EVENT, PAIRS, EventArrays, Room
from dibs.index.options import Option
from dibs.jit.kernel import kernel
from dibs.papers.structures.profiles import OURS, PROFILE, PUBLISHED, is_published, save_profile

EQUALITY, ANY = "equality", "any"


class Propagation(Bits):
    name: ClassVar[str] = "propagation"
    about: ClassVar[str] = (
        "Propagation (Fabret et al. 2001): a bit for each distinct predicate, clusters under access predicates; "
        "good for selective equality predicates"
    )
    takes: ClassVar[Takes] = Takes()
    options: ClassVar[tuple[Option, ...]] = (
        Option("access", "which predicates give access", EQUALITY, words=(EQUALITY, ANY)),
        PROFILE,
    )

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        super().__init__(clauses, arrays)
        self._published = is_published(arrays)
        self._arrays |= save_profile(self._published)

    @classmethod
    def build(cls, clauses: Clauses, access: str = EQUALITY, profile: str = OURS) -> Propagation:
        filed = file_clauses(cls.name, clauses, equality_first if access == EQUALITY else None)
        return cls(clauses, filed | save_profile(profile == PUBLISHED))

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Propagation:
        return cls(clauses, arrays)

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        if not self._published:
            return super().match(events, threads, sink)
        coded = tuple(EventArrays.of(events))

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            match_and_clear_all(*self._fixed, coded, last, self._space(), room, progress)

        return in_parts(work, len(events), threads, sink=sink)

    def plan(self) -> dict[str, Any]:
        arrays = self.arrays()
        predicates, access = len(arrays["key"]), len(arrays["start"]) - 1
        bits, start = arrays["access"], arrays["start"]
        always = int(arrays["clusters"][start[-2]]) if len(bits) and bits[-1] else 0
        return {
            "distinct predicates": predicates,
            "access predicates": access,
            "clauses looked at for every event": always,
            "grounds": f"{self.rows:,} clauses in clusters under {access:,} of {predicates:,} distinct predicates, "
            "each filed under the one that is least likely to hold",
        }


@kernel
def match_and_clear_all(predicates, clusters, events, last_event, work, room, progress):
    """auto.bit_kernels.match with a full reset between events."""
    predicates, clusters, events = Predicates(*predicates), Clusters(*clusters), EventArrays(*events)
    work, room = ClusterSpace(*work), Room(*room)
    progress[PAIRS] = 0
    for e in range(progress[NEXT_EVENT], last_event):
        match_events(predicates, clusters, events, e + 1, work, room, progress)
        for w in range(len(work.bits) - 1):
            work.bits[w] = 0
        if progress[NEXT_EVENT] == e:
            return


def equality_first(own: Own, is_equal: NDArray[np.bool_], true: int) -> Own:
    """The most selective equality predicate of each row gives access to it, or the true one if it has none."""
    return put_access_first(*own, is_equal, true)


@kernel
def put_access_first(own, first, size, is_equal, true):
    """The predicates of each row, the most selective first, with its most selective equality predicate before all
    others, or the true one if it has none; where they begin, and how many they are."""
    new_first, new_size = np.empty_like(first), np.empty_like(size)
    result, n = np.empty(len(own) + len(first), own.dtype), 0
    for r in range(len(first)):
        begin, end = first[r], first[r] + size[r]
        chosen = begin
        while chosen < end and not is_equal[own[chosen]]:
            chosen += 1
        new_first[r] = n
        result[n] = own[chosen] if chosen < end else true
        n += 1
        for p in range(begin, end):
            if p != chosen:
                result[n] = own[p]
                n += 1
        new_size[r] = n - new_first[r]
    return result[:n], new_first, new_size
