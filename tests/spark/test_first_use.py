"""A first job: on a machine without compiled kernels, in an environment that is not activated, and with few jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from test_spark import EVENTS, SHOP, shop_events, subscriptions

from dibs import engine
from dibs.errors import DibsError, SubscriptionErrors
from dibs.matcher import Matcher
from dibs.spark import cold, match, sources
from dibs.spark.dealing import EventColumns
from dibs.spark.found import Found
from dibs.spark.tasks import compile_rows
from dibs.spark.worker import Task, run
from dibs.storage import versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = {
    "times": "since > TIMESTAMP '2024-01-01 00:00:00' OR since IN (DATE '2023-01-01')",
    "kinds": "price IN (2, 'x') OR kind = TRUE",
    "patterns": "kind RLIKE '^p' OR kind LIKE '%o%k' OR CONTAINS(kind, 'oo')",
    "never": "price < 3 AND FALSE",
    "range": "NOT (price BETWEEN 1 AND 3) AND `x y` <> 7",
}
TEXTS = SHOP | ODD


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_WARM", "always")
    monkeypatch.setattr(cold, "is_ready", lambda: False)
    monkeypatch.setattr(engine, "load_soon", lambda: None)


def table_of(texts: dict[str, str]) -> pa.Table:
    return pa.table({"id": list(texts), "expression": list(texts.values()), "weight": [1.0] * len(texts)})


def test_kinds_are_those_of_what_is_compiled(without_kernels: None) -> None:
    read = cold.read_texts(table_of(TEXTS), True, False, "raise")
    assert read is not None
    with Matcher() as matcher:
        matcher.add_many(TEXTS.items())
        matcher.compact()
        (layer,) = matcher.snapshot().layers
        assert read[1].kinds == versions.kinds_in(layer.segment)


@pytest.mark.parametrize("counting", [False, True])
@pytest.mark.parametrize("attributes", [None, "all"])
def test_workers_without_kernels_give_the_same_rows(
    without_kernels: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, attributes: str | None, counting: bool
) -> None:
    table = pa.Table.from_pylist(EVENTS * 100)
    if attributes is not None:
        table = pa.table({"all": pa.array(table.to_pylist(), pa.struct(list(table.schema)))})
    ids = pa.array(range(len(table)))
    batches = table.add_column(0, "event_id", ids).combine_chunks().to_batches()
    texts, version = cold.read_texts(table_of(TEXTS), True, True, "raise") or ((), None)
    columns = EventColumns(("event_id",), tuple(table.column_names), attributes)
    found = Found(True, () if counting else ("ids", "weights"), count_only=counting, top=None if counting else 3)
    assert version is not None
    plain = list(run(batches, Task(texts, columns, found)))
    monkeypatch.setattr(cold, "is_ready", lambda: True)
    cold.open_texts.cache_clear()
    compiled = list(run(batches, Task(texts, columns, found)))
    assert pa.Table.from_batches(plain).to_pylist() == pa.Table.from_batches(compiled).to_pylist()
    assert len(plain) > 1  # a slice after the other, so that kernels are seen when they come
    cold.open_texts.cache_clear()


def test_what_plain_python_cannot_do_waits(without_kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    few = cold.TextMatcher([("a", "price < 3")])
    events = pa.table({"m": pa.array([[("price", 2)], []], pa.map_(pa.string(), pa.int64()))})
    looks = iter([False, False, False, True])
    monkeypatch.setattr(cold, "is_ready", lambda: next(looks))
    monkeypatch.setattr(cold, "A_LOOK", 0.0)
    assert list(few.match_batch(events, attributes="m")) == [["a"], []]
    assert next(looks, None) is None


@pytest.mark.parametrize(
    "given",
    [
        {"expression": ["EXISTS d (d.a = a)"]},
        {"expression": [None]},
        {"expression": ["a = 1"] * 1_001, "id": [str(i) for i in range(1_001)]},
    ],
)
def test_what_needs_kernels_anyway(without_kernels: None, given: dict[str, list[Any]]) -> None:
    table = pa.table({"id": ["x"], **given})
    assert cold.read_texts(table, True, False, "raise") is None


def test_bad_subscriptions_are_told_as_ever(without_kernels: None) -> None:
    table = pa.table({"id": ["x", "x", "y"], "expression": ["a = 1", "a = 2", "a = = 1"]})
    with pytest.raises(SubscriptionErrors) as told:
        cold.read_texts(table, True, False, "raise")
    job = sources.Job("", 1, "auto", {}, False, True, 3, None, False, True, None)
    assert [str(r.error) for r in told.value.rejected] == [str(r.error) for r in compile_rows(table, job)[1]]


@pytest.mark.spark
def test_a_first_match_is_one_job_and_its_result_another(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    events = shop_events(spark)
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()  # type: ignore[union-attr]
    jobs = scheduler.nextJobId()
    found = match(events, subscriptions(spark, TEXTS))
    assert scheduler.nextJobId() - jobs == 1
    expected = sorted(map(tuple, found.collect()))
    assert scheduler.nextJobId() - jobs == 2
    assert expected
    monkeypatch.setattr(sources, "is_cold", lambda choice: True)
    monkeypatch.setattr(engine, "load_soon", lambda: None)
    monkeypatch.setattr(sources, "_compile_here", None)
    assert sorted(map(tuple, match(events, subscriptions(spark, TEXTS)).collect())) == expected


@pytest.mark.spark
def test_a_python_without_dibs_is_told(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `python3` is, where a virtual environment is not activated."""
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -I -S -c "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(DibsError, match=rf"no pyarrow and no dibs\. Set PYSPARK_PYTHON={sys.executable} before"):
        match(shop_events(spark), subscriptions(spark, SHOP))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "python4"))
    with pytest.raises(DibsError, match="python4': it is not there"):
        match(shop_events(spark), subscriptions(spark, SHOP))
