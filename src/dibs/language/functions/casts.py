"""CAST: values of one kind as values of another. What cannot be cast is NULL."""

from __future__ import annotations

import math
import re
import struct

from dibs.language.functions.plain import Moment, Plain, datetime_of
from dibs.language.functions.table import Kinds, function
from dibs.language.functions.time_texts import read_day, read_moment
from dibs.language.functions.times import DAY, SECOND, from_seconds
from dibs.language.literals import LiteralError, read_float

TYPES = {  # as they are written, and what they are
    **dict.fromkeys(["BOOLEAN", "BOOL"], "BOOLEAN"),
    **dict.fromkeys(["BIGINT", "LONG"], "BIGINT"),
    **dict.fromkeys(["INT", "INTEGER"], "INT"),
    **dict.fromkeys(["SMALLINT", "SHORT"], "SMALLINT"),
    **dict.fromkeys(["TINYINT", "BYTE"], "TINYINT"),
    "DOUBLE": "DOUBLE",
    **dict.fromkeys(["FLOAT", "REAL"], "FLOAT"),
    **dict.fromkeys(["STRING", "VARCHAR", "TEXT"], "STRING"),
    "DATE": "DATE",
    **dict.fromkeys(["TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"], "TIMESTAMP"),
}
_KINDS = {
    "BOOLEAN": Kinds.BOOLEAN,
    "STRING": Kinds.STRING,
    **dict.fromkeys(["DATE", "TIMESTAMP"], Kinds.TIME),
}
_BITS = {"BIGINT": 64, "INT": 32, "SMALLINT": 16, "TINYINT": 8}
_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")


def kinds_of_type(name: str) -> Kinds:
    return _KINDS.get(name, Kinds.NUMBER)


@function("CAST TRY_CAST", "A S", "A", "the value as one of this type; NULL where it cannot be")
def cast(value: Plain, to: str) -> Plain:
    if to in _BITS:
        return _to_integer(value, _BITS[to])
    return {
        "BOOLEAN": _to_boolean,
        "DOUBLE": _to_double,
        "FLOAT": _to_float,
        "STRING": to_text,
        "DATE": _to_date,
        "TIMESTAMP": _to_time,
    }[to](value)


def _to_integer(value: Plain, bits: int) -> int | None:
    if isinstance(value, str):
        text = value.strip(_BLANK)
        if not _WHOLE.fullmatch(text) or len(text) > 40:
            return None
        value = int(text)
    elif isinstance(value, Moment):
        value = value.microseconds // SECOND
    elif isinstance(value, float):
        if not math.isfinite(value):
            return None
        value = math.trunc(value)
    if not isinstance(value, int):
        return None
    number = int(value)
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None


def _to_double(value: Plain) -> float | int | None:
    if isinstance(value, str):
        try:
            return float(read_float(value, single=False).value)
        except LiteralError:
            return None
    if isinstance(value, Moment):
        return value.microseconds / SECOND
    return float(value) if isinstance(value, (bool, int, float)) else None


def _to_float(value: Plain) -> float | int | None:
    number = _to_double(value)
    if number is None or not math.isfinite(number):
        return number
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _to_boolean(value: Plain) -> bool | None:
    if isinstance(value, str):
        text = value.strip(_BLANK).lower()
        return True if text in _TRUE else False if text in _FALSE else None
    return bool(value) if isinstance(value, (bool, int, float)) else None


def _to_time(value: Plain) -> Moment | None:
    if isinstance(value, str):
        return read_moment(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return from_seconds(value)
    return value if isinstance(value, Moment) else None


def _to_date(value: Plain) -> Moment | None:
    if isinstance(value, str):
        return read_day(value)
    return Moment(value.microseconds // DAY * DAY) if isinstance(value, Moment) else None


def to_text(value: Plain) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Moment):
        day = datetime_of(value)
        return None if day is None else day.isoformat(sep=" ").rstrip("0").rstrip(".") if day.microsecond else str(day)
    if isinstance(value, float):
        return float_text(value)
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else None


@function("SAME_TEXT", "A A A*", "B", "whether it equals one of the others, all as strings", takes_null=True)
def is_same_text(value: Plain, *others: Plain) -> bool | None:
    """4625 and '4625' are alike."""
    text, found = to_text(value), list(map(to_text, others))
    if text is None:
        return None
    return True if text in found else None if None in found else False


def float_text(value: float) -> str:
    """As Java writes it: 1.0E-5, 123.5, 1.0E20."""
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = _digits(value)
    if 1e-3 <= abs(value) < 1e7:
        point = exponent + 1
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _digits(value: float) -> tuple[str, str, int]:
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    shift = len(whole) - 1 if whole.strip("0") else -(len(fraction) - len(fraction.lstrip("0"))) - 1
    return sign, digits.rstrip("0") or "0", int(exponent or 0) + shift
