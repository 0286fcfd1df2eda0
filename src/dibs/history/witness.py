"""Why a join is what it is for an event, in words: the document that makes it so, or that none of them does.

The kernels find that document; what it says is read off by the reference. (Of a join that kernels do not take, the
reference looks at all documents.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dibs.coding.events import read_events
from dibs.coding.values import EventValues, Range
from dibs.history.answering import Answerer
from dibs.history.coded.answers import Answering, one_view
from dibs.history.coded.candidates import PairedJoins
from dibs.history.coded.columns import order_bits
from dibs.history.coded.program import Compiled, compile_plans
from dibs.history.coded.store import read_documents
from dibs.history.keys import NUMBER, cells_of, number_of, plain_value, plain_values
from dibs.history.plan import JoinPlan, plan_join, plan_of
from dibs.history.state import HistoryState
from dibs.language.expression import And, Compare, Constant, Expression, IsNull, Or, PairCompare
from dibs.language.joins import (
    COUNT,
    COUNT_DISTINCT,
    COUNTS,
    EXISTS,
    MAX,
    MAX_BY,
    MIN,
    MIN_BY,
    TOTALS,
    Join,
    document_text,
)
from dibs.language.present import Present
from dibs.language.printer import interval_text, is_condition, is_derived, is_paired, name_text, predicate_text
from dibs.reference import OfNoKind, ValuesByName, find_key, satisfying
from dibs.reference.joins import compared, extremes, is_met, is_true, pairs, result_of, values_of_found

Explained = tuple[list[Any], str]  # the values of the attribute that stands for a join, and the reason
WIDTH = 40  # characters of a value
_WHICH = {MIN: "least", MAX: "greatest", MAX_BY: "last", MIN_BY: "first"}


class Found(NamedTuple):
    """What a join found, before that is compared with the event."""

    documents: dict[int, ValuesByName]  # by number, those that matter
    numbers: tuple[Any, ...] = ()  # of COUNT and totals: what they are


def explain_join(
    names: Iterable[str], event: Mapping[str, Any], state: HistoryState, now: Present = None
) -> dict[str, Explained]:
    """The joins of these names for one event. now: the time of the match."""
    plans = [plan_of(name) for name in dict.fromkeys(names)]
    if not plans:
        return {}
    wanted = {name for plan in plans for name in plan.event_attributes}
    read = read_events([event], wanted, on_error="skip", now=now, types=state.types)
    values = {name: plain_values(cells[0]) for name, cells in cells_of(read, wanted).items() if 0 in cells}
    every = find_all(plans, read, values, state)
    return {plan.name: _explain(plan, values, found, state) for plan, found in zip(plans, every)}


def find_all(plans: Sequence[JoinPlan], read: EventValues, values: ValuesByName, state: HistoryState) -> list[Found]:
    answering = Answering(*bare_plans(tuple(plan.name for plan in plans)))
    snapshot = state.coded.at(state, answering.compiled)
    answers, size = answering.answer(read, snapshot, one_view(state, 1, snapshot.base), witness=True)
    found: dict[int, Found] = {}
    for number, place in enumerate(answering.taken.tolist()):
        own = np.flatnonzero(answers.join[:size] == number)
        rows = answers.row[own].tolist() if plans[place].join.function != EXISTS else [int(answers.witness[0, number])]
        near = order_bits(answers.key[own].view(np.float64)).view(np.float64).tolist()
        told = map(number_of, near, answers.tie[own].tolist())
        there = sorted({row + snapshot.base for row in rows if row >= 0})
        documents = {row: read_document(state, row, plans[place].attributes) for row in there}
        found[place] = Found(
            documents, tuple(plain_value((NUMBER, key)) for key in told) if is_number(plans[place]) else ()
        )
    for place, met in _left_to_others(plans, answering.left, read, values, state):
        plan = plans[place]
        found[place] = Found(met, tuple(result_of(plan.join, list(met.values()))) if is_number(plan) else ())
    return [found[place] for place in range(len(plans))]


def is_number(plan: JoinPlan) -> bool:
    """Whether the join is a number that is no document's."""
    return plan.join.function in (*COUNTS, *TOTALS)


def _left_to_others(
    plans: Sequence[JoinPlan], left: Sequence[int], read: EventValues, values: ValuesByName, state: HistoryState
) -> Iterator[tuple[int, dict[int, ValuesByName]]]:
    """The documents that satisfy the joins at these places, which are tested one by one."""
    paired = PairedJoins(plans, left, Answerer)
    snapshot = state.coded.at(state, *paired.compiled)
    for place, _, rows in paired.find(read, snapshot, one_view(state, 1, snapshot.base), [state]):
        names = plans[place].attributes
        yield place, {row: read_document(state, row, names) for row in (rows + snapshot.base).tolist()}
    for place in sorted({*left} - {*paired.places}):
        plan = plans[place]
        every = all_documents(state, plan.attributes)
        own = list(every.values())
        yield place, {row: each for row, each in every.items() if is_met(plan.join, values, each, own)}


@lru_cache(256)
def bare_plans(names: tuple[str, ...]) -> tuple[list[JoinPlan], tuple[Compiled, list[int]]]:
    """The plans of joins, without what is compared with their results; and these, compiled."""
    joins = [(name, plan_of(name).join._replace(event=None, operator=None, factor=None)) for name in names]
    plans = [plan_join(name, join) for name, join in joins]
    return plans, compile_plans(plans)


def all_documents(state: HistoryState, names: Sequence[str]) -> dict[int, ValuesByName]:
    """All documents, by number, as the reference has them."""
    found: dict[int, ValuesByName] = {row: {} for row in state.rows()}
    for first, values in read_documents(state, names, 0, state.end - state.base):
        for name, by_document in cells_of(values, names).items():
            for number, cells in by_document.items():
                row = state.base + first + number
                if row in found:
                    found[row] = {**found[row], name: plain_values(cells)}
    return found


