"""opindex, opindex-bs: OpIndex of Zhang, Chan and Tan (2014), with and without directories and signatures.

The idea: each subscription is filed under its pivot, the one of its attributes that the fewest events have. All
predicates of the subscriptions of a pivot are in a few lists, one for each relational operator, sorted by (attribute,
operand). So an event reads only the lists of the attributes it has, and in such a list the predicates that hold for one
of its values are one run: for = those with this operand, for <= those from it on, for >= those up to it. Each of them
counts its subscription's counter down, and a counter that comes to zero is a match. Counters of one pivot are few and
stay in the cache.

opindex cuts each list into b segments by attribute; a segment has a signature of w bits, in which each predicate
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
    pivot       by the event log where there is one: the shares of events that have each attribute, given to `build` as
                `presence` or counted by matches. Before, as in the paper's example, the subscriptions stand for the
                events (statistics.guessed_presence without its bounds). Ties as in that example: an attribute that is
                in fewer of the rewritten relational predicates, then the first. When the events seen would let a tenth
                fewer subscriptions be looked at under other pivots, the lists are built again in the background
                (`pending`, see index.base.do_pending); after updates of its own the pivots stay
    BETWEEN     has a list of its own instead of one entry each in the lists of <= and >=, unless the option `profile`
                says "published" and it lies within its attribute's limits: sorted by lower end, read from the value
                downwards, with links to the last entry before that reaches further. For prefixes, whose
                spans nest, the links are the parents of a trie, the paper's structure for them; and a value costs its
                matches and a few links instead of all entries on both sides. (Suffixes and patterns are values of
                attributes of their own: prefixes and equality.)
    IN, NOT IN  an entry for each span in the list that fits it: at most one of them holds, so they count once
    b           (option `segments`) grows with the list up to the paper's 32: short lists need no long directory
    w           (option `width`) is at most 64, the bits of a word, which is the paper's w
    insertion   sorted lists in blocks (.blocks); Ji and Jacobsen (2018) had to reorder lists after each
                insertion between events, which took them a thousand times as long as other structures on dense data
    deletion    (not in the paper) sets the counter's start to zero; a partition of which a quarter is dead is cleaned
    CNF         of more than 64 clauses, or with more than 4,096 entries over its pivot set, is not taken
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Sink, Takes
from dibs.index.operators import Limits
from dibs.index.options import Option
from dibs.index.statistics import ENOUGH_EVENTS, LOOK_EVERY, WORTH_PLANNING, Presence
from dibs.papers.structures.growing import grow_array
from dibs.papers.structures.opindex.forms import (
    NO_CEILING,
    NO_FLOOR,
    DirectorySizes,
    notice,
    program_forms,
    rewrite_intervals,
    units_of,
)
from dibs.papers.structures.opindex.lists import Lists
from dibs.papers.structures.profiles import OURS, PROFILE, PUBLISHED, is_published, save_profile
from dibs.tuning import tuned

OPINDEX_SEGMENTS = tuned("opindex_segments", 32, 2, "segments", "of a directory, at most: the paper's b")

MOST_BITS = 64  # of a signature: a word


class OpIndex:
    name: ClassVar[str] = "opindex"
    about: ClassVar[str] = "OpIndex: lists of predicates by pivot and operator, directories and signatures, counters"
    takes: ClassVar[Takes] = Takes(programs=True, updates=True)
    options: ClassVar[tuple[Option, ...]] = (
        Option("segments", "of a list's directory, at most: the paper's b", None, 1, 1024, none="32"),
        Option("width", "bits of a segment's signature: the paper's w", MOST_BITS, 1, MOST_BITS),
        PROFILE,
    )

    def __init__(
        self,
        clauses: Clauses,
        rows: int,
        limits: Limits,
        frequency: NDArray[np.int64],
        lists: tuple[Lists, Lists],
        segments: int | None,
        width: int,
        published: bool,
    ):
        self._rows = rows
        self._published = published
        self._limits = limits
        self._frequency = frequency
        self._lists = lists  # of conjunctions that are counted, and of CNF by bitmaps
        self._segments, self._width = segments, width
        self._clauses: Clauses | None = clauses  # None: it has been updated
        self._seen = Presence(len(frequency))
        self._until_revising = LOOK_EVERY.value  # events
        self.pending: Callable[[], None] | None = None  # see index.base.do_pending

    @classmethod
    def _sizes(cls, segments: int | None, width: int) -> DirectorySizes:
        """Of directories that are yet to be made: those that stand know their own number of segments."""
        return DirectorySizes(segments or OPINDEX_SEGMENTS.value, width)

    @classmethod
    def takes_programs(cls, clauses: Clauses) -> NDArray[np.bool_]:
        return program_forms(clauses) > 0

    @classmethod
    def build(
        cls,
        clauses: Clauses,
        segments: int | None = None,
        width: int = MOST_BITS,
        profile: str = OURS,
        presence: NDArray[np.float64] | None = None,
    ) -> OpIndex:
        """presence: the share of events that have each attribute, if it is known."""
        n = clauses.attributes
        edges = Limits(np.full(n, NO_FLOOR, np.int32), np.full(n, NO_CEILING, np.int32))
        frequency = np.zeros(n, np.int64)
        notice(clauses, *edges, frequency)
        ranking = frequency if presence is None else _by_events(presence, frequency)
        published = profile == PUBLISHED
        written = rewrite_intervals(clauses, edges) if published else clauses
        counted, bitmaps, clause = units_of(written, ranking, 0)
        sizes = cls._sizes(segments, width)
        lists = (
            Lists.build(False, sizes, written, counted, clause, edges),
            Lists.build(True, sizes, written, bitmaps, clause, edges),
        )
        return cls(clauses, len(clauses), edges, frequency, lists, segments, width, published)

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> OpIndex:
        rows = int(arrays["rows"][0])
        segments = int(arrays["segments"][0]) or None if "segments" in arrays else None  # new
        width = int(arrays["width"][0]) if "width" in arrays else MOST_BITS  # new
        sizes = cls._sizes(segments, width)
        counted, bitmaps = ({n: arrays[f"{name}.{n}"] for n in Lists.ARRAYS} for name in ("counted", "bitmaps"))
        lists = Lists(False, sizes, rows, counted), Lists(True, sizes, rows, bitmaps)
        limits = Limits(arrays["floor"], arrays["ceiling"])
        return cls(clauses, rows, limits, arrays["frequency"], lists, segments, width, is_published(arrays))

    def arrays(self) -> dict[str, NDArray[Any]]:
        counted, bitmaps = self._lists
        result = {f"counted.{n}": a for n, a in counted.arrays().items()}
        result |= {f"bitmaps.{n}": a for n, a in bitmaps.arrays().items()}
        floor, ceiling = self._limits
        return result | {
            "floor": floor,
            "ceiling": ceiling,
            "frequency": self._frequency,
            "rows": np.array([self._rows]),
            "segments": np.array([self._segments or 0]),
            "width": np.array([self._width]),
            **save_profile(self._published),
        }

    @property
    def nbytes(self) -> int:
        own = sum(a.nbytes for a in self._limits) + self._frequency.nbytes
        return own + sum(lists.nbytes for lists in self._lists)

    def plan(self) -> dict[str, Any]:
        counted, bitmaps = (lists.numbers() for lists in self._lists)
        return counted | {
            "entries of CNF": bitmaps["entries"],
            "grounds": "the pivot of a subscription is the attribute that the fewest events have, as far as is known",
        }

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        counted, bitmaps = self._lists
        found = counted.match(events, self._limits, threads, sink)
        if bitmaps.size:
            found.add(bitmaps.match(events, self._limits, threads, sink))
        self._seen.observe(events)
        self._until_revising -= len(events)
        if self._until_revising <= 0 and self._clauses is not None and self.pending is None:
            self._until_revising = LOOK_EVERY.value
            self.pending = self._revise
        return found

    def presence(self) -> NDArray[np.float64] | None:
        """The share of events that have each attribute, once enough were seen."""
        return self._seen.share() if self._seen.events >= ENOUGH_EVENTS.value else None

    def _revise(self) -> None:
        """Other pivots, if the events that were seen ask for them. Whoever matches meanwhile keeps the old lists."""
        presence, clauses = self.presence(), self._clauses
        if presence is None or clauses is None or not self.takes_programs(clauses).all():
            return  # the last: it was saved with other numbers, when larger programs were taken
        counted, _ = self._lists
        pivot = units_of(clauses, _by_events(presence, self._frequency), 0)[0][3]
        if WORTH_PLANNING.value * presence[pivot].sum() < counted.count_looked_at(presence):
            profile = PUBLISHED if self._published else OURS
            self._lists = self.build(clauses, self._segments, self._width, profile, presence)._lists

    def insert(self, clauses: Clauses) -> None:
        n = clauses.attributes
        floor, ceiling = self._limits
        self._limits = Limits(grow_array(floor, n, NO_FLOOR), grow_array(ceiling, n, NO_CEILING))
        self._frequency = grow_array(self._frequency, n)
        notice(clauses, *self._limits, self._frequency)
        presence = self.presence()
        if presence is not None:
            presence = np.concatenate([presence, np.zeros(len(self._frequency) - len(presence))])
        ranking = self._frequency if presence is None else _by_events(presence, self._frequency)
        if self._published:
            clauses = rewrite_intervals(clauses, self._limits)
        units, bitmaps, clause = units_of(clauses, ranking, self._rows)
        self._lists[0].insert(clauses, units, clause, self._limits)
        self._lists[1].insert(clauses, bitmaps, clause, self._limits)
        self._rows += len(clauses)
        self._clauses = None
        if len(self._frequency) > self._seen.attributes:
            self._seen = Presence(len(self._frequency))  # it begins again

    def delete(self, rows: NDArray[np.int64]) -> None:
        self._clauses = None
        counted, bitmaps = self._lists
        counted.delete(rows)
        if bitmaps.size:
            bitmaps.delete(rows)


def _by_events(presence: NDArray[np.float64], frequency: NDArray[np.int64]) -> NDArray[np.int64]:
    """What ranks attributes: the events that have them and, where these are as many, the subscriptions."""
    most = max(int(frequency.max(initial=0)), 1)
    return (presence * 2**20).astype(np.int64) * 2**20 + (frequency / most * (2**20 - 1)).astype(np.int64)


class OpIndexBS(OpIndex):
    name: ClassVar[str] = "opindex-bs"
    about: ClassVar[str] = "OpIndex without directories and signatures: binary search in the predicate lists"
    options: ClassVar[tuple[Option, ...]] = (PROFILE,)

    @classmethod
    def _sizes(cls, segments: int | None, width: int) -> DirectorySizes:
        return DirectorySizes(0, width)
