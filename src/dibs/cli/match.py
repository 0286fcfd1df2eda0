"""dibs match: which subscriptions does each event satisfy?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dibs.cli.csv_tables import choose_types, declared_types
from dibs.cli.events import MAX_LINE_HELP, NOW_HELP, TYPES_HELP, EventBatch, Reading, one_time, read_events, total_of
from dibs.cli.formats import STANDARD, Format, format_of, show_name
from dibs.cli.outcome import SHOWN, BadInput, OnError, outcome, say, say_problems
from dibs.cli.progress import bar
from dibs.cli.served import SERVER_HELP
from dibs.cli.subscriptions import HISTORY_HELP, REMEMBER_HELP, RETAIN_HELP, load_file, prepare_history
from dibs.coding.lines import LONGEST

if TYPE_CHECKING:
    from dibs.cli.csv_types import Kind
    from dibs.matches import Matches

# Problems of JSON lines begin with the line, counted from the beginning of the batch.
LINE_OF_BATCH = re.compile(r"^line \d+(, |: )")

HELP = """
Find the subscriptions that each event satisfies.

Subscriptions have an id, an expression and perhaps a weight. Events are JSON objects, one a line, or rows of a table;
every field is an attribute (--attributes: the fields of that one column are). The result is a JSON line for each
event, with the event's number counted from 0, or a table of pairs when the output file is CSV, Parquet or Arrow.

\b
    dibs match --subscriptions subs.jsonl --events events.jsonl
    cat events.jsonl | dibs match -s subs.csv > matches.jsonl
    dibs match -s subs.parquet -e products.parquet --attributes attributes -o pairs.parquet
    dibs match -s subs.jsonl -e events.jsonl --top 3 --event-id sku
    dibs match -s subs.jsonl -e events.jsonl --on-error skip
    dibs match --server http://127.0.0.1:8080 -e events.jsonl

Files are .jsonl, .csv, .parquet (also a folder of them) or .arrow; `-` is standard input, which is answered as the
lines come.

CSV has a first row with the names of the columns. A column holds numbers, booleans, dates or timestamps if all its
values do and none of them would change by it; else it is text: 01234 keeps its zero, and makes its column text. Ids are
integers if all of them are, else text. An empty cell is a missing attribute, "" an empty text. All rows are looked at
before the first is matched, on standard input too. --types decides otherwise:

\b
    dibs match -s subs.csv -e products.csv --types zip=text,price=number,sold=date

Subscriptions may ask for what came before (EXISTS, FORALL, (SELECT ...) FROM history): for the documents of --history,
and with --remember for the events before. With --remember a durable folder keeps them, batch by batch.

\b
    dibs match -s alerts.jsonl -e prices.jsonl --history last-year.parquet --remember

