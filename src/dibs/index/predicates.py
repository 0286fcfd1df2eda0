"""The distinct predicates of clauses, for structures that evaluate each of them once however many rows have it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.jit.kernel import kernel
from dibs.jit.sorting import number_pairs


def distinct(clauses: Clauses) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A number for each predicate of the clauses, equal for equal ones, in order of their first occurrence; and the
    place of that occurrence."""
    lo, hi = clauses.lo.astype(np.int64), clauses.hi.astype(np.int64)
    several = np.flatnonzero(hi < 0)
    lo[several] = _number_lists(lo[several], -hi[several], clauses.span_lo, clauses.span_hi)
    # The low half tells lists of spans (negative) from single spans, and lists of different lengths.
    return number_pairs(clauses.attribute.astype(np.int64), (lo << 32) | (hi & 0xFFFFFFFF))


@kernel
def _number_lists(start, size, span_lo, span_hi):
    """A number for each list of spans start[i] : start[i] + size[i], equal for equal lists."""
    room = 16
    while room < 2 * len(start):
        room *= 2
    slots = np.zeros(room, np.int32)  # 1 + number of a distinct list
    mask = np.uint64(room - 1)
    number, first = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    n = 0
    for i in range(len(start)):
        h = np.uint64(size[i])
        for s in range(start[i], start[i] + size[i]):
            h = (h ^ np.uint64(span_lo[s])) * np.uint64(0x9E3779B97F4A7C15)
            h = (h ^ np.uint64(span_hi[s])) * np.uint64(0xC2B2AE3D27D4EB4F)
            h ^= h >> np.uint64(29)
        at = (h * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(20)) & mask
        while True:
            known = slots[at]
            if known == 0:
                first[n] = i
                n += 1
                slots[at] = n
                number[i] = n - 1
                break
            j = first[known - 1]
            same = size[j] == size[i]
            s, t, end = start[i], start[j], start[i] + size[i]
            while same and s < end:
                same = span_lo[s] == span_lo[t] and span_hi[s] == span_hi[t]
                s += 1
                t += 1
            if same:
                number[i] = known - 1
                break
            at = (at + np.uint64(1)) & mask
    return number
