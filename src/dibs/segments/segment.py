"""A segment: subscriptions that were compiled together, with their own domains and index. It never changes.

Row r of everything (ids, texts, weights, clauses) is one subscription. The ids are all integers or all strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arguments import DEFAULT_WEIGHT as DEFAULT_WEIGHT
from dibs.arrays import from_numpy
from dibs.coding.batch import code_events
from dibs.coding.clauses import Clauses, runs
from dibs.coding.domain import Domains
from dibs.coding.identity import code_declared
from dibs.coding.lookup import lookup_of
from dibs.coding.merge import merge_domains, move_clauses
from dibs.coding.values import EventValues
from dibs.index import AUTO, Index, Pairs, Sink, create
from dibs.index.auto.access_sets import complements
from dibs.index.auto.planner import Auto
from dibs.index.base import do_pending, options_in
from dibs.index.statistics import guess_presence
from dibs.language.joins import join_of, read_attributes
from dibs.language.printer import is_join
from dibs.language.scalars import is_computed
from dibs.lazy import lazy
from dibs.segments.compile import Compiled
from dibs.segments.ids import IdIndex
from dibs.thresholds import thresholds


@dataclass(eq=False)  # each is itself
class Segment:
    ids: IdIndex
    texts: pa.Array  # large_string
    weights: NDArray[np.float64] | None  # None: all DEFAULT_WEIGHT
    versions: NDArray[np.int64]  # the version of the matcher at which the row came
    domains: Domains
    clauses: Clauses
    index: Index
    single: Any = field(init=False, repr=False, default=None)  # its part of the tables of segments.single.plan
    is_renewed: bool = field(init=False, repr=False, default=False)  # its file is of an older language

    def __len__(self) -> int:
        return len(self.clauses)

    def match(self, events: EventValues, threads: int, sink: Sink | None = None) -> Pairs:
        if self.domains.lookup is None and events.events >= thresholds.lookup_events:
            self.domains.lookup = lookup_of(self.domains, self.clauses)
        coded = code_events(events, self.domains)
        if not len(coded.attribute) and self.clauses.ask_for_values:  # a small segment and a few events share little
            return Pairs([], 0, 0)
        return self.index.match(coded, threads, sink)

    def match_constants(self, events: EventValues, threads: int) -> Pairs:
        """The rows that match if all their joins are as they would like to have them."""
        index = self._index_of_constants
        pairs = index.match(code_events(events, self.domains), threads)
        do_pending(index)
        return pairs

    def prepare_constants(self) -> None:
        """Builds what match_constants needs, if there are joins."""
        if self.joins:
            _ = self._index_of_constants

    @lazy
    def _index_of_constants(self) -> Index:
        """Over the clauses without joins. An event has no values of joins by then, so that in a program IS NULL stands
        for a join that holds, and what never holds for one that is asked for as a complement."""
        clauses = self.clauses
        is_join_step = np.array([is_join(name) for name, _ in self.domains.attributes], np.bool_)[clauses.attribute]
        cut = int(clauses.offsets[clauses.conjunctions])
        kept = np.append(~is_join_step[:cut], np.ones(len(is_join_step) - cut, np.bool_))
        before = np.append(0, np.cumsum(kept))
        joined = np.unique(np.searchsorted(clauses.offsets, np.flatnonzero(is_join_step), side="right") - 1)
        fails = complements(clauses, joined[joined >= clauses.conjunctions])
        spared = np.where(is_join_step, fails, clauses.lo), np.where(is_join_step, 0, clauses.hi)
        lo, hi = (each.astype(np.int32)[kept] for each in spared)
        open_ones = replace(clauses, offsets=before[clauses.offsets], attribute=clauses.attribute[kept], lo=lo, hi=hi)
        return create(AUTO, open_ones)

    @property
    def has_pending_work(self) -> bool:
        """Whether its index would like to have something done: see index.base.do_pending."""
        return getattr(self.index, "pending", None) is not None

    def weights_at(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        return np.full(len(rows), DEFAULT_WEIGHT) if self.weights is None else self.weights[rows]

    @lazy
    def names(self) -> frozenset[str]:
        """The attributes that the subscriptions mention, joins, computed values and what these read of events
        included."""
        own = frozenset(name for name, _ in self.domains.attributes)
        own = own.union(*(join_of(name).event_attributes for name in self.joins)) if self.joins else own
        return own.union(read_attributes(name for name in own if is_computed(name)))

    @lazy
    def joins(self) -> tuple[str, ...]:
        """The joins over history that the subscriptions mention."""
        return tuple(sorted(self.joins_of(np.arange(len(self)))))

    @lazy
    def joins_by_row(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row r mentions the joins of the places [offsets[r], offsets[r + 1]) of the second array, which are places in
        `joins`; some perhaps twice."""
        known = {name: number for number, name in enumerate(self.joins)}
        attributes = self.domains.attributes
        place = np.fromiter((known.get(name, -1) for name, _ in attributes), np.int64, len(attributes))
        of_step = place[self.clauses.attribute]
        row = np.repeat(np.arange(len(self)), np.diff(self.clauses.offsets))
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(np.bincount(row[of_step >= 0], minlength=len(self)), out=offsets[1:])
        return offsets, of_step[of_step >= 0]

    def joins_of(self, rows: NDArray[np.int64]) -> set[str]:
        """The joins that these subscriptions mention."""
        numbers = [number for number, (name, _) in enumerate(self.domains.attributes) if is_join(name)]
        if not numbers:
            return set()
        own = self.clauses.attribute[runs(self.clauses.offsets[rows], np.diff(self.clauses.offsets)[rows])]
        return {self.domains.attributes[number][0] for number in np.intersect1d(own, numbers).tolist()}

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes by part."""
        return {
            "texts": self.texts.nbytes,
            "ids": self.ids.ids.nbytes + self.ids.nbytes,
            "weights": 0 if self.weights is None else self.weights.nbytes,
            "versions": self.versions.nbytes,
            "domains": self.domains.nbytes,
            "clauses": self.clauses.nbytes,
            "index": self.index.nbytes,
        }


class Choice(NamedTuple):
    """Which index segments get, its settings (of this process), and its options, which are saved with it."""

    name: str
    settings: tuple[tuple[str, Any], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()  # those that differ from the defaults, in the structure's order

    def is_of(self, index: Index) -> bool:
        """Whether the index is as it would be built."""
        return index.name == self.name and options_in(index) == dict(self.options)

    def build(self, domains: Domains, clauses: Clauses, like: Segment | None = None) -> Index:
        """like: a segment of the same matcher, from which something may be known of the events."""
        settings = dict(self.settings) | dict(self.options)
        if self.name == AUTO and like is not None and isinstance(like.index, Auto):
            settings["presence"] = _presence(like, domains, clauses)
        return create(self.name, clauses, **settings)


def _presence(like: Segment, domains: Domains, clauses: Clauses) -> NDArray[np.float64]:
    """The share of events that have each attribute: as the other segment knows it, which is larger or has met them."""
    known = like.index.presence() if isinstance(like.index, Auto) else np.empty(0)
    number = np.fromiter(
        map(like.domains.number_of.get, domains.attributes, repeat(-1)), np.int64, len(domains.attributes)
    )
    result = guess_presence(clauses)
    result[number >= 0] = known[number[number >= 0]]
    return result


def build(
    compiled: Compiled,
    ids: pa.Array,
    texts: pa.Array,
    weights: NDArray[np.float64] | None,
    versions: NDArray[np.int64],
    choice: Choice,
    like: Segment | None = None,
) -> Segment:
    """The segment of the compiled texts; ids, texts, weights and versions are those of all texts that were compiled.
    like: see Choice.build."""
    if not np.array_equal(compiled.order, np.arange(len(ids))):
        order = from_numpy(compiled.order)
        ids, texts = ids.take(order), texts.take(order)
        weights = None if weights is None else weights[compiled.order]
        versions = versions[compiled.order]
    domains, clauses = code_declared(compiled.table, compiled.domains)
    return Segment(IdIndex(ids), texts, weights, versions, domains, clauses, choice.build(domains, clauses, like))


class Joined:
    """Segments on the way to one: the given rows of each part (whose ids are of one type). Everything but the index is
    made at once; `index_rows` completes it."""

    def __init__(self, parts: Sequence[tuple[Segment, NDArray[np.int64]]]):
        self._parts = parts
        self._domains, moves = merge_domains([s.domains for s, _ in parts])
        moving = [(s.clauses, rows, move) for (s, rows), move in zip(parts, moves)]
        self._clauses, self._place = move_clauses(moving, len(self._domains.attributes))
        order = from_numpy(self._place)
        self._ids = IdIndex(pa.concat_arrays([s.ids.ids.take(from_numpy(rows)) for s, rows in parts]).take(order))
        self._texts = pa.concat_arrays([s.texts.take(from_numpy(rows)) for s, rows in parts]).take(order)
        self._versions = np.concatenate([s.versions[rows] for s, rows in parts])[self._place]
        self._weights = None
        if any(s.weights is not None for s, _ in parts):
            self._weights = np.concatenate([s.weights_at(rows) for s, rows in parts])[self._place]

    def index_rows(self, choice: Choice, like: Segment | None = None) -> Segment:
        """The segment (like: see Choice.build; else the largest part)."""
        like = like or max((s for s, _ in self._parts), key=len)
        index = choice.build(self._domains, self._clauses, like)
        return Segment(self._ids, self._texts, self._weights, self._versions, self._domains, self._clauses, index)

    def rows(self) -> list[NDArray[np.int64]]:
        """Where each part's given rows have gone."""
        gone_to = np.empty(len(self._place), np.int64)
        gone_to[self._place] = np.arange(len(self._place))
        bounds = np.cumsum([0, *(len(rows) for _, rows in self._parts)])
        return [gone_to[a:b] for a, b in zip(bounds, bounds[1:])]


def merge(parts: Sequence[tuple[Segment, NDArray[np.int64]]], choice: Choice) -> Segment:
    """One segment of the given rows of each part."""
    return Joined(parts).index_rows(choice)
