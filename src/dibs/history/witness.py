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
from dibs.history.coded.answers import Answering, one_view
from dibs.history.coded.columns import order_bits
from dibs.history.coded.program import Compiled, compile_plans
from dibs.history.coded.store import read_documents
from dibs.history.keys import cells_of, plain_values
from dibs.history.plan import Plan, plan_join, plan_of
from dibs.history.state import State
from dibs.language.expression import And, Constant, Expression, IsNull, Or, PairCompare
from dibs.language.joins import COUNT, EXISTS, MAX_BY, MIN, Join
from dibs.language.printer import interval_text, predicate_text
from dibs.reference import OfNoKind, ValuesByName, find_key, satisfying
from dibs.reference.joins import compared, extremes, is_met, is_true, pairs, values_of_found

Explained = tuple[list[Any], str]  # the values of the attribute that stands for a join, and the reason
WIDTH = 40  # characters of a value


class Found(NamedTuple):
    """What a join found, before that is compared with the event."""

    documents: dict[int, ValuesByName]  # by number, those that matter
    many: int = 0  # of COUNT: how many there are


def explain_join(names: Iterable[str], event: Mapping[str, Any], state: State) -> dict[str, Explained]:
    """The joins of these names for one event."""
    plans = [plan_of(name) for name in dict.fromkeys(names)]
    if not plans:
        return {}
    wanted = {name for plan in plans for name in plan.event_attributes}
    read = read_events([event], wanted, on_error="skip", types=state.types)
    values = {name: plain_values(cells[0]) for name, cells in cells_of(read, wanted).items() if 0 in cells}
    every = find_all(plans, read, values, state)
    return {plan.name: _explain(plan, values, found, state) for plan, found in zip(plans, every)}


def find_all(plans: Sequence[Plan], read: EventValues, values: ValuesByName, state: State) -> list[Found]:
    answering = Answering(*bare_plans(tuple(plan.name for plan in plans)))
    snapshot = state.coded.at(state, answering.compiled)
    answers, size = answering.answer(read, snapshot, one_view(state, 1, snapshot.base), witness=True)
    found: dict[int, Found] = {}
    for number, place in enumerate(answering.taken.tolist()):
        own = np.flatnonzero(answers.join[:size] == number)
        rows = answers.row[own].tolist() if plans[place].join.function != EXISTS else [int(answers.witness[0, number])]
        count = order_bits(answers.key[own].view(np.float64)).view(np.float64)
        numbers = sorted({row + snapshot.base for row in rows if row >= 0})
        documents = {row: read_document(state, row, plans[place].attributes) for row in numbers}
        found[place] = Found(documents, int(count[0]) if plans[place].join.function == COUNT else 0)
    for place in answering.left:
        plan = plans[place]
        read_all = ((row, read_document(state, row, plan.attributes)) for row in state.rows())
        met = {row: document for row, document in read_all if is_met(plan.join, values, document)}
        found[place] = Found(met, len(met))
    return [found[place] for place in range(len(plans))]


@lru_cache(256)
def bare_plans(names: tuple[str, ...]) -> tuple[list[Plan], tuple[Compiled, list[int]]]:
    """The plans of joins, without what is compared with their results; and these, compiled."""
    joins = [(name, plan_of(name).join._replace(event=None, operator=None, factor=None)) for name in names]
    plans = [plan_join(name, join) for name, join in joins]
    return plans, compile_plans(plans)


def read_document(state: State, row: int, names: Sequence[str]) -> ValuesByName:
    """One document as the reference has it."""
    ((_, values),) = read_documents(state, names, row - state.base, row - state.base + 1)
    return {name: plain_values(cells[0]) for name, cells in cells_of(values, names).items() if 0 in cells}


def _explain(plan: Plan, event: ValuesByName, found: Found, state: State) -> Explained:
    join = plan.join
    if join.function == COUNT:
        values = compared(join, event, [found.many])
    else:
        values = values_of_found(join, event, list(found.documents.values()))
    missing = [name for name in plan.event_attributes if not event.get(name)]
    lacking = f"; {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""
    return values, _reason(join, event, found, state) + lacking


def _reason(join: Join, event: ValuesByName, found: Found, state: State) -> str:
    total = f"{len(state):,} document{'s' * (len(state) != 1)}"
    if join.function == EXISTS:
        if not found.documents:
            return f"none of {total} does" if len(state) else "there is no document"
        row, document = max(found.documents.items())
        because = "; ".join(dict.fromkeys(_because(join.condition, document, event)))
        return f"because of {_name(state, row)}" + (f": {because}" if because else "")
    if join.function == COUNT:
        told = f"{found.many:,} of {total}"
    else:
        which = f"last {join.attribute} by {join.by}"
        if join.function != MAX_BY:
            which = f"{'least' if join.function == MIN else 'greatest'} {join.attribute}"
        ends = [f"{' or '.join(map(_value, own))} ({_name(state, row)})" for row, own in _ends(join, found)]
        told = f"the {which} of {total} is {' or '.join(ends)}"
        if not ends:
            told = f"none of {total} that count has a {join.attribute}" if len(state) else "there is no document"
    own = event.get(join.event, ()) if join.event is not None else ()
    if join.factor is not None:
        told += f"; {join.factor:.15g} times that is compared"
    return f"{join.event} is {' or '.join(map(_value, own))}, {told}" if own else told


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


def _because(condition: Expression, document: ValuesByName, event: ValuesByName) -> Iterator[str]:
    """What makes a condition TRUE that is TRUE for this document. (Trees are not deep.)"""
    match condition:
        case Or(children):
            yield from _because(next(c for c in children if is_true(c, event, document)), document, event)
        case And(children):
            for child in children:
                yield from _because(child, document, event)
        case PairCompare(attribute, operator, _, offset):
            value, own = next(pairs(condition, event, document))
            yield f"{attribute} {_value(own)} {operator} {_value(value)}{interval_text(offset)}"
        case Constant() | IsNull(_, False):
            pass
        case IsNull(attribute):
            yield f"{attribute} is {_value(next(v for v in document[attribute] if not isinstance(v, OfNoKind)))}"
        case predicate:
            value = next(satisfying(predicate, document[predicate.attribute]))  # type: ignore[union-attr,arg-type]
            text = predicate_text(predicate)  # type: ignore[arg-type]
            is_said = text == f"{predicate.attribute} = {_value(value)}"  # type: ignore[union-attr]
            yield text if is_said else f"{predicate.attribute} is {_value(value)}"  # type: ignore[union-attr]


def _name(state: State, row: int) -> str:
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
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
