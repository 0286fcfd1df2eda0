"""Where one member of a JSON object stands, of many texts: for events whose attributes are under a key.

Each text is read as a whole first (json_kernels), so that all the rest need only be passed over. Unsure, and left to
others, are texts that are broken, that have the key not once, or escapes in a key; and members that are no object and
not null.
"""

from __future__ import annotations

from dibs.coding.events.json_kernels import READ, read_object, skip_space
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import lowest_bit
from dibs.jit.scanning import WIDTH, special_bytes
from dibs.jit.words import byte_at, equal_bytes

_QUOTE, _COMMA, _BACKSLASH, _OPEN_ARRAY, _CLOSE_ARRAY, _NULL, _OPEN, _CLOSE = 34, 44, 92, 91, 93, 110, 123, 125


@kernel
def find_members(text, start, end, key, names, found, work, first, last):
    """The member of text i is text[first[i]:last[i]]: an object; nothing at all, if the text is unsure; or it ends
    before it begins, if it is null. names: none; found: room for the longest text; text, start, end: see EventTexts."""
    for i in range(len(start)):
        first[i] = last[i] = start[i]
        found.counts[0] = found.counts[1] = 0
        if read_object(text, start[i], end[i], names, found, work) == READ:
            first[i], last[i] = _find_member(text, start[i], end[i], key)


@phase(inline=False)
def _find_member(text, start, end, key):
    """(first, last) of the member, as above. The object is one."""
    first = last = start
    times = 0
    at = skip_space(text, start, end) + 1
    while True:
        at = skip_space(text, at, end)
        byte = byte_at(text, at)
        if byte == _CLOSE:
            break
        if byte == _COMMA:
            at += 1
            continue
        behind, is_plain = _skip_string(text, at + 1)
        if not is_plain:
            return start, start
        is_sought = _is_key(text, at + 1, behind - 1, key)
        at = skip_space(text, skip_space(text, behind, end) + 1, end)
        value, kind = at, byte_at(text, at)
        at = _skip_value(text, at)
        if is_sought:
            times += 1
            if kind == _OPEN:
                first, last = value, at
            elif kind == _NULL:
                first, last = start + 1, start
    return (first, last) if times == 1 else (start, start)


@phase
def _is_key(text, start, end, key):
    return end - start == len(key) and equal_bytes(text, start, key, 0, end - start) == end - start


@phase
def _skip_string(text, at):
    """(one past the quote that ends it, whether it has no escapes)."""
    is_plain = True
    while True:
        special = special_bytes(text, at)
        if special == 0:
            at += WIDTH
            continue
        at += lowest_bit(special)
        byte = byte_at(text, at)
        if byte == _QUOTE:
            return at + 1, is_plain
        if byte == _BACKSLASH:
            is_plain = False
            at += 1
        at += 1


@phase(inline=False)
def _skip_value(text, at):
    """One past the value that begins here."""
    depth = 0
    while True:
        byte = byte_at(text, at)
        if byte == _QUOTE:
            at, _ = _skip_string(text, at + 1)
        elif byte in (_OPEN, _OPEN_ARRAY):
            depth += 1
            at += 1
        elif byte in (_CLOSE, _CLOSE_ARRAY):
            depth -= 1
            at += 1
        else:
            at += 1
            while depth == 0 and byte_at(text, at) > 32 and byte_at(text, at) not in (_COMMA, _CLOSE):
                at += 1
        if depth == 0:
            return at
