"""dibs.spark.match on streams: the same matches as on the batch, and the counts in the stream's progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

from dibs.errors import DibsError
from dibs.spark import compile, match, problems

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TEXTS = {"even": "n IN (0, 2, 4, 6, 8)", "large": "n >= 7", "text": "s LIKE 'a%' OR s IS NULL", "all": "TRUE"}


def subscriptions(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(list(TEXTS.items()), "id string, expression string")


def write_events(folder: Path, lines: list[str]) -> None:
    folder.mkdir()
    for start in range(0, len(lines), 4):
        (folder / f"{start}.txt").write_text("\n".join(lines[start : start + 4]))


def finished(query: Any) -> Any:
    query.awaitTermination(60)
    assert query.exception() is None
    assert not query.isActive
    return query


def test_a_stream_of_json_equals_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    lines = [f'{{"n": {n % 10}, "s": "{"ab"[n % 2]}"}}' for n in range(18)] + ['{"n": 2', "nonsense"]
    write_events(tmp_path / "in", lines)
    batch = spark.read.text(str(tmp_path / "in"))
    stream = spark.readStream.option("maxFilesPerTrigger", 2).text(str(tmp_path / "in"))
    options: dict[str, Any] = dict(event_id="value", attributes="value")
    expected = sorted(map(tuple, match(batch, subscriptions(spark), **options).collect()))
    assert len(expected) == 40

    matches = match(stream, subscriptions(spark), **options)
    assert matches.isStreaming
    query = finished(
        matches.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert sorted(map(tuple, spark.read.parquet(str(tmp_path / "out")).collect())) == expected
    counts = [p["observedMetrics"]["dibs"] for p in query.recentProgress if p["numInputRows"]]
    assert len(counts) == 3  # five files, two at a time
    assert sum(c["matches"] for c in counts) == 40
    assert sum(c["malformed_events"] for c in counts) == 2
    assert sum(c["events"] for c in counts) == 20 and all(c["microseconds"] > 0 for c in counts if c["events"])


def test_a_stream_of_columns_to_memory_with_names_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.range(20).selectExpr("id AS key", "id % 10 AS n", "if(id % 2 = 0, 'a', 'b') AS s")
    events.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(events.schema).parquet(str(tmp_path / "in"))
    subs = subscriptions(spark)
    odd = subs.union(spark.createDataFrame([("odd", "n = '7'")], subs.schema))  # a kind that n never has
    with pytest.warns(UserWarning, match="compares 'n' with strings") as warned:
        first = match(stream, odd, event_id="key", observe="first")
    both = first.union(match(stream.where("n < 5"), subs, event_id="key", observe="second"))
    query = finished(both.writeStream.format("memory").queryName("matches").trigger(availableNow=True).start())
    expected = match(events, subs, event_id="key").union(match(events.where("n < 5"), subs, event_id="key"))
    assert sorted(map(tuple, spark.table("matches").collect())) == sorted(map(tuple, expected.collect()))
    metrics = [p["observedMetrics"] for p in query.recentProgress]
    assert sum(m["first"]["matches"] for m in metrics) == match(events, subs, event_id="key").count()
    assert sum(m["second"]["malformed_events"] for m in metrics) == 0
    assert all(m["second"]["mistakes"] == [] and m["first"]["mistakes"] == [str(warned[0].message)] for m in metrics)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_watermark_stays_on_a_column_that_is_kept(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    compile(subscriptions(spark), tmp_path / "index", shards=shards)
    plan = "sharded" if shards > 1 else "replicated"
    (tmp_path / "in").mkdir()
    for number, minute in enumerate([1, 1, 9]):
        row = {"id": number, "n": 8, "s": "a", "at": f"2024-03-01 00:0{minute}:00"}
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps(row))
    stream = spark.readStream.schema("id int, n int, s string, at timestamp").json(str(tmp_path / "in"))
    timed = match(stream.withWatermark("at", "1 minute"), tmp_path / "index", keep=["at"], plan=plan)
    counted = timed.groupBy(F.window("at", "1 minute"), "subscription_id").count()
    name = f"windows{shards}"
    finished(counted.writeStream.format("memory").queryName(name).trigger(availableNow=True).start())
    assert {(r.subscription_id, r["count"]) for r in spark.table(name).collect()} == {(id, 2) for id in TEXTS}


def test_problems_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path / "in", ['{"n": 1}', "[]"])
    stream = spark.readStream.text(str(tmp_path / "in"))
    found = problems(stream, subscriptions(spark), event_id="value", attributes="value")
    finished(found.writeStream.format("memory").queryName("problems").trigger(availableNow=True).start())
    assert [row.event_id for row in spark.table("problems").collect()] == ["[]"]


def test_what_a_stream_cannot_have(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    stream = spark.readStream.text(str(tmp_path / "in"))
    with pytest.raises(DibsError, match="Observation works with batches only"):
        match(stream, subscriptions(spark), event_id="value", observe=Observation())
    streaming = stream.selectExpr("value AS id", "value AS expression")
    with pytest.raises(DibsError, match="streaming DataFrame"):
        match(spark.range(1), streaming)
