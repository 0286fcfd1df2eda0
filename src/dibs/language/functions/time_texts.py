"""Texts as times and days, and zones. Which texts are times is said once, in language.literals."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dibs.language.expression import EPOCH, MICROSECOND
from dibs.language.functions.plain import Moment, moment_of
from dibs.language.literals import time_of

_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_DAY_FORM = re.compile(r"\+?(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_OFFSET = re.compile(r"(?:UTC|GMT|UT|Z)?(?:(?<!Z)([+-])(\d{1,2})(?::?(\d{2}))?)?", re.ASCII)


def read_moment(text: str) -> Moment | None:
    """The time that a text says, as a test with a time reads it; None: it says none."""
    day = time_of(text)
    return None if day is None else moment_of(day)


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
