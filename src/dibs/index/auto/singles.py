"""The ways of a single event to the rows of an index: what segments.single hands to its compiled call.

A batch reads the words of all clauses in the groups of an event's attributes (index.auto.records). For one event after
the other that is mostly waiting for memory: of a million sparse clauses, 57 KB for each event, for twenty matches. So
single events have a sieve over these groups. Of each clause it has, in one word, an attribute without which the clause
does not hold, the rarest but for that of its group; only clauses whose attribute the event has are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.auto.record_layout import HIGH, LOW, MIDDLE, ONE
from dibs.jit.kernel import kernel

if TYPE_CHECKING:
    from dibs.index.auto.planner import OneByOne
    from dibs.index.auto.records import Records
    from dibs.index.auto.vectors import Vectors

PLACE = np.uint64(0xFFFFFFFF)  # the part of a sieve's word that is the clause's place; above it is the attribute


class SieveArrays(NamedTuple):
    words: NDArray[np.uint64]  # for each clause, group by group: attribute << 32 | its place in the words of records
    start: NDArray[np.int32]  # attributes + 1: where the clauses of each group begin


class Sieve:
    def __init__(self, records: Records, presence: NDArray[np.float64]):
        """presence: the share of events that have each attribute."""
        own = records.own
        attributes = len(own.shift)
        start = np.zeros(attributes + 1, np.int32)
        np.cumsum(own.count[:attributes], out=start[1:])
        words = np.empty(int(start[-1]), np.uint64)  # by NumPy, which asks for large pages
        passing = fill_sieve(own.words, own.start, presence, start, words)
        self.arrays = SieveArrays(words, start)
        self.share = float(passing) / max(len(words), 1)  # of clauses that pass, about

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays)


def can_be_sieved(records: Records) -> bool:
    """Whether all its clauses are in groups of attributes, and their places fit into half a word."""
    own = records.own
    attributes = len(own.shift)
    all_by_attribute = len(own.count) == attributes and len(own.words) - int(own.start[attributes]) <= 1
    return all_by_attribute and 0 < len(own.words) <= int(PLACE)


class ForSingles(NamedTuple):
    """Each row is in one of the first four."""

    records: Records | None
    bits: OneByOne | None
    scanned: NDArray[np.int32]  # rows that are tested one by one
    vectors: Vectors | None = None
    sieve: Sieve | None = None  # of the records


@kernel
def fill_sieve(words, first_word, presence, start, sieve):
    """Fills the sieve of attribute groups; returns how many clauses pass, as far as shares tell. A clause that holds
    without any other attribute has the number behind the last one, which every event has."""
    passing = 0.0
    attributes = len(presence)
    for group in range(attributes):
        p = np.uint64(first_word[group])
        for i in range(start[group], start[group + 1]):
            after = p + (words[p] & LOW) + ONE
            chosen, share = np.uint64(attributes), 1.0
            for q in range(p + ONE, after):
                test, a = words[q], words[q] >> HIGH
                fails_without = ((np.uint64(0) - (test >> MIDDLE)) & LOW) > (test & LOW)
                if fails_without and a != np.uint64(group) and presence[a] < share:
                    chosen, share = a, presence[a]
            sieve[i] = (chosen << HIGH) | p
            passing += share
            p = after
    return passing
