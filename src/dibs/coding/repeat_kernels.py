"""Rows with equal clauses, and pairs of events and clauses spread over the rows that have these: see coding.repeats."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import kernel, phase


class Rows(NamedTuple):
    """Clauses (coding.clauses), and the numbers of the tests that are made last: those of row r are
    test[tests[r] : tests[r + 1]]."""

    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    span_lo: NDArray[np.int32]
    span_hi: NDArray[np.int32]
    on_true: NDArray[np.int32]
    on_false: NDArray[np.int32]
    conjunctions: int
    tests: NDArray[np.int64]
    test: NDArray[np.int64]


@phase
def _mix(h, x):
    h = (h ^ np.uint64(x)) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@kernel
def hash_rows(rows, chosen):
    """Of the chosen rows; rows with equal clauses and tests have the same."""
    result = np.empty(len(chosen), np.uint64)
    cut = rows.offsets[rows.conjunctions]
    for i in range(len(chosen)):
        r = np.int64(chosen[i])
        h = np.uint64(rows.offsets[r + 1] - rows.offsets[r]) + np.uint64(r >= rows.conjunctions)
        for p in range(rows.offsets[r], rows.offsets[r + 1]):
            h = _mix(h, rows.attribute[p])
            if rows.hi[p] >= 0:
                h = _mix(h, (np.int64(rows.lo[p]) << 32) + rows.hi[p])
            else:
                for s in range(rows.lo[p], np.int64(rows.lo[p]) - rows.hi[p]):
                    h = _mix(h, (np.int64(rows.span_lo[s]) << 32) + rows.span_hi[s])
            if p >= cut:  # ACCEPT and REJECT are -1 and -2
                h = _mix(h, (np.int64(rows.on_true[p - cut] + 2) << 32) + rows.on_false[p - cut] + 2)
        for t in range(rows.tests[r], rows.tests[r + 1]):
            h = _mix(h, rows.test[t])
        result[i] = _mix(_mix(h, 1), 2)
    return result


@kernel
def find_firsts(rows, hashes, places):
    """For each row the first one that is equal to it: places has the rows in the order of their hashes. Where somebody
    has made up different rows of one hash, some stand for themselves though they are repeated: no search grows long."""
    result = np.empty(len(places), np.int32)
    leader = 0
    for i in range(len(places)):
        if hashes[i] != hashes[leader]:
            leader = i
        r, first = np.int64(places[i]), np.int64(places[leader])
        result[r] = first if _are_equal(rows, r, first) else r
    return result


@phase(inline=False)
def _are_equal(rows, r, q):
    size, tests = rows.offsets[r + 1] - rows.offsets[r], rows.tests[r + 1] - rows.tests[r]
    if size != rows.offsets[q + 1] - rows.offsets[q] or tests != rows.tests[q + 1] - rows.tests[q]:
        return False
    is_program = r >= rows.conjunctions
    if is_program != (q >= rows.conjunctions):
        return False
    cut = rows.offsets[rows.conjunctions]
    for i in range(size):
        a, b = rows.offsets[r] + i, rows.offsets[q] + i
        if rows.attribute[a] != rows.attribute[b] or rows.hi[a] != rows.hi[b]:
            return False
        if rows.hi[a] >= 0:
            if rows.lo[a] != rows.lo[b]:
                return False
        else:
            for s in range(-np.int64(rows.hi[a])):
                x, y = rows.lo[a] + s, rows.lo[b] + s
                if rows.span_lo[x] != rows.span_lo[y] or rows.span_hi[x] != rows.span_hi[y]:
                    return False
        if is_program and (
            rows.on_true[a - cut] != rows.on_true[b - cut] or rows.on_false[a - cut] != rows.on_false[b - cut]
        ):
            return False
    same = 0
    for t in range(tests):
        same += rows.test[rows.tests[r] + t] == rows.test[rows.tests[q] + t]
    return same == tests


@kernel
def spread(first, event, number, at, to_event, to_row):
    """Pairs of an event and each row of its number, until the room is full: how many there are. at: the pair, and which
    of its rows is the next one; kept from call to call."""
    found, i, within = np.int64(0), at[0], at[1]
    while i < len(number) and found < len(to_row):
        start = first[number[i]] + within
        size = min(np.int64(first[number[i] + 1]) - start, len(to_row) - found)
        for k in range(size):
            to_event[found + k], to_row[found + k] = event[i], start + k
        found += size
        if start + size == first[number[i] + 1]:
            i, within = i + 1, np.int64(0)
        else:
            within += size
    at[0], at[1] = i, within
    return found
