"""The events of a `match`: which columns leave the JVM, and what can be told of them before anything runs."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
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
from dibs.spark.frames import is_frame
from dibs.storage.versions import NUMBERS, Version

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
    events: DataFrame, version: Version, event_id: str, attributes: str | None, keep: Iterable[str]
) -> Events:
    """The columns that workers get: only those that some subscription mentions, and at least one."""
    id_place = event_place(events, event_id, "event_id")
    kept = [event_place(events, name, "keep") for name in keep]
    for place in kept:
        if events.columns[place] in RESULT_NAMES:
            raise DibsError(
                f"keep={events.columns[place]!r} is the name of a column of the result: rename it in the events"
            )
    places = attribute_places(events, version.attributes, id_place, attributes)
    types = [field.dataType for field in events.schema.fields]
    for place in (id_place, *kept, *places):
        check_arrow(events.columns[place], types[place])
    # By position, as columns of a frame may be called the same but for upper and lower case, or hold dots.
    numbered = events.toDF(*(f"c{i}" for i in range(len(events.columns))))
    carried = ["event_id", *(f"k{i}" for i in range(len(kept)))]
    wanted = [F.col(f"c{p}").alias(name) for p, name in zip((id_place, *kept), carried)]
    wanted += [F.col(f"c{p}").alias(f"a{p}") for p in places]
    names = [events.columns[p] for p in places]
    return Events(numbered.select(*wanted), carried, [events.columns[p] for p in kept], names, attributes)


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
    mentioned = {path[:end] for path in paths for end in _prefix_ends(path)}
    places = [i for i, name in enumerate(events.columns) if name in mentioned]
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


def _prefix_ends(path: str) -> list[int]:
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


# ---- what is probably a mistake ----

_told: set[str] = set()  # so that each is told once


def warn_of_mistakes(events: DataFrame, version: Version, attributes: str | None) -> None:
    """Attributes that no event can have, and numbers that are compared with strings: they match nothing, which is
    probably not meant."""
    types = {field.name: field.dataType for field in events.schema.fields}
    if attributes is None:
        known = _paths(events.schema)
    else:
        kind = types[attributes]
        if isinstance(kind, MapType) and isinstance(kind.valueType, StringType):
            numbers = sorted(name for name, kinds in version.kinds.items() if kinds == NUMBERS)
            if numbers:
                _tell(
                    f"subscriptions compare {_list(numbers)} with numbers, but the values of {attributes!r} are "
                    "strings, which are equal to no number: cast the values, map<string,double>"
                )
        if not isinstance(kind, StructType):
            return
        known = _paths(kind)
    missing = sorted(name for name in version.attributes if not _is_known(name, known))
    for name in missing[:3]:
        nearest = _nearest(name, known)
        advice = f"; did they mean {nearest!r}?" if nearest is not None else ""
        _tell(f"subscriptions mention {name!r}, which the events do not have: to them it is always null{advice}")
    if len(missing) > 3:
        _tell(f"the events do not have {len(missing):,} attributes that subscriptions mention: {_list(missing)}")
    strings = {path for path, kind in known.items() if isinstance(kind, StringType)}
    numbers = sorted(name for name in strings & version.attributes if version.kinds[name] == NUMBERS)
    if numbers:
        _tell(f"subscriptions compare {_list(numbers)} with numbers, but the events have strings there: cast them")


def _paths(schema: StructType) -> dict[str, DataType]:
    """All columns and fields of columns, by their paths."""
    result: dict[str, DataType] = {}
    for field in schema.fields:
        result[field.name] = field.dataType
        if isinstance(field.dataType, StructType):
            result |= {f"{field.name}.{path}": kind for path, kind in _paths(field.dataType).items()}
    return result


def _is_known(name: str, known: dict[str, DataType]) -> bool:
    if name in known:
        return True
    heads = (known.get(name[:end]) for end in _prefix_ends(name)[:-1])
    return any(isinstance(kind, (MapType, ArrayType)) for kind in heads)


def _nearest(name: str, known: Iterable[str]) -> str | None:
    same = {path.lower(): path for path in known}
    found = difflib.get_close_matches(name.lower(), same, n=1, cutoff=0.7)
    return same[found[0]] if found else None


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def _tell(text: str) -> None:
    if text not in _told:
        _told.add(text)
        warnings.warn(text, UserWarning, stacklevel=4)
