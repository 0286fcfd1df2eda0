"""Steps of programs over numbers, truths and orders (program.py): what the plain forms in language.functions do.

A value is what the stack has at one place; a step leaves its result at the place of its first argument.
"""

from __future__ import annotations

import math

import numpy as np

from dibs.coding.computed.program_layout import (
    ABS,
    ADD,
    BITS_AND,
    BITS_NOT,
    BITS_OR,
    BITS_XOR,
    BOOLEAN,
    CEIL,
    DIVIDE,
    EXP,
    FLOOR,
    INTERVAL,
    LEFT,
    LN,
    LOG10,
    MULTIPLY,
    NEGATIVE,
    NULL,
    NUMBER,
    POWER,
    QUOTIENT,
    ROUND,
    SIGN,
    SQRT,
    STRING,
    SUBTRACT,
    TIME,
    TO_DOUBLE,
    TO_INTEGER,
)
from dibs.coding.domain import compare_bytes
from dibs.jit.kernel import phase
from dibs.jit.words import byte_at
from dibs.language.time_kernels import read_time

TWO_63 = 2.0**63
LEAST, MOST = np.int64(-(2**63)), np.int64(2**63 - 1)
FIRST, LAST = np.int64(-62_135_596_800_000_000), np.int64(253_402_300_799_999_999)  # the years 1 to 9999
_FAR = 9.3e18  # beyond all integers of 64 bits, however a float64 is rounded
_EXACT = 2.0**53
_TENS = np.array([10.0**k for k in range(17)])  # exact
_MOST_ROUNDED = 1e14  # a number of this many units, and half of one, has 15 digits: no two of these are one float64
_MOST_DIGITS = 15  # of a decimal that is read here
_SECOND = 1_000_000
_BLANK, _DELETE, _PLUS, _MINUS, _POINT, _ZERO = 32, 127, 43, 45, 46, 48
_LOG_OF_2 = math.log(2.0)


@phase
def set_float(v, i, value):
    """A result of float64: a whole one is an integer."""
    v.kind[i] = NUMBER
    whole = np.floor(value) == value and -TWO_63 <= value < TWO_63 if math.isfinite(value) else False
    v.whole[i] = whole
    v.integer[i] = np.int64(value) if whole else np.int64(0)
    v.number[i] = np.float64(v.integer[i]) if whole else value


@phase
def set_integer(v, i, value):
    v.kind[i], v.whole[i], v.integer[i], v.number[i] = NUMBER, True, value, np.float64(value)


@phase
def set_truth(v, i, truth):
    v.kind[i], v.whole[i], v.integer[i] = BOOLEAN, False, np.int64(truth)


@phase
def set_moment(v, i, kind, value):
    v.kind[i], v.whole[i], v.integer[i] = kind, False, value


@phase
def copy_value(source, i, v, j):
    v.kind[j], v.number[j], v.integer[j], v.whole[j] = (
        source.kind[i],
        source.number[i],
        source.integer[i],
        source.whole[i],
    )
    v.start[j], v.end[j] = source.start[i], source.end[i]


@phase
def put_key(column, i, value, rest):
    """A number as coding.values has it."""
    column.kind[i], column.number[i], column.integer[i], column.whole[i] = NUMBER, value, 0, False
    if math.isinf(value):
        if rest != 0:
            column.number[i] = math.nan
    elif np.floor(value) == value and -TWO_63 <= value <= TWO_63:
        if value < TWO_63:
            column.integer[i], column.whole[i] = np.int64(value) + np.int64(rest), True
        elif rest < 0:
            column.integer[i], column.whole[i] = MOST + (np.int64(rest) + 1), True


@phase
def key_of(whole, integer, number):
    """As coding.values has numbers."""
    if whole:
        near = np.float64(integer)
        if near >= TWO_63:
            return near, integer - MOST - 1
        return near, integer - np.int64(near)
    if math.isnan(number):
        return math.inf, np.int64(1)
    return number, np.int64(0)


@phase
def read_as_time(v, i, data):
    """A string becomes the time that it says, or NULL."""
    if v.kind[i] == STRING:
        is_time, micros = read_time(data, v.start[i], v.end[i])
        set_moment(v, i, TIME if is_time else NULL, micros)


