"""Where it gets slower: small batches, events with arrays, expressions with OR, long texts, many patterns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import dibs
from dibs.index import create
from dibs.papers.workloads import boolean
from dibs.papers.workloads.boolean import Workload
from dibs.segments.segment import Segment
from measure import (
    MICRO,
    Keys,
    Say,
    Size,
    coded_events,
    events_from,
    interleaved,
    matcher_of,
    per_event,
    segments_of,
    settle,
    timed,
    warm_up,
)

BATCHES = (1, 4, 16, 64, 256, 1000)
PROGRAMS = 20_000


def run(size: Size, say: Say) -> dict[str, Any]:
    warm_up(say)
    result: dict[str, Any] = {"subscriptions": size.subscriptions, "batch sizes": {}, "arrays": {}}
    for shape in ("sparse", "dense"):
        say(f"{shape}: generating")
        workload = boolean.make_named(shape, size.subscriptions, events=size.events)
        _, segment, _ = matcher_of(workload, lambda text, shape=shape: say(f"{shape}: {text}"))
        settle(segment, coded_events(workload.event_batch(), segment, "attributes"))
        say(f"{shape}: small batches")
        result["batch sizes"][shape] = _batch_sizes(workload, segment, size)
        say(f"{shape}: events with an array")
        result["arrays"][shape] = _arrays(workload, segment, size)
    say("expressions with OR")
    result["programs"] = _programs(size)
    say("long texts, many patterns, new names, ties")
    result["hostile"] = _hostile(size.subscriptions)
    return result


def _batch_sizes(workload: Workload, segment: Segment, size: Size) -> dict[str, float]:
    """Microseconds an event of the kernel, by events of a batch."""
    coded = coded_events(workload.event_batch(), segment, "attributes")
    expected = len(segment.index.match(coded, 1))
    rivals = {}
    for wanted in BATCHES:
        # Small batches of dense events take long: a part of the events is enough to tell.
        events = len(coded) if wanted >= 64 else min(len(coded), max(100, wanted))
        parts = [events_from(coded, a, min(a + wanted, events)) for a in range(0, events, wanted)]
        if events == len(coded):
            assert sum(len(segment.index.match(p, 1)) for p in parts) == expected
        rivals[wanted] = (events, parts)
    seconds = interleaved(
        {str(w): lambda parts=parts: [segment.index.match(p, 1) for p in parts] for w, (_, parts) in rivals.items()},
        max(size.repeats // 2, 1),
    )
    return {name: min(s) / rivals[int(name)][0] * MICRO for name, s in seconds.items()}


def _arrays(workload: Workload, segment: Segment, size: Size) -> dict[str, float]:
    """Microseconds an event of the kernel: plain events, the same when one of them has an array of two values instead
    of a value, and when all have."""
    plain = workload.event_dicts()
    arrays: list[dict[str, Any]] = [dict(e) for e in plain]
    for event in arrays:
        name = next(iter(event))
        event[name] = [event[name], (event[name] + 1) % workload.shape.cardinality]
    batches = {"no array": plain, "in one event": [arrays[0], *plain[1:]], "in all events": arrays}
    coded = {name: coded_events(events, segment) for name, events in batches.items()}
    scan = create("scan", segment.clauses)
    for name, events in coded.items():
        found, expected = segment.index.match(events, 1), scan.match(events_from(events, 0, size.few_events), 1)
        Keys(found.event, found.row).check(f"scan ({name})", expected.event, expected.row, size.few_events)
    rivals = {name: lambda c=c: segment.index.match(c, 1) for name, c in coded.items()}
    times = per_event(interleaved(rivals, max(size.repeats // 2, 1)), len(plain))
    return {name: t["best"] for name, t in times.items()}


def _programs(size: Size) -> dict[str, Any]:
    """Two conjunctions of the dense shape joined by OR, against the same conjunctions one by one."""
    count = min(PROGRAMS, max(size.subscriptions // 20, 1))
    workload = boolean.make_named("dense", 2 * count, events=size.events)
    texts = workload.subscription_table()["expression"].to_pylist()
    joined = pa.table({"id": range(count), "expression": [f"({a}) OR ({b})" for a, b in zip(texts[::2], texts[1::2])]})
    halves = pa.table({"id": range(2 * count), "expression": texts})
    result: dict[str, Any] = {"expressions": count}
    rivals, matched = {}, {}
    for name, table in (("with OR", joined), ("conjunctions", halves)):
        matcher = dibs.Matcher(threads=1)
        seconds, _ = timed(lambda m=matcher, t=table: m.add_table(t))
        result[f"{name}: microseconds to add one"] = seconds / len(table) * MICRO
        (segment,) = segments_of(matcher)
        coded = coded_events(workload.event_batch(), segment, "attributes")
        settle(segment, coded)
        pairs = segment.index.match(coded, 1)
        ids = segment.ids.ids.to_numpy()[pairs.row]
        matched[name] = set(zip(pairs.event.tolist(), (ids // (1 if name == "with OR" else 2)).tolist()))
        rivals[name] = lambda segment=segment, coded=coded: segment.index.match(coded, 1)
    assert matched["with OR"] == matched["conjunctions"], "an OR must match what either side matches"
    for name, times in per_event(interleaved(rivals, max(size.repeats // 2, 1)), size.events).items():
        result[f"{name}: microseconds per event"] = times["best"]
    return result


def _hostile(count: int) -> dict[str, float]:
    """Seconds of what nobody writes by hand: with `count` names and ties, a tenth of it patterns."""
    text = " AND ".join(["a = 1"] * min(count, 299_999))
    result, problems = {}, []
    result["validate 3 MB of AND"], problems = timed(lambda: dibs.validate(text))
    assert problems == []
    words = max(count // 10, 1)
    with dibs.Matcher(threads=1) as m:
        m.add_many((i, f"CONTAINS(t, 'word{i:07}')") for i in range(words))
        event = {"t": "word0000000 and other words"}
        result["first match with patterns"], found = timed(lambda: m.match(event))
        assert found == [0]
        m.add_many((words + i, f"CONTAINS(t, 'words{i:07}')") for i in range(100))
        m.compact()
        result["first match after patterns were merged"], found = timed(lambda: m.match(event))
        assert found == [0]
    with dibs.Matcher(threads=1) as m:
        m.add_table(pa.table({"id": range(count), "expression": [f"n{i} = 1" for i in range(count)]}))
        assert m.match({"n0": 1}) == [0]
        m.add(count, "another = 1")
        result["match after a new name"], found = timed(lambda: m.match({"another": 1}))
        assert found == [count]
    with dibs.Matcher(threads=1) as m:
        m.add_table(pa.table({"id": range(count), "expression": ["a = 1"] * count}))
        m.match({"a": 1}, top=10)
        result["top 10 of ties"], found = timed(lambda: m.match({"a": 1}, top=10))
        assert found == list(range(min(count, 10)))
    return result
