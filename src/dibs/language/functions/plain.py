"""Plain values, which functions compute with, and the one way to apply a function to them.

    None, bool, int, float, str, Moment, Interval; Array and Object, as they came

A number is an int where it is a whole number of 64 bits, whatever it was written as, else a float: 2.5 + 0.5 is 3. A
Moment is a date or a timestamp. None is NULL: a missing value, and whatever Spark would raise an error for.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Union

from dibs.language.expression import EPOCH, MICROSECOND, Kind, Literal, microseconds, number
from dibs.language.scalars import Interval

LEAST, MOST = -(2**63), 2**63 - 1  # of an integer


class Moment(NamedTuple):
    """A time, in microseconds since 1970 UTC."""

    microseconds: int


@dataclass(frozen=True, slots=True)
class Array:
    """An array as it came: nulls, arrays and objects are elements of it."""

    elements: tuple[Plain, ...]


@dataclass(frozen=True, slots=True)
class Object:
    """An object. It is no value itself, but what lies in it may be."""

    members: tuple[tuple[str, Plain], ...]


Number = int | float
Plain = Union[None, bool, int, float, str, Moment, Interval, Array, Object]
Form = Callable[..., Plain]


def plain_number(value: int | float) -> int | float | None:
    """A result as a number: NULL for an integer that does not fit, -0.0 is 0."""
    if isinstance(value, int):
        return value if LEAST <= value <= MOST else None
    return int(value) if value.is_integer() and -(2.0**63) <= value < 2.0**63 else value


def plain_of(literal: Literal | None) -> Plain:
    """A constant of a text."""
    if literal is None:
        return None
    kind, value = literal
    if kind == Kind.TIME:
        return Moment(microseconds(value))
    return plain_value(value) if kind == Kind.NUMBER else value


def plain_value(value: int | float) -> int | float:
    """A number as it comes: integers beyond 64 bits with sign are the nearest float64."""
    found = plain_number(value)
    return float(value) if found is None else found


def literal_of(value: Plain) -> Literal | None:
    """The other way round. (Intervals are no literals.)"""
    if value is None:
        return None
    if isinstance(value, Moment):
        try:
            return Literal(Kind.TIME, EPOCH + value.microseconds * MICROSECOND)
        except OverflowError:
            return None
    assert not isinstance(value, (Interval, Array, Object))
    if isinstance(value, bool):
        return Literal(Kind.BOOLEAN, value)
    return Literal(Kind.STRING, value) if isinstance(value, str) else number(value)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def order_of(value: int | float) -> tuple[int, int | float]:
    """A key that orders numbers: NaN equals itself and is above all others."""
    return (1, 0) if value != value else (0, value)


def moment_of(day: dt.datetime) -> Moment:
    return Moment((day - EPOCH) // MICROSECOND)


def datetime_of(moment: Moment) -> dt.datetime | None:
    """None beyond the years 1 to 9999."""
    try:
        return EPOCH + moment.microseconds * MICROSECOND
    except OverflowError:
        return None


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
