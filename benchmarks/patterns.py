"""Patterns at memory speed? 10,000 and more of them, against an older Dibs and against hyperscan.

    python benchmarks/patterns.py
    python benchmarks/patterns.py --before ../older/src --hyperscan /tmp/venv/bin/python

--before: the `src` folder of another version of Dibs. --hyperscan: an interpreter that has hyperscan (pip install
hyperscan), which is a yardstick and no dependency. Each rival is a process of its own; they take turns on the same
batches and measure processor time. Batches are different from pass to pass: the automatons of RE2 would otherwise know
all strings by heart. No figure is printed before all rivals have found the same number of matches.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PASSES = 5


@cache
def vocabulary(size: int) -> list[str]:
    draw = random.Random(1)
    return ["".join(draw.choice(LETTERS) for _ in range(draw.randint(3, 9))) for _ in range(size)]


def words_of(kind: str) -> list[str]:
    """Few words for wildcards, so that many patterns begin to match; for all others many."""
    return vocabulary({"two of 300 words": 300, "prefixes and wildcards": 1_000}.get(kind, 30_000))


def strings(kind: str, number: int, count: int) -> list[str]:
    """Eight words each, 55 bytes."""
    draw, words = random.Random(f"strings {number}"), words_of(kind)
    return [" ".join(draw.choice(words) for _ in range(8)) for _ in range(count)]


def literals(count: int) -> list[str]:
    """Words, and two words of which the second may be cut short; none twice."""
    draw, words = random.Random("literals"), words_of("literals")
    found: dict[str, None] = {}
    while len(found) < count:
        two = f"{draw.choice(words)} {draw.choice(words)[: draw.randint(2, 9)]}"
        found[draw.choice([draw.choice(words), two, two])] = None
    return list(found)


def rules(kind: str) -> list[str]:
    """The expressions of a workload."""
    draw, words = random.Random(kind), words_of(kind)
    if kind.startswith("literals"):
        return [f"CONTAINS(t, '{x}')" for x in literals(100_000 if kind.endswith("100,000") else 10_000)]
    makers: dict[str, list[Callable[[str, str], str]]] = {
        "prefixes and wildcards": [
            lambda a, b: f"t LIKE '{a} {b}%'",
            lambda a, b: f"t LIKE '{a}%{b}%'",
            lambda a, b: f"t LIKE '%{a}%{b}%'",
            lambda a, b: f"t LIKE '%{a}%{b}'",
            lambda a, b: f"t LIKE '%{a}_{b[:3]}%'",
        ],
        "two of 300 words": [lambda a, b: f"t LIKE '%{a}%{b}%'"],
        "regular expressions": [
            lambda a, b: f"t RLIKE '(?i)\\\\b{a.title()}\\\\b'",
            lambda a, b: f"t RLIKE '{a} [a-f]+'",
            lambda a, b: f"t RLIKE '({a}|{b}) +[a-z]+$'",
            lambda a, b: f"t RLIKE '^{a}.*({b})?'",
        ],
    }
    count = 1_000 if kind == "regular expressions" else 10_000
    return [draw.choice(makers[kind])(draw.choice(words), draw.choice(words)) for _ in range(count)]


# ---- the rivals, each in a process of its own: commands come in and answers go out as lines of JSON ----


def dibs_rival() -> Callable[[dict[str, Any]], dict[str, Any]]:
    import pyarrow as pa

    import dibs

    state: dict[str, Any] = {}

    def answer(command: dict[str, Any]) -> dict[str, Any]:
        if command["do"] == "build":
            m = state["matcher"] = dibs.Matcher(threads=1)
            m.add_many(enumerate(rules(command["kind"])))
            warm = dibs.Matcher(threads=1)  # the kernels
            warm.add_many(
                (i, x) for i, x in enumerate([*rules(command["kind"])[:50], "t LIKE 'a%b' OR t RLIKE '[xy]'"])
            )
            warm.match_batch(pa.table({"t": strings(command["kind"], -1, 100)})).count  # noqa: B018
            table = pa.table({"t": strings(command["kind"], -2, 1)})
            return timed(lambda: m.match_batch(table).count)
        table = pa.table({"t": strings(command["kind"], command["batch"], command["events"])})
        return timed(lambda: state["matcher"].match_batch(table).count)

    return answer


def hyperscan_rival() -> Callable[[dict[str, Any]], dict[str, Any]]:
    import hyperscan  # type: ignore[import-not-found]

    state: dict[str, Any] = {"found": 0}

    def count(*_: Any) -> None:
        state["found"] += 1

    def scan(texts: list[bytes]) -> int:
        state["found"] = 0
        for text in texts:
            state["database"].scan(text, match_event_handler=count)
        return int(state["found"])

    def answer(command: dict[str, Any]) -> dict[str, Any]:
        if command["do"] == "build":
            texts = [x.encode() for x in literals(10_000)]
            once = [hyperscan.HS_FLAG_SINGLEMATCH] * len(texts)
            state["database"] = hyperscan.Database()
            build = {"ids": list(range(len(texts))), "elements": len(texts), "flags": once, "literal": True}
            return timed(lambda: state["database"].compile(expressions=texts, **build) or 0)
        texts = [x.encode() for x in strings(command["kind"], command["batch"], command["events"])]
        return timed(lambda: scan(texts))

    return answer


def timed(work: Callable[[], int]) -> dict[str, Any]:
    start = time.process_time()
    found = work()
    return {"seconds": time.process_time() - start, "found": found}


class Rival:
    def __init__(self, kind: str, interpreter: str, source: str | None = None):
        environment = {**os.environ, "PYTHONPATH": source or ""}
        command = [interpreter, __file__, "--rival", kind]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("a rival has failed: see above")
        found: dict[str, Any] = json.loads(answer)
        return found

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# ---- who meets whom ----


def measure(kind: str, rivals: dict[str, Rival], events: int, passes: int = PASSES) -> dict[str, float]:
    """Microseconds per event of each rival, the best of several batches, which are also printed. No two batches are the
    same."""
    built = {name: rival.ask(do="build", kind=kind)["seconds"] for name, rival in rivals.items()}
    best = dict.fromkeys(rivals, float("inf"))
    matches = 0
    for number in range(passes):
        answers = {
            name: rival.ask(do="match", kind=kind, batch=number, events=events) for name, rival in rivals.items()
        }
        found = {answer["found"] for answer in answers.values()}
        assert len(found) == 1, f"different matches: {answers}"
        matches += found.pop()
        for name, answer in answers.items():
            best[name] = min(best[name], answer["seconds"] / events * 1e6)
    for name, microseconds in best.items():
        ratio = "" if name == "dibs" else f", dibs / {name}: {best['dibs'] / microseconds:.4f}"
        print(
            f"{kind:22} {events:7,} events, {name:9}: {microseconds:8.2f} microseconds per event{ratio}; first match "
            f"{built[name] * 1000:.0f} ms; {matches / passes / events:.2f} matches per event",
            flush=True,
        )
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="the src folder of another version of Dibs")
    parser.add_argument("--hyperscan", help="an interpreter that has hyperscan")
    parser.add_argument("--rival", choices=["dibs", "hyperscan"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rival:
        answer = dibs_rival() if options.rival == "dibs" else hyperscan_rival()
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), flush=True)
        return
    own = Rival("dibs", sys.executable, str(HERE.parent / "src"))
    before = {"before": Rival("dibs", sys.executable, options.before)} if options.before else {}
    other = {"hyperscan": Rival("hyperscan", options.hyperscan)} if options.hyperscan else {}
    measure("literals", {"dibs": own, **other}, 10_000)
    for kind in ("prefixes and wildcards", "two of 300 words", "regular expressions"):
        measure(kind, {"dibs": own, **before}, 5_000, passes=3)
    measure("literals: 100,000", {"dibs": own}, 10_000)
    for rival in (own, *before.values(), *other.values()):
        rival.end()


if __name__ == "__main__":
    main()
