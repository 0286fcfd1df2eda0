"""What the kernels of index.auto.vectors are handed, in named groups (see there for what the arrays mean)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.kernels import Slots
from dibs.jit.groups import Clean, Sized

LANES = (0,) * 8  # words of a line: the length of the tuple is a constant to the compiler
WORD = 64  # bits of a word
LINE = len(LANES) * WORD  # clauses of a line
MOST_SLOTS = 16  # of a group: predicates of a clause


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
    # By attribute: the segment of the event's value or, of several, how many are listed.
    here: Annotated[NDArray[np.int32], Clean("attributes")]
    # By attribute, from `segments` on: the segments of its values, if some has several.
    listed: Annotated[NDArray[np.int32], Sized("listed")]
    vector: Annotated[NDArray[np.int64], Sized(MOST_SLOTS)]  # by slot of a group: where its segment's vector begins
    summary: Annotated[NDArray[np.int64], Sized(MOST_SLOTS)]  # likewise, the word of its summary
    line: Annotated[NDArray[np.uint64], Sized(len(LANES))]  # what is left of a line


class VectorSizes(NamedTuple):
    """Of a VectorSpace."""

    attributes: int
    listed: int  # segments of all attributes
