"""The history of a stream, which grows: each event sees the documents before it, and then is one.

    micro-batch ─> land: events with keys, as files ─> numbers, keys and a record of the batch (safe on the disk)
    landed events ─> dealt out by the keys that they ask for ─> with the documents of these keys, matched in turn

Within a micro-batch events come in the order of `History.order`; without it, in that of Spark's tasks and of the rows
within a task, which is the order of offsets within each partition of a topic, and of lines within each file. Landing
fixes it: whatever is done with a batch afterwards, also after a crash, reads what was landed.

A micro-batch is two jobs, landing and matching, without a shuffle: documents are looked up by whoever asks for them, in
files that all workers see (growing_parts.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from dibs.errors import DibsError
from dibs.history.retention import check_retain
from dibs.language.joins import read_attributes
from dibs.language.printer import JOIN
from dibs.matcher import Matcher
from dibs.spark.events import as_frame, attribute_places, event_place, is_for_arrow
from dibs.spark.frames import cores_of
from dibs.spark.joins.growing_log import Log, Record
from dibs.spark.joins.growing_parts import Kept, Merging, StoredPart, new_name, number_part, rekey_part, sort_rows
from dibs.spark.joins.growing_worker import Landing, Reading
from dibs.spark.joins.history import History
from dibs.spark.joins.keys import Keys, find_keys
from dibs.spark.shipping import in_worker

if TYPE_CHECKING:
    from dibs.spark.micro_batch import Wanted

LAND = "dibs.spark.joins.growing_worker:land"
TASKS_PER_CORE = 2  # that match a micro-batch, at most
EVENTS_PER_TASK = 500  # at least, if there are several
BINARY = "UTF8_BINARY"  # the collation of strings that have none
SORTED = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType, BinaryType)
TOLD = "task int, file string, unreadable bigint"
WIDER = {  # types that a column may have had before, when it has this one now
    "smallint": ("tinyint",),
    "int": ("tinyint", "smallint"),
    "bigint": ("tinyint", "smallint", "int"),
    "double": ("float", "tinyint", "smallint", "int"),
}


class GrowingHistory:
    def __init__(self, history: History, log: Log, asked: Wanted) -> None:
        self._history, self._log, self._asked = history, log, asked
        self.retain = check_retain(history.retain)
        if self.retain.count is not None and self.retain.age is not None:
            raise DibsError("the history of a stream is retained by count or by age, not by both: leave one out")
        if history.attributes is not None or history.plan != "auto":
            raise DibsError("History(attributes=, plan=) are for match: in a stream documents are read as its events")
        self._keys: tuple[Any, Keys] | None = None
        self._landed: tuple[Any, Landing, list[int]] | None = None
        self._merging = Merging(log.parts)

    def check(self, events: DataFrame, queries: Collection[str | None]) -> None:
        """Before anything is started. queries: which one of them is to go on, if any was there before."""
        self._history.find_order(events)
        if self._history.documents is not None:
            self._own_documents(events)
        last = self._log.read_last(queries)
        if last is not None:
            self._check_types(last.parts, events)

    def close(self) -> None:
        self._merging.close()

    def find_keys(self, matcher: Matcher) -> Keys:
        """Of the joins of the subscriptions, if a stream takes them."""
        version = matcher.version
        if self._keys is None or self._keys[0] != version:
            self._keys = version, find_keys(JOIN + text for text in matcher.joins)
        keys = self._keys[1]
        if keys.unkeyed and not self._history.every:
            raise DibsError(
                f"{keys.unkeyed[0]} equates no attribute of documents with one of the event, so that in each "
                "micro-batch every document must be sent to every task: if there are not too many for that, give "
                "history=dibs.spark.History(..., every=True), with retain= to keep them few"
            )
        return keys

    # ---- landing ----

    def begin(self, events: DataFrame, batch: int, query: str, matcher: Matcher) -> Record:
        """The record of a batch: what was begun before, or the events as they come, made safe."""
        record = self._log.read(batch, query)
        if record is None:
            before = self._log.read_before(batch, query)
            if before is None and self._history.documents is not None:
                before = self._land(self._own_documents(events), matcher, (), 0, None)
                if before.unreadable:
                    raise DibsError(f"{before.unreadable:,} of the documents before the first event cannot be read")
            parts: tuple[StoredPart, ...] = ()
            start, newest = 0, None
            if before is not None:
                self._check_types(before.parts, events)
                start, newest = before.end, before.latest
                kept = self._find_kept(start, newest)
                parts = self._merging.adopt(tuple(part for part in before.parts if kept.is_left(part)))
                parts = self._rekey(parts, events, matcher)
                self._merging.start(parts, _describe(events), kept)
            record = self._land(events, matcher, parts, start, newest)
            self._log.write(batch, record, query)
        self._log.tidy(batch, query, self._merging.names)
        return record

    def _land(
        self, events: DataFrame, matcher: Matcher, before: tuple[StoredPart, ...], start: int, newest: int | None
    ) -> Record:
        """The events as a part, after those before. start, newest: the next number, the greatest time so far."""
        keys = self.find_keys(matcher)
        landing, places = self._landing(events, keys, matcher)
        frame = _number_columns(events, places)
        orders = [places.index(place) for place in self._history.find_order(events)]
        sorts_here = all(_is_sorted_alike(events.schema.fields[places[place]].dataType) for place in orders)
        if not sorts_here:
            frame = frame.orderBy(*(f"c{place}" for place in orders))
        name = f"part-{secrets.token_hex(8)}"
        folder = self._log.parts / name
        folder.mkdir(parents=True)
        told = frame.mapInArrow(in_worker(LAND, landing, str(folder), called="dibs_land"), TOLD).collect()
        files = tuple(row.file for row in sorted(told, key=lambda row: row.task) if row.file is not None)
        missing = [file for file in files if not (folder / file).exists()]
        if missing:
            raise DibsError(
                f"{folder / missing[0]}, which a worker has written, is not there on the driver's machine: the state "
                "folder must be on a filesystem that the driver and all workers share, when there is a history"
            )
        names, types = zip(*_describe(events))
        part = StoredPart(name, files, 0, start, None, names, types, tuple(keys.key_attributes), new_name("keys"))
        order = sort_rows(self._log.parts, part, orders) if orders and sorts_here else None
        part, latest = number_part(self._log.parts, part, order, start, newest)
        return Record(before, part, start, newest, part.end, latest, sum(row.unreadable for row in told))

    def _rekey(self, parts: tuple[StoredPart, ...], events: DataFrame, matcher: Matcher) -> tuple[StoredPart, ...]:
        """With the keys that subscriptions ask for by now."""
        keys = self.find_keys(matcher)
        asked = frozenset(keys.key_attributes)
        if all(asked <= set(part.keys) for part in parts):
            return parts
        id_place = event_place(events, self._asked.event_id, "event_id")
        places = attribute_places(events, frozenset(read_attributes(asked)), id_place, self._asked.attributes)
        names = [events.columns[place] for place in places]
        given = (names, self._asked.attributes, keys.key_attributes)
        return tuple(part if asked <= set(part.keys) else rekey_part(self._log.parts, part, *given) for part in parts)

    def _find_kept(self, number: int, newest: int | None) -> Kept:
        """What retention leaves before the document of this number."""
        count, age = self.retain.count, self.retain.microseconds
        return Kept(0 if count is None else number - count, None if age is None or newest is None else newest - age)

    def _check_types(self, parts: Iterable[StoredPart], events: DataFrame) -> None:
        """That the documents that are there have the types that events have now."""
        now = dict(_describe(events))
        for part in parts:
            for name, kind in zip(part.columns, part.types):
                if name in now and now[name] != kind and kind not in WIDER.get(now[name], ()):
                    raise DibsError(
                        f"the column {name!r} of the events is of the type {now[name]}, and of the type {kind} in the "
                        f"history of this stream: cast it to {kind}, give it another name, or remove "
                        f"{self._log.folder} to begin again without documents"
                    )

    def _own_documents(self, events: DataFrame) -> DataFrame:
        """The documents before the first event, in columns of the events."""
        frame = as_frame(self._history.documents, events.sparkSession)
        if frame.isStreaming:
            raise DibsError("the documents before a stream's first event are a batch DataFrame")
        columns = []
        for field in events.schema.fields:
            if field.name not in frame.columns:
                columns.append(F.lit(None).cast(field.dataType).alias(field.name))
                continue
            found = frame.schema.fields[event_place(frame, field.name, "history")].dataType
            if found != field.dataType:
                raise DibsError(
                    f"the column {field.name!r} of the documents is of the type {found.simpleString()}, and that of "
                    f"the events {field.dataType.simpleString()}: cast it"
                )
            columns.append(F.col(f"c{frame.columns.index(field.name)}").alias(field.name))
        return frame.toDF(*(f"c{i}" for i in range(len(frame.columns)))).select(*columns)

    def _landing(self, events: DataFrame, keys: Keys, matcher: Matcher) -> tuple[Landing, list[int]]:
        """What workers must know, and the columns of the events that are kept: the same while subscriptions are."""
        known = self._landed
        if known is None or known[0] != matcher.version:
            known = self._landed = matcher.version, *self._new_landing(events, keys, matcher)
        return known[1:]

    def _new_landing(self, events: DataFrame, keys: Keys, matcher: Matcher) -> tuple[Landing, list[int]]:
        kept = _kept_places(events)
        by = self.retain.by if self.retain.age is not None else None
        attributes = frozenset(matcher.attributes)
        mentioned = attributes | keys.document_attributes | ({by} if by is not None else set())
        id_place = event_place(events, self._asked.event_id, "event_id")
        places = attribute_places(events, mentioned, id_place, self._asked.attributes)
        landing = Landing(
            [kept.index(place) for place in places],
            [events.columns[place] for place in places],
            self._asked.attributes,
            attributes,
            [(pair.event, pair.document) for pair in keys.pairs],
            keys.key_attributes,
            by,
        )
        return landing, kept

    # ---- matching ----

    def read(self, events: DataFrame, record: Record, matcher: Matcher) -> Reading:
        """What tasks must know to match a batch. Each has one of its homes."""
        keys, asked = self.find_keys(matcher), self._asked
        landing, _ = self._landing(events, keys, matcher)
        return Reading(
            folder=str(self._log.parts),
            before=record.before,
            own=record.own,
            kept=self._find_kept(record.start, record.started),
            homes=_count_homes(record.own.rows, cores_of(events.sparkSession)),
            every=bool(keys.unkeyed),
            names=tuple(landing.names),
            attributes=asked.attributes,
            event_id=asked.event_id,
            keep=asked.keep,
            event_time=asked.event_time,
            retain=self.retain,
        )


def _count_homes(rows: int, cores: int) -> int:
    """As many on each core, once there are enough events for all cores."""
    tasks = 1 + rows // EVENTS_PER_TASK
    return tasks if tasks < cores else min(TASKS_PER_CORE, tasks // cores) * cores


def _describe(events: DataFrame) -> list[tuple[str, str]]:
    """The name and type of each column that documents are kept with."""
    fields = [events.schema.fields[place] for place in _kept_places(events)]
    return [(field.name, field.dataType.simpleString()) for field in fields]


def _is_sorted_alike(kind: DataType) -> bool:
    """Whether the driver sorts such values as Spark does."""
    if isinstance(kind, StringType):
        return getattr(kind, "collation", BINARY) in (BINARY, None)
    return isinstance(kind, SORTED)


def _kept_places(events: DataFrame) -> list[int]:
    """The columns that documents are kept with: all that Python can be handed."""
    return [i for i, field in enumerate(events.schema.fields) if is_for_arrow(field.dataType)]


def _number_columns(events: DataFrame, places: list[int]) -> DataFrame:
    numbered = events.toDF(*(f"e{i}" for i in range(len(events.columns))))
    return numbered.select(*(F.col(f"e{place}").alias(f"c{i}") for i, place in enumerate(places)))
