"""The kernels of names and constants: what language.shape_kernels puts aside, as holes.

A hole has what stands there, as a place in the text or as a number. What is out of the ordinary is hard: it keeps its
place, and Python has a look at it (language.reading.hard_constant).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import phase
from dibs.language.expression import Kind
from dibs.language.piece_kernels import next_piece
from dibs.language.pieces import NUMBER, RAW_STRING, SIGN, STRING
from dibs.language.shapes import (
    A_DATE,
    A_LIST_OF_NUMBERS,
    A_LIST_OF_STRINGS,
    A_PART,
    A_PATTERN,
    A_PREFIX,
    A_REGEX,
    A_STRING,
    A_SUFFIX,
    A_TIMESTAMP,
    AN_EMPTY_STRING,
    HARD,
    LIST,
)
from dibs.language.time_kernels import read_time

_NUMBER, _STRING, _TIME, _LIST, _HARD = int(Kind.NUMBER), int(Kind.STRING), int(Kind.TIME), int(LIST), int(HARD)
_LIKE_HOLE, _REGEX_HOLE, _DATE_HOLE = 4, 5, 6  # of hard holes: see language.shapes
_CLOSE, _COMMA, _DOT, _MINUS = 41, 44, 46, 45
_PERCENT, _UNDERSCORE, _BACKSLASH = 37, 95, 92


def _word(word: str) -> int:
    return int.from_bytes(word.lower().encode(), "big")


AND, OR, NOT, IN, BETWEEN = (_word(w) for w in ("AND", "OR", "NOT", "IN", "BETWEEN"))
LIKE, RLIKE, REGEXP, IS, NULL = (_word(w) for w in ("LIKE", "RLIKE", "REGEXP", "IS", "NULL"))
TRUE, FALSE, ESCAPE, DATE, TIMESTAMP = (_word(w) for w in ("TRUE", "FALSE", "ESCAPE", "DATE", "TIMESTAM"))
UNKNOWN, INTERVAL = _word("UNKNOWN"), _word("INTERVAL")


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
        arrays: list[Any] = [np.empty(count, kind) for kind in (np.uint8, np.int64, np.int32, np.float64, np.int64)]
        return cls(*arrays)


@phase
def letters(data, start, stop):
    """A word of up to eight letters as a number, whatever their case; TIMESTAMP as if without its last; else 0."""
    size = stop - start
    if size > 9 or size < 2:
        return np.int64(0)
    packed = np.int64(0)
    for k in range(start, start + min(size, 8)):
        packed = (packed << 8) | np.int64(data[k] | 32)
    if size == 9:
        return packed if packed == TIMESTAMP and (data[stop - 1] | 32) == 112 else np.int64(0)
    return packed if packed != TIMESTAMP else np.int64(0)


@phase
def read_number(data, start, stop, negative, holes, h):
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
def read_string(data, kind, start, stop, holes, h):
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
def read_list(data, at, end, holes, h):
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
            read_number(data, start, stop, negative, holes, item)
        elif (kind in (STRING, RAW_STRING)) and not negative:
            read_string(data, kind, start, stop, holes, item)
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
def read_strings(data, end, piece, are_several, holes, h):
    """A string, and those that follow it without anything between, which are one with it: one past them."""
    kind, start, stop = piece
    read_string(data, kind, start, stop, holes, h)
    if are_several:
        while kind in (STRING, RAW_STRING):
            kind, _, after = next_piece(data, stop, end, False)
            stop = after if kind in (STRING, RAW_STRING) else stop
        holes.kind[h], holes.start[h], holes.size[h] = _STRING | _HARD, start, stop - start
    return stop


@phase(inline=False)
def string_byte(data, start, stop, before, escapes, holes, h):
    """The byte for the string in hole h, by the word before it, which decides what is kept of the string; 0: the text
    is left alone. start, stop: all of it, with its quotes."""
    if before == LIKE:
        if escapes or holes.kind[h] != _STRING:
            return 0
        found = _classify(data, holes, h)
        for k in range(holes.start[h], holes.start[h] + holes.size[h]):
            if data[k] == _BACKSLASH:  # of a raw string
                return 0
        return found
    if before == ESCAPE:
        return 0
    if before in (RLIKE, REGEXP):
        holes.kind[h], holes.start[h], holes.size[h] = _REGEX_HOLE | _HARD, start, stop - start
        return A_REGEX
    if before in (DATE, TIMESTAMP):
        is_date = before == DATE
        if holes.kind[h] != _STRING:
            holes.kind[h] = _DATE_HOLE | _HARD if is_date else _TIME | _HARD
        else:
            _read_time(data, is_date, holes, h)
            if holes.kind[h] & _HARD:
                holes.start[h], holes.size[h] = start, stop - start
        return A_DATE if is_date else A_TIMESTAMP
    return A_STRING if holes.size[h] > 0 else AN_EMPTY_STRING
