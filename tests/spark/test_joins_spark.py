"""Joins over history on Spark: batches, streams whose history grows, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dibs
from dibs.coding.events import read_events
from dibs.errors import ArgumentError, DibsError
from dibs.language.joins import joins_in
from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.spark import History, backfill, compile, explain, match, stream
from dibs.spark.access import Cuts
from dibs.spark.joins.growing_log import Landed, Log, Record, number_tasks
from dibs.spark.joins.growing_worker import Landing, land
from dibs.spark.joins.growing_worker import match as match_growing
from dibs.spark.joins.hashes import EVERY, hash_documents, hash_events
from dibs.spark.joins.keys import Keys, Pair, find_keys
from dibs.spark.living_worker import Counts, MatchColumns
from dibs.spark.tasks import Job, compile_rows
from dibs.thresholds import using
from joins import difference_of_batch, difference_of_stream, table_of, texts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def keys_of(*texts: str) -> Keys:
    return find_keys(name for text in texts for name in joins_in(parse(text)))


# ---- without Spark ----


def test_one_equality_of_each_conjunction_is_the_key() -> None:
    found = keys_of(
        "EXISTS d (d.user = user AND d.sku = sku)",
        "EXISTS d (d.user = user AND d.price > price)",
        "price < (SELECT MIN(d.price) FROM history d WHERE d.sku = sku)",
        "FORALL d (d.user <> user)",
    )
    assert found.pairs == (Pair("user", "user"), Pair("sku", "sku"))  # the most used serves the first join, too
    assert not found.unkeyed
    assert found.document_attributes == {"user", "sku", "price"}
    either = keys_of("EXISTS d ((d.a = x OR d.b = y) AND d.c > 1)")
    assert either.pairs == (Pair("x", "a"), Pair("y", "b"))


@pytest.mark.parametrize(
    "text",
    [
        "EXISTS d (d.price > price)",
        "EXISTS d (d.a = a OR d.b > b)",
        "(SELECT COUNT(*) FROM history d) > 3",
        "EXISTS d (d.result = 'fail')",
        "EXISTS d (d.time = time - INTERVAL 1 DAYS)",
        "FORALL d (d.a = a)",
    ],
)
def test_joins_without_a_key_are_told(text: str) -> None:
    found = keys_of(text)
    assert not found.pairs
    assert len(found.unkeyed) == 1
    assert "with no equated key" in found.describe()


def test_equal_values_have_equal_keys() -> None:
    now = dt.datetime(2024, 1, 1)
    documents = [{"a": 1}, {"a": 1.0}, {"a": "1"}, {"a": True}, {"a": now}, {"a": [2, "x"]}, {"a": None}, {"b": 1}]
    events = [{"x": 1}, {"x": "1"}, {"x": True}, {"x": now}, {"x": ["x", "x"]}, {"x": float("nan")}]
    kept = hash_documents(read_events(documents, ["a"]), ["a"], every=False).to_pylist()
    asked = hash_events(read_events(events, ["x"]), [Pair("x", "a")]).to_pylist()
    met = [[bool(set(ask) & set(own)) for own in kept] for ask in asked]
    same = [[0, 1], [2], [3], [4], [5], []]
    assert met == [[place in places for place in range(len(documents))] for places in same]
    assert [len(keys) for keys in kept] == [1, 1, 1, 1, 1, 2, 0, 0]
    assert len(asked[4]) == 1
    every = hash_documents(read_events(documents, ["a"]), ["a"], every=True).to_pylist()
    assert all(keys[-1] == EVERY for keys in every)


def test_numbers_go_on_from_task_to_task() -> None:
    assert number_tasks([], 5, 7) == ((), (), 5, 7)
    assert number_tasks([(2, 3, 40), (0, 2, None)], 5, None) == ((5, 7, 7), (None, None, None), 10, 40)
    assert number_tasks([(0, 1, 9), (1, 1, 8)], 0, 3) == ((0, 1), (3, 9), 2, 9)


@pytest.mark.parametrize("seed", range(6))
def test_homes_see_what_one_matcher_sees(seed: int) -> None:
    """What workers do, without Spark: events of batches, each at its home with the documents that its keys bring there,
    and with the limits of retention that it would have among all."""
    random = Random(seed)
    retain = dibs.Retain(*[(None,), (7,), (None, dt.timedelta(minutes=6), "time")][seed % 3])
    texts = texts_of(random, 30)
    table = table_of(random, 60)
    keys = keys_of(*texts.values())
    with Matcher(retain=retain) as one:
        one.add_many(texts.items())
        expected = {(event, id) for event, ids in enumerate(one.match_batch(table, remember=True)) for id in ids}
    places = list(range(table.num_columns))
    landing = Landing(
        places, table.column_names, None, sorted(one_attributes(texts)), list(map(tuple, keys.pairs)),  # type: ignore[arg-type]
        keys.key_attributes, "time" if retain.age is not None else None,
    )  # fmt: skip
    (landed,) = land(table.combine_chunks().to_batches(), landing, 0, lambda rows: None)
    kept, asks = landed["keys"].to_pylist(), landed["asks"].to_pylist()
    homes = [random.randrange(3) for _ in asks]
    found = set()
    with Matcher() as matcher:
        matcher.add_many(texts.items())
        for start in range(0, 60, 20):
            for home in range(3):
                own = [event for event in range(start, start + 20) if homes[event] == home]
                wanted = {key for event in own for key in asks[event]}
                guests = [d for d in range(start + 20) if keys.unkeyed or wanted & set(kept[d])]
                rows = [(event, 1) for event in own] + [(d, 0) for d in guests] * 2
                found |= set(
                    match_at(home, sorted(rows, key=lambda row: (row[0], -row[1])), landed, matcher, retain, start)
                )
    assert found == expected


def one_attributes(texts: dict[int, str]) -> frozenset[str]:
    with Matcher() as matcher:
        matcher.add_many(texts.items())
        return matcher.attributes


def match_at(
    home: int, rows: list[tuple[int, int]], landed: pa.RecordBatch, matcher: Matcher, retain: dibs.Retain, start: int
) -> list[tuple[int, int]]:
    place = pa.array([row[0] for row in rows], pa.int64())
    what = pa.array([row[1] for row in rows], pa.int32())
    names = landed.schema.names[: landed.num_columns - 7]
    columns = [
        place,
        what,
        landed["newest"].take(place),
        place,
        *(landed.column(i).take(place) for i in range(len(names))),
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])
    counted: list[Counts] = []
    output = MatchColumns(text_ids=False, weight=False, subscription_version=False)
    found = match_growing([batch], matcher, names, None, retain, start, False, output, counted.append)
    pairs = [(r["event_id"], r["subscription_id"]) for part in found for r in part.to_pylist()]
    assert counted[0].matches == len(pairs)
    assert counted[0].events == sum(row[1] for row in rows)
    return pairs


def test_shards_take_no_joins() -> None:
    table = pa.table({"id": ["j"], "expression": [ASKED["new"]]})
    whole = Job("path", 1, "auto", {}, False, True, 1, None, False, True, None)
    assert compile_rows(table, whole)[1] == []
    (bad,) = compile_rows(table, replace(whole, cuts=Cuts(())))[1]
    assert "joins over history are not supported in an index that is cut into shards" in str(bad.error)
    assert "shards=1" in str(bad.error)


def test_a_gap_in_the_log_is_told(tmp_path: Path) -> None:
    log = Log(tmp_path)
    part = Landed("p", ("a",), ("a",), (0,), (None,))
    record = Record((), part, 0, None, 3, 17, 1)
    log.write(4, record, "q")
    assert log.read(4, "q") == record
    assert log.read_before(5, "q") == record
    assert log.read(4, "another") is None
    with pytest.raises(DibsError, match="ends with batch 4, and this is batch 7"):
        log.read_before(7, "q")
    (tmp_path / "history" / "parts" / "lost").mkdir(parents=True)
    log.tidy(5, "q")
    assert log.read(4, "q") == record
    assert not list((tmp_path / "history" / "parts").iterdir())


# ---- batches ----


@pytest.mark.spark
@pytest.mark.parametrize("plan", ["replicated", "partitioned"])
def test_random_joins_agree_with_a_matcher(spark: SparkSession, plan: str) -> None:
    assert not difference_of_batch(spark, seed=3, subscriptions=40, events=60, plan=plan)


BOOKS = [
    {"sku": 1, "price": 5, "tags": ["a"]},
    {"sku": 1.0, "price": 9},
    {"sku": "1", "price": 1},
    {"tags": ["b", "c"]},
]
EVENTS = [(1, {"sku": 1, "price": 8}), (2, {"sku": "1", "price": 0}), (3, {"tags": ["a", "b"]}), (4, {})]
ASKED = {
    "dearer": "EXISTS d (d.sku = sku AND d.price > price)",
    "new": "NOT EXISTS d (d.sku = sku)",
    "cheapest": "price < (SELECT MIN(d.price) FROM history d WHERE d.sku = sku)",
    "tags": "(SELECT COUNT(*) FROM history d WHERE d.tags = tags) = 2",
}


def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame, DataFrame]:
    events = spark.createDataFrame([(n, json.dumps(event)) for n, event in EVENTS], "id long, value string")
    documents = spark.createDataFrame([(json.dumps(book),) for book in BOOKS], "book string")
    return events, documents, spark.createDataFrame(list(ASKED.items()), "id string, expression string")


@pytest.mark.spark
def test_json_mixed_kinds_and_every_output(spark: SparkSession) -> None:
    events, documents, subscriptions = frames(spark)
    with Matcher() as matcher:
        matcher.add_many(ASKED.items())
        matcher.history.load(BOOKS)
        expected = {(n, id) for n, event in EVENTS for id in matcher.match(event)}
    assert expected == {(1, "dearer"), (2, "dearer"), (2, "cheapest"), (3, "new"), (3, "tags"), (4, "new")}
    history = History(documents, attributes="book")
    found = match(events, subscriptions, attributes="value", history=history)
    assert {tuple(row) for row in found.collect()} == expected
    history = History(documents, attributes="book", plan="partitioned")
    given: dict[str, Any] = {"attributes": "value", "history": history}
    lists = match(events, subscriptions, how="array", keep=["value"], **given).collect()
    assert {(row.event_id, id) for row in lists for id in row.subscription_ids} == expected
    assert {(row.event_id, row.value) for row in lists} == {(n, json.dumps(event)) for n, event in EVENTS}
    counts = match(events, subscriptions, count_only=True, **given).collect()
    assert {tuple(row) for row in counts} == {(1, 1), (2, 2), (3, 2), (4, 1)}
    (best,) = match(events.filter("id = 2"), subscriptions, top=1, explain=True, **given).collect()
    assert best.subscription_id == "cheapest"
    assert "MIN(d.price)" in best.why


@pytest.mark.spark
def test_the_plan_follows_from_the_number_of_documents(spark: SparkSession, tmp_path: Path) -> None:
    events, documents, subscriptions = frames(spark)
    compile(subscriptions, tmp_path / "index", shards=1)
    history = History(documents, attributes="book")
    told = str(explain(events, tmp_path / "index", attributes="value", history=history))
    assert "history replicated: 4 documents, of at most 100,000; 4 joins; by d.sku = sku, d.tags = tags" in told
    with using({"spark_history": 3}):
        told = str(explain(events, tmp_path / "index", attributes="value", history=history))
        assert "history partitioned: more than 3 documents" in told
        unkeyed = spark.createDataFrame([("x", "EXISTS d (d.price > price)")], "id string, expression string")
        told = str(explain(events, unkeyed, attributes="value", history=history))
        assert "all of which go to every task" in told
        assert "1 with no equated key, as EXISTS (SELECT 1 FROM history d WHERE d.price > price)" in told
    rows = [{"id": n} | event for n, event in EVENTS[:1]]  # events that are on the driver already
    found = match(rows, tmp_path / "index", history=history).collect()
    assert [tuple(row) for row in found] == [(1, "dearer")]


@pytest.mark.spark
def test_what_is_refused(spark: SparkSession) -> None:
    events, documents, subscriptions = frames(spark)
    with pytest.raises(DibsError, match=r"ask for the documents that came before \(4 joins.*give history="):
        match(events, subscriptions, attributes="value")
    with pytest.raises(ArgumentError, match="history is a DataFrame of documents"):
        match(events, subscriptions, attributes="value", history="books")
    with pytest.raises(ArgumentError, match="plan must be one of"):
        History(documents, plan="big")
    with pytest.raises(DibsError, match="has no documents"):
        match(events, subscriptions, attributes="value", history=History())
    last = spark.createDataFrame(
        [("x", "price < (SELECT MAX_BY(d.price, d.time) FROM history d)")], "id string, expression string"
    )
    with pytest.raises(DibsError, match="asks for the last document, and a DataFrame has no order"):
        match(events, last, attributes="value", history=History(documents, attributes="book"))
    with pytest.raises(DibsError, match="order='time' names no single column"):
        match(events, last, attributes="value", history=History(documents, attributes="book", order="time"))


# ---- streams ----


@pytest.mark.spark
def test_a_stream_agrees_with_a_matcher(spark: SparkSession, tmp_path: Path) -> None:
    """Batches that are run again, subscriptions with new keys on the way, parts that are put together."""
    with using({"spark_history_parts": 1}):
        assert not difference_of_stream(spark, tmp_path, seed=5, subscriptions=24, events=40)


@pytest.mark.spark
def test_documents_before_the_first_event_and_a_backfill(spark: SparkSession, tmp_path: Path) -> None:
    texts = texts_of(Random(1), 20)
    documents, table = table_of(Random(2), 30), table_of(Random(3), 30, first=30)
    retain = 25
    with Matcher.open(tmp_path / "subscriptions") as living:
        living.add_many(texts.items())
    with Matcher(retain=retain) as matcher:
        matcher.add_many(texts.items())
        matcher.history.load(documents)
        expected = {(30 + n, id) for n, ids in enumerate(matcher.match_batch(table, remember=True)) for id in ids}
    shuffled = table.take(pa.array(np.random.default_rng(1).permutation(30)))
    history = History(spark.createDataFrame(documents), order="number", retain=retain, every=True)
    for _ in range(2):  # the second time it was all there
        told = backfill(
            spark.createDataFrame(shuffled),
            tmp_path / "subscriptions",
            tmp_path / "matches",
            tmp_path / "checkpoint",
            event_id="number",
            event_time="time",
            history=history,
        )
        found = pq.read_table(tmp_path / "matches").to_pylist()
        assert {(row["event_id"], row["subscription_id"]) for row in found} == expected
        assert (told.events, told.matches) == (30, len(expected)) == (30, len(found))
        assert told.lag_seconds is not None


@pytest.mark.spark
def test_streams_refuse_what_they_cannot_do(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([(1, 2)], "id long, price long")
    with Matcher.open(tmp_path / "subscriptions") as living:
        living.add("x", "EXISTS d (d.price > price)")

    def run(**given: Any) -> None:
        backfill(events, tmp_path / "subscriptions", tmp_path / "m", tmp_path / "checkpoint", **given)

    with pytest.raises(DibsError, match="ask for the documents that came before"):
        run()
    with pytest.raises(DibsError, match=r"every document must be sent to every task.*every=True"):
        run(history=History())
    with pytest.raises(DibsError, match="by count or by age, not by both"):
        run(history=History(retain=dibs.Retain(count=3, age=dt.timedelta(1))))
    with pytest.raises(DibsError, match="are for match"):
        run(history=History(plan="replicated"))
    with pytest.raises(DibsError, match="order='at' names no single column"):
        run(history=History(order="at"))
    other = spark.createDataFrame([("2",)], "price string")
    with pytest.raises(
        DibsError, match="'price' of the documents is of the type string, and that of the events bigint"
    ):
        run(history=History(other, every=True))
    with pytest.raises(DibsError, match="the events of a stream are a streaming DataFrame"):
        stream(events, tmp_path / "subscriptions", tmp_path / "m", tmp_path / "checkpoint", history=History())
