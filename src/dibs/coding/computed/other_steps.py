"""Steps of programs over truths and times (program.py): see number_steps.py."""

from __future__ import annotations

import numpy as np

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
    IS_NULL,
    LAST_DAY,
    MICROSECONDS,
    MONTHS_LATER,
    NOT,
    NOW,
    NULL,
    NUMBER,
    SAME,
    SECOND,
    STRING,
    TIME,
    TO_TIME,
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
YEAR, QUARTER, MONTH, DAY_OF_MONTH, DAY_OF_WEEK, WEEKDAY, DAY_OF_YEAR, WEEK_OF_YEAR, HOUR, MINUTE, SECONDS = range(11)
_MOST_MONTHS = 200_000.0  # beyond all years that there are
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
            if part == WEEK_OF_YEAR:
                thursday = days - (days + 3) % 7 + 3
                day = (thursday - days_of(_date_of(thursday)[0], np.int64(1), np.int64(1))) // 7 + 1
            elif part == DAY_OF_YEAR:
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


@phase(inline=False)
def shift_months(op, argument, v, a, n, left, data):
    """LAST_DAY, MONTHS_LATER (so many), TO_TIME."""
    for r in range(n):
        i = a + r
        if op == TO_TIME and v.kind[i] == NUMBER:
            _from_epoch(_SECOND, v, i)
            continue
        if op == LAST_DAY:
            left[r] |= _read_day(v, i, data)
        else:
            read_as_time(v, i, data)
        left[r] |= op == MONTHS_LATER and v.kind[i] == INTERVAL
        if v.kind[i] != TIME:
            v.kind[i] = NULL
        elif op != TO_TIME:
            _move_month(v, i, np.int64(argument), op == LAST_DAY)


@phase(inline=False)
def add_months(v, a, b, n, left, data):
    for r in range(n):
        i, j = a + r, b + r
        left[r] |= _read_day(v, i, data)
        if v.kind[i] != TIME or v.kind[j] != NUMBER or not (v.whole[j] and abs(v.number[j]) < _MOST_MONTHS):
            v.kind[i] = NULL
        else:
            v.integer[i] = v.integer[i] // _DAY * _DAY if v.integer[i] >= FIRST else LEAST
            _move_month(v, i, v.integer[j], False)


@phase
def _move_month(v, i, months, is_last):
    """To the same day of another month, or to its last one."""
    if not _is_within(v, i):
        v.kind[i] = NULL
        return
    year, month, day = _date_of(v.integer[i] // _DAY)
    passed = 12 * year + month - 1 + months
    year, month = passed // 12, passed % 12 + 1
    if year < 1 or year > 9999:
        v.kind[i] = NULL
        return
    last = _days_in(year, month)
    rest = np.int64(0) if is_last else v.integer[i] % _DAY
    day = last if is_last else min(day, last)
    v.integer[i] = days_of(year, month, day) * _DAY + rest
