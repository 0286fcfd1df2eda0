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

from dibs.papers.workloads.blocks import Blocks, make_maps, name_attributes, require
from dibs.papers.workloads.draws import draw, draw_distinct, draw_uniform_sizes, keep_heads
from dibs.papers.workloads.predicates import EQ, IN, Predicates, join_rows, write_predicates

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
