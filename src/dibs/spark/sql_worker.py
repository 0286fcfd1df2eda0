"""What the SQL functions run in Spark's Python workers: arrays of events in, arrays of what was found out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)
from pyspark.sql.udtf import AnalyzeResult

from dibs.errors import DibsError, EventError
from dibs.language.sql import validate
from dibs.matcher import Matcher
from dibs.spark.dealing import EventColumns, Mapped, Turn, open_matcher, read_version
from dibs.spark.found import Found, read_event
from dibs.spark.places import Folder, place_of
from dibs.spark.shipping import Artifact
from dibs.spark.worker import Slices, Task, match_turns
from dibs.storage import store, versions

EVENT = "event"  # the one column, which holds the attributes
COLUMNS = EventColumns((), (EVENT,), EVENT)
IDS = {"string": pa.string(), "bigint": pa.int64()}


@dataclass(frozen=True)
class Named:
    """An index, as workers must know it."""

    path: str
    version: str
    files: dict[str, bytes] | Artifact | None


class Index:
    """An index that a task uses."""

    def __init__(self, named: Named) -> None:
        self.version = read_version(named.version)
        self.matcher: Matcher = open_matcher(named.path, self.version, named.files)
        self._mapped = Mapped(named.path, named.version)
        self._slices: Slices | None = None

    def find(self, events: pa.Array, count_only: bool = False) -> dict[str, pa.Array]:
        """The columns of what was found, a row for each event."""
        found = Found(self.version.ids != "int64", () if count_only else ("ids",), count_only=count_only)
        batch = pa.RecordBatch.from_arrays([events], names=[EVENT])
        task = Task(self._mapped, COLUMNS, found)
        self._slices = self._slices or Slices(task)
        rows = list(match_turns([Turn(batch, self.matcher)], task, {}, self._slices))
        if len(rows) == 1:
            return dict(zip(rows[0].schema.names, rows[0].columns))
        names = rows[0].schema.names if rows else []
        return {name: pa.concat_arrays([part.column(name) for part in rows]) for name in names}

    def explain(self, events: pa.Array, ids: pa.Array) -> pa.Array:
        """Null for an id that is null, or of no subscription."""
        known = ids.cast(pa.int64() if self.version.ids == "int64" else pa.string()).to_pylist()
        columns = pa.RecordBatch.from_arrays([events], names=[EVENT])
        return pa.array([self._explain(columns, row, id) for row, id in enumerate(known)], pa.string())

    def _explain(self, events: pa.RecordBatch, row: int, id: Any) -> str | None:
        if id is None or id not in self.matcher:
            return None
        try:
            return str(self.matcher.explain(id, read_event(events, row, EVENT)))
        except (EventError, ValueError, OverflowError) as error:  # a date, say, that Python does not have
            return f"the event cannot be read: {error}"


class Indexes:
    """Those that a task has asked for: each is looked up once."""

    def __init__(self, named: dict[str, Named]) -> None:
        self._named = named
        self._open: dict[str, Index] = {}

    def get(self, name: str) -> Index:
        if name not in self._open:
            own = self._named.get(name)
            self._open[name] = Index(find_path(name, self._named) if own is None else own)
        return self._open[name]

    def each(self, index: pa.Array, find: Callable[[Index, pa.Array], pa.Array], kind: pa.DataType) -> pa.Array:
        """find: of the rows that have an index, by their places, what is found there. Most often all have the same."""
        names = index.unique().to_pylist()
        if len(names) == 1 and names[0] is not None:
            return find(self.get(names[0]), pa.array(np.arange(len(index)))).cast(kind)
        parts, places = [], []
        for name in names:
            own = pc.indices_nonzero(pc.equal(index, name) if name is not None else index.is_null())
            parts.append(pa.nulls(len(own), kind) if name is None else find(self.get(name), own).cast(kind))
            places.append(own.to_numpy())
        if not parts:
            return pa.array([], kind)
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(places))))


def find_path(path: str, named: Iterable[str]) -> Named:
    """What lies at a path or URL: the newest version of compiled subscriptions, or saved ones."""
    place = place_of(path)
    if not isinstance(place, Folder) or versions.is_versioned(place.path):
        version = place.read()
    elif (place.path / store.HEAD).exists() and not store.is_durable(place.path):
        manifest, segments = store.load_all(Path(place.path))
        version = versions.of_saved(place.path, manifest, segments)
    else:
        known = ", ".join(sorted(named)) or "none"
        raise DibsError(
            f"{path!r} is neither a name of dibs.spark.use (there are: {known}) nor the path of what "
            "dibs.spark.compile or Matcher.save has written, as a worker sees it"
        )
    if version.joins:
        raise DibsError(f"{path}: subscriptions that ask for the documents before are no index of SQL: use match")
    return Named(place.name, versions.to_text(version), None)


def run(batches: Iterator[tuple[pa.Array, ...]], what: str, named: dict[str, Named], ids: str) -> Iterator[pa.Array]:
    """One of the functions, over the batches of a task."""
    indexes = Indexes(named)
    kind = {"match": pa.list_(IDS[ids]), "count": pa.int64()}.get(what, pa.string())
    for batch in batches:
        if what == "validate":
            texts = batch if isinstance(batch, pa.Array) else batch[0]  # Spark hands one argument over alone
            yield pa.array(map(_validate, texts.to_pylist()), kind)
            continue
        *given, index = batch

        def find(own: Index, rows: pa.Array, given: list[pa.Array] = given) -> pa.Array:
            chosen = given if len(rows) == len(given[0]) else [column.take(rows) for column in given]
            if what == "explain":
                return own.explain(chosen[1], chosen[0])
            return own.find(chosen[0], count_only=what == "count")["matches" if what == "count" else "ids"]

        yield indexes.each(index, find, kind)


# ---- the table function ----


@dataclass
class Described(AnalyzeResult):  # type: ignore[misc]  # pyspark is untyped here
    """What the table function gives, and of which type its events are."""

    event: DataType = field(default_factory=NullType)


def describe_rows(event: DataType, ids: str) -> Described:
    kind = StringType() if ids == "string" else LongType()
    return Described(StructType().add("subscription_id", kind).add("weight", DoubleType()), event=event)


class TableRows:
    """The rows of the table function, one event after the other."""

    def __init__(self, kind: DataType, named: dict[str, Named], ids: str) -> None:
        self._kind, self._indexes, self._id = kind, Indexes(named), str if ids == "string" else int

    def find(self, event: Any, index: str | None) -> list[tuple[Any, float]]:
        if index is None:
            return []
        plain = to_plain(event, self._kind)
        given = [plain or {}] if not isinstance(plain, (str, bytes)) else plain
        found = self._indexes.get(index).matcher.match_batch(given, on_error="skip").pairs(True, False)
        ids, weights = found["subscription"].to_pylist(), found["weight"].to_pylist()
        return [(self._id(id), weight) for id, weight in zip(ids, weights)]


def to_plain(value: Any, kind: DataType) -> Any:
    """A value of a row, as an event of a Matcher has it: timestamps, which Python has in its own zone, in UTC."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {field.name: to_plain(inner, field.dataType) for field, inner in zip(kind.fields, value)}
    if isinstance(kind, MapType):
        return {key: to_plain(inner, kind.valueType) for key, inner in value.items()}
    if isinstance(kind, ArrayType):
        return [to_plain(inner, kind.elementType) for inner in value]
    if isinstance(kind, TimestampType):
        return value.astimezone(dt.timezone.utc)
    return bytes(value) if isinstance(kind, BinaryType) else value


def _validate(text: str | None) -> str | None:
    if text is None:
        return None
    return "\n".join(map(str, validate(text))) or None
