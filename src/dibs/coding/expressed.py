"""Events that are expressions: dibs.Event("price BETWEEN 10 AND 20 AND brand IN ('a', 'b')").

Such an event says of each attribute which values it may have, and a predicate holds when some of them satisfies it: a
symmetric match. So an Event is a dict like any other, whose values are single values, a Range, or several of these.

The values of an attribute are intervals, and predicates on it intersect. An end of an interval is a key and whether the
key itself lies before it: `< 5` ends before 5, `<= 5` behind it. Ranges include their ends, so an end that is left out
becomes its neighbour: the next number of 64 bits, the next microsecond, the next string. Only no string is the last one
before another one: that is what `Below` is for.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dibs.coding.values import Range
from dibs.errors import ExpressionError, Problem
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
    StringTest,
    literal,
    microseconds,
    number,
    number_key,
)
from dibs.language.normal_form import plain_like
from dibs.language.sql import parse

ADVICE = (
    "an event is predicates joined by AND: =, <>, <, <=, >, >=, [NOT] IN, [NOT] BETWEEN, IS [NOT] NULL, and for "
    "strings STARTSWITH or LIKE 'prefix%'"
)


class Before(str):
    """A string as an end that is left out: its bytes are above those of every string before it, and below its own.
    (Strings are ordered by their bytes, and the byte 255 is in none.)"""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        data = super().encode(encoding, errors)
        return data[:-1] + bytes([data[-1] - 1, 255]) if data[-1] else data[:-1]


class Below(Range):
    """A Range of strings whose upper end is left out."""

    __slots__ = ()

    def __init__(self, lo: str, hi: str):
        super().__init__(lo, Before(hi))

    def __repr__(self) -> str:
        return f"Below({self.lo!r}, {str.__str__(self.hi)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Below, (self.lo, str.__str__(self.hi))


class Event(dict[str, Any]):
    """An event that is an expression itself: a conjunction of predicates, each of one attribute with constants.

    A subscription matches when each of its predicates holds for some value that the event allows: see docs/language.md,
    "Events that are expressions". ExpressionError where the text is none, or allows no value for an attribute.
    """

    def __init__(self, expression: str):
        self.expression = expression
        super().__init__(_values_of(expression))

    def __repr__(self) -> str:
        return f"Event({self.expression!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Event, (self.expression,)


class End(NamedTuple):
    """Just before a key, or just behind it."""

    key: Any
    behind: bool


class Interval(NamedTuple):
    low: End
    high: End


Intervals = list[Interval]  # of one kind: in order, apart from each other
WHOLE = {
    Kind.BOOLEAN: Interval(End(False, False), End(True, True)),
    Kind.NUMBER: Interval(End((-math.inf, 0), False), End((math.inf, 1), True)),
    Kind.STRING: Interval(End("", False), End("\U0010ffff" * 2, True)),  # the end is only ever compared by `is`
    Kind.TIME: Interval(End(-math.inf, False), End(math.inf, True)),
}


def _values_of(expression: str) -> dict[str, Any]:
    allowed: dict[str, dict[Kind, Intervals] | None] = {}  # None: no value at all
    for predicate in _conjuncts(parse(expression), expression):
        name = predicate.attribute
        own = _allow(predicate, expression)
        if name not in allowed:
            allowed[name] = own
            continue
        before = allowed[name]
        if before is None or own is None:
            allowed[name] = None if before is own else {}
        else:
            allowed[name] = {kind: _intersect(before[kind], own[kind]) for kind in before if kind in own}
    result = {}
    for name, kinds in allowed.items():
        if kinds is None:
            continue
        values = [value for kind, intervals in kinds.items() for each in intervals for value in _plain(kind, each)]
        if not values:
            raise _refuse(f"no value of {name!r} satisfies all its predicates", expression)
        # A point beside others is a Range, too: no computed value is known of what is not one value.
        single = values[0] if len(values) == 1 else [v if isinstance(v, Range) else Range(v, v) for v in values]
        result[name] = single
    return result


def _refuse(message: str, expression: str) -> ExpressionError:
    return ExpressionError([Problem(message, ADVICE, 0, len(expression), text=expression)])


def _conjuncts(tree: Expression, expression: str) -> Iterator[Any]:
    for each in tree.children if isinstance(tree, And) else (tree,):
        if isinstance(each, Like):
            each = plain_like(each)
        if isinstance(each, Constant) and each.value is True:
            continue
        if not isinstance(each, (Compare, In, Between, StringTest, IsNull)):
            raise _refuse(f"found {type(each).__name__} in an event", expression)
        if each.attribute.startswith("\0"):
            raise _refuse("found a computed value or a join in an event", expression)
        yield each


def _allow(predicate: Any, expression: str) -> dict[Kind, Intervals] | None:
    """The values that satisfy it, by kind."""
    match predicate:
        case IsNull(_, negated):
            return {kind: [whole] for kind, whole in WHOLE.items()} if negated else None
        case Compare(_, operator, constant):
            return {constant.kind: _compared(operator, constant)}
        case In(_, literals, False):
            kinds = {constant.kind for constant in literals}
            return {kind: _union(_point(each) for each in literals if each.kind == kind) for kind in kinds}
        case In(_, literals, True, null):
            kinds = {constant.kind for constant in literals}
            if null or len(kinds) > 1:
                return {}  # never TRUE
            return {kind: _without(kind, _union(map(_point, literals))) for kind in kinds}
        case Between(_, low, high, negated):
            if low.kind != high.kind:
                return {low.kind: _compared("<", low), high.kind: _compared(">", high)} if negated else {}
            between = _intersect(_compared(">=", low), _compared("<=", high))
            return {low.kind: _without(low.kind, between) if negated else between}
        case StringTest(_, "STARTSWITH", text, negated):
            greatest = WHOLE[Kind.STRING].high
            after = _after_prefix(text)
            prefixed = [Interval(End(text, False), greatest if after is None else End(after, False))]
            return {Kind.STRING: _without(Kind.STRING, prefixed) if negated else prefixed}
    raise _refuse("found a test of a string that is no prefix in an event", expression)


def _key(constant: Literal) -> Any:
    if constant.kind == Kind.NUMBER:
        return number_key(constant.value)
    return microseconds(constant.value) if constant.kind == Kind.TIME else constant.value


def _point(constant: Literal) -> Interval:
    key = _key(constant)
    return Interval(End(key, False), End(key, True))


def _compared(operator: str, constant: Literal) -> Intervals:
    low, high = _point(constant)
    least, greatest = WHOLE[constant.kind]
    found = {
        "=": [Interval(low, high)],
        "<>": [Interval(least, low), Interval(high, greatest)],
        "<": [Interval(least, low)],
        "<=": [Interval(least, high)],
        ">": [Interval(high, greatest)],
        ">=": [Interval(low, greatest)],
    }[operator]
    return [each for each in found if _is_below(*each)]


def _is_below(one: End, other: End) -> bool:
    """Whether something lies between; the end of all strings is above every other one."""
    top = WHOLE[Kind.STRING].high
    if one is top or other is top:
        return one is not top
    return one < other


def _least(one: End, other: End) -> End:
    return one if _is_below(one, other) else other


def _intersect(some: Intervals, others: Intervals) -> Intervals:
    found = []
    for a in some:
        for b in others:
            low, high = (b.low if _is_below(a.low, b.low) else a.low), _least(a.high, b.high)
            if _is_below(low, high):
                found.append(Interval(low, high))
    return found


def _union(points: Iterable[Interval]) -> Intervals:
    return sorted(set(points))


def _without(kind: Kind, intervals: Intervals) -> Intervals:
    """All other values of the kind."""
    ends = [WHOLE[kind].low, *(end for each in intervals for end in each), WHOLE[kind].high]
    return [Interval(low, high) for low, high in zip(ends[::2], ends[1::2]) if _is_below(low, high)]


def _after_prefix(text: str) -> str | None:
    """The first string behind all that begin so; None where there is none."""
    text = text.rstrip("\U0010ffff")
    if not text:
        return None
    code = ord(text[-1]) + 1
    return text[:-1] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)


# ---- intervals to values ----


def _plain(kind: Kind, interval: Interval) -> Iterator[Any]:
    (low, after), (high, behind) = interval
    if kind == Kind.BOOLEAN:
        for each in (False, True):
            if interval.low <= End(each, False) and End(each, True) <= interval.high:
                yield each
        return
    whole = WHOLE[kind]
    if interval == whole:
        yield {
            Kind.NUMBER: Range(-math.inf, None),
            Kind.STRING: Range("", None),
            Kind.TIME: Range(dt.datetime.min, None),
        }[kind]
        return
    try:
        first = None if interval.low == whole.low else _next(kind, low, True) if after else _value(kind, low)
        last: Any = high
        if interval.high is not whole.high and kind != Kind.STRING:
            last = _value(kind, high) if behind else _next(kind, high, False)
    except OverflowError:  # beyond the years 1 to 9999
        return
    if interval.high is whole.high:
        yield Range(first, None)
        return
    if kind == Kind.STRING and not behind:
        yield Below("" if first is None else first, high)
        return
    if first is None:
        yield Range(None, last)
    elif (a := literal(first)) == (b := literal(last)):
        yield first
    elif _key(a) < _key(b):
        yield Range(first, last)


def _value(kind: Kind, key: Any) -> Any:
    if kind == Kind.NUMBER:
        near, rest = key
        return math.nan if near == math.inf and rest else int(near) + rest if rest else number(near).value
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=key) if kind == Kind.TIME else key


def _next(kind: Kind, key: Any, up: bool) -> Any:
    """The neighbour of a value: a string has one above it only."""
    if kind == Kind.STRING:
        return key + "\0"
    if kind == Kind.TIME:
        return _value(kind, key + (1 if up else -1))
    near, rest = key
    if near == math.inf and rest:
        return math.inf  # below NaN
    if near == math.inf and up:
        return math.nan
    value = _value(kind, key)
    beside = math.nextafter(near, math.inf if up else -math.inf)
    if abs(near) >= 2.0**53 and abs(near) < 2.0**65:  # integers lie closer than floats
        whole = int(value) + (1 if up else -1)
        if -(2**63) <= whole < 2**64:
            return whole
    if rest and (rest > 0) != up:
        return near
    return beside
