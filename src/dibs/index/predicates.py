"""The distinct predicates of clauses, for structures that evaluate each of them once however many rows have it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.jit.hashing import number_pairs, number_slices


def distinct(clauses: Clauses) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A number for each predicate of the clauses, equal for equal ones, in order of their first occurrence; and the
    place of that occurrence."""
    lo, hi = clauses.lo.astype(np.int64), clauses.hi.astype(np.int64)
    several = np.flatnonzero(hi < 0)
    spans = (clauses.span_lo.astype(np.int64) << 32) | clauses.span_hi
    lo[several], _ = number_slices(spans, lo[several], -hi[several])
    # The low half tells lists of spans (negative) from single spans, and lists of different lengths.
    return number_pairs(clauses.attribute.astype(np.int64), (lo << 32) | (hi & 0xFFFFFFFF))
