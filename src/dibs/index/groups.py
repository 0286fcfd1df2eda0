"""What kernels are handed, in named groups: NamedTuples of arrays, which cost nothing inside compiled code.

Each structure has a group of its own arrays besides; these are what all of them share.

Progress is an array of seven numbers, PROGRESS, that a kernel reads when it is called (where to go on) and writes when
it stops (see index.base.in_parts): `progress[PAIRS] = found`.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.jit.groups import Sized

PROGRESS = 7
NEXT_EVENT, NEXT_ROW, PAIRS, CANDIDATES, PREDICATES, OWN, NODES = range(PROGRESS)


class ClauseArrays(NamedTuple):
    """The coded clauses: see coding.clauses."""

    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    span_lo: NDArray[np.int32]
    span_hi: NDArray[np.int32]

    @classmethod
    def of(cls, clauses: Clauses) -> ClauseArrays:
        c = clauses
        return cls(c.offsets, c.attribute, c.lo, c.hi, c.span_lo, c.span_hi)


class EventArrays(NamedTuple):
    """The coded events: see coding.batch. Where all of them are points, hi is lo."""

    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]

    @classmethod
    def of(cls, events: CodedEvents) -> EventArrays:
        return cls(events.offsets, events.attribute, events.lo, events.hi)


class Room(NamedTuple):
    """Where a kernel writes the pairs that it finds. It stops before the one that does not fit."""

    event: Annotated[NDArray[np.int32], Sized("rows")]
    row: Annotated[NDArray[np.int32], Sized("rows")]
