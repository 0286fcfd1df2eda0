"""Which subscriptions of a segment are gone, and since when."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dibs.jit.interpreter import keeping

Pair = NDArray[np.int32]


Bits = NDArray[np.uint8]
FEW = 10_000  # pairs: microseconds, for which the interpreter is kept (coding.interpreter)


class Removed:
    """Which rows of a segment are gone, and since when. Changed under the lock of the layers only.

    A reader takes the bits as they are when it starts, one for each row, and keeps them: whatever goes later is still
    there for it, so a replaced subscription is never missing. So bits that a reader has taken are not changed but
    copied, once for all changes until the next reader comes."""

    NEVER = np.iinfo(np.int64).max

    def __init__(self, rows: int):
        self._rows = rows
        self._at: NDArray[np.int64] | None = None  # since which version; made at the first removal
        self._bits: Bits | None = None
        self._taken = False
        self.count = 0

    def add(self, row: int, version: int) -> None:
        """The row, which is there, is gone from this version on."""
        at, bits = self._own()
        at[row] = version
        bits[row >> 3] |= np.uint8(1 << (row & 7))
        self.count += 1

    def add_all(self, rows: NDArray[Any], versions: Any) -> None:
        """These rows, which are there, are gone from this version (or these versions) on."""
        if len(rows):
            at, bits = self._own()
            at[rows] = versions
            np.bitwise_or.at(bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))
            self.count += len(rows)

    def _own(self) -> tuple[NDArray[np.int64], Bits]:
        """To be changed."""
        if self._at is None or self._bits is None:
            self._at, self._bits = np.full(self._rows, self.NEVER), np.zeros(self._rows // 8 + 1, np.uint8)
        elif self._taken:
            self._bits = self._bits.copy()
        self._taken = False
        return self._at, self._bits

    def taken(self) -> Bits | None:
        """For a reader: which rows are gone now. None: none."""
        self._taken = True
        return self._bits

    def since(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of the rows (places in `rows`) are gone, and since when."""
        if self._at is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        gone = np.flatnonzero(self._at[rows] != self.NEVER)
        return gone, self._at[rows[gone]]

    def gone_at(self, version: int) -> NDArray[np.int64]:
        """All rows that are gone at this version."""
        return np.empty(0, np.int64) if self._at is None else np.flatnonzero(self._at <= version)

    def has(self, row: int) -> bool:
        return self._at is not None and bool(self._at[row] != self.NEVER)

    def there(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of the rows are there."""
        return np.ones(len(rows), np.bool_) if self._at is None else self._at[rows] == self.NEVER

    def kept(self) -> NDArray[np.int64]:
        return np.arange(self._rows) if self._at is None else np.flatnonzero(self._at == self.NEVER)


def alive(gone: Bits, event: Pair, row: Pair) -> tuple[Pair, Pair]:
    """The pairs whose rows are not gone. The arrays are the reader's own, and are used again."""
    kept = _keep(gone, event, row) if len(row) > FEW else _keep_few(gone, event, row)
    return event[:kept], row[:kept]


@njit(cache=True, nogil=True)
def _keep(gone, event, row):  # type: ignore[no-untyped-def]
    """Closes the gaps of the pairs that do not count, without a branch; returns how many are left."""
    kept = np.int64(0)
    for i in range(len(row)):
        r = row[i]
        event[kept], row[kept] = event[i], r
        kept += 1 - np.int64((gone[r >> 3] >> (r & 7)) & 1)
    return kept


_keep_few = keeping(_keep)
