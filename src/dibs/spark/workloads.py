"""Generators as Spark jobs, for sizes that one process should not hold: each task makes blocks, the same ones that
`subscription_batches` and `event_batches` make in one process.

    subscriptions = make_subscriptions(session, BEGen(subscriptions=10_000_000))
    dibs.spark.compile(subscriptions, "index")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema


class Blocks(Protocol):
    """Rows that are made block by block, each of which follows from its number."""

    @property
    def subscription_blocks(self) -> int: ...

    @property
    def event_blocks(self) -> int: ...

    def subscription_block(self, number: int, /) -> pa.RecordBatch: ...

    def event_block(self, number: int, /) -> pa.RecordBatch: ...


BLOCKS_A_TASK = 8  # made one after the other: a worker holds one


def make_subscriptions(session: SparkSession, workload: Blocks) -> DataFrame:
    """(id bigint, expression string)"""
    return _make(session, workload.subscription_blocks, workload.subscription_block)


def make_events(session: SparkSession, workload: Blocks) -> DataFrame:
    """(id bigint, attributes map or string)"""
    return _make(session, workload.event_blocks, workload.event_block)


def _make(session: SparkSession, blocks: int, make: Callable[[int], pa.RecordBatch]) -> DataFrame:
    schema = from_arrow_schema(make(0).schema)

    def make_them(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in batch.column("id").to_pylist():
                yield make(block)

    tasks = max(-(-blocks // BLOCKS_A_TASK), 1)
    return session.range(0, blocks, 1, tasks).mapInArrow(make_them, schema)
