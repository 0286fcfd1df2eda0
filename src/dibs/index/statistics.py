"""What the planner knows: how often an attribute is present in an event, and how likely a predicate holds.

Before any event has been seen, presence is guessed from the subscriptions: people ask for what exists, and an event
has several times as many attributes as a subscription has predicates.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.jit.kernel import kernel
from dibs.jit.threads import survive_forks
from dibs.tuning import tuned

REMEMBERED_EVENTS = tuned("remembered_events", 16_384, 16, "events", "whose attributes are remembered; older ones fade")
LATEST_EVENTS = tuned("latest_events", 2_048, 4, "events", "whose values are remembered")
WORTH_PLANNING = tuned("worth_planning", 1.25, 1.0, "times", "less that an event must cost by a new plan")
ENOUGH_EVENTS = tuned("enough_events", 1_024, 1, "events", "before measured shares are believed for the first time")
LOOK_EVERY = tuned("look_every", 4_096, 8, "events", "after which the plan is looked at again")
ONE_BY_ONE_EVENTS = tuned("one_by_one_events", 2, 64, "events", "that are matched one by one")

ATTRIBUTES_A_PREDICATE = 6.0  # attributes of an event for each predicate of a subscription, before events are seen
BLOCK = 512  # events that masks look at together
SAMPLED_PART = 2  # of the values that are remembered, one batch may be so many
SAMPLED_RUNS = 8  # in which events are taken from a large batch


class Presence:
    """How often each attribute was present in the events seen, and which values the latest ones had."""

    def __init__(self, attributes: int):
        self.events = 0.0
        self._present = np.zeros(attributes)
        self._in_batches = self._blocks = 0.0
        self._seen = self._seen_by_batch = 0.0  # events, and each as often as its batch has events
        self._latest: deque[CodedEvents] = deque()
        self._latest_events = 0
        self.reset_after_fork()
        survive_forks(self)

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()  # several threads may match at once

    @property
    def attributes(self) -> int:
        return len(self._present)

    def observe(self, events: CodedEvents, times: int = 1) -> int:
        """Takes the events, each of which stands for so many; of many, a sample. Returns how many there were."""
        most, in_batch = LATEST_EVENTS.value, len(events)
        if len(events) * SAMPLED_PART > most:
            events = _sample(events, max(most // SAMPLED_PART, 1))
        weight = min(times * in_batch / max(len(events), 1), REMEMBERED_EVENTS.value / (2 * max(len(events), 1)))
        weight = max(weight, 1.0)  # those before are not forgotten at once
        with self._lock:
            if self.events + weight * len(events) > REMEMBERED_EVENTS.value:
                self.events /= 2
                self._present /= 2
                self._in_batches /= 2
                self._blocks /= 2
                self._seen /= 2
                self._seen_by_batch /= 2
            self.events += weight * len(events)
            self._seen += in_batch
            self._seen_by_batch += in_batch * in_batch
            if in_batch > ONE_BY_ONE_EVENTS.value:
                self._in_batches += in_batch
                self._blocks += -(-in_batch // BLOCK)
            if len(events.attribute) < len(self._present):
                np.add.at(self._present, events.attribute, weight)
            else:
                self._present += weight * np.bincount(events.attribute, minlength=len(self._present))
            self._latest.append(events)
            self._latest_events += len(events)
            while self._latest_events - len(self._latest[0]) >= most:
                self._latest_events -= len(self._latest.popleft())
        return times * in_batch

    def latest(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Attribute and cell of every value of the latest events."""
        with self._lock:
            latest = list(self._latest)
        none = np.empty(0, np.int32)
        return np.concatenate([none, *(e.attribute for e in latest)]), np.concatenate([none, *(e.lo for e in latest)])

    def batches(self) -> list[CodedEvents]:
        """The latest events, in batches as long as that of an event was, or all in one."""
        with self._lock:
            latest, size = list(self._latest), round(self._seen_by_batch / max(self._seen, 1.0))
        events = concatenate_events(latest)
        size = min(max(size, 1), max(len(events), 1))
        return [events.between(i, min(i + size, len(events))) for i in range(0, len(events), size)]

    def latest_share(self) -> NDArray[np.float64]:
        """Of the latest events, those that have each attribute. (One with several values counts as often.)"""
        attribute, _ = self.latest()
        return np.minimum(np.bincount(attribute, minlength=self.attributes) / max(self._latest_events, 1), 1.0)

    def fullness(self) -> float:
        """The share of a block that is filled, when events come in batches."""
        return self._in_batches / (self._blocks * BLOCK) if self._blocks else 1.0

    def share(self) -> NDArray[np.float64]:
        return np.minimum(self._present / max(self.events, 1.0), 1.0)


