"""How the arrays of records are laid out (index.auto.records says what each holds): constants, and the groups in which
kernels get them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.kernels import Slots

COARSE = 1 << 16  # coarse cells are below it
LINE, LINES = 8, 16  # words of a cache line, and lines of a group that are prefetched
EARLY, SOON = 24, 8  # so many entries before its turn, where a group stands is prefetched, and the group
VERIFY, PROGRAM = 1, 2  # flags of a header
# Parts of words: attribute or row << HIGH | lo or flags << MIDDLE | width or n, in the bits of LOW.
HIGH, MIDDLE, LOW = np.uint64(32), np.uint64(16), np.uint64(0xFFFF)
FLAGS, ONE = np.uint64(VERIFY | PROGRAM), np.uint64(1)


class RecordArrays(NamedTuple):
    """See index.auto.records."""

    words: NDArray[np.uint64]
    start: NDArray[np.int64]
    count: NDArray[np.int32]  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    shift: NDArray[np.uint8]
    cell_group: NDArray[np.int64]
    cell_end: NDArray[np.int32]
    filled: NDArray[np.uint8]  # bits: which groups have clauses. Not saved: made of `count`


class Facts(NamedTuple):
    """What lets a search leave something out."""

    points: bool  # of the events: see coding.batch
    inexact: bool  # some header has the flag VERIFY
    has_programs: bool


class WorkSpace(NamedTuple):
    """All zero between events, but the stamps."""

    slots: Slots
    coarse: NDArray[np.uint16]  # the event's coarse cell, by attribute
    stamps: NDArray[np.int32]  # by program, the last event that it was reported for; at the end, this event's
