"""One Python value of an event, brought to its kind: booleans, numbers, strings, dates and timestamps, ranges.

This is the slow lane of the dict entry: plain bool, int, float and str are taken without coming here.
"""

from __future__ import annotations

import datetime as dt
import enum
import fractions
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from dibs.coding.values import Range, number_key
from dibs.language.expression import EPOCH, Kind

EXPECTED = "expected a boolean, number, string, date or timestamp, or an array or object of these"

_EPOCH_DAY = EPOCH.toordinal()
OUTSIDE_TIME = "found a date or timestamp outside the range of 64-bit microseconds; expected years up to 294,246"
LONE_SURROGATE = "found a string with a lone surrogate; expected text that UTF-8 can write"
MICROSECONDS_A_DAY = 86_400_000_000

_ADVICE: dict[type, str] = {
    bytes: "decode it to a string",
    bytearray: "decode it to a string",
    memoryview: "decode it to a string",
    uuid.UUID: "pass str(value)",
    enum.Enum: "pass its .value",
    fractions.Fraction: "pass float(value)",
    dt.timedelta: "pass a number, such as its seconds",
    dt.time: "pass a string or a number",
    np.timedelta64: "pass a number, such as its seconds",
}


class UnreadableValue(Exception):
    """The value is of no kind; the message says what was found and what is expected."""


def read_scalar(value: Any) -> tuple[Kind, Any] | None:
    """(kind, value) with a plain bool, int, float or str, for times microseconds since 1970 UTC; None for a null.

    Nulls are None and what pandas and NumPy have for it: NaT and NA (not NaN, which is a number).
    """
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)):
        return Kind.BOOLEAN, bool(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64):  # NumPy calls it an integer
        return Kind.NUMBER, int(value)
    if isinstance(value, (float, np.floating)):
        return Kind.NUMBER, float(value)
    if isinstance(value, str):
        return Kind.STRING, str.__str__(value)
    if isinstance(value, dt.datetime):
        return None if value != value else (Kind.TIME, _microseconds(value))  # pandas' NaT is a datetime
    if isinstance(value, dt.date):
        return Kind.TIME, (value.toordinal() - _EPOCH_DAY) * MICROSECONDS_A_DAY
    if isinstance(value, Decimal):
        return Kind.NUMBER, decimal_number(value)
    if isinstance(value, np.datetime64):
        microseconds = numpy_microseconds(value)
        return None if microseconds is None else (Kind.TIME, microseconds)
    if type(value).__name__ == "NAType":
        return None
    advice = next((text for kind, text in _ADVICE.items() if isinstance(value, kind)), "")
    raise UnreadableValue(f"found a value of type {type(value).__name__}; {EXPECTED}" + (advice and f": {advice}"))


def decimal_number(value: Decimal) -> int | float:
    """An integer when integral and of 64 bits, else the nearest float64."""
    if value.is_nan():
        return float("nan")
    # The magnitude goes first: int() of Decimal("1E+999999999") would not come to an end.
    if value.is_finite() and value.adjusted() < 20 and value == value.to_integral_value():
        whole = int(value)
        if -(2**63) <= whole < 2**64:
            return whole
    return float(value)


def numpy_microseconds(value: np.datetime64) -> int | None:
    """Microseconds since 1970 (finer units round down); None for NaT."""
    if np.isnat(value):
        return None
    unit, count = np.datetime_data(value.dtype)
    if unit in ("Y", "M"):  # no fixed length: NumPy counts them as days first
        value, unit, count = value.astype("datetime64[D]"), "D", 1
    per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
    seconds = {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60, "s": 1}.get(unit, 1)
    ticks = int(value.astype(np.int64)) * count * seconds
    microseconds = ticks * 10**6 // per_second.get(unit, 1)
    if not -(2**63) <= microseconds < 2**63:
        raise UnreadableValue(OUTSIDE_TIME)
    return microseconds


def read_range(value: Range) -> Range:
    """The same range with plain ends: bool, int or float, str, or datetime without zone (UTC)."""
    lo, hi = _range_end(value.lo), _range_end(value.hi)
    if lo is None and hi is None:
        raise UnreadableValue("found a Range with both ends open; expected at least one end")
    if lo is not None and hi is not None:
        if lo[0] is not hi[0]:
            raise UnreadableValue(
                f"found a Range from {lo[0].name.lower()} to {hi[0].name.lower()}; expected both ends of one kind"
            )
        keys = [number_key(end[1]) if end[0] is Kind.NUMBER else end[1] for end in (lo, hi)]
        if keys[0] > keys[1]:
            try:
                shown = repr(value)
            except ValueError:  # an integer of thousands of digits
                shown = "a Range"
            raise UnreadableValue(f"found {shown}; expected its first end not to be above its second")
    return Range(lo and lo[1], hi and hi[1])


def _range_end(end: Any) -> tuple[Kind, Any] | None:
    try:
        scalar = read_scalar(end)
    except UnreadableValue as problem:
        raise UnreadableValue(f"in a Range: {problem}") from None
    if scalar is None:
        return None
    if scalar[0] is Kind.STRING and not is_text(scalar[1]):
        raise UnreadableValue(f"in a Range: {LONE_SURROGATE}")
    if scalar[0] is Kind.TIME:
        try:
            return Kind.TIME, EPOCH + dt.timedelta(microseconds=scalar[1])
        except OverflowError:
            raise UnreadableValue("in a Range: found a timestamp outside the years 1 to 9999") from None
    return scalar


def is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _microseconds(value: dt.datetime) -> int:
    offset = None if value.tzinfo is None else value.utcoffset()
    delta = (value if value.tzinfo is None else value.replace(tzinfo=None)) - EPOCH
    if offset:
        delta -= offset
    return delta.days * MICROSECONDS_A_DAY + delta.seconds * 1_000_000 + delta.microseconds


# The same as read_scalar, for types that are common enough to be told from their class alone.
EXACT_SCALARS: dict[type, Callable[[Any], tuple[Kind, Any] | None]] = {
    dt.datetime: lambda value: (Kind.TIME, _microseconds(value)),
    dt.date: lambda value: (Kind.TIME, (value.toordinal() - _EPOCH_DAY) * MICROSECONDS_A_DAY),
    Decimal: lambda value: (Kind.NUMBER, decimal_number(value)),
    np.bool_: lambda value: (Kind.BOOLEAN, bool(value)),
    np.int64: lambda value: (Kind.NUMBER, int(value)),
    np.float64: lambda value: (Kind.NUMBER, float(value)),
    np.float32: lambda value: (Kind.NUMBER, float(value)),
}
