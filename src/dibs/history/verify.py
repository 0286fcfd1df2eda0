"""Whether one document satisfies what an index cannot answer: predicates on its values, one after the other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from dibs.history.keys import STRING, TIME, UNREADABLE, Cell, Cells, EventCells, Span, literal_cell
from dibs.language.expression import (
    And,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Not,
    Or,
    PairCompare,
    Predicate,
    RLike,
    StringTest,
)
from dibs.language.like import like_regex
from dibs.language.regex import compile_regex

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Test = Callable[[Cell], bool]
Document = Callable[[str], Cells]  # the cells of an attribute
Event = Mapping[str, EventCells]


def holds(condition: Expression, document: Document, event: Event) -> bool:
    """Whether a normal form is TRUE for this pair. (Trees are not deep.)"""
    match condition:
        case And(children):
            return all(holds(child, document, event) for child in children)
        case Or(children):
            return any(holds(child, document, event) for child in children)
        case Constant(value):
            return value is True
        case PairCompare():
            return pair_of(condition, document(condition.attribute), event.get(condition.event, ())) is not None
        case IsNull(attribute, negated):
            cells = document(attribute)
            return any(cell[0] != UNREADABLE for cell in cells) if negated else not cells
        case Not():
            raise AssertionError("a normal form has no NOT")
    return any(map(constant_test(condition), document(condition.attribute)))


def pair_of(predicate: PairCompare, own: Cells, others: EventCells) -> tuple[Cell, Cell | Span] | None:
    """The first pair of values that satisfies the predicate."""
    offset = predicate.offset
    for other in others:
        for cell in own:
            if stands(cell, predicate.operator, other, offset):
                return cell, other
    return None


def stands(cell: Cell, symbol: str, other: Cell | Span, offset: int | None = None) -> bool:
    """Whether a document's value stands in this relation to the event's (+ offset), or to some value of a range."""
    kind, key = cell
    if kind != other[0] or kind == UNREADABLE or (offset is not None and kind != TIME):
        return False
    if isinstance(other, Span):
        return _in_span(key, symbol, other, offset or 0)
    return OPERATORS[symbol](key, other[1] if offset is None else other[1] + offset)


def _in_span(key: Any, symbol: str, span: Span, offset: int) -> bool:
    low = span.low + offset if offset and span.low is not None else span.low
    high = span.high + offset if offset and span.high is not None else span.high
    if span.kind != TIME and (low is None or high is None):  # times have no least and no greatest
        low, high = with_ends(span.kind, low, high)
    if symbol == "=":
        return (low is None or low <= key) and (high is None or key <= high)
    if symbol == "<>":
        return low is None or high is None or low != high or key != low
    if symbol in ("<", "<="):
        return high is None or OPERATORS[symbol](key, high)
    return low is None or OPERATORS[symbol](key, low)


def with_ends(kind: int, low: Any, high: Any) -> tuple[Any, Any]:
    """A range without an end, with the least or greatest value of its kind where there is one."""
    from dibs.history.keys import BOOLEAN, NUMBER, TOP

    least = {BOOLEAN: False, NUMBER: float("-inf"), STRING: ""}[kind]
    greatest = {BOOLEAN: True, NUMBER: TOP, STRING: None}[kind]
    return least if low is None else low, greatest if high is None else high


@lru_cache(65_536)
def constant_test(predicate: Predicate) -> Test:
    """The test of one value behind a predicate with constants."""
    match predicate:
        case Compare(_, symbol, constant):
            kind, key = literal_cell(constant)
            compare = OPERATORS[symbol]
            return lambda cell: cell[0] == kind and compare(cell[1], key)
        case In(_, literals, negated, null):
            cells = frozenset(map(literal_cell, literals))
            if not negated:
                return lambda cell: cell in cells
            kinds = {cell[0] for cell in cells}
            return lambda cell: not null and kinds == {cell[0]} and cell not in cells
        case Between(_, low, high, negated):
            (kind, a), (other, b) = literal_cell(low), literal_cell(high)
            if not negated:
                return lambda cell: cell[0] == kind == other and a <= cell[1] <= b
            return lambda cell: (cell[0] == kind and cell[1] < a) or (cell[0] == other and cell[1] > b)
        case StringTest(_, function, text, negated):
            test = {"STARTSWITH": str.startswith, "ENDSWITH": str.endswith, "CONTAINS": str.__contains__}[function]
            return lambda cell: cell[0] == STRING and test(cell[1], text) != negated
        case Like(_, pattern, escape, negated):
            found = compile_regex(like_regex(pattern, escape)).search
            return lambda cell: cell[0] == STRING and (found(cell[1]) is not None) != negated
        case RLike(_, pattern, negated):
            found = compile_regex(pattern).search
            return lambda cell: cell[0] == STRING and (found(cell[1]) is not None) != negated
    raise AssertionError(f"no test of a single value: {predicate}")
