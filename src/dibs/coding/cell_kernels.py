"""The values of a batch that are in order (coding.arrange) to cells, in one kernel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import BOOLEAN, NUMBER, STRING, TIME, Arranged
from dibs.coding.domain import NUMBER_BASE, number_cell, string_cell, time_cell
from dibs.coding.groups import CodedRoom, Constants, Lookup, Texts
from dibs.coding.lookup_kernels import (
    first_slot,
    is_likely,
    likely_word,
    number_found,
    number_hash,
    peek_string,
    string_found,
    string_hash,
)
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel, phase
from dibs.jit.prefetching import prefetch

_BLOCK = 128  # values that are looked up together
_AHEAD = 16  # values whose constants are asked for before they are needed


class Open(NamedTuple):
    """Values of a block that are likely constants: where they stand among the entries, and their hashes."""

    entry: NDArray[np.int64]
    hash: NDArray[np.uint64]


@kernel
def code_values(own, *arrays):
    """Fills the room; returns how many entries there are, and whether they are points. own: the attribute of each name,
    or -1. The arrays of Arranged, Texts, Lookup, Constants and CodedRoom, one after the other: handing groups over from
    Python takes twice the time, which a few events would notice."""
    values, texts, lookup = Arranged(*arrays[:5]), Texts(*arrays[5:7]), Lookup(*arrays[7:12])
    constants, room = Constants(*arrays[12:24]), CodedRoom(*arrays[24:])
    still = Open(np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.uint64))
    return _code_values(values, texts, own, lookup, constants, room, still)


code_few_values = keeping(code_values)


@phase(inline=False)
def _code_values(values, texts, own, lookup, c, room, still):
    asked, several = _ask_for(values, own, room)
    for first in range(0, asked, _BLOCK):
        likely = _code_block(values, texts, first, asked, lookup, c, room, still)
        for k in range(likely):
            p, h = still.entry[k], still.hash[k]
            if values.kind[room.place[p]] == STRING:
                peek_string(room.attribute[p], h, lookup, c)
        for k in range(likely):
            _look_up(values, texts, still.entry[k], still.hash[k], lookup, c, room)
    return _merge_values(room) if several else (asked, True)


@phase
def _ask_for(values, own, room):
    """Entries of the values whose attributes are asked for: a small segment mentions few names, and nothing of the
    others is looked at. Returns how many they are, and whether an event may have several of one attribute."""
    asked = 0
    several = False
    before = np.int32(-1)
    room.offsets[0] = 0
    for e in range(len(values.offsets) - 1):
        for i in range(values.offsets[e], values.offsets[e + 1]):
            a = own[values.name[i]]
            room.attribute[asked], room.place[asked] = a, i
            several |= a == before and a >= 0
            if a >= 0:
                asked += 1
                before = a
        room.offsets[e + 1] = asked
        before = np.int32(-1)
    return asked, several


@phase
def _code_block(values, texts, first, asked, lookup, c, room, still):
    """Cells of a block of entries, from the first on. A value that may be looked up gets the cell of a gap; if it is
    likely a constant, it is kept open, and its slot is asked for. Returns how many there are of those."""
    looked = len(lookup.numbers) > 0
    count = 0
    for entry in range(first, min(first + _BLOCK, asked)):
        if entry + _AHEAD < asked:
            _ask_for_constants(values, room.place[entry + _AHEAD], room.attribute[entry + _AHEAD], looked, lookup, c)
        p = np.uint64(entry)
        i, a = np.uint64(room.place[p]), np.uint64(room.attribute[p])
        kind, key = values.kind[i], values.key[i]
        if kind == NUMBER and looked and lookup.numbers[a]:
            room.cell[p] = NUMBER_BASE
            h = number_hash(a, key)
        elif kind == STRING and looked and lookup.strings[a]:
            room.cell[p] = c.string_base[a]
            h = string_hash(a, texts.data, texts.starts[np.uint64(key)], texts.starts[np.uint64(key + 1)])
        else:
            room.cell[p] = _search(kind, key, values.rest[i], a, texts, c)
            continue
        still.entry[count], still.hash[count] = entry, h
        prefetch(lookup.likely, likely_word(lookup.likely, h))
        count += 1
    return _keep_likely(values, count, lookup, room, still)


@phase
def _keep_likely(values, count, lookup, room, still):
    """Without a branch that nobody can predict: what is not likely a constant is overwritten by the next."""
    kept = 0
    for k in range(count):
        h = still.hash[k]
        still.entry[kept], still.hash[kept] = still.entry[k], h
        kept += is_likely(lookup.likely, h)
    for k in range(kept):
        h = still.hash[k]
        if values.kind[room.place[still.entry[k]]] == STRING:
            prefetch(lookup.string_slots, first_slot(lookup.string_slots, h))
        else:
            prefetch(lookup.number_slots, first_slot(lookup.number_slots, h))
    return kept


@phase
def _ask_for_constants(values, i, a, looked, lookup, c):
    """Asks for the middle of the numbers among which a value will be searched."""
    if values.kind[i] == NUMBER and not (looked and lookup.numbers[a]):
        prefetch(c.number_value, (c.number_offsets[a] + c.number_offsets[a + 1]) >> 1)


@phase
def _search(kind, key, rest, a, texts, c):
    """The cell of a value among the constants of its attribute."""
    if kind == NUMBER:
        value, first, last = np.int64(key).view(np.float64), c.number_offsets[a], c.number_offsets[a + 1]
        return NUMBER_BASE + number_cell(value, rest, first, last, c.number_value, c.number_rests)
    if kind == STRING:
        start, end = texts.starts[key], texts.starts[key + 1]
        first, last = c.string_offsets[a], c.string_offsets[a + 1]
        found = string_cell(texts.data, start, end, first, last, c.string_starts, c.string_bytes, c.string_prefix)
        return np.int64(c.string_base[a]) + found
    if kind == TIME:
        return np.int64(c.time_base[a]) + time_cell(key, c.time_offsets[a], c.time_offsets[a + 1], c.time_value)
    return 1 + key if kind == BOOLEAN else np.int64(c.cells[a])


@phase
def _look_up(values, texts, p, h, lookup, c, room):
    a, i = np.int64(room.attribute[p]), np.int64(room.place[p])
    key = values.key[i]
    if values.kind[i] == NUMBER:
        if values.rest[i] == 0:
            room.cell[p] = number_found(key, a, h, lookup.number_slots)
    else:
        start, end = texts.starts[key], texts.starts[key + 1]
        room.cell[p] = string_found(texts.data, start, end, a, h, lookup.string_slots, c)


@phase
def _merge_values(room):
    """Several values of an event for one attribute, which are those of an array, by cell and none twice. Returns how
    many entries are left, and whether they are points."""
    points = True
    kept, p = 0, 0
    for e in range(len(room.offsets) - 1):
        first = kept
        while p < room.offsets[e + 1]:
            a, cell = room.attribute[p], room.cell[p]
            p += 1
            if kept > first and room.attribute[kept - 1] == a:
                before = kept
                kept = _insert_entry(room.attribute, room.cell, first, kept, a, cell)
                points &= kept == before
                continue
            room.attribute[kept], room.cell[kept] = a, cell
            kept += 1
        room.offsets[e + 1] = kept
    return kept, points


@phase
def _insert_entry(attribute, cell, first, kept, a, c):
    """One more value of an array: by cell, none twice. Entries first to kept are the event's; where they end then."""
    at = kept
    while at > first and attribute[at - 1] == a and cell[at - 1] > c:
        at -= 1
    if at > first and attribute[at - 1] == a and cell[at - 1] == c:
        return kept
    for m in range(kept, at, -1):
        attribute[m], cell[m] = attribute[m - 1], cell[m - 1]
    attribute[at], cell[at] = a, c
    return kept + 1
