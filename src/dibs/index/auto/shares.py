"""What a plan is made by: how many events have an attribute, or a value of it, and so how many would look at a clause
that is filed under a predicate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.index.groups import ClauseArrays
from dibs.index.spans import count_spans, hull_of, nth_span
from dibs.jit.kernel import kernel, phase
from dibs.tuning import tuned

# guards of 64 cells: four times the copies for 10 % fewer looks
COPIES_BY_VALUE = tuned(
    "copies_by_value", 16, 1, "buckets", "of cells, or spans of a list, that a clause is filed under; else larger ones"
)

LEVEL_BITS = 4  # a bucket of a level holds 16 of the level below
LARGER = 1 << LEVEL_BITS
WHOLE = -1


class Shares(NamedTuple):
    """The estimated share of events with an attribute, and with a value of it: cumulative[base[a] + c] is the share of
    those with a value of attribute a in the cells 1 to c, as far as predicates cover cells."""

    presence: NDArray[np.float64]
    base: NDArray[np.int64]
    cumulative: NDArray[np.float32]


def guess_shares(clauses: Clauses, presence: NDArray[np.float64], highest: NDArray[np.int32]) -> Shares:
    """Before events have been seen: people ask for what exists, so half of an attribute's events have the values of
    its equality predicates, as often as these name them, and half have any value that a predicate covers."""
    point = (clauses.lo == clauses.hi) & (clauses.lo > 0)
    weight = np.full(len(highest), 0.5)
    return _distribute(clauses.attribute[point], clauses.lo[point], weight, presence, highest)


def measure_shares(
    attribute: NDArray[np.int32], cell: NDArray[np.int32], presence: NDArray[np.float64], highest: NDArray[np.int32]
) -> Shares:
    """By the values of some events. They may be off by the root of their number, so that share of an attribute's events
    has any value."""
    covered = (cell > 0) & (cell <= highest[attribute])
    weight = 1.0 - 1.0 / np.sqrt(1.0 + np.bincount(attribute, minlength=len(highest)))
    return _distribute(attribute[covered], cell[covered], weight, presence, highest)


def _distribute(
    attribute: NDArray[np.int32],
    cell: NDArray[np.int32],
    weight: NDArray[np.float64],
    presence: NDArray[np.float64],
    highest: NDArray[np.int32],
) -> Shares:
    """weight: of an attribute's examples among all its values, if there are examples."""
    base = np.zeros(len(highest) + 1, np.int64)
    np.cumsum(highest + 1, out=base[1:])
    examples = np.bincount(base[attribute] + cell, minlength=base[-1])
    return Shares(presence, base, _cumulate(examples, weight, base, presence))


@kernel
def _cumulate(examples, weight, base, presence):
    cumulative = np.empty(len(examples), np.float32)
    for a in range(len(base) - 1):
        total = 0
        for c in range(base[a], base[a + 1]):
            total += examples[c]
        spread = (1.0 - weight[a] if total > 0 else 1.0) / (base[a + 1] - base[a] - 1)
        share = 0.0
        for c in range(base[a], base[a + 1]):
            if c > base[a]:
                share += presence[a] * (spread + (weight[a] * examples[c] / total if total > 0 else 0.0))
            cumulative[c] = share
    return cumulative


def estimate(clauses: Clauses, shares: Shares) -> NDArray[np.float32]:
    """The estimated share of events for which each predicate holds."""
    return _estimate(ClauseArrays.of(clauses), shares)


@kernel
def _estimate(clauses, shares):
    result = np.zeros(len(clauses.attribute), np.float32)
    for p in range(len(clauses.attribute)):
        a = clauses.attribute[p]
        for s in range(count_spans(p, clauses)):
            x, y = nth_span(p, s, clauses)
            if x <= y:
                result[p] += _share_of_cells(a, x, y, shares)
                if x == 0:
                    result[p] += np.float32(1.0 - shares.presence[a])
    return result


