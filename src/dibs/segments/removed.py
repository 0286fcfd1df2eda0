"""Which subscriptions of a segment are gone, and since when."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Pair = NDArray[np.int32]


class Removed:
    """Which rows of a segment are gone, and since when: a reader that started at version v still sees the rows that
    were removed later, so a replaced subscription is never missing."""

    NEVER = np.iinfo(np.int64).max

    def __init__(self, rows: int):
        self._rows = rows
        self._at: NDArray[np.int64] | None = None  # made at the first removal
        self._bits = np.empty(0, np.uint8)  # beside it: whether a row is gone at all; small enough for the cache
        self.count = 0

    def add(self, row: int, version: int) -> None:
        """The row, which is there, is gone from this version on."""
        self._made()[row] = version  # before the bit
        self._bits[row >> 3] |= np.uint8(1 << (row & 7))
        self.count += 1

    def add_all(self, rows: NDArray[Any], versions: Any) -> None:
        """These rows, which are there, are gone from this version (or these versions) on."""
        if len(rows):
            self._made()[rows] = versions
            np.bitwise_or.at(self._bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))
            self.count += len(rows)

    def _made(self) -> NDArray[np.int64]:
        if self._at is None:
            self._bits = np.zeros(self._rows // 8 + 1, np.uint8)
            self._at = np.full(self._rows, self.NEVER)  # last: readers look at it first
        return self._at

    def since(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of the rows (places in `rows`) are gone, and since when."""
        if self._at is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        gone = np.flatnonzero(self._at[rows] != self.NEVER)
        return gone, self._at[rows[gone]]

    def gone_at(self, version: int) -> NDArray[np.int64]:
        """All rows that are gone at this version."""
        return np.empty(0, np.int64) if self._at is None else np.flatnonzero(self._at <= version)

    def alive(self, event: Pair, row: Pair, version: int) -> tuple[Pair, Pair]:
        """The pairs whose rows a reader of this version sees. The arrays are the reader's own, and are used again."""
        if self._at is None:
            return event, row
        kept = _keep(self._bits, self._at, version, event, row, np.empty(len(row) + 1, np.int32))
        return event[:kept], row[:kept]

    def has(self, row: int) -> bool:
        return self._at is not None and bool(self._at[row] != self.NEVER)

    def there(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of the rows are there."""
        return np.ones(len(rows), np.bool_) if self._at is None else self._at[rows] == self.NEVER

    def kept(self) -> NDArray[np.int64]:
        return np.arange(self._rows) if self._at is None else np.flatnonzero(self._at == self.NEVER)


@njit(cache=True, nogil=True)
def _keep(bits, at, version, event, row, hits):  # type: ignore[no-untyped-def]
    """Closes the gaps of the pairs that do not count; returns how many are left. A bit alone does not tell: a row that
    goes while a reader is at work must still be there for it."""
    found = np.int64(0)
    for i in range(len(row)):  # without a branch
        hits[found] = i
        found += np.int64(bits[row[i] >> 3] >> (row[i] & 7)) & 1
    gone = 0
    for k in range(found):
        hits[gone] = hits[k]
        gone += at[row[hits[k]]] <= version
    if gone == 0:
        return len(row)
    to = np.int64(hits[0])
    for k in range(gone):
        for i in range(hits[k] + 1, hits[k + 1] if k + 1 < gone else len(row)):
            event[to], row[to] = event[i], row[i]
            to += 1
    return to
