"""What a `match` gives: the rows of the workers, one per event with arrays, in the form that was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StringType, StructField, StructType

from dibs.arguments import check_flag, check_number
from dibs.errors import ArgumentError, show

WATERMARK = "spark.watermarkDelayMs"


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


def list_found_fields(output: Output, id_type: DataType, weighted: bool) -> list[StructField]:
    """The columns of the workers behind those that are carried."""
    if output.count_only:
        fields = [StructField("matches", LongType())]
    else:
        fields = [StructField("ids", ArrayType(id_type))]
        fields += [StructField("weights", ArrayType(DoubleType()))] if weighted else []
        fields += [StructField("why", ArrayType(StringType()))] if output.explain else []
    return [*fields, StructField("problem", StringType())]


def counts(output: Output) -> list[Column]:
    """What is observed."""
    matches = F.sum("matches") if output.count_only else F.sum(F.size("ids"))
    return [
        F.coalesce(matches, F.lit(0)).cast("long").alias("matches"),
        F.count("problem").alias("malformed_events"),
    ]


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
    lists = [name for name in ("ids", "weights", "why") if name in names]
    called = {"ids": "subscription_ids" if output.how == "array" else "subscription_id", "weights": "weight"}
    if output.how == "array":
        called["weights"] = "weights"
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


def worker_schema(carried: Iterable[StructField], output: Output, id_type: DataType, weighted: bool) -> StructType:
    own = [StructField(field.name, field.dataType, metadata=kept_metadata(field)) for field in carried]
    return StructType([*own, *list_found_fields(output, id_type, weighted)])
