"""Which subscriptions of a segment are gone, and since when."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Removed:
    """Which rows of a segment are gone, and since when: a reader that started at version v still sees the rows that
    were removed later, so a replaced subscription is never missing."""

    NEVER = np.iinfo(np.int64).max

    def __init__(self, rows: int):
        self._rows = rows
        self._at: NDArray[np.int64] | None = None  # made at the first removal
        self.count = 0

    def add(self, row: int, version: int) -> None:
        if self._at is None:
            self._at = np.full(self._rows, self.NEVER)
        self._at[row] = version
        self.count += 1

    def alive(self, rows: NDArray[Any], version: int) -> NDArray[np.bool_] | None:
        """Which of the rows a reader of this version sees; None: all."""
        return None if self._at is None else self._at[rows] > version

    def has(self, row: int) -> bool:
        return self._at is not None and bool(self._at[row] != self.NEVER)

    def kept(self) -> NDArray[np.int64]:
        return np.arange(self._rows) if self._at is None else np.flatnonzero(self._at == self.NEVER)
