"""The documents as they are at one moment: a value that never changes.

    end        one more than the number of the newest document; documents are numbered in the order in which they came
    first      all before it are gone (retention takes the oldest)
    gone       others that are gone, as pruning by key or by time leaves them
    indexes    ordered indexes by the names of their keys, made when a join first asks for them

What grows without being changed is shared by all states: the documents themselves, their keys, and the columns (the
cells of an attribute by document). A state never looks at what stands behind its own end there, and the next document
overwrites it, so that one whose adding was interrupted has left nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.events import read_events
from dibs.history.coded.store import Store
from dibs.history.keys import NONE, Cells, cells_of
from dibs.history.ordered import KeyStretch, Ordered
from dibs.lazy import lazy

LONG = 65_536  # documents that are read at a time


@dataclass(frozen=True, eq=False)
class Part:
    """Documents that came together, in the form in which they came."""

    first: int  # number of the first
    rows: Any  # an Arrow table, or a list of dicts, which grows if it is the last part
    attributes: str | None = None  # the column that holds the attributes

    def batches(self, end: int) -> Iterator[tuple[int, Any]]:
        """(number of the first, documents), up to `end`."""
        size = min(end - self.first, len(self.rows))
        for start in range(0, size, LONG):
            length = min(LONG, size - start)
            rows = self.rows
            yield (
                self.first + start,
                rows[start : start + length] if isinstance(rows, list) else rows.slice(start, length),
            )


@dataclass(frozen=True, eq=False)
class State:
    base: int = 0  # the number of the first document that columns have
    first: int = 0
    end: int = 0
    gone: frozenset[int] = frozenset()
    newest: int | None = None  # the greatest time by which documents are retained, so far
    parts: tuple[Part, ...] = ()
    keys: list[Any] = field(default_factory=list)  # of documents from base on; None: it has none
    columns: dict[str, list[Cells]] = field(default_factory=dict)  # from base on
    indexes: dict[tuple[str, ...], Ordered] = field(default_factory=dict)
    answers: dict[str, Cells] = field(default_factory=dict)  # of joins that do not depend on the event
    coded: Store = field(default_factory=Store)  # the same documents for kernels

    def __len__(self) -> int:
        return self.end - self.first - len(self.gone)

    # ---- documents ----

    def is_there(self, row: int) -> bool:
        return self.first <= row < self.end and row not in self.gone

    def rows(self) -> Iterator[int]:
        """All documents, the newest first."""
        gone = self.gone
        numbers = range(self.end - 1, self.first - 1, -1)
        return iter(numbers) if not gone else (row for row in numbers if row not in gone)

    def there(self, stretch: KeyStretch) -> NDArray[np.int64]:
        """Those of the documents of a stretch that are there, one for each key."""
        run, start, end = stretch
        rows = np.asarray(run.rows[start:end], np.int64)
        if run.oldest < self.first:
            rows = rows[rows >= self.first]
        if self.gone:
            gone = self._order_gone
            rows = rows[gone[np.searchsorted(gone, rows)] != rows]
        return rows

    @lazy
    def _order_gone(self) -> NDArray[np.int64]:
        """With one more at the end that no document has for a number."""
        return np.array([*sorted(self.gone), np.iinfo(np.int64).max])

    def are_all_there(self, stretch: KeyStretch) -> bool:
        return stretch.run.oldest >= self.first and not self.gone

    def key_of(self, row: int) -> Any:
        return self.keys[row - self.base]

    # ---- columns and indexes: made at the first need ----

    @property
    def names(self) -> set[str]:
        """The attributes that somebody has asked for."""
        return {*self.columns, *self.coded.snapshot.names}

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
                values = read_events(documents, missing, attributes=part.attributes, on_error="skip")
                for name, by_event in cells_of(values, missing).items():
                    column = made[name]
                    for event, cells in by_event.items():
                        if first + event >= self.base:
                            column[first + event - self.base] = cells  # type: ignore[assignment]
        for name, column in made.items():
            self.columns.setdefault(name, column)

    def index(self, names: tuple[str, ...]) -> Ordered:
        found = self.indexes.get(names)
        if found is None:
            self.make_columns(names)
            columns = [self.columns[name] for name in names]
            base = self.base
            rows = ((row, [column[row - base] for column in columns]) for row in sorted(self.rows()))
            found = self.indexes.setdefault(names, Ordered.build(names, rows))
        return found

    def document(self, row: int) -> Mapping[str, Any]:
        """What a document was, as it came."""
        part = next(part for part in reversed(self.parts) if part.first <= row)
        rows = part.rows
        if isinstance(rows, list):
            return rows[row - part.first]
        return rows.slice(row - part.first, 1).to_pylist()[0]
