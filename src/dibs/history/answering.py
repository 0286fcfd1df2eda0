"""The answers of joins for events: by kernels (coded/), or, where these do not take a join, by the reference.

Of joins with values that are computed from the event and a document together, or with joins within them, kernels find
the documents for which that is done. The joins within are answered as these are: an event with one of its documents is
an event for them (coded/candidates.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from dibs.coding.values import EventValues
from dibs.history.coded.answers import NO_MEMO, Answering, one_view, view_of, with_answers
from dibs.history.coded.candidates import DERIVED_AT_ONCE, PairedJoins
from dibs.history.coded.columns import DocumentSnapshot
from dibs.history.coded.program import Compiled
from dibs.history.keys import Derived, cell_of, cells_of, events_between, plain_values, with_derived
from dibs.history.plan import Needed, plan_of
from dibs.history.state import HistoryState
from dibs.language.joins import COUNT, EXISTS, text_of
from dibs.reference import ValuesByName
from dibs.reference.joins import compared, is_met, values_of_found


class Answerer:
    """The joins of these names."""

    def __init__(self, names: Sequence[str]):
        self.plans = [plan_of(name) for name in names]
        self._answering = Answering(self.plans)
        self._paired = PairedJoins(self.plans, self._answering.left, Answerer)
        self.compiled: list[Compiled] = [self._answering.compiled, *self._paired.compiled]
        self._left = sorted(set(self._answering.left) - set(self._paired.places))

    def tell(self) -> list[str]:
        """Which joins are answered one document at a time, in words."""
        lines = []
        if self._left:
            some = text_of(self.plans[self._left[0]].join)
            lines.append(f"answered without kernels: {len(self._left):,}, as {some}")
        if self._paired.places:
            some = text_of(self.plans[self._paired.places[0]].join)
            lines.append(f"computed for each document that may do: {len(self._paired.places):,}, as {some}")
        return lines

    def asked_by_reference(self) -> list[str]:
        """The attributes of documents whose values are looked at in Python."""
        return sorted({name for place in self._answering.left for name in self.plans[place].attributes})

    def answer(
        self, values: EventValues, needed: Needed | None, states: Sequence[HistoryState], snapshot: DocumentSnapshot
    ) -> EventValues:
        """The events with the answers. needed: event, join. states: one for all events, or one for each."""
        found = self._answer_by_reference(values, needed, states) if self._left else []
        if self._paired.places:
            found += self._answer_pairs(values, needed, states, snapshot)
        codes = np.array([values.names.codes[name] for name in self._answering.names], np.int32)  # type: ignore[attr-defined]
        joins = self._answering.bind(snapshot)[0].joins
        size = max(1, DERIVED_AT_ONCE.value // max(len(codes), 1))
        parts = []
        for first in range(0, values.events, size):
            end = min(first + size, values.events)
            some = events_between(values, first, end) if values.events > size else values
            view = (
                one_view(states[0], end - first, snapshot.base)
                if len(states) == 1
                else view_of(states[first:end], snapshot.base)
            )
            memo = self._answering.memo(states[0]) if len(states) == 1 else NO_MEMO
            own = None if needed is None else needed[first:end][:, self._answering.taken]
            parts.append((first, *self._answering.answer(some, snapshot, view, own, memo)))
        none = np.zeros(len(values.names), np.bool_)
        return with_derived(with_answers(values, codes, joins, snapshot, parts), none, found)

    def _answer_by_reference(
        self, values: EventValues, needed: Needed | None, states: Sequence[HistoryState]
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
                    every = [plain_document(state, row, asked, documents) for row in state.rows()]
                    found = [document for document in every if is_met(plan.join, event, document, every)]
                if plan.is_fixed:
                    fixed[place_of_state, place] = found
                code = values.names.codes[plan.name]  # type: ignore[attr-defined]
                answers += [(number, code, cell_of(v)) for v in values_of_found(plan.join, event, found)]
        return answers

    def _answer_pairs(
        self, values: EventValues, needed: Needed | None, states: Sequence[HistoryState], snapshot: DocumentSnapshot
    ) -> list[Derived]:
        """The answers for which something is computed from event and document together."""
        one = len(states) == 1
        view = one_view(states[0], values.events, snapshot.base) if one else view_of(states, snapshot.base)
        answers: list[Derived] = []
        for place, event, row in self._paired.find(values, snapshot, view, states, needed):
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


def plain_events(values: EventValues, names: Collection[str]) -> list[dict[str, list[Any]]]:
    """The values of these attributes of events as the reference has them."""
    events: list[dict[str, list[Any]]] = [{} for _ in range(values.events)]
    for name, by_event in cells_of(values, names).items():
        for number, cells in by_event.items():
            events[number][name] = plain_values(cells)
    return events


def plain_document(state: HistoryState, row: int, names: Sequence[str], known: dict[int, ValuesByName]) -> ValuesByName:
    """A document as the reference has it. known: those that were asked for before."""
    found = known.get(row)
    if found is None:
        cells = {name: state.column(name)[row - state.base] for name in names}
        found = known[row] = {name: plain_values(own) for name, own in cells.items() if own}
    return found
