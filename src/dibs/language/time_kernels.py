"""The one scanner of times in texts: what language.literals.time_of reads, byte by byte, for kernels.

    yyyy[-m[m][-d[d]]]                      behind a whole day: T or a blank, and
    h[h][:m[m][:s[s][.digits]]]             behind minutes or seconds: blanks, and
    Z, UTC, GMT or UT, [+-]h[h][:m[m][:ss]], the same behind UTC, GMT or UT, or without its colons

No byte outside of [start, end) is read, and nothing is written.
"""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel, phase
from dibs.jit.words import byte_at, word_at

_MINUS, _PLUS, _COLON, _POINT, _BLANK, _T, _Z = (ord(c) for c in "-+:. TZ")
_U, _C, _G, _M = (ord(c) for c in "UCGM")
_DELETE = 127  # with all up to the blank it is what Spark trims
_NO_TIME = np.int64(-(2**63))
_FIRST, _LAST = np.int64(-62_135_596_800_000_000), np.int64(253_402_300_799_999_999)  # the years 1 to 9999
_FARTHEST = 18 * 3600  # seconds that a zone may be from UTC


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


_PLAIN = len("yyyy-mm-ddThh:mm:ss")
_DAY_FORM, _DAY_SIGNS = _word(b"0000-00-"), _word(b"\0\0\0\0\xff\0\0\xff")
_CLOCK_FORM, _CLOCK_SIGNS = _word(b"00:00:00"), _word(b"\0\0\xff\0\0\xff\0\0")
_MORE_THAN_9, _HIGH_BITS = _word(b"\x76" * 8), _word(b"\x80" * 8)  # a byte above 9 and this have the high bit


@phase
def _is_digit(data, at):
    return np.uint8(byte_at(data, at) - np.uint8(48)) <= 9


@phase
def _digits(data, at, end, most):
    """(the number that up to so many digits write, one past them)."""
    value, stop = np.int64(0), min(at + most, end)
    while at < stop and _is_digit(data, at):
        value = 10 * value + np.int64(byte_at(data, at)) - 48
        at += 1
    return value, at


@phase
def _part(data, at, end):
    """The same of the one or two digits behind a sign; -1: there are none."""
    value, stop = _digits(data, at + 1, end, 2)
    return (value if stop > at + 1 else np.int64(-1)), stop


@phase
def days_of(year, month, day):
    """Days since 1970 of a day that exists, by years that begin in March; the year is above 0."""
    year -= month <= 2
    shifted = (month + 9) % 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * shifted + 2) // 5 + day - 719469


@phase
def _days_in(year, month):
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 + ((month + (month >> 3)) & 1)


@phase
def _is_letter(data, at, end, letter):
    return at < end and byte_at(data, at) == letter


@phase(inline=False)
def _zone(data, at, end):
    """The seconds of [at, end), which is a zone; beyond _FARTHEST: it is none."""
    none = np.int64(_FARTHEST + 1)
    while at < end and byte_at(data, at) <= _BLANK:
        at += 1
    if at + 1 == end and byte_at(data, at) == _Z:
        return np.int64(0)
    prefix = at
    if _is_letter(data, at, end, _U) and _is_letter(data, at + 1, end, _T):
        at += 3 if _is_letter(data, at + 2, end, _C) else 2
    elif at + 2 < end and byte_at(data, at) == _G and byte_at(data, at + 1) == _M and byte_at(data, at + 2) == _T:
        at += 3
    if at == end:
        return np.int64(0) if at > prefix else none
    sign = byte_at(data, at)
    if sign != _PLUS and sign != _MINUS:
        return none
    first = at + 1
    hours, at = _digits(data, first, end, 7)
    count, minutes, seconds = at - first, np.int64(0), np.int64(0)
    if count == 2 and at + 3 == end and byte_at(data, at) == _COLON:  # as nearly always
        minutes, at = _part(data, at, end)
        good = at == end
    elif at == end:
        if count == 6:
            hours, seconds = hours // 100, hours % 100
        if count > 2:
            hours, minutes = hours // 100, hours % 100
        good = 1 <= count <= 4 or count == 6
    else:
        good = 1 <= count <= 2 and byte_at(data, at) == _COLON
        colon = at
        minutes, at = _part(data, at, end)
        if good and at < end:
            good = byte_at(data, at) == _COLON and at == colon + 3 and end == at + 3
            seconds, at = _part(data, at, end)
            good = good and at == end
        good = good and minutes >= 0
    total = 3600 * hours + 60 * minutes + seconds
    if not good or minutes > 59 or seconds > 59 or total > _FARTHEST:
        return none
    return total if sign == _PLUS else -total


@phase(inline=False)
def read_time(data, start, end):
    """(whether the bytes are a time, its microseconds since 1970 UTC)."""
    while start < end and (byte_at(data, start) <= _BLANK or byte_at(data, start) == _DELETE):
        start += 1
    while start < end and (byte_at(data, end - 1) <= _BLANK or byte_at(data, end - 1) == _DELETE):
        end -= 1
    if start == end or not _is_digit(data, start):  # of nearly all strings that are no times
        return False, _NO_TIME
    if end - start >= _PLAIN and _is_plain(data, start):
        return _read_plain(data, start, end)
    return _read_other(data, start, end)


