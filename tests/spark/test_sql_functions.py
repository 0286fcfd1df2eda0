"""The SQL functions: what they say is what dibs.spark.match says. (test_spark_connect.py has them on Spark Connect.)"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType, TimestampNTZType, TimestampType
from test_spark import SHOP, shop_events, subscriptions

from dibs.errors import ArgumentError, DibsError
from dibs.matcher import Matcher
from dibs.spark import compile, match, register, use
from dibs.spark.sql_worker import TableRows, run, to_plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = pa.array([{"n": 1}, {"n": 2}, None, {"n": None}], pa.struct([("n", pa.int64())]))


def saved(folder: Path, texts: dict[Any, str]) -> str:
    with Matcher() as matcher:
        matcher.add_many(texts.items())
        matcher.save(folder)
    return str(folder)


def call(what: str, *arrays: pa.Array, ids: str = "string") -> list[Any]:
    (found,) = run(iter([arrays]), what, {}, ids)
    return found.to_pylist()


# ---- without Spark ----


def test_rows_may_name_several_indexes(tmp_path: Path) -> None:
    one, two = saved(tmp_path / "one", {"a": "n = 1", "b": "n IS NULL"}), saved(tmp_path / "two", {7: "n > 0"})
    names = pa.array([one, two, one, None])
    assert call("match", EVENTS, names) == [["a"], ["7"], ["b"], None]
    assert call("count", EVENTS, names) == [1, 1, 1, None]
    assert call("match", EVENTS, pa.array([two] * 4), ids="bigint") == [[7], [7], [], []]
    rows = TableRows(StructType().add("n", LongType()), {}, "string")
    assert [rows.find(event, one) for event in ((1,), (2,), None, (None,))] == [[("a", 1.0)], [], *[[("b", 1.0)]] * 2]
    assert rows.find((1,), None) == []
    texts = TableRows(StringType(), {}, "bigint")
    assert [texts.find(event, two) for event in ('{"n": 3}', '{"n": ')] == [[(7, 1.0)], []]


def test_values_of_rows_are_those_of_events() -> None:
    kind = StructType().add("at", TimestampType()).add("m", MapType(StringType(), ArrayType(TimestampNTZType())))
    local = dt.datetime(2024, 3, 1, 12)
    plain = to_plain((local, {"x": [local]}), kind)
    assert plain == {"at": local.astimezone(dt.timezone.utc), "m": {"x": [local]}}


def test_explanations_and_what_is_wrong_with_a_text(tmp_path: Path) -> None:
    path = pa.array([saved(tmp_path / "one", {1: "n = 1", 2: "n > 5"})] * 4)
    told = call("explain", pa.array(["1", "2", "9", None]), EVENTS, path)
    assert told[0].startswith("1 matches")
    assert told[1].startswith("2 does not match")
    assert told[2:] == [None, None]
    broken = pa.array(['{"n": '])
    assert "the event cannot be read" in call("explain", pa.array([1]), broken, path[:1])[0]
    wrong, right, none = call("validate", pa.array(["n = = 1", "n = 1", None]))
    assert "=" in wrong
    assert right is None
    assert none is None


def test_what_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(DibsError, match=r"neither a name of dibs.spark.use \(there are: none\) nor the path"):
        call("match", EVENTS, pa.array(["alerts"] * 4))


# ---- with Spark ----


@pytest.mark.spark
def test_sql_says_what_match_says(spark: SparkSession, tmp_path: Path) -> None:
    events, subs = shop_events(spark), subscriptions(spark, SHOP)
    compile(subs, tmp_path / "index", shards=1)
    expected = {row.event_id: sorted(row.subscription_ids) for row in match(events, subs, how="array").collect()}
    use("shop", subs)
    events.createOrReplaceTempView("shop_events")
    events.write.parquet(str(tmp_path / "in"))
    spark.readStream.schema(events.schema).parquet(str(tmp_path / "in")).createOrReplaceTempView("arriving_events")

    def ask(frame: str, index: str) -> str:
        return f"SELECT id, dibs_match(struct(*), '{index}') AS ids, dibs_count(struct(*), '{index}') AS n FROM {frame}"

    for index in ("shop", str(tmp_path / "index")):
        found = spark.sql(ask("shop_events", index)).collect()
        assert {row.id: sorted(row.ids) for row in found} == expected
        assert {row.id: row.n for row in found} == {id: len(ids) for id, ids in expected.items()}
    lateral = spark.sql(
        "SELECT e.id, m.subscription_id, m.weight FROM (SELECT id, struct(*) AS event FROM shop_events) e, "
        "LATERAL dibs_matches(e.event, 'shop') m"
    ).collect()
    assert sorted(map(tuple, lateral)) == sorted((id, s, 1.0) for id, ids in expected.items() for s in ids)
    # A query has the version of when it was asked for, whatever comes after it.
    before = spark.sql(ask("arriving_events", "shop"))
    use("shop", subscriptions(spark, {"none": "FALSE"}))
    query = before.writeStream.format("memory").queryName("sql_found").trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert {row.id: sorted(row.ids) for row in spark.table("sql_found").collect()} == expected
    assert all(not row.ids for row in spark.sql(ask("shop_events", "shop")).collect())


@pytest.mark.spark
def test_filters_are_pushed_below_the_match(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.createDataFrame([(1, 5), (2, 7)], "id int, n int").write.parquet(str(tmp_path / "in"))
    spark.read.parquet(str(tmp_path / "in")).createOrReplaceTempView("filtered")
    use("over six", subscriptions(spark, {"x": "n > 6"}))
    matched = "SELECT *, dibs_match(struct(*), 'over six') AS ids FROM filtered"
    found = spark.sql(f"SELECT * FROM ({matched}) WHERE id = 2")
    assert [(row.id, row.ids) for row in found.collect()] == [(2, ["x"])]
    found.explain()
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,2)]" in capsys.readouterr().out


@pytest.mark.spark
def test_what_sql_refuses(spark: SparkSession) -> None:
    with pytest.raises(ArgumentError, match=r"ids must be one of 'string', 'bigint', not str \('uuid'\)"):
        register(spark, ids="uuid")
    joins = subscriptions(spark, {"j": "EXISTS d (d.a = a)"})
    with pytest.raises(DibsError, match=r"no index of SQL: use match\(history=\.\.\.\)"):
        use("joins", joins)
