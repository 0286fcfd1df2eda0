"""The hash table of pstree.psthash: slots, keys, and the list of codes in each cell."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch
from dibs.papers.structures.pstree.spaces import LOW, Chunks, chunk_size, give_back, take

MOST_DIMENSIONS = 8
KEY, VALUE, SLOT = range(3)  # columns of a slot, and how many
EMPTY = -1  # key of a slot that was never used
PREFIX = np.int64(-(1 << 63))  # bit of a key: the cell stands for the beginning of longer ones
LONG = np.int64(1) << 31  # bit of a key: its first half is the number of a prefix, not a leaf
ONE = np.int64(1) << 32  # in a slot's value: one code (or cell) more
KEYS, PREFIXES, ROWS_DONE, CELLS_DONE, DIMENSIONS, MOST_CELLS, TABLE = range(7)  # numbers of the table, and how many
OK, TABLE_FULL, POOL_FULL = 0, 1, 2
SLOTS_AHEAD = 16  # that a rehash asks for before their turn
MIX, GOLDEN = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0x9E3779B97F4A7C15)


class HashedSpaces(NamedTuple):
    """The multidimensional predicate spaces."""

    dims: NDArray[np.uint8]  # rows, with spare room: by how many predicates a row is found
    slots: NDArray[np.int64]  # (a power of 2, SLOT): key and value
    table: NDArray[np.int64]  # TABLE
    # (leaves, LEAF), the lists of a SpaceLists in `pool`: rows that are found by several predicates of which one covers
    # the space
    cover: NDArray[np.int32]
    pool: Chunks  # of width 1: the lists of cells (their room, then the codes) and of `cover`


@phase
def size_of(value):
    """How many codes are in a cell, or cells go on from a prefix."""
    return value >> 32


@phase
def place_of(value):
    """Where the list of a cell stands, or its only code; the number of a prefix."""
    return value & LOW


@phase
def only_code(value):
    return np.int32(np.uint32(value & LOW))


@phase
def below(number):
    """What the keys that go on from a prefix begin with."""
    return (number << 32) | LONG


@phase
def start_of(key, slots):
    """Where the search for a key begins, in so many slots (a power of 2)."""
    x = np.uint64(key) * MIX
    x = (x ^ (x >> np.uint64(32))) * GOLDEN
    return np.int64((x >> np.uint64(24)) & np.uint64(slots - 1))


@phase
def find_slot(key, at, slots):
    """The slot of a key whose search begins at `at`, or the empty one where it would be."""
    while slots[at, KEY] != key and slots[at, KEY] != EMPTY:
        at = (at + 1) & (len(slots) - 1)
    return at


@phase
def slot_of(key, change, slots, table):
    """The slot of a key; with change 1 it gets one; -1 if there is none."""
    at = find_slot(key, start_of(key, len(slots)), slots)
    if slots[at, KEY] == EMPTY:
        if change < 0 or 4 * (table[KEYS] + 1) > 3 * len(slots):
            return np.int64(-1)
        table[KEYS] += 1
        slots[at, KEY], slots[at, VALUE] = key, 0
    return at


@phase
def change_cell(key, code, change, cells):
    """Adds a code to a cell (change 1) or takes it out (-1). Returns OK, or what there is no room for."""
    if change > 0:
        return _add(key, code, cells)
    _remove(key, code, cells)
    return OK


@phase
def _add(key, code, cells):
    slots, pool = cells.slots, cells.pool.entry
    at = slot_of(key, np.int64(1), slots, cells.table)
    if at < 0:
        return TABLE_FULL
    size, start = size_of(slots[at, VALUE]), place_of(slots[at, VALUE])
    if size == 0:
        slots[at, VALUE] = ONE | (np.int64(code) & LOW)
        return OK
    if size == 1 or size + 1 == pool[start, 0]:
        new = take(size + 2, cells.pool)
        if new < 0:
            return POOL_FULL
        pool[new, 0] = chunk_size(size + 2)
        if size == 1:
            pool[new + 1, 0] = only_code(slots[at, VALUE])
        else:
            for i in range(1, size + 1):
                pool[new + i, 0] = pool[start + i, 0]
            give_back(start, np.int64(pool[start, 0]), cells.pool)
        start = new
    pool[start + size + 1, 0] = code
    slots[at, VALUE] = ((size + 1) << 32) | start
    return OK


@phase
def _remove(key, code, cells):
    """The code is there; if not, nothing is done."""
    slots, pool = cells.slots, cells.pool.entry
    at = slot_of(key, np.int64(-1), slots, cells.table)
    if at < 0 or size_of(slots[at, VALUE]) == 0:
        return
    size, start = size_of(slots[at, VALUE]), place_of(slots[at, VALUE])
    if size == 1:
        slots[at, VALUE] = 0
        return
    k = start + size
    while k > start and pool[k, 0] != code:
        k -= 1
    if k == start:
        return
    pool[k, 0] = pool[start + size, 0]
    slots[at, VALUE] -= ONE
    if size == 2:
        slots[at, VALUE] = ONE | (np.int64(pool[start + 1, 0]) & LOW)
        give_back(start, np.int64(pool[start, 0]), cells.pool)


@kernel
def rehash(slots, larger, table):
    """Moves all cells that are not empty."""
    table[KEYS] = 0
    for i in range(len(slots)):
        ahead = min(i + SLOTS_AHEAD, len(slots) - 1)
        prefetch(larger, SLOT * start_of(slots[ahead, KEY], len(larger)))
        if slots[i, KEY] != EMPTY and size_of(slots[i, VALUE]) != 0:
            at = slot_of(slots[i, KEY], np.int64(1), larger, table)
            larger[at, VALUE] = slots[i, VALUE]


def empty_table(slots: int) -> NDArray[np.int64]:
    table = np.zeros((slots, SLOT), np.int64)
    table[:, KEY] = EMPTY
    return table
