"""The driver's way through a job of Spark is not longer than its budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import budgets
from walks import spark_walks


@pytest.mark.spark
def test_the_driver(spark: Any, tmp_path: Path) -> None:
    assert budgets.exceeded(budgets.measure_walks(spark_walks(spark, tmp_path)), budgets.read()) == []
