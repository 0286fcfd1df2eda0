"""The arrays of OpIndex in named groups; opindex.blocks says what they mean."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class PredicateLists(NamedTuple):
    """The predicate lists of one of the pools NARROW and WIDE."""

    key: NDArray[np.int64]  # rank << 32 | operand, ascending in each block
    pointer: NDArray[np.int32]
    far: NDArray[np.int32]  # WIDE only; empty in the other pool, as is link
    link: NDArray[np.int32]


class NewEntries(NamedTuple):
    """Entries that are not in their lists yet."""

    list_of: NDArray[np.int32]  # LISTS x partition + operator
    key: NDArray[np.int64]
    pointer: NDArray[np.int32]
    far: NDArray[np.int32]  # WIDE only


class Directories(NamedTuple):
    """The heads of the lists, and the segments of their directories."""

    heads: NDArray[np.int32]  # lists x HEAD
    signature: NDArray[np.uint64]
    ends: NDArray[np.int32]
    width: int  # bits of a signature


class DirectorySizes(NamedTuple):
    """The paper's b and w."""

    segments: int  # of a directory, at most; 0: there are neither directories nor signatures
    width: int  # bits of a signature, up to those of a word


class NewUnits(NamedTuple):
    """Units and where they went."""

    first: NDArray[np.int64]  # predicate
    last: NDArray[np.int64]  # + 1
    partition: NDArray[np.int32]
    slot: NDArray[np.int32]


# ---- what a match reads; it is called with plain tuples, which takes half the time, and names them itself ----


class Partitions(NamedTuple):
    """The partitions with the heads of their lists, and what is known of attributes."""

    partition: NDArray[np.int32]  # by attribute, -1: it is no pivot
    floor: NDArray[np.int32]  # by attribute, see index.operators
    ceiling: NDArray[np.int32]
    parts: NDArray[np.int32]  # partitions x PART
    heads: NDArray[np.int32]  # lists x HEAD
    signature: NDArray[np.uint64]
    ends: NDArray[np.int32]
    need: NDArray[Any]
    owner: NDArray[np.int32]
    width: int  # bits of a signature


class AllEntries(NamedTuple):
    """Both pools of entries."""

    key: NDArray[np.int64]
    pointer: NDArray[np.int32]
    wide_key: NDArray[np.int64]
    wide_pointer: NDArray[np.int32]
    far: NDArray[np.int32]
    link: NDArray[np.int32]


class Points(NamedTuple):
    """Events of points."""

    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    value: NDArray[np.int32]


class PartitionSpace(NamedTuple):
    """Work space for the partition that has its turn; nothing in it has to be clean."""

    counter: NDArray[Any]  # its slots: the counter array of the paper
    hits: NDArray[np.int32]  # slots whose counter became zero, and a place for one that did not
    stamp: NDArray[np.int64]  # by row: the tick of the event that last matched it
    tick: NDArray[np.int64]  # one number: events so far


class Searches(NamedTuple):
    """Work space for an event: its attributes, and what to search in the partition that has its turn and the next."""

    base: NDArray[np.int64]  # by attribute of the event: the least key of it
    bits: NDArray[np.uint64]  # (2, attributes): its bit in signatures, of equality and of other operators
    pivots: NDArray[np.int64]  # the event's partitions
    where: NDArray[np.int64]  # (both halves, WHERE), see opindex.kernels
