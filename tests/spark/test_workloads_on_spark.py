"""Generators on Spark: the rows are those that one process makes."""

from __future__ import annotations

import importlib
import re
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from dibs.papers.workloads.begen import BEGen
from dibs.papers.workloads.words import Prefixes
from dibs.spark.workloads import make_events, make_subscriptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dibs.papers.workloads.blocks import Blocks

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("workload", [BEGen(21_000, 15_000, 5), Prefixes(11_000, 500, 5)], ids=["maps", "json"])
def test_spark_makes_the_rows_that_one_process_makes(spark: SparkSession, workload: Blocks) -> None:
    subscriptions = make_subscriptions(spark, workload).orderBy("id").toArrow()
    assert subscriptions["expression"].to_pylist() == workload.subscription_table()["expression"].to_pylist()
    assert subscriptions["id"].to_pylist() == list(range(workload.subscriptions))
    events = make_events(spark, workload).orderBy("id").toArrow()
    own = pa.Table.from_batches(workload.event_batches())
    assert events["attributes"].to_pylist() == own["attributes"].to_pylist()
    assert events["id"].to_pylist() == list(range(workload.events))


def test_the_benchmark_of_ten_million_at_a_tiny_scale(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    benchmark = importlib.import_module("spark_ten_million")
    benchmark.run(spark, tmp_path, Namespace(scale=0.003, seed=1, memory=10**9))
    told = capsys.readouterr().out
    assert "30,000 subscriptions, 300 events" in told
    pairs = re.search(r"check +(\d+) pairs are those of scan", told)
    assert pairs and int(pairs[1]) > 0
