"""From events to events with the values of joins: the step before anything is matched.

Each join that some subscription mentions is answered at most once for an event, whatever the number of subscriptions
that share it: this is the join table of section 4.2 of the paper, whose profile bit vectors are the index over the
subscriptions, in which a join is an attribute like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from dibs.coding.values import EventValues
from dibs.history.evaluate import answer
from dibs.history.history import History, remembered
from dibs.history.keys import Derived, EventCells, cells_of, with_derived
from dibs.history.plan import plan_of
from dibs.history.sources import documents_of
from dibs.history.state import State
from dibs.history.verify import Event


class Joins:
    """The joins that some subscriptions mention, and the numbers of their names among those of a batch."""

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.plans = [plan_of(name) for name in names]
        self.event_attributes = {name for plan in self.plans for name in plan.event_attributes}
        self.document_attributes = {name for plan in self.plans for name in plan.attributes}

    def derived(self, values: EventValues, state: State) -> EventValues:
        """The events with what joins say of them and of the documents of a state."""
        events = self._events(values)
        found: list[Derived] = []
        for number, event in enumerate(events):
            found += self._answers(number, event, state, values)
        return self._with(values, found)

    def derived_in_turn(self, values: EventValues, states: Iterable[State]) -> EventValues:
        """The same for events each of which has a state of its own."""
        found: list[Derived] = []
        for number, (event, state) in enumerate(zip(self._events(values), states)):
            found += self._answers(number, event, state, values)
        return self._with(values, found)

    def _events(self, values: EventValues) -> list[Event]:
        events: list[dict[str, EventCells]] = [{} for _ in range(values.events)]
        for name, by_event in cells_of(values, self.event_attributes).items():
            for event, cells in by_event.items():
                events[event][name] = cells
        return events  # type: ignore[return-value]

    def _answers(self, number: int, event: Event, state: State, values: EventValues) -> Collection[Derived]:
        codes = values.names.codes  # type: ignore[attr-defined]
        return [(number, codes[plan.name], cell) for plan in self.plans for cell in answer(plan, state, event)]

    def _with(self, values: EventValues, found: list[Derived]) -> EventValues:
        is_join = np.zeros(len(values.names), np.bool_)
        codes = values.names.codes  # type: ignore[attr-defined]
        is_join[[codes[plan.name] for plan in self.plans]] = True
        return with_derived(values, is_join, found)


class Remembering:
    """Events that are matched and then added to the history, whose lock is held meanwhile. Nothing is added before
    `remember`."""

    def __init__(self, history: History, events: Any, attributes: str | None):
        self._history = history
        self._attributes = attributes
        self._next: State | None = None
        source = events.encode() if isinstance(events, str) else events  # a path is no event
        self.rows = documents_of(source)  # which can be read twice, and is the history's own

    def derived(self, joins: Joins, values: EventValues) -> EventValues:
        """The events with what joins say of them and of all that came before each."""
        history = self._history
        history.check()
        state = history.state
        state.make_columns(sorted(joins.document_attributes))
        unreadable = frozenset(values.unreadable_events.tolist())
        states = remembered(history, state, self.rows, self._attributes, unreadable)
        values = joins.derived_in_turn(values, states)
        for self._next in states:
            pass
        return values

    def remember(self) -> None:
        assert self._next is not None, "the events were read"
        self._history.put(self._next)
