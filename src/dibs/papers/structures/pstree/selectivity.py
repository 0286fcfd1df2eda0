"""Which predicate gives access to a row before events were seen (section 3.3 of the PS-Tree paper): that of the most
selective operator, in the order = IN BETWEEN, inequalities, NOT IN, <>."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.index.operators import BETWEEN, EQ, GE, IN, LE, NE, Limits, limits, operators
from dibs.index.statistics import probabilities

PLACE_OF_OPERATOR = np.empty(6)
PLACE_OF_OPERATOR[[EQ, IN, BETWEEN, LE, GE, NE]] = 0, 1, 2, 3, 3, 5
NOT_IN = 4
ALMOST_ALL = 0.999  # of a domain: what a predicate covers at most, so that operators count before it


def widen_limits(known: NDArray[np.int32], clauses: Clauses, attributes: int) -> NDArray[np.int32]:
    """The floors and ceilings of so many attributes (index.operators), those of new clauses included."""
    new = Limits(*limits(clauses))
    none = np.tile(np.array([2**31 - 1, -1], np.int32), (attributes - len(known), 1))
    floor, ceiling = np.concatenate([known, none]).T.copy()
    np.minimum(floor[: len(new.floor)], new.floor, out=floor[: len(new.floor)])
    np.maximum(ceiling[: len(new.ceiling)], new.ceiling, out=ceiling[: len(new.ceiling)])
    return np.stack([floor, ceiling], axis=1)


def rank_by_operators(clauses: Clauses, known: NDArray[np.int32], highest: NDArray[np.int32]) -> NDArray[np.float64]:
    """Below 1, by operator, then by the share of the domain that a predicate covers."""
    floor, ceiling = known.T.copy()
    operator = operators(clauses, floor, ceiling)
    rank = PLACE_OF_OPERATOR[operator]
    several = np.flatnonzero(operator == IN)
    first, attribute = clauses.lo[several], clauses.attribute[several]
    last = first - clauses.hi[several] - 1
    whole = (clauses.span_lo[first] <= floor[attribute]) & (clauses.span_hi[last] >= ceiling[attribute])
    rank[several[whole]] = NOT_IN
    covered = probabilities(clauses, np.ones(len(known)), highest)
    return (rank + np.minimum(covered, ALMOST_ALL)) / len(PLACE_OF_OPERATOR)
