"""A segment: subscriptions that were compiled together, with their own domains and index. It never changes.

Row r of ids, weights and versions is one subscription. The ids are all integers or all strings. Row r of clauses and
texts is its own, too, or, where many are alike, that of the runs of rows that have it (segments.repeated).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, NamedTuple, Union

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arguments import DEFAULT_WEIGHT as DEFAULT_WEIGHT
from dibs.arrays import from_numpy
from dibs.coding.alternatives import join_alternatives
from dibs.coding.batch import CodedEvents, code_events
from dibs.coding.clauses import Clauses, code_declared, runs
from dibs.coding.computed.residuals import Residuals, join
from dibs.coding.computed.splitting import split
from dibs.coding.computed.verifying import Verifier
from dibs.coding.domain import Domains
from dibs.coding.lookup import lookup_of
from dibs.coding.merge import merge_domains, move_clauses
from dibs.coding.repeats import RowRuns, Spreading
from dibs.coding.values import EventValues
from dibs.index import AUTO, Index, Pairs, Sink, create
from dibs.index.auto.access_sets import complements
from dibs.index.auto.planner import Auto
from dibs.index.base import do_pending, options_in
from dibs.index.statistics import guess_presence
from dibs.language.joins import join_of, read_attributes
from dibs.language.printer import is_join
from dibs.language.scalars import is_computed
from dibs.language.table import Facet
from dibs.lazy import lazy
from dibs.segments.compile import Compiled
from dibs.segments.ids import IdIndex
from dibs.segments.repeated import NO_RUNS, share
from dibs.segments.state import MERGED_AT_ONCE
from dibs.tuning import tuned

LOOKUP_EVENTS = tuned("lookup_events", 256, 1, "events", "of a batch that are worth a table of constants")


class Unmade(NamedTuple):
    """The index of a small segment, which is made when somebody asks for it: most are merged before that."""

    clauses: Clauses
    settings: dict[str, Any]

    def make(self) -> Index:
        return create(AUTO, self.clauses, **self.settings)

    def presence(self) -> NDArray[np.float64]:
        known: NDArray[np.float64] | None = self.settings.get("presence")
        return guess_presence(self.clauses) if known is None else known


@dataclass(eq=False)  # each is itself
class Segment:
    ids: IdIndex
    texts: pa.Array  # large_string
    weights: NDArray[np.float64] | None  # None: all DEFAULT_WEIGHT
    versions: NDArray[np.int64]  # the version of the matcher at which the row came
    domains: Domains
    clauses: Clauses
    made: Union[Index, Unmade]  # see `index`
    residuals: Residuals | None = None  # tests of the pairs that the index finds
    repeats: RowRuns | None = None  # the rows of each clause; None: each row has its own
    spellings: RowRuns | None = None  # the rows of each text; the same
    single: Any = field(init=False, repr=False, default=None)  # its part of the tables of segments.single.plan
    is_renewed: bool = field(init=False, repr=False, default=False)  # its file is of an older language

    def __len__(self) -> int:
        return len(self.versions)

    @lazy
    def index(self) -> Index:
        return self.made.make() if isinstance(self.made, Unmade) else self.made

    @property
    def is_indexed(self) -> bool:
        return "index" in vars(self) or not isinstance(self.made, Unmade)

    def match(self, events: EventValues, threads: int, sink: Sink | None = None) -> Pairs:
        if self.domains.lookup is None and events.events >= LOOKUP_EVENTS.value:
            self.domains.lookup = lookup_of(self.domains, self.clauses)
        coded = code_events(events, self.domains)
        if not len(coded.attribute) and self.clauses.ask_for_values:  # a small segment and a few events share little
            return Pairs([], 0, 0)
        spreading = None if self.repeats is None or sink is None else Spreading(self.repeats, sink)
        if self.residuals is None:
            pairs = self.index.match(coded, threads, spreading or sink)
        else:
            pairs = _verify(self.index, coded, Verifier(self.residuals, events), threads, spreading or sink)
        return pairs if self.repeats is None else _spread(pairs, self.repeats, spreading)

    def ask_index(self, coded: CodedEvents) -> Pairs:
        """What the index finds for an event, before tests that are made last, by row."""
        pairs = self.index.match(coded, 1)
        return pairs if self.repeats is None else _spread(pairs, self.repeats, None)

    def clauses_at(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The clause of each row, which its tests that are made last are counted by, too."""
        return rows if self.repeats is None else self.repeats.at(rows)

    @property
    def clauses_by_row(self) -> Clauses:
        """With as many as there are rows."""
        return self.clauses if self.repeats is None else self.clauses.take(self.repeats.at(np.arange(len(self))))

    def texts_at(self, rows: NDArray[Any]) -> pa.Array:
        return self.texts.take(from_numpy(rows if self.spellings is None else self.spellings.at(rows)))

    def match_constants(self, events: EventValues, threads: int) -> Pairs:
        """The clauses (not the rows) that match if all their joins are as they would like to have them."""
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
        return self.is_indexed and getattr(self.index, "pending", None) is not None

    def weights_at(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        return np.full(len(rows), DEFAULT_WEIGHT) if self.weights is None else self.weights[rows]

    def presence(self) -> NDArray[np.float64] | None:
        """The share of events that have each attribute, if its index is one that knows."""
        if isinstance(self.made, Unmade) and not self.is_indexed:
            return self.made.presence()
        return self.index.presence() if isinstance(self.index, Auto) else None

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
    def joins_by_clause(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Clause r mentions the joins of the places [offsets[r], offsets[r + 1]) of the second array, which are places
        in `joins`; some perhaps twice."""
        known = {name: number for number, name in enumerate(self.joins)}
        attributes = self.domains.attributes
        place = np.fromiter((known.get(name, -1) for name, _ in attributes), np.int64, len(attributes))
        of_step = place[self.clauses.attribute]
        row = np.repeat(np.arange(len(self.clauses)), np.diff(self.clauses.offsets))
        offsets = np.zeros(len(self.clauses) + 1, np.int64)
        np.cumsum(np.bincount(row[of_step >= 0], minlength=len(self.clauses)), out=offsets[1:])
        return offsets, of_step[of_step >= 0]

    def joins_of(self, rows: NDArray[np.int64]) -> set[str]:
        """The joins that these subscriptions mention."""
        numbers = [number for number, (name, _) in enumerate(self.domains.attributes) if is_join(name)]
        if not numbers:
            return set()
        own = self.clauses_at(rows)
        own = self.clauses.attribute[runs(self.clauses.offsets[own], np.diff(self.clauses.offsets)[own])]
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
            "residuals": 0 if self.residuals is None else self.residuals.nbytes,
            "repeats": sum(runs.first.nbytes for runs in (self.repeats, self.spellings) if runs is not None),
        }


def _verify(index: Index, events: CodedEvents, verifier: Verifier, threads: int, sink: Sink | None) -> Pairs:
    """The pairs of which the tests that are made last hold too."""
    found = 0
    if sink is not None:
        given, lock = sink, threading.Lock()

        def counting(event: NDArray[np.int32], row: NDArray[np.int32]) -> None:
            nonlocal found
            kept = verifier.pairs(event, row)
            with lock:
                found += len(kept[0])
            given(*kept)

        pairs = index.match(events, threads, counting)
    else:
        pairs = index.match(events, threads, None)
    chunks = [verifier.pairs(*chunk) for chunk in pairs.chunks]
    return replace(pairs, chunks=chunks, count=found + sum(len(event) for event, _ in chunks))


def _spread(pairs: Pairs, repeats: RowRuns, spreading: Spreading | None) -> Pairs:
    """Pairs of events and clauses as those of events and rows. Who looks at a clause looks at all its rows."""
    chunks = [repeats.spread(chunk) for chunk in pairs.chunks]
    count = sum(len(event) for event, _ in chunks) + (0 if spreading is None else spreading.count)
    return replace(pairs, chunks=chunks, count=count, candidates=pairs.candidates + count - pairs.count)


class Choice(NamedTuple):
    """Which index segments get, its settings (of this process), and its options, which are saved with it."""

    name: str
    settings: tuple[tuple[str, Any], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()  # those that differ from the defaults, in the structure's order

    def is_of(self, index: Index) -> bool:
        """Whether the index is as it would be built."""
        return index.name == self.name and options_in(index) == dict(self.options)

    def build(self, domains: Domains, clauses: Clauses, like: Segment | None = None) -> Index | Unmade:
        """like: a segment of the same matcher, from which something may be known of the events."""
        settings = dict(self.settings) | dict(self.options)
        known = like.presence() if self.name == AUTO and like is not None else None
        if like is not None and known is not None:
            settings["presence"] = _presence(known, like.domains, domains, clauses)
        if self.name == AUTO and len(clauses) <= MERGED_AT_ONCE.value:
            return Unmade(clauses, settings)
        return create(self.name, clauses, **settings)


def _presence(
    known: NDArray[np.float64], known_domains: Domains, domains: Domains, clauses: Clauses
) -> NDArray[np.float64]:
    """The share of events that have each attribute: as the other segment knows it, which is larger or has met them."""
    number = np.fromiter(
        map(known_domains.number_of.get, domains.attributes, repeat(-1)), np.int64, len(domains.attributes)
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
    table, residuals = split(compiled.table)
    domains, clauses = code_declared(table, compiled.domains)
    rows = compiled.order
    if clauses.conjunctions < len(clauses):
        joins = np.array([is_join(name) for name, _ in domains.attributes], np.bool_)
        gapless = (domains.facet == Facet.PATTERN) | (domains.facet == Facet.NO_PATTERN)
        clauses, place = join_alternatives(clauses, joins, gapless)
        rows = rows[place]
        residuals = join([(residuals, np.argsort(place))], len(clauses))
    shared = share(clauses, residuals, lambda: texts.take(from_numpy(rows)))
    if shared is not None:
        clauses, residuals, rows = shared.clauses, shared.residuals, rows[shared.place]
    if not np.array_equal(rows, np.arange(len(ids))):
        order = from_numpy(rows)
        ids, texts = ids.take(order), texts.take(order)
        weights = None if weights is None else weights[rows]
        versions = versions[rows]
    texts = texts if shared is None else shared.texts
    index = choice.build(domains, clauses, like)
    runs = NO_RUNS if shared is None else shared.runs
    return Segment(IdIndex(ids), texts, weights, versions, domains, clauses, index, residuals, *runs)


class Joined:
    """Segments on the way to one: the given rows of each part (whose ids are of one type). Everything but the index is
    made at once; `index_rows` completes it."""

    def __init__(self, parts: Sequence[tuple[Segment, NDArray[np.int64]]]):
        self._parts = parts
        self._domains, moves = merge_domains([s.domains for s, _ in parts])
        moving = [(s.clauses, s.clauses_at(rows), move) for (s, rows), move in zip(parts, moves)]
        self._clauses, self._place = move_clauses(moving, len(self._domains.attributes))
        self._residuals = None
        if any(s.residuals is not None for s, _ in parts):
            self._residuals = join(self._tests_by_row(), len(self._place))
        self._runs: tuple[RowRuns | None, RowRuns | None] = NO_RUNS
        shared = share(self._clauses, self._residuals, self._texts_by_row)
        if shared is not None:
            self._clauses, self._residuals, self._runs = shared.clauses, shared.residuals, shared.runs
            self._place = self._place[shared.place]
        self._texts = self._texts_by_row() if shared is None else shared.texts
        order = from_numpy(self._place)
        self._ids = IdIndex(pa.concat_arrays([s.ids.ids.take(from_numpy(rows)) for s, rows in parts]).take(order))
        self._versions = np.concatenate([s.versions[rows] for s, rows in parts])[self._place]
        self._weights = None
        if any(s.weights is not None for s, _ in parts):
            self._weights = np.concatenate([s.weights_at(rows) for s, rows in parts])[self._place]

    def index_rows(self, choice: Choice, like: Segment | None = None) -> Segment:
        """The segment (like: see Choice.build; else the largest part)."""
        like = like or max((s for s, _ in self._parts), key=len)
        index = choice.build(self._domains, self._clauses, like)
        own = self._versions, self._domains, self._clauses, index, self._residuals
        return Segment(self._ids, self._texts, self._weights, *own, *self._runs)

    def _texts_by_row(self) -> pa.Array:
        return pa.concat_arrays([s.texts_at(rows) for s, rows in self._parts]).take(from_numpy(self._place))

    def _tests_by_row(self) -> list[tuple[Residuals | None, NDArray[np.int64]]]:
        """The tests of each part by row, and where all its rows have gone; -1: nowhere."""
        found = []
        for (segment, rows), gone_to in zip(self._parts, self.rows()):
            to = np.full(len(segment), -1, np.int64)
            to[rows] = gone_to
            tests = segment.residuals
            if tests is not None and segment.repeats is not None:
                tests = tests.take(segment.repeats.at(np.arange(len(segment))))
            found.append((tests, to))
        return found

    def rows(self) -> list[NDArray[np.int64]]:
        """Where each part's given rows have gone."""
        gone_to = np.empty(len(self._place), np.int64)
        gone_to[self._place] = np.arange(len(self._place))
        bounds = np.cumsum([0, *(len(rows) for _, rows in self._parts)])
        return [gone_to[a:b] for a, b in zip(bounds, bounds[1:])]


def merge(parts: Sequence[tuple[Segment, NDArray[np.int64]]], choice: Choice) -> Segment:
    """One segment of the given rows of each part."""
    return Joined(parts).index_rows(choice)
