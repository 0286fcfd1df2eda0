"""The changes of the section durable: adds, replaces and removes, in memory and durable, one by one and in batches.

The floor of a durable change is a 4 KB append with fdatasync on the same file system, in turns with the changes; SQLite
syncs once for each commit too. What is replaced and removed are old subscriptions, so that nothing is taken back that
no segment has seen yet.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from baselines import AccessLists
from dibs.matcher import Matcher
from dibs.papers.workloads import boolean
from dibs.papers.workloads.boolean import Workload
from measure import Keys, Say, Size, timed

TEXTS = 20_000  # of changes; used again when there are more changes
CHANGES = {1: 500, 10: 60, 100: 20, 1_000: 10}  # size of a batch -> how many of them, of each kind of change
ENOUGH = 100_000  # subscriptions for so many; with fewer there are fewer changes
ROUNDS = 10
BLOCK = bytes(4096)


class Job(NamedTuple):
    """What is measured: `base` subscriptions; the workload's others are texts for changes."""

    workload: Workload
    base: int
    table: pa.Table
    spare: list[str]
    event: dict[str, int]
    pairs: tuple[Any, Any]  # events and subscriptions that match, base and spare
    keys: Keys  # those of the base

    def check(self, who: str, matcher: Matcher, keys: Keys | None = None) -> None:
        """That the matcher finds exactly these pairs (by default those of the base)."""
        found = matcher.match_batch(self.workload.event_batch(), attributes="attributes").pairs()
        (keys or self.keys).check(who, found["event"].to_numpy(), found["subscription"].to_numpy())
        if keys is not None:
            self.keys.agreed.append(who)


def job_of(size: Size) -> Job:
    base, texts = size.subscriptions, min(TEXTS, size.subscriptions)
    workload = boolean.make_named("sparse", base + texts, events=size.events)
    table = workload.subscription_table().combine_chunks()
    found = AccessLists(workload).match(workload.event_attribute, workload.event_value)
    event, subscription = (a.copy() for a in found)
    own = subscription < base
    spare = table["expression"].slice(base).to_pylist()
    first, pairs = workload.event_dicts()[0], (event, subscription)
    return Job(workload, base, table.slice(0, base), spare, first, pairs, Keys(event[own], subscription[own]))


def changing(job: Job, folder: Path, say: Say) -> dict[str, Any]:
    """What changes take, in memory and in the durable folder "base", in turns."""
    say("building what is changed")
    memory = Matcher()
    memory.add_table(job.table)
    matchers = {"memory": memory, "durable": Matcher.open(folder / "base")}
    for matcher in matchers.values():
        matcher.match(job.event)
    times: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    floor: list[float] = []
    now: dict[int, int | None] = {}  # what each id that was changed has: the number of a spare text, or nothing
    new, old = iter(range(job.base, 1 << 40)), iter(np.random.default_rng(1).permutation(job.base).tolist())
    with open(folder / "floor", "wb", buffering=0) as file:
        for i in range(ROUNDS):
            say(f"changing, round {i + 1} of {ROUNDS}")
            for size in _sizes(job.base, i):
                if size == 1:
                    floor.append(timed(lambda: _append(file.fileno()))[0])
                added, replaced, removed = ([next(ids) for _ in range(size)] for ids in (new, old, old))
                now |= {id: id % len(job.spare) for id in added + replaced} | dict.fromkeys(removed)
                for name, matcher in matchers.items():
                    for kind, seconds in _changed(matcher, added, replaced, removed, job.spare):
                        times[name, kind, size].append(seconds)
    keys = expected(job, now)
    for name, matcher in matchers.items():
        job.check(f"{name}, changed", matcher, keys)
        matcher.close()
    with Matcher.open(folder / "base") as matcher:
        job.check("changed and reopened", matcher, keys)
    rows = [
        {"where": name, "change": kind, "batch": size, "a second": size * len(t) / sum(t), **latency(t)}
        for (name, kind, size), t in times.items()
    ]
    return {"rows": rows, "fdatasync of 4 KB": {"a second": len(floor) / sum(floor), **latency(floor)}}


def _sizes(base: int, round_: int) -> Iterator[int]:
    """The batches of a round."""
    share = min(base / ENOUGH, 1) / ROUNDS
    for size, count in CHANGES.items():
        if size <= max(base // 10, 1):
            yield from [size] * max(round(count * share), round_ == 0)


def _changed(
    matcher: Matcher, added: list[int], replaced: list[int], removed: list[int], texts: list[str]
) -> Iterator[tuple[str, float]]:
    """The seconds of each kind of change, in one call or in one batch."""
    new = [(id, texts[id % len(texts)]) for id in added]
    other = [(id, texts[id % len(texts)]) for id in replaced]

    def replace() -> None:
        with matcher.batch():
            for id, text in other:
                matcher.replace(id, text)

    if len(added) == 1:
        yield "add", timed(lambda: matcher.add(*new[0]))[0]
        yield "replace", timed(lambda: matcher.replace(*other[0]))[0]
        yield "remove", timed(lambda: matcher.remove(removed[0]))[0]
    else:
        yield "add", timed(lambda: matcher.add_many(new))[0]
        yield "replace", timed(replace)[0]
        yield "remove", timed(lambda: matcher.remove_many(removed))[0]


def expected(job: Job, now: dict[int, int | None]) -> Keys:
    """The matches after the changes."""
    event, subscription = job.pairs
    own = subscription < job.base
    stays = own & ~np.isin(subscription, np.fromiter(now, np.int64))
    of_text: dict[int, list[int]] = defaultdict(list)
    for e, s in zip(event[~own].tolist(), (subscription[~own] - job.base).tolist()):
        of_text[s].append(e)
    more = [(e, id) for id, text in now.items() if text is not None for e in of_text[text]]
    events, ids = np.array(more, np.int64).reshape(-1, 2).T
    return Keys(np.concatenate([event[stays], events]), np.concatenate([subscription[stays], ids]))


def _append(file: int) -> None:
    os.write(file, BLOCK)
    os.fdatasync(file)


def latency(seconds: list[float]) -> dict[str, float]:
    """Milliseconds of a call."""
    median, most = np.percentile(seconds, [50, 99]) * 1e3
    return {"median ms": float(median), "p99 ms": float(most), "worst ms": max(seconds) * 1e3, "calls": len(seconds)}
