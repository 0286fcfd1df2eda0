"""Stored events in files, and which source takes what."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from dibs.arguments import check_path
from dibs.coding.events import arrow_source
from dibs.coding.lines import LONGEST
from dibs.errors import EventError, MissingFile, StorageError
from dibs.past.sources import (
    Chain,
    InMemory,
    Passing,
    Plain,
    StoredBatch,
    StoredEvents,
    StoredLines,
    Wanted,
    dicts_or_lines,
    reading,
    row_of,
)
from dibs.storage.files import storage_error

FORMATS = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
PARQUET = b"PAR1"  # the first bytes of such a file
MOVE = "move it elsewhere, or begin its name with an underscore"
ROWS_AT_ONCE = 1_024  # while a row is looked for in a row group

EXPECTED = (
    "an Arrow table, record batch, reader or dataset, dicts, JSON lines as bytes, or the path of a Parquet, Arrow or "
    "JSON lines file or of a folder of Parquet files"
)


def open_events(events: Any) -> StoredEvents:
    """The source of whatever holds the events. A string is a path, never JSON text."""
    if isinstance(events, Plain):
        return events  # type: ignore[return-value]
    if isinstance(events, (str, os.PathLike)):
        if isinstance(events, str) and events.lstrip().startswith("{"):
            raise EventError(f"found text that looks like JSON; a string is a path here, so expected {EXPECTED}")
        return open_file(check_path(events))
    if isinstance(events, (list, tuple)) and events and all(isinstance(e, (str, os.PathLike)) for e in events):
        return Chain([(str(path), open_file(check_path(path))) for path in events])
    if isinstance(events, (pa.Table, pa.RecordBatch)):
        return InMemory(events)
    if isinstance(events, pa.RecordBatchReader):
        return Passing(events)
    if isinstance(events, ds.Dataset):
        return Fragments(_fragments_of(events), "the dataset", events)
    handed = arrow_source(events)
    if handed is not None:
        return Passing(handed) if isinstance(handed, pa.RecordBatchReader) else InMemory(handed)
    return dicts_or_lines(events, EXPECTED)


def open_file(path: Path, format: str | None = None, longest: int = LONGEST) -> StoredEvents:
    """The events of a file; its format, where the ending does not tell it. longest: bytes of a line, where there are
    lines."""
    try:
        folder = path.stat() and path.is_dir()  # stat says what is wrong with the path
    except FileNotFoundError:
        raise MissingFile(path) from None
    except OSError as error:
        raise storage_error(path, error) from error
    format = format or ("parquet" if folder else FORMATS.get(path.suffix.lower()))
    if format == "parquet":
        with reading(path, "parquet"):
            source: Any = [str(file) for file in parquet_files(path)] if folder else path
            if not source:
                return Fragments([], str(path))
            return Fragments(_fragments_of(ds.dataset(source, format="parquet")), str(path))
    if format == "arrow":
        return ArrowStream(path) if _is_stream(path) else ArrowFile(path)
    if format == "jsonl":
        return JsonFile(path, longest)
    expected = ", ".join(FORMATS)
    raise StorageError(path, f"the ending tells no format; expected one of {expected}, or a folder of Parquet files")


def parquet_files(folder: Path) -> list[Path]:
    """The files of a folder and of those in it, in the order of their paths; names that begin with a dot or underscore
    are passed over, as Spark and Arrow do. A file or folder to which several links lead counts once. The first file
    that is no Parquet file ends the search, so that nobody waits for all of a disk."""
    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    left = [folder]
    while left:
        path = left.pop()
        try:
            about = path.stat()
            if (about.st_dev, about.st_ino) in seen:
                continue
            seen.add((about.st_dev, about.st_ino))
            if stat.S_ISDIR(about.st_mode):
                names = [name for name in os.listdir(path) if not name.startswith((".", "_"))]
                left.extend(path / name for name in sorted(names, reverse=True))
                continue
            if not stat.S_ISREG(about.st_mode) or not _is_parquet(path):
                raise StorageError(path, f"is no Parquet file; {folder} was given as a folder of these: {MOVE}")
        except FileNotFoundError:
            raise StorageError(path, f"is a link that leads nowhere, or was removed just now: {MOVE}") from None
        except OSError as error:
            raise storage_error(path, error) from error
        found.append(path)
    return found


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == PARQUET


def _is_stream(path: Path) -> bool:
    with reading(path, "arrow"), path.open("rb") as file:
        return file.read(4) == b"\xff\xff\xff\xff"


def _fragments_of(dataset: ds.Dataset) -> list[ds.Fragment] | None:
    try:
        return list(dataset.get_fragments())
    except ValueError:  # it filters
        return None


class Fragments(Plain):
    """Files of tables. Each is read with its own schema: a column that came later is there from then on, and one that
    changed its type keeps the exact values of both. A dataset that was given has the schema it says."""

    def __init__(self, fragments: list[ds.Fragment] | None, name: str, dataset: ds.Dataset | None = None):
        self.fragments, self.name, self.dataset = fragments or [], name, dataset
        self.schema = None if dataset is None else dataset.schema
        self.filters = fragments is None  # only the dataset itself knows its rows

    def total(self) -> int:
        with reading(self.name, "a table"):
            if self.dataset is not None:
                return int(self.dataset.count_rows())
            return sum(int(fragment.count_rows()) for fragment in self.fragments)

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        first = 0
        for part in self._parts(size):
            with reading(getattr(part, "path", self.name), "a table"):
                schema = self.schema or part.physical_schema
                names = [schema.names[i] for i in wanted.columns(schema)]
                for batch in part.to_batches(columns=names, batch_size=size, batch_readahead=2, **self._as_given()):
                    if batch.num_rows:
                        yield StoredBatch(batch, first)
                        first += batch.num_rows

    def _parts(self, size: int) -> Iterator[Any]:
        """What is scanned at once. Arrow reads row groups ahead as fast as it can, whether anybody takes them or not:
        it is given only so many that they are a few batches."""
        for fragment in [self.dataset] if self.filters else self.fragments:
            if not isinstance(fragment, ds.ParquetFileFragment):
                yield fragment
                continue
            with reading(fragment.path, "parquet"):
                groups, rows = [], 0
                for group in fragment.row_groups:
                    groups.append(group.id)
                    rows += group.num_rows
                    if rows >= size:
                        yield fragment.subset(row_group_ids=groups)
                        groups, rows = [], 0
                if groups:
                    yield fragment.subset(row_group_ids=groups)

    def _as_given(self) -> dict[str, Any]:
        """The schema of the dataset, for a fragment of it."""
        return {} if self.schema is None or self.filters else {"schema": self.schema}

    def rows(self, events: Sequence[int], count: int) -> list[dict[str, Any]]:
        if not events:
            return []
        with reading(self.name, "a table"):
            if self.filters and self.dataset is not None:
                table = self.dataset.take(pa.array(events, pa.int64()))
                return [row_of(table, i) for i in range(table.num_rows)]
            sizes = [int(fragment.count_rows()) for fragment in self.fragments]
            result = []
            for event in events:
                number, row = _find(sizes, event)
                result.append(self._row(self.fragments[number], row))
            return result

    def _row(self, fragment: ds.Fragment, row: int) -> dict[str, Any]:
        """A row with all columns: its row group is read until it comes."""
        if isinstance(fragment, ds.ParquetFileFragment):
            group, row = _find([info.num_rows for info in fragment.row_groups], row)
            fragment = fragment.subset(row_group_ids=[fragment.row_groups[group].id])
        options = {"batch_size": ROWS_AT_ONCE, "batch_readahead": 1, "use_threads": False, **self._as_given()}
        for batch in fragment.to_batches(**options):
            if row < batch.num_rows:
                return row_of(batch, row)
            row -= batch.num_rows
        raise StorageError(self.name, "has fewer rows than a moment ago; is somebody writing it?")


def _find(sizes: Sequence[int], row: int) -> tuple[int, int]:
    """Which part the row is in, and its number there."""
    for number, size in enumerate(sizes):
        if row < size:
            return number, row
        row -= size
    raise EventError(f"there are only {sum(sizes):,} events, fewer than a moment ago; is somebody writing them?")


class ArrowFile(Plain):
    """An Arrow file, batch by batch (Feather version 2 is one)."""

    def __init__(self, path: Path):
        self.path = path
        self._sizes: list[int] = []  # rows of each of its batches
        with self._open() as reader:
            self._schema = reader.schema

    @contextmanager
    def _open(self, columns: list[int] | None = None) -> Iterator[pa.RecordBatchFileReader]:
        options = pa.ipc.IpcReadOptions(included_fields=columns or [])  # an empty list is all of them
        with reading(self.path, "arrow"), pa.memory_map(str(self.path)) as file:
            yield pa.ipc.open_file(file, options=options)

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        self._sizes, first = [], 0
        # One column has to be read, if only for the number of rows.
        with self._open(wanted.columns(self._schema) or [0]) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                self._sizes.append(batch.num_rows)
                yield from StoredBatch(batch, first).split(size)
                first += batch.num_rows

    def rows(self, events: Sequence[int], count: int) -> list[dict[str, Any]]:
        places = [_find(self._sizes, event) for event in events]
        with self._open() as reader:
            return [row_of(reader.get_batch(number), row) for number, row in places]


class ArrowStream(Plain):
    """An Arrow stream in a file; it has no directory of its batches, so rows are kept as they pass."""

    def __init__(self, path: Path):
        self.path = path

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        with reading(self.path, "arrow"), pa.memory_map(str(self.path)) as file:
            yield from Passing(pa.ipc.open_stream(file), str(self.path), "arrow").batches(wanted, size)


class JsonFile(Plain):
    def __init__(self, path: Path, longest: int = LONGEST):
        self.path, self.longest = path, longest

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        with reading(self.path, "JSON lines"), self.path.open("rb") as file:
            yield from StoredLines(file, str(self.path), self.longest).batches(wanted, size)
