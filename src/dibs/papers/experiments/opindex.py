"""The evaluation of the OpIndex paper: figures 1 and 7 to 14.

Its generator draws attributes and operands independently of the events, with =, <= and >= alone; BE-Tree has the node
capacity 5 that the paper gives it. Node capacities are those of figure 7 there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dibs.papers.experiments.experiment import AUTO, MILLION, Data, Experiment, Series, Size, generate, show
from dibs.papers.workloads.blocks import Blocks
from dibs.papers.workloads.independent import Independent, NormalForms
from dibs.papers.workloads.products import Products
from dibs.papers.workloads.words import ARTICLE, TWEET, Keywords, Prefixes

PLAIN = Independent()
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
INSERTING = tuple(s._replace(updates=s.structure in ("betree", "opindex", "opindex-bs")) for s in SERIES)
OWN = (Series("OpIndex", "opindex"), AUTO)


def _vary(
    about: str, x: str, values: tuple[Any, ...], make: Callable[[Any], Blocks], series: Any = SERIES
) -> Experiment:
    return Experiment(f"OpIndex, figure {about}", x, values, generate(make), series)


_BY_NUMBER = Experiment(
    "OpIndex, figure 10(a): subscriptions",
    "subscriptions",
    NUMBERS,
    generate(lambda v: PLAIN, lambda v: v),
    INSERTING,
    is_size=True,
)
_BY_DIMENSIONS = _vary("1: attributes", "attributes", DIMENSIONS, lambda v: replace(PLAIN, dimensions=v))
_BY_SIZE = _vary("10(b): largest subscription", "predicates", SIZES, lambda v: replace(PLAIN, largest=v), INSERTING)
_BY_VALUES = _vary("10(e): values", "values", (50, 200, 800, 3_200, 12_800), lambda v: replace(PLAIN, cardinality=v))


def _keywords(operator: str, size: float) -> Experiment:
    what = f"{'tweets' if size == TWEET else 'articles'}, {operator}"
    make = generate(lambda v: Keywords(operator=operator, document_size=size), lambda v: v)
    about, values = f"OpIndex, figure 11: {what}", (1_000_000, 3_000_000, 5_000_000)
    return Experiment(about, "subscriptions", values, make, SERIES, is_size=True)


def _name_keywords() -> dict[str, Experiment]:
    """Building does not depend on the documents: (a) and (b) are of the points of the tweets."""
    both = ("=", "interval")
    tweets, articles = ([_keywords(operator, size) for operator in both] for size in (TWEET, ARTICLE))
    built = [
        show(tweets[i], f"opindex-11{'cd'[i]}", f"OpIndex, figure 11({'ab'[i]}): keywords, {both[i]}", "build_s")
        for i in range(2)
    ]
    return {f"opindex-11{letter}": found for letter, found in zip("abcdef", (*built, *tweets, *articles))}


def _name_products() -> dict[str, Experiment]:
    """(a) and (b): construction; (c) and (d): by number, (e) and (f): by size, each with = and with sets."""

    def by_number(operator: str) -> Experiment:
        make = generate(lambda v: Products(operator=operator), lambda v: v)
        about = f"OpIndex, figure 12: products, {operator}, by number"
        return Experiment(about, "subscriptions", (1_000_000, 3_000_000, 5_000_000), make, SERIES, is_size=True)

    def by_size(operator: str) -> Experiment:
        about = f"12: products, {operator}, by size"
        return _vary(about, "predicates", SIZES, lambda v: Products(operator=operator, largest=v))

    matching = [by_number("="), by_number("set"), by_size("="), by_size("set")]
    built = [
        show(matching[i], f"opindex-12{'cd'[i]}", f"{matching[i].about}, construction", "build_s") for i in range(2)
    ]
    return {f"opindex-12{letter}": found for letter, found in zip("abcdef", (*built, *matching))}


def _make_forms(by_number: bool) -> Callable[[Any, Size], dict[str, Data]]:
    def make(value: Any, size: Size) -> dict[str, Data]:
        def make_one(form: str) -> Data:
            workload = NormalForms(form=form, clauses=5 if by_number else value)
            return generate(lambda v: workload, lambda v: v if by_number else MILLION)(value, size)

        return {form: make_one(form) for form in ("cnf", "dnf")}

    return make


FORMS = (
    Series("CNF", "opindex", data="cnf"),
    Series("auto, CNF", "auto", data="cnf"),
    Series("DNF", "opindex", data="dnf"),
    Series("auto, DNF", "auto", data="dnf"),
)
_BY_KEYWORDS, _BY_PRODUCTS = _name_keywords(), _name_products()

EXPERIMENTS: dict[str, Experiment] = {
    "opindex-1": replace(_BY_DIMENSIONS, measures=("build_s", "match_us")),
    "opindex-7": replace(
        _vary(
            "7: node capacity of BE-Tree",
            "max_cap",
            (5, 20, 50, 100, 150, 250),
            lambda v: PLAIN,
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
        "10(c): event size", "values", (20, 40, 60, 80, 100, 120), lambda v: replace(PLAIN, event_size=v)
    ),
    "opindex-10d": _vary(
        "10(d): equality", "share of =", (0.2, 0.4, 0.6, 0.8, 1.0), lambda v: replace(PLAIN, equality=v)
    ),
    "opindex-10e": _BY_VALUES,
    "opindex-10f": _vary(
        "10(f): Zipf", "alpha of Zipf", (0, 0.2, 0.4, 0.6, 0.8, 1.0), lambda v: replace(PLAIN, skew=v)
    ),
    **_BY_KEYWORDS,
    **_BY_PRODUCTS,
    "opindex-13a": Experiment(
        "OpIndex, figure 13(a): CNF and DNF by subscriptions",
        "subscriptions",
        NUMBERS,
        _make_forms(True),
        FORMS,
        is_size=True,
    ),
    "opindex-13b": Experiment(
        "OpIndex, figure 13(b): CNF and DNF by clauses", "clauses", (5, 10, 15, 20), _make_forms(False), FORMS
    ),
    "opindex-14a": _vary(
        "14(a): prefix operators", "share of prefixes", (0.2, 0.4, 0.6, 0.8, 1.0), lambda v: Prefixes(prefixes=v), OWN
    ),
    "opindex-14b": _vary("14(b): length of prefixes", "letters", (2, 3, 4, 5, 6), lambda v: Prefixes(length=v), OWN),
}
