"""All commands of `dibs`. Each imports what it needs when it runs, so that `dibs --help` is quick."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from dibs.cli import (
    backtest,
    catalog,
    compile,
    doctor,
    explain,
    generate,
    match,
    pipeline,
    serve,
    stats,
    token,
    validate,
    warm,
)

ABOUT = """
Match events against standing SQL queries.

A subscription is an id and a SQL condition; an event is a set of attributes. Dibs finds, for every event, all the
subscriptions whose condition is true of it.

\b
    $ cat subs.jsonl
    {"id": "alice", "expression": "model = 'iphone5s' AND price <= 580"}
    {"id": "bob",   "expression": "brand LIKE 'App%' OR price BETWEEN 10 AND 20"}
    $ echo '{"model": "iphone5s", "price": 550}' | dibs match --subscriptions subs.jsonl
    {"event":0,"subscriptions":["alice"]}

\b
Exit codes:
    0    done
    1    the answer is no: validate or doctor found problems, explain found no match
    2    the command line is wrong
    3    the input is bad: a file, a line, a subscription or an event that cannot be read
    130  interrupted (Ctrl-C)

\b
When the next program in a pipe has seen enough (dibs match ... | head), that is no error: 0.
"""

app = typer.Typer(
    name="dibs",
    help=ABOUT,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command(help=match.HELP, no_args_is_help=True)(match.match)
app.command(help=explain.HELP, no_args_is_help=True)(explain.explain)
app.command(help=validate.HELP)(validate.validate)
app.command(help=compile.HELP, no_args_is_help=True)(compile.compile)
app.command(help=backtest.HELP, no_args_is_help=True)(backtest.backtest)
app.command(help=generate.HELP, no_args_is_help=True)(generate.generate)
app.command(help=warm.HELP)(warm.warm)
app.command(help=doctor.HELP)(doctor.doctor)
app.add_typer(catalog.app, name="catalog")
app.command(help=stats.HELP, no_args_is_help=True)(stats.stats)
app.command(help=serve.HELP, no_args_is_help=True)(serve.serve)
app.add_typer(token.app, name="token")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(import_module("dibs.papers.commands").app, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dibs {version('dibs')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
