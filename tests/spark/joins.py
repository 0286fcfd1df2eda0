"""Joins over history on Spark against a Matcher in this process, on random subscriptions and events.

    python tests/spark/joins.py --subscriptions 300 --events 200 --rounds 5

Each round matches a batch with a history that stands (replicated, partitioned), and a stream whose history grows, with
random retention, while subscriptions are added, and whose sink fails now and then, so that batches are run again.
test_joins_spark.py runs a short form. (tests/spark/stream_kills.py --history kills the processes of a stream.)
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dibs.matcher import Matcher

sys.path.insert(0, str(Path(__file__).parent.parent))
from join_judges import expression, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Found = set[tuple[Any, Any]]  # (event, subscription)
TAGS = [
    "EXISTS d (d.tags = tags AND d.n >= n)",
    "(SELECT COUNT(*) FROM history d WHERE d.tags = tags) >= 3",
    "EXISTS d (d.tags = tags AND EXISTS e (e.tags = tags AND e.n > d.n))",  # the next one among those, too
    "EXISTS d (d.n = n AND size(d.tags) = size(tags))",
]


def table_of(random: Random, count: int, first: int = 0) -> pa.Table:
    """Events or documents: the columns of the judges, arrays, and a number by which they are ordered."""
    tags = [[random.choice("xyz") for _ in range(random.randrange(4))] for _ in range(count)]
    table = rows(random, count).append_column("tags", pa.array(tags, pa.list_(pa.string())))
    return table.append_column("number", pa.array(range(first, first + count)))


def texts_of(random: Random, count: int) -> dict[int, str]:
    return dict(enumerate([*TAGS, *(expression(random) for _ in range(count))]))


def difference_of_batch(spark: SparkSession, seed: int, subscriptions: int, events: int, plan: str) -> Found:
    """What Spark says otherwise than a matcher, of a history that stands."""
    from dibs.spark import History, match

    random = Random(seed)
    texts, documents, table = texts_of(random, subscriptions), table_of(random, events), table_of(random, events)
    with Matcher() as matcher:
        matcher.add_many(texts.items())
        matcher.history.load(documents)
        expected = {(event, id) for event, ids in enumerate(matcher.match_batch(table)) for id in ids}
    shuffled = documents.take(pa.array(random.sample(range(events), events)))
    history = History(spark.createDataFrame(shuffled), order="number", plan=plan)
    frame = spark.createDataFrame(list(texts.items()), "id long, expression string")
    found = match(spark.createDataFrame(table), frame, "number", history=history)
    return {tuple(row) for row in found.collect()} ^ expected


class Failing:
    """A sink that fails after it has written, now and then: the batch comes again."""

    def __init__(self, path: Path, random: Random) -> None:
        from dibs.spark.sinks import Parquet

        self._parquet, self._random, self._failed = Parquet(str(path)), random, -1

    def check(self, spark: SparkSession) -> None:
        self._parquet.check(spark)

    def write(self, matches: DataFrame, batch: int) -> None:
        self._parquet.write(matches, batch)
        if batch > self._failed and self._random.random() < 0.5:
            self._failed = batch
            raise RuntimeError("the sink fails")


def difference_of_stream(spark: SparkSession, folder: Path, seed: int, subscriptions: int, events: int) -> Found:
    """The same of a stream, of JSON texts, some of them broken. Half of the subscriptions come when it has begun."""
    from dibs import Retain
    from dibs.spark import History, stream

    random = Random(seed)
    retain = random.choice([None, events // 3, Retain(age=dt.timedelta(minutes=6), by="time")])
    texts = texts_of(random, subscriptions)
    dicts = table_of(random, events).to_pylist()
    half = {id: text for id, text in texts.items() if id % 2}
    cut = events // 2
    with Matcher(retain=retain) as plain, Matcher.open(folder / "subscriptions") as living:
        expected: Found = set()
        sink = Failing(folder / "matches", random)
        for number, (new, part) in enumerate([(half, dicts[:cut]), (texts.keys() - half.keys(), dicts[cut:])]):
            for matcher in (plain, living):
                matcher.add_many([(id, texts[id]) for id in sorted(new)])
            for ids, event in zip(plain.match_batch(_as_read(part), remember=True), part, strict=True):
                expected |= {(event["number"], id) for id in ids}
            _write(folder / "events", number, part, random)
            for _ in range(20):
                lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "events"))
                frame = lines.selectExpr("get_json_object(value, '$.number') AS id", "value")
                frame = frame.withColumn("place", frame["id"].cast("long"))
                history = History(order="place", retain=retain, every=True)
                query = stream(
                    frame, folder / "subscriptions", sink, folder / "checkpoint", attributes="value", history=history,
                    trigger="available-now",
                )  # fmt: skip
                try:
                    query.awaitTermination()
                    break
                except Exception as error:
                    if "the sink fails" not in str(error):
                        raise
    found = spark.read.parquet(str(folder / "matches")).select("event_id", "subscription_id").collect()
    assert len(found) == len(set(found)), "a match is there twice"
    return {(int(row[0]), row[1]) for row in found} ^ expected


def _as_read(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What JSON has of them: times are texts."""
    return [json.loads(_json(event)) for event in events]


def _json(event: dict[str, Any]) -> str:
    plain = {k: v.isoformat() if isinstance(v, dt.datetime) else v for k, v in event.items()}
    return json.dumps({k: v for k, v in plain.items() if v is None or (v == v and v not in (float("inf"),))})


def _write(folder: Path, number: int, events: list[dict[str, Any]], random: Random) -> None:
    """Two files, one batch each, with a broken line in between."""
    folder.mkdir(parents=True, exist_ok=True)
    half = len(events) // 2
    for place, part in enumerate((events[:half], events[half:])):
        lines = [_json(event) for event in part]
        random.shuffle(lines)  # the order is that of a column
        partial = folder / f".{number}{place}"
        partial.write_text("\n".join([*lines, '{"number": 1, "n": ']))
        os.utime(partial, (10 * number + place,) * 2)
        partial.rename(folder / f"{number}{place}.txt")


def main() -> None:
    from dibs.spark import session

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=300)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    spark = session(cores=2, spark_sql_shuffle_partitions=3)
    wrong = 0
    for seed in range(given.seed, given.seed + given.rounds):
        for plan in ("replicated", "partitioned"):
            found = difference_of_batch(spark, seed, given.subscriptions, given.events, plan)
            wrong += len(found)
            print(f"round {seed}, {plan}: {len(found)} wrong", *sorted(found)[:5])
        with tempfile.TemporaryDirectory() as folder:
            found = difference_of_stream(spark, Path(folder), seed, given.subscriptions, given.events)
            wrong += len(found)
            print(f"round {seed}, stream: {len(found)} wrong", *sorted(found)[:5], flush=True)
    spark.stop()
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
