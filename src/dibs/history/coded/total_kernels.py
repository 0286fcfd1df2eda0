"""SUM, AVG, STDDEV and COUNT(DISTINCT) of the documents that a join takes.

A sum does not depend on the order of its numbers: it is kept exactly, as a number of digits of 32 bits from 2^-1088 on,
and rounded once. A digit has room for the carries of CARRIED numbers, after which they are carried on. STDDEV looks at
the documents twice: for the mean, and for the squares of the distances from it.

The digits and the table of distinct values are the room of a call; a value of the table counts only with the number of
the result that it was met for.
"""

from __future__ import annotations

import math

import numpy as np

from dibs.history.coded.index_kernels import mix
from dibs.history.coded.layout import (
    FUNCTION_AVG,
    FUNCTION_DISTINCT,
    FUNCTION_ROWS,
    FUNCTION_STDDEV,
    FUNCTION_SUM,
    NUMBER,
    SEVERAL,
    UNREADABLE,
)
from dibs.jit.bits import bits_of_number, number_of_bits
from dibs.jit.kernel import phase

CARRIED = 2**26
COUNT, FRACTIONS, NOT_NUMBERS, ABOVE, BELOW, IS_SECOND = range(6)  # of Tally.counts
_SIGN = np.int64(2**63 - 1)
_MASK = np.int64(2**32 - 1)
_FIRST = 1088  # digit i stands for 2^(32 * i - _FIRST)
_WHOLE = _FIRST // 32  # the digit of 1
_LARGE = 2.0**63


@phase
def start_total(tally):
    """Before the first number of a sum."""
    for i in range(len(tally.digits)):
        tally.digits[i] = 0
    for i in range(IS_SECOND):
        tally.counts[i] = 0


@phase
def _add(digits, value):
    """Adds a finite float64."""
    bits = bits_of_number(value)
    exponent, part = (bits >> 52) & 0x7FF, bits & np.int64(2**52 - 1)
    if exponent == 0:
        exponent = np.int64(1)
    else:
        part |= np.int64(2**52)
    place = exponent - 1075 + _FIRST
    digit, shift = place >> 5, place & 31
    low, high = (part & _MASK) << shift, (part >> 32) << shift
    sign = np.int64(-1) if bits < 0 else np.int64(1)
    digits[digit] += sign * (low & _MASK)
    digits[digit + 1] += sign * ((low >> 32) + (high & _MASK))
    digits[digit + 2] += sign * (high >> 32)


@phase
def _carry(digits):
    """All digits but the last from 0 to 2^32 - 1; the last one has the sign."""
    for i in range(len(digits) - 1):
        digits[i + 1] += digits[i] >> 32
        digits[i] &= _MASK


@phase
def _count_number(tally, near, rest):
    if near == np.inf or near == -np.inf:
        tally.counts[NOT_NUMBERS if rest != 0 else ABOVE if near > 0 else BELOW] += 1
        return
    _add(tally.digits, near)
    if rest != 0:
        _add(tally.digits, np.float64(rest))
    is_whole = math.floor(near) == near and -_LARGE <= near and (near < _LARGE or (near == _LARGE and rest < 0))
    if not is_whole:
        tally.counts[FRACTIONS] += 1


@phase
def _count_square(tally, near):
    """The square of the distance from the mean."""
    distance = near - tally.mean[0]
    square = distance * distance
    if square != square:
        tally.counts[NOT_NUMBERS] += 1
    elif square == np.inf:
        tally.counts[ABOVE] += 1
    else:
        _add(tally.digits, square)


@phase
def _count_distinct(tally, stamp, kind, key, tie):
    """Counts a value that was not met for this result yet."""
    mask = np.uint64(len(tally.stamp) - 1)
    at = mix(np.uint64(1), kind, key, tie) & mask
    while tally.stamp[at] == stamp:
        if tally.kind[at] == kind and tally.key[at] == key and tally.tie[at] == tie:
            return
        at = (at + np.uint64(1)) & mask
    tally.stamp[at], tally.kind[at], tally.key[at], tally.tie[at] = stamp, kind, key, tie
    tally.counts[COUNT] += 1


@phase
def _count_value(tally, function, stamp, kind, key, tie):
    if kind >= UNREADABLE:
        return
    if function == FUNCTION_DISTINCT:
        _count_distinct(tally, stamp, kind, key, tie)
        return
    if kind != NUMBER:
        return
    near = number_of_bits(key if key >= 0 else key ^ _SIGN)
    tally.counts[COUNT] += 1
    if tally.counts[IS_SECOND]:
        _count_square(tally, near)
    else:
        _count_number(tally, near, tie)
    if tally.counts[COUNT] % CARRIED == 0:
        _carry(tally.digits)


