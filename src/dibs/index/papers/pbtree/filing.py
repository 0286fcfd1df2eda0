"""What a PB+tree files where, in memory (index.pbtree_memory) and in pages on disk (index.pbtree): from clauses to
entries, and what both keep beside their pages.

An entry is (operator, key, row): subscription `row` has a predicate of this operator with the constant `key`, which is
tree << 32 | cell; trees 2a and 2a + 1 are those of attribute a.

    = <= >= <>      one entry
    BETWEEN         two: >= lo and <= hi
    IN, NOT IN ...  `=` for a single cell, two for each range. The ranges of a predicate are disjoint, so a value meets
                    one of >= lo and <= hi of every range, and both only of the range that it is in: the predicate holds
                    when it meets (ranges + 1) entries, and it never meets more. A range that begins at the floor or
                    ends at the ceiling of its attribute needs only its other half.

Tree 2a + 1 is for what does not lie within the limits of attribute a because it came after they were taken; nothing
there relies on them. When a quarter of all entries is such, all pages are made anew by limits that fit.

Arrays:
    floor, ceiling  int32  attributes   the limits of index.operators by which predicates were filed
    filed    int32  2 * attributes, 4   how many entries each tree has in each list
    need     uint8  rows                how many entries an event must meet; 127: the row was deleted
    verify   uint8  rows                whether it is then tested on the clause itself
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.index.growing import GrowingClauses, grown
from dibs.index.operators import NE, limits, operators
from dibs.index.papers.counters import AT_ONCE

LISTS = 4
EQUAL, GREATER, LESS, UNEQUAL = range(LISTS)
MOST_RANGES = 16  # a predicate of more ranges is filed as its hull and verified
GONE = 127  # what a row that was deleted needs
TOUCHED = 128  # set in a counter that was counted down
MOST_PARTS = GONE - 1  # counters are bytes; a row whose predicates have more parts is verified
CELLS = (1 << 32) - 1  # a key is tree << 32 | cell
FEW = 64  # entries outside the limits that are never worth making all pages anew


@njit(cache=True, nogil=True)
def entries(offsets, attribute, lo, hi, span_lo, span_hi, code, floor, ceiling, row):  # type: ignore[no-untyped-def]
    """The entries (operator, key, row) of clauses that are numbered `row`; for each clause how many of them an event
    must meet, and whether it is to be verified then."""
    most = 0
    for p in range(len(attribute)):
        most += 2 if hi[p] >= 0 else -2 * hi[p]
    operator, key, owner = np.empty(most, np.uint8), np.empty(most, np.int64), np.empty(most, np.int32)
    need, verify = np.zeros(len(row), np.uint8), np.zeros(len(row), np.uint8)
    n = 0
    for r in range(len(row)):
        parts, start = 0, n
        for p in range(offsets[r], offsets[r + 1]):
            a = attribute[p]
            first, last, ranges = np.int64(0), np.int64(1), 0
            low, high = lo[p], hi[p]
            if hi[p] < 0:
                first, last = np.int64(lo[p]), np.int64(lo[p] - hi[p])
                low, high = span_lo[first], span_hi[last - 1]
                for s in range(first, last):
                    ranges += span_lo[s] < span_hi[s]
            if parts + min(ranges, MOST_RANGES) + 2 > MOST_PARTS:
                verify[r] = 1
                break
            several = hi[p] < 0
            if ranges > MOST_RANGES:
                verify[r], several, first, last = 1, False, 0, 1
            away = low < high and (low < floor[a] or high > ceiling[a])
            tree = np.int64(2 * a + away) << 32
            if code[p] == NE and several:
                operator[n], key[n] = UNEQUAL, tree | (span_hi[first] + 1)
                parts += 1
                n += 1
                continue
            parts += 1
            for s in range(first, last):
                x, y = (span_lo[s], span_hi[s]) if several else (low, high)
                if x == y:
                    operator[n], key[n] = EQUAL, tree | x
                    n += 1
                    continue
                # Within the limits every value is at least the floor and at most the ceiling.
                above, below = away or x != floor[a], away or x == floor[a] or y != ceiling[a]
                parts += int(above) + int(below) - 1
                if above:
                    operator[n], key[n] = GREATER, tree | x
                    n += 1
                if below:
                    operator[n], key[n] = LESS, tree | y
                    n += 1
        need[r] = parts
        owner[start:n] = row[r]
    return operator[:n], key[:n], owner[:n], need, verify


class Filing:
    """What both kinds of PB+tree keep besides their pages."""

    SMALL_ARRAYS = ("floor", "ceiling", "filed", "need", "verify")

    def __init__(self, clauses: Clauses):
        self._growing = GrowingClauses(clauses)
        self._floor = self._ceiling = np.empty(0, np.int32)
        self._filed = np.empty((0, LISTS), np.int32)
        self._need = self._verify = np.empty(0, np.uint8)
        self._entries = self._outside = self._counters = 0
        self._rows, self._alive = len(clauses), 0  # rows that there ever were, and those that are there
        self._spaces: list[tuple[NDArray[np.uint8], NDArray[np.int32]]] = []  # work space of past calls, clean

    def _small_arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "floor": self._floor,
            "ceiling": self._ceiling,
            "filed": self._filed,
            "need": self._need[: self._rows],
            "verify": self._verify[: self._rows],
        }

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        own = (arrays[name] for name in self.SMALL_ARRAYS)
        self._floor, self._ceiling, self._filed, self._need, self._verify = own
        self._rows, self._alive = len(self._need), int(np.count_nonzero(self._need != GONE))
        self._make_room()
        self._entries, self._outside = int(self._filed.sum()), int(self._filed[1::2].sum())

    def _clear(self, clauses: Clauses) -> None:
        """Nothing is filed; limits are those of the clauses."""
        self._floor, self._ceiling = limits(clauses)
        self._filed = np.zeros((2 * clauses.attributes, LISTS), np.int32)
        self._entries = self._outside = self._alive = 0

    def _much_outside(self) -> bool:
        return 4 * self._outside > self._entries + FEW

    def _space(self) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """Work space for one thread: a copy of `need`, and room for hits, which are written one place ahead."""
        try:
            return self._spaces.pop()
        except IndexError:  # others have taken all
            return self._need[: self._counters].copy(), np.empty(self._counters + 1, np.int32)

    def _file(self, clauses: Clauses, rows: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """Operator, key and row of the entries of rows that are to be inserted, which are counted as filed."""
        operator, key, row, need, verify = self._entries_of(clauses, rows)
        self._count(operator, key, 1)
        self._alive += len(rows)
        self._set_need(rows, need, verify)
        return operator, key, row

    def _entries_of(self, clauses: Clauses, rows: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """Operator, key and row of the entries of the clauses, which are numbered `rows`; how many of them each needs,
        and which are to be verified."""
        c = clauses
        code = operators(c, self._floor, self._ceiling)
        columns = c.offsets, c.attribute, c.lo, c.hi, c.span_lo, c.span_hi
        found: tuple[NDArray[Any], ...] = entries(*columns, code, self._floor, self._ceiling, rows)
        return found

    def _count(self, operator: NDArray[np.uint8], key: NDArray[np.int64], change: int) -> None:
        np.add.at(self._filed.reshape(-1), (key >> 32) * LISTS + operator, change)
        self._entries += change * len(key)
        self._outside += change * int(np.count_nonzero(key >> 32 & 1))

    def _make_room(self) -> None:
        """Needs for all rows, and up to a multiple of 64 as of rows that were deleted."""
        size = -(-self._rows // AT_ONCE) * AT_ONCE
        self._need, self._verify = grown(self._need, size, GONE), grown(self._verify, size)
        if size > self._counters:
            self._counters, self._spaces = size, []

    def _set_need(self, rows: NDArray[np.int64], need: Any, verify: Any) -> None:
        self._need[rows], self._verify[rows] = need, verify
        for left, _ in self._spaces:
            left[rows] = need

    def _widen(self, clauses: Clauses) -> None:
        """Room for more attributes; those that had no limits take those of the clauses."""
        if clauses.attributes > len(self._floor):
            self._floor = grown(self._floor, clauses.attributes, 2**31 - 1)
            self._ceiling = grown(self._ceiling, clauses.attributes, -1)
            self._filed = grown(self._filed, 2 * len(self._floor))
        if (self._ceiling[clauses.attribute] >= 0).all():
            return
        own, attribute = np.unique(clauses.attribute, return_inverse=True)
        floor, ceiling = limits(replace(clauses, attribute=attribute.astype(np.int32), attributes=len(own)))
        free = self._ceiling[own] < 0
        self._floor[own[free]], self._ceiling[own[free]] = floor[free], ceiling[free]


def rows_of(c: Clauses, rows: NDArray[np.int64]) -> Clauses:
    """The clauses of some rows, in this order; they share the spans of all."""
    if len(rows) == len(c):
        return c
    sizes = c.offsets[rows + 1] - c.offsets[rows]
    predicates = runs(c.offsets[rows], sizes)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    attribute, lo, hi = c.attribute[predicates], c.lo[predicates], c.hi[predicates]
    return replace(c, offsets=offsets, attribute=attribute, lo=lo, hi=hi, conjunctions=len(rows))
