"""Prefix predicates: the workload of OpIndex's section 7.7.

10,000 numeric attributes and 100 of text; predicates are = on numeric ones and, for a share `prefixes`, STARTSWITH on
texts, with the first `length` letters of a word. 1 to `largest` predicates, as in `independent.py`. Words are those of
`words.py`, where the paper takes Wikipedia's. Half of an event's values are texts, which the paper leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.papers.workloads.blocks import Blocks, name_attributes, require
from dibs.papers.workloads.draws import draw_distinct, draw_uniform_sizes, keep_heads, sum_weights
from dibs.papers.workloads.predicates import join_rows
from dibs.papers.workloads.words import make_vocabulary

NUMBERS, TEXTS, WORDS = 10_000, 100, 20_000


@dataclass(frozen=True)
class Prefixes(Blocks):
    prefixes: float = 0.5
    length: int = 3
    largest: int = 4
    event_size: int = 20
    cardinality: int = 50

    def check(self) -> None:
        require(0 <= self.prefixes <= 1, f"a share of prefixes from 0 to 1, not {self.prefixes}")
        require(self.length >= 1, f"prefixes of at least one letter, not {self.length}")
        require(1 <= self.largest <= TEXTS, f"1 to {TEXTS} predicates, not {self.largest}")
        require(1 <= self.event_size <= TEXTS, f"1 to {TEXTS} values, not {self.event_size}")

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        sizes = draw_uniform_sizes(random, self.largest, len(rows))
        n = int(sizes.sum())
        texts = random.random(n) < self.prefixes
        named = [
            name_attributes(keep_heads(draw_distinct(random, sum_weights(k, 0.0), len(rows), self.largest), sizes), c)
            for k, c in ((TEXTS, "s"), (NUMBERS, "n"))
        ]
        starts = pc.utf8_slice_codeunits(_draw_words(random, n), 0, self.length)
        prefixes = pc.binary_join_element_wise("STARTSWITH(", named[0], ", '", starts, "')", "")
        numbers = pa.array(random.integers(0, self.cardinality, n)).cast(pa.string())
        equal = pc.binary_join_element_wise(named[1], " = ", numbers, "")
        return join_rows(pc.if_else(pa.array(texts), prefixes, equal), sizes, " AND ")

    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        """JSON texts: values of two kinds."""
        halves = [self.event_size // 2, self.event_size - self.event_size // 2]
        names = [
            name_attributes(draw_distinct(random, sum_weights(k, 0.0), len(rows), half).ravel(), c)
            for k, half, c in zip((TEXTS, NUMBERS), halves, "sn", strict=True)
        ]
        words = pc.binary_join_element_wise('"', _draw_words(random, len(names[0])), '"', "")
        numbers = pa.array(random.integers(0, self.cardinality, len(names[1]))).cast(pa.string())
        parts = [
            join_rows(pc.binary_join_element_wise('"', own, '":', values, ""), np.full(len(rows), half), ",")
            for own, values, half in zip(names, (words, numbers), halves, strict=True)
        ]
        between = "," if halves[0] else ""
        return pc.binary_join_element_wise("{", parts[0], between, parts[1], "}", "")


def _draw_words(random: np.random.Generator, size: int) -> pa.StringArray:
    return pa.array(make_vocabulary(WORDS)).take(pa.array(random.integers(0, WORDS, size)))
