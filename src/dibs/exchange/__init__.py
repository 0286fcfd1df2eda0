"""Export and import: all subscriptions of a matcher as one file that other programs read too.

    .parquet    id, expression, weight, version and, of a durable matcher, time (UTC). `id` is int64 when all ids are
                integers, else a string; where there are both, the column id_is_integer tells 5 from "5".
                The file's metadata: dibs.format, dibs.version (of the matcher), dibs.index, dibs.count, and
                dibs.checksum of what an import reads, because Parquet does not vouch for its own footer. Programs that
                rewrite the file do not take that one over, so an edited export can be imported.
    .jsonl      the same fields, an object a line; ids are numbers or texts as they are, times are ISO 8601 texts,
                and infinite weights, for which JSON has no number, the texts "Infinity" and "-Infinity"

An export is one state of the matcher: what changes meanwhile is in it wholly or not at all. Rows are in the order of
ids, integers ascending, then strings by code point, and nothing depends on how the matcher has filed them: the same
subscriptions give the same bytes. The file gets its name only when it is whole and safe on the disk.

An import takes such files and any other Parquet file, or folder of them, with the columns id, expression and, if there
is one, weight. Subscriptions get new versions and times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arguments import check_callable, check_on_error, check_path
from dibs.bulk import add_columns
from dibs.errors import FormatError, Rejected
from dibs.exchange import files
from dibs.exchange.files import (
    FLAG,
    FORMAT,
    LINES,
    PARQUET,
    ColumnBatch,
    ending_of,
    read_lines,
    read_mixed,
    read_parquet,
    write_lines,
    write_parquet,
)
from dibs.index import AUTO
from dibs.segments.segment import DEFAULT_WEIGHT
from dibs.storage.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from dibs.matcher import Matcher, OnError
    from dibs.storage.catalog_rows import Entry

Progress = Callable[[int], None]  # told how many more rows are done


# ---- export ----


class _Stored(NamedTuple):
    """Subscriptions whose ids are of one type; `rows` of them count."""

    ids: pa.Array
    texts: pa.Array
    weights: NDArray[np.float64] | None  # None: all the default
    versions: NDArray[np.int64]
    times: NDArray[np.int64] | None  # UTC microseconds; None: not kept
    rows: NDArray[np.int64]


def export(matcher: Matcher, path: str | os.PathLike[str], progress: Progress | None = None) -> int:
    """Writes all subscriptions to a .parquet or .jsonl file, in place of the one that stands there, and returns how
    many they are. Raises StorageError (a file that was there is as it was), FormatError for another ending."""
    check_callable("progress", progress)
    version, parts = _state(matcher)
    about: dict[str, Any] = {"version": version, "index": matcher.index}
    if matcher.types:
        about["types"] = json.dumps(matcher.types)
    return _write(check_path(path), parts, about, progress, matcher.durable is not None)


def export_entries(entries: Iterable[Entry], path: str | os.PathLike[str], progress: Progress | None = None) -> int:
    """The same of subscriptions that are somewhere else."""
    own: dict[bool, list[Entry]] = {True: [], False: []}
    for entry in entries:
        own[isinstance(entry.id, int)].append(entry)
    version = max((entry.version for some in own.values() for entry in some), default=0)
    parts = []
    for some in filter(None, own.values()):
        ids, texts, weights, versions, times = zip(*some)
        kind = pa.int64() if isinstance(ids[0], int) else pa.large_string()
        numbers = np.array(weights, np.float64), np.array(versions, np.int64), np.array(times, np.int64)
        parts.append(_Stored(pa.array(ids, kind), pa.array(texts, pa.large_string()), *numbers, np.arange(len(ids))))
    return _write(check_path(path), parts, {"version": version, "index": AUTO}, progress, True)


def _write(
    target: Path, parts: list[_Stored], about: dict[str, Any], progress: Progress | None, with_times: bool
) -> int:
    ending = ending_of(target)
    count = sum(len(part.rows) for part in parts)
    about = {"format": FORMAT, **about, "count": count}
    both = len({part.ids.type for part in parts}) > 1
    types = {"id": parts[0].ids.type if parts and not both else pa.large_string()}
    if both and ending == PARQUET:
        types[FLAG] = pa.bool_()
    types |= {"expression": pa.large_string(), "weight": pa.float64(), "version": pa.int64()}
    if with_times:
        types["time"] = pa.timestamp("us", "UTC")
    schema = pa.schema([pa.field(name, type_, nullable=False) for name, type_ in types.items()])
    schema = schema.with_metadata({f"dibs.{key}": str(value) for key, value in about.items()})

    def write(file: BinaryIO) -> None:
        batches = _tell((columns for own in _by_type(parts) for columns in _batches(own)), progress)
        if ending == PARQUET:
            write_parquet(file, schema, batches)
        else:
            write_lines(file, schema.names, batches)

    replace_file(target, write)
    return count


def _state(matcher: Matcher) -> tuple[int, list[_Stored]]:
    """The version of the matcher and its subscriptions at that version, integers first. A durable matcher's come from
    its catalog, which alone knows the times."""
    durable = matcher.durable
    if durable is not None:
        version, columns = durable.catalog.columns()
        return version, [_Stored(*c[:5], np.arange(len(c.ids))) for c in columns if len(c.ids)]
    snapshot = matcher.snapshot()
    parts = []
    for layer in snapshot.layers:
        s, rows = layer.segment, layer.gone.find_kept()
        if len(rows):
            texts = s.texts_at(np.arange(len(s)))
            parts.append(_Stored(s.ids.ids, texts, s.weights, s.versions, None, rows))
    return snapshot.version, sorted(parts, key=lambda p: not pa.types.is_integer(p.ids.type))


def _by_type(parts: list[_Stored]) -> Iterator[list[_Stored]]:
    for integers in (True, False):
        own = [part for part in parts if pa.types.is_integer(part.ids.type) == integers]
        if own:
            yield own


def _batches(parts: list[_Stored]) -> Iterator[ColumnBatch]:
    """The columns of parts of one type of ids, in the order of ids, some rows at a time."""
    ids = pa.concat_arrays([part.ids.take(pa.array(part.rows)) for part in parts])
    order = pc.sort_indices(ids).to_numpy()  # strings by their bytes, which is by code point
    number = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    row = np.concatenate([part.rows for part in parts])
    for start in range(0, len(ids), files.ROWS):
        at = order[start : start + files.ROWS]
        yield {"id": ids.take(pa.array(at)), **_columns(parts, number[at], row[at])}


def _columns(parts: list[_Stored], number: NDArray[Any], row: NDArray[np.int64]) -> ColumnBatch:
    """All but the ids: of row row[i] of the part number[i]."""
    n = len(row)
    places = [np.flatnonzero(number == i) for i in range(len(parts))]
    weights, versions, times = np.full(n, DEFAULT_WEIGHT), np.empty(n, np.int64), np.empty(n, np.int64)
    texts = []
    for part, at in zip(parts, places):
        rows = row[at]
        texts.append(part.texts.take(pa.array(rows)))
        versions[at] = part.versions[rows]
        if part.weights is not None:
            weights[at] = part.weights[rows]
        if part.times is not None:
            times[at] = part.times[rows]
    back = np.empty(n, np.int64)
    back[np.concatenate(places)] = np.arange(n)
    return {
        "expression": pa.concat_arrays(texts).take(pa.array(back)),
        "weight": pa.array(weights),
        "version": pa.array(versions),
        "time": pa.array(times).cast(pa.timestamp("us", "UTC")),
    }


def _tell(batches: Iterable[ColumnBatch], progress: Progress | None) -> Iterator[ColumnBatch]:
    for columns in batches:
        yield columns
        if progress is not None:
            progress(len(columns["id"]))


# ---- import ----


def import_from(
    matcher: Matcher, path: str | os.PathLike[str], on_error: OnError = "raise", progress: Progress | None = None
) -> list[Rejected]:
    """Adds the subscriptions of a file: all of them or, when one is bad or its id is taken, none (SubscriptionErrors
    lists every one, by its row or line, counted from 0). on_error="skip" adds the good ones and returns the others.
    Raises FormatError or DamagedError for a file that is none of ours."""
    source = check_path(path)
    check_on_error(on_error)
    check_callable("progress", progress)
    matcher.changes.check()  # a matcher that takes no changes says so before the file is read
    if not source.is_dir() and ending_of(source) == LINES:
        ids, texts, weights, places, bad = read_lines(source)
    else:
        table = read_parquet(source)
        _check_types(source, table, matcher)
        if FLAG not in table.column_names:
            return matcher.add_table(table, on_error, progress)
        ids, texts, weights, places, bad = read_mixed(table)
    return add_columns(matcher.changes, ids, texts, weights, places, bad, on_error, progress)


def _check_types(source: Path, table: pa.Table, matcher: Matcher) -> None:
    """Refuses subscriptions that were written for other types."""
    given = (table.schema.metadata or {}).get(b"dibs.types")
    types = json.loads(given) if given else {}
    if given and types != matcher.types:
        own = f"has the types {matcher.types}" if matcher.types else "has no types"
        raise FormatError(
            f"{source} is of a matcher with the types {types}, and this one {own}: make one with the same"
        )
