"""BEGen, the generator of the BE-Tree paper (section 7.1), which the PS-Tree paper uses, too.

Base expressions have equality predicates only, on different attributes; they are the events. A subscription is
derived from a base: each predicate is kept with the probability subscription_size / event_size (one at least), and
one that is kept stays an equality with the probability `equality`; else it becomes a random operator of its class
that the base's value satisfies (Table 2). With `match_probability` p there are 1 / p bases, which subscriptions and
events take in turn: every event matches a share p of all subscriptions, and those that it matches by accident on
top. Without it, every subscription and every event has a base of its own.

    operators   min: =    low: and IN    med: and < <= > >= BETWEEN    high: and <> NOT IN
    selectivity of a dimension (Figure 9): 1 - 1 / cardinality; `of_selectivity` gives the cardinality

Said by neither paper, and chosen here: the exponent of "Zipf" in the BE-Tree paper (1); that attributes a0, a1, ... are
in the order of their popularity. Table 2(b) allows `i < v` for v = v*, which v* does not satisfy: strict bounds are
beyond v* here, and may lie one outside the domain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.papers.workloads.blocks import SCHEMA, SHARED, Blocks, make_maps, name_attributes, require, start_random
from dibs.papers.workloads.draws import (
    BETWEEN,
    EQ,
    GE,
    GT,
    IN,
    LE,
    LT,
    NE,
    NOT_IN,
    Predicates,
    draw,
    draw_distinct,
    join_rows,
    sum_weights,
    write_predicates,
)

CLASSES = {
    "min": (EQ,),
    "low": (IN,),
    "med": (LT, LE, GT, GE, IN, BETWEEN),
    "high": (LT, LE, GT, GE, IN, BETWEEN, NE, NOT_IN),
}  # what an equality may become
MOST_MEMBERS = 6  # constants of a set
Base = tuple[NDArray[np.int64], NDArray[np.int64]]  # attributes and values, a row for each base


@dataclass(frozen=True)
class BEGen(Blocks):
    dimensions: int = 400
    cardinality: int = 48
    subscription_size: float = 7  # on average
    event_size: int = 15
    equality: float = 0.3
    width: float = 0.12  # of a BETWEEN, on average, as a share of the cardinality
    operators: str = "med"
    match_probability: float | None = 0.01
    attribute_skew: float = 0.0
    value_skew: float = 0.0

    def check(self) -> None:
        require(self.operators in CLASSES, f"operators of {', '.join(CLASSES)}, not {self.operators!r}")
        require(self.cardinality >= 2, f"a cardinality of at least 2, not {self.cardinality}")
        sizes = 1 <= self.subscription_size <= self.event_size <= self.dimensions
        numbers = f"{self.subscription_size}, {self.event_size}, {self.dimensions}"
        require(sizes, f"1 <= subscription_size <= event_size <= dimensions, not {numbers}")
        p = self.match_probability
        require(p is None or 0 < p <= 1, f"a match_probability above 0, up to 1, or None, not {p}")
        require(0 <= self.equality <= 1, f"a share of equality from 0 to 1, not {self.equality}")

    @property
    def bases(self) -> int | None:
        return None if self.match_probability is None else max(round(1 / self.match_probability), 1)

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        attribute, value = self._take_bases(random, rows)
        kept = random.random(attribute.shape) < self.subscription_size / self.event_size
        kept[np.arange(len(rows)), random.integers(0, self.event_size, len(rows))] |= ~kept.any(1)
        predicates = infer(random, self, attribute[kept], value[kept])
        return join_rows(write_predicates(predicates), kept.sum(1), " AND ")

    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.MapArray:
        attribute, value = self._take_bases(random, rows)
        sizes = np.full(len(rows), self.event_size)
        return make_maps(sizes, name_attributes(attribute.ravel()), pa.array(value.ravel()))

    def list_domains(self) -> dict[str, tuple[int, int]]:
        """Strict bounds lie one outside."""
        return {f"a{k}": (-1, self.cardinality) for k in range(self.dimensions)}

    def _take_bases(self, random: np.random.Generator, rows: NDArray[np.int64]) -> Base:
        if self.bases is None:
            return _draw_bases(random, self, len(rows))
        attribute, value = _shared_bases(self)
        return attribute[rows % self.bases], value[rows % self.bases]


def of_selectivity(selectivity: float) -> int:
    """The cardinality of dimensions of which an equality passes a share 1 - selectivity."""
    require(0 < selectivity < 1, f"a selectivity between 0 and 1, not {selectivity}")
    return max(round(1 / (1 - selectivity)), 2)


@lru_cache(maxsize=4)
def _shared_bases(of: BEGen) -> Base:
    assert of.bases is not None
    return _draw_bases(start_random(of.seed, SHARED), of, of.bases)


def _draw_bases(random: np.random.Generator, of: BEGen, rows: int) -> Base:
    attribute = draw_distinct(random, sum_weights(of.dimensions, of.attribute_skew), rows, of.event_size)
    return attribute, draw(random, of.cardinality, of.value_skew, attribute.shape)


def infer(random: np.random.Generator, of: BEGen, attribute: NDArray[np.int64], value: NDArray[np.int64]) -> Predicates:
    """For each `attribute = value` a predicate that follows from it."""
    n, top = len(value), of.cardinality - 1
    others = np.array(CLASSES[of.operators])
    operator = np.where(random.random(n) < of.equality, EQ, others[random.integers(0, len(others), n)])
    place = random.random(n)
    above = value + (place * (top + 1 - value)).astype(np.int64)  # from the value to the top
    below = (place * (value + 1)).astype(np.int64)  # from 0 to the value
    span = np.maximum((2 * of.width * of.cardinality * random.random(n)).astype(np.int64), 1)
    start = np.clip(value - (place * span).astype(np.int64), 0, top)
    end = np.clip(start + span - 1, value, top)
    other = (value + 1 + (place * top).astype(np.int64)) % of.cardinality  # any but the value
    low = np.select(
        [operator == k for k in (LT, LE, GT, GE, NE, BETWEEN)],
        [above + 1, above, below - 1, below, other, start],
        value,
    )
    sets = operator >= IN
    members, counts = _draw_members(random, of, value[sets], operator[sets] == IN)
    return Predicates(name_attributes(attribute), operator, low, end, members, counts)


def _draw_members(
    random: np.random.Generator, of: BEGen, value: NDArray[np.int64], held: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sets of 2 to 6 constants, with the value where it is to be held by them, and without it elsewhere."""
    most = min(MOST_MEMBERS, of.cardinality - 1)
    steps = 1 + draw_distinct(random, sum_weights(of.cardinality - 1, 0.0), len(value), most)
    steps[held, 0] = 0
    counts = random.integers(min(2, most), most + 1, len(value))
    return (value[:, None] + steps) % of.cardinality, counts


