"""A few changes of compiled subscriptions, made on the driver: what a stream does between two of its batches.

The version is opened here (its files are mapped, not read), what goes is looked up by id, what comes becomes a small
segment, and small segments are merged as `compile` does. Only those files are written.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dibs.arguments import OnError, check_on_error
from dibs.errors import DibsError, Rejected, SubscriptionErrors
from dibs.segments.layer import Layer
from dibs.segments.segment import Segment, merge
from dibs.segments.state import State
from dibs.spark.access import Cuts, access_keys, reach_of, route, widen
from dibs.spark.merging import SPARK_SEGMENT, due
from dibs.spark.places import Place, place_of
from dibs.spark.tasks import Job, compile_rows
from dibs.storage import versions
from dibs.storage.versions import Version, VersionSegment


def apply_changes(
    path: str | os.PathLike[str], changes: Any, on_error: OnError = "raise"
) -> tuple[Version, list[Rejected]]:
    """Makes the next version of the index at `path`: the latest one with these changes, an Arrow table (or pandas
    frame) of id, expression, weight (if wanted) and deleted (true: it goes). Of several changes of one id the last
    counts; deleting what is not there changes nothing. Returns the version and the bad changes (on_error="skip"; else
    they raise SubscriptionErrors, and there is no new version)."""
    check_on_error(on_error)
    place = place_of(path)
    old = place.read()
    table = _last_changes(pa.table(changes), old)
    deleted = table["deleted"].fill_null(False)
    job = Job(
        path=place.name,
        version=old.version + 1,
        index=old.index,
        options=old.options,
        weighted="weight" in table.column_names,
        text_ids=old.ids == "string",
        rows_of_a_segment=SPARK_SEGMENT.value,
        cuts=_cuts(old),
        feed=True,
        unique_ids=True,
        types=old.types,
        old=old,
    )
    new = table.filter(pc.invert(deleted))
    matcher, bad = compile_rows(new, job)
    places = np.flatnonzero(pc.invert(deleted).to_numpy())
    bad = [Rejected(int(places[r.position]), r.id, r.expression, r.error) for r in bad]
    if bad and on_error == "raise":
        raise SubscriptionErrors(bad)
    ids = set(table["id"].to_pylist()) - {r.id for r in bad}
    before = versions.load_state(place.fetch(old), old)
    segments = _without(place, old, before, before.without(ids))
    kinds, sharding = dict(old.kinds), _copy(old.sharding)
    for layer in matcher.snapshot().layers:
        versions.add_kinds(kinds, versions.kinds_in(layer.segment))
        segments += _save(place, layer.segment, job, sharding)
    for group in due(segments):
        segments = [s for s in segments if s not in group] + _merge(place, old, group)
    version = replace(
        old,
        version=job.version,
        ids=old.ids if old.segments else ("string" if job.text_ids else "int64"),
        weighted=old.weighted or job.weighted,
        kinds=kinds,
        segments=tuple(segments),
        rejected=0,
        sharding=sharding,
        about={"rows": table.num_rows, "changes": True},
    )
    place.commit(version)
    return version, bad


def _last_changes(table: pa.Table, old: Version) -> pa.Table:
    missing = {"id", "expression"} - set(table.column_names)
    if missing:
        raise DibsError(f"the changes have no column {', '.join(sorted(missing))}, only {table.column_names}")
    if "deleted" not in table.column_names:
        table = table.append_column("deleted", pa.nulls(len(table), pa.bool_()))
    id_type = pa.large_string() if old.ids == "string" else pa.int64()
    try:
        table = table.set_column(table.column_names.index("id"), "id", table["id"].cast(id_type))
    except pa.ArrowInvalid as e:
        raise DibsError(f"the ids of this index are of the type {old.ids}, those of the changes are not: {e}") from e
    last = {id: row for row, id in enumerate(table["id"].to_pylist())}
    return table if len(last) == len(table) else table.take(pa.array(sorted(last.values())))


def _cuts(version: Version) -> Cuts | None:
    cuts = version.sharding.get("cuts")
    return None if cuts is None else Cuts(tuple((a, k, v) for a, k, v in cuts))


def _copy(sharding: dict[str, Any]) -> dict[str, Any]:
    if not sharding:
        return {}
    return {**sharding, "reach": [{a: list(asked) for a, asked in its.items()} for its in sharding["reach"]]}


def _without(place: Place, old: Version, before: State, after: State) -> list[VersionSegment]:
    """The old segments, with what is gone now."""
    result = []
    for stored, was, now in zip(old.segments, before.layers, after.layers):
        if now.gone.count > was.gone.count:
            staged = place.staging
            name, head = versions.save_removed(staged, now.gone.list_rows())
            place.upload(staged, [name])
            stored = replace(stored, removed=name, removed_head=head, removed_rows=now.gone.count)
        if stored.removed_rows < stored.rows:
            result.append(stored)
    return result


def _save(place: Place, segment: Segment, job: Job, sharding: dict[str, Any]) -> list[VersionSegment]:
    """The new segment, or one for each shard that its rows belong to."""
    segment = replace(segment, versions=np.full(len(segment), job.version, np.int64))
    if job.cuts is None:
        return [_store(place, segment, 0)]
    access = access_keys(segment)
    shard = job.cuts.place(access)
    result = []
    for number in np.unique(shard).tolist():
        rows = np.flatnonzero(shard == number)
        for attribute, asked in reach_of(access, rows).items():
            widen(sharding["reach"][number], attribute, asked)
        result.append(_store(place, merge([(segment, rows)], job.choice), number))
    sharding["routes"] = [route(each, job.types) for each in sharding["reach"]]
    return result


def _store(place: Place, segment: Segment, shard: int) -> VersionSegment:
    staged = place.staging
    stored = versions.save_segment(staged, segment, shard)
    place.upload(staged, [stored.file])
    return stored


def _merge(place: Place, old: Version, group: list[VersionSegment]) -> list[VersionSegment]:
    wanted = replace(old, segments=tuple(group))
    layers: tuple[Layer, ...] = versions.load_state(place.fetch(wanted), wanted).layers
    parts = [(layer.segment, layer.gone.find_kept()) for layer in layers if len(layer)]
    return [_store(place, merge(parts, old.choice), group[0].shard)] if parts else []
