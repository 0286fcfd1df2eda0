"""Changes while events are matched: how fast is matching beside them, and how long does a change take?

One thread matches without a pause (batches of events, or one after the other) and another one adds at a given rate and
removes as many, in groups of about 10 ms, each a batch() of its own. That goes on for long enough to see all the merges
that the changes cause, those of everything included, and what one rate leaves is what the next one begins with. The
throughput is compared with that of a twin, before and after: a matcher with the same subscriptions in one segment,
which nobody changes. Every match is checked (live_windows says how). Then the changes one by one, with matches between
them that must see them.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from dibs.matcher import Matcher
from dibs.papers.workloads import boolean
from measure import Say, Size, WrongMatches, timed
from sections.durable import filesystem_of, warm_up
from sections.durable_changes import latency
from sections.live_books import Books, Group, Oracle
from sections.live_windows import Run, Work, rest, window

INDEXES = ("auto",)
RATES = {"batches": (100, 1_000, 5_000), "single events": (100,)}  # adds per second, and as many removes
GROUP = 0.01  # seconds
TEXTS = 100_000
SECONDS = {"batches": 5.0, "single events": 5.0}  # of a window, for ENOUGH subscriptions
IDLE_SECONDS = 1.2
PARTS = 3  # of a window: how much does it vary?
ENOUGH = 500_000
EVENTS = 1_000
KEPT = 0.7  # of the idle throughput, at least
ONE_BY_ONE = {1: 300, 100: 2_000}  # a match after every so many changes -> changes
SINGLE_ADDS = {"memory": 20_000, "durable": 2_000}  # for the amortised time of one
TWIN = "idle"


def run(size: Size, say: Say) -> dict[str, Any]:
    say("compiling the kernels, or loading them from the cache")
    for index in INDEXES:
        warm_up(index)
    say("generating")
    workload = boolean.make_named("sparse", size.subscriptions + min(TEXTS, size.subscriptions), events=size.events)
    table = workload.subscription_table().combine_chunks().slice(0, size.subscriptions)
    oracle = Oracle(workload, size.subscriptions)
    batch, dicts = workload.event_batch(), workload.event_dicts()
    works = _works(workload)
    found = []
    with TemporaryDirectory(prefix="dibs-bench-") as folder:
        for index in INDEXES:
            say(f"{index}: building its twin, which stays as it is")
            twin = _settled(Matcher(index, threads=1), table, works)
            for where in ("memory", "durable"):

                def tell(text: str, index: str = index, where: str = where) -> None:
                    say(f"{index}, {where}: {text}")

                tell("building")
                gc.collect()
                path = Path(folder) / index
                matcher = Matcher(index, threads=1) if where == "memory" else Matcher.open(path, index, threads=1)
                with _settled(matcher, table, works):
                    books = Books(oracle)
                    result = {"index": index, "where": where}
                    for kind, work in works.items():
                        result[kind] = _sustained(matcher, twin, books, kind, work, size, tell)
                    result["one by one"] = _one_by_one(matcher, books, dicts, size, tell)
                    result["amortised"] = _amortised(matcher, books, dicts[0], SINGLE_ADDS[where], size, tell)
                    _check(f"{index}, {where}", matcher, books, batch)
                if where == "durable":
                    with Matcher.open(path, threads=1) as matcher:
                        _check(f"{index}, reopened", matcher, books, batch)
                found.append(result)
            twin.close()
        filesystem = filesystem_of(Path(folder))
    return {
        "subscriptions": size.subscriptions,
        "events of a batch": size.events,
        "filesystem": filesystem,
        "seconds": {kind: _scaled(seconds, size) for kind, seconds in SECONDS.items()},
        "matchers": found,
    }


def _settled(matcher: Matcher, table: pa.Table, works: dict[str, Work]) -> Matcher:
    """With all subscriptions, the kernels compiled, and `auto` having planned by the events."""
    matcher.add_table(table)
    events = min(works["batches"].events, 300)
    for _ in range(8):
        for i in range(events):
            works["single events"].call(matcher, i)
        works["batches"].call(matcher, 0)
        matcher._layers.upkeep.rest()
    return matcher


def _check(who: str, matcher: Matcher, books: Books, batch: Any) -> None:
    problem = matcher.stats()["background problem"]
    assert problem is None, f"{who}: {problem}"
    assert len(matcher) == len(books)
    books.check(who, matcher.count(batch, attributes="attributes"))


# ---- sustained ----


def _sustained(
    matcher: Matcher, twin: Matcher, books: Books, kind: str, work: Work, size: Size, say: Say
) -> dict[str, Any]:
    """A window at each rate, from low ones to high ones, between two of the twin."""
    still = Books(books.oracle)

    def alone() -> Run:
        say(f"{kind}, {TWIN}")
        return window(twin, still, [], 0, work, _scaled(IDLE_SECONDS, size))

    idle = [alone()]
    rows = []
    for rate in RATES[kind]:
        seconds = _scaled(SECONDS[kind], size)
        say(f"{kind}, {rate:,} a second for {seconds:.0f} seconds")
        run = window(matcher, books, _groups(books, rate, seconds), rate, work, seconds)
        idle.append(alone())
        rows.append({"rate": rate, **_of_idle(run, idle[-2:], work)})
    enough = [row["adds per second"] for row in rows if row["of idle"] >= KEPT]
    return {
        "idle events per second": float(np.median([r.throughput for r in idle])),
        "idle match": latency([s for r in idle for s in r.matching]),
        "rows": rows,
        f"most adds per second at {KEPT} of idle": max(enough, default=0.0),
    }


def _of_idle(run: Run, around: list[Run], work: Work) -> dict[str, Any]:
    """around: the twin, before and after."""
    throughput = float(np.mean([r.throughput for r in around]))
    parts = [work.events * len(p) / sum(p) for p in np.array_split(run.matching, PARTS) if len(p)]
    return {
        "adds per second": run.adds,
        "of idle": run.throughput / throughput,
        "of idle, worst": min(parts) / throughput,
        "of idle, by processor time": float(np.mean([r.processor for r in around])) / run.processor,
        "group": latency(run.changing),
        "match": latency(run.matching),
        "segments": run.segments,
        "seconds to settle": run.settling,
    }


def beside_single_events(subscriptions: int, rate: int, seconds: float, say: Say) -> dict[str, Any]:
    """`auto` in memory, single events, one rate: the row of the table alone."""
    say(f"building {subscriptions:,} subscriptions twice")
    workload = boolean.make_named("sparse", subscriptions + min(TEXTS, subscriptions), events=EVENTS)
    table = workload.subscription_table().combine_chunks().slice(0, subscriptions)
    works, oracle = _works(workload), Oracle(workload, subscriptions)
    twin, matcher = (_settled(Matcher(threads=1), table, works) for _ in range(2))
    work, still, books = works["single events"], Books(oracle), Books(oracle)
    idle = [window(twin, still, [], 0, work, seconds / 5)]
    say(f"{rate:,} adds and removes a second for {seconds:.0f} seconds")
    run = window(matcher, books, _groups(books, rate, seconds), rate, work, seconds)
    idle.append(window(twin, still, [], 0, work, seconds / 5))
    return _of_idle(run, idle, work)


def _works(workload: boolean.Workload) -> dict[str, Work]:
    """All events at once, and one after the other."""
    batch, dicts = workload.event_batch(), workload.event_dicts()
    return {
        "batches": Work(
            lambda m, _: m.match_batch(batch, attributes="attributes").pairs(),
            lambda pairs: np.bincount(pairs["event"].to_numpy(), minlength=workload.events),
            single=False,
            events=workload.events,
        ),
        "single events": Work(lambda m, i: m.match(dicts[i]), lambda ids: np.array([len(ids)]), single=True, events=1),
    }


def _scaled(seconds: float, size: Size) -> float:
    return seconds * float(np.clip(size.subscriptions / ENOUGH, 0.01, 1))


def _groups(books: Books, rate: int, seconds: float) -> list[Group]:
    """Enough for the window, made before it."""
    each = max(min(round(rate * GROUP), len(books) // 2), 1)
    return [books.group(each, each) for _ in range(int(rate * seconds / each) + 1)]


# ---- one by one ----


def _one_by_one(
    matcher: Matcher, books: Books, events: list[dict[str, int]], size: Size, say: Say
) -> list[dict[str, Any]]:
    """Single adds and removes with a match after every so many, which must see them."""
    rows = []
    for every, changes in ONE_BY_ONE.items():
        changes = max(int(changes * min(size.subscriptions / ENOUGH, 1)), min(every, size.subscriptions // 4), 5)
        for kind in ("add", "remove"):
            say(f"{changes:,} single changes ({kind}), a match after every {every}")
            changing, matching = [], []
            for i in range(changes):
                group = books.group(kind == "add", kind == "remove")
                changing.append(timed(lambda group=group: _single(matcher, group))[0])
                books.note([group])
                if (i + 1) % every == 0 or i + 1 == changes:
                    event = books.event_of(group.added[0][0] if group.added else group.removed[0])
                    seconds, found = timed(lambda event=event: matcher.match(events[event]))
                    matching.append(seconds)
                    if len(found) != books.counts[event]:
                        raise WrongMatches(f"{len(found):,} found, not {books.counts[event]:,}")
            rows.append(
                {
                    "change": kind,
                    "a match after every": every,
                    "changes": changes,
                    "a second": changes / sum(changing),
                    "a second, matches included": changes / (sum(changing) + sum(matching)),
                    "call": latency(changing),
                    "match": latency(matching),
                }
            )
    return rows


def _single(matcher: Matcher, group: Group) -> None:
    if group.added:
        matcher.add(*group.added[0])
    else:
        matcher.remove(group.removed[0])


def _amortised(
    matcher: Matcher, books: Books, event: dict[str, int], adds: int, size: Size, say: Say
) -> dict[str, Any]:
    """Single adds, then a match, then all the merging and saving that they cause: microseconds of one add."""
    adds = max(int(adds * min(size.subscriptions / ENOUGH, 1)), 10)
    say(f"{adds:,} single adds, until everything is merged")
    group = books.group(adds, 0)
    rest(matcher)
    start, processor = time.perf_counter(), time.process_time()
    for id, text in group.added:
        matcher.add(id, text)
    added = time.perf_counter()
    matcher.match(event)
    rest(matcher)
    end, used = time.perf_counter(), time.process_time() - processor
    books.note([group])
    return {
        "adds": adds,
        "microseconds of the call": (added - start) / adds * 1e6,
        "microseconds until settled": (end - start) / adds * 1e6,
        "processor microseconds": used / adds * 1e6,
        "segments": matcher.stats()["segments"],
    }
