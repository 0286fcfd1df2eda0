"""The ways of a single event to the rows of an index: what segments.single hands to its compiled call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dibs.index.auto.planner import OneByOne
    from dibs.index.auto.records import Records


class ForSingles(NamedTuple):
    """Each row is in one of them."""

    records: Records | None
    bits: OneByOne | None
    scanned: NDArray[np.int32]  # rows that are tested one by one
