"""Stored events of any form, a batch at a time, so that memory does not grow with their number.

    in memory    Arrow table or record batch, list of dicts, JSON lines in bytes
    passing by   Arrow reader, iterator of dicts, open file of JSON lines: read once
    paths        Parquet, Arrow (Feather), JSON lines; a folder of Parquet files; a list of paths; an Arrow dataset

Events are numbered from 0, through all files. Of tables only the columns that are wanted are read; `rows` gives whole
rows afterwards; of what passes by, whoever wants a row keeps it. The files are in sources_files.py.

Of very many matches the first, the last, and others evenly between are shown; the same in every run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arguments import is_several
from dibs.coding.events.arrow_types import check_layout
from dibs.coding.events.json import JsonTexts
from dibs.coding.events.wanted import WantedNames
from dibs.coding.lines import LONGEST, read_lines
from dibs.errors import EventError, MissingFile, StorageError
from dibs.storage.files import storage_error

DICTS = 8_192  # dicts at a time: more would only take memory


class Wanted(NamedTuple):
    """Which columns of a table are read."""

    names: WantedNames | None  # the attributes that expressions mention; None: all columns
    attributes: str | None = None  # the column that holds the attributes
    time: str | None = None  # the column of the histogram

    def columns(self, schema: pa.Schema) -> list[int]:
        """Places of the columns. An attribute is a column of its name, or lies in one that its path begins with."""
        for option, name in (("attributes", self.attributes), ("time", self.time)):
            if name is not None and name not in schema.names:
                shown = ", ".join(map(repr, schema.names[:20])) + (", ..." if len(schema.names) > 20 else "")
                raise EventError(f"no column is called {name!r}, as {option}= says; the columns are: {shown or 'none'}")
        names = self.names
        if names is None:
            return list(range(len(schema.names)))
        if self.attributes is not None:
            chosen = {self.attributes}
        else:
            raw = names.raw
            chosen = {name for name in schema.names if name in names.codes or names.leads(name)}
            chosen |= {name for name in schema.names if raw is not None and raw.may_lie_in(name)}
            chosen |= {name for name in schema.names if "*" in names.codes}  # as a matcher says it of ANY(*)
        return [i for i, name in enumerate(schema.names) if name in chosen or name == self.time]


@dataclass(frozen=True)
class StoredBatch:
    """Some events: a table, a record batch or a sequence of dicts."""

    data: Any
    first: int  # the number of its first event
    passing: bool = False  # the rows are whole, and cannot be had again
    lines: Sequence[int] | None = None  # the line of each event, counted from 1, where there are lines

    def __len__(self) -> int:
        return len(self.data) if isinstance(self.data, Sequence) else int(self.data.num_rows)

    def between(self, start: int, end: int) -> StoredBatch:
        if (start, end) == (0, len(self)):
            return self
        data = self.data[start:end] if isinstance(self.data, Sequence) else self.data.slice(start, end - start)
        return StoredBatch(data, self.first + start, self.passing, self.lines and self.lines[start:end])

    def split(self, size: int) -> Iterator[StoredBatch]:
        for start in range(0, len(self), size):
            yield self.between(start, min(start + size, len(self)))

    def row(self, event: int) -> dict[str, Any]:
        """One event as a dict."""
        return dict(self.data[event]) if isinstance(self.data, Sequence) else row_of(self.data, event)

    def message(self, event: int, attribute: str | None, message: str) -> str:
        """What is wrong with an event, with its line where it is the line that is wrong."""
        if self.lines is None or attribute is not None:
            return message
        return f"line {self.lines[event]}{', ' if message.startswith('column ') else ': '}{message}"


class StoredEvents(Protocol):
    @property
    def again(self) -> bool:
        """Whether the events can be read a second time."""
        ...

    def total(self) -> int | None:
        """The number of events, where it is known in advance."""
        ...

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        """All events in order, at most `size` at a time."""
        ...

    def rows(self, events: Sequence[int], count: int) -> list[dict[str, Any]]:
        """These events (of batches that were not passing) of `count` in all, with all their columns."""
        ...

    def place(self, event: int) -> str:
        """Where the event is, for people."""
        ...


def row_of(table: pa.Table | pa.RecordBatch, row: int) -> dict[str, Any]:
    """A row as a dict; a value that Python cannot hold (a string that is not UTF-8, a year beyond 9999) as text."""
    one = table.slice(row, 1)
    return {name: _value(column) for name, column in zip(one.schema.names, one.columns)}


def _value(column: pa.Array | pa.ChunkedArray) -> Any:
    """Of a column of one row, which nobody may have looked at before."""
    try:
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            check_layout(chunk)
    except pa.ArrowException:
        return f"unsound {column.type}"
    scalar = column[0]
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        raw = scalar.as_buffer().to_pybytes() if hasattr(scalar, "as_buffer") else b"?"
        return raw.decode(errors="backslashreplace")
    except (ValueError, OverflowError, pa.ArrowException):
        ticks = getattr(scalar, "value", None)
        return f"{scalar.type} {ticks}"


@contextmanager
def reading(name: object, format: str) -> Iterator[None]:
    """Names the file in what the system, or Arrow, says about it."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise MissingFile(name) from None
        if isinstance(error, OSError) and error.errno is not None:  # and not Arrow's word for a damaged file
            raise storage_error(Path(str(name)), error) from error
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageError(name, f"cannot be read as {format}: {text}") from error


