"""Steps of programs over truths, strings and times (program.py): see number_steps.py."""

from __future__ import annotations

import numpy as np

from dibs.coding.computed.network_kernels import KEY, read_key
from dibs.coding.computed.number_steps import (
    FIRST,
    LAST,
    LEAST,
    copy_value,
    is_so,
    order_of,
    read_as_time,
    set_integer,
    set_moment,
    set_truth,
)
from dibs.coding.computed.program_layout import (
    ADD_DAYS,
    AND,
    BOOLEAN,
    COALESCE,
    DAY,
    DAY_OF,
    DAYS_BETWEEN,
    EPOCH,
    FROM_EPOCH,
    GREATEST,
    INTERVAL,
    IP_KEY,
    IS_NULL,
    LENGTH,
    LOWER,
    MICROSECONDS,
    NOT,
    NOW,
    NULL,
    NUMBER,
    SAME,
    SECOND,
    STRING,
    TIME,
    TODAY,
    TRUNCATE,
    UNIT_SIZES,
    UNITS,
    UNIX,
    WEEK,
)
from dibs.jit.kernel import phase
from dibs.jit.words import byte_at
from dibs.language.time_kernels import days_of

_UNITS = UNIT_SIZES
_SECOND, _DAY = UNIT_SIZES[SECOND], UNIT_SIZES[DAY]
_DIGITS = 20  # of an integer, with its sign
_LONGEST = 4096  # bytes of a text that is put together here
YEAR, QUARTER, MONTH, DAY_OF_MONTH, DAY_OF_WEEK, WEEKDAY, DAY_OF_YEAR, HOUR, MINUTE, SECONDS = range(10)
_ZERO, _MINUS, _T, _BLANK = 48, 45, 84, 32


# ---- truths ----


@phase(inline=False)
def join_truths(op, v, a, b, n):
    """AND and OR: `decides` is what one side alone says."""
    decides = np.int64(op != AND)
    for r in range(n):
        i, j = a + r, b + r
        x = v.integer[i] if v.kind[i] == BOOLEAN else np.int64(2)
        y = v.integer[j] if v.kind[j] == BOOLEAN else np.int64(2)
        set_truth(v, i, decides)
        if x != decides and y != decides:
            if x == 2 or y == 2:
                v.kind[i] = NULL
            else:
                set_truth(v, i, 1 - decides)


@phase(inline=False)
def ask(op, v, a, n):
    """NOT, IS_NULL, IS_NOT_NULL."""
    for r in range(n):
        i = a + r
        if op == NOT:
            if v.kind[i] == BOOLEAN:
                v.integer[i] = 1 - v.integer[i]
            else:
                v.kind[i] = NULL
        else:
            set_truth(v, i, (v.kind[i] == NULL) == (op == IS_NULL))


@phase(inline=False)
def choose(op, v, a, b, n, data):
    """COALESCE, NULLIF, SAME."""
    for r in range(n):
        i, j = a + r, b + r
        if op == COALESCE:
            if v.kind[i] == NULL:
                copy_value(v, j, v, i)
        else:
            known, order = order_of(v, i, j, data)
            same = known and order == 0
            if op == SAME:
                both = v.kind[i] == NULL and v.kind[j] == NULL
                set_truth(v, i, same or both)
            elif same:
                v.kind[i] = NULL


@phase(inline=False)
def choose_one(v, a, b, c, n):
    """IF."""
    for r in range(n):
        i = a + r
        holds = v.kind[i] == BOOLEAN and v.integer[i] == 1
        copy_value(v, b + r if holds else c + r, v, i)


@phase(inline=False)
def find_extreme(op, v, a, several, stride, n, data):
    """GREATEST and LEAST of so many values, whose rows are `stride` apart."""
    sign = 4 if op == GREATEST else 2
    for r in range(n):
        has_time = False
        for k in range(several):
            has_time |= v.kind[a + r + k * stride] == TIME
        best, fits = np.int64(-1), True
        for k in range(several):
            i = a + r + k * stride
            if has_time:
                read_as_time(v, i, data)
                if v.kind[i] != TIME:
                    v.kind[i] = NULL
            if v.kind[i] == NULL:
                continue
            if best < 0:
                best = i
            elif v.kind[i] != v.kind[best]:
                fits = False
            else:
                _, order = order_of(v, i, best, data)
                if is_so(sign, order):
                    best = i
        if best < 0 or not fits:
            v.kind[a + r] = NULL
        else:
            copy_value(v, best, v, a + r)


# ---- strings ----


@phase(inline=False)
def put_text(source, start, end, v, i, data, free):
    """The bytes of a constant as a value. False: there is no room."""
    if free[0] + end - start > len(data):
        return False
    v.kind[i], v.start[i] = STRING, free[0]
    for k in range(start, end):
        data[free[0] + k - start] = source[k]
    free[0] += end - start
    v.end[i] = free[0]
    return True


