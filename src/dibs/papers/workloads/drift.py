"""Subscriptions that change from one distribution to another and back: the BE-Tree paper's Figure 13.

The events stay: half of them are of the first workload, half of the second. The subscriptions begin as the first
workload; in each step some go, and as many of the second come, until all are the second's; then the way back. Ids of
the second workload follow those of the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.papers.workloads.begen import BEGen
from dibs.papers.workloads.blocks import SCHEMA, require


class Step(NamedTuple):
    share: float  # of the subscriptions that are the second workload's after this step
    gone: NDArray[np.int64]  # ids
    come: NDArray[np.int64]  # ids: rows of `Drift.subscription_table`


@dataclass(frozen=True)
class Drift:
    """From `first` to `second` and back, in so many steps each."""

    first: BEGen
    second: BEGen
    steps: int = 5

    def __post_init__(self) -> None:
        equal = self.first.subscriptions == self.second.subscriptions
        require(equal, "as many subscriptions before a drift as after it")
        require(self.steps >= 1, f"at least one step, not {self.steps}")

    def subscription_table(self) -> pa.Table:
        """Those of the first workload, then those of the second."""
        tables = [self.first.subscription_table(), self.second.subscription_table()]
        expressions = pa.concat_tables(tables)["expression"]
        return pa.table([pa.array(np.arange(len(expressions))), expressions], schema=SCHEMA)

    def event_batch(self) -> pa.RecordBatch:
        halves = [replace(own, events=max(own.events // 2, 1)) for own in (self.first, self.second)]
        whole = pa.concat_tables([pa.Table.from_batches([half.event_batch()]) for half in halves])
        ids = pa.array(np.arange(len(whole)))
        return whole.set_column(0, "id", ids).combine_chunks().to_batches()[0]

    def list_domains(self) -> dict[str, tuple[int, int]]:
        return self.first.list_domains() | self.second.list_domains()

    def list_steps(self) -> Iterator[Step]:
        """First of all a step in which all subscriptions of the first workload come and none goes."""
        n = self.first.subscriptions
        yield Step(0.0, np.empty(0, np.int64), np.arange(n))
        cuts = np.linspace(0, n, self.steps + 1).astype(np.int64)
        for back in (False, True):
            for step in range(self.steps):
                part = np.arange(cuts[step], cuts[step + 1])
                share = cuts[step + 1] / n if n else 1.0
                yield Step(1 - share, part + n, part) if back else Step(share, part, part + n)


def between_uniform_and_zipf(subscriptions: int, events: int, seed: int = 1, steps: int = 5) -> Drift:
    """The paper's: match probability 0.1 %, uniform attributes and Zipf ones. `reverse` is its Figure 13(b)."""
    uniform = BEGen(subscriptions, events, seed, match_probability=0.001)
    return Drift(uniform, replace(uniform, attribute_skew=1.0), steps)


def reverse(drift: Drift) -> Drift:
    return Drift(drift.second, drift.first, drift.steps)
