"""The tables about others: rivals from outside, the papers' figures, and benchmarks that are scripts of their own."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from words import markdown

HERE = Path(__file__).parent
KINDS = {"join": "joins", "rules": "rules one by one"}


def write_outside(sections: dict[str, Any]) -> str:
    section = sections["outside"]
    rows = []
    for shape, workload in section["workloads"].items():
        for kind, title in KINDS.items():
            found = workload[kind]
            own = found["microseconds per event"]["dibs"]
            for name, time in found["microseconds per event"].items():
                who = f"**{name}**" if name == "dibs" else name
                rows.append([f"{shape}, {title}, {found['subscriptions']:,}", who, time, time / own])
    patterns = section["patterns"]
    own = patterns["microseconds per string"]["dibs"]
    for name, time in patterns["microseconds per string"].items():
        who = f"**{name}**" if name == "dibs" else name
        rows.append([f"texts with one of {patterns['patterns']:,} words", who, time, time / own])
    table = markdown(["workload and subscriptions", "", "microseconds per event", "/ dibs"], rows)
    absent = "".join(f"\n- Not here: {name}: {reason}." for name, reason in section["absent"].items())
    notes = (
        "Dibs and the joins have two threads (the patterns one), and batches of 100 events; rules are asked one event "
        "at a time."
    )
    picture = "![Dibs and what people would use instead](../plots/outside.svg)"
    engines = _write_engines(section["engines"]) if "engines" in section else "JSON engines: not measured in this run."
    return f"{picture}\n\n{table}\n\n{notes}\n\n{engines}\n{absent}"


def _write_engines(workloads: dict[str, Any]) -> str:
    """JSON engines: a row for each workload, a column for each of them."""
    names = list(dict.fromkeys(name for found in workloads.values() for name in found["microseconds per event"]))
    rows, left_out = [], []
    for title, found in workloads.items():
        about = f"{title} ({found['rules']:,}), {found['matches per event']:.3g} matches"
        rows.append([about, *(found["microseconds per event"].get(name, "") for name in names)])
        left_out += [f"{name} with {title}: {reason}" for name, reason in found["left out"].items()]
    table = markdown(["processor microseconds per event", *(f"**{n}**" if "dibs" in n else n for n in names)], rows)
    size = next(iter(workloads.values()))["bytes per event"]
    notes = (
        f"From JSON text of 20 fields (about {size:.0f} bytes) to matched ids, one core; `match` takes one event, "
        "`match_batch` JSON lines; the engines take one event at a time, after warming up."
    )
    without = f" Without a figure: {'; '.join(left_out)}." if left_out else ""
    return f"JSON engines that services use (programs in `benchmarks/engines`):\n\n{table}\n\n{notes}{without}"


def write_papers(sections: dict[str, Any]) -> str:
    """A sample, by which `make bench` sees that all figures still run; the pages are of `make papers`."""
    section = sections["papers"]
    scale, seconds = section.get("scale", 0.0), sum(section.get("seconds", {}).values())
    return (
        f"{section['experiments']} figures and tables of the five papers can be measured again, structures as "
        f"published beside `auto`: [the figures](../laboratory/figures.md) and [what becomes of the papers' "
        f"claims](../laboratory/verdicts.md) are of runs of `make papers`, with the sizes that stand there. This run "
        f"has measured a sample, {scale:.2g} of the papers' sizes, in {seconds:,.0f} s of processor time: "
        f"{section.get('auto', '')}"
    )


def list_scripts() -> str:
    """Every script of this folder that is no part of `make bench`, with the first line of what it says about itself."""
    lines = []
    for path in sorted(HERE.glob("*.py")):
        text = path.read_text()
        if '\nif __name__ == "__main__":' in text and path.name not in ("run.py", "report.py"):
            about = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
            lines.append(f"- [`{path.name}`](../../benchmarks/{path.name}): {about}")
    return "\n".join(lines)
