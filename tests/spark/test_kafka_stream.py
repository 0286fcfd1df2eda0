"""A real broker: JSON events from one topic to matches in another, changes of subscriptions from a compacted third."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from brokers import load_script
from windows import by_duckdb, by_kafka, logins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def session(broker: Any) -> Iterator[SparkSession]:
    from dibs.spark import session

    kafka = load_script()
    try:
        connector = kafka.connector()
    except kafka.NoJars as error:
        pytest.skip(str(error))
    spark = session(cores=2, app="dibs-kafka", spark_jars=connector, spark_sql_shuffle_partitions=2)
    yield spark
    spark.stop()


def send(spark: SparkSession, broker: Any, topic: str, records: list[tuple[str, Any]]) -> None:
    """Records in this order: one partition of the frame, and keys decide about those of the topic."""
    rows = [(key, value if value is None or isinstance(value, str) else json.dumps(value)) for key, value in records]
    frame = spark.createDataFrame(rows, "key string, value string").coalesce(1)
    frame.write.format("kafka").option("kafka.bootstrap.servers", broker.servers).option("topic", topic).save()


def received(spark: SparkSession, broker: Any, topic: str) -> list[dict[str, Any]]:
    options = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.read.format("kafka").options(**options).option("includeHeaders", "true").load().collect()
    return [json.loads(row.value) | {"header": bytes(row.headers[0].value).decode()} for row in rows]


def test_events_changes_and_matches_over_kafka(session: SparkSession, broker: Any, tmp_path: Path) -> None:
    from dibs.spark import Topic, sinks, stream

    for topic in ("events", "matches"):
        broker.create(topic)
    broker.create("subscriptions", compacted=True)
    send(
        session,
        broker,
        "subscriptions",
        [
            ("cheap", {"expression": "price <= 10"}),
            ("red", {"id": "red", "expression": "color = 'blue'"}),
            ("red", {"id": "red", "expression": "color = 'red'"}),
            ("gone", {"expression": "TRUE"}),
            ("gone", None),
            ("bad", {"expression": "price <"}),
            ("worse", "no JSON"),
        ],
    )
    events = [(f"e{i}", {"price": i, "color": ["red", "blue"][i % 2]}) for i in range(100)]
    send(session, broker, "events", events)
    source = session.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": broker.servers, "subscribe": "events", "startingOffsets": "earliest"}
    )
    frame = source.load().selectExpr("CAST(key AS STRING) AS id", "value", "timestamp")
    query = stream(
        frame,
        Topic(broker.servers, "subscriptions"),
        sinks.Kafka(broker.servers, "matches"),
        tmp_path / "checkpoint",
        attributes="value",  # bytes, as Kafka has them
        event_time="timestamp",
        carry=["version"],
        on_error="skip",
    )
    with query:
        query.processAllAvailable()
        first = received(session, broker, "matches")
        expected = {(f"e{i}", "cheap") for i in range(11)} | {(f"e{i}", "red") for i in range(0, 100, 2)}
        assert len(first) == len(expected)
        assert {(m["event_id"], m["subscription_id"]) for m in first} == expected
        assert first[0]["header"] == f"0:{first[0]['event_id']}:{first[0]['subscription_id']}"
        assert query.metrics[0].rejected == 2
        lag = query.metrics[0].lag_seconds
        assert lag is not None and 0 < lag < 600

        send(session, broker, "subscriptions", [("cheap", None), ("dear", {"expression": "price >= 99"})])
        version = first[0]["version"]
        for number in range(200):  # until the changes are there; each round is a batch of one event
            send(session, broker, "events", [(f"late{number}", {"price": 5}), (f"dear{number}", {"price": 200})])
            query.processAllAvailable()
            if query.metrics[-1].version >= version + 2:
                break
        last = {(m["event_id"], m["subscription_id"]) for m in received(session, broker, "matches")} - expected
        assert (f"dear{number}", "dear") in last and (f"late{number}", "cheap") not in last


def test_windows_in_time_over_kafka(session: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Against DuckDB; more of it: tests/windows.py."""
    events = logins(600, 9)
    assert by_kafka(session, broker, tmp_path, events, batches=2) ^ by_duckdb(events) == set()
