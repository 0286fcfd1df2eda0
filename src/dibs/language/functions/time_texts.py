"""Texts as times: the forms that Spark's CAST takes, but for a time of day alone."""

from __future__ import annotations

import datetime as dt
import re

from dibs.language.expression import EPOCH, MICROSECOND
from dibs.language.functions.plain import Moment

_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_FORM = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](?:(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?"
    r" ?(Z|UTC|GMT|(?:UTC|GMT)?[+-]\d{1,2}(?::?\d{2})?)?)?)?)?)?",
    re.ASCII,
)
_ZONE = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", re.ASCII)


def read_moment(text: str) -> Moment | None:
    """The time that a text says, in UTC where it has no zone; None: it says none."""
    match = _FORM.fullmatch(text.strip(_BLANK))
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = dt.datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0)
        )
    except ValueError:
        return None
    offset = _read_zone(zone)
    if offset is None:
        return None
    micro = int((fraction or "0")[:6].ljust(6, "0"))
    total = (moment - EPOCH) // MICROSECOND + micro - offset
    return Moment(total)


def _read_zone(zone: str | None) -> int | None:
    """Microseconds ahead of UTC; None: there is no such zone."""
    match = _ZONE.fullmatch(zone or "")
    if match is None:  # none, Z, UTC or GMT
        return 0
    minutes = 60 * int(match[2]) + int(match[3] or 0)
    if minutes > 18 * 60 or int(match[3] or 0) > 59:
        return None
    return (-minutes if match[1] == "-" else minutes) * 60_000_000
