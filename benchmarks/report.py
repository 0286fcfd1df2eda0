"""Results to words: the tables and plots of BENCHMARKS.md, and a summary for the terminal.

    python benchmarks/report.py [FILE]     rewrites BENCHMARKS.md from results/full.json, or from FILE

BENCHMARKS.md is written by hand except for what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

import plots
import tables

HERE = Path(__file__).parent
DOCUMENT = HERE.parent / "BENCHMARKS.md"


def show(results: dict[str, Any], console: Console) -> None:
    """The promises and what was measured, on a terminal."""
    shown = RichTable(title=f"{results['size']['subscriptions']:,} subscriptions (the promises are for 1,000,000)")
    for column in ("measure", "", "must", "aim", "measured"):
        shown.add_column(column, justify="right" if column in ("must", "aim", "measured") else "left")
    for promise in tables.promises(results):
        style = "" if promise.kept else "bold red"
        shown.add_row(promise.measure, promise.where, promise.must, promise.aim, promise.shown, style=style)
    if shown.row_count:
        console.print(shown)
    _show_structures(results["sections"].get("structures"), console)
    blocks = tables.blocks(results)
    for name in ("live", "durable", "pages"):
        if name in blocks:
            console.print(f"\n{name}:\n\n{blocks[name]}", markup=False, highlight=False, soft_wrap=True)


def _show_structures(section: dict[str, Any] | None, console: Console) -> None:
    for shape, workload in (section or {"workloads": {}})["workloads"].items():
        shown = RichTable(title=f"{shape}, {section['subscriptions']:,} subscriptions")
        for column in tables.STRUCTURE_HEAD:
            shown.add_column(
                column, justify="left" if column == "structure" else "right", no_wrap=column == "structure"
            )
        for name, *figures in tables.structure_rows(workload, section["subscriptions"]):
            shown.add_row(name, *map(tables.number, figures))
        console.print(shown)
        for reason in tables.refusals(workload):
            console.print(reason, markup=False, highlight=False)


def write(results: dict[str, Any], document: Path = DOCUMENT, folder: Path = HERE / "plots") -> list[Path]:
    """Rewrites the plots and the parts of BENCHMARKS.md that are made from results; what was written."""
    written = plots.draw(results, folder)
    text = document.read_text()
    for name, content in tables.blocks(results).items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            sys.exit(f"{document}: the markers {begin} and {end} must stand in it once; put them back")
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        text = pattern.sub(lambda _, new=f"{begin}\n{content}\n{end}": new, text)
    document.write_text(text)
    return [*written, document]


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results" / "full.json"
    try:
        results = json.loads(path.read_text())
    except FileNotFoundError:
        sys.exit(f"{path} does not exist: run benchmarks/run.py first")
    except ValueError as e:
        sys.exit(f"{path} is no JSON ({e}): give a file that benchmarks/run.py wrote")
    missing = tables.missing(results)
    if missing:
        sys.exit(f"{path} has no results for {', '.join(missing)}: give the file of a run without --only")
    show(results, Console())
    for written in write(results):
        print(f"Wrote {written}")


if __name__ == "__main__":
    main()
