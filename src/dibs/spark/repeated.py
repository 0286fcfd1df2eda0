"""Ids that stand in a new table more than once, though its rows never travelled by id.

Each segment that is built from rows as they come leaves a small file beside it: the hashes of its ids, sorted, with
their rows and with the positions of these in the table. A task takes a range of hashes of all such files, and looks for
equal ones in two segments (within one segment there are none: it was built by `add_table`). Of rows with the same id
the first in the table stays, as in a matcher; the others leave their segments and become bad subscriptions.

    write_ids        a segment's file (of a task that builds)
    find_repeated    a range of hashes: a file with the rows that must leave, if there are any
    remove_repeated  such rows of one segment: what it has lost, and bad subscriptions
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import feather

from dibs.errors import DuplicateId, Rejected
from dibs.segments.segment import Segment
from dibs.spark.places import Place, place_of
from dibs.spark.tasks import TWICE, Job, bad_rows, tell_rows, write_bad
from dibs.storage import versions
from dibs.storage.versions import Version, VersionSegment

HASH_BITS = 64


def positions_of(segment: Segment, table: pa.Table, bad: list[Rejected]) -> NDArray[np.int64]:
    """Where each row of the segment stands in the table (id, position, ...) that it was built of, without the bad
    rows. (The order may be another: expressions with OR come last in a segment.)"""
    ids, positions = table["id"].combine_chunks().cast(segment.ids.ids.type), table["position"].to_numpy()
    if bad:
        good = np.delete(np.arange(len(table)), [r.position for r in bad])
        ids, positions = ids.take(pa.array(good)), positions[good]
    if ids.equals(segment.ids.ids):
        return positions
    places, rows = segment.ids.find_all(ids)
    result = np.empty(len(segment), np.int64)
    result[rows] = positions[places]
    return result


def write_ids(place: Place, segment: Segment, positions: NDArray[np.int64]) -> str:
    """Writes the file of a segment whose rows stand at these positions of the table."""
    rows = segment.ids.rows
    return _write(place, pa.table({"hash": segment.ids.hashes, "row": rows, "position": positions[rows]}))


def _write(place: Place, table: pa.Table) -> str:
    staged = place.staging
    name = f"{versions.SEGMENTS}/{secrets.token_hex(8)}.ids"
    (staged / name).parent.mkdir(parents=True, exist_ok=True)
    feather.write_feather(table, staged / name, compression="uncompressed")
    place.upload(staged, [name])
    return name


def find_repeated(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """A row that comes in is a text of JSON: the stored segments, the names of their files of ids, and which part of
    how many parts of all hashes to look at."""
    place = place_of(job.path)
    for text in _texts(batches):
        given = json.loads(text)
        stored = [VersionSegment(**s) for s in given["segments"]]
        lost = _find(place, stored, given["ids"], given["part"], given["parts"], job)
        if lost.num_rows:
            segments = lost["segment"].unique().to_pylist()
            yield tell_rows({"lost": _write(place, lost), "segments": segments})


def _find(place: Place, stored: list[VersionSegment], names: list[str], part: int, parts: int, job: Job) -> pa.Table:
    """The rows that must leave: segment (its place in the list), row, position."""
    folder = place.fetch_files(names)
    first, end = (np.uint64(min((number << HASH_BITS) // parts, 2**HASH_BITS - 1)) for number in (part, part + 1))
    tables = []
    for number, name in enumerate(names):
        table = feather.read_table(folder / name, memory_map=True)
        hashes = table["hash"].to_numpy()
        start = int(hashes.searchsorted(first))
        stop = int(hashes.searchsorted(end)) if part + 1 < parts else len(hashes)
        own = table.slice(start, stop - start)
        tables.append(own.append_column("segment", pa.array(np.full(len(own), number, np.int32))))
    together = pa.concat_tables(tables)
    hashes = together["hash"].to_numpy()
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    equal = np.append(False, ordered[1:] == ordered[:-1])
    some = together.take(pa.array(np.sort(order[equal | np.append(equal[1:], False)])))
    return _losers(some, _ids_at(place, stored, some, job)) if some.num_rows else some


def _ids_at(place: Place, stored: list[VersionSegment], rows: pa.Table, job: Job) -> pa.Array:
    """The ids themselves, of rows that are ordered by segment."""
    parts = [pa.array([], job.id_type)]
    for number in rows["segment"].unique().to_pylist():
        own = rows.filter(pc.equal(rows["segment"], number))["row"].combine_chunks()
        parts.append(_open(place, stored[number], job).ids.ids.take(own))
    return pa.concat_arrays(parts)


def _losers(rows: pa.Table, ids: pa.Array) -> pa.Table:
    """Of rows with the same id all but the first in the table."""
    group = ids.dictionary_encode().indices.to_numpy()
    order = np.lexsort((rows["position"].to_numpy(), group))
    again = np.append(False, group[order][1:] == group[order][:-1])
    return rows.take(pa.array(order[again])).select(["segment", "row", "position"])


def remove_repeated(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """A row that comes in is a text of JSON: a stored segment, its number, and the names of files of find_repeated."""
    place = place_of(job.path)
    for text in _texts(batches):
        given = json.loads(text)
        stored, folder = VersionSegment(**given["segment"]), place.fetch_files(given["lost"])
        tables = [feather.read_table(folder / name) for name in given["lost"]]
        lost = pa.concat_tables(tables)
        lost = lost.filter(pc.equal(lost["segment"], given["number"])).sort_by("row")
        rows = lost["row"].to_numpy().astype(np.int64)
        segment, staged = _open(place, stored, job), place.staging
        name, head = versions.save_removed(staged, rows)
        place.upload(staged, [name])
        yield tell_rows({"repeated": stored.file, "file": name, "head": head, "rows": len(rows)})
        texts = segment.texts.take(pa.array(rows)).to_pylist()
        ids = segment.ids.ids.take(pa.array(rows)).to_pylist()
        bad = [Rejected(i, id, text, DuplicateId(id, TWICE)) for i, (id, text) in enumerate(zip(ids, texts))]
        yield tell_rows(write_bad(place, bad_rows(job, bad, lost["position"]), job))


def _open(place: Place, stored: VersionSegment, job: Job) -> Segment:
    one = Version(job.version, job.index, "", job.weighted, {}, (stored,))
    (layer,) = versions.load_state(place.fetch(one), one).layers
    return layer.segment


def _texts(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
