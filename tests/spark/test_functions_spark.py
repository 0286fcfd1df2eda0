"""Spark SQL judges the functions: a part of what `python tests/language/functions_judge.py` asks."""

from __future__ import annotations

from typing import Any

import pytest
from functions_judge import check


@pytest.mark.spark
def test_functions_compute_what_spark_computes(spark: Any) -> None:
    compared, wrong = check(spark, count=60, seed=5, rows=80, most=120)
    assert compared > 8_000
    assert wrong == []
