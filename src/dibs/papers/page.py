"""The page of the papers' figures: a picture of each, its numbers, and how to measure it again.

    python -m dibs.papers.page FIGURES ROOT

FIGURES is a folder that `dibs bench all` has filled, ROOT that of the sources: docs/laboratory/figures.md,
docs/laboratory/verdicts.md and docs/plots/papers are written. Figures that FIGURES does not hold are named as missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dibs.papers.experiments import EXPERIMENTS, pictures, standing, verdicts
from dibs.papers.experiments.claims import Claim
from dibs.papers.experiments.experiment import MEASURES, OURS_TOO
from dibs.papers.experiments.results import FORMS, Result, path_of, read

HEAD = """# The figures of the papers, measured here

Every figure and table of the evaluations of five papers on matching events against standing queries, measured again:
OpIndex (PVLDB 2014), BE-Tree (SIGMOD 2011), PS-Tree (PVLDB 2018), Tatbul's profile matching (2001) and PB+tree (2004).
All structures are in one process, over the same coded integers, and have found the same matches at every point.
[The verdicts](verdicts.md) says what becomes of the papers' claims.

    dibs bench figure pstree-9a --scale 0.01       one figure, in a minute at most
    make papers                                    all, at the papers' sizes: many hours; goes on where it stopped

- **Sizes** are the true ones, on every axis and in every table; each figure says which share of the paper's that is.
- **Times** are processor times of one thread for coded events, the best of several rounds. Reading and coding the
  subscriptions is measured apart (the columns `read_s`, `code_s`, `code_bytes` of the results).
- **Limits**: a structure at a point has 12 GB and 10 minutes of processor time; one that takes more has the reason in
  place of a figure.
- **Data** that cannot be had are stand-ins: `dibs.papers.workloads` says which, and
  how they were made. Generators follow the papers' descriptions.
