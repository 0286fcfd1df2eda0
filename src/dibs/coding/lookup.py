"""Constants by their hash: a value of an attribute is asked for its cell by equality alone, where that is enough.

A search among the sorted constants of an attribute finds the gap of a value that is none of them. Where every predicate
covers all gaps or none (=, <>, IN, NOT IN, IS NULL), any gap is as good as the right one, and one look into a table
takes the place of fifteen steps. Whether it is so is read off the clauses.

Made when the first large batch comes (see coding.batch.code_events); few values are not worth it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.arrange import BOOLEAN, NUMBER, STRING, TIME, Arranged, writable
from dibs.coding.batch_kernels import insert_entry
from dibs.coding.domain import NUMBER_BASE, Domains, number_cell, string_cell, time_cell
from dibs.jit.borrowing import borrowed
from dibs.jit.kernel import kernel, phase
from dibs.jit.memory import fresh
from dibs.jit.prefetching import prefetch
from dibs.jit.scanning import word_at
from dibs.language.table import Facet
from dibs.thresholds import thresholds

if TYPE_CHECKING:
    from dibs.coding.clauses import Clauses
    from dibs.coding.values import Strings

_AHEAD = 16  # values whose slots are asked for before they are needed
_FACTOR = 0x9E3779B97F4A7C15
_CELL = 0xFFFFFFFF  # the lower half of a word


class Lookup(NamedTuple):
    """Two tables, of numbers and of strings, whose slots are pairs of words: slot s is [2 * s] and [2 * s + 1]. A
    constant is in the first free slot from that of its hash on. Empty slots are 0 in their second word, which has a
    cell in its lower half."""

    number_slots: NDArray[np.uint64]  # the bits of the number; the attribute above its cell
    string_slots: NDArray[np.uint64]  # the hash of attribute and string; where the constant starts above its cell
    numbers: NDArray[np.uint8]  # of each attribute: 1 if its numbers are here
    strings: NDArray[np.uint8]


class Constants(NamedTuple):
    """Those of the domains, for kernels: see coding.domain.Domains."""

    number_offsets: NDArray[np.int64]
    number_value: NDArray[np.float64]
    number_rest: NDArray[np.int16]
    string_offsets: NDArray[np.int64]
    string_starts: NDArray[np.int64]
    string_bytes: NDArray[np.uint8]
    string_prefix: NDArray[np.uint64]
    string_base: NDArray[np.int32]
    time_offsets: NDArray[np.int64]
    time_value: NDArray[np.int64]
    time_base: NDArray[np.int32]
    cells: NDArray[np.int32]


def constants_of(d: Domains) -> Constants:
    return Constants._make(getattr(d, name) for name in Constants._fields)


def lookup_of(domains: Domains, clauses: Clauses) -> Lookup:
    c = constants_of(domains)
    numbers, strings = _unordered(
        clauses.attribute, clauses.lo, clauses.hi, clauses.span_lo, clauses.span_hi, c.string_base, c.time_base
    )
    of_numbers, of_strings = np.diff(c.number_offsets), np.diff(c.string_offsets)
    numbers &= of_numbers > thresholds.constants_searched
    numbers[np.repeat(np.arange(len(numbers)), of_numbers)[c.number_rest != 0]] = 0
    strings &= (of_strings > thresholds.constants_searched) & (domains.facet == Facet.VALUE)
    if len(c.string_bytes) >= 2**32:
        strings[:] = 0
    lookup = Lookup(_slots(of_numbers[numbers > 0].sum()), _slots(of_strings[strings > 0].sum()), numbers, strings)
    _fill(lookup, c)
    return lookup


def _slots(constants: int) -> NDArray[np.uint64]:
    """At most half of them will be taken."""
    return np.zeros(2 << int(2 * constants).bit_length(), np.uint64)


@kernel
def _unordered(attribute, lo, hi, span_lo, span_hi, string_base, time_base):
    """Of each attribute whether all predicates cover all gaps between its numbers, or none; and between its strings."""
    n = len(string_base)
    numbers, strings = np.ones(n, np.uint8), np.ones(n, np.uint8)
    for p in range(len(attribute)):
        a = attribute[p]
        middle, end = np.int64(string_base[a]), np.int64(time_base[a])
        first, last = np.int64(lo[p]), np.int64(lo[p]) + 1
        several = hi[p] < 0
        if several:
            last = first - hi[p]
        else:
            first, last = 0, 1
        of_numbers, of_strings = 0, 0
        for s in range(first, last):
            low, high = (np.int64(span_lo[s]), np.int64(span_hi[s])) if several else (np.int64(lo[p]), np.int64(hi[p]))
            of_numbers += _gaps(low, high, NUMBER_BASE, middle)
            of_strings += _gaps(low, high, middle, end)
        if of_numbers != 0 and of_numbers != _gaps(0, end, NUMBER_BASE, middle):
            numbers[a] = 0
        if of_strings != 0 and of_strings != _gaps(0, end, middle, end):
            strings[a] = 0
    return numbers, strings


@phase
def _gaps(low, high, first, end):
    """How many gaps of the section [first, end) are in the span: every second cell, from its first on."""
    low, high = max(low, first), min(high, end - 1)
    if low > high:
        return 0
    return ((high - first) >> 1) - ((low - first + 1) >> 1) + 1


@kernel
def _fill(lookup, c):
    lookup = borrowed(lookup)
    bits = c.number_value.view(np.int64)
    for a in range(len(lookup.numbers)):
        if lookup.numbers[a]:
            for i in range(c.number_offsets[a], c.number_offsets[a + 1]):
                cell = NUMBER_BASE + 2 * (i - c.number_offsets[a]) + 1
                _put(lookup.number_slots, _number_hash(a, bits[i]), np.uint64(bits[i]), a, cell)
        if lookup.strings[a]:
            for i in range(c.string_offsets[a], c.string_offsets[a + 1]):
                h = _string_hash(a, c.string_bytes, c.string_starts[i], c.string_starts[i + 1])
                cell = c.string_base[a] + 2 * (i - c.string_offsets[a]) + 1
                _put(lookup.string_slots, h, h, c.string_starts[i], cell)


@phase
def _put(slots, h, key, upper, cell):
    at = _first_slot(slots, h)
    while slots[at + 1] != 0:
        at = _next_slot(slots, at)
    slots[at], slots[at + 1] = key, np.uint64(upper) << np.uint64(32) | np.uint64(cell)


@phase
def _first_slot(slots, h):
    return np.int64(h & np.uint64((len(slots) >> 1) - 1)) << 1


@phase
def _next_slot(slots, at):
    return (at + 2) & (len(slots) - 1)


@phase
def _number_hash(a, bits):
    return _mixed(_mixed(np.uint64(bits) ^ np.uint64(a + 1) * np.uint64(0xC2B2AE3D27D4EB4F)))


@phase
def _string_hash(a, data, start, end):
    h = np.uint64(a + 1) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(end - start)
    if end - start < 8:
        return _mixed(_mixed(h ^ _few_bytes(data, start, end)))
    while end - start > 16:
        h = _mixed(h ^ word_at(data, start))
        start += 8
    # The last 8 to 16 bytes as two words that may overlap.
    h = _mixed(h ^ word_at(data, start))
    return _mixed(_mixed(h ^ word_at(data, end - 8)))  # once more, or texts with numbers in them crowd together


@phase
def _mixed(h):
    h *= np.uint64(_FACTOR)
    return h ^ h >> np.uint64(32)


@phase
def _few_bytes(data, start, end):
    if start + 8 <= len(data):
        return word_at(data, start) & ((np.uint64(1) << np.uint64(8 * (end - start))) - np.uint64(1))
    word = np.uint64(0)
    for k in range(end - 1, start - 1, -1):
        word = (word << np.uint64(8)) | np.uint64(data[k])
    return word


class CodedRoom(NamedTuple):
    """For the entries of events: as many as there are values."""

    offsets: NDArray[np.int64]  # events + 1
    attribute: NDArray[np.int32]
    cell: NDArray[np.int32]
    place: NDArray[np.int32]  # of the value


def code_by_lookup(
    values: Arranged, strings: Strings, own: NDArray[np.int32], d: Domains
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], bool]:
    """As batch_kernels.code_values: (offsets, attribute, cell, points)."""
    n = len(values.name)
    room = CodedRoom(fresh(len(values.offsets), np.int64), fresh(n, np.int32), fresh(n, np.int32), fresh(n, np.int32))
    starts, data = writable(strings.offsets), writable(strings.data)
    kept, points = _code(values, starts, data, own, d.lookup, constants_of(d), room)
    return room.offsets, room.attribute[:kept], room.cell[:kept], points


@kernel
def _code(values, starts, data, own, lookup, c, room):
    """Fills the room; returns how many entries there are, and whether they are points."""
    values, starts, data, lookup, c = borrowed(values), borrowed(starts), borrowed(data), borrowed(lookup), borrowed(c)
    offsets, attribute, cell, place = borrowed(room)
    asked = _asked_for(values, own, room)
    hashes = np.empty(2 * _AHEAD, np.uint64)  # of the values that are asked for, each at its number modulo their number
    for p in range(min(_AHEAD, asked)):
        hashes[p] = _ask(values, place[p], attribute[p], starts, data, lookup, c)
    points = True
    kept, p = 0, 0
    for e in range(len(offsets) - 1):
        first = kept
        while p < offsets[e + 1]:
            if p + _AHEAD < asked:
                q = p + _AHEAD
                hashes[q & (2 * _AHEAD - 1)] = _ask(values, place[q], attribute[q], starts, data, lookup, c)
            if p + _AHEAD // 2 < asked:
                q = p + _AHEAD // 2
                _peek(attribute[q], hashes[q & (2 * _AHEAD - 1)], lookup, c)
            a, h = attribute[p], hashes[p & (2 * _AHEAD - 1)]
            code = _cell(values, np.int64(place[p]), np.int64(a), h, starts, data, lookup, c)
            p += 1
            if kept > first and attribute[kept - 1] == a:
                before = kept
                kept = insert_entry(attribute, cell, first, kept, a, code)
                points &= kept == before
                continue
            attribute[kept], cell[kept] = a, code
            kept += 1
        offsets[e + 1] = kept
    return kept, points


@phase
def _asked_for(values, own, room):
    """The values whose attributes are asked for, by event; returns how many they are."""
    asked = 0
    room.offsets[0] = 0
    for e in range(len(values.offsets) - 1):
        for i in range(values.offsets[e], values.offsets[e + 1]):
            a = own[values.name[i]]
            if a >= 0:
                room.attribute[asked], room.place[asked] = a, i
                asked += 1
        room.offsets[e + 1] = asked
    return asked


@phase
def _ask(values, i, a, starts, data, lookup, c):
    """The hash of a value, whose slot is asked for; or 0, if it will be searched."""
    h = np.uint64(0)
    if values.kind[i] == NUMBER:
        if lookup.numbers[a]:
            h = _number_hash(a, values.key[i])
            prefetch(lookup.number_slots, _first_slot(lookup.number_slots, h))
        elif len(c.number_value) > 0:
            prefetch(c.number_value, (c.number_offsets[a] + c.number_offsets[a + 1]) >> 1)
    elif values.kind[i] == STRING and lookup.strings[a]:
        s = values.key[i]
        h = _string_hash(a, data, starts[s], starts[s + 1])
        prefetch(lookup.string_slots, _first_slot(lookup.string_slots, h))
    return h


@phase
def _peek(a, h, lookup, c):
    """Asks for the constant that a string is likely to be, now that its slot is there."""
    at = _first_slot(lookup.string_slots, h)
    if lookup.strings[a] and h != 0 and lookup.string_slots[at] == h:
        cell, start = lookup.string_slots[at + 1] & np.uint64(_CELL), lookup.string_slots[at + 1] >> np.uint64(32)
        i = c.string_offsets[a] + ((np.int64(cell) - np.int64(c.string_base[a])) >> 1)
        prefetch(c.string_starts, i)
        prefetch(c.string_bytes, np.int64(start))


@phase
def _cell(values, i, a, h, starts, data, lookup, c):
    """The cell of value i, of attribute a."""
    kind, key = values.kind[i], values.key[i]
    if kind == NUMBER:
        if lookup.numbers[a]:
            return _number_found(key, values.rest[i], a, h, lookup.number_slots)
        value = np.int64(key).view(np.float64)
        first, last = c.number_offsets[a], c.number_offsets[a + 1]
        return NUMBER_BASE + number_cell(value, values.rest[i], first, last, c.number_value, c.number_rest)
    if kind == STRING:
        start, end = starts[key], starts[key + 1]
        if lookup.strings[a]:
            return _string_found(data, start, end, a, h, lookup.string_slots, c)
        first, last = c.string_offsets[a], c.string_offsets[a + 1]
        found = string_cell(data, start, end, first, last, c.string_starts, c.string_bytes, c.string_prefix)
        return np.int64(c.string_base[a]) + found
    if kind == TIME:
        return np.int64(c.time_base[a]) + time_cell(key, c.time_offsets[a], c.time_offsets[a + 1], c.time_value)
    return 1 + key if kind == BOOLEAN else np.int64(c.cells[a])


@phase
def _number_found(bits, rest, a, h, slots):
    """The cell of a number: that of the constant, none of which has a rest, or of the first gap."""
    at = _first_slot(slots, h)
    while rest == 0 and slots[at + 1] != 0:
        if slots[at] == np.uint64(bits) and slots[at + 1] >> np.uint64(32) == np.uint64(a):
            return np.int64(slots[at + 1] & np.uint64(_CELL))
        at = _next_slot(slots, at)
    return np.int64(NUMBER_BASE)


@phase
def _string_found(data, start, end, a, h, slots, c):
    gap = np.int64(c.string_base[a])
    at = _first_slot(slots, h)
    while slots[at + 1] != 0:
        if slots[at] == h:
            cell = np.int64(slots[at + 1] & np.uint64(_CELL))
            constant = np.int64(slots[at + 1] >> np.uint64(32))
            i = c.string_offsets[a] + ((cell - gap) >> 1)
            # Of another attribute, i may be anywhere; only the attribute's own constant i starts there and is as long.
            if (
                cell >= gap
                and i < c.string_offsets[a + 1]
                and c.string_starts[i] == constant
                and same_bytes(c.string_bytes, constant, c.string_starts[i + 1], data, start, end)
            ):
                return cell
        at = _next_slot(slots, at)
    return gap


@phase
def same_bytes(a, a_start, a_end, b, b_start, b_end):
    size = a_end - a_start
    if size != b_end - b_start:
        return False
    if size < 8:
        return _few_bytes(a, a_start, a_end) == _few_bytes(b, b_start, b_end)
    while a_end - a_start > 8:
        if word_at(a, a_start) != word_at(b, b_start):
            return False
        a_start += 8
        b_start += 8
    return word_at(a, a_end - 8) == word_at(b, b_end - 8)
