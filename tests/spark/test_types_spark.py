"""Declared types on Spark: with match, with compiled versions and their changes, and in a stream over a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from dibs.errors import ArgumentError
from dibs.matcher import Matcher
from dibs.spark import backfill, compile, match, stream
from dibs.tuning import using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {"price": "number", "s": "timestamp_seconds"}
SUBSCRIPTIONS = [
    ("dear", "price > '5'"),
    ("late", "s >= '2024-05-01 12:00:00'"),
    ("both", "price * 2 = 12 AND s IS NOT NULL"),
]
ROWS: list[dict[str, Any]] = [
    {"id": 0, "price": "6", "s": 1714564800},
    {"id": 1, "price": "5", "s": 1714564799},
    {"id": 2, "price": None, "s": 1714564801},
]
RIGHT = [(0, "both"), (0, "dear"), (0, "late"), (2, "late")]


def test_a_batch_and_versions(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([(r["id"], r["price"], r["s"]) for r in ROWS], "id INT, price STRING, s BIGINT")
    lines = spark.createDataFrame([(r["id"], json.dumps(r)) for r in ROWS], "id INT, j STRING")
    given = spark.createDataFrame(SUBSCRIPTIONS, "id STRING, expression STRING")

    def found(subscriptions: Any, **options: Any) -> list[list[tuple[int, str]]]:
        results = [match(events, subscriptions, **options), match(lines, subscriptions, attributes="j", **options)]
        return [sorted((r.event_id, r.subscription_id) for r in result.collect()) for result in results]

    assert found(given, types=TYPES) == [RIGHT, RIGHT]
    made = compile(given, tmp_path / "index", types=TYPES)
    assert made.version.types == TYPES
    assert found(tmp_path / "index") == [RIGHT, RIGHT]
    changed = spark.createDataFrame([("late", "s < '2024-05-01 12:00:00'")], "id STRING, expression STRING")
    compile(changed, tmp_path / "index", changes=True)
    assert found(tmp_path / "index")[0] == [(0, "both"), (0, "dear"), (1, "late")]
    for wrong in ({"price": "string"}, {}):
        with pytest.raises(ArgumentError, match="types"):
            match(events, tmp_path / "index", types=wrong)
        with pytest.raises(ArgumentError, match="types"):
            compile(changed, tmp_path / "index", changes=True, types=wrong)
    with Matcher.load(tmp_path / "index") as matcher:
        assert matcher.types == TYPES and matcher.match({"price": "6"}) == ["dear"]


def test_declared_domains_in_shards(spark: SparkSession, tmp_path: Path) -> None:
    types = {"k": "integer(0, 40)", "m": "integer(-5, 5)"}
    texts = {
        i: f"k = {i % 41} AND m <> {i % 5}" if i % 3 else f"m = {i % 11 - 5} OR k IN (1, {i % 41})" for i in range(300)
    }
    rows = [(i, [None, i % 41, 45][i % 7 % 3], i % 11 - 5) for i in range(200)]
    events = spark.createDataFrame(rows, "id INT, k INT, m INT")
    given = spark.createDataFrame(list(texts.items()), "id BIGINT, expression STRING")
    with Matcher(types=types) as matcher, using({"spark_segment": 60, "spark_task": 20}):
        matcher.add_many(texts.items())
        right = [(e, i) for (e, k, m) in rows for i in matcher.match({"k": k, "m": m} if k != 45 else {"m": m})]
        for changed in (False, True):
            compile(given.limit(40) if changed else given, tmp_path / "index", shards=4, types=types, changes=changed)
            for plan in ("sharded", "replicated"):
                found = match(events, tmp_path / "index", plan=plan)
                assert sorted((r.event_id, r.subscription_id) for r in found.collect()) == sorted(right)


def test_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    with Matcher.open(tmp_path / "folder", types=TYPES) as matcher:
        matcher.add_many(SUBSCRIPTIONS)
        matcher.compact()
        matcher.add("cheap", "price < '6'")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(json.dumps(row) for row in ROWS))
    read = spark.readStream.schema("id INT, price STRING, s BIGINT").json(str(tmp_path / "in"))
    with stream(read, tmp_path / "folder", tmp_path / "out", tmp_path / "checkpoint") as query:
        query.processAllAvailable()
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((r["event_id"], r["subscription_id"]) for r in rows) == sorted([*RIGHT, (1, "cheap")])


def test_subscriptions_of_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    """The folder that a stream or a backfill keeps for them has the types."""
    events = spark.createDataFrame([(r["id"], r["price"], r["s"]) for r in ROWS], "id INT, price STRING, s BIGINT")
    given = spark.createDataFrame(SUBSCRIPTIONS, "id STRING, expression STRING")
    for _ in range(2):  # and when it is begun again
        backfill(events, given, tmp_path / "out", tmp_path / "checkpoint", types=TYPES)
        rows = pq.read_table(tmp_path / "out").to_pylist()
        assert sorted((r["event_id"], r["subscription_id"]) for r in rows) == RIGHT
    with pytest.raises(ArgumentError, match="types"):
        backfill(events, given, tmp_path / "out", tmp_path / "checkpoint", types={"price": "string"})
    Matcher.open(tmp_path / "folder").close()
    with pytest.raises(ArgumentError, match="has its own"):
        backfill(events, tmp_path / "folder", tmp_path / "out2", tmp_path / "checkpoint2", types=TYPES)
