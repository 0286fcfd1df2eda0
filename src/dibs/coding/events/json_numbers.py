"""Numbers of JSON text, read by kernels: exact keys of integers, correctly rounded floats.

A decimal is w * 10**q with an integer w of up to 19 digits. Where w and 10**|q| are floats themselves, one product or
quotient is correctly rounded. Otherwise w is multiplied with the leading 128 bits of 5**q, whose error is known: if
both ends of what the product may be round to the same float, it is the float. What is left (the middle of two floats,
or so close to it that 128 bits do not tell; the very smallest and largest numbers; more than 19 digits) is unsure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import phase
from dibs.jit.lanes import lowest_bit
from dibs.jit.scanning import high_product, leading_zeros
from dibs.jit.words import byte_at, word_at

MOST_DIGITS = 19  # of an integer that surely fits into 64 bits
LEAST_POWER, GREATEST_POWER = -326, 308  # of ten, with which a float of up to 19 digits may be normal

_MINUS, _PLUS, _POINT, _ZERO, _NINE = 45, 43, 46, 48, 57
_E = 101  # an E too, with bit 32
_TENS = np.array([10**n for n in range(9)], np.uint64)
_EXACT_TENS = np.array([float(10**n) for n in range(23)])


def _leading_bits(power: int) -> tuple[int, int]:
    """The first 128 bits of 5**power, rounded down: (upper half, lower half)."""
    if power >= 0:
        five = 5**power
        shift = five.bit_length() - 128
        bits = five >> shift if shift > 0 else five << -shift
    else:
        five = 5**-power
        bits = (1 << (five.bit_length() + 127)) // five
        bits >>= bits.bit_length() - 128
    return bits >> 64, bits & (2**64 - 1)


def _powers_of_five() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    halves = [_leading_bits(power) for power in range(LEAST_POWER, GREATEST_POWER + 1)]
    return np.array([x for x, _ in halves], np.uint64), np.array([y for _, y in halves], np.uint64)


_FIVES, _FIVES_LOWER = _powers_of_five()


@phase
def read_number(text, at):
    """(one past the number at this place, value, rest), the key of values.number_key; no place (-1) where there is no
    number, or one that has to be left to another reader. What follows the number is not looked at."""
    negative = byte_at(text, at) == _MINUS
    at += negative
    first = at
    w, at = _read_digits(text, at, np.uint64(0))
    digits = at - first
    whole = byte_at(text, at) != _POINT and (byte_at(text, at) | 32) != _E
    # 20 digits are below 2**64 if the first is 1 and the sum did not begin again at 0.
    fits = digits <= MOST_DIGITS or (
        digits == MOST_DIGITS + 1
        and whole
        and not negative
        and byte_at(text, first) == _ZERO + 1
        and w >= np.uint64(10**19)
    )
    if digits == 0 or not fits or (digits > 1 and byte_at(text, first) == _ZERO):
        return np.int64(-1), 0.0, np.int64(0)
    if whole:
        value, rest = _integer_key(w, negative)
        return at, value, rest
    power = 0
    if byte_at(text, at) == _POINT:
        at += 1
        point = at
        if w == 0:
            while byte_at(text, at) == _ZERO:
                at += 1
            digits = 0
        start = at
        w, at = _read_digits(text, at, w)
        power = point - at
        if power == 0 or digits + at - start > MOST_DIGITS:
            return np.int64(-1), 0.0, np.int64(0)
    if (byte_at(text, at) | 32) == _E:
        at, exponent = _exponent(text, at + 1)
        power += exponent
    value = _decimal(w, power)
    if value < 0.0:
        at = -1
    return at, -value if negative and value > 0.0 else value, np.int64(0)


@phase
def _read_digits(text, at, w):
    """(w and the digits from this place on as one number, modulo 2**64; one past them). Eight at a time, so that
    numbers of about the same length take the same way."""
    count = 8
    while count == 8:
        nibbles = word_at(text, at) ^ np.uint64(0x3030303030303030)  # 0 to 9 are digits
        others = (nibbles + np.uint64(0x7676767676767676) | nibbles) & np.uint64(0x8080808080808080)
        count = lowest_bit(others) >> 3 if others != 0 else 8
        w = w * _TENS[count] + _number_of(nibbles << np.uint64(8 * (8 - count) & 63)) * np.uint64(count > 0)
        at += count
    return w, at


@phase
def _number_of(digits):
    """The number of eight digits, a byte each, the first of them lowest: by pairs, then fours, then all."""
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return (fours * np.uint64(10000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF)


@phase
def _is_digit(byte):
    return byte >= _ZERO and byte <= _NINE


@phase
def _exponent(text, at):
    """(one past it, its value); -1 where there is none, or one of more digits than a float can need."""
    negative = byte_at(text, at) == _MINUS
    at += negative or byte_at(text, at) == _PLUS
    first, value = at, 0
    while _is_digit(byte_at(text, at)) and at < first + 5:
        value = value * 10 + np.int64(byte_at(text, at) - _ZERO)
        at += 1
    if at == first or at == first + 5:
        return np.int64(-1), 0
    return at, -value if negative else value


@phase
def _integer_key(w, negative):
    near = np.float64(w)
    # 2**64 is no word, but counts as 0 in what is left.
    rest = np.int64(w - (np.uint64(0) if near >= 2.0**64 else np.uint64(near)))
    if not negative or w == 0:
        return near, rest
    return -near, np.int64(0) if w > np.uint64(1 << 63) else -rest  # below 64 bits: the nearest float


@phase
def _decimal(w, power):
    """The float64 nearest to w * 10**power; -1.0: unsure."""
    if w == 0:
        return 0.0
    if w <= np.uint64(1 << 53) and power >= -22 and power <= 22:
        return np.float64(w) / _EXACT_TENS[-power] if power < 0 else np.float64(w) * _EXACT_TENS[power]
    if power < LEAST_POWER or power > GREATEST_POWER:
        return -1.0
    zeros = leading_zeros(w)
    w <<= np.uint64(zeros)
    five, lower = _FIVES[power - LEAST_POWER], _FIVES_LOWER[power - LEAST_POWER]
    # The product of w and 128 bits has 192, of which the lowest 64 are dropped: with the error of the table, the true
    # one is less than 2 above (high, low).
    high, low = high_product(w, five), w * five
    more = high_product(w, lower)
    low += more
    high += np.uint64(low < more)
    shift = np.uint64(10) + (high >> np.uint64(63))  # leaves 53 bits
    fraction = high & ((np.uint64(1) << shift) - np.uint64(1))
    half = np.uint64(1) << (shift - np.uint64(1))
    if (fraction == half and low == 0) or (fraction == half - np.uint64(1) and low == np.uint64(2**64 - 1)):
        return -1.0
    mantissa = np.float64((high >> shift) + np.uint64(fraction >= half))
    # 152170 / 2**16 is log2(5) closely enough: this is 1 + floor(log2(5**power)) and what was shifted out and in.
    exponent = 1 + (power * 152170 >> 16) + power + np.int64(shift) - zeros
    bits = np.float64(mantissa).view(np.int64)
    normal = (bits >> 52) + exponent > 0 and (bits >> 52) + exponent < 2047
    return np.int64(bits + (exponent << 52)).view(np.float64) if normal else -1.0
