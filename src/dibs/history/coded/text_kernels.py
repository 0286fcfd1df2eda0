"""Texts of documents, each numbered once, and the numbers of others among them."""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import prefix
from dibs.jit.hashing import file_slot, find_slot, hash_slice
from dibs.jit.kernel import kernel, phase
from dibs.jit.words import equal_bytes

_SIGN = np.uint64(2**63)


@phase
def _place_of(data, start, size, text_start, text_data, slots, count):
    """The slot of a text: (place, number), number -1 if it is not among the first `count` texts."""
    thing = data, start, size, text_start, text_data
    return find_slot(slots, hash_slice(data, start, size), count, _is_text, thing)


@phase
def _is_text(thing, number):
    data, start, size, text_start, text_data = thing
    own = text_start[number]
    return text_start[number + 1] - own == size and equal_bytes(data, start, text_data, own, size) == size


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
    for i in range(count):
        file_slot(slots, hash_slice(text_data, text_start[i], text_start[i + 1] - text_start[i]), i)
