"""Constants: what is written in a text, as literals of the tree. What cannot be read raises LiteralError."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from dibs.language.expression import UNKNOWN, Constant, Kind, Literal, number


class LiteralError(ValueError):
    """A constant that cannot be read."""

    def __init__(self, message: str, advice: str):
        super().__init__(message)
        self.message = message
        self.advice = advice


# -- strings ---------------------------------------------------------------------------------------------------------

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|.)", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def unescape(text: str) -> str:
    """The inside of a quoted string with its backslash escapes read as Spark reads them."""
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(_unescape, text)
    try:  # two escapes may be the halves of one character
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise LiteralError(
            "the string holds half of a surrogate pair, which is no character",
            "write the character itself, both halves (\\uD83D\\uDE00), or \\U and eight digits (\\U0001F600)",
        ) from None


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 1:
        return _ESCAPED.get(code, code)
    if code[0] not in "uU":
        return chr(int(code, 8))
    if int(code[1:], 16) > 0x10FFFF:
        raise LiteralError(f"\\{code} is beyond the last character, \\U0010FFFF", "check the digits")
    return chr(int(code[1:], 16))


# -- numbers ---------------------------------------------------------------------------------------------------------

NUMBER = re.compile(
    r"(?P<digits>(?P<whole>\d+)|(?:\d+\.\d*|\.\d+|\d+(?=e))(?:e[+-]?\d+)?)(?P<suffix>bd|[df]|(?(whole)[lsy]|(?!)))?",
    re.ASCII | re.IGNORECASE,
)
INTEGER_BITS = {"L": 64, "S": 16, "Y": 8}
_TOO_LARGE = "write CAST('Infinity' AS DOUBLE) if infinity is meant"


def read_number(text: str, negative: bool = False) -> Literal | None:
    """The number that the text writes, with Spark's suffixes; None when it writes none.

    Without a suffix, or with BD, a number is exact where 64 bits hold it (9007199254740993.0 is that very integer)
    and the nearest float64 elsewhere. D asks for a float64 and F for a float32, L, S and Y for an integer in range.
    """
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    digits, suffix = match["digits"], (match["suffix"] or "").upper()
    sign = "-" if negative else ""
    if suffix in INTEGER_BITS:
        limit = 1 << (INTEGER_BITS[suffix] - 1)
        value = _whole(sign + digits)
        if not -limit <= value < limit:
            advice = f"write the number without {suffix}, or one from {-limit} to {limit - 1}"
            raise LiteralError(f"{sign}{text} does not fit in {INTEGER_BITS[suffix]} bits", advice)
        return number(value)
    if suffix == "F":
        return number(nearest_float32(float(sign + digits), sign + text))
    if match["whole"] and suffix != "D":
        return _finite(number(_whole(sign + digits)), sign + text)
    near = float(sign + digits)
    if suffix != "D" and 2**53 <= abs(near) <= 2**64:
        exact = Decimal(sign + digits)
        whole = exact.to_integral_value()
        if exact == whole:
            return number(int(whole))
    return _finite(number(near), sign + text)


def _whole(digits: str) -> int | float:
    """An integer; a float where it has more digits than 64 bits hold (int() refuses thousands of digits)."""
    return int(digits) if len(digits.lstrip("-0")) <= 20 else float(digits)


def _finite(literal: Literal, text: str) -> Literal:
    if math.isinf(literal.value):
        raise LiteralError(f"{_shorten(text)} is too large for a number", _TOO_LARGE)
    return literal


def nearest_float32(value: float, text: str) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        raise LiteralError(f"{_shorten(text)} is too large for a 32-bit float", "leave out the F") from None


# As Spark reads them: NaN in any case, but with a sign only as Java writes it.
_FLOAT_TEXT = re.compile(
    r"nan|[+-](?-i:NaN)|[+-]?(?:inf(?:inity)?|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)", re.ASCII | re.IGNORECASE
)
_BLANK = "".join(map(chr, range(0x21))) + "\x7f"  # what Spark trims: other spaces of Unicode stay


def read_float(text: str, single: bool) -> Literal:
    """The number that CAST(text AS DOUBLE), or AS FLOAT, gives."""
    stripped = text.strip(_BLANK)
    if not _FLOAT_TEXT.fullmatch(stripped):
        raise LiteralError(f"{_quote(text)} is not a number", "write digits, 'NaN', 'Infinity' or '-Infinity'")
    value = float(stripped)
    if math.isinf(value) and "n" not in stripped.lower():
        raise LiteralError(f"{_shorten(stripped)} is too large for a number", "write 'Infinity' if that is meant")
    return number(nearest_float32(value, stripped) if single else value)


# -- dates and timestamps --------------------------------------------------------------------------------------------

TIME_WORDS = frozenset(["DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"])
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
# What Spark's CAST reads, but for a time of day alone, signed and longer years and zones by the name of a place; and a
# zone behind minutes, too, which is how Java writes a time at the full minute.
_TIMESTAMP = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?"
    r"(?:[\0- ]*(Z|(?:UTC?|GMT)?[+-][\d:]+|UTC?|GMT))?)?)?)?)?",
    re.ASCII,
)
_ZONE = re.compile(
    r"(?:UTC?|GMT)?([+-])(?:(\d{1,2})(?::(\d{1,2})|:(\d{2}):(\d{2}))?|(\d{1,2})(\d{2})|(\d{2})(\d{2})(\d{2}))", re.ASCII
)
_EXPECTED = {
    "DATE": "write DATE 'yyyy-mm-dd'",
    "TIMESTAMP_NTZ": "write TIMESTAMP_NTZ 'yyyy-mm-dd hh:mm:ss', without a zone",
}
_EXPECTED_TIMESTAMP = "write TIMESTAMP 'yyyy-mm-dd hh:mm:ss', with a fraction (.123456) and a zone (+02:00) if needed"


def read_time(word: str, text: str) -> Literal:
    """DATE 'text' or TIMESTAMP 'text'. A timestamp without zone is UTC; digits behind the microseconds are dropped."""
    match = (_DATE if word == "DATE" else _TIMESTAMP).fullmatch(text.strip(_BLANK))
    try:
        if match is None:
            raise _NoTime("it has another form")
        if word == "DATE":
            return Literal(Kind.TIME, _make(dt.date, "there is no such day", *match.groups()))
        if match[8] and word == "TIMESTAMP_NTZ":
            raise _NoTime("it has a zone")
        return Literal(Kind.TIME, _moment(match))
    except _NoTime as error:
        advice = _EXPECTED.get(word, _EXPECTED_TIMESTAMP)
        raise LiteralError(f"{_quote(text)} is not a {word}: {error}", advice) from None


def time_of(text: str) -> dt.datetime | None:
    """The time in UTC that a string reads as, beside a time; None: it reads as none. It is that of TIMESTAMP 'text'."""
    match = _TIMESTAMP.fullmatch(text.strip(_BLANK))
    try:
        return None if match is None else _moment(match)
    except _NoTime:
        return None


def listed_time(literal: Literal) -> Literal:
    """A constant that stands beside a time in a list or a BETWEEN: a string is the time that it reads as."""
    if literal.kind != Kind.STRING:
        return literal
    found = time_of(literal.value)
    if found is None:
        advice = f"{_EXPECTED_TIMESTAMP}; for strings, write a condition of their own, joined by OR"
        raise LiteralError(f"{_quote(literal.value)} is no time, and stands beside one", advice)
    return Literal(Kind.TIME, found)


class _NoTime(ValueError):
    pass


def _moment(match: re.Match[str]) -> dt.datetime:
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    date = _make(dt.date, "there is no such day", year, month or "1", day or "1")
    microsecond = (fraction or "0")[:6].ljust(6, "0")
    clock = _make(dt.time, "there is no such time of day", hour, minute, second, microsecond)
    try:
        return dt.datetime.combine(date, clock) - _offset(zone)
    except OverflowError:
        raise _NoTime("in UTC it is outside of the years 1 to 9999") from None


def _make(make: Callable[..., Any], complaint: str, *numbers: str | None) -> Any:
    try:
        return make(*(int(x or 0) for x in numbers))
    except ValueError:
        raise _NoTime(complaint) from None


def _offset(zone: str | None) -> dt.timedelta:
    if zone in (None, "Z", "UTC", "UT", "GMT"):
        return dt.timedelta()
    match = _ZONE.fullmatch(zone)
    if match is None:
        raise _NoTime("its zone has another form")
    hours, minutes, seconds = (
        int(match[a] or match[b] or match[c] or 0) for a, b, c in ((2, 6, 8), (3, 7, 9), (5, 10, 10))
    )
    minutes = int(match[4] or minutes)
    offset = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if offset > dt.timedelta(hours=18) or max(minutes, seconds) > 59:
        raise _NoTime("a zone is between -18:00 and +18:00")
    return -offset if match[1] == "-" else offset


# -- comparing two constants -----------------------------------------------------------------------------------------


def compare(left: Literal, operator: str, right: Literal) -> Constant:
    """What the comparison of two constants gives: unknown across kinds, but that a string beside a time is read."""
    if left.kind != right.kind and Kind.TIME in (left.kind, right.kind):
        try:
            left, right = listed_time(left), listed_time(right)
        except LiteralError:
            return UNKNOWN
    if left.kind != right.kind:
        return UNKNOWN
    a, b = _order(left), _order(right)
    holds = {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
    return Constant(holds[operator])


def _order(literal: Literal) -> tuple[int, Any]:
    value = literal.value
    if literal.kind == Kind.NUMBER and value != value:
        return 1, 0  # NaN equals itself and is above every other number
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    return 0, value


def _quote(text: str) -> str:
    return f"'{_shorten(text)}'"


def _shorten(text: str, width: int = 40) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
