"""What may only fall: lines and files of each folder, the ways of calls (walks.py), what parts of `auto` look at.

    PYTHONPATH=src:tests python tests/budgets.py              what is measured beside the budgets
    PYTHONPATH=src:tests python tests/budgets.py --lower      writes budgets.toml: each budget that can fall falls
    PYTHONPATH=src:tests python tests/budgets.py --raise "lines.src/dibs/spark" ...     lets these rise, too

A commit that adds a capability may raise a budget, with the reason in docs/decisions. The walk on Spark is measured by
its test alone, which has a session: change it by hand.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np

from dibs.tuning import using
from walks import Walk, defaults, matcher_walks, service_walks

ROOT = Path(__file__).parent.parent
TABLE = Path(__file__).parent / "budgets.toml"
# Folders of folders that have a budget of their own.
APART = ("index/auto", "papers/experiments", "papers/structures", "papers/workloads")
STEP = 25  # lines: a budget is a multiple, so that a comment more is no matter
Sections = dict[str, dict[str, int]]


def read() -> Sections:
    found: Sections = {}
    for line in TABLE.read_text().splitlines():
        if section := re.fullmatch(r"\[(\w+)\]", line):
            found[section[1]] = {}
        elif entry := re.fullmatch(r'"([^"]+)" = (\d+)', line):
            list(found.values())[-1][entry[1]] = int(entry[2])
    return found


def write(budgets: Sections) -> None:
    lines = ["# What may only fall. tests/budgets.py measures it, and says how to change this table."]
    for section, entries in budgets.items():
        lines += ["", f"[{section}]", *(f'"{name}" = {budget}' for name, budget in sorted(entries.items()))]
    TABLE.write_text("\n".join(lines) + "\n")


def measure_folders(root: Path = ROOT) -> Sections:
    lines: dict[str, int] = {}
    files: dict[str, int] = {}
    for path in (root / "src/dibs").rglob("*.py"):
        inside = path.relative_to(root / "src/dibs").parts
        apart = "/".join(inside[:2])
        folder = apart if apart in APART else inside[0] if len(inside) > 1 else "."
        name = "src/dibs" if folder == "." else f"src/dibs/{folder}"
        lines[name] = lines.get(name, 0) + path.read_text().count("\n")
        files[name] = files.get(name, 0) + 1
    return {"lines": {name: -(-count // STEP) * STEP for name, count in lines.items()}, "files": files}


def measure_walks(walks: dict[str, Walk]) -> Sections:
    return {
        "walk_frames": {name: _round(len(walk.frames)) for name, walk in walks.items()},
        "walk_files": {name: len(walk.files) for name, walk in walks.items()},
    }


def _round(frames: int) -> int:
    """Up to a multiple of ten for long ways, of which a frame or two may depend on the moment."""
    return frames if frames < 50 else -(-frames // 10) * 10


def measure_candidates() -> Sections:
    """Of 512 events against 4,000 conjunctions: what each part of `auto` looks at, where all of them go there. A look
    at a mask serves 512 events."""
    with using(defaults()):
        return {"candidates": _measure_candidates()}


def _measure_candidates() -> dict[str, int]:
    from coded import conjunctions_of, events_of
    from dibs.index import create
    from dibs.index.auto.masks import Masks
    from dibs.index.auto.planner import OneByOne
    from dibs.index.auto.shares import guess_shares
    from dibs.index.base import Pairs, in_parts
    from dibs.index.statistics import guess_presence, highest_cells, probabilities

    rng = np.random.default_rng(7)
    found: dict[str, int] = {}
    for kind, attributes in (("sparse", 600), ("dense", 20)):
        rows = [
            [(int(a), [(lo := int(rng.integers(1, 41)), min(lo + int(rng.integers(8)), 40))]) for a in sorted(names)]
            for names in (rng.choice(attributes, int(rng.integers(1, 5)), replace=False) for _ in range(4000))
        ]
        events = [
            {int(a): int(rng.integers(1, 41)) for a in rng.choice(attributes, 12, replace=False)} for _ in range(512)
        ]
        clauses, coded = conjunctions_of(rows, attributes), events_of(events)
        right = len(create("scan", clauses).match(coded, 1))
        highest = highest_cells(clauses)
        shares = guess_shares(clauses, guess_presence(clauses), highest)
        share = probabilities(clauses, shares.presence, highest)
        masks = Masks.build(clauses, np.arange(len(clauses)), np.empty(0, np.int64), share)
        auto = create("auto", clauses).match(coded, 1)

        def of_masks(last, room, done, masks=masks, coded=coded):  # type: ignore[no-untyped-def]
            masks.match(coded, last, room, done)

        parts: dict[str, Pairs] = {
            "as planned": auto,
            "masks": in_parts(of_masks, len(coded), 1, 512),
            "bits": OneByOne(clauses, masks, shares, highest).match(coded, 1, None),
        }
        for part, pairs in parts.items():
            assert len(pairs) == right, f"{part} of {kind} found {len(pairs)} pairs, not {right}"
            found[f"{kind}, {part}"] = pairs.candidates
            found[f"{kind}, {part}, predicates"] = pairs.predicates
    return found


def measure() -> Sections:
    return {**measure_folders(), **measure_walks({**matcher_walks(), **service_walks()}), **measure_candidates()}


def exceeded(measured: Sections, budgets: Sections) -> list[str]:
    """What is above its budget, or has none; and budgets of folders that are gone."""
    wrong = []
    for section, entries in measured.items():
        for name, value in entries.items():
            budget = budgets.get(section, {}).get(name)
            if budget is None:
                wrong.append(f"{section}: {name!r} has no budget: it is {value}")
            elif value > budget:
                wrong.append(f"{section}: {name!r} is {value}, and may be {budget}")
        if section in ("lines", "files"):
            wrong += [f"{section}: {name!r} is gone" for name in budgets.get(section, {}) if name not in entries]
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lower", action="store_true")
    parser.add_argument("--raise", dest="risen", nargs="+", default=[], metavar="SECTION.NAME")
    chosen = parser.parse_args()
    old, new = read() if TABLE.exists() else {}, measure()
    for section, entries in new.items():
        for name, value in sorted(entries.items()):
            print(f"{section:12} {name:40} {value:8,} of {old.get(section, {}).get(name, 0):8,}")
    if not (chosen.lower or chosen.risen):
        return
    for section, entries in new.items():
        before = old.get(section, {})
        for name, value in entries.items():
            if name in before and f"{section}.{name}" not in chosen.risen:
                entries[name] = min(value, before[name])
        if section not in ("lines", "files"):
            entries |= {name: budget for name, budget in before.items() if name not in entries}
    write(new)


if __name__ == "__main__":
    main()
