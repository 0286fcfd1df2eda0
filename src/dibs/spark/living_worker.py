"""What a stream runs in Spark's Python workers: Arrow batches of events in, Arrow batches of matches out, against one
snapshot of the subscriptions.

A worker lives on from batch to batch and keeps its matcher, which then only has to apply what changed since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dibs.errors import FormatError
from dibs.jit.parcel import Parcel, unpack
from dibs.language.present import Now, datetime_at
from dibs.matches import Matches
from dibs.spark.opening import write_here
from dibs.spark.snapshots import BASES, Follower, Snapshot
from dibs.spark.worker import FIRST_SLICE, LARGEST_SLICE, PAIRS_AT_ONCE
from dibs.storage.manifest import HEAD
from dibs.storage.versions import is_versioned

ROWS_IN_A_BATCH = 65_536  # of the output


@dataclass(frozen=True)
class Shipment:
    """How workers come by a snapshot."""

    state: str
    snapshot: Snapshot
    steps: dict[str, bytes] | None  # None: they see the state folder
    base: Any  # None, or a broadcast of the base's files, for workers that do not see it
    kernels: Any  # None, or a broadcast of the driver's compiled kernels


@dataclass(frozen=True)
class MatchColumns:
    """The rows that are wanted."""

    text_ids: bool
    weight: bool
    subscription_version: bool
    keep: tuple[str, ...] = ()  # columns of the events
    top: int | None = None  # matches of an event, those of the highest weight; equal ones by id


@dataclass(frozen=True)
class Counts:
    """Of one partition."""

    events: int = 0
    matches: int = 0
    malformed: int = 0
    oldest: float | None = None  # time of the oldest event, seconds since 1970
    follow_seconds: float = 0.0  # to bring the matcher to the snapshot
    match_seconds: float = 0.0


# Who is told what a partition of the events had. The number is that of the partition as it was read, not of the task:
# one task may do several partitions, and several tasks the same one.
Count = Callable[[int, Counts], None]

_followers: dict[str, Follower] = {}  # by state folder: one for each stream


def match_snapshot(
    batches: Iterable[pa.RecordBatch],
    shipment: Shipment,
    names: list[str],
    attributes: str | None,
    timed: bool,
    output: MatchColumns,
    count: Count,
) -> Iterator[pa.RecordBatch]:
    """Rows (event_id, what is kept, subscription_id[, weight][, subscription_version]) for the events of one partition.

    The first column of a batch is the event id, then come those that are kept; the last is the number of the partition,
    the one before the event's time if `timed`, the others the attributes called `names`. `count` is told at the end
    what there was.
    """
    started = time.perf_counter()
    matcher, now = follow(shipment), time_of(shipment)
    followed = time.perf_counter()
    events = matches = malformed = 0
    matching = 0.0
    oldest: float | None = None
    size = FIRST_SLICE
    partition = -1
    for batch in batches:
        batch, partition = split_partition(batch, partition)
        if timed:
            oldest = _earlier(oldest, batch.column(batch.num_columns - 1))
            batch = batch.select(range(batch.num_columns - 1))
        carried = batch.select(range(1 + len(output.keep)))
        columns = _attribute_columns(batch.columns[len(carried.columns) :], names, attributes)
        start = 0
        while start < batch.num_rows:
            began = time.perf_counter()
            part = columns.slice(start, size)
            found = matcher.match_batch(part, attributes=attributes, on_error="skip", top=output.top, now=now)
            pairs = list_pairs(found, output)
            rows = make_rows(carried.slice(start, part.num_rows), pairs, output)
            matching += time.perf_counter() - began
            yield from rows
            start += part.num_rows
            events += part.num_rows
            matches += len(pairs)
            malformed += len({problem.event for problem in found.problems})
            size = max(1, min(LARGEST_SLICE, part.num_rows * PAIRS_AT_ONCE // max(found.count, 1)))
    count(partition, Counts(events, matches, malformed, oldest, followed - started, matching))


def split_partition(batch: pa.RecordBatch, known: int) -> tuple[pa.RecordBatch, int]:
    """The batch without its last column, the number of its partition; that number, if it has any row."""
    numbers = batch.column(batch.num_columns - 1)
    return batch.select(range(batch.num_columns - 1)), numbers[0].as_py() if len(numbers) else known


def follow(shipment: Shipment) -> Any:
    """The matcher of this process, at the snapshot."""
    if shipment.state not in _followers:
        if shipment.kernels is not None and shipment.kernels.value is not None:
            unpack(Parcel(*shipment.kernels.value))
        _followers[shipment.state] = Follower(threads=1)
    follower = _followers[shipment.state]
    snapshot, state = shipment.snapshot, Path(shipment.state)
    base = _base(state / BASES / snapshot.base, shipment)
    return follower.bring_to(base, snapshot, state if shipment.steps is None else shipment.steps)


def time_of(shipment: Shipment) -> Now:
    """The time of the batch, which is the same when it is repeated."""
    now = shipment.snapshot.now
    return None if now is None else datetime_at(now)


def _base(base: Path, shipment: Shipment) -> Path:
    """The folder of the base on this machine, written now if need be."""
    if (base / HEAD).exists() or is_versioned(base):
        return base
    if shipment.base is None:
        raise FormatError(
            f"{base} is not there on a worker's machine, and too large to be sent: give state=, a folder on a "
            "filesystem that the driver and all workers share"
        )
    return write_here(shipment.snapshot.base, shipment.base.value)


def _attribute_columns(columns: list[pa.Array], names: list[str], attributes: str | None) -> pa.RecordBatch:
    if attributes is not None:
        text = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}.get(columns[0].type)
        if text is not None:  # JSON as bytes, as Kafka hands it over; whether they are UTF-8 shows when they are read
            columns = [columns[0].view(text)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def list_pairs(found: Matches, output: MatchColumns) -> pa.Table:
    """The matches that are wanted: event, subscription, and what else is asked for."""
    pairs = found.pairs(output.weight or output.top is not None, output.subscription_version)
    if output.top is None:
        return pairs
    event, ids = pairs["event"].to_numpy(), pairs["subscription"].combine_chunks()
    rank = np.empty(len(ids), np.int64)
    rank[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids))
    order = np.lexsort((rank, -pairs["weight"].to_numpy(), event))
    _, first, counts = np.unique(event[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(first, counts)
    return pairs.take(pa.array(order[place < output.top]))


def make_rows(carried: pa.RecordBatch, pairs: pa.Table, output: MatchColumns) -> list[pa.RecordBatch]:
    """carried: the ids of the events, and what is kept of them."""
    id_type = pa.string() if output.text_ids else pa.int64()
    result = []
    for batch in pairs.to_batches(max_chunksize=ROWS_IN_A_BATCH):
        names = ("event_id", *output.keep)
        arrays = {name: column.take(batch.column("event")) for name, column in zip(names, carried.columns)}
        arrays["subscription_id"] = batch.column("subscription").cast(id_type)
        if output.weight:
            arrays["weight"] = batch.column("weight")
        if output.subscription_version:
            arrays["subscription_version"] = batch.column("version")
        result.append(pa.RecordBatch.from_pydict(arrays))
    return result


def _earlier(oldest: float | None, times: pa.Array) -> float | None:
    first = pc.min(times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())).as_py()
    if first is None:
        return oldest
    return first / 1e6 if oldest is None else min(oldest, first / 1e6)
