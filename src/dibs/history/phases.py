"""Constants first, or joins first: section 4.3.1 of the paper.

    joins first       every join is answered for every event, and then the events are matched: j joins
    constants first   the events are matched with every join left open, which gives the subscriptions that may match;
                      only their joins are answered, and then the events are matched again: j' joins

A join is left open by all the values that it could have: TRUE and FALSE for a condition, any number for COUNT, anything
for MIN and MAX. (Normal forms have no NOT, and IS NULL is never asked of a join, so that more values never make fewer
matches.)

What is cheaper depends on j' and on what matching costs, which are measured as events come. The two orders give the
same matches.
"""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dibs.coding.values import Booleans, EventValues, Range
from dibs.history.keys import events_between
from dibs.history.plan import Plan
from dibs.language.joins import COUNT
from dibs.language.printer import is_condition
from dibs.thresholds import thresholds

# The subscriptions that may match: for each segment the events, and for each of these the joins (by their names) that a
# subscription of the segment mentions.
Candidates = Iterable[tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]]
Needed = NDArray[np.bool_]  # event, join
ANY_COUNT = Range(0, math.nan)
ANY_VALUE = (  # with TRUE and FALSE
    Range(-math.inf, math.nan),
    Range("", None),
    Range(None, dt.datetime.max),
    Range(dt.datetime.max, None),
)
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

    def tell(self, joins: int) -> str:
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


def find_needed_joins(
    plans: list[Plan], values: EventValues, candidates: Callable[[EventValues], Candidates], costs: Costs
) -> Needed:
    """Which joins have to be answered for which event, so that all others make no difference."""
    begin = time.perf_counter()
    number = {plan.name: place for place, plan in enumerate(plans)}
    needed = np.zeros((values.events, len(plans)), np.bool_)
    size = max(1, thresholds.open_joins // max(len(plans), 1))
    for first in range(0, values.events, size):
        some = events_between(values, first, min(first + size, values.events)) if values.events > size else values
        for names, event, place in candidates(_with_open(some, plans)):
            own = np.array([number[name] for name in names], np.int64)
            needed[first + event, own[place]] = True
    took = (time.perf_counter() - begin) / max(values.events, 1)
    costs.note(narrowing=took, share=float(needed.mean()) if needed.size else 0.0)
    return needed


def _with_open(values: EventValues, plans: list[Plan]) -> EventValues:
    """The events with every value of each join that it could have."""
    codes = values.names.codes  # type: ignore[attr-defined]
    is_number = [plan.join.function == COUNT and plan.join.event is None for plan in plans]
    truths = np.array([codes[p.name] for p, number in zip(plans, is_number) if not number], np.int32)
    ranges = [
        (codes[plan.name], each)
        for plan, number in zip(plans, is_number)
        if not is_condition(plan.name)
        for each in ((ANY_COUNT,) if number else ANY_VALUE)
    ]
    b = values.booleans
    event = np.repeat(np.arange(values.events, dtype=np.int32), 2 * len(truths))
    name = np.tile(np.repeat(truths, 2), values.events)
    value = np.tile(np.array([0, 1], np.uint8), len(truths) * values.events)
    return replace(
        values,
        booleans=Booleans(np.append(b.event, event), np.append(b.name, name), np.append(b.value, value)),
        ranges=[*values.ranges, *((e, code, each) for e in range(values.events) for code, each in ranges)],
    )
