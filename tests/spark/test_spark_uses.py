"""What people do with dibs.spark that is not in the examples: each case went wrong once."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from dibs.errors import DibsError, FormatError
from dibs.matcher import Matcher
from dibs.spark import compile, match, mistakes, places, sources, versions
from dibs.tuning import using

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def pairs(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def subscriptions(spark: SparkSession, texts: dict[Any, str]) -> DataFrame:
    kind = "string" if all(isinstance(i, str) for i in texts) else "int"
    return spark.createDataFrame(list(texts.items()), f"id {kind}, expression string")


def test_an_index_that_is_saved_over_stays_what_it_was_for_those_who_use_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.createDataFrame([(1, 1, 5), (2, 2, 6)], "id int, a int, b int")
    matcher = Matcher()
    matcher.add("x", "a = 1")
    matcher.save(tmp_path / "index")
    before = match(frame, tmp_path / "index")
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    unpinned = match(frame, tmp_path / "index")
    monkeypatch.undo()
    matcher.replace("x", "b = 6")  # another column, which was not sent
    matcher.save(tmp_path / "index")
    assert pairs(before) == [(1, "x")]
    with pytest.raises(Exception, match="saved over"):  # where files cannot be kept: said, not guessed
        unpinned.collect()
    assert pairs(match(frame, tmp_path / "index")) == [(2, "x")]


def test_index_dir_is_a_url_or_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, 1)], "id int, a int")
    subs = subscriptions(spark, {"x": "a = 1"})
    for _ in range(2):
        assert pairs(match(frame, subs, index_dir=f"local://{tmp_path / 'far'}")) == [(1, "x")]
    (digest,) = (tmp_path / "far").iterdir()
    assert versions.list_versions(digest) == [1]
    assert pairs(match(frame, subs, index_dir=(tmp_path / "near").as_uri())) == [(1, "x")]
    assert (tmp_path / "near").is_dir()
    for url in ("hdfs://host:1/index", "what://ever"):
        with pytest.raises(DibsError, match="no filesystem opens"):
            match(frame, subs, index_dir=url)
        assert not Path(url.split("//")[0]).exists()
    assert places.is_url("s3a://bucket/index")  # which Arrow opens as s3; asking it would need a network


def test_filesystems_of_fsspec() -> None:
    place = places.place_of("memory://some/index")
    assert place.numbers() == []
    place.commit(versions.Version(1, "auto", "string", False, {}, ()))
    assert place.read().version == 1
    with pytest.raises(FormatError, match="somebody else has just written version 1"):
        place.commit(versions.Version(1, "auto", "string", False, {}, ()))


def test_of_a_durable_folder_only_what_is_new_is_saved(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, 1), (2, 2)], "id int, a int")
    with Matcher.open(tmp_path / "live") as writer:
        writer.add_many((f"s{i}", f"a = {i + 10}") for i in range(3_000))
        writer.compact()
        match(frame, tmp_path / "live")
        before = sum(p.stat().st_size for p in (sources.own_folder() / "segments").iterdir())
        for i in range(5):
            writer.add(f"new{i}", "a = 2")
            assert len(pairs(match(frame, tmp_path / "live"))) == i + 1
        after = sum(p.stat().st_size for p in (sources.own_folder() / "segments").iterdir())
    assert after - before < before / 2


def test_folders_of_killed_drivers_are_removed(tmp_path: Path) -> None:
    program = (
        "import os, signal\nfrom dibs.spark import sources\nprint(sources.own_folder(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL) if os.environ.get('KILL') else None"
    )
    left = []
    for kill in ("1", ""):
        environment = os.environ | {"TMPDIR": str(tmp_path), "KILL": kill}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        left.append(Path(done.stdout.strip()))
        assert left[0].exists() == bool(kill)
    assert not list(tmp_path.glob("dibs-driver-*"))


def test_intervals_are_refused_where_they_are_used(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS id, 2 AS a, INTERVAL '2' YEAR AS age, struct(INTERVAL '1' MONTH AS m) AS s")
    assert pairs(match(frame, subscriptions(spark, {"x": "a = 2"}))) == [(1, "x")]
    for text in ("age = 2", "s.m = 1"):
        with pytest.raises(DibsError, match=r"interval .*cast it"):
            match(frame, subscriptions(spark, {"x": text}))
    with pytest.raises(DibsError, match="'age' is of the type interval"):
        match(frame, subscriptions(spark, {"x": "a = 2"}), event_id="age")


def test_subscriptions_that_are_no_frame(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, 1)], "id int, a int")
    matcher = Matcher()
    matcher.add("x", "a = 1")
    assert pairs(match(frame, matcher)) == [(1, "x")]
    matcher.replace("x", "a = 2")
    matcher.add("y", "a = 1")
    assert pairs(match(frame, matcher)) == [(1, "y")]
    matcher.export(tmp_path / "table.parquet")
    assert pairs(match(frame, tmp_path / "table.parquet")) == [(1, "y", 1.0)]
    rows = [("x", "a = 1")]
    for given in (rows, pa.table({"id": ["x"], "expression": ["a = 1"]}), subscriptions(spark, dict(rows)).toPandas()):
        with pytest.raises(DibsError, match=r"subscriptions are a DataFrame of Spark.*createDataFrame"):
            match(frame, given)  # type: ignore[call-overload]
    matcher.add(1, "a = 1")
    with pytest.raises(DibsError, match="integers and strings"):
        match(frame, matcher)
    joined = Matcher()
    joined.add(1, "FORALL d (a <> d.a)")
    with pytest.raises(DibsError, match="ask for the documents that came before"):
        match(frame, joined)


def test_names_and_kinds_that_can_match_nothing_are_told_once(spark: SparkSession) -> None:
    mistakes._told.clear()
    frame = spark.createDataFrame([(1, 5.0, "7", (1,))], "id int, price double, size string, o struct<width:int>")
    subs = subscriptions(spark, {1: "prise < 6", 2: "Price < 6", 3: "size = 7", 4: "o.widht = 1", 5: "price < 6"})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            assert pairs(match(frame, subs)) == [(1, 5)]
    texts = sorted(str(warning.message) for warning in told)
    assert len(texts) == 4
    assert "1 subscription compares 'size' with numbers" in texts[0]
    assert "'Price', which the events do not have: to them it is always null; did they mean 'price'" in texts[1]
    assert "did they mean 'o.width'" in texts[2]
    assert "did they mean 'price'" in texts[3]
    maps = frame.select("id", F.create_map(F.lit("price"), F.lit("5")).alias("payload"))
    with pytest.warns(UserWarning, match=r"compares? 'Price'.* with numbers, but the values of 'payload' are strings"):
        match(maps, subs, attributes="payload")


def test_constants_of_another_kind_are_told(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever else is compared with the attribute; and refused, if that is wanted."""
    mistakes._told.clear()
    schema = "id int, price double, day date, at timestamp, flag boolean, tags array<string>, m map<string,bigint>"
    frame = spark.createDataFrame([], schema)
    texts = [
        "price = '5' OR price > 4",
        "price IN ('6', '7', 8) AND price <> 'x'",
        "price NOT IN ('6', '7')",
        "day = '2024-03-01'",
        "at < '2024-03-01'",
        "flag = 'true'",
        "tags = 5",
    ]
    texts += ["m.x IN ('5', '6')", "m.y LIKE '5%'", "day > DATE '2024-03-01'", "flag = TRUE", "tags = 'a'", "m.x = 5"]
    subs = subscriptions(spark, dict(enumerate(texts)))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        match(frame, subs)
    said = sorted(str(warning.message) for warning in told)
    assert [text.split(", which")[0] for text in said] == [
        "1 subscription compares 'at' with strings, but its values are times",
        "1 subscription compares 'day' with strings, but its values are times",
        "1 subscription compares 'flag' with strings, but its values are booleans",
        "1 subscription compares 'm.x' with strings, but its values are numbers",
        "1 subscription compares 'm.y' with strings, but its values are numbers",
        "1 subscription compares 'tags' with numbers, but its values are strings",
        "3 subscriptions compare 'price' with strings, but its values are numbers",
    ]
    assert all(warning.filename == __file__ for warning in told)
    assert "write numbers without quotes, or cast the column" in said[-1]
    mistakes._told.clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compile(subs, tmp_path / "index", shards=1, events=frame)
    assert sorted(str(warning.message) for warning in told) == said
    assert all(warning.filename == __file__ for warning in told)
    with pytest.raises(DibsError, match="do not fit the events"):
        compile(subs, tmp_path / "strict", shards=1, events=frame, strict=True)
    with pytest.raises(FormatError, match="holds no"):
        match(frame, tmp_path / "strict")
    with pytest.raises(DibsError, match=r"(?s)do not fit the events:.*'flag' with strings.*'price' with strings"):
        match(frame, subs, strict=True)
    match(frame, subscriptions(spark, {1: "price > 4 AND m.x = 5 AND tags LIKE 'a%'"}), strict=True)


