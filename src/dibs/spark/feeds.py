"""Tables and streams of changes as subscriptions of a stream: they feed a durable folder of the stream's own.

    Table     read again when its files have changed; the difference is applied (tables.py)
    Topic     a compacted Kafka topic of changes: a query of its own applies them as they come

The folder is `subscriptions` in the stream's state, so nothing has to be read from the beginning after a crash, and one
mechanism gives every batch its snapshot (living.py). Applying the same changes twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dibs.arguments import OnError
from dibs.errors import ArgumentError, DibsError, Rejected, SubscriptionErrors, show
from dibs.language.types import Types
from dibs.spark.applying import become
from dibs.spark.fed import Fed, Feed, Heard, collect_subscriptions
from dibs.spark.frames import COLUMNS, name_columns, subscription_columns
from dibs.spark.ordering import Ranked, find_order, settle
from dibs.spark.running import stop_quietly
from dibs.spark.tables import Table, TableFeed

FOLDER = "subscriptions"
IdType = Literal["string", "bigint"]


@dataclass(frozen=True)
class Topic:
    """A Kafka topic of changes. A value is JSON: {"id": ..., "expression": ..., "weight": ..., "deleted": true}; an id
    that is missing is the key; a null value (a tombstone) removes. The topic may be compacted by id. Changes of one id
    count in the order of their offsets, and belong in one partition: give the records their id as key. options: of
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


def feed_of(
    subscriptions: Any,
    spark: SparkSession,
    state: Path,
    on_error: OnError,
    order: str | Sequence[str] | None,
    types: Types | None = None,
) -> Feed:
    folder = state / FOLDER
    if isinstance(subscriptions, DataFrame) and subscriptions.isStreaming:
        return ChangeStream(subscriptions, folder, on_error, order, types)
    refuse_order(order)
    if isinstance(subscriptions, Topic):
        return ChangeStream(subscriptions.read(spark), folder, on_error, None, types)
    if isinstance(subscriptions, Table):
        return TableFeed(subscriptions, spark, folder, on_error, types)
    if isinstance(subscriptions, DataFrame):
        return FrameFeed(subscriptions, folder, on_error, types)
    raise ArgumentError(
        "the subscriptions of a stream are the path of a folder or table, a Table, a Topic or a DataFrame, not "
        f"{show(subscriptions)}; save a Matcher (Matcher.save) or open it as a folder (Matcher.open) and give its path"
    )


def refuse_order(order: Any) -> None:
    if order is not None:
        raise ArgumentError(
            "order= says which of several changes is the last: it is for subscriptions that are a streaming DataFrame "
            "of changes (a Topic has an order of its own)"
        )


class FrameFeed(Fed):
    """A batch DataFrame, read when the stream starts."""

    def __init__(self, frame: DataFrame, folder: Path, on_error: OnError, types: Types | None = None) -> None:
        subscription_columns(frame)
        super().__init__(folder, on_error, types)
        self._frame = frame

    def start(self, stay: bool) -> None:
        self.tell(become(self._matcher, collect_subscriptions(self._frame), self._on_error))

    def check(self) -> Heard:
        return Heard(self._take())


class ChangeStream(Fed):
    """A query of its own that applies changes as they come."""

    def __init__(
        self,
        changes: DataFrame,
        folder: Path,
        on_error: OnError,
        order: str | Sequence[str] | None,
        types: Types | None = None,
    ) -> None:
        changes = name_columns(changes)
        _check_columns(changes)
        self._ordering = find_order(changes, order)
        super().__init__(folder, on_error, types)
        self._query: Any = None
        self._failed: DibsError | None = None

    def start(self, stay: bool) -> None:
        writer = self._ordering.frame.writeStream.foreachBatch(stop_quietly(self._run)).option(
            "checkpointLocation", str(self.folder.with_name("changes"))
        )
        self._query = writer.trigger(availableNow=True).start()
        try:
            self._query.awaitTermination()
        except PySparkException:
            if self._failed is None:
                raise
            raise self._failed from None
        if stay:
            self._query = writer.trigger(processingTime="0 seconds").start()

    def _run(self, frame: DataFrame, batch: int) -> None:
        try:
            self._apply(frame)
        except DibsError as error:  # of which Spark would only keep the text
            self._failed = error
            raise

    def _apply(self, frame: DataFrame) -> None:
        columns = frame.columns
        deleted: Column = F.coalesce(F.col("deleted"), F.lit(False)) if "deleted" in columns else F.lit(False)
        placed = frame.withColumn("dibs_position", F.monotonically_increasing_id())
        wanted = placed.select(
            "id",
            F.when(~deleted, F.col("expression")).alias("expression"),
            (F.col("weight") if "weight" in columns else F.lit(None)).cast("double").alias("weight"),
            self._ordering.rank("dibs_position", "id").alias("rank"),
            (F.col("text") if "text" in columns else F.lit(None)).alias("text"),
            deleted.alias("deleted"),
        )
        rows = wanted.collect()
        unread = [r for r in rows if r.id is None or (r.expression is None and not r.deleted and r.text is not None)]
        if unread:
            error = DibsError('expected JSON with "id" and "expression", or "deleted": true')
            rejected = [Rejected(i, row.id, row.text, error) for i, row in enumerate(unread)]
            if self._on_error == "raise":
                raise DibsError(f"{len(unread)} changes cannot be read, the first is {unread[0].text!r}: {error}")
            self.tell(rejected)
        skipped = set(map(id, unread))
        read = (Ranked(row.id, row.expression, row.weight, row.rank) for row in rows if id(row) not in skipped)
        changes, clashing = settle(read, self._ordering.why)
        if clashing and self._on_error == "raise":
            raise SubscriptionErrors(clashing)
        self.tell(clashing)
        self.apply(change[:3] for change in changes)

    def check(self) -> Heard:
        failed = None if self._query is None else self._query.exception()
        if failed is not None:
            raise DibsError(f"the stream of changes has ended: {self._failed or failed}") from self._failed
        return Heard(self._take())

    def close(self) -> None:
        try:
            if self._query is not None:
                self._query.stop()
        except (Py4JError, OSError):  # with the JVM of its session
            pass
        finally:
            super().close()


def _check_columns(frame: DataFrame) -> None:
    if "id" not in frame.columns or "expression" not in frame.columns:
        raise DibsError(f"expected subscriptions with the columns {COLUMNS}; found {frame.columns}")
