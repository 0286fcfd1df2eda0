"""Folders as a version of Dibs wrote them, which every later version opens: tests/data/folders/NAME.

    PYTHONPATH=src python tests/old_folders.py NAME     one more, by the version that runs; never over an old one

Each has `durable` (a folder of Matcher.open), `saved` and `saved-betree` (of Matcher.save), all of the same
subscriptions and documents, and `expected.json`: those, the events, and the ids that the reference finds. Rows were
removed from segments that were saved already, so that there are tombstones; weights, patterns, arrays, times and joins
over the history are among them. Once committed, a folder is never written again.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

import dibs
from dibs.language.sql import parse
from dibs.reference import matches
from dibs.tuning import using

FOLDERS = Path(__file__).parent / "data" / "folders"

EXPRESSIONS = (
    "a = {n}", "b >= {n} AND s LIKE 's{n}%'", "a IN ({n}, 7) OR b < 2", "s LIKE '%x{n}%'", "s RLIKE '^s[0-{n}]x'",
    "a <> {n} AND b BETWEEN 1 AND {n}", "a IS NULL", "item.c = 'c{n}' AND NOT b = {n}", "s = 's{n}x{n}' AND a = {n}",
    "at >= TIMESTAMP '2024-05-01 0{n}:00:00'", "EXISTS d (d.a = a AND d.b > {n})", "NOT EXISTS d (d.b > b AND d.a = a)",
    "(SELECT count(*) FROM history d WHERE d.a = a) >= {n}", "b > (SELECT max(d.b) FROM history d WHERE d.a = {n})",
)  # fmt: skip
ROWS = 300  # above changes_for_a_segment: they are a segment at once
EVENTS: tuple[dict[str, Any], ...] = (
    *({"a": n, "b": n % 4, "s": f"s{n}x{n}", "item": {"c": f"c{n}"}} for n in range(9)),
    {"a": [1, 7], "b": 2},
    {"b": 5, "s": "s3x5"},
    {"s": "none"},
)
TIMED = {"a": 3, "at": "2024-05-01T04:00:00"}  # JSON has no times: the event's is made of it by `event_of`
DOCUMENTS: tuple[dict[str, Any], ...] = tuple({"a": n % 5, "b": n, "s": f"s{n}"} for n in range(12))


def event_of(plain: dict[str, Any]) -> dict[str, Any]:
    return {name: dt.datetime.fromisoformat(value) if name == "at" else value for name, value in plain.items()}


def subscriptions() -> dict[str | int, tuple[str, float]]:
    """Those that are left, by id."""
    made = {_id(i): (_text(i), _weight(i)) for i in range(ROWS)}
    for i in _removed():
        del made[_id(i)]
    made["replaced"] = ("a = 2 OR a = 8", 7.5)
    made["late"] = ("b = 3", -1.0)
    return made


def begin(m: dibs.Matcher) -> None:
    m.add_many([("replaced", "a = 1", 1.0), *((_id(i), _text(i), _weight(i)) for i in range(ROWS))])
    for number, document in enumerate(DOCUMENTS):
        m.history.add(document, key=f"k{number}" if number % 2 else None)


def change(m: dibs.Matcher) -> None:
    """What leaves tombstones in segments that are there."""
    for i in _removed():
        m.remove(_id(i))
    m.replace("replaced", "a = 2 OR a = 8", 7.5)


def end(m: dibs.Matcher) -> None:
    m.add("late", "b = 3", -1.0)


def _id(i: int) -> str | int:
    return i if i % 3 else f"s{i}"


def _text(i: int) -> str:
    return EXPRESSIONS[i % len(EXPRESSIONS)].format(n=i // len(EXPRESSIONS) % 9)


def _weight(i: int) -> float:
    return (1.0, 2.5, -1.0, 0.25)[i % 4]


def _removed() -> range:
    return range(0, ROWS, 11)


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    with dibs.Matcher.open(folder / "durable") as m:
        begin(m)
        m.compact()
    with using({"unsaved_on_closing": 1}), dibs.Matcher.open(folder / "durable") as m:
        change(m)
    with dibs.Matcher.open(folder / "durable") as m:
        end(m)  # stays in the catalog alone
    (folder / "durable" / "writer.lock").unlink()  # names this machine
    for name, index in (("saved", "auto"), ("saved-betree", "betree")):
        m = dibs.Matcher(index=index)
        for step in (begin, change, end):
            step(m)
        m.save(folder / name)
    events = [*EVENTS, TIMED]
    kept = subscriptions()
    trees = {id: parse(text) for id, (text, _) in kept.items()}
    found = [
        sorted((id for id, tree in trees.items() if matches(tree, event_of(event), DOCUMENTS)), key=str)
        for event in events
    ]
    expected = {
        "format": 1,
        "subscriptions": [[id, text, weight] for id, (text, weight) in kept.items()],
        "documents": DOCUMENTS,
        "events": events,
        "matches": found,
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    target = FOLDERS / sys.argv[1]
    if target.exists():
        sys.exit(f"{target} is there: it stays as that version wrote it; choose another name")
    write(target)
