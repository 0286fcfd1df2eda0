"""What a `match` gives: the rows of the workers, one per event with arrays, in the form that was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, LongType, StringType, StructField, StructType

from dibs.arguments import check_flag, check_number
from dibs.errors import ArgumentError, show
from dibs.spark.found import Found

COUNTED = ("events", "microseconds")
WATERMARK = "spark.watermarkDelayMs"
LISTED = {"ids": LongType(), "weights": DoubleType(), "versions": LongType(), "why": StringType()}


@dataclass(frozen=True)
class Output:
    how: str  # "long" or "array"
    top: int | None
    keep: tuple[str, ...]
    explain: bool
    count_only: bool

    @property
    def every_event(self) -> bool:
        """Whether events without matches are rows of the result."""
        return self.how == "array" or self.count_only

    @property
    def by_event(self) -> bool:
        """Whether all matches of an event must be seen together."""
        return self.every_event or self.top is not None


def check_output(how: Any, top: Any, keep: Any, explain: Any, count_only: Any) -> Output:
    if how not in ("long", "array"):
        raise ArgumentError(f'how must be "long" or "array", not {show(how)}')
    check_flag("explain", explain)
    check_flag("count_only", count_only)
    if count_only and (explain or top is not None):
        raise ArgumentError("count_only gives no matches: it does not go with top= or explain=")
    if isinstance(keep, str) or not isinstance(keep, Iterable):
        raise ArgumentError(f"keep must be a list of columns of the events, not {show(keep)}")
    return Output(how, None if top is None else check_number("top", top), tuple(keep), explain, count_only)


def counts(output: Output, names: Iterable[str], mistakes: Iterable[str]) -> list[Column]:
    """What is observed. names: the columns of the workers' rows. mistakes: what was told of subscriptions when the
    query was made, for whoever sees only its progress."""
    sums = {"matches": F.sum("matches") if output.count_only else F.sum(F.size("ids"))}
    sums |= {name: F.sum(name) for name in COUNTED if name in names}
    found = [F.coalesce(column, F.lit(0)).cast("long").alias(name) for name, column in sums.items()]
    told = F.array(*map(F.lit, mistakes)).cast("array<string>").alias("mistakes")
    return [*found, F.count("problem").alias("malformed_events"), told]


def gather_shards(rows: DataFrame, output: Output, carried: list[str]) -> DataFrame:
    """The rows of shards: those of one event (which has a number, `row`) as one."""
    names = [field.name for field in rows.schema.fields if field.name not in ("row", *carried)]
    own = [F.first(name).alias(name) for name in carried]
    for name in names:
        if name == "problem":
            own.append(F.first(name, ignorenulls=True).alias(name))
        elif name == "matches":
            own.append(F.sum(name).alias(name))
        else:
            own.append(F.flatten(F.collect_list(name)).alias(name))
    result = rows.groupBy("row").agg(*own).drop("row")
    if output.top is None:
        return result
    lists = [name for name in names if name != "problem"]
    weight = "weights" if "weights" in lists else None

    def heaviest_first(left: Column, right: Column) -> Column:
        by_id = F.when(left["ids"] < right["ids"], -1).otherwise(1)
        if weight is None:
            return by_id
        return F.when(left[weight] > right[weight], -1).when(left[weight] < right[weight], 1).otherwise(by_id)

    zipped = F.slice(F.array_sort(F.arrays_zip(*lists), heaviest_first), 1, output.top)
    result = result.withColumn("zipped", zipped)
    return result.select(*carried, *(F.col(f"zipped.{name}").alias(name) for name in lists), "problem")


def shape_result(rows: DataFrame, output: Output, keep: list[str]) -> DataFrame:
    """The result."""
    names = rows.columns
    carried = [F.col("event_id"), *(F.col(f"k{i}").alias(name) for i, name in enumerate(keep))]
    if output.count_only:
        return rows.select(*carried, "matches")
    lists = [name for name in ("ids", "weights", "versions", "why") if name in names]
    called = {"ids": "subscription_id", "weights": "weight", "versions": "subscription_version"}
    if output.how == "array":
        called = {"ids": "subscription_ids"}
        return rows.select(*carried, *(F.col(name).alias(called.get(name, name)) for name in lists))
    if len(lists) == 1:
        return rows.select(*carried, F.explode("ids").alias("subscription_id"))
    together = rows.select(*carried, F.inline(F.arrays_zip(*lists)))
    for name in lists:
        together = together.withColumnRenamed(name, called.get(name, name))
    return together


def kept_metadata(field: StructField) -> dict[str, Any]:
    """Of a column of the events: its watermark, which Spark would not know any more behind Python workers."""
    return {key: value for key, value in (field.metadata or {}).items() if key == WATERMARK}


def worker_schema(carried: Iterable[StructField], found: Found) -> StructType:
    """What is carried, and the columns of what was found."""
    fields = [StructField(field.name, field.dataType, metadata=kept_metadata(field)) for field in carried]
    fields += [StructField("matches", LongType())] if found.count_only else []
    for name in found.lists:
        kind = StringType() if name == "ids" and found.text_ids else LISTED[name]
        fields.append(StructField(name, ArrayType(kind)))
    fields += [StructField("problem", StringType())] if found.problem else []
    for name in COUNTED if found.counted else ():
        fields.append(StructField(name, LongType()))
    return StructType(fields)
