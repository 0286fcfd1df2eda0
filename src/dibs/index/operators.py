"""Which relational operator a coded predicate is: for the structures that keep a list for each operator.

Below the coding stage a predicate is a list of spans. `price <= 5` is a span from the first cell of its kind to the
cell of 5, `price >= 5` one from there to the last cell of its kind. So an attribute's floor is the least cell at which
wide spans begin, its ceiling the highest at which they end, and

    EQ       lo == hi                                                 = c
    LE       begins at the floor and ends at the ceiling or below     < c, <= c
    GE       ends at the ceiling and begins at the floor or above     > c, >= c
    NE       two spans: all from floor to ceiling but one cell        <> c
    BETWEEN  one span otherwise, a prefix included
    IN       several spans otherwise: IN, NOT IN, NOT BETWEEN

The invariant: LE, GE and NE lie within floor and ceiling. So a value outside these satisfies none of them, and a value
inside satisfies all LE whose end is not below it, all GE whose beginning is not above it, and all NE but those of its
own cell: one comparison for each list, then one search. BETWEEN and IN promise nothing and are right for any spans.

It holds whatever limits are given, since `operators` asks for it predicate by predicate. That is needed: an attribute
has one floor and one ceiling, but its constants may be of several kinds (numbers and dates), rows that come later are
filed by the limits that stand, and `limits` leaves IS NOT NULL out of account: all cells of all kinds say nothing about
where a kind begins or ends, but they reach beyond it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.index.groups import ClauseArrays
from dibs.index.spans import hull_of
from dibs.jit.kernel import kernel

EQ, LE, GE, NE, BETWEEN, IN = range(6)
NAMES = ("=", "<=", ">=", "<>", "BETWEEN", "IN")


class Limits(NamedTuple):
    """Floor and ceiling of each attribute."""

    floor: NDArray[np.int32]
    ceiling: NDArray[np.int32]


def limits(clauses: Clauses) -> Limits:
    """Where no predicate is wide they are (2**31 - 1, -1)."""
    return Limits(*_limits(ClauseArrays.of(clauses), clauses.attributes))


def operators(clauses: Clauses, floor: NDArray[np.int32], ceiling: NDArray[np.int32]) -> NDArray[np.uint8]:
    """The operator of each predicate, by floors and ceilings of its attribute, which may be any."""
    return _operators(ClauseArrays.of(clauses), floor, ceiling)


@kernel
def _limits(clauses, attributes):
    attribute, lo, hi = clauses.attribute, clauses.lo, clauses.hi
    floor, ceiling = np.full(attributes, 2**31 - 1, np.int32), np.full(attributes, -1, np.int32)
    highest = np.zeros(attributes, np.int32)
    for p in range(len(attribute)):
        _, high = hull_of(p, clauses)
        highest[attribute[p]] = max(highest[attribute[p]], high)
    for p in range(len(attribute)):
        low, high = hull_of(p, clauses)
        everything = hi[p] >= 0 and low == 1 and high == highest[attribute[p]]
        if low < high and not everything:
            floor[attribute[p]] = min(floor[attribute[p]], low)
            ceiling[attribute[p]] = max(ceiling[attribute[p]], high)
    for p in range(len(attribute)):
        a = attribute[p]
        if hi[p] >= 0 and lo[p] < hi[p] and ceiling[a] < 0:  # nothing else is known of the attribute
            floor[a], ceiling[a] = lo[p], hi[p]
    return floor, ceiling


@kernel
def _operators(clauses, floor, ceiling):
    attribute, lo, hi, span_lo, span_hi = clauses[1:]
    code = np.empty(len(attribute), np.uint8)
    for p in range(len(attribute)):
        a = attribute[p]
        if hi[p] >= 0:
            low, high = lo[p], hi[p]
            within = floor[a] <= low and high <= ceiling[a]
            if low == high:
                code[p] = EQ
            elif within and low == floor[a]:
                code[p] = LE
            elif within and high == ceiling[a]:
                code[p] = GE
            else:
                code[p] = BETWEEN
            continue
        s = lo[p]
        hole = hi[p] == -2 and span_hi[s] + 2 == span_lo[s + 1]
        code[p] = NE if hole and span_lo[s] == floor[a] and span_hi[s + 1] == ceiling[a] else IN
    return code