@phase(inline=False)
def count_document(docs, tally, function, column, row, stamp):
    """All values of a document."""
    if function == FUNCTION_ROWS:
        tally.rows[tally.counts[COUNT]] = row
        tally.counts[COUNT] += 1
        return
    kind = docs.kind[column, row]
    if kind != SEVERAL:
        _count_value(tally, function, stamp, kind, docs.key[column, row], docs.tie[column, row])
        return
    first = docs.key[column, row]
    for i in range(first, first + docs.tie[column, row]):
        _count_value(tally, function, stamp, docs.extra_kind[i], docs.extra_key[i], docs.extra_tie[i])


# ---- results ----


@phase
def _make_positive(digits):
    """Carries, and takes the sign off; whether it was negative."""
    _carry(digits)
    if digits[len(digits) - 1] >= 0:
        return False
    for i in range(len(digits)):
        digits[i] = -digits[i]
    _carry(digits)
    return True


@phase
def _nearest(digits):
    """The float64 that is nearest to a sum without sign, whose digits are carried; of two, the even one."""
    top = len(digits) - 1
    while top >= 0 and digits[top] == 0:
        top -= 1
    if top < 0:
        return 0.0
    shift = np.int64(0)
    while digits[top] << shift < np.int64(2**31):
        shift += 1
    # The first 64 bits, of which 53 are kept. (Below 2^-1074 all are 0, so that nothing is rounded twice.)
    second = digits[top - 1] if top >= 1 else np.int64(0)
    third = digits[top - 2] if top >= 2 else np.int64(0)
    bits = (np.uint64(digits[top]) << np.uint64(32) | np.uint64(second)) << np.uint64(shift)
    bits |= np.uint64(third << shift >> 32)
    is_more = (third << shift) & _MASK != 0
    for i in range(top - 2):
        is_more = is_more or digits[i] != 0
    kept, rest = np.int64(bits >> np.uint64(11)), np.int64(bits & np.uint64(0x7FF))
    if rest > 0x400 or (rest == 0x400 and (is_more or kept & 1)):
        kept += 1
    exponent = 32 * (top - 1) - shift + 11 - _FIRST
    if exponent + 53 > 1024 or (exponent + 53 == 1024 and kept == np.int64(2**53)):
        return np.inf
    return math.ldexp(np.float64(kept), int(exponent))


@phase
def _rounded(tally):
    """The sum as a float64."""
    counts = tally.counts
    if counts[NOT_NUMBERS] or (counts[ABOVE] and counts[BELOW]):
        return np.nan
    if counts[ABOVE]:
        return np.inf
    if counts[BELOW]:
        return -np.inf
    is_negative = _make_positive(tally.digits)
    near = _nearest(tally.digits)
    return -near if is_negative else near


@phase
def _put_number(result, value):
    value += 0.0
    bits = bits_of_number(np.inf if value != value else value)
    result.has[NUMBER], result.row[NUMBER] = 1, -1
    result.key[NUMBER] = bits if bits >= 0 else bits ^ _SIGN
    result.tie[NUMBER] = np.int32(value != value)


@phase
def _put_integer(result, digits):
    """The sum of integers, if it has 64 bits."""
    is_negative = _make_positive(digits)
    for i in range(_WHOLE + 2, len(digits)):
        if digits[i] != 0:
            return
    if digits[_WHOLE + 1] > np.int64(2**31 - 1):
        is_least = is_negative and digits[_WHOLE + 1] == np.int64(2**31) and digits[_WHOLE] == 0
        if is_least:
            _put_number(result, -_LARGE)
        return
    value = digits[_WHOLE + 1] << 32 | digits[_WHOLE]
    near = np.float64(value)
    rest = value - _SIGN - 1 if near == _LARGE else value - np.int64(near)
    _put_number(result, -near if is_negative else near)
    result.tie[NUMBER] = np.int32(-rest if is_negative else rest)


@phase(inline=False)
def end_total(tally, function, result):
    """Puts the result in place. Whether the documents must be looked at once more."""
    count = tally.counts[COUNT]
    if function == FUNCTION_DISTINCT:
        _put_number(result, np.float64(count))
        return False
    is_second = tally.counts[IS_SECOND] != 0
    if count == 0 or (function == FUNCTION_STDDEV and count == 1):
        return False
    if function == FUNCTION_SUM:
        is_finite = tally.counts[NOT_NUMBERS] == 0 and tally.counts[ABOVE] == 0 and tally.counts[BELOW] == 0
        if is_finite and tally.counts[FRACTIONS] == 0:
            _put_integer(result, tally.digits)
        else:
            _put_number(result, _rounded(tally))
        return False
    if is_second:
        degrees = count - 1 if function == FUNCTION_STDDEV else count
        _put_number(result, math.sqrt(_rounded(tally) / degrees))
        return False
    mean = _rounded(tally) / count
    if function == FUNCTION_AVG or tally.counts[NOT_NUMBERS] or tally.counts[ABOVE] or tally.counts[BELOW]:
        _put_number(result, mean if function == FUNCTION_AVG else np.nan)
        return False
    tally.mean[0] = mean
    return True
