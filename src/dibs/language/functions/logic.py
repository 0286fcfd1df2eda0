"""Comparisons, three-valued logic, and what chooses between values. NULL is UNKNOWN."""

from __future__ import annotations

import operator
from typing import Any

from dibs.language.functions import texts
from dibs.language.functions.plain import Array, Moment, Object, Plain, is_number, order_of
from dibs.language.functions.table import Kinds, fitting, function, kind_of
from dibs.language.functions.time_texts import read_moment
from dibs.language.regex import LikeError, like_regex
from dibs.language.scalars import Interval

OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


_NUMBERS = (int, float)


def comparable(a: Plain, b: Plain) -> tuple[Any, Any] | None:
    """Keys of two values that order them; None: they are of different kinds. A string beside a time is read as one."""
    if isinstance(a, Moment) and isinstance(b, str):
        b = read_moment(b)
    elif isinstance(b, Moment) and isinstance(a, str):
        a = read_moment(a)
    if a is None or b is None or kind_of(a) != kind_of(b) or isinstance(a, (Array, Object)):
        return None
    if is_number(a):
        return order_of(a), order_of(b)  # type: ignore[arg-type]
    if isinstance(a, str):
        return a.encode(), b.encode()  # type: ignore[union-attr]
    if isinstance(a, Interval) and isinstance(b, Interval) and (a.months or b.months):
        return None if a.microseconds or b.microseconds else (a.months, b.months)
    return a, b


def compare(sign: str, a: Any, b: Any) -> bool | None:
    kind, other = type(a), type(b)
    if kind is other is str or (kind in _NUMBERS and other in _NUMBERS and a == a and b == b):
        return bool(OPERATORS[sign](a, b))  # characters are in the order of their bytes
    keys = comparable(a, b)
    return None if keys is None else bool(OPERATORS[sign](*keys))


def _declare(sign: str) -> None:
    @function(sign, "A A", "B", f"whether the first is {sign} the second", takes_null=True)
    def form(a: Plain, b: Plain) -> bool | None:
        return compare(sign, a, b)


for _sign in OPERATORS:
    _declare(_sign)


@function("<=>", "A A", "B", "whether they are equal, or both NULL", takes_null=True)
def same(a: Plain, b: Plain) -> bool:
    return b is None if a is None else compare("=", a, b) is True


@function("AND", "B B*", "B", "whether all are TRUE", takes_null=True)
def both(*values: Plain) -> bool | None:
    return False if False in _booleans(values) else None if None in _booleans(values) else True


@function("OR", "B B*", "B", "whether one is TRUE", takes_null=True)
def either(*values: Plain) -> bool | None:
    return True if True in _booleans(values) else None if None in _booleans(values) else False


def _booleans(values: tuple[Plain, ...]) -> list[bool | None]:
    return [value if isinstance(value, bool) else None for value in values]


@function("NOT", "B", "B", "whether it is FALSE")
def opposite(value: bool) -> bool:
    return not value


@function("ISNULL", "A", "B", "whether it is NULL", takes_null=True)
def is_null(value: Plain) -> bool:
    return value is None


@function("IN", "A A*", "B", "whether it is one of the others", takes_null=True)
def is_in(value: Plain, *others: Plain) -> bool | None:
    found = [compare("=", value, other) for other in others]
    return True if True in found else None if None in found else False


@function("BETWEEN", "A A A", "B", "whether it is neither below the second nor above the third", takes_null=True)
def is_between(value: Plain, low: Plain, high: Plain) -> bool | None:
    return both(compare(">=", value, low), compare("<=", value, high))


@function("LIKE", "S S S?", "B", "whether the whole text has this form: % is any text, _ any character")
def is_like(text: str, pattern: str, escape: str = "\\") -> bool | None:
    try:
        return texts.find_regex(like_regex(pattern, escape), text)
    except LikeError:
        return None


@function("ILIKE", "S S S?", "B", "LIKE, with both in lower case")
def is_like_in_lower_case(text: str, pattern: str, escape: str = "\\") -> bool | None:
    return is_like(texts.lower(text), texts.lower(pattern), escape)


@function("RLIKE REGEXP_LIKE REGEXP", "S S", "B", "whether some part of the text matches the regular expression")
def is_rlike(text: str, pattern: str) -> bool | None:
    return texts.find_regex(pattern, text)


@function("CASE", "A A A*", "A", "the value behind the first condition that is TRUE", takes_null=True)
def case(*arguments: Plain) -> Plain:
    for i in range(0, len(arguments) - 1, 2):
        if arguments[i] is True:
            return arguments[i + 1]
    return arguments[-1] if len(arguments) % 2 else None


@function("IF IFF", "B A A", "A", "the second where the condition is TRUE, else the third", takes_null=True)
def choose(condition: Plain, yes: Plain, no: Plain) -> Plain:
    return yes if condition is True else no


@function("COALESCE", "A A*", "A", "the first that is not NULL", takes_null=True)
def coalesce(*values: Plain) -> Plain:
    return next((value for value in values if value is not None), None)


@function("NVL IFNULL", "A A", "A", "the first, or the second where that is NULL", takes_null=True)
def if_null(value: Plain, other: Plain) -> Plain:
    return other if value is None else value


@function("NVL2", "A A A", "A", "the second where the first is not NULL, else the third", takes_null=True)
def if_not_null(value: Plain, there: Plain, missing: Plain) -> Plain:
    return missing if value is None else there


@function("NULLIF", "A A", "A", "the first, or NULL where both are equal", takes_null=True)
def null_if(value: Plain, other: Plain) -> Plain:
    return None if compare("=", value, other) is True else value


@function("GREATEST", "A A*", "A", "the greatest that is not NULL; NULL where kinds differ", takes_null=True)
def greatest(*values: Plain) -> Plain:
    return _extreme(values, ">")


@function("LEAST", "A A*", "A", "the least that is not NULL; NULL where kinds differ", takes_null=True)
def least(*values: Plain) -> Plain:
    return _extreme(values, "<")


def _extreme(values: tuple[Plain, ...], sign: str) -> Plain:
    there = [value for value in values if value is not None]
    if any(isinstance(value, Moment) for value in there):
        there = [value for each in there if (value := fitting(each, Kinds.TIME)) is not None]
    if len({kind_of(value) for value in there}) != 1:
        return None
    best = there[0]
    for value in there[1:]:
        if compare(sign, value, best):
            best = value
    return best


@function("ISNOTNULL", "A", "B", "whether it is not NULL", takes_null=True)
def is_not_null(value: Plain) -> bool:
    return value is not None
