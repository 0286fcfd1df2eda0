"""dibs pipeline: a job file to a running job on Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli.outcome import BadInput, outcome, say

if TYPE_CHECKING:
    from dibs.spark import BatchMetrics, RunningStream

app = typer.Typer(
    help="Run a pipeline on Spark: events from files, tables or Kafka, matches to Parquet, Delta, Kafka or a webhook.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

RUN = """
Run the job that a TOML file describes, on this machine or any Spark cluster.

\b
    dibs pipeline run examples/shop.toml
    dibs pipeline run job.toml --dry-run
    dibs pipeline run job.toml --set spark.master=spark://host:7077 --set job.mode=continuous

\b
    [source]            # events: files, table or kafka
    kind = "files"
    path = "events/"
    [subscriptions]     # folder, table or topic; changes are picked up at the next batch
    kind = "table"
    path = "subscriptions.parquet"
    [sink]              # parquet, delta, kafka or webhook
    path = "matches/"
    [job]
    checkpoint = "checkpoint/"
    mode = "available-now"

`dibs pipeline keys` lists all keys. Paths are relative to the file. Ctrl-C ends a job between two batches; started
again it goes on where it ended.
"""


@app.command(help=RUN, no_args_is_help=True)
def run(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file and print the plan; start nothing.")
    ] = False,
    set: Annotated[list[str], typer.Option("--set", help="PART.KEY=VALUE in place of what the file says.")] = [],  # noqa: B006
) -> None:
    with outcome():
        try:
            from dibs.spark.pipeline import read_job, run_job
        except ImportError as error:
            raise BadInput(str(error)) from None
        overrides = {}
        for one in set:
            key, equals, value = one.partition("=")
            if not equals:
                raise typer.BadParameter(f"{one!r}: expected PART.KEY=VALUE", param_hint="--set")
            overrides[key] = value
        read = read_job(job, overrides)
        say(read.show())
        if dry_run:
            return
        terminal = sys.stderr.isatty()
        summary = run_job(read, on_batch=None if terminal else _tell, watch=_watch if terminal else None)
        say(summary.show())


@app.command(help="List the keys of a job file.")
def keys() -> None:
    with outcome():
        from dibs.spark.pipeline.job import show_keys

        typer.echo(show_keys())


def _tell(metrics: BatchMetrics) -> None:
    say(
        f"batch {metrics.batch}: {metrics.events:,} events, {metrics.matches:,} matches, version {metrics.version:,}, "
        f"{metrics.seconds:.1f} s"
    )


def _watch(query: RunningStream) -> None:
    query.watch()
