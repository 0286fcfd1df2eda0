"""From events to events with the values of joins: the step before anything is matched.

Each join that some subscription mentions is answered at most once for an event, whatever the number of subscriptions
that share it: this is the join table of section 4.2 of the paper, whose profile bit vectors are the index over the
subscriptions, in which a join is an attribute like any other.

How they are answered is in answering.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.events import read_events
from dibs.coding.events.json import json_content
from dibs.coding.values import EventValues
from dibs.history.answering import Answerer
from dibs.history.coded.columns import DocumentSnapshot
from dibs.history.coded.store import without_ranges
from dibs.history.history import History, Key, states_of_remembered
from dibs.history.keys import events_between, join_events, with_derived
from dibs.history.plan import Candidates, Costs, Needed, Sizes, find_needed_joins
from dibs.history.prefilter import Alive, PreFilter, find_several
from dibs.history.sources import documents_of
from dibs.history.state import HistoryState, Part
from dibs.language.joins import text_of
from dibs.segments.segment import Segment
from dibs.tuning import tuned

# documents of a batch cost 22 us a join and event until indexed
REMEMBERED_AT_ONCE = tuned("remembered_at_once", 256, 1, "events", "that become documents together in a batch")


class Joins:
    """The joins that some subscriptions mention."""

    def __init__(self, names: tuple[str, ...], costs: Costs, prefilter: PreFilter):
        self.names = names
        self._prefilter = prefilter
        self._answerer = Answerer(names)
        self.plans = self._answerer.plans
        self.compiled = self._answerer.compiled
        self._costs = costs

    def derive(
        self,
        values: EventValues,
        candidates: Callable[[EventValues, Alive | None, NDArray[np.bool_]], Candidates],
        segments: Sequence[Segment],
        state: HistoryState,
        turn: IngestBatch | None = None,
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
            result = self._answerer.answer(values, needed, [state], self._snapshot(state))
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
        return [*lines, *self._answerer.tell()]

    def _snapshot(self, state: HistoryState) -> DocumentSnapshot:
        return state.coded.at(state, *self.compiled)

    def _answer_in_turn(
        self,
        values: EventValues,
        needed: Needed | None,
        turn: IngestBatch,
        alive: Alive | None,
        all_of: NDArray[np.bool_],
    ) -> EventValues:
        """Each event with the documents before it. Those of a chunk of events become rows, and a run of the indexes,
        together, and an event sees only so many of them."""
        states = turn.states(values, self._answerer.asked_by_reference())
        if not states:
            return values
        questions = [] if alive is None else alive.compiled
        snapshot = states[0].coded.at(states[0], *self.compiled, *questions)
        types = turn.history.types
        rows = without_ranges(
            read_events(turn.rows, snapshot.attributes, attributes=turn.attributes, on_error="skip", types=types)
        )
        done: list[EventValues] = []
        size = REMEMBERED_AT_ONCE.value
        for first in range(0, values.events, size):
            end = min(first + size, values.events)
            snapshot = snapshot.with_documents(events_between(rows, first, end), end - first)
            for compiled in self.compiled:
                snapshot = snapshot.with_patterns(compiled.patterns).with_indexes(compiled.indexes, merge=False)
            own = None if needed is None else needed[first:end]
            if alive is not None:
                living = self._of_alive(alive.find_joins(snapshot), all_of[first:end])
                own = living if own is None else own if living is None else own & living
            some = events_between(values, first, end)
            done.append(self._answerer.answer(some, own, states[first:end], snapshot))
            for compiled in self.compiled:
                snapshot = snapshot.with_indexes(compiled.indexes)
        turn.snapshot = snapshot
        return join_events(values, done)

    def _codes(self, values: EventValues) -> NDArray[np.bool_]:
        """Which names of a batch are joins."""
        is_join = np.zeros(len(values.names), np.bool_)
        codes = values.names.codes  # type: ignore[attr-defined]
        is_join[[codes[plan.name] for plan in self.plans]] = True
        return is_join


class IngestBatch:
    """Events that are matched and then added to the history, whose lock is held meanwhile. Nothing is added before
    `remember`."""

    def __init__(self, history: History, events: Any, attributes: str | None, keys: Sequence[Key | None] | None = None):
        """keys: of each event, None for one without."""
        self.history = history
        self.keys = keys
        self.attributes = attributes
        self._states: Iterator[HistoryState] = iter(())
        self.snapshot: DocumentSnapshot | None = None  # with all of them, when joins were answered
        source = json_content(events) if isinstance(events, str) else events  # a path is no event
        self.rows = documents_of(source, attributes)  # which can be read twice, and is the history's own

    def are_all_known(self) -> bool:
        """Whether documents with the keys of all events are there, so that there is nothing to remember."""
        return self.keys is not None and all(key is not None and key in self.history for key in self.keys)

    @property
    def state(self) -> HistoryState:
        """What the first event sees."""
        return self.history.state

    def begin(self, values: EventValues) -> None:
        self.history.check()
        unreadable = frozenset(values.unreadable_events.tolist())
        part = Part(self.history.state.end, self.rows, self.attributes)
        self._states = states_of_remembered(self.history, part, unreadable, self.keys)

    def states(self, values: EventValues, names: Sequence[str]) -> list[HistoryState]:
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
