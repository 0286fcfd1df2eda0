"""opindex, opindex-bs: OpIndex of Zhang, Chan and Tan (2014), with and without directories and signatures.

The idea: each subscription is filed under its pivot, the one of its attributes that the fewest events have. All
predicates of the subscriptions of a pivot are in a few lists, one for each relational operator, sorted by (attribute,
operand). So an event reads only the lists of the attributes it has, and in such a list the predicates that hold for one
of its values are one run: for = those with this operand, for <= those from it on, for >= those up to it. Each of them
counts its subscription's counter down, and a counter that comes to zero is a match. Counters of one pivot are few and
stay in the cache.

opindex cuts each list into b segments by attribute; a segment has a signature of w = 64 bits, in which each predicate
sets one (by attribute, for = by attribute and operand), and only where the event's bit is set the segment is searched.
opindex-bs searches the whole list instead.

    DNF    each term is a conjunction of its own; a row is reported once
    CNF    a bitmap of clauses instead of a counter, filed under every attribute of its smallest clause (its pivot set)

Arrays: those of .blocks twice, for conjunctions ("counted.") and for CNF ("bitmaps."), and
    floor, ceiling  int32  attributes: see index.operators
    frequency       int64  attributes: see .forms
A node is a predicate list that an event reads; candidates are the subscriptions of the pivots that it has; predicates
are the entries read (all of which hold, but for some of BETWEEN).

Useful for: many attributes of which an event has few; subscriptions that come and go.
Not useful for: attributes that most events have: their lists are read for every event, and inequalities hold for half
of the operands.

Where it differs from the paper:
    pivot       how often events have an attribute is not known before they come; as in the paper's example, the
                subscriptions stand for them (statistics.guessed_presence without its bounds). Ties as in that example:
                an attribute that is in fewer of the rewritten relational predicates, then the first
    BETWEEN     has a list of its own instead of one entry each in the lists of <= and >=: sorted by lower end, read
                from the value downwards, with links to the last entry before that reaches further. For prefixes, whose
                spans nest, the links are the parents of a trie, the paper's structure for them; and a value costs its
                matches and a few links instead of all entries on both sides. (Suffixes and patterns are values of
                attributes of their own: prefixes and equality.)
    IN, NOT IN  an entry for each span in the list that fits it: at most one of them holds, so they count once
    b           grows with the list up to the paper's 32: short lists need no long directory
    insertion   sorted lists in blocks (.blocks); Ji and Jacobsen (2018) had to reorder lists after each
                insertion between events, which took them a thousand times as long as other structures on dense data
    deletion    (not in the paper) sets the counter's start to zero; a partition of which a quarter is dead is cleaned
    CNF         of more than 64 clauses, or with more than 4,096 entries over its pivot set, is not taken
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Sink, Takes
from dibs.index.growing import grown
from dibs.index.operators import Limits
from dibs.index.papers.opindex.forms import NO_CEILING, NO_FLOOR, notice, program_forms, units_of
from dibs.index.papers.opindex.lists import Lists
from dibs.thresholds import thresholds


class OpIndex:
    name: ClassVar[str] = "opindex"
    about: ClassVar[str] = "OpIndex: lists of predicates by pivot and operator, directories and signatures, counters"
    takes: ClassVar[Takes] = Takes(programs=True, updates=True)
    directories: ClassVar[bool] = True  # and signatures

    def __init__(self, rows: int, limits: Limits, frequency: NDArray[np.int64], lists: list[Lists]):
        self._rows = rows
        self._limits = limits
        self._frequency = frequency
        self._counted, self._bitmaps = lists

    @classmethod
    def _segments(cls) -> int:
        """Of directories that are yet to be made: those that stand know their own number."""
        return thresholds.opindex_segments if cls.directories else 0

    @classmethod
    def takes_programs(cls, clauses: Clauses) -> NDArray[np.bool_]:
        return program_forms(clauses) > 0

    @classmethod
    def build(cls, clauses: Clauses) -> OpIndex:
        n = clauses.attributes
        edges = Limits(np.full(n, NO_FLOOR, np.int32), np.full(n, NO_CEILING, np.int32))
        frequency = np.zeros(n, np.int64)
        notice(clauses, *edges, frequency)
        counted, bitmaps, clause = units_of(clauses, frequency, 0)
        lists = [
            Lists.build(kind, cls._segments(), clauses, units, clause, edges)
            for kind, units in ((False, counted), (True, bitmaps))
        ]
        return cls(len(clauses), edges, frequency, lists)

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> OpIndex:
        rows = int(arrays["rows"][0])
        lists = [
            Lists(kind, cls._segments(), rows, {n: arrays[f"{name}.{n}"] for n in Lists.ARRAYS})
            for kind, name in ((False, "counted"), (True, "bitmaps"))
        ]
        return cls(rows, Limits(arrays["floor"], arrays["ceiling"]), arrays["frequency"], lists)

    def arrays(self) -> dict[str, NDArray[Any]]:
        result = {f"counted.{n}": a for n, a in self._counted.arrays().items()}
        result |= {f"bitmaps.{n}": a for n, a in self._bitmaps.arrays().items()}
        floor, ceiling = self._limits
        return result | {
            "floor": floor,
            "ceiling": ceiling,
            "frequency": self._frequency,
            "rows": np.array([self._rows]),
        }

    @property
    def nbytes(self) -> int:
        own = sum(a.nbytes for a in self._limits) + self._frequency.nbytes
        return own + self._counted.nbytes + self._bitmaps.nbytes

    def plan(self) -> dict[str, Any]:
        counted, bitmaps = self._counted.numbers(), self._bitmaps.numbers()
        return counted | {
            "entries of CNF": bitmaps["entries"],
            "grounds": "the pivot of a subscription is the attribute that the fewest subscriptions mention",
        }

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        found = self._counted.match(events, self._limits, threads, sink)
        if self._bitmaps.size:
            found.add(self._bitmaps.match(events, self._limits, threads, sink))
        return found

    def insert(self, clauses: Clauses) -> None:
        n = clauses.attributes
        floor, ceiling = self._limits
        self._limits = Limits(grown(floor, n, NO_FLOOR), grown(ceiling, n, NO_CEILING))
        self._frequency = grown(self._frequency, n)
        notice(clauses, *self._limits, self._frequency)
        counted, bitmaps, clause = units_of(clauses, self._frequency, self._rows)
        self._counted.insert(clauses, counted, clause, self._limits)
        self._bitmaps.insert(clauses, bitmaps, clause, self._limits)
        self._rows += len(clauses)

    def delete(self, rows: NDArray[np.int64]) -> None:
        self._counted.delete(rows)
        if self._bitmaps.size:
            self._bitmaps.delete(rows)


class OpIndexBS(OpIndex):
    name: ClassVar[str] = "opindex-bs"
    about: ClassVar[str] = "OpIndex without directories and signatures: binary search in the predicate lists"
    directories: ClassVar[bool] = False