def read_document(state: HistoryState, row: int, names: Sequence[str]) -> ValuesByName:
    """One document as the reference has it."""
    ((_, values),) = read_documents(state, names, row - state.base, row - state.base + 1)
    return {name: plain_values(cells[0]) for name, cells in cells_of(values, names).items() if 0 in cells}


def _explain(plan: JoinPlan, event: ValuesByName, found: Found, state: HistoryState) -> Explained:
    join = plan.join
    if is_number(plan):
        values = compared(join, event, list(found.numbers))
    else:
        values = values_of_found(join, event, list(found.documents.values()))
    missing = [_shown(name) for name in plan.event_attributes if not event.get(name)]
    lacking = f"; {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""
    return values, _reason(join, event, found, state) + lacking


def _reason(join: Join, event: ValuesByName, found: Found, state: HistoryState) -> str:
    total = f"{len(state):,} document{'s' * (len(state) != 1)}"
    if join.function == EXISTS:
        if not found.documents:
            return f"none of {total} does" if len(state) else "there is no document"
        row, document = max(found.documents.items())
        every = list(all_documents(state, join.document_attributes).values()) if join.joins_within else []
        because = "; ".join(dict.fromkeys(_because(join.condition, document, event, every)))
        return f"because of {_name(state, row)}" + (f": {because}" if because else "")
    asked, by = _shown(join.attribute or ""), _shown(join.by or "")
    if join.function == COUNT:
        told = f"{found.numbers[0]:,} of {total}"
    elif join.function == COUNT_DISTINCT:
        told = f"{total} have {found.numbers[0]:,} different {asked}"
    elif join.function in TOTALS:
        told = f"{join.function} of {asked} of {total} is {_value(found.numbers[0]) if found.numbers else 'NULL'}"
    else:
        which = f"{_WHICH[join.function]} {asked}" + (f" by {by}" if join.by is not None else "")
        ends = [f"{' or '.join(map(_value, own))} ({_name(state, row)})" for row, own in _ends(join, found)]
        told = f"the {which} of {total} is {' or '.join(ends)}"
        if not ends:
            told = f"none of {total} that count has a {asked}" if len(state) else "there is no document"
    own = event.get(join.event, ()) if join.event is not None else ()
    if join.factor is not None:
        told += f"; {join.factor:.15g} times that is compared"
    return f"{_shown(join.event or '')} is {' or '.join(map(_value, own))}, {told}" if own else told


def _ends(join: Join, found: Found) -> Iterator[tuple[int, list[Any]]]:
    """The documents that have the values of MIN, MAX and MAX_BY, and these values."""
    bare = join._replace(event=None)
    left = values_of_found(bare, {}, list(found.documents.values()))
    for row, document in sorted(found.documents.items(), reverse=True):
        has = values_of_found(bare, {}, [document]) if join.by else extremes(join, [document])
        own = [value for value in left if any(find_key(value) == find_key(each) for each in has)]
        left = [value for value in left if not any(value is each for each in own)]
        if own:
            yield row, own


def _because(
    condition: Expression, document: ValuesByName, event: ValuesByName, every: Sequence[ValuesByName]
) -> Iterator[str]:
    """What makes a condition TRUE that is TRUE for this document. every: all documents, if joins within ask for them.
    (Trees are not deep.)"""
    match condition:
        case Or(children):
            yield from _because(next(c for c in children if is_true(c, event, document, every)), document, event, every)
        case And(children):
            for child in children:
                yield from _because(child, document, event, every)
        case PairCompare(attribute, operator, _, offset):
            value, own = next(pairs(condition, event, document))
            yield f"{_shown(attribute)} {_value(own)} {operator} {_value(value)}{interval_text(offset or None)}"
        case Constant() | IsNull(_, False):
            pass
        case Compare(attribute, operator) if is_condition(attribute):
            yield f"{'NOT ' * (operator == '<>')}{document_text(attribute, 'd')}"
        case IsNull(attribute) if is_paired(attribute):
            yield f"{document_text(attribute, 'd')} IS NOT NULL"
        case predicate if is_paired(predicate.attribute):  # type: ignore[union-attr]
            yield predicate_text(predicate, lambda name: document_text(name, "d"))  # type: ignore[arg-type]
        case IsNull(attribute):
            value = next(each for each in document[attribute] if not isinstance(each, OfNoKind))
            yield f"{_shown(attribute)} is {_value(value)}"
        case predicate:
            value = next(satisfying(predicate, document[predicate.attribute]))  # type: ignore[union-attr,arg-type]
            text = predicate_text(predicate)  # type: ignore[arg-type]
            name = _shown(predicate.attribute)  # type: ignore[union-attr]
            yield text if text == f"{name} = {_value(value)}" else f"{name} is {_value(value)}"


def _shown(name: str) -> str:
    """An attribute, or what is computed, in words."""
    return name_text(name) if is_derived(name) else name


def _name(state: HistoryState, row: int) -> str:
    """A document by its key or, if it has none, by its number."""
    key = state.key_of(row)
    return f"document {row:,}" if key is None else f"document {key!r}" if isinstance(key, str) else f"document {key}"


def _value(value: Any) -> str:
    if isinstance(value, Range):
        low, high = (None if end is None else _value(end) for end in (value.lo, value.hi))
        if low is None or high is None:
            return f"anything up to {high}" if low is None else f"{low} or more"
        return f"anything from {low} to {high}"
    if isinstance(value, bool):
        return str(value).upper()
    if value != value:
        return "NaN"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
