"""The PB+tree in LMDB's pages on disk, with ten times less memory than it has bytes: is it exact, how many pages does
an event touch as subscriptions grow, and what do structures in memory take for the same events?

For 1/100, 1/10 and all of the subscriptions, on dense and on sparse data. The index is built once to learn its size and
again with a tenth of that as its budget (1 MB is the least it takes). Its matches are those of `auto`, pair by pair.
What it keeps of its pages is what it says itself (tests/test_pbtree.py looks from outside). The file is in the file
cache when rivals take turns; with the file cache cold it is timed apart: then what does not fit the budget is read from
the disk once, and from the file cache again.

The model: an event touches a * log2(n) pages to find its places and reads what it meets from full pages, so
pages = a * log2(n) + entries met / 510, with one `a` for all n of a workload.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dibs.index import create
from dibs.index.pbtree import LEAST_MEMORY
from dibs.matcher import Matcher
from dibs.segments.segment import Segment
from dibs.workloads import boolean
from measure import (
    Keys,
    Say,
    Size,
    coded_events,
    events_from,
    interleaved,
    per_event,
    settle,
    timed,
)
from sections.durable import forget_file, read_bytes

SHAPES = ("dense", "sparse")
PARTS = (100, 10, 1)  # of the subscriptions, one in so many
DISK, RIVALS = "pbtree", ("pbtree-memory", "counting", "auto")
TIMES_SMALLER = 10  # the budget, than the index
ENTRIES_A_PAGE = 510
SECONDS_A_CALL = 0.3  # of the slowest rival; decides how many events are timed
FOLDER = "dibs-pbtree-"  # in the names of the files that hold the pages


def run(size: Size, say: Say) -> dict[str, Any]:
    say("compiling the kernels, or loading them from the cache")
    _warm_up()
    workloads = {}
    for shape in SHAPES:
        points = []
        for part in PARTS:
            n = max(size.subscriptions // part, 10)
            points.append(_point(shape, n, size, lambda text, n=n, shape=shape: say(f"{shape}, {n:,}: {text}")))
        workloads[shape] = {"points": points, "model": _model(points)}
    return {"subscriptions": size.subscriptions, "workloads": workloads}


def _warm_up() -> None:
    workload = boolean.named("dense", 2_000, events=300)
    segment, coded = _coded(workload)
    for name in (DISK, *RIVALS, "scan"):
        create(name, segment.clauses).match(coded, 1)


def _coded(workload: boolean.Workload) -> tuple[Segment, Any]:
    matcher = Matcher(threads=1)
    matcher.add_table(workload.subscription_table())
    segment = matcher._snapshot().layers[0].segment
    return segment, coded_events(workload.event_batch(), segment, "attributes")


def _point(shape: str, n: int, size: Size, say: Say) -> dict[str, Any]:
    say("generating")
    workload = boolean.named(shape, n, events=size.events)
    segment, coded = _coded(workload)
    settle(segment, coded)
    expected = segment.index.match(coded, 1)
    keys = Keys(expected.event, expected.row)
    few = min(size.few_events, len(coded))
    sample = create("scan", segment.clauses).match(events_from(coded, 0, few), 1)
    keys.check("scan", sample.event, sample.row, few)
    result: dict[str, Any] = {"subscriptions": n, "matches an event": len(keys) / len(coded)}
    result |= _measured(segment, coded, keys, few, size, say)
    gc.collect()
    return result | {"whole": _whole(workload, keys, result["budget"], say), "agreed": keys.agreed}


def _measured(segment: Segment, coded: Any, keys: Keys, few: int, size: Size, say: Say) -> dict[str, Any]:
    """The figures of the index on disk and of its rivals."""
    say("building")
    n = len(segment)
    gc.collect()
    seconds: dict[str, float] = {}
    seconds[f"{DISK}, 64 MB"], roomy = timed(lambda: create(DISK, segment.clauses))
    on_disk = roomy.plan()["bytes on disk"]
    del roomy
    budget = max(on_disk // TIMES_SMALLER, LEAST_MEMORY)
    seconds[DISK], index = timed(lambda: create(DISK, segment.clauses, memory=budget))
    indexes: dict[str, Any] = {DISK: index}
    for name in RIVALS:
        seconds[name], indexes[name] = timed(lambda name=name: create(name, segment.clauses))
    indexes["auto"] = segment.index  # which has seen the events

    say("matching")
    found = index.match(coded, 1)
    keys.check(DISK, found.event, found.row)
    for name in RIVALS:
        other = indexes[name].match(coded, 1)
        keys.check(name, other.event, other.row)
    trial = max(timed(lambda i=i: i.match(events_from(coded, 0, few), 1))[0] for i in indexes.values())
    some = int(np.clip(SECONDS_A_CALL / trial * few, few, len(coded)))
    timed_events = events_from(coded, 0, some)
    calls = {name: lambda i=i: i.match(timed_events, 1) for name, i in indexes.items()}
    times = per_event(interleaved(calls, min(size.repeats, 7)), some)

    say("with the file cache cold")
    for path in _open_files(FOLDER):
        forget_file(path)
    before = read_bytes()
    cold, again = timed(lambda: index.match(timed_events, 1))
    read = read_bytes() - before
    keys.check("pbtree, cold", again.event, again.row, some)
    plan = index.plan()
    return {
        "predicates": len(segment.clauses.attribute),
        "entries": plan["entries"],
        "height": plan["height"],
        "pages": plan["pages"],
        "bytes on disk": plan["bytes on disk"],
        "budget": budget,
        "index / budget": plan["bytes on disk"] / budget,
        "resident at most": plan["resident at most"],
        "memory not bounded": plan["memory not bounded"],
        "pages an event": found.nodes / len(coded),
        "entries met an event": found.predicates / len(coded),
        "build seconds": seconds,
        "microseconds an event": {name: t["best"] for name, t in times.items()},
        "microseconds an event, file cache cold": cold / some * 1e6 if read else None,
        "bytes read an event when cold": read / some,
        "bytes a subscription": {name: i.nbytes / n for name, i in indexes.items()},
        "events timed": some,
    }


def _whole(workload: boolean.Workload, keys: Keys, budget: int, say: Say) -> dict[str, Any]:
    """As users have it: Matcher(index="pbtree", memory=...)."""
    say("Matcher(index='pbtree', memory=...)")
    batch = workload.event_batch()
    with Matcher(index=DISK, threads=1, memory=budget) as matcher:
        add, _ = timed(lambda: matcher.add_table(workload.subscription_table()))
        taken, pairs = timed(lambda: matcher.match_batch(batch, attributes="attributes").pairs())
        keys.check("Matcher", pairs["event"].to_numpy(), pairs["subscription"].to_numpy())  # ids are rows
        plans = matcher.stats()["plans"]
    return {
        "add_table seconds": add,
        "microseconds an event of match_batch": taken / len(batch) * 1e6,
        "resident at most": max(p["resident at most"] for p in plans),
        "pages visited": sum(p["pages visited"] for p in plans),
    }


def _model(points: list[dict[str, Any]]) -> dict[str, Any]:
    """The one `a` that fits best, and what the model says of each point."""
    logs = np.log2([p["subscriptions"] for p in points])
    reading = np.array([p["entries met an event"] for p in points]) / ENTRIES_A_PAGE
    pages = np.array([p["pages an event"] for p in points])
    a = float(logs @ (pages - reading) / (logs @ logs))
    model = a * logs + reading
    return {"a": a, "pages an event": model.tolist(), "measured / model": (pages / model).tolist()}


def _open_files(name: str) -> list[Path]:
    """Files of this process whose path has this in it, where the system says."""
    found = set()
    for link in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            path = link.readlink()
            if name in str(path) and path.is_file():
                found.add(path)
    return sorted(found)
