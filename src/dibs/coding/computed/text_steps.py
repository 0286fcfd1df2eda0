"""Steps of programs over strings (program.py): see number_steps.py. A part of a string is its place, without a copy;
what is written anew needs room behind the bytes that are there."""

from __future__ import annotations

import numpy as np

from dibs.coding.computed.network_kernels import KEY, read_key
from dibs.coding.computed.number_steps import set_integer, set_truth
from dibs.coding.computed.program_layout import (
    CONTAINS,
    ENDS_WITH,
    FIND,
    IP_KEY,
    LEFT_END,
    LENGTH,
    LIKE,
    LOWER,
    LPAD,
    NULL,
    NUMBER,
    REPLACE,
    RIGHT_END,
    SPLIT_PART,
    STARTS_WITH,
    STRING,
    SUBSTRING,
    TRIM,
)
from dibs.jit.kernel import phase
from dibs.jit.words import byte_at

_DIGITS = 20  # of an integer, with its sign
_LONGEST = 4096  # bytes of a text that is put together here
_MOST_COMPARED = 1 << 16  # bytes: to look for one text in another
_FAR = 2**40  # characters: no text has so many
_ZERO, _MINUS, _BLANK, _PERCENT, _LINE = 48, 45, 32, 37, 95


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


# ---- parts of a string ----


@phase
def _begins(data, at):
    """Whether a character begins with this byte."""
    return (byte_at(data, at) & 0xC0) != 0x80


@phase
def _behind(data, at, end, characters):
    """One past so many characters, or the end."""
    while at < end and characters > 0:
        at += 1
        while at < end and not _begins(data, at):
            at += 1
        characters -= 1
    return at


@phase
def _count(data, at, end):
    size = np.int64(0)
    for k in range(at, end):
        size += np.int64(_begins(data, k))
    return size


@phase
def _stands_at(data, at, start, end):
    """Whether the bytes from `start` to `end` stand at this place."""
    size, k = end - start, 0
    while k < size and byte_at(data, at + k) == byte_at(data, start + k):
        k += 1
    return k == size


@phase
def _place_of(data, at, end, start, stop):
    """Where the bytes from `start` to `stop` stand first between `at` and `end`; -1: nowhere."""
    size = stop - start
    while at + size <= end:
        if _stands_at(data, at, start, stop):
            return at
        at += 1
    return np.int64(-1)


@phase
def _takes_long(v, i, j):
    return (v.end[i] - v.start[i]) * (v.end[j] - v.start[j]) > _MOST_COMPARED


@phase(inline=False)
def change_text(op, argument, v, a, n, left, data, free):
    """TRIM (which ends), REVERSE."""
    for r in range(n):
        i = a + r
        if v.kind[i] != STRING:
            v.kind[i] = NULL
        elif op == TRIM:
            start, end = v.start[i], v.end[i]
            while argument != RIGHT_END and start < end and byte_at(data, start) == _BLANK:
                start += 1
            while argument != LEFT_END and start < end and byte_at(data, end - 1) == _BLANK:
                end -= 1
            v.start[i], v.end[i] = start, end
        else:
            _reverse(v, i, r, left, data, free)


@phase
def _reverse(v, i, r, left, data, free):
    start, end, to = v.start[i], v.end[i], free[0]
    if end - start > _LONGEST or to + end - start > len(data):
        left[r] = True
        return
    first = end  # of what was read last
    while first > start:
        stop = first
        first -= 1
        while first > start and not _begins(data, first):
            first -= 1
        for k in range(first, stop):
            data[to] = data[k]
            to += 1
    v.start[i], v.end[i], free[0] = free[0], to, to


@phase(inline=False)
def compare_texts(op, argument, v, a, b, n, left, data):
    """Functions of two strings."""
    for r in range(n):
        i, j = a + r, b + r
        if v.kind[i] != STRING or v.kind[j] != STRING:
            v.kind[i] = NULL
            continue
        start, end, other, stop = v.start[i], v.end[i], v.start[j], v.end[j]
        size = stop - other
        if op == STARTS_WITH:
            set_truth(v, i, size <= end - start and _stands_at(data, start, other, stop))
        elif op == ENDS_WITH:
            set_truth(v, i, size <= end - start and _stands_at(data, end - size, other, stop))
        elif _takes_long(v, i, j):
            left[r] = True
        elif op == LIKE:
            set_truth(v, i, _is_like(data, start, end, other, stop))
        elif op in (FIND, CONTAINS):
            at = _place_of(data, start, end, other, stop)
            if op == CONTAINS:
                set_truth(v, i, at >= 0)
            else:
                set_integer(v, i, _count(data, start, at) + 1 if at >= 0 else np.int64(0))
        else:
            left[r] |= _strip(argument, v, i, data, other, stop)


@phase
def _strip(argument, v, i, data, other, stop):
    """Takes the characters of the second off the ends. True: some are no ASCII."""
    for k in range(other, stop):
        if byte_at(data, k) >= 128:
            return True
    start, end = v.start[i], v.end[i]
    while argument != RIGHT_END and start < end and _place_of(data, other, stop, start, start + 1) >= 0:
        start += 1
    while argument != LEFT_END and start < end and _place_of(data, other, stop, end - 1, end) >= 0:
        end -= 1
    v.start[i], v.end[i] = start, end
    return False