def test_what_spark_compares_in_its_own_way_is_told(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    mistakes._told.clear()
    plain = "named_struct('at', timestamp'2024-02-29 22:00:00') AS o, 1.5BD AS small"
    frame = spark.sql(
        f"SELECT 1 AS id, 'Ab' COLLATE UTF8_LCASE AS l, 'ab ' COLLATE UTF8_BINARY_RTRIM AS r, {plain}, "
        "CAST('12345678901234567.12' AS DECIMAL(30, 2)) AS d, CAST(1 AS DECIMAL(18, 0)) AS whole"
    )
    padded = frame.withColumn("c", F.lit("ab   ")).withMetadata("c", {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})
    with pytest.raises(DibsError, match=r"'l', of the type string collate UTF8_LCASE, and Dibs compares bytes"):
        match(frame, subscriptions(spark, {1: "l = 'ab'"}))
    with pytest.raises(DibsError, match="'r', of the type string collate UTF8_BINARY_RTRIM"):
        match(frame, subscriptions(spark, {1: "r LIKE 'ab%'"}))
    with pytest.raises(DibsError, match=r"'c', of the type char\(5\), .* give the events rtrim\(column\)"):
        match(padded, subscriptions(spark, {1: "c = 'ab'"}))
    nulls = subscriptions(spark, {1: "c IS NOT NULL AND l IS NOT NULL", 2: "small = 1.5 AND whole = 1"})
    assert pairs(match(padded, nulls, strict=True)) == [(1, 1), (1, 2)]
    times = subscriptions(spark, {1: "o.at < DATE '2024-03-01'", 2: "d = 12345678901234567.13"})
    with pytest.warns(UserWarning, match=r"'d', of the type decimal\(30,2\), of whose digits"):
        match(frame, times)
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        with pytest.warns(
            UserWarning, match=r"compares 'o.at' with times, .* session time zone America/New_York there"
        ):
            match(frame, times)
        with pytest.raises(DibsError, match=r"'o\.at' with times"):
            match(frame, times, strict=True)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_kinds_that_cannot_be_read_are_told(spark: SparkSession) -> None:
    mistakes._told.clear()
    schema = (
        "id int, b binary, d interval day to second, o struct<width:int>, a array<binary>, m map<string,int>, n int"
    )
    frame = spark.createDataFrame([], schema)
    texts = ["b IS NOT NULL", "d IS NULL", "o IS NULL", "a IS NULL", "m IS NULL", "m.x = 1", "o.width = 1", "n = 1"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        match(frame, subscriptions(spark, dict(enumerate(texts))))
    said = sorted(str(warning.message) for warning in told)
    assert [text.split("'")[1] for text in said] == ["a", "b", "d", "m", "o"]
    assert "of the type binary, which Dibs cannot read: where it is not null, whatever" in said[1]
    assert "only what is in it is a value" in said[3] and "only what is in it is a value" in said[4]


def test_why_is_told_of_maps_and_beside_broken_events(spark: SparkSession) -> None:
    rows = [(1, {"k": 1}, ({"j": 2},)), (2, None, None)]
    frame = spark.createDataFrame(rows, "id int, m map<string,int>, o struct<p:map<string,int>>")
    subs = subscriptions(spark, {1: "m.k = 1 AND o.p.j IN (2, 3)", 2: "m.k IS NULL"})
    told = {row.event_id: row.why for row in match(frame, subs, explain=True).collect()}
    assert told.keys() == {1, 2}
    assert "does not match" not in told[1] + told[2] and "m.k = 1" in told[1]
    maps = frame.select("id", "m").where("id = 1")
    (row,) = match(maps, subscriptions(spark, {1: "k = 1"}), attributes="m", explain=True).collect()
    assert "does not match" not in row.why and "k = 1" in row.why
    texts = [(1, b'{"k": 1}'), (2, b'{"k": 1'), (3, None), (4, b'{"k": 1, "l": "\xff"}'), (5, b'{"k": 2}')]
    lines = spark.createDataFrame(texts, "id int, body binary")
    found = match(lines, subscriptions(spark, {1: "k = 1", 2: "TRUE"}), attributes="body", explain=True).collect()
    plain = match(lines, subscriptions(spark, {1: "k = 1", 2: "TRUE"}), attributes="body").collect()
    assert sorted((r.event_id, r.subscription_id) for r in found) == sorted(map(tuple, plain))
    assert {r.event_id for r in found} >= {1, 5} and all("does not match" not in r.why for r in found)


def test_many_subscriptions_are_compiled_by_a_job(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, 1)], "id int, a int")
    subs = subscriptions(spark, {i: f"a = {i % 10}" for i in range(100)} | {100: "a ="})
    with using({"spark_collected": 5, "spark_task": 10}):
        found, rejected = match(frame, subs, on_error="skip", index_dir=tmp_path)
        assert found.count() == 10
        assert [(row.position, row.id) for row in rejected.collect()] == [(100, 100)]
    (digest,) = tmp_path.iterdir()
    assert len(versions.open_version(digest).segments) == 2


