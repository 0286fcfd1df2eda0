"""dibs.spark.compile: versions of an index that hold what a matcher with the same subscriptions holds."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet
from pyspark.sql import functions as F

from dibs.errors import ArgumentError, DibsError, FormatError, SubscriptionErrors
from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.spark import History, Table, backfill, compile, match, versions
from dibs.spark.frames import table_frame
from dibs.tuning import using
from strategies import typed_expression, typed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SMALL = {"spark_segment": 40, "spark_task": 10, "spark_small_segments": 2}


def frame(spark: SparkSession, texts: dict[Any, str]) -> DataFrame:
    kind = "string" if all(isinstance(i, str) for i in texts) else "long"
    return spark.createDataFrame(list(texts.items()), f"id {kind}, expression string")


def found(matcher: Matcher, rows: pa.Table) -> set[tuple[int, Any]]:
    pairs = matcher.match_batch(rows).pairs()
    return set(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True))


def expected(texts: dict[Any, str], rows: pa.Table) -> set[tuple[int, Any]]:
    matcher = Matcher()
    matcher.add_many(texts.items())
    return found(matcher, rows)


def changed(texts: dict[Any, str], random: Random) -> dict[Any, str]:
    """Some go, some are replaced, some come."""
    kept = {id: text for id, text in texts.items() if random.random() > 0.1}
    for id in random.sample(sorted(kept), 10):
        kept[id] = to_sql(typed_expression(random))
    return kept | {max(texts) + 1 + i: to_sql(typed_expression(random)) for i in range(15)}


@pytest.mark.parametrize("shards", [1, 3])
def test_versions_of_a_changing_table(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    random = Random(shards)
    rows = typed_rows(random, 100)
    texts: dict[Any, str] = {i: to_sql(typed_expression(random)) for i in range(120)}
    tables = []
    with using(SMALL):
        for number in range(1, 4):
            done = compile(frame(spark, texts).repartition(2), tmp_path / "index", shards=shards)
            tables.append(dict(texts))
            assert done.version.version == versions.latest(tmp_path / "index") == number
            assert done.version.subscriptions == len(texts)
            texts = changed(texts, random)
    wanted = [expected(texts, rows) for texts in tables]
    assert len(set(map(frozenset, wanted))) == 3
    for number, pairs in enumerate(wanted, 1):  # old ones stay what they were
        assert found(versions.load_matcher(tmp_path / "index", number), rows) == pairs
    assert found(Matcher.load(tmp_path / "index"), rows) == wanted[-1]
    assert any(s.removed for s in versions.open_version(tmp_path / "index", 2).segments)
    routes = versions.open_version(tmp_path / "index").routes
    assert (len(routes) > 2) == (shards > 1)
    versions.remove_versions(tmp_path / "index", keep=1)
    assert versions.list_versions(tmp_path / "index") == [3]
    assert found(Matcher.load(tmp_path / "index"), rows) == wanted[-1]
    with pytest.raises(FormatError, match="no compiled subscriptions of version 2"):
        versions.open_version(tmp_path / "index", 2)


def test_only_what_changed_is_written(spark: SparkSession, tmp_path: Path) -> None:
    texts = {f"s{i}": f"a = {i}" for i in range(500)}
    first = compile(frame(spark, texts), tmp_path / "index").version
    texts["s7"] = "a = 70"
    del texts["s9"]
    second = compile(frame(spark, texts), tmp_path / "index").version
    new = [s for s in second.segments if s.file not in {s.file for s in first.segments}]
    assert [s.rows for s in new] == [1]
    assert sum(s.removed_rows for s in second.segments) == 2
    third = compile(frame(spark, texts), tmp_path / "index").version
    assert third.segments == second.segments
    assert Matcher.load(tmp_path / "index").match({"a": 70}) == ["s7", "s70"]
    assert Matcher.load(tmp_path / "index").get("s7").version == 2


def test_a_feed_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id int, expression string, deleted boolean, at int"
    begin = [(i, f"a = {i}", False, 2) for i in range(100)]  # a first one too
    begin += [(8, "a = 80", False, 1), (300, None, True, 2), (300, "a = 4", False, 1)]
    compile(spark.createDataFrame(begin, schema), tmp_path / "index", changes=True, order="at")
    assert Matcher.load(tmp_path / "index").match({"a": 8}) == [8]
    rows = [
        (1, "a = 2", False, 1),
        (2, None, True, 1),
        (3, "a = ", False, 1),  # bad: 3 stays what it is
        (100, "a = 4", False, 2),  # the last one counts
        (100, "a = 5", False, 1),
        (200, None, True, 1),  # nobody
        (4, "a = 9", False, 5),  # which of them is the last? 4 stays what it is
        (4, None, True, 5),
        (5, "a = 5", False, 5),  # the same
        (5, "a = 5", False, 5),
        (6, "a = 9", False, 1),
        (6, "a = 6", False, None),
        (None, "a = 6", False, 1),
        (None, "a = 7", False, 1),
    ]
    feed = spark.createDataFrame(rows, schema)
    with pytest.raises(SubscriptionErrors, match="at does not say which is the last") as caught:
        compile(feed, tmp_path / "index", changes=True, order="at")
    bad = [2, 6, 7, 10, 11, 12, 13]
    assert [r.position for r in caught.value.rejected] == bad
    assert versions.list_versions(tmp_path / "index") == [1]
    with pytest.raises(SubscriptionErrors, match="give order=") as caught:
        compile(feed, tmp_path / "index", changes=True)
    assert [r.position for r in caught.value.rejected] == sorted([*bad, 3, 4])
    with pytest.raises(ArgumentError, match="order= says which"):
        compile(feed, tmp_path / "index", order="at")
    done = compile(feed, tmp_path / "index", changes=True, order="at", on_error="skip")
    assert sorted(r.position for r in done.rejected.collect()) == bad
    matcher = Matcher.load(tmp_path / "index")
    assert len(matcher) == done.version.subscriptions == 100
    assert [matcher.match({"a": i}) for i in range(6)] == [[0], [], [1], [3], [4, 100], [5]]


@pytest.mark.parametrize("shards", [1, 3])
def test_changes_on_the_driver(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    random = Random(shards)
    rows = typed_rows(random, 100)
    texts: dict[Any, str] = {i: to_sql(typed_expression(random)) for i in range(60)}
    compile(frame(spark, texts), tmp_path / "index", shards=shards)
    with using(SMALL):
        for number in range(2, 8):
            new = changed(texts, random)
            gone = [id for id in texts if id not in new]
            ids = [*gone, *(id for id, text in new.items() if texts.get(id) != text)]
            table = {"id": ids, "expression": [new.get(id) for id in ids], "deleted": [id not in new for id in ids]}
            version, bad = versions.apply_changes(tmp_path / "index", pa.table(table))
            assert (version.version, version.subscriptions, bad) == (number, len(new), [])
            texts = new
            assert found(Matcher.load(tmp_path / "index"), rows) == expected(texts, rows)
    few = pa.table({"id": [1, 2, 1], "expression": ["a =", "a = 1", "b ="]})
    with pytest.raises(SubscriptionErrors):
        versions.apply_changes(tmp_path / "index", few)
    version, bad = versions.apply_changes(tmp_path / "index", few, on_error="skip")
    assert [(r.position, r.id) for r in bad] == [(1, 1)]
    assert Matcher.load(tmp_path / "index").get(2).expression == "a = 1"


BAD = [("good", "a = 1"), ("broken", "a ="), ("twice", "a = 2"), ("twice", "a = 3"), (None, "a = 4"), ("none", None)]


def test_bad_subscriptions(spark: SparkSession, tmp_path: Path) -> None:
    table = spark.createDataFrame([*BAD, ("later", "squirt(a) = 2")], "id string, expression string").repartition(3)
    order = [row.id for row in table.collect()]
    with pytest.raises(SubscriptionErrors) as caught:
        compile(table, tmp_path / "index")
    assert len(caught.value.rejected) == 5
    assert "taken already: the table has it twice: keep one row of each id" in str(caught.value)
    assert not versions.list_versions(tmp_path / "index")
    assert not list((tmp_path / "index" / "segments").iterdir())
    done = compile(table, tmp_path / "index", on_error="skip")
    rejected = {row.position: row for row in done.rejected.collect()}
    assert len(rejected) == done.version.rejected == 5
    for position, row in rejected.items():
        assert order[position] == row.id
    assert len(Matcher.load(tmp_path / "index")) == 2
    clean = compile(frame(spark, {"good": "a = 1"}), tmp_path / "index")
    assert (clean.rejected.collect(), clean.rejected.columns) == ([], ["position", "id", "expression", "error"])


@pytest.mark.parametrize(("shards", "text_ids"), [(1, False), (3, True)])
def test_ids_that_stand_in_several_partitions(spark: SparkSession, tmp_path: Path, shards: int, text_ids: bool) -> None:
    """As `add_table` does with the rows in their order: the first good one stays, the others are told."""
    random = Random(7)
    rows = typed_rows(random, 50)
    ids = [random.randrange(60) for _ in range(150)]
    texts = [to_sql(typed_expression(random)) if random.random() < 0.9 else "a =" for _ in ids]
    table = pa.table({"id": list(map(str, ids)) if text_ids else ids, "expression": texts, "weight": [2.0] * 150})
    matcher = Matcher()
    bad = matcher.add_table(table, on_error="skip")
    for part in range(3):
        parquet.write_table(table.slice(50 * part, 50), tmp_path / f"{part}.parquet")
    frame = spark.read.parquet(str(tmp_path / "0.parquet"))
    for part in (1, 2):
        frame = frame.union(spark.read.parquet(str(tmp_path / f"{part}.parquet")))
    with using({**SMALL, "spark_segment": 20}):
        done = compile(frame, tmp_path / "index", shards=shards, on_error="skip")
    listed = {(r.position, r.id, r.expression) for r in done.rejected.collect()}
    assert listed == {(r.position, r.id, r.expression) for r in bad}
    assert done.version.subscriptions == len(matcher)
    assert found(Matcher.load(tmp_path / "index"), rows) == found(matcher, rows)
    named = {Path(name).name for name in done.version.files()}
    assert {file.name for file in (tmp_path / "index" / "segments").iterdir()} == named


def test_weights_matchers_and_tables_of_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    matcher = Matcher()
    matcher.add("x", "a = 1", weight=2.5)
    matcher.add("y", "a >= 1")
    matcher.remove("y")
    matcher.add("z", "a > 0")
    assert compile(matcher, tmp_path / "one").version.weighted
    assert Matcher.load(tmp_path / "one").match({"a": 1}, top=1) == ["x"]
    matcher.export(tmp_path / "table.parquet")
    compile(str(tmp_path / "table.parquet"), tmp_path / "two")
    assert Matcher.load(tmp_path / "two").get("x").weight == 2.5
    with pytest.raises(FormatError, match="holds no subscriptions"):
        compile(tmp_path / "nothing", tmp_path / "three")
    with pytest.raises(DibsError, match="DataFrame of Spark"):
        compile([("x", "a = 1")], tmp_path / "three")  # type: ignore[arg-type]


def test_an_empty_table_and_another_type_of_ids(spark: SparkSession, tmp_path: Path) -> None:
    empty = spark.createDataFrame([], "id long, expression string")
    assert compile(empty, tmp_path / "index").version.subscriptions == 0
    assert Matcher.load(tmp_path / "index").match({"a": 1}) == []
    compile(frame(spark, {1: "a = 1"}), tmp_path / "index")
    with pytest.raises(DibsError, match=r"ids in .* are of the type int64"):
        compile(frame(spark, {"1": "a = 1"}), tmp_path / "index")


def test_a_place_that_is_no_folder(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`local` is Arrow's name of a filesystem that is used as remote ones are: files are copied there and back."""
    url = f"local://{tmp_path / 'far'}"
    texts = {i: f"a = {i} OR b = {i}" for i in range(50)}
    compile(frame(spark, texts), url, shards=2)
    texts[1] = "a = 7"
    del texts[2]
    compile(frame(spark, texts), url)
    assert versions.list_versions(url) == [1, 2]
    assert versions.load_matcher(url).match({"a": 7, "b": 2}) == [1, 7]
    versions.remove_versions(url)
    assert versions.load_matcher(url).match({"a": 7, "b": 2}) == [1, 7]
    with pytest.raises(DibsError, match="no filesystem opens nowhere://there"):
        compile(frame(spark, texts), "nowhere://there")


