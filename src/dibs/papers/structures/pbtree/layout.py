"""The pages of a PB+tree as kernels see them: how a page is laid out, how it is got at (see
pbtree.pbtree).

A kernel knows pages by their numbers. `fetch` says where in `store.frames` a page begins now, `touch` the same of a
page that will be changed. All pages may lie there, one after the other (`store.tags` is empty); or they lie in a
file, and the frames hold some of them: then what `fetch` said of the last WAYS pages still holds, of others it may not.

Frames are a cache as processors have it. A frame holds a block of 2 ** SHIFT pages; a block of the file can stand in
one of the WAYS frames of its set, where it takes the place of the one that was not asked for the longest. So there is
no table that grows with the file, and of the last WAYS pages asked for none is given up, whatever they are.
A page that cannot be read or written is an OSError, out of the kernel at once.

A page is `size` int32:
    head     COUNT of items; PREVIOUS and NEXT page of its level or list, or -1; of a list page how many ROWS it has,
             and its FENCE (tree, cell): the key at which it begins, in its list
    items    from HEAD on, in the order of their keys, each of so many int32:
             inner page  INNER  tree, cell, child: the page whose keys begin there
             leaf page   LEAF   tree, cell, the page where each of the four lists is entered, and USES: how many entries
                                have this key
             list page   ITEM   tree, cell, end: of its SidSet among the rows of the page
    rows     of a list page, from the end of the page backwards: the SidSets, one after the other
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dibs.jit.kernel import kernel, phase

LISTS = 4
EQUAL, GREATER, LESS, UNEQUAL = range(LISTS)
COUNT, PREVIOUS, NEXT, ROWS, FENCE = range(5)
HEAD = FENCE + 2
VALUE = 2  # of an item, behind its key: the child, the end of its SidSet, the first of its pointers
USES = VALUE + LISTS
INNER, LEAF, ITEM = VALUE + 1, USES + 1, VALUE + 1  # int32 of an item
LEAST = -1 << 32  # below all keys: that of the first item and the first page of each list
CELLS = (1 << 32) - 1  # a key is tree << 32 | cell
NONE = -1

SHIFT = 2  # 2 ** 2 pages are a block
WAYS = 8
TICK, READS, FILE, START = range(4)  # of Store.state. START: bytes of the file before its pages
# Of the tree's own state. USED: pages ever taken; FREE: the first of those given back, linked by NEXT; FREED: how many.
ROOT, HEIGHT, KEYS, ADJUSTED, USED, FREE, FREED, STATE = range(8)

_pread = types.ExternalFunction("pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))
_pwrite = types.ExternalFunction("pwrite", types.intp(types.int32, types.uintp, types.uintp, types.int64))


class Store(NamedTuple):
    frames: NDArray[np.int32]
    tags: NDArray[np.int32]  # by frame: the block that is there, or -1; empty: all pages are there
    stamps: NDArray[np.int64]  # by frame: when it was last asked for
    dirty: NDArray[np.uint8]  # by frame: whether it is to be written
    state: NDArray[np.int64]
    size: int  # of a page, in int32


class Sought(NamedTuple):
    """Keys that are sought together; in a pool no more than there are WAYS, so that none of their pages is given up."""

    at: NDArray[np.int64]  # where the page begins that each is sought in
    key: NDArray[np.int64]
    place: NDArray[np.int64]  # how many keys of the page are below


def capacity(size: int, width: int) -> int:
    """How many items of so many int32 a page holds."""
    return (size - HEAD) // width


# ---- the cache ----


@phase(inline=False)
def write_back(store, frame):
    bytes_a_frame = store.size << (SHIFT + 2)
    at = np.uint64(store.frames.ctypes.data) + np.uint64(frame * bytes_a_frame)
    start = store.state[START] + store.tags[frame] * np.int64(bytes_a_frame)
    if _pwrite(np.int32(store.state[FILE]), at, np.uint64(bytes_a_frame), start) != bytes_a_frame:
        raise OSError("a page cannot be written")
    store.dirty[frame] = 0


@phase(inline=False)
def _read(store, page, first):
    """The frame of the set that begins with frame `first` into which the block of the page was read."""
    oldest = first
    for frame in range(first + 1, first + WAYS):
        if store.stamps[frame] < store.stamps[oldest]:
            oldest = frame
    if store.dirty[oldest]:
        write_back(store, oldest)
    block = page >> SHIFT
    bytes_a_frame = store.size << (SHIFT + 2)
    at = np.uint64(store.frames.ctypes.data) + np.uint64(oldest * bytes_a_frame)
    start = store.state[START] + block * np.int64(bytes_a_frame)
    store.tags[oldest] = -1
    got = _pread(np.int32(store.state[FILE]), at, np.uint64(bytes_a_frame), start)
    if got < ((page - (block << SHIFT)) + 1) * store.size * 4:
        raise OSError("a page cannot be read")
    store.tags[oldest] = block
    store.state[READS] += 1
    return oldest


@phase(inline=False)
def _frame(store, page):
    block = page >> SHIFT
    spread = np.uint64(block) * np.uint64(2654435769) & np.uint64(CELLS)  # neighbours far from each other
    first = np.int64(spread * np.uint64(len(store.tags) // WAYS) >> np.uint64(32)) * WAYS
    found = np.int64(-1)
    for frame in range(first, first + WAYS):
        if store.tags[frame] == block:
            found = frame
    if found < 0:
        found = _read(store, page, first)
    store.state[TICK] += 1
    store.stamps[found] = store.state[TICK]
    return found


@phase
def fetch(store, page):
    """Where the page begins in the frames."""
    if len(store.tags) == 0:
        return np.int64(page) * store.size
    return (_frame(store, page) << SHIFT | page & ((1 << SHIFT) - 1)) * store.size


@phase
def touch(store, page):
    """The same of a page that will be changed before WAYS others are asked for."""
    at = fetch(store, page)
    if len(store.tags):
        store.dirty[at // (store.size << SHIFT)] = 1
    return at


@kernel
def flush(store):
    for frame in range(len(store.tags)):
        if store.dirty[frame]:
            write_back(store, frame)


# ---- what a page says; `at` is where it begins ----


@phase
def key_of(frames, at, i, width):
    """The key of item i."""
    item = at + HEAD + i * width
    return np.int64(frames[item]) << 32 | np.int64(frames[item + 1])


@phase
def set_key(frames, at, i, width, key):
    item = at + HEAD + i * width
    frames[item], frames[item + 1] = key >> 32, key & CELLS


@phase
def fence_of(frames, at):
    return np.int64(frames[at + FENCE]) << 32 | np.int64(frames[at + FENCE + 1])


@phase
def value_of(frames, at, i, width, which):
    """The child of an inner item, the end of a SidSet, a pointer or the uses of a leaf item."""
    return np.int64(frames[at + HEAD + i * width + which])


@phase
def start_of(frames, at, i):
    """Where among the rows of a list page the SidSet of item i begins."""
    return np.int64(frames[at + HEAD + i * ITEM - ITEM + VALUE]) if i > 0 else np.int64(0)


@phase
def below(frames, at, width, key):
    """How many keys of the page are below `key`."""
    low, left = np.int64(0), np.int64(frames[at + COUNT])
    while left > 0:
        half = left >> 1
        smaller = key_of(frames, at, low + half, width) < key
        low = low + half + 1 if smaller else low
        left = left - half - 1 if smaller else half
    return low


@phase(inline=False)
def all_below(frames, where, width, most):
    """The same of several pages, `most`: which hold so many keys at most. All searches go on together, a step each, so
    that the memory is asked for many pages at once instead of for one after the other."""
    step = np.int64(1)
    while 2 * step <= most:
        step *= 2
    where.place[:] = 0
    while step > 0:
        for i in range(len(where.at)):
            at, to = where.at[i], where.place[i] + step
            size = np.int64(frames[at + COUNT])
            smaller = key_of(frames, at, min(to, size) - 1, width) < where.key[i]
            where.place[i] = to if (to <= size) & smaller else where.place[i]
        step >>= 1


@phase
def used_words(frames, at):
    """The int32 that a list page has in use behind its head."""
    return np.int64(frames[at + COUNT]) * ITEM + frames[at + ROWS]


def no_store(size: int) -> tuple[Any, ...]:
    """Tags, stamps, dirty, state and size of a store that holds all pages."""
    return np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.uint8), np.zeros(START + 1, np.int64), size
