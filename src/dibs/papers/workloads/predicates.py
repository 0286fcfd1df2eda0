"""Predicates over integers as columns, and as SQL texts: many at once, by Arrow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

OPERATORS = ("=", "<", "<=", ">", ">=", "<>", "BETWEEN", "IN", "NOT IN")
EQ, LT, LE, GT, GE, NE, BETWEEN, IN, NOT_IN = range(9)


class Predicates(NamedTuple):
    """Predicate p is names[p] OPERATORS[operator[p]] with the constant low[p]; BETWEEN has high[p], too. The k-th of
    those with a set has the constants members[k, : counts[k]]."""

    names: pa.StringArray
    operator: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    members: NDArray[np.int64]
    counts: NDArray[np.int64]


def write_predicates(predicates: Predicates) -> pa.StringArray:
    operator = predicates.operator
    numbers = pa.array(predicates.low).cast(pa.string())
    ends = pc.binary_join_element_wise(" AND ", pa.array(predicates.high).cast(pa.string()), "")
    tails = pc.if_else(pa.array(operator == BETWEEN), ends, "")
    constants = pc.binary_join_element_wise(numbers, tails, "")
    sets = operator >= IN
    if sets.any():
        constants = pc.replace_with_mask(constants, pa.array(sets), write_sets(predicates.members, predicates.counts))
    words = pa.array([f" {word} " for word in OPERATORS]).take(pa.array(operator))
    return pc.binary_join_element_wise(predicates.names, words, constants, "")


def write_sets(members: NDArray[np.int64], counts: NDArray[np.int64]) -> pa.StringArray:
    """(1, 2, 3) for each row, of its first `counts` members."""
    flat = pa.array(members[np.arange(members.shape[1]) < counts[:, None]]).cast(pa.string())
    return pc.binary_join_element_wise("(", join_rows(flat, counts, ", "), ")", "")


def join_rows(texts: pa.StringArray, sizes: NDArray[np.int64], between: str) -> pa.StringArray:
    """The first sizes[0] texts as one, then the next sizes[1], and so on."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), between)
