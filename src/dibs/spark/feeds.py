"""Tables and streams of changes as subscriptions of a stream: they feed a durable folder of the stream's own.

    Table     read again when its files have changed; the difference is applied
    Topic     a compacted Kafka topic of changes: a query of its own applies them as they come

The folder is `subscriptions` in the stream's state, so nothing has to be read from the beginning after a crash, and one
mechanism gives every batch its snapshot (living.py). Applying the same changes twice changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dibs.arguments import OnError
from dibs.errors import ArgumentError, DibsError, Rejected, show
from dibs.matcher import Matcher
from dibs.spark.applying import Change, apply_changes, become

FOLDER = "subscriptions"
IdType = Literal["string", "bigint"]
COLUMNS = "id (a string or an integer), expression (a string) and, if wanted, weight (a number)"
log = logging.getLogger("dibs.spark")


@dataclass(frozen=True)
class Table:
    """A table of subscriptions (id, expression[, weight]), read again when it has changed. format: any that Spark
    reads; "delta" by itself where the path has a Delta log. With a path that is not of this machine Spark is asked for
    its files before each batch."""

    path: str
    format: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    def kind(self) -> str:
        if self.format is not None:
            return self.format
        if (Path(self.path) / "_delta_log").is_dir():
            return "delta"
        suffix = Path(self.path).suffix
        return {".json": "json", ".jsonl": "json", ".orc": "orc"}.get(suffix, "parquet")

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.read.format(self.kind()).options(**self.options).load(self.path)


@dataclass(frozen=True)
class Topic:
    """A Kafka topic of changes. A value is JSON: {"id": ..., "expression": ..., "weight": ..., "deleted": true}; an id
    that is missing is the key; a null value (a tombstone) removes. The topic may be compacted by id. options: of
    Spark's Kafka source."""

    servers: str
    topic: str
    id_type: IdType = "string"
    options: dict[str, str] = field(default_factory=dict)

    def read(self, spark: SparkSession) -> DataFrame:
        settings = {"kafka.bootstrap.servers": self.servers, "subscribe": self.topic, "startingOffsets": "earliest"}
        records = spark.readStream.format("kafka").options(**(settings | self.options)).load()
        text = F.col("value").cast("string")
        parsed = F.from_json(text, f"id {self.id_type}, expression string, weight double, deleted boolean")
        key = F.col("key").cast("string").cast(self.id_type)
        return records.select(
            F.coalesce(parsed["id"], key).alias("id"),
            parsed["expression"].alias("expression"),
            parsed["weight"].alias("weight"),
            (text.isNull() | F.coalesce(parsed["deleted"], F.lit(False))).alias("deleted"),
            text.alias("text"),
            F.col("partition"),
            F.col("offset"),
        )


class Feed(Protocol):
    """What keeps a durable folder as it should be."""

    folder: Path

    def start(self, stay: bool) -> None:
        """Applies what there is; stay: and goes on."""

    def check(self) -> int:
        """Before each batch: how many changes were left out since the last time. Raises what has gone wrong."""

    def close(self) -> None: ...


def feed_of(subscriptions: Any, spark: SparkSession, state: Path, on_error: OnError) -> Feed:
    folder = state / FOLDER
    if isinstance(subscriptions, Topic):
        return ChangeStream(subscriptions.read(spark), folder, on_error)
    if isinstance(subscriptions, Table):
        return TableFeed(subscriptions, spark, folder, on_error)
    if isinstance(subscriptions, DataFrame):
        if subscriptions.isStreaming:
            return ChangeStream(subscriptions, folder, on_error)
        return FrameFeed(subscriptions, folder, on_error)
    raise ArgumentError(
        "the subscriptions of a stream are the path of a folder or table, a Table, a Topic or a DataFrame, not "
        f"{show(subscriptions)}; save a Matcher (Matcher.save) or open it as a folder (Matcher.open) and give its path"
    )


class _Fed:
    """The folder, and what was left out of it."""

    def __init__(self, folder: Path, on_error: OnError) -> None:
        self.folder, self._on_error = folder, on_error
        self._matcher = Matcher.open(folder)
        self._rejected = 0

    def apply(self, changes: Iterable[Change]) -> None:
        self.tell(apply_changes(self._matcher, changes, self._on_error))

    def tell(self, rejected: list[Rejected]) -> None:
        self._rejected += len(rejected)
        for one in rejected[:10]:
            log.warning("subscription %r was left out: %s", one.id, one.error)
        if len(rejected) > 10:
            log.warning("%d subscriptions were left out", len(rejected))

    def _take(self) -> int:
        rejected, self._rejected = self._rejected, 0
        return rejected

    def close(self) -> None:
        self._matcher.close()


