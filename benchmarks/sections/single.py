"""What does one event at a time cost: match(dict), which is one compiled call, against the index's own kernel and the
stages of a batch of one."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baselines import AccessLists
from dibs.coding.batch import code_events
from dibs.coding.events import read_events
from dibs.matcher import Matcher
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
    settle,
    wanted_names,
    warm_up,
)
from words import STAGES

EVENTS = 300


def run(size: Size, say: Say) -> dict[str, Any]:
    first_use = warm_up(say)
    say("generating")
    workload = boolean.make_named("sparse", size.subscriptions, events=size.events)
    # Events that no subscription was made from: each is matched by a few, mostly those of one predicate.
    fresh = boolean.generate(workload.shape, 0, EVENTS, seed=2)
    matcher, segment, _ = matcher_of(workload, say)
    settle(segment, coded_events(workload.event_batch(), segment, "attributes"))
    say("one event at a time")
    baseline = AccessLists(workload)
    return {
        "subscriptions": size.subscriptions,
        "few matches": _one_by_one(matcher, segment, fresh, baseline, size),
        "many matches": _one_by_one(matcher, segment, workload, baseline, size),
        "first use": first_use,
    }


def _one_by_one(
    matcher: Matcher, segment: Segment, source: Workload, baseline: AccessLists, size: Size
) -> dict[str, Any]:
    count = min(source.events, EVENTS)
    dicts = source.event_dicts()[:count]
    coded = coded_events(dicts, segment)
    alone = [events_from(coded, i, i + 1) for i in range(count)]
    keys = Keys(*baseline.match(source.event_attribute[:count], source.event_value[:count]))
    one_by_one = [matcher.match(d) for d in dicts]
    event = np.repeat(np.arange(count), [len(ids) for ids in one_by_one])
    keys.check("match(dict)", event, np.array([i for ids in one_by_one for i in ids], np.int64))
    wanted, index, domains = wanted_names(matcher), segment.index, segment.domains

    def stages() -> NDArray[np.float64]:
        """Seconds of each of STAGES, one event after the other: alone, each stage would find its own data in the
        caches. The output comes after a match_batch of its own."""
        seconds = np.zeros(len(STAGES))
        for event in dicts:
            clock = [time.perf_counter()]
            values = read_events([event], wanted)
            clock.append(time.perf_counter())
            one = code_events(values, domains)
            clock.append(time.perf_counter())
            index.match(one, 1)
            clock.append(time.perf_counter())
            seconds[:3] += np.diff(clock)
        for event in dicts:
            matches = matcher.match_batch([event])
            start = time.perf_counter()
            next(iter(matches))
            seconds[3] += time.perf_counter() - start
        return seconds

    rivals = {
        "match(dict)": lambda: [matcher.match(d) for d in dicts],
        "kernel": lambda: [index.match(c, 1) for c in alone],
        "kernel in one batch": lambda: index.match(coded, 1),
        "match_batch(list of dicts)": lambda: list(matcher.match_batch(dicts)),
    }
    times = {name: min(s) / count * MICRO for name, s in interleaved(rivals, size.repeats).items()}
    parts = np.min([stages() for _ in range(size.repeats)], axis=0) / count * MICRO
    return {
        "events": count,
        "matches per event": len(keys) / count,
        "microseconds per event": times,
        "stages": dict(zip(STAGES, parts.tolist())),
        "match(dict) / kernel": times["match(dict)"] / times["kernel"],
    }
