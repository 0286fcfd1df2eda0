"""Windows in time in a stream whose history grows, against DuckDB. (More of it: tests/windows.py.)"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windows import by_duckdb, by_spark, logins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_logins(spark: SparkSession, tmp_path: Path) -> None:
    events = logins(600, 8)
    assert by_spark(spark, tmp_path, events, batches=2) ^ by_duckdb(events) == set()
