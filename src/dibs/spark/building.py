"""What Spark's Python workers do for `compile`: rows of subscriptions in, segment files and a few words about them out.

    build_at_once  rows of the table become segments
    build          what comes becomes segments, what goes becomes a list of rows, what is bad becomes Parquet
    merge_parts    small segments become one
    find_shards, find_changes          rows on their way to `build` (spark.differences)
    find_repeated, remove_repeated     ids that several segments have (spark.repeated)

Nothing but JSON texts goes back to the driver. Files are written under names that no version has yet, so a task that
fails or runs twice leaves files that mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.segments.segment import Segment, merge
from dibs.spark.access import access_keys, reach_of
from dibs.spark.differences import find_changes as find_changes
from dibs.spark.differences import find_shards as find_shards
from dibs.spark.places import Place, place_of
from dibs.spark.repeated import find_repeated as find_repeated
from dibs.spark.repeated import positions_of, write_ids
from dibs.spark.repeated import remove_repeated as remove_repeated
from dibs.spark.tasks import (
    ADD,
    BAD,
    COUNT,
    GONE,
    Job,
    bad_rows,
    collect_segments,
    compile_rows,
    count_rows,
    tell_rows,
    write_bad,
)
from dibs.storage import versions
from dibs.storage.versions import Version, VersionSegment


def build_at_once(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """Of the first version, if it is not sharded: the rows of an input partition become segments as they come."""
    place = place_of(job.path)
    for table in collect_segments(batches, job):
        yield tell_rows({"counted": count_rows(table)})
        yield from map(tell_rows, _build(place, table, 0, job))


def build(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """What find_changes or find_shards said of some parts: see there. A part is a shard, or behind those a segment of
    the old version."""
    kept = list(batches)
    if not kept:
        return
    table, place = pa.Table.from_batches(kept), place_of(job.path)
    del kept
    what = table["what"].to_numpy()
    counts = table.filter(pa.array(what == COUNT))
    if counts.num_rows:
        numbers = zip(map(str, counts["position"].to_pylist()), counts["row"].to_pylist())
        sums: dict[str, int] = {}
        for partition, count in numbers:
            sums[partition] = sums.get(partition, 0) + count
        yield tell_rows({"counted": sums})
    bad = table.filter(pa.array(what == BAD))
    if bad.num_rows:
        yield tell_rows(write_bad(place, bad.combine_chunks().to_batches()[0], job))
    gone = table.filter(pa.array(what == GONE))
    for part in gone["part"].unique().to_pylist():
        rows = gone.filter(pc.equal(gone["part"], part))["row"].to_numpy()
        yield tell_rows(_remove_rows(place, part - job.shards, rows, job))
    table = table.filter(pa.array(what == ADD))
    for shard in sorted(table["part"].unique().to_pylist()):
        own = table.filter(pc.equal(table["part"], shard)).sort_by([("position", "ascending"), ("id", "ascending")])
        for start in range(0, own.num_rows, job.rows_of_a_segment):
            yield from map(tell_rows, _build(place, own.slice(start, job.rows_of_a_segment), shard, job))


def _build(place: Place, table: pa.Table, shard: int, job: Job) -> Iterator[dict[str, Any]]:
    """Rows in the order of their positions become a segment. What is bad among them becomes Parquet."""
    matcher, bad = compile_rows(table, job)
    for layer in matcher.snapshot().layers:
        told = _save(place, layer.segment, shard, job)
        if not job.unique_ids:
            told["ids"] = write_ids(place, layer.segment, positions_of(layer.segment, table, bad))
        yield told
    if bad:
        yield write_bad(place, bad_rows(job, bad, table["position"]), job)


def _save(place: Place, segment: Segment, shard: int, job: Job) -> dict[str, Any]:
    segment = replace(segment, versions=np.full(len(segment), job.version, np.int64))
    staged = place.staging
    stored = versions.save_segment(staged, segment, shard)
    place.upload(staged, [stored.file])
    result = {"segment": asdict(stored), "kinds": versions.kinds_in(segment), "weighted": segment.weights is not None}
    if job.cuts is not None:
        result["reach"] = reach_of(access_keys(segment), np.arange(len(segment)))
    return result


def _remove_rows(place: Place, number: int, rows: NDArray[np.int64], job: Job) -> dict[str, Any]:
    """Rows of a segment of the old version go too."""
    assert job.old is not None
    stored = job.old.segments[number]
    fetched = place.fetch(replace(job.old, segments=(stored,)))
    before = versions.read_removed(fetched, stored)
    staged = place.staging
    name, head = versions.save_removed(staged, np.union1d(before, rows))
    place.upload(staged, [name])
    return {"removed": number, "file": name, "head": head, "rows": len(before) + len(rows)}


def old_rows(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """The subscriptions of the old version, in the columns of find_changes; a row that comes in is the number of a
    segment."""
    assert job.old is not None
    place = place_of(job.path)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            one = replace(job.old, segments=(job.old.segments[number],))
            (layer,) = versions.load_state(place.fetch(one), one).layers
            rows = layer.gone.find_kept()
            for start in range(0, len(rows), 65_536):
                own = rows[start : start + 65_536]
                chosen, segment = pa.array(own), layer.segment
                yield pa.record_batch(
                    {
                        "id": segment.ids.ids.take(chosen).cast(pa.string() if job.text_ids else pa.int64()),
                        "expression": segment.texts.take(chosen).cast(pa.string()),
                        "weight": segment.weights_at(own),
                        "deleted": pa.nulls(len(own), pa.bool_()),
                        "position": pa.nulls(len(own), pa.int64()),
                        "segment": pa.array(np.full(len(own), number, np.int32)),
                        "row": own,
                    }
                )


# ---- merging ----


def merge_parts(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """A row that comes in names stored segments of a shard, as JSON: they become one, without the rows that are
    gone."""
    place = place_of(job.path)
    for batch in batches:
        for text in batch.column(0).to_pylist():
            stored = tuple(VersionSegment(**s) for s in json.loads(text))
            version = Version(job.version, job.index, "", job.weighted, {}, stored)
            yield tell_rows(_merge(place, version, job))


def _merge(place: Place, version: Version, job: Job) -> dict[str, Any]:
    layers = versions.load_state(place.fetch(version), version).layers
    parts = [(layer.segment, layer.gone.find_kept()) for layer in layers if len(layer)]
    result: dict[str, Any] = {"merged": [s.file for s in version.segments]}
    if parts:
        staged = place.staging
        segment = versions.save_segment(staged, merge(parts, job.choice), version.segments[0].shard)
        place.upload(staged, [segment.file])
        result["segment"] = asdict(segment)
    return result


def sample(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """Some rows (id, expression): what keys they have, and how many bytes they take compiled."""
    table = pa.Table.from_batches(list(batches) or [pa.record_batch({"id": pa.array([], pa.int64())})])
    if not table.num_rows:
        return
    matcher, _ = compile_rows(table, replace(job, weighted=False))
    for layer in matcher.snapshot().layers:
        access = access_keys(layer.segment)
        counts = np.bincount(access.of_row, minlength=len(access.keys)).tolist()
        size = sum(layer.segment.nbytes.values())
        yield tell_rows({"rows": len(layer.segment), "bytes": size, "keys": list(zip(access.keys, counts))})
