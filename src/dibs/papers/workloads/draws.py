"""What generators share: random draws, and predicates over integers as columns and, many at once, as SQL texts.

The k-th thing of a Zipf distribution is drawn in proportion to 1 / k ** skew.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

TRIES = 16  # draws before a row that hits what it has already is drawn by the weights of what is left
ROWS_AT_ONCE = 256  # of those rows: bounds the memory for their weights


@lru_cache(maxsize=32)
def sum_weights(things: int, skew: float) -> NDArray[np.float64]:
    """The distribution function: its last entry is 1."""
    weights = np.arange(1, things + 1, dtype=np.float64) ** -skew
    summed = np.cumsum(weights)
    return summed / summed[-1]


def draw(random: np.random.Generator, things: int, skew: float, size: int | tuple[int, ...]) -> NDArray[np.int64]:
    """Numbers from 0 to things - 1, 0 being the most popular."""
    if skew == 0:
        return random.integers(0, things, size)
    return draw_by(random, sum_weights(things, skew), size)


def draw_by(random: np.random.Generator, summed: NDArray[np.float64], size: int | tuple[int, ...]) -> NDArray[np.int64]:
    return np.minimum(np.searchsorted(summed, random.random(size), side="right"), len(summed) - 1)


def draw_distinct(random: np.random.Generator, summed: NDArray[np.float64], rows: int, width: int) -> NDArray[np.int64]:
    """`width` different numbers in each row, drawn one after the other by the weights whose sums these are."""
    chosen = np.full((rows, width), -1, np.int64)
    going = np.arange(rows)  # rows that are drawn one number at a time
    for place in range(width):
        wanted = going
        for _ in range(TRIES):
            drawn = draw_by(random, summed, len(wanted))
            fresh = ~(chosen[wanted, :place] == drawn[:, None]).any(1)
            chosen[wanted[fresh], place] = drawn[fresh]
            wanted = wanted[~fresh]
            if not len(wanted):
                break
        for start in range(0, len(wanted), ROWS_AT_ONCE):
            some = wanted[start : start + ROWS_AT_ONCE]
            chosen[some, place:] = _draw_among_others(random, summed, chosen[some, :place], width - place)
        going = np.setdiff1d(going, wanted)
    return chosen


def _draw_among_others(
    random: np.random.Generator, summed: NDArray[np.float64], taken: NDArray[np.int64], width: int
) -> NDArray[np.int64]:
    """The rest of each row, none of which is among those taken: the largest of log(weight) + Gumbel noise, in their
    order, are a weighted draw without replacement."""
    keys = np.log(np.diff(summed, prepend=0) + 1e-300) + random.gumbel(size=(len(taken), len(summed)))
    keys[np.arange(len(taken))[:, None], taken] = -np.inf
    largest = np.argpartition(keys, -width, axis=1)[:, -width:] if width < len(summed) else np.argsort(keys, axis=1)
    order = np.argsort(-np.take_along_axis(keys, largest, 1), axis=1, kind="stable")
    return np.take_along_axis(largest, order, 1)[:, :width]


def draw_uniform_sizes(random: np.random.Generator, largest: int, rows: int) -> NDArray[np.int64]:
    """From 1 to `largest`."""
    return random.integers(1, largest + 1, rows)


def keep_heads(matrix: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first sizes[r] entries of each row r, in one array."""
    return matrix[np.arange(matrix.shape[1]) < sizes[:, None]]


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
