"""Products and saved searches: OpIndex's eBay workload (section 7.1).

10,204 attributes; the k-th one is in a share 0.31 / k ** 0.87 of all products, which are the paper's 31 % for the
first (brand) and 17 % for the second (country of manufacture). The attributes of subscriptions are drawn in
proportion to the logarithm of how many of the paper's 296,846 products have them; a subscription has 1 to `largest`
predicates. Values have a Zipf distribution over the `cardinality` values of their attribute. The operators are the
paper's: = and the set operator (`members` constants). A stand-in for the crawled products; `shop.py` has words,
units and prices instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.papers.workloads.blocks import SHARED, Blocks, make_maps, name_attributes, require, start_random
from dibs.papers.workloads.draws import (
    BETWEEN,
    EQ,
    IN,
    Predicates,
    draw,
    draw_distinct,
    draw_uniform_sizes,
    join_rows,
    keep_heads,
    sum_weights,
    write_predicates,
)

ATTRIBUTES, PRODUCTS = 10_204, 296_846
FIRST, DECAY = 0.31, 0.87


@dataclass(frozen=True)
class Products(Blocks):
    operator: str = "="  # or set
    largest: int = 4
    cardinality: int = 50
    members: int = 4
    value_skew: float = 1.0

    def check(self) -> None:
        require(self.operator in ("=", "set"), f"the operator = or set, not {self.operator!r}")
        require(1 <= self.largest <= ATTRIBUTES, f"1 to {ATTRIBUTES:,} predicates, not {self.largest}")
        require(1 <= self.members <= self.cardinality, f"1 to {self.cardinality} members, not {self.members}")

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        sizes = draw_uniform_sizes(random, self.largest, len(rows))
        attribute = keep_heads(draw_distinct(random, _sum_logarithms(), len(rows), self.largest), sizes)
        n = len(attribute)
        value = draw(random, self.cardinality, self.value_skew, n)
        members = (value[:, None] + np.arange(self.members)) % self.cardinality
        sets = self.operator == "set"
        names, operator = name_attributes(attribute), np.full(n, IN if sets else EQ)
        counts = np.full(n if sets else 0, self.members)
        predicates = Predicates(names, operator, value, value, members[: len(counts)], counts)
        return join_rows(write_predicates(predicates), sizes, " AND ")

    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.MapArray:
        row, attribute = np.nonzero(random.random((len(rows), ATTRIBUTES), np.float32) < share_of_products())
        value = draw(random, self.cardinality, self.value_skew, len(attribute))
        return make_maps(np.bincount(row, minlength=len(rows)), name_attributes(attribute), pa.array(value))

    def list_domains(self) -> dict[str, tuple[int, int]]:
        return {f"a{k}": (0, self.cardinality - 1) for k in range(ATTRIBUTES)}


@lru_cache(maxsize=1)
def share_of_products() -> NDArray[np.float64]:
    """That have each attribute."""
    return np.asarray(FIRST / np.arange(1, ATTRIBUTES + 1) ** DECAY, np.float64)


@lru_cache(maxsize=1)
def _sum_logarithms() -> NDArray[np.float64]:
    summed = np.cumsum(np.log(share_of_products() * PRODUCTS))
    return np.asarray(summed / summed[-1])


DIMENSIONS, LARGEST, EVENT_SIZE = 122, 56, 20
SKEW = 0.5
SHARES = (0.6, 0.3, 0.1)  # of =, IN and BETWEEN
MOST_MEMBERS = 6


@dataclass(frozen=True)
class Ads(Blocks):
    """Advertisement targeting: the PS-Tree paper's ads workload (section 7.4), 3,000,000 subscriptions at full size.

    122 dimensions; 1 to 56 predicates in a subscription, 8 on average; 20 values in an event. A stand-in: of the
    data itself the paper says no more. Here the k-th dimension is asked for in proportion to 1 / sqrt(k), by
    advertisements and sessions alike; it has 2 + 3 * k values at most 200 (a channel has few, a region many), with
    Zipf frequencies; predicates are =, IN and BETWEEN in the shares 0.6, 0.3 and 0.1. Subscriptions of up to 20
    predicates are made from a session of `sessions`, which events are, too, so that advertisements find their
    visitors; longer ones are for sessions that have more than 20 values, and match none of these events.
    """

    average: float = 8.0  # predicates
    sessions: int = 1_000

    def check(self) -> None:
        require(1 < self.average < LARGEST / 2, f"an average above 1 and below {LARGEST // 2}, not {self.average}")
        require(self.sessions >= 1, f"at least one session, not {self.sessions}")

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        # Clipping the tail of a gamma distribution takes hardly anything off the average.
        sizes = np.rint(random.gamma(2.0, self.average / 2, len(rows)))
        sizes = np.clip(sizes, 1, LARGEST).astype(np.int64)
        attribute, value = (part[rows % self.sessions] for part in _draw_sessions(self.sessions, self.seed))
        # Some of what the session's event has, or all of it and more.
        place = np.broadcast_to(np.arange(LARGEST), attribute.shape).copy()
        place[:, :EVENT_SIZE] = np.argsort(random.random((len(rows), EVENT_SIZE)), axis=1)
        line, place = np.repeat(np.arange(len(rows)), sizes), keep_heads(place, sizes)
        predicates = _make_predicates(random, attribute[line, place], value[line, place])
        return join_rows(write_predicates(predicates), sizes, " AND ")

    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.MapArray:
        attribute, value = (
            part[rows % self.sessions, :EVENT_SIZE] for part in _draw_sessions(self.sessions, self.seed)
        )
        sizes = np.full(len(rows), EVENT_SIZE)
        return make_maps(sizes, name_attributes(attribute.ravel()), pa.array(value.ravel()))

    def list_domains(self) -> dict[str, tuple[int, int]]:
        most = count_values(np.arange(DIMENSIONS)) - 1
        return {f"a{k}": (0, last) for k, last in enumerate(most.tolist())}


def count_values(dimension: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.minimum(2 + 3 * dimension, 200)


@lru_cache(maxsize=4)
def _draw_sessions(sessions: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """LARGEST dimensions and values of each, of which an event has the first EVENT_SIZE."""
    random = start_random(seed, SHARED)
    attribute = draw_distinct(random, sum_weights(DIMENSIONS, SKEW), sessions, LARGEST)
    values = count_values(attribute)
    # v + 1 = n ** u for a uniform u: Zipf's distribution, nearly, for any number of values at once
    value = np.minimum((values + 1.0) ** random.random(attribute.shape) - 1, values - 1).astype(np.int64)
    return attribute, value


def _make_predicates(random: np.random.Generator, attribute: NDArray[np.int64], value: NDArray[np.int64]) -> Predicates:
    n = len(value)
    operator = np.array([EQ, IN, BETWEEN])[np.searchsorted(np.cumsum(SHARES[:2]), random.random(n), "right")]
    values = count_values(attribute)
    reach = (random.random(n) * values * 0.12).astype(np.int64)
    low = np.where(operator == BETWEEN, np.maximum(value - reach, 0), value)
    sets = operator == IN
    counts = 1 + random.integers(0, np.minimum(MOST_MEMBERS, values[sets]), len(values[sets]))
    members = (value[sets, None] + np.arange(MOST_MEMBERS)) % values[sets, None]
    high = np.minimum(value + reach, values - 1)
    return Predicates(name_attributes(attribute), operator, low, high, members, counts)
