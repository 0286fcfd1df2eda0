"""The conditions of conditions.py over columns and over JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from conditions import EVENTS, HOLDS, SCHEMA
from dibs.spark import match
from lanes import expected, fits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_on_spark(spark: SparkSession) -> None:
    """Columns, where all kinds fit, and JSON."""
    subscriptions = spark.createDataFrame([(text, text) for text in HOLDS], "id string, expression string")
    names = [name for name, event in EVENTS.items() if fits(event, SCHEMA)]
    columns = pa.Table.from_pylist([EVENTS[name] for name in names], SCHEMA).append_column("id", pa.array(names))
    lines = pa.table({"id": list(EVENTS), "event": [json.dumps(event) for event in EVENTS.values()]})
    for table, attributes in ((columns, None), (lines, "event")):
        rows = match(spark.createDataFrame(table), subscriptions, "id", attributes=attributes).collect()
        own = table["id"].to_pylist()
        found = {(row.event_id, row.subscription_id) for row in rows}
        right = {(name, text) for name, texts in zip(own, expected(HOLDS, own)) for text in texts}
        assert found ^ right == set()
