"""dibs catalog: the subscriptions of a durable matcher, looked at and changed from the command line: as people and
programs want to see them, and how people name one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli.outcome import BAD_INPUT, NO, BadInput, OnError, outcome, say, say_problems
from dibs.cli.progress import bar
from dibs.cli.served import Address, Place, ServedCatalog, ask, read_place
from dibs.cli.subscriptions import sum_up
from dibs.errors import FormatError, SubscriptionErrors

if TYPE_CHECKING:
    from dibs.client import Client
    from dibs.errors import Rejected
    from dibs.language.expression import Expression
    from dibs.matcher import Matcher
    from dibs.storage.catalog import Catalog
    from dibs.storage.catalog_rows import Entry


HELP = """
Look at and change the subscriptions of a durable matcher (Matcher.open in Python).

\b
    dibs catalog add alerts alice "model = 'iphone5s' AND price <= 580" --weight 2
    dibs catalog import alerts subs.parquet
    dibs catalog ls alerts --like iphone
    dibs catalog get alerts alice
    dibs catalog rm alerts alice bob
    dibs catalog export alerts backup.parquet
    dibs catalog check alerts
    dibs catalog compact alerts
    dibs catalog remember alerts documents.parquet --key isbn
    dibs catalog ls http://127.0.0.1:8080

ls, get, export and check only read: they work while another process writes. The others write, and a folder has one
writer at a time.

In place of the folder ls, get, export, add and rm take the address of a service (dibs serve), which they ask with the
token that DIBS_TOKEN holds. While a service runs, it is the folder's writer.

