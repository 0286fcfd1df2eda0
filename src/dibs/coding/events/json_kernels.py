"""The reader of one JSON object, for kernels: from bytes to the values of wanted attributes, with no Python object.

`read_object` is what other kernels call, once for each event:

    status = read_object(text, start, end, names, found, work)

It is sure of what it reads, or says that it is not: then nothing of the event was kept, and another reader (orjson and
the dict entry) decides what it is and what is wrong with it. So the outcome of every text is that of
coding.events.json. Not sure are: whatever is no JSON object in UTF-8; keys that an object has twice, if they matter;
more than `DEPTH` levels; numbers that coding.events.json_numbers leaves to others.

The object is read from its first byte to its last, also where nothing is wanted, because a mistake anywhere makes the
whole event unreadable. Paths lead through a tree of the segments of wanted names (`Paths`): a key that is not in it
is passed over with all that it holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import BOOLEAN, NUMBER, STRING
from dibs.coding.events.json_numbers import read_number
from dibs.coding.events.json_strings import read_string
from dibs.coding.events.paths import NOWHERE, ROOT, child, leads_on, name_at
from dibs.jit.kernel import phase
from dibs.jit.lanes import lowest_bit
from dibs.jit.memory import fresh
from dibs.jit.scanning import PADDING, WIDTH, copy_bytes, different_bytes, special_bytes
from dibs.jit.words import byte_at, word_at

# Statuses.
READ = 0  # all values of the event have been added to what was found
UNSURE = 1  # nothing has been added

DEPTH = 64  # objects and arrays inside each other
_KEYS = 64  # of an event, that are remembered
_LONGEST_KEY = WIDTH

_QUOTE, _COMMA, _MINUS, _COLON, _OPEN_ARRAY, _CLOSE_ARRAY, _OPEN, _CLOSE = 34, 44, 45, 58, 91, 93, 123, 125
_TRUE, _FALSE, _NULL_WORD = (int.from_bytes(word, "little") for word in (b"true", b"fals", b"null"))
_NULL = -1  # instead of a number of strings


class Found(NamedTuple):
    """The values that were found, in the order of the text; several of one name are the values of an array. Columns are
    as in coding.arrange.Arranged. There is room for all that a text of so many bytes can hold: nobody need ask."""

    name: NDArray[np.int32]  # the number of the name (its place in WantedNames.names)
    kind: NDArray[np.uint8]  # NUMBER, STRING or BOOLEAN of coding.arrange (JSON has no times); nulls are left out
    key: NDArray[np.int64]  # the bits of a number's float64 (never NaN, never -0.0), 0 or 1, or which of the strings
    rest: NDArray[np.int16]  # of an integer: what is left of it beside the float64; otherwise 0
    starts: NDArray[np.int64]  # string s is data[starts[s]:starts[s + 1]], UTF-8; starts[0] is 0
    data: NDArray[np.uint8]
    counts: NDArray[np.int64]  # [0]: values, [1]: strings. To begin again, set it to zeros

    @classmethod
    def room(cls, size: int) -> Found:
        """For texts of so many bytes in all."""
        values, starts = size // 2 + 1, fresh(size // 3 + 2, np.int64)
        starts[0] = 0
        return cls(
            fresh(values, np.int32),
            fresh(values, np.uint8),
            fresh(values, np.int64),
            fresh(values, np.int16),
            starts,
            fresh(size + PADDING, np.uint8),
            np.zeros(2, np.int64),
        )


class Work(NamedTuple):
    """What `read_object` needs besides. It may be used again and again, by one thread at a time, for the same paths."""

    seen: NDArray[np.int64]  # of each node: the number of the object that last had it; objects count on for ever
    objects: NDArray[np.int64]  # [0]: objects so far
    node: NDArray[np.int32]  # of each object and array round the place that is read: its node, or NOWHERE
    object: NDArray[np.int64]  # its number; 0: an array
    # The first keys of the last event in their order, because mostly the next one has the same.
    last_size: NDArray[np.int32]  # of the text of the key; -1: none
    last_text: NDArray[np.uint8]  # _LONGEST_KEY bytes for each
    last_parent: NDArray[np.int32]  # the node of its object
    last_node: NDArray[np.int32]  # the node to which it led

    @classmethod
    def room(cls, nodes: int) -> Work:
        return cls(
            np.zeros(nodes, np.int64),
            np.zeros(1, np.int64),
            np.empty(DEPTH, np.int32),
            np.empty(DEPTH, np.int64),
            np.full(_KEYS, -1, np.int32),
            np.zeros(_KEYS * _LONGEST_KEY + PADDING, np.uint8),
            np.zeros(_KEYS, np.int32),
            np.zeros(_KEYS, np.int32),
        )


@phase(inline=False)
def read_object(text, start, end, names, found, work):
    """READ or UNSURE, for the object that is alone but for white space at text[start:end]. There are PADDING zeros
    behind the last byte of the text. names: a `Paths`; found: a `Found`; work: a `Work`."""
    at = skip_space(text, start, end)
    if at >= end or byte_at(text, at) != _OPEN:
        return UNSURE
    values, strings = found.counts[0], found.counts[1]
    depth, inside = 0, _open(work, 0, ROOT, True)
    keys = 0  # so far
    begun = False  # whether the innermost object or array has a member already
    at += 1
    while True:
        at = skip_space(text, at, end)
        if at >= end:
            return UNSURE
        byte = byte_at(text, at)
        if byte == (_CLOSE if inside > 0 else _CLOSE_ARRAY):
            at += 1
            depth -= 1
            if depth < 0:
                break
            inside, begun = work.object[depth], True
            continue
        if begun:
            if byte != _COMMA:
                return UNSURE
            at = skip_space(text, at + 1, end)
        node = np.int64(work.node[depth])
        if inside > 0:
            at, node = _read_key(text, at, end, names, found, work, depth, keys, found.starts[strings])
            if at < 0:
                return UNSURE
            keys += 1
            at = skip_space(text, at, end)
            if byte_at(text, at) != _COLON:
                return UNSURE
            at = skip_space(text, at + 1, end)
        byte = byte_at(text, at)
        if byte in (_OPEN, _OPEN_ARRAY):
            depth += 1
            if depth == DEPTH:
                return UNSURE
            if byte == _OPEN and node >= 0 and not leads_on(names, node):
                node = np.int64(NOWHERE)
            inside, begun = _open(work, depth, node, byte == _OPEN), False
            at += 1
            continue
        begun = True
        name = name_at(names, node) if node >= 0 else np.int64(-1)
        at, string = _read_value(text, at, found, values, strings)
        if at < 0:
            return UNSURE
        if name >= 0 and string != _NULL:
            found.name[values] = name
            values += 1
            strings += string
    if skip_space(text, at, end) < end:
        return UNSURE
    found.counts[0], found.counts[1] = values, strings
    return READ


@phase
def skip_space(text, at, end):
    while at < end and byte_at(text, at) <= 32 and _is_space(byte_at(text, at)):
        at += 1
    return at


@phase
def _is_space(byte):
    return byte == 32 or byte == 10 or byte == 13 or byte == 9


@phase
def _open(work, depth, node, is_object):
    """Begins an object or array; returns the number of the object, or 0."""
    number = np.int64(0)
    if is_object:
        work.objects[0] += 1
        number = work.objects[0]
    work.node[depth], work.object[depth] = node, number
    return number


@phase
def _read_key(text, at, end, names, found, work, depth, number, room):
    """(one past the key at this place, the node to which it leads); -1 where there is no key, or one that the object
    has had already. number: of the key in its event. Bytes of found.data from `room` on are free."""
    if byte_at(text, at) != _QUOTE:
        return np.int64(-1), np.int64(NOWHERE)
    node = np.int64(work.node[depth])
    start = at + 1
    k = number & (_KEYS - 1)
    size = np.int64(work.last_size[k])
    different = different_bytes(text, start, work.last_text, k * _LONGEST_KEY)
    if (
        size >= 0
        and start + size < end
        and (different << np.uint64(63 - size)) == 0  # the quote behind it is the same as well
        and work.last_parent[k] == node
    ):
        at, node = start + size + 1, np.int64(work.last_node[k])
    else:
        parent = node
        at, node = _find_key(text, start, names, node, found.data, room)
        _remember_key(text, start, at, parent, node, work, k)
    if node >= 0:
        # An object that has a key twice finds its own number. Or that of a later one, which was inside it and led to
        # the same node, as in {"a.b": 1, "a": {"b": 2}, "a.b": 3}: numbers of a node only grow, so none is missed.
        if work.seen[node] >= work.object[depth]:
            return np.int64(-1), node
        work.seen[node] = work.object[depth]
    return at, node


@phase(inline=False)
def _find_key(text, start, names, node, data, room):
    """(one past the key that begins here, the node to which it leads from this one)."""
    end = start
    special = special_bytes(text, end)
    while special == 0:
        end += WIDTH
        special = special_bytes(text, end)
    end += lowest_bit(special)
    if byte_at(text, end) != _QUOTE:
        return _find_unusual_key(text, start, names, node, data, room)
    return end + 1, child(names, node, text, start, end) if node >= 0 else node


@phase
def _remember_key(text, start, after, parent, node, work, k):
    size = after - 1 - start  # below 0 where the key is broken
    work.last_size[k] = size if size >= 0 and size < _LONGEST_KEY else -1
    work.last_parent[k], work.last_node[k] = parent, node
    copy_bytes(text, start, work.last_text, k * _LONGEST_KEY)


@phase(inline=False)
def _find_unusual_key(text, at, names, node, data, room):
    """A key with escapes, or with characters beyond ASCII."""
    at, last = read_string(text, at, data, room)
    if at >= 0 and node >= 0:
        node = child(names, node, data, room, last)
    return at, node


@phase
def _read_value(text, at, found, value, string):
    """(one past the value at this place, 1 if it is a string, 0, or _NULL), with its columns but for its name; -1 where
    there is no value."""
    byte = byte_at(text, at)
    kind, key, rest, strings = STRING, string, np.int64(0), 0
    if byte == _QUOTE:
        at, last = read_string(text, at + 1, found.data, found.starts[string])
        found.starts[string + 1] = last
        strings = 1
    elif byte == _MINUS or (byte >= 48 and byte <= 57):
        at, number, rest = read_number(text, at)
        kind, key = NUMBER, np.float64(number).view(np.int64)
    else:
        word = word_at(text, at) & np.uint64(0xFFFFFFFF)
        kind = BOOLEAN
        if word == np.uint64(_TRUE):
            key = np.int64(1)
            at += 4
        elif word == np.uint64(_FALSE) and byte_at(text, at + 4) == 101:
            key = np.int64(0)
            at += 5
        else:
            strings = _NULL
            at = at + 4 if word == np.uint64(_NULL_WORD) else np.int64(-1)
    found.kind[value], found.key[value], found.rest[value] = kind, key, rest
    return at, strings
