"""The arrays of the PS-Tree family in named groups, the names of their columns, and pools of lists.

A match is called for every event, maybe, and a call from Python takes a plain tuple a microsecond sooner than a named
one: a match gets its groups as plain tuples and names them first of all.

What the arrays mean and which invariants they keep is said in pstree.forest (trees and spaces), .rows (the
subscriptions).

A pool is many lists that grow and shrink in one array. Each is in one chunk of it, so that reading a list is a run of
memory. Sizes of chunks are 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ...: four for each doubling, so at most a
quarter of a chunk is unused and a list that grows by one moves seldom.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.base import refuse_too_many
from dibs.jit.kernel import phase
from dibs.papers.structures.growing import grow_array

BITS = 4  # of an element
FANOUT = 1 << BITS
MOST_LEVELS = 8
HIGHEST = 0x7FFFFFFF  # the last value of every domain
LOW = 0xFFFFFFFF  # the lower half of a 64-bit word

START, NEXT, BEFORE, PREDICATE_COUNTER, EDGES, AT, SIZE, ROOM, LEAF = range(9)  # columns of a leaf, and how many
ROOT, LEVELS, FIRST, LAST, TREE = range(5)  # columns of a tree, and how many
ATTRIBUTE, LO, HI, ROW, PREDICATE = range(5)  # columns of a predicate, and how many
NODES_MADE, FREE_NODE, LEAVES_MADE, FREE_LEAF, PARTIAL, EVENTS, STATE = range(7)  # numbers of the state, and how many

ENTRY = 4  # columns of an entry in the list of a space
CODE = np.uint64(0)  # the first one, for all structures


class Links(NamedTuple):
    """What a look-up reads."""

    tree: NDArray[np.int32]  # (attributes, TREE)
    node: NDArray[np.int32]  # (nodes, FANOUT): >= 0 is a leaf, ~n < 0 an inner node
    leaf: NDArray[np.int32]  # (leaves, LEAF)


class Trees(NamedTuple):
    """What partitions and merges change."""

    links: Links
    inside: NDArray[np.int32]  # nodes: boundaries inside the node's range
    seen: NDArray[np.int64]  # leaves: event counter
    lists: Chunks  # of the spaces
    state: NDArray[np.int64]  # STATE


class SpaceLists(NamedTuple):
    """A list for each space."""

    place: NDArray[np.int32]  # Links.leaf, or an array with its columns AT, SIZE and ROOM
    chunks: Chunks


class ListArrays(NamedTuple):
    """The lists of the spaces as a match reads them."""

    place: NDArray[np.int32]  # Links.leaf
    entry: NDArray[np.int32]  # (entries, ENTRY)


class RowArrays(NamedTuple):
    """The subscriptions."""

    offsets: NDArray[np.int64]  # rows + 1
    predicate: NDArray[np.int32]  # (predicates, PREDICATE)
    span: NDArray[np.int32]  # (spans, 2): lo, hi


class Boundaries(NamedTuple):
    """Where predicates begin or have just ended."""

    key: NDArray[np.int64]  # attribute << 32 | value; ascending, no two are equal
    predicates: NDArray[np.int64]  # how many that begin or end there


class EventSpaces(NamedTuple):
    """Events of points, with the space of each value."""

    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    value: NDArray[np.int32]
    space: NDArray[np.int32]  # a leaf; written by find_spaces


class WaitingCandidates(NamedTuple):
    """An event, and its candidates that wait to be verified."""

    slot: NDArray[np.int32]  # attributes: the event's value, 0 where it has none
    code: NDArray[np.int32]  # a block of candidates, and a place for the one that is none
    tally: NDArray[np.int64]  # what the event has cost so far, by the names of progress (see index.groups)


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
