"""Many lists that grow and shrink in one array. Each is in one chunk of it, so that reading a list is a run of memory.

A pool is an array of shape (entries, width) and `free`, an int64 array of POOL numbers: for each size of chunks the
first free one (-1: none; a free chunk holds the next one of its size in its first item), how many entries were ever
handed out (USED), and for how many there was no room (WANTED). Sizes are 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20,
...: four for each doubling, so at most a quarter of a chunk is unused and a list that grows by one moves seldom.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.index.growing import grown
from dibs.jit.kernel import kernel

USED, WANTED, POOL = 128, 129, 130


def empty_pool(width: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    free = np.full(POOL, -1, np.int64)
    free[USED] = free[WANTED] = 0
    return np.zeros((0, width), np.int32), free


def with_room(pool: NDArray[np.int32], free: NDArray[np.int64]) -> NDArray[np.int32]:
    """The pool with room for what was wanted."""
    return grown(pool, int(free[USED] + free[WANTED]))


def chunk_sizes(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """`chunk_size` of many lists."""
    shift = np.maximum(np.ceil(np.log2(np.maximum(sizes, 1) / 8.0)), 0).astype(np.int64)
    return -(-sizes.astype(np.int64) >> shift) << shift


@kernel
def chunk_size(n):
    """The size of the chunk for a list of n > 0 entries."""
    shift = 0
    while (n - 1) >> shift > 7:
        shift += 1
    return (((n - 1) >> shift) + 1) << shift


@kernel
def _kind(n):
    shift = 0
    while (n - 1) >> shift > 7:
        shift += 1
    return 4 * shift + ((n - 1) >> shift)


@kernel
def take(n, pool, free):
    """Where there is a chunk for n > 0 entries; -1 when the pool has to grow first."""
    kind, size = _kind(n), chunk_size(n)
    at = free[kind]
    if at >= 0:
        free[kind] = pool[at, 0]
        return at
    at = free[USED]
    if at + size > len(pool):
        free[WANTED] = size
        return np.int64(-1)
    free[USED] += size
    return at


@kernel
def give_back(at, n, pool, free):
    """The chunk of a list of n > 0 entries is free again."""
    kind = _kind(n)
    pool[at, 0] = free[kind]
    free[kind] = at