class FrameFeed(_Fed):
    """A batch DataFrame, read when the stream starts."""

    def __init__(self, frame: DataFrame, folder: Path, on_error: OnError) -> None:
        _check_columns(frame)
        super().__init__(folder, on_error)
        self._frame = frame

    def start(self, stay: bool) -> None:
        self.tell(become(self._matcher, _collect(self._frame), self._on_error))

    def check(self) -> int:
        return self._take()


class TableFeed(_Fed):
    def __init__(self, table: Table, spark: SparkSession, folder: Path, on_error: OnError) -> None:
        _check_columns(table.read(spark))
        super().__init__(folder, on_error)
        self._table, self._spark = table, spark
        self._stamp: object = None

    def start(self, stay: bool) -> None:
        self._refresh()

    def check(self) -> int:
        self._refresh()
        return self._take()

    def _refresh(self) -> None:
        stamp = self._files()
        if stamp != self._stamp:
            frame = self._table.read(self._spark)
            _check_columns(frame)
            self.tell(become(self._matcher, _collect(frame), self._on_error))
            self._stamp = stamp

    def _files(self) -> object:
        """Another one when the table has changed."""
        path = Path(self._table.path)
        if path.is_file():
            return (path.stat().st_size, path.stat().st_mtime_ns)
        if path.is_dir():
            log_folder = path / "_delta_log"
            found = (log_folder if log_folder.is_dir() else path).rglob("*")
            return sorted((str(p), s.st_size, s.st_mtime_ns) for p in found if p.is_file() for s in [p.stat()])
        listed = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(self._table.path)
        return sorted(map(tuple, listed.select("path", "length", "modificationTime").collect()))


class ChangeStream(_Fed):
    """A query of its own that applies changes as they come."""

    def __init__(self, changes: DataFrame, folder: Path, on_error: OnError) -> None:
        _check_columns(changes)
        super().__init__(folder, on_error)
        self._changes = changes
        self._query: Any = None

    def start(self, stay: bool) -> None:
        writer = self._changes.writeStream.foreachBatch(self._run).option(
            "checkpointLocation", str(self.folder.with_name("changes"))
        )
        self._query = writer.trigger(availableNow=True).start()
        self._query.awaitTermination()
        if stay:
            self._query = writer.trigger(processingTime="0 seconds").start()

    def _run(self, frame: DataFrame, batch: int) -> None:
        columns = frame.columns
        order = [name for name in ("partition", "offset") if name in columns]
        deleted: Column = F.coalesce(F.col("deleted"), F.lit(False)) if "deleted" in columns else F.lit(False)
        wanted = frame.select(
            "id",
            F.when(~deleted, F.col("expression")).alias("expression"),
            (F.col("weight") if "weight" in columns else F.lit(None)).cast("double").alias("weight"),
            *order,
            (F.col("text") if "text" in columns else F.lit(None)).alias("text"),
            deleted.alias("deleted"),
        )
        rows = (wanted.orderBy(*order) if order else wanted).collect()
        unread = [r for r in rows if r.id is None or (r.expression is None and not r.deleted and r.text is not None)]
        if unread:
            error = DibsError('expected JSON with "id" and "expression", or "deleted": true')
            rejected = [Rejected(i, row.id, row.text, error) for i, row in enumerate(unread)]
            if self._on_error == "raise":
                raise DibsError(f"{len(unread)} changes cannot be read, the first is {unread[0].text!r}: {error}")
            self.tell(rejected)
        skipped = set(map(id, unread))
        self.apply((row.id, row.expression, row.weight) for row in rows if id(row) not in skipped)

    def check(self) -> int:
        failed = None if self._query is None else self._query.exception()
        if failed is not None:
            raise DibsError(f"the stream of changes has ended: {failed}")
        return self._take()

    def close(self) -> None:
        if self._query is not None:
            self._query.stop()
        super().close()


def _collect(frame: DataFrame) -> pa.Table:
    wanted: list[Any] = ["id", "expression"]
    if "weight" in frame.columns:
        wanted.append(F.coalesce(F.col("weight").cast("double"), F.lit(1.0)).alias("weight"))
    return frame.select(*wanted).toArrow()


def _check_columns(frame: DataFrame) -> None:
    if "id" not in frame.columns or "expression" not in frame.columns:
        raise DibsError(f"expected subscriptions with the columns {COLUMNS}; found {frame.columns}")
