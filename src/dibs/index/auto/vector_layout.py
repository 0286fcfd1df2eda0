"""What the kernels of index.auto.vectors are handed, in named groups (see there for what the arrays mean)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.kernels import Slots

LANES = (0,) * 8  # words of a line: the length of the tuple is a constant to the compiler
WORD = 64  # bits of a word
LINE = len(LANES) * WORD  # clauses of a line


class VectorArrays(NamedTuple):
    segment: NDArray[np.int32]
    cells: NDArray[np.int64]
    segments: NDArray[np.int64]
    groups_of: NDArray[np.int32]
    slots: NDArray[np.int32]
    slot_attribute: NDArray[np.int32]
    slot_vector: NDArray[np.int64]
    slot_summary: NDArray[np.int64]
    lines: NDArray[np.int32]
    start: NDArray[np.int64]
    row: NDArray[np.int32]
    exact: NDArray[np.uint8]
    vectors: NDArray[np.uint64]
    summaries: NDArray[np.uint64]


class VectorSpace(NamedTuple):
    """`slots` and `here` are all zero between events."""

    slots: Slots  # filled only if some group is inexact: for what is verified
    here: NDArray[np.int32]  # by attribute: the segment of the event's value or, of several, how many are listed
    listed: NDArray[np.int32]  # by attribute, from `segments` on: the segments of its values, if some has several
    vector: NDArray[np.int64]  # by slot of a group: the line where the vector of its segment begins
    summary: NDArray[np.int64]  # likewise, the word of its summary
    line: NDArray[np.uint64]  # what is left of a line
