"""Documents to the partitions whose events ask for them.

    events      asks (keys of documents), home (a number)   ─> routes: which home wants which key ─┐
    documents   keys                                        ─> a row for each key ─────────────────┴─> home

An event has one home, and a document goes to every home in which an event asks for one of its keys. So nothing is
answered in parts, although an event may ask for several keys (of an array, or of several joins) and a document may have
several. By two of them it may reach one home twice: whoever reads it there takes it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dibs.spark.joins.hashes import EVERY

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
