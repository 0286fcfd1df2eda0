"""The arrays of the PS-Tree family in named groups, and the names of their columns.

A match is called for every event, maybe, and a call from Python takes a plain tuple a microsecond sooner than a named
one: a match gets its groups as plain tuples and names them first of all.

What the arrays mean and which invariants they keep is said in pstree.forest (trees and spaces), .rows (the
subscriptions) and .chunks (lists).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.papers.structures.pstree.chunks import Chunks

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
