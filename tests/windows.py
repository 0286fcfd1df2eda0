"""Windows in time, from end to end: logins as JSON through HTTP and a stream of Spark, of files or of a topic of Kafka,
against DuckDB.

    python tests/windows.py --events 100000 --ways http spark kafka --seed 1

Each event sees those before it, whose times are texts in several forms and not in order. The tests run a short form
(service/test_windows.py, spark/test_windows_spark.py).
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, str(Path(__file__).parent / "service"))

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Found = set[tuple[int, str]]  # (number of the event, rule)
BEFORE = "SELECT 1 FROM {d} WHERE d.user = {e}user"
WITHIN = "d.time BETWEEN {e}time - INTERVAL {m} MINUTES AND {e}time"  # by which texts are times
# {e} is nothing or the alias of the event, {d} and {x} are the documents.
RULES = {
    "fifth failure in ten minutes": "{e}type = 'fail' AND (SELECT COUNT(*) FROM {d} WHERE d.user = {e}user"
    " AND d.type = 'fail' AND " + WITHIN.replace("{m}", "10") + ") >= 4",
    "success after failures": "{e}type = 'login' AND EXISTS (" + BEFORE + " AND d.type = 'fail' AND "
    + WITHIN.replace("{m}", "1") + ")",
    "no heartbeat for five minutes": "{e}type = 'login' AND NOT EXISTS (" + BEFORE + " AND d.type = 'beat' AND "
    + WITHIN.replace("{m}", "5") + ")",
    "from three places": "(SELECT COUNT(DISTINCT d.ip) FROM {d} WHERE d.user = {e}user AND "
    + WITHIN.replace("{m}", "30") + ") >= 3",
    "late": "{e}time >= TIMESTAMP '2024-05-01 20:00:00'",
    "at night": "hour({e}time) < 4 AND {e}type <> 'beat'",
    "fail, login, fail": "{e}type = 'fail' AND EXISTS (" + BEFORE + " AND d.type = 'login' AND "
    + WITHIN.replace("{m}", "5") + " AND EXISTS (SELECT 1 FROM {x} WHERE x.user = {e}user AND x.type = 'fail'"
    " AND x.time BETWEEN d.time - INTERVAL 5 MINUTES AND d.time))",
    "longer than ever": "{e}took > (SELECT MAX(d.took) FROM {d} WHERE d.user = {e}user AND "
    + WITHIN.replace("{m}", "60") + ")",
}  # fmt: skip


def rules() -> dict[str, str]:
    return {name: text.format(e="", d="history d", x="history x") for name, text in RULES.items()}


def logins(count: int, seed: int) -> list[dict[str, Any]]:
    """Of one day; each with the time as a text."""
    random = Random(seed)
    users, begin = max(3, count // 100), dt.datetime(2024, 5, 1)
    events = []
    for number in range(count):
        seconds = number * 86_000 / count + random.choice([0, 0, 0, -20, 35])
        moment = begin + dt.timedelta(seconds=max(seconds, 0), microseconds=random.randrange(3) * 500_000)
        user = f"u{int(users * random.random() ** 2)}"
        event = {"number": number, "user": user, "type": random.choice(["fail", "fail", "login", "beat"])}
        event |= {"ip": f"10.0.0.{random.randrange(5)}", "took": random.randrange(1000), "moment": moment}
        events.append(event | {"time": time_text(random, moment)})
    return events


def time_text(random: Random, moment: dt.datetime) -> str:
    form = random.randrange(4)
    if form == 0:
        return moment.isoformat() + "Z"
    if form == 1:
        return (moment + dt.timedelta(hours=2)).isoformat() + "+02:00"
    return moment.isoformat(sep=" ") if form == 2 else (moment - dt.timedelta(minutes=330)).isoformat(" ") + "-05:30"


def line_of(event: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in event.items() if name != "moment"})


def by_duckdb(events: list[dict[str, Any]]) -> Found:
    rows = pa.Table.from_pylist([{**event, "time": event["moment"]} for event in events]).drop(["moment"])
    found: Found = set()
    with duckdb.connect() as connection:
        connection.register("given", rows)
        connection.execute("CREATE TABLE logins AS SELECT * FROM given")
        for name, text in RULES.items():
            seen = {alias: f"(SELECT * FROM logins s WHERE s.number < e.number) {alias}" for alias in "dx"}
            query = f"SELECT number FROM logins e WHERE {text.format(e='e.', **seen)}"
            found |= {(number, name) for (number,) in connection.execute(query).fetchall()}
    return found


def by_http(client: Any, events: list[dict[str, Any]], at_once: int = 1_000) -> Found:
    """Published as JSON lines, some at a time."""
    for name, text in rules().items():
        client.put(f"/v1/subscriptions/{name}", json={"expression": text}).raise_for_status()
    found: Found = set()
    for first in range(0, len(events), at_once):
        body = "\n".join(map(line_of, events[first : first + at_once])).encode()
        headers = {"Content-Type": "application/jsonl", "Idempotency-Key": f"from {first}"}
        for _ in range(20):  # on a busy machine there may be no turn in time, and the same key is published once
            answer = client.post("/v1/publish", content=body, headers=headers, timeout=600)
            if answer.status_code != 503:
                break
        answer.raise_for_status()
        told = [json.loads(line) for line in answer.text.splitlines()]
        found |= {(first + place, name) for place, each in enumerate(told) for name in each["subscriptions"]}
    return found


def by_spark(spark: SparkSession, folder: Path, events: list[dict[str, Any]], batches: int = 4) -> Found:
    """A stream of files of JSON lines, whose history grows."""
    (folder / "events").mkdir()
    size = -(-len(events) // batches)
    for batch in range(batches):
        path = folder / "events" / f"{batch:03}.jsonl"
        path.write_text("\n".join(map(line_of, events[batch * size : (batch + 1) * size])))
        os.utime(path, (1_700_000_000 + batch, 1_700_000_000 + batch))  # the order in which they are read
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "events"))
    return _streamed(spark, folder, lines)


def by_kafka(spark: SparkSession, broker: Any, folder: Path, events: list[dict[str, Any]], batches: int = 4) -> Found:
    """The same, of a topic with one partition, in which they are in order."""
    broker.create("logins", partitions=1)
    kafka = {"kafka.bootstrap.servers": broker.servers}
    sent = spark.createDataFrame([(line_of(event),) for event in events], "value string").coalesce(1)
    sent.write.format("kafka").options(**kafka).option("topic", "logins").save()
    lines = spark.readStream.format("kafka").options(**kafka, subscribe="logins", startingOffsets="earliest")
    lines = lines.option("maxOffsetsPerTrigger", -(-len(events) // batches))
    return _streamed(spark, folder, lines.load().selectExpr("CAST(value AS STRING) AS value"))


def _streamed(spark: SparkSession, folder: Path, lines: Any) -> Found:
    from dibs.matcher import Matcher
    from dibs.spark import History, stream

    with Matcher.open(folder / "subscriptions") as matcher:
        matcher.add_many(list(rules().items()))
    frame = lines.selectExpr("CAST(get_json_object(value, '$.number') AS BIGINT) AS id", "value")
    given = frame, folder / "subscriptions", folder / "matches", folder / "checkpoint"
    query = stream(*given, attributes="value", history=History(order="id"), trigger="available-now")
    query.awaitTermination()
    rows = spark.read.parquet(str(folder / "matches")).select("event_id", "subscription_id").collect()
    return {(int(row[0]), row[1]) for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=["http"])
    options = parser.parse_args()
    events, wrong = logins(options.events, options.seed), 0
    right = by_duckdb(events)
    with tempfile.TemporaryDirectory() as place:
        for way in options.ways:
            folder = Path(place) / way
            folder.mkdir()
            begin = time.monotonic()
            found = WAYS[way](folder, events)
            wrong += len(found ^ right)
            took = time.monotonic() - begin
            print(f"{way}: {len(events):,} events, {len(found):,} matches, {len(found ^ right)} wrong, {took:.0f} s")
            for each in sorted(found ^ right)[:5]:
                print("   ", each, "is there" if each in found else "is missing")
    return bool(wrong)


def _by_http(folder: Path, events: list[dict[str, Any]]) -> Found:
    from serving import running

    with running(folder / "searches") as served:
        return by_http(served.client(), events)


def _by_spark(folder: Path, events: list[dict[str, Any]]) -> Found:
    from dibs.spark import session

    spark = session(cores=2, app="windows")
    try:
        return by_spark(spark, folder, events)
    finally:
        spark.stop()


def _by_kafka(folder: Path, events: list[dict[str, Any]]) -> Found:
    from brokers import load_script
    from dibs.spark import session

    kafka = load_script()
    spark = session(cores=2, app="windows", spark_jars=kafka.connector(), spark_sql_shuffle_partitions=2)
    try:
        with kafka.running() as broker:
            return by_kafka(spark, broker, folder, events)
    finally:
        spark.stop()


WAYS = {"http": _by_http, "spark": _by_spark, "kafka": _by_kafka}


if __name__ == "__main__":
    sys.exit(main())
