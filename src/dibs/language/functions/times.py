"""Functions of times, all in UTC. Times beyond the years 1 to 9999 are NULL."""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Callable

from dibs.language.expression import MONTHS
from dibs.language.expression import UNITS as SIZES
from dibs.language.functions.plain import LEAST, MOST, Moment, Number, Plain, datetime_of, is_integer, moment_of
from dibs.language.functions.table import FUNCTIONS, Kinds, fitting, function
from dibs.language.functions.time_formats import read_by, write_by
from dibs.language.functions.time_texts import find_zone, in_zone, read_day, read_moment
from dibs.language.scalars import Interval

DAY, SECOND = SIZES["DAY"], SIZES["SECOND"]
UNITS = frozenset([*SIZES, *MONTHS])
_SPELLINGS = {
    "YEAR": "Y YEARS YR YRS",
    "QUARTER": "QTR",
    "MONTH": "MON MONS MONTHS",
    "WEEKOFYEAR": "W WEEK WEEKS",
    "DAY": "D DAYS",
    "DAYOFWEEK": "DOW",
    "DAYOFYEAR": "DOY",
    "HOUR": "H HOURS HR HRS",
    "MINUTE": "M MIN MINS MINUTES",
    "SECOND": "S SEC SECONDS SECS",
}
PARTS = {word: part for part, words in _SPELLINGS.items() for word in [part, *words.split()]}  # of EXTRACT
del PARTS["WEEKOFYEAR"], PARTS["DAYOFYEAR"]  # as Spark has it


@function("NOW CURRENT_TIMESTAMP", "", "T", "the time of the match", takes_null=True)
def present(given: Plain) -> Plain:
    """given: see scalars.PRESENT."""
    return fitting(given, Kinds.TIME)


