"""Joins with values that are computed from the event and a document together (language.pairing), or with others within.

Each conjunction is answered in steps: kernels list the documents that satisfy what does not mix both, through indexes
as always; for each of these pairs the values are computed, over columns, by what computes those of events
(coding.computed): a pair is an event with the attributes of both. For the pairs that are left the joins within are
answered, as for any events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import runs
from dibs.coding.computed import compute
from dibs.coding.computed.program_layout import MOST_COMBINATIONS
from dibs.coding.events.wanted import WantedNames
from dibs.coding.values import Booleans, EventValues, Numbers, Strings, Times, Unreadable, rows_where
from dibs.history.coded.answer_kernels import count_candidates, list_candidates
from dibs.history.coded.answers import room_for_totals, with_values
from dibs.history.coded.columns import DocumentSnapshot
from dibs.history.coded.known import Ints
from dibs.history.coded.layout import SEVERAL, STRING, UNREADABLE, Asked, View
from dibs.history.coded.operands import operands_of
from dibs.history.coded.program import Builder, Compiled, conjunctions_of
from dibs.history.keys import cells_of, plain_values
from dibs.history.plan import JoinPlan, conjunction_of
from dibs.language.expression import TRUE, And, Compare, IsNull, Predicate
from dibs.language.joins import join_within, read_of_pair
from dibs.language.pairing import NOW, name_in_pair
from dibs.language.printer import PAIRED, YES, is_condition, is_paired
from dibs.reference import truth_of
from dibs.tuning import tuned

if TYPE_CHECKING:
    from dibs.history.state import HistoryState

DERIVED_AT_ONCE = tuned("derived_at_once", 1 << 20, 1, "answers", "to joins that are given by one call of the kernel")


_ALL = 1 << 40


class _Listed(NamedTuple):
    """One conjunction of a join."""

    place: int  # of the join among the plans
    number: int  # of the join that lists its candidates
    leaves: tuple[Predicate, ...]  # what is left to be computed for each of them
    joins: tuple[Predicate, ...]  # and what is asked of joins within


class Within(Protocol):
    """What answers joins within joins (history.answering)."""

    compiled: list[Compiled]

    def answer(
        self,
        values: EventValues,
        needed: NDArray[np.bool_] | None,
        states: Sequence[HistoryState],
        snapshot: DocumentSnapshot,
    ) -> EventValues: ...


class _Pairs:
    """What is read of events and documents to make pairs of them, and what that gives."""

    def __init__(self, leaves: Sequence[Predicate], most: int):
        """most: values of an attribute of a document that are read."""
        self._most = most
        read = [read_of_pair(leaf.attribute) for leaf in leaves]
        joins = [join for leaf in leaves if (join := join_within(leaf.attribute)) is not None]
        self.events = sorted({name for events, _ in read for name in events})
        self.documents = sorted({name for _, documents in read for name in documents})
        self.names = tuple(sorted({leaf.attribute[len(PAIRED) :] for leaf in leaves}))
        asked = (name for join in joins for name in join.event_attributes)
        self.wanted = WantedNames([*self.names, *asked]).at_time_of(name_in_pair(NOW, True))

    def compute(self, values: EventValues, snapshot: DocumentSnapshot, event: Ints, row: Ints) -> EventValues:
        return compute_pairs(values, snapshot, event, row, self.events, self.documents, self.wanted, self._most)

    def sizes(self, values: EventValues, snapshot: DocumentSnapshot, event: Ints, row: Ints) -> Ints:
        """How much is read of each pair: values, and their bytes."""
        is_read = np.zeros(len(values.names), np.bool_)
        is_read[[values.names.codes[name] for name in self.events]] = True  # type: ignore[attr-defined]
        of_event = np.zeros(values.events, np.int64)
        for rows in (values.numbers, values.strings, values.times, values.booleans, values.unreadable):
            of_event += np.bincount(rows.event[is_read[rows.name]], minlength=values.events)
        s, own = values.strings, is_read[values.strings.name]
        of_event += np.bincount(s.event[own], np.diff(s.offsets)[own] >> 4, values.events).astype(np.int64)
        for number, code, _ in values.ranges:
            of_event[number] += is_read[code]
        rows_of, place = np.unique(row, return_inverse=True)
        of_row = np.zeros(len(rows_of), np.int64)
        for name in self.documents:
            for at, _, kind, _, tie in _of_documents(snapshot, snapshot.columns[name], rows_of, 0, self._most):
                text = np.where(kind == STRING, tie, 0)
                size = 1 + (snapshot.texts.start[text + 1] - snapshot.texts.start[text] >> 4)
                of_row += np.bincount(at, size, len(rows_of)).astype(np.int64)
        return of_event[event] + of_row[place]


class PairedJoins:
    """Those of the plans at these places that can be answered so."""

    def __init__(self, plans: Sequence[JoinPlan], places: Sequence[int], answerer: Callable[[Sequence[str]], Within]):
        builder = Builder()
        self._parts: list[_Listed] = []
        for place in places:
            for form in conjunctions_of(plans[place].join.condition) or ():
                tests = tuple(predicate for predicate in form if not is_paired(predicate.attribute))
                number = builder.add_rows([conjunction_of(And(tests) if tests else TRUE, None)])
                paired = [predicate for predicate in form if is_paired(predicate.attribute)]
                leaves = tuple(leaf for leaf in paired if join_within(leaf.attribute) is None)
                joins = tuple(leaf for leaf in paired if join_within(leaf.attribute) is not None)
                self._parts.append(_Listed(place, number, leaves, joins))
        self.places = sorted({part.place for part in self._parts})
        self._computed = _Pairs([leaf for part in self._parts for leaf in part.leaves], MOST_COMBINATIONS + 1)
        self._asked = _Pairs([leaf for part in self._parts for leaf in part.joins], _ALL)
        for name in (*self._computed.documents, *self._asked.documents):
            builder.add_name(name)
        self._compiled = builder.compile()
        self._within = answerer(self._asked.names) if self._asked.names else None
        self.compiled = [self._compiled] if self.places else []  # and those of the joins within
        self.compiled += self._within.compiled if self._within is not None else []

    def find(
        self,
        values: EventValues,
        snapshot: DocumentSnapshot,
        view: View,
        states: Sequence[HistoryState],
        needed: NDArray[np.bool_] | None = None,
    ) -> Iterator[tuple[int, Ints, Ints]]:
        """(place, events, documents) of all pairs that satisfy a join, by event and document. states: one for all
        events, or one for each. needed: event, place."""
        program, ends = self._compiled.bind(snapshot)
        operands = operands_of(values, self._compiled, ends, snapshot)
        tally = room_for_totals(program.joins.function, snapshot.size)
        tests, conjunctions, joins, slots = program.tests, program.conjunctions, program.joins, program.slots
        seen = np.zeros(snapshot.size, np.int32)
        asked = Asked(
            snapshot.table.address, snapshot.documents, operands, tests, conjunctions, joins, view, slots, seen, tally
        )
        for place in self.places:
            events = np.arange(values.events) if needed is None else np.flatnonzero(needed[:, place])
            found = [
                pairs
                for part in self._parts
                if part.place == place
                for pairs in self._satisfy(part, asked, events, values, snapshot, states)
            ]
            event, row = (np.concatenate([np.empty(0, np.int64), *each]) for each in (list(zip(*found)) or [(), ()]))
            order = np.lexsort((row, event))
            event, row = event[order], row[order]
            is_new = np.append(True, (event[1:] != event[:-1]) | (row[1:] != row[:-1]))[: len(event)]
            yield place, event[is_new], row[is_new]

    def _satisfy(
        self,
        part: _Listed,
        asked: Asked,
        events: Ints,
        values: EventValues,
        snapshot: DocumentSnapshot,
        states: Sequence[HistoryState],
    ) -> Iterator[tuple[Ints, Ints]]:
        """The pairs that satisfy a conjunction, some at a time."""
        asked.seen[:] = 0
        counts = count_candidates(asked, events, part.number)
        total = np.append(0, np.cumsum(counts))
        first = 0
        while first < len(events):
            end = max(first + 1, int(np.searchsorted(total, total[first] + DERIVED_AT_ONCE.value, "right")) - 1)
            offsets = total[first : end + 1] - total[first]
            asked.seen[:] = 0
            row = list_candidates(asked, events[first:end], part.number, offsets).astype(np.int64)
            event = np.repeat(events[first:end], counts[first:end])
            if part.leaves:
                event, row = self._some_at_a_time(self._computed, first_of(values), snapshot, part.leaves, event, row)
            if part.joins:
                event, row = self._some_at_a_time(self._asked, values, snapshot, part.joins, event, row, states)
            yield event, row
            first = end

    def _some_at_a_time(
        self,
        pairs: _Pairs,
        values: EventValues,
        snapshot: DocumentSnapshot,
        leaves: Sequence[Predicate],
        event: Ints,
        row: Ints,
        states: Sequence[HistoryState] | None = None,
    ) -> tuple[Ints, Ints]:
        """The pairs that satisfy all of these; only so much of them is there at once, whatever an event has. states: of
        joins within."""
        cuts = np.cumsum(pairs.sizes(values, snapshot, event, row)) // DERIVED_AT_ONCE.value
        found = [(event[:0], row[:0])]
        for part in np.split(np.arange(len(event)), np.flatnonzero(np.diff(cuts)) + 1):
            if len(part):
                e, r = event[part], row[part]
                both = pairs.compute(values, snapshot, e, r)
                if states is not None:
                    assert self._within is not None
                    own = states if len(states) == 1 else [states[each] for each in e.tolist()]
                    both = self._within.answer(both, None, own, snapshot)
                found.append(_kept(both, leaves, e, r))
        event, row = map(np.concatenate, zip(*found))
        return event, row


def first_of(values: EventValues) -> EventValues:
    """With no more values of an attribute than tell that there are too many to compute with."""

    def is_first(event: Ints, name: Ints) -> NDArray[np.bool_]:
        group = event.astype(np.int64) * len(values.names) + name
        order = np.argsort(group, kind="stable")
        place = np.arange(len(group))
        found = np.empty(len(group), np.bool_)
        begins = np.maximum.accumulate(np.where(np.diff(group[order], prepend=-1) != 0, place, 0))
        found[order] = place - begins <= MOST_COMBINATIONS
        return found

    tables = (values.numbers, values.strings, values.times, values.booleans)
    if max(len(rows.event) for rows in tables) <= MOST_COMBINATIONS:
        return values
    return replace(values, **rows_where(values, is_first))


def compute_pairs(
    values: EventValues,
    snapshot: DocumentSnapshot,
    event: Ints,
    row: Ints,
    events: Sequence[str],
    documents: Sequence[str],
    wanted: WantedNames,
    most: int,
) -> EventValues:
    """Pairs of events (in order) and documents as events, with what is computed from both."""
    codes, own_codes = wanted.codes, values.names.codes  # type: ignore[attr-defined]
    place = np.full(len(values.names), -1, np.int64)
    for name in events:
        place[own_codes[name]] = codes[name_in_pair(name, True)]
    both = _of_events(values, event, place, wanted)
    found: list[tuple[Ints, ...]] = []
    for name in documents:
        found += _of_documents(snapshot, snapshot.columns[name], row, codes[name_in_pair(name, False)], most)
    if found:
        pair, code, kind, key, tie = (np.concatenate(each) for each in zip(*found))
        bad = kind == UNREADABLE
        own = [each[~bad] for each in (pair, code, kind, key, tie)]
        both = with_values(both, own[0], own[1], own[2], own[3], own[4], snapshot)
        u = both.unreadable
        lost = Unreadable(np.append(u.event, pair[bad]).astype(np.int32), np.append(u.name, code[bad]).astype(np.int32))
        both = replace(both, unreadable=lost)
    return both if wanted.computed is None else compute(both, wanted.computed)


def _of_events(values: EventValues, event: Ints, place: Ints, wanted: WantedNames) -> EventValues:
    """The values of events, once for each of their pairs. place: by name, that of the pair, or -1."""
    numbers = np.arange(values.events + 1)
    start = np.searchsorted(event, numbers)
    size = np.diff(start)

    def repeat(rows: Any) -> tuple[Ints, Ints, Ints]:
        """The rows that are taken, their pairs, and their names."""
        kept = np.flatnonzero(place[rows.name] >= 0)
        times = size[rows.event[kept]]
        taken = np.repeat(kept, times)
        pair = runs(start[rows.event[kept]], times).astype(np.int32)
        return taken, pair, place[rows.name[taken]].astype(np.int32)

    n, s, t, b, u = values.numbers, values.strings, values.times, values.booleans, values.unreadable
    at, pair, name = repeat(n)
    made: dict[str, Any] = {"numbers": Numbers(pair, name, n.value[at], n.rest[at])}
    at, pair, name = repeat(t)
    made["times"] = Times(pair, name, t.microseconds[at])
    at, pair, name = repeat(b)
    made["booleans"] = Booleans(pair, name, b.value[at])
    at, pair, name = repeat(s)
    sizes = s.offsets[at + 1] - s.offsets[at]
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    data = s.data[np.repeat(s.offsets[at] - offsets[:-1], sizes) + np.arange(offsets[-1])]
    made["strings"] = Strings(pair, name, offsets, data)
    _, pair, name = repeat(u)
    made["unreadable"] = Unreadable(pair, name)
    ranges = [
        (int(p), int(place[code]), found)
        for e, code, found in values.ranges
        if place[code] >= 0
        for p in range(start[e], start[e] + size[e])
    ]
    return EventValues(len(event), wanted.names, ranges=ranges, **made)


def _of_documents(
    snapshot: DocumentSnapshot, column: int, row: Ints, code: int, most: int
) -> Iterator[tuple[Ints, ...]]:
    """(pair, name, kind, key, tie) of the values of an attribute of documents."""
    kind, key, tie = snapshot.kind[column, row], snapshot.key[column, row], snapshot.tie[column, row]
    single = np.flatnonzero(kind <= UNREADABLE)
    yield single, np.full(len(single), code), kind[single], key[single], tie[single]
    several = np.flatnonzero(kind == SEVERAL)
    size = np.minimum(tie[several].astype(np.int64), most)
    pair = np.repeat(several, size)
    at = runs(key[several], size)
    yield pair, np.full(len(pair), code), *(each[at] for each in snapshot.extra)


def _kept(both: EventValues, leaves: Sequence[Predicate], event: Ints, row: Ints) -> tuple[Ints, Ints]:
    """The pairs that satisfy all of these."""
    held = np.ones(len(event), np.bool_)
    for leaf in leaves:
        held &= _holds(both, leaf)
    return event[held], row[held]


def _holds(both: EventValues, leaf: Predicate) -> NDArray[np.bool_]:
    """Which pairs satisfy a test of what was computed, or of what joins within gave."""
    name = leaf.attribute[len(PAIRED) :]
    code = both.names.codes[name]  # type: ignore[attr-defined]
    held = np.zeros(both.events, np.bool_)
    if isinstance(leaf, Compare) and is_condition(name) and leaf.literal == YES:
        b = both.booleans
        held[b.event[(b.name == code) & (b.value == (leaf.operator == "="))]] = True
        return held
    if not isinstance(leaf, IsNull):
        own = leaf._replace(attribute=name)
        for pair, cells in cells_of(both, [name])[name].items():
            held[pair] = truth_of(own, {name: plain_values(cells)}) is True
        return held
    for rows in (both.numbers, both.strings, both.times, both.booleans):
        held[rows.event[rows.name == code]] = True
    if leaf.negated:
        return held
    held[both.unreadable.event[both.unreadable.name == code]] = True
    return ~held
