"""What a subscription asks of the documents alone: the implied constraints of section 4.3.2 of the paper.

    price < 10 AND EXISTS d (d.price = price)           asks for a document with d.price < 10
    isbn = 7 AND FORALL d (isbn <> d.isbn)              asks that no document has d.isbn = 7
    EXISTS d (d.year > 1999 AND d.author = author)      asks for a document with d.year > 1999 (and an author)

A question is whether such a document exists. It is the join itself, asked for an event of which only the constants of
the subscription are known: of some attributes the one value, of others an interval. Between a document's value and an
interval, "for some value of it" is Table 2 of the paper: d.a < a and a < c imply d.a < c, and so on; both ends of an
interval count, which is the table for intervals that the paper leaves out.

Only what an index answers is asked (equalities and bounds on one attribute), so that a question is a search. A question
may leave conditions out where a document is needed, and must have all of them where none may be there:

    needed       EXISTS, a COUNT that is not 0, a MIN, MAX or MAX_BY with a value: no such document, no match
    forbidden    NOT EXISTS: a document that satisfies the condition for all events that the subscription takes

This holds for events with one value of each attribute that is known: of several, each predicate may take another.
Tests with times know of an attribute what it is, or reads as, as a time: names of columns (TIMED) stand for that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dibs.history.coded.columns import TIMED
from dibs.history.coded.program import conjunctions_of
from dibs.history.plan import BOUNDS, Conjunction, conjunction_of
from dibs.language.expression import (
    FLIPPED_OPERATOR,
    NEGATED_OPERATOR,
    And,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Not,
    Or,
    PairCompare,
    Predicate,
    Truth,
)
from dibs.language.joins import COUNTS, ENDS, EXISTS, EXTREMES, Join
from dibs.language.printer import is_paired

MOST_VALUES = 4  # of an IN that are asked for one by one; of more, the interval around them


class Known(NamedTuple):
    """The attributes of the event of which constants say something."""

    one: frozenset[str] = frozenset()  # the value
    few: frozenset[str] = frozenset()  # some values, of which it is one
    bounded: frozenset[str] = frozenset()  # an interval


class Question(NamedTuple):
    """Conjunctions of which a document may satisfy any."""

    conjunctions: tuple[Conjunction, ...]
    is_forbidden: bool


def needs_document(join: Join, truth: bool | None) -> bool:
    """Whether a join is TRUE or FALSE, as told, or (truth is None) has a value other than a COUNT of 0, only if some
    document satisfies its condition."""
    if join.function == EXISTS:
        return truth is True
    return join.function not in COUNTS or truth is None


def ask_of(join: Join, truth: bool | None, known: Known) -> Question | None:
    """What a subscription asks of documents that needs this of a join; None: nothing that could be asked."""
    if not needs_document(join, truth):
        return _ask_none(join.condition, known) if join.function == EXISTS else None
    return _ask_some(And((join.condition, *_asked_of_value(join, truth))), known)


def required_attributes(join: Join, truth: bool | None) -> frozenset[str]:
    """The attributes that some document must have, or this never becomes of the join: the paper's first case."""
    if not needs_document(join, truth):
        return frozenset()
    own = frozenset(name for name in (join.attribute, join.by) if name is not None)
    form = join.condition
    parts = form.children if isinstance(form, And) else (form,)
    return own.union(p.attribute for p in parts if _needs_value(p))  # type: ignore[union-attr]


def _needs_value(part: Expression) -> bool:
    """Whether it is a predicate that is TRUE only of a document that has its attribute."""
    if not isinstance(part, (And, Or, Not, Truth, Constant)) and is_paired(part.attribute):
        return False
    return part.negated if isinstance(part, IsNull) else not isinstance(part, (And, Or, Constant))


def _asked_of_value(join: Join, truth: bool | None) -> list[Predicate]:
    """The extreme is the value of a document, which stands in the relation to the event's value itself."""
    if (
        join.attribute is None
        or join.function not in (*EXTREMES, *ENDS)
        or join.event is None
        or join.operator is None
        or truth is None
        or join.factor is not None
    ):
        return []
    operator = join.operator if truth else NEGATED_OPERATOR[join.operator]
    return [PairCompare(join.attribute, FLIPPED_OPERATOR[operator], join.event)]


def _ask_some(condition: Expression, known: Known) -> Question | None:
    forms = conjunctions_of(condition)
    if forms is None:
        return None
    values = known.one | known.few
    events = values | known.bounded
    found = []
    for form in forms:
        kept = tuple(p for p in (_as_times(p, events) for p in form) if _is_search(p, events))
        chosen = conjunction_of(And(kept), None, values)
        if not kept:
            return None  # any document might do
        found.append(chosen._replace(rest=()))
    return Question(tuple(found), False)


def _as_times(predicate: Predicate, events: Collection[str]) -> Predicate:
    """An equality with an attribute of which only the time is known, whether it is a time or a string that reads as
    one: what is equal to it reads as the same time. (The order of strings is not that of their times.)"""
    match predicate:
        case PairCompare(attribute, "=", event, None) if event not in events and TIMED + event in events:
            return PairCompare(TIMED + attribute, "=", TIMED + event)
    return predicate


def _ask_none(condition: Expression, known: Known) -> Question | None:
    found = []
    for form in conjunctions_of(condition) or ():
        if form and all(_is_search(p, known.one) for p in form):
            chosen = conjunction_of(And(form), None, known.one)
            if not chosen.rest:
                found.append(chosen)
    return Question(tuple(found), True) if found else None


def _is_search(predicate: Predicate, events: Collection[str]) -> bool:
    """Whether an index can answer it. events: the attributes of the event of which something is known."""
    if is_paired(predicate.attribute):
        return False
    match predicate:
        case PairCompare(_, operator, event):
            return event in events and (operator == "=" or operator in BOUNDS)
        case Compare(_, operator):
            return operator == "=" or operator in BOUNDS
        case In(_, literals, negated):
            return not negated and len(literals) <= MOST_VALUES
        case Between(_, _, _, negated):
            return not negated
    return False
