"""The plan of `auto`: which clauses become records, and which masks.

A record costs by the events that look at it, a mask by the clause, whoever looks. Besides, both cost something for
every event, whatever they hold: so it may be cheaper to have only one of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.index.auto.access_sets import Entries, access_sets
from dibs.index.auto.masks import Masks
from dibs.index.auto.records import Records
from dibs.index.auto.shares import WHOLE, PredicateFiling, Shares, estimate, file_predicates
from dibs.index.statistics import access_predicates
from dibs.jit.hashing import number_pairs
from dibs.thresholds import thresholds

EVERYWHERE = 1e9  # more than any share of events, and not infinite
SAMPLED_PREDICATES = 500_000  # by which it is estimated how many are distinct
FAR_CLAUSES = 500_000  # whose records do not fit into the caches
MOST_WORDS = 1 << 32  # of records: places of guards are 32 bits


class FiledClauses(NamedTuple):
    """Where every row would stand among records, and what that costs."""

    filing: PredicateFiling
    share: NDArray[np.float32]  # how likely each predicate holds
    access: NDArray[np.int64]  # by conjunction: the predicate under which it is filed; -1: none
    other: NDArray[np.int32]  # by conjunction: an attribute of its other predicates
    entries: Entries  # of programs
    looks: NDArray[np.float64]  # by row: the share of events that look at it; infinite: it cannot be filed
    by_value: NDArray[np.bool_]  # by row: whether it is filed under values
    values: float  # of an event, that somebody asks for


def file_clauses(clauses: Clauses, shares: Shares) -> FiledClauses:
    filing = file_predicates(clauses, shares, shares.presence >= thresholds.often)
    share = estimate(clauses, shares)
    rows, chosen, another = access_predicates(clauses, filing.looks, most=EVERYWHERE)
    access, other = np.full(clauses.conjunctions, -1), np.zeros(clauses.conjunctions, np.int32)
    access[rows], other[rows] = chosen, another
    looks, by_value = np.full(len(clauses), np.inf), np.zeros(len(clauses), np.bool_)
    looks[rows], by_value[rows] = filing.looks[chosen], filing.level[chosen] != WHOLE
    _, entries = access_sets(clauses, np.arange(clauses.conjunctions, len(clauses)), share)
    count = np.bincount(entries.row, minlength=len(clauses))
    total = np.bincount(entries.row, weights=filing.looks[entries.access], minlength=len(clauses))
    fit = np.flatnonzero((count > 0) & (count <= thresholds.record_entries))
    looks[fit] = total[fit]
    by_value[entries.row[filing.level[entries.access] != WHOLE]] = True
    return FiledClauses(filing, share, access, other, entries, looks, by_value, float(shares.presence.sum()))


def plan_clauses(clauses: Clauses, shares: Shares, highest: NDArray[np.int32], fullness: float = 1.0) -> Plan:
    """highest: the highest cell that predicates of an attribute cover; fullness: the share of a block of masks that a
    batch fills."""
    filed = file_clauses(clauses, shares)
    mask_cost = _mask_cost(clauses)
    in_masks = choose_masks(filed, mask_cost / fullness)
    if len(clauses.attribute) + len(filed.entries.tests) + len(clauses) > MOST_WORDS:
        in_masks[:] = True
    records = _make_records(clauses, filed, ~in_masks, highest)
    return Plan(records, _make_masks(clauses, filed, in_masks), shares, mask_cost, fullness)


class Plan(NamedTuple):
    records: Records
    masks: Masks
    shares: Shares  # by which it was made
    mask_cost: float  # of a clause, if blocks are full
    fullness: float  # of blocks, by which it was made


def _mask_cost(clauses: Clauses) -> float:
    """What a clause costs an event of a full block as a mask: itself, and the masks of predicates that others do not
    have, too, span by span."""
    some = slice(None, None, 1 + len(clauses.attribute) // SAMPLED_PREDICATES)
    attribute, lo, hi = (a[some].astype(np.int64) for a in (clauses.attribute, clauses.lo, clauses.hi))
    _, distinct = number_pairs(attribute, (lo << 32) ^ hi)
    spans = np.minimum(np.where(hi < 0, -hi, 1), thresholds.mask_spans)
    of_clause = len(clauses.attribute) / max(len(clauses), 1) * len(distinct) / max(len(attribute), 1)
    return thresholds.mask_cost + thresholds.fill_cost * of_clause * (float(spans.mean()) if len(spans) else 0.0)


def look_cost(clauses: float) -> float:
    """What a look at a record costs: of many clauses, hardly one is in the caches."""
    return thresholds.look_cost * (1.0 + min(clauses / FAR_CLAUSES, 1.0))


def choose_masks(filed: FiledClauses, mask_cost: float, times: float = 1.0) -> NDArray[np.bool_]:
    """By row: whether it is cheaper as a mask. times: each row stands for so many."""
    cannot = np.isinf(filed.looks)
    cost = look_cost(times * len(cannot))
    each = cannot | (np.where(cannot, 0.0, filed.looks) * cost > mask_cost)
    options = (cannot, each, np.ones(len(each), np.bool_))
    return options[int(np.argmin([cost_of(filed, in_masks, mask_cost, times) for in_masks in options]))]


def cost_of(filed: FiledClauses, in_masks: NDArray[np.bool_], mask_cost: float, times: float) -> float:
    """What an event costs, in nanoseconds."""
    records = ~in_masks
    looks = filed.looks[records].sum() * look_cost(times * len(records))
    cost = times * (looks + in_masks.sum() * mask_cost)
    each_value = thresholds.values_cost * (records & filed.by_value).any() + thresholds.masks_cost * in_masks.any()
    return float(cost + filed.values * each_value)


def is_worth_planning(sample: Clauses, plan: Plan, measured: Shares, fullness: float, clauses: int) -> bool:
    """Whether events of the measured shares, in blocks of that fullness, would cost much less by a plan for them.
    sample: of so many clauses."""
    if not len(sample):
        return False
    times = clauses / len(sample)
    old, new = file_clauses(sample, plan.shares), file_clauses(sample, measured)
    in_masks = choose_masks(old, plan.mask_cost / plan.fullness, times)
    filed, looks = old.access >= 0, old.looks.copy()
    looks[: sample.conjunctions][filed] = new.filing.looks[old.access[filed]]
    looks[sample.conjunctions :] = np.where(np.isinf(new.looks), looks, new.looks)[sample.conjunctions :]
    cost = plan.mask_cost / fullness
    now = cost_of(old._replace(looks=looks, values=new.values), in_masks, cost, times)
    return now > thresholds.worth_planning * cost_of(new, choose_masks(new, cost, times), cost, times)


def _make_records(
    clauses: Clauses, filed: FiledClauses, chosen: NDArray[np.bool_], highest: NDArray[np.int32]
) -> Records:
    rows = np.flatnonzero(chosen[: clauses.conjunctions])
    entries = filed.entries.take(chosen[filed.entries.row])
    return Records.build(
        clauses, rows, filed.access[rows], filed.other[rows], entries, filed.filing, filed.share, highest
    )


def _make_masks(clauses: Clauses, filed: FiledClauses, chosen: NDArray[np.bool_]) -> Masks:
    rows = np.flatnonzero(chosen)
    plain, programs = rows[rows < clauses.conjunctions], rows[rows >= clauses.conjunctions]
    return Masks.build(clauses, plain, programs, filed.share)
