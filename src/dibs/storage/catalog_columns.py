"""Many entries at once: Arrow columns to the bytes of keys, records and blocks of the log, and back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from dibs.coding.domain import string_buffers
from dibs.index.papers.pbtree.lmdb_pages import NODE, Meta, key_size
from dibs.storage.catalog_check import subscriptions_tree, sum_records
from dibs.storage.catalog_records import (
    BLOCK_HEAD,
    BLOCK_LIMIT,
    INTEGER,
    LONG_KEY,
    RECORD_HEAD,
    SIGN,
    STRING,
    load64,
    sealed,
)
from dibs.storage.lmdb_check import Damage, Pages, data_place, data_size, walked


class Columns(NamedTuple):
    """Entries whose ids are of one type, in the order of the catalog."""

    ids: pa.Array  # int64 or large_string
    texts: pa.Array  # large_string
    weights: NDArray[np.float64]
    versions: NDArray[np.int64]
    times: NDArray[np.int64]  # UTC microseconds


class Slices(NamedTuple):
    """Keys and values, one after the other: key i is content[at[2 * i] : at[2 * i + 1]], its value follows it."""

    content: bytes
    at: NDArray[np.int64]
    total: int  # the sum of the checksums

    def __len__(self) -> int:
        return len(self.at) // 2

    def pairs(self, start: int, end: int) -> list[tuple[bytes, bytes]]:
        content, at = self.content, self.at[2 * start : 2 * end + 1].tolist()
        return [(content[a:b], content[b:c]) for a, b, c in zip(at[::2], at[1::2], at[2::2])]


class Ids(NamedTuple):
    """Ids as the bytes that follow the first one of their keys."""

    kind: int
    starts: NDArray[np.int64]
    content: NDArray[np.uint8]

    @staticmethod
    def of(ids: pa.Array) -> Ids:
        if pa.types.is_integer(ids.type):
            flipped = ids.to_numpy().view(np.uint64) ^ np.uint64(SIGN)
            return Ids(INTEGER, np.arange(len(ids) + 1) * 8, flipped.astype(">u8").view(np.uint8))
        return Ids(STRING, *string_buffers(ids))

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.starts)


def in_order(ids: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows in the order of their ids; of equal ids the last row only."""
    if len(rows) < len(ids):
        ids = ids.take(pa.array(rows))
    if pa.types.is_integer(ids.type):
        values = ids.to_numpy()
        if (values[1:] > values[:-1]).all():
            return rows
        order = np.argsort(values, kind="stable")
        repeated = values[order[1:]] == values[order[:-1]]
    else:
        if pc.all(pc.less(ids[:-1], ids[1:])).as_py() is not False:
            return rows
        order = pc.sort_indices(ids).to_numpy().astype(np.int64)
        ordered = ids.take(pa.array(order))
        repeated = pc.equal(ordered[:-1], ordered[1:]).to_numpy(zero_copy_only=False)
    return rows[order[~np.append(repeated, False)]]


def records_of(
    ids: Ids, texts: pa.Array, weights: NDArray[np.float64], rows: NDArray[np.int64], version: int, time: int
) -> Slices:
    """Keys and records of the rows; row i has the version `version` + i. No id is a long one."""
    starts, content = string_buffers(texts)
    sizes = np.empty((len(rows), 2), np.int64)
    sizes[:, 0] = 1 + ids.sizes[rows]
    sizes[:, 1] = RECORD_HEAD.size + np.diff(starts)[rows]
    at = np.zeros(2 * len(rows) + 1, np.int64)
    np.cumsum(sizes.ravel(), out=at[1:])
    out = np.empty(at[-1], np.uint8)
    total = _fill_records(ids.kind, ids.starts, ids.content, starts, content, weights, rows, version, time, at, out)
    return Slices(out.tobytes(), at, int(total))


def log_of(ids: Ids, version: int) -> Slices:
    """Keys and blocks of a log of adds; row i has the version `version` + i."""
    extra = 1 if ids.kind == INTEGER else 5
    firsts = _block_rows(ids.starts, extra)
    starts = ids.starts[firsts] + extra * firsts + (8 + BLOCK_HEAD.size) * np.arange(len(firsts))
    at = np.empty(2 * len(firsts) - 1, np.int64)
    at[::2] = starts
    at[1::2] = starts[:-1] + 8
    out = np.empty(at[-1], np.uint8)
    total = _fill_blocks(ids.kind, ids.starts, ids.content, firsts, version, at, out)
    return Slices(out.tobytes(), at, int(total))


def read_columns(pages: Pages, it: Meta) -> list[Columns]:
    """All entries, those with integers first. Checks what it reads."""
    tree = subscriptions_tree(pages, it)
    places = walked(pages, tree, np.zeros(it.last_page + 1, np.uint8), "subscriptions")
    if sum_records(pages.u1, pages.u2, pages.size, places)[1] >= 0:
        raise Damage("a subscription does not fit its checksum")
    integers = int(_count_integers(pages.u1, places))
    parts = [(pa.int64(), places[:integers]), (pa.large_string(), places[integers:])]
    return [_columns(pages, type_, own) for type_, own in parts if len(own)]


