"""Arrays as they came (wholes.py), whose texts have no blanks, as columns of their elements.

What is not said here plainly (a string with escapes, a number that another reader must round, a time, a value that is
no array) is UNUSUAL: then the plain form decides.
"""

from __future__ import annotations

from dibs.coding.computed.number_steps import put_key, set_truth
from dibs.coding.computed.program_layout import NULL, STRING
from dibs.coding.events.json_numbers import read_number
from dibs.jit.kernel import kernel, phase
from dibs.jit.words import byte_at

ARRAY, OBJECT, UNUSUAL = NULL + 1, NULL + 2, NULL + 3  # kinds of elements beside those of columns
_QUOTE, _ESCAPE, _COMMA, _COLON = 34, 92, 44, 58
_OPEN, _CLOSE, _BEGIN, _END = 91, 93, 123, 125
_NULL, _TRUE, _FALSE = 110, 116, 102  # how these begin


@phase
def _behind_string(data, at, end):
    """One past the string that begins here, and whether it has escapes."""
    at, has_escape = at + 1, False
    while at < end and byte_at(data, at) != _QUOTE:
        if byte_at(data, at) == _ESCAPE:
            has_escape = True
            at += 1
        at += 1
    return min(at + 1, end), has_escape


@phase
def _behind_value(data, at, end):
    """One past the value that begins here."""
    depth = 0
    while at < end:
        byte = byte_at(data, at)
        if byte == _QUOTE:
            at, _ = _behind_string(data, at, end)
            if depth == 0:
                return at
            continue
        if byte in (_OPEN, _BEGIN):
            depth += 1
        elif byte in (_CLOSE, _END):
            if depth == 0:
                return at
            depth -= 1
            if depth == 0:
                return at + 1
        elif byte == _COMMA and depth == 0:
            return at
        at += 1
    return end


@kernel
def count_elements(data, start, end, count):
    """Of each text; -1: NULL. A value that is no array is an array of one."""
    for r in range(len(start)):
        at, stop = start[r], end[r]
        if at >= stop or byte_at(data, at) == _NULL:
            count[r] = -1
        elif byte_at(data, at) != _OPEN:
            count[r] = 1
        else:
            at += 1
            count[r] = 0
            while at < stop and byte_at(data, at) != _CLOSE:
                count[r] += 1
                at = _behind_value(data, at, stop)
                if byte_at(data, at) == _COMMA:
                    at += 1


@kernel
def read_elements(data, start, end, first, last, found):
    """The elements of each text, from first[r] to last[r] of the column."""
    for r in range(len(start)):
        at = start[r]
        if last[r] > first[r] and byte_at(data, at) != _OPEN:
            found.kind[first[r]] = UNUSUAL
            continue
        for i in range(first[r], last[r]):
            at += 1
            stop = _behind_value(data, at, end[r])
            _read_value(data, at, stop, found, i)
            at = stop


@phase(inline=False)
def _read_value(data, at, end, found, i):
    byte = byte_at(data, at)
    found.start[i], found.end[i] = at, end
    if byte == _QUOTE:
        _, has_escape = _behind_string(data, at, end)
        found.kind[i] = UNUSUAL if has_escape else STRING
        found.start[i], found.end[i] = at + 1, end - 1
    elif byte == _OPEN:
        found.kind[i] = ARRAY
    elif byte == _BEGIN:
        is_value = byte_at(data, at + 1) == _QUOTE and byte_at(data, at + 2) == _ESCAPE  # what JSON does not have
        found.kind[i] = UNUSUAL if is_value else OBJECT
    elif byte == _NULL:
        found.kind[i] = NULL
    elif byte in (_TRUE, _FALSE):
        set_truth(found, i, byte == _TRUE)
    else:
        behind, value, rest = read_number(data, at)
        if behind == end:
            put_key(found, i, value, rest)
        else:
            found.kind[i] = UNUSUAL


@kernel
def read_members(data, key, values, found):
    """What stands under the key in each of the values: NULL in those that are no objects."""
    for i in range(len(found.kind)):
        found.kind[i] = UNUSUAL if values.kind[i] in (ARRAY, UNUSUAL) else NULL
        if values.kind[i] == OBJECT:
            _read_member(data, values.start[i] + 1, values.end[i] - 1, key, found, i)


@phase(inline=False)
def _read_member(data, at, end, key, found, i):
    while at < end:
        behind, has_escape = _behind_string(data, at, end)
        stop = _behind_value(data, behind + 1, end)  # a colon stands between
        if has_escape:
            found.kind[i] = UNUSUAL
            return
        size = behind - at - 2
        if size == len(key):
            k = 0
            while k < size and byte_at(data, at + 1 + k) == key[k]:
                k += 1
            if k == size:
                _read_value(data, behind + 1, stop, found, i)
                return
        at = stop + 1
