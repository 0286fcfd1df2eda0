"""Plans are tried: the ways to place clauses, each on the latest events, in the background; of those that take no more
bytes than they may (plan.budget_of), the fastest is taken.

What a look, a mask or a vector costs depends on the workload by more than any table of unit costs can tell (how often a
guard holds, how long lists are, what a match costs, what stays in the caches). So where clauses are few enough to make
several plans of them (`tried_clauses`), the ways that the estimates do not rule out are made and timed on events that
were matched, in batches like theirs; otherwise the plan that there is. What a part took beside what was estimated is
the factor by which the plan corrects estimates from then on: when it is asked whether other events are worth another
plan, and, of many clauses, which one. Processor time of one thread, so that a busy machine does not mislead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.mask_layout import WORD
from dibs.index.auto.masks import WIDE, Masks
from dibs.index.auto.plan import (
    AS_ESTIMATED,
    CHEAPEST,
    WAYS,
    PartCosts,
    Plan,
    costs_of,
    file_clauses,
    make_plan,
    mask_cost_of,
    place,
)
from dibs.index.auto.records import Records
from dibs.index.auto.shares import Shares
from dibs.index.auto.vector_groups import find_groups
from dibs.index.auto.vectors import Vectors
from dibs.index.base import in_parts
from dibs.index.statistics import WORTH_PLANNING

ROUNDS = 3
LONG = 0.02  # seconds of one round of one part
HOPELESS = 50.0  # times the best estimate: not tried
OFF = 1.5  # times the estimate, or the other way round: it is corrected
MOST_OFF = 100.0  # times, that is believed

Measure = Callable[[Plan], PartCosts]


WORTH = 1.05  # times less that the fastest must take for the plan to be changed


def try_ways(
    clauses: Clauses, shares: Shares, highest: NDArray[np.int32], fullness: float, measure: Measure, current: Plan
) -> Plan:
    """The fastest plan: the current one, as it was measured, or one for these shares."""
    filed = file_clauses(clauses, shares, highest, find_groups(clauses))
    mask_cost = mask_cost_of(clauses, highest)
    placements = {way: place(way, clauses, filed, mask_cost / fullness, current.factors) for way in WAYS}
    estimates = {
        way: costs_of(filed, placed, mask_cost / fullness, 1.0).corrected(current.factors)
        for way, placed in placements.items()
    }
    lowest = min(estimates.values())
    tried = [remember(current, measure(current))]
    known = set()
    for way in sorted(WAYS, key=lambda way: estimates[way]):
        placed = placements[way]
        key = placed.masks.tobytes(), placed.vectors.tobytes()
        if key not in known and estimates[way] <= HOPELESS * lowest:
            known.add(key)
            plan = make_plan(clauses, filed, placed, shares, highest, mask_cost, fullness, way, current.factors)
            tried.append(remember(plan, measure(plan)))
    fewest = min(plan.excess for plan in tried)
    best = min(tried, key=lambda plan: (plan.excess > fewest, sum(plan.measured or ())))
    # Of a part that the best has none of, the factor is that of the plan that pays it most.
    factors = [
        max(tried, key=lambda plan: (plan is best and plan.estimated[k] > 0, plan.estimated[k])).factors[k]
        for k in range(len(AS_ESTIMATED))
    ]
    is_within = tried[0].excess <= fewest
    if best is not tried[0] and is_within and sum(best.measured or ()) * WORTH > sum(tried[0].measured or ()):
        best = tried[0]
    return best._replace(factors=PartCosts(*factors))


def try_corrected(
    clauses: Clauses, shares: Shares, highest: NDArray[np.int32], fullness: float, measure: Measure, current: Plan
) -> Plan:
    """Of many clauses: the current plan, or, if its estimate is off and another one is much cheaper by corrected ones,
    that one, if it is."""
    current = remember(current, measure(current))
    filed = file_clauses(clauses, shares, highest, find_groups(clauses))
    mask_cost = mask_cost_of(clauses, highest)
    placed = place(CHEAPEST, clauses, filed, mask_cost / fullness, current.factors)
    expected = costs_of(filed, placed, mask_cost / fullness, 1.0).corrected(current.factors)
    if expected * WORTH_PLANNING.value > sum(current.measured or ()):
        return current
    plan = make_plan(clauses, filed, placed, shares, highest, mask_cost, fullness, CHEAPEST, current.factors)
    plan = remember(plan, measure(plan))
    return plan if sum(plan.measured or ()) * WORTH < sum(current.measured or ()) else current


def remember(plan: Plan, measured: PartCosts) -> Plan:
    """The plan with what it took, and corrected where its estimates are off."""
    factors = list(plan.factors)
    for k, (took, said) in enumerate(zip(measured, plan.estimated)):
        if took > 0 and said > 0:
            off = min(max(took / said, 1 / MOST_OFF), MOST_OFF)
            factors[k] = off if off > OFF or off < 1 / OFF else 1.0
    return plan._replace(measured=measured, factors=PartCosts(*factors))


def time_parts(plan: Plan, batches: Sequence[CodedEvents]) -> PartCosts:
    """What each part takes for an event of these batches, in nanoseconds."""
    parts: tuple[tuple[Records | Masks | Vectors, int], ...] = (
        (plan.records, 1),
        (plan.masks, len(WIDE) * WORD),
        (plan.vectors, 1),
    )
    return PartCosts(*(_time(part, block, batches) if part.size else 0.0 for part, block in parts))


def _time(part: Records | Masks | Vectors, block: int, batches: Sequence[CodedEvents]) -> float:
    """block: events that it looks at together."""
    best = np.inf
    for _ in range(ROUNDS):
        start, events = time.thread_time(), 0
        for batch in batches:
            in_parts(partial(part.match, batch), len(batch), 1, block, part.rate)
            events += len(batch)
            if time.thread_time() - start > LONG:
                break
        best = min(best, (time.thread_time() - start) / max(events, 1))
    return float(best * 1e9)
