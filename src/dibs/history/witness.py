"""Why a join is what it is for an event, in words: the document that makes it so, or that none of them does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dibs.coding.events import read_events
from dibs.history.evaluate import answer, count, extremes, latest, witness
from dibs.history.keys import UNREADABLE, Cell, Cells, Span, cells_of, plain_value
from dibs.history.plan import Plan, plan_of
from dibs.history.state import State
from dibs.history.verify import Event, constant_test, holds, pair_of
from dibs.language.expression import And, Constant, Expression, IsNull, Or, PairCompare
from dibs.language.joins import COUNT, EXISTS, MAX_BY, MIN
from dibs.language.printer import interval_text, predicate_text

Explained = tuple[list[Any], str]  # the values of the attribute that stands for a join, and the reason
WIDTH = 40  # characters of a value


def explain_join(names: Iterable[str], event: Mapping[str, Any], state: State) -> dict[str, Explained]:
    """The joins of these names for one event."""
    plans = [plan_of(name) for name in dict.fromkeys(names)]
    wanted = {name for plan in plans for name in plan.event_attributes}
    found = cells_of(read_events([event], wanted, on_error="skip"), wanted)
    cells = {name: by_event[0] for name, by_event in found.items() if 0 in by_event}
    return {plan.name: _explain(plan, cells, state) for plan in plans}


def _explain(plan: Plan, event: Event, state: State) -> Explained:
    values = [plain_value(cell) for cell in answer(plan, state, event)]
    missing = [name for name in plan.event_attributes if not event.get(name)]
    lacking = f"; {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""
    return values, _reason(plan, event, state) + lacking


def _reason(plan: Plan, event: Event, state: State) -> str:
    join, total = plan.join, f"{len(state):,} document{'s' * (len(state) != 1)}"
    if join.function == EXISTS:
        row = witness(plan, state, event)
        if row is None:
            return f"none of {total} does" if len(state) else "there is no document"
        because = "; ".join(dict.fromkeys(_because(join.condition, row, state, event)))
        return f"because of {_name(state, row)}" + (f": {because}" if because else "")
    if join.function == COUNT:
        found = f"{count(plan, state, event):,} of {total}"
    elif join.function == MAX_BY:
        told = [
            f"{' or '.join(map(_value, state.column(str(join.attribute))[row - state.base]))} ({_name(state, row)})"
            for row in latest(plan, state, event)
        ]
        found = f"the last {join.attribute} by {join.by} of {total} is {' or '.join(told)}"
        if not told:
            found = f"none of {total} that count has a {join.attribute}" if len(state) else "there is no document"
    else:
        word = "least" if join.function == MIN else "greatest"
        ends = extremes(plan, state, event)
        told = [f"{_value(cell)} ({_name(state, row)})" for cell, row in ends]
        found = f"the {word} {join.attribute} of {total} is {' or '.join(told)}"
        if not ends:
            found = f"none of {total} that count has a {join.attribute}" if len(state) else "there is no document"
    own = event.get(join.event, ()) if join.event is not None else ()
    if join.factor is not None:
        found += f"; {join.factor:.15g} times that is compared"
    return f"{join.event} is {' or '.join(map(_value, own))}, {found}" if own else found


def _because(condition: Expression, row: int, state: State, event: Event) -> Iterator[str]:
    """What makes a condition TRUE that is TRUE for this document. (Trees are not deep.)"""

    def document(name: str) -> Cells:
        return state.column(name)[row - state.base]

    match condition:
        case Or(children):
            yield from _because(next(c for c in children if holds(c, document, event)), row, state, event)
        case And(children):
            for child in children:
                yield from _because(child, row, state, event)
        case PairCompare(attribute, operator, other, offset):
            pair = pair_of(condition, document(attribute), event[other])
            assert pair is not None, "it holds"
            yield f"{attribute} {_value(pair[0])} {operator} {_value(pair[1])}{interval_text(offset)}"
        case Constant() | IsNull(_, False):
            pass
        case IsNull(attribute):
            yield f"{attribute} is {_value(next(cell for cell in document(attribute) if cell[0] != UNREADABLE))}"
        case predicate:
            test = constant_test(predicate)
            cell = next(cell for cell in document(predicate.attribute) if test(cell))  # type: ignore[union-attr]
            text = predicate_text(predicate)  # type: ignore[arg-type]
            is_said = text == f"{predicate.attribute} = {_value(cell)}"  # type: ignore[union-attr]
            yield text if is_said else f"{predicate.attribute} is {_value(cell)}"  # type: ignore[union-attr]


def _name(state: State, row: int) -> str:
    """A document by its key or, if it has none, by its number."""
    key = state.key_of(row)
    return f"document {row:,}" if key is None else f"document {key!r}" if isinstance(key, str) else f"document {key}"


def _value(cell: Cell | Span) -> str:
    if isinstance(cell, Span):
        low, high = (None if end is None else _value((cell.kind, end)) for end in (cell.low, cell.high))
        if low is None or high is None:
            return f"anything up to {high}" if low is None else f"{low} or more"
        return f"anything from {low} to {high}"
    value = plain_value(cell)
    if isinstance(value, bool):
        return str(value).upper()
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
