"""Strings of JSON text, read by kernels: escapes are resolved, UTF-8 is checked."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import phase
from dibs.jit.lanes import lowest_bit
from dibs.jit.scanning import WIDTH, copy_bytes, special_bytes
from dibs.jit.words import byte_at

_QUOTE, _BACKSLASH, _U = 34, 92, 117
_ESCAPES = np.zeros(256, np.uint8)  # what a byte stands for after a backslash; 0: it is no escape
for _byte, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t'):
    _ESCAPES[_byte] = _meaning


@phase
def read_string(text, at, data, to):
    """(one past the closing quote, one past the last byte written) of the string whose first byte is text[at]: it is
    written from data[to] on. The first is -1 where the string is broken. It may write, and read, PADDING bytes more."""
    while True:
        special = special_bytes(text, at)
        copy_bytes(text, at, data, to)
        if special == 0:
            at += WIDTH
            to += WIDTH
            continue
        plain = lowest_bit(special)
        at += plain
        to += plain
        byte = byte_at(text, at)
        if byte == _QUOTE:
            return at + 1, to
        at, to = _read_special(text, at, data, to)
        if at < 0:
            return at, to


@phase(inline=False)
def _read_special(text, at, data, to):
    """An escape, or characters beyond ASCII."""
    if byte_at(text, at) == _BACKSLASH:
        return _read_escape(text, at + 1, data, to)
    if byte_at(text, at) < 128:  # a control character
        return np.int64(-1), to
    while byte_at(text, at) >= 128:
        size = _character_size(text, at)
        if size == 0:
            return np.int64(-1), to
        for _ in range(size):
            data[to] = byte_at(text, at)
            at += 1
            to += 1
    return at, to


@phase
def _character_size(text, at):
    """The bytes of the character beyond ASCII at this place; 0: it is not UTF-8."""
    first, second = byte_at(text, at), byte_at(text, at + 1)
    lowest, highest = 0x80, 0xBF  # of the second byte
    if first < 0xC2 or first > 0xF4:
        return 0
    if first < 0xE0:
        return 2 if second >= lowest and second <= highest else 0
    if first == 0xE0:
        lowest = 0xA0  # below it fits into two bytes
    elif first == 0xED:
        highest = 0x9F  # above are surrogates
    elif first == 0xF0:
        lowest = 0x90
    elif first == 0xF4:
        highest = 0x8F  # above is no Unicode
    if second < lowest or second > highest or (byte_at(text, at + 2) & 0xC0) != 0x80:
        return 0
    if first < 0xF0:
        return 3
    return 4 if (byte_at(text, at + 3) & 0xC0) == 0x80 else 0


@phase
def _read_escape(text, at, data, to):
    if byte_at(text, at) != _U:
        data[to] = _ESCAPES[byte_at(text, at)]
        return (at + 1, to + 1) if data[to] != 0 else (np.int64(-1), to)
    code = _hexadecimal(text, at + 1)
    at += 5
    if code >= 0xD800 and code <= 0xDFFF:  # a surrogate: the first of two, or not sure
        if code >= 0xDC00 or byte_at(text, at) != _BACKSLASH or byte_at(text, at + 1) != _U:
            return np.int64(-1), to
        second = _hexadecimal(text, at + 2)
        if second < 0xDC00 or second > 0xDFFF:
            return np.int64(-1), to
        code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00)
        at += 6
    if code < 0:
        return np.int64(-1), to
    return at, _write_character(code, data, to)


@phase
def _hexadecimal(text, at):
    """The value of four digits; negative where there are others."""
    value = 0
    for k in range(4):
        byte = np.int64(byte_at(text, at + k))
        digit = -(1 << 20)
        if byte >= 48 and byte <= 57:
            digit = byte - 48
        elif (byte | 32) >= 97 and (byte | 32) <= 102:
            digit = (byte | 32) - 87
        value = (value << 4) + digit
    return value


@phase
def _write_character(code, data, to):
    """UTF-8; returns one past it."""
    if code < 0x80:
        data[to] = code
        return to + 1
    if code < 0x800:
        data[to] = 0xC0 | code >> 6
    else:
        if code < 0x10000:
            data[to] = 0xE0 | code >> 12
        else:
            data[to] = 0xF0 | code >> 18
            to += 1
            data[to] = 0x80 | (code >> 12 & 0x3F)
        to += 1
        data[to] = 0x80 | (code >> 6 & 0x3F)
    data[to + 1] = 0x80 | (code & 0x3F)
    return to + 2
