"""Where the matches of a stream go. A sink may be handed the same batch again, after a crash, with the same matches.

Parquet    a folder per batch, replaced as a whole: exactly once
Delta      appended in a transaction that is known by the batch: exactly once; needs delta-spark
Catalog    a table of Spark's catalog (Iceberg, Delta): a batch replaces itself in one commit: exactly once
Kafka      a record per match: at least once; the key tells which match it is
Webhook    requests with an idempotency key, retried; what cannot be delivered is kept (webhook.py)
Function   whatever it does, it must bear a batch that comes again
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dibs.errors import ArgumentError, DibsError, show
from dibs.spark.webhook import Webhook as Webhook

QUERY_ID = "sql.streaming.queryId"  # the property that names the query of a batch, the same while its checkpoint lives
TABLE = re.compile(r"\w+\.\w+(\.\w+)?")


class Sink(Protocol):
    def check(self, spark: SparkSession) -> None:
        """Before the stream starts: whether it can be written to."""

    def write(self, matches: DataFrame, batch: int) -> None:
        """Writes the matches of a batch. What was written of it before is replaced, or known to be the same."""


@dataclass(frozen=True)
class Parquet:
    """Folders batch=N below `path`. Readers see the column `batch`, too; a batch that is being replaced is missing for
    a moment. files: how many a batch may have (as many as it has partitions, by default)."""

    path: str
    files: int | None = None

    def check(self, spark: SparkSession) -> None:
        parts = self.path.split(".")
        if not TABLE.fullmatch(self.path) or Path(self.path).exists():
            return
        if len(parts) == 3 or spark.catalog.databaseExists(parts[0]):
            raise ArgumentError(
                f"the sink {self.path!r} is the path of a folder, and looks like the name of a table: for the folder "
                f"give './{self.path}', for the table sinks.Catalog({self.path!r})"
            )

    def check_new(self, spark: SparkSession, batch: int) -> None:
        """Before a batch that this stream has not begun before: nobody else's matches are replaced."""
        try:
            spark.read.parquet(self._folder(batch))
        except AnalysisException:  # it is not there
            return
        raise DibsError(
            f"{self._folder(batch)} is there already, and not of this checkpoint: give the stream the checkpoint that "
            "it was written with, or another folder"
        )

    def write(self, matches: DataFrame, batch: int) -> None:
        if self.files is not None:
            matches = matches.coalesce(self.files)
        matches.write.mode("overwrite").parquet(self._folder(batch))

    def _folder(self, batch: int) -> str:
        return f"{self.path.rstrip('/')}/batch={batch}"


@dataclass(frozen=True)
class Delta:
    """A Delta table. name: of the writer. A batch is known by it, by the query of the checkpoint, and its number."""

    path: str
    name: str = "dibs"

    def check(self, spark: SparkSession) -> None:
        if importlib.util.find_spec("delta") is None:
            raise DibsError("a Delta sink needs delta-spark of your version of Spark: pip install delta-spark")

    def write(self, matches: DataFrame, batch: int) -> None:
        query = matches.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        known = {"txnAppId": self.name if query is None else f"{self.name}-{query}", "txnVersion": str(batch)}
        matches.write.format("delta").mode("append").options(**known).save(self.path)


@dataclass(frozen=True)
class Catalog:
    """A table by its name in Spark's catalog, of a format that replaces rows by a condition (Iceberg, Delta). Its rows
    have the column `batch`, too. One that is not there is made (format: of what; the catalog's own by default)."""

    table: str
    format: str | None = None

    def check(self, spark: SparkSession) -> None:
        there = spark.catalog.tableExists(self.table)
        if there and "batch" not in spark.table(self.table).columns:
            raise DibsError(f"the table {self.table} has no column batch (bigint), by which a batch replaces itself")

    def check_new(self, spark: SparkSession, batch: int) -> None:
        """Before a batch that this stream has not begun before: nobody else's matches are replaced."""
        if not spark.catalog.tableExists(self.table):
            return
        spark.catalog.refreshTable(self.table)  # another session may have written it
        if spark.table(self.table).where(F.col("batch") == batch).head(1):
            raise DibsError(
                f"{self.table} has rows of batch {batch} already, and not of this checkpoint: give the stream the "
                "checkpoint that it was written with, or another table"
            )

    def write(self, matches: DataFrame, batch: int) -> None:
        rows = matches.withColumn("batch", F.lit(batch).cast("bigint"))
        if not matches.sparkSession.catalog.tableExists(self.table):
            new = rows.limit(0).writeTo(self.table)
            (new if self.format is None else new.using(self.format)).create()
        rows.writeTo(self.table).overwrite(F.col("batch") == batch)


@dataclass(frozen=True)
class Kafka:
    """A record per match: the value is JSON of its columns; the key is the event's id, so that matches of an event are
    in one partition. The header `dibs-match`, batch:event:subscription, tells a match that comes again. options: of
    Spark's Kafka sink."""

    servers: str
    topic: str
    options: dict[str, str] = field(default_factory=dict)

    def check(self, spark: SparkSession) -> None:
        pass

    def write(self, matches: DataFrame, batch: int) -> None:
        key = F.col("event_id").cast("string")
        identity = F.concat_ws(":", F.lit(str(batch)), key, F.col("subscription_id").cast("string"))
        header = F.struct(F.lit("dibs-match").alias("key"), identity.cast("binary").alias("value"))
        records = matches.select(
            key.alias("key"), F.to_json(F.struct("*")).alias("value"), F.array(header).alias("headers")
        )
        settings = {"kafka.bootstrap.servers": self.servers, "topic": self.topic, "includeHeaders": "true"}
        records.write.format("kafka").options(**(settings | self.options)).save()


@dataclass(frozen=True)
class Function:
    """Calls function(matches, batch id)."""

    function: Callable[[DataFrame, int], Any]

    def check(self, spark: SparkSession) -> None:
        pass

    def write(self, matches: DataFrame, batch: int) -> None:
        self.function(matches, batch)


def sink_of(sink: Any) -> Sink:
    if isinstance(sink, (str, os.PathLike)):
        return Parquet(os.fspath(sink))
    if callable(getattr(sink, "write", None)) and callable(getattr(sink, "check", None)):
        return sink
    if callable(sink):
        return Function(sink)
    raise ArgumentError(
        f"a sink is a path (Parquet), a sink of dibs.spark.sinks or a function of (matches, batch id), not {show(sink)}"
    )