class Step(NamedTuple):
    share: float  # of the subscriptions that are the second workload's after this step
    gone: NDArray[np.int64]  # ids
    come: NDArray[np.int64]  # ids: rows of `Drift.subscription_table`


@dataclass(frozen=True)
class Drift:
    """Subscriptions that change from one distribution to another and back, in so many steps each: Figure 13.

    The events stay: half of them are of the first workload, half of the second. The subscriptions begin as the
    first workload; in each step some go, and as many of the second come, until all are the second's; then the way
    back. Ids of the second workload follow those of the first.
    """

    first: BEGen
    second: BEGen
    steps: int = 5

    def __post_init__(self) -> None:
        equal = self.first.subscriptions == self.second.subscriptions
        require(equal, "as many subscriptions before a drift as after it")
        require(self.steps >= 1, f"at least one step, not {self.steps}")

    def subscription_table(self) -> pa.Table:
        """Those of the first workload, then those of the second."""
        tables = [self.first.subscription_table(), self.second.subscription_table()]
        expressions = pa.concat_tables(tables)["expression"]
        return pa.table([pa.array(np.arange(len(expressions))), expressions], schema=SCHEMA)

    def event_batch(self) -> pa.RecordBatch:
        halves = [replace(own, events=max(own.events // 2, 1)) for own in (self.first, self.second)]
        whole = pa.concat_tables([pa.Table.from_batches([half.event_batch()]) for half in halves])
        ids = pa.array(np.arange(len(whole)))
        return whole.set_column(0, "id", ids).combine_chunks().to_batches()[0]

    def list_domains(self) -> dict[str, tuple[int, int]]:
        return self.first.list_domains() | self.second.list_domains()

    def list_steps(self) -> Iterator[Step]:
        """First of all a step in which all subscriptions of the first workload come and none goes."""
        n = self.first.subscriptions
        yield Step(0.0, np.empty(0, np.int64), np.arange(n))
        cuts = np.linspace(0, n, self.steps + 1).astype(np.int64)
        for back in (False, True):
            for step in range(self.steps):
                part = np.arange(cuts[step], cuts[step + 1])
                share = cuts[step + 1] / n if n else 1.0
                yield Step(1 - share, part + n, part) if back else Step(share, part, part + n)


def between_uniform_and_zipf(subscriptions: int, events: int, seed: int = 1, steps: int = 5) -> Drift:
    """The paper's: match probability 0.1 %, uniform attributes and Zipf ones. `reverse` is its Figure 13(b)."""
    uniform = BEGen(subscriptions, events, seed, match_probability=0.001)
    return Drift(uniform, replace(uniform, attribute_skew=1.0), steps)


def reverse(drift: Drift) -> Drift:
    return Drift(drift.second, drift.first, drift.steps)
