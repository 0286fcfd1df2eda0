"""Results to words: docs/benchmarks, their plots in docs/plots, README's figures, and a summary for the terminal.

    python benchmarks/report.py [FILE]     rewrites them from results/full.json, or from FILE

The pages are written by hand except for what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`;
docs/laboratory is that of `make papers` (dibs.papers.page).
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
ROOT = HERE.parent
MARKED = re.compile(r"<!-- begin ([\w-]+) -->.*?<!-- end \1 -->", re.DOTALL)


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


def write(results: dict[str, Any], root: Path = ROOT) -> list[Path]:
    """Rewrites the plots and the parts of the pages that are made from results; what was written."""
    written = plots.draw(results, root / "docs" / "plots")
    blocks = tables.blocks(results)
    pages = [root / "README.md", *sorted((root / "docs" / "benchmarks").glob("*.md"))]
    for page in pages:
        text = page.read_text()
        text = MARKED.sub(lambda found: _fill(found[1], blocks), text)
        page.write_text(text)
    return [*written, *pages]


def _fill(name: str, blocks: dict[str, str]) -> str:
    return f"<!-- begin {name} -->\n{blocks.get(name, 'Not measured in this run.')}\n<!-- end {name} -->"


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
