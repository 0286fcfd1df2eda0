"""bits: find all satisfied predicates of an event first, then test the clauses that one of them gives access to.

Every distinct predicate has one bit. The first phase finds the predicates that an event satisfies and sets their bits.
Each clause is filed under its access predicate, the one that is least likely to hold. The second phase reads the
clauses of the satisfied access predicates, and a clause matches when the bits of its other predicates are set. A test
in the second phase is the same for all operators. (The idea is Propagation's: papers.structures.propagation.)

Predicates are numbered by (attribute, group, constant), so that what the first phase finds is mostly runs of bits:

    EQ      = c    sorted by c: the one at the event's value
    LE      <= c   sorted by c: all from the value on, if it is not below the attribute's floor
    GE      >= c   sorted by c: all up to the value, if it is not above the ceiling (see index.operators)
    NE      <> c   sorted by c: all between floor and ceiling but the one at the value
    SPANS   else   BETWEEN, IN, NOT IN: a list of spans sorted by their beginnings

Arrays (D predicates, W = D / 64 + 1 words of bits, S spans, R access predicates):
    groups       int32   (attributes + 1, 8): the first predicate of each of the five groups, the first span, floor,
                         ceiling; the last row holds the ends
    key          int32   D: the constant that a group is sorted by (of SPANS, where the first span begins)
    span_begin, span_end, span_predicate   int32   S: by attribute, then beginning
    span_reach   int32   S / 64: where the last of 64 spans ends: those that end before the value are skipped
    access       uint64  W: bits of the predicates that are access predicates; `rank` counts those before each word
    rank         int32   W
    start        int64   R + 1: the clusters of each access predicate in `clusters`
    clusters     int32   for each access predicate: how many clauses m it has; then, clause by clause in order of size,
                         a column of their most selective other predicates, one of the next, their rows, and m + 1
                         distances to where the remaining predicates of each begin. Predicates that a clause does not
                         have are the true one, whose bit is always set

Counters: a candidate is a clause of a cluster that was read, a node is an access predicate whose clusters were read;
predicates are those found satisfied in the first phase and those whose bits were read in the second.

Useful for: single events, where a mask of one bit shares nothing; many clauses that share few distinct predicates:
the bits of all of them fit into the first cache.
Not useful for: clauses without a selective predicate; very many distinct predicates: their bits leave the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.bit_kernels import match
from dibs.index.auto.bit_layout import (
    Clusters,
    ClusterSpace,
    Predicates,
    lay_out_clusters,
    number_predicates,
    refuse_large_clusters,
    true_predicate,
)
from dibs.index.base import Pairs, Rate, Sink, in_parts
from dibs.index.predicates import distinct
from dibs.index.statistics import guess_presence, highest_cells, probabilities
from dibs.jit.groups import restore, saved_names
from dibs.jit.pools import Pool, Space
from dibs.jit.sorting import order_each

Own = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # predicates row by row, their begin and number
# Puts another access predicate before those of each row: of these, whether each predicate is an equality, the true one.
Choose = Callable[[Own, NDArray[np.bool_], int], Own]


def file_clauses(name: str, clauses: Clauses, choose: Choose | None = None) -> dict[str, NDArray[Any]]:
    """The arrays over these conjunctions; name: of the index, for errors."""
    number, example = distinct(clauses)
    groups, key, spans, order = number_predicates(clauses, example)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    presence, highest = guess_presence(clauses), highest_cells(clauses)
    share = probabilities(clauses, presence, highest)[example][order]

    own = place[number]  # the predicates of each row, the most selective first
    first, size = clauses.offsets[:-1], np.diff(clauses.offsets)
    order_each(own, first, size, share)
    true = true_predicate(len(order))
    if choose is not None:
        own, first, size = choose((own, first, size), (clauses.lo == clauses.hi)[example][order], true)
    second = np.where(size > 1, own[np.minimum(first + 1, max(len(own) - 1, 0))], 0) if len(own) else first
    # Equal second predicates stand together: their bits are in the cache.
    rows = np.lexsort((second, size, own[first])) if len(own) else first
    refuse_large_clusters(name, own[first], size)
    is_access = np.zeros(true + 64, np.bool_)
    is_access[own[first]] = True
    bits = np.packbits(is_access, bitorder="little").view(np.uint64)
    inside = is_access.reshape(-1, 64).sum(axis=1)
    rank = (np.cumsum(inside) - inside).astype(np.int32)
    start, clusters = lay_out_clusters(rows, own, first, size, int(is_access.sum()), true)
    filed = {"groups": groups, "key": key, "access": bits, "rank": rank, "start": start, "clusters": clusters}
    return filed | spans


class Bits:
    name: ClassVar[str] = "auto"  # for errors: it is a part of that
    ARRAYS = (*saved_names(Predicates), *saved_names(Clusters))

    def __init__(self, clauses: Clauses, arrays: dict[str, NDArray[Any]]):
        self.rows = len(clauses)
        self._arrays = {name: arrays[name] for name in self.ARRAYS}
        self.predicates = restore(Predicates, arrays)
        self.clusters = restore(Clusters, arrays)
        self._fixed = tuple(self.predicates), tuple(self.clusters)  # plain tuples cost less in a call
        self._rate = Rate()
        self._pool = Pool()

    @classmethod
    def of(cls, clauses: Clauses) -> Bits:
        """Of conjunctions."""
        return cls(clauses, file_clauses(cls.name, clauses))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._arrays

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._arrays.values())

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        coded = events.offsets, events.attribute, events.lo, events.hi

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            taken = self._pool.take(self._space)
            match(*self._fixed, coded, last, taken.space, room, progress)
            self._pool.give(taken)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)

    def _space(self) -> Space:
        bits = np.zeros(len(self._arrays["access"]), np.uint64)
        bits[-1] = 1  # the true predicate
        hits, survivors = len(self._arrays["start"]), self.rows + 1
        return tuple(ClusterSpace(bits, np.empty(hits, np.int32), np.empty(survivors, np.uint64)))
