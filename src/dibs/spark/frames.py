"""DataFrames of subscriptions: which columns they must have, and in which form tasks get them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
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

from dibs.errors import ArgumentError, DibsError, FormatError, show
from dibs.spark.ordering import Ordering, find_order
from dibs.spark.places import MARK, UNFINISHED, first_line, is_hidden, is_unfinished, local_path, spark_path

FORMATS = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".csv": "csv",
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
}
TABLE_NAME = re.compile(r"\w+(\.\w+){0,2}")
OURS = ("id", "expression", "weight", "deleted")
CONNECT = "pyspark.sql.connect"
COLUMNS = "id (a string or an integer), expression (a string) and, if wanted, weight (a number)"


@dataclass(frozen=True)
class Subscriptions:
    """A frame with the columns id, expression, weight (null where there is none) and deleted; if they are changes,
    those of their order too."""

    frame: DataFrame
    id_type: DataType  # StringType or LongType
    weighted: bool
    ordering: Ordering | None = None  # of changes

    @property
    def text_ids(self) -> bool:
        return isinstance(self.id_type, StringType)


def is_frame(value: object) -> bool:
    """Whether it is a DataFrame of Spark, classic or of Connect."""
    return isinstance(value, DataFrame) or type(value).__module__.startswith("pyspark.sql.connect.dataframe")


def is_connect(frame_or_session: Any) -> bool:
    return type(frame_or_session).__module__.startswith(CONNECT)


def is_local(session: SparkSession) -> bool:
    """Whether the workers are on this machine."""
    return not type(session).__module__.startswith(CONNECT) and (session.conf.get("spark.master", "") or "").startswith(
        "local"
    )


def cores_of(session: SparkSession) -> int:
    """How many tasks run at once, as far as one can know."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return int(session.conf.get("spark.default.parallelism", "") or os.cpu_count() or 2)


def is_case_ignored(frame: DataFrame) -> bool:
    """Whether Spark takes names of columns in other case."""
    return (frame.sparkSession.conf.get("spark.sql.caseSensitive", "false") or "").lower() != "true"


def name_columns(subscriptions: DataFrame) -> DataFrame:
    """With our columns called as we call them, where Spark ignores case and theirs differ only in that."""
    found = subscriptions.columns
    if not is_case_ignored(subscriptions):
        return subscriptions
    lowered = [name.lower() for name in found]
    ours = {name for name in OURS if name not in found and lowered.count(name) == 1}
    if not ours:
        return subscriptions
    return subscriptions.toDF(*(low if low in ours else name for name, low in zip(found, lowered)))


def subscription_columns(
    subscriptions: DataFrame, feed: bool = False, order: str | Sequence[str] | None = None
) -> Subscriptions:
    """The frame, checked. feed: it holds changes: it may have a column `deleted`, and `order` names those that say
    which of several changes of an id is the last."""
    subscriptions = name_columns(subscriptions)
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
    ordering = find_order(subscriptions, order) if feed else None
    given = subscriptions if ordering is None else ordering.frame
    ordered = () if ordering is None else ordering.columns
    # Positions, as columns of a frame may be called the same but for upper and lower case.
    numbered = given.toDF(*(f"c{i}" for i in range(len(subscriptions.columns))), *ordered)

    def column(name: str, cast: Any) -> Any:
        there = name in types and (feed or name != "deleted")
        return (F.col(f"c{subscriptions.columns.index(name)}") if there else F.lit(None)).cast(cast).alias(name)

    wanted = [column("id", id_type), column("expression", "string"), column("weight", "double")]
    wanted.append(column("deleted", "boolean"))
    return Subscriptions(numbered.select(*wanted, *ordered), id_type, "weight" in types, ordering)


def table_frame(session: SparkSession, path: str | os.PathLike[str]) -> DataFrame | None:
    """The table of this path, URL or name: files of a format that is found by looking, Delta, or what Spark's catalog
    knows; None: there is none. Raises FormatError for one that cannot be read."""
    name = os.fspath(path)
    local = local_path(name)
    if local is None:
        return _read(session, name, FORMATS.get(PurePosixPath(name).suffix, "parquet"))
    here = Path(local)
    found = find_format(here)
    if found is not None:
        if here.is_dir() and is_unfinished(here):
            raise FormatError(
                f"{name} is being written, or its writer died: it has {UNFINISHED} and no {MARK}; wait for its end, or "
                "write it again"
            )
        return _read(session, spark_path(name), found)
    return session.table(name) if is_table_name(session, name) else None


def is_table_name(session: SparkSession, name: str) -> bool:
    """Whether Spark's catalog has a table or view of this name, and this machine no file."""
    return bool(TABLE_NAME.fullmatch(name)) and not Path(name).exists() and session.catalog.tableExists(name)


def find_format(path: Path) -> str | None:
    """Of the table at a path of this machine, by its files; None: it has none that we know."""
    if (path / "_delta_log").is_dir():
        return "delta"
    if path.is_file():
        return FORMATS.get(path.suffix)
    for file in path.rglob("*") if path.is_dir() else ():
        if file.suffix in FORMATS and not any(map(is_hidden, file.relative_to(path).parts)):
            return FORMATS[file.suffix]
    return None


def _read(session: SparkSession, path: str, found: str) -> DataFrame:
    options = {"header": "true", "inferSchema": "true"} if found == "csv" else {}
    try:
        return session.read.format(found).options(**options).load(path)
    except (PySparkException, Py4JJavaError) as error:
        raise FormatError(f"{path} cannot be read as a table ({found}): {first_line(error)}") from None


def no_subscriptions(path: str | os.PathLike[str]) -> FormatError:
    local = local_path(path)
    is_there = local is not None and Path(local).exists()
    there = "" if local is None else ", which is there," if is_there else ", which is not there,"
    return FormatError(
        f"{path}{there} holds no subscriptions: expected what dibs.spark.compile, Matcher.save or Matcher.open has "
        "written, or a table (id, expression[, weight]): Parquet, Delta, ORC, JSON or CSV files, or the name of a "
        "table or view"
    )


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
