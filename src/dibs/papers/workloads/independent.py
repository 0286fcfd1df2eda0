"""OpIndex's own generator (section 7.1, Table 3): subscriptions and events are drawn independently of each other.

A subscription has 1 to `largest` predicates and an event 1 to `event_size` values, on different attributes; attributes
and operands are uniform, or both follow a Zipf distribution. A share `equality` of the operators is =, the others are
<= and >= in equal parts. The defaults are the paper's.

`NormalForms` makes CNF (clauses of predicates with OR) and DNF (conjunctions with OR) of the same parts: 1 to
`clauses` clauses of 1 to `largest` predicates (section 7.6; how large its clauses are the paper does not say). No
attribute occurs twice in one clause; different clauses may share some.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.papers.workloads.blocks import Blocks, make_maps, name_attributes, require
from dibs.papers.workloads.draws import (
    EQ,
    GE,
    LE,
    Predicates,
    draw,
    draw_distinct,
    draw_uniform_sizes,
    join_rows,
    keep_heads,
    sum_weights,
    write_predicates,
)

NO_SETS = np.empty((0, 1), np.int64), np.empty(0, np.int64)


@dataclass(frozen=True)
class Independent(Blocks):
    dimensions: int = 20_000
    cardinality: int = 50
    largest: int = 4
    event_size: int = 20
    equality: float = 0.4
    skew: float = 0.0  # of attributes and operands

    def check(self) -> None:
        require(1 <= self.largest <= self.dimensions, f"1 to {self.dimensions} predicates, not {self.largest}")
        require(1 <= self.event_size <= self.dimensions, f"1 to {self.dimensions} values, not {self.event_size}")
        require(self.cardinality >= 1, f"a cardinality of at least 1, not {self.cardinality}")
        require(0 <= self.equality <= 1, f"a share of equality from 0 to 1, not {self.equality}")

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        sizes = draw_uniform_sizes(random, self.largest, len(rows))
        return join_rows(self.write_some(random, sizes), sizes, " AND ")

    def write_some(self, random: np.random.Generator, sizes: NDArray[np.int64]) -> pa.StringArray:
        """sizes[0] predicates on different attributes, then sizes[1], and so on."""
        attribute = self._draw_attributes(random, sizes, self.largest)
        n = len(attribute)
        operator = np.where(random.random(n) < self.equality, EQ, np.where(random.random(n) < 0.5, LE, GE))
        value = draw(random, self.cardinality, self.skew, n)
        return write_predicates(Predicates(name_attributes(attribute), operator, value, value, *NO_SETS))

    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.MapArray:
        sizes = draw_uniform_sizes(random, self.event_size, len(rows))
        attribute = self._draw_attributes(random, sizes, self.event_size)
        value = draw(random, self.cardinality, self.skew, len(attribute))
        return make_maps(sizes, name_attributes(attribute), pa.array(value))

    def list_domains(self) -> dict[str, tuple[int, int]]:
        return {f"a{k}": (0, self.cardinality - 1) for k in range(self.dimensions)}

    def _draw_attributes(
        self, random: np.random.Generator, sizes: NDArray[np.int64], largest: int
    ) -> NDArray[np.int64]:
        summed = sum_weights(self.dimensions, self.skew)
        return keep_heads(draw_distinct(random, summed, len(sizes), largest), sizes)


@dataclass(frozen=True)
class NormalForms(Independent):
    form: str = "cnf"  # or dnf
    clauses: int = 5  # at most

    def check(self) -> None:
        super().check()
        require(self.form in ("cnf", "dnf"), f"the form cnf or dnf, not {self.form!r}")
        require(self.clauses >= 1, f"at least one clause, not {self.clauses}")

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        within, between = (" OR ", " AND ") if self.form == "cnf" else (" AND ", " OR ")
        clauses = draw_uniform_sizes(random, self.clauses, len(rows))
        sizes = draw_uniform_sizes(random, self.largest, int(clauses.sum()))
        texts = join_rows(self.write_some(random, sizes), sizes, within)
        return join_rows(pc.binary_join_element_wise("(", texts, ")", ""), clauses, between)
