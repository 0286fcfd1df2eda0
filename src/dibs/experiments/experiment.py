"""An experiment: one figure or table of a paper, as data.

It varies one parameter of a workload and measures the same structures at each of its values: those of the paper, as
published, and `auto`. Sizes are the paper's times a scale. Figures of a paper that show several measures of one sweep
are experiments that share its points (`points_of`), so that nothing is measured twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dibs.workloads.boolean import Shape, generate

MATCHING_PROBABILITY = 0.001  # of the papers' defaults: a thousand base expressions
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


class Series(NamedTuple):
    """A line of a figure: an index with its options."""

    label: str
    index: str
    options: dict[str, Any] = {}  # noqa: RUF012
    updates: bool = False  # measure insertion and deletion of single rows, too


class Data(NamedTuple):
    """What is matched: subscriptions as texts, and events of any kind that dibs reads."""

    expressions: pa.Array
    events: Any
    attributes: str | None = None  # the column that holds the events' attributes


class Size(NamedTuple):
    """How much of the paper's is measured."""

    scale: float
    seed: int = 1
    events: int = 200
    repeats: int = 5

    def of(self, subscriptions: float) -> int:
        return max(int(subscriptions * self.scale), FEWEST)


class Workload(Protocol):
    """What the generators of dibs.workloads make."""

    def subscription_table(self) -> pa.Table: ...

    def event_batch(self) -> pa.RecordBatch: ...


AUTO = Series("auto", "auto")


@dataclass(frozen=True)
class Experiment:
    about: str
    x: str  # what varies
    values: tuple[Any, ...]  # numbers or words
    workload: Callable[[Any, Size], Data]
    series: tuple[Series, ...] | Callable[[Any], tuple[Series, ...]]
    measures: tuple[str, ...] = ("match_us",)  # what the figure shows, a panel each
    points_of: str = ""  # the experiment whose points these are

    def series_at(self, value: Any) -> tuple[Series, ...]:
        return self.series if isinstance(self.series, tuple) else self.series(value)


def show(shown: Experiment, points_of: str, about: str, *measures: str) -> Experiment:
    """Another figure of the points of an experiment."""
    return replace(shown, about=about, points_of=points_of, measures=measures)


def data_of(workload: Workload, events: int) -> Data:
    """As many of a workload's events as wanted: some of them, or all several times."""
    batch = workload.event_batch()
    batch = batch.take(pa.array(np.arange(events) % max(len(batch), 1)))
    return Data(workload.subscription_table()["expression"].combine_chunks(), batch, "attributes")


def of_shape(
    shape: Callable[[Any], Shape],
    subscriptions: Callable[[Any], float],
    probability: Callable[[Any], float] | None = None,
) -> Callable[[Any, Size], Data]:
    """A workload of BEGen's kind. An event matches about `probability` of all subscriptions: as BEGen has it, these
    are made from 1 / probability events (of which no more are made than five for each that is matched)."""

    def make(value: Any, size: Size) -> Data:
        share = MATCHING_PROBABILITY if probability is None else probability(value)
        made_from = min(round(1 / share), 5 * size.events)
        return data_of(generate(shape(value), size.of(subscriptions(value)), made_from, size.seed), size.events)

    return make
