"""The kernels of language.bulk: they read UTF-8 bytes and write columns. Whatever is not plainly simple is refused."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel
from dibs.language.expression import Kind
from dibs.language.table import Op

_EQ, _NE, _LT, _LE, _GT, _GE = (int(x) for x in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE))
_BETWEEN, _NOT_BETWEEN, _IN, _NOT_IN = int(Op.BETWEEN), int(Op.NOT_BETWEEN), int(Op.IN), int(Op.NOT_IN)
_WITHIN, _IS_NULL, _NOT_NULL = int(Op.WITHIN), int(Op.IS_NULL), int(Op.NOT_NULL)
_AND, _BETWEEN_WORD, _IN_WORD, _NOT, _LIKE, _IS, _NULL, _TRUE, _FALSE = (
    np.frombuffer(word, np.uint8)
    for word in (b"and", b"between", b"in", b"not", b"like", b"is", b"null", b"true", b"false")
)
_NUMBER, _STRING, _BOOLEAN = int(Kind.NUMBER), int(Kind.STRING), int(Kind.BOOLEAN)


@kernel
def number_slices(data, start, size, slots, local, first):
    """Open addressing: slots hold 1 + the number of a distinct slice, 0 for empty."""
    mask = np.uint64(len(slots) - 1)
    distinct = 0
    for i in range(len(start)):
        a, n = start[i], size[i]
        h = np.uint64(14695981039346656037)
        for k in range(a, a + n):
            h = (h ^ np.uint64(data[k])) * np.uint64(1099511628211)
        h ^= h >> np.uint64(29)
        at = h & mask
        while True:
            s = slots[at]
            if s == 0:
                first[distinct] = i
                distinct += 1
                slots[at] = distinct
                local[i] = distinct - 1
                break
            j = first[s - 1]
            same = size[j] == n
            if same:
                b = start[j]
                for k in range(n):
                    if data[a + k] != data[b + k]:
                        same = False
                        break
            if same:
                local[i] = s - 1
                break
            at = (at + np.uint64(1)) & mask
    return distinct


@kernel(inline="always")
def _is_space(c):
    return c == 32 or c == 9 or c == 10 or c == 13


@kernel(inline="always")
def _is_letter(c):
    return (c >= 65 and c <= 90) or (c >= 97 and c <= 122)


@kernel(inline="always")
def _is_digit(c):
    return c >= 48 and c <= 57


@kernel
def _skip_space(data, at, end):
    while at < end and _is_space(data[at]):
        at += 1
    return at


@kernel
def _name_end(data, at, end):
    """One past a plain or dotted name of ASCII letters, digits and underscores; -1 where there is none."""
    while True:
        if at >= end or not _is_letter(data[at]):
            return -1
        while at < end and (_is_letter(data[at]) or _is_digit(data[at]) or data[at] == 95):
            at += 1
        if at >= end or data[at] != 46:
            return at
        at += 1


@kernel
def _letters(data, at, end, word):
    """Whether the word (lower case) stands here in any case, and no letter, digit or underscore follows."""
    if at + len(word) > end:
        return False
    for k in range(len(word)):
        if (data[at + k] | 32) != word[k]:
            return False
    at += len(word)
    return at == end or not (_is_letter(data[at]) or _is_digit(data[at]) or data[at] == 95)


@kernel
def _literal(data, at, end, i, kind, number_column, integer, string_size):
    """Reads literal number i; returns one past it, or -1. What follows must be a space, a comma, ')' or the end."""
    if at >= end:
        return -1
    if data[at] == 39:
        at += 1
        start = at
        while at < end and data[at] != 39:
            if data[at] == 92 or data[at] < 32:
                return -1
            at += 1
        if at >= end:
            return -1
        kind[i] = _STRING
        number_column[i] = 0.0
        integer[i] = start
        string_size[i] = at - start
        at += 1
    elif _letters(data, at, end, _TRUE) or _letters(data, at, end, _FALSE):
        truth = (data[at] | 32) == 116
        kind[i] = _BOOLEAN
        number_column[i] = 0.0
        integer[i] = 1 if truth else 0
        string_size[i] = 0
        at += 4 if truth else 5
    else:
        negative = data[at] == 45
        if negative:
            at += 1
        value, digits, fraction = np.int64(0), 0, 0
        start = at
        while at < end and _is_digit(data[at]):
            value = value * 10 + np.int64(data[at] - 48)
            digits += 1
            at += 1
            if digits > 18:
                return -1
        if at == start:
            return -1
        if at < end and data[at] == 46:
            at += 1
            start = at
            while at < end and _is_digit(data[at]):
                value = value * 10 + np.int64(data[at] - 48)
                digits += 1
                fraction += 1
                at += 1
                if digits > 15:
                    return -1
            if at == start:
                return -1
        if negative:
            value = -value
        scale = np.int64(1)
        for _ in range(fraction):
            scale *= 10
        kind[i] = _NUMBER
        if value % scale == 0:
            value //= scale
            near = np.float64(value)
            number_column[i] = near
            integer[i] = value - np.int64(near)
        else:
            # Both are below 2**53, so they are exact and the quotient is the nearest float64 of the decimal.
            number_column[i] = np.float64(value) / np.float64(scale)
            integer[i] = 0
        string_size[i] = 0
    if at < end and not (_is_space(data[at]) or data[at] == 44 or data[at] == 41):
        return -1
    return at


@kernel
def parse_text(data, at, end, p, i, name_start, name_size, operator, counts, kind, number_column, integer, string_size):
    """Reads one text into predicates from p and literals from i on; returns the next p and i, or (-1, -1)."""
    while True:
        at = _skip_space(data, at, end)
        name_start[p] = at
        after = _name_end(data, at, end)
        if after < 0:
            return -1, -1
        name_size[p] = after - at
        at = _skip_space(data, after, end)
        if at + 1 >= end:
            return -1, -1
        c, d = data[at], data[at + 1]
        count, closed = 1, False
        if c == 61:  # =
            operator[p] = _EQ
            at += 2 if d == 61 else 1
        elif c == 60:  # <
            operator[p] = _LE if d == 61 else (_NE if d == 62 else _LT)
            at += 2 if d == 61 or d == 62 else 1
        elif c == 62:  # >
            operator[p] = _GE if d == 61 else _GT
            at += 2 if d == 61 else 1
        elif c == 33 and d == 61:  # !=
            operator[p] = _NE
            at += 2
        elif at == after:
            return -1, -1
        else:
            negated = _letters(data, at, end, _NOT)
            if negated:
                at = _skip_space(data, at + 3, end)
            if _letters(data, at, end, _BETWEEN_WORD):
                operator[p] = _NOT_BETWEEN if negated else _BETWEEN
                at = _skip_space(data, at + 7, end)
                at = _literal(data, at, end, i, kind, number_column, integer, string_size)
                if at < 0 or at >= end or not _is_space(data[at]):
                    return -1, -1
                at = _skip_space(data, at, end)
                if not _letters(data, at, end, _AND):
                    return -1, -1
                at += 3
                i += 1
                count = 2
            elif _letters(data, at, end, _IN_WORD):
                operator[p] = _NOT_IN if negated else _IN
                at = _skip_space(data, at + 2, end)
                if at >= end or data[at] != 40:
                    return -1, -1
                at += 1
                while True:
                    at = _skip_space(data, at, end)
                    at = _literal(data, at, end, i, kind, number_column, integer, string_size)
                    if at < 0:
                        return -1, -1
                    if negated and kind[i] != kind[i - count + 1]:
                        return -1, -1  # of two kinds: never holds
                    at = _skip_space(data, at, end)
                    if at >= end or (data[at] != 44 and data[at] != 41):
                        return -1, -1
                    if data[at] == 41:
                        break
                    at += 1
                    i += 1
                    count += 1
                at += 1
                closed = True
            elif _letters(data, at, end, _LIKE) and not negated:
                operator[p] = _WITHIN
                at = _skip_space(data, at + 4, end)
                at = _literal(data, at, end, i, kind, number_column, integer, string_size)
                if at < 0 or kind[i] != _STRING:
                    return -1, -1
                size = string_size[i] - 1  # without the % at the end, the only wildcard
                if size < 1 or data[integer[i] + size] != 37:
                    return -1, -1
                for k in range(integer[i], integer[i] + size):
                    if data[k] == 37 or data[k] == 95:
                        return -1, -1
                string_size[i] = size
                closed = True
            elif _letters(data, at, end, _IS) and not negated:
                at = _skip_space(data, at + 2, end)
                operator[p] = _IS_NULL
                if _letters(data, at, end, _NOT):
                    operator[p] = _NOT_NULL
                    at = _skip_space(data, at + 3, end)
                if not _letters(data, at, end, _NULL):
                    return -1, -1
                at += 4
                count = 0
                closed = True
            else:
                return -1, -1
        if not closed:
            at = _skip_space(data, at, end)
            at = _literal(data, at, end, i, kind, number_column, integer, string_size)
            if at < 0:
                return -1, -1
        counts[p] = count
        i += min(count, 1)
        p += 1
        after = at
        at = _skip_space(data, at, end)
        if at >= end:
            return p, i
        if at == after or not _letters(data, at, end, _AND):
            return -1, -1
        at += 3


@kernel
def parse_texts(
    data, offsets, sizes, name_start, name_size, operator, counts, kind, number_column, integer, string_size
):
    p, i = 0, 0
    for t in range(len(offsets) - 1):
        next_p, next_i = parse_text(
            data,
            offsets[t],
            offsets[t + 1],
            p,
            i,
            name_start,
            name_size,
            operator,
            counts,
            kind,
            number_column,
            integer,
            string_size,
        )
        if next_p < 0:
            sizes[t] = 0
        else:
            sizes[t] = next_p - p
            p, i = next_p, next_i
    return p, i
