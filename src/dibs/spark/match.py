"""`match`: events and subscriptions to matches, as one DataFrame operation.

    subscriptions ─> compile (driver) ─> index files ─┐ mapped by each worker
    events ─> the columns that matter ─> mapInArrow ──┴─> matches and problems ─> observe ─> matches

Only DataFrame operations are used, so batch and streaming frames, classic Spark and Spark Connect are all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, overload

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from dibs.arguments import check_on_error
from dibs.errors import DibsError
from dibs.jit.parcel import packed
from dibs.matcher import OnError
from dibs.spark.sources import CompiledIndex, compile_subscriptions, rejected_frame, saved_index

STREAM_METRICS = "dibs"  # the name of the metrics in a stream's progress
# Index files up to this size travel inside the job to workers that cannot see them. Spark Connect takes messages of
# 128 MiB at most.
CARRIED_BYTES = 64 * 2**20


@overload
def match(
    events: DataFrame,
    subscriptions: DataFrame | str | os.PathLike[str],
    event_id: str = ...,
    attributes: str | None = ...,
    *,
    index: str = ...,
    on_error: Literal["raise"] = ...,
    observe: str | Observation | None = ...,
    index_dir: str | os.PathLike[str] | None = ...,
) -> DataFrame: ...


@overload
def match(
    events: DataFrame,
    subscriptions: DataFrame | str | os.PathLike[str],
    event_id: str = ...,
    attributes: str | None = ...,
    *,
    index: str = ...,
    on_error: Literal["skip"],
    observe: str | Observation | None = ...,
    index_dir: str | os.PathLike[str] | None = ...,
) -> tuple[DataFrame, DataFrame]: ...


def match(
    events: DataFrame,
    subscriptions: DataFrame | str | os.PathLike[str],
    event_id: str = "id",
    attributes: str | None = None,
    *,
    index: str = "auto",
    on_error: OnError = "raise",
    observe: str | Observation | None = None,
    index_dir: str | os.PathLike[str] | None = None,
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """The matches of events, a batch or a stream: DataFrame(event_id, subscription_id[, weight]).

    events         any DataFrame. Its columns are the attributes, the id column included; with `attributes`, those in
                   that MAP, STRUCT or JSON (string or binary) column.
    subscriptions  a DataFrame (id, expression[, weight]), collected and compiled now; or the path of a folder that
                   Matcher.save wrote, which the workers must see too. The result has weights when they have.
    event_id       the column whose values name the events in the result. They may be null, and need not be unique.
    index          how the subscriptions are indexed: a name in dibs.indexes().
    on_error       "raise": a bad subscription raises SubscriptionErrors, here and now, with all bad ones listed.
                   "skip": the others are matched, and the result is (matches, rejected) with rejected a
                   DataFrame(position, id, expression, error).
    observe        counts `matches` and `malformed_events` while the result is computed: an Observation (batch), or a
                   name in the metrics of the query (by default "dibs" in a stream's progress; two matches in one
                   query need two names).
    index_dir      a folder on a filesystem that driver and workers share, for compiled subscriptions. A cluster needs
                   it when they take more than 64 MiB; up to that they travel with the job.

    An event that cannot be read entirely never fails the job: it matches what its readable attributes match (nothing,
    when it is broken JSON), is counted, and `problems` lists it.
    """
    compiled = _compile(subscriptions, index, on_error, index_dir)
    if observe is None and events.isStreaming:
        observe = STREAM_METRICS
    rows = _rows(events, compiled, event_id, attributes, matches=True, warn=observe is None)
    if observe is not None:
        if events.isStreaming and not isinstance(observe, str):
            raise DibsError("an Observation works with batches only: give a name, and read it in the stream's progress")
        counts = [F.count("subscription_id").alias("matches"), F.count("problem").alias("malformed_events")]
        rows = rows.observe(observe, *counts)
    found = rows.filter(F.col("problem").isNull()).drop("problem")
    return found if on_error == "raise" else (found, rejected_frame(events.sparkSession, compiled))


def problems(
    events: DataFrame,
    subscriptions: DataFrame | str | os.PathLike[str],
    event_id: str = "id",
    attributes: str | None = None,
    *,
    index: str = "auto",
    on_error: OnError = "raise",
    index_dir: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """The events that cannot be read entirely: DataFrame(event_id, problem). Takes what `match` takes.

    Only attributes that some subscription mentions are looked at, so whatever is wrong with others is no problem.
    """
    compiled = _compile(subscriptions, index, on_error, index_dir)
    rows = _rows(events, compiled, event_id, attributes, matches=False, warn=False)
    return rows.select("event_id", "problem")


def _compile(
    subscriptions: DataFrame | str | os.PathLike[str],
    index: str,
    on_error: OnError,
    index_dir: str | os.PathLike[str] | None,
) -> CompiledIndex:
    check_on_error(on_error)
    if isinstance(subscriptions, (str, os.PathLike)):
        return saved_index(subscriptions)
    return compile_subscriptions(subscriptions, index, on_error, index_dir)


def _rows(
    events: DataFrame, compiled: CompiledIndex, event_id: str, attributes: str | None, matches: bool, warn: bool
) -> DataFrame:
    """The output of the workers: event_id, subscription_id[, weight], problem."""
    id_place = column_place(events, event_id, "event_id")
    places = attribute_places(events, compiled.attributes, id_place, attributes)
    # By position, as columns of a frame may be called the same but for upper and lower case, or hold dots.
    numbered = events.toDF(*(f"c{i}" for i in range(len(events.columns))))
    wanted = [F.col(f"c{id_place}").alias("event_id"), *(F.col(f"c{p}").alias(f"a{p}") for p in places)]
    weight = [StructField("weight", DoubleType())] if compiled.weighted else []
    schema = StructType(
        [
            StructField("event_id", events.schema.fields[id_place].dataType),
            StructField("subscription_id", compiled.id_type),
            *weight,
            StructField("problem", StringType()),
        ]
    )
    files = _carried_files(events, compiled)
    function = _worker_function(
        path=str(compiled.path),
        files=files,
        kernels=carried_kernels(events, files),
        names=[events.columns[p] for p in places],
        attributes=attributes,
        text_ids=not isinstance(compiled.id_type, LongType),
        weighted=compiled.weighted,
        matches=matches,
        warn=warn,
    )
    return numbered.select(*wanted).mapInArrow(function, schema)


def column_place(events: DataFrame, name: str, parameter: str) -> int:
    count = events.columns.count(name)
    if count != 1:
        found = "two columns of that name" if count else f"the columns {', '.join(events.columns) or '(none)'}"
        raise DibsError(f"{parameter}={name!r} names no single column of the events: found {found}")
    return events.columns.index(name)


def attribute_places(
    events: DataFrame, mentioned_paths: frozenset[str], id_place: int, attributes: str | None
) -> list[int]:
    """The columns that the workers read: those that some subscription mentions, and at least one."""
    types = [field.dataType for field in events.schema.fields]
    if attributes is not None:
        place = column_place(events, attributes, "attributes")
        kind = types[place]
        keyed = isinstance(kind, MapType) and isinstance(kind.keyType, StringType)
        if not (keyed or isinstance(kind, (StructType, StringType, BinaryType))) or _has_variant(kind):
            raise DibsError(
                f"attributes={attributes!r} is a column of the type {kind.simpleString()}; expected a MAP with string "
                "keys, a STRUCT, or JSON text" + (": apply to_json to it" if _has_variant(kind) else "")
            )
        return [place]
    # `a.b` is mentioned: it may be the column `a.b`, or a field of the column `a`.
    mentioned = {path[:end] for path in mentioned_paths for end in _prefix_ends(path)}
    places = [i for i, name in enumerate(events.columns) if name in mentioned]
    for place in places:
        name = events.columns[place]
        if events.columns.count(name) > 1:
            raise DibsError(f"the events have two columns {name!r}, which subscriptions mention: rename or drop one")
        if _has_variant(types[place]):
            raise DibsError(
                f"the column {name!r} is of the type {types[place].simpleString()}, whose attributes cannot be read: "
                "apply to_json to it, and name it with attributes="
            )
    return places or [id_place]


def _prefix_ends(path: str) -> list[int]:
    return [i for i, character in enumerate(path) if character == "."] + [len(path)]


def _has_variant(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_variant(f.dataType) for f in kind.fields)
    if isinstance(kind, MapType):
        return _has_variant(kind.valueType)
    if isinstance(kind, ArrayType):
        return _has_variant(kind.elementType)
    return isinstance(kind, VariantType)


def _carried_files(events: DataFrame, compiled: CompiledIndex) -> dict[str, bytes] | None:
    """The index files as bytes, for workers that may not see this machine's files. None: they do."""
    if compiled.shared or is_local(events):
        return None
    paths = [p for p in sorted(compiled.path.rglob("*")) if p.is_file()]
    size = sum(p.stat().st_size for p in paths)
    if size > CARRIED_BYTES:
        raise DibsError(
            f"the compiled subscriptions take {size / 2**20:,.0f} MiB, and at most {CARRIED_BYTES / 2**20:,.0f} MiB "
            "travel with a job: give index_dir=, a folder on a filesystem that the driver and all workers share"
        )
    return {p.relative_to(compiled.path).as_posix(): p.read_bytes() for p in paths}


def carried_kernels(events: DataFrame, files: dict[str, bytes] | None) -> tuple[str, bytes] | None:
    """What is compiled on the driver, so that workers need not compile. None: they share its cache, or it is too
    much beside the files; then each of their machines compiles once."""
    if is_local(events):
        return None
    kernels = packed()
    if kernels is None or len(kernels.content) + sum(map(len, (files or {}).values())) > CARRIED_BYTES:
        return None
    return kernels.processor, kernels.content  # a plain tuple: what is no class of Dibs can be unpickled without it


def is_local(events: DataFrame) -> bool:
    """Whether the workers are on this machine."""
    connect = type(events).__module__.startswith("pyspark.sql.connect")
    return not connect and events.sparkSession.conf.get("spark.master", "").startswith("local")


def _worker_function(**arguments: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What Spark pickles and runs. It is pickled by value and imports Dibs inside, where a message can say that it is
    missing."""

    def dibs_match(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib.util
        import sys

        package = importlib.util.find_spec("dibs")
        if package is None:
            raise RuntimeError(
                f"Dibs is not installed in the Python of Spark's workers, {sys.executable}: install it there"
            )
        from dibs.spark.worker import match_partition

        return match_partition(batches, **arguments)

    return dibs_match
