"""An experiment: one figure or table of a paper, as data.

It varies one parameter of a workload and measures the same structures at each of its values: those of the paper, as
published, each beside it as it became here ("BE-Tree, ours"), and `auto`. A scale says which share of the paper's sizes
is measured, 1 being all of it; `values` are the paper's, and a point has the true number of whatever was measured.
Figures of a paper that show several measures of one sweep are experiments that share its points (`points_of`), so that
nothing is measured twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.index import options_of
from dibs.papers.structures.profiles import PUBLISHED, profiles_of
from dibs.papers.workloads.blocks import Blocks

OURS_TOO = ", ours"  # behind the label of a structure
MILLION = 1_000_000
FEWEST = 10  # subscriptions, however small the scale

MEASURES = {
    "match_us": "microseconds per event",
    "build_s": "seconds to build",
    "bytes": "bytes",
    "insert_us": "microseconds to insert one",
    "delete_us": "microseconds to delete one",
    "predicates": "predicates evaluated per event",
    "candidates": "candidates per event",
}


Rows = NDArray[np.int64]
Steps = tuple[tuple[Rows, Rows], ...]  # rows that go and rows that come, one step after the other


class Series(NamedTuple):
    """A line of a figure: an index with its options."""

    label: str
    structure: str
    options: dict[str, Any] = {}  # noqa: RUF012
    updates: bool = False  # measure insertion and deletion row by row, too; it lives through the data's steps
    data: str = ""  # which of the workload's data, where there are several
    published: dict[str, Any] = {}  # noqa: RUF012 - what the paper gives to its own form besides
    log: bool = False  # it knows how often events have each attribute before it is built


def in_both_forms(one: Series) -> tuple[Series, ...]:
    """As published and as it became here, where these differ."""
    if PUBLISHED not in profiles_of(options_of(one.structure)):
        return (one,)
    options = one.options | one.published | {"profile": PUBLISHED}
    as_published = one._replace(options=options, log=one.structure.startswith("opindex"))
    return as_published, one._replace(label=one.label + OURS_TOO)


class Data(NamedTuple):
    """What is matched: subscriptions as texts, and events of any kind that dibs reads."""

    expressions: pa.Array
    events: Any
    attributes: str | None = None  # the column that holds the events' attributes
    steps: Steps = ()  # none: all are there
    domains: Mapping[str, tuple[int, int]] = {}


class Size(NamedTuple):
    """How much of the paper's is measured."""

    scale: float
    seed: int = 1
    events: int = 200
    repeats: int = 5

    def of(self, number: float) -> int:
        """Subscriptions or documents, where the paper has so many."""
        return max(round(number * self.scale), FEWEST)


class Workload(Protocol):
    """What the generators of papers.workloads make."""

    def subscription_table(self) -> pa.Table: ...

    def event_batch(self) -> pa.RecordBatch: ...

    def list_domains(self) -> dict[str, tuple[int, int]]: ...


AUTO = Series("auto", "auto")


@dataclass(frozen=True)
class Experiment:
    about: str
    x: str  # what varies
    values: tuple[Any, ...]  # numbers or words, as the paper has them
    workload: Callable[[Any, Size], Data | dict[str, Data]]
    series: tuple[Series, ...] | Callable[[Any], tuple[Series, ...]]
    measures: tuple[str, ...] = ("match_us",)  # what the figure shows, a panel each
    points_of: str = ""  # the experiment whose points these are
    measure: Callable[[Any, Size], dict[str, Any]] | None = None  # a point, where it is no match of plain structures
    is_size: bool = False  # the values are sizes, which the scale changes

    def true_value(self, value: Any, size: Size) -> Any:
        """What is measured where the paper has this value."""
        return size.of(value) if self.is_size else value

    def series_at(self, value: Any) -> tuple[Series, ...]:
        named = self.series if isinstance(self.series, tuple) else self.series(value)
        return tuple(form for one in named for form in in_both_forms(one))


def show(shown: Experiment, points_of: str, about: str, *measures: str) -> Experiment:
    """Another figure of the points of an experiment."""
    return replace(shown, about=about, points_of=points_of, measures=measures)


def data_of(workload: Workload) -> Data:
    texts = workload.subscription_table()["expression"].combine_chunks()
    return Data(texts, workload.event_batch(), "attributes", domains=workload.list_domains())


def generate(
    make: Callable[[Any], Blocks], subscriptions: Callable[[Any], float] = lambda value: MILLION
) -> Callable[[Any, Size], Data]:
    """Of a value: a generator with its parameters, and how many subscriptions the paper has."""

    def run(value: Any, size: Size) -> Data:
        rows = {"subscriptions": size.of(subscriptions(value)), "events": size.events, "seed": size.seed}
        return data_of(replace(make(value), **rows))

    return run
