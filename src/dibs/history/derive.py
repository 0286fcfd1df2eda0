"""From events to events with the values of joins: the step before anything is matched.

Each join that some subscription mentions is answered at most once for an event, whatever the number of subscriptions
that share it: this is the join table of section 4.2 of the paper, whose profile bit vectors are the index over the
subscriptions, in which a join is an attribute like any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.values import EventValues
from dibs.history.evaluate import answer
from dibs.history.history import History, remembered
from dibs.history.keys import Derived, EventCells, cells_of, with_derived
from dibs.history.phases import Candidates, Costs, needed_joins
from dibs.history.plan import plan_of
from dibs.history.sources import documents_of
from dibs.history.state import State
from dibs.history.verify import Event
from dibs.language.joins import text_of
from dibs.thresholds import thresholds


class Joins:
    """The joins that some subscriptions mention."""

    def __init__(self, names: tuple[str, ...], costs: Costs):
        self.names = names
        self.plans = [plan_of(name) for name in names]
        self.event_attributes = {name for plan in self.plans for name in plan.event_attributes}
        self.document_attributes = {name for plan in self.plans for name in plan.attributes}
        self._costs = costs

    def derived(
        self, values: EventValues, candidates: Callable[[EventValues], Candidates], states: Iterable[State]
    ) -> EventValues:
        """The events with what joins say of them, each with the documents of its own state. candidates: which
        subscriptions may match events, and their joins."""
        none = np.zeros(len(values.names), np.bool_)
        values = with_derived(values, self._codes(values), [])
        needed = None
        if self._costs.constants_first(len(self.plans)):
            needed = needed_joins(self.plans, values, candidates, self._costs)
        codes = [values.names.codes[plan.name] for plan in self.plans]  # type: ignore[attr-defined]
        numbered = list(zip(codes, self.plans))
        found: list[Derived] = []
        begin, answered = time.perf_counter(), 0
        for number, (event, state) in enumerate(zip(self._events(values), states)):
            asked = numbered if needed is None else [numbered[place] for place in np.flatnonzero(needed[number])]
            found += [(number, code, cell) for code, plan in asked for cell in answer(plan, state, event)]
            answered += len(asked)
            if len(found) > thresholds.derived_at_once:
                values, found = with_derived(values, none, found), []
        if answered:
            self._costs.note(a_join=(time.perf_counter() - begin) / answered)
        return with_derived(values, none, found)

    def told(self) -> list[str]:
        """In which order joins and constants are looked at, and why; and which joins are slow."""
        lines = [f"order: {self._costs.told(len(self.plans))}"]
        slow = [text_of(plan.join) for plan in self.plans if plan.tests_all]
        if slow:
            lines.append(f"answered by testing every document: {len(slow):,}, as {slow[0]}")
        return lines

    def _events(self, values: EventValues) -> list[Event]:
        events: list[dict[str, EventCells]] = [{} for _ in range(values.events)]
        for name, by_event in cells_of(values, self.event_attributes).items():
            for event, cells in by_event.items():
                events[event][name] = cells
        return events  # type: ignore[return-value]

    def _codes(self, values: EventValues) -> NDArray[np.bool_]:
        """Which names of a batch are joins."""
        is_join = np.zeros(len(values.names), np.bool_)
        codes = values.names.codes  # type: ignore[attr-defined]
        is_join[[codes[plan.name] for plan in self.plans]] = True
        return is_join


class Remembering:
    """Events that are matched and then added to the history, whose lock is held meanwhile. Nothing is added before
    `remember`."""

    def __init__(self, history: History, events: Any, attributes: str | None):
        self._history = history
        self._attributes = attributes
        self._states: Iterator[State] = iter(())
        source = events.encode() if isinstance(events, str) else events  # a path is no event
        self.rows = documents_of(source)  # which can be read twice, and is the history's own

    def states(self, joins: Joins | None, values: EventValues) -> Iterator[State]:
        """The state before each of the events."""
        history = self._history
        history.check()
        state = history.state
        if joins is not None:
            state.make_columns(sorted(joins.document_attributes))
        unreadable = frozenset(values.unreadable_events.tolist())
        self._states = remembered(history, state, self.rows, self._attributes, unreadable)
        return self._states

    def remember(self) -> None:
        """Adds them all."""
        for state in self._states:
            last = state
        self._history.put(last)
