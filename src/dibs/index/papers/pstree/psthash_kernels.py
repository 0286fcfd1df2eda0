"""The table of multidimensional predicate spaces of index.psthash: cells, and what partitions and merges do to them."""

from __future__ import annotations

import numpy as np

from dibs.index.papers.pstree.chunks import chunk_size, give_back, take
from dibs.index.papers.pstree.kernels import (
    AT,
    ATTRIBUTE,
    BEFORE,
    EDGES,
    HI,
    LO,
    NEXT,
    ROOM,
    SIZE,
    START,
    find_space,
    merge,
    partition,
)
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch

MOST_DIMENSIONS = 8
EMPTY = -1  # key of a slot that was never used
PREFIX = np.int64(-(1 << 63))  # bit of a key: the cell stands for the beginning of longer ones
LONG = np.int64(1) << 31  # bit of a key: its first half is the number of a prefix, not a leaf
ONE = np.int64(1) << 32  # in a slot's value
LOW = 0xFFFFFFFF
KEYS, PREFIXES, ROWS_DONE, CELLS_DONE, DIMENSIONS, MOST_CELLS, TABLE = range(7)  # numbers of the state, and how many
OK, TABLE_FULL, POOL_FULL = 0, 1, 2
PREDICATE, SPAN, LEAF, PARENT, WHERE = range(5)  # rows of the work space, by dimension
MIX, GOLDEN = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0x9E3779B97F4A7C15)


@kernel
def _place(key, slots):
    """Where the search for a key begins; the table has a power of 2 slots."""
    x = np.uint64(key) * MIX
    x = (x ^ (x >> np.uint64(32))) * GOLDEN
    return np.int64((x >> np.uint64(24)) & np.uint64(slots - 1))


@kernel
def _slot(key, change, slots, table):
    """The slot of a key; with change 1 it gets one; -1 if there is none."""
    at = _place(key, len(slots))
    while slots[at, 0] != key:
        if slots[at, 0] == EMPTY:
            if change < 0 or 4 * (table[KEYS] + 1) > 3 * len(slots):
                return np.int64(-1)
            table[KEYS] += 1
            slots[at, 0], slots[at, 1] = key, 0
            return at
        at = (at + 1) & (len(slots) - 1)
    return at


@kernel
def _add(key, code, slots, table, pool, free):
    """Adds a code to a cell."""
    at = _slot(key, np.int64(1), slots, table)
    if at < 0:
        return TABLE_FULL
    size, start = slots[at, 1] >> 32, slots[at, 1] & LOW
    if size == 0:
        slots[at, 1] = ONE | (np.int64(code) & LOW)
        return OK
    if size == 1 or size + 1 == pool[start, 0]:
        new = take(size + 2, pool, free)
        if new < 0:
            return POOL_FULL
        pool[new, 0] = chunk_size(size + 2)
        if size == 1:
            pool[new + 1, 0] = np.int32(np.uint32(start))
        else:
            for i in range(1, size + 1):
                pool[new + i, 0] = pool[start + i, 0]
            give_back(start, np.int64(pool[start, 0]), pool, free)
        start = new
    pool[start + size + 1, 0] = code
    slots[at, 1] = ((size + 1) << 32) | start
    return OK


@kernel
def _remove(key, code, slots, table, pool, free):
    """Takes a code that is there out of a cell."""
    at = _slot(key, np.int64(-1), slots, table)
    size, start = slots[at, 1] >> 32, slots[at, 1] & LOW
    if size == 1:
        slots[at, 1] = 0
        return
    k = start + size
    while pool[k, 0] != code:
        k -= 1
    pool[k, 0] = pool[start + size, 0]
    slots[at, 1] -= ONE
    if size == 2:
        slots[at, 1] = ONE | (np.int64(pool[start + 1, 0]) & LOW)
        give_back(start, np.int64(pool[start, 0]), pool, free)


@kernel
def rehash(slots, larger, table):
    """Moves all cells that are not empty."""
    table[KEYS] = 0
    for i in range(len(slots)):
        ahead = min(i + 16, len(slots) - 1)
        prefetch(larger, 2 * _place(slots[ahead, 0], len(larger)))
        if slots[i, 0] != EMPTY and slots[i, 1] >> 32 != 0:
            at = _slot(slots[i, 0], np.int64(1), larger, table)
            larger[at, 1] = slots[i, 1]


