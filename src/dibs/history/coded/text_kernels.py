"""Texts of documents, each numbered once, and the numbers of others among them."""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import prefix
from dibs.jit.hashing import hash_slice
from dibs.jit.kernel import kernel, phase
from dibs.jit.words import equal_bytes

_SIGN = np.uint64(2**63)


@phase
def _place_of(data, start, size, text_start, text_data, slots, count):
    """The slot of a text: (place, number), number -1 if it is not among the first `count` texts."""
    mask = np.uint64(len(slots) - 1)
    at = hash_slice(data, start, size) & mask
    while True:
        slot = np.int64(slots[at])
        if slot == 0 or slot > count:  # free: numbers above are of snapshots that this one does not know
            return at, np.int64(-1)
        own = text_start[slot - 1]
        if text_start[slot] - own == size and equal_bytes(data, start, text_data, own, size) == size:
            return at, slot - 1
        at = (at + np.uint64(1)) & mask


@kernel
def number_texts(offsets, data, text_start, text_data, slots, count):
    """The number of each text; those that are new get the next ones, for which there must be room. Returns (key, tie,
    how many texts there are then)."""
    key, tie = np.empty(len(offsets) - 1, np.int64), np.empty(len(offsets) - 1, np.int32)
    for i in range(len(key)):
        start, size = offsets[i], offsets[i + 1] - offsets[i]
        key[i] = np.int64(prefix(data, start, offsets[i + 1]) ^ _SIGN)
        at, number = _place_of(data, start, size, text_start, text_data, slots, count)
        if number < 0:
            number, end = count, text_start[count]
            text_data[end : end + size] = data[start : start + size]
            text_start[count + 1] = end + size
            count += 1
            slots[at] = count
        tie[i] = number
    return key, tie, count


@kernel
def find_texts(offsets, data, text_start, text_data, slots, count):
    """(key, tie) of each text; tie -1: no document has it."""
    key, tie = np.empty(len(offsets) - 1, np.int64), np.empty(len(offsets) - 1, np.int32)
    for i in range(len(key)):
        start, size = offsets[i], offsets[i + 1] - offsets[i]
        key[i] = np.int64(prefix(data, start, offsets[i + 1]) ^ _SIGN)
        tie[i] = _place_of(data, start, size, text_start, text_data, slots, count)[1]
    return key, tie


@kernel
def file_texts(text_start, text_data, slots, count):
    """Puts all texts into slots that are empty."""
    mask = np.uint64(len(slots) - 1)
    for i in range(count):
        at = hash_slice(text_data, text_start[i], text_start[i + 1] - text_start[i]) & mask
        while slots[at] != 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = i + 1
