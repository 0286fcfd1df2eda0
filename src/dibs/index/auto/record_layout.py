"""How the arrays of records are laid out (index.auto.records says what each holds): constants, and the groups in which
kernels get them."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.kernels import Slots
from dibs.jit.groups import Clean, Saved, Sized
from dibs.tuning import tuned

# bucket loads wait together; one by one they are four loads in a row
BUCKETS_AT_ONCE = tuned("buckets_at_once", 64, 1, "buckets", "of events, listed before what stands in them is read")
GUARDS_AT_ONCE = tuned("guards_at_once", 1_024, 1, "guards", "that hold before the records of their clauses are read")

COARSE = 1 << 16  # coarse cells are below it
SEVERAL = np.uint64(COARSE - 1)  # instead of the coarse cell of an attribute that has several, or a range: tests pass
LINE, LINES = 8, 16  # words of a cache line, and lines of a group that are prefetched
SOON = 8  # so many values before its turn, a group is prefetched
WINDOW = 64  # events whose buckets are listed at once, at most
FAR = 1 << 14  # guards that do not fit into the near caches: they are prefetched
SEARCHED = 4  # values of an event for each guard that is tested without laying it out
LATER = 6  # survivors whose records are prefetched
GROUP, FEWEST = np.uint8(128), np.uint8(127)  # parts of `filled`
VERIFY, PROGRAM = 1, 2  # flags of a header
# Parts of words: attribute or row << HIGH | lo or flags << MIDDLE | width or n, in the bits of LOW.
HIGH, MIDDLE, LOW = np.uint64(32), np.uint64(16), np.uint64(0xFFFF)
FLAGS, ONE = np.uint64(VERIFY | PROGRAM), np.uint64(1)
SAID = np.uint64(0xFFFFFFFF)  # of a header: flags and tests


class RecordArrays(NamedTuple):
    """See index.auto.records."""

    words: NDArray[np.uint64]
    start: NDArray[np.int64]
    count: NDArray[np.int32]  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    shift: NDArray[np.uint8]
    rungs: NDArray[np.int32]
    rung_shift: NDArray[np.uint8]
    rung_bucket: NDArray[np.int64]
    rung_end: NDArray[np.int32]
    guards: NDArray[np.uint32]
    guard: NDArray[np.uint64]
    place: NDArray[np.uint32]
    # by attribute: what is filed under it needs so many attributes, at least; 0: nothing is. With GROUP it has a group.
    # Made of `fewest` and `count`
    filled: Annotated[NDArray[np.uint8], Saved(None)]
    filled_bucket: Annotated[NDArray[np.uint8], Saved(None)]  # bits: which buckets have guards; made of `guards`


class Facts(NamedTuple):
    """What lets a search leave something out."""

    points: bool  # of the events: see coding.batch
    inexact: bool  # some header has the flag VERIFY


class WorkSpace(NamedTuple):
    """All zero between events, but the stamps, the survivors and the buckets."""

    slots: Slots
    coarse: Annotated[NDArray[np.uint16], Clean("attributes")]  # the event's coarse cell, by attribute
    # By row, the last event that it was reported for, if it may be met twice; at the end, this event's.
    stamps: Annotated[NDArray[np.int32], Clean("stamps")]
    survivors: Annotated[NDArray[np.uint32], Sized("guards")]  # that hold
    buckets: Annotated[NDArray[np.uint32], Sized("buckets")]  # in which values of the next events lie
    # Where those of each event begin, and where the last ones end.
    bucket_start: Annotated[NDArray[np.uint32], Sized(WINDOW + 1)]


class WorkSizes(NamedTuple):
    """Of a WorkSpace."""

    attributes: int
    stamps: int
    guards: int
    buckets: int

    @classmethod
    def of(cls, attributes: int, rows: int, rungs: int) -> WorkSizes:
        return cls(attributes, rows + 1, GUARDS_AT_ONCE.value, rungs + BUCKETS_AT_ONCE.value)