@kernel
def change_cells(
    r,
    code,
    dimensions,
    only,
    only_leaf,
    change,
    skip,
    work,
    offsets,
    predicate,
    span,
    tree,
    node,
    leaf,
    slots,
    table,
    pool,
    free,
):
    """Adds the code of a row to all cells that its first `dimensions` predicates cover (change 1), or takes it from
    them (-1); with only >= 0, those whose space on that attribute is only_leaf. The first `skip` cells are done
    already. Returns OK, or what there is no room for, and how many cells are done."""
    for d in range(dimensions):  # in the order of their attributes, as an event has them
        p, at = offsets[r] + d, d
        while at > 0 and predicate[work[PREDICATE, at - 1], ATTRIBUTE] > predicate[p, ATTRIBUTE]:
            work[PREDICATE, at] = work[PREDICATE, at - 1]
            at -= 1
        work[PREDICATE, at] = p
    done = np.int64(0)
    d, begin = 0, True
    while d >= 0:
        p = work[PREDICATE, d]
        a = np.int64(predicate[p, ATTRIBUTE])
        here = np.int64(-1)
        if a == only:
            here = only_leaf if begin else np.int64(-1)
        else:  # the next leaf of the span, or the first one of the next span
            s = np.int64(-1) if begin else work[SPAN, d]
            if not begin:
                here = np.int64(leaf[work[LEAF, d], NEXT])
                high = predicate[p, HI] if predicate[p, HI] >= 0 else span[predicate[p, LO] + s, 1]
                if here >= 0 and leaf[here, START] > high:
                    here = -1
            if here < 0 and s + 1 < max(1, -predicate[p, HI]):
                s += 1
                low = predicate[p, LO] if predicate[p, HI] >= 0 else span[predicate[p, LO] + s, 0]
                here = np.int64(find_space(a, np.int64(low), tree, node, leaf))
                if d == dimensions - 1:
                    ahead, high = here, predicate[p, HI] if predicate[p, HI] >= 0 else span[predicate[p, LO] + s, 1]
                    while ahead >= 0 and leaf[ahead, START] <= high:
                        prefetch(slots, 2 * _place(work[PARENT, d] | ahead, len(slots)))
                        ahead = np.int64(leaf[ahead, NEXT])
            work[SPAN, d] = s
        work[LEAF, d] = here
        begin = False
        if here < 0:
            d -= 1
            continue
        if d == 0:
            work[PARENT, 1] = here << 32
            d, begin = 1, True
            continue
        key = work[PARENT, d] | here
        if d < dimensions - 1:
            at = _slot(key | PREFIX, change, slots, table)
            if at < 0:
                return TABLE_FULL, done
            if slots[at, 1] == 0:  # new: a number of its own. Without cells below it keeps the number while it stays
                table[PREFIXES] += 1
                slots[at, 1] = table[PREFIXES]
            work[WHERE, d] = at
            work[PARENT, d + 1] = ((slots[at, 1] & LOW) << 32) | LONG
            d, begin = d + 1, True
            continue
        done += 1
        if done <= skip:
            continue
        if change > 0:
            status = _add(key, code, slots, table, pool, free)
            if status != OK:
                return status, done - 1
        else:
            _remove(key, code, slots, table, pool, free)
        for i in range(1, dimensions - 1):
            slots[work[WHERE, i], 1] += change * ONE
    return OK, done


@kernel
def change_rows(rows, start, change, dims, offsets, predicate, span, tree, node, leaf, slots, table, pool, free):
    """Puts the rows into all their cells (change 1) or takes them out (-1). Returns where it stopped and why;
    table[CELLS_DONE] cells of that row are done."""
    work, anywhere = np.empty((5, MOST_DIMENSIONS), np.int64), np.int64(-1)
    for i in range(start, len(rows)):
        r = rows[i]
        status, done = change_cells(
            r,
            _code(r, np.int64(dims[r]), offsets),
            np.int64(dims[r]),
            anywhere,
            anywhere,
            np.int64(change),
            table[CELLS_DONE],
            work,
            offsets,
            predicate,
            span,
            tree,
            node,
            leaf,
            slots,
            table,
            pool,
            free,
        )
        if status != OK:
            table[CELLS_DONE] = done
            return i, status
        table[CELLS_DONE] = 0
    return len(rows), OK


@kernel
def _code(r, dimensions, offsets):
    left = offsets[r] + dimensions
    return np.int32(r) if left == offsets[r + 1] else np.int32(~left)


