"""Subscriptions of a catalog as people and programs want to see them, and how people name one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from dibs.language.expression import Expression
    from dibs.storage.catalog_rows import Entry

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
