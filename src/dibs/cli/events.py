"""Reading events a batch at a time, so that a file of any size takes constant memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dibs.cli.formats import Format, format_of, open_arrow, open_input, open_parquet, reading, show_name
from dibs.cli.outcome import BadInput, say
from dibs.coding.lines import LONGEST, read_lines
from dibs.errors import LineTooLong

if TYPE_CHECKING:
    from dibs.cli.csv_types import Kind

ROWS_AT_ONCE = 8_192

TYPES_HELP = (
    "Types of attributes: text, number, boolean, date, timestamp, or timestamp_seconds, timestamp_millis and "
    "timestamp_micros of numbers since 1970."
)
NOW_HELP = (
    "What now() is: a time, as 2024-05-01T12:00:00Z, or the attribute with the event's own.  [default: the clock]"
)
MAX_LINE_HELP = "The longest line of JSON lines, in MB."


def one_time(now: str | None) -> Any:
    """What --now says; else the time of the clock, one for all batches."""
    from dibs.language.present import datetime_at, read_clock, read_now

    read_now(now)
    return datetime_at(read_clock()) if now is None else now


@dataclass
class EventBatch:
    """Some events: JSON lines without empty ones, or an Arrow record batch."""

    data: Any
    count: int
    first: int  # the number of its first event, counted from 0
    lines: Sequence[int] | None  # the line of each event, counted from 1; None: rows of a table
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
            if self.data.schema.names.count(name) > 1:
                raise BadInput(f"the events have several columns {name!r}, so none of them names an event")
            return self.data.column(name)
        return [_field(line, name) for line in self.data.split(b"\n")[: self.count]]


class Reading(NamedTuple):
    """How events are to be read, where the file itself does not tell."""

    format: Format | None = None  # None: by the ending
    types: Mapping[str, Kind] | None = None  # of CSV's columns
    elsewhere: Collection[str] = ()  # of these columns, those that another file may have instead
    event_id: str | None = None  # the column that names events
    wanted: Collection[str] = ()  # attributes that matter
    longest: int = LONGEST  # bytes of a line


def read_events(name: str, how: Reading = Reading()) -> Iterator[EventBatch]:
    kind = format_of(name, how.format)
    if kind is Format.jsonl:
        yield from _json_batches(name, how.longest)
        return
    first = 0
    with reading(name, kind):
        for batch in _record_batches(name, kind, how):
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


def _record_batches(name: str, kind: Format, how: Reading) -> Iterator[Any]:
    if kind is Format.csv:
        from dibs.cli.csv_tables import CsvTable

        table = CsvTable(name, how.types, [] if how.event_id is None else [how.event_id], how.elsewhere)
        for note in table.notes(how.wanted):
            say(note)
        yield from table
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


@contextlib.contextmanager
def advising_longer_lines() -> Iterator[None]:
    try:
        yield
    except LineTooLong as error:
        raise BadInput(f"{error} If it is, allow longer lines with --max-line") from None


def _json_batches(name: str, longest: int) -> Iterator[EventBatch]:
    first = 0
    with open_input(name) as source, advising_longer_lines():
        for lines in read_lines(source, show_name(name), longest):
            yield EventBatch(b"\n".join(lines.texts) + b"\n", len(lines.texts), first, lines.numbers, lines.read)
            first += len(lines.texts)


def _field(line: bytes, name: str) -> Any:
    import orjson

    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return event.get(name) if isinstance(event, dict) else None