@phase(inline=False)
def transform_text(op, v, a, n, left, data, free, groups):
    """Functions of one string."""
    for r in range(n):
        i = a + r
        if v.kind[i] != STRING:
            v.kind[i] = NULL
            continue
        start, end = v.start[i], v.end[i]
        if op == LENGTH:
            size = np.int64(0)
            for k in range(start, end):
                size += np.int64((byte_at(data, k) & 0xC0) != 0x80)
            set_integer(v, i, size)
        elif op == IP_KEY:
            if free[0] + KEY > len(data):
                left[r] = True
                continue
            size = read_key(data, start, end, data, free[0], groups)
            v.kind[i] = STRING if size > 0 else NULL
            v.start[i], v.end[i] = free[0], free[0] + size
            free[0] += size
        else:
            to = free[0]
            if to + end - start > len(data):
                left[r] = True
                continue
            unusual = _change_case(data, np.uint64(start), np.uint64(to), np.uint64(end - start), op == LOWER)
            left[r] |= unusual >= 128  # other letters have rules of their own
            v.start[i], v.end[i] = to, to + end - start
            free[0] = v.end[i]


@phase(inline=False)
def _change_case(data, start, to, size, lower):
    """Letters of ASCII in the other case, at another place; returns the OR of all bytes. Unsigned places, as those of
    other types are tested for being negative, which keeps the loop from being one of vectors."""
    first, unusual = np.uint8(65 if lower else 97), np.uint8(0)
    for k in range(size):
        byte = data[start + k]
        unusual |= byte
        data[to + k] = byte ^ np.uint8(np.uint8(np.uint8(byte - first) < 26) << np.uint8(5))
    return unusual


@phase(inline=False)
def join_texts(v, a, b, n, left, data, free):
    for r in range(n):
        i, j, to = a + r, b + r, free[0]
        if v.kind[i] != STRING or v.kind[j] != STRING:
            v.kind[i] = NULL
            continue
        size = v.end[i] - v.start[i] + v.end[j] - v.start[j]
        if size > _LONGEST or to + size > len(data):
            left[r] = True
            continue
        at = to
        for own in (i, j):
            for k in range(v.start[own], v.end[own]):
                data[at] = data[k]
                at += 1
        v.start[i], v.end[i], free[0] = to, at, at


@phase(inline=False)
def write_texts(v, a, n, left, data, free):
    """Values as strings: whole numbers; strings are some already, and all else has rules of its own."""
    for r in range(n):
        i, to = a + r, free[0]
        if v.kind[i] == NUMBER and v.whole[i] and to + _DIGITS <= len(data):
            value, at = v.integer[i], to + _DIGITS
            while at == to + _DIGITS or value != 0:
                digit = value % 10 if value >= 0 else (10 - value % 10) % 10
                at -= 1
                data[at] = _ZERO + digit
                value = (value - digit) // 10 if value >= 0 else -((-(value + digit)) // 10)
            if v.integer[i] < 0:
                at -= 1
                data[at] = _MINUS
            v.kind[i], v.start[i], v.end[i], free[0] = STRING, at, to + _DIGITS, to + _DIGITS
        else:
            left[r] |= v.kind[i] != NULL and v.kind[i] != STRING


# ---- times ----


@phase(inline=False)
def _read_day(v, i, data):
    """A string becomes the day that it says, or NULL. True: it is written in another way than nearly all."""
    if v.kind[i] != STRING:
        if v.kind[i] != TIME:
            v.kind[i] = NULL
        return False
    at, end = v.start[i], v.end[i]
    if end - at < 10 or (end - at > 10 and byte_at(data, at + 10) != _T and byte_at(data, at + 10) != _BLANK):
        return True
    value = np.int64(0)
    for k in range(10):
        byte = np.int64(byte_at(data, at + k))
        if k in (4, 7):
            if byte != _MINUS:
                return True
        elif byte < _ZERO or byte > _ZERO + 9:
            return True
        else:
            value = 10 * value + byte - _ZERO
    year, month, day = value // 10000, value // 100 % 100, value % 100
    v.kind[i] = NULL
    if year >= 1 and 1 <= month <= 12 and 1 <= day <= _days_in(year, month):
        set_moment(v, i, TIME, days_of(year, month, day) * _DAY)
    return False


