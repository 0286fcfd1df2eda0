"""Which of very many matches are shown: the first, the last, and others evenly between; the same in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.past.sources import StoredBatch

ROOM = 8  # so many times more matches are held than will be shown


class Spread:
    """Holds every n-th match; when there are too many of these, every second of them goes and n doubles."""

    def __init__(self, wanted: int):
        self._wanted = wanted
        self._room = ROOM * wanted
        self._every = 1
        self._seen = 0
        self._held: list[int] = []  # numbers of events
        self._last = -1
        self.rows: dict[int, dict[str, Any]] = {}  # of those that are held and cannot be had again

    def add(self, batch: StoredBatch, found: NDArray[np.int64]) -> None:
        """The matches of the next batch, in order."""
        if not self._wanted or not len(found):
            return
        new = found[-self._seen % self._every :: self._every]
        while len(self._held) + len(new) > self._room:
            self._held, self._every = self._held[::2], 2 * self._every
            new = found[-self._seen % self._every :: self._every]
        self._seen += len(found)
        self._held += (batch.first + new).tolist()
        self._last = batch.first + int(found[-1])
        if batch.passing:
            for event in [*new.tolist(), int(found[-1])]:
                self.rows[batch.first + event] = batch.row(event)
        self.rows = {event: row for event, row in self.rows.items() if event == self._last or event in self._held}

    def choose(self) -> list[int]:
        """The numbers of the events to show, ascending."""
        held = self._held if not self._held or self._held[-1] == self._last else [*self._held, self._last]
        if len(held) <= self._wanted:
            return held
        if self._wanted == 1:
            return held[:1]
        return [held[i] for i in np.linspace(0, len(held) - 1, self._wanted).round().astype(int).tolist()]
