"""dibs.spark.match on batches: what comes out is what the Matcher says, whatever the events and ids look like."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import os
import zipfile
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

from dibs.errors import ArgumentError, DibsError, FormatError, SubscriptionErrors, UnknownIndex
from dibs.jit.ready import processor
from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.spark import match, matching, places, problems, worker
from dibs.spark.dealing import EventColumns, Mapped
from dibs.spark.found import Found
from dibs.storage import store, versions
from strategies import typed_expression, typed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SHOP = {
    "phones": "kind = 'phone' AND price <= 580",
    "cheap": "price < 20 OR tags = 'sale'",
    "no price": "price IS NULL",
    "nested": "maker.country IN ('FI', 'DE') AND NOT maker.name LIKE 'N%'",
    "odd names": "`x y` >= 2 AND `select` = TRUE",
    "new": "since >= DATE '2024-03-01'",
    "everything": "TRUE",
}
EVENTS: list[dict[str, Any]] = [
    {"kind": "phone", "price": 550.0, "tags": ["new"], "maker": {"country": "FI", "name": "Nokia"}},
    {"kind": "phone", "price": 600.5, "tags": ["new", "sale"], "x y": 2, "select": True, "since": dt.date(2024, 3, 1)},
    {"kind": "book", "price": None, "tags": [], "maker": {"country": "DE", "name": "R"}, "since": dt.date(2023, 1, 1)},
    {"kind": "pen", "price": 2.0, "x y": 1, "select": True},
]  # fmt: skip
COLUMNS = (
    "id string, kind string, price double, tags array<string>, maker struct<country string, name string>, "
    "`x y` int, `select` boolean, since date"
)


def subscriptions(spark: SparkSession, texts: dict[Any, str]) -> DataFrame:
    kind = "string" if all(isinstance(i, str) for i in texts) else "int"
    return spark.createDataFrame(list(texts.items()), f"id {kind}, expression string")


def shop_events(spark: SparkSession) -> DataFrame:
    names = ["kind", "price", "tags", "maker", "x y", "select", "since"]
    return spark.createDataFrame([(f"e{i}", *(e.get(n) for n in names)) for i, e in enumerate(EVENTS)], COLUMNS)


def pairs(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def expected(texts: dict[Any, str], events: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    matcher = Matcher()
    matcher.add_many(texts.items())
    return sorted((f"e{i}", found) for i, ids in enumerate(matcher.match_batch(events)) for found in ids)


def test_columns_are_attributes(spark: SparkSession) -> None:
    matches = match(shop_events(spark), subscriptions(spark, SHOP))
    assert matches.dtypes == [("event_id", "string"), ("subscription_id", "string")]
    assert pairs(matches) == expected(SHOP, EVENTS)
    assert len(expected(SHOP, EVENTS)) == 11


def test_a_match_is_a_step_of_a_chain(spark: SparkSession) -> None:
    subs = subscriptions(spark, {1: "n > 2"})
    found = spark.range(5).selectExpr("id AS e", "id AS n").transform(matching(subs, "e", count_only=True))
    assert sorted(map(tuple, found.collect())) == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1)]
    with pytest.raises(ArgumentError, match=r"call match\(events, ...\) for both"):
        matching(subs, on_error="skip")
    with pytest.raises(ArgumentError, match="kep= is no option; did you mean keep"):
        match(spark.range(5), subs, kep=["n"])  # type: ignore[call-overload]


def test_a_map_a_struct_or_json_holds_the_attributes(spark: SparkSession) -> None:
    texts = {k: v for k, v in SHOP.items() if k != "new"}  # JSON has no dates
    wide = shop_events(spark)
    inside = F.struct("kind", "price", "tags", "maker", "`x y`", "`select`")
    forms = {
        "struct": wide.select("id", inside.alias("payload")),
        "json": wide.select("id", F.to_json(inside).alias("payload")),
        "binary": wide.select("id", F.to_json(inside).cast("binary").alias("payload")),
    }
    for form, events in forms.items():
        assert pairs(match(events, subscriptions(spark, texts), attributes="payload")) == expected(texts, EVENTS), form
    rows = [("e0", {"a": "x", "b.c": "y"}), ("e1", {"a": "z"}), ("e2", {}), ("e3", None)]
    maps = spark.createDataFrame(rows, "id string, payload map<string, string>")
    texts = {"x": "a = 'x' AND b.c = 'y'", "none": "a IS NULL", "id": "id = 'e1'"}
    assert pairs(match(maps, subscriptions(spark, texts), attributes="payload")) == [
        ("e0", "x"),
        ("e2", "none"),
        ("e3", "none"),
    ]


def test_large_arrow_types(spark: SparkSession) -> None:
    name = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(name, "true")
    try:
        events = spark.sql("""SELECT 'e0' AS id, 'x' AS s, binary('{"s": "x"}') AS payload""")
        subs = subscriptions(spark, {"x": "s = 'x'"})
        assert pairs(match(events, subs)) == [("e0", "x")]
        assert pairs(match(events, subs, attributes="payload")) == [("e0", "x")]
    finally:
        spark.conf.unset(name)


def test_spark_agrees_with_the_matcher(spark: SparkSession) -> None:
    """Random expressions over typed columns with nulls, as columns and as a STRUCT, in several partitions."""
    random = Random(7)
    rows = typed_rows(random, 300)
    texts = {i: to_sql(typed_expression(random)) for i in range(300)}
    matcher = Matcher()
    matcher.add_many(texts.items())
    local = matcher.match_batch(rows).pairs()
    wanted = sorted(zip(local["event"].to_pylist(), local["subscription"].to_pylist(), strict=True))
    assert 10_000 < len(wanted) < 80_000
    events = spark.createDataFrame(rows.append_column("number", pa.array(range(len(rows))))).repartition(3)
    subs = subscriptions(spark, texts)
    assert pairs(match(events, subs, event_id="number")) == wanted
    packed = events.select("number", F.struct(*rows.column_names).alias("payload"))
    assert pairs(match(packed, subs, event_id="number", attributes="payload")) == wanted


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", ["a", "é"]),
        ("int", [1, -1]),
        ("date", [dt.date(2024, 1, 1), dt.date(1969, 1, 1)]),
        ("timestamp", [dt.datetime(2024, 1, 1, 12), dt.datetime(1969, 1, 1)]),
        ("timestamp_ntz", [dt.datetime(2024, 1, 1, 12), dt.datetime(1969, 1, 1)]),
        ("decimal(20,2)", [Decimal("1.50"), Decimal("-2.25")]),
        ("binary", [bytearray(b"\xff\x00"), bytearray(b"")]),
        ("struct<part:int,offset:bigint>", [(0, 1), (1, 0)]),
    ],
)
def test_event_ids_keep_their_type(spark: SparkSession, kind: str, values: list[Any]) -> None:
    rows = [(value, 1) for value in [*values, values[0], None]]
    matches = match(
        spark.createDataFrame(rows, f"key {kind}, a int"), subscriptions(spark, {1: "a = 1"}), event_id="key"
    )
    assert matches.dtypes == [("event_id", kind), ("subscription_id", "bigint")]
    found = [row.event_id for row in matches.collect()]
    assert sorted(map(repr, found)) == sorted(
        repr(row.key) for row in spark.createDataFrame(rows, f"key {kind}, a int").collect()
    )


def test_the_id_column_is_an_attribute_too(spark: SparkSession) -> None:
    events = spark.createDataFrame([(1,), (2,), (None,)], "id int")
    assert pairs(match(events, subscriptions(spark, {"two": "id = 2"}))) == [(2, "two")]
    assert [tuple(r) for r in match(events, subscriptions(spark, {"none": "id IS NULL"})).collect()] == [(None, "none")]


def test_weights(spark: SparkSession) -> None:
    events = spark.createDataFrame([(1, 5)], "id int, a int")
    subs = spark.createDataFrame([(1, "a = 5", 3), (2, "a > 0", None)], "id smallint, expression string, weight int")
    matches = match(events, subs)
    assert matches.dtypes == [("event_id", "int"), ("subscription_id", "bigint"), ("weight", "double")]
    assert pairs(matches) == [(1, 1, 3.0), (1, 2, 1.0)]


BAD = [
    ("good", "a = 1"),
    ("broken", "a ="),
    ("twice", "a = 2"),
    ("twice", "a = 3"),
    (None, "a = 4"),
    ("none", None),
    ("function", "squirt(a) = 2"),
]


def test_bad_subscriptions_fail_at_the_start(spark: SparkSession) -> None:
    events = spark.createDataFrame([(1, 1)], "id int, a int")
    subs = spark.createDataFrame(BAD, "id string, expression string").coalesce(1)
    with pytest.raises(SubscriptionErrors) as caught:
        match(events, subs)  # no job over the events has run yet
    assert [r.position for r in caught.value.rejected] == [1, 3, 4, 5, 6]
    assert "'broken'" in str(caught.value)
    assert "squirt" in str(caught.value).lower()


def test_bad_subscriptions_are_skipped_and_returned(spark: SparkSession) -> None:
    events = spark.createDataFrame([(1, 1)], "id int, a int")
    subs = spark.createDataFrame(BAD, "id string, expression string").coalesce(1)
    for _ in range(2):  # the second time compiled already
        matches, rejected = match(events, subs, on_error="skip")
        assert pairs(matches) == [(1, "good")]
        assert rejected.dtypes == [
            ("position", "bigint"),
            ("id", "string"),
            ("expression", "string"),
            ("error", "string"),
        ]
        rows = {row.position: row for row in rejected.collect()}
        assert sorted(rows) == [1, 3, 4, 5, 6]
        assert (rows[1].id, rows[1].expression) == ("broken", "a =")
        assert "taken" in rows[3].error
        assert rows[4].id is None
        assert rows[5].expression is None
    matches, rejected = match(events, subscriptions(spark, {7: "a = 1"}), on_error="skip")
    assert (pairs(matches), rejected.collect(), rejected.dtypes[1]) == ([(1, 7)], [], ("id", "bigint"))


def test_malformed_events_are_counted_and_listed_and_never_fail_the_job(spark: SparkSession) -> None:
    texts = ['{"a": 1}', '{"a": 1', "", "[1]", None, '{"a": 1, "b": "x"}', '{"a": 10000000000000000000000}']
    events = spark.createDataFrame(list(enumerate(texts)), "id int, payload string").repartition(2)
    events = events.union(spark.sql("SELECT 99 AS id, CAST(X'7B2261223AFF7D' AS STRING) AS payload"))  # not UTF-8
    subs = subscriptions(spark, {"one": "a = 1", "none": "a IS NULL"})
    seen = Observation()
    matches = match(events, subs, attributes="payload", observe=seen)
    assert pairs(matches) == [(0, "one"), (4, "none"), (5, "one")]
    told = seen.get
    assert told.pop("microseconds") > 0
    assert told == {"matches": 3, "malformed_events": 4, "events": events.count(), "mistakes": []}
    listed = {row.event_id: row.problem for row in problems(events, subs, attributes="payload").collect()}
    assert set(listed) == {1, 2, 3, 99}
    assert all(listed.values())


def test_an_unreadable_value_leaves_the_rest_of_its_event(spark: SparkSession) -> None:
    events = spark.sql("SELECT 1 AS id, 2 AS a, CAST(X'FF' AS STRING) AS b UNION ALL SELECT 2, 2, 'x'")
    subs = subscriptions(spark, {"a": "a = 2", "b": "b = 'x'", "c": "b IS NULL", "d": "b IS NOT NULL"})
    seen = Observation()
    assert pairs(match(events, subs, observe=seen)) == [(1, "a"), (2, "a"), (2, "b"), (2, "d")]
    told = {"matches": 4, "malformed_events": 1, "events": 2, "mistakes": []}
    assert seen.get == told | {"microseconds": seen.get["microseconds"]}
    (row,) = problems(events, subs).collect()
    assert row.event_id == 1
    assert "'b'" in row.problem


def test_nothing_in_nothing_out(spark: SparkSession) -> None:
    none = spark.createDataFrame([], "id int, a int")
    some = spark.createDataFrame([(1, 1)], "id int, a int")
    empty = spark.createDataFrame([], "id long, expression string, weight double")
    assert match(none, subscriptions(spark, {1: "TRUE"})).collect() == []
    assert match(some, empty).collect() == []
    assert match(some, empty).dtypes == [("event_id", "int"), ("subscription_id", "bigint"), ("weight", "double")]
    only_ids = spark.createDataFrame([(1,), (None,)], "id int")
    assert match(only_ids, subscriptions(spark, {"all": "TRUE", "b": "b IS NULL", "c": "c = 1"})).count() == 4


def test_columns_that_no_subscription_mentions_are_not_read(spark: SparkSession) -> None:
    events = spark.sql(
        "SELECT 1 AS id, 5 AS a, parse_json('{}') AS v, make_interval(1) AS i, CAST(X'FF' AS STRING) AS broken, "
        "raise_error('read') AS e"
    )
    seen = Observation()
    assert pairs(match(events, subscriptions(spark, {"a": "a = 5 AND b IS NULL"}), observe=seen)) == [(1, "a")]
    assert seen.get["malformed_events"] == 0


def test_names_are_taken_by_the_letter(spark: SparkSession) -> None:
    events = spark.createDataFrame([(1, 2, 3, 4, (5,))], "x int, y int, z int, w int, s struct<b: int>")
    events = events.toDF("id", "Price", "price", "a.b", "a")
    subs = subscriptions(
        spark, {"P": "Price = 2", "p": "price = 3", "other": "PRICE IS NULL", "ab": "a.b = 4 AND a.b = 5"}
    )
    assert pairs(match(events, subs)) == [(1, "P"), (1, "ab"), (1, "other"), (1, "p")]


@pytest.mark.parametrize(
    ("events", "options", "complaint"),
    [
        ("SELECT 1 AS a", {}, "event_id='id' names no single column of the events: found the columns a"),
        ("SELECT 1 AS id, 2 AS id, 3 AS a", {}, "two columns of that name"),
        ("SELECT 1 AS id, 2 AS a, 3 AS a", {}, "two columns 'a'"),
        ("SELECT 1 AS id, 2 AS a", {"attributes": "payload"}, "attributes='payload' names no single column"),
        ("SELECT 1 AS id, 2 AS a", {"attributes": "a"}, "type int; expected a MAP with string keys, a STRUCT, or JSON"),
        ("SELECT 1 AS id, map(1, 2) AS a", {"attributes": "a"}, "type map<int,int>"),
        ("SELECT 1 AS id, parse_json('1') AS a", {"attributes": "a"}, "to_json"),
        ("SELECT 1 AS id, parse_json('1') AS a", {}, "to_json"),
        ("SELECT 1 AS id, array(named_struct('v', parse_json('1'))) AS a", {}, "to_json"),
        ("SELECT 1 AS id, 2 AS a", {"on_error": "ignore"}, "on_error must be"),
        ("SELECT 1 AS id, 2 AS a", {"index": "nonesuch"}, "nonesuch"),
    ],
)
def test_mistakes_get_a_clear_error(spark: SparkSession, events: str, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(DibsError) as caught:
        match(spark.sql(events), subscriptions(spark, {1: "a = 1"}), **options)  # type: ignore[call-overload]
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("SELECT 1 AS id", "expected subscriptions with the columns id"),
        ("SELECT 1 AS id, 'a = 1' AS expression, 2 AS id", "expected subscriptions with the columns id"),
        ("SELECT 1.5 AS id, 'a = 1' AS expression", "type decimal(2,1); expected string or an integer"),
        ("SELECT 1 AS id, 2 AS expression", "the expressions are of the type int"),
        ("SELECT 1 AS id, 'a = 1' AS expression, '2' AS weight", "the weights are of the type string"),
    ],
)
def test_mistakes_in_the_subscriptions_frame(spark: SparkSession, text: str, complaint: str) -> None:
    with pytest.raises(DibsError) as caught:
        match(spark.sql("SELECT 1 AS id"), spark.sql(text))
    assert complaint in str(caught.value)


def test_an_unknown_index_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UnknownIndex):
        match(spark.range(1), subscriptions(spark, {1: "TRUE"}), index="nonesuch")
    assert match(spark.range(1), subscriptions(spark, {1: "TRUE"}), index="scan").count() == 1


def test_a_saved_index_in_place_of_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([(1, 1), (2, 2)], "id int, a int")
    matcher = Matcher()
    matcher.add("x", "a = 1")
    matcher.save(tmp_path / "index")
    assert pairs(match(events, str(tmp_path / "index"))) == [(1, "x")]
    matcher.replace("x", "a = 2", weight=2.5)
    matcher.save(tmp_path / "index")  # workers that have the old one mapped see the new one
    assert pairs(match(events, tmp_path / "index")) == [(2, "x", 2.5)]
    with pytest.raises(FormatError, match="holds no subscriptions"):
        match(events, tmp_path / "nothing")
    matcher.add(1, "a = 2")
    matcher.save(tmp_path / "mixed")
    with pytest.raises(DibsError, match="integers and strings"):
        match(events, tmp_path / "mixed")


def test_a_durable_matcher_in_place_of_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([(1, 1, 5), (2, 2, 5)], "id int, a int, b int")
    with Matcher.open(tmp_path / "live") as writer:  # and stays open for writing
        writer.add("x", "a = 1")
        assert pairs(match(events, tmp_path / "live")) == [(1, "x")]
        frame = match(events, tmp_path / "live")
        writer.replace("x", "a = 2 AND b = 5")
        assert pairs(frame) == [(1, "x")], "a frame stays with the state that it was made of"
        assert pairs(match(events, tmp_path / "live")) == [(2, "x")]


def test_index_dir_keeps_what_was_compiled(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([(1, 1)], "id int, a int")
    for texts in ({"x": "a = 1"}, {"x": "a = 1"}, {"x": "a = 1", "y": "a = 2"}):
        assert pairs(match(events, subscriptions(spark, texts), index_dir=tmp_path)) == [(1, "x")]
    assert len(list(tmp_path.iterdir())) == 2


def task_of(folder: Path, names: tuple[str, ...] = ("id", "a"), weights: bool = False, **more: Any) -> worker.Task:
    saved = versions.of_saved(folder, *store.load_all(folder))
    mapped = Mapped(str(folder), versions.to_text(saved))
    found = Found(saved.ids != "int64", ("ids", "weights") if weights else ("ids",), every_event=False)
    return worker.Task(mapped, EventColumns(("event_id",), names, None), found, **{"warn": True, **more})


def run_worker(folder: Path, batches: list[pa.RecordBatch], **given: Any) -> list[pa.RecordBatch]:
    return list(worker.run(batches, task_of(folder, **given)))


def test_many_matches_come_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PAIRS_AT_ONCE", 2_000)
    matcher = Matcher()
    matcher.add_many((f"s{i}", "a >= 0") for i in range(20))
    matcher.save(tmp_path / "index")
    ids = pa.array(range(3_000))
    rows = run_worker(tmp_path / "index", [pa.record_batch([ids, ids, ids], ["event_id", "id", "a"])])
    assert [r.num_rows for r in rows[:3]] == [256, 100, 100]
    found = pa.Table.from_batches(rows)
    assert found["event_id"].to_pylist() == list(range(3_000))
    assert all(sorted(ids) == sorted(f"s{i}" for i in range(20)) for ids in found["ids"].to_pylist())


def test_files_travel_to_workers_that_do_not_see_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places.tempfile, "tempdir", str(tmp_path))
    matcher = Matcher()
    matcher.add("x", "a = 1")
    matcher.save(tmp_path / "driver")
    batch = pa.record_batch([[7], [7], [1]], ["event_id", "id", "a"])
    task = task_of(tmp_path / "driver")
    assert isinstance(task.subscriptions, Mapped)
    version = task.subscriptions.version
    files = {name: (tmp_path / "driver" / name).read_bytes() for name in version.files()}
    elsewhere = dataclasses.replace(task.subscriptions, path=str(tmp_path / "not here"))
    old = tmp_path / f"dibs-worker-{os.getuid()}" / "old"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))  # nobody has used it for years
    for _ in range(2):
        carried = dataclasses.replace(elsewhere, files=files)
        (rows,) = worker.run([batch], dataclasses.replace(task, subscriptions=carried))
        assert rows.to_pylist() == [{"event_id": 7, "ids": ["x"], "problem": None}]
    (root,) = tmp_path.glob("dibs-worker-*")
    assert [p.name for p in root.iterdir()] == [version.fingerprint]
    with pytest.raises(FormatError, match="share"):
        list(worker.run([batch], dataclasses.replace(task, subscriptions=elsewhere)))


def test_an_event_with_many_problems_is_one_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    matcher = Matcher()
    matcher.add("x", " AND ".join(f"a{i} = 1" for i in range(30)))
    matcher.save(tmp_path / "index")
    names = tuple(f"a{i}" for i in range(30))
    broken = pa.array([b"\xff"], pa.binary()).view(pa.string())
    batch = pa.record_batch([pa.array([5]), *[broken] * 30], ["event_id", *names])
    (row,) = run_worker(tmp_path / "index", [batch], names=names, weights=True)
    assert row.schema.names == ["event_id", "ids", "weights", "problem"]
    assert row.num_rows == 1
    assert row["problem"][0].as_py().endswith("and 20 more")
    assert "1 of 1 events" in caplog.text  # nobody counts: then the log tells
    caplog.clear()
    run_worker(tmp_path / "index", [batch], names=names, warn=False)
    assert not caplog.text


def test_kernels_travel_to_workers_that_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Matcher()
    matcher.add("x", "a = 1")
    matcher.save(tmp_path / "index")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("DIBS_CACHE", str(tmp_path / "cache"))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as parcel:
        parcel.writestr("index.scan-0/scan.nbc", b"code")
    batch = pa.record_batch([[7], [7], [1]], ["event_id", "id", "a"])
    for here, arrives in (("another processor", False), (processor(), True)):
        (rows,) = run_worker(tmp_path / "index", [batch], kernels=(here, content.getvalue()))
        assert rows.num_rows == 1
        assert (tmp_path / "cache" / "index.scan-0" / "scan.nbc").exists() == arrives
