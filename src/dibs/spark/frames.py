"""DataFrames of subscriptions: which columns they must have, and in which form tasks get them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
)

from dibs.errors import ArgumentError, DibsError, show
from dibs.spark.places import is_url

COLUMNS = "id (a string or an integer), expression (a string) and, if wanted, weight (a number)"


@dataclass(frozen=True)
class Subscriptions:
    """A frame with the columns id, expression, weight (null where there is none) and deleted."""

    frame: DataFrame
    id_type: DataType  # StringType or LongType
    weighted: bool

    @property
    def text_ids(self) -> bool:
        return isinstance(self.id_type, StringType)


def is_frame(value: object) -> bool:
    """Whether it is a DataFrame of Spark, classic or of Connect."""
    return isinstance(value, DataFrame) or type(value).__module__.startswith("pyspark.sql.connect.dataframe")


def is_local(session: SparkSession) -> bool:
    """Whether the workers are on this machine."""
    connect = type(session).__module__.startswith("pyspark.sql.connect")
    return not connect and (session.conf.get("spark.master", "") or "").startswith("local")


def cores_of(session: SparkSession) -> int:
    """How many tasks run at once, as far as one can know."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return int(session.conf.get("spark.default.parallelism", "") or os.cpu_count() or 2)


def subscription_columns(subscriptions: DataFrame, feed: bool = False) -> Subscriptions:
    """The frame, checked. feed: it may have a column `deleted`."""
    if subscriptions.isStreaming:
        raise DibsError(
            "the subscriptions are a streaming DataFrame, but they are compiled once, at the start: read a batch"
        )
    count = subscriptions.columns.count
    if count("id") != 1 or count("expression") != 1 or count("weight") > 1 or (feed and count("deleted") > 1):
        deleted = ", deleted (a boolean)" if feed else ""
        raise DibsError(f"expected subscriptions with the columns {COLUMNS}{deleted}; found {subscriptions.columns}")
    types = {f.name: f.dataType for f in subscriptions.schema.fields}
    if isinstance(types["id"], StringType):
        id_type: DataType = StringType()
    elif isinstance(types["id"], (ByteType, ShortType, IntegerType, LongType)):
        id_type = LongType()
    else:
        raise DibsError(
            f"the ids of the subscriptions are of the type {types['id'].simpleString()}; expected string or an integer "
            "type: cast them"
        )
    if not isinstance(types["expression"], StringType):
        raise DibsError(f"the expressions are of the type {types['expression'].simpleString()}; expected string")
    if not isinstance(types.get("weight", LongType()), NumericType):
        raise DibsError(f"the weights are of the type {types['weight'].simpleString()}; expected a number: cast them")
    if feed and not isinstance(types.get("deleted", BooleanType()), BooleanType):
        raise DibsError(f"deleted is of the type {types['deleted'].simpleString()}; expected a boolean: cast it")
    # Positions, as columns of a frame may be called the same but for upper and lower case.
    numbered = subscriptions.toDF(*(f"c{i}" for i in range(len(subscriptions.columns))))

    def column(name: str, cast: Any) -> Any:
        there = name in types and (feed or name != "deleted")
        return (F.col(f"c{subscriptions.columns.index(name)}") if there else F.lit(None)).cast(cast).alias(name)

    wanted = [column("id", id_type), column("expression", "string"), column("weight", "double")]
    return Subscriptions(numbered.select(*wanted, column("deleted", "boolean")), id_type, "weight" in types)


def table_frame(session: SparkSession, path: str | os.PathLike[str]) -> DataFrame | None:
    """The table of a lake at this path: Parquet files, or Delta; None: there is none."""
    name = os.fspath(path)
    if is_url(name):
        return session.read.parquet(name)
    here = Path(name)
    if (here / "_delta_log").is_dir():
        return session.read.format("delta").load(name)
    if here.suffix == ".parquet" or (here.is_dir() and next(here.glob("*.parquet"), None) is not None):
        return session.read.parquet(name)
    return None


def session_of(*given: Any) -> SparkSession:
    """The session of the first frame among these, or else the one that is active."""
    for value in given:
        if is_frame(value):
            return value.sparkSession
    active = SparkSession.getActiveSession()
    if active is None:
        raise DibsError("there is no active Spark session: start one, dibs.spark.session() or your own")
    return active


def not_subscriptions(value: object) -> ArgumentError:
    return ArgumentError(
        f"subscriptions are a DataFrame of Spark with the columns {COLUMNS}, a Matcher, or the path of one that was "
        f"saved or compiled, not {show(value)}: make a frame of it, spark.createDataFrame(...)"
    )
