"""Arrays as wholes on Spark, as columns and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dibs.spark import match
from lanes import expected, fits
from wholes import EVENTS, HOLDS, SCHEMA


def found(frame: DataFrame) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    for row in frame.collect():
        rows.setdefault(row.event_id, []).append(row.subscription_id)
    return {name: sorted(ids) for name, ids in rows.items()}


def test_columns_and_json(spark: SparkSession) -> None:
    wanted = {name: ids for name, ids in zip(EVENTS, expected(HOLDS, list(EVENTS))) if ids}
    subscriptions = spark.createDataFrame([(text, text) for text in HOLDS], ["id", "expression"])

    def check(events: pa.Table, kept: list[str], **options: Any) -> None:
        told = found(match(spark.createDataFrame(events), subscriptions, event_id="id", **options))
        assert told == {name: wanted[name] for name in kept if name in wanted}

    kept = [name for name, event in EVENTS.items() if fits(event, SCHEMA)]
    columns = pa.Table.from_pylist([EVENTS[name] for name in kept], SCHEMA)
    check(columns.append_column("id", pa.array(kept)), kept)
    texts = [json.dumps(event) for event in EVENTS.values()]
    check(pa.table({"id": list(EVENTS), "json": texts}), list(EVENTS), attributes="json")
