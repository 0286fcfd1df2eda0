"""`compile`: a table of subscriptions to a version of index files, as a Spark job (spark.compiling has its steps)."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dibs.arguments import OnError, check_number, check_on_error
from dibs.errors import ArgumentError, DibsError, Rejected, SubscriptionErrors
from dibs.index import AUTO
from dibs.intake import check_choice
from dibs.language.types import check_types
from dibs.matcher import Matcher
from dibs.spark.compiling import Compiling, Progress
from dibs.spark.frames import (
    is_frame,
    no_subscriptions,
    not_subscriptions,
    session_of,
    subscription_columns,
    table_frame,
)
from dibs.spark.mistakes import Asked, Mistakes, count_uses
from dibs.spark.places import Folder, Place, place_of
from dibs.spark.session import describe_jobs
from dibs.spark.shipping import check_workers
from dibs.spark.tasks import frame_rejected
from dibs.storage import versions
from dibs.storage.versions import Version

LISTED = 1_000  # bad subscriptions that an error lists


@dataclass(frozen=True)
class Compilation:
    """What `compile` has made: the version (see dibs.spark.versions), and the subscriptions that it refused, as a
    DataFrame(position, id, expression, error)."""

    path: str
    version: Version
    rejected: DataFrame


def compile(
    subscriptions: DataFrame | Matcher | str | os.PathLike[str],
    path: str | os.PathLike[str],
    shards: int | str = "auto",
    *,
    changes: bool = False,
    order: str | Sequence[str] | None = None,
    index: str = AUTO,
    options: Mapping[str, Any] | None = None,
    on_error: OnError = "raise",
    memory: int | None = None,
    progress: Progress | None = None,
    events: DataFrame | None = None,
    attributes: str | None = None,
    strict: bool = False,
    types: Mapping[str, str] | None = None,
) -> Compilation:
    """Compiles subscriptions on Spark's workers, as the next version of the index at `path`.

    subscriptions  a DataFrame (id, expression[, weight]); the path of such a table (Parquet, Delta); or a Matcher. Of a
                   version that is there already, what is the same stays: only what changed is compiled. Its ids decide:
                   a subscription that the table does not have any more is gone.
    path           a folder that the driver and all workers see, or a URL (dibs.spark.versions says more). Nothing that
                   a job may be using is changed; remove_versions removes old versions.
    shards         into how many parts the index is cut, so that no worker needs all of it: "auto", as many as it takes
                   for each to fit into `memory`; or a number. Of an index that is there already it stays.
    changes        the frame holds changes, not the whole table: (id, expression[, weight, deleted]). What it does not
                   name stays. Of several changes of one id the last one counts, by `order`.
    order          the column or columns of changes that say which is later. By default: of files, their time, their
                   name, and the place in them; of frames with the columns partition and offset (Kafka), both.
                   Changes of one id that differ, and that nothing orders, are bad.
    index, options  how they are indexed, as for a Matcher. Of an index that is there already both stay.
    on_error       "raise": SubscriptionErrors lists the bad ones (the first 1,000), and there is no new version.
                   "skip": the others are compiled, and `rejected` of the result has the bad ones. A bad change changes
                   nothing.
    memory         bytes of the index that a worker may hold (half of this machine's memory by default).
    events         a DataFrame of events that they are for, of which only the schema is looked at: subscriptions that do
                   not fit its types are warned of, as `match` does; strict=True: there is no new version then.
                   `attributes`: the column that holds the attributes.
    types          of attributes, where they are declared, as for a Matcher. Of an index that is there they stay.
    progress       called with what is being done, and how many of about 100 parts of the work are done.

    Returns the version and the bad subscriptions. Raises FormatError when somebody else writes to `path` meanwhile.
    """
    check_on_error(on_error)
    choice = check_choice(index, None, None, options)
    declared = None if types is None else check_types(types)
    session = session_of(subscriptions)
    check_workers(session)
    if order is not None and not changes:
        raise ArgumentError("order= says which of several changes is the last: it is for compile(..., changes=True)")
    table = subscription_columns(_frame(session, subscriptions), changes, order)
    place = place_of(path)
    compiling = Compiling(session, place, table, changes, choice, progress, declared)
    memory = half_of_memory() if memory is None else check_number("memory", memory)
    with describe_jobs(session, f"compiles the subscriptions to {place.name}"):
        version, files = compiling.run(shards, memory)
    rejected = frame_rejected(session, place, version, table.id_type)
    if version.rejected and on_error == "raise":
        rows = rejected.orderBy("position").limit(LISTED).collect()
        place.discard(files)
        raise SubscriptionErrors([Rejected(r.position, r.id, r.expression, DibsError(r.error)) for r in rows])
    if events is not None:
        _check_fit(events, attributes, version, place, strict, files)
    place.commit(version)
    compiling.tell("done", 100)
    return Compilation(place.name, version, rejected)


def _check_fit(
    events: DataFrame, attributes: str | None, version: Version, place: Place, strict: bool, files: list[str]
) -> None:
    mistakes = Mistakes(events, attributes)
    found = mistakes.find({name: 0 if name in version.types else version.kinds[name] for name in version.attributes})

    def uses(asked: Collection[Asked]) -> dict[Asked, int]:
        if not isinstance(place, Folder):
            return {}
        return count_uses(versions.load_state(place.path, version).layers, asked)

    try:
        mistakes.tell(found, strict, 4, uses)
    except DibsError:
        place.discard(files)
        raise


def half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _frame(session: SparkSession, subscriptions: Any) -> DataFrame:
    if isinstance(subscriptions, Matcher):
        return session.createDataFrame(rows_of(subscriptions))
    if isinstance(subscriptions, (str, os.PathLike)):
        frame = table_frame(session, subscriptions)
        if frame is None:
            raise no_subscriptions(subscriptions)
        return frame
    if not is_frame(subscriptions):
        raise not_subscriptions(subscriptions)
    return subscriptions


def rows_of(matcher: Matcher) -> pa.Table:
    """The subscriptions of a matcher as a table."""
    parts = []
    for layer in matcher.snapshot().layers:
        rows = layer.gone.find_kept()
        chosen, segment = pa.array(rows), layer.segment
        weights = pa.array(segment.weights_at(rows))
        columns = [segment.ids.ids.take(chosen), segment.texts.take(chosen), weights]
        parts.append(pa.table(columns, names=["id", "expression", "weight"]))
    if len({str(part.schema.field("id").type) for part in parts}) > 1:
        raise DibsError("the ids of the matcher are integers and strings, and a column of Spark has one type")
    if not parts:
        return pa.table({"id": pa.array([], pa.string()), "expression": pa.array([], pa.string())})
    table = pa.concat_tables(parts)
    return table if matcher.weighted else table.drop_columns("weight")