def test_events_of_one_file_can_be_dealt_out(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(2_000).withColumn("a", F.lit(1)).coalesce(1).write.parquet(str(tmp_path / "events"))
    frame = spark.read.parquet(str(tmp_path / "events"))
    subs = subscriptions(spark, {1: "a = 1"})
    for partitions, tasks in ((None, 1), (3, 3)):
        found = match(frame, subs, partitions=partitions)
        assert found.select(F.spark_partition_id()).distinct().count() == tasks
        assert found.count() == 2_000


def test_two_who_compile_at_once(spark: SparkSession, tmp_path: Path) -> None:
    compile(subscriptions(spark, {1: "a = 1"}), tmp_path / "index")
    version = versions.open_version(tmp_path / "index")
    with pytest.raises(FormatError, match="somebody else has just written version 1"):
        places.place_of(tmp_path / "index").commit(version)


def test_workers_have_little_to_collect(spark: SparkSession) -> None:
    """After each task they look for garbage: what was imported before they were forked is left out."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import sys

        for _ in batches:
            counted = [gc.get_freeze_count(), len(gc.get_objects()), int("dibs.spark.worker" in sys.modules)]
            yield pa.RecordBatch.from_arrays([pa.array([n]) for n in counted], names=["frozen", "other", "imported"])

    (row, *_) = spark.range(1).mapInArrow(count, "frozen long, other long, imported long").collect()
    assert row.imported and row.frozen > 100_000 > 3 * row.other


def test_a_driver_too_small_for_the_subscriptions(spark: SparkSession, tmp_path: Path) -> None:
    """Collected they do not fit, and the message says what to do; compiled by a job they need no driver."""
    assert spark.conf.get("spark.python.daemon.module") == "dibs.spark.daemon"
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    events = spark.createDataFrame([(1, 1)], "id int, a int")
    subs = spark.range(30_000).selectExpr("id", "concat('a = 1 AND long_name_of_an_attribute = ', id) AS expression")
    settings = spark.sparkContext._jsc.sc().conf()
    before = settings.get("spark.driver.maxResultSize", "1g")
    settings.set("spark.driver.maxResultSize", "1m")  # each job looks at it when it begins
    try:
        with pytest.raises(DibsError, match=r"dibs\.spark\.compile"):
            match(events, subs)
        assert compile(subs, tmp_path / "index").version.subscriptions == 30_000
        assert match(events, tmp_path / "index").count() == 0
    finally:
        settings.set("spark.driver.maxResultSize", before)


IDLE = """
import os, socket
os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "true"  # as Spark sets it
from pyspark import daemon
from dibs.spark.daemon import end_quietly

ours, spark = socket.socketpair()
spark.close()
try:
    print(daemon.worker(ours, True))
except BrokenPipeError:
    print("broken pipe")
print(end_quietly(daemon.worker)(ours, True))
"""


def test_a_worker_that_spark_closes_when_idle_says_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", IDLE], capture_output=True, text=True, timeout=120)
    assert (done.stdout.split("\n"), done.stderr) == (["broken pipe", "1", ""], "")
