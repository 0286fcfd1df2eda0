"""The evaluation of the OpIndex paper: figures 1 and 7 to 14.

Its generator draws attributes and operands independently of the events, with =, <= and >= alone; BE-Tree has the node
capacity 5 that the paper gives it. Node capacities are those of figure 7 there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dibs.experiments.experiment import AUTO, Experiment, Series, of_shape, show
from dibs.workloads.boolean import Shape

SHAPE = Shape(20_000, cardinality=50, smallest=1, largest=4, event_size=20, equality=0.4)
MILLION = 1_000_000
NUMBERS = (1_000_000, 10_000_000, 20_000_000)
DIMENSIONS = (20_000, 30_000, 40_000, 50_000, 60_000)
SIZES = (4, 8, 12, 16, 20)
SERIES = (
    Series("k-index", "kindex"),
    Series("BE-Tree", "betree", {"max_cap": 5}),
    Series("OpIndex-BS", "opindex-bs"),
    Series("OpIndex", "opindex"),
    AUTO,
)
INSERTING = tuple(s._replace(updates=s.index in ("betree", "opindex", "opindex-bs")) for s in SERIES)
OWN = (Series("OpIndex", "opindex"), AUTO)


def _vary(
    about: str, x: str, values: tuple[Any, ...], shape: Callable[[Any], Shape], series: Any = SERIES
) -> Experiment:
    return Experiment(f"OpIndex, figure {about}", x, values, of_shape(shape, lambda v: MILLION), series)


_BY_NUMBER = Experiment(
    "OpIndex, figure 10(a): subscriptions",
    "subscriptions",
    NUMBERS,
    of_shape(lambda v: SHAPE, lambda v: v),
    INSERTING,
)
_BY_DIMENSIONS = _vary("1: attributes", "attributes", DIMENSIONS, lambda v: replace(SHAPE, attributes=v))
_BY_SIZE = _vary("10(b): largest subscription", "predicates", SIZES, lambda v: replace(SHAPE, largest=v), INSERTING)
_BY_VALUES = _vary("10(e): values", "values", (50, 200, 800, 3_200, 12_800), lambda v: replace(SHAPE, cardinality=v))

EXPERIMENTS: dict[str, Experiment] = {
    "opindex-1": replace(_BY_DIMENSIONS, measures=("build_s", "match_us")),
    "opindex-7": replace(
        _vary(
            "7: node capacity of BE-Tree",
            "max_cap",
            (5, 20, 50, 100, 150, 250),
            lambda v: SHAPE,
            lambda v: (Series("BE-Tree", "betree", {"max_cap": int(v)}), AUTO),
        ),
        measures=("build_s", "match_us"),
    ),
    "opindex-8a": show(_BY_NUMBER, "opindex-10a", "OpIndex, figure 8(a): memory by subscriptions", "bytes"),
    "opindex-8b": show(_BY_VALUES, "opindex-10e", "OpIndex, figure 8(b): memory by values", "bytes"),
    "opindex-9a": show(
        _BY_NUMBER, "opindex-10a", "OpIndex, figure 9(a): insertion by subscriptions", "build_s", "insert_us"
    ),
    "opindex-9b": show(
        _BY_SIZE, "opindex-10b", "OpIndex, figure 9(b): insertion by largest subscription", "build_s", "insert_us"
    ),
    "opindex-10a": _BY_NUMBER,
    "opindex-10b": _BY_SIZE,
    "opindex-10c": _vary(
        "10(c): event size", "values", (20, 40, 60, 80, 100, 120), lambda v: replace(SHAPE, event_size=v)
    ),
    "opindex-10d": _vary(
        "10(d): equality", "share of =", (0.2, 0.4, 0.6, 0.8, 1.0), lambda v: replace(SHAPE, equality=v)
    ),
    "opindex-10e": _BY_VALUES,
    "opindex-10f": _vary(
        "10(f): Zipf", "alpha of Zipf", (0, 0.2, 0.4, 0.6, 0.8, 1.0), lambda v: replace(SHAPE, zipf=v)
    ),
}
