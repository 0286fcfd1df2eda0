"""From events to events with the values of joins: the step before anything is matched.

Each join that some subscription mentions is answered at most once for an event, whatever the number of subscriptions
that share it: this is the join table of section 4.2 of the paper, whose profile bit vectors are the index over the
subscriptions, in which a join is an attribute like any other.

Joins are answered by kernels (coded/), or, where these do not take one, by the reference. Of those with values that are
computed from the event and a document together, kernels find the documents for which that is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.events import read_events
from dibs.coding.events.json import json_content
from dibs.coding.values import EventValues
from dibs.history.coded.answers import NO_MEMO, Answering, one_view, view_of, with_answers
from dibs.history.coded.candidates import PairedJoins
from dibs.history.coded.columns import Snapshot
from dibs.history.coded.store import without_ranges
from dibs.history.history import History, Key, states_of_remembered
from dibs.history.keys import Derived, cell_of, cells_of, events_between, join_events, plain_values, with_derived
from dibs.history.plan import Candidates, Costs, Needed, Sizes, find_needed_joins, plan_of
from dibs.history.prefilter import Alive, PreFilter, find_several
from dibs.history.sources import documents_of
from dibs.history.state import Part, State
from dibs.language.joins import COUNT, EXISTS, text_of
from dibs.reference import ValuesByName
from dibs.reference.joins import compared, is_met, values_of_found
from dibs.segments.segment import Segment
from dibs.thresholds import thresholds


class Joins:
    """The joins that some subscriptions mention."""

    def __init__(self, names: tuple[str, ...], costs: Costs, prefilter: PreFilter):
        self.names = names
        self._prefilter = prefilter
        self.plans = [plan_of(name) for name in names]
        self.answering = Answering(self.plans)
        self.paired = PairedJoins(self.plans, self.answering.left)
        self.compiled = [self.answering.compiled, *([self.paired.compiled] if self.paired.places else [])]
        self._left = sorted(set(self.answering.left) - set(self.paired.places))
        self._costs = costs

    def derive(
        self,
        values: EventValues,
        candidates: Callable[[EventValues, Alive | None, NDArray[np.bool_]], Candidates],
        segments: Sequence[Segment],
        state: State,
        turn: Remembering | None = None,
    ) -> EventValues:
        """The events with what joins say of them and the documents of the state; with a turn, each with those of its
        own state. candidates: which subscriptions may match events, and their joins, without those that are not alive
        (but for the events that are told)."""
        values = with_derived(values, self._codes(values), [])
        if turn is not None:
            state = turn.state
        self._snapshot(state)  # before anything is measured
        alive = self._prefilter.follow(segments, state)
        all_of = np.zeros(values.events, np.bool_) if alive is None else find_several(values, alive.names)
        # Documents that are remembered revive subscriptions: which ones is known only chunk by chunk.
        needed = self._needed(values, candidates, segments, None if turn is not None else alive, all_of)
        begin = time.perf_counter()
        if turn is None:
            result = self._answer(values, needed, [state], self._snapshot(state))
        else:
            result = self._answer_in_turn(values, needed, turn, alive, all_of)
        took = time.perf_counter() - begin
        answered = values.events * len(self.plans) if needed is None else int(needed.sum())
        if answered:
            self._costs.note(a_join=took / answered)
        self._prefilter.note_answering(took)
        return result

    def _needed(
        self,
        values: EventValues,
        candidates: Callable[[EventValues, Alive | None, NDArray[np.bool_]], Candidates],
        segments: Sequence[Segment],
        alive: Alive | None,
        all_of: NDArray[np.bool_],
    ) -> Needed | None:
        """Which joins are answered for which event; None: all. all_of: the events for which none is dead."""
        n, s, t, b = values.numbers, values.strings, values.times, values.booleans
        given = len(n.event) + len(s.event) + len(t.event) + len(b.event)
        self._costs.note(attributes=given / max(values.events, 1))
        if self._costs.constants_first(len(self.plans)):
            for segment in segments:
                segment.prepare_constants()  # before anything is measured
            return find_needed_joins(self.plans, values, lambda some: candidates(some, alive, all_of), self._costs)
        return None if alive is None else self._of_alive(alive.joins, all_of)

    def _of_alive(self, joins: frozenset[str], all_of: NDArray[np.bool_]) -> Needed | None:
        """These joins, and all for some events."""
        is_alive = np.fromiter((plan.name in joins for plan in self.plans), np.bool_, len(self.plans))
        return None if is_alive.all() else is_alive | all_of[:, None]

    def tell(self, subscriptions: int, documents: int) -> list[str]:
        """In which order joins and constants are looked at, and why; and which joins are slow."""
        lines = [f"order: {self._costs.tell(Sizes(len(self.plans), documents, subscriptions))}"]
        lines.append(f"pre-filter: {self._prefilter.describe()}")
        slow = [text_of(plan.join) for plan in self.plans if plan.tests_all]
        if slow:
            lines.append(f"answered by testing every document: {len(slow):,}, as {slow[0]}")
        if self._left:
            some = text_of(self.plans[self._left[0]].join)
            lines.append(f"answered without kernels: {len(self._left):,}, as {some}")
        if self.paired.places:
            some = text_of(self.plans[self.paired.places[0]].join)
            lines.append(f"computed for each document that may do: {len(self.paired.places):,}, as {some}")
        return lines

    def _snapshot(self, state: State) -> Snapshot:
        return state.coded.at(state, *self.compiled)

    def _answer(
        self, values: EventValues, needed: Needed | None, states: Sequence[State], snapshot: Snapshot
    ) -> EventValues:
        """states: one for all events, or one for each."""
        found = self._answer_by_reference(values, needed, states) if self._left else []
        if self.paired.places:
            found += self._answer_pairs(values, needed, states, snapshot)
        codes = np.array([values.names.codes[name] for name in self.answering.names], np.int32)  # type: ignore[attr-defined]
        joins = self.answering.bind(snapshot)[0].joins
        size = max(1, thresholds.derived_at_once // max(len(codes), 1))
        parts = []
        for first in range(0, values.events, size):
            end = min(first + size, values.events)
            some = events_between(values, first, end) if values.events > size else values
            view = (
                one_view(states[0], end - first, snapshot.base)
                if len(states) == 1
                else view_of(states[first:end], snapshot.base)
            )
            memo = self.answering.memo(states[0]) if len(states) == 1 else NO_MEMO
            own = None if needed is None else needed[first:end][:, self.answering.taken]
            parts.append((first, *self.answering.answer(some, snapshot, view, own, memo)))
        none = np.zeros(len(values.names), np.bool_)
        return with_derived(with_answers(values, codes, joins, snapshot, parts), none, found)

    def _answer_in_turn(
        self,
        values: EventValues,
        needed: Needed | None,
        turn: Remembering,
        alive: Alive | None,
        all_of: NDArray[np.bool_],
    ) -> EventValues:
        """Each event with the documents before it. Those of a chunk of events become rows together, and an event sees
        only so many of them; after a chunk, the indexes follow."""
        left = [self.plans[place] for place in self.answering.left]
        states = turn.states(values, sorted({name for plan in left for name in plan.attributes}))
        if not states:
            return values
        questions = [] if alive is None else alive.compiled
        snapshot = states[0].coded.at(states[0], *self.compiled, *questions)
        types = turn.history.types
        rows = without_ranges(
            read_events(turn.rows, snapshot.attributes, attributes=turn.attributes, on_error="skip", types=types)
        )
        done: list[EventValues] = []
        size = thresholds.remembered_at_once
        for first in range(0, values.events, size):
            end = min(first + size, values.events)
            snapshot = snapshot.with_documents(events_between(rows, first, end), end - first)
            for compiled in self.compiled:
                snapshot = snapshot.with_patterns(compiled.patterns)
            own = None if needed is None else needed[first:end]
            if alive is not None:
                living = self._of_alive(alive.find_joins(snapshot), all_of[first:end])
                own = living if own is None else own if living is None else own & living
            done.append(self._answer(events_between(values, first, end), own, states[first:end], snapshot))
            for compiled in self.compiled:
                snapshot = snapshot.with_indexes(compiled.indexes)
        turn.snapshot = snapshot
        return join_events(values, done)

    def _answer_by_reference(
        self, values: EventValues, needed: Needed | None, states: Sequence[State]
    ) -> list[Derived]:
        """The answers that the kernels do not give: every document is looked at."""
        answers: list[Derived] = []
        plans = [(place, self.plans[place]) for place in self._left]
        wanted = {name for _, plan in plans for name in plan.event_attributes}
        asked = sorted({name for _, plan in plans for name in plan.attributes})
        events = plain_events(values, wanted)
        documents: dict[int, ValuesByName] = {}
        fixed: dict[tuple[int, int], list[ValuesByName]] = {}  # state, join: what all events find alike
        for number, event in enumerate(events):
            place_of_state = 0 if len(states) == 1 else number
            state = states[place_of_state]
            for place, plan in plans:
                if needed is not None and not needed[number, place]:
                    continue
                found = fixed.get((place_of_state, place))
                if found is None:
                    rows = (plain_document(state, row, asked, documents) for row in state.rows())
                    found = [document for document in rows if is_met(plan.join, event, document)]
                if plan.is_fixed:
                    fixed[place_of_state, place] = found
                code = values.names.codes[plan.name]  # type: ignore[attr-defined]
                answers += [(number, code, cell_of(v)) for v in values_of_found(plan.join, event, found)]
        return answers

    def _answer_pairs(
        self, values: EventValues, needed: Needed | None, states: Sequence[State], snapshot: Snapshot
    ) -> list[Derived]:
        """The answers for which something is computed from event and document together."""
        one = len(states) == 1
        view = one_view(states[0], values.events, snapshot.base) if one else view_of(states, snapshot.base)
        answers: list[Derived] = []
        for place, event, row in self.paired.find(values, snapshot, view, needed):
            plan = self.plans[place]
            code = values.names.codes[plan.name]  # type: ignore[attr-defined]
            asked = range(values.events) if needed is None else np.flatnonzero(needed[:, place]).tolist()
            ends = np.searchsorted(event, np.arange(values.events + 1)).tolist()
            if plan.join.function == EXISTS:
                answers += [(e, code, cell_of(ends[e + 1] > ends[e])) for e in asked]
                continue
            events = plain_events(values, plan.event_attributes)
            documents: dict[int, ValuesByName] = {}
            for e in asked:
                state = states[0 if one else e]
                rows = (row[ends[e] : ends[e + 1]] + snapshot.base).tolist()
                if plan.join.function == COUNT:
                    result: list[Any] = compared(plan.join, events[e], [len(rows)])
                else:
                    met = [plain_document(state, each, plan.attributes, documents) for each in rows]
                    result = values_of_found(plan.join, events[e], met)
                answers += [(e, code, cell_of(value)) for value in result]
        return answers

    def _codes(self, values: EventValues) -> NDArray[np.bool_]:
        """Which names of a batch are joins."""
        is_join = np.zeros(len(values.names), np.bool_)
        codes = values.names.codes  # type: ignore[attr-defined]
        is_join[[codes[plan.name] for plan in self.plans]] = True
        return is_join


def plain_events(values: EventValues, names: Collection[str]) -> list[dict[str, list[Any]]]:
    """The values of these attributes of events as the reference has them."""
    events: list[dict[str, list[Any]]] = [{} for _ in range(values.events)]
    for name, by_event in cells_of(values, names).items():
        for number, cells in by_event.items():
            events[number][name] = plain_values(cells)
    return events


def plain_document(state: State, row: int, names: Sequence[str], known: dict[int, ValuesByName]) -> ValuesByName:
    """A document as the reference has it. known: those that were asked for before."""
    found = known.get(row)
    if found is None:
        cells = {name: state.column(name)[row - state.base] for name in names}
        found = known[row] = {name: plain_values(own) for name, own in cells.items() if own}
    return found


class Remembering:
    """Events that are matched and then added to the history, whose lock is held meanwhile. Nothing is added before
    `remember`."""

    def __init__(self, history: History, events: Any, attributes: str | None, keys: Sequence[Key | None] | None = None):
        """keys: of each event, None for one without."""
        self.history = history
        self.keys = keys
        self.attributes = attributes
        self._states: Iterator[State] = iter(())
        self.snapshot: Snapshot | None = None  # with all of them, when joins were answered
        source = json_content(events) if isinstance(events, str) else events  # a path is no event
        self.rows = documents_of(source, attributes)  # which can be read twice, and is the history's own

    def are_all_known(self) -> bool:
        """Whether documents with the keys of all events are there, so that there is nothing to remember."""
        return self.keys is not None and all(key is not None and key in self.history for key in self.keys)

    @property
    def state(self) -> State:
        """What the first event sees."""
        return self.history.state

    def begin(self, values: EventValues) -> None:
        self.history.check()
        unreadable = frozenset(values.unreadable_events.tolist())
        part = Part(self.history.state.end, self.rows, self.attributes)
        self._states = states_of_remembered(self.history, part, unreadable, self.keys)

    def states(self, values: EventValues, names: Sequence[str]) -> list[State]:
        """The state before each of the events. names: the columns that will be asked of them, which must be there from
        the first one on: the documents themselves, of which they could be made later, are only with the last."""
        self.history.state.make_columns(names)
        return [next(self._states) for _ in range(values.events)]

    def remember(self) -> None:
        """Adds them all."""
        for state in self._states:
            last = state
        self.history.put(last)
        if self.snapshot is not None and self.snapshot.base == last.base:
            last.coded.put(self.snapshot)
