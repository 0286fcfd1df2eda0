"""The kernels of language.bulk: they read UTF-8 bytes and write columns. Whatever is not plainly simple is refused."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import kernel, phase
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
_NOWHERE = -1  # instead of a place in the text: it is not simple


class ReadPredicates(NamedTuple):
    """What texts say, predicate by predicate."""

    name_start: NDArray[np.int64]
    name_size: NDArray[np.int32]
    operator: NDArray[np.uint8]  # an Op
    counts: NDArray[np.int32]  # literals

    @classmethod
    def room(cls, size: int) -> ReadPredicates:
        return cls(
            np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, np.uint8), np.empty(size, np.int32)
        )


class ReadLiterals(NamedTuple):
    """Their literals, one after the other."""

    kind: NDArray[np.uint8]  # a Kind
    number: NDArray[np.float64]
    integer: NDArray[np.int64]  # of a number its rest, of a string where it starts, of a boolean 0 or 1
    string_size: NDArray[np.int32]

    @classmethod
    def room(cls, size: int) -> ReadLiterals:
        return cls(
            np.empty(size, np.uint8), np.empty(size, np.float64), np.empty(size, np.int64), np.empty(size, np.int32)
        )


@kernel(inline="always")
def _is_space(c):
    return c == 32 or c == 9 or c == 10 or c == 13


@kernel(inline="always")
def _is_letter(c):
    return (c >= 65 and c <= 90) or (c >= 97 and c <= 122)


@kernel(inline="always")
def _is_digit(c):
    return c >= 48 and c <= 57


@phase(inline=False)
def _skip_space(data, at, end):
    while at < end and _is_space(data[at]):
        at += 1
    return at


@phase(inline=False)
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


@phase(inline=False)
def _letters(data, at, end, word):
    """Whether the word (lower case) stands here in any case, and no letter, digit or underscore follows."""
    if at + len(word) > end:
        return False
    for k in range(len(word)):
        if (data[at + k] | 32) != word[k]:
            return False
    at += len(word)
    return at == end or not (_is_letter(data[at]) or _is_digit(data[at]) or data[at] == 95)


@phase(inline=False)
def _literal(data, at, end, i, literals):
    """Reads literal number i; returns one past it, or _NOWHERE. What follows must be a space, a comma, ')' or the
    end."""
    kind, number_column, integer, string_size = literals
    if at >= end:
        return _NOWHERE
    if data[at] == 39:
        at += 1
        start = at
        while at < end and data[at] != 39:
            if data[at] == 92 or data[at] < 32:
                return _NOWHERE
            at += 1
        if at >= end:
            return _NOWHERE
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
                return _NOWHERE
        if at == start:
            return _NOWHERE
        if at < end and data[at] == 46:
            at += 1
            start = at
            while at < end and _is_digit(data[at]):
                value = value * 10 + np.int64(data[at] - 48)
                digits += 1
                fraction += 1
                at += 1
                if digits > 15:
                    return _NOWHERE
            if at == start:
                return _NOWHERE
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
        return _NOWHERE
    return at


@phase(inline=False)
def parse_text(data, at, end, p, i, predicates, literals):
    """Reads one text into predicates from p and literals from i on; returns the next p and i, or (-1, -1)."""
    while True:
        at = _skip_space(data, at, end)
        after = _name_end(data, at, end)
        if after < 0:
            return -1, -1
        predicates.name_start[p], predicates.name_size[p] = at, after - at
        at = _skip_space(data, after, end)
        if at + 1 >= end:
            return -1, -1
        operator, size = _comparison(data[at], data[at + 1])
        count = 1
        if size > 0:
            at = _literal(data, _skip_space(data, at + size, end), end, i, literals)
        elif at == after:
            return -1, -1
        else:
            operator, count, at = _words(data, at, end, i, literals)
        if at < 0:
            return -1, -1
        predicates.operator[p], predicates.counts[p] = operator, count
        i += count
        p += 1
        after = at
        at = _skip_space(data, at, end)
        if at >= end:
            return p, i
        if at == after or not _letters(data, at, end, _AND):
            return -1, -1
        at += len(_AND)


@kernel(inline="always")
def _comparison(c, d):
    """The operator that the characters c and d are or begin with, and its length; 0 if there is none."""
    if c == 61:  # =
        return _EQ, 2 if d == 61 else 1
    if c == 60:  # <
        return _LE if d == 61 else (_NE if d == 62 else _LT), 2 if d == 61 or d == 62 else 1
    if c == 62:  # >
        return _GE if d == 61 else _GT, 2 if d == 61 else 1
    if c == 33 and d == 61:  # !=
        return _NE, 2
    return _EQ, 0


@kernel(inline="always")
def _words(data, at, end, i, literals):
    """A predicate whose operator is a word, from there on: (operator, how many literals, one past it or _NOWHERE)."""
    negated = _letters(data, at, end, _NOT)
    if negated:
        at = _skip_space(data, at + len(_NOT), end)
    if _letters(data, at, end, _BETWEEN_WORD):
        at = _between(data, at + len(_BETWEEN_WORD), end, i, literals)
        return _NOT_BETWEEN if negated else _BETWEEN, 2, at
    if _letters(data, at, end, _IN_WORD):
        count, at = _list(data, at + len(_IN_WORD), end, i, negated, literals)
        return _NOT_IN if negated else _IN, count, at
    if negated:
        return _EQ, 0, _NOWHERE
    if _letters(data, at, end, _LIKE):
        return _WITHIN, 1, _prefix(data, at + len(_LIKE), end, i, literals)
    if not _letters(data, at, end, _IS):
        return _EQ, 0, _NOWHERE
    at = _skip_space(data, at + len(_IS), end)
    operator = _IS_NULL
    if _letters(data, at, end, _NOT):
        operator = _NOT_NULL
        at = _skip_space(data, at + len(_NOT), end)
    return operator, 0, at + len(_NULL) if _letters(data, at, end, _NULL) else _NOWHERE


@kernel(inline="always")
def _between(data, at, end, i, literals):
    """Two literals with AND between them: one past them, or _NOWHERE."""
    at = _literal(data, _skip_space(data, at, end), end, i, literals)
    if at < 0 or at >= end or not _is_space(data[at]):
        return _NOWHERE
    at = _skip_space(data, at, end)
    if not _letters(data, at, end, _AND):
        return _NOWHERE
    return _literal(data, _skip_space(data, at + len(_AND), end), end, i + 1, literals)


@kernel(inline="always")
def _list(data, at, end, i, negated, literals):
    """Literals in parentheses: (how many, one past them or _NOWHERE)."""
    at = _skip_space(data, at, end)
    if at >= end or data[at] != 40:
        return 0, _NOWHERE
    count = 0
    while data[at] != 41:
        at = _literal(data, _skip_space(data, at + 1, end), end, i + count, literals)
        if at < 0:
            return 0, _NOWHERE
        if negated and literals.kind[i + count] != literals.kind[i]:
            return 0, _NOWHERE  # of two kinds: never holds
        count += 1
        at = _skip_space(data, at, end)
        if at >= end or (data[at] != 44 and data[at] != 41):
            return 0, _NOWHERE
    return count, at + 1


@kernel(inline="always")
def _prefix(data, at, end, i, literals):
    """The pattern of LIKE, whose only wildcard is a % at the end: one past it, or _NOWHERE. It is left out."""
    at = _literal(data, _skip_space(data, at, end), end, i, literals)
    if at < 0 or literals.kind[i] != _STRING:
        return _NOWHERE
    start, size = literals.integer[i], literals.string_size[i] - 1
    if size < 1 or data[start + size] != 37:
        return _NOWHERE
    for k in range(start, start + size):
        if data[k] == 37 or data[k] == 95:
            return _NOWHERE
    literals.string_size[i] = size
    return at


@kernel
def parse_texts(data, offsets, sizes, predicates, literals):
    """Reads texts one after the other; sizes: how many predicates each has, 0 if it is not simple. How many predicates
    and literals there are in all."""
    p, i = 0, 0
    for t in range(len(offsets) - 1):
        next_p, next_i = parse_text(data, offsets[t], offsets[t + 1], p, i, predicates, literals)
        if next_p < 0:
            sizes[t] = 0
        else:
            sizes[t] = next_p - p
            p, i = next_p, next_i
    return p, i