An id that reads as an integer is one: `5` is 5, and if no subscription has the id 5, the text "5". --string takes it as
a text at once. An id that begins with a dash comes after two: dibs catalog get alerts -- -5
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
Folder = Annotated[Path, typer.Argument(metavar="PATH", help="The folder of the matcher.")]
AnyPlace = Annotated[
    Any, typer.Argument(metavar="PATH", parser=read_place, help="The folder of the matcher, or a service's address.")
]
AsText = Annotated[bool, typer.Option("--string", help="The id is a text, even if it reads as an integer.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


# ---- reading ----


@app.command("ls")
def ls(
    path: AnyPlace,
    like: Annotated[
        str | None, typer.Option(help="Only those whose id or expression contains this, in any case.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0: all.")] = 100,
    json: AsJson = False,
) -> None:
    """List subscriptions in the order of their ids: a table, or a JSON object a line."""
    with outcome(), _catalog(path) as catalog:
        found = (entry for batch in catalog.entries() for entry in batch if like is None or contains(entry, like))
        shown = islice(found, limit or None)
        count = print_json(shown) if json else print_table(list(shown))
        total = len(catalog)
        if like is None:
            say(f"showing {count:,} of {total:,}")
        else:
            matching = count + sum(1 for _ in found)
            say(f"showing {count:,} of {matching:,} that contain {like!r}, of {total:,} in all")


@app.command("get")
def get(
    path: AnyPlace,
    id: Annotated[str, typer.Argument(help="The subscription's id.")],
    string: AsText = False,
    json: AsJson = False,
) -> None:
    """Show everything about one subscription. Exit code 1: no subscription has this id."""
    with outcome(), _catalog(path) as catalog:
        entry = next(filter(None, catalog.get_many(meanings(id, string))), None)
        if entry is None:
            say(f"dibs: {path}: no subscription has the id {id!r}")
            raise typer.Exit(NO)
        if json:
            print_json([entry])
        else:
            print_entry(entry)


@app.command("export")
def export(
    path: AnyPlace,
    file: Annotated[Path, typer.Argument(help="A .parquet or .jsonl file; replaced if it is there.")],
) -> None:
    """Write all subscriptions, as of one moment, to a file. PATH may also be a compiled index (dibs compile)."""
    with outcome():
        from dibs import engine
        from dibs.exchange import export, export_entries
        from dibs.matcher import Matcher

        engine.load()
        if isinstance(path, Address):
            with _catalog(path) as catalog, bar("export", len(catalog)) as advance:
                count = export_entries((entry for page in catalog.entries() for entry in page), file, sum_up(advance))
        else:
            with _warnings_told(), Matcher.load(path) as matcher, bar("export", len(matcher)) as advance:
                count = export(matcher, file, sum_up(advance))
        say(f"{_count(count)} {'is' if count == 1 else 'are'} in {file}")


@app.command("check")
def check(path: Folder, json: AsJson = False) -> None:
    """Verify every file, and that segments and catalog agree. Nothing is written. Exit code 3: something is wrong."""
    with outcome():
        import orjson

        from dibs.storage.check import check_folder

        with bar("check", None, beside_results=True):
            parts = check_folder(path)
        whole = not any(part.problems for part in parts)
        if json:
            record = {"folder": str(path), "whole": whole, "parts": [part._asdict() for part in parts]}
            sys.stdout.buffer.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        else:
            for part in parts:
                typer.echo(f"{part.part:<10} {'WRONG' if part.problems else 'fine':<6} {part.about}")
                for problem in part.problems:
                    typer.echo(f"    {problem}")
        if not whole:
            raise typer.Exit(BAD_INPUT)


# ---- writing ----


@app.command("add")
def add(
    path: AnyPlace,
    id: Annotated[str, typer.Argument(help="The subscription's id.")],
    expression: Annotated[str, typer.Argument(help="Its condition.")],
    weight: Annotated[float | None, typer.Option(help="Its weight.  [default: 1]")] = None,
    string: AsText = False,
) -> None:
    """Add a subscription; the folder is made if it is not there."""
    with outcome(), _changing(path, create=True) as matcher:
        meant = meanings(id, string)[0]
        matcher.add(meant, expression, *([] if weight is None else [weight]))
        say(f"added {show_id(meant)}: {_count(len(matcher))}")


@app.command("rm")
def rm(
    path: AnyPlace,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Their ids.")],
    string: AsText = False,
) -> None:
    """Remove subscriptions: all of them or, when one is not there, none."""
    with outcome(), _changing(path) as matcher:
        meant = [next((m for m in meanings(id, string) if m in matcher), id) for id in ids]
        matcher.remove_many(dict.fromkeys(meant))
        say(f"removed {len(set(meant)):,}: {_count(len(matcher))}")


@app.command("import")
def import_(
    path: Folder,
    file: Annotated[Path, typer.Argument(help="An export, or a Parquet file with id, expression[, weight].")],
    on_error: Annotated[OnError, typer.Option(help="What to do with bad ones, and ids that are taken.")] = (
        OnError.raise_
    ),
) -> None:
    """Add the subscriptions of a file: all or none. The folder is made if it is not there."""
    with outcome():
        from dibs.exchange import import_from

        if not file.exists():  # before a folder is made for it
            raise BadInput(f"{file}: no such file or folder")
        with _writing(path, create=True) as matcher:
            before = len(matcher)
            try:
                with bar("import", None) as advance:
                    left_out = import_from(matcher, file, on_error.value, sum_up(advance))
            except SubscriptionErrors as error:
                _say_rejected(file, error.rejected)
                raise BadInput("nothing was added; correct them, or leave them out with --on-error skip") from None
            say(f"added {len(matcher) - before:,}: {_count(len(matcher))}")
            if left_out:
                _say_rejected(file, left_out)


@app.command("remember")
def remember(
    path: Folder,
    file: Annotated[str, typer.Argument(help="Documents: .jsonl, .parquet or .arrow.")],
    key: Annotated[
        str | None, typer.Option(help="The field that holds their keys: none is added whose key is there already.")
    ] = None,
) -> None:
    """Add documents to the history, which joins over history ask for. The folder is made if it is not there."""
    with outcome():
        if not Path(file).exists():  # before a folder is made for it
            raise BadInput(f"{file}: no such file or folder")
        with _writing(path, create=True) as matcher:
            added = matcher.history.load(file, key=key)
            say(f"added {added:,} document{'s' * (added != 1)}: {len(matcher.history):,} in the history")


@app.command("compact")
def compact(path: Folder) -> None:
    """Merge all segments, save them, and trim the log of changes: the next opening and matching are fastest."""
    with outcome(), _writing(path) as matcher:
        before = matcher.stats()["storage"]
        with bar("compact", None):
            matcher.compact()
        after = matcher.stats()["storage"]
        for name in ("segment files", "segment bytes", "changes to replay"):
            typer.echo(f"{name:<18} {before[name]:>15,} -> {after[name]:>15,}")
        for name, key in (("catalog bytes", "file"), ("log entries", "log")):
            typer.echo(f"{name:<18} {before['catalog'][key]:>15,} -> {after['catalog'][key]:>15,}")


# ---- opening ----


def _require(path: Path) -> None:
    from dibs.storage.store import CATALOG

    if not (path / CATALOG).is_dir():
        raise FormatError(f"{path} holds no durable matcher; make one with Matcher.open, or dibs catalog add or import")


@contextlib.contextmanager
def _catalog(path: Place) -> Iterator[Catalog | ServedCatalog]:
    """To read: the catalog alone, which knows all, and needs no index."""
    from dibs.storage.catalog import Catalog
    from dibs.storage.store import CATALOG

    if isinstance(path, Address):
        with ask(path) as client:
            yield ServedCatalog(client)
        return
    _require(path)
    with Catalog.open(path / CATALOG, read_only=True) as catalog:
        yield catalog


@contextlib.contextmanager
def _changing(place: Place, create: bool = False) -> Iterator[Matcher | Client]:
    """A few changes, in a folder or by a service."""
    if isinstance(place, Address):
        with ask(place) as client:
            yield client
    else:
        with _writing(place, create) as matcher:
            yield matcher


@contextlib.contextmanager
def _writing(path: Path, create: bool = False) -> Iterator[Matcher]:
    from dibs import engine
    from dibs.matcher import Matcher

    engine.load()
    if not create:
        _require(path)
    with _warnings_told(), Matcher.open(path) as matcher:
        yield matcher


@contextlib.contextmanager
def _warnings_told() -> Iterator[None]:
    """What was rebuilt on opening, as a line instead of Python's warning."""
    from dibs.errors import RecoveryWarning

    with warnings.catch_warnings():
        warnings.simplefilter("always", RecoveryWarning)
        warnings.showwarning = lambda message, *_, **__: say(f"dibs: {message}")
        yield


def _count(count: int) -> str:
    return f"{count:,} subscription{'s' * (count != 1)}"


def _say_rejected(file: Path, rejected: list[Rejected]) -> None:
    unit = "line" if file.suffix.lower() == ".jsonl" else "row"
    problems = [f"{file}, {unit} {r.position + 1}: subscription {r.id!r}: {r.error}" for r in rejected]
    say_problems(f"{len(problems):,} bad subscription{'s' * (len(problems) != 1)}:", problems)


WIDEST = 100_000  # columns where no terminal cuts lines off
WIDTH = 92  # of an expression on one line
DEPTH = 30  # parts that are nested more deeply stay on one line


def meanings(id: str, string: bool) -> list[Any]:
    """What an id on the command line may be, the likelier first."""
    digits = id.removeprefix("-")
    if string or not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or str(int(id)) != id:
        return [id]
    return [int(id), id] if -(2**63) <= int(id) < 2**63 else [id]


def contains(entry: Entry, like: str) -> bool:
    like = like.casefold()
    return like in entry.text.casefold() or like in str(entry.id).casefold()


def show_id(id: Any) -> str:
    """A text that reads as an integer is quoted, so that 5 and "5" look different."""
    return f'"{id}"' if isinstance(id, str) and len(meanings(id, False)) > 1 else _printable(str(id))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _record(entry: Entry) -> dict[str, Any]:
    from dibs.exchange.files import INFINITE, show_time

    weight: Any = next((text for text, value in INFINITE.items() if value == entry.weight), entry.weight)
    record = {"id": entry.id, "version": entry.version, "time": show_time(entry.time), "weight": weight}
    return {**record, "expression": entry.text}


def print_json(entries: Iterable[Entry]) -> int:
    """A JSON object a line; how many there were."""
    import orjson

    count = 0
    for entry in entries:
        sys.stdout.buffer.write(orjson.dumps(_record(entry), option=orjson.OPT_APPEND_NEWLINE))
        count += 1
    return count


def print_table(entries: list[Entry]) -> int:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dibs.exchange.files import show_time

    seen = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(file=sys.stdout, width=None if seen else WIDEST, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    rows = [[show_id(e.id), f"{e.version:,}", show_time(e.time)[:19], str(e.weight)] for e in entries]
    room = console.width  # what the other columns leave is for the expressions
    for column, name in enumerate(("id", "version", "time", "weight")):
        room -= 2 + max(len(name), *(cell_len(row[column]) for row in rows), 0)
        justify: Any = "right" if name in ("version", "weight") else "left"
        table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
    table.add_column("expression", no_wrap=True)
    for row, e in zip(rows, entries):
        expression = Text(_printable(e.text[:WIDEST]))
        expression.truncate(max(room, 10), overflow="ellipsis")
        table.add_row(*map(Text, row), expression)
    console.print(table)
    return len(entries)


def print_entry(entry: Entry) -> None:
    from dibs.exchange.files import show_time

    shown = {"id": show_id(entry.id), "type": "integer" if isinstance(entry.id, int) else "text"}
    shown |= {"version": f"{entry.version:,}", "time": show_time(entry.time), "weight": str(entry.weight)}
    for name, value in shown.items():
        typer.echo(f"{name:<8} {value}")
    typer.echo("\n".join("    " + line for line in lay_out(entry.text)))


def lay_out(text: str) -> list[str]:
    """The lines of an expression: itself if it is short, else a line for each part of AND and OR. Whatever cannot be
    parsed is shown as it is."""
    from dibs.errors import ExpressionError
    from dibs.language.sql import parse

    if len(text) <= WIDTH and text.isprintable():
        return [text]
    try:
        return _lines(parse(text), WIDTH, DEPTH)
    except ExpressionError:
        return text.split("\n")


def _lines(node: Expression, width: int, depth: int) -> list[str]:
    from dibs.language.expression import And, Or
    from dibs.language.printer import to_sql

    whole = to_sql(node)
    if len(whole) <= width or depth == 0 or not isinstance(node, (And, Or)):
        return [whole]
    word = "AND " if isinstance(node, And) else "OR "
    lines: list[str] = []
    for child in node.children:
        own = _lines(child, width - 4, depth - 1)
        if len(own) > 1:
            own = ["(", *("    " + line for line in own), ")"]
        elif isinstance(child, Or):  # AND binds tighter
            own = [f"({own[0]})"]
        own[0] = (word if lines else "") + own[0]
        lines += own
    return lines
