"""In a worker: which events are matched by which matcher, whose files this machine has, and with which documents before
them.

Mapped      compiled subscriptions, mapped once per process; by shards, if the events were routed
Shipment    those of a micro-batch: the matcher of the batch before, with the steps that it lacks
texts       a few, before the kernels are there (cold.py)

DocumentFile, Meeting   documents for all events, or for those that meet them (joins/worker.py)
Reading                 those before each event of a stream (joins/growing_worker.py)
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Union

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dibs.errors import FormatError
from dibs.history.history import History
from dibs.language.present import Now, datetime_at
from dibs.matcher import Matcher
from dibs.spark.cold import open_texts
from dibs.spark.joins.columns import name_columns
from dibs.spark.joins.growing_worker import Reading, find_home
from dibs.spark.joins.worker import DocumentFile, Meet, Meeting, open_replicated
from dibs.spark.places import Folder, cache_folder, place_of, remove_unused
from dibs.spark.shipping import Artifact, receive
from dibs.spark.snapshots import BASES, Follower, Snapshot
from dibs.storage import versions
from dibs.storage.manifest import HEAD
from dibs.storage.versions import Version, is_versioned

NO_SHARD = -1  # of rows that only tell of an event: that it is there, and what is wrong with it


@dataclass(frozen=True)
class Mapped:
    path: str
    text: str  # the version
    files: dict[str, bytes] | Artifact | None = None  # its content, for workers that do not see the path
    routed: bool = False  # the columns shard and problem stand before all others

    @property
    def version(self) -> Version:
        return read_version(self.text)


@dataclass(frozen=True)
class Shipment:
    state: str
    snapshot: Snapshot
    steps: dict[str, bytes] | None = None  # None: workers see the state folder


DocumentSource = Union[DocumentFile, Meeting, Reading, None]


@dataclass(frozen=True)
class EventColumns:
    """Of a batch: what is carried, [the time of the match,] the attributes[, the event's time][, its partition]."""

    carried: tuple[str, ...]  # come out as they are: the event's id and what is kept
    names: tuple[str, ...]  # of the columns of attributes
    attributes: str | None
    timed: bool = False
    own_time: str | None = None  # the attribute that holds the event's own time of the match
    aged: bool = False
    numbered: bool = False

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The attributes, as a matcher takes them."""
        first = len(self.carried) + self.timed
        return name_columns(batch.columns[first : first + len(self.names)], self.names, self.attributes)

    def find_now(self, batch: pa.RecordBatch) -> Now:
        """The time of the match, which is the same in all rows."""
        if not self.timed:
            return self.own_time
        times = pc.drop_null(batch.column(len(self.carried)))
        return datetime_at(_microseconds(times[:1])[0].as_py()) if len(times) else None

    def find_oldest(self, batch: pa.RecordBatch) -> float | None:
        """The earliest time of these events, in seconds since 1970."""
        if not self.aged:
            return None
        first = pc.min(_microseconds(batch.column(batch.num_columns - 1 - self.numbered))).as_py()
        return None if first is None else first / 1e6


def _microseconds(times: pa.Array) -> pa.Array:
    return times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())


@dataclass(frozen=True)
class Turn:
    """Events that follow each other."""

    events: pa.RecordBatch
    matcher: Any  # a Matcher, or a TextMatcher; None: they are only told of
    now: Now = None
    number: int = 0  # of their partition, as it was read: one task may do several, and several tasks the same one
    problem: pa.Array | None = None  # what is wrong with them, if that is known
    history: History | None = None  # the documents before them, to which they are added
    here: Any = None  # which of them are told of; None: all
    seconds: float = 0.0  # that it took to find them

    def slice(self, start: int, size: int) -> Turn:
        problem = None if self.problem is None else self.problem.slice(start, size)
        here = None if self.here is None else self.here[start : start + size]
        return replace(self, events=self.events.slice(start, size), problem=problem, here=here)


def deal(
    batches: Iterable[pa.RecordBatch],
    subscriptions: Any,
    documents: DocumentSource,
    events: EventColumns,
    sent: Any = None,
) -> Iterator[Turn]:
    """Opens the subscriptions; then the events, turn by turn. sent: a broadcast of the files of a Shipment's base, for
    workers that do not see them."""
    now: Now = None
    if isinstance(subscriptions, Mapped) and subscriptions.routed:
        return _deal_shards(batches, subscriptions, events)
    if isinstance(subscriptions, Mapped):
        matcher: Any = open_matcher(subscriptions.path, subscriptions.version, subscriptions.files)
    elif isinstance(subscriptions, Shipment):
        matcher, fixed = follow(subscriptions, sent), subscriptions.snapshot.now
        now = None if fixed is None else datetime_at(fixed)  # the same when the batch is repeated
    else:
        matcher = open_texts(subscriptions)
    if isinstance(documents, Reading):
        return _deal_homes(batches, matcher, now, documents, events)
    if isinstance(documents, DocumentFile):
        matcher = open_replicated(matcher, documents)
    return _deal(batches, matcher, now, documents, events)


def _deal(
    batches: Iterable[pa.RecordBatch], matcher: Any, now: Now, documents: DocumentSource, events: EventColumns
) -> Iterator[Turn]:
    met = Meet(matcher, documents) if isinstance(documents, Meeting) else None
    for batch in batches if met is None else met.events(batches):
        number = batch.column(batch.num_columns - 1)[0].as_py() if events.numbered and len(batch) else 0
        own = events.find_now(batch) if now is None else now
        yield Turn(batch, matcher if met is None else met.matcher(), own, number)


def _deal_homes(
    batches: Iterable[pa.RecordBatch], matcher: Matcher, now: Now, reading: Reading, events: EventColumns
) -> Iterator[Turn]:
    """batches: numbers of homes, whose events are matched here."""
    for home in (home for batch in batches for home in batch.column(0).to_pylist()):
        began = time.perf_counter()
        found = find_home(home, reading, events.carried)
        if found is not None:
            taken = time.perf_counter() - began
            yield Turn(found.events, matcher, now, home, history=found.history, here=found.here, seconds=taken)


def _deal_shards(batches: Iterable[pa.RecordBatch], mapped: Mapped, events: EventColumns) -> Iterator[Turn]:
    """Rows of one shard stand together."""
    for batch in batches:
        shards = batch.column(0).to_numpy()
        cuts = np.flatnonzero(np.diff(shards)) + 1
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(shards)]):
            part = batch.slice(start, end - start)
            rest = part.select(range(2, part.num_columns))
            if not len(part):
                continue
            if shards[start] == NO_SHARD:
                yield Turn(rest, None, problem=part.column(1))
            else:
                matcher = open_matcher(mapped.path, mapped.version, mapped.files, int(shards[start]))
                # What is wrong with an event was told when it was routed.
                yield Turn(rest, matcher, events.find_now(rest), problem=pa.nulls(len(rest), pa.string()))


@lru_cache(maxsize=8)
def read_version(text: str) -> Version:
    return versions.from_text(text, "a job")


# ---- subscriptions that change ----

_followers: dict[str, Follower] = {}  # by state folder: one for each stream; workers live on from batch to batch


def follow(shipment: Shipment, sent: Any) -> Matcher:
    """The matcher of this process, at the snapshot."""
    follower = _followers.setdefault(shipment.state, Follower(threads=1))
    state = Path(shipment.state)
    base = _base(state / BASES / shipment.snapshot.base, shipment, sent)
    return follower.bring_to(base, shipment.snapshot, state if shipment.steps is None else shipment.steps)


def _base(base: Path, shipment: Shipment, sent: Any) -> Path:
    """The folder of the base on this machine, written now if need be."""
    if (base / HEAD).exists() or is_versioned(base):
        return base
    if sent is None:
        raise FormatError(
            f"{base} is not there on a worker's machine, and too large to be sent: give state=, a folder on a "
            "filesystem that the driver and all workers share"
        )
    return write_here(shipment.snapshot.base, sent.value)


# ---- compiled subscriptions: their files on this machine, and the Matcher that maps them ----

OPENED = 4  # indexes, or shards of one, that a worker keeps mapped


def open_matcher(
    path: str, version: Version, files: dict[str, bytes] | Artifact | None, shard: int | None = None
) -> Matcher:
    """The version, or a shard of it. files: its content, for a machine that does not see the path."""
    return _open(_here(path, version, files, shard), versions.to_text(version), shard)


@lru_cache(maxsize=OPENED)  # workers live on from job to job
def _open(folder: Path, text: str, shard: int | None) -> Matcher:
    version = versions.from_text(text, "a job")
    state = versions.load_state(folder, version, shard)
    # One thread: Spark runs a worker on each core already.
    return Matcher.of_state(state, version.index, threads=1, options=version.options, types=version.types)


def _here(path: str, version: Version, files: dict[str, bytes] | Artifact | None, shard: int | None) -> Path:
    """The folder of this machine that has the files."""
    place = place_of(path)
    if not isinstance(place, Folder):
        return place.fetch(version, shard)
    names = version.files(shard)
    if files is None or all((place.path / name).exists() for name in names):
        if not place.path.is_dir():
            raise FormatError(
                f"{path} is not there on a worker's machine: it must be on a filesystem that the driver and all "
                "workers share, or a URL"
            )
        return place.path
    return write_here(version.fingerprint, receive(files))


def write_here(name: str, files: dict[str, bytes]) -> Path:
    """A folder of this machine with these files. name: by which it is found again."""
    root = cache_folder()
    target = root / name
    if not target.exists():
        remove_unused(root)
        partial = root / f"{secrets.token_hex(8)}.partial"
        for name, content in files.items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).write_bytes(content)
        try:
            partial.rename(target)
        except OSError:  # another worker was faster
            shutil.rmtree(partial)
            if not target.exists():
                raise
    target.touch()
    return target
