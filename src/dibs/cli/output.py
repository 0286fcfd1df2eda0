"""Writing matches: JSON lines, or a table of pairs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dibs.cli.formats import STANDARD, Format, format_of
from dibs.cli.outcome import BadInput, results

if TYPE_CHECKING:
    from dibs.matches import Matches


class JsonLines:
    """{"event": 0, "subscriptions": ["alice", "bob"]}"""

    def __init__(self, file: BinaryIO, matched_only: bool):
        self.file = file
        self.matched_only = matched_only

    def write(self, events: Any, matches: Matches, top: int | None) -> None:
        found = matches if top is None else matches.top(top)
        events = events.to_pylist() if isinstance(events, pa.Array) else events
        lines = [
            orjson.dumps({"event": event, "subscriptions": ids}, default=str, option=orjson.OPT_APPEND_NEWLINE)
            for event, ids in zip(events, found, strict=True)
            if ids or not self.matched_only
        ]
        self.file.write(b"".join(lines))
        self.file.flush()

    def close(self) -> None:
        self.file.flush()


class Pairs:
    """The columns event and subscription, a row for each pair, sorted by event. Subscriptions are integers when all
    ids are, else text."""

    def __init__(self, file: BinaryIO, kind: Format, name: str):
        self.file = file
        self.kind = kind
        self.name = name
        self.writer: Any = None

    def write(self, events: Any, matches: Matches, top: int | None) -> None:
        names = pa.array(events) if isinstance(events, range) else _as_array(events)
        pairs = matches.pairs()
        if pa.types.is_union(pairs["subscription"].type):
            texts = pa.array(list(map(str, pairs["subscription"].to_pylist())), pa.string())
            pairs = pairs.set_column(1, "subscription", texts)
        if top is None:
            pairs = pairs.sort_by([("event", "ascending"), ("subscription", "ascending")])
        else:
            best = [(event, id) for event, ids in enumerate(matches.top(top)) for id in ids]
            as_text = pa.types.is_string(pairs["subscription"].type)
            columns = [[event for event, _ in best], [str(id) if as_text else id for _, id in best]]
            pairs = pa.table(columns, schema=pairs.schema)
        pairs = pairs.set_column(0, "event", names.take(pairs["event"]))
        try:
            if self.writer is None:
                self._open(pairs.schema)
            self.writer.write_table(pairs)
        except pa.ArrowException as error:
            told = str(error).splitlines()[0]
            raise BadInput(f"{self.name} cannot be written as {self.kind.value}: {told}") from None

    def close(self) -> None:
        if self.writer is None:  # there was no event at all
            self._open(pa.schema([("event", pa.int64()), ("subscription", pa.string())]))
        self.writer.close()

    def _open(self, schema: pa.Schema) -> None:
        if self.kind is Format.csv:
            self.writer = pa.csv.CSVWriter(self.file, schema)
        elif self.kind is Format.parquet:
            self.writer = pa.parquet.ParquetWriter(self.file, schema)
        else:
            self.writer = pa.ipc.new_file(self.file, schema)


def _as_array(names: Any) -> pa.Array:
    """A column's values as they are; those of JSON lines, which can be anything, as text."""
    if isinstance(names, pa.Array):
        return names
    texts = [name if name is None or isinstance(name, str) else orjson.dumps(name).decode() for name in names]
    return pa.array(texts, pa.string())  # of this type in every batch, also in one where no event has a name


@contextlib.contextmanager
def open_writer(name: str, matched_only: bool) -> Iterator[JsonLines | Pairs]:
    """A file gets its name only when it is whole: until then it is called NAME.partial."""
    kind = format_of(name)
    if name == STANDARD:
        yield JsonLines(results(), matched_only)
        return
    partial = Path(f"{name}.partial")
    try:
        with partial.open("wb") as file:
            writer = JsonLines(file, matched_only) if kind is Format.jsonl else Pairs(file, kind, name)
            yield writer
            writer.close()
        os.replace(partial, name)
    finally:
        partial.unlink(missing_ok=True)
