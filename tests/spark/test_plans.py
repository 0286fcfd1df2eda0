"""Replicated, sharded, local: three plans, one answer, in every form of output."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

from dibs.errors import DibsError
from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.spark import compile, explain, match, problems, versions
from dibs.tuning import using
from strategies import typed_expression, typed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def workload(random: Random, count: int) -> dict[int, str]:
    """Random expressions with AND, OR, NOT, IS NULL and patterns, equalities that shards are cut by, and arrays."""
    texts = [to_sql(typed_expression(random)) for _ in range(count // 2)]
    texts += [f"k = {random.randrange(40)} AND tags = 't{random.randrange(9)}'" for _ in range(count // 4)]
    texts += [f"k = {random.randrange(40)} OR tags IN ('t1', 'x') OR z IS NOT NULL" for _ in range(count // 8)]
    texts += ["tags IS NULL", "TRUE", "z IS NULL OR k > 30", "k = 3"]
    texts += ["k = 7"] * 40  # a key that many share
    return dict(enumerate(texts))


def events_table(random: Random, count: int) -> pa.Table:
    rows = typed_rows(random, count)
    k = [random.choice([None, *range(40)]) for _ in range(count)]
    tags = [[f"t{random.randrange(9)}" for _ in range(random.randrange(3))] for _ in range(count)]
    rows = rows.append_column("k", pa.array(k, pa.int64()))
    rows = rows.append_column("tags", pa.array(tags, pa.list_(pa.string())))
    return rows.append_column("number", pa.array(range(count)))


def expected(texts: dict[int, str], rows: pa.Table) -> list[tuple[int, int]]:
    matcher = Matcher()
    matcher.add_many(texts.items())
    pairs = matcher.match_batch(rows).pairs()
    return sorted(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True))


def pairs(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_all_plans_give_one_answer(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(5)
    rows = events_table(random, 200)
    events = spark.createDataFrame(rows).repartition(3)
    texts = workload(random, 240)
    with using({"spark_segment": 40, "spark_task": 10}):
        for version in (1, 2):
            frame = spark.createDataFrame(list(texts.items()), "id long, expression string")
            compile(frame, tmp_path / "index", shards=4)
            wanted = expected(texts, rows)
            assert 2_000 < len(wanted) < 100_000
            for plan in ("replicated", "sharded", "local"):
                found = match(events, tmp_path / "index", event_id="number", plan=plan, version=version)
                assert pairs(found) == wanted, (plan, version)
            texts = {id: text for id, text in texts.items() if random.random() > 0.1}
            texts |= {1_000 + i: text for i, text in workload(random, 20).items()}
    told = explain(events, tmp_path / "index", event_id="number", plan="sharded")
    assert told.shards == len(versions.open_version(tmp_path / "index").routes) == 5
    assert told.visits is not None
    assert 1 <= told.visits < told.shards
    assert "an event visits" in str(told)
    assert explain(events, tmp_path / "index", event_id="number").plan == "replicated"
    assert explain(events, tmp_path / "index", event_id="number", memory=1).plan == "sharded"
    # Another frame: a column of JSON, in which dates and decimals are not what they are in columns.
    number = F.struct("k", "tags", "s", "n")
    packed = events.select("number", F.to_json(number).alias("body"))
    options: dict[str, Any] = dict(event_id="number", attributes="body")
    assert pairs(match(packed, tmp_path / "index", plan="sharded", **options)) == pairs(
        match(packed, tmp_path / "index", **options)
    )


SHOP = {"a": ("n >= 2", 1.0), "b": ("n >= 1", 5.0), "c": ("s = 'x' OR n = 3", 2.0), "d": ("s IS NULL", 3.0)}
ROWS = [(0, 1, "x", "p"), (1, 2, "y", "q"), (2, 3, None, "r"), (3, 0, "z", None)]
WANTED = {0: ["b", "c"], 1: ["a", "b"], 2: ["a", "b", "c", "d"], 3: []}


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFrame, Path]:
    rows = [(id, *its) for id, its in SHOP.items()]
    frame = spark.createDataFrame(rows, "id string, expression string, weight double")
    folder = tmp_path_factory.mktemp("shop")
    compile(frame, folder / "index", shards=2)
    return spark.createDataFrame(ROWS, "id int, n int, s string, place string"), folder / "index"


@pytest.mark.parametrize("plan", ["replicated", "sharded", "local"])
def test_forms_of_output(shop: tuple[DataFrame, Path], plan: str) -> None:
    events, index = shop
    options: dict[str, Any] = dict(plan=plan)
    found = match(events, index, how="array", **options)
    assert found.columns == ["event_id", "subscription_ids", "weights"]
    lists = {row.event_id: row for row in found.collect()}
    assert {e: sorted(row.subscription_ids) for e, row in lists.items()} == WANTED
    assert dict(zip(lists[2].subscription_ids, lists[2].weights, strict=True)) == {i: w for i, (_, w) in SHOP.items()}

    assert pairs(match(events, index, count_only=True, **options)) == [(e, len(ids)) for e, ids in WANTED.items()]

    top = match(events, index, top=2, how="array", keep=["place"], **options)
    assert top.columns == ["event_id", "place", "subscription_ids", "weights"]
    assert {(r.event_id, r.place): r.subscription_ids for r in top.collect()} == {
        (0, "p"): ["b", "c"],
        (1, "q"): ["b", "a"],
        (2, "r"): ["b", "d"],
        (3, None): [],
    }
    assert pairs(match(events, index, top=1, **options)) == [(0, "b", 5.0), (1, "b", 5.0), (2, "b", 5.0)]

    kept = match(events, index, keep=["place", "n"], **options)
    assert kept.columns == ["event_id", "place", "n", "subscription_id", "weight"]
    assert (0, "p", 1, "c", 2.0) in pairs(kept)
    (why,) = match(events.where("id = 0"), index, explain=True, **options).where("subscription_id = 'c'").collect()
    assert "s = 'x'" in why.why


def test_what_is_wrong_is_counted_whatever_the_plan(shop: tuple[DataFrame, Path]) -> None:
    events, index = shop
    spark = events.sparkSession
    bodies = [(0, '{"n": 1, "s": "x"}'), (1, "{"), (2, json.dumps({"n": 3}))]
    broken = spark.createDataFrame(bodies, "id int, body string")
    for plan in ("replicated", "sharded", "local"):
        for how, rows in (("long", 6), ("array", 3)):
            seen = Observation()
            found = match(broken, index, attributes="body", plan=plan, how=how, observe=seen)
            assert len(found.collect()) == rows
            told = seen.get
            assert {key: told[key] for key in ("matches", "malformed_events")} == {"matches": 6, "malformed_events": 1}
            assert told.get("events") == (None if plan == "sharded" else broken.count())
    assert [row.event_id for row in problems(broken, index, attributes="body").collect()] == [1]


def test_events_that_are_no_frame_of_spark(shop: tuple[DataFrame, Path]) -> None:
    events, index = shop
    wanted = pairs(match(events, index))
    dicts = [dict(zip(("id", "n", "s", "place"), row, strict=True)) for row in ROWS]
    for given in (dicts, pa.Table.from_pylist(dicts), events.toPandas()):
        assert pairs(match(given, index)) == wanted
        assert explain(given, index).plan == "local"
    with pytest.raises(DibsError, match="events are a DataFrame"):
        match(7, index)


def test_mistakes(shop: tuple[DataFrame, Path], tmp_path: Path) -> None:
    events, index = shop
    plain = Matcher()
    plain.add("x", "n = 1")
    for options, complaint in [
        ({"plan": "fast"}, "plan must be one of"),
        ({"how": "wide"}, "how must be"),
        ({"top": 0}, "top must be"),
        ({"keep": "place"}, "keep must be a list"),
        ({"keep": ["nothing"]}, "keep='nothing' names no single column"),
        ({"count_only": True, "top": 1}, "count_only gives no matches"),
        ({"version": 99}, "no compiled subscriptions of version 99"),
    ]:
        with pytest.raises(DibsError, match=complaint):
            match(events, index, **options)  # type: ignore[call-overload]
    with pytest.raises(DibsError, match="needs an index that is cut into shards"):
        match(events, plain, plan="sharded")
    with pytest.raises(DibsError, match="version= is for the path"):
        match(events, plain, version=1)
    stream = events.sparkSession.readStream.schema(events.schema).parquet(str(tmp_path))
    for options in ({"plan": "local"}, {"plan": "sharded", "how": "array"}):
        with pytest.raises(DibsError, match="stream"):
            match(stream, index, **options)  # type: ignore[call-overload]
