"""`stream`: events against subscriptions that change while it runs.

    subscriptions ─> a snapshot for each micro-batch ─> ledger (safe on the disk) ─┐
    micro-batch of events ─> mapInArrow ─> workers at that snapshot ───────────────┴─> matches ─> sink

The ledger says which snapshot a batch id is matched against before it is, and snapshots are kept until the batch is
committed. So a batch that is run again after a crash gives the same matches; a sink that can write a batch twice
without harm (sinks.py says which can) makes that exactly once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame

from dibs import loading
from dibs.arguments import OnError, check_callable, check_on_error, check_text
from dibs.errors import ArgumentError, DibsError, show
from dibs.spark.feeds import Feed, Table, Topic, feed_of
from dibs.spark.joins.growing import GrowingHistory
from dibs.spark.joins.growing_log import Log
from dibs.spark.joins.history import read_history
from dibs.spark.ledger import Ledger
from dibs.spark.living import Compiled, DurableFolder, Living, SavedFolder
from dibs.spark.metrics import BatchMetrics
from dibs.spark.micro_batch import MicroBatches, Wanted
from dibs.spark.places import has_versions, place_of
from dibs.spark.running import RunningStream
from dibs.spark.sinks import Sink, sink_of
from dibs.storage import store

STATE = "dibs"  # the folder in the checkpoint
ALL_AT_ONCE = "available-now"


def stream(
    events: DataFrame,
    subscriptions: str | os.PathLike[str] | Table | Topic | DataFrame,
    sink: str | os.PathLike[str] | Sink | Callable[[DataFrame, int], None],
    checkpoint: str | os.PathLike[str],
    *,
    event_id: str = "id",
    attributes: str | None = None,
    carry: Iterable[str] = (),
    event_time: str | None = None,
    trigger: str | None = None,
    on_error: OnError = "raise",
    on_batch: Callable[[BatchMetrics], None] | None = None,
    name: str | None = None,
    state: str | os.PathLike[str] | None = None,
    history: Any = None,
) -> RunningStream:
    """Starts matching a streaming DataFrame of events, and returns the running query.

    subscriptions  adds, replaces and removes are picked up at the next micro-batch. One of
                   - a folder of Matcher.open, which any process may change meanwhile;
                   - a folder of Matcher.save, which may be written again;
                   - the path or URL of dibs.spark.compile: each batch has the newest version;
                   - Table(path) or the path of a Parquet or Delta table (id, expression[, weight]), read again when
                     it has changed; a batch DataFrame, read once;
                   - Topic(servers, topic), or any streaming DataFrame (id, expression[, weight][, deleted]): a stream
                     of changes. An expression that is null, or deleted = true, removes.
    sink           a path: Parquet, exactly once. Or a sink of dibs.spark.sinks (Parquet, Delta, Kafka, Webhook), or a
                   function of (matches of a batch, batch id).
    checkpoint     the folder of the query's progress, as everywhere in Spark. A stream that is started again with it
                   goes on where it ended.
    event_id, attributes  as for `match`.
    carry          further columns of the matches: "version" (of all subscriptions, as the batch saw them),
                   "subscription_version" (of the change that made the subscription what it is), "weight".
    event_time     a timestamp column, from which the lag of a batch is told.
    trigger        None: a batch as soon as the one before is done. "10 seconds": one every so often. "available-now":
                   what there is, and then it ends.
    on_error       what to do with changes of subscriptions that cannot be accepted: "raise" ends the stream with all
                   of them listed; "skip" leaves them out, counts and logs them.
    on_batch       is called with the BatchMetrics of each batch.
    name           of the query.
    state          the folder of snapshots, of this stream alone; "dibs" in the checkpoint by default. It must be a path
                   on the driver's machine; workers that do not see it get the subscriptions by broadcast. With
                   history= they must see it.
    history        the documents that joins over history speak of: a dibs.spark.History, whose documents are there
                   before the first event (History(): none are). Then each event is one, for those after it. A
                   DataFrame is History(documents).
    """
    if not getattr(events, "isStreaming", False):
        raise DibsError("the events of a stream are a streaming DataFrame (spark.readStream): use backfill for a batch")
    batches, feed = _prepare(
        events,
        subscriptions,
        sink,
        checkpoint,
        state,
        Wanted(event_id, attributes, tuple(carry), event_time),
        on_error,
        history,
    )
    check_callable("on_batch", on_batch)
    check_text("name", name)
    batches.on_batch = on_batch
    try:
        writer = events.writeStream.foreachBatch(batches.run).option("checkpointLocation", os.fspath(checkpoint))
        if name is not None:
            writer = writer.queryName(name)
        at_once = trigger == ALL_AT_ONCE
        if at_once:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        if feed is not None:
            feed.start(stay=not at_once)
        return RunningStream(writer.start(), batches, feed)
    except BaseException:
        batches.close()
        if feed is not None:
            feed.close()
        raise


def backfill(
    events: DataFrame,
    subscriptions: str | os.PathLike[str] | Table | Topic | DataFrame,
    sink: str | os.PathLike[str] | Sink | Callable[[DataFrame, int], None],
    checkpoint: str | os.PathLike[str],
    *,
    event_id: str = "id",
    attributes: str | None = None,
    carry: Iterable[str] = (),
    event_time: str | None = None,
    on_error: OnError = "raise",
    state: str | os.PathLike[str] | None = None,
    history: Any = None,
) -> BatchMetrics:
    """Stored events, a batch DataFrame, through the same job: what `stream` would have given with the subscriptions as
    they are now, as its batch 0. Run again with the same checkpoint, it gives the same again."""
    if not isinstance(events, DataFrame) or events.isStreaming:
        raise DibsError("the events of a backfill are a batch DataFrame (spark.read): use stream for a streaming one")
    batches, feed = _prepare(
        events,
        subscriptions,
        sink,
        checkpoint,
        state,
        Wanted(event_id, attributes, tuple(carry), event_time),
        on_error,
        history,
    )
    try:
        if feed is not None:
            feed.start(stay=False)
        batches.run(events, 0)
        return batches.recent[-1]
    finally:
        batches.close()
        if feed is not None:
            feed.close()


def _prepare(
    events: DataFrame,
    subscriptions: Any,
    sink: Any,
    checkpoint: str | os.PathLike[str],
    state: str | os.PathLike[str] | None,
    wanted: Wanted,
    on_error: OnError,
    history: Any,
) -> tuple[MicroBatches, Feed | None]:
    """Everything but the query. What is wrong with the arguments is told here, before anything is started."""
    check_on_error(on_error)
    if type(events).__module__.startswith("pyspark.sql.connect"):
        raise DibsError("streams with changing subscriptions need a classic Spark session; use match on Spark Connect")
    wanted.check(events)
    target = sink_of(sink)
    target.check(events.sparkSession)
    folder = _state_folder(checkpoint, state)
    ledger = Ledger(folder)
    growing = None if history is None else GrowingHistory(read_history(history), Log(folder), wanted)
    if growing is not None:
        growing.check(events)
    loading.wait()  # for all kernels: those of the workers too, which get them from here
    living, feed = _living(events, subscriptions, folder, ledger, on_error)
    return MicroBatches(ledger, os.fspath(checkpoint), living, feed, target, wanted, growing), feed


def _living(
    events: DataFrame, subscriptions: Any, state: Path, ledger: Ledger, on_error: OnError
) -> tuple[Living, Feed | None]:
    if isinstance(subscriptions, (str, os.PathLike)):
        folder = Path(_local(subscriptions) or os.fspath(subscriptions)).absolute()
        if store.is_durable(folder):
            return DurableFolder(folder, state, ledger.last()), None
        if (folder / store.HEAD).exists():
            return SavedFolder(folder, state), None
        if has_versions(subscriptions):
            return Compiled(place_of(subscriptions), state), None
        subscriptions = Table(os.fspath(subscriptions))
    feed = feed_of(subscriptions, events.sparkSession, state, on_error)
    try:
        return DurableFolder(feed.folder, state, ledger.last()), feed
    except BaseException:
        feed.close()
        raise


def _state_folder(checkpoint: Any, state: Any) -> Path:
    for name, path in (("checkpoint", checkpoint), ("state", state)):
        if not isinstance(path, (str, os.PathLike)) and not (name == "state" and path is None):
            raise ArgumentError(f"{name} must be the path of a folder, not {show(path)}")
    local = _local(checkpoint if state is None else state)
    if local is None:
        raise DibsError(
            f"{checkpoint if state is None else state} is no path of this machine, and the snapshots of the "
            "subscriptions must be on one: give state=, a folder of the driver (workers need not see it)"
        )
    return Path(local).absolute() / STATE if state is None else Path(local).absolute()


def _local(path: str | os.PathLike[str]) -> str | None:
    """The path on this machine; None: it is somewhere else."""
    text = os.fspath(path)
    parts = urlparse(text)
    if len(parts.scheme) < 2:
        return text
    return unquote(parts.path) if parts.scheme == "file" else None
