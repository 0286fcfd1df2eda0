"""What of a table of subscriptions goes where: against a version of the index, for which a task has all rows of some
ids (find_changes), or into the shards of a new one (find_shards)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arguments import DEFAULT_WEIGHT
from dibs.errors import DibsError, Rejected
from dibs.segments.ids import IdIndex
from dibs.spark.access import access_keys
from dibs.spark.repeated import positions_of
from dibs.spark.tasks import ADD, GONE, Job, bad_rows, collect_rows, collect_segments, compile_rows, counted_rows
from dibs.spark.tasks import rows as rows_of


def find_changes(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """All rows of some ids, those of the new table and those of the old version (which have a segment): what is to be
    done, as rows (what, part, id, expression, weight, position, row, error)."""
    table = collect_rows(batches, job)
    is_old = table["segment"].is_valid()
    new, old = table.filter(pc.invert(is_old)).sort_by("position"), table.filter(is_old)
    yield counted_rows(job, new)
    clashing: list[Rejected] = []
    if job.feed:
        new, clashing = yield from _last_changes(new, job)
    changed, leaving = _differences(new, old, job)
    bad = clashing + (yield from _place(changed, job))
    if job.feed:  # a bad change changes nothing
        refused = {r.id for r in bad}
        leaving = leaving[[old["id"][row].as_py() not in refused for row in leaving.tolist()]] if refused else leaving
    if len(leaving):
        gone = old.take(pa.array(leaving))
        part = pc.add(gone["segment"].combine_chunks(), job.shards).cast(pa.int32())
        yield rows_of(job, GONE, part=part, row=gone["row"].combine_chunks())


def find_shards(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """Rows of the first version of an index, some of an input partition at a time: such rows too, with the shard of
    each. Ids may stand in others again, which `spark.repeated` finds."""
    for table in collect_segments(batches, job):
        yield counted_rows(job, table)
        yield from _place(table, job)


def _place(new: pa.Table, job: Job) -> Generator[pa.RecordBatch, None, list[Rejected]]:
    """Where new rows belong, and which of them are bad; these are returned too."""
    matcher, bad = compile_rows(new, replace(job, index="scan", options={}))  # scanning needs no index
    if bad:
        yield bad_rows(job, bad, new["position"])
    for layer in matcher.snapshot().layers:
        segment = layer.segment
        shard = np.zeros(len(segment), np.int64) if job.cuts is None else job.cuts.place(access_keys(segment))
        yield rows_of(
            job,
            ADD,
            part=pa.array(shard, pa.int32()),
            id=segment.ids.ids,
            expression=segment.texts,
            weight=pa.array(segment.weights_at(np.arange(len(segment)))),
            position=pa.array(positions_of(segment, new, bad)),
        )
    return bad


def _last_changes(new: pa.Table, job: Job) -> Generator[pa.RecordBatch, None, tuple[pa.Table, list[Rejected]]]:
    """The last change of each id. Those that differ, and whose ranks do not say which is later, clash: they are bad,
    and returned too."""
    group = _groups(new["id"].combine_chunks())
    group[new["id"].is_null().to_numpy()] = -1 - np.arange(new["id"].null_count)  # bad, each for itself
    rank = new["rank"].fill_null(-1).to_numpy()
    order = np.lexsort((rank, group))
    same_id = np.diff(group[order]) == 0
    if not same_id.any():
        return new, []
    differ = same_id & (np.diff(_contents(new)[order]) != 0)
    before, after = rank[order][:-1], rank[order][1:]
    torn = group[order][1:][differ & (before == after)]
    unranked = np.intersect1d(group[order][1:][differ], group[rank < 0])
    clashing = np.isin(group, np.concatenate([torn, unranked]))
    last = np.zeros(len(new), np.bool_)
    last[order[np.append(~same_id, True)]] = True
    bad: list[Rejected] = []
    if clashing.any():
        told = new.filter(pa.array(clashing))
        pairs = zip(told["id"].to_pylist(), told["expression"].to_pylist())
        bad = [Rejected(place, id, text, DibsError(job.clash)) for place, (id, text) in enumerate(pairs)]
        yield bad_rows(job, bad, told["position"])
    return new.filter(pa.array(last & ~clashing)), bad


def _contents(new: pa.Table) -> NDArray[np.int64]:
    """A number for each change, the same for those that do the same."""
    deleted = new["deleted"].fill_null(False).to_numpy()
    text, weight = (_groups(new[name].combine_chunks()) for name in ("expression", "weight"))
    rows = np.stack([np.where(deleted, -1, text), np.where(deleted, -1, weight)])
    return np.unique(rows, axis=1, return_inverse=True)[1].reshape(-1)


def _differences(new: pa.Table, old: pa.Table, job: Job) -> tuple[pa.Table, NDArray[np.int64]]:
    """The new rows that the old version does not have, and the rows of the old version that go."""
    ids = new["id"].combine_chunks()
    places, rows = _find(old, ids)
    same = np.zeros(len(new), np.bool_)
    if len(places):
        ours, theirs = new.take(pa.array(places)), old.take(pa.array(rows))
        equal = pc.and_(
            pc.equal(ours["expression"], theirs["expression"]),
            pc.equal(ours["weight"].fill_null(DEFAULT_WEIGHT), theirs["weight"]),
        )
        same[places] = equal.fill_null(False).to_numpy()
    if job.feed:
        deleted = new["deleted"].fill_null(False).to_numpy()
        same &= ~deleted
        return new.filter(pa.array(~same & ~deleted)), rows[~same[places]]
    if len(old):  # of an id that stands there twice everything is looked at again: the first good one stays
        group = _groups(ids)
        same &= np.bincount(group)[group] == 1
    staying = np.zeros(len(old), np.bool_)
    staying[rows[same[places]]] = True
    return new.filter(pa.array(~same)) if same.any() else new, np.flatnonzero(~staying)


def _find(old: pa.Table, ids: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places among the ids, and the old rows that have them."""
    if not len(old) or not len(ids):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    valid = np.flatnonzero(ids.is_valid().to_numpy(zero_copy_only=False))
    places, rows = IdIndex(old["id"].combine_chunks()).find_all(ids.take(pa.array(valid)))
    return valid[places], rows.astype(np.int64)


def _groups(ids: pa.Array) -> NDArray[np.int64]:
    """A number for each id, the same for the same."""
    return ids.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False).astype(np.int64)
