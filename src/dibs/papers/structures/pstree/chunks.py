"""Many lists that grow and shrink in one array. Each is in one chunk of it, so that reading a list is a run of memory.

Sizes of chunks are 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ...: four for each doubling, so at most a quarter of a
chunk is unused and a list that grows by one moves seldom.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.base import refuse_too_many
from dibs.jit.kernel import phase
from dibs.papers.structures.growing import grow_array

USED, WANTED, POOL = 128, 129, 130


class Chunks(NamedTuple):
    """A pool of chunks."""

    entry: NDArray[np.int32]  # (entries, width); a free chunk holds the next one of its size in its first item
    # POOL numbers: for each size the first free chunk (-1: none), how many entries were ever handed out (USED), and for
    # how many there was no room (WANTED).
    free: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return self.entry.nbytes + self.free.nbytes

    @property
    def used(self) -> int:
        return int(self.free[USED])


def empty_pool(width: int) -> Chunks:
    free = np.full(POOL, -1, np.int64)
    free[USED] = free[WANTED] = 0
    return Chunks(np.zeros((0, width), np.int32), free)


def with_room(chunks: Chunks) -> Chunks:
    """The pool with room for what was wanted."""
    return with_more(chunks, int(chunks.free[WANTED]))


def with_more(chunks: Chunks, entries: int) -> Chunks:
    """The pool with room for so many entries more."""
    refuse_too_many("pstree", chunks.used + entries, "entries of its lists")
    return Chunks(grow_array(chunks.entry, chunks.used + entries), chunks.free)


def chunk_sizes(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """`chunk_size` of many lists."""
    shift = np.maximum(np.ceil(np.log2(np.maximum(sizes, 1) / 8.0)), 0).astype(np.int64)
    return -(-sizes.astype(np.int64) >> shift) << shift


@phase
def chunk_size(n):
    """The size of the chunk for a list of n > 0 entries."""
    shift = 0
    while (n - 1) >> shift > 7:
        shift += 1
    return (((n - 1) >> shift) + 1) << shift


@phase
def _kind(n):
    shift = 0
    while (n - 1) >> shift > 7:
        shift += 1
    return 4 * shift + ((n - 1) >> shift)


@phase
def take(n, chunks):
    """Where there is a chunk for n > 0 entries; -1 when the pool has to grow first."""
    free = chunks.free
    kind, size = _kind(n), chunk_size(n)
    at = free[kind]
    if at >= 0:
        free[kind] = chunks.entry[at, 0]
        return at
    at = free[USED]
    if at + size > len(chunks.entry):
        free[WANTED] = size
        return np.int64(-1)
    free[USED] += size
    return at


@phase
def give_back(at, n, chunks):
    """The chunk of a list of n > 0 entries is free again."""
    kind = _kind(n)
    chunks.entry[at, 0] = chunks.free[kind]
    chunks.free[kind] = at


@phase
def copy_entries(to, start, n, chunks):
    """The n entries from `start` on also stand from `to` on."""
    entry = chunks.entry
    for i in range(n):
        for column in range(entry.shape[1]):
            entry[to + i, column] = entry[start + i, column]
