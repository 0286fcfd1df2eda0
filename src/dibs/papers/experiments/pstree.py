"""The evaluation of the PS-Tree paper: figures 5 to 15, tables 2 and 3.

Where the paper has two pictures, 100 dimensions are a and 30,000 are b. Subscriptions per dimension are kept at 100 in
figure 8(b), for which the paper gives no number. Figure 15's query log and table 2's advertisements are stand-ins of
the same dimensions and sizes (papers.workloads).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dibs.papers.experiments.experiment import AUTO, Experiment, Series, generate, show
from dibs.papers.structures.betree.betree import guide_capacity
from dibs.papers.workloads.begen import BEGen
from dibs.papers.workloads.blocks import Blocks
from dibs.papers.workloads.intervals import Intervals
from dibs.papers.workloads.products import Ads
from dibs.papers.workloads.words import Keywords

SPARSE = BEGen(
    dimensions=30_000, cardinality=100, subscription_size=5, event_size=30, equality=0.2, match_probability=0.001
)
DENSE = replace(SPARSE, dimensions=100)
SUBSCRIPTIONS = (300_000, 1_000_000, 3_000_000, 10_000_000)
DIMENSIONS = (100, 300, 1_000, 3_000, 10_000, 30_000)
PER_DIMENSION = 100

SERIES = (
    Series("SCAN", "scan"),
    Series("k-index", "kindex"),
    Series("Propagation", "propagation"),
    Series("OpIndex", "opindex"),
    Series("BE-Tree", "betree"),
    Series("PSTBloom", "pstbloom"),
    Series("PSTHash", "psthash"),
    AUTO,
)
INSERTED = ("OpIndex", "BE-Tree", "PSTBloom")  # row by row, too; PSTHash takes too long to build twice
KEPT_IN_ORDER = tuple(s._replace(updates=s.label in INSERTED) for s in SERIES[1:])

Vary = Callable[[BEGen, Any], BEGen]


def by_table_4(
    series: tuple[Series, ...], probability: Callable[[Any], float | None]
) -> Callable[[Any], tuple[Series, ...]]:
    """With the node capacity that the BE-Tree paper gives its tree, where the matching probability is known."""

    def at(value: Any) -> tuple[Series, ...]:
        known = probability(value)
        own = {} if known is None else {"max_cap": guide_capacity(known)}
        return tuple(s._replace(published=own) if s.structure.startswith("betree") else s for s in series)

    return at


def _sweep(about: str, x: str, values: tuple[Any, ...], vary: Vary) -> list[Experiment]:
    """The two pictures of a figure."""

    def draw(kind: str, workload: BEGen) -> Experiment:
        make = generate(lambda v: vary(workload, v))
        series = by_table_4(SERIES, lambda v: vary(workload, v).match_probability)
        return Experiment(f"PS-Tree, figure {about}, {kind} dimensions", x, values, make, series)

    return [draw("100", DENSE), draw("30,000", SPARSE)]


def _vary_number(about: str, workload: Blocks, values: tuple[int, ...] = SUBSCRIPTIONS) -> Experiment:
    make = generate(lambda v: workload, lambda v: v)
    return Experiment(about, "subscriptions", values, make, SERIES, is_size=True)


def _name(number: int, both: list[Experiment]) -> dict[str, Experiment]:
    return {f"pstree-{number}a": both[0], f"pstree-{number}b": both[1]}


def _set_size(workload: BEGen, average: float) -> BEGen:
    """An event has a few more values than a subscription has predicates."""
    return replace(workload, subscription_size=average, event_size=max(workload.event_size, int(average) + 2))


_BY_NUMBER = _vary_number("PS-Tree, figure 6(a): subscriptions, 100 dimensions", DENSE)
_BY_DIMENSIONS = Experiment(
    "PS-Tree, figure 8(a): dimensions, subscriptions fixed",
    "dimensions",
    DIMENSIONS,
    generate(lambda v: replace(DENSE, dimensions=v)),
    (SERIES[0], *KEPT_IN_ORDER),
)
_BY_SIZE = _sweep("10: subscription size", "predicates", (5, 10, 15, 20, 25, 30), _set_size)
_LOG = _vary_number(
    "PS-Tree, figure 15(a): query log",
    Keywords(dimensions=26**3, operator="split", document_size=93.07),
    (300_000, 1_000_000, 2_100_000),
)
_BY_EQUALITY = _sweep("13: equality", "share of =", (0, 0.2, 0.4, 0.6, 0.8, 1), lambda s, v: replace(s, equality=v))

EXPERIMENTS: dict[str, Experiment] = {
    "pstree-5a": show(_BY_NUMBER, "pstree-6a", "PS-Tree, figure 5(a): construction by subscriptions", "build_s"),
    "pstree-5b": show(
        _BY_DIMENSIONS, "pstree-8a", "PS-Tree, figure 5(b): construction by dimensions", "build_s", "insert_us"
    ),
    "pstree-5c": show(_BY_SIZE[0], "pstree-10a", "PS-Tree, figure 5(c): construction by subscription size", "build_s"),
    "pstree-5d": show(_BY_EQUALITY[0], "pstree-13a", "PS-Tree, figure 5(d): construction by equality", "build_s"),
    "pstree-6a": _BY_NUMBER,
    "pstree-6b": _vary_number("PS-Tree, figure 6(b): subscriptions, 30,000 dimensions", SPARSE),
    **_name(
        7, _sweep("7: distribution", "alpha of Zipf", (0, 1, 2, 3, 4, 5), lambda s, v: replace(s, attribute_skew=v))
    ),
    "pstree-8a": _BY_DIMENSIONS,
    "pstree-8b": Experiment(
        "PS-Tree, figure 8(b): dimensions, as many subscriptions for each",
        "dimensions",
        DIMENSIONS,
        generate(lambda v: replace(DENSE, dimensions=v), lambda v: PER_DIMENSION * v),
        SERIES,
    ),
    **_name(
        9,
        _sweep("9: cardinality", "cardinality", (3, 10, 30, 100, 300, 1_000), lambda s, v: replace(s, cardinality=v)),
    ),
    **_name(10, _BY_SIZE),
    **_name(11, _sweep("11: event size", "values", (30, 42, 54, 66, 78, 90), lambda s, v: replace(s, event_size=v))),
    **_name(
        12,
        _sweep(
            "12: matching probability",
            "matching probability",
            (0.001, 0.005, 0.01, 0.05, 0.1, 0.5),
            lambda s, v: replace(s, match_probability=v),
        ),
    ),
    **_name(13, _BY_EQUALITY),
    "pstree-14a": show(_BY_NUMBER, "pstree-6a", "PS-Tree, figure 14(a): memory by subscriptions", "bytes"),
    "pstree-14b": show(_BY_SIZE[0], "pstree-10a", "PS-Tree, figure 14(b): memory by subscription size", "bytes"),
    "pstree-15a": _LOG,
    "pstree-15b": show(_LOG, "pstree-15a", "PS-Tree, figure 15(b): query log, construction", "build_s"),
    "pstree-table-2": Experiment(
        "PS-Tree, table 2: advertisements",
        "subscriptions",
        (3_000_000,),
        generate(lambda v: Ads(), lambda v: v),
        SERIES,
        ("match_us", "build_s", "bytes"),
        is_size=True,
    ),
    "pstree-table-3": Experiment(
        "PS-Tree, table 3: intervals",
        "intervals",
        (100_000,),
        generate(lambda v: Intervals(), lambda v: v),
        (
            Series("SCAN", "scan"),
            Series("Interval Tree", "interval-tree"),
            Series("Segment Tree", "segment-tree"),
            Series("PS-Tree", "pstree"),
            AUTO,
        ),
        ("match_us", "build_s", "bytes"),
        is_size=True,
    ),
}
