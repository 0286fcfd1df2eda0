"""How fast is a text read: templates against sqlglot's own parser, and the expression of 40 factors."""

from __future__ import annotations

import sys
import time
from typing import Any

import sqlglot

import dibs
from dibs.language.reading import read
from dibs.papers.workloads import boolean
from measure import MICRO, Say, Size, interleaved

FACTORS = 40


def run(size: Size, say: Say) -> dict[str, Any]:
    return {"templates": _templates(size, say), "40 factors": _factors(size, say)}


def _templates(size: Size, say: Say) -> dict[str, Any]:
    if not _compiled():
        sys.exit(
            "sqlglot's compiled modules are missing, so the comparison would flatter Dibs: pip install 'sqlglot[c]'"
        )
    texts = next(boolean.make_named("sparse", size.texts).subscription_batches(rows=size.texts))["expression"]
    strings = texts.to_pylist()
    assert read(texts).taken.all(), "templates left out a text of the sparse workload"
    say(f"parsing {len(strings):,} texts with everybody")
    seconds = interleaved(
        {
            "sqlglot.parse_one": lambda: [sqlglot.parse_one(s, read="spark") for s in strings],
            "templates": lambda: read(texts),
            "grammar (dibs.parse)": lambda: [dibs.parse(s) for s in strings],
        },
        max(size.repeats // 2, 1),
    )
    best = {name: min(s) for name, s in seconds.items()}
    return {
        "texts": len(strings),
        "sqlglot": sqlglot.__version__,
        "microseconds per text": {name: s / len(strings) * MICRO for name, s in best.items()},
        "of sqlglot's time": {name: s / best["sqlglot.parse_one"] for name, s in best.items()},
    }


def _compiled() -> bool:
    """Whether sqlglot runs as machine code."""
    return bool(sqlglot.parser.__file__) and not str(sqlglot.parser.__file__).endswith(".py")


def _factors(size: Size, say: Say) -> dict[str, Any]:
    """(a1 = 1 OR b1 = 1) AND ... AND (a40 = 1 OR b40 = 1), which has 2^40 conjunctions when multiplied out."""
    say(f"adding the expression of {FACTORS} factors")
    text = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(1, FACTORS + 1))
    both = [{f"{'ab'[i % 2]}{i}": 1 for i in range(1, FACTORS + 1)}, {f"a{i}": 1 for i in range(1, FACTORS)}]
    added, ready = [], []
    for _ in range(2 * size.repeats + 1):
        matcher = dibs.Matcher()
        start = time.perf_counter()
        matcher.add("it", text)
        added.append(time.perf_counter() - start)
        assert list(matcher.match_batch(both)) == [["it"], []]
        ready.append(time.perf_counter() - start)
    return {
        "milliseconds to add": min(added) * 1e3,
        "milliseconds to add and match": min(ready) * 1e3,
        "first time": added[0] * 1e3,
    }
