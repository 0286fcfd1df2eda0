"""The kernels of language.reading that read: UTF-8 texts to the shapes of their predicates, with names and constants
put aside.

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

from dibs.jit.kernel import kernel, phase
from dibs.language.expression import Kind
from dibs.language.piece_kernels import next_piece
from dibs.language.pieces import END, NUMBER, QUOTED_NAME, RAW_STRING, SIGN, STRING, WORD
from dibs.language.shapes import (
    A_DATE,
    A_LIST_OF_NUMBERS,
    A_LIST_OF_STRINGS,
    A_NAME,
    A_NUMBER,
    A_PART,
    A_PATTERN,
    A_PREFIX,
    A_REGEX,
    A_STRING,
    A_SUFFIX,
    A_TIMESTAMP,
    AN_EMPTY_STRING,
    AT_LEAST,
    AT_MOST,
    HARD,
    LIST,
    NAME,
    TESTED,
    UNEQUAL,
)
from dibs.language.time_kernels import read_time

_NUMBER, _STRING, _TIME = int(Kind.NUMBER), int(Kind.STRING), int(Kind.TIME)
_NAME, _LIST, _HARD = int(NAME), int(LIST), int(HARD)
_LIKE_HOLE, _REGEX_HOLE, _DATE_HOLE = 4, 5, 6  # of hard holes: see language.shapes
LONGEST = 4096  # bytes of a predicate's shape
PLAIN = 4  # in `count`


def _word(letters: str) -> int:
    return int.from_bytes(letters.lower().encode(), "big")


_AND, _OR, _NOT, _IN, _BETWEEN = (_word(w) for w in ("AND", "OR", "NOT", "IN", "BETWEEN"))
_LIKE, _RLIKE, _REGEXP, _IS, _NULL = (_word(w) for w in ("LIKE", "RLIKE", "REGEXP", "IS", "NULL"))
_TRUE, _FALSE, _ESCAPE, _DATE, _TIMESTAMP = (_word(w) for w in ("TRUE", "FALSE", "ESCAPE", "DATE", "TIMESTAM"))
_UNKNOWN = _word("UNKNOWN")
_OPEN, _CLOSE, _COMMA, _DOT, _MINUS, _EXCLAMATION = 40, 41, 44, 46, 45, 33
_EQUAL, _LESS, _MORE = 61, 60, 62
_PERCENT, _UNDERSCORE, _BACKSLASH, _BLANK = 37, 95, 92, 32
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


class Holes(NamedTuple):
    """Their names and constants."""

    kind: NDArray[np.uint8]  # NAME, LIST (its items follow), or a Kind, with HARD where Python must have a look
    start: NDArray[np.int64]  # of the text between quotes, and of the whole where it is hard
    size: NDArray[np.int32]  # of a list: its items
    number: NDArray[np.float64]
    integer: NDArray[np.int64]  # of a number its rest, of a time its microseconds; of a hard number: whether it is < 0

    @classmethod
    def room(cls, size: int) -> Holes:
        """No hole takes less than a byte, and a list has its parentheses besides."""
        count = size + 2
        return cls(
            np.empty(count, np.uint8),
            np.empty(count, np.int64),
            np.empty(count, np.int32),
            np.empty(count, np.float64),
            np.empty(count, np.int64),
        )


@phase
def _letters(data, start, stop):
    """A word of up to eight letters as a number, whatever their case; TIMESTAMP as if without its last; else 0."""
    size = stop - start
    if size > 9 or size < 2:
        return np.int64(0)
    packed = np.int64(0)
    for k in range(start, start + min(size, 8)):
        packed = (packed << 8) | np.int64(data[k] | 32)
    if size == 9:
        return packed if packed == _TIMESTAMP and (data[stop - 1] | 32) == 112 else np.int64(0)
    return packed if packed != _TIMESTAMP else np.int64(0)


@phase
def _read_number(data, start, stop, negative, holes, h):
    """A plain number; any other is hard."""
    holes.kind[h], holes.start[h], holes.size[h] = _NUMBER | _HARD, start, stop - start
    holes.number[h], holes.integer[h] = 0.0, 1 if negative else 0
    value, digits, scale, at = np.int64(0), 0, np.int64(1), start
    while at < stop and 48 <= data[at] <= 57 and digits < 19:
        value = value * 10 + np.int64(data[at] - 48)
        digits += 1
        at += 1
    if digits > 18:
        return
    if at + 1 < stop and data[at] == _DOT:
        at += 1
        while at < stop and 48 <= data[at] <= 57 and digits < 16:
            value = value * 10 + np.int64(data[at] - 48)
            scale *= 10
            digits += 1
            at += 1
        if digits > 15:
            return
    if at < stop:
        return
    holes.kind[h] = _NUMBER
    if negative:
        value = -value
    if scale == 1 or value % scale == 0:
        value = value if scale == 1 else value // scale  # to divide takes longer than all the rest
        near = np.float64(value)
        holes.number[h], holes.integer[h] = near, value - np.int64(near)
    else:
        # Both are below 2**53, so they are exact and the quotient is the nearest float64 of the decimal.
        holes.number[h], holes.integer[h] = np.float64(value) / np.float64(scale), 0


@phase
def _read_string(data, kind, start, stop, holes, h):
    """A string; one with escapes is hard."""
    first = start + (2 if kind == RAW_STRING else 1)
    holes.kind[h], holes.start[h], holes.size[h] = _STRING, first, stop - 1 - first
    if kind != RAW_STRING:
        for k in range(first, stop - 1):
            if data[k] == _BACKSLASH:
                holes.kind[h], holes.start[h], holes.size[h] = _STRING | _HARD, start, stop - start
                return


@phase(inline=False)
def _read_time(data, is_date, holes, h):
    """A timestamp without escapes, or the date yyyy-mm-dd; any other is hard."""
    start, size = holes.start[h], holes.size[h]
    is_easy = holes.kind[h] == _STRING
    holes.kind[h] = _DATE_HOLE | _HARD if is_date else _TIME | _HARD
    if is_date:
        is_easy = is_easy and size == 10 and data[start + 4] == _MINUS and data[start + 7] == _MINUS
    if is_easy:
        is_time, microseconds = read_time(data, start, start + size)
        if is_time:
            holes.kind[h], holes.integer[h] = _TIME, microseconds


@phase
def _classify(data, holes, h):
    """The byte for a pattern of LIKE without escapes. Its hole keeps what is between wildcards at its ends; of other
    patterns it keeps all, to be looked at."""
    start, stop = holes.start[h], holes.start[h] + holes.size[h]
    first, last = start, stop
    while first < last and data[first] == _PERCENT:
        first += 1
    while last > first and data[last - 1] == _PERCENT:
        last -= 1
    for k in range(first, last):
        if data[k] == _PERCENT or data[k] == _UNDERSCORE:
            holes.kind[h] = _LIKE_HOLE | _HARD
            return A_PATTERN
    if first == last:
        return 0  # nothing but wildcards, or nothing
    holes.start[h], holes.size[h] = first, last - first
    if first == start:
        return A_PREFIX if last < stop else A_STRING
    return A_PART if last < stop else A_SUFFIX


@phase(inline=False)
def _read_list(data, at, end, holes, h):
    """The constants of a list whose parenthesis opens before `at`: (its byte, one past it), or (0, 0) where there is
    anything but numbers alone or strings alone. Hole h is the list, and its items follow."""
    count, found = 0, 0
    while True:
        kind, start, stop = next_piece(data, at, end, False)
        item = h + 1 + count
        if item + 1 >= len(holes.kind):
            return 0, at
        negative = kind == SIGN and stop == start + 1 and data[start] == _MINUS
        if negative:
            kind, start, stop = next_piece(data, stop, end, False)
        if kind == NUMBER:
            _read_number(data, start, stop, negative, holes, item)
        elif (kind in (STRING, RAW_STRING)) and not negative:
            _read_string(data, kind, start, stop, holes, item)
        else:
            return 0, at
        is_string = kind != NUMBER
        if count > 0 and is_string != (found == A_LIST_OF_STRINGS):
            return 0, at
        found = A_LIST_OF_STRINGS if is_string else A_LIST_OF_NUMBERS
        count += 1
        kind, start, at = next_piece(data, stop, end, False)
        if kind != SIGN or (data[start] != _COMMA and data[start] != _CLOSE):
            return 0, at  # also a string behind a string: they are one
        if data[start] == _CLOSE:
            holes.kind[h], holes.size[h] = _LIST, count
            return found, at


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
def _is_known(word):
    """Whether it is a word of the grammar that may stand within a predicate."""
    if word == 0:
        return False
    return (
        (word in (_AND, _IN, _BETWEEN, _LIKE, _NOT, _IS))
        or (word in (_NULL, _TRUE, _FALSE))
        or (word in (_RLIKE, _REGEXP, _ESCAPE))
    )


@phase
def _is_before_number(before):
    """Whether a minus behind this is a sign of the number that follows."""
    return (
        (before == 0 or before in (_EQUAL, _LESS, _MORE))
        or (before in (UNEQUAL, AT_MOST, AT_LEAST))
        or (before in (_OPEN, _COMMA, _BETWEEN, _AND))
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
    if stop - start > 2 or (second != _EQUAL and second != _MORE) or first == _MINUS:
        return np.int64(0)
    if second == _MORE or first == _EXCLAMATION:
        return np.int64(UNEQUAL)
    return np.int64(_EQUAL if first == _EQUAL else (AT_MOST if first == _LESS else AT_LEAST))


@phase
def _read_strings(data, end, piece, are_several, holes, h):
    """A string, and those that follow it without anything between, which are one with it: one past them."""
    kind, start, stop = piece
    _read_string(data, kind, start, stop, holes, h)
    if are_several:
        while kind in (STRING, RAW_STRING):
            kind, _, after = next_piece(data, stop, end, False)
            stop = after if kind in (STRING, RAW_STRING) else stop
        holes.kind[h], holes.start[h], holes.size[h] = _STRING | _HARD, start, stop - start
    return stop


@phase(inline=False)
def _string_byte(data, start, stop, before, escapes, holes, h):
    """The byte for the string in hole h, by the word before it, which decides what is kept of the string; 0: the text
    is left alone. start, stop: all of it, with its quotes."""
    if before == _LIKE:
        if escapes or holes.kind[h] != _STRING:
            return 0
        found = _classify(data, holes, h)
        for k in range(holes.start[h], holes.start[h] + holes.size[h]):
            if data[k] == _BACKSLASH:  # of a raw string
                return 0
        return found
    if before == _ESCAPE:
        return 0
    if before in (_RLIKE, _REGEXP):
        holes.kind[h], holes.start[h], holes.size[h] = _REGEX_HOLE | _HARD, start, stop - start
        return A_REGEX
    if before in (_DATE, _TIMESTAMP):
        is_date = before == _DATE
        if holes.kind[h] != _STRING:
            holes.kind[h] = _DATE_HOLE | _HARD if is_date else _TIME | _HARD
        else:
            _read_time(data, is_date, holes, h)
            if holes.kind[h] & _HARD:
                holes.start[h], holes.size[h] = start, stop - start
        return A_DATE if is_date else A_TIMESTAMP
    return A_STRING if holes.size[h] > 0 else AN_EMPTY_STRING


@phase
def _ends_condition(data, kind, start, stop):
    """Whether a condition ends before this piece."""
    if kind == WORD:
        word = _letters(data, start, stop)
        return word in (_AND, _OR)
    return kind == END or (kind == SIGN and data[start] == _CLOSE)


@phase(inline=False)
def _truth(data, at, end):
    """What stands behind the word IS: (its sign in a frame, one past it), or (0, 0) if it is none of TRUE, FALSE and
    UNKNOWN, with or without NOT."""
    kind, start, stop = next_piece(data, at, end, False)
    word = _letters(data, start, stop) if kind == WORD else np.int64(0)
    negated = word == _NOT
    if negated:
        kind, start, stop = next_piece(data, stop, end, False)
        word = _letters(data, start, stop) if kind == WORD else np.int64(0)
    if word not in (_TRUE, _FALSE, _UNKNOWN):
        return np.int64(0), np.int64(0)
    return np.int64((data[start] | 32) - 32 * negated), np.int64(stop)


@phase(inline=False)
def _read_predicate(data, end, piece, shape, holes, b, h):
    """Adds the predicate that begins with this piece: (one past its shape or -1, one past its holes, whether they are
    such as _same_as_last knows, the piece behind it). -1: the text is left alone."""
    inner, betweens, before, is_plain = 0, 0, np.int64(0), True
    kind, start, stop = piece
    while True:
        sign = _sign_at(data, kind, start, stop)
        word = _letters(data, start, stop) if kind == WORD else np.int64(0)
        ends = kind == END or word == _OR or (word == _AND and betweens == 0) or sign == _CLOSE
        if ends and inner == 0:
            return b, h, is_plain, (kind, start, stop)
        if kind == END or h + 2 >= len(holes.kind) or b + stop - start + 2 >= len(shape):
            break
        if word == _IS and inner == 0 and betweens == 0 and _truth(data, stop, end)[0] != 0:
            shape[b] = TESTED
            return b + 1, h, is_plain, (kind, start, stop)
        after, after_start, after_stop = next_piece(data, stop, end, False)
        negative = sign == _MINUS and after == NUMBER and _is_before_number(before)
        if negative or (sign == _DOT and after == NUMBER and after_start == stop):
            start = after_start if negative else start
            kind, stop, sign = NUMBER, after_stop, np.int64(0)
            after, after_start, after_stop = next_piece(data, stop, end, False)
        follows = _sign_at(data, after, after_start, after_stop)
        is_before_string = after in (STRING, RAW_STRING)
        known = _is_known(word)
        found = np.int64(1)  # what stands here: its byte, or 0 to leave the text alone
        if kind == WORD and (known or follows == _OPEN or is_before_string):
            takes_string = word in (_LIKE, _RLIKE, _REGEXP, _ESCAPE)  # it must be known, also in parentheses
            is_time = word in (_DATE, _TIMESTAMP)
            if (takes_string and not is_before_string) or not (known or follows == _OPEN or is_time):
                break
            b = _write_word(data, start, stop, True, shape, b)
            before = word if word != 0 else np.int64(1)
            betweens += (np.int64(word == _BETWEEN) - np.int64(word == _AND)) if inner == 0 else 0
            kind, start, stop = after, after_start, after_stop
            if word == _IN and follows == _OPEN and inner == 0:
                found, last = _read_list(data, after_stop, end, holes, h)
                if found != 0:
                    kind, start, stop = next_piece(data, last, end, False)
                    if not _ends_condition(data, kind, start, stop):
                        break  # so that nothing comes behind the items of a list
                    shape[b], is_plain = found, False
                    b, h = b + 1, h + 1 + holes.size[h]
            continue
        if kind == WORD and inner > 0 and not (before == _OPEN and follows == _COMMA):
            b = _write_word(data, start, stop, False, shape, b)  # a type, or a word of a join
            before, kind, start, stop = np.int64(1), after, after_start, after_stop
            continue
        if kind in (WORD, QUOTED_NAME):
            if follows == _DOT:
                stop = _path_end(data, stop, end)
                if stop < 0:
                    break
                after, after_start, after_stop = next_piece(data, stop, end, False)
            holes.kind[h], holes.start[h], holes.size[h] = _NAME, start, stop - start
            found = np.int64(A_NAME)
        elif kind == NUMBER:
            if after_start == stop and (after == WORD or (after == SIGN and data[after_start] == _DOT)):
                break
            _read_number(data, start, stop, negative, holes, h)
            is_plain &= holes.kind[h] == _NUMBER and not negative
            found = np.int64(A_NUMBER)
        elif kind in (STRING, RAW_STRING):
            escapes = after == WORD and _letters(data, after_start, after_stop) == _ESCAPE
            last = _read_strings(data, end, (kind, start, stop), is_before_string, holes, h)
            if last != stop:
                stop = last
                after, after_start, after_stop = next_piece(data, stop, end, False)
            found = np.int64(_string_byte(data, start, stop, before, escapes, holes, h))
            is_plain &= found == A_STRING and holes.kind[h] == _STRING and before != _LIKE and kind == STRING
        else:
            found = _sign_byte(data, start, stop) if kind == SIGN else np.int64(0)
            inner += np.int64(found == _OPEN) - np.int64(found == _CLOSE)
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
            is_not = sign == _EXCLAMATION or (kind == WORD and _letters(data, start, stop) == _NOT)
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
            elif kind == WORD and _letters(data, start, stop) == _IS:
                signs[s], stop = _truth(data, stop, end)
                if signs[s] == 0:
                    return False
            else:
                break
            s += 1
            kind, start, stop = next_piece(data, stop, end, False)
        if kind == END:
            break
        word = _letters(data, start, stop) if kind == WORD else np.int64(0)
        if word != _AND and word != _OR:
            return False
        signs[s] = _AND_SIGN if word == _AND else _OR_SIGN
        s += 1
        kind, start, stop = next_piece(data, stop, end, False)
        if kind == END:
            return False
    if opened > 0 or p == count[0]:
        return False
    count[0], count[1], count[2], count[3], count[PLAIN] = p, h, b, s, is_plain
    predicates.hole[p] = h
    return True


@phase(inline=False)
def _same_as_last(data, at, end, last, last_end, holes, first, h):
    """Whether a text is the last one with other numbers and strings in it: then its holes are written from h on. Texts
    that programs write come one like the other, and this is three times as fast as cutting them. The last one has no
    holes but names, plain numbers and plain strings (PLAIN), and these are [first, h)."""
    i, j, to = at, last, h
    for k in range(first, h):
        kind, start = holes.kind[k], holes.start[k]
        if kind == _NAME:
            holes.kind[to], holes.start[to], holes.size[to] = kind, start + i - j, holes.size[k]
            to += 1
            continue  # which is compared with what follows
        if i + start - j >= end:
            return False
        while j < start:
            if data[i] != data[j]:
                return False
            i += 1
            j += 1
        stop = i
        if kind == _NUMBER:
            while stop < end and 48 <= data[stop] <= 57:
                stop += 1
            if stop + 1 < end and data[stop] == _DOT and stop > i:
                stop += 1
                while stop < end and 48 <= data[stop] <= 57:
                    stop += 1
            _read_number(data, i, stop, False, holes, to)
        else:
            quote = data[j - 1]
            while stop < end and data[stop] != quote and data[stop] != _BACKSLASH and data[stop] != 0:
                stop += 1
            if stop == end or data[stop] != quote:
                return False
            holes.kind[to], holes.start[to], holes.size[to] = _STRING, i, stop - i
        if stop == i or holes.kind[to] != kind:
            return False
        to += 1
        i, j = stop, start + holes.size[k]
    if end - i != last_end - j:
        return False
    while i < end:
        if data[i] != data[j]:
            return False
        i += 1
        j += 1
    return True


@kernel
def read_texts(data, offsets, predicates, holes, signs, first_predicate, first_sign, like):
    """Reads texts one after the other. Those of text t are the predicates [first_predicate[t], first_predicate[t + 1])
    and signs likewise; none: it is left alone. like[t]: the first one before it from which it differs in numbers and
    strings alone, if that was seen, else t. Returns how many predicates, holes, bytes and signs there are."""
    count = np.zeros(5, np.int64)
    first_predicate[0], first_sign[0], predicates.hole[0] = 0, 0, 0
    last, p, h, s = -1, 0, 0, 0  # the last text that was read, and where it begins
    for t in range(len(offsets) - 1):
        next_p, next_h, next_s, like[t] = count[0], count[1], count[3], t
        has_room = 2 * next_p - p < len(predicates.size) and 2 * next_h - h < len(holes.kind)
        if (
            last >= 0
            and count[PLAIN] > 0
            and has_room
            and 2 * next_s - s < len(signs)
            and _same_as_last(data, offsets[t], offsets[t + 1], offsets[last], offsets[last + 1], holes, h, next_h)
        ):
            for k in range(next_p - p):
                predicates.start[next_p + k], predicates.size[next_p + k] = (
                    predicates.start[p + k],
                    predicates.size[p + k],
                )
                predicates.hole[next_p + k] = predicates.hole[p + k] - h + next_h
            for k in range(next_s - s):
                signs[next_s + k] = signs[s + k]
            count[0], count[1], count[3] = 2 * next_p - p, 2 * next_h - h, 2 * next_s - s
            predicates.hole[count[0]], like[t] = count[1], like[last]
            last, p, h, s = t, next_p, next_h, next_s
        elif read_text(data, offsets[t], offsets[t + 1], predicates, holes, signs, count):
            last, p, h, s = t, next_p, next_h, next_s
        first_predicate[t + 1], first_sign[t + 1] = count[0], count[3]
    return count


WORDS_OF_A_HOLE = 5  # kind, start, size, bits of the number, integer


@kernel
def read_alone(data):
    """One text: (key, words), both empty for one that is left alone.

    The key is that of templates.whole_of: the signs, behind a zero each the shape of every predicate, and where OR or
    NOT may bring predicates together, for each name in two bytes the first predicate that has it. words: the number of
    predicates, the first hole of each and one past the last, and then the holes."""
    room = len(data) + 2
    predicates = Predicates(
        np.empty(room, np.int64),
        np.empty(room, np.int32),
        np.empty(room + 1, np.int64),
        np.empty(2 * room + 8, np.uint8),
    )
    holes = Holes(
        np.empty(room, np.uint8),
        np.empty(room, np.int64),
        np.empty(room, np.int32),
        np.empty(room, np.float64),
        np.empty(room, np.int64),
    )
    signs, count = np.empty(room + 2, np.uint8), np.zeros(5, np.int64)
    if not read_text(data, 0, len(data), predicates, holes, signs, count):
        return np.empty(0, np.uint8), np.empty(0, np.int64)
    p, h, b, s = count[0], count[1], count[2], count[3]
    merges = False
    for k in range(s):  # TRUTHS are letters
        merges |= signs[k] == _OR_SIGN or signs[k] == _EXCLAMATION or (signs[k] >= 65 and signs[k] != _PREDICATE)
    merges &= p < 65536  # as in frame_keys: two bytes tell no more apart, and apart they mean the same
    key, at = np.empty(s + b + p + (2 * h + 1 if merges else 0), np.uint8), 0
    for k in range(s):
        key[at] = signs[k]
        at += 1
    for q in range(p):
        key[at] = 0
        at += 1
        for k in range(predicates.start[q], predicates.start[q] + predicates.size[q]):
            key[at] = predicates.bytes[k]
            at += 1
    if merges:
        key[at] = 0
        at += 1
        for q in range(p):
            for hole in range(predicates.hole[q], predicates.hole[q + 1]):
                if holes.kind[hole] == _NAME:
                    first = _first_name(data, holes, predicates.hole, q, hole)
                    key[at], key[at + 1] = first & 255, (first >> 8) & 255
                    at += 2
    words = np.empty(2 + p + WORDS_OF_A_HOLE * h, np.int64)
    words[0] = p
    for q in range(p + 1):
        words[1 + q] = predicates.hole[q]
    bits = holes.number.view(np.int64)
    to = 2 + p
    for hole in range(h):
        kind = holes.kind[hole]
        words[to], words[to + 1], words[to + 2] = kind, holes.start[hole], holes.size[hole]
        words[to + 3] = bits[hole] if kind == _NUMBER else 0
        words[to + 4] = holes.integer[hole] if kind != _STRING and kind != _NAME and kind != _LIST else 0
        to += WORDS_OF_A_HOLE
    return key[:at], words


@phase
def _first_name(data, holes, first_hole, q, hole):
    """The first predicate that has the name that stands in this hole of predicate q."""
    for other in range(min(q, 256)):
        for h in range(first_hole[other], first_hole[other + 1]):
            if holes.kind[h] == _NAME and holes.size[h] == holes.size[hole]:
                k = 0
                while k < holes.size[h] and data[holes.start[h] + k] == data[holes.start[hole] + k]:
                    k += 1
                if k == holes.size[h]:
                    return other
    return np.int64(q)
