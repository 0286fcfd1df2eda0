"""Texts as times: the forms that Spark's CAST takes, but for a time of day alone and zones of three letters. A zone may
also stand behind the minutes, as ISO 8601 has it."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dibs.language.expression import EPOCH, MICROSECOND
from dibs.language.functions.plain import Moment, moment_of

_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_DAY = r"\+?(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
_DAY_FORM = re.compile(_DAY + r"(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_FORM = re.compile(
    _DAY + r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?\s*(\S*))?)?)?)?",
    re.ASCII,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT|Z)?(?:(?<!Z)([+-])(\d{1,2})(?::?(\d{2}))?)?", re.ASCII)


def read_moment(text: str) -> Moment | None:
    """The time that a text says, in UTC where it has no zone; None: it says none."""
    match = _FORM.fullmatch(text.strip(_BLANK))
    if match is None:
        return None
    *numbers, fraction, zone = match.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    try:
        moment = dt.datetime(year, month or _first(numbers[1]), day or _first(numbers[2]), hour, minute, second)
    except ValueError:
        return None
    total = (moment - EPOCH) // MICROSECOND + int((fraction or "0")[:6].ljust(6, "0"))
    if not zone:
        return Moment(total)
    return in_zone(Moment(total), find_zone(zone), dt.timezone.utc)


def read_day(text: str) -> Moment | None:
    """The day that a text says, whatever stands behind it."""
    match = _DAY_FORM.fullmatch(text.strip(_BLANK))
    if match is None:
        return None
    try:
        year, month, day = (int(number or 1) for number in match.groups())
        return moment_of(dt.datetime(year, month, day))
    except ValueError:
        return None


def _first(written: str | None) -> int:
    """1, where nothing is written; 0, which there is not, for 0."""
    return 1 if written is None else 0


def in_zone(moment: Moment, first: dt.tzinfo | None, last: dt.tzinfo | None) -> Moment | None:
    """What clocks in the last zone say, when those in the first say this."""
    if first is None or last is None:
        return None
    try:
        day = EPOCH + moment.microseconds * MICROSECOND
        return moment_of(day.replace(tzinfo=first).astimezone(last).replace(tzinfo=None))
    except OverflowError:
        return None


@lru_cache(1024)
def find_zone(name: str) -> dt.tzinfo | None:
    """A zone by its name, or by what it is ahead of UTC: Europe/Berlin, +02:00."""
    match = _OFFSET.fullmatch(name)
    if match is None:
        return _named_zone(name)
    hours, minutes = int(match[2] or 0), int(match[3] or 0)
    if minutes > 59 or 60 * hours + minutes > 18 * 60 or not name:
        return None
    size = dt.timedelta(hours=hours, minutes=minutes)
    return dt.timezone(-size if match[1] == "-" else size)


def _named_zone(name: str) -> dt.tzinfo | None:
    if "/" not in name:  # of PST and the like there are several
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
