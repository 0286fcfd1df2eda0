"""Experiments of the papers by name, and how one point of a figure is measured.

An experiment varies one parameter of a workload (`workloads.boolean`) and measures the same structures at each of its
values: those of the paper, as published, and `auto`. Sizes are the paper's times a scale. All structures of a point see
the same subscriptions and events and must find the same number of matches; they take turns, and the best and the median
of the processor times are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dibs.coding.batch import CodedEvents, code_events
from dibs.coding.clauses import Clauses, code_clauses
from dibs.coding.events import read_events
from dibs.errors import DibsError, IndexTooLarge
from dibs.index import create
from dibs.segments.compile import compile_texts
from dibs.workloads.boolean import Shape, generate

EVENTS = 200
REPEATS = 5
Series = tuple[str, str, dict[str, Any]]  # a label, an index, its options
Say = Callable[[str], None]

DENSE, SPARSE = Shape(100, smallest=3, largest=7), Shape(30_000, smallest=3, largest=7)
OPINDEX = Shape(20_000, cardinality=50, smallest=1, largest=4, event_size=20)
PSTREE_SERIES: tuple[Series, ...] = (
    ("SCAN", "scan", {}),
    ("k-index", "kindex", {}),
    ("Propagation", "propagation", {}),
    ("OpIndex", "opindex", {}),
    ("BE-Tree", "betree", {}),
    ("PSTBloom", "pstbloom", {}),
    ("PSTHash", "psthash", {}),
    ("PSTHash, 256 cells", "psthash", {"cells": 256}),
    ("auto", "auto", {}),
)
OPINDEX_SERIES: tuple[Series, ...] = (
    ("k-index", "kindex", {}),
    ("BE-Tree", "betree", {}),
    ("OpIndex-BS", "opindex-bs", {}),
    ("OpIndex", "opindex", {}),
    ("auto", "auto", {}),
)


@dataclass(frozen=True)
class Experiment:
    about: str
    x: str  # what varies
    values: tuple[float, ...]
    workload: Callable[[Any], tuple[Shape, int]]  # of a value: the shape, and subscriptions at scale 1
    series: tuple[Series, ...] | Callable[[Any], tuple[Series, ...]]
    measure: str = "match_us"  # or build_s, bytes: what the figure shows


def _sizes(shape: Shape, average: float) -> Shape:
    """Subscriptions of so many predicates on average."""
    average = int(average)
    size = max(shape.event_size, average + 2)
    return replace(shape, smallest=max(average - 2, 1), largest=average + 2, event_size=size)


def _pstree(about: str, x: str, values: tuple[float, ...], vary: Callable[[Shape, Any], Shape]) -> list[Experiment]:
    """The two pictures of a figure: 100 dimensions and 30,000."""

    def of(kind: str, shape: Shape) -> Experiment:
        return Experiment(f"{about}, {kind}", x, values, lambda v: (vary(shape, v), 1_000_000), PSTREE_SERIES)

    return [of("100 dimensions", DENSE), of("30,000 dimensions", SPARSE)]


def _by_name(name: str, both: list[Experiment]) -> dict[str, Experiment]:
    return {f"{name}a": both[0], f"{name}b": both[1]}


def _opindex(about: str, x: str, values: tuple[float, ...], vary: Callable[[Any], tuple[Shape, int]]) -> Experiment:
    return Experiment(about, x, values, vary, OPINDEX_SERIES)


SUBSCRIPTIONS = (300_000, 1_000_000, 3_000_000, 10_000_000)
EXPERIMENTS: dict[str, Experiment] = {
    "pstree-5a": Experiment(
        "PS-Tree, figure 5(a): construction",
        "subscriptions",
        SUBSCRIPTIONS,
        lambda v: (DENSE, v),
        PSTREE_SERIES,
        "build_s",
    ),
    "pstree-6a": Experiment(
        "PS-Tree, figure 6(a): size, 100 dimensions",
        "subscriptions",
        SUBSCRIPTIONS,
        lambda v: (DENSE, v),
        PSTREE_SERIES,
    ),
    "pstree-6b": Experiment(
        "PS-Tree, figure 6(b): size, 30,000 dimensions",
        "subscriptions",
        SUBSCRIPTIONS,
        lambda v: (SPARSE, v),
        PSTREE_SERIES,
    ),
    **_by_name(
        "pstree-7",
        _pstree("PS-Tree, figure 7: distribution", "alpha of Zipf", (0, 1, 2, 3), lambda s, v: replace(s, zipf=v)),
    ),
    "pstree-8a": Experiment(
        "PS-Tree, figure 8(a): dimensions, subscriptions fixed",
        "dimensions",
        (100, 300, 1_000, 3_000, 10_000, 30_000),
        lambda v: (replace(DENSE, attributes=v), 1_000_000),
        PSTREE_SERIES,
    ),
    **_by_name(
        "pstree-9",
        _pstree(
            "PS-Tree, figure 9: cardinality",
            "cardinality",
            (3, 10, 30, 100, 300),
            lambda s, v: replace(s, cardinality=v),
        ),
    ),
    **_by_name(
        "pstree-10", _pstree("PS-Tree, figure 10: subscription size", "predicates", (5, 10, 15, 20, 25), _sizes)
    ),
    **_by_name(
        "pstree-11",
        _pstree(
            "PS-Tree, figure 11: event size", "values", (30, 42, 54, 66, 78, 90), lambda s, v: replace(s, event_size=v)
        ),
    ),
    **_by_name(
        "pstree-13",
        _pstree(
            "PS-Tree, figure 13: equality",
            "share of =",
            (0, 0.2, 0.4, 0.6, 0.8, 1),
            lambda s, v: replace(s, equality=v),
        ),
    ),
    "pstree-14a": Experiment(
        "PS-Tree, figure 14(a): memory",
        "subscriptions",
        SUBSCRIPTIONS,
        lambda v: (DENSE, v),
        PSTREE_SERIES[1:],
        "bytes",
    ),
    "opindex-7": Experiment(
        "OpIndex, figure 7: node capacity of BE-Tree",
        "max_cap",
        (5, 20, 50, 100, 150, 250),
        lambda v: (OPINDEX, 1_000_000),
        lambda v: (("BE-Tree", "betree", {"max_cap": int(v)}), ("auto", "auto", {})),
    ),
    "opindex-size": _opindex(
        "OpIndex, Table 3: subscriptions", "subscriptions", (1_000_000, 10_000_000), lambda v: (OPINDEX, v)
    ),
    "opindex-dimensions": _opindex(
        "OpIndex, Table 3: dimensions",
        "dimensions",
        (20_000, 30_000, 40_000, 50_000, 60_000),
        lambda v: (replace(OPINDEX, attributes=v), 1_000_000),
    ),
    "opindex-subscription-size": _opindex(
        "OpIndex, Table 3: largest subscription",
        "predicates",
        (4, 8, 12, 16, 20),
        lambda v: (replace(OPINDEX, largest=v), 1_000_000),
    ),
    "opindex-event-size": _opindex(
        "OpIndex, Table 3: event size",
        "values",
        (20, 40, 60, 80, 100, 120),
        lambda v: (replace(OPINDEX, event_size=v), 1_000_000),
    ),
    "opindex-equality": _opindex(
        "OpIndex, Table 3: equality",
        "share of =",
        (0.2, 0.4, 0.6, 0.8, 1.0),
        lambda v: (replace(OPINDEX, equality=v), 1_000_000),
    ),
    "opindex-zipf": _opindex(
        "OpIndex, Table 3: Zipf", "alpha", (0, 0.2, 0.4, 0.6, 0.8, 1), lambda v: (replace(OPINDEX, zipf=v), 1_000_000)
    ),
}


def experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise DibsError(f"no experiment is called {name!r}; there are: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def measure_point(name: str, value: float, scale: float, seed: int = 1, say: Say = lambda text: None) -> dict[str, Any]:
    """All structures of an experiment at one value of what varies."""
    wanted = experiment(name)
    shape, subscriptions = wanted.workload(value)
    workload = generate(shape, max(int(subscriptions * scale), 10), EVENTS, seed)
    compiled = compile_texts(workload.subscription_table()["expression"].combine_chunks().cast("large_string"))
    domains, clauses = code_clauses(compiled.table)
    names = frozenset(attribute for attribute, _ in domains.attributes)
    events = code_events(read_events(workload.event_batch(), names, attributes="attributes"), domains)
    series = wanted.series if isinstance(wanted.series, tuple) else wanted.series(value)
    rows = _measure(clauses, events, series, say)
    counts = {row["matches"] for row in rows.values() if "matches" in row}
    assert len(counts) == 1, f"{name} at {value}: structures differ in their matches: {rows}"
    return {"x": value, "subscriptions": workload.subscriptions, "events": EVENTS, "rows": rows}


def _measure(clauses: Clauses, events: CodedEvents, series: tuple[Series, ...], say: Say) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    built = {}
    for label, index, options in series:
        say(label)
        create(index, _some(clauses), **options).match(events, 1)  # compiles, or loads what was compiled
        begin = time.process_time()
        try:
            built[label] = create(index, clauses, **options)
        except IndexTooLarge as e:
            rows[label] = {"refused": str(e)}
            continue
        rows[label] = {"build_s": time.process_time() - begin, "bytes": built[label].nbytes}
        found = built[label].match(events, 1)
        counters = {"candidates": found.candidates, "predicates": found.predicates, "nodes": found.nodes}
        rows[label] |= {"matches": found.count} | counters
    times: dict[str, list[float]] = {label: [] for label in built}
    for _ in range(REPEATS):
        for label, made in built.items():
            begin = time.process_time()
            made.match(events, 1)
            times[label].append((time.process_time() - begin) / len(events) * 1e6)
    for label, own in times.items():
        rows[label] |= {"match_us": min(own), "median_us": float(np.median(own)), "all_us": own}
    return rows


def _some(clauses: Clauses) -> Clauses:
    """The first few conjunctions."""
    few = min(len(clauses), 50)
    return replace(clauses, offsets=clauses.offsets[: few + 1], conjunctions=few)
