"""The tables of coding.lookup, for kernels: hashes of constants and values, and what stands in a slot."""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import NUMBER_BASE
from dibs.jit.kernel import phase
from dibs.jit.prefetching import prefetch
from dibs.jit.words import word_at

_FACTOR = 0x9E3779B97F4A7C15
_CELL = 0xFFFFFFFF  # the lower half of a word


@phase
def put(lookup, slots, h, key, upper, cell):
    """A constant into the first free slot for its hash."""
    at = first_slot(slots, h)
    while slots[at + 1] != 0:
        at = _next_slot(slots, at)
    slots[at], slots[at + 1] = key, np.uint64(upper) << np.uint64(32) | np.uint64(cell)
    lookup.likely[likely_word(lookup.likely, h)] |= np.uint64(1) << (h >> np.uint64(58))


@phase
def is_likely(likely, h):
    """1 if some constant may have this hash, 0 if none has."""
    return np.int64(likely[likely_word(likely, h)] >> (h >> np.uint64(58))) & 1


@phase
def likely_word(likely, h):
    """Where its bit is; which of the word says the top of the hash, and slots go by the lower half."""
    return (h >> np.uint64(32)) & np.uint64(len(likely) - 1)


@phase
def first_slot(slots, h):
    return np.int64(h & np.uint64((len(slots) >> 1) - 1)) << 1


@phase
def _next_slot(slots, at):
    return (at + 2) & (len(slots) - 1)


@phase
def number_hash(a, bits):
    return _mix(_mix(np.uint64(bits) ^ np.uint64(np.int64(a) + 1) * np.uint64(0xC2B2AE3D27D4EB4F)))


@phase
def string_hash(a, data, start, end):
    h = np.uint64(np.int64(a) + 1) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(end - start)
    if end - start < 8:
        return _mix(_mix(h ^ _few_bytes(data, start, end)))
    while end - start > 32:
        h = _mix(h ^ word_at(data, start))
        start += 8
    if end - start > 16:
        # As below: words that may overlap, so that texts of about the same length take the same way.
        h = _mix(h ^ word_at(data, start))
        h = _mix(h ^ word_at(data, start + 8))
        start = end - 16
    # The last 8 to 16 bytes as two words that may overlap.
    h = _mix(h ^ word_at(data, start))
    return _mix(_mix(h ^ word_at(data, end - 8)))  # once more, or texts with numbers in them crowd together


@phase
def _mix(h):
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


@phase
def peek_string(a, h, lookup, c):
    """Asks for the constant that a string is likely to be, now that its slot is there."""
    at = first_slot(lookup.string_slots, h)
    if lookup.string_slots[at] == h:
        cell, start = lookup.string_slots[at + 1] & np.uint64(_CELL), lookup.string_slots[at + 1] >> np.uint64(32)
        i = c.string_offsets[a] + ((np.int64(cell) - np.int64(c.string_base[a])) >> 1)
        prefetch(c.string_starts, i)
        prefetch(c.string_bytes, np.int64(start))


@phase
def number_found(bits, a, h, slots):
    """The cell of a number without a rest: that of the constant, or of the first gap."""
    at = first_slot(slots, h)
    while slots[at + 1] != 0:
        if slots[at] == np.uint64(bits) and slots[at + 1] >> np.uint64(32) == np.uint64(a):
            return np.int64(slots[at + 1] & np.uint64(_CELL))
        at = _next_slot(slots, at)
    return np.int64(NUMBER_BASE)


@phase
def string_found(data, start, end, a, h, slots, c):
    gap = np.int64(c.string_base[a])
    at = first_slot(slots, h)
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
                and _same_bytes(c.string_bytes, constant, c.string_starts[i + 1], data, start, end)
            ):
                return cell
        at = _next_slot(slots, at)
    return gap


@phase
def _same_bytes(a, a_start, a_end, b, b_start, b_end):
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
