"""The rows of a catalog: their checksums, one by one and in bulk, and reading all of them as columns.

A checksum is over everything in the row and the identity of the catalog, so that a row of another catalog does not fit
either. It is 64 bits wide; the state of the catalog holds the sum of all of them, which tells of rows that are missing
or have come back.

All rows are read by having SQLite put some thousands of them together: their strings with a byte between that occurs in
no UTF-8, their numbers as text. That is half the time of making Python objects of them, and other threads go on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy
from dibs.coding.domain import string_buffers
from dibs.segments.ids import Id
from dibs.segments.segment import DEFAULT_WEIGHT
from dibs.storage.catalog_kernels import (
    INTEGER,
    STRING,
    checksum_row,
    fill_checksums,
    is_ascending,
    read_numbers,
    split_into,
)
from dibs.tuning import tuned

CATALOG_ROWS_READ = tuned("catalog_rows_read", 10_000, 2, "rows", "of the catalog that are read at once")

SIGN, MASK = 1 << 63, (1 << 64) - 1


class Entry(NamedTuple):
    """A subscription of the catalog."""

    id: Id
    text: str
    weight: float
    version: int  # of the change that put it there
    time: int  # of that change: UTC microseconds


class CatalogColumns(NamedTuple):
    """Entries whose ids are of one type, in the order of their versions."""

    ids: pa.Array  # int64 or large_string
    texts: pa.Array  # large_string
    weights: NDArray[np.float64]
    versions: NDArray[np.int64]
    times: NDArray[np.int64]  # UTC microseconds


class CatalogArrays(NamedTuple):
    """Rows as arrays: the strings (and the eight bytes of integers) one after the other."""

    kinds: NDArray[np.uint8]
    id_starts: NDArray[np.int64]
    ids: NDArray[np.uint8]
    text_starts: NDArray[np.int64]
    texts: NDArray[np.uint8]
    weights: NDArray[np.float64]  # no -0.0, which SQLite does not keep
    versions: NDArray[np.int64]
    times: NDArray[np.int64]


class Unsound(Exception):
    """A row is not as it was written."""


def seed_of(identity: str) -> np.uint64:
    return np.uint64(int(identity[:16], 16))


def total(sums: NDArray[np.int64]) -> int:
    """The sum of checksums, as SQLite can keep it."""
    return wrap(int(sums.view(np.uint64).sum(dtype=np.uint64)))


def wrap(value: int) -> int:
    return ((value + SIGN) & MASK) - SIGN


# ---- making rows ----


def checksum_of(entry: Entry, seed: np.uint64) -> int:
    """That of one row."""
    id, text, weight, version, time = entry
    if isinstance(id, str):
        kind, key = STRING, id.encode()
    else:
        kind, key = INTEGER, int(id).to_bytes(8, "little", signed=True)
    strings = np.frombuffer(key, np.uint8), np.frombuffer(text.encode(), np.uint8)
    return int(checksum_row(seed, kind, *strings, weight + 0.0, version, time))


def rows_of_columns(
    ids: pa.Array, texts: pa.Array, weights: NDArray[np.float64], versions: NDArray[np.int64], time: int
) -> CatalogArrays:
    n = len(ids)
    if pa.types.is_integer(ids.type):
        kind, starts, content = INTEGER, np.arange(n + 1) * 8, to_numpy(ids).astype("<i8").view(np.uint8)
    else:
        kind, (starts, content) = STRING, string_buffers(ids)
    return CatalogArrays(
        np.full(n, kind, np.uint8), starts, content, *string_buffers(texts), weights + 0.0, versions, np.full(n, time)
    )


def checksums_of(rows: CatalogArrays, seed: np.uint64) -> NDArray[np.int64]:
    result = np.empty(len(rows.versions), np.int64)
    for array in rows:
        array.flags.writeable = False  # so that one compiled version serves all
    fill_checksums(rows, seed, result)
    return result


# ---- reading rows ----


def entries_of(found: Sequence[tuple[Any, ...]], seed: np.uint64) -> list[Entry]:
    """Rows as SQLite gives them, (id, text, weight, version, time, checksum), whose checksums fit. Raises Unsound."""
    entries = []
    for *values, checksum in found:
        entry = Entry(*values)
        if type(entry.id) not in (int, str) or tuple(map(type, values[1:])) != (str, float, int, int):
            raise Unsound(f"the row of version {entry.version} has a value of another type than was written")
        if checksum_of(entry, seed) != checksum:
            raise _misfit(entry.id, entry.version)
        entries.append(entry)
    return entries


ALL = """
    SELECT group_concat(typeof(id) = 'text', ''), CAST(group_concat(id, x'ff') AS BLOB),
        CAST(group_concat(version) AS BLOB){}
    FROM subscriptions {} WHERE {} > ? AND {} <= ?"""
REST = """,
        CAST(group_concat(expression, x'ff') AS BLOB), CAST(group_concat(time) AS BLOB),
        CAST(group_concat(checksum) AS BLOB)"""
ROWS = ALL.format(REST, "NOT INDEXED", "version", "version")
INDEX = ALL.format("", "INDEXED BY by_id", "id", "id")
WEIGHTS = f"""
    SELECT version, weight FROM subscriptions
    WHERE version > ? AND version <= ? AND weight IS NOT {DEFAULT_WEIGHT}"""


def all_rows(connection: sqlite3.Connection, seed: np.uint64) -> Iterator[tuple[CatalogArrays, NDArray[np.int64]]]:
    """All subscriptions and their checksums, which fit, by version and some thousand at a time. Raises Unsound."""
    for low, high, found in _in_portions(connection, ROWS, "version", -1, 2**63 - 1):
        content, times, sums = found[3:]
        kinds, id_starts, ids, versions = _keys(found)
        n = len(kinds)
        text_starts, texts = _split(content, np.full(n, STRING, np.uint8))
        if not (versions[1:] > versions[:-1]).all():
            raise Unsound(f"rows of the versions {low + 1} to {high} are not as they were written")
        weights = np.full(n, DEFAULT_WEIGHT)
        others = connection.execute(WEIGHTS, (low, high)).fetchall()
        if others:
            if any(type(weight) is not float for _, weight in others):
                raise Unsound("a weight is no number")
            weights[np.searchsorted(versions, [version for version, _ in others])] = [weight for _, weight in others]
        rows = CatalogArrays(kinds, id_starts, ids, text_starts, texts, weights, versions, _numbers(times, n))
        checksums = _numbers(sums, n)
        _check(rows, checksums, seed)
        yield rows, checksums


def index_rows(connection: sqlite3.Connection) -> Iterator[CatalogArrays]:
    """What the index of ids says: ids and versions only, in the order of ids. Raises Unsound."""
    # Whatever is a number is above minus infinity; whatever is a text is below a blob.
    for _, _, found in _in_portions(connection, INDEX, "id", float("-inf"), b""):
        kinds, id_starts, ids, versions = _keys(found)
        rows = bare(CatalogArrays(kinds, id_starts, ids, versions, ids, versions, versions, versions))  # type: ignore[arg-type]
        if not is_ascending(kinds, id_starts, ids):
            raise Unsound("the index of ids is not in order")
        yield rows


def bare(rows: CatalogArrays) -> CatalogArrays:
    """Ids and versions only."""
    n = len(rows.versions)
    nothing = np.zeros(n + 1, np.int64)
    return rows._replace(text_starts=nothing, texts=rows.ids[:0], weights=np.zeros(n), times=nothing[:n])


def _in_portions(
    connection: sqlite3.Connection, query: str, by: str, low: Any, last: Any
) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """(low, high, what the query finds above low and up to high), until all was found."""
    at_once = CATALOG_ROWS_READ.value
    bound = f"SELECT {by} FROM subscriptions WHERE {by} > ? ORDER BY {by} LIMIT 1 OFFSET ?"
    while low != last:
        ends = connection.execute(bound, (low, at_once - 1)).fetchall()
        high = ends[0][0] if ends else last
        try:
            [found] = connection.execute(query, (low, high)).fetchall()
        except sqlite3.DataError:  # too much for one string
            if at_once == 1:
                raise
            at_once = -(-at_once // 2)
            continue
        if found[0] is not None:
            yield low, high, found
        low = high


def _keys(found: tuple[Any, ...]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    kinds, ids, versions = found[:3]
    its = np.frombuffer(kinds.encode(), np.uint8) - np.uint8(48)
    return its, *_split(ids, its), _numbers(versions, len(its))


def _check(rows: CatalogArrays, checksums: NDArray[np.int64], seed: np.uint64) -> None:
    wrong = np.flatnonzero(checksums_of(rows, seed) != checksums)
    if len(wrong):
        first = int(wrong[0])
        id = rows.ids[rows.id_starts[first] : rows.id_starts[first + 1]].tobytes()
        text = rows.kinds[first] == STRING
        shown = id.decode(errors="replace") if text else int.from_bytes(id, "little", signed=True)
        raise _misfit(shown, int(rows.versions[first]))


def _misfit(id: Id, version: int) -> Unsound:
    return Unsound(f"the row of {id!r}, version {version}, does not fit its checksum")


def columns_of(portions: list[CatalogArrays]) -> list[CatalogColumns]:
    """The rows as Arrow columns: one part for each type of ids that there is, integers first."""
    result = []
    for kind in (INTEGER, STRING):
        own = [_columns(rows, kind) for rows in portions if (rows.kinds == kind).any()]
        if own:
            ids, texts, *numbers = zip(*own)
            result.append(CatalogColumns(pa.concat_arrays(ids), pa.concat_arrays(texts), *map(np.concatenate, numbers)))
    return result


def _columns(rows: CatalogArrays, kind: int) -> CatalogColumns:
    mask = rows.kinds == kind
    ids, texts = _binary(rows.id_starts, rows.ids), _binary(rows.text_starts, rows.texts)
    if not mask.all():
        ids, texts = ids.filter(from_numpy(mask)), texts.filter(from_numpy(mask))
    if kind == INTEGER:
        _, content = string_buffers(ids)
        column = from_numpy(content.view("<i8").astype(np.int64))
    else:
        column = ids.view(pa.large_string())
    own = (rows.weights[mask], rows.versions[mask], rows.times[mask])
    return CatalogColumns(column, texts.view(pa.large_string()), *own)


def _binary(starts: NDArray[np.int64], content: NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


def _split(content: bytes | None, kinds: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The strings between separators, and the eight bytes of integers."""
    starts, content = np.empty(len(kinds) + 1, np.int64), content or b""  # no value at all: NULL
    out = np.empty(len(content) + 8 * len(kinds), np.uint8)
    size = split_into(np.frombuffer(content, np.uint8), kinds, starts, out)
    if size < 0:
        raise Unsound("rows have other values than were written")
    return starts, out[:size]


def _numbers(content: bytes | None, n: int) -> NDArray[np.int64]:
    """Numbers with commas between."""
    result = np.empty(n, np.int64)
    if not read_numbers(np.frombuffer(content or b"", np.uint8), result):
        raise Unsound("rows have other numbers than were written")
    return result
