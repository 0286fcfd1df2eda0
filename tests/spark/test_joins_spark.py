"""Joins over history on Spark: batches, streams whose history grows, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import dibs
from dibs.coding.events import read_events
from dibs.errors import ArgumentError, DibsError
from dibs.language.joins import joins_in
from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.spark import History, backfill, compile, explain, match, stream
from dibs.spark.access import Cuts
from dibs.spark.dealing import EventColumns, Turn
from dibs.spark.found import Found
from dibs.spark.joins.growing import _count_homes
from dibs.spark.joins.growing_log import Log, Record
from dibs.spark.joins.growing_parts import (
    Kept,
    StoredPart,
    choose,
    merge_parts,
    number_part,
    rekey_part,
    sort_rows,
    write_rows,
)
from dibs.spark.joins.growing_worker import Landing, Reading, find_home, land
from dibs.spark.joins.hashes import EVERY, hash_documents, hash_events
from dibs.spark.joins.keys import Keys, Pair, find_keys
from dibs.spark.tasks import Job, compile_rows
from dibs.spark.worker import Counts, Task, match_turns
from dibs.tuning import using
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
    within = keys_of("EXISTS d (d.user = user AND EXISTS e (e.type = d.type AND e.ip = ip))")
    assert set(within.pairs) == {Pair("user", "user"), Pair("ip", "ip")} and not within.unkeyed
    assert within.document_attributes == {"user", "type", "ip"}


@pytest.mark.parametrize(
    "text",
    [
        "EXISTS d (d.price > price)",
        "EXISTS d (d.a = a OR d.b > b)",
        "(SELECT COUNT(*) FROM history d) > 3",
        "EXISTS d (d.result = 'fail')",
        "EXISTS d (d.time = time - INTERVAL 1 DAYS)",
        "FORALL d (d.a = a)",
        "EXISTS d (d.a = a AND EXISTS e (e.b = d.b))",
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


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [None, float("-inf"), -1.0, 0.0, 2.0, float("inf"), float("nan")]),
        (pa.bool_(), [None, False, True]),
        (pa.string(), [None, "", "B", "a", "\u00e4"]),
        (pa.decimal128(9, 2), [None, Decimal("-1.50"), Decimal("1.25")]),
        (pa.timestamp("us", "UTC"), [None, dt.datetime(1969, 1, 1), dt.datetime(2024, 1, 1)]),
    ],
)
def test_rows_are_sorted_as_spark_sorts_them(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    place = Random(4).sample(range(len(values)), len(values))
    column = pa.array(values, kind).take(pa.array(place))
    (tmp_path / "p").mkdir()
    for name, part in (("0", column[:2]), ("1", column[2:])):
        write_rows(tmp_path / "p" / name, pa.schema([("c0", kind)]), [pa.record_batch({"c0": part})])
    order = sort_rows(tmp_path, part_of("p", ("0", "1")), [0])
    assert [place[row] for row in order] == list(range(len(values)))


def part_of(name: str, files: tuple[str, ...] = ("rows",), end: int = 0) -> StoredPart:
    return StoredPart(name, files, end, end, None, ("a",), ("int",), ("a",), "keys")


def test_the_newest_parts_are_merged_when_they_are_many(tmp_path: Path) -> None:
    large, small = part_of("large", end=1_000_000), part_of("small", end=10)
    with using({"spark_history_parts": 3, "size_ratio": 2}):
        assert choose((large, small, small, small)) == ()
        assert choose((large, small, small, small, small)) == (small,) * 4
        assert choose((small, large, large, large, large)) == (small, large, large, large, large)
    assert not Kept(number=10).is_left(small)
    assert Kept(number=9).is_left(small)
    assert not Kept(time=5).is_left(replace(small, latest=4))
    assert Kept(time=5).is_left(replace(small, latest=None))


@pytest.mark.parametrize("seed", range(6))
def test_homes_see_what_one_matcher_sees(tmp_path: Path, seed: int) -> None:
    """What driver and workers do, without Spark: batches are landed by two tasks, numbered and merged, and each event
    is matched at its home with the documents that its keys bring there, and with the limits of retention that it would
    have among all."""
    random = Random(seed)
    retain = dibs.Retain(*[(None,), (7,), (None, dt.timedelta(minutes=6), "time")][seed % 3])
    texts = texts_of(random, 30)
    table = table_of(random, 60)
    keys = keys_of(*texts.values())
    with Matcher(retain=retain) as one:
        one.add_many(texts.items())
        expected = {(event, id) for event, ids in enumerate(one.match_batch(table, remember=True)) for id in ids}
    names = table.column_names
    pairs = [(pair.event, pair.document) for pair in keys.pairs]
    by = "time" if retain.age is not None else None
    attributes = sorted(one_attributes(texts))
    parts: tuple[StoredPart, ...] = ()
    newest, found = None, set()
    with Matcher() as matcher:
        matcher.add_many(texts.items())
        for start in range(0, 60, 20):
            key_attributes = keys.key_attributes if start else keys.key_attributes[:1]
            landing = Landing(list(range(len(names))), names, None, attributes, pairs, key_attributes, by)
            shuffled = table.slice(start, 20).take(pa.array(random.sample(range(20), 20)))
            name = f"part{start}"
            (tmp_path / name).mkdir()
            told = [
                next(land(shuffled.slice(first, 10).combine_chunks().to_batches(), landing, str(tmp_path / name)))
                for first in (0, 10)
            ]
            files = tuple(each["file"][0].as_py() for each in told)
            own = StoredPart(name, files, 0, 0, None, tuple(names), ("?",) * len(names), tuple(key_attributes), "keys")
            order = sort_rows(tmp_path, own, [names.index("number")])
            own, after = number_part(tmp_path, own, order, start, newest)
            kept = Kept(start - retain.count if retain.count else 0)
            if len(parts) == 2:
                parts = (merge_parts(tmp_path, "merged", parts, [(name, "?") for name in names], kept),)
            reading = Reading(
                str(tmp_path), parts, own, kept, 3, bool(keys.unkeyed), tuple(names), None, "number", (), None, retain
            )
            counted: dict[int, Counts] = {}
            columns = EventColumns(("event_id",), tuple(names), None)
            task = Task((), columns, Found(text_ids=False, every_event=False), reading)
            homes = [Turn(home.events, matcher, None, number, history=home.history, here=home.here)
                     for number in range(3) for home in [find_home(number, reading, ["event_id"])] if home]  # fmt: skip
            rows = [row for batch in match_turns(homes, task, counted) for row in batch.to_pylist()]
            matched = [(row["event_id"], id) for row in rows for id in row["ids"]]
            found |= set(matched)
            assert sum(counts.matches for counts in counted.values()) == len(matched)
            assert sum(counts.events for counts in counted.values()) == 20
            own = rekey_part(tmp_path, own, names, None, keys.key_attributes)
            parts, newest = (*parts, own), after
    assert found == expected


def one_attributes(texts: dict[int, str]) -> frozenset[str]:
    with Matcher() as matcher:
        matcher.add_many(texts.items())
        return matcher.attributes


def test_shards_take_no_joins() -> None:
    table = pa.table({"id": ["j"], "expression": [ASKED["new"]]})
    whole = Job("path", 1, "auto", {}, False, True, 1, None, False, True, None)
    assert compile_rows(table, whole)[1] == []
    (bad,) = compile_rows(table, replace(whole, cuts=Cuts(())))[1]
    assert "joins over history are not supported in an index that is cut into shards" in str(bad.error)
    assert "shards=1" in str(bad.error)


def test_a_gap_in_the_log_is_told(tmp_path: Path) -> None:
    log = Log(tmp_path)
    record = Record((), part_of("p"), 0, None, 3, 17, 1)
    log.write(4, record, "q")
    assert log.read(4, "q") == record
    assert log.read_before(5, "q") == record
    assert log.read(4, "another") is None
    with pytest.raises(DibsError, match="ends with batch 4, and this is batch 7"):
        log.read_before(7, "q")
    for name in ("lost", "being merged"):
        (tmp_path / "history" / "parts" / name).mkdir(parents=True)
    log.tidy(5, "q", more=["being merged"])
    assert log.read(4, "q") == record
    assert log.read_last({None, "another", "q"}) == record
    assert [path.name for path in (tmp_path / "history" / "parts").iterdir()] == ["being merged"]


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
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    for turn in range(2):  # the second time it was all there
        jobs = scheduler.nextJobId()
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
        assert scheduler.nextJobId() - jobs <= 3 - turn  # the documents, the events, their matches
    with pytest.raises(DibsError, match=r"'n' of the events is of the type string, and of the type \w+ in the history"):
        backfill(
            spark.createDataFrame(shuffled).selectExpr("*").withColumn("n", F.col("n").cast("string")),
            tmp_path / "subscriptions",
            tmp_path / "matches",
            tmp_path / "checkpoint",
            event_id="number",
            history=History(order="number", retain=retain, every=True),
        )


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


@pytest.mark.parametrize(
    ("rows", "cores", "homes"), [(0, 2, 1), (499, 2, 1), (1_000, 2, 2), (1_600, 2, 4), (9_000, 2, 4), (1_000, 8, 3)]
)
def test_tasks_are_as_many_on_each_core(rows: int, cores: int, homes: int) -> None:
    assert _count_homes(rows, cores) == homes
