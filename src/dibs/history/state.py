"""The documents as they are at one moment: a value that never changes.

    end        one more than the number of the newest document; documents are numbered in the order in which they came
    first      all before it are gone (retention takes the oldest)
    gone       others that are gone, as pruning by key or by time leaves them
    ages       documents by time, where retention asks for that

What grows without being changed is shared by all states: the documents themselves, their keys, and the columns (the
cells of an attribute by document). A state never looks at what stands behind its own end there, and the next document
overwrites it, so that one whose adding was interrupted has left nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dibs.coding.events import read_events
from dibs.history.coded.indexes import HISTORY_TAIL
from dibs.history.coded.store import Store
from dibs.history.encoding import StoredLines
from dibs.history.keys import NONE, STRING, TIME, Cells, cells_of
from dibs.language.expression import microseconds
from dibs.language.literals import time_of
from dibs.language.types import NO_TYPES, Types

Aged = tuple[int, int]  # the latest time of a document, its number


class ByTime(NamedTuple):
    """Documents by time: which of them retention by age takes.

    A value that never changes, so that states may share it. A document that comes is put behind the others; when there
    are many such, they are sorted in with the runs that are not much longer, so that a document is moved a logarithmic
    number of times, and there is a logarithmic number of runs."""

    runs: tuple[list[Aged], ...] = ()  # in order
    late: tuple[Aged, ...] = ()  # the last ones, as they came

    @classmethod
    def of(cls, documents: Iterable[tuple[int | None, int]]) -> ByTime:
        return cls((sorted((time, row) for time, row in documents if time is not None),))

    def add(self, time: int | None, row: int) -> ByTime:
        if time is None:
            return self
        late = (*self.late, (time, row))
        if len(late) < HISTORY_TAIL.value:
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


LONG = 65_536  # documents that are read at a time


@dataclass(frozen=True, eq=False)
class Part:
    """Documents that came together, in the form in which they came."""

    first: int  # number of the first
    rows: Any  # an Arrow table, StoredLines, or a list of dicts, which grows if it is the last part
    attributes: str | None = None  # the column that holds the attributes

    def batches(self, end: int) -> Iterator[tuple[int, Any]]:
        """(number of the first, documents), up to `end`."""
        size = min(end - self.first, len(self.rows))
        for start in range(0, size, LONG):
            yield self.first + start, self.readable(start, min(LONG, size - start))

    def some(self, start: int, length: int) -> Any:
        """Some of the documents in the same form."""
        return self.rows[start : start + length] if isinstance(self.rows, list) else self.rows.slice(start, length)

    def readable(self, start: int, length: int) -> Any:
        """The same as read_events takes them."""
        found = self.some(start, length)
        return found.readable() if isinstance(found, StoredLines) else found


@dataclass(frozen=True, eq=False)
class HistoryState:
    base: int = 0  # the number of the first document that columns have
    first: int = 0
    end: int = 0
    gone: frozenset[int] = frozenset()
    newest: int | None = None  # the greatest time by which documents are retained, so far
    parts: tuple[Part, ...] = ()
    keys: list[Any] = field(default_factory=list)  # of documents from base on; None: it has none
    columns: dict[str, list[Cells]] = field(default_factory=dict)  # from base on
    ages: dict[str, ByTime] = field(default_factory=dict)  # by the attribute that has the time
    coded: Store = field(default_factory=Store)  # the same documents for kernels
    types: Types = NO_TYPES  # of attributes, where they are declared

    def __len__(self) -> int:
        return self.end - self.first - len(self.gone)

    # ---- documents ----

    def is_there(self, row: int) -> bool:
        return self.first <= row < self.end and row not in self.gone

    def rows(self) -> Iterator[int]:
        """All documents, in the order in which they came."""
        gone = self.gone
        numbers = range(self.first, self.end)
        return iter(numbers) if not gone else (row for row in numbers if row not in gone)

    def key_of(self, row: int) -> Any:
        return self.keys[row - self.base]

    # ---- columns and ages: made at the first need ----

    @property
    def names(self) -> set[str]:
        """The attributes that somebody has asked for."""
        return {*self.columns, *self.coded.snapshot.attributes}

    def column(self, name: str) -> list[Cells]:
        found = self.columns.get(name)
        if found is None:
            self.make_columns([name])
            found = self.columns[name]
        return found

    def make_columns(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self.columns]
        if not missing:
            return
        made: dict[str, list[Cells]] = {name: [NONE] * (self.end - self.base) for name in missing}
        ends = [*(part.first for part in self.parts[1:]), self.end]
        for part, end in zip(self.parts, ends):
            for first, documents in part.batches(min(end, self.end)):
                values = read_events(documents, missing, attributes=part.attributes, on_error="skip", types=self.types)
                for name, by_event in cells_of(values, missing).items():
                    column = made[name]
                    for event, cells in by_event.items():
                        if first + event >= self.base:
                            column[first + event - self.base] = cells  # type: ignore[assignment]
        for name, column in made.items():
            self.columns.setdefault(name, column)

    def by_time(self, name: str) -> ByTime:
        """The documents by the latest time in this attribute."""
        found = self.ages.get(name)
        if found is None:
            column, base = self.column(name), self.base
            times = ((latest_time(column[row - base]), row) for row in self.rows())
            found = self.ages.setdefault(name, ByTime.of(times))
        return found
