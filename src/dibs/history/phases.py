"""Constants first, or joins first: section 4.3.1 of the paper.

    joins first       every join is answered for every event, and then the events are matched: j joins
    constants first   the events are matched by an index over the constants alone, which gives the subscriptions that
                      may match; only their joins are answered, and then the events are matched: j' joins

(Normal forms have no NOT, and IS NULL is never asked of a join: a join that is taken for granted, or for refused where
IS NOT TRUE is asked of it, never makes fewer matches.)

What is cheaper depends on j' and on what matching costs, which are measured as events come. The two orders give the
same matches. The paper counts predicates, with N subscriptions, D documents, and k attributes of constants that an
event has (k' after the first phase): j log D + k' log N for joins first, k log N + j' log D for constants first. That
count is told beside what was measured, by which the order is chosen: a predicate of a join costs more than others.

    m.plan_joins(order="joins")    or "constants": always so, for measuring
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.values import EventValues
from dibs.history.plan import Plan
from dibs.thresholds import thresholds

# The subscriptions that may match: for each segment the events, and for each of these the joins (by their names) that a
# subscription of the segment mentions.
Candidates = Iterable[tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]]
Needed = NDArray[np.bool_]  # event, join
FADING = 0.8  # of what was measured before, in an average
LOOK_AGAIN = 64  # batches after which the other order is tried once


TIMES = ("a_join", "narrowing")  # of what is measured
JOINS, CONSTANTS = "joins", "constants"  # what comes first


class Sizes(NamedTuple):
    """What the paper's count depends on."""

    joins: int
    documents: int
    subscriptions: int
    attributes: float = 0.0  # of constants, that an event has


def count_predicates(sizes: Sizes, needed: float) -> tuple[float, float]:
    """Predicates per event with joins first, and with constants first, as section 4.3.1 counts them. needed: the joins
    that are left after constants. (The attributes that are left after joins are taken to be all of them.)"""
    by_document, by_subscription = math.log2(max(sizes.documents, 2)), math.log2(max(sizes.subscriptions, 2))
    constants = sizes.attributes * by_subscription
    return sizes.joins * by_document + constants, constants + needed * by_document


@dataclass
class Costs:
    """Seconds, and shares, as measured so far; None: not yet."""

    a_join: float | None = None
    narrowing: float | None = None  # matching one event by constants alone
    share: float | None = None  # of the joins that are needed after that
    attributes: float | None = None  # values per event
    batches: int = 0
    order: str | None = None  # what always comes first; None: what is cheaper

    def note(self, **measured: float) -> None:
        """A time that is less than those before is taken as it is: what took long once, because a kernel was compiled
        or the machine was busy, must not decide for long."""
        for name, value in measured.items():
            old = getattr(self, name)
            is_less = old is not None and name in TIMES and value < old
            setattr(self, name, value if old is None or is_less else FADING * old + (1 - FADING) * value)

    def constants_first(self, joins: int) -> bool:
        """Which order is estimated to be cheaper for a batch of events with so many joins."""
        self.batches += 1
        if self.order is not None:
            return self.order == CONSTANTS
        if joins <= thresholds.few_joins:
            return False
        if self.a_join is None or self.narrowing is None or self.share is None:
            return self.a_join is not None  # joins first, for what a join costs, and then the other way
        is_cheaper = self.narrowing + self.share * joins * self.a_join < joins * self.a_join
        return is_cheaper != (self.batches % LOOK_AGAIN == 0)

    def tell(self, sizes: Sizes) -> str:
        """The order, in words."""
        joins = sizes.joins
        if self.order is not None:
            return f"{self.order} first, as was asked for"
        if joins <= thresholds.few_joins:
            return f"joins first, because there are only {joins:,}"
        if self.a_join is None or self.narrowing is None or self.share is None:
            return "not decided yet"
        needed = self.share * joins
        first, last = 1e6 * joins * self.a_join, 1e6 * (self.narrowing + needed * self.a_join)
        costs = f"about {first:,.0f} microseconds per event with joins first, {last:,.0f} with constants first, when "
        both = count_predicates(sizes._replace(attributes=self.attributes or 0.0), needed)
        counted = f"; by the paper's count {both[0]:,.0f} and {both[1]:,.0f} predicates"
        return f"{'constants' if last < first else 'joins'} first: {costs}{needed:,.1f} joins are needed{counted}"


def find_needed_joins(
    plans: list[Plan], values: EventValues, candidates: Callable[[EventValues], Candidates], costs: Costs
) -> Needed:
    """Which joins have to be answered for which event, so that all others make no difference."""
    begin = time.perf_counter()
    number = {plan.name: place for place, plan in enumerate(plans)}
    needed = np.zeros((values.events, len(plans)), np.bool_)
    for names, event, place in candidates(values):
        own = np.array([number[name] for name in names], np.int64)
        needed[event, own[place]] = True
    took = (time.perf_counter() - begin) / max(values.events, 1)
    costs.note(narrowing=took, share=float(needed.mean()) if needed.size else 0.0)
    return needed
