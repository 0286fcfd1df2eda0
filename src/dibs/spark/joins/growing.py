"""The history of a stream, which grows: each event sees the documents before it, and then is one.

    micro-batch ─> land: events with places and keys, as Parquet ─> a record of the batch (safe on the disk)
    landed events, documents before them ─> meet by their keys (meeting.py) ─> matched in turn ─> matches

Within a micro-batch events come in the order of `History.order`; without it, in that of Spark's tasks and of the rows
within a task, which is the order of offsets within each partition of a topic, and of lines within each file. Landing
fixes it: whatever is done with a batch afterwards, also after a crash, reads what was landed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from dibs.errors import DibsError
from dibs.history.retention import check_retain
from dibs.language.printer import JOIN
from dibs.matcher import Matcher
from dibs.spark.events import as_frame, attribute_places, event_place, is_for_arrow
from dibs.spark.frames import cores_of
from dibs.spark.joins.growing_log import OWN, Landed, Log, Record, number_tasks
from dibs.spark.joins.growing_worker import Landing
from dibs.spark.joins.hashes import EVERY
from dibs.spark.joins.history import History
from dibs.spark.joins.keys import Keys, find_keys
from dibs.spark.joins.meeting import bring_together, choose_homes
from dibs.spark.living_worker import MatchColumns, Shipment
from dibs.spark.metrics import CountsByPartition
from dibs.thresholds import thresholds

if TYPE_CHECKING:
    from dibs.spark.micro_batch import Wanted

TASKS_PER_CORE = 2  # that match a micro-batch


class GrowingHistory:
    def __init__(self, history: History, log: Log, asked: Wanted) -> None:
        self._history, self._log, self._asked = history, log, asked
        self.retain = check_retain(history.retain)
        if self.retain.count is not None and self.retain.age is not None:
            raise DibsError("the history of a stream is retained by count or by age, not by both: leave one out")
        if history.attributes is not None or history.plan != "auto":
            raise DibsError("History(attributes=, plan=) are for match: in a stream documents are read as its events")
        self._keys: tuple[Any, Keys] | None = None

    def check(self, events: DataFrame) -> None:
        """Before anything is started."""
        self._history.find_order(events)
        if self._history.documents is not None:
            self._own_documents(events)

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
                before = self._land(self._own_documents(events), matcher, None)
                if before.unreadable:
                    raise DibsError(f"{before.unreadable:,} of the documents before the first event cannot be read")
            before = None if before is None else self._put_together(before, events, matcher)
            record = self._land(events, matcher, before)
            self._log.write(batch, record, query)
        self._log.tidy(batch, query)
        return record

    def _land(self, events: DataFrame, matcher: Matcher, before: Record | None) -> Record:
        """The events as a part, after those of the record before."""
        landing, places = self._landing(events, self.find_keys(matcher), matcher)
        orders = [f"c{places.index(place)}" for place in self._history.find_order(events)]
        frame = _number_columns(events, places)
        frame = frame.orderBy(*orders) if orders else frame
        name = f"part-{secrets.token_hex(8)}"
        landed = events.sparkSession.sparkContext.accumulator({}, CountsByPartition())
        schema = StructType([*(_free(field) for field in frame.schema.fields), *OWN])
        frame.mapInArrow(_landing_function(landing, landed), schema).write.parquet(self._log.part_path(name))
        told = (
            events.sparkSession.read.schema(schema)
            .parquet(self._log.part_path(name))
            .groupBy("part")
            .agg(F.count_if("readable").alias("documents"), F.max("time").alias("time"), F.count("*").alias("rows"))
            .collect()
        )
        rows = sum(row.rows for row in told)
        if rows != sum(landed.value.values()):
            raise DibsError(
                f"of {sum(landed.value.values()):,} events {rows:,} are in {self._log.part_path(name)}: the state "
                "folder must be on a filesystem that the driver and all workers share, when there is a history"
            )
        start, started = (0, None) if before is None else (before.end, before.latest)
        firsts, newest, end, latest = number_tasks(
            ((row.part, row.documents, row.time) for row in told), start, started
        )
        part = Landed(name, tuple(events.columns[p] for p in places), tuple(landing.key_attributes), firsts, newest)
        earlier = () if before is None else (*before.before, before.own)
        return Record(earlier, part, start, started, end, latest, rows - sum(row.documents for row in told))

    def _put_together(self, before: Record, events: DataFrame, matcher: Matcher) -> Record:
        """The record with its parts as one, if they have become many."""
        if len(before.before) < thresholds.spark_history_parts:
            return before
        keys = self.find_keys(matcher)
        places = _kept_places(events)
        columns = [f"c{i}" for i in range(len(places))]
        documents = self._documents(events, before, keys, before.end, before.latest)
        rows = documents.select(
            *columns,
            F.lit(0).alias("part"),
            F.col("number").alias("before"),
            F.lit(True).alias("readable"),
            "time",
            F.lit(None).cast("bigint").alias("newest"),
            "keys",
            F.lit(None).cast("array<bigint>").alias("asks"),
        )
        name = f"part-{secrets.token_hex(8)}"
        rows.coalesce(cores_of(events.sparkSession)).write.parquet(self._log.part_path(name))
        names = tuple(events.columns[p] for p in places)
        own = Landed(name, names, tuple(keys.key_attributes), (0,), (None,))
        return replace(before, before=(), own=own)

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
        """What workers must know, and the columns of the events that are kept."""
        kept = _kept_places(events)
        by = self.retain.by if self.retain.age is not None else None
        mentioned = matcher.attributes | keys.document_attributes | ({by} if by is not None else set())
        id_place = event_place(events, self._asked.event_id, "event_id")
        places = attribute_places(events, frozenset(mentioned), id_place, self._asked.attributes)
        landing = Landing(
            [kept.index(place) for place in places],
            [events.columns[place] for place in places],
            self._asked.attributes,
            sorted(matcher.attributes),
            [(pair.event, pair.document) for pair in keys.pairs],
            keys.key_attributes,
            by,
        )
        return landing, kept

    # ---- matching ----

    def match(
        self,
        events: DataFrame,
        record: Record,
        matcher: Matcher,
        shipment: Shipment,
        output: MatchColumns,
        fields: list[StructField],
        counts: Any,
    ) -> DataFrame:
        """The matches of a batch. fields: of its rows."""
        keys, asked = self.find_keys(matcher), self._asked
        landing, kept = self._landing(events, keys, matcher)
        session = events.sparkSession
        homes = choose_homes(session, bool(keys.unkeyed), TASKS_PER_CORE * cores_of(session))
        landed = self._read(record.own, events).filter("readable")
        number, newest = _numbers(record.own)
        first = F.coalesce(F.get("asks", F.lit(0)), number)
        home = F.pmod(first, F.lit(homes.count)).cast("int").alias("home")
        at_home = landed.select("*", number.alias("number"), newest.alias("before_it"), home)
        names = [f"c{place}" for place in landing.places]
        id_place = kept.index(event_place(events, asked.event_id, "event_id"))
        columns = [F.col(f"c{id_place}").alias("event_id")]
        if asked.event_time is not None:
            columns.append(F.col(f"c{kept.index(event_place(events, asked.event_time, 'event_time'))}").alias("time"))
        attributes = [F.col(name).alias(f"a{i}") for i, name in enumerate(names)]
        asking = at_home.select(
            "number", F.lit(1).alias("what"), F.col("before_it").alias("newest"), "home", "asks", *columns, *attributes
        )
        documents = self._documents(events, record, keys, record.start, record.started)
        if keys.unkeyed:
            documents = documents.withColumn("keys", F.concat("keys", F.array(F.lit(int(EVERY)))))
        held = documents.select("number", F.lit(0).alias("what"), _before(record).alias("newest"), "keys", *attributes)
        order = [F.col("number").asc(), F.col("what").desc()]
        rows = bring_together(asking, held, homes, order)
        told = ["number", "what", "newest", "event_id", *(["time"] if asked.event_time is not None else [])]
        rows = rows.select(*told, *(f"a{i}" for i in range(len(names))))
        arguments = {
            "names": landing.names,
            "attributes": asked.attributes,
            "retain": self.retain,
            "start": record.start,
            "timed": asked.event_time is not None,
            "output": output,
        }
        return rows.mapInArrow(_matching_function(counts, shipment, arguments), StructType(fields))

    def _documents(self, events: DataFrame, record: Record, keys: Keys, start: int, newest: int | None) -> DataFrame:
        """All documents of a record, its own events included, that retention leaves before the document of number
        `start`: number, time, keys, before_it (of its own events) and the columns of the events."""
        parts = [self._read_keyed(part, events, keys) for part in (*record.before, record.own)]
        result = parts[0]
        for part in parts[1:]:
            result = result.unionByName(part)
        if self.retain.count is not None:
            result = result.filter(F.col("number") >= start - self.retain.count)
        age = self.retain.microseconds
        if age is not None and newest is not None:
            result = result.filter(
                F.col("time").isNull() | (F.col("time") >= newest - age) | (F.col("number") >= start)
            )
        return result

    def _read_keyed(self, part: Landed, events: DataFrame, keys: Keys) -> DataFrame:
        """The documents of a part with the keys that are asked for now."""
        number, newest = _numbers(part)
        frame = self._read(part, events).filter("readable")
        columns = [name for name in frame.columns if name.startswith("c")]
        frame = frame.select(*columns, number.alias("number"), "time", newest.alias("before_it"), "keys")
        if set(keys.key_attributes) <= set(part.keys):
            return frame
        id_place = event_place(events, self._asked.event_id, "event_id")
        kept = _kept_places(events)
        places = attribute_places(events, frozenset(keys.key_attributes), id_place, self._asked.attributes)
        landing = Landing(
            [kept.index(p) for p in places],
            [events.columns[p] for p in places],
            self._asked.attributes,
            [],
            [],
            keys.key_attributes,
            None,
        )
        schema = StructType([_free(field) for field in frame.schema.fields])
        return frame.mapInArrow(_rekeying_function(landing), schema)

    def _read(self, part: Landed, events: DataFrame) -> DataFrame:
        """The rows of a part, with the columns that events have now: what it does not have is null."""
        places = _kept_places(events)
        fields = [events.schema.fields[place] for place in places]
        stored = {name: f"c{i}" for i, name in enumerate(part.columns)}
        there = [StructField(stored[f.name], f.dataType) for f in fields if f.name in stored]
        frame = events.sparkSession.read.schema(StructType([*there, *OWN])).parquet(self._log.part_path(part.name))
        columns = [
            (F.col(stored[f.name]) if f.name in stored else F.lit(None).cast(f.dataType)).alias(f"c{i}")
            for i, f in enumerate(fields)
        ]
        return frame.select(*columns, *(field.name for field in OWN))


def _numbers(part: Landed) -> tuple[Column, Column]:
    """The number of a row of a part, and the greatest time before it."""
    firsts = F.array(*map(F.lit, part.firsts or (0,))).cast("array<bigint>")
    times = F.array(*map(F.lit, part.newest or (None,))).cast("array<bigint>")
    return F.col("before") + F.get(firsts, "part"), F.greatest("newest", F.get(times, "part"))


def _before(record: Record) -> Column:
    """Of documents of the batch itself; nobody asks it of others."""
    return F.when(F.col("number") >= record.start, F.col("before_it"))


def _kept_places(events: DataFrame) -> list[int]:
    """The columns that documents are kept with: all that Python can be handed."""
    return [i for i, field in enumerate(events.schema.fields) if is_for_arrow(field.dataType)]


def _number_columns(events: DataFrame, places: list[int]) -> DataFrame:
    numbered = events.toDF(*(f"e{i}" for i in range(len(events.columns))))
    return numbered.select(*(F.col(f"e{place}").alias(f"c{i}") for i, place in enumerate(places)))


def _free(field: StructField) -> StructField:
    """Which may be null."""
    return StructField(field.name, field.dataType)


# ---- what Spark pickles ----


def _landing_function(landing: Landing, landed: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
    fields = asdict(landing)

    def dibs_land(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        from dibs.spark.joins.growing_worker import Landing, land

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        return land(batches, Landing(**fields), task, lambda rows: landed.add({task: rows}))

    return dibs_land


def _rekeying_function(landing: Landing) -> Callable[[Iterable[Any]], Iterator[Any]]:
    fields = asdict(landing)

    def dibs_rekey(batches: Iterable[Any]) -> Iterator[Any]:
        from dibs.spark.joins.growing_worker import Landing, rekey

        return rekey(batches, Landing(**fields))

    return dibs_rekey


def _matching_function(
    counts: Any, shipment: Shipment, arguments: dict[str, Any]
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def dibs_match(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        from dibs.spark.joins.growing_worker import match
        from dibs.spark.living_worker import follow

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        matcher = follow(shipment)
        return match(batches, matcher, count=lambda found: counts.add({partition: found}), **arguments)

    return dibs_match
