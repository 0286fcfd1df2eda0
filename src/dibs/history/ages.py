"""Documents by time: which of them retention by age takes.

A value that never changes, so that states may share it. A document that comes is put behind the others; when there are
many such, they are sorted in with the runs that are not much longer, so that a document is moved a logarithmic number
of times, and there is a logarithmic number of runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dibs.history.keys import STRING, TIME, Cells
from dibs.language.expression import microseconds
from dibs.language.literals import time_of
from dibs.thresholds import thresholds

Aged = tuple[int, int]  # the latest time of a document, its number


class ByTime(NamedTuple):
    runs: tuple[list[Aged], ...] = ()  # in order
    late: tuple[Aged, ...] = ()  # the last ones, as they came

    @classmethod
    def of(cls, documents: Iterable[tuple[int | None, int]]) -> ByTime:
        return cls((sorted((time, row) for time, row in documents if time is not None),))

    def add(self, time: int | None, row: int) -> ByTime:
        if time is None:
            return self
        late = (*self.late, (time, row))
        if len(late) < thresholds.history_tail:
            return ByTime(self.runs, late)
        runs, last = list(self.runs), sorted(late)
        while runs and len(runs[-1]) <= 2 * len(last):
            last = sorted(runs.pop() + last)
        return ByTime((*runs, last))

    def between(self, low: int | None, limit: int) -> Iterator[int]:
        """The documents whose time is not before `low` (None: any) and before the limit."""
        for run in self.runs:
            start = 0 if low is None else bisect_left(run, (low,))
            for place in range(start, bisect_left(run, (limit,), start)):
                yield run[place][1]
        for time, row in self.late:
            if (low is None or low <= time) and time < limit:
                yield row


def latest_time(cells: Cells) -> int | None:
    """Of times, and of strings that read as times."""
    times = [key if kind == TIME else _time_of(key) for kind, key in cells if kind in (TIME, STRING)]
    return max((time for time in times if time is not None), default=None)


def _time_of(text: str) -> int | None:
    found = time_of(text)
    return None if found is None else microseconds(found)
