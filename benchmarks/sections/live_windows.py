"""A window of time in which one thread matches without a pause and another one changes subscriptions at a given rate.

Every match is checked afterwards, event by event: it must find what is there after some group of changes that was begun
before it ended, and no group that had returned before it began may be missing. Adding as many as are removed leaves
totals as they are, so totals would show nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.matcher import Matcher
from measure import WrongMatches, timed
from sections.live_books import Books, Group


class Work(NamedTuple):
    """How the matching thread matches."""

    call: Callable[[Matcher, int], Any]  # event i, or the batch whatever i is
    counts: Callable[[Any], NDArray[np.int64]]  # from what it returns: the matches of each event
    single: bool
    events: int  # of a call


class Call(NamedTuple):
    """One match: it must see the state after group `first`, `last` or one between them."""

    first: int  # groups that had returned before it began
    last: int  # groups that were begun before it ended
    event: int  # of a single one; else 0
    counts: NDArray[np.int64]


class Run(NamedTuple):
    """What a window showed."""

    throughput: float  # events per second of matching
    processor: float  # seconds of the matching thread for an event, without waiting
    matching: list[float]  # seconds of each call
    changing: list[float]  # seconds of each group
    adds: float  # a second
    segments: int
    settling: float  # seconds that merges and savings took on after the window


def window(matcher: Matcher, books: Books, groups: list[Group], rate: int, work: Work, seconds: float) -> Run:
    """groups: enough for the window, or none at all."""
    begun = returned = 0  # groups
    changing: list[float] = []
    failed: list[BaseException] = []
    stop = threading.Event()
    newest = [books.event_of(group.added[-1][0]) for group in groups]  # which the next match should ask for
    start = time.perf_counter()

    def change() -> None:
        nonlocal begun, returned
        try:
            for i, group in enumerate(groups):
                due = start + i * len(group.added) / rate
                if stop.wait(max(due - time.perf_counter(), 0)):
                    return
                begun += 1
                changing.append(timed(lambda group=group: _make(matcher, group))[0])
                returned += 1
        except BaseException as e:
            failed.append(e)

    changer = threading.Thread(target=change, name="changer")
    calls: list[Call] = []
    matching: list[float] = []
    used, asked = 0.0, 0
    changer.start()
    try:
        while not calls or time.perf_counter() < start + seconds:
            before = returned
            event = newest[before - 1] if before > asked else len(calls) % len(books.counts)
            asked = before
            processor, began = time.thread_time(), time.perf_counter()
            found = work.call(matcher, event)
            matching.append(time.perf_counter() - began)
            used += time.thread_time() - processor
            calls.append(Call(before, begun, event if work.single else 0, work.counts(found)))
    finally:
        end = time.perf_counter()
        stop.set()
        changer.join()
    if failed:
        raise failed[0]
    segments = matcher.stats()["segments"]
    settling, _ = timed(lambda: rest(matcher))
    books.forget(groups[returned:])
    check_calls(calls, books.note(groups[:returned]))
    adds = sum(len(g.added) for g in groups[:returned]) / (end - start)
    matched = len(calls) * work.events
    return Run(matched / sum(matching), used / matched, matching, changing, adds, segments, settling)


def _make(matcher: Matcher, group: Group) -> None:
    with matcher.batch():
        matcher.add_many(group.added)
        matcher.remove_many(group.removed)


def check_calls(calls: list[Call], history: NDArray[np.int64]) -> None:
    """history: the matches of each event before all groups and after each of them."""
    for i, call in enumerate(calls):
        events = slice(call.event, call.event + len(call.counts))
        possible = history[call.first : call.last + 1, events]
        if not (possible == call.counts).all(axis=1).any():
            states = f"{call.first} to {call.last}" if call.last > call.first else f"{call.first}"
            raise WrongMatches(f"match {i} found what was there after no group of changes that it could see ({states})")


def rest(matcher: Matcher) -> None:
    """Waits until there is nothing to merge or to save."""
    upkeep = matcher._layers.upkeep
    while upkeep.busy:
        upkeep.rest()
