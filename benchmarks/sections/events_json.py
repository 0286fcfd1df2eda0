"""What do events cost that come as JSON lines: `match_batch(bytes)` against orjson, alone and before dicts; and tables
of very many columns, of which an event fills few. Processor time of one core; match counts are compared first."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from typing import Any

import orjson

from dibs.matcher import Matcher
from dibs.papers.workloads import boolean
from measure import MICRO, Say, Size, WrongMatches

EVENTS = 10_000
RULES = 100_000
MORE = 3  # times as many repeats as others: calls of some hundredths of a second vary more
NAMES = [f"attribute_{i:02d}" for i in range(20)]
WORDS = [
    "amber",
    "birch",
    "coral",
    "dune",
    "ember",
    "fjord",
    "grove",
    "heath",
    "inlet",
    "jade",
    "knoll",
    "maple",
    "north",
    "pine",
]


def run(size: Size, say: Say) -> dict[str, Any]:
    chosen = random.Random(1)
    events = [{name: make_value(i, chosen) for i, name in enumerate(NAMES)} for _ in range(EVENTS)]
    lines = [orjson.dumps(event) for event in events]
    rules = min(size.subscriptions, RULES)
    return {
        "bytes per event": sum(map(len, lines)) / EVENTS,
        "rules": rules,
        "equality": _lines(events, lines, rules, False, size, say),
        "ranges": _lines(events, lines, rules, True, size, say),
        "wide": _wide(size, say),
    }


def make_value(i: int, chosen: random.Random) -> Any:
    """One of some 10,000 to 100,000 of its attribute."""
    if i % 4 == 0:
        return chosen.randrange(100_000)
    if i % 4 == 2:
        return round(chosen.random() * 1000, 2)
    size = 1 if i % 4 == 1 else 4
    return " ".join(chosen.choice(WORDS) for _ in range(size)) + f" {chosen.randrange(5000)}"


def _rule(k: int, events: list[dict[str, Any]], ranges: bool, chosen: random.Random) -> str:
    """Three predicates; one rule in ten holds for an event, by which it was made, the others hardly for any."""
    values = events[k // 10 % EVENTS] if k % 10 == 0 else {n: make_value(i, chosen) for i, n in enumerate(NAMES)}
    tests = []
    for name in chosen.sample(NAMES, 3):
        value = values[name]
        if ranges and not isinstance(value, str):
            tests.append(f"{name} BETWEEN {value!r} AND {value * 1.01!r}")
        else:
            tests.append(f"{name} = {value!r}")
    return " AND ".join(tests)


def _lines(
    events: list[dict[str, Any]], lines: list[bytes], rules: int, ranges: bool, size: Size, say: Say
) -> dict[str, Any]:
    chosen = random.Random(2)
    say(f"JSON lines against {rules:,} rules" + (", some of them ranges" if ranges else ""))
    matcher = Matcher(threads=1)
    matcher.add_many((k, _rule(k, events, ranges, chosen)) for k in range(rules))
    text = b"\n".join(lines)
    for _ in range(3):
        found, expected = matcher.match_batch(text), matcher.match_batch([orjson.loads(line) for line in lines])
    if found.pairs() != expected.pairs() or found.count < rules // 10:
        raise WrongMatches(f"JSON lines have {found.count:,} matches, their dicts {expected.count:,}")
    seconds = processor_time(
        {
            "match_batch of bytes": lambda: matcher.match_batch(text),
            "orjson, match_batch of dicts": lambda: matcher.match_batch([orjson.loads(line) for line in lines]),
            "orjson": lambda: [orjson.loads(line) for line in lines],
        },
        MORE * size.repeats,
    )
    own = seconds["match_batch of bytes"]
    return {
        "microseconds per event": {name: s / EVENTS * MICRO for name, s in seconds.items()},
        "matches per event": found.count / EVENTS,
        "/ orjson and dicts": own / seconds["orjson, match_batch of dicts"],
        "/ orjson": own / seconds["orjson"],
    }


def _wide(size: Size, say: Say) -> dict[str, Any]:
    """Zipf events as a table of all attributes, and as one MAP column."""
    say("a table of 1,000 columns")
    workload = boolean.make_named("zipf", size.subscriptions, events=size.events)
    matcher = Matcher(threads=1)
    for batch in workload.subscription_batches():
        matcher.add_table(batch)
    columns, maps = workload.event_columns(), workload.event_batch()
    for _ in range(3):
        found, expected = matcher.match_batch(columns), matcher.match_batch(maps, attributes="attributes")
    if found.pairs() != expected.pairs() or not found.count:
        raise WrongMatches(f"columns have {found.count:,} matches, maps {expected.count:,}")
    seconds = processor_time(
        {
            "columns": lambda: matcher.match_batch(columns),
            "map": lambda: matcher.match_batch(maps, attributes="attributes"),
        },
        max(size.repeats, 3),
    )
    return {
        "columns": len(columns.schema),
        "microseconds per event": {name: s / workload.events * MICRO for name, s in seconds.items()},
        "columns / map": seconds["columns"] / seconds["map"],
    }


def processor_time(rivals: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The least processor seconds of each, in turns."""
    best = dict.fromkeys(rivals, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, work in rivals.items():
                start = time.process_time()
                work()
                best[name] = min(best[name], time.process_time() - start)
    finally:
        gc.enable()
    return best
