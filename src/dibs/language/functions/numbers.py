"""Functions of numbers: arithmetic, rounding, powers. As Spark computes, with NULL where it raises an error."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from dibs.language.functions.plain import LEAST, MOST, Moment, Number, Plain, is_integer, is_number
from dibs.language.functions.table import function
from dibs.language.functions.times import add_interval
from dibs.language.scalars import Interval


@function("+", "NTI NTI", "NTI", "the sum; of a time and an interval, a time")
def add(a: Plain, b: Plain) -> Plain:
    if isinstance(a, Moment) and isinstance(b, Interval):
        return add_interval(a, b)
    if isinstance(b, Moment) and isinstance(a, Interval):
        return add_interval(b, a)
    if isinstance(a, Interval) and isinstance(b, Interval):
        return whole_interval(a.months + b.months, a.microseconds + b.microseconds)
    return numbers(a, b, operator.add)


def numbers(a: Plain, b: Plain, compute: Callable[[Any, Any], Number]) -> Number | None:
    return compute(a, b) if is_number(a) and is_number(b) else None


def whole_interval(months: int, microseconds: int) -> Interval | None:
    return Interval(months, microseconds) if max(abs(months), abs(microseconds)) <= MOST else None


@function("-", "NTI NTI", "NTI", "the difference; of two times, an interval")
def subtract(a: Plain, b: Plain) -> Plain:
    if isinstance(b, Interval):
        return add(a, Interval(-b.months, -b.microseconds)) if not is_number(a) else None
    if isinstance(a, Moment) and isinstance(b, Moment):
        return whole_interval(0, a.microseconds - b.microseconds)
    return numbers(a, b, operator.sub)


@function("*", "NI NI", "NI", "the product")
def multiply(a: Plain, b: Plain) -> Plain:
    if isinstance(b, Interval):
        a, b = b, a
    if isinstance(a, Interval):
        return scale(a, b) if is_number(b) else None  # type: ignore[arg-type]
    return numbers(a, b, operator.mul)


def scale(interval: Interval, factor: Number) -> Interval | None:
    """Spark rounds half up, away from zero."""
    if not math.isfinite(factor):
        return None
    months, rest = (_half_up(Decimal(part) * Decimal(factor)) for part in interval)
    return whole_interval(months, rest)


def _half_up(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_UP))


@function("/", "NI N", "NI", "the quotient, with its fraction; NULL where the divisor is 0")
def divide(a: Plain, b: Number) -> Plain:
    if b == 0:
        return None
    if isinstance(a, Interval):
        if not math.isfinite(b):
            return None
        months, rest = (_half_up(Decimal(part) / Decimal(b)) for part in a)
        return whole_interval(months, rest)
    return float(a) / float(b)  # type: ignore[arg-type]


@function("% MOD", "N N", "N", "the rest of a division, with the sign of the dividend; NULL where the divisor is 0")
def remainder(a: Number, b: Number) -> Number | None:
    if b == 0:
        return None
    if is_integer(a) and is_integer(b):
        return int(math.copysign(1, a)) * (abs(a) % abs(b)) if a else 0
    return math.nan if math.isinf(a) or a != a or b != b else math.fmod(a, b)


@function("DIV", "N N", "N", "the quotient of whole numbers, without its fraction; NULL where the divisor is 0")
def quotient(a: Number, b: Number) -> int | None:
    if not (is_integer(a) and is_integer(b)) or b == 0:
        return None
    size = abs(a) // abs(b)
    return size if (a < 0) == (b < 0) else -size  # type: ignore[return-value]


@function("NEGATIVE", "NI", "NI", "the value with the other sign")
def negative(a: Plain) -> Plain:
    if isinstance(a, Interval):
        return Interval(-a.months, -a.microseconds)
    return -a  # type: ignore[operator]


@function("&", "N N", "N", "the bits that both have")
def bits_of_both(a: Number, b: Number) -> int | None:
    return a & b if is_integer(a) and is_integer(b) else None  # type: ignore[operator]


@function("|", "N N", "N", "the bits that one of them has")
def bits_of_either(a: Number, b: Number) -> int | None:
    return a | b if is_integer(a) and is_integer(b) else None  # type: ignore[operator]


@function("^", "N N", "N", "the bits that just one of them has")
def bits_of_one(a: Number, b: Number) -> int | None:
    return a ^ b if is_integer(a) and is_integer(b) else None  # type: ignore[operator]


@function("~", "N", "N", "the bits that it does not have")
def other_bits(a: Number) -> int | None:
    return ~a if is_integer(a) else None  # type: ignore[operator]


@function("<< SHIFTLEFT", "N N", "N", "its 64 bits moved to the left")
def shift_left(a: Number, b: Number) -> int | None:
    if not (is_integer(a) and is_integer(b)):
        return None
    return _signed(a << (b & 63))  # type: ignore[operator]


@function(">> SHIFTRIGHT", "N N", "N", "its 64 bits moved to the right, with the sign kept")
def shift_right(a: Number, b: Number) -> int | None:
    return a >> (b & 63) if is_integer(a) and is_integer(b) else None  # type: ignore[operator]


def _signed(bits: int) -> int:
    bits &= 2**64 - 1
    return bits - 2**64 if bits >= 2**63 else bits


@function("ABS", "NI", "NI", "the value without its sign")
def absolute(a: Plain) -> Plain:
    if isinstance(a, Interval):
        return negative(a) if (a.months, a.microseconds) < (0, 0) else a
    return abs(a)  # type: ignore[arg-type]


def _clamped(value: float) -> int:
    """As Java makes integers of floats."""
    if value != value:
        return 0
    return int(min(max(value, float(LEAST)), 2.0**63)) if abs(value) < 2.0**63 else LEAST if value < 0 else MOST


@function("CEIL CEILING", "N", "N", "the least whole number that is not below it")
def ceil(a: Number) -> int:
    return a if isinstance(a, int) else _clamped(math.ceil(a) if math.isfinite(a) else a)


@function("FLOOR", "N", "N", "the greatest whole number that is not above it")
def floor(a: Number) -> int:
    return a if isinstance(a, int) else _clamped(math.floor(a) if math.isfinite(a) else a)


@function("ROUND", "N N?", "N", "the number with so many digits behind the point (0), halves away from zero")
def rounded(a: Number, digits: Number = 0) -> Number | None:
    if not is_integer(digits):
        return None
    if not math.isfinite(a) or (isinstance(a, int) and digits >= 0):
        return a
    if abs(digits) > 400:
        return a if digits > 0 else 0
    try:
        value = Decimal(repr(a)) if isinstance(a, float) else Decimal(a)
        result = value.quantize(Decimal(1).scaleb(-int(digits)), ROUND_HALF_UP)
    except InvalidOperation:  # it has fewer digits than that
        return a if digits > 0 else _round_large(a, int(digits))
    return int(result) if isinstance(a, int) else float(result)


def _round_large(a: Number, digits: int) -> Number:
    unit = Decimal(1).scaleb(-digits)
    result = _half_up(Decimal(repr(a)) / unit) * unit
    return int(result) if isinstance(a, int) else float(result)


@function("SIGN SIGNUM", "N", "N", "-1, 0 or 1")
def sign(a: Number) -> Number:
    return a if a != a else (a > 0) - (a < 0)


@function("SQRT", "N", "N", "the square root; NaN below 0")
def square_root(a: Number) -> float:
    return math.sqrt(a) if a >= 0 else math.nan


@function("POWER POW", "N N", "N", "the first to the power of the second")
def power(a: Number, b: Number) -> float:
    if b != b or (abs(a) == 1 and math.isinf(b)):
        return math.nan  # as in Java
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and float(b).is_integer() and int(b) % 2 else math.inf
    except ValueError:  # 0 to a negative power, or a root of a negative number
        return math.inf if a == 0 else math.nan


@function("EXP", "N", "N", "e to the power of it")
def exponential(a: Number) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


@function("LN", "N", "N", "the natural logarithm; NULL for 0 and below")
def logarithm(a: Number) -> float | None:
    return None if a <= 0 else math.log(a)


@function("LOG10", "N", "N", "the logarithm to base 10; NULL for 0 and below")
def logarithm_10(a: Number) -> float | None:
    return None if a <= 0 else math.log10(a)


@function("LOG2", "N", "N", "the logarithm to base 2; NULL for 0 and below")
def logarithm_2(a: Number) -> float | None:
    return None if a <= 0 else math.log(a) / math.log(2.0)
