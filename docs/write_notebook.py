"""The notebook of the first hour: its cells stand here, and what they give is written beside them.

    python docs/write_notebook.py     runs all cells, in order, and writes docs/first-hour.ipynb

The tests run the cells of the file and compare what they give. No Jupyter is needed for either.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent / "first-hour.ipynb"

CELLS = [
    """# The first hour

A shop with half a year of offers, a few thousand saved searches, and the questions that come up in the first hour.
Every cell was run as it stands; run them again in Jupyter, VS Code, or wherever notebooks are run.""",
    """>from random import Random

import dibs

random = Random(7)
brands, colors = ["acme", "bolt", "cirrus", "dune"], ["red", "blue", "black", "silver"]


def offer(number):
    day = 1 + number * 180 // 6000
    return {
        "kind": random.choice(["phone", "phone", "tablet", "watch"]),
        "brand": random.choice(brands),
        "color": random.choice(colors),
        "price": round(random.lognormvariate(5.5, 0.6)),
        "at": f"2026-{1 + (day - 1) // 30:02}-{1 + (day - 1) % 30 % 28:02}T{random.randrange(24):02}:00:00Z",
    }


offers = [offer(number) for number in range(6000)]
offers[0]""",
    """## Saved searches

An id and an expression each. Three thousand are made up here; yours come from a table, by `add_table`.""",
    """>m = dibs.Matcher()
searches = []
for number in range(3000):
    parts = [f"kind = '{random.choice(['phone', 'tablet', 'watch'])}'", f"price <= {random.randrange(50, 600)}"]
    if number % 2:
        parts.append("brand IN ('{}', '{}')".format(*random.sample(brands, 2)))
    if number % 3 == 0:
        parts.append(f"color <> '{random.choice(colors)}'")
    searches.append((f"search {number}", " AND ".join(parts)))
m.add_many(searches)
len(m), searches[3]""",
    "One event, and why a search has matched it, or has not:",
    """>len(m.match(offers[0]))""",
    """>m.explain("search 3", offers[0])""",
    "## Many events at once",
    """>m.match_batch(offers[:1000])""",
    "Which searches are busy, and which have never found anything?",
    """>m.replay(offers)""",
    """## Before a search is saved

What would it have found? `time` is the attribute by which matches are counted.""",
    """>dibs.backtest("kind = 'watch' AND brand = 'dune' AND price < 150", offers, time="at", examples=2)""",
    "Several at once, to compare them:",
    """>dibs.backtest(
    {
        "cheap": "price < 100",
        "cheap or blue": "price < 100 OR color = 'blue'",
        "dear phones": "kind = 'phone' AND price > 600",
        "at night": "hour(at) < 6",
    },
    offers,
)""",
    "And one that finds nothing, with the reason:",
    """>dibs.backtest("kind = 'watch' AND colour = 'red' AND price < '150'", offers)""",
    """## What came before

The cheapest of its brand and kind so far, as each offer comes in:""",
    """>alerts = dibs.Matcher()
alerts.add(
    "cheapest so far",
    "NOT EXISTS (SELECT 1 FROM history d WHERE d.kind = kind AND d.brand = brand AND d.price <= price)",
)
alerts.match_batch(offers[:300], remember=True).count""",
    """>alerts.explain("cheapest so far", {"kind": "phone", "brand": "acme", "price": 400})""",
    """## How it is filed

`auto` chooses between several structures by what it sees of subscriptions and events, and says what it expects each
to cost:""",
    """>m.explain_plan()""",
    """## Where next

`dibs.Matcher.open("searches")` keeps all of this on disk; `dibs serve ./searches` puts it behind HTTP;
`dibs.spark.match` runs it over a table or a stream.""",
]


def run(source: str, session: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs of a cell, as a notebook keeps them."""
    body = ast.parse(source)
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(body, "cell", "exec"), session)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), session)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
    if value is not None:
        shown = hasattr(value, "_repr_html_")  # its repr may hold seconds, which differ
        data = {"text/plain": (str(value) if shown else repr(value)).splitlines(True)}
        if shown:
            data["text/html"] = value._repr_html_().splitlines(True)
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data})
    return outputs


def main() -> None:
    session: dict[str, Any] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number, text in enumerate(CELLS):
            cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
            if text.startswith(">"):
                source = text[1:]
                cell |= {"cell_type": "code", "execution_count": None, "outputs": run(source, session)}
            else:
                source = text
                cell |= {"cell_type": "markdown"}
            cells.append(cell | {"source": source.splitlines(True)})
    about = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    whole = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    NOTEBOOK.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
