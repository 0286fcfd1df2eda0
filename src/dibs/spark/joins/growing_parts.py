"""The parts of a history that grows, as files: documents in Arrow's own format, and where each key stands in them.

    NAME/rows-*.arrow    what one task has landed, or all of a merged part: the columns c0, c1, ... of the events, then,
                         of what a task has landed, those of LANDED
    NAME/numbers.arrow   number, time, newest (NEVER: none) of each row of all these files, in their order
    NAME/keys-*.arrow    key, row: by key

All of them are mapped, and never change. So a task that asks for some keys looks at their documents only, however many
there are, and a micro-batch costs what it is, not what came before it.

Small parts are merged beside the stream: no micro-batch waits for it. What a thread has merged takes the place of its
parts when a batch begins after that. If the process ends before, the parts are still there, and what was written is
named by no batch, so it is removed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.errors import FormatError
from dibs.spark.joins.columns import name_columns, read_keys
from dibs.spark.joins.hashes import hash_documents
from dibs.spark.merging import count_small
from dibs.storage.files import replace_file
from dibs.tuning import tuned

NUMBERS = "numbers.arrow"
# a merge in the batch made it wait 12 s at 32 parts
SPARK_HISTORY_PARTS = tuned("spark_history_parts", 32, 1, "micro-batches", "whose documents are not put together yet")
LANDED = ("time", "keys", "asks")  # microseconds; the keys of a document; those of the documents that an event asks for
NEVER = np.iinfo(np.int64).min  # no time
TOGETHER = 65_536  # rows of a merged part that are written at once
OPENED = 128  # parts that a process keeps mapped

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class StoredPart:
    name: str
    files: tuple[str, ...]  # in order
    rows: int
    end: int  # the number after its last document
    latest: int | None  # the greatest time; None: some document has no time, and stays
    columns: tuple[str, ...]  # the names of c0, c1, ...
    types: tuple[str, ...]  # of Spark
    keys: tuple[str, ...]  # the attributes whose keys are stored
    index: str  # the file of keys


class OpenPart:
    """A part, mapped."""

    def __init__(self, folder: Path, part: StoredPart) -> None:
        self.part = part
        self._batches = [batch for name in part.files for batch in _map(folder / part.name / name)]
        self._starts = np.cumsum([0, *(len(batch) for batch in self._batches)])
        numbers = _columns(folder / part.name / NUMBERS)
        self.number, self.time, self.newest = (numbers[name] for name in ("number", "time", "newest"))
        index = _columns(folder / part.name / part.index)
        self.key, self.row = index["key"], index["row"]

    def find(self, keys: RowNumbers) -> RowNumbers:
        """The rows that have one of these keys, in order."""
        first, last = np.searchsorted(self.key, keys), np.searchsorted(self.key, keys, "right")
        return np.unique(self.row[expand(first, last - first)])

    def asked(self) -> tuple[RowNumbers, RowNumbers]:
        """Of a part that was landed: where the keys that each row asks for begin, and the keys."""
        lists = [batch.column("asks") for batch in self._batches]
        return list_ends(lists), flat(lists)

    def take(self, rows: RowNumbers, place: int | None, kind: pa.DataType | None = None) -> pa.Array:
        """A column of some rows, which are in order; None: it has none, all are null. kind: the type to be."""
        cuts = np.searchsorted(rows, self._starts)
        taken = [] if place is None else [
            self._batches[i].column(place).take(pa.array(rows[low:high] - self._starts[i]))
            for i, (low, high) in enumerate(zip(cuts, cuts[1:]))
            if low < high
        ]  # fmt: skip
        kind = kind or self.kind(place)
        if not taken:
            return pa.nulls(len(rows), kind)
        return pa.concat_arrays([array if array.type == kind else array.cast(kind) for array in taken])

    def kind(self, place: int | None) -> pa.DataType:
        return self._batches[0].column(place).type if place is not None and self._batches else pa.null()


@lru_cache(maxsize=OPENED)
def open_part(folder: Path, part: StoredPart) -> OpenPart:
    return OpenPart(folder, part)


def expand(first: RowNumbers, counts: RowNumbers) -> RowNumbers:
    """first[0], first[0] + 1, ..., counts[0] of them; then those of first[1]."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - counts), counts)


def flat(lists: Iterable[pa.ListArray]) -> RowNumbers:
    return np.concatenate([np.empty(0, np.int64), *(each.flatten().to_numpy() for each in lists)])


def list_ends(lists: Iterable[pa.ListArray]) -> RowNumbers:
    lengths = [pc.list_value_length(each).to_numpy(zero_copy_only=False) for each in lists]
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]), dtype=np.int64)


# ---- writing ----