class PredicateFiling(NamedTuple):
    """Under which cells a clause would stand that is filed under a predicate, and what that costs."""

    level: NDArray[np.int8]  # under buckets of 2 ** (LEVEL_BITS * level) cells, and of the next level where one of
    # these is covered whole; WHOLE: under the attribute
    looks: NDArray[np.float32]  # the share of events that look at it; infinite: absence would be missed


def file_predicates(clauses: Clauses, shares: Shares, by_value: NDArray[np.bool_]) -> PredicateFiling:
    """by_value: the attributes whose clauses are filed by buckets of cells: the smallest of which at most
    `copies_by_value` are covered by the predicate, or as many as it has spans: a list may take room in proportion to
    its text."""
    return PredicateFiling(*_file_predicates(ClauseArrays.of(clauses), shares, by_value, COPIES_BY_VALUE.value))


@kernel
def _file_predicates(clauses, shares, by_value, fewest_copies):
    predicates = len(clauses.attribute)
    level, looks = np.full(predicates, WHOLE, np.int8), np.empty(predicates, np.float32)
    for p in range(predicates):
        a = clauses.attribute[p]
        if hull_of(p, clauses)[0] == 0:
            looks[p] = np.inf
        elif not by_value[a]:
            looks[p] = shares.presence[a]
        else:
            n, most_copies = 0, max(fewest_copies, count_spans(p, clauses))
            copies, share = _cover(p, 0, most_copies, clauses, shares)
            while copies > most_copies:
                n += 1
                copies, share = _cover(p, n * LEVEL_BITS, most_copies, clauses, shares)
            level[p], looks[p] = n, share
    return level, looks


def look_shares(clauses: Clauses, filing: PredicateFiling, shares: Shares) -> NDArray[np.float32]:
    """By predicate: the share of events that would look at a clause that stands where the filing says, if events were
    as these shares say."""
    return _look_shares(ClauseArrays.of(clauses), filing.level, filing.looks, shares)


@kernel
def _look_shares(clauses, level, known, shares):
    looks = np.empty(len(level), np.float32)
    for p in range(len(level)):
        if np.isinf(known[p]):
            looks[p] = np.inf
        elif level[p] == WHOLE:
            looks[p] = shares.presence[clauses.attribute[p]]
        else:
            _, looks[p] = _cover(p, np.int64(level[p]) * LEVEL_BITS, np.int64(0), clauses, shares)
    return looks


@phase(inline=False)
def _cover(p, shift, most_copies, clauses, shares):
    """How many buckets of 2 ** shift cells cover the predicate, or of the next level where one of these is covered
    whole, or some more than the most; and the share of events that have a value in them."""
    a, copies, share, behind = clauses.attribute[p], np.int64(0), np.float32(0.0), np.int64(0)
    for s in range(count_spans(p, clauses)):
        first, behind = buckets_of(p, s, shift, behind, clauses)
        b = first
        while b < behind and copies <= most_copies:
            copies += 1
            b = next_bucket(b, behind)
        if first < behind:
            share += _share_of_cells(a, first << shift, (behind << shift) - 1, shares)
    return copies, share


@phase
def buckets_of(p, s, shift, behind, clauses):
    """The buckets of 2 ** shift cells that span s of a predicate touches, beyond those of the spans before it: from,
    and where they end."""
    x, y = nth_span(p, s, clauses)
    if x > y:
        return behind, behind
    return max(np.int64(x >> shift), behind), np.int64(y >> shift) + 1


@phase
def is_larger(b, behind):
    """Whether, instead of bucket b and those after it, one of the next level is taken: it must end before `behind`."""
    return b & (LARGER - 1) == 0 and b + LARGER <= behind


@phase
def next_bucket(b, behind):
    return b + (LARGER if is_larger(b, behind) else 1)


@phase
def _share_of_cells(a, first, last, shares):
    base, top = shares.base[a], shares.base[a + 1] - shares.base[a] - 1
    return shares.cumulative[base + min(last, top)] - shares.cumulative[base + max(first - 1, 0)]
