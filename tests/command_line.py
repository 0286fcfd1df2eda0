"""What the tests of the command line share: subscriptions and events, and running a command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import orjson
from typer.testing import CliRunner, Result

from dibs.cli.commands import app

SUBSCRIPTIONS = [
    {"id": "alice", "expression": "model = 'iphone5s' AND price <= 580", "weight": 2},
    {"id": "bob", "expression": "brand LIKE 'App%' OR price BETWEEN 10 AND 20", "weight": 5},
    {"id": "carol", "expression": "price > 0"},
]
EVENTS = [
    {"sku": "p1", "model": "iphone5s", "brand": "Apple", "price": 550},
    {"sku": "p2", "price": 15},
    {"sku": "p3", "brand": "Nokia"},
]
EXPECTED = [["alice", "bob", "carol"], ["bob", "carol"], []]


def run(*arguments: str | Path, stdin: str | bytes = b"") -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def lines_of(rows: list[Any]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def json_rows(result: Result) -> list[Any]:
    return [orjson.loads(line) for line in result.stdout.splitlines()]


def found(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.stderr
    rows = json_rows(result)
    assert [row["event"] for row in rows] == list(range(len(rows)))
    return [row["subscriptions"] for row in rows]


DIBS = [sys.executable, "-c", "from dibs.cli import main; main()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
