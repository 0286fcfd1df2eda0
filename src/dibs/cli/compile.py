"""dibs compile: subscriptions to index files, once for many runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dibs.cli.csv_tables import declared_types
from dibs.cli.events import TYPES_HELP
from dibs.cli.outcome import OnError, outcome, say
from dibs.cli.subscriptions import HISTORY_HELP, load_file

HELP = """
Compile subscriptions into a folder of index files, which `dibs match` and Spark then open at once.

\b
    dibs compile --subscriptions subs.parquet --out subs.index
    dibs match --subscriptions subs.index --events events.jsonl

An index that stands in the folder is replaced; a folder with anything else in it is left alone.
"""


def compile(
    subscriptions: Annotated[str, typer.Option("--subscriptions", "-s", help="File with id, expression[, weight].")],
    out: Annotated[Path, typer.Option(help="The folder to write to; made if it is not there.")],
    on_error: Annotated[OnError, typer.Option(help="What to do with bad subscriptions.")] = OnError.raise_,
    index: Annotated[str, typer.Option(help="The index to match with.")] = "auto",
    history: Annotated[str | None, typer.Option(help=HISTORY_HELP + " They are saved along.")] = None,
    types: Annotated[list[str] | None, typer.Option(metavar="NAME=TYPE,...", help=TYPES_HELP)] = None,
) -> None:
    with outcome():
        matcher, left_out = load_file(subscriptions, on_error, index, None, types=declared_types(types))
        if history is not None:
            matcher.history.load(history)
        matcher.save(out)
        say(f"{len(matcher):,} subscriptions are in {out}")
        if left_out:
            say(f"{left_out:,} bad subscription{'s' * (left_out != 1)} left out")
