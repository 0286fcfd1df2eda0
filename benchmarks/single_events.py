"""Single events and lists of ids: what one `match` costs, beside parsing alone by orjson and beside another version.

    python benchmarks/single_events.py                          figures of this version
    python benchmarks/single_events.py --against OTHER/src      both, in turns, after their answers were found equal

Processor time of one thread, the best of several rounds. Each version works in a process of its own, which builds the
workload and then measures whenever it is told to, so that both meet the same moods of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

ROUNDS = 10
EVENTS = 300


def twenty_fields(random: Random) -> dict[str, Any]:
    """Some 560 bytes."""
    event: dict[str, Any] = {"price": random.randint(0, 1_000), "color": random.choice(["red", "green", "blue"])}
    event["kind"] = f"k{random.randint(0, 49_999)}"
    for k in range(17):
        texts = [random.random() * 1_000, random.randint(0, 10**6), f"some text of length {random.randint(0, 10**6)}"]
        event[f"field_{k:02d}"] = random.choice(texts)
    return event


def rules_100(matcher: Any) -> list[dict[str, Any]]:
    matcher.add_many([(f"r{i}", f"price = {i * 10} AND color = 'red'") for i in range(100)])
    return [twenty_fields(Random(i)) for i in range(EVENTS)]


def rules_100_000(matcher: Any) -> list[dict[str, Any]]:
    matcher.add_many([(f"r{i}", f"kind = 'k{i // 2}'") for i in range(100_000)])
    return [twenty_fields(Random(i)) for i in range(EVENTS)]


def sparse(matcher: Any) -> list[dict[str, Any]]:
    return generated(matcher, {"attributes": 30_000, "smallest": 5, "largest": 9}, 1_000_000, 50_000)


def dense(matcher: Any) -> list[dict[str, Any]]:
    return generated(matcher, {"attributes": 100, "smallest": 3, "largest": 7}, 100_000, 1_000)


def small_dense(matcher: Any) -> list[dict[str, Any]]:
    return generated(matcher, {"attributes": 100, "smallest": 3, "largest": 7}, 10_000, 1_000)


def segments(matcher: Any) -> list[dict[str, Any]]:
    """Four of them, which are not merged."""
    from dibs.tuning import put

    put({"size_ratio": 0, "merged_at_once": 10**9, "small_segments": 100})
    return generated(matcher, {"attributes": 30_000}, 106_000, 1_000, cuts=[100_000, 102_000, 104_000, 106_000])


def generated(
    matcher: Any, shape: dict[str, int], rows: int, events: int, cuts: Iterable[int] = ()
) -> list[dict[str, Any]]:
    from dibs.papers.workloads import boolean

    workload = boolean.generate(boolean.Shape(**shape), rows, events=events)
    table, first = workload.subscription_table(), 0
    for last in cuts or [rows]:
        matcher.add_table(table.slice(first, last - first))
        first = last
    names, values = workload.event_attribute[:EVENTS], workload.event_value[:EVENTS]
    return replace(workload, event_attribute=names, event_value=values).event_dicts()


def many_matches(matcher: Any) -> list[dict[str, Any]]:
    """A thousand string ids for each event."""
    matcher.add_many([(f"subscription {i}", f"kind = 'k{i % 100}'") for i in range(100_000)])
    return [twenty_fields(Random(i)) | {"kind": f"k{i % 100}"} for i in range(2_000)]


WORKLOADS: dict[str, Callable[[Any], list[dict[str, Any]]]] = {
    "100 rules": rules_100,
    "100,000 equality rules": rules_100_000,
    "1M sparse, few matches": sparse,
    "100,000 dense": dense,
    "10,000 dense": small_dense,
    "4 segments": segments,
    "1,000 matches": many_matches,
}


def cpu_time(work: Callable[[], object]) -> float:
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def measures(name: str) -> tuple[dict[str, Callable[[], float]], int]:
    """What can be measured, in microseconds for each event; and a checksum of all answers."""
    import orjson

    from dibs import Matcher

    matcher = Matcher(threads=1)
    events = WORKLOADS[name](matcher)
    texts = [orjson.dumps(event) for event in events]
    answers = [matcher.match(event) for event in events]
    matcher._layers.upkeep.rest()
    assert [matcher.match(event) for event in events] == answers == list(matcher.match_batch(events))
    takes_texts = hasattr(matcher, "_matching")  # earlier versions take dicts only

    def each(call: Callable[[Any], object], items: list[Any]) -> Callable[[], float]:
        def work() -> None:
            for item in items:
                call(item)

        return lambda: cpu_time(work) * 1e6 / len(items)

    result = {"match(dict)": each(matcher.match, events), "orjson": each(orjson.loads, texts)}
    if takes_texts:
        assert [matcher.match(text) for text in texts] == answers
        result["match(bytes)"] = each(matcher.match, texts)
    if name == "1,000 matches":
        lines = b"\n".join(texts)
        batch = lambda: matcher.match_batch(lines)  # noqa: E731
        result["pairs"] = lambda: cpu_time(lambda: batch().pairs()) * 1e6 / len(events)
        result["lists"] = lambda: cpu_time(lambda: sum(map(len, batch()))) * 1e6 / len(events)  # one after the other
        result["lists, all kept"] = lambda: cpu_time(lambda: list(batch())) * 1e6 / len(events)
    return result, zlib.crc32(json.dumps(answers).encode())


def serve() -> None:
    """Reads the names of workloads, or "again", and writes figures."""
    found: dict[str, Callable[[], float]] = {}
    for line in sys.stdin:
        if line.strip() == "again":
            print(json.dumps({what: measure() for what, measure in found.items()}), flush=True)
        else:
            found, answers = measures(line.strip())
            print(answers, flush=True)


class Version:
    def __init__(self, source: Path):
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(source)},
        )

    def ask(self, words: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(words, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


def compare(name: str, sources: list[Path]) -> list[dict[str, float]]:
    """The figures of a workload by the versions of these sources, in turns, after their answers were found equal."""
    versions = [Version(source) for source in sources]
    assert len({version.ask(name) for version in versions}) == 1, f"{name}: the answers differ"
    rounds = [[version.ask("again") for version in versions] for _ in range(ROUNDS)]
    for version in versions:
        version.end()
    return [{what: min(r[i][what] for r in rounds) for what in rounds[0][i]} for i in range(len(versions))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    parser.add_argument("--only", default="", help="workloads whose names contain this")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    sources = [Path(__file__).parents[1] / "src", *([options.against] if options.against else [])]
    for name in (name for name in WORKLOADS if options.only in name):
        best = compare(name, sources)
        own = best[0]
        print(f"{name}: " + ", ".join(f"{what} {value:.2f}" for what, value in own.items()), end="")
        print(f"; match(bytes) / orjson {own['match(bytes)'] / own['orjson']:.1f}", end="")
        if "lists" in own:
            print(f"; lists / pairs {own['lists'] / own['pairs']:.2f}", end="")
        for other in best[1:]:
            print(f"; the other's match(dict) {other['match(dict)']:.2f}", end="")
            print(f": {own['match(dict)'] / other['match(dict)']:.2f} of it", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
