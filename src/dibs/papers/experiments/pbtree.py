"""Table 1 of the PB+tree paper, which compares orders of growth: space, search, insertion, deletion.

Measured by the number of predicates n: one attribute, each subscription one predicate with one of the operators
=, <, <=, >, >= over a domain that grows with n, so that predicates are distinct and few of them hold for an event
(L, the output, is the same at each n). Of the rivals in the table (Grouped Filter, a red-black tree, IBS-Tree, Time
Index, Interval B+tree) none is here; the nearest relatives that are, the segment tree and the interval tree over the
same intervals, stand in, and neither takes insertions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dibs.papers.experiments.experiment import AUTO, Data, Experiment, Series, Size

SERIES = (
    Series("PB+tree", "pbtree", updates=True),
    Series("PB+tree in memory", "pbtree-memory", updates=True),
    Series("Segment Tree", "segment-tree"),
    Series("Interval Tree", "interval-tree"),
    AUTO,
)
OUTPUT = 50  # predicates that hold for an event, whatever n is


def _make(value: Any, size: Size) -> Data:
    """Values lie between the constants of < and those of >, so that these two lists are met at their ends."""
    n = size.of(value)
    random = np.random.default_rng(size.seed)
    constants = random.permutation(4 * n)[:n] + 4 * n
    near = random.random(n) < OUTPUT / n  # hold for every event
    kind = random.integers(0, 5, n)
    above = kind >= 3
    constants = np.where(above, constants + 8 * n, np.where(kind > 0, constants - 4 * n, constants))
    constants = np.where(near & above, 1, np.where(near & (kind > 0), 12 * n + 1, constants))
    signs = np.array(["=", "<", "<=", ">", ">="])[kind]
    texts = [f"x {sign} {constant}" for sign, constant in zip(signs.tolist(), constants.tolist())]
    values = random.integers(5 * n, 8 * n, size.events)
    return Data(pa.array(texts), pa.RecordBatch.from_arrays([pa.array(values)], names=["x"]))


EXPERIMENTS: dict[str, Experiment] = {
    "pbtree-table-1": Experiment(
        "PB+tree, table 1: growth with the number of predicates",
        "predicates",
        (30_000, 100_000, 300_000, 1_000_000),
        _make,
        SERIES,
        ("match_us", "insert_us", "delete_us", "bytes"),
        is_size=True,
    ),
}
