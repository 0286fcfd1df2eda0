"""Is every answer right? Random pairs of expression and event, through every index and every entry, against a judge.

    python tests/exactness.py                                        1,000,000 pairs, judged by the reference
    python tests/exactness.py --judge all --thresholds random        also by DuckDB's and Spark's WHERE
    python tests/exactness.py --indexes auto,betree --seed 7

In each round the judge is asked once about every pair of some hundred expressions and events. Then every index gets the
expressions, in one of the ways in which a matcher can come to them (MAKINGS in entries.py), and is asked by every entry
that can take the events. The first wrong answer is made as small as it can be and printed, and the exit code is 1.

test_exactness.py runs a short form of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

sys.path.insert(0, os.path.dirname(__file__))

from batches import Batch, random_case
from dibs.index import INDEXES
from dibs.language.expression import Expression
from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.reference import evaluate, matches
from dibs.tuning import at_random, smallest, using
from entries import (
    MAKINGS,
    WITHOUT_INDEX,
    Answer,
    Making,
    Subscription,
    askings,
    backtested,
    check_counts,
    check_top,
    nothing_fails_unseen,
    replayed,
)
from sql_judges import Kept, kept_by_duckdb, kept_by_spark
from strategies import typed_expression, typed_rows

SIZE = 200  # expressions and events of a round
THRESHOLDS = ("default", "smallest", "random")
TRIES = 150  # to make a wrong case smaller
SAY_EVERY = 60  # seconds


class Round(NamedTuple):
    seed: int
    expressions: list[Expression]
    batch: Batch
    answer: Answer  # the judge's

    @property
    def subscriptions(self) -> list[Subscription]:
        random = Random(self.seed)
        return [Subscription(i, to_sql(e), random.choice([0.5, 1, 2])) for i, e in enumerate(self.expressions)]

    def part(self, expressions: Sequence[int], events: Sequence[int]) -> Round:
        """The round of some of its expressions and events."""
        place = {old: new for new, old in enumerate(expressions)}
        forms = {name: (_taken(data, events), column) for name, (data, column) in self.batch.forms.items()}
        batch = self.batch._replace(events=_taken(self.batch.events, events), forms=forms)
        answer = [[place[i] for i in self.answer[e] if i in place] for e in events]
        return Round(self.seed, [self.expressions[i] for i in expressions], batch, answer)


def _taken(data: Any, places: Sequence[int]) -> Any:
    if isinstance(data, list):
        return [data[i] for i in places]
    if isinstance(data, bytes):
        lines = data.split(b"\n")
        return b"\n".join(lines[i] for i in places)
    return data.take(pa.array(places, pa.int64()))


@dataclass
class Summary:
    judge: str
    thresholds: str
    seed: int
    rounds: int = 0
    pairs: int = 0  # of expression and event, judged
    matches: int = 0  # of them
    answers: int = 0  # of an index by an entry about such a pair
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.judge}, thresholds {self.thresholds}, seed {self.seed}: {self.pairs:,} pairs judged, "
            f"{self.matches:,} match; {self.answers:,} answers compared; {len(self.wrong)} wrong"
        )


# --- judges --------------------------------------------------------------------------------------------------------


def round_by_reference(seed: int, size: int = SIZE) -> Round:
    case = random_case(Random(seed), size, size)
    answer = [[i for i, e in enumerate(case.expressions) if matches(e, event)] for event in case.batch.events]
    return Round(seed, case.expressions, case.batch, answer)


def round_by_sql(kept_by: Callable[[list[Expression], pa.Table], Kept], seed: int, size: int = SIZE) -> Round:
    random = Random(seed)
    rows = typed_rows(random, size)
    expressions = [typed_expression(random) for _ in range(size)]
    answer: Answer = [[] for _ in range(size)]
    for row, number in sorted(kept_by(expressions, rows)):
        answer[row].append(number)
    events = rows.to_pylist()
    forms: dict[str, tuple[Any, str | None]] = {
        "dicts": (events, None),
        "arrow table": (rows, None),
        "struct column": (pa.table({"event": rows.to_struct_array()}), "event"),
    }
    return Round(seed, expressions, Batch(events, forms), answer)


def judge(name: str, spark: Any = None) -> Callable[[int, int], Round]:
    """From a seed and a size to a round with the answer of this judge."""
    if name == "reference":
        return round_by_reference
    if name == "duckdb":
        return lambda seed, size: round_by_sql(kept_by_duckdb, seed, size)
    if spark is None:
        from dibs.spark import session

        spark = session(cores=1, app="dibs-exactness")
    return lambda seed, size: round_by_sql(
        lambda es, rows: kept_by_spark(spark, list(map(to_sql, es)), rows), seed, size
    )


# --- one round -----------------------------------------------------------------------------------------------------


def difference(round: Round, found: Answer) -> str:
    """The first pair that the answer has wrong, or nothing."""
    if found == round.answer:
        return ""
    for event, right, wrong in zip(round.batch.events, round.answer, found, strict=True):
        for i in sorted(set(right) ^ set(wrong)):
            return f"{to_sql(round.expressions[i])}\n  on {event}\n  matches: {i in right}, was told: {i in wrong}"
        if right != wrong:
            return f"ids on {event}\n  {right}, was told: {wrong}"
    raise AssertionError("unequal, but not different")


def checks_of(round: Round) -> dict[str, Callable[[Matcher], str]]:
    """By entry: what is wrong with the answer of a matcher, or nothing."""
    batch = round.batch
    weights = {s.id: s.weight for s in round.subscriptions}
    checks: dict[str, Callable[[Matcher], str]] = {
        name: lambda matcher, ask=ask: difference(round, ask(matcher, batch)) for name, ask in askings(batch).items()
    }
    checks["count"] = lambda matcher: check_counts(matcher, batch, round.answer)
    checks["top"] = lambda matcher: check_top(matcher, batch, round.answer, weights, 3)
    form = Random(round.seed).choice(list(batch.forms))
    checks[f"replay of {form}"] = lambda matcher: difference(round, replayed(matcher, batch, form))
    return checks


@dataclass
class Wrong:
    entry: str
    what: str


def ask(round: Round, index: str, making: str, only: str | None = None) -> tuple[int, Wrong | None]:
    """How many entries were asked, and the first one that is wrong. only: that entry alone."""
    asked, entry = 0, "building"
    with tempfile.TemporaryDirectory(prefix="dibs-exactness-") as folder:
        random = Random(f"{round.seed} {index} {making}")
        parts = Making(index, round.subscriptions, Path(folder) / "index", random, round.batch.events[0])
        try:
            with nothing_fails_unseen(), MAKINGS[making](parts) as matcher:
                for entry, check in checks_of(round).items():
                    if only in (None, entry):
                        asked += 1
                        if what := check(matcher):
                            return asked, Wrong(entry, what)
        except Exception:
            return asked, Wrong(entry, traceback.format_exc())
    return asked, None


def ask_without_index(round: Round) -> tuple[int, Wrong | None]:
    """backtest and explain, which have no index; and the reference, where another one is the judge."""
    asked = 0
    for form in round.batch.forms:
        asked += 1
        texts = [s.text for s in round.subscriptions]
        if what := difference(round, backtested(texts, round.batch, form)):
            return asked, Wrong(f"backtest of {form}", what)
    random = Random(round.seed)
    with Matcher() as matcher:
        matcher.add_many(round.subscriptions)
        for _ in range(200):
            i, e = random.randrange(len(round.expressions)), random.randrange(len(round.batch.events))
            event, right = round.batch.events[e], i in round.answer[e]
            for entry, found in (
                ("explain", matcher.explain(i, event).matched),
                ("reference", evaluate(round.expressions[i], event) is True),
            ):
                if found != right:
                    what = f"{to_sql(round.expressions[i])}\n  on {event}\n  matches: {right}, was told: {found}"
                    return asked, Wrong(entry, what)
    return asked, None


def reduced(round: Round, index: str, making: str, wrong: Wrong) -> tuple[Round, Wrong]:
    """The same defect with as few expressions and events as some tries find."""
    tries = 0
    kept = [list(range(len(round.expressions))), list(range(len(round.batch.events)))]
    smallest_round = round
    for which in (1, 0, 1):
        step = max(len(kept[which]) // 2, 1)
        while step:
            begin = 0
            while begin < len(kept[which]) and len(kept[which]) > 1 and tries < TRIES:
                shorter = list(kept)
                shorter[which] = kept[which][:begin] + kept[which][begin + step :]
                tries += 1
                part = round.part(*shorter) if all(shorter) else None
                still = ask(part, index, making, wrong.entry)[1] if part is not None else None
                if part is not None and still is not None:
                    kept, smallest_round, wrong = shorter, part, still
                else:
                    begin += step
            step //= 2
    return smallest_round, wrong


def told(round: Round, index: str, making: str, wrong: Wrong, thresholds: str) -> str:
    lines = [
        f"WRONG: index {index}, matcher {making}, entry {wrong.entry}, thresholds {thresholds}, seed {round.seed}",
        wrong.what,
        f"subscriptions ({len(round.expressions)}):",
        *(f"  {s.id}: {s.text}" for s in round.subscriptions[:12]),
        f"events ({len(round.batch.events)}):",
        *(f"  {event}" for event in round.batch.events[:5]),
    ]
    return "\n".join(lines)


# --- the run -------------------------------------------------------------------------------------------------------


def values_of(thresholds: str, seed: int) -> dict[str, Any]:
    return {"default": dict, "smallest": smallest, "random": lambda: at_random(seed)}[thresholds]()


def run(
    judge_name: str,
    pairs: int,
    seed: int = 1,
    indexes: Sequence[str] = tuple(INDEXES),
    thresholds: str = "smallest",
    size: int = SIZE,
    spark: Any = None,
    makings: Sequence[str] = tuple(MAKINGS),
) -> Iterator[Summary]:
    """After each round what was found so far; it ends at the first wrong answer."""
    next_round = judge(judge_name, spark)
    summary = Summary(judge_name, thresholds, seed)
    while summary.pairs < pairs and not summary.wrong:
        own = seed * 1_000_003 + summary.rounds
        round = next_round(own, size)
        summary.rounds += 1
        summary.pairs += len(round.expressions) * len(round.batch.events)
        summary.matches += sum(map(len, round.answer))
        with using(values_of(thresholds, own)):
            asked, wrong = ask_without_index(round)
            summary.answers += asked * size * size
            if wrong is not None:
                summary.wrong.append(told(round, "none", "none", wrong, thresholds))
            random, left = Random(own), list(makings)
            for index in indexes:
                making = random.choice(left)
                if making in WITHOUT_INDEX and len(left) > 1:
                    left.remove(making)  # once in a round says all
                asked, wrong = ask(round, index, making)
                summary.answers += asked * size * size
                if wrong is not None:
                    part, less = reduced(round, index, making, wrong)
                    summary.wrong.append(told(part, index, making, less, thresholds))
        yield summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000, help="of each judge (default: 1,000,000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--indexes", default=",".join(INDEXES), help="names, with commas (default: all)")
    parser.add_argument("--judge", choices=["reference", "duckdb", "spark", "all"], default="reference")
    parser.add_argument("--thresholds", choices=THRESHOLDS, default="smallest")
    options = parser.parse_args()
    indexes = options.indexes.split(",")
    if unknown := [name for name in indexes if name not in INDEXES]:
        parser.error(f"no index is called {', '.join(unknown)}; there are: {', '.join(INDEXES)}")
    if options.pairs < 1:
        parser.error(f"--pairs must be a positive number, not {options.pairs}")

    from rich.console import Console
    from rich.progress import Progress

    console, good = Console(), True
    for name in ["reference", "duckdb", "spark"] if options.judge == "all" else [options.judge]:
        with Progress(console=console, transient=True) as progress:
            task, said = progress.add_task(name, total=options.pairs), 0.0
            for summary in run(name, options.pairs, options.seed, indexes, options.thresholds):
                progress.update(task, completed=summary.pairs)
                if not console.is_terminal and time.monotonic() - said > SAY_EVERY:  # in a file there is no bar
                    said = time.monotonic()
                    console.print(f"so far: {summary}", markup=False, highlight=False, soft_wrap=True)
        for wrong in summary.wrong:
            console.print(wrong, markup=False, highlight=False, soft_wrap=True)
        console.print(str(summary), markup=False, highlight=False, soft_wrap=True)
        good &= not summary.wrong
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
