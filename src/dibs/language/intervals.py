"""Reading lengths of time: INTERVAL 10 MINUTES, INTERVAL '10' MINUTES, INTERVAL '1 day 2 hours'."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dibs.language.problems import Refused
from dibs.language.scalars import Interval

if TYPE_CHECKING:
    from dibs.language.operands import OperandReader

LONGEST = 2**63  # microseconds: more than all times that can be told apart
UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
FORM = "write INTERVAL 10 MINUTES, with YEARS, MONTHS, WEEKS, DAYS, HOURS, MINUTES or SECONDS"
_PART = re.compile(r"\s*([+-]?\d+)\s+([A-Za-z]+)\s*", re.ASCII)


def read_interval(reader: OperandReader) -> Interval:
    """What follows the word INTERVAL."""
    sign = -1 if reader.next.kind == "-" else 1
    if reader.next.kind in ("-", "+"):
        reader.advance()
    amount = reader.advance()
    written = amount.value
    parts = list(_PART.finditer(written)) if amount.kind == "string" else []
    if parts and "".join(part[0] for part in parts) == written:
        found = [(part[1], part[2].upper()) for part in parts]
    elif amount.kind in ("string", "number") and reader.next.word:
        found = [(written.strip(), reader.advance().word)]
    else:
        wrong = amount if amount.kind not in ("string", "number") else reader.next
        raise Refused("an interval is a number and a unit", FORM, wrong.start, wrong.end)
    end = reader.tokens[reader.at - 1].end
    months = microseconds = 0
    for number, word in found:
        unit = word if word in UNITS or word in MONTHS else word.removesuffix("S")
        if unit not in UNITS and unit not in MONTHS:
            raise Refused(f"{word} is no unit of time", FORM, amount.start, end)
        if not re.fullmatch(r"[+-]?\d+", number, re.ASCII):
            raise Refused(f"{number} is no whole number of {word}", FORM, amount.start, end)
        if len(number) > 20:
            raise Refused(
                "the interval is longer than all times that can be told apart", "shorten it", amount.start, end
            )
        months += sign * int(number) * MONTHS.get(unit, 0)
        microseconds += sign * int(number) * UNITS.get(unit, 0)
    if max(abs(months), abs(microseconds)) >= LONGEST:
        raise Refused("the interval is longer than all times that can be told apart", "shorten it", amount.start, end)
    return Interval(months, microseconds)
