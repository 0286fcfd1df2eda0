"""Constants first, or joins first: section 4.3.1 of the paper.

    joins first       every join is answered for every event, and then the events are matched: j joins
    constants first   the events are matched with every join left open, which gives the subscriptions that may match;
                      only their joins are answered, and then the events are matched again: j' joins

A join is left open by values of both kinds: TRUE and FALSE for a condition, any number for COUNT. (Normal forms have no
NOT, so that more values never make fewer matches.) MIN and MAX that are compared with constants are always answered.

What is cheaper depends on j' and on what matching costs, which are measured as events come. The two orders give the
same matches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dibs.coding.values import Booleans, EventValues, Range
from dibs.history.keys import events_between
from dibs.history.plan import Plan
from dibs.language.joins import COUNT, EXISTS
from dibs.thresholds import thresholds

# The subscriptions that may match: for each segment the events, and for each of these the joins (by their names) that a
# subscription of the segment mentions.
Candidates = Iterable[tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]]
Needed = NDArray[np.bool_]  # event, join
FADING = 0.8  # of what was measured before, in an average
LOOK_AGAIN = 64  # batches after which the other order is tried once


@dataclass
class Costs:
    """Seconds, and shares, as measured so far; None: not yet."""

    a_join: float | None = None
    narrowing: float | None = None  # matching one event with joins left open
    share: float | None = None  # of the joins that are needed after that
    batches: int = 0

    def note(self, **measured: float) -> None:
        for name, value in measured.items():
            old = getattr(self, name)
            setattr(self, name, value if old is None else FADING * old + (1 - FADING) * value)

    def constants_first(self, joins: int) -> bool:
        """Which order is estimated to be cheaper for a batch of events with so many joins."""
        self.batches += 1
        if joins <= thresholds.few_joins:
            return False
        if self.a_join is None or self.narrowing is None or self.share is None:
            return self.a_join is not None  # joins first, for what a join costs, and then the other way
        narrowed = 2 * self.narrowing + self.share * joins * self.a_join
        is_cheaper = narrowed < self.narrowing + joins * self.a_join
        return is_cheaper != (self.batches % LOOK_AGAIN == 0)

    def told(self, joins: int) -> str:
        """The order, in words."""
        if joins <= thresholds.few_joins:
            return f"joins first, because there are only {joins:,}"
        if self.a_join is None or self.narrowing is None or self.share is None:
            return "not decided yet"
        needed = self.share * joins
        first = 1e6 * (self.narrowing + joins * self.a_join)
        last = 1e6 * (2 * self.narrowing + needed * self.a_join)
        costs = f"about {first:,.0f} microseconds per event with joins first, {last:,.0f} with constants first, when "
        return f"{'constants' if last < first else 'joins'} first: {costs}{needed:,.1f} joins are needed"


def needed_joins(
    plans: list[Plan], values: EventValues, candidates: Callable[[EventValues], Candidates], costs: Costs
) -> Needed:
    """Which joins have to be answered for which event, so that all others make no difference."""
    begin = time.perf_counter()
    number = {plan.name: place for place, plan in enumerate(plans)}
    left_open = [plan for plan in plans if _can_be_open(plan)]
    needed = np.tile(np.array([not _can_be_open(plan) for plan in plans], np.bool_), (values.events, 1))
    size = max(1, thresholds.open_joins // max(len(left_open), 1))
    for first in range(0, values.events, size):
        some = events_between(values, first, min(first + size, values.events)) if values.events > size else values
        for names, event, place in candidates(_with_open(some, left_open)):
            own = np.array([number[name] for name in names], np.int64)
            needed[first + event, own[place]] = True
    took = (time.perf_counter() - begin) / max(values.events, 1)
    costs.note(narrowing=took, share=float(needed.mean()) if needed.size else 0.0)
    return needed


def _can_be_open(plan: Plan) -> bool:
    return plan.join.function in (EXISTS, COUNT) or plan.join.event is not None


def _with_open(values: EventValues, plans: list[Plan]) -> EventValues:
    """The events with every join that it could be."""
    codes = values.names.codes  # type: ignore[attr-defined]
    is_number = [plan.join.function == COUNT and plan.join.event is None for plan in plans]
    conditions = np.array([codes[p.name] for p, n in zip(plans, is_number) if not n], np.int32)
    counts = [codes[p.name] for p, n in zip(plans, is_number) if n]
    events, b = np.arange(values.events, dtype=np.int32), values.booleans
    event = np.repeat(events, 2 * len(conditions))
    name = np.tile(np.repeat(conditions, 2), values.events)
    value = np.tile(np.array([0, 1], np.uint8), len(conditions) * values.events)
    any_number = Range(0, math.nan)
    return replace(
        values,
        booleans=Booleans(np.append(b.event, event), np.append(b.name, name), np.append(b.value, value)),
        ranges=[*values.ranges, *((e, code, any_number) for e in range(values.events) for code in counts)],
    )