@function("CURRENT_DATE CURDATE", "", "T", "the day of the match", takes_null=True)
def present_day(given: Plain) -> Moment | None:
    moment = fitting(given, Kinds.TIME)
    return Moment(moment.microseconds // DAY * DAY) if isinstance(moment, Moment) else None


def within(microseconds: int) -> Moment | None:
    """A time, if it is one of the years that there are."""
    moment = Moment(microseconds)
    return moment if LEAST <= microseconds <= MOST and datetime_of(moment) is not None else None


def add_interval(moment: Moment, interval: Interval) -> Moment | None:
    months, rest = interval
    if months:
        moved = add_months_to(moment, months)
        if moved is None:
            return None
        moment = moved
    return within(moment.microseconds + rest)


def add_months_to(moment: Moment, months: int) -> Moment | None:
    """The same day of another month, or its last one."""
    day = datetime_of(moment)
    if day is None:
        return None
    year, month = divmod(12 * day.year + day.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        return None
    last = calendar.monthrange(year, month + 1)[1]
    return moment_of(day.replace(year=year, month=month + 1, day=min(day.day, last)))


def _part(names: str, about: str, read: Callable[[dt.datetime], int], kind: str = "D") -> None:
    @function(names, kind, "N", about)
    def part(moment: Moment) -> int | None:
        day = datetime_of(moment)
        return None if day is None else read(day)


_part("YEAR", "the year", lambda d: d.year)
_part("QUARTER", "the quarter of the year, from 1", lambda d: (d.month + 2) // 3)
_part("MONTH", "the month, from 1", lambda d: d.month)
_part("DAY DAYOFMONTH", "the day of the month, from 1", lambda d: d.day)
_part("DAYOFWEEK", "the day of the week: 1 is Sunday, 7 Saturday", lambda d: d.isoweekday() % 7 + 1)
_part("WEEKDAY", "the day of the week: 0 is Monday, 6 Sunday", lambda d: d.weekday())
_part("DAYOFYEAR", "the day of the year, from 1", lambda d: d.timetuple().tm_yday)
_part("WEEKOFYEAR", "the week of the year, as ISO 8601 counts", lambda d: d.isocalendar()[1])
_part("HOUR", "the hour, from 0", lambda d: d.hour, "T")
_part("MINUTE", "the minute, from 0", lambda d: d.minute, "T")
_part("SECOND", "the second, from 0, without its fraction", lambda d: d.second, "T")


@function("DATE_PART DATEPART EXTRACT", "S T", "N", "a part of a time; the SECOND with its fraction")
def part_of(part: str, moment: Moment) -> int | float | None:
    name = PARTS.get(part.upper())
    if name == "SECOND":
        return moment.microseconds % (60 * SECOND) / SECOND
    return None if name is None else FUNCTIONS[name].form(moment)  # type: ignore[return-value]


@function("DATE_TRUNC", "S T", "T", "the beginning of the YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND")
def truncate(unit: str, moment: Moment) -> Moment | None:
    unit = unit.upper()
    unit = {"YYYY": "YEAR", "YY": "YEAR", "MON": "MONTH", "MM": "MONTH", "DD": "DAY"}.get(unit, unit)
    day = datetime_of(moment)
    if day is None:
        return None
    if unit in MONTHS:
        month = 1 if unit == "YEAR" else (day.month - 1) // MONTHS[unit] * MONTHS[unit] + 1
        return moment_of(dt.datetime(day.year, month, 1))
    if unit == "WEEK":
        return within(moment.microseconds // DAY * DAY - day.weekday() * DAY)
    size = SIZES.get(unit)
    return None if size is None else Moment(moment.microseconds // size * size)


@function("DATEDIFF DATE_DIFF", "D D", "N", "days from the second to the first, whatever the time of day")
def days_between(last: Moment, first: Moment) -> int:
    return last.microseconds // DAY - first.microseconds // DAY


@function("DATE_ADD DATEADD", "D N", "T", "the day, so many days later")
def add_days(moment: Moment, days: Number) -> Moment | None:
    return within((moment.microseconds // DAY + days) * DAY) if is_integer(days) else None  # type: ignore[arg-type]


@function("DATE_SUB", "D N", "T", "the day, so many days earlier")
def subtract_days(moment: Moment, days: Number) -> Moment | None:
    return add_days(moment, -days)


@function("ADD_MONTHS", "D N", "T", "the day, so many months later")
def add_months(moment: Moment, months: Number) -> Moment | None:
    day = Moment(moment.microseconds // DAY * DAY)
    return add_months_to(day, int(months)) if is_integer(months) and abs(months) < 200_000 else None


@function("LAST_DAY", "D", "T", "the last day of its month")
def last_day(moment: Moment) -> Moment | None:
    day = datetime_of(moment)
    if day is None:
        return None
    return moment_of(dt.datetime(day.year, day.month, calendar.monthrange(day.year, day.month)[1]))


@function("TIMESTAMPDIFF", "S T T", "N", "whole units (SECOND, DAY, MONTH, ...) from the second to the third")
def units_between(unit: str, first: Moment, last: Moment) -> int | None:
    unit = unit.upper()
    passed = last.microseconds - first.microseconds
    if unit in SIZES:
        size = abs(passed) // SIZES[unit]
        return size if passed >= 0 else -size
    if unit not in MONTHS:
        return None
    a, b = datetime_of(first), datetime_of(last)
    if a is None or b is None:
        return None
    months = _months_between(a, b)
    size = abs(months) // MONTHS[unit]
    return size if months >= 0 else -size


def _months_between(a: dt.datetime, b: dt.datetime) -> int:
    """Whole months, as Java counts: an end whose time of day is not reached yet is a day nearer."""
    day = b.date()
    if b.date() > a.date() and b.time() < a.time():
        day -= dt.timedelta(1)
    elif b.date() < a.date() and b.time() > a.time():
        day += dt.timedelta(1)
    passed = (12 * day.year + day.month) * 32 + day.day - (12 * a.year + a.month) * 32 - a.day
    return passed // 32 if passed >= 0 else -(-passed // 32)


@function("TIMESTAMPADD", "S N T", "T", "the time, so many units (SECOND, DAY, MONTH, ...) later")
def add_units(unit: str, number: Number, moment: Moment) -> Moment | None:
    unit = unit.upper()
    if not is_integer(number) or unit not in UNITS:
        return None
    months, rest = int(number) * MONTHS.get(unit, 0), int(number) * SIZES.get(unit, 0)
    return add_interval(moment, Interval(months, rest))


@function("TO_DATE", "ST S?", "T", "the day of a time, or of a text that says one, in this format perhaps")
def to_date(time: Moment | str, format: str | None = None) -> Moment | None:
    moment = read_day(time) if isinstance(time, str) and format is None else to_timestamp(time, format)
    return None if moment is None else Moment(moment.microseconds // DAY * DAY)


@function("TO_TIMESTAMP", "ST S?", "T", "the time, or that of a text that says one, in this format perhaps")
def to_timestamp(time: Moment | str, format: str | None = None) -> Moment | None:
    if isinstance(time, str):
        return read_moment(time) if format is None else read_by(time, format)
    return time


@function(
    "UNIX_TIMESTAMP TO_UNIX_TIMESTAMP",
    "ST S?",
    "N",
    "seconds since 1970, without their fraction, also of a text in this format",
)
def unix_timestamp(time: Moment | str, format: str | None = None) -> int | None:
    moment = to_timestamp(time, format)
    return None if moment is None else int(abs(moment.microseconds) // SECOND) * (1 if moment.microseconds > 0 else -1)


@function("DATE_FORMAT", "T S", "S", "the time as a text in this format")
def date_format(moment: Moment, format: str) -> str | None:
    return write_by(moment, format)


@function("UNIX_SECONDS", "T", "N", "whole seconds since 1970, the last that had begun")
def unix_seconds(moment: Moment) -> int:
    return moment.microseconds // SECOND


@function("UNIX_MILLIS", "T", "N", "whole milliseconds since 1970")
def unix_millis(moment: Moment) -> int:
    return moment.microseconds // 1_000


@function("UNIX_MICROS", "T", "N", "microseconds since 1970")
def unix_micros(moment: Moment) -> int:
    return moment.microseconds


@function("TIMESTAMP_SECONDS", "N", "T", "the time so many seconds after 1970")
def from_seconds(number: Number) -> Moment | None:
    if isinstance(number, int):
        return within(number * SECOND)
    return within(int(number * SECOND)) if abs(number) < 1e13 else None


@function("TIMESTAMP_MILLIS", "N", "T", "the time so many milliseconds after 1970")
def from_millis(number: Number) -> Moment | None:
    return within(int(number) * 1_000) if is_integer(number) else None


@function("TIMESTAMP_MICROS", "N", "T", "the time so many microseconds after 1970")
def from_micros(number: Number) -> Moment | None:
    return within(int(number)) if is_integer(number) else None


@function("FROM_UTC_TIMESTAMP", "T S", "T", "what clocks in this zone say at that time")
def from_utc(moment: Moment, zone: str) -> Moment | None:
    return in_zone(moment, dt.timezone.utc, find_zone(zone))


@function("TO_UTC_TIMESTAMP", "T S", "T", "the time at which clocks in this zone say so")
def to_utc(moment: Moment, zone: str) -> Moment | None:
    return in_zone(moment, find_zone(zone), dt.timezone.utc)


@function("INTERVAL_MICROSECONDS", "I", "N", "the microseconds of an interval of days or less")
def interval_microseconds(interval: Interval) -> int | None:
    return None if interval.months else interval.microseconds
