"""What a person or a service meets first, in one table: each measure, what it must be, and what it is now.

    python benchmarks/at_once.py --before ../older/src                     all but `dibs warm`: about six minutes
    python benchmarks/at_once.py --before ../older/src --only json live    some of first, json, single, patterns, live
    python benchmarks/at_once.py --only warm                               from empty caches: about five minutes

--before: the src folder of a version from before, beside which single events and patterns are measured; without it
those rows are left out. --hyperscan: an interpreter that has hyperscan (this one, if it has it). Ratios are of
processor time, rivals in turns, after their matches were found equal; first use, warming and live changes are by the
clock, which means something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import first_use
import patterns
import single_events
from measure import Size
from sections import events_json, live

SOURCE = Path(__file__).parents[1] / "src"
SECONDS = 10.0  # of changes beside single events
RATE = 100  # adds per second, and as many removes


class Row(NamedTuple):
    measure: str
    must: str
    now: float

    @property
    def holds(self) -> bool:
        sign, limit = self.must.split()
        return self.now <= float(limit) if sign == "<=" else self.now >= float(limit)


class Rivals(NamedTuple):
    before: Path | None
    hyperscan: str | None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def first(rivals: Rivals) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as cache:
        took = first_use.first_example(first_use.full_cache(Path(cache)))
    first_use.say_all(took)
    yield Row(
        "README's first example, empty cache, seconds", "<= 2.0", took["README's first example, empty cache"].clock
    )
    yield Row("import dibs, seconds", "<= 0.1", took["import dibs"].clock - took["python alone"].clock)


def warm(rivals: Rivals) -> Iterator[Row]:
    yield Row("dibs warm, two processes / one, clock", "<= 0.65", first_use.warming())


def json(rivals: Rivals) -> Iterator[Row]:
    found = events_json.run(Size(subscriptions=100_000, repeats=5, events=1_000, texts=0), say)
    lines = found["equality"]
    yield Row("JSON lines / orjson and match_batch of dicts", "<= 0.35", lines["/ orjson and dicts"])
    yield Row("JSON lines / orjson alone", "<= 1.0", lines["/ orjson"])
    yield Row("zipf from 1,000 columns / from a MAP", "<= 1.1", found["wide"]["columns / map"])


def single(rivals: Rivals) -> Iterator[Row]:
    for name, must in (("100 rules", "<= 8"), ("100,000 equality rules", "<= 15")):
        (own,) = single_events.compare(name, [SOURCE])
        yield Row(f"match(bytes), {name} / orjson", must, own["match(bytes)"] / own["orjson"])
    (own,) = single_events.compare("1,000 matches", [SOURCE])
    yield Row("lists of ids, 1,000 matches / pairs", "<= 3", own["lists"] / own["pairs"])
    if rivals.before is not None:
        limits = {"1M sparse, few matches": "<= 0.35", "100,000 dense": "<= 0.5", "4 segments": "<= 0.5"}
        for name, must in limits.items():
            own, other = single_events.compare(name, [SOURCE, rivals.before])
            yield Row(f"match(dict), {name} / before", must, own["match(dict)"] / other["match(dict)"])


def patterns_of(rivals: Rivals) -> Iterator[Row]:
    own = patterns.Rival("dibs", sys.executable, str(SOURCE))
    if rivals.before is not None:
        other = patterns.Rival("dibs", sys.executable, str(rivals.before))
        took = patterns.measure("prefixes and wildcards", {"dibs": own, "before": other}, 5_000, passes=3)
        yield Row("10,000 LIKE and prefix patterns, batch / before", "<= 0.02", took["dibs"] / took["before"])
        other.end()
    if rivals.hyperscan is not None:
        other = patterns.Rival("hyperscan", rivals.hyperscan)
        took = patterns.measure("literals", {"dibs": own, "hyperscan": other}, 10_000)
        yield Row("10,000 literals / hyperscan", "<= 3", took["dibs"] / took["hyperscan"])
        other.end()
    own.end()


def changes(rivals: Rivals) -> Iterator[Row]:
    found = live.beside_single_events(1_000_000, RATE, SECONDS, say)
    yield Row("single events at 100 adds and removes a second / idle", ">= 0.75", found["of idle"])
    yield Row("the same by processor time", ">= 0.75", found["of idle, by processor time"])


PARTS: dict[str, Callable[[Rivals], Iterator[Row]]] = {
    "first": first,
    "json": json,
    "single": single,
    "patterns": patterns_of,
    "live": changes,
    "warm": warm,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the src folder of a version from before")
    parser.add_argument("--hyperscan", help="an interpreter that has hyperscan")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="some of the measures")
    options = parser.parse_args()
    hyperscan = options.hyperscan or (sys.executable if find_spec("hyperscan") else None)
    rows: list[Row] = []
    for part in options.only or [part for part in PARTS if part != "warm"]:
        rows += PARTS[part](Rivals(options.before, hyperscan))
    print("| measure | must | now |\n| --- | ---: | ---: |")
    for row in rows:
        print(f"| {row.measure} | {row.must} | {row.now:.3g}{'' if row.holds else ' (not yet)'} |")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
