"""What does one event at a time cost: match(dict) against the index's own kernel, and where the time between goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from baselines import AccessLists
from dibs.coding.batch import code_events
from dibs.coding.events import WantedNames, read_events
from dibs.matcher import Matcher
from dibs.segments.segment import Segment
from dibs.workloads import boolean
from dibs.workloads.boolean import Workload
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
    warm_up,
)

EVENTS = 300


def run(size: Size, say: Say) -> dict[str, Any]:
    first_use = warm_up(say)
    say("generating")
    workload = boolean.named("sparse", size.subscriptions, events=size.events)
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
    wanted, index, domains = WantedNames(segment.names), segment.index, segment.domains
    values = [read_events([d], wanted) for d in dicts]
    matches = [matcher.match_batch([d]) for d in dicts]
    rivals = {
        "match(dict)": lambda: [matcher.match(d) for d in dicts],
        "kernel": lambda: [index.match(c, 1) for c in alone],
        "read": lambda: [read_events([d], wanted) for d in dicts],
        "code": lambda: [code_events(v, domains) for v in values],
        "output": lambda: [next(iter(m)) for m in matches],
        "kernel in one batch": lambda: index.match(coded, 1),
        "match_batch(list of dicts)": lambda: list(matcher.match_batch(dicts)),
    }
    times = {name: min(s) / count * MICRO for name, s in interleaved(rivals, size.repeats).items()}
    stages = {name: times[name] for name in ("read", "code", "kernel", "output")}
    return {
        "events": count,
        "matches an event": len(keys) / count,
        "microseconds an event": times,
        "stages": stages | {"the rest": times["match(dict)"] - sum(stages.values())},
        "match(dict) / kernel": times["match(dict)"] / times["kernel"],
    }
