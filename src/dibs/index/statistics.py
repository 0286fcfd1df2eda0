"""What the planner knows: how often an attribute is present in an event, and how likely a predicate holds.

Before any event has been seen, presence is guessed from the subscriptions: people ask for what exists, and an event
has several times as many attributes as a subscription has predicates.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses

ATTRIBUTES_A_PREDICATE = 6.0  # attributes of an event for each predicate of a subscription, before events are seen
MEMORY = 16_384  # events; older ones fade out


class Presence:
    """How often each attribute was present in the events seen."""

    def __init__(self, attributes: int):
        self.events = 0.0
        self._present = np.zeros(attributes)

    def observe(self, events: CodedEvents) -> None:
        if self.events + len(events) > MEMORY:
            self.events /= 2
            self._present /= 2
        self.events += len(events)
        if len(events.attribute) < len(self._present):
            np.add.at(self._present, events.attribute, 1.0)
        else:
            self._present += np.bincount(events.attribute, minlength=len(self._present))

    def share(self) -> NDArray[np.float64]:
        return np.minimum(self._present / max(self.events, 1.0), 1.0)


def guessed_presence(clauses: Clauses) -> NDArray[np.float64]:
    """The share of events that have each attribute, as the subscriptions suggest it."""
    mentioned = np.bincount(clauses.attribute, minlength=clauses.attributes)
    return np.minimum(ATTRIBUTES_A_PREDICATE * mentioned / max(len(clauses), 1), 1.0)


def highest_cells(clauses: Clauses) -> NDArray[np.int32]:
    """The highest cell of each attribute that a predicate covers."""
    return _highest_cells(clauses.attribute, clauses.lo, clauses.hi, clauses.span_hi, clauses.attributes)


@njit(cache=True, nogil=True)
def _highest_cells(attribute, lo, hi, span_hi, attributes):  # type: ignore[no-untyped-def]
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


@njit(cache=True, nogil=True)
def _probabilities(attribute, lo, hi, span_lo, span_hi, presence, highest):  # type: ignore[no-untyped-def]
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
    clauses: Clauses, share: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """The conjunctions that have one, their access predicate (the least likely one that absence cannot satisfy), and
    the least attribute of their other predicates."""
    return _access_predicates(clauses.offsets, clauses.attribute, clauses.lo, clauses.hi, share, clauses.conjunctions)


@njit(cache=True, nogil=True)
def _access_predicates(offsets, attribute, lo, hi, share, conjunctions):  # type: ignore[no-untyped-def]
    rows, access = np.empty(conjunctions, np.int64), np.empty(conjunctions, np.int64)
    other = np.empty(conjunctions, np.int32)
    n = 0
    for r in range(conjunctions):
        best = np.int64(-1)
        for p in range(offsets[r], offsets[r + 1]):
            if (lo[p] > 0 or hi[p] < 0) and (best < 0 or share[p] < share[best]):
                best = p
        if best >= 0:
            rows[n], access[n], other[n] = r, best, 0x7FFFFFFF
            for p in range(offsets[r], offsets[r + 1]):
                if p != best:
                    other[n] = min(other[n], attribute[p])
            n += 1
    return rows[:n], access[:n], other[:n]
