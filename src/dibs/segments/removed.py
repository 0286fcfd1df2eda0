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
        self.count = 0

    def add(self, row: int, version: int) -> None:
        """The row, which is there, is gone from this version on."""
        self._made()[row] = version
        self.count += 1

    def add_all(self, rows: NDArray[Any], versions: Any) -> None:
        """These rows, which are there, are gone from this version (or these versions) on."""
        if len(rows):
            self._made()[rows] = versions
            self.count += len(rows)

    def _made(self) -> NDArray[np.int64]:
        if self._at is None:
            self._at = np.full(self._rows, self.NEVER)
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
        kept = _keep(self._at, version, event, row)
        return event[:kept], row[:kept]

    def has(self, row: int) -> bool:
        return self._at is not None and bool(self._at[row] != self.NEVER)

    def there(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of the rows are there."""
        return np.ones(len(rows), np.bool_) if self._at is None else self._at[rows] == self.NEVER

    def kept(self) -> NDArray[np.int64]:
        return np.arange(self._rows) if self._at is None else np.flatnonzero(self._at == self.NEVER)


@njit(cache=True, nogil=True)
def _keep(at, version, event, row):  # type: ignore[no-untyped-def]
    """Moves the pairs that count to the front, without a branch; returns how many they are. (Flags of one byte are
    faster, but they change under a reader, to whom a row that goes now must still be there.)"""
    n = 0
    for i in range(len(row)):
        e, r = event[i], row[i]
        event[n], row[n] = e, r
        n += at[r] > version
    return n
