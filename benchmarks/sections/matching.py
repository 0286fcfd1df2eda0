"""How fast are events matched: every rival on the same subscriptions and events of one shape, taking turns."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from baselines import AccessLists, BitSlices, Counting
from dibs.coding.batch import CodedEvents, code_events
from dibs.coding.events import read_events
from dibs.index import create
from dibs.matcher import Matcher
from dibs.papers.workloads import boolean
from dibs.papers.workloads.boolean import Workload
from dibs.segments.segment import Segment
from measure import (
    MICRO,
    Keys,
    Say,
    Size,
    WrongMatches,
    coded_events,
    events_from,
    interleaved,
    matcher_of,
    per_event,
    settle,
    wanted_names,
    warm_up,
)

COLUMNS_UP_TO = 1_000  # attributes; wider frames of columns are not how anybody keeps sparse events
BASELINES = (AccessLists, BitSlices)


def run(shape: str, size: Size, say: Say) -> dict[str, Any]:
    first_use = warm_up(say)
    say("generating")
    workload = boolean.make_named(shape, size.subscriptions, events=size.events)
    matcher, segment, add_seconds = matcher_of(workload, say)
    batch = workload.event_batch()
    coded = coded_events(batch, segment, "attributes")
    say("building the index against sorting")
    build = _build(segment, size)
    unplanned = _unplanned(segment, coded, size)
    say("letting the planner see events")
    plan = settle(segment, coded)
    say("building the baselines")
    baselines = [kind(workload) for kind in BASELINES]
    keys = Keys(*baselines[0].match(workload.event_attribute, workload.event_value))
    say("all rivals in turn")
    times, found = _rivals(workload, matcher, segment, coded, baselines, keys, size)
    say("one thread and two")
    threads = _threads(segment, coded, size)
    say("the slow rivals, on a few events")
    times |= _slow_rivals(workload, segment, coded, keys, size)
    say("the stages of match_batch")
    best = min(times[kind.name]["best"] for kind in BASELINES)
    predicates = len(segment.clauses.attribute)
    return {
        "subscriptions": size.subscriptions,
        "events": size.events,
        "predicates": predicates,
        "attributes": workload.shape.attributes,
        "matches per event": len(keys) / size.events,
        "agreed": keys.agreed,
        "candidates per event": found.candidates / size.events,
        "predicates tested per event": found.predicates / size.events,
        "microseconds per event": times,
        "before any event was seen": unplanned,
        "better baseline": min(BASELINES, key=lambda kind: times[kind.name]["best"]).name,
        "ratios": {
            "auto / better baseline": times["auto"]["best"] / best,
            "match_batch / better baseline": times["match_batch"]["best"] / best,
            "match_batch, 2 threads / better baseline": times["match_batch, 2 threads"]["best"] / best,
            "2 threads / 1 thread": threads["ratio"],
            "build / lexsort": build["build"] / build["lexsort"],
            "scan / auto": times["scan"]["best"] / times["auto"]["best"],
        },
        "threads": threads,
        "stages of match_batch": _stages(batch, matcher, segment, size),
        "build": build,
        "add_table seconds": add_seconds,
        "bytes per predicate": {
            "index": segment.index.nbytes / predicates,
            "clauses": segment.clauses.nbytes / predicates,
        },
        "plan": plan,
        "first use": first_use,
    }


def _build(segment: Segment, size: Size) -> dict[str, float]:
    """Seconds to build the index from coded clauses, and of numpy.lexsort((lo, attribute)) over their predicates."""
    clauses = segment.clauses
    seconds = interleaved(
        {
            "build": lambda: create("auto", clauses),
            "lexsort": lambda: np.lexsort((clauses.lo, clauses.attribute)),
        },
        min(size.repeats, 3),
    )
    return {name: min(s) for name, s in seconds.items()}


def _unplanned(segment: Segment, coded: CodedEvents, size: Size) -> float:
    """Microseconds an event of a new index, whose planner has only the subscriptions to guess from."""
    index = create("auto", segment.clauses)
    part = events_from(coded, 0, min(len(coded), 300))  # three calls stay below what the planner needs
    seconds = interleaved({"unplanned": lambda: index.match(part, 1)}, 2)["unplanned"]
    return min(seconds) / len(part) * MICRO


def _rivals(
    workload: Workload,
    matcher: Matcher,
    segment: Segment,
    coded: CodedEvents,
    baselines: list[Any],
    keys: Keys,
    size: Size,
) -> tuple[dict[str, Any], Any]:
    index, events = segment.index, (workload.event_attribute, workload.event_value)
    batches = {"match_batch": (workload.event_batch(), "attributes")}
    if workload.shape.attributes <= COLUMNS_UP_TO:
        batches["match_batch of columns"] = (workload.event_columns(), None)

    def pairs(name: str, threads: int) -> Any:
        matcher.threads = threads
        return matcher.match_batch(*batches[name]).pairs()

    for baseline in baselines:
        keys.check(baseline.name, *baseline.match(*events))
    ids = segment.ids.ids.to_numpy()
    for threads in (1, 2):
        found = index.match(coded, threads)
        keys.check(f"auto, {threads} threads", found.event, ids[found.row])
        for name in batches:
            table = pairs(name, threads)
            keys.check(f"{name}, {threads} threads", table["event"].to_numpy(), table["subscription"].to_numpy())
    counts = _count(matcher, batches["match_batch"])
    if not np.array_equal(counts, keys.of_each_event(len(coded))):
        raise WrongMatches(f"count found {counts.sum():,} matches, not the {len(keys):,} expected ones")
    rivals: dict[str, Any] = {b.name: lambda b=b: b.match(*events) for b in baselines}
    rivals["auto"] = lambda: index.match(coded, 1)
    for name in batches:
        rivals[name] = lambda name=name: pairs(name, 1)
    rivals["match_batch, 2 threads"] = lambda: pairs("match_batch", 2)
    rivals["count"] = lambda: _count(matcher, batches["match_batch"])
    return per_event(interleaved(rivals, size.repeats, hopeless=4), len(coded)), found


def _threads(segment: Segment, coded: CodedEvents, size: Size) -> dict[str, float]:
    """Microseconds an event with one thread and with two, and how many cores the two had in their best run: less
    than two when others use the machine, and then the gain says nothing."""
    runs = []

    def two() -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        segment.index.match(coded, 2)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        runs.append((wall, cpu / wall))

    # Many more rounds than elsewhere: on a busy machine both cores are seldom free at once.
    seconds = interleaved({"1": lambda: segment.index.match(coded, 1), "2": two}, 4 * size.repeats)
    best = {name: min(s) / len(coded) * MICRO for name, s in seconds.items()}
    return {"1 thread": best["1"], "2 threads": best["2"], "cores": min(runs)[1], "ratio": best["2"] / best["1"]}


def _count(matcher: Matcher, batch: tuple[Any, str | None]) -> Any:
    matcher.threads = 1
    return matcher.count(*batch)


def _slow_rivals(
    workload: Workload, segment: Segment, coded: CodedEvents, keys: Keys, size: Size
) -> dict[str, dict[str, float]]:
    few = size.few_events
    part = events_from(coded, 0, few)
    events = workload.event_attribute[:few], workload.event_value[:few]
    scan, counting = create("scan", segment.clauses), Counting(workload)
    found = scan.match(part, 1)
    keys.check("scan", found.event, segment.ids.ids.to_numpy()[found.row], few)
    keys.check(Counting.name, *counting.match(*events), few)
    rivals = {"scan": lambda: scan.match(part, 1), Counting.name: lambda: counting.match(*events)}
    return per_event(interleaved(rivals, min(size.repeats, 3)), few)


def _stages(batch: Any, matcher: Matcher, segment: Segment, size: Size) -> dict[str, float]:
    """Microseconds an event of each stage of match_batch, run one after the other on the same batch."""
    wanted = wanted_names(matcher)
    values = read_events(batch, wanted, attributes="attributes")
    coded = code_events(values, segment.domains)
    matcher.threads = 1
    matches = matcher.match_batch(batch, attributes="attributes")
    seconds = interleaved(
        {
            "read": lambda: read_events(batch, wanted, attributes="attributes"),
            "code": lambda: code_events(values, segment.domains),
            "kernel": lambda: segment.index.match(coded, 1),
            "pairs": matches.pairs,
        },
        size.repeats,
    )
    return {name: min(s) / len(coded) * MICRO for name, s in seconds.items()}
