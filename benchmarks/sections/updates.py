"""How many single changes a second, while events are matched now and then between them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import dibs
from baselines import AccessLists
from dibs.workloads import boolean
from measure import Keys, Say, Size, warm_up

CHANGES = 5_000
MATCH_EVERY = 100


def run(size: Size, say: Say) -> dict[str, Any]:
    warm_up(say)
    changes = min(CHANGES, max(size.subscriptions // 10, 1))
    base = size.subscriptions
    say("generating")
    workload = boolean.named("sparse", base + changes, events=size.events)
    table = workload.subscription_table()
    texts = table["expression"].slice(base).to_pylist()
    events = workload.event_dicts()
    matcher = dibs.Matcher(threads=1)
    matcher.add_table(table.slice(0, base))
    matcher.match(events[0])
    say(f"adding {changes:,} one by one")
    adds = _alternating(matcher, events, [lambda i=i, t=t: matcher.add(base + i, t) for i, t in enumerate(texts)])
    say(f"removing {changes:,} one by one")
    gone = np.random.default_rng(1).choice(base + changes, changes, replace=False)
    removes = _alternating(matcher, events, [lambda i=i: matcher.remove(i) for i in gone.tolist()])
    say("checking")
    event, subscription = AccessLists(workload).match(workload.event_attribute, workload.event_value)
    stay = ~np.isin(subscription, gone)
    found = matcher.match_batch(workload.event_batch(), attributes="attributes").pairs()
    Keys(event[stay], subscription[stay]).check(
        "the changed matcher", found["event"].to_numpy(), found["subscription"].to_numpy()
    )
    return {
        "subscriptions": base,
        "changes": changes,
        "a match after every": MATCH_EVERY,
        "adds": adds,
        "removes": removes,
        "segments afterwards": matcher.stats()["segments"],
    }


def _alternating(matcher: dibs.Matcher, events: list[dict[str, int]], changes: list[Any]) -> dict[str, float]:
    """Runs the changes with a match after every MATCH_EVERY; what both take."""
    changing, matching = 0.0, []
    for first in range(0, len(changes), MATCH_EVERY):
        start = time.perf_counter()
        for change in changes[first : first + MATCH_EVERY]:
            change()
        middle = time.perf_counter()
        matcher.match(events[first // MATCH_EVERY % len(events)])
        matching.append(time.perf_counter() - middle)
        changing += middle - start
    return {
        "a second": len(changes) / changing,
        "a second, matches included": len(changes) / (changing + sum(matching)),
        "milliseconds of a match between, median": float(np.median(matching)) * 1e3,
        "milliseconds of a match between, worst": max(matching) * 1e3,
    }
