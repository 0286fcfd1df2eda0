"""Numbers for equal things, by hash tables with open addressing: one table for pairs of integers and one for slices of
an array (texts, lists of spans).

A table is an array of slots, a power of two and at least twice as many as there can be things: 1 + the number of a
distinct thing, or 0. Numbers are given in the order of first occurrence. Equal hashes prove nothing: what a slot stands
for is compared.
"""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel, phase


@kernel
def slots_for(things):
    """How many slots a table for so many has."""
    slots = 16
    while slots < 2 * things:
        slots *= 2
    return slots


@phase
def _hash_pair(x, y):
    h = np.uint64(x) ^ np.uint64(y) * np.uint64(0xC2B2AE3D27D4EB4F)
    h ^= h >> np.uint64(32)  # the lower half of a small number as float64 is zero
    return h * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)


@phase
def number_pair(x, y, known_x, known_y, slots, n):
    """The number of (x, y) among the n pairs that are known; if it is new, n, and it is known from then on."""
    mask = np.uint64(len(slots) - 1)
    at = _hash_pair(x, y) & mask
    while True:
        slot = slots[at]
        if slot == 0:
            slots[at] = n + 1
            known_x[n], known_y[n] = x, y
            return np.int64(n)
        if known_x[slot - 1] == x and known_y[slot - 1] == y:
            return np.int64(slot - 1)
        at = (at + np.uint64(1)) & mask


@kernel
def number_pairs(x, y):
    """A number for each pair, and the place of each first. (Distinct pairs are kept beside each other: to look for them
    at their first places took a third longer.)"""
    slots = np.zeros(slots_for(len(x)), np.int32)
    known_x, known_y = np.empty(len(x), np.int64), np.empty(len(x), np.int64)
    number, first = np.empty(len(x), np.int64), np.empty(len(x), np.int64)
    n = 0
    for i in range(len(x)):
        number[i] = number_pair(x[i], y[i], known_x, known_y, slots, n)
        if number[i] == n:
            first[n] = i
            n += 1
    return number, first[:n]


@phase
def find_slot(slots, h, count, is_same, thing):
    """(slot, number) of a thing with hash h among the first `count`, by is_same(thing, number); number -1: it is none
    of them, and the slot is free. (Higher numbers are of things that came later, and free for this reader.)"""
    mask = np.uint64(len(slots) - 1)
    at = h & mask
    while True:
        number = np.int64(slots[at]) - 1
        if number < 0 or number >= count:
            return at, np.int64(-1)
        if is_same(thing, number):
            return at, number
        at = (at + np.uint64(1)) & mask


@phase
def file_slot(slots, h, number):
    """Puts a thing that is in no slot into one. There must be a free one."""
    mask = np.uint64(len(slots) - 1)
    at = h & mask
    while slots[at] != 0:
        at = (at + np.uint64(1)) & mask
    slots[at] = number + 1


@phase
def hash_slice(data, start, size):
    """FNV-1a. Its lower bits say the most, but for the last step only the lower bits of items would count."""
    h = np.uint64(14695981039346656037)
    for k in range(start, start + size):
        h = (h ^ np.uint64(data[k])) * np.uint64(1099511628211)
    return h ^ (h >> np.uint64(29))


@phase
def same_slice(data, a, b, size):
    k = 0
    while k < size and data[a + k] == data[b + k]:
        k += 1
    return k == size


@kernel
def number_slices(data, start, size):
    """A number for each slice data[start[i] : start[i] + size[i]], and which is the first of each number."""
    slots = np.zeros(slots_for(len(start)), np.int32)
    mask = np.uint64(len(slots) - 1)
    number, first = np.empty(len(start), np.int32), np.empty(len(start), np.int32)
    n = 0
    for i in range(len(start)):
        at = hash_slice(data, start[i], size[i]) & mask
        while True:
            slot = slots[at]
            if slot == 0:
                first[n] = i
                n += 1
                slots[at] = slot = n
                break
            j = first[slot - 1]
            if size[j] == size[i] and same_slice(data, start[i], start[j], size[i]):
                break
            at = (at + np.uint64(1)) & mask
        number[i] = slot - 1
    return number, first[:n]
