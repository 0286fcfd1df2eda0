"""The values of a batch that are in order (coding.arrange) to cells, in one kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import BOOLEAN, NUMBER, STRING, TIME, Arranged
from dibs.coding.domain import NUMBER_BASE, number_cell_at, prefix, string_cell, time_cell, time_text_cell
from dibs.coding.groups import CodedRoom, Constants, Lookup, Texts, TimeConstants
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
from dibs.jit.group_at import grouped
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel, phase
from dibs.jit.prefetching import prefetch
from dibs.jit.sorting import sort_run
from dibs.language.table import Facet

_TIME_FACET = int(Facet.TIME)
_BLOCK = 128  # values that are looked up together


class Open(NamedTuple):
    """Values of a block that are likely constants: where they stand among the entries, and their hashes."""

    entry: NDArray[np.int64]
    hash: NDArray[np.uint64]


class Sought(NamedTuple):
    """Numbers or strings of a block that are searched together, a step of each at a time, so that they wait for memory
    together. Of each: where it stands among the entries, and that its place is one of at ... at + left."""

    entry: NDArray[np.int64]
    value: NDArray[Any]  # float64 of numbers; uint64 of strings, which are their first bytes
    at: NDArray[np.int64]
    left: NDArray[np.int64]


class CodingCall(NamedTuple):
    """What `code_values` reads and writes."""

    values: Arranged
    texts: Texts
    lookup: Lookup
    constants: Constants
    room: CodedRoom


@kernel
def code_values(own, timed, *parts):
    """Fills the room; returns how many entries there are, and whether they are points. own: the attribute of each name,
    or -1; timed: that of its facet TIME, or empty; parts: those of a CodingCall."""
    values, texts, lookup, constants, room = grouped(parts, CodingCall)
    still = Open(np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.uint64))
    places = np.empty((6, _BLOCK), np.int64)
    sought = Sought(places[0], np.empty(_BLOCK, np.float64), places[1], places[2])
    heads = Sought(places[3], np.empty(_BLOCK, np.uint64), places[4], places[5])
    asked, several = _ask_for_times(values, own, timed, room) if len(timed) > 0 else _ask_for(values, own, room)
    _code_values(values, texts, asked, lookup, constants, room, still, sought, heads)
    return _merge_values(room) if several else (asked, True)


code_few_values = keeping(code_values)


@phase(inline=False)
def _code_values(values, texts, asked, lookup, c, room, still, sought, heads):
    """The cells of the entries that are asked for."""
    for first in range(0, asked, _BLOCK):
        last = min(first + _BLOCK, asked)
        count, numbers, strings = _code_block(values, texts, (first, last), lookup, c, room, still, sought, heads)
        _search_numbers(values, numbers, c, room, sought)
        if strings > 0:
            _search_strings(values, texts, strings, c, room, heads)
        likely = _keep_likely(values, count, lookup, room, still)
        for k in range(likely):
            p, h = still.entry[k], still.hash[k]
            if values.kind[room.place[p]] == STRING:
                peek_string(room.attribute[p], h, lookup, c)
        for k in range(likely):
            _look_up(values, texts, still.entry[k], still.hash[k], lookup, c, room)


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


@phase(inline=False)
def _ask_for_times(values, own, timed, room):
    """The same where some attributes are times: behind the entries of a name's values those of what may be one."""
    asked = 0
    several = False
    room.offsets[0] = 0
    for e in range(len(values.offsets) - 1):
        i, end = values.offsets[e], values.offsets[e + 1]
        while i < end:
            name, first = values.name[i], i
            while i < end and values.name[i] == name:
                if own[name] >= 0:
                    room.attribute[asked], room.place[asked] = own[name], i
                    asked += 1
                i += 1
            several |= i > first + 1
            if timed[name] >= 0:
                for k in range(first, i):
                    if values.kind[k] == STRING or values.kind[k] == TIME:
                        room.attribute[asked], room.place[asked] = timed[name], k
                        asked += 1
        room.offsets[e + 1] = asked
    return asked, several