@phase(inline=False)
def order_of(v, i, j, data):
    """(whether two values are of one kind, -1, 0 or 1). A string beside a time is read as one."""
    kind, other = v.kind[i], v.kind[j]
    if kind != other:
        if not ((kind == TIME and other == STRING) or (kind == STRING and other == TIME)):
            return False, np.int64(0)
        at = i if kind == STRING else j
        is_time, micros = read_time(data, v.start[at], v.end[at])
        x, y = (micros, v.integer[j]) if kind == STRING else (v.integer[i], micros)
        return is_time, np.int64(x > y) - np.int64(x < y)
    if kind == NULL:
        return False, np.int64(0)
    if kind == STRING:
        return True, np.int64(compare_bytes(data, v.start[i], v.end[i], data, v.start[j], v.end[j]))
    if kind == NUMBER and not (v.whole[i] and v.whole[j]):
        x, rest_x = key_of(v.whole[i], v.integer[i], v.number[i])
        y, rest_y = key_of(v.whole[j], v.integer[j], v.number[j])
        if x == y:
            return True, np.int64(rest_x > rest_y) - np.int64(rest_x < rest_y)
        return True, np.int64(x > y) - np.int64(x < y)
    return True, np.int64(v.integer[i] > v.integer[j]) - np.int64(v.integer[i] < v.integer[j])


@phase
def is_so(sign, order):
    """sign: a place in program.SIGNS."""
    if sign <= 1:
        return (order == 0) == (sign == 0)
    if sign <= 3:
        return order < 0 or (order == 0 and sign == 3)
    return order > 0 or (order == 0 and sign == 5)


@phase(inline=False)
def compare(sign, v, a, b, n, data):
    for r in range(n):
        i, j = a + r, b + r
        if v.kind[i] == NUMBER and v.kind[j] == NUMBER and v.whole[i] and v.whole[j]:
            x, y = v.integer[i], v.integer[j]
            set_truth(v, i, is_so(sign, np.int64(x > y) - np.int64(x < y)))
        else:
            known, order = order_of(v, i, j, data)
            set_truth(v, i, is_so(sign, order))
            if not known:
                v.kind[i] = NULL


@phase(inline=False)
def compute(op, v, a, b, n, left, data):
    """Arithmetic of two values."""
    for r in range(n):
        i, j = a + r, b + r
        if v.kind[i] != NUMBER or v.kind[j] != NUMBER:
            left[r] |= _compute_times(op, v, i, j, data)
        elif op == DIVIDE:
            if v.number[j] == 0.0:
                v.kind[i] = NULL
            else:
                set_float(v, i, v.number[i] / v.number[j])
        else:
            x, y = v.number[i], v.number[j]
            near = x + y if op == ADD else (x - y if op == SUBTRACT else x * y)
            if v.whole[i] and v.whole[j]:
                p, q = v.integer[i], v.integer[j]
                exact = p + q if op == ADD else (p - q if op == SUBTRACT else p * q)
                # Else it has gone round: by 2^64.
                if abs(near) < _FAR and abs(np.float64(exact) - near) < 1e18:
                    set_integer(v, i, exact)
                else:
                    v.kind[i] = NULL
            else:
                set_float(v, i, near)


@phase(inline=False)
def _compute_times(op, v, i, j, data):
    """Of times and intervals; all else is NULL. True: the plain form decides."""
    if op in (MULTIPLY, DIVIDE):
        left = v.kind[i] == INTERVAL and v.kind[j] == NUMBER
        left = left or (op == MULTIPLY and v.kind[i] == NUMBER and v.kind[j] == INTERVAL)
        v.kind[i] = NULL
        return left
    read_as_time(v, i, data)
    read_as_time(v, j, data)
    first, second, x, y = v.kind[i], v.kind[j], v.integer[i], v.integer[j]
    near = np.float64(x) + np.float64(y) if op == ADD else np.float64(x) - np.float64(y)
    exact = x + y if op == ADD else x - y
    kind = NULL
    if (first == INTERVAL and second == INTERVAL) or (op == SUBTRACT and first == TIME and second == TIME):
        fits = abs(near) < _FAR and abs(np.float64(exact) - near) < 1e18 and exact != LEAST
        kind = INTERVAL if fits else NULL
    elif (first == TIME and second == INTERVAL) or (op == ADD and first == INTERVAL and second == TIME):
        kind = TIME if abs(near) < 1e18 and FIRST <= exact <= LAST else NULL
    set_moment(v, i, kind, exact)
    return False