@phase
def _is_like(data, at, end, form, stop):
    """Whether the whole text has this form, in which nothing is escaped."""
    behind, tried = np.int64(-1), np.int64(0)  # the last % of the form, and where the text behind it was tried
    while at < end:
        sign = byte_at(data, form) if form < stop else np.uint8(0)
        if form < stop and sign == _PERCENT:
            form += 1
            behind, tried = form, at
        elif form < stop and sign == _LINE:
            at, form = _behind(data, at, end, np.int64(1)), form + 1
        elif form < stop and sign == byte_at(data, at):
            at, form = at + 1, form + 1
        elif behind >= 0:
            tried = _behind(data, tried, end, np.int64(1))
            at, form = tried, behind
        else:
            return False
    while form < stop and byte_at(data, form) == _PERCENT:
        form += 1
    return form == stop


@phase(inline=False)
def cut_texts(op, v, a, b, c, n, left, data, free):
    """Functions of a string and two more values."""
    for r in range(n):
        i, j, k = a + r, b + r, c + r
        if v.kind[i] != STRING or v.kind[j] == NULL or v.kind[k] == NULL:
            v.kind[i] = NULL
        elif op == SUBSTRING:
            if v.kind[j] == NUMBER and v.kind[k] == NUMBER and v.whole[j] and v.whole[k]:
                left[r] |= _take_part(v, i, v.integer[j], v.integer[k], data)
            else:
                v.kind[i] = NULL
        elif op == SPLIT_PART:
            if v.kind[j] == STRING and v.kind[k] == NUMBER and v.whole[k] and v.integer[k] != 0:
                if _takes_long(v, i, j):
                    left[r] = True
                else:
                    _split(v, i, v.integer[k], data, v.start[j], v.end[j])
            else:
                v.kind[i] = NULL
        elif op == REPLACE:
            if v.kind[j] == STRING and v.kind[k] == STRING:
                left[r] |= _takes_long(v, i, j) or _replace(v, i, j, k, data, free)
            else:
                v.kind[i] = NULL
        elif v.kind[j] == NUMBER and v.whole[j] and v.kind[k] == STRING:
            left[r] |= _pad(op, v, i, v.integer[j], v.start[k], v.end[k], data, free)
        else:
            v.kind[i] = NULL


@phase
def _take_part(v, i, first, size, data):
    """True: the plain form decides."""
    if abs(np.float64(first)) > _FAR or abs(np.float64(size)) > _FAR:
        return True
    start, end = v.start[i], v.end[i]
    begin = first - 1 if first > 0 else np.int64(0)
    if first < 0:
        begin = _count(data, start, end) + first
    last = begin + size
    begin = max(begin, np.int64(0))
    v.start[i] = _behind(data, start, end, begin)
    v.end[i] = _behind(data, v.start[i], end, max(last, np.int64(0)) - begin)
    return False


@phase
def _split(v, i, number, data, other, stop):
    """The part of this number."""
    start, end = v.start[i], v.end[i]
    if number < 0:  # as counted from the beginning
        parts, at = np.int64(1), start
        while stop > other:
            at = _place_of(data, at, end, other, stop)
            if at < 0:
                break
            at += stop - other
            parts += 1
        number = max(parts + number + 1, np.int64(0))
    v.start[i], v.end[i] = start, start  # where there is none
    part, at = np.int64(1), start
    while part <= number:
        found = _place_of(data, at, end, other, stop) if stop > other else np.int64(-1)
        if part == number:
            v.start[i], v.end[i] = at, found if found >= 0 else end
        if found < 0:
            break
        at = found + stop - other
        part += 1


@phase
def _replace(v, i, j, k, data, free):
    """True: the plain form decides."""
    start, end, to, old = v.start[i], v.end[i], free[0], v.end[j] - v.start[j]
    if old == 0:
        return False
    added, at = v.end[k] - v.start[k], start
    while at < end:
        found = at + old <= end and _stands_at(data, at, v.start[j], v.end[j])
        size = added if found else np.int64(1)
        if to + size > len(data) or to + size - free[0] > _LONGEST:
            return True
        source = v.start[k] if found else at
        for m in range(size):
            data[to + m] = data[source + m]
        to += size
        at += old if found else np.int64(1)
    v.start[i], v.end[i], free[0] = free[0], to, to
    return False


@phase
def _pad(op, v, i, size, other, stop, data, free):
    """True: the plain form decides."""
    start, end, to = v.start[i], v.end[i], free[0]
    if abs(np.float64(size)) > _FAR:
        return True
    missing = size - _count(data, start, end)
    if missing <= 0 or stop == other:
        v.end[i] = _behind(data, start, end, max(size, np.int64(0)))
        return False
    if missing > _LONGEST // 4 or end - start > _LONGEST or to + 4 * missing + end - start > len(data):
        return True  # a character has four bytes at most
    if op != LPAD:
        to = _copy(data, start, end, to)
    at = other
    while missing > 0:
        behind = _behind(data, at, stop, np.int64(1))
        to = _copy(data, at, behind, to)
        at = behind if behind < stop else other
        missing -= 1
    if op == LPAD:
        to = _copy(data, start, end, to)
    v.start[i], v.end[i], free[0] = free[0], to, to
    return False


@phase
def _copy(data, start, end, to):
    for k in range(start, end):
        data[to + k - start] = data[k]
    return to + end - start
