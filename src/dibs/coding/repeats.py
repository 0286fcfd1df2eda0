"""Clauses that several rows have: which they are, and where those rows are.

Many subscribers save the same search. A segment in which that is so has each clause once, with its test that is made
last, and its rows in the order of their clauses: clause k is that of the rows [first[k], first[k + 1]). So an index
sees distinct clauses and knows nothing of rows, and what it finds is spread over them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.coding.computed.residuals import Residuals
from dibs.coding.repeat_kernels import Rows, find_firsts, hash_rows, spread
from dibs.jit.hashing import number_slices
from dibs.jit.sorting import order_hashes

MOST_DISTINCT = 0.7  # as a share of the rows: with more, distinct ones save too little
SAMPLED = 1 << 14  # rows: where none of them is repeated, no others are looked at
SPREAD_AT_ONCE = 1 << 17  # pairs for a sink

Chunk = tuple[NDArray[np.int32], NDArray[np.int32]]  # event, and clause or row
Sink = Callable[[NDArray[np.int32], NDArray[np.int32]], None]


@dataclass(eq=False)
class RowRuns:
    """What several rows have that stand together: number k those of [first[k], first[k + 1])."""

    first: NDArray[np.int32]  # rises; one more than there are numbers

    def __len__(self) -> int:
        return len(self.first) - 1

    def at(self, rows: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.int64]:
        """The number of each row."""
        return np.searchsorted(self.first, rows, side="right") - 1

    def spread(self, chunk: Chunk) -> Chunk:
        """The pairs of events and rows, of those of events and numbers."""
        event, number = chunk
        total = int(np.diff(self.first)[number].sum()) if len(number) else 0
        found = np.empty(total, np.int32), np.empty(total, np.int32)
        spread(self.first, event, number, np.zeros(2, np.int64), *found)
        return found


class Spreading:
    """A sink for pairs of events and numbers, which gives those of events and rows to another one."""

    def __init__(self, runs: RowRuns, sink: Sink):
        self._runs = runs
        self._sink = sink
        self._lock = threading.Lock()
        self.count = 0  # of those that it gave

    def __call__(self, event: NDArray[np.int32], number: NDArray[np.int32]) -> None:
        room = np.empty(SPREAD_AT_ONCE, np.int32), np.empty(SPREAD_AT_ONCE, np.int32)
        at = np.zeros(2, np.int64)
        while True:
            found = spread(self._runs.first, event, number, at, *room)
            if not found:
                return
            with self._lock:
                self.count += found
            self._sink(room[0][:found], room[1][:found])


def find_repeats(clauses: Clauses, residuals: Residuals | None) -> NDArray[np.int32] | None:
    """For each row the first one with its clause and its tests; None: most rows have one of their own."""
    of_row, number = _number_tests(residuals, len(clauses))
    arrays = {name: getattr(clauses, name) for name in Clauses.ARRAYS}
    rows = Rows(**arrays, conjunctions=clauses.conjunctions, tests=of_row, test=number)
    if len(clauses) > SAMPLED:
        some = np.unique(np.random.default_rng(0).integers(0, len(clauses), SAMPLED))
        if len(np.unique(hash_rows(rows, some))) == len(some):
            return None
    hashes = hash_rows(rows, np.arange(len(clauses)))
    ordered, places, is_done = order_hashes(hashes)
    if not is_done:  # many hashes begin alike: there are few clauses
        places = np.argsort(hashes, kind="stable").astype(np.int32)
        ordered = hashes[places]
    first: NDArray[np.int32] = find_firsts(rows, ordered, places)
    distinct = int((first == np.arange(len(first))).sum())
    return None if distinct > MOST_DISTINCT * len(first) else first


def _number_tests(residuals: Residuals | None, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the tests that each row has: those of row r are number[first[r] : first[r + 1]]. Tests of one
    number say the same."""
    if residuals is None:
        return np.zeros(rows + 1, np.int64), np.empty(0, np.int64)
    own = residuals
    number = np.empty(len(own), np.int64)
    used = 0
    for form, (start, end) in enumerate(zip(own.offsets.tolist(), own.offsets[1:].tolist())):
        columns = [getattr(own, name)[start:end] for name in ("low", "low_rest", "high", "high_rest", "flags")]
        values = slice(*own.first_value[form : form + 2].tolist())
        columns += [getattr(own, name)[values].reshape(end - start, -1) for name in ("number", "integer", "whole")]
        said = np.hstack([np.ascontiguousarray(c).view(np.uint8).reshape(end - start, -1) for c in columns])
        size = np.full(end - start, said.shape[1], np.int32)
        of_form, firsts = number_slices(said.ravel(), np.arange(end - start) * said.shape[1], size)
        number[start:end] = used + of_form
        used += len(firsts)
    first = np.append(0, np.cumsum(np.bincount(own.row, minlength=rows)))
    return first, number[np.argsort(own.row, kind="stable")]