@phase(inline=False)
def divide_whole(op, v, a, b, n):
    """REMAINDER and QUOTIENT."""
    for r in range(n):
        i, j = a + r, b + r
        if v.kind[i] != NUMBER or v.kind[j] != NUMBER or v.number[j] == 0.0:
            v.kind[i] = NULL
        elif v.whole[i] and v.whole[j]:
            x, y = v.integer[i], v.integer[j]
            if y == -1:  # the least integer has no quotient then
                if op == QUOTIENT and x == LEAST:
                    v.kind[i] = NULL
                else:
                    set_integer(v, i, -x if op == QUOTIENT else np.int64(0))
            else:
                down, rest = x // y, x % y
                uneven = np.int64(rest != 0 and (x < 0) != (y < 0))  # the quotient is rounded to zero
                set_integer(v, i, down + uneven if op == QUOTIENT else rest - uneven * y)
        elif op == QUOTIENT:
            v.kind[i] = NULL
        else:
            p, q = v.number[i], v.number[j]
            undefined = math.isinf(p) or math.isnan(p) or math.isnan(q)
            set_float(v, i, math.nan if undefined else np.fmod(p, q))


@phase(inline=False)
def combine_bits(op, v, a, b, n):
    for r in range(n):
        i, j = a + r, b + r
        if v.kind[i] != NUMBER or v.kind[j] != NUMBER or not (v.whole[i] and v.whole[j]):
            v.kind[i] = NULL
            continue
        x, y = v.integer[i], v.integer[j]
        if op == BITS_AND:
            set_integer(v, i, x & y)
        elif op == BITS_OR:
            set_integer(v, i, x | y)
        elif op == BITS_XOR:
            set_integer(v, i, x ^ y)
        elif op == LEFT:
            set_integer(v, i, np.int64(np.uint64(x) << np.uint64(y & 63)))
        else:
            set_integer(v, i, x >> (y & 63))


@phase(inline=False)
def transform(op, v, a, n):
    """Functions of one number."""
    for r in range(n):
        i = a + r
        if v.kind[i] != NUMBER:
            if v.kind[i] == INTERVAL and op in (NEGATIVE, ABS):
                x = v.integer[i]
                v.integer[i] = -x if op == NEGATIVE or x < 0 else x
            else:
                v.kind[i] = NULL
        elif op == SQRT:
            root = v.number[i]
            set_float(v, i, math.sqrt(root) if root >= 0.0 else math.nan)
        elif v.whole[i]:
            x = v.integer[i]
            if op in (NEGATIVE, ABS):
                if op == NEGATIVE or x < 0:
                    if x == LEAST:
                        v.kind[i] = NULL
                    else:
                        set_integer(v, i, -x)
            elif op == SIGN:
                set_integer(v, i, np.int64(x > 0) - np.int64(x < 0))
            elif op == BITS_NOT:
                set_integer(v, i, ~x)
        elif op == BITS_NOT:
            v.kind[i] = NULL
        else:
            _transform_float(op, v, i)


@phase(inline=False)
def _transform_float(op, v, i):
    """A number with a fraction, or beyond the integers."""
    x = v.number[i]
    if op == NEGATIVE:
        set_float(v, i, -x)
    elif op == ABS:
        set_float(v, i, abs(x))
    elif op == SIGN:
        set_float(v, i, x if math.isnan(x) else (1.0 if x > 0.0 else -1.0))
    elif op == ROUND:
        if abs(x) < 2.0**52:
            size = np.floor(abs(x))
            size += 1.0 if abs(x) - size >= 0.5 else 0.0
            set_float(v, i, size if x > 0.0 else -size)
    elif op in (CEIL, FLOOR):  # as Java makes integers of floats
        if math.isnan(x):
            set_integer(v, i, np.int64(0))
        elif abs(x) >= TWO_63:
            set_integer(v, i, LEAST if x < 0.0 else MOST)
        else:
            set_integer(v, i, np.int64(math.ceil(x)) if op == CEIL else np.int64(math.floor(x)))


# ---- powers and digits ----


@phase(inline=False)
def raise_to(op, v, a, n):
    """EXP, LN, LOG10, LOG2."""
    for r in range(n):
        i = a + r
        if v.kind[i] != NUMBER:
            v.kind[i] = NULL
            continue
        x = v.number[i]
        if op == EXP:
            set_float(v, i, math.exp(x))
        elif x <= 0.0:
            v.kind[i] = NULL
        elif op == LN:
            set_float(v, i, math.log(x))
        elif op == LOG10:
            set_float(v, i, math.log10(x))
        else:
            set_float(v, i, math.log(x) / _LOG_OF_2)


