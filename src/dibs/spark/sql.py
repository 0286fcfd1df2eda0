"""Matching in SQL: functions that `register` gives a session, over indexes that `use` gives names.

    dibs_match(event, index)         the ids of the subscriptions that the event matches, an array
    dibs_count(event, index)         how many they are
    dibs_explain(id, event, index)   why a subscription matches the event, or why not
    dibs_validate(text)              what is wrong with an expression; null: nothing
    dibs_matches(event, index)       a table function, for LATERAL: subscription_id, weight

An event is struct(*), or any STRUCT, MAP or JSON text that holds attributes. An index is a name of `use`, or the path
or URL of compiled or saved subscriptions. They are Arrow functions, so batches, streams, classic Spark and Connect are
the same; what runs in workers is in sql_worker.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import SparkSession

from dibs.arguments import check_text
from dibs.errors import ArgumentError, DibsError, show
from dibs.intake import check_choice
from dibs.spark.frames import session_of
from dibs.spark.match import Given, carry_files
from dibs.spark.shipping import check_workers, in_worker
from dibs.spark.sources import open_source
from dibs.spark.sql_worker import Named
from dibs.storage import versions

IDS = {"string": pa.string(), "bigint": pa.int64()}
NAME = "dibs_match"


@dataclass(frozen=True)
class _Registered:
    ids: str = "string"
    named: dict[str, Named] = field(default_factory=dict)  # what workers must know of each index


_sessions: WeakKeyDictionary[SparkSession, _Registered] = WeakKeyDictionary()


def register(spark: SparkSession | None = None, *, ids: str = "string") -> None:
    """Gives a session (the active one by default) the SQL functions dibs_match, dibs_count, dibs_explain, dibs_validate
    and the table function dibs_matches.

    ids  the type of ids in their results: "string", or "bigint" for indexes whose ids are integers. (A function of SQL
         has one type, whatever its index is.)

    An index that is named by its path has its newest version, which each task looks up when it begins; of a name of
    `use`, the version is fixed for a query.
    """
    if ids not in IDS:
        raise ArgumentError(f"ids must be one of {', '.join(map(repr, IDS))}, not {show(ids)}")
    session = session_of() if spark is None else spark
    check_workers(session)
    _put(session, replace(_sessions.get(session, _Registered()), ids=ids))


def use(
    name: str,
    subscriptions: Given,
    spark: SparkSession | None = None,
    *,
    version: int | None = None,
    index_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Gives subscriptions a name in SQL: SELECT dibs_match(struct(*), 'name') FROM events.

    subscriptions  whatever `match` takes: what dibs.spark.compile or Matcher.save wrote, a DataFrame, a Matcher.

    Queries from now on have the version that is the newest now (or `version`), however long they run; for a newer one
    call this again. Registers the functions, if that was not done.
    """
    check_text("name", name)
    session = session_of(subscriptions) if spark is None else spark
    check_workers(session)
    source = open_source(subscriptions, session, check_choice("auto", None, None, None), "raise", index_dir, version)
    if source.version.joins:
        raise DibsError("subscriptions that ask for the documents before are no index of SQL: use match(history=...)")
    files = carry_files(source, session)
    known = replace(source.version, kinds={})
    named = Named(source.place.name, versions.to_text(known), files)
    before = _sessions.get(session, _Registered())
    _put(session, replace(before, named={**before.named, name: named}))


def _put(session: SparkSession, registered: _Registered) -> None:
    """Registers all functions: those of queries that were analysed before stay as they were."""
    try:
        from pyspark.sql.functions import arrow_udf, udtf
    except ImportError:
        raise DibsError("the SQL functions of Dibs need Spark 4.1 or newer: use dibs.spark.match") from None
    _sessions[session] = registered
    ids = registered.ids
    functions = {
        NAME: ("match", f"array<{ids}>"),
        "dibs_count": ("count", "bigint"),
        "dibs_explain": ("explain", "string"),
        "dibs_validate": ("validate", "string"),
    }
    for name, (what, kind) in functions.items():
        session.udf.register(name, arrow_udf(_function(name, what, registered), kind))
    session.udtf.register("dibs_matches", udtf(_table_function(registered)))


# ---- what Spark pickles, by value ----


def _function(name: str, what: str, registered: _Registered) -> Callable[..., Any]:
    function = in_worker("dibs.spark.sql_worker:run", what, registered.named, registered.ids, called=name)
    # Spark chooses the kind of function by these, and would not find them as texts.
    function.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    return function


def _table_function(registered: _Registered) -> type:
    """Row by row: Spark has no Arrow table functions in LATERAL."""
    named, ids = registered.named, registered.ids

    class DibsMatches:
        @staticmethod
        def analyze(event: Any, index: Any) -> Any:
            from dibs.spark.sql_worker import describe_rows

            return describe_rows(event.dataType, ids)

        def __init__(self, described: Any) -> None:
            from dibs.spark.sql_worker import TableRows

            self._rows = TableRows(described.event, named, ids)

        def eval(self, event: Any, index: Any) -> Iterator[tuple[Any, float]]:
            yield from self._rows.find(event, index)

    return DibsMatches