def concatenate_events(parts: list[CodedEvents]) -> CodedEvents:
    offsets = np.zeros(sum(map(len, parts)) + 1, np.int64)
    np.cumsum(np.concatenate([np.zeros(0, np.int64), *(np.diff(e.offsets) for e in parts)]), out=offsets[1:])
    none, points = np.empty(0, np.int32), all(e.points for e in parts)
    attribute, lo = (np.concatenate([none, *(getattr(e, n) for e in parts)]) for n in ("attribute", "lo"))
    hi = lo if points else np.concatenate([none, *(e.hi for e in parts)])
    return CodedEvents(offsets, attribute, lo, hi, points)


def _sample(events: CodedEvents, most: int) -> CodedEvents:
    """So many of them, or some more, in runs from all over the batch: far cheaper than one here and one there."""
    length = -(-most // SAMPLED_RUNS)
    starts = np.linspace(0, len(events) - length, -(-most // length)).astype(np.int64)
    first, last = events.offsets[starts], events.offsets[starts + length]
    runs = [slice(x, y) for x, y in zip(first.tolist(), last.tolist())]
    sizes = np.concatenate([np.diff(events.offsets[x : x + length + 1]) for x in starts.tolist()])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    attribute, lo = (np.concatenate([column[run] for run in runs]) for column in (events.attribute, events.lo))
    hi = lo if events.points else np.concatenate([events.hi[run] for run in runs])
    return CodedEvents(offsets, attribute, lo, hi, events.points)


def guess_presence(clauses: Clauses) -> NDArray[np.float64]:
    """The share of events that have each attribute, as the subscriptions suggest it."""
    mentioned = np.bincount(clauses.attribute, minlength=clauses.attributes)
    return np.minimum(ATTRIBUTES_A_PREDICATE * mentioned / max(len(clauses), 1), 1.0)


def highest_cells(clauses: Clauses) -> NDArray[np.int32]:
    """The highest cell of each attribute that a predicate covers."""
    return _highest_cells(clauses.attribute, clauses.lo, clauses.hi, clauses.span_hi, clauses.attributes)


@kernel
def _highest_cells(attribute, lo, hi, span_hi, attributes):
    highest = np.ones(attributes, np.int32)
    for p in range(len(attribute)):
        top = hi[p] if hi[p] >= 0 else span_hi[lo[p] - hi[p] - 1]
        if top > highest[attribute[p]]:
            highest[attribute[p]] = top
    return highest


def probabilities(clauses: Clauses, presence: NDArray[np.float64], highest: NDArray[np.int32]) -> NDArray[np.float32]:
    """The estimated share of events for which each predicate holds."""
    return _probabilities(
        clauses.attribute, clauses.lo, clauses.hi, clauses.span_lo, clauses.span_hi, presence, highest
    )


@kernel
def _probabilities(attribute, lo, hi, span_lo, span_hi, presence, highest):
    share = np.empty(len(attribute), np.float32)
    for p in range(len(attribute)):
        a = attribute[p]
        width = np.int64(0)
        if hi[p] >= 0:
            width = hi[p] - lo[p] + 1
        else:
            for s in range(lo[p], lo[p] - hi[p]):
                width += span_hi[s] - span_lo[s] + 1
        share[p] = presence[a] * min(width / highest[a], 1.0)
        if hi[p] >= 0 and lo[p] == 0:
            share[p] = max(share[p], np.float32(1.0 - presence[a]))
    return share


def access_predicates(
    clauses: Clauses, cost: NDArray[np.float32], most: float = np.inf
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """The conjunctions that have a predicate of at most this cost, the cheapest of each, and the least attribute of
    their other predicates."""
    return _access_predicates(clauses.offsets, clauses.attribute, cost, most, clauses.conjunctions)


@kernel
def _access_predicates(offsets, attribute, cost, most, conjunctions):
    rows, access = np.empty(conjunctions, np.int64), np.empty(conjunctions, np.int64)
    other = np.empty(conjunctions, np.int32)
    n = 0
    for r in range(conjunctions):
        best = np.int64(-1)
        for p in range(offsets[r], offsets[r + 1]):
            if cost[p] <= most and (best < 0 or cost[p] < cost[best]):
                best = p
        if best >= 0:
            rows[n], access[n], other[n] = r, best, 0x7FFFFFFF
            for p in range(offsets[r], offsets[r + 1]):
                if p != best:
                    other[n] = min(other[n], attribute[p])
            n += 1
    return rows[:n], access[:n], other[:n]