def _columns(pages: Pages, type_: pa.DataType, places: NDArray[np.int64]) -> Columns:
    u1, u2, size = pages.u1, pages.u2, pages.size
    n = len(places)
    id_starts, text_starts = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    _sizes(u1, u2, size, places, id_starts, text_starts)
    np.cumsum(id_starts, out=id_starts)
    np.cumsum(text_starts, out=text_starts)
    ids, texts = np.empty(id_starts[-1], np.uint8), np.empty(text_starts[-1], np.uint8)
    numbers = np.empty((3, n), np.int64)
    _fill_columns(u1, u2, size, places, id_starts, ids, text_starts, texts, numbers)
    if type_ == pa.int64():
        column = pa.array((ids.view(">u8").astype(np.uint64) ^ np.uint64(SIGN)).view(np.int64))
    else:
        column = _strings(id_starts, ids)
    return Columns(column, _strings(text_starts, texts), numbers[2].view(np.float64), numbers[0], numbers[1])


def _strings(starts: NDArray[np.int64], content: NDArray[np.uint8]) -> pa.Array:
    return pa.LargeStringArray.from_buffers(len(starts) - 1, pa.py_buffer(starts), pa.py_buffer(content))


@njit(cache=True, nogil=True, inline="always")
def _put(out, at, value, size):  # type: ignore[no-untyped-def]
    """`size` bytes of a word, the lowest first."""
    for k in range(size):
        out[at + k] = np.uint8(value >> np.uint64(8 * k) & np.uint64(0xFF))


@njit(cache=True, nogil=True)
def _fill_records(kind, id_starts, ids, starts, texts, weights, rows, version, time, at, out):  # type: ignore[no-untyped-def]
    total = np.uint64(0)
    numbers = weights.view(np.uint64)
    for i in range(len(rows)):
        row = rows[i]
        key, record, end = at[2 * i], at[2 * i + 1], at[2 * i + 2]
        out[key] = kind
        for k in range(id_starts[row + 1] - id_starts[row]):
            out[key + 1 + k] = ids[id_starts[row] + k]
        _put(out, record + 8, np.uint64(version + row), 8)
        _put(out, record + 16, np.uint64(time), 8)
        _put(out, record + 24, numbers[row], 8)
        for k in range(starts[row + 1] - starts[row]):
            out[record + 32 + k] = texts[starts[row] + k]
        sum_ = sealed(out, key, record - key, record + 8, end - record - 8)
        _put(out, record, sum_, 8)
        total += sum_
    return total


@njit(cache=True, nogil=True)
def _block_rows(id_starts, extra):  # type: ignore[no-untyped-def]
    """The first row of each block, and the number of rows."""
    n = len(id_starts) - 1
    firsts = np.empty(n + 1, np.int64)
    blocks, held = 0, BLOCK_LIMIT + 1
    for i in range(n):
        size = id_starts[i + 1] - id_starts[i] + extra
        if held + size > BLOCK_LIMIT:
            firsts[blocks] = i
            blocks += 1
            held = 12
        held += size
    firsts[blocks] = n
    return firsts[: blocks + 1].copy()


@njit(cache=True, nogil=True)
def _fill_blocks(kind, id_starts, ids, firsts, version, at, out):  # type: ignore[no-untyped-def]
    total = np.uint64(0)
    for b in range(len(firsts) - 1):
        key, block, end = at[2 * b], at[2 * b + 1], at[2 * b + 2]
        for k in range(8):
            out[key + k] = np.uint8(np.uint64(version + firsts[b]) >> np.uint64(56 - 8 * k) & np.uint64(0xFF))
        _put(out, block + 8, np.uint64(firsts[b + 1] - firsts[b]), 4)
        place = block + 12
        for row in range(firsts[b], firsts[b + 1]):
            size = id_starts[row + 1] - id_starts[row]
            out[place] = kind
            place += 1
            if kind == STRING:
                _put(out, place, np.uint64(size), 4)
                place += 4
            for k in range(size):
                out[place + k] = ids[id_starts[row] + k]
            place += size
        sum_ = sealed(out, key, 8, block + 8, end - block - 8)
        _put(out, block, sum_, 8)
        total += sum_
    return total


@njit(cache=True, nogil=True)
def _count_integers(u1, places):  # type: ignore[no-untyped-def]
    for i in range(len(places)):
        if u1[places[i] + NODE] != INTEGER:
            return i
    return len(places)


@njit(cache=True, nogil=True, inline="always")
def _id(u1, u2, place, data):  # type: ignore[no-untyped-def]
    """(where the id is, its size, bytes of the record before the text)."""
    length = key_size(u2, place)
    if length == LONG_KEY:
        size = np.int64(load64(u1, data + 32) & np.uint64(0xFFFFFFFF))
        return data + 36, size, 36 + size
    return place + NODE + 1, length - 1, np.int64(32)


@njit(cache=True, nogil=True)
def _sizes(u1, u2, size, places, id_sizes, text_sizes):  # type: ignore[no-untyped-def]
    """Those of row i at i + 1."""
    for i in range(len(places)):
        place = places[i]
        _, id_sizes[i + 1], head = _id(u1, u2, place, data_place(u1, u2, place, size))
        text_sizes[i + 1] = data_size(u2, place) - head


@njit(cache=True, nogil=True)
def _fill_columns(u1, u2, size, places, id_starts, ids, text_starts, texts, numbers):  # type: ignore[no-untyped-def]
    for i in range(len(places)):
        place = places[i]
        data = data_place(u1, u2, place, size)
        source, _, head = _id(u1, u2, place, data)
        for k in range(id_starts[i + 1] - id_starts[i]):
            ids[id_starts[i] + k] = u1[source + k]
        for k in range(text_starts[i + 1] - text_starts[i]):
            texts[text_starts[i] + k] = u1[data + head + k]
        for k in range(3):
            numbers[k, i] = np.int64(load64(u1, data + 8 + 8 * k))
