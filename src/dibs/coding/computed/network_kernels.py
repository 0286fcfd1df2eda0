"""Addresses of the internet in texts to their keys: see language.functions.networks."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import phase

KEY = 33  # bytes of a key, at most
_DOT, _COLON, _ZERO, _SMALL_A, _LARGE_A, _TILDE = 46, 58, 48, 97, 65, 126
_GROUPS = 8
_BAD = -1


@phase(inline=False)
def read_key(data, start, end, keys, to, groups):
    """The size of the key of a text, which is written to keys from `to` on; 0: it is no address. There is room for KEY
    bytes."""
    if not _read_address(data, start, end, groups):
        return np.int64(0)
    at, first = to, 6
    for g in range(6):
        if groups[g] != (0xFFFF if g == 5 else 0):
            first = 0
    if first == 0:
        keys[at] = _TILDE
        at += 1
    for g in range(first, _GROUPS):
        for k in range(4):
            digit = (groups[g] >> (12 - 4 * k)) & 15
            keys[at] = digit + (_ZERO if digit < 10 else _SMALL_A - 10)
            at += 1
    return at - to


@phase
def _read_address(data, start, end, groups):
    """Whether it is one; then its groups of 16 bits are set."""
    at, n, gap = start, 0, _BAD  # the groups before the gap are `gap`
    for k in range(start, end):
        if data[k] == _COLON:
            break
    else:
        number = _read_four(data, start, end)
        if number == _BAD:
            return False
        for k in range(5):
            groups[k] = 0
        groups[5], groups[6], groups[7] = 0xFFFF, number >> 16, number & 0xFFFF
        return True
    if data[at] == _COLON:
        if at + 1 >= end or data[at + 1] != _COLON:
            return False
        gap, at = 0, at + 2
    while at < end:
        if n == _GROUPS:
            return False
        value, first = 0, at
        while at < end and at - first <= 4:
            digit = _hexadecimal(data[at])
            if digit == _BAD:
                break
            value = 16 * value + digit
            at += 1
        if at < end and data[at] == _DOT:
            number = _read_four(data, first, end)
            if number == _BAD or n > _GROUPS - 2:
                return False
            groups[n], groups[n + 1] = number >> 16, number & 0xFFFF
            n, at = n + 2, end
            break
        if at == first or at - first > 4:
            return False
        groups[n] = value
        n += 1
        if at == end:
            break
        if data[at] != _COLON or at + 1 == end:
            return False
        at += 1
        if data[at] == _COLON:
            if gap != _BAD:
                return False
            gap, at = n, at + 1
    if gap == _BAD:
        return n == _GROUPS
    if n == _GROUPS:
        return False
    for k in range(n - gap):  # those behind the gap go to the end
        groups[_GROUPS - 1 - k] = groups[n - 1 - k]
    for k in range(gap, _GROUPS - (n - gap)):
        groups[k] = 0
    return True


@phase
def _read_four(data, start, end):
    """The number of a.b.c.d, or _BAD."""
    number, at = np.int64(0), start
    for part in range(4):
        value, first = np.int64(0), at
        while at < end and at - first <= 3 and _ZERO <= data[at] <= _ZERO + 9:
            value = 10 * value + data[at] - _ZERO
            at += 1
        size = at - first
        if size == 0 or size > 3 or value > 255 or (size > 1 and data[first] == _ZERO):
            return np.int64(_BAD)
        number = (number << 8) | value
        if part < 3:
            if at >= end or data[at] != _DOT:
                return np.int64(_BAD)
            at += 1
    return number if at == end else np.int64(_BAD)


@phase
def _hexadecimal(c):
    if _ZERO <= c <= _ZERO + 9:
        return np.int64(c) - _ZERO
    if _SMALL_A <= c <= _SMALL_A + 5:
        return np.int64(c) - _SMALL_A + 10
    if _LARGE_A <= c <= _LARGE_A + 5:
        return np.int64(c) - _LARGE_A + 10
    return np.int64(_BAD)