A bad subscription or event ends the run with exit code 3 and says where it is. With --on-error skip, bad
subscriptions are left out, bad events match what can be read of them, and both are counted on standard error.
"""


def match(
    subscriptions: Annotated[
        str | None,
        typer.Option("--subscriptions", "-s", help="File with id, expression[, weight]; or a compiled index."),
    ] = None,
    server: Annotated[str | None, typer.Option("--server", help=SERVER_HELP)] = None,
    events: Annotated[str, typer.Option("--events", "-e", help="File with the events.")] = STANDARD,
    output: Annotated[str, typer.Option("--output", "-o", help="File for the matches.")] = STANDARD,
    attributes: Annotated[
        str | None, typer.Option(help="The column that holds the attributes (a map, a struct or JSON text).")
    ] = None,
    event_id: Annotated[
        str | None, typer.Option(help="Name events by this field of theirs instead of their number.")
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help="Only the N subscriptions of the highest weight.")] = None,
    matched_only: Annotated[bool, typer.Option("--matched-only", help="No lines for events without a match.")] = False,
    on_error: Annotated[OnError, typer.Option(help="What to do with what cannot be read.")] = OnError.raise_,
    format: Annotated[
        Format | None, typer.Option(help="Format of the events, where the ending does not tell (standard input).")
    ] = None,
    types: Annotated[list[str] | None, typer.Option(metavar="NAME=TYPE,...", help=TYPES_HELP)] = None,
    max_line: Annotated[int, typer.Option(min=1, help=MAX_LINE_HELP)] = LONGEST >> 20,
    index: Annotated[
        str | None, typer.Option(help="The index to match with.  [default: auto, or that of the compiled index]")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Cores to use.  [default: all]")] = None,
    history: Annotated[str | None, typer.Option(help=HISTORY_HELP)] = None,
    remember: Annotated[bool, typer.Option("--remember", help=REMEMBER_HELP)] = False,
    retain: Annotated[int | None, typer.Option(min=0, help=RETAIN_HELP)] = None,
    now: Annotated[str | None, typer.Option(metavar="TIME", help=NOW_HELP)] = None,
) -> None:
    with outcome():
        if (subscriptions is None) == (server is None):
            raise typer.BadParameter("give either --subscriptions or --server")
        if subscriptions == events == STANDARD:
            raise typer.BadParameter("only one of --subscriptions and --events can be standard input")
        kinds = choose_types(types)
        id_kind = _kind_of_ids(kinds, subscriptions)
        declared = declared_types(types)
        if id_kind is not None and format_of(events, format) is not Format.csv:
            del declared["id"]
        from dibs.cli.output import open_writer

        if subscriptions is None:
            if declared:
                raise typer.BadParameter("the types of a service are its own", param_hint="--types")
            if history is not None or remember or retain is not None:
                advice = "the history of a service is its own"
                raise typer.BadParameter(advice, param_hint="--history, --remember, --retain")
            _match_served(str(server), events, format, output, matched_only, top, on_error, now)
            return
        matcher, left_out = load_file(subscriptions, on_error, index, threads, id_kind, writes=remember, types=declared)
        prepare_history(matcher, history, remember, retain)
        unread = _Unread(show_name(events), on_error)
        present = one_time(now)
        elsewhere = [] if id_kind is None else ["id"]
        how = Reading(format, kinds, elsewhere, event_id, matcher.attributes, max_line << 20)
        total = total_of(events, format)
        with open_writer(output, matched_only) as writer, bar("matching", total, output == STANDARD) as advance:
            for batch in read_events(events, how):
                matches = matcher.match_batch(
                    batch.data, attributes=attributes, on_error="skip", remember=remember, now=present
                )
                unread.note(batch, matches)
                numbers = range(batch.first, batch.first + batch.count)
                names = numbers if event_id is None else batch.values(event_id)
                writer.write(names, matches, top)
                advance(batch.read)
        matcher.close()
        if left_out:
            say(f"{left_out:,} bad subscription{'s' * (left_out != 1)} left out")
        unread.report()


def _match_served(
    server: str,
    events: str,
    format: Format | None,
    output: str,
    matched_only: bool,
    top: int | None,
    on_error: OnError,
    now: str | None,
) -> None:
    """By a service, which reads JSON lines."""
    if format_of(events, format) is not Format.jsonl:
        raise typer.BadParameter("a service is asked with JSON lines", param_hint="--server")
    from dibs.cli.formats import open_input
    from dibs.cli.output import open_writer
    from dibs.client import Client
    from dibs.coding.lines import read_lines

    present = one_time(now)
    first = 0
    with Client(server) as client, open_writer(output, matched_only) as writer:
        for lines in read_lines(open_input(events), show_name(events)):
            matches = client.match_batch(b"\n".join(lines.texts), on_error=on_error.value, top=top, now=present)
            writer.write(range(first, first + len(matches)), cast("Matches", matches), top)
            first += len(matches)
            if matches.problems:
                say_problems("what could not be read:", [str(problem.message) for problem in matches.problems])


def _kind_of_ids(kinds: dict[str, Kind], subscriptions: str | None) -> Kind | None:
    """What --types says of the subscriptions' ids, if they are in CSV."""
    in_csv = subscriptions is not None and not Path(subscriptions).is_dir() and format_of(subscriptions) is Format.csv
    kind = kinds.get("id") if in_csv else None
    if kind is not None and kind.value not in ("text", "number"):
        raise typer.BadParameter(f"ids are text or number, not {kind.value}", param_hint="--types")
    return kind


class _Unread:
    """What could not be read of the events."""

    def __init__(self, source: str, on_error: OnError):
        self.source = source
        self.on_error = on_error
        self.events = 0
        self.total = 0
        self.first: list[str] = []

    def note(self, batch: EventBatch, matches: Matches) -> None:
        if not matches.problems:
            return
        self.events += len({problem.event for problem in matches.problems})
        self.total += len(matches.problems)
        for problem in matches.problems[: SHOWN - len(self.first)]:
            attribute = "" if problem.attribute is None else f"attribute {problem.attribute!r}: "
            message = LINE_OF_BATCH.sub("", problem.message)
            self.first.append(f"{self.source}, {batch.place(problem.event)}: {attribute}{message}")
        if self.on_error is OnError.raise_:
            say_problems("an event cannot be read:", self.first, self.total)
            raise BadInput("correct it, or go on past such events with --on-error skip")

    def report(self) -> None:
        if self.events:
            plural = "s" * (self.events != 1)
            say_problems(f"{self.events:,} event{plural} could not be read, or not wholly:", self.first, self.total)
