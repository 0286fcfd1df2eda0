"""A batch of events and documents that do not change: the plan, on the driver.

replicated    few documents are brought to the driver, and sent to every worker as a file
partitioned   documents and events meet by their keys: two shuffles

    events      asks (keys of documents), home (a number)   ─> routes: which home wants which key ─┐
    documents   keys                                        ─> a row for each key ─────────────────┴─> home

An event has one home, and a document goes to every home in which an event asks for one of its keys. So nothing is
answered in parts, although an event may ask for several keys (of an array, or of several joins) and a document may have
several. By two of them it may reach one home twice: whoever reads it there takes it once.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, LongType, StructField, StructType

from dibs.arguments import check_number
from dibs.errors import DibsError
from dibs.spark.events import Events, as_frame, attribute_places, check_arrow
from dibs.spark.frames import is_local
from dibs.spark.joins.hashes import EVERY
from dibs.spark.joins.history import History
from dibs.spark.joins.keys import Keys
from dibs.spark.joins.worker import DocumentFile, Meeting
from dibs.spark.shipping import in_worker
from dibs.spark.sources import CARRIED_BYTES, collect, own_folder
from dibs.tuning import tuned

SPARK_HISTORY = tuned("spark_history", 100_000, 5, "documents", "of a history that every worker gets rather than some")

A_PARTITION = 8  # homes


@dataclass(frozen=True)
class Homes:
    """Where events are matched. partitions: of the result; None: Spark puts small ones together (not in a stream)."""

    count: int
    partitions: int | None
    every: bool  # all homes want all documents, which have the key EVERY


def choose_homes(session: SparkSession, every: bool, partitions: int | None) -> Homes:
    """More homes than partitions, over which Spark deals them out at random, so that none has much more than another;
    but not if a document goes to each of them."""
    expected = partitions or int(session.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    return Homes(expected if every else A_PARTITION * expected, partitions, every)


def bring_together(events: DataFrame, documents: DataFrame, homes: Homes, order: Sequence[Column]) -> DataFrame:
    """All rows at their homes, without the keys. Those of one home are in one partition, by `order`."""
    if homes.every:
        routes = events.sparkSession.range(homes.count).select(
            F.lit(int(EVERY)).cast("bigint").alias("key"), F.col("id").cast("int").alias("home")
        )
    else:
        routes = events.select(F.explode("asks").alias("key"), "home")
        if homes.partitions is not None:  # else the two shuffles below would have as many as there are by default
            routes = routes.repartition(homes.partitions, "key")
        routes = routes.distinct()
    sent = documents.withColumn("key", F.explode("keys")).join(routes, "key").drop("key", "keys")
    rows = events.drop("asks").unionByName(sent, allowMissingColumns=True)
    rows = rows.repartition("home") if homes.partitions is None else rows.repartition(homes.partitions, "home")
    return rows.sortWithinPartitions(*order)


# ---- the plan ----

WORKER = "dibs.spark.joins.worker"
KEY_LIST = ArrayType(LongType())


@dataclass(frozen=True)
class Documents:
    """`frame` has the columns o0, o1, ... by which documents are ordered, if that matters, and then h0, h1, ..., those
    of the attributes, which are called `names`."""

    frame: DataFrame
    orders: list[str]
    names: list[str]
    attributes: str | None

    @property
    def columns(self) -> list[str]:
        return [f"h{i}" for i in range(len(self.names))]


@dataclass(frozen=True)
class HistoryPlan:
    """How the documents come to the events, and why. table: all of them, if they are replicated."""

    plan: str
    why: str
    keys: Keys
    documents: Documents
    table: pa.Table | None

    def __str__(self) -> str:
        return f"history {self.plan}: {self.why}; {self.keys.describe()}"


def choose(history: History, keys: Keys, events: DataFrame, here: bool) -> HistoryPlan:
    """The plan. here: the events are matched on the driver, or are a stream, to which documents cannot be brought."""
    documents = select_documents(history, keys, events)
    ordered = documents.frame.orderBy(*documents.orders) if documents.orders else documents.frame
    ordered = ordered.select(*documents.columns)
    most = SPARK_HISTORY.value
    if here or history.plan == "replicated":
        asked = "it was asked for" if history.plan == "replicated" else "the events are on the driver, or a stream"
        if here and history.plan == "partitioned":
            raise DibsError("plan='partitioned' is for a batch of events, which are not on the driver: leave it out")
        return HistoryPlan("replicated", asked, keys, documents, collect(ordered))
    if history.plan == "partitioned":
        return HistoryPlan("partitioned", "it was asked for", keys, documents, None)
    table = collect(ordered.limit(most + 1))
    if len(table) <= most and (is_local(events.sparkSession) or table.nbytes <= CARRIED_BYTES):
        return HistoryPlan("replicated", f"{len(table):,} documents, of at most {most:,}", keys, documents, table)
    why = f"more than {most:,} documents" if len(table) > most else f"{table.nbytes / 2**20:,.0f} MiB of documents"
    if keys.unkeyed:
        why += ", all of which go to every task, because of joins with no equated key"
    return HistoryPlan("partitioned", why, keys, documents, None)


def select_documents(history: History, keys: Keys, events: DataFrame) -> Documents:
    """The columns of documents that joins ask for."""
    if history.documents is None:
        raise DibsError("history=History() has no documents: give History(documents), a DataFrame of them")
    history.check_order(keys)
    frame = as_frame(history.documents, events.sparkSession)
    if frame.isStreaming:
        raise DibsError("the documents of a match are a batch DataFrame: use dibs.spark.stream, whose history grows")
    places = attribute_places(frame, keys.document_attributes, 0, history.attributes)
    for place in places:
        check_arrow(frame.columns[place], frame.schema.fields[place].dataType)
    orders = history.find_order(frame) if keys.ordered else []
    numbered = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
    columns = [F.col(f"c{place}").alias(f"o{i}") for i, place in enumerate(orders)]
    columns += [F.col(f"c{place}").alias(f"h{i}") for i, place in enumerate(places)]
    names = [frame.columns[place] for place in places]
    return Documents(numbered.select(*columns), [f"o{i}" for i in range(len(orders))], names, history.attributes)


def write_documents(plan: HistoryPlan, local: bool) -> DocumentFile:
    """The replicated documents as a file that workers open; if these are not on this machine, they get its content."""
    assert plan.table is not None
    name = own_folder() / f"history-{secrets.token_hex(8)}.arrow"
    with pa.ipc.new_file(name, plan.table.schema) as writer:
        writer.write_table(plan.table)
    content = None if local else name.read_bytes()
    if content is not None and len(content) > CARRIED_BYTES:
        raise DibsError(
            f"the documents take {len(content) / 2**20:,.0f} MiB, and at most {CARRIED_BYTES / 2**20:,.0f} MiB travel "
            "with a job: give history=dibs.spark.History(documents, plan='partitioned')"
        )
    return DocumentFile(str(name), content, plan.documents.names, plan.documents.attributes)


def meet(events: Events, plan: HistoryPlan, partitions: int | None) -> tuple[DataFrame, Meeting]:
    """Rows for workers, and what they must know of them: a number that is 0 for documents and 1 for events, the
    document's number, its columns, and then the columns of the event. Documents stand first."""
    documents, keys = plan.documents, plan.keys
    partitions = None if partitions is None else check_number("partitions", partitions)
    homes = choose_homes(events.frame.sparkSession, bool(keys.unkeyed), partitions)
    meeting = Meeting(
        pairs=[(pair.event, pair.document) for pair in keys.pairs],
        key_attributes=keys.key_attributes,
        every=bool(keys.unkeyed),
        homes=homes.count,
        event_names=events.names,
        event_attributes=events.attributes,
        document_names=documents.names,
        document_attributes=documents.attributes,
    )
    asking = _extend(events.frame, [StructField("asks", KEY_LIST), StructField("home", IntegerType())])
    given = _extend(documents.frame, [StructField("keys", KEY_LIST)])
    asked = events.frame.mapInArrow(in_worker(f"{WORKER}:ask", meeting, called="dibs_ask"), asking)
    asked = asked.withColumn("what", F.lit(1))
    held = documents.frame.mapInArrow(in_worker(f"{WORKER}:hold", meeting, called="dibs_hold"), given)
    held = held.withColumn("what", F.lit(0)).withColumn("number", F.monotonically_increasing_id())
    order = [F.col(name) for name in ("what", *documents.orders, "number")]
    rows = bring_together(asked, held, homes, order)
    return rows.select("what", "number", *documents.columns, *events.frame.columns), meeting


def _extend(frame: DataFrame, fields: list[StructField]) -> StructType:
    own = [StructField(field.name, field.dataType) for field in frame.schema.fields]
    return StructType([*own, *fields])
