"""What a batch with joins over history runs in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from dibs.history.history import History
from dibs.history.retention import Retain
from dibs.language.types import check_types
from dibs.matcher import Matcher
from dibs.spark.joins.columns import name_columns, read_keys
from dibs.spark.joins.hashes import hash_documents, hash_events
from dibs.spark.joins.keys import Pair

OPENED = 4  # matchers with documents that a worker keeps


@dataclass(frozen=True)
class DocumentFile:
    """Replicated documents: an Arrow file, or its content for workers that do not see it."""

    path: str
    content: bytes | None
    names: list[str]
    attributes: str | None


@dataclass(frozen=True)
class Meeting:
    """Partitioned documents: what workers must know, as plain values."""

    pairs: list[tuple[str, str]]
    key_attributes: list[str]
    every: bool
    homes: int
    event_names: list[str]  # of the last columns of the events
    event_attributes: str | None
    document_names: list[str]  # of the last columns of the documents
    document_attributes: str | None


# ---- keys ----


def ask(batches: Iterable[pa.RecordBatch], meeting: Meeting) -> Iterator[pa.RecordBatch]:
    """The events with the keys that they ask for, and their homes."""
    pairs = [Pair(*pair) for pair in meeting.pairs]
    for batch in batches:
        columns = name_columns(_last(batch, meeting.event_names), meeting.event_names, meeting.event_attributes)
        asks = hash_events(read_keys(columns, (pair.event for pair in pairs), meeting.event_attributes), pairs)
        yield _extend(batch, asks=asks, home=find_homes(asks, meeting.homes))


def hold(batches: Iterable[pa.RecordBatch], meeting: Meeting) -> Iterator[pa.RecordBatch]:
    """The documents with their keys."""
    for batch in batches:
        columns = name_columns(
            _last(batch, meeting.document_names), meeting.document_names, meeting.document_attributes
        )
        values = read_keys(columns, meeting.key_attributes, meeting.document_attributes)
        yield _extend(batch, keys=hash_documents(values, meeting.key_attributes, meeting.every))


def find_homes(asks: pa.ListArray, homes: int) -> pa.Array:
    """Where events are matched: with others that have the same first key; those that ask for none, anywhere. It follows
    from the keys alone, as events may be read twice, in another order."""
    offsets = asks.offsets.to_numpy()
    first = np.arange(len(asks), dtype=np.int64)
    asking = np.diff(offsets) > 0
    first[asking] = asks.values.to_numpy()[offsets[:-1][asking]]
    return pa.array((first % homes).astype(np.int32))


def _last(batch: pa.RecordBatch, names: list[str]) -> list[pa.Array]:
    return batch.columns[batch.num_columns - len(names) :]


def _extend(batch: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, *columns.values()], names=[*batch.schema.names, *columns])


# ---- matching ----


class Meet:
    """The rows of one partition: documents, and then events, which `events` gives. `matcher` has the documents, from
    the first event on."""

    def __init__(self, matcher: Matcher, meeting: Meeting):
        self._open, self._meeting = matcher, meeting
        self._documents: list[pa.RecordBatch] = []
        self._matcher: Matcher | None = None

    def events(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = 2 + len(self._meeting.document_names)
        for batch in batches:
            cut = int(np.searchsorted(batch.column(0).to_numpy(), 1))
            if cut:
                self._documents.append(batch.slice(0, cut).select(range(1, own)))
            if cut < len(batch):
                yield batch.slice(cut).select(range(own, batch.num_columns))

    def matcher(self) -> Matcher:
        if self._matcher is None:
            self._matcher = give_documents(self._open, self._table(), self._meeting.document_attributes)
        return self._matcher

    def _table(self) -> pa.Table | None:
        """The documents, each once: the same one stands beside itself."""
        if not self._documents:
            return None
        table = pa.Table.from_batches(self._documents)
        self._documents = []
        numbers = table.column(0).to_numpy()
        kept = table.filter(pa.array(np.append(True, np.diff(numbers) != 0))).combine_chunks()
        columns = [column.chunk(0) if column.num_chunks else column.combine_chunks() for column in kept.columns[1:]]
        return pa.Table.from_batches(
            [name_columns(columns, self._meeting.document_names, self._meeting.document_attributes)]
        )


def give_documents(matcher: Matcher, documents: pa.Table | None, attributes: str | None) -> Matcher:
    """One with the same subscriptions and these documents, of its own."""
    own = Matcher.of_state(matcher.snapshot(), matcher.index, threads=1, types=matcher.types)
    history = History(Retain(), check_types(matcher.types))
    if documents is not None and len(documents):
        history.load(documents, attributes=attributes)
    own.history = history
    return own


@lru_cache(maxsize=OPENED)
def _replicated(matcher: Matcher, path: str, names: tuple[str, ...], attributes: str | None) -> list[Matcher]:
    return []  # filled by `open_replicated`, as the content is not for a cache's key


def open_replicated(matcher: Matcher, file: DocumentFile) -> Matcher:
    """The matcher with the documents of a file, once for a process."""
    opened = _replicated(matcher, file.path, tuple(file.names), file.attributes)
    if not opened:
        source = pa.memory_map(file.path) if file.content is None else pa.BufferReader(file.content)
        table = pa.ipc.open_file(source).read_all().combine_chunks()
        columns = [pa.concat_arrays(column.chunks) if column.num_chunks else _none(column) for column in table.columns]
        documents = pa.Table.from_batches([name_columns(columns, file.names, file.attributes)])
        opened.append(give_documents(matcher, documents, file.attributes))
    return opened[0]


def _none(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([], column.type)
