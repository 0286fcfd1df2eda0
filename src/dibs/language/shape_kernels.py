"""The kernels that cut a text: UTF-8 to the shapes of its predicates, with names and constants put aside
(language.hole_kernels).

A text is cut at AND, OR, NOT and the parentheses around conditions into predicates, and what is left is its frame:

    (a = 1 OR b <= 2) AND NOT c LIKE 'x%'        frame (p|p)&!p        predicates NAME = NUMBER, NAME <= NUMBER, ...

IS TRUE and its kin behind a condition belong to the frame, too (shapes.TRUTHS).

The shape of a predicate is a run of bytes: its words in upper case with a blank behind them, its signs, and one byte
for each hole, that is for a name or a constant. What a constant decides is in that byte: what kind it is of, and where
a pattern of LIKE has its wildcards. Holes have what stands there, as a place in the text or as a number.

Nothing here knows what a predicate means, nor whether it means anything: the grammar is asked for each shape, once
(language.templates). A text that is cut in any other way than the grammar would cut it is a mistake; a text that is
left alone (0 predicates) is read by the grammar as a whole, so what is rare or doubtful is left alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import phase
from dibs.language.expression import Kind
from dibs.language.hole_kernels import (
    AND,
    BETWEEN,
    DATE,
    ESCAPE,
    FALSE,
    IN,
    INTERVAL,
    IS,
    LIKE,
    NOT,
    NULL,
    OR,
    REGEXP,
    RLIKE,
    TIMESTAMP,
    TRUE,
    UNKNOWN,
    letters,
    read_list,
    read_number,
    read_strings,
    string_byte,
)
from dibs.language.piece_kernels import next_piece
from dibs.language.pieces import END, NUMBER, QUOTED_NAME, RAW_STRING, SIGN, STRING, WORD
from dibs.language.shapes import (
    A_NAME,
    A_NUMBER,
    A_STRING,
    ARROW,
    AT_LEAST,
    AT_MOST,
    NAME,
    TESTED,
    UNEQUAL,
)

_NUMBER, _STRING, _NAME = int(Kind.NUMBER), int(Kind.STRING), int(NAME)
LONGEST = 4096  # bytes of a predicate's shape
PLAIN = 4  # in `count`
_OPEN, _CLOSE, _COMMA, _DOT, _MINUS, _EXCLAMATION = 40, 41, 44, 46, 45, 33
_EQUAL, _LESS, _MORE, _BLANK, _BACKTICK = 61, 60, 62, 32, 96
_AND_SIGN, _OR_SIGN, _PREDICATE = 38, 124, 112  # &, | and p, of frames


class Predicates(NamedTuple):
    """The predicates of many texts."""

    start: NDArray[np.int64]  # of its shape among the bytes
    size: NDArray[np.int32]
    hole: NDArray[np.int64]  # its first
    bytes: NDArray[np.uint8]

    @classmethod
    def room(cls, size: int, texts: int) -> Predicates:
        """For texts of so many bytes. A predicate takes at least one and something between two of them; a word's shape
        is one byte longer than the word."""
        count = size // 2 + texts + 1
        return cls(
            np.empty(count, np.int64),
            np.empty(count, np.int32),
            np.empty(count + 1, np.int64),
            np.empty(2 * size + 8, np.uint8),
        )


@phase
def _path_end(data, stop, end):
    """One past a name that ends here or goes on with dots and names; -1: that should be looked at."""
    while True:
        kind, start, after = next_piece(data, stop, end, False)
        if kind != SIGN or data[start] != _DOT:
            return stop
        if start != stop:
            return -1
        kind, start, stop = next_piece(data, after, end, False)
        if start != after or (kind != WORD and kind != QUOTED_NAME):
            return -1


@phase
def _is_quoted(data, start, stop):
    """Whether a part of this name is."""
    ticks = 0
    for k in range(start, stop):
        ticks += data[k] == _BACKTICK
    return ticks > 0


@phase
def _is_known(word):
    """Whether it is a word of the grammar that may stand within a predicate."""
    if word == 0:
        return False
    return (
        (word in (AND, IN, BETWEEN, LIKE, NOT, IS))
        or (word in (NULL, TRUE, FALSE))
        or (word in (RLIKE, REGEXP, ESCAPE))
    )


@phase
def _is_before_number(before):
    """Whether a minus behind this is a sign of the number that follows."""
    return (
        (before == 0 or before in (_EQUAL, _LESS, _MORE))
        or (before in (UNEQUAL, AT_MOST, AT_LEAST))
        or (before in (_OPEN, _COMMA, BETWEEN, AND, ARROW))
    )


@phase
def _sign_at(data, kind, start, stop):
    """A piece that is a sign of one character, as that character; else 0."""
    return np.int64(data[start]) if kind == SIGN and stop == start + 1 else np.int64(0)


@phase
def _write_word(data, start, stop, in_upper_case, shape, b):
    """A word and the blank behind it: one past them."""
    for k in range(start, stop):
        c = data[k]
        shape[b] = c - 32 if in_upper_case and 97 <= c <= 122 else c
        b += 1
    shape[b] = _BLANK
    return b + 1


@phase
def _sign_byte(data, start, stop):
    """The byte for a sign within a predicate; 0: the text is left alone."""
    first = data[start]
    if stop - start == 1:
        return np.int64(first) if first != _DOT else np.int64(0)
    second = data[start + 1]
    if stop - start > 2 or (second != _EQUAL and second != _MORE):
        return np.int64(0)
    if first == _MINUS:
        return np.int64(ARROW)
    if second == _MORE or first == _EXCLAMATION:
        return np.int64(UNEQUAL)
    return np.int64(_EQUAL if first == _EQUAL else (AT_MOST if first == _LESS else AT_LEAST))


@phase
def _ends_condition(data, kind, start, stop):
    """Whether a condition ends before this piece."""
    if kind == WORD:
        word = letters(data, start, stop)
        return word in (AND, OR)
    return kind == END or (kind == SIGN and data[start] == _CLOSE)


@phase(inline=False)
def _truth(data, at, end):
    """What stands behind the word IS: (its sign in a frame, one past it), or (0, 0) if it is none of TRUE, FALSE and
    UNKNOWN, with or without NOT."""
    kind, start, stop = next_piece(data, at, end, False)
    word = letters(data, start, stop) if kind == WORD else np.int64(0)
    negated = word == NOT
    if negated:
        kind, start, stop = next_piece(data, stop, end, False)
        word = letters(data, start, stop) if kind == WORD else np.int64(0)
    if word not in (TRUE, FALSE, UNKNOWN):
        return np.int64(0), np.int64(0)
    return np.int64((data[start] | 32) - 32 * negated), np.int64(stop)


@phase
def _may_stand(word, is_called_or_known, is_before_string):
    """Whether a word that is no name may stand here: what takes a string has one, also in parentheses."""
    if word in (LIKE, RLIKE, REGEXP, ESCAPE):
        return is_before_string and is_called_or_known
    return is_called_or_known or word in (DATE, TIMESTAMP)


@phase
def _is_part_of_shape(data, piece, word, before, in_call):
    """A type, a unit, a word of a join, or a variable: behind an arrow every name may be one. And a length of time,
    which is no constant of its own."""
    kind, start, stop = piece
    if kind == NUMBER:
        return before == INTERVAL
    return kind == WORD and (in_call or word == INTERVAL or before == INTERVAL) and not _is_quoted(data, start, stop)


@phase
def _read_items(data, end, piece, shape, holes, b, h):
    """The items of a list that begins with this piece, if it has constants alone: one past its shape (as before: it has
    others; -1: something comes behind it), one past its holes, the piece behind it."""
    found, last = read_list(data, piece[2], end, holes, h)
    if found == 0:
        return b, h, piece
    behind = next_piece(data, last, end, False)
    if not _ends_condition(data, behind[0], behind[1], behind[2]):
        return np.int64(-1), h, behind
    shape[b] = found
    return b + 1, h + 1 + holes.size[h], behind


@phase(inline=False)
def _read_predicate(data, end, piece, shape, holes, b, h):
    """Adds the predicate that begins with this piece: (one past its shape or -1, one past its holes, whether they are
    such as text_kernels.same_as_last knows, the piece behind it). -1: the text is left alone."""
    inner, betweens, before, is_plain, has_arrow = 0, 0, np.int64(0), True, False
    kind, start, stop = piece
    while True:
        sign = _sign_at(data, kind, start, stop)
        word = letters(data, start, stop) if kind == WORD else np.int64(0)
        ends = kind == END or word == OR or (word == AND and betweens == 0) or sign == _CLOSE
        if ends and inner == 0:
            return b, h, is_plain, (kind, start, stop)
        if kind == END or h + 2 >= len(holes.kind) or b + stop - start + 2 >= len(shape):
            break
        if word == IS and inner == 0 and betweens == 0 and _truth(data, stop, end)[0] != 0:
            shape[b] = TESTED
            return b + 1, h, is_plain, (kind, start, stop)
        after, after_start, after_stop = next_piece(data, stop, end, False)
        negative = sign == _MINUS and after == NUMBER and _is_before_number(before)
        if negative or (sign == _DOT and after == NUMBER and after_start == stop):
            kind, start, stop, sign = NUMBER, after_start if negative else start, after_stop, np.int64(0)
            after, after_start, after_stop = next_piece(data, stop, end, False)
        follows = _sign_at(data, after, after_start, after_stop)
        known, is_before_string = _is_known(word), after in (STRING, RAW_STRING)
        found = np.int64(1)  # what stands here: its byte, or 0 to leave the text alone
        if kind == WORD and (known or follows == _OPEN or is_before_string):
            if not _may_stand(word, known or follows == _OPEN, is_before_string):
                break
            b = _write_word(data, start, stop, True, shape, b)
            before = word if word != 0 else np.int64(1)
            betweens += (np.int64(word == BETWEEN) - np.int64(word == AND)) if inner == 0 else 0
            kind, start, stop = after, after_start, after_stop
            if word == IN and follows == _OPEN and inner == 0:
                at = b
                b, h, (kind, start, stop) = _read_items(data, end, (kind, start, stop), shape, holes, b, h)
                if b < 0:
                    break
                is_plain &= b == at
            continue
        if kind in (WORD, QUOTED_NAME) and follows == _DOT:
            stop = _path_end(data, stop, end)
            if stop < 0 or b + stop - start + 2 >= len(shape):
                break
            after, after_start, after_stop = next_piece(data, stop, end, False)
            follows = _sign_at(data, after, after_start, after_stop)
        if kind == NUMBER and after_start == stop and (after == WORD or (after == SIGN and data[after_start] == _DOT)):
            break
        in_call = inner > 0 and not (before == _OPEN and follows == _COMMA and not has_arrow)
        if _is_part_of_shape(data, (kind, start, stop), word, before, in_call):
            if b + stop - start + 2 >= len(shape):
                break
            b = _write_word(data, start, stop, False, shape, b)
            before = before if kind == NUMBER else word if word == INTERVAL else np.int64(1)
            kind, start, stop = after, after_start, after_stop
            continue
        if kind in (WORD, QUOTED_NAME):
            holes.kind[h], holes.start[h], holes.size[h] = _NAME, start, stop - start
            found = np.int64(A_NAME)
        elif kind == NUMBER:
            read_number(data, start, stop, negative, holes, h)
            is_plain &= holes.kind[h] == _NUMBER and not negative
            found = np.int64(A_NUMBER)
        elif kind in (STRING, RAW_STRING):
            escapes = after == WORD and letters(data, after_start, after_stop) == ESCAPE
            last = read_strings(data, end, (kind, start, stop), is_before_string, holes, h)
            if last != stop:
                stop = last
                after, after_start, after_stop = next_piece(data, stop, end, False)
            found = np.int64(string_byte(data, start, stop, before, escapes, holes, h))
            is_plain &= found == A_STRING and holes.kind[h] == _STRING and before != LIKE and kind == STRING
        else:
            found = _sign_byte(data, start, stop) if kind == SIGN else np.int64(0)
            inner += np.int64(found == _OPEN) - np.int64(found == _CLOSE)
            has_arrow |= found == ARROW
            h -= 1  # a sign is no hole
        if found == 0:
            break
        shape[b] = found
        b, h, before = b + 1, h + 1, found if kind == SIGN else np.int64(1)
        kind, start, stop = after, after_start, after_stop
    return np.int64(-1), h, False, (kind, start, stop)


@phase
def _has_zero(data, at, end):
    least = np.uint8(255)
    for k in range(at, end):
        least = min(least, data[k])
    return least == 0


@phase(inline=False)
def read_text(data, at, end, predicates, holes, signs, count):
    """Adds one text. count: predicates, holes, bytes of shapes and signs so far, which stay as they are when the text
    is left alone (False); and whether it has only such holes as _same_as_last knows."""
    if _has_zero(data, at, end):
        return False
    p, h, b, s = count[0], count[1], count[2], count[3]
    opened, is_plain = 0, True
    kind, start, stop = next_piece(data, at, end, False)
    while kind != END:
        # What stands before a predicate.
        while s + 2 < len(signs):
            sign = _sign_at(data, kind, start, stop)
            is_not = sign == _EXCLAMATION or (kind == WORD and letters(data, start, stop) == NOT)
            if not is_not and sign != _OPEN:
                break
            signs[s] = _EXCLAMATION if is_not else _OPEN
            s, opened = s + 1, opened + (sign == _OPEN)
            kind, start, stop = next_piece(data, stop, end, False)
        if p + 1 >= len(predicates.size) or s + 2 >= len(signs):
            return False
        predicates.start[p], predicates.hole[p] = b, h
        b, h, plain, (kind, start, stop) = _read_predicate(
            data, end, (kind, start, stop), predicates.bytes, holes, b, h
        )
        size = b - predicates.start[p]
        if size <= 0 or size > LONGEST:
            return False
        predicates.size[p] = size
        is_plain &= plain
        signs[s] = _PREDICATE
        p, s = p + 1, s + 1
        # What stands behind it.
        while s + 2 < len(signs):
            if opened > 0 and _sign_at(data, kind, start, stop) == _CLOSE:
                signs[s] = _CLOSE
                opened -= 1
            elif kind == WORD and letters(data, start, stop) == IS:
                signs[s], stop = _truth(data, stop, end)
                if signs[s] == 0:
                    return False
            else:
                break
            s += 1
            kind, start, stop = next_piece(data, stop, end, False)
        if kind == END:
            break
        word = letters(data, start, stop) if kind == WORD else np.int64(0)
        if word != AND and word != OR:
            return False
        signs[s] = _AND_SIGN if word == AND else _OR_SIGN
        s += 1
        kind, start, stop = next_piece(data, stop, end, False)
        if kind == END:
            return False
    if opened > 0 or p == count[0]:
        return False
    count[0], count[1], count[2], count[3], count[PLAIN] = p, h, b, s, is_plain
    predicates.hole[p] = h
    return True