class Plain:
    """What every source has unless it knows better."""

    @property
    def again(self) -> bool:
        return True

    def total(self) -> int | None:
        return None

    def rows(self, events: Sequence[int], count: int) -> list[dict[str, Any]]:
        assert not events, "these rows have passed by"
        return []

    def place(self, event: int) -> str:
        return f"event {event}"


class InMemory(Plain):
    """A table or a record batch."""

    def __init__(self, table: pa.Table | pa.RecordBatch):
        self.table = table

    def total(self) -> int:
        return int(self.table.num_rows)

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        kept = self.table.select(wanted.columns(self.table.schema))
        if isinstance(kept, pa.RecordBatch) or not kept.num_columns:
            yield from StoredBatch(kept, 0).split(size)
            return
        first = 0
        for part in kept.to_batches(max_chunksize=size):
            yield StoredBatch(part, first)
            first += part.num_rows

    def rows(self, events: Sequence[int], count: int) -> list[dict[str, Any]]:
        return [row_of(self.table, event) for event in events]


class Passing(Plain):
    """Record batches of a reader."""

    again = False

    def __init__(self, reader: pa.RecordBatchReader, name: str = "the Arrow reader", format: str = "Arrow data"):
        self.reader, self.name, self.format = reader, name, format

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        wanted.columns(self.reader.schema)  # are those there that are named?
        first = 0
        with reading(self.name, self.format):
            for part in self.reader:
                yield from StoredBatch(part, first, passing=True).split(size)
                first += part.num_rows


class Dicts(Plain):
    def __init__(self, events: Iterable[Any]):
        self.events = events

    @property
    def again(self) -> bool:
        return isinstance(self.events, Sequence)

    def total(self) -> int | None:
        return len(self.events) if isinstance(self.events, Sequence) else None

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        first, rest = 0, iter(self.events)
        while part := list(islice(rest, min(size, DICTS))):
            yield StoredBatch(part, first, passing=True)
            first += len(part)


class StoredLines(Plain):
    """Blank lines are no events. The lines of a block become dicts, or what is wrong with them."""

    def __init__(self, content: BinaryIO | memoryview, name: str = "", longest: int = LONGEST):
        self.content, self.name, self.longest = content, name, longest

    @property
    def again(self) -> bool:
        return isinstance(self.content, memoryview)

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        first = 0
        longest = None if self.again else self.longest  # what is in memory may be as long as it is
        for lines in read_lines(self.content, self.name, longest):
            yield from StoredBatch(JsonTexts(lines.texts), first, True, lines.numbers).split(size)
            first += len(lines.texts)


class Chain(Plain):
    """Several sources, one after the other."""

    def __init__(self, parts: Sequence[tuple[str, StoredEvents]]):
        self.parts = parts  # with their names
        self._starts: list[int] = []  # the number of the first event of each that has been begun

    @property
    def again(self) -> bool:
        return all(source.again for _, source in self.parts)

    def total(self) -> int | None:
        totals = [source.total() for _, source in self.parts]
        return None if None in totals else sum(total or 0 for total in totals)

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        self._starts, end = [], 0
        for _, source in self.parts:
            start = end
            self._starts.append(start)
            for batch in source.batches(wanted, size):
                yield replace(batch, first=start + batch.first)
                end = start + batch.first + len(batch)

    def _part(self, event: int) -> int:
        return bisect_right(self._starts, event) - 1  # of several that begin there, the last one is not empty

    def rows(self, events: Sequence[int], count: int) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = []
        bounds = [*self._starts, count]
        for number, (_, source) in enumerate(self.parts):
            own = [event - bounds[number] for event in events if self._part(event) == number]
            result += source.rows(own, bounds[number + 1] - bounds[number])
        return result

    def place(self, event: int) -> str:
        number = self._part(event)
        return f"{self.parts[number][0]}, event {event - self._starts[number]}"


def dicts_or_lines(events: Any, expected: str) -> StoredEvents:
    """The source of events that are neither Arrow data nor a path."""
    if isinstance(events, (bytes, bytearray, memoryview)):
        view = memoryview(events)
        return StoredLines(view if view.c_contiguous else memoryview(bytes(view)))
    if isinstance(events, Mapping):
        raise EventError(f"found one event of type {type(events).__name__}; expected {expected}: put it into a list")
    if hasattr(events, "read"):
        return StoredLines(events)
    if is_several(events):
        return Dicts(events)
    raise EventError(f"found events of type {type(events).__name__}; expected {expected}")


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
