"""The plan of `auto`: which clauses become records, which masks, and which vectors.

A record costs by the events that look at it, a mask by the clause, whoever looks, a vector by the events that have all
attributes of its group. Besides, each costs something for every event, whatever it holds: so it may be cheaper to have
only one or two of them.

Unit costs are right for some workload, and wrong by some factor for yours. So plans are tried (index.auto.trials), and
what was measured beside what was estimated, part by part, corrects later estimates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.index.auto.access_sets import Entries, access_sets
from dibs.index.auto.masks import MASK_SPANS, TABULATED_CELLS, Masks
from dibs.index.auto.records import Records
from dibs.index.auto.shares import WHOLE, PredicateFiling, Shares, estimate, file_predicates, look_shares
from dibs.index.auto.vector_costs import cost_groups
from dibs.index.auto.vector_groups import Groups, find_groups
from dibs.index.auto.vectors import Vectors
from dibs.index.statistics import WORTH_PLANNING, access_predicates, highest_cells
from dibs.jit.hashing import number_pairs
from dibs.tuning import tuned

# 60,000 equalities over 3,000 rare attributes: 0.95 to 0.36 us where values decide
OFTEN = tuned("often", 0.01, 0.5, "share of events", "with the attribute from which on it is filed by its values")
LOOK_COST = tuned("look_cost", 10.0, 10.0, "ns", "what an event pays for a look at a record; of very many, twice that")
READ_COST = tuned("read_cost", 4.0, 4.0, "ns", "what it pays for a record read with all others of its attribute")
VALUES_COST = tuned("values_cost", 25.0, 0.0, "ns", "what it pays for each of its values if records are by values")
MASK_COST = tuned("mask_cost", 0.03, 0.8, "ns", "what an event of a batch pays for a clause that is a mask")
FILL_COST = tuned("fill_cost", 0.02, 0.0, "ns", "what it pays for the mask of a distinct predicate")
MASKS_COST = tuned("masks_cost", 30.0, 0.0, "ns", "what it pays for each of its values if there are masks at all")
VECTORS_COST = tuned("vectors_cost", 5.0, 0.0, "ns", "what it pays for each of its values if there are vectors at all")
PLAN_BYTES = tuned("plan_bytes", 128.0, 1e9, "bytes", "for each clause, predicate and span, unless no plan takes less")
RECORD_ENTRIES = tuned("record_entries", 256, 1, "entries", "of a program that is worth as many records")

EVERYWHERE = 1e9  # more than any share of events, and not infinite
SAMPLED_PREDICATES = 500_000  # by which it is estimated how many are distinct
STEPS_OF_A_SEARCH = 10  # among the values of a full block: see mask_filling.cells_to_tabulate
SEARCHED = 6.0  # times as long as by a table
FAR_MASKS = 1 << 17  # masks of a full block that do not fit into the near caches
FAR_CLAUSES = 500_000  # whose records do not fit into the caches
FIXED_BYTES = 1 << 14  # of a plan, however little text there is
MOST_WORDS = 1 << 32  # of records: places of guards are 32 bits


class FiledClauses(NamedTuple):
    """Where every row would stand among records or vectors, and what that costs."""

    filing: PredicateFiling
    share: NDArray[np.float32]  # how likely each predicate holds
    access: NDArray[np.int64]  # by conjunction: the predicate under which it is filed; -1: none
    other: NDArray[np.int32]  # by conjunction: an attribute of its other predicates
    entries: Entries  # of programs
    looks: NDArray[np.float64]  # by row: the share of events that look at it; infinite: it cannot be filed
    by_value: NDArray[np.bool_]  # by row: whether it is filed under values
    values: float  # of an event, that somebody asks for
    groups: Groups
    group_cost: NDArray[np.float64]  # of each group, as vectors


def file_clauses(
    clauses: Clauses, shares: Shares, highest: NDArray[np.int32], groups: Groups, times: float = 1.0
) -> FiledClauses:
    """highest: the highest cell that predicates of an attribute cover; times: each row stands for so many."""
    share = estimate(clauses, shares)
    filing = file_predicates(clauses, shares, _by_value(clauses, shares, share, times))
    rows, chosen, another = access_predicates(clauses, filing.looks, most=EVERYWHERE)
    access, other = np.full(clauses.conjunctions, -1), np.zeros(clauses.conjunctions, np.int32)
    access[rows], other[rows] = chosen, another
    by_value = np.zeros(len(clauses), np.bool_)
    by_value[rows] = filing.level[chosen] != WHOLE
    _, entries = access_sets(clauses, np.arange(clauses.conjunctions, len(clauses)), share)
    by_value[entries.row[filing.level[entries.access] != WHOLE]] = True
    looks = _sum_looks(clauses, access, entries, filing.looks)
    cost = cost_groups(clauses, groups, shares.presence, share, highest, times)
    values = float(shares.presence.sum())
    return FiledClauses(filing, share, access, other, entries, looks, by_value, values, groups, cost)


def _by_value(clauses: Clauses, shares: Shares, share: NDArray[np.float32], times: float) -> NDArray[np.bool_]:
    """By attribute: whether what is filed under it is filed by values: if many events have it, or if many clauses would
    stand there of which a value concerns few."""
    predicates = np.bincount(clauses.attribute, minlength=clauses.attributes)
    filed = times * predicates * len(clauses) / max(len(clauses.attribute), 1)  # one predicate of each clause
    holding = np.bincount(clauses.attribute, weights=share, minlength=clauses.attributes)
    concerned = holding / np.maximum(shares.presence * predicates, 1e-9)  # of the clauses, by a value
    spared = filed * (1.0 - np.minimum(concerned, 1.0)) * READ_COST.value
    return (shares.presence >= OFTEN.value) | (spared > VALUES_COST.value + filed * concerned * LOOK_COST.value)


def _sum_looks(
    clauses: Clauses, access: NDArray[np.int64], entries: Entries, each: NDArray[np.float32]
) -> NDArray[np.float64]:
    """By row: the share of events that look at it, by that of its access predicates (each)."""
    looks = np.full(len(clauses), np.inf)
    filed = np.flatnonzero(access >= 0)
    looks[filed] = each[access[filed]]
    if not len(entries.row):
        return looks
    count = np.bincount(entries.row, minlength=len(clauses))
    total = np.bincount(entries.row, weights=each[entries.access], minlength=len(clauses))
    fit = np.flatnonzero((count > 0) & (count <= RECORD_ENTRIES.value))
    looks[fit] = total[fit]
    return looks


class Placement(NamedTuple):
    """What of the clauses goes where; all else is records."""

    masks: NDArray[np.bool_]  # by row
    vectors: NDArray[np.bool_]  # by group

    def rows_of_vectors(self, groups: Groups) -> NDArray[np.bool_]:
        return np.append(self.vectors, False)[groups.of_row]  # the last one is that of rows without a group


class PartCosts(NamedTuple):
    """What an event pays each part, in nanoseconds; or how many times as much as was estimated."""

    records: float
    masks: float
    vectors: float

    def corrected(self, by: PartCosts) -> float:
        return self.records * by.records + self.masks * by.masks + self.vectors * by.vectors


AS_ESTIMATED = PartCosts(1.0, 1.0, 1.0)
# Ways to place clauses: where each is cheapest by the estimates, or as many as possible here or there.
CHEAPEST, RECORDS, MASKS, VECTORS, BOTH, PROGRAMS = (
    "cheapest", "records", "masks", "vectors and records", "vectors and masks", "programs in masks"
)  # fmt: skip
WAYS = (CHEAPEST, RECORDS, MASKS, VECTORS, BOTH, PROGRAMS)


class Plan(NamedTuple):
    records: Records
    masks: Masks
    vectors: Vectors
    shares: Shares  # by which it was made
    mask_cost: float  # of a clause, if blocks are full
    fullness: float  # of blocks, by which it was made
    way: str
    estimated: PartCosts
    budget: float  # bytes, in proportion to the text
    factors: PartCosts = AS_ESTIMATED  # by which estimates are corrected
    measured: PartCosts | None = None  # when it was tried

    @property
    def nbytes(self) -> PartCosts:
        return PartCosts(*(sum(a.nbytes for a in part.arrays().values()) for part in self[:3]))

    @property
    def excess(self) -> float:
        """How many times the bytes that it may take; 1 if it takes no more."""
        return max(sum(self.nbytes) / self.budget, 1.0)


def plan_clauses(
    clauses: Clauses, shares: Shares, highest: NDArray[np.int32], fullness: float = 1.0,
    factors: PartCosts = AS_ESTIMATED,
) -> Plan:  # fmt: skip
    """highest: the highest cell that predicates of an attribute cover; fullness: the share of a block of masks that a
    batch fills; factors: by which estimates are corrected."""
    filed = file_clauses(clauses, shares, highest, find_groups(clauses))
    mask_cost = mask_cost_of(clauses, highest)
    placed = place(CHEAPEST, clauses, filed, mask_cost / fullness, factors)
    return make_plan(clauses, filed, placed, shares, highest, mask_cost, fullness, CHEAPEST, factors)


def make_plan(
    clauses: Clauses, filed: FiledClauses, placed: Placement, shares: Shares, highest: NDArray[np.int32],
    mask_cost: float, fullness: float, way: str, factors: PartCosts,
) -> Plan:  # fmt: skip
    """mask_cost: of a full block; see plan_clauses."""
    if len(clauses.attribute) + len(filed.entries.tests) + len(clauses) > MOST_WORDS:
        placed.masks[~placed.rows_of_vectors(filed.groups)] = True
    vectors = Vectors.build(clauses, filed.groups, placed.vectors, shares.presence, filed.share, highest)
    in_vectors = placed.rows_of_vectors(filed.groups)
    records = _make_records(clauses, filed, ~placed.masks & ~in_vectors, highest)
    masks = _make_masks(clauses, filed, placed.masks)
    estimated = costs_of(filed, placed, mask_cost / fullness, 1.0)
    plan = Plan(records, masks, vectors, shares, mask_cost, fullness, way, estimated, budget_of(clauses), factors)
    if way != CHEAPEST or plan.excess == 1.0:
        return plan
    placed = place(MASKS, clauses, filed, mask_cost / fullness, factors)  # a mask has its clauses as they are
    other = make_plan(clauses, filed, placed, shares, highest, mask_cost, fullness, MASKS, factors)
    return min(plan, other, key=lambda plan: plan.excess)


def budget_of(clauses: Clauses) -> float:
    """The bytes that a plan may take: a clause, a predicate and a span of a list each stand for some text."""
    texts = len(clauses) + len(clauses.attribute) + int(np.where(clauses.hi < 0, -clauses.hi, 0).sum())
    return PLAN_BYTES.value * texts + FIXED_BYTES


def place(
    way: str, clauses: Clauses, filed: FiledClauses, mask_cost: float, factors: PartCosts, times: float = 1.0
) -> Placement:
    """Where clauses go. mask_cost: in blocks as full as they are; times: each row stands for so many."""
    if way == CHEAPEST:
        return choose_parts(filed, mask_cost, times, factors)
    cannot, groups = np.isinf(filed.looks), filed.groups
    if way == PROGRAMS:
        cannot = cannot | (np.arange(len(cannot)) >= clauses.conjunctions)
    masks = np.ones(len(cannot), np.bool_) if way in (MASKS, BOTH) else cannot.copy()
    placed = Placement(masks, np.full(len(groups), way in (VECTORS, BOTH)))
    placed.masks[placed.rows_of_vectors(groups)] = False
    return placed


def mask_cost_of(clauses: Clauses, highest: NDArray[np.int32]) -> float:
    """What a clause costs an event of a full block as a mask: itself, and the masks of predicates that others do not
    have, too, span by span: more of them where the values of the block must be searched, or where so many masks do not
    fit into the caches."""
    if not len(clauses.attribute):
        return MASK_COST.value
    step = 1 + len(clauses.attribute) // SAMPLED_PREDICATES
    attribute, lo, hi = (a[::step].astype(np.int64) for a in (clauses.attribute, clauses.lo, clauses.hi))
    _, distinct = number_pairs(attribute, (lo << 32) ^ hi)
    spans = np.minimum(np.where(hi < 0, -hi, 1), MASK_SPANS.value)
    predicates = step * np.bincount(attribute[distinct], minlength=clauses.attributes)
    is_searched = highest >= np.maximum(TABULATED_CELLS.value, predicates * STEPS_OF_A_SEARCH)
    times = 1.0 + (SEARCHED - 1.0) * float(is_searched[attribute[distinct]].mean())
    if len(distinct) * step > FAR_MASKS:
        times *= 2.0
    of_clause = len(clauses.attribute) / len(clauses) * len(distinct) / len(attribute)
    return MASK_COST.value + FILL_COST.value * times * of_clause * float(spans.mean())


def look_cost(clauses: float) -> float:
    """What a look at a record costs: of many clauses, hardly one is in the caches."""
    return LOOK_COST.value * (1.0 + min(clauses / FAR_CLAUSES, 1.0))


class GroupSums(NamedTuple):
    """What masks and records cost, where these rows are in masks: by group, after those of rows without one."""

    looks: NDArray[np.float64]  # at records
    masks: NDArray[np.float64]  # how many
    by_value: NDArray[np.float64]  # records that are filed under values: how many

    @classmethod
    def of(cls, filed: FiledClauses, in_masks: NDArray[np.bool_]) -> GroupSums:
        group = filed.groups.of_row + np.int64(1)  # 0: without one

        def total(each: NDArray[Any]) -> NDArray[np.float64]:
            if not each.any():
                return np.zeros(len(filed.groups) + 1)
            return np.asarray(np.bincount(group, weights=each, minlength=len(filed.groups) + 1), np.float64)

        return cls(*map(total, (np.where(in_masks, 0.0, filed.looks), in_masks, filed.by_value & ~in_masks)))

    def left(self, vectors: NDArray[np.bool_]) -> tuple[float, float, bool]:
        """Of rows that are not in vectors: looks, masks, and whether records are filed under values."""
        rest = np.append(True, ~vectors)
        return float(self.looks[rest].sum()), float(self.masks[rest].sum()), bool(self.by_value[rest].any())


def choose_parts(
    filed: FiledClauses, mask_cost: float, times: float = 1.0, factors: PartCosts = AS_ESTIMATED
) -> Placement:
    """Where it is cheapest, as each part also costs something by itself. times: each row stands for so many."""
    cannot, price = np.isinf(filed.looks), look_cost(times * len(filed.looks)) * factors.records
    groups, of_mask = filed.groups, mask_cost * factors.masks
    best: tuple[float, NDArray[np.bool_], NDArray[np.bool_]] | None = None
    for in_masks in (cannot, cannot | (filed.looks * price > of_mask), np.ones(len(cannot), np.bool_)):
        sums = GroupSums.of(filed, in_masks)
        options = [np.zeros(len(groups), np.bool_)]
        if len(groups):
            saved = times * (sums.looks * price + sums.masks * of_mask)[1:]
            options += [filed.group_cost * factors.vectors < saved, np.ones(len(groups), np.bool_)]
        for vectors in options:
            cost = _costs(filed, sums, vectors, mask_cost, times).corrected(factors)
            if best is None or cost < best[0]:
                best = cost, in_masks, vectors
    assert best is not None
    placed = Placement(best[1].copy(), best[2])
    placed.masks[placed.rows_of_vectors(groups)] = False
    return placed


def costs_of(filed: FiledClauses, placed: Placement, mask_cost: float, times: float) -> PartCosts:
    """What an event costs, by the estimates."""
    return _costs(filed, GroupSums.of(filed, placed.masks), placed.vectors, mask_cost, times)


def _costs(
    filed: FiledClauses, sums: GroupSums, vectors: NDArray[np.bool_], mask_cost: float, times: float
) -> PartCosts:
    looks, masks, by_value = sums.left(vectors)
    return PartCosts(
        float(times * looks * look_cost(times * len(filed.looks)) + filed.values * VALUES_COST.value * by_value),
        float(times * masks * mask_cost + filed.values * MASKS_COST.value * (masks > 0)),
        float(filed.group_cost[vectors].sum() + filed.values * VECTORS_COST.value * vectors.any()),
    )


def is_worth_planning(sample: Clauses, plan: Plan, measured: Shares, fullness: float, clauses: int) -> bool:
    """Whether events of the measured shares, in blocks of that fullness, would cost much less by a plan for them.
    sample: of so many clauses."""
    if not len(sample):
        return False
    times, by = clauses / len(sample), plan.factors
    highest, groups = highest_cells(sample), find_groups(sample, times)
    old, new = (file_clauses(sample, shares, highest, groups, times) for shares in (plan.shares, measured))
    placed = place(plan.way, sample, old, plan.mask_cost / plan.fullness, by, times)
    # What stands where the old plan put it, looked at by the events of today.
    looks = _sum_looks(sample, old.access, old.entries, look_shares(sample, old.filing, measured))
    cost = plan.mask_cost / fullness
    today = old._replace(looks=looks, values=new.values, group_cost=new.group_cost)
    now = costs_of(today, placed, cost, times).corrected(by)
    best = costs_of(new, choose_parts(new, cost, times, by), cost, times).corrected(by)
    return now > WORTH_PLANNING.value * best


def _make_records(
    clauses: Clauses, filed: FiledClauses, chosen: NDArray[np.bool_], highest: NDArray[np.int32]
) -> Records:
    rows = np.flatnonzero(chosen[: clauses.conjunctions])
    entries = filed.entries.take(chosen[filed.entries.row])
    return Records.build(
        clauses, rows, filed.access[rows], filed.other[rows], entries, filed.filing, filed.share, highest
    )


def make_records(
    clauses: Clauses, rows: NDArray[np.int64], shares: Shares, highest: NDArray[np.int32]
) -> tuple[Records, NDArray[np.int64]]:
    """As many of these rows as can be records, and the others."""
    filed = file_clauses(clauses, shares, highest, Groups.none(len(clauses)))
    chosen = np.zeros(len(clauses), np.bool_)
    chosen[rows] = ~np.isinf(filed.looks[rows])
    return _make_records(clauses, filed, chosen, highest), rows[~chosen[rows]]


def _make_masks(clauses: Clauses, filed: FiledClauses, chosen: NDArray[np.bool_]) -> Masks:
    rows = np.flatnonzero(chosen)
    plain, programs = rows[rows < clauses.conjunctions], rows[rows >= clauses.conjunctions]
    return Masks.build(clauses, plain, programs, filed.share)
