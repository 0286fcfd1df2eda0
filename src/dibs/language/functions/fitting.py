"""Values as those of a declared type (language.types), exactly; None: a value does not fit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from dibs.language.functions.casts import cast, to_text
from dibs.language.functions.plain import Moment, Plain, is_number, plain_number, plain_value
from dibs.language.functions.time_texts import read_moment
from dibs.language.functions.times import DAY, from_micros, from_millis, from_seconds

_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_WHOLE = re.compile(r"[+-]?\d{1,400}", re.ASCII)


def to_number(value: Plain) -> int | float | None:
    if isinstance(value, str):
        text = value.strip(_BLANK)
        if _WHOLE.fullmatch(text):
            try:
                return plain_value(int(text))
            except OverflowError:  # beyond float64
                return None
        found = cast(text, "DOUBLE")
        return plain_number(found) if isinstance(found, (int, float)) else None
    return value if is_number(value) else None  # type: ignore[return-value]


def to_integer(value: Plain, domain: tuple[int, int]) -> int | None:
    """A whole number of a domain."""
    number = to_number(value)
    if number is None or not domain[0] <= number <= domain[1] or number != int(number):
        return None
    return int(number)


def to_string(value: Plain) -> str | None:
    return to_text(value)


def to_boolean(value: Plain) -> bool | None:
    if isinstance(value, bool):
        return value
    if is_number(value):
        return bool(value) if value in (0, 1) else None
    found = cast(value, "BOOLEAN") if isinstance(value, str) else None
    return found if isinstance(found, bool) else None


def to_timestamp(value: Plain) -> Moment | None:
    if isinstance(value, str):
        return read_moment(value)
    return value if isinstance(value, Moment) else None


def to_date(value: Plain) -> Moment | None:
    found = to_timestamp(value)
    return found if found is not None and found.microseconds % DAY == 0 else None


def _since_1970(form: Callable[[int | float], Moment | None]) -> Callable[[Plain], Moment | None]:
    def to_time(value: Plain) -> Moment | None:
        if isinstance(value, Moment):
            return value
        number = to_number(value)
        if number is None and isinstance(value, str):
            return read_moment(value)
        return None if number is None or not math.isfinite(number) else form(number)

    return to_time


def _seconds(number: int | float) -> Moment | None:
    """To the nearest microsecond: a fraction is hardly ever a float64."""
    return (
        from_seconds(number)
        if isinstance(number, int)
        else from_micros(round(number * 1e6))
        if abs(number) < 1e13
        else None
    )


FITS: dict[str, Callable[[Plain], Plain]] = {
    "number": to_number,
    "string": to_string,
    "boolean": to_boolean,
    "date": to_date,
    "timestamp": to_timestamp,
    "timestamp_seconds": _since_1970(_seconds),
    "timestamp_millis": _since_1970(from_millis),
    "timestamp_micros": _since_1970(from_micros),
}
