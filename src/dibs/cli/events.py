"""Reading events a batch at a time, so that a file of any size takes constant memory."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from dibs.cli.formats import Format, csv_options, format_of, open_arrow, open_input, open_parquet, reading
from dibs.cli.outcome import BadInput

BYTES_AT_ONCE = 2 << 20
ROWS_AT_ONCE = 8_192
BLANK = b" \t\r"  # what a line without an event may hold


@dataclass
class EventBatch:
    """Some events: JSON lines without empty ones, or an Arrow record batch."""

    data: Any
    count: int
    first: int  # the number of its first event, counted from 0
    lines: list[int] | None  # the line of each event, counted from 1; None: rows of a table
    read: int  # bytes of JSON lines, else rows, read so far

    def place(self, event: int) -> str:
        if self.lines is None:
            return f"row {self.first + event + 1}"
        return f"line {self.lines[event]}"

    def values(self, name: str) -> Any:
        """The value of a field in each event, None where there is none: an Arrow array, or a list for JSON lines."""
        if self.lines is None:
            if name not in self.data.schema.names:
                raise BadInput(
                    f"the events have no column {name!r}, only {', '.join(map(repr, self.data.schema.names))}"
                )
            return self.data.column(name)
        return [_field(line, name) for line in self.data.split(b"\n")[: self.count]]


def read_events(name: str, chosen: Format | None = None) -> Iterator[EventBatch]:
    kind = format_of(name, chosen)
    if kind is Format.jsonl:
        yield from _json_batches(name)
        return
    first = 0
    with reading(name, kind):
        for batch in _record_batches(name, kind):
            for start in range(0, len(batch), ROWS_AT_ONCE):
                part = batch.slice(start, ROWS_AT_ONCE)
                yield EventBatch(part, len(part), first, None, first + len(part))
                first += len(part)


def total_of(name: str, chosen: Format | None = None) -> int | None:
    """What EventBatch.read will be at the end, if that can be told beforehand."""
    if name == "-":
        return None
    kind = format_of(name, chosen)
    if kind is Format.jsonl:
        return os.stat(name).st_size if os.path.isfile(name) else None
    with reading(name, kind):
        return int(open_parquet(name).count_rows()) if kind is Format.parquet else None


def _record_batches(name: str, kind: Format) -> Iterator[Any]:
    if kind is Format.csv:
        import pyarrow.csv

        yield from pyarrow.csv.open_csv(open_input(name), **csv_options())
    elif kind is Format.parquet:
        from dibs.past.sources import Wanted
        from dibs.past.sources_files import open_events

        # Not the data set's own batches: Arrow reads those ahead without end, whether anybody takes them or not.
        for batch in open_events(open_parquet(name)).batches(Wanted(None), ROWS_AT_ONCE):
            yield batch.data
    else:
        reader = open_arrow(name)
        if hasattr(reader, "num_record_batches"):  # a file; a stream is iterated
            yield from map(reader.get_batch, range(reader.num_record_batches))
        else:
            yield from reader


def _json_batches(name: str) -> Iterator[EventBatch]:
    first, line, read, rest = 0, 1, 0, b""
    with open_input(name) as source:
        ended = False
        while not ended:
            chunk = _read_available(source)
            ended = not chunk
            if read == 0:
                chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            read += len(chunk)
            cut = len(chunk) if ended else chunk.rfind(b"\n") + 1
            if cut == 0 and not ended:
                rest += chunk
                continue
            block, rest = rest + chunk[:cut], chunk[cut:]
            lines = block.split(b"\n")
            if block.endswith(b"\n"):
                lines.pop()
            numbers = list(range(line, line + len(lines)))
            line += len(lines)
            if not all(text.strip(BLANK) for text in lines):
                kept = [(number, text) for number, text in zip(numbers, lines, strict=True) if text.strip(BLANK)]
                numbers, lines = [number for number, _ in kept], [text for _, text in kept]
            if lines:
                yield EventBatch(b"\n".join(lines) + b"\n", len(lines), first, numbers, read)
                first += len(lines)


def _read_available(source: BinaryIO) -> bytes:
    """Up to BYTES_AT_ONCE, but no waiting for more once something is there: a slow stream is answered line by line."""
    read1: Callable[[int], bytes] = source.read1  # type: ignore[attr-defined]
    parts = [read1(BYTES_AT_ONCE)]
    size = len(parts[0])
    while parts[-1] and size < BYTES_AT_ONCE and _has_more(source):
        parts.append(read1(BYTES_AT_ONCE - size))
        size += len(parts[-1])
    return b"".join(parts)


def _has_more(source: BinaryIO) -> bool:
    try:
        return bool(select.select([source], [], [], 0)[0])
    except (OSError, ValueError):  # not a thing that can be waited for
        return False


def _field(line: bytes, name: str) -> Any:
    import orjson

    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return event.get(name) if isinstance(event, dict) else None