@kernel
def partition_hashed(
    keys,
    counts,
    start,
    dims,
    offsets,
    predicate,
    span,
    cover,
    slots,
    table,
    pool,
    free_pool,
    tree,
    node,
    inside,
    leaf,
    seen,
    entry,
    free,
    state,
):
    """index.pstree_kernels.partition_all; what is in cells of the old space is copied to cells of the new one. Returns
    where it stopped and why; table[ROWS_DONE] and table[CELLS_DONE] say how far that copy is."""
    work = np.empty((5, MOST_DIMENSIONS), np.int64)
    for i in range(start, len(keys)):
        a, value = keys[i] >> 32, keys[i] & LOW
        found = np.int64(partition(a, value, tree, node, inside, leaf, seen, entry, free, state))
        if found < 0 or found >= len(cover):
            return i, OK
        if leaf[found, EDGES] == 0:  # new, or not copied to the end
            old = leaf[found, BEFORE]
            size, at = np.int64(cover[old, SIZE]), np.int64(cover[old, AT])
            if size > 0 and cover[found, SIZE] == 0:
                new = take(size, pool, free_pool)
                if new < 0:
                    return i, POOL_FULL
                for k in range(size):
                    pool[new + k, 0] = pool[at + k, 0]
                cover[found, AT], cover[found, SIZE], cover[found, ROOM] = new, size, chunk_size(size)
            for k in range(table[ROWS_DONE], size):
                r = np.int64(pool[at + k, 0])
                status, done = change_cells(
                    r,
                    _code(r, np.int64(dims[r]), offsets),
                    np.int64(dims[r]),
                    a,
                    found,
                    np.int64(1),
                    table[CELLS_DONE],
                    work,
                    offsets,
                    predicate,
                    span,
                    tree,
                    node,
                    leaf,
                    slots,
                    table,
                    pool,
                    free_pool,
                )
                if status != OK:
                    table[ROWS_DONE], table[CELLS_DONE] = k, done
                    return i, status
                table[CELLS_DONE] = 0
            table[ROWS_DONE] = 0
        leaf[found, EDGES] += counts[i]
    return len(keys), OK


@kernel
def merge_hashed(
    keys,
    counts,
    dims,
    offsets,
    predicate,
    span,
    cover,
    slots,
    table,
    pool,
    free_pool,
    tree,
    node,
    inside,
    leaf,
    seen,
    entry,
    free,
    state,
):
    """The opposite: the cells of a space that is merged are emptied first."""
    work = np.empty((5, MOST_DIMENSIONS), np.int64)
    for i in range(len(keys)):
        a, value = keys[i] >> 32, keys[i] & LOW
        found = np.int64(find_space(a, value, tree, node, leaf))
        leaf[found, EDGES] -= counts[i]
        if leaf[found, EDGES] == 0:
            for k in range(cover[found, AT], cover[found, AT] + cover[found, SIZE]):
                r = np.int64(pool[k, 0])
                change_cells(
                    r,
                    _code(r, np.int64(dims[r]), offsets),
                    np.int64(dims[r]),
                    a,
                    found,
                    np.int64(-1),
                    np.int64(0),
                    work,
                    offsets,
                    predicate,
                    span,
                    tree,
                    node,
                    leaf,
                    slots,
                    table,
                    pool,
                    free_pool,
                )
            if cover[found, ROOM] > 0:
                give_back(np.int64(cover[found, AT]), np.int64(cover[found, ROOM]), pool, free_pool)
            cover[found, AT], cover[found, SIZE], cover[found, ROOM] = 0, 0, 0
            merge(a, found, tree, node, inside, leaf, seen, entry, free, state)


@kernel
def dimensions_of(rows, most, cells, offsets, predicate, span, tree, node, leaf):
    """By how many predicates each row is found: `most`, or as many as it has, or fewer lest it be in too many cells.
    And in how many cells these rows will be."""
    result, total = np.empty(len(rows), np.uint8), np.int64(0)
    for i in range(len(rows)):
        first, product, kept = offsets[rows[i]], np.int64(1), np.int64(0)
        result[i] = 1
        for p in range(first, min(first + most, offsets[rows[i] + 1])):
            spaces = np.int64(0)
            spans = max(1, -predicate[p, HI])
            for s in range(spans):
                low, high = predicate[p, LO], predicate[p, HI]
                if high < 0:
                    low, high = span[predicate[p, LO] + s, 0], span[predicate[p, LO] + s, 1]
                at = find_space(np.int64(predicate[p, ATTRIBUTE]), np.int64(low), tree, node, leaf)
                while at >= 0 and leaf[at, START] <= high and spaces <= cells:
                    spaces += 1
                    at = leaf[at, NEXT]
            product *= spaces
            if product > cells:
                break
            result[i], kept = p + 1 - first, product
        total += kept if result[i] > 1 else 0
    return result, total
