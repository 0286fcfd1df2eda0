"""What a plan is made by: how many events have an attribute, or a value of it, and so how many would look at a clause
that is filed under a predicate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.jit.kernel import kernel
from dibs.thresholds import thresholds

LEVEL_BITS = 4  # a bucket of a level holds 8 of the level below
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
    return _distribute(clauses.attribute[point], clauses.lo[point], 0.5, presence, highest)


def measure_shares(
    attribute: NDArray[np.int32], cell: NDArray[np.int32], presence: NDArray[np.float64], highest: NDArray[np.int32]
) -> Shares:
    """By the values of some events: nine tenths of an attribute's events have them, and one tenth has any value."""
    covered = (cell > 0) & (cell <= highest[attribute])
    return _distribute(attribute[covered], cell[covered], 0.9, presence, highest)


def _distribute(
    attribute: NDArray[np.int32],
    cell: NDArray[np.int32],
    weight: float,
    presence: NDArray[np.float64],
    highest: NDArray[np.int32],
) -> Shares:
    """weight: of the examples among all values, if there are examples."""
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
        spread = (1.0 - weight if total > 0 else 1.0) / (base[a + 1] - base[a] - 1)
        share = 0.0
        for c in range(base[a], base[a + 1]):
            if c > base[a]:
                share += presence[a] * (spread + (weight * examples[c] / total if total > 0 else 0.0))
            cumulative[c] = share
    return cumulative


def estimate(clauses: Clauses, shares: Shares) -> NDArray[np.float32]:
    """The estimated share of events for which each predicate holds."""
    return _estimate(clauses.attribute, clauses.lo, clauses.hi, clauses.span_lo, clauses.span_hi, *shares)


@kernel
def _estimate(attribute, lo, hi, span_lo, span_hi, presence, base, cumulative):
    share = np.zeros(len(attribute), np.float32)
    for p in range(len(attribute)):
        a = attribute[p]
        spans = 1 if hi[p] >= 0 else -hi[p]
        for s in range(spans):
            x, y = (lo[p], hi[p]) if hi[p] >= 0 else (span_lo[lo[p] + s], span_hi[lo[p] + s])
            if x <= y:
                share[p] += cumulative[base[a] + y] - cumulative[base[a] + max(x - 1, 0)]
                if x == 0:
                    share[p] += np.float32(1.0 - presence[a])
    return share


class PredicateFiling(NamedTuple):
    """Under which cells a clause would stand that is filed under a predicate, and what that costs."""

    level: NDArray[np.int8]  # under buckets of 2 ** (LEVEL_BITS * level) cells; WHOLE: under the attribute
    looks: NDArray[np.float32]  # the share of events that look at it; infinite: absence would be missed


def file_predicates(clauses: Clauses, shares: Shares, by_value: NDArray[np.bool_]) -> PredicateFiling:
    """by_value: the attributes whose clauses are filed by buckets of cells: the smallest of which at most
    `copies_by_value` are covered by the predicate."""
    c = clauses
    return PredicateFiling(
        *_file_predicates(c.attribute, c.lo, c.hi, c.span_lo, c.span_hi, *shares, by_value, thresholds.copies_by_value)
    )


@kernel
def _file_predicates(attribute, lo, hi, span_lo, span_hi, presence, base, cumulative, by_value, most_copies):
    level, looks = np.full(len(attribute), WHOLE, np.int8), np.empty(len(attribute), np.float32)
    for p in range(len(attribute)):
        a = attribute[p]
        first = lo[p] if hi[p] >= 0 else span_lo[lo[p]]
        if first == 0:
            looks[p] = np.inf
        elif not by_value[a]:
            looks[p] = presence[a]
        else:
            spans = 1 if hi[p] >= 0 else -hi[p]
            n, looks[p] = np.int8(0), 0.0
            while True:
                shift, copies, share, behind = n * LEVEL_BITS, 0, np.float32(0.0), 0
                for s in range(spans):
                    x, y = (lo[p], hi[p]) if hi[p] >= 0 else (span_lo[lo[p] + s], span_hi[lo[p] + s])
                    if x <= y:
                        x, y = max(x >> shift, behind), y >> shift
                        behind = y + 1
                        if x <= y:
                            copies += y - x + 1
                            top = min(((y + 1) << shift) - 1, base[a + 1] - base[a] - 1)
                            share += cumulative[base[a] + top] - cumulative[base[a] + max((x << shift) - 1, 0)]
                    if copies > most_copies:
                        break
                if copies <= most_copies:
                    level[p], looks[p] = n, share
                    break
                n += np.int8(1)
    return level, looks