@phase(inline=False)
def combine_numbers(op, v, a, b, n, left):
    """POWER, ROUND_TO."""
    for r in range(n):
        i, j = a + r, b + r
        if v.kind[i] != NUMBER or v.kind[j] != NUMBER:
            v.kind[i] = NULL
        elif op == POWER:
            x, y = v.number[i], v.number[j]
            undefined = math.isnan(y) or (abs(x) == 1.0 and math.isinf(y))  # as in Java
            set_float(v, i, math.nan if undefined else math.pow(x, y))
        elif not v.whole[j]:
            v.kind[i] = NULL
        elif v.integer[j] < 0 or v.integer[j] > _MOST_DIGITS:
            left[r] = True
        elif not v.whole[i] and math.isfinite(v.number[i]):
            left[r] |= _round_to(v, i, v.integer[j])


@phase
def _round_to(v, i, digits):
    """Halves away from zero, of the shortest decimal that is the number. True: the plain form decides. Decimals are in
    the order of the float64 next to each; and where that of a half is the number, the half is its shortest decimal."""
    size = abs(v.number[i])
    units = np.rint(size * _TENS[digits])
    if not units < _MOST_ROUNDED:
        return True
    if size >= (10.0 * units + 5.0) / _TENS[digits + 1]:
        units += 1.0
    elif size < (10.0 * units - 5.0) / _TENS[digits + 1]:
        units -= 1.0
    found = units / _TENS[digits]
    set_float(v, i, found if v.number[i] > 0.0 else -found)
    return False


# ---- casts ----


@phase(inline=False)
def cast_number(op, argument, v, a, n, left, data):
    """TO_INTEGER (of so many bits), TO_DOUBLE, TO_BOOLEAN."""
    for r in range(n):
        i = a + r
        kind = v.kind[i]
        if kind == STRING:
            if op in (TO_INTEGER, TO_DOUBLE):
                left[r] |= _read_number(op, v, i, data)
            else:
                left[r] = True
        elif kind == NUMBER:
            _cast_number(op, v, i)
        elif kind == BOOLEAN:
            if op in (TO_INTEGER, TO_DOUBLE):
                set_integer(v, i, v.integer[i])
        elif kind == TIME and op == TO_INTEGER:
            set_integer(v, i, v.integer[i] // _SECOND)
        elif kind == TIME and op == TO_DOUBLE:
            micros = np.float64(v.integer[i])
            left[r] |= abs(micros) > _EXACT
            set_float(v, i, micros / np.float64(_SECOND))
        else:
            v.kind[i] = NULL
        if op == TO_INTEGER and v.kind[i] == NUMBER and argument < 64:
            most = np.int64(1) << (argument - 1)
            if v.integer[i] < -most or v.integer[i] >= most:
                v.kind[i] = NULL


@phase
def _cast_number(op, v, i):
    x = v.number[i]
    if op == TO_DOUBLE:
        set_float(v, i, x)
    elif op != TO_INTEGER:
        set_truth(v, i, x != 0.0)
    elif not v.whole[i]:
        if math.isfinite(x) and abs(x) < TWO_63:
            set_integer(v, i, np.int64(x))
        else:
            v.kind[i] = NULL


@phase
def _read_number(op, v, i, data):
    """A string of at most 15 digits, with a point perhaps. True: the plain form decides."""
    at, end = v.start[i], v.end[i]
    while at < end and (byte_at(data, at) <= _BLANK or byte_at(data, at) == _DELETE):
        at += 1
    while at < end and (byte_at(data, end - 1) <= _BLANK or byte_at(data, end - 1) == _DELETE):
        end -= 1
    negative = at < end and byte_at(data, at) == _MINUS
    at += np.int64(at < end and (negative or byte_at(data, at) == _PLUS))
    value, digits, fraction, has_point = np.int64(0), 0, np.int64(0), False
    while at < end:
        byte = np.int64(byte_at(data, at))
        if byte == _POINT and not has_point and op == TO_DOUBLE:
            has_point = True
        elif byte < _ZERO or byte > _ZERO + 9:
            return True
        else:
            value = 10 * value + byte - _ZERO
            digits += 1
            fraction += np.int64(has_point)
            if digits > _MOST_DIGITS:
                return True
        at += 1
    if digits == 0:
        return True
    if op == TO_INTEGER:
        set_integer(v, i, -value if negative else value)
    else:
        near = np.float64(value) / _TENS[fraction]
        set_float(v, i, -near if negative else near)
    return False