def write_rows(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Safe on the disk when this returns."""

    def write(file: object) -> None:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

    replace_file(path, write)


def number_part(
    folder: Path, part: StoredPart, order: RowNumbers | None, start: int, newest: int | None
) -> tuple[StoredPart, int | None]:
    """Gives what tasks have landed its numbers, from `start` on, and the index of its keys. order: the rows as they
    came; None: as they stand. newest: the greatest time before them. Returns the part, and the greatest time after
    them."""
    batches = [batch for name in part.files for batch in _map(folder / part.name / name)]
    times = [batch.column("time").fill_null(NEVER).to_numpy() for batch in batches]
    time = np.concatenate([np.empty(0, np.int64), *times])
    order = np.arange(len(time)) if order is None else order
    number, before = np.empty(len(time), np.int64), np.empty(len(time), np.int64)
    number[order] = start + np.arange(len(time))
    running = np.maximum.accumulate(np.append(NEVER if newest is None else newest, time[order]))
    before[order] = running[:-1]
    keys = [batch.column("keys") for batch in batches]
    own = np.repeat(np.arange(len(time)), np.diff(list_ends(keys)))
    _write_columns(folder / part.name / NUMBERS, number=number, time=time, newest=before)
    _write_index(folder / part.name / part.index, flat(keys), own)
    part = replace(part, rows=len(time), end=start + len(time), latest=_latest(time))
    return part, None if running[-1] == NEVER else int(running[-1])


def sort_rows(folder: Path, part: StoredPart, places: Sequence[int]) -> RowNumbers:
    """The rows of a landed part by these columns, as Spark orders them: nulls before, NaN behind all others."""
    batches = [batch for name in part.files for batch in _map(folder / part.name / name)]
    columns = [_ranks(pa.chunked_array([batch.column(p) for batch in batches])) for p in places] if batches else []
    return np.lexsort(columns[::-1]) if columns else np.empty(0, np.int64)


def _ranks(column: pa.ChunkedArray) -> RowNumbers:
    """Numbers in the order of the values; nulls are -1."""
    if pa.types.is_floating(column.type):  # NumPy has NaN behind all others; Arrow would have it beside null
        _, ranks = np.unique(column.fill_null(0.0).to_numpy(), return_inverse=True)
    else:
        column = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
        ranks = pc.rank(column.combine_chunks(), sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return np.where(column.is_null().to_numpy(), -1, ranks)


def merge_parts(
    folder: Path, name: str, parts: Sequence[StoredPart], columns: Sequence[tuple[str, str]], kept: Kept
) -> StoredPart:
    """The documents that retention has left of parts that follow each other, as one part with these columns (name and
    type). All of them have the same keys."""
    rows = [kept.rows(open_part(folder, part)) for part in parts]
    starts = np.cumsum([0, *map(len, rows)])
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    opened = [open_part(folder, part) for part in parts]
    kinds = [_newest_kind(opened, column) for column, _ in columns]
    schema = pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])

    def batches() -> Iterator[pa.RecordBatch]:
        waiting: list[list[pa.Array]] = []
        count = 0
        for part, own in zip(opened, rows):
            for start in range(0, len(own), TOGETHER):
                some = own[start : start + TOGETHER]
                places = [place_of(part.part, column) for column, _ in columns]
                waiting.append([part.take(some, place, kind) for place, kind in zip(places, kinds)])
                count += len(some)
                if count >= TOGETHER:
                    yield _together(waiting, schema)
                    waiting, count = [], 0
        if waiting:
            yield _together(waiting, schema)

    file, index = "rows.arrow", new_name("keys")
    write_rows(target / file, schema, batches())
    numbers = {
        n: np.concatenate([getattr(p, n)[r] for p, r in zip(opened, rows)]) for n in ("number", "time", "newest")
    }
    _write_columns(target / NUMBERS, **numbers)
    key, row = [], []
    for part, own, start in zip(opened, rows, starts.tolist()):
        there = np.full(part.part.rows, -1, np.int64)
        there[own] = start + np.arange(len(own))
        left = there[part.row] >= 0
        key.append(part.key[left])
        row.append(there[part.row][left])
    _write_index(target / index, np.concatenate(key), np.concatenate(row))
    names, types = zip(*columns)
    total, time = int(starts[-1]), numbers["time"]
    return StoredPart(name, (file,), total, parts[-1].end, _latest(time), names, types, parts[-1].keys, index)


def rekey_part(
    folder: Path, part: StoredPart, names: Sequence[str], attributes: str | None, key_attributes: Sequence[str]
) -> StoredPart:
    """The part with the keys of these attributes of documents, which are in the columns called `names`."""
    opened = open_part(folder, part)
    lists = []
    for start in range(0, part.rows, TOGETHER):
        rows = np.arange(start, min(start + TOGETHER, part.rows))
        places = [place_of(part, name) for name in names]
        columns = [opened.take(rows, place, None if place is not None else pa.null()) for place in places]
        values = read_keys(name_columns(columns, names, attributes), key_attributes, attributes)
        lists.append(hash_documents(values, key_attributes, every=False))
    index = new_name("keys")
    _write_index(folder / part.name / index, flat(lists), np.repeat(np.arange(part.rows), np.diff(list_ends(lists))))
    return replace(part, keys=tuple(key_attributes), index=index)


@dataclass(frozen=True)
class Kept:
    """What retention leaves: documents from this number on, and of this time or later, or without one."""

    number: int = 0
    time: int | None = None

    def rows(self, part: OpenPart) -> RowNumbers:
        return np.flatnonzero(self.among(part, np.arange(part.part.rows)))

    def among(self, part: OpenPart, rows: RowNumbers) -> NDArray[np.bool_]:
        """Which of these rows."""
        left = part.number[rows] >= self.number
        if self.time is not None:
            left &= (part.time[rows] == NEVER) | (part.time[rows] >= self.time)
        return left

    def is_left(self, part: StoredPart) -> bool:
        """Whether any document may be."""
        old = self.time is not None and part.latest is not None and part.latest < self.time
        return part.rows > 0 and not old and part.end > self.number


def new_name(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(8)}.arrow"


def place_of(part: StoredPart, column: str) -> int | None:
    return part.columns.index(column) if column in part.columns else None


def _newest_kind(parts: Sequence[OpenPart], column: str) -> pa.DataType:
    """As the newest part has it that has it."""
    kinds = (part.kind(place_of(part.part, column)) for part in reversed(parts) if part.part.rows)
    return next((kind for kind in kinds if kind != pa.null()), pa.null())


def _together(waiting: list[list[pa.Array]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.concat_arrays(column) for column in zip(*waiting)], schema=schema)


def _latest(time: RowNumbers) -> int | None:
    return None if not len(time) or time.min() == NEVER else int(time.max())


def _write_index(path: Path, key: RowNumbers, row: RowNumbers) -> None:
    order = np.argsort(key, kind="stable")
    _write_columns(path, key=key[order], row=row[order])


def _write_columns(path: Path, **columns: RowNumbers) -> None:
    batch = pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})
    write_rows(path, batch.schema, [batch])


def _columns(path: Path) -> dict[str, RowNumbers]:
    (batch,) = _map(path)
    return {name: batch.column(name).to_numpy() for name in batch.schema.names}


def _map(path: Path) -> list[pa.RecordBatch]:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
    except FileNotFoundError:
        raise FormatError(
            f"{path} is not there on this machine: the state folder must be on a filesystem that the driver and all "
            "workers share, when there is a history"
        ) from None
    return [reader.get_batch(i) for i in range(reader.num_record_batches)]


# ---- merging ----

log = logging.getLogger("dibs.spark")


class Merging:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: tuple[str, tuple[StoredPart, ...], Future[StoredPart]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of parts that no batch names yet."""
        return () if self._under_way is None else (self._under_way[0],)

    def adopt(self, parts: tuple[StoredPart, ...]) -> tuple[StoredPart, ...]:
        """The parts, with what is merged by now in place of what it was merged from."""
        if self._under_way is None or not self._under_way[2].done():
            return parts
        (_, merged, future), self._under_way = self._under_way, None
        own = [place for place, part in enumerate(parts) if part.name in {old.name for old in merged}]
        # Those that retention has dropped since are missing at the front; another index of one means other keys.
        if not own or parts[own[0] : own[-1] + 1] != merged[len(merged) - len(own) :]:
            return parts
        failed = future.exception()
        if failed is not None:
            log.warning("parts of the history cannot be merged, and stay as they are for now: %s", failed)
            return parts
        return (*parts[: own[0]], future.result(), *parts[own[-1] + 1 :])

    def start(self, parts: tuple[StoredPart, ...], columns: Sequence[tuple[str, str]], kept: Kept) -> None:
        """Begins to merge the newest of these, if they are many, and nothing is being merged."""
        chosen = choose(parts)
        if self._under_way is not None or not chosen:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "dibs-history")
        name = f"part-{secrets.token_hex(8)}"
        future = self._pool.submit(merge_parts, self._folder, name, chosen, list(columns), kept)
        self._under_way = name, chosen, future

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def choose(parts: tuple[StoredPart, ...]) -> tuple[StoredPart, ...]:
    """The newest small parts, if they are more than `spark_history_parts`, of those that have the same keys."""
    alike = list(takewhile(lambda part: part.keys == parts[-1].keys, reversed(parts)))
    small = count_small(part.rows for part in alike)
    return parts[len(parts) - small :] if small > max(1, SPARK_HISTORY_PARTS.value) else ()
