"""dibs match: which subscriptions does each event satisfy?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli.events import EventBatch, read_events, total_of
from dibs.cli.formats import STANDARD, Format, shown_name
from dibs.cli.outcome import SHOWN, BadInput, OnError, outcome, say, say_problems
from dibs.cli.progress import bar
from dibs.cli.subscriptions import load_file

if TYPE_CHECKING:
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

Files are .jsonl, .csv, .parquet (also a folder of them) or .arrow; `-` is standard input, which is answered as the
lines come. CSV has a header; Arrow infers the types of the columns, and an empty cell is a missing attribute.

A bad subscription or event ends the run with exit code 3 and says where it is. With --on-error skip, bad
subscriptions are left out, bad events match what can be read of them, and both are counted on standard error.
"""


def match(
    subscriptions: Annotated[
        str, typer.Option("--subscriptions", "-s", help="File with id, expression[, weight]; or a compiled index.")
    ],
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
    index: Annotated[str, typer.Option(help="The index to match with.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Cores to use.  [default: all]")] = None,
) -> None:
    with outcome():
        if subscriptions == events == STANDARD:
            raise typer.BadParameter("only one of --subscriptions and --events can be standard input")
        from dibs.cli.output import open_writer

        matcher, left_out = load_file(subscriptions, on_error, index, threads)
        unread = _Unread(shown_name(events), on_error)
        total = total_of(events, format)
        with open_writer(output, matched_only) as writer, bar("matching", total, output == STANDARD) as advance:
            for batch in read_events(events, format):
                matches = matcher.match_batch(batch.data, attributes=attributes, on_error="skip")
                unread.note(batch, matches)
                numbers = range(batch.first, batch.first + batch.count)
                names = numbers if event_id is None else batch.values(event_id)
                writer.write(names, matches, top)
                advance(batch.read)
        if left_out:
            say(f"{left_out:,} bad subscription{'s' * (left_out != 1)} left out")
        unread.report()


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
