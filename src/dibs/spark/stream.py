"""`stream`: events against subscriptions that change while it runs.

    subscriptions ─> a snapshot for each micro-batch ─> ledger (safe on the disk) ─┐
    micro-batch of events ─> mapInArrow ─> workers at that snapshot ───────────────┴─> matches ─> sink

The ledger says which snapshot a batch id is matched against before it is, and snapshots are kept until the batch is
committed. So a batch that is run again after a crash gives the same matches; a sink that can write a batch twice
without harm (sinks.py says which can) makes that exactly once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from dibs import engine
from dibs.arguments import check_callable, check_on_error, check_text
from dibs.errors import ArgumentError, DibsError, show
from dibs.language.types import check_types
from dibs.spark.fed import Feed
from dibs.spark.feeds import Topic, feed_of, refuse_order
from dibs.spark.frames import is_connect
from dibs.spark.joins.growing import GrowingHistory
from dibs.spark.joins.growing_log import Log
from dibs.spark.joins.history import read_history
from dibs.spark.ledger import Ledger
from dibs.spark.metrics import BatchMetrics
from dibs.spark.micro_batch import MicroBatches, find_wanted
from dibs.spark.mistakes import Mistakes
from dibs.spark.options import StreamOptions, check_names, check_options, describe_options, find_query, write_options
from dibs.spark.places import has_versions, local_path, place_of
from dibs.spark.running import RunningStream, close_ended, stop_quietly
from dibs.spark.shipping import check_workers
from dibs.spark.sinks import Sink, sink_of
from dibs.spark.subscription_sources import Compiled, DurableFolder, SavedFolder, SubscriptionSource
from dibs.spark.tables import Table
from dibs.storage import store

if TYPE_CHECKING:
    from typing_extensions import Unpack

STATE = "dibs"  # the folder in the checkpoint
ALL_AT_ONCE = ("available-now", "availableNow")
INTERVAL = re.compile(r"\s*(interval\s+)?\d+(\.\d+)?\s*[a-z]+(\s+\d+(\.\d+)?\s*[a-z]+)*\s*", re.IGNORECASE)


def stream(
    events: DataFrame,
    subscriptions: str | os.PathLike[str] | Table | Topic | DataFrame,
    sink: str | os.PathLike[str] | Sink | Callable[[DataFrame, int], None],
    checkpoint: str | os.PathLike[str],
    *,
    trigger: str | None = None,
    on_batch: Callable[[BatchMetrics], None] | None = None,
    name: str | None = None,
    **options: Unpack[StreamOptions],
) -> RunningStream:
    """Starts matching a streaming DataFrame of events, and returns the running query.

    subscriptions  adds, replaces and removes are picked up at the next micro-batch. One of
                   - a folder of Matcher.open, which any process may change meanwhile;
                   - a folder of Matcher.save, which may be written again;
                   - the path or URL of dibs.spark.compile: each batch has the newest version;
                   - Table(path) or the path of a Parquet or Delta table (id, expression[, weight]), read again when
                     it has changed (while it is being written, or cannot be read, the last good version stays, and
                     `notice` of the batch's metrics says so); a batch DataFrame, read once;
                   - Topic(servers, topic), or any streaming DataFrame (id, expression[, weight][, deleted]): a stream
                     of changes. An expression that is null, or deleted = true, removes. `order` says in which
                     order those of a micro-batch count.
    sink           a path: Parquet, exactly once. Or a sink of dibs.spark.sinks (Parquet, Delta, Kafka, Webhook), or a
                   function of (matches of a batch, batch id).
    checkpoint     the folder of the query's progress, as everywhere in Spark. A stream that is started again with it
                   goes on where it ended.
    event_id, attributes  as for `match`.
    carry          further columns of the matches: "version" (of all subscriptions, as the batch saw them),
                   "subscription_version" (of the change that made the subscription what it is), "weight".
    event_time     a timestamp column, from which the lag of a batch is told.
    keep, top      as for `match`.
    trigger        None: a batch as soon as the one before is done. "10 seconds": one every so often. "available-now":
                   what there is, and then it ends.
    order          the column or columns of a stream of changes that say which of several changes of one id is later. By
                   default: of files, their time, their name, and the place in them; of frames with the columns
                   partition and offset (Kafka), both. Changes of one id in one micro-batch that differ, and that
                   nothing orders, are not accepted.
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
    strict         as for `match`; without it, what does not fit the events is warned of, and in the `mistakes` of each
                   batch's metrics.
    types          of attributes, where they are declared, for subscriptions that are a table, a topic or a frame: as
                   for a Matcher, and the same when it is started again. A folder has its own.
    """
    if not getattr(events, "isStreaming", False):
        raise DibsError("the events of a stream are a streaming DataFrame (spark.readStream): use backfill for a batch")
    _refuse_connect(events, "stream", "with match(events, ...).writeStream the subscriptions are those of its start")
    check_callable("on_batch", on_batch)
    check_text("name", name)
    if trigger is not None and trigger not in ALL_AT_ONCE and not INTERVAL.fullmatch(str(trigger)):
        raise ArgumentError(f'trigger is "available-now", a time as "10 seconds", or None, not {show(trigger)}')
    batches, feed = _prepare(events, subscriptions, sink, checkpoint, options)
    batches.on_batch = on_batch
    try:
        writer = events.writeStream.foreachBatch(stop_quietly(batches.run)).option(
            "checkpointLocation", os.fspath(checkpoint)
        )
        if name is not None:
            writer = writer.queryName(name)
        at_once = trigger in ALL_AT_ONCE
        if at_once:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        if feed is not None:
            feed.start(stay=not at_once)
        batches.prepare()
        query = writer.start()
        write_options(batches.state, str(query.id), batches.options)
        return RunningStream(query, batches, feed)
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
    **options: Unpack[StreamOptions],
) -> BatchMetrics:
    """Stored events, a batch DataFrame, through the same job: what `stream` would have given with the subscriptions as
    they are now, as its batch 0. Run again with the same checkpoint, it gives the same again."""
    if not isinstance(events, DataFrame) or events.isStreaming:
        raise DibsError("the events of a backfill are a batch DataFrame (spark.read): use stream for a streaming one")
    _refuse_connect(events, "backfill", "match(events, ...) gives the same matches, for you to write")
    batches, feed = _prepare(events, subscriptions, sink, checkpoint, options)
    try:
        if feed is not None:
            feed.start(stay=False)
        batches.prepare()
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
    options: StreamOptions,
) -> tuple[MicroBatches, Feed | None]:
    """Everything but the query. What is wrong with the arguments is told here, before anything is started."""
    check_names(options, StreamOptions)
    wanted = find_wanted(events, options)
    on_error, history = options.get("on_error", "raise"), options.get("history")
    check_on_error(on_error)
    check_workers(events.sparkSession)
    wanted.check(events)
    target = sink_of(sink)
    target.check(events.sparkSession)
    folder = _state_folder(checkpoint, options.get("state"))
    close_ended(folder)
    ledger = Ledger(folder)
    try:
        described = describe_options(events, wanted)
        check_options(folder, checkpoint, described, target)
        growing = None if history is None else GrowingHistory(read_history(history), Log(folder), wanted)
        if growing is not None:
            growing.check(events, {find_query(checkpoint), os.fspath(checkpoint)})
        engine.compile_kernels()  # for all kernels: those of the workers too, which get them from here
        living, feed = _living(events, subscriptions, folder, ledger, options)
    except BaseException:
        ledger.close()
        raise
    mistakes = Mistakes(events, wanted.attributes)
    given = (events, ledger, os.fspath(checkpoint), living, feed, target, wanted, mistakes, growing)
    batches = MicroBatches(*given, options.get("strict", False))
    batches.options = described
    return batches, feed


def _refuse_connect(events: DataFrame, name: str, instead: str) -> None:
    if is_connect(events):
        raise DibsError(
            f"{name} needs a classic Spark session, whose driver has the snapshots of the subscriptions, and not Spark "
            f"Connect: {instead}"
        )


def _living(
    events: DataFrame, subscriptions: Any, state: Path, ledger: Ledger, options: StreamOptions
) -> tuple[SubscriptionSource, Feed | None]:
    order, given = options.get("order"), options.get("types")
    types = None if given is None else check_types(given)
    if isinstance(subscriptions, (str, os.PathLike)):
        refuse_order(order)
        folder = Path(local_path(subscriptions) or os.fspath(subscriptions)).absolute()
        is_compiled = store.is_durable(folder) or (folder / store.HEAD).exists() or has_versions(subscriptions)
        if types is not None and is_compiled:
            raise ArgumentError(f"types= is for subscriptions of a table, a topic or a frame: {folder} has its own")
        if store.is_durable(folder):
            return DurableFolder(folder, state, ledger.last()), None
        if (folder / store.HEAD).exists():
            return SavedFolder(folder, state), None
        if has_versions(subscriptions):
            return Compiled(place_of(subscriptions), state), None
        subscriptions = Table(os.fspath(subscriptions))
    feed = feed_of(subscriptions, events.sparkSession, state, options.get("on_error", "raise"), order, types)
    try:
        return DurableFolder(feed.folder, state, ledger.last()), feed
    except BaseException:
        feed.close()
        raise


def _state_folder(checkpoint: Any, state: Any) -> Path:
    for name, path in (("checkpoint", checkpoint), ("state", state)):
        if not isinstance(path, (str, os.PathLike)) and not (name == "state" and path is None):
            raise ArgumentError(f"{name} must be the path of a folder, not {show(path)}")
    local = local_path(checkpoint if state is None else state)
    if local is None:
        raise DibsError(
            f"{checkpoint if state is None else state} is no path of this machine, and the snapshots of the "
            "subscriptions must be on one: give state=, a folder of the driver (workers need not see it)"
        )
    return Path(local).absolute() / STATE if state is None else Path(local).absolute()
