"""How far an event is from satisfying an expression: 0 where it does, small where a value is just beside what is asked
for, about 1 for each condition that the event says nothing about. For ranking, not for judging: no index takes part.

    AND   the sum of its parts      OR   the nearest of its parts      NOT   pushed down to the predicates
    IS TRUE   what it is of         IS NOT TRUE   FAILS where that holds

    numbers, times   how far the value is from the nearest one that would do, relative to both of them
    strings          how much of them differs, for =, IN and STARTSWITH
    others           FAILS; a value of another kind OTHER_KIND; no value MISSING
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from dibs.coding.values import Range
from dibs.language.expression import (
    And,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    Kind,
    Literal,
    Or,
    StringTest,
    Truth,
)
from dibs.reference import OfNoKind, children_first, key_beside, key_of, truth_of

JUST_BESIDE = 1e-9  # at the end of an open range: nearer than everything else, and yet not there
FAILS, OTHER_KIND, MISSING = 0.7, 0.95, 1.0
IMPOSSIBLE = 1e6  # FALSE
MONTH = 30 * 86_400_000_000  # microseconds: a time that is so far away is half as far as it can be
LONGEST = 200  # characters of a string that are compared


def distance(expression: Expression, values: Mapping[str, list[Any]]) -> float:
    """values: of the event, as values_of gives them (with those of joins)."""
    waiting: list[float] = []  # for their parent
    for node in children_first(expression):
        if isinstance(node, (And, Or)):
            first = len(waiting) - len(node.children)
            parts = waiting[first:]
            waiting[first:] = [sum(parts) if isinstance(node, And) else min(parts, default=IMPOSSIBLE)]
        elif isinstance(node, Truth):
            if node.negated:  # 0 is TRUE
                waiting.append(FAILS if waiting.pop() == 0 else 0.0)
        elif isinstance(node, Constant):
            waiting.append(0.0 if node.value else IMPOSSIBLE)
        elif truth_of(node, values):
            waiting.append(0.0)
        else:
            found = values.get(node.attribute, [])
            waiting.append(min((_from_value(value, node) for value in found), default=MISSING))
    return waiting[0]


def _from_value(value: Any, predicate: Any) -> float:
    """Of a value that does not satisfy the predicate."""
    if isinstance(value, (Range, OfNoKind)):
        return OTHER_KIND
    if isinstance(predicate, Compare):
        return FAILS if predicate.operator == "<>" else _from_literal(value, predicate.literal)
    if isinstance(predicate, In) and not predicate.negated:
        return min((_from_literal(value, literal) for literal in predicate.literals), default=FAILS)
    if isinstance(predicate, Between) and not predicate.negated:
        return min(_from_literal(value, predicate.low), _from_literal(value, predicate.high))
    if isinstance(predicate, StringTest) and not predicate.negated and isinstance(value, str):
        if predicate.function == "STARTSWITH":
            return _from_text(value[: len(predicate.text)], predicate.text)
        return FAILS
    return FAILS


def _from_literal(value: Any, literal: Literal) -> float:
    kind, key = literal.kind, key_beside(value, literal.kind)
    if key is None:
        return OTHER_KIND
    if kind == Kind.STRING:
        return _from_text(str(value), str(literal.value))
    other = key_of(literal)
    if kind == Kind.NUMBER:
        (nan, a), (other_nan, b) = key, other
        if nan or other_nan or abs(a) + abs(b) == float("inf"):
            return FAILS
        return max(JUST_BESIDE, FAILS * abs(a - b) / (abs(a) + abs(b))) if a != b else JUST_BESIDE
    if kind == Kind.TIME:
        apart = abs(key - other)
        return FAILS * apart / (apart + MONTH) if apart else JUST_BESIDE
    return FAILS


def _from_text(value: str, wanted: str) -> float:
    alike = difflib.SequenceMatcher(None, value[:LONGEST], wanted[:LONGEST], autojunk=False).ratio()
    return max(JUST_BESIDE, FAILS * (1.0 - alike))