"""


# What differs between the forms of a structure, and where that is measured.
DIFFERENCES = (
    (
        "BE-Tree",
        "one attribute at a time; every event counts losses; whole nodes are inserted again",
        "large l-nodes by all attributes at once; one event in 16; only rows that would go elsewhere",
        ("betree-5a", "betree-5b", "pstree-6a", "pstree-6b", "betree-13a"),
    ),
    (
        "OpIndex",
        "an interval is two predicates; pivots by an event log",
        "a list for intervals; pivots by the events seen",
        ("opindex-10a", "opindex-11d", "pstree-6a"),
    ),
    ("k-index", "an array of counters, set back whole", "sorted lists are merged", ("betree-5a", "opindex-10a")),
    ("SIFT", "all counters are set back", "those that were touched are, if few", ("betree-5a", "betree-5b")),
    ("Propagation", "all bits are cleared", "those of the event's attributes are", ("betree-5a", "pstree-6b")),
    ("PSTBloom", "signatures of all attributes", "of three", ("pstree-6a", "pstree-6b", "pstree-table-2")),
    ("PSTHash", "later rows in all their cells", "beyond 2**26 in all, 256 each", ("pstree-6a", "pstree-table-2")),
    *(
        (name, "whole bit vectors are ANDed", "what holds is counted", ("tatbul-7",))
        for name in ("Cluster", "Interval", "Hybrid", "Segment Tree", "Interval Tree")
    ),
)
SHOWN = ("candidates", "match_us", "build_s")


def list_measured(folder: Path) -> list[str]:
    """The experiments whose points are there."""
    return [name for name in EXPERIMENTS if path_of(name, folder).exists()]


def write(folder: Path, root: Path) -> list[Path]:
    """The page, its pictures and the verdicts; what was written."""
    drawn = root / "docs" / "plots" / "papers"
    drawn.mkdir(parents=True, exist_ok=True)
    names, written = list_measured(folder), []
    for figure, own in pictures.group(names).items():
        written += pictures.draw([read(name, folder) for name in own], drawn / figure, ["svg"])
    page, judged = (root / "docs" / "laboratory" / name for name in ("figures.md", "verdicts.md"))
    page.write_text(write_page(folder, names))
    claims = [claim for claim in verdicts.CLAIMS if set(claim.experiments) <= set(names)]
    found = verdicts.judge_all(folder, claims)
    text = verdicts.write(found, verdicts.list_sizes(folder, claims), standing.judge(folder, names))
    judged.write_text(text + _say_older(folder, names) + _say_missing(claims))
    return [*written, page, judged]


def _say_older(folder: Path, names: list[str]) -> str:
    """Results of before both forms were measured."""
    older = [name for name in names if read(name, folder).settings.get("forms") != FORMS]
    if not older:
        return ""
    which = "All figures" if older == names else f"The figures {', '.join(older)}"
    return (
        f"\n{which} were measured before the experiments declared the domains of their attributes: every constant had "
        "a cell for the gap beside it, too, which takes more memory of k-index, PSTBloom and PSTHash. One seed, and "
        "all structures of a point took turns. What they call BE-Tree, OpIndex and so on is the form that is called "
        '"ours" elsewhere: each structure as it became here, not as published. Their true sizes were worked out '
        "from the scale at which they were run; those of tatbul-7, tatbul-8, tatbul-9, betree-13 and opindex-13 from "
        "the code of that time, as their files did not hold them.\n"
    )


def _say_missing(claims: list[Claim]) -> str:
    missing = [claim.name for claim in verdicts.CLAIMS if claim not in claims]
    return f"\nNot judged, as figures are missing: {', '.join(missing)}.\n" if missing else ""


def write_page(folder: Path, names: list[str]) -> str:
    parts = [HEAD]
    if missing := [name for name in EXPERIMENTS if name not in names]:
        parts.append(f"Not measured: {', '.join(missing)}.")
    if older := _say_older(folder, names):
        parts.append(older.strip())
    parts.append(write_forms(folder, names))
    for figure, own in pictures.group(names).items():
        results = [read(name, folder) for name in own]
        parts.append(f"## {figure}\n\n![{figure}](../plots/papers/{figure}.svg)")
        parts += [_write_numbers(result) for result in results]
    return "\n\n".join(parts) + "\n"


def write_forms(folder: Path, names: list[str]) -> str:
    """The table of structures: both forms at the largest point of some figures."""
    lines = [
        "## Structures as published, and as they became here\n",
        "Candidates and microseconds per event, published / ours, at the last point of the figure. Structures that are "
        "not here have one form. The machine had other work: PSTHash, whose two forms do the same until it is full, "
        "shows the noise.\n",
        "| structure | published | ours | figure | candidates | µs | built, s |",
        "| --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for label, published, ours, figures in DIFFERENCES:
        for name in figures:
            result = read(name, folder) if name in names else None
            if result is None or result.settings.get("forms") != FORMS:
                continue
            point = result.points[-1]
            both = [point["rows"].get(form, {}) for form in (label, label + OURS_TOO)]
            shown = (" / ".join(_show(row.get(measure)) or "-" for row in both) for measure in SHOWN)
            where = f"{name}, {_show(point['subscriptions'])} subscriptions"
            lines.append(f"| {label} | {published} | {ours} | {where} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _write_numbers(result: Result) -> str:
    scale = result.settings["scale"]
    share = "the paper's size" if scale == 1 else f"{100 * scale:.3g} % of the paper's size"
    made = " / ".join(sorted({point["made"] for point in result.points if "made" in point}))
    tables = [f"{result.experiment.about}: {result.sizes}, {share}" + (f" ({made})." if made else ".")]
    for measure in result.experiment.measures:
        labels = [label for label in result.labels if any(result.line(label, measure))]
        sized = result.experiment.x != "subscriptions"
        head = [result.experiment.x, *(["subscriptions"] if sized else []), *labels]
        lines = [f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
        for point in result.points:
            cells = [_show(point["x"]), *([_show(point["subscriptions"])] if sized else [])]
            cells += [_show(point["rows"].get(label, {}).get(measure)) for label in labels]
            lines.append(f"| {' | '.join(cells)} |")
        title = f"{result.experiment.about}; {MEASURES[measure]}"
        tables.append("\n".join([f"<details><summary>{title}</summary>\n", *lines, "\n</details>"]))
    tables += [f"- {text}" for text in _list_refusals(result)]
    return "\n\n".join(tables)


def _list_refusals(result: Result) -> Iterator[str]:
    for point in result.points:
        for label, row in point["rows"].items():
            if "refused" in row:
                yield f"{label} at {_show(point['x'])} {result.experiment.x}: {row['refused']}"


def _show(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) or value >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    for path in write(Path(sys.argv[1]), Path(sys.argv[2])):
        sys.stdout.write(f"Wrote {path}\n")