@phase
def _digits_at(data, at, form):
    """Eight bytes as this form has them: its digits by their values, and zeros where it has something else. Above 9 or
    not zero: they have another form."""
    return word_at(data, at) ^ form


@phase
def _is_plain(data, start):
    """Whether there are 19 bytes yyyy-mm-ddThh:mm:ss (or with a blank), whatever follows: nearly all times are so."""
    day, clock = _digits_at(data, start, _DAY_FORM), _digits_at(data, start + 11, _CLOCK_FORM)
    high = ((day + _MORE_THAN_9) | day | (clock + _MORE_THAN_9) | clock) & _HIGH_BITS
    between = byte_at(data, start + 10)
    return (
        (high | (day & _DAY_SIGNS) | (clock & _CLOCK_SIGNS)) == np.uint64(0)
        and _is_digit(data, start + 8)
        and _is_digit(data, start + 9)
        and between in (_T, _BLANK)
    )


@phase
def _two(word, byte):
    """The number that the digits at this byte and the next write."""
    pair = np.int64(word >> np.uint64(8 * byte))
    return 10 * (pair & 15) + ((pair >> 8) & 15)


@phase
def _read_plain(data, start, end):
    day, clock = _digits_at(data, start, _DAY_FORM), _digits_at(data, start + 11, _CLOCK_FORM)
    year, month = 100 * _two(day, 0) + _two(day, 2), _two(day, 5)
    of_month = 10 * (np.int64(byte_at(data, start + 8)) - 48) + np.int64(byte_at(data, start + 9)) - 48
    hour, minute, second = _two(clock, 0), _two(clock, 3), _two(clock, 6)
    at, seconds, fraction = start + _PLAIN, 3600 * hour + 60 * minute + second, np.int64(0)
    if at < end and (at + 1 != end or byte_at(data, at) != _Z):
        more, fraction = _fraction_and_zone(data, at, end)
        seconds = seconds - more if more <= _FARTHEST else _NO_TIME
    if hour > 23 or minute > 59 or second > 59:
        return False, _NO_TIME
    return _put_together(year, month, of_month, seconds, fraction)


@phase
def _put_together(year, month, day, seconds, fraction):
    if year < 1 or month < 1 or month > 12 or day < 1 or seconds == _NO_TIME:
        return False, _NO_TIME
    if day > 28 and day > _days_in(year, month):
        return False, _NO_TIME
    found = (86400 * days_of(year, month, day) + seconds) * 1_000_000 + fraction
    return _FIRST <= found <= _LAST, found


@phase(inline=False)
def _read_other(data, start, end):
    year, at = _digits(data, start, end, 4)
    if at < start + 4:
        return False, _NO_TIME
    month, day, seconds, fraction = np.int64(1), np.int64(1), np.int64(0), np.int64(0)
    if at < end:
        if byte_at(data, at) != _MINUS:
            return False, _NO_TIME
        month, at = _part(data, at, end)
        if at < end:
            if byte_at(data, at) != _MINUS:
                return False, _NO_TIME
            day, at = _part(data, at, end)
            if at < end:
                seconds, fraction = _clock(data, at, end)
    return _put_together(year, month, day, seconds, fraction)


@phase(inline=False)
def _clock(data, at, end):
    """(seconds since midnight UTC, microseconds) of what stands behind a day; _NO_TIME: it is no time of day."""
    nothing = _NO_TIME, np.int64(0)
    if byte_at(data, at) != _T and byte_at(data, at) != _BLANK:
        return nothing
    hour, at = _part(data, at, end)
    minute, second, offset, fraction = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    if at < end:
        if byte_at(data, at) != _COLON:
            return nothing
        minute, at = _part(data, at, end)
        if at < end and byte_at(data, at) == _COLON:
            second, at = _part(data, at, end)
            if at < end:
                offset, fraction = _fraction_and_zone(data, at, end)
        elif at < end:
            offset = _zone(data, at, end)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59 or offset > _FARTHEST:
        return nothing
    return 3600 * hour + 60 * minute + second - offset, fraction


@phase(inline=False)
def _fraction_and_zone(data, at, end):
    """(the zone's seconds, as _zone has them, microseconds) of what stands behind seconds."""
    fraction = np.int64(0)
    if byte_at(data, at) == _POINT:
        first = at + 1
        fraction, at = _digits(data, first, end, 6)
        for _ in range(first + 6 - at):
            fraction *= 10
        while at < end and _is_digit(data, at):
            at += 1
    return (_zone(data, at, end) if at < end else np.int64(0)), fraction


@kernel
def read_times(data, starts, stops):
    """(which of the texts are times, their microseconds)."""
    is_time, microseconds = np.zeros(len(starts), np.bool_), np.zeros(len(starts), np.int64)
    for i in range(len(starts)):
        is_time[i], microseconds[i] = read_time(data, starts[i], stops[i])
    return is_time, microseconds
