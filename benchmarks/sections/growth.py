"""How does the time of an event grow with the number of subscriptions: 1/16, 1/4, 1 and 4 times as many."""

from __future__ import annotations

from typing import Any

from dibs.index import create
from dibs.papers.workloads import boolean
from measure import (
    Keys,
    Say,
    Size,
    available_bytes,
    coded_events,
    events_from,
    interleaved,
    matcher_of,
    per_event,
    settle,
    warm_up,
)

FACTORS = (1 / 16, 1 / 4, 1, 4)
BYTES_A_SUBSCRIPTION = 2_000  # at the peak of add_table, workload and texts included


def run(shape: str, size: Size, say: Say) -> dict[str, Any]:
    warm_up(say)
    points: dict[int, dict[str, Any]] = {}
    rivals, left_out = {}, []
    for factor in FACTORS:
        n = max(int(size.subscriptions * factor), 1)
        room = available_bytes()
        if room is not None and n * BYTES_A_SUBSCRIPTION > room:
            left_out.append(f"{n:,} subscriptions: they need some {n * BYTES_A_SUBSCRIPTION >> 20:,} MB of memory")
            continue
        say(f"{n:,} subscriptions: generating")
        workload = boolean.make_named(shape, n, events=size.events)
        _, segment, _ = matcher_of(workload, lambda text, n=n: say(f"{n:,} subscriptions: {text}"))
        coded = coded_events(workload.event_batch(), segment, "attributes")
        plan = settle(segment, coded)
        index, found = segment.index, segment.index.match(coded, 1)
        keys = Keys(found.event, found.row)
        sample = create("scan", segment.clauses).match(events_from(coded, 0, size.few_events), 1)
        keys.check("scan", sample.event, sample.row, size.few_events)
        points[n] = {"subscriptions": n, "matches per event": len(found) / len(coded), "plan": plan}
        rivals[str(n)] = lambda index=index, coded=coded: index.match(coded, 1)
    say("all sizes in turn")
    times = per_event(interleaved(rivals, size.repeats), size.events)
    for n, point in points.items():
        point["microseconds per event"] = times[str(n)]["best"]
    result: dict[str, Any] = {"points": list(points.values()), "left out": left_out}
    small, large = (points.get(int(size.subscriptions * f)) for f in (1, 4))
    if small and large:
        result["4 times as many / 1"] = large["microseconds per event"] / small["microseconds per event"]
    return result