def test_a_path_or_name_is_what_lies_there(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "expression": ["a = 1", "a > 1"]})
    for folder in ("parquet", "orc", "json", "csv", "parts/part=0"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("parquet", "parts/part=0"):
        parquet.write_table(rows, tmp_path / folder / "a.parquet")
    orc.write_table(rows, tmp_path / "orc" / "a.orc")
    (tmp_path / "json" / "a.json").write_text("\n".join(map(json.dumps, rows.to_pylist())))
    (tmp_path / "csv" / "a.csv").write_text("id,expression\n1,a = 1\n2,a > 1\n")
    table = spark.createDataFrame(rows)
    table.createOrReplaceTempView("alerts")
    paths = [*(f"file://{tmp_path / kind}" for kind in ("parquet", "orc")), tmp_path / "json", str(tmp_path / "csv")]
    for path in (*paths, tmp_path / "parts", "alerts"):
        frame = table_frame(spark, path)
        assert frame is not None and sorted(r.id for r in frame.collect()) == [1, 2], path
    events = spark.createDataFrame([(7, 1)], "id int, a int")
    assert sorted(map(tuple, match(events, "alerts").collect())) == [(7, 1)]
    (tmp_path / "other").mkdir()
    for path, there in ((tmp_path / "none", "which is not there"), (tmp_path / "other", "which is there")):
        for call in (lambda path=path: match(events, path), lambda path=path: compile(path, tmp_path / "index")):
            with pytest.raises(FormatError, match=f"{there}.* holds no subscriptions: expected"):
                call()
    for url in ("dbfs:/x", "hdfs://nowhere/x"):
        with pytest.raises(DibsError) as caught:
            match(events, url)
        assert len(str(caught.value)) < 1_500
    with pytest.raises(DibsError, match="no filesystem opens dbfs:/x"):
        compile(table, "dbfs:/x")


def test_spark_whose_own_file_system_is_another(spark: SparkSession, tmp_path: Path) -> None:
    """Paths of this machine are this machine's all the same."""
    table = spark.createDataFrame(BAD, "id string, expression string")
    (tmp_path / "table").mkdir()
    parquet.write_table(pa.table({"id": ["good"], "expression": ["a = 1"]}), tmp_path / "table" / "a.parquet")
    (tmp_path / "mounted").mkdir()
    mount = {"fs.defaultFS": "viewfs://all/", "fs.viewfs.mounttable.all.link./data": f"file://{tmp_path / 'mounted'}"}
    try:
        for key, value in mount.items():
            spark.conf.set(key, value)
        with pytest.raises(SubscriptionErrors, match="4 subscriptions cannot be added"):
            compile(table, tmp_path / "index")
        events = spark.range(1).withColumn("a", F.lit(1))
        told = backfill(
            events, Table(str(tmp_path / "table")), lambda d, _: d.collect(), tmp_path / "state", history=History()
        )
        assert told.matches == 1
    finally:
        for key in mount:
            spark.conf.unset(key)


def test_options_of_a_structure(spark: SparkSession, tmp_path: Path) -> None:
    """They reach the index that workers open, versions keep them, and a wrong one is refused before anything runs."""
    events = spark.createDataFrame([(1, 5, 7), (2, 6, 7)], "id int, a int, b int")
    subs = spark.createDataFrame([(1, "a = 5 AND b = 7"), (2, "b > 6")], "id int, expression string")
    options = {"dimensions": 3}
    assert sorted(map(tuple, match(events, subs, index="psthash", options=options).collect())) == [
        (1, 1),
        (1, 2),
        (2, 2),
    ]
    with pytest.raises(DibsError, match="dimension"):
        match(events, subs, index="psthash", options={"dimension": 3})
    done = compile(subs, tmp_path / "index", index="psthash", options=options)
    again = compile(subs.union(subs.selectExpr("id + 10", "expression")), tmp_path / "index")
    assert done.version.options == again.version.options == options
    for matcher in (Matcher.load(tmp_path / "index"), versions.load_matcher(tmp_path / "index", 1)):
        assert (matcher.index, matcher.options["dimensions"]) == ("psthash", 3)
    with Matcher(index="psthash", options=options) as saved:
        saved.add(1, "a = 5")
        saved.save(tmp_path / "saved")
    assert sorted(map(tuple, match(events, tmp_path / "saved").collect())) == [(1, 1)]
