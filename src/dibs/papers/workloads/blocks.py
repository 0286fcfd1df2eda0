"""A workload as blocks of rows: the same rows in one process and in a Spark job.

A generator is a frozen dataclass of parameters with two methods, each of which makes the rows of one block from a
random generator that follows from the seed, the kind of rows and the number of the block, and from nothing else. So
rows may be made in any order, in any process, and only those that are wanted; `spark/workloads.py` makes each block
in a task.

    workload = BEGen(subscriptions=1_000_000, events=1_000, match_probability=0.01)
    matcher.add_table(workload.subscription_table())
    matcher.match_batch(workload.event_batch(), attributes="attributes")
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.errors import DibsError

BLOCK = 10_000  # rows; part of what a seed means: another size, other rows
SUBSCRIPTIONS, EVENTS, SHARED = 1, 2, 3  # kinds of rows; SHARED: what all blocks of a workload are made from
SCHEMA = pa.schema([("id", pa.int64()), ("expression", pa.string())])


def require(holds: bool, what: str) -> None:
    if not holds:
        raise DibsError(f"a workload needs {what}")


def start_random(seed: int, kind: int, block: int = 0) -> np.random.Generator:
    return np.random.default_rng([seed, kind, block])


@dataclass(frozen=True)
class Blocks(ABC):
    """What all generators have in common."""

    subscriptions: int = 100_000
    events: int = 1_000
    seed: int = 1

    def __post_init__(self) -> None:
        require(self.subscriptions >= 0, f"no negative number of subscriptions, not {self.subscriptions}")
        require(self.events >= 1, f"at least one event, not {self.events}")
        require(self.seed >= 0, f"a seed that is not negative, not {self.seed}")
        self.check()

    def check(self) -> None:  # noqa: B027  most parameters are checked by some generators only
        """Raises a DibsError for parameters that make no sense together."""

    @abstractmethod
    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        """The texts of the subscriptions with these numbers."""

    @abstractmethod
    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.Array:
        """The events with these numbers: maps, or JSON texts."""

    def list_domains(self) -> dict[str, tuple[int, int]]:
        """The attributes whose constants and values are integers between two, both included."""
        return {}

    @property
    def subscription_blocks(self) -> int:
        return -(-self.subscriptions // BLOCK)

    @property
    def event_blocks(self) -> int:
        return -(-self.events // BLOCK)

    def subscription_block(self, block: int) -> pa.RecordBatch:
        """(id int64, expression string): BLOCK rows, fewer in the last one. The id is the subscription's number."""
        rows = np.arange(block * BLOCK, min((block + 1) * BLOCK, self.subscriptions))
        texts = self.write_expressions(start_random(self.seed, SUBSCRIPTIONS, block), rows)
        return pa.record_batch([pa.array(rows), texts], schema=SCHEMA)

    def event_block(self, block: int) -> pa.RecordBatch:
        """(id int64, attributes map or JSON string)."""
        rows = np.arange(block * BLOCK, min((block + 1) * BLOCK, self.events))
        attributes = self.make_attributes(start_random(self.seed, EVENTS, block), rows)
        return pa.record_batch([pa.array(rows), attributes], names=["id", "attributes"])

    @property
    def subscription_schema(self) -> pa.Schema:
        return SCHEMA

    def subscription_batches(self) -> Iterator[pa.RecordBatch]:
        return map(self.subscription_block, range(self.subscription_blocks))

    def subscription_table(self) -> pa.Table:
        return pa.Table.from_batches(self.subscription_batches(), SCHEMA)

    def event_batches(self) -> Iterator[pa.RecordBatch]:
        return map(self.event_block, range(self.event_blocks))

    def event_batch(self) -> pa.RecordBatch:
        return pa.Table.from_batches(self.event_batches()).combine_chunks().to_batches()[0]


def make_maps(sizes: NDArray[np.int64], names: pa.Array, values: pa.Array) -> pa.MapArray:
    """One map for each size, of so many names and values in turn."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def name_attributes(numbers: NDArray[np.integer], letter: str = "a") -> pa.StringArray:
    return pc.binary_join_element_wise(letter, pa.array(numbers).cast(pa.string()), "")
