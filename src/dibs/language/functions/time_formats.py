"""Times in formats of one's own, as Spark has them: to_timestamp(day, 'dd.MM.yyyy HH:mm'), date_format(at, 'E').

A format is read once into parts, each of which reads a piece of a text or writes one. Numbers that follow each other
without a sign between them share their digits as Java shares them: the first takes what those of a fixed width leave.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal as Either
from typing import NamedTuple, Union

from dibs.language.functions.plain import Moment, datetime_of, moment_of
from dibs.language.functions.time_texts import find_zone, in_zone

LONGEST_FORMAT = 200
_MOST_NESTED = 10
_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October"]
_MONTHS += ["November", "December"]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_DIGITS = re.compile(r"[0-9]+")
_ZONE = re.compile(
    r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)+|((?:UTC|GMT|UT)?[+-][0-9]{2}:[0-9]{2}|UTC|GMT|UT|Z)", re.IGNORECASE
)


class BadFormat(ValueError):
    def __init__(self, message: str, advice: str):
        super().__init__(message)
        self.message, self.advice = message, advice


class Text(NamedTuple):
    text: str


class Digits(NamedTuple):
    field: str
    least: int
    most: int
    signed: bool = False  # a year: of four letters and more a + stands before one that is longer
    behind: int = 0  # digits that are left to the numbers of a fixed width behind it


class Fraction(NamedTuple):
    least: int
    most: int


class Word(NamedTuple):
    field: str
    words: tuple[str, ...]
    first: int  # what the first of them is


class Offset(NamedTuple):
    minutes: Either["no", "may", "must"]
    colon: bool
    seconds: bool  # may stand there
    none: str  # what UTC is


class Zone(NamedTuple):
    written: str  # UTC


class Optional(NamedTuple):
    parts: tuple[FormatPart, ...]


FormatPart = Union[Text, Digits, Fraction, Word, Offset, Zone, "Optional"]
Fields = dict[str, int | str]

_NUMBERS = {
    "d": "day",
    "H": "hour",
    "k": "hour to 24",
    "h": "hour to 12",
    "K": "hour of half a day",
    "m": "minute",
    "s": "second",
    "D": "day of year",
}
_RANGES = {
    "month": (1, 12),
    "day": (1, 31),
    "day of year": (1, 366),
    "hour": (0, 23),
    "hour to 24": (1, 24),
    "hour to 12": (1, 12),
    "hour of half a day": (0, 11),
    "minute": (0, 59),
    "second": (0, 59),
}
_OFFSETS = {
    "X": Offset("may", False, False, "Z"),
    "XX": Offset("must", False, False, "Z"),
    "XXX": Offset("must", True, False, "Z"),
    "XXXX": Offset("must", False, True, "Z"),
    "XXXXX": Offset("must", True, True, "Z"),
    "x": Offset("may", False, False, "+00"),
    "xx": Offset("must", False, False, "+0000"),
    "xxx": Offset("must", True, False, "+00:00"),
    "xxxx": Offset("must", False, True, "+0000"),
    "xxxxx": Offset("must", True, True, "+00:00"),
    **dict.fromkeys(["Z", "ZZ", "ZZZ"], Offset("must", False, False, "+0000")),
    "ZZZZZ": Offset("must", True, True, "Z"),
}
_LETTERS = "y M L d D H h k K m s S a z VV X x Z, E to write a day, text in '', [ ] around what may be missing"


# ---- a format ----


@lru_cache(256)
def parts_of(format: str, reads: bool) -> tuple[FormatPart, ...]:
    """Raises BadFormat. reads: texts are to be read by it, not written."""
    if len(format) > LONGEST_FORMAT:
        raise BadFormat(f"the format has more than {LONGEST_FORMAT} characters", "write a shorter one")
    groups: list[list[FormatPart]] = [[]]
    at = 0
    while at < len(format):
        letter = format[at]
        if letter == "'":
            text, at = _quoted(format, at)
            groups[-1].append(Text(text))
            continue
        size = len(re.match(re.escape(letter) + "+", format[at:])[0]) if letter.isalpha() else 1  # type: ignore[index]
        if letter == "[":
            groups.append([])
            if len(groups) > _MOST_NESTED:
                raise BadFormat(f"more than {_MOST_NESTED} brackets stand within each other", "write fewer")
        elif letter == "]":
            if len(groups) == 1:
                raise BadFormat("] closes nothing", "leave it out, or write it in quotes: ']'")
            inner = _shared(groups.pop())
            groups[-1].append(Optional(inner))
        elif letter in "#{}":
            raise BadFormat(f"{letter} has no meaning in a format", f"write it in quotes: '{letter}'")
        else:
            is_ascii = letter.isascii() and letter.isalpha()
            groups[-1].append(_part(format[at : at + size], reads) if is_ascii else Text(letter * size))
        at += size
    while len(groups) > 1:
        inner = _shared(groups.pop())
        groups[-1].append(Optional(inner))
    return _shared(groups[0])


def _quoted(format: str, at: int) -> tuple[str, int]:
    """A text in quotes, in which two of them are one; '' alone is a quote. And where it ends."""
    end, text = at + 1, ""
    while True:
        close = format.find("'", end)
        if close < 0:
            raise BadFormat("a quote is not closed in the format", "write text between two of them, as in 'T'")
        text += format[end:close]
        if format[close + 1 : close + 2] != "'" or close == at + 1:
            return text if close > at + 1 else "'", close + 1
        text, end = text + "'", close + 2


def _part(letters: str, reads: bool) -> FormatPart:
    letter, size = letters[0], len(letters)
    if letter == "y" and size <= 6:
        return Digits("year of century", 2, 2) if size == 2 else Digits("year", size, 19, signed=True)
    if letter in "ML" and size <= 4:
        if size <= 2:
            return Digits("month", size, 19 if size == 1 else 2, signed=size == 1)
        return Word("month", tuple(_MONTHS if size == 4 else [name[:3] for name in _MONTHS]), 1)
    if letter == "D" and size <= 3:
        return Digits("day of year", size, 19 if size == 1 else 3, signed=size == 1)
    if letter in _NUMBERS and size <= 2:
        return Digits(_NUMBERS[letter], size, 19 if size == 1 else 2, signed=size == 1)
    if letter == "S" and size <= 9:
        return Fraction(1 if reads else size, size)
    if letters == "a":
        return Word("half", ("AM", "PM"), 0)
    if letter == "E" and size <= 4:
        if reads:
            raise BadFormat("a day of the week (E) is not read", "read the text behind it, by SUBSTRING perhaps")
        return Word("day of week", tuple(_DAYS if size == 4 else [name[:3] for name in _DAYS]), 0)
    if letter == "z" and size <= 4:
        return Zone("UTC" if size < 4 else "Coordinated Universal Time")
    if letters == "VV":
        return Zone("UTC")
    if letters in _OFFSETS:
        return _OFFSETS[letters]
    raise BadFormat(f"{letters} has no meaning in a format here", f"the letters are {_LETTERS}")


def _shared(parts: Iterable[FormatPart]) -> tuple[FormatPart, ...]:
    """The parts, in which each number knows how many digits those behind it need."""
    found: list[FormatPart] = []
    active = -1  # the number that takes what others leave
    for part in parts:
        is_fixed = (isinstance(part, Digits) and part.least == part.most) or part == Fraction(1, 1)
        if is_fixed and active >= 0:
            taker = found[active]
            assert isinstance(taker, (Digits, Fraction))
            if isinstance(taker, Digits):
                found[active] = taker._replace(behind=taker.behind + part.most)  # type: ignore[union-attr]
        elif is_fixed or isinstance(part, Digits):
            active = len(found)
        else:
            active = -1
        found.append(part)
    return tuple(found)


# ---- a text to a time ----


def read_by(text: str, format: str) -> Moment | None:
    """The time that a text says; NULL: it says none, or the format is bad."""
    try:
        parts = parts_of(format, True)
    except BadFormat:
        return None
    fields: Fields = {}
    return _resolved(fields) if _read(parts, text, 0, fields) == len(text) else None


def _read(parts: tuple[FormatPart, ...], text: str, at: int, fields: Fields) -> int:
    """Where they end in the text; below 0: they do not fit."""
    for part in parts:
        if isinstance(part, Optional):
            within = dict(fields)
            end = _read(part.parts, text, at, within)
            if end >= 0:
                at = end
                fields.update(within)
            continue
        if isinstance(part, Text):
            if not _same_letters(text[at : at + len(part.text)], part.text):
                return -1
            at += len(part.text)
            continue
        found: tuple[int | str, int] | None
        if isinstance(part, Word):
            name, found = part.field, _word(part, text, at)
        elif isinstance(part, Offset):
            name, found = "zone", _offset(part, text, at)
        elif isinstance(part, Zone):
            name, found = "zone", _zone(text, at)
        else:
            name = part.field if isinstance(part, Digits) else "fraction"
            found = _number(part, text, at)
        if found is None:
            return -1
        value, at = found
        if name == "year of century":
            name, value = "year", 2000 + int(value)
        if fields.setdefault(name, value) != value:
            return -1
    return at


def _same_letters(one: str, other: str) -> bool:
    """Whatever their case, each by itself."""
    return len(one) == len(other) and all(
        a == b or a.upper() == b.upper() or a.lower() == b.lower() for a, b in zip(one, other)
    )


def _number(part: Digits | Fraction, text: str, at: int) -> tuple[int, int] | None:
    sign = text[at : at + 1] if isinstance(part, Digits) and part.signed else ""
    is_long = isinstance(part, Digits) and part.field == "year" and part.least >= 4
    if sign == "-" or (sign == "+" and is_long):
        at += 1
    else:
        sign = ""
    behind = part.behind if isinstance(part, Digits) else 0
    digits = _DIGITS.match(text, at, min(at + part.most + behind, len(text)))
    if digits is None or len(digits[0]) < part.least:
        return None
    size = min(max(part.least, len(digits[0]) - behind), part.most) if behind else len(digits[0])
    value = int(digits[0][:size])
    if isinstance(part, Fraction):
        return value * 10 ** (9 - size), at + size
    if (sign == "-" and not value) or (is_long and (size <= part.least if sign == "+" else size > part.least)):
        return None
    return (-value if sign == "-" else value), at + size


def _word(part: Word, text: str, at: int) -> tuple[int, int] | None:
    for place, word in sorted(enumerate(part.words), key=lambda each: -len(each[1])):
        if _same_letters(text[at : at + len(word)], word):
            return part.first + place, at + len(word)
    return None


def _offset(part: Offset, text: str, at: int) -> tuple[int, int] | None:
    """In seconds."""
    end = at + len(part.none)
    if at < len(text) and _same_letters(text[at:end], part.none):
        return 0, end
    colon = ":" if part.colon else ""
    minutes = rf"(?:{colon}([0-9]{{2}}))" + "?" * (part.minutes == "may")
    seconds = rf"(?:{colon}([0-9]{{2}}))?" if part.seconds else "()"
    found = re.compile(rf"([+-])([0-9]{{2}}){minutes}{seconds}").match(text, at)
    if found is None:
        return None
    hour, minute, second = (int(number or 0) for number in found.groups()[1:])
    size = 3600 * hour + 60 * minute + second
    if hour > 23 or minute > 59 or second > 59 or size > 18 * 3600:
        return None
    return (-size if found[1] == "-" else size), found.end()


def _zone(text: str, at: int) -> tuple[str, int] | None:
    found = _ZONE.match(text, at)
    if found is None:
        return None
    name = found[0].upper() if found[1] else found[0]
    return None if find_zone(name) is None else (name, found.end())


def _resolved(fields: Fields) -> Moment | None:
    numbers = {name: value for name, value in fields.items() if isinstance(value, int)}
    if not all(low <= numbers.get(name, low) <= high for name, (low, high) in _RANGES.items()):
        return None
    hour = _hour_of(numbers)
    day = _day_of(numbers)
    if hour is None or day is None:
        return None
    passed = dt.timedelta(hours=hour, minutes=numbers.get("minute", 0), seconds=numbers.get("second", 0))
    local = moment_of(day + passed + dt.timedelta(microseconds=numbers.get("fraction", 0) // 1000))
    zone = fields.get("zone")
    if zone is None:
        return local
    first = find_zone(zone) if isinstance(zone, str) else dt.timezone(dt.timedelta(seconds=zone))
    return in_zone(local, first, dt.timezone.utc)


def _hour_of(numbers: dict[str, int]) -> int | None:
    """None: they contradict each other."""
    hours = {numbers["hour"]} if "hour" in numbers else set()
    if "hour to 24" in numbers:
        hours.add(numbers["hour to 24"] % 24)
    twelfths = {numbers["hour of half a day"]} if "hour of half a day" in numbers else set()
    if "hour to 12" in numbers:
        twelfths.add(numbers["hour to 12"] % 12)
    half = numbers.get("half")
    if len(twelfths) > 1:
        return None
    twelfth = next(iter(twelfths), None)
    if half is not None and twelfth is not None:
        hours.add(12 * half + twelfth)
    if len(hours) > 1:
        return None
    for hour in hours:
        agrees = (half is None or half == hour // 12) and (twelfth is None or twelfth == hour % 12)
        return hour if agrees else None
    return twelfth if twelfth is not None else 12 * (half or 0)


def _day_of(numbers: dict[str, int]) -> dt.datetime | None:
    year = numbers.get("year", 1970)
    month, day, number = (numbers.get(name) for name in ("month", "day", "day of year"))
    try:
        if number is None:
            return dt.datetime(year, month or 1, day or 1)
        found = dt.datetime(year, 1, 1) + dt.timedelta(number - 1)
    except (ValueError, OverflowError):
        return None
    agrees = found.year == year and (month or found.month) == found.month and (day or found.day) == found.day
    return found if agrees else None


# ---- a time to a text ----


def write_by(moment: Moment, format: str) -> str | None:
    """NULL: the format is bad, or the time beyond the years 1 to 9999."""
    day = datetime_of(moment)
    try:
        return None if day is None else "".join(_written(part, day) for part in parts_of(format, False))
    except BadFormat:
        return None


def _written(part: FormatPart, day: dt.datetime) -> str:
    if isinstance(part, Optional):
        return "".join(_written(each, day) for each in part.parts)
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Fraction):
        return f"{day.microsecond * 1000:09}"[: part.most]
    if isinstance(part, Offset):
        return part.none
    if isinstance(part, Zone):
        return part.written
    value = {
        "year": day.year,
        "year of century": day.year % 100,
        "month": day.month,
        "day": day.day,
        "day of year": day.timetuple().tm_yday,
        "day of week": day.weekday(),
        "hour": day.hour,
        "hour to 24": day.hour or 24,
        "hour to 12": day.hour % 12 or 12,
        "hour of half a day": day.hour % 12,
        "half": day.hour // 12,
        "minute": day.minute,
        "second": day.second,
    }[part.field]
    return part.words[value - part.first] if isinstance(part, Word) else f"{value:0{part.least}}"


__all__ = ["BadFormat", "parts_of", "read_by", "write_by"]
