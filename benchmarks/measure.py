"""How everything here is measured: rivals take turns, the best of several counts, and nothing wrong is timed."""

from __future__ import annotations

import gc
import math
import os
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baselines import AccessLists, BitSlices
from dibs.coding.batch import CodedEvents, code_events
from dibs.coding.events import WantedNames, read_events
from dibs.index import create
from dibs.index.base import do_pending
from dibs.matcher import Matcher
from dibs.papers.workloads import boolean
from dibs.papers.workloads.boolean import Workload
from dibs.segments.segment import Segment

Say = Callable[[str], None]  # tells the terminal what is going on
MICRO = 1e6


@dataclass(frozen=True)
class Size:
    """How much a run measures."""

    subscriptions: int
    repeats: int
    events: int
    texts: int  # parsed by sqlglot, which takes 0.1 ms each
    few_events: int = 20  # for rivals that take milliseconds per event
    structure_subscriptions: int = 0  # of the section of all index structures
    structures: tuple[str, ...] = ()  # of it; none: all
    workloads: tuple[str, ...] = ()  # of it
    scale: float = 0.01  # the share of the papers' sizes that their figures are sampled at


class WrongMatches(AssertionError):
    """Two rivals found different matches: no time is reported."""


class Keys:
    """The matches that everybody must find, as one sorted number a pair."""

    def __init__(self, event: NDArray[Any], subscription: NDArray[Any]):
        self._sorted = np.sort(_pair_keys(event, subscription))
        self.agreed: list[str] = []  # who has been checked

    def __len__(self) -> int:
        return len(self._sorted)

    def up_to(self, events: int) -> int:
        """The number of matches of the first events."""
        return int(np.searchsorted(self._sorted, events << 32))

    def of_each_event(self, events: int) -> NDArray[np.int64]:
        """The number of matches of each event."""
        return np.bincount(self._sorted >> 32, minlength=events)

    def check(self, who: str, event: NDArray[Any], subscription: NDArray[Any], events: int | None = None) -> None:
        """That `who` found exactly these matches (of the first events)."""
        expected = self._sorted if events is None else self._sorted[: self.up_to(events)]
        found = np.sort(_pair_keys(event, subscription))
        if not np.array_equal(found, expected):
            raise WrongMatches(f"{who} found {len(found):,} matches that are not the {len(expected):,} expected ones")
        self.agreed.append(who)


def _pair_keys(event: NDArray[Any], subscription: NDArray[Any]) -> NDArray[np.int64]:
    return (event.astype(np.int64) << 32) | subscription.astype(np.int64)


def interleaved(
    rivals: Mapping[str, Callable[[], Any]], repeats: int, hopeless: float = math.inf
) -> dict[str, list[float]]:
    """Seconds of each call. Each rival runs once untimed; then they take turns, in another order each round, so that a
    noisy moment of the machine hits all of them and what one leaves in the caches is nobody's advantage. A rival that
    takes `hopeless` times as long as the fastest is not called any more after three rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for work in rivals.values():
        work()
    order = random.Random(1)
    names = list(rivals)
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for i in range(repeats):
            if i == 3:
                fastest = min(map(min, seconds.values()))
                names = [name for name in names if min(seconds[name]) <= hopeless * fastest]
            order.shuffle(names)
            for name in names:
                start = time.perf_counter()
                rivals[name]()
                seconds[name].append(time.perf_counter() - start)
    finally:
        if collecting:
            gc.enable()
    return seconds


def per_event(seconds: dict[str, list[float]], events: int) -> dict[str, dict[str, float]]:
    """Microseconds an event: the best counts, the median shows how quiet the machine was."""
    return {
        name: {"best": min(s) / events * MICRO, "median": statistics.median(s) / events * MICRO}
        for name, s in seconds.items()
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def matcher_of(workload: Workload, say: Say, threads: int = 1) -> tuple[Matcher, Segment, float]:
    """The matcher of a workload, its only segment, and the seconds that add_table took."""
    say("writing the texts")
    table = workload.subscription_table()
    matcher = Matcher(threads=threads)
    say("adding them")
    seconds, _ = timed(lambda: matcher.add_table(table))
    (segment,) = segments_of(matcher)
    return matcher, segment, seconds


def segments_of(matcher: Matcher) -> list[Segment]:
    return [layer.segment for layer in matcher.snapshot().layers]


def wanted_names(matcher: Matcher) -> WantedNames:
    """The matcher's own list of names: what is coded once for it would be coded again for another one."""
    return matcher._matching.find_wanted(segments_of(matcher))


def coded_events(events: Any, segment: Segment, attributes: str | None = None) -> CodedEvents:
    return code_events(read_events(events, segment.names, attributes=attributes), segment.domains)


def events_from(coded: CodedEvents, first: int, last: int) -> CodedEvents:
    """The events first to last as a batch of their own."""
    a, b = coded.offsets[first], coded.offsets[last]
    lo = coded.lo[a:b]
    hi = lo if coded.points else coded.hi[a:b]
    return CodedEvents(coded.offsets[first : last + 1] - a, coded.attribute[a:b], lo, hi, coded.points)


def settle(segment: Segment, coded: CodedEvents) -> dict[str, Any]:
    """Lets `auto` see events until its plan no longer changes; the plan."""
    index = segment.index
    unchanged = 0
    for _ in range(50):
        before = index.plan()["plans"]
        index.match(coded, 1)
        do_pending(index)
        unchanged = unchanged + 1 if index.plan()["plans"] == before else 0
        if unchanged >= 3 and index.plan()["events seen"] >= 4096:
            break
    return dict(index.plan())


def warm_up(say: Say) -> float:
    """Every kernel once, on a small workload: compiles them, or loads them from Numba's cache. The seconds it took."""
    say("compiling the kernels, or loading them from the cache")
    return _warm_up()


@cache
def _warm_up() -> float:
    start = time.perf_counter()
    for shape in ("sparse", "dense"):
        workload = boolean.make_named(shape, 2_000, events=300)
        matcher, segment, _ = matcher_of(workload, lambda _: None, threads=2)
        batch = workload.event_batch()
        matcher.match_batch(batch, attributes="attributes").pairs()
        matcher.match(workload.event_dicts()[0])
        create("scan", segment.clauses).match(coded_events(batch, segment, "attributes"), 1)
        for kind in (AccessLists, BitSlices):
            kind(workload).match(workload.event_attribute, workload.event_value)
    return time.perf_counter() - start


def resident_bytes() -> int:
    """Memory of this process now (its peak, where /proc does not exist)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_bytes()


def forget_peak() -> bool:
    """Starts a new measurement of the peak; False where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    """The most memory this process had, since forget_peak where that works."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def available_bytes() -> int | None:
    """Memory that could still be taken, where the system says."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
