"""What the planner knows: how often an attribute is present in an event, and how likely a predicate holds.

Before any event has been seen, presence is guessed from the subscriptions: people ask for what exists, and an event
has several times as many attributes as a subscription has predicates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses

ATTRIBUTES_A_PREDICATE = 6.0  # attributes of an event for each predicate of a subscription, before events are seen
MEMORY = 65_536  # events; older ones fade out


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
        self._present += np.bincount(events.attribute, minlength=len(self._present))

    def share(self) -> NDArray[np.float64]:
        return np.minimum(self._present / max(self.events, 1.0), 1.0)


def guessed_presence(clauses: Clauses) -> NDArray[np.float64]:
    """The share of events that have each attribute, as the subscriptions suggest it."""
    mentioned = np.bincount(clauses.attribute, minlength=clauses.attributes)
    return np.minimum(ATTRIBUTES_A_PREDICATE * mentioned / max(len(clauses), 1), 1.0)


def probabilities(clauses: Clauses, presence: NDArray[np.float64]) -> NDArray[np.float32]:
    """The estimated share of events for which each predicate holds."""
    single = clauses.hi >= 0
    width = np.where(single, clauses.hi - clauses.lo + 1, 0).astype(np.float32)
    several = np.flatnonzero(~single)
    if len(several):
        total = np.concatenate([[0], np.cumsum(clauses.span_hi.astype(np.int64) - clauses.span_lo + 1)])
        first = clauses.lo[several].astype(np.int64)
        width[several] = total[first - clauses.hi[several]] - total[first]
    highest = np.ones(clauses.attributes, np.int32)
    np.maximum.at(highest, clauses.attribute[single], clauses.hi[single])
    if len(several):
        np.maximum.at(highest, clauses.attribute[several], clauses.span_hi[first - clauses.hi[several] - 1])
    here = presence[clauses.attribute]
    share = (here * np.minimum(width / highest[clauses.attribute], 1.0)).astype(np.float32)
    null = single & (clauses.lo == 0) & (clauses.hi >= 0)
    share[null] = np.maximum(share[null], (1.0 - here[null]).astype(np.float32))
    return share
