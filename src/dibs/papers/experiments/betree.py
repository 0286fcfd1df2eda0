"""The evaluation of the BE-Tree paper: figures 4 to 13, tables 4 and 5.

Where the paper has two pictures side by side, uniform attributes are the first and Zipf's the second. BE-Tree has the
node capacity of table 4 by the matching probability of the data, which ours guesses. SIFT, k-index and Propagation
stand in figure 11 with the operators that the paper gives them. Titles and authors (figure 12) are stand-ins for those
of DBLP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dibs.papers.experiments.experiment import AUTO, Data, Experiment, Series, Size, data_of, generate
from dibs.papers.experiments.pstree import Vary, by_table_4
from dibs.papers.workloads.begen import BEGen, between_uniform_and_zipf, of_selectivity, reverse
from dibs.papers.workloads.blocks import Blocks
from dibs.papers.workloads.words import AUTHOR, TITLE, QGrams

UNIFORM = BEGen()
ZIPF = replace(UNIFORM, attribute_skew=1.0)
SERIES = (
    Series("SCAN", "scan"),
    Series("SIFT", "counting"),
    Series("k-index", "kindex"),
    Series("Propagation", "propagation"),
    Series("Gryphon", "gryphon"),
    Series("BE-Tree", "betree"),
    Series("BE-Tree, batch", "betree-batch"),
    AUTO,
)
EXPRESSIVE = tuple(s for s in SERIES if s.label not in ("SIFT", "k-index", "Propagation"))
TREES = tuple(s for s in SERIES if s.structure in ("betree", "betree-batch", "auto"))
DRIFTING = (
    Series("BE-Tree", "betree", updates=True),
    Series("BE-Tree, built from what is there", "betree"),
    AUTO,
)
CAPACITIES = (5, 20, 40, 80, 160, 320)
PROBABILITIES = (0.0001, 0.001, 0.01, 0.03, 0.09)
HUNDRED_THOUSAND, MILLION = 100_000, 1_000_000


def _sweep(
    number: str,
    about: str,
    x: str,
    values: Sequence[Any],
    vary: Vary,
    subscriptions: Callable[[Any], float] = lambda value: MILLION,
    series: tuple[Series, ...] = SERIES,
    measures: tuple[str, ...] = ("match_us",),
    is_size: bool = False,
) -> dict[str, Experiment]:
    """Two pictures: uniform attributes and Zipf's. `number` is the figure's and the letters of the two."""
    figure, letters = number[:-2], number[-2:]

    def draw(letter: str, kind: str, workload: BEGen) -> Experiment:
        make = generate(lambda v: vary(workload, v), subscriptions)
        title = f"BE-Tree, figure {figure}({letter}): {about}, {kind}"
        own = by_table_4(series, lambda v: vary(workload, v).match_probability)
        return Experiment(title, x, tuple(values), make, own, measures, is_size=is_size)

    return {
        f"betree-{figure}{letters[0]}": draw(letters[0], "uniform", UNIFORM),
        f"betree-{figure}{letters[1]}": draw(letters[1], "Zipf", ZIPF),
    }


def _set_sizes(workload: BEGen, size: int) -> BEGen:
    """Subscriptions of 5 to 66 predicates with events of 13 to 81 values."""
    return replace(workload, subscription_size=size, event_size=size + 8 + size // 10)


def _capacity(probability: float) -> Experiment:
    def make(value: Any, size: Size) -> Data:
        return generate(lambda v: replace(UNIFORM, match_probability=probability))(value, size)

    return Experiment(
        f"BE-Tree, figure 4: node capacity, {probability:.2%} match",
        "max_cap",
        CAPACITIES,
        make,
        lambda v: (
            Series("BE-Tree", "betree", {"max_cap": int(v)}),
            Series("BE-Tree, batch", "betree-batch", {"max_cap": int(v)}),
            AUTO,
        ),
        ("match_us",),
    )


def _probability(letters: str, operators: str, series: tuple[Series, ...]) -> dict[str, Experiment]:
    return _sweep(
        f"11{letters}",
        f"matching probability, operators {operators}",
        "matching probability",
        PROBABILITIES,
        lambda w, v: replace(w, match_probability=v, operators=operators),
        series=series,
    )


def _grams(letter: str, source: str, values: tuple[int, ...]) -> Experiment:
    make = generate(lambda v: QGrams(source=source), lambda v: v)
    about = f"BE-Tree, figure 12({letter}): {source}s"
    return Experiment(about, "subscriptions", values, make, SERIES, is_size=True)


def _drift(back: bool) -> Experiment:
    """x is the number of steps made: five there, five back."""

    def make(value: Any, size: Size) -> Data:
        drift = between_uniform_and_zipf(size.of(HUNDRED_THOUSAND), size.events, size.seed)
        drift = reverse(drift) if back else drift
        steps = tuple((step.gone, step.come) for step in list(drift.list_steps())[: value + 1])
        return data_of(drift)._replace(steps=steps)

    letter, way = ("b", "Zipf to uniform") if back else ("a", "uniform to Zipf")
    about = f"BE-Tree, figure 13({letter}): {way} and back"
    return Experiment(about, "steps", tuple(range(11)), make, DRIFTING)


def _construction(name: str, workload: Blocks, number: int) -> Experiment:
    make = generate(lambda v: workload, lambda v: v)
    about = f"BE-Tree, table 5: construction, {name}"
    return Experiment(about, "subscriptions", (number,), make, TREES, ("build_s", "bytes"), is_size=True)


EXPERIMENTS: dict[str, Experiment] = {
    "betree-4a": _capacity(0.001),
    "betree-4b": _capacity(0.01),
    "betree-4c": _capacity(0.1),
    **_sweep(
        "5ab",
        "subscriptions",
        "subscriptions",
        (100_000, 400_000, 700_000, 1_000_000),
        lambda w, v: w,
        lambda v: v,
        is_size=True,
    ),
    **_sweep(
        "6ab", "dimensions", "dimensions", (50, 100, 400, 700, 1_000, 1_400), lambda w, v: replace(w, dimensions=v)
    ),
    **_sweep("7ab", "subscription size", "predicates", (5, 10, 14, 20, 40, 66), _set_sizes, lambda v: HUNDRED_THOUSAND),
    **_sweep(
        "8ab",
        "cardinality",
        "cardinality",
        (48, 150, 1_500, 6_000, 150_000),
        lambda w, v: replace(w, cardinality=v),
        lambda v: HUNDRED_THOUSAND,
        measures=("match_us", "bytes"),
    ),
    **_sweep(
        "8cd",
        "width of ranges",
        "share of the cardinality",
        (0.06, 0.12, 0.25, 0.5),
        lambda w, v: replace(w, width=v),
        lambda v: HUNDRED_THOUSAND,
    ),
    **_sweep(
        "9ab",
        "dimension selectivity",
        "selectivity",
        (0.5, 0.667, 0.75, 0.8, 0.9),
        lambda w, v: replace(w, cardinality=of_selectivity(v), equality=1.0, operators="min", match_probability=None),
        lambda v: HUNDRED_THOUSAND,
    ),
    **_sweep("10ab", "equality", "share of =", (0.2, 0.4, 0.6, 0.8, 1.0), lambda w, v: replace(w, equality=v)),
    **_probability("ab", "low", SERIES),
    **_probability("cd", "med", SERIES),
    **_probability("ef", "high", EXPRESSIVE),
    "betree-11high": Experiment(
        "BE-Tree, section 7.3.2: matching probability above 35 %, which no figure shows",
        "matching probability",
        (0.35, 0.5),
        generate(lambda v: replace(UNIFORM, match_probability=v)),
        tuple(s for s in SERIES if s.label in ("SCAN", "Propagation", "BE-Tree", "auto")),
    ),
    "betree-12a": _grams("a", AUTHOR, (100_000, 400_000, 760_000)),
    "betree-12b": _grams("b", TITLE, (50_000, 150_000, 250_000)),
    "betree-13a": _drift(False),
    "betree-13b": _drift(True),
    "betree-table-4": Experiment(
        "BE-Tree, table 4: which node capacity for which matching probability",
        "matching probability",
        (0.001, 0.01, 0.1),
        generate(lambda v: replace(UNIFORM, match_probability=v)),
        (*(Series(f"max_cap {c}", "betree", {"max_cap": c}) for c in (5, 20, 160)), AUTO),
    ),
    **{
        f"betree-table-5{letter}": _construction(name, workload, number)
        for letter, name, workload, number in (
            ("a", "uniform", UNIFORM, MILLION),
            ("b", "Zipf", ZIPF, MILLION),
            ("c", "authors", QGrams(source=AUTHOR), 760_000),
            ("d", "titles", QGrams(source=TITLE), 250_000),
        )
    },
}
