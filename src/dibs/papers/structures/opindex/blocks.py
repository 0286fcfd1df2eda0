"""Sorted predicate lists in blocks of shared arrays, and how they take insertions and deletions: kernels of OpIndex.

A list (pivot, operator) is a main block and an extra block, both sorted by key, so an insertion never sorts anything:

    small list   the entries above the new one move up by one place
    long list    the same, but in the extra block; when that is full (about four times the root of the list's length)
                 it is merged into the main block, from the end, in place

So an insertion into a list of n entries moves O(sqrt n) of them. A full block moves to one of twice the size; blocks
that are left are chained by size (the first item of a free block is the next one) and used again.

Arrays, with the columns of the two-dimensional ones:
    parts      int32   partitions x 4   START, SIZE, ROOM of the slots; DEAD: how many of them are deleted
    heads      int32   lists x 8        START, SIZE, ROOM of the main block, DIRECTORY, SHIFT, and of the extra block
                                        EXTRA, EXTRA_SIZE, EXTRA_ROOM; list number = LISTS x partition + operator
    key        int64   rank << 32 | operand
    pointer    int32   the slot in the partition (of a bitmap: slot << 6 | clause)
    far, link  int32   BETWEEN lists only: the upper end, and how many places back the last entry before it stands that
                       reaches further (none: far enough to leave the block)
    signature  uint64  of each segment; ends int32: where it ends in the main block
    need       uint8, int32 or uint64, for each slot: predicates (or the bits of clauses) to be satisfied; 0: deleted
    owner      int32   the row of a slot; ~row if it has other slots too
    state      int64   4 x 40: for each of the pools NARROW, WIDE (lists), SLOTS and DIRECTORIES: USED, WANTED and the
                       first free block of each size 2**k

Ranks order the attributes (.forms). Segments are equal pieces of the space of ranks, contiguous in every
list; twice as many segments are each of the old ones cut in two, so nothing has to be moved when a directory grows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dibs.index.operators import BETWEEN, EQ
from dibs.jit.kernel import kernel, phase
from dibs.papers.structures.opindex.forms import LISTS, RANK_BITS, PredicateLists

START, SIZE, ROOM, DEAD, PART = range(5)  # columns of a partition, and how many
# Columns of a head, besides START, SIZE and ROOM. A block's place, size and room are next to each other: in the columns
# block + START, block + SIZE and block + ROOM, where block is MAIN or EXTRA.
DIRECTORY, SHIFT, EXTRA, EXTRA_SIZE, EXTRA_ROOM, HEAD = range(3, 9)
MAIN = START
NARROW, WIDE, SLOTS, DIRECTORIES = 0, 1, 2, 3
USED, WANTED, FREE = 0, 1, 2
ENTRIES_A_SEGMENT = 2  # at least, so that short lists have short directories
STATE = (4, 40)


class BlockSizes(NamedTuple):
    """Of lists that grow (see dibs.tuning)."""

    small: int  # a list of fewer entries has no extra block
    least_extra: int  # room of an extra block: a power of two


@phase
def signature_bit(key, equal, width):
    """h of the paper: of attribute and operand for equality, of the attribute alone for other operators."""
    x = np.uint64(key if equal else key >> 32)
    hashed = (x * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58)  # below 64
    return np.uint64(1) << ((hashed * np.uint64(width)) >> np.uint64(6))


@phase
def _segment_shift(size, segments):
    """Which bits of a rank are the number of its segment, in a list of this size."""
    shift = RANK_BITS
    while (2 << (RANK_BITS - shift)) <= segments and (ENTRIES_A_SEGMENT << (RANK_BITS + 1 - shift)) <= size:
        shift -= 1
    return shift


@phase
def _order(room):
    """The largest k with 2**k <= room."""
    k = 0
    while (2 << k) <= room:
        k += 1
    return k


@phase
def _take(chain, pool, room, state):
    """A block of `room` items, which is a power of two."""
    k = FREE + _order(room)
    block = state[pool, k]
    if block >= 0:
        state[pool, k] = chain[block]
    else:
        block = state[pool, USED]
        state[pool, USED] += room
    return block


@phase
def _give(chain, pool, block, room, state):
    if room > 0:
        k = FREE + _order(room)
        chain[block] = state[pool, k]
        state[pool, k] = block


@phase
def _relink(start, first, last, entries):
    """The links of the entries first to last of a block that begins at start; those before are right."""
    far, link = entries.far, entries.link
    for p in range(first, last):
        q = p - 1
        while q >= start and far[q] <= far[p]:
            q -= link[q]
        link[p] = p - max(q, start - 1)


@phase(inline=False)
def _fill_directory(h, directories, key):
    heads, signature, ends, width = directories
    first, shift, equal = heads[h, DIRECTORY], heads[h, SHIFT], h % LISTS == EQ
    last = first + (1 << (RANK_BITS - shift))
    for s in range(first, last):
        signature[s], ends[s] = 0, 0
    start, extra = heads[h, START], heads[h, EXTRA]
    for p in range(start, start + heads[h, SIZE]):
        s = first + (key[p] >> (32 + shift))
        signature[s] |= signature_bit(key[p], equal, width)
        ends[s] = p + 1 - start
    for s in range(first + 1, last):
        ends[s] = max(ends[s], ends[s - 1])
    for p in range(extra, extra + heads[h, EXTRA_SIZE]):
        signature[first + (key[p] >> (32 + shift))] |= signature_bit(key[p], equal, width)


@kernel
def build_lists(pool, order, new, segments, directories, state):
    """The main blocks, without spare room, of all entries of a pool, which `order` sorts by key. The heads have sizes
    and directories."""
    heads, between = directories.heads, pool == WIDE
    list_of, key, pointer, far = new
    n = len(key)
    made = PredicateLists(
        np.empty(n, np.int64), np.empty(n, np.int32), np.empty(len(far), np.int32), np.empty(len(far), np.int32)
    )
    out_key, out_pointer, out_far, _ = made
    place = np.empty(len(heads), np.int64)
    at = np.int64(0)
    for h in range(len(heads)):
        if (h % LISTS == BETWEEN) == between:
            place[h] = at
            heads[h, START], heads[h, ROOM] = at, heads[h, SIZE]
            at += heads[h, SIZE]
    for o in range(n):
        i = order[o]
        p = place[list_of[i]]
        place[list_of[i]] = p + 1
        out_key[p], out_pointer[p] = key[i], pointer[i]
        if between:
            out_far[p] = far[i]
    state[pool, USED] = n
    for h in range(len(heads)):
        if heads[h, SIZE] > 0 and (h % LISTS == BETWEEN) == between:
            if between:
                start = np.int64(heads[h, START])
                _relink(start, start, start + heads[h, SIZE], made)
            if segments > 0:
                _fill_directory(h, directories, out_key)
    return made.key, made.pointer, made.far, made.link


@kernel
def append_slots(i, partition, row, what, slot, parts, need, owner, state):
    """A slot for each unit from i on; returns the first one for which there is no room."""
    while i < len(partition):
        t = partition[i]
        start, size, room = parts[t, START], parts[t, SIZE], parts[t, ROOM]
        if size == room:
            larger = 2 << _order(max(np.int64(size), 2))
            if state[SLOTS, USED] + larger > len(owner):
                state[SLOTS, WANTED] = state[SLOTS, USED] + larger
                break
            block = _take(owner, SLOTS, larger, state)
            for k in range(size):
                need[block + k], owner[block + k] = need[start + k], owner[start + k]
            _give(owner, SLOTS, start, np.int64(room), state)
            start = block
            parts[t, START], parts[t, ROOM] = start, larger
        need[start + size], owner[start + size], slot[i] = what[i], row[i], size
        parts[t, SIZE] = size + 1
        i += 1
    return i


@phase
def _copy_entry(to, came, entries):
    """All but the link."""
    entries.key[to], entries.pointer[to] = entries.key[came], entries.pointer[came]
    if len(entries.far) > 0:
        entries.far[to] = entries.far[came]


@phase
def _insert_sorted(start, size, new, i, entries):
    """Entry i of the new ones into the block of `size` entries from start on."""
    key, first, last = entries.key, start, start + size
    while first < last:
        middle = (first + last) >> 1
        if key[middle] <= new.key[i]:
            first = middle + 1
        else:
            last = middle
    for p in range(start + size, first, -1):
        _copy_entry(p, p - 1, entries)
    key[first], entries.pointer[first] = new.key[i], new.pointer[i]
    if len(entries.far) > 0:
        entries.far[first] = new.far[i]
        _relink(start, first, start + size + 1, entries)


@phase
def _move(pool, h, block, larger, heads, entries, state):
    """The block MAIN or EXTRA of a list to one of `larger` entries."""
    start, size, room = heads[h, block + START], heads[h, block + SIZE], np.int64(heads[h, block + ROOM])
    to = _take(entries.key, pool, larger, state)
    for p in range(size):
        _copy_entry(to + p, start + p, entries)
        if pool == WIDE:
            entries.link[to + p] = entries.link[start + p]
    _give(entries.key, pool, start, room, state)
    heads[h, block + START], heads[h, block + ROOM] = to, larger


@phase
def _merge(pool, h, heads, entries):
    """The extra block into the main block, which has room for it."""
    key = entries.key
    start, extra = np.int64(heads[h, START]), np.int64(heads[h, EXTRA])
    p, q = start + heads[h, SIZE] - 1, extra + heads[h, EXTRA_SIZE] - 1
    to = p + heads[h, EXTRA_SIZE]
    while q >= extra:
        if p >= start and key[p] > key[q]:
            came = p
            p -= 1
        else:
            came = q
            q -= 1
        _copy_entry(to, came, entries)
        to -= 1
    heads[h, SIZE] += heads[h, EXTRA_SIZE]
    heads[h, EXTRA_SIZE] = 0
    if pool == WIDE:
        _relink(start, to + 1, start + heads[h, SIZE], entries)


@kernel
def insert_entries(i, pool, new, segments, sizes, directories, entries, state):
    """The entries from i on into their lists; returns the first one for which there may not be room."""
    heads, ends, list_of = directories.heads, directories.ends, new.list_of
    while i < len(list_of):
        h = np.int64(list_of[i])
        size, extra = np.int64(heads[h, SIZE]), np.int64(heads[h, EXTRA_SIZE])
        wanted = state[pool, USED] + 4 * (size + extra + sizes.least_extra)
        wanted_directories = state[DIRECTORIES, USED] + segments
        if wanted > len(entries.key) or (segments > 0 and wanted_directories > len(ends)):
            state[pool, WANTED], state[DIRECTORIES, WANTED] = wanted, wanted_directories
            break
        if size < sizes.small:
            merged = _insert_into_main(pool, h, new, i, heads, entries, state)
        else:
            merged = _insert_into_extra(pool, h, new, i, sizes, heads, entries, state)
        if segments > 0:
            _note_entry(h, new.key[i], size < sizes.small, merged, segments, directories, entries.key, state)
        i += 1
    return i


@phase
def _insert_into_main(pool, h, new, i, heads, entries, state):
    """A small list: False, as nothing is merged."""
    size = np.int64(heads[h, SIZE])
    if size == heads[h, ROOM]:
        _move(pool, h, np.int64(MAIN), 2 << _order(max(size, 2)), heads, entries, state)
    _insert_sorted(np.int64(heads[h, START]), size, new, i, entries)
    heads[h, SIZE] = size + 1
    return False


@phase
def _insert_into_extra(pool, h, new, i, sizes, heads, entries, state):
    """A long list: whether its extra block was full and has been merged into the main block."""
    size, extra, least_extra = np.int64(heads[h, SIZE]), np.int64(heads[h, EXTRA_SIZE]), np.int64(sizes.least_extra)
    merged = False
    if extra == heads[h, EXTRA_ROOM]:
        if extra >= least_extra and extra * extra >= 16 * size:
            if size + extra > heads[h, ROOM]:
                _move(pool, h, np.int64(MAIN), 2 << _order(size + extra), heads, entries, state)
            _merge(pool, h, heads, entries)
            extra, merged = np.int64(0), True
        else:
            _move(pool, h, np.int64(EXTRA), max(2 * extra, least_extra), heads, entries, state)
    _insert_sorted(np.int64(heads[h, EXTRA]), extra, new, i, entries)
    heads[h, EXTRA_SIZE] = extra + 1
    return merged


@phase
def _note_entry(h, k, in_main, merged, segments, directories, key, state):
    """The directory of a list into which the key k came: a longer one when it is due, otherwise one bit and ends."""
    heads, signature, ends, width = directories
    shift = _segment_shift(np.int64(heads[h, SIZE]), segments)
    if heads[h, SHIFT] == 0 or shift < heads[h, SHIFT]:
        heads[h, SHIFT], heads[h, DIRECTORY] = shift, state[DIRECTORIES, USED]
        state[DIRECTORIES, USED] += 1 << (RANK_BITS - shift)
        _fill_directory(h, directories, key)
    elif merged:
        _fill_directory(h, directories, key)
    else:
        first, shift = heads[h, DIRECTORY], heads[h, SHIFT]
        s = first + (k >> (32 + shift))
        signature[s] |= signature_bit(k, h % LISTS == EQ, width)
        if in_main:
            for later in range(s, first + (1 << (RANK_BITS - shift))):
                ends[later] += 1


@kernel
def delete_rows(rows, first_unit, unit_partition, unit_slot, parts, need):
    """The slots of the rows will not match any more. Returns the partitions of which more than a quarter is dead."""
    due = np.empty(len(unit_slot), np.int64)
    n = 0
    for r in rows:
        for u in range(first_unit[r], first_unit[r + 1]):
            t = unit_partition[u]
            need[parts[t, START] + unit_slot[u]] = 0
            before = 4 * parts[t, DEAD] > parts[t, SIZE]
            parts[t, DEAD] += 1
            if not before and 4 * parts[t, DEAD] > parts[t, SIZE]:
                due[n] = t
                n += 1
    return due[:n]


@kernel
def purge_slots(t, parts, need, owner, first_unit, unit_partition, unit_slot):
    """Takes the dead slots out of a partition; returns where each of the old ones went, -1 for nowhere."""
    start, size = parts[t, START], parts[t, SIZE]
    moved = np.full(size, -1, np.int32)
    live = 0
    for s in range(size):
        if need[start + s] == 0:
            continue
        moved[s] = live
        row = owner[start + s]
        r = row if row >= 0 else ~row
        for u in range(first_unit[r], first_unit[r + 1]):
            if unit_partition[u] == t and unit_slot[u] == s:
                unit_slot[u] = live
                break
        need[start + live], owner[start + live] = need[start + s], row
        live += 1
    parts[t, SIZE], parts[t, DEAD] = live, 0
    return moved


@kernel
def purge_lists(pool, t, moved, bits, segments, directories, entries):
    """Takes the entries of dead slots out of the lists of a partition that are in this pool."""
    heads, key = directories.heads, entries.key
    for h in range(t * LISTS, (t + 1) * LISTS):
        if (h % LISTS == BETWEEN) != (pool == WIDE):
            continue
        for block in (MAIN, EXTRA):
            start, size = np.int64(heads[h, block + START]), heads[h, block + SIZE]
            heads[h, block + SIZE] = _purge_block(start, size, moved, bits, entries)
        if segments > 0 and heads[h, SHIFT] > 0:
            _fill_directory(h, directories, key)


@phase
def _purge_block(start, size, moved, bits, entries):
    """Keeps the entries whose slots went somewhere; how many they are."""
    pointer, below = entries.pointer, np.int32((1 << bits) - 1)
    to = start
    for p in range(start, start + size):
        s = moved[pointer[p] >> bits]
        if s >= 0:
            clause = pointer[p] & below
            _copy_entry(to, p, entries)
            pointer[to] = (s << bits) | clause
            to += 1
    if len(entries.far) > 0:
        _relink(start, start, to, entries)
    return to - start
