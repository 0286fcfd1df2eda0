"""Loading: what a subscription costs from its text to the first match, by what kind of text it is.

    python benchmarks/loading.py                         figures of this version, beside what they must be
    python benchmarks/loading.py --before OTHER/src      beside another version, in turns
    python benchmarks/loading.py --only "kinds alone"    some of: kinds, durable, rules, alone, repeated

Processor time of one thread, the best of several rounds. Each version works in a process of its own, which measures
whenever it is told to, so that both meet the same moods of the machine; all that is compiled is so before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

DISTINCT = 5_000  # expressions that a million subscriptions repeat


def conjunctions_of_three(n: Callable[[], int]) -> str:
    return " OR ".join(f"(a = {n()} AND b <= {n()} AND c > {n()})" for _ in range(4))


# Kinds of texts, and how many times as long as the plain conjunction they may take.
KINDS: dict[str, tuple[Callable[[Callable[[], int]], str], float]] = {
    "plain": (lambda n: f"a = {n()} AND b <= {n()}", 1),
    "parentheses": (lambda n: f"(a = {n()}) AND (b <= {n()})", 2),
    "NOT with LIKE": (lambda n: f"a = {n()} AND NOT host LIKE 'test{n()}%'", 4),
    "OR": (lambda n: f"a = {n()} OR b <= {n()}", 4),
    "(a OR b) AND c": (lambda n: f"(a = {n()} OR b <= {n()}) AND c > {n()}", 5),
    "IN and NOT IN": (
        lambda n: f"a IN ({n()},{n()},{n()}) AND NOT (b IN ('x{n()}','y') OR c BETWEEN {n()} AND {1_000 + n()})",
        7,
    ),
    "time": (lambda n: f"a = {n()} AND at >= TIMESTAMP '2024-05-{1 + n() % 28:02} 10:00:{n() % 60:02}'", 5),
    "two patterns": (lambda n: f"host LIKE '%w{n()}%' AND path LIKE '/x{n()}%.html' AND a < {n()}", 8),
    "four ORed conjunctions": (conjunctions_of_three, 14),
    "IS NOT TRUE": (lambda n: f"(a = {n()} OR b <= {n()}) IS NOT TRUE AND c > {n()}", 14),
}
EVENT = {"a": -1, "b": 5_000, "c": 3, "host": "test", "path": "/", "at": "2020-01-01"}


def texts_of(kind: str, count: int) -> list[str]:
    random = Random(kind)
    return [KINDS[kind][0](lambda: random.randrange(1_000)) for _ in range(count)]


def rule(random: Random) -> str:
    """A detection rule of 40 tests, of a shape that no other has."""
    tests = (
        lambda f: f"{f} = 'v{random.randrange(9)}'",
        lambda f: f"{f} LIKE '%w{random.randrange(9)}%'",
        lambda f: f"NOT {f} LIKE 'p{random.randrange(9)}%'",
        lambda f: f"{f} > {random.randrange(99)}",
        lambda f: f"{f} IN ('x', 'y')",
    )
    parts = [random.choice(tests)(f"f{random.randrange(30)}") for _ in range(40)]
    return " OR ".join(f"({' AND '.join(parts[k : k + 4])})" for k in range(0, 40, 4))


# ---- in the process of a version ----


class Measures:
    def __init__(self) -> None:
        self._tables: dict[Any, Any] = {}
        with suppress(ImportError):  # an earlier version has none
            from dibs import engine

            engine.load()

    def load(self, kind: str, count: int, durable: bool) -> float:
        """Microseconds of a subscription."""
        import pyarrow as pa

        from dibs.matcher import Matcher

        if (kind, count) not in self._tables:
            random = Random(1)
            texts = [rule(random) for _ in range(count)] if kind == "rules" else texts_of(kind, count)
            self._tables = {(kind, count): pa.table({"id": range(count), "expression": texts})}
        with tempfile.TemporaryDirectory() as folder:
            matcher = Matcher.open(Path(folder) / "m", threads=1) if durable else Matcher(threads=1)
            begin = time.process_time()
            matcher.add_table(self._tables[kind, count])
            matcher.match(EVENT)
            taken = time.process_time() - begin
            assert len(matcher) == count
            matcher.close()
        return taken / count * 1e6

    def alone(self, kind: str, count: int) -> tuple[float, float]:
        """Microseconds of one add: the median, and what 99 % do not exceed."""
        import pyarrow as pa

        from dibs.matcher import Matcher

        texts = texts_of(kind, count)
        matcher, taken = Matcher(threads=1), []
        matcher.add_table(pa.table({"id": [-1], "expression": [texts[0]]}))
        matcher.match(EVENT)
        for i, text in enumerate(texts):
            begin = time.process_time_ns()
            matcher.add(i, text)
            taken.append((time.process_time_ns() - begin) / 1_000)
        taken.sort()
        matcher.close()
        return taken[count // 2], taken[int(count * 0.99)]

    def repeated(self, distinct: int, count: int) -> tuple[float, float, float, int]:
        """Microseconds of adding one, of an event alone and of one in a batch; bytes of a subscription."""
        import pyarrow as pa

        from dibs.matcher import Matcher

        random = Random(distinct)
        some = [f"a = {random.randrange(100_000)} AND b <= {random.randrange(1_000)}" for _ in range(distinct)]
        texts = [some[i % distinct] for i in range(count)]
        events = [{"a": random.randrange(100_000), "b": random.randrange(1_000)} for _ in range(2_000)]
        matcher = Matcher(threads=1)
        begin = time.process_time()
        matcher.add_table(pa.table({"id": range(count), "expression": texts}))
        matcher.match(events[0])
        added = time.process_time() - begin
        found = matcher.match_batch(events).count
        # Of the thread that asks: others prepare what comes next meanwhile, which was as much again as one batch.
        begin = time.thread_time()
        assert found == sum(len(matcher.match(event)) for event in events)
        alone = time.thread_time() - begin
        batches = []
        for _ in range(9):
            begin = time.thread_time()
            assert matcher.match_batch(events).count == found
            batches.append(time.thread_time() - begin)
        batch = min(batches)
        size = sum(sum(x.segment.nbytes.values()) for x in matcher.snapshot().layers)
        return added / count * 1e6, alone / len(events) * 1e6, batch / len(events) * 1e6, size // count


def serve() -> None:
    measures = Measures()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(measures, name)(*arguments)), flush=True)


# ---- the tables ----


class Version:
    def __init__(self, source: Path):
        own = os.environ | {"PYTHONPATH": str(source)}
        command = [sys.executable, __file__, "--serve"]
        self._process = subprocess.Popen(command, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([name, arguments]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"{name}{arguments} came to nothing"
        return json.loads(answer)


def best(versions: list[Version], rounds: int, *question: Any) -> list[Any]:
    """Of each version, the least of what it answered, in turns; the first answer is not counted."""
    answers: list[list[Any]] = [[] for _ in versions]
    for turn in range(rounds + 1):
        for version, own in zip(versions, answers):
            answer = version.ask(*question)
            if turn:
                own.append(answer)
    return [[min(each) for each in zip(*own)] if isinstance(own[0], list) else min(own) for own in answers]


def show(*cells: Any) -> None:
    print("  ".join(f"{c:>9.2f}" if isinstance(c, float) else f"{c:>9}" for c in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    parser.add_argument("--only", default="kinds durable rules alone repeated")
    parser.add_argument("--count", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    sources = [Path(__file__).parent.parent / "src", *([given.before] if given.before else [])]
    versions = [Version(source) for source in sources]
    now, wanted, count, rounds = versions[:1], given.only.split(), given.count, given.rounds
    plain = best(versions, rounds, "load", "plain", count, False)
    print("microseconds of a subscription; the same before; as a multiple of the plain one; which it may be")
    show(*plain, 1.0, 1, "plain")
    for kind, (_, most) in KINDS.items():
        if "kinds" in wanted and kind != "plain":
            (taken,) = best(now, rounds, "load", kind, count, False)
            show(taken, "", taken / plain[0], most, kind)
    if "durable" in wanted:
        print("the same in a durable folder, and what is more there: at most 4")
        for kind in ("plain", "OR"):
            (memory,), (durable,) = (best(now, rounds, "load", kind, count, durable) for durable in (False, True))
            show(durable, durable - memory, kind)
    if "rules" in wanted:
        print("3,600 rules of 3,600 shapes, of 40 tests; the same before")
        show(*best(versions, rounds, "load", "rules", 3_600, False))
    if "alone" in wanted:
        print("one at a time: the median and 99 %; the same before; at most 15")
        for kind in KINDS:
            of = versions if kind == "plain" else now
            show(*(cell for answer in best(of, rounds, "alone", kind, 20_000) for cell in answer), kind)
    if "repeated" in wanted:
        print(
            "a million: microseconds of an add, of an event alone, in a batch; bytes of a subscription; distinct ones"
        )
        for distinct in (DISTINCT, 2 * count):
            for answer in best(versions, 1, "repeated", distinct, 2 * count):
                show(*answer, distinct)


if __name__ == "__main__":
    main()
