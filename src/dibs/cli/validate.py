"""dibs validate: is every expression accepted, and if not, what is wrong where?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dibs.cli.csv_tables import declared_types
from dibs.cli.events import TYPES_HELP
from dibs.cli.formats import ENDINGS, STANDARD, Format, open_input, show_name
from dibs.cli.outcome import NO, outcome, results, say
from dibs.cli.served import SERVER_HELP, ask
from dibs.cli.subscriptions import read_subscriptions
from dibs.coding.lines import number_lines

if TYPE_CHECKING:
    from dibs.errors import Problem

HELP = """
Check expressions, and show every problem with its place and what to do.

\b
    dibs validate "price <= 580 AND color = 'silver'" "price <="
    dibs validate --file subs.jsonl
    cat conditions.txt | dibs validate
    dibs validate --json --file subs.parquet
    dibs validate --server http://127.0.0.1:8080 --file subs.jsonl

A file of subscriptions is JSON lines, CSV, Parquet or Arrow, by its ending. Any other file, and standard input, has
an expression or a JSON object with an "expression" on each line.

Exit code 0: all are fine; 1: there are problems.
"""


_Line = tuple[str, Any, Any, str]  # place, id, expression, what is wrong with it as a line


class _Checked(NamedTuple):
    place: str
    id: Any
    expression: Any
    problems: list[Problem]
    warnings: list[Problem]


def validate(
    expressions: Annotated[list[str] | None, typer.Argument(help="Expressions to check.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="File of subscriptions or expressions.")] = None,
    format: Annotated[Format | None, typer.Option(help="Format of the file, where the ending does not tell.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each expression.")] = False,
    server: Annotated[str | None, typer.Option("--server", help=SERVER_HELP)] = None,
    types: Annotated[list[str] | None, typer.Option(metavar="NAME=TYPE,...", help=TYPES_HELP)] = None,
) -> None:
    with outcome():
        if expressions and file:
            raise typer.BadParameter("give expressions or --file, not both")
        given: list[_Line] = [(f"expression {n}", None, text, "") for n, text in enumerate(expressions or [], 1)]
        source = iter(given) if given else _from_file(file or STANDARD, format)
        total = bad = 0
        if server is not None and types:
            raise typer.BadParameter("the types of a service are its own", param_hint="--types")
        for checked in _check(source, server, declared_types(types)):
            total += 1
            bad += bool(checked.problems)
            if json:
                _print_json(checked)
            elif checked.problems:
                name = "" if checked.id is None else f", subscription {checked.id!r}"
                typer.echo(f"{checked.place}{name}:")
                typer.echo("\n".join("  " + str(problem).replace("\n", "\n  ") for problem in checked.problems))
            elif checked.warnings:
                name = "" if checked.id is None else f", subscription {checked.id!r}"
                typer.echo(f"{checked.place}{name}: warning")
                typer.echo("\n".join(f"  {warning.message}\n    {warning.advice}" for warning in checked.warnings))
        say(f"{total - bad:,} of {total:,} expression{'s' * (total != 1)} {'is' if total == 1 else 'are'} fine")
        if bad:
            raise typer.Exit(NO)


def _check(source: Iterator[_Line], server: str | None, types: dict[str, str]) -> Iterator[_Checked]:
    """By this process, or by a service, which has limits of its own."""
    if server is None:
        import dibs

        yield from _check_with(source, partial(dibs.validate, types=types))
    else:
        with ask(server) as client:
            yield from _check_with(source, client.validate)


def _check_with(source: Iterator[_Line], find_problems: Callable[[str], list[Problem]]) -> Iterator[_Checked]:
    from dibs.errors import Problem

    seen: dict[Any, str] = {}
    for place, id, expression, wrong in source:
        found = [Problem(wrong)] if wrong else find_problems(expression)
        problems, warnings = list(found), getattr(found, "warnings", [])
        if id is not None and not wrong:
            first = seen.setdefault((isinstance(id, str), id), place)
            if first != place:
                problems.append(
                    Problem(f"the id {id!r} is taken already, at {first}", "give every subscription its own id")
                )
        yield _Checked(place, id, expression, problems, warnings)


def _from_file(name: str, format: Format | None) -> Iterator[_Line]:
    if format is None and Path(name).suffix.lower() not in ENDINGS and not Path(name).is_dir():
        yield from _from_lines(name)
        return
    read = read_subscriptions(name, format)
    for number, wrong in read.problems:
        yield f"{read.unit} {number}", None, None, wrong
    for number, (id, expression) in zip(read.numbers, read, strict=True):
        wrong = "" if isinstance(expression, str) else f"the expression must be a text, not {expression!r}"
        yield f"{read.unit} {number}", id, expression, wrong


def _from_lines(name: str) -> Iterator[_Line]:
    import orjson

    with open_input(name) as file:
        for number, text in number_lines(file, show_name(name)):
            line = text.strip()
            place, id, expression, wrong = f"line {number}", None, None, ""
            try:
                if line.startswith(b"{"):
                    row = orjson.loads(line)
                    id, expression = row.get("id"), row.get("expression")
                    wrong = "" if isinstance(expression, str) else "the object has no text 'expression'"
                else:
                    expression = line.decode()
            except orjson.JSONDecodeError as error:
                wrong = f"this is not JSON ({error})"
            except UnicodeDecodeError as error:
                wrong = f"byte {error.start + 1} is not UTF-8"
            yield place, id, expression, wrong


def _print_json(checked: _Checked) -> None:
    import orjson

    names = ("message", "advice", "start", "end", "line", "column")
    record = {
        "place": checked.place,
        **({} if checked.id is None else {"id": checked.id}),
        "expression": checked.expression,
        "valid": not checked.problems,
        "problems": [{name: getattr(problem, name) for name in names} for problem in checked.problems],
        "warnings": [{name: getattr(warning, name) for name in names} for warning in checked.warnings],
    }
    results().write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
