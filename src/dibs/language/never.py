"""Conditions that were hardly meant: what can never be TRUE, as `a > 5 AND a < 3` and `x = NULL`, and texts in a join
that are compared as times here and as strings there.

They are accepted, with a warning. An array may satisfy tests that no single value satisfies together (each by another
element): then the warning says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from dibs.errors import Problem
from dibs.language.expression import (
    And,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    Or,
    PairCompare,
    Predicate,
    RLike,
    StringTest,
    microseconds,
    predicates,
)
from dibs.language.joins import Join, join_of, joins_in
from dibs.language.normal_form import normal_form
from dibs.language.printer import is_derived, to_sql
from dibs.language.types import NO_TYPES, Types

_SHOWN = 60  # characters of a condition
_MOST = 1_000  # tests of one attribute that are held against each other
_NEVER = "no event satisfies it; for a missing attribute write IS NULL"
_AS_TIMES = "write to_timestamp(time) for one of the two, or d.time BETWEEN time - INTERVAL 5 MINUTES AND time"
_ARRAYS = "only an array could satisfy them, each by another element; for one value leave one of them out"


class Bound(NamedTuple):
    """What a test asks of one value: of a kind, between two keys; `only`: one of these keys."""

    test: Predicate
    kind: Kind
    low: Any = None
    high: Any = None
    above: bool = False  # not low itself
    below: bool = False
    only: frozenset[Any] | None = None
    but: Any = None  # any but this key


def find_warnings(tree: Expression, text: str, types: Types = NO_TYPES) -> list[Problem]:
    """What can never be TRUE of a tree: all of it, or one side of its OR; and what its joins compare as strings."""
    found = [
        Problem(message, advice, 0, len(text), text=text)
        for name in dict.fromkeys(joins_in(tree))
        for message, advice in _compared_as_texts(join_of(name), types)
    ]
    for part in tree.children if isinstance(tree, Or) else (tree,):
        reason = _reason(normal_form(part))
        if reason is not None:
            why, advice = reason
            found.append(Problem(f"{_short(part)} is never TRUE: {why}", advice, 0, len(text), text=text))
    return found


def _compared_as_texts(join: Join, types: Types, is_within: bool = False) -> Iterator[tuple[str, str]]:
    """Attributes of a document and of the event that are compared as times, and elsewhere in the same join are not."""
    pairs = [p for p in predicates(join.condition) if isinstance(p, PairCompare)]
    timed = {(p.attribute, p.event) for p in pairs if p.offset is not None}
    for p in dict.fromkeys(pairs):
        names = (p.attribute, p.event)
        if p.offset is not None or p.operator in ("=", "<>") or names not in timed:
            continue
        if all(types.kind_of(name) == Kind.TIME for name in names):
            continue
        is_hidden = is_within or any(map(is_derived, names))
        test = "a join" if is_hidden else f"d.{p.attribute} {p.operator} {p.event}"
        yield f"{test} compares strings that are read as times elsewhere in the condition", _AS_TIMES
    for within in join.joins_within:
        yield from _compared_as_texts(within, types, True)


def _reason(form: Expression) -> tuple[str, str] | None:
    """Why a normal form is never TRUE, and what to do; None: it may be."""
    if isinstance(form, Constant):
        return None if form.value is True else ("it is always FALSE or UNKNOWN", _NEVER)
    if isinstance(form, Or):
        reasons = [_reason(child) for child in form.children]
        return reasons[0] if reasons and all(reasons) else None
    if isinstance(form, And):
        for child in form.children:
            if (reason := _reason(child)) is not None:
                return reason
        return _conflict(form.children)
    if isinstance(form, Between) and not form.negated:
        bound = _bound(form)
        if bound is not None and bound.low > bound.high:
            return "no value is between these two", "write the smaller one first"
    return None


def _conflict(tests: tuple[Expression, ...]) -> tuple[str, str] | None:
    by_name: dict[str, list[Predicate]] = {}
    for test in tests:
        name = getattr(test, "attribute", None)
        if name is not None and not is_derived(name):
            by_name.setdefault(name, []).append(test)  # type: ignore[arg-type]
    for own in by_name.values():
        missing = [test for test in own if isinstance(test, IsNull) and not test.negated]
        others = [test for test in own if test not in missing]
        if missing and others:
            return f"{_short(missing[0])} and {_short(others[0])} exclude each other", "leave one of them out"
        bounds = [bound for test in own[:_MOST] if (bound := _bound(test)) is not None]
        for first, second in _pairs(bounds):
            if not _meet(first, second):
                return f"no value satisfies both {_short(first.test)} and {_short(second.test)}", _ARRAYS
    return None


def _pairs(bounds: list[Bound]) -> Iterator[tuple[Bound, Bound]]:
    """Enough of them to find two that exclude each other: with the tightest of each kind of test."""
    if not bounds:
        return
    lows = [bound for bound in bounds if bound.low is not None]
    highs = [bound for bound in bounds if bound.high is not None]
    for bound in bounds[1:]:
        yield bounds[0], bound
    if len({bound.kind for bound in bounds}) == 1:
        for low in sorted(lows, key=lambda b: (b.low, b.above))[-1:]:
            yield from ((low, bound) for bound in bounds)
        for high in sorted(highs, key=lambda b: (b.high, not b.below))[:1]:
            yield from ((high, bound) for bound in bounds)


def _meet(a: Bound, b: Bound) -> bool:
    """Whether some value may satisfy both."""
    if a.kind != b.kind:
        # A test with a time reads strings as times.
        return {a.kind, b.kind} == {Kind.STRING, Kind.TIME}
    if a.only is not None and b.only is not None:
        return bool(a.only & b.only)
    for one, other in ((a, b), (b, a)):
        if one.only is not None:
            return any(_is_within(key, other) and key != other.but for key in one.only)
    return _is_below(a, b) and _is_below(b, a)


def _is_below(a: Bound, b: Bound) -> bool:
    """Whether the lower end of a lies below the upper end of b."""
    if a.low is None or b.high is None:
        return True
    return bool(a.low < b.high or (a.low == b.high and not a.above and not b.below))


def _is_within(key: Any, bound: Bound) -> bool:
    low = bound.low is None or key > bound.low or (key == bound.low and not bound.above)
    return bool(low and (bound.high is None or key < bound.high or (key == bound.high and not bound.below)))


def _bound(test: Expression) -> Bound | None:
    """None: nothing is known of it."""
    if isinstance(test, Compare):
        kind, key = test.literal.kind, _key(test.literal)
        if key is None:
            return Bound(test, kind)
        if test.operator == "<>":
            return Bound(test, kind, only=frozenset([not key])) if kind == Kind.BOOLEAN else Bound(test, kind, but=key)
        if test.operator == "=":
            return Bound(test, kind, only=frozenset([key]))
        if test.operator in ("<", "<="):
            return Bound(test, kind, high=key, below=test.operator == "<")
        return Bound(test, kind, low=key, above=test.operator == ">")
    if isinstance(test, In) and not test.negated:
        kinds = {literal.kind for literal in test.literals}
        keys = [_key(literal) for literal in test.literals]
        return Bound(test, kinds.pop(), only=frozenset(keys)) if len(kinds) == 1 and None not in keys else None
    if isinstance(test, Between) and not test.negated:
        low, high = _key(test.low), _key(test.high)
        if low is None or high is None or test.low.kind != test.high.kind:
            return None
        return Bound(test, test.low.kind, low, high)
    return Bound(test, Kind.STRING) if isinstance(test, (StringTest, Like, RLike)) else None


def _key(literal: Literal) -> Any:
    """What orders constants of a kind; None: NaN, which is above all numbers."""
    if literal.kind == Kind.TIME:
        return microseconds(literal.value)
    if literal.kind == Kind.STRING:
        return literal.value.encode()
    return None if isinstance(literal.value, float) and math.isnan(literal.value) else literal.value


def _short(expression: Expression) -> str:
    text = to_sql(expression)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
