"""The events of a `match`: which columns leave the JVM, and what is refused before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    MapType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from dibs.errors import ArgumentError, DibsError, show
from dibs.language.present import datetime_at
from dibs.spark.frames import is_case_ignored, is_frame
from dibs.storage.versions import Version

RESULT_NAMES = ("event_id", "subscription_id", "subscription_ids", "weight", "weights", "why", "matches")


@dataclass(frozen=True)
class Events:
    """`frame` has the columns `carried` (the event's id and what is kept), then those of the attributes, which are
    called `names`."""

    frame: DataFrame
    carried: list[str]
    keep: list[str]  # the names of what is kept, in the order of `carried`
    names: list[str]
    attributes: str | None
    timed: bool = False  # the time of the match stands before the attributes


def as_frame(events: Any, session: SparkSession) -> DataFrame:
    """Events that are no DataFrame of Spark as one: pandas, polars, Arrow, or a list of dicts."""
    if is_frame(events):
        return events
    try:
        if isinstance(events, Sequence) and not isinstance(events, (str, bytes)):
            table = pa.Table.from_pylist(list(events))
        else:
            table = pa.table(events)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as e:
        raise ArgumentError(
            f"events are a DataFrame of Spark, pandas or polars, an Arrow table or a list of dicts, not "
            f"{show(events)} ({e})"
        ) from e
    return session.createDataFrame(table)


def event_columns(
    events: DataFrame,
    version: Version,
    event_id: str,
    attributes: str | None,
    keep: Iterable[str],
    now: int | str | None = None,
) -> Events:
    """The columns that workers get: only those that some subscription mentions, and at least one. now: the time of the
    match, or the attribute that holds the event's own; None: Spark's, which is one for a query, and in a stream one for
    a micro-batch, also when it is repeated."""
    id_place = event_place(events, event_id, "event_id")
    kept = [event_place(events, name, "keep") for name in keep]
    for place in kept:
        if events.columns[place] in RESULT_NAMES:
            raise DibsError(
                f"keep={events.columns[place]!r} is the name of a column of the result: rename it in the events"
            )
    asked = version.attributes | ({now} if isinstance(now, str) else set())
    places = attribute_places(events, asked, id_place, attributes)
    types = [field.dataType for field in events.schema.fields]
    for place in (id_place, *kept, *places):
        check_arrow(events.columns[place], types[place])
    # By position, as columns of a frame may be called the same but for upper and lower case, or hold dots.
    numbered = events.toDF(*(f"c{i}" for i in range(len(events.columns))))
    carried = ["event_id", *(f"k{i}" for i in range(len(kept)))]
    wanted = [F.col(f"c{p}").alias(name) for p, name in zip((id_place, *kept), carried)]
    timed = version.asks_for_now and not isinstance(now, str)
    if timed:
        wanted.append((F.lit(datetime_at(now)) if isinstance(now, int) else F.current_timestamp()).alias("now"))
    wanted += [F.col(f"c{p}").alias(f"a{p}") for p in places]
    names = [events.columns[p] for p in places]
    return Events(numbered.select(*wanted), carried, [events.columns[p] for p in kept], names, attributes, timed)


def column_name(events: DataFrame, given: Any, parameter: str) -> str:
    """The name of a column that is given by its name, as Spark takes names (in other case, unless it is told not to),
    or as a Column."""
    name = given
    if not isinstance(given, str):
        try:
            (name,) = events.select(given).columns
        except (PySparkException, TypeError, ValueError, AttributeError):
            raise ArgumentError(f"{parameter} is the name of a column of the events, not {show(given)}") from None
    if name not in events.columns and is_case_ignored(events):
        alike = [column for column in events.columns if column.lower() == name.lower()]
        name = alike[0] if len(alike) == 1 else name
    event_place(events, name, parameter)
    return str(name)


def event_place(events: DataFrame, name: str, parameter: str) -> int:
    count = events.columns.count(name)
    if count != 1:
        found = "two columns of that name" if count else f"the columns {', '.join(events.columns) or '(none)'}"
        raise DibsError(f"{parameter}={name!r} names no single column of the events: found {found}")
    return events.columns.index(name)


def attribute_places(events: DataFrame, paths: frozenset[str], id_place: int, attributes: str | None) -> list[int]:
    types = [field.dataType for field in events.schema.fields]
    if attributes is not None:
        place = event_place(events, attributes, "attributes")
        kind = types[place]
        keyed = isinstance(kind, MapType) and isinstance(kind.keyType, StringType)
        if not (keyed or isinstance(kind, (StructType, StringType, BinaryType))) or _contains(kind, VariantType):
            advice = ": apply to_json to it" if _contains(kind, VariantType) else ""
            raise DibsError(
                f"attributes={attributes!r} is a column of the type {kind.simpleString()}; expected a MAP with string "
                f"keys, a STRUCT, or JSON text{advice}"
            )
        return [place]
    # `a.b` is mentioned: it may be the column `a.b`, or a field of the column `a`.
    mentioned = {path[:end] for path in paths for end in prefix_ends(path)}
    places = [i for i, name in enumerate(events.columns) if name in mentioned or "*" in mentioned]
    for place in places:
        name = events.columns[place]
        if events.columns.count(name) > 1:
            raise DibsError(f"the events have two columns {name!r}, which subscriptions mention: rename or drop one")
        if _contains(types[place], VariantType):
            raise DibsError(
                f"the column {name!r} is of the type {types[place].simpleString()}, whose attributes cannot be read: "
                "apply to_json to it, and name it with attributes="
            )
    return places or [id_place]


def prefix_ends(path: str) -> list[int]:
    return [i for i, character in enumerate(path) if character == "."] + [len(path)]


def check_arrow(name: str, kind: DataType) -> None:
    """Spark hands some types over to no Python worker."""
    for refused in (YearMonthIntervalType, CalendarIntervalType):
        if _contains(kind, refused):
            raise DibsError(
                f"the column {name!r} is of the type {kind.simpleString()}, which Spark hands over to no Python "
                "worker: cast it (to int: its months) or drop it"
            )


def is_for_arrow(kind: DataType) -> bool:
    """Whether Spark hands the type over to Python workers, and takes it back."""
    refused = (YearMonthIntervalType, CalendarIntervalType, VariantType)
    return not any(_contains(kind, each) for each in refused)


def _contains(kind: DataType, wanted: type[DataType]) -> bool:
    if isinstance(kind, StructType):
        return any(_contains(f.dataType, wanted) for f in kind.fields)
    if isinstance(kind, MapType):
        return _contains(kind.keyType, wanted) or _contains(kind.valueType, wanted)
    if isinstance(kind, ArrayType):
        return _contains(kind.elementType, wanted)
    return isinstance(kind, wanted)
