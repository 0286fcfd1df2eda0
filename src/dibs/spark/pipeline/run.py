"""A JobFile to a running stream, or a backfill."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dibs.errors import DibsError
from dibs.spark import sinks
from dibs.spark.feeds import Topic
from dibs.spark.metrics import BatchMetrics
from dibs.spark.pipeline.job import JobFile, Part
from dibs.spark.running import RunningStream
from dibs.spark.session import session
from dibs.spark.stream import backfill, stream
from dibs.spark.tables import Table

EVENT_ID, ATTRIBUTES, EVENT_TIME = "dibs_event_id", "dibs_attributes", "dibs_event_time"


@dataclass(frozen=True)
class Summary:
    """What a job has done since it was started."""

    batches: int
    events: int
    matches: int
    malformed_events: int
    rejected: int
    version: int | None  # of the subscriptions, in the last batch
    seconds: float

    @classmethod
    def of(cls, batches: list[BatchMetrics], seconds: float) -> Summary:
        return cls(
            batches=len(batches),
            events=sum(m.events for m in batches),
            matches=sum(m.matches for m in batches),
            malformed_events=sum(m.malformed_events for m in batches),
            rejected=sum(m.rejected for m in batches),
            version=batches[-1].version if batches else None,
            seconds=seconds,
        )

    def show(self) -> str:
        told = f"{self.events:,} events in {self.batches:,} batches, {self.matches:,} matches, {self.seconds:,.1f} s"
        if self.malformed_events:
            told += f"; {self.malformed_events:,} events could not be read entirely"
        if self.rejected:
            told += f"; {self.rejected:,} subscriptions were left out"
        return told


Watch = Callable[[RunningStream], None]


def run_job(
    job: JobFile,
    on_batch: Callable[[BatchMetrics], None] | None = None,
    watch: Watch | None = None,
    spark: SparkSession | None = None,
) -> Summary:
    """Runs the job to its end. watch: what to do while it runs; else it is waited for. spark: a session to use, which
    is left running; without one it is started as [spark] says, and stopped."""
    started = time.perf_counter()
    own = None if spark is not None else start_session(job)
    running = spark or own
    done: list[BatchMetrics] = []

    def note(metrics: BatchMetrics) -> None:
        done.append(metrics)
        if on_batch is not None:
            on_batch(metrics)

    try:
        assert running is not None
        if job.job["mode"] == "batch":
            note(backfill(**_arguments(job, running, streaming=False)))
            return Summary.of(done, time.perf_counter() - started)
        trigger = "available-now" if job.job["mode"] == "available-now" else job.job["trigger"]
        arguments = _arguments(job, running, streaming=True)
        with stream(**arguments, trigger=trigger, on_batch=note, name=job.job["name"]) as query:
            if watch is None:
                query.awaitTermination()
            else:
                watch(query)
        return Summary.of(done, time.perf_counter() - started)
    finally:
        if own is not None:
            own.stop()


def start_session(job: JobFile) -> SparkSession:
    settings = {"spark.master": job.spark["master"], "spark.driver.memory": job.spark["memory"], **job.spark["conf"]}
    if job.spark["jars"]:
        settings["spark.jars"] = ",".join(job.spark["jars"])
    return session(app=job.job["name"], **settings)


def _arguments(job: JobFile, spark: SparkSession, streaming: bool) -> dict[str, Any]:
    """What stream and backfill are given."""
    events, attributes, event_time = _events(job.source, spark, streaming)
    if job.job["partitions"] is not None:
        events = events.repartition(job.job["partitions"])
    return {
        "events": events,
        "subscriptions": _subscriptions(job.subscriptions),
        "sink": _sink(job.sink),
        "checkpoint": job.job["checkpoint"],
        "state": job.job["state"],
        "event_id": EVENT_ID,
        "attributes": attributes,
        "event_time": event_time,
        "carry": job.job["carry"],
        "keep": job.job["keep"],
        "top": job.job["top"],
        "on_error": job.job["on_error"],
        "types": job.job["types"] or None,
    }


def _events(source: Part, spark: SparkSession, streaming: bool) -> tuple[DataFrame, str | None, str | None]:
    """The events, the column of their attributes (None: all are), and that of their time."""
    reader: Any = spark.readStream if streaming else spark.read
    if source.kind == "kafka":
        return _kafka_events(source, reader)
    options = dict(source["options"])
    if source.get("files_per_batch") is not None:
        options["maxFilesPerTrigger"] = str(source["files_per_batch"])
    form = source["format"]
    if form == "json":
        lines = reader.options(**options).text(source["path"])
        id = F.get_json_object("value", f"$.{source['event_id']}")
        return lines.select(id.alias(EVENT_ID), F.col("value").alias(ATTRIBUTES)), ATTRIBUTES, None
    if streaming and form != "delta":
        reader = reader.schema(spark.read.format(form).load(source["path"]).schema)
    frame = reader.format(form).options(**options).load(source["path"])
    for key in ("event_id", "attributes", "event_time"):
        if source[key] is not None and source[key] not in frame.columns:
            raise DibsError(f"[source] {key} = {source[key]!r}: the events have the columns {', '.join(frame.columns)}")
    named = frame.withColumn(EVENT_ID, F.col(f"`{source['event_id']}`"))
    return named, source["attributes"], source["event_time"]


def _kafka_events(source: Part, reader: Any) -> tuple[DataFrame, str, str]:
    settings = {"kafka.bootstrap.servers": source["servers"], "subscribe": source["topic"]}
    settings["startingOffsets"] = source["starting"]
    if source["records_per_batch"] is not None:
        settings["maxOffsetsPerTrigger"] = str(source["records_per_batch"])
    records = reader.format("kafka").options(**(settings | source["options"])).load()
    id = F.col("key").cast("string")
    if source["event_id"] is not None:
        id = F.get_json_object(F.col("value").cast("string"), f"$.{source['event_id']}")
    columns = [id.alias(EVENT_ID), F.col("value").alias(ATTRIBUTES), F.col("timestamp").alias(EVENT_TIME)]
    return records.select(*columns), ATTRIBUTES, EVENT_TIME


def _subscriptions(part: Part) -> str | Table | Topic:
    if part.kind == "folder":
        return part["path"]
    if part.kind == "table":
        return Table(part["path"], part["format"], part["options"], part["shrink"])
    return Topic(part["servers"], part["topic"], part["id_type"], part["options"])


def _sink(part: Part) -> sinks.Sink:
    kinds: dict[str, Any] = {
        "parquet": sinks.Parquet,
        "delta": sinks.Delta,
        "kafka": sinks.Kafka,
        "webhook": sinks.Webhook,
    }
    return kinds[part.kind](**part.values)