@phase
def _code_block(values, texts, entries, lookup, c, room, still, sought, heads):
    """Cells of the entries (from, to), but for numbers and strings, which are sought together. A value that may be
    looked up gets the cell of a gap and is kept open. Returns how many of those, numbers and strings there are."""
    looked = len(lookup.numbers) > 0
    count = numbers = strings = 0
    for entry in range(entries[0], entries[1]):
        p = np.uint64(entry)
        i, a = np.uint64(room.place[p]), np.uint64(room.attribute[p])
        kind, key = values.kind[i], values.key[i]
        if kind == NUMBER:
            if not (looked and lookup.numbers[a]):
                begin = c.number_offsets[a]
                sought.entry[numbers], sought.value[numbers] = entry, np.int64(key).view(np.float64)
                sought.at[numbers], sought.left[numbers] = begin, c.number_offsets[a + np.uint64(1)] - begin
                numbers += 1
                continue
            room.cell[p] = NUMBER_BASE
            h = number_hash(a, key)
        elif kind == STRING and looked and lookup.strings[a]:
            room.cell[p] = c.string_base[a]
            h = string_hash(a, texts.data, texts.starts[np.uint64(key)], texts.starts[np.uint64(key + 1)])
        elif kind == STRING and c.facet[a] != _TIME_FACET:
            begin = c.string_offsets[a]
            heads.entry[strings] = entry
            heads.value[strings] = prefix(texts.data, texts.starts[np.uint64(key)], texts.starts[np.uint64(key + 1)])
            heads.at[strings], heads.left[strings] = begin, c.string_offsets[a + np.uint64(1)] - begin
            strings += 1
            continue
        else:
            room.cell[p] = _search(kind, key, a, texts, c)
            continue
        still.entry[count], still.hash[count] = entry, h
        prefetch(lookup.likely, likely_word(lookup.likely, h))
        count += 1
    return count, numbers, strings


@phase
def _search_together(constants, count, sought):
    """The lower bounds of those that are sought. See domain.lower_bound for a step."""
    longest = 0
    for k in range(count):
        longest = max(longest, sought.left[k])
    while longest > 0:
        for k in range(np.uint64(count)):
            # Where none is left, this looks at the one before and counts nothing.
            at, half = sought.at[k], (sought.left[k] + 1) >> 1
            sought.at[k] = at + half * np.int64(constants[at + half - 1] < sought.value[k])
            sought.left[k] -= half
        longest >>= 1


@phase(inline=False)
def _search_strings(values, texts, count, c, room, sought):
    """The cells of the strings that are sought: only among constants with the same first bytes by the rest."""
    _search_together(c.string_prefix, count, sought)
    for k in range(count):
        p, at = sought.entry[k], sought.at[k]
        a, key = room.attribute[p], values.key[room.place[p]]
        first, last = c.string_offsets[a], c.string_offsets[a + 1]
        cell = 2 * (at - first)
        if at < last and c.string_prefix[at] == sought.value[k]:
            start, end = texts.starts[key], texts.starts[key + 1]
            cell += string_cell(texts.data, start, end, at, last, c.string_starts, c.string_bytes, c.string_prefix)
        room.cell[p] = c.string_base[a] + cell


@phase
def _search_numbers(values, numbers, c, room, sought):
    """The cells of the numbers that are sought."""
    _search_together(c.number_value, numbers, sought)
    for k in range(numbers):
        p = sought.entry[k]
        a, rest = room.attribute[p], values.rest[room.place[p]]
        first, last = c.number_offsets[a], c.number_offsets[a + 1]
        cell = number_cell_at(sought.at[k], sought.value[k], rest, first, last, c.number_value, c.number_rests)
        room.cell[p] = NUMBER_BASE + cell


@phase
def _keep_likely(values, count, lookup, room, still):
    """Those of the open values that are likely constants, and asks for their slots. Without a branch that nobody can
    predict: what is not likely a constant is overwritten by the next."""
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
def _search(kind, key, a, texts, c):
    """The cell of a value that is no number, and a string only if it is to be a time, among the constants of its
    attribute."""
    if kind == STRING:
        times = TimeConstants(c.time_offsets, c.time_value, c.time_base, c.cells)
        return time_text_cell(texts.data, texts.starts[key], texts.starts[key + 1], np.int64(a), times)
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
        while p < room.offsets[e + 1]:
            a, first = room.attribute[p], kept
            while p < room.offsets[e + 1] and room.attribute[p] == a:
                room.attribute[kept], room.cell[kept] = a, room.cell[p]
                kept += 1
                p += 1
            if kept > first + 1:
                sort_run(room.cell, first, kept)
                kept = _drop_repeats(room.cell, first, kept)
                points &= kept == first + 1
        room.offsets[e + 1] = kept
    return kept, points


@phase
def _drop_repeats(cell, first, last):
    """Of cells in order; where they end then."""
    kept = first + 1
    for i in range(first + 1, last):
        if cell[i] != cell[kept - 1]:
            cell[kept] = cell[i]
            kept += 1
    return kept