@phase
def _days_in(year, month):
    return days_of(year + month // 12, month % 12 + 1, 1) - days_of(year, month, 1)


@phase
def _date_of(days):
    """(year, month, day) of a day since 1970, by years that begin in March."""
    shifted = days + 719468
    era = shifted // 146097
    of_era = shifted - era * 146097
    years = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    moved = (5 * of_year + 2) // 153
    month = moved + 3 if moved < 10 else moved - 9
    year = years + era * 400 + np.int64(month <= 2)
    return year, month, of_year - (153 * moved + 2) // 5 + 1


@phase
def _is_within(v, i):
    return v.kind[i] == TIME and FIRST <= v.integer[i] <= LAST


@phase(inline=False)
def take_part(part, v, a, n, left, data):
    """A part of a time, as a number."""
    for r in range(n):
        i = a + r
        if part >= HOUR:
            read_as_time(v, i, data)
        else:
            left[r] |= _read_day(v, i, data)
        if not _is_within(v, i):
            v.kind[i] = NULL
            continue
        micros = v.integer[i]
        if part >= HOUR:
            seconds = micros % _DAY // _SECOND
            set_integer(
                v, i, seconds // 3600 if part == HOUR else (seconds // 60 % 60 if part == MINUTE else seconds % 60)
            )
            continue
        days = micros // _DAY
        if part == WEEKDAY:
            set_integer(v, i, (days + 3) % 7)
        elif part == DAY_OF_WEEK:
            set_integer(v, i, (days + 4) % 7 + 1)
        else:
            year, month, day = _date_of(days)
            if part == DAY_OF_YEAR:
                day = days - days_of(year, np.int64(1), np.int64(1)) + 1
            elif part != DAY_OF_MONTH:
                day = year if part == YEAR else (month if part == MONTH else (month + 2) // 3)
            set_integer(v, i, day)


@phase(inline=False)
def shift(op, argument, v, a, n, left, data):
    """Functions of one time, and those that make times of numbers."""
    for r in range(n):
        i = a + r
        if op == MICROSECONDS:
            if v.kind[i] == INTERVAL:
                set_integer(v, i, v.integer[i])
            else:
                v.kind[i] = NULL
        elif op == FROM_EPOCH:
            _from_epoch(argument, v, i)
        else:
            if op == DAY_OF:
                left[r] |= _read_day(v, i, data)
            else:
                read_as_time(v, i, data)
            if v.kind[i] != TIME:
                v.kind[i] = NULL
            elif op != NOW:
                _shift_time(op, argument, v, i)


@phase(inline=False)
def _shift_time(op, argument, v, i):
    micros = v.integer[i]
    if op in (TODAY, DAY_OF):
        v.integer[i] = micros // _DAY * _DAY if micros > LEAST + _DAY else LEAST
    elif op == EPOCH:
        set_integer(v, i, micros // argument)
    elif op == UNIX:
        set_integer(v, i, micros // _SECOND + np.int64(micros < 0 and micros % _SECOND != 0))
    elif op == TRUNCATE:
        if not FIRST <= micros <= LAST:
            v.kind[i] = NULL
        elif argument < 0:
            year, month, _ = _date_of(micros // _DAY)
            month = (month - 1) // -argument * -argument + 1 if argument != -12 else np.int64(1)
            v.integer[i] = days_of(year, month, np.int64(1)) * _DAY
        elif argument == WEEK:
            days = micros // _DAY
            v.integer[i] = (days - (days + 3) % 7) * _DAY
            if v.integer[i] < FIRST:
                v.kind[i] = NULL
        else:
            v.integer[i] = micros // _UNITS[argument] * _UNITS[argument]


@phase
def _from_epoch(size, v, i):
    if v.kind[i] != NUMBER or not (v.whole[i] or size == _SECOND):
        v.kind[i] = NULL
    elif v.whole[i]:
        fits = abs(v.number[i]) < 1e18 / size
        micros = v.integer[i] * size if fits else LEAST
        set_moment(v, i, TIME if FIRST <= micros <= LAST else NULL, micros)
    else:
        micros = v.number[i] * size
        fits = abs(micros) < 1e18
        found = np.int64(micros) if fits else LEAST
        set_moment(v, i, TIME if FIRST <= found <= LAST else NULL, found)


@phase(inline=False)
def pass_days(op, argument, v, a, b, n, left, data):
    """DAYS_BETWEEN, ADD_DAYS, UNITS."""
    for r in range(n):
        i, j = a + r, b + r
        if op == UNITS:
            read_as_time(v, i, data)
            read_as_time(v, j, data)
        else:
            left[r] |= _read_day(v, i, data)
            if op == DAYS_BETWEEN:
                left[r] |= _read_day(v, j, data)
        first, last = v.integer[i], v.integer[j]
        if v.kind[i] != TIME or v.kind[j] != (NUMBER if op == ADD_DAYS else TIME):
            v.kind[i] = NULL
        elif op == DAYS_BETWEEN:
            set_integer(v, i, first // _DAY - last // _DAY)
        elif op == UNITS:
            passed = last - first
            left[r] |= abs(np.float64(last) - np.float64(first)) > 9e18
            size = abs(passed) // _UNITS[argument]
            set_integer(v, i, size if passed >= 0 else -size)
        else:
            fits = v.whole[j] and abs(v.number[j]) < 1e9
            days = first // _DAY + argument * last if fits else LEAST
            fits = fits and FIRST // _DAY <= days <= LAST // _DAY
            set_moment(v, i, TIME if fits else NULL, days * _DAY if fits else LEAST)
