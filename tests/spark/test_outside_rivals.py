"""The rivals from outside that the benchmarks measure find the same matches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "benchmarks" / "run.py"
ENGINES = {"event-ruler (Java)", "quamina (Go)"}
JOINS = {"dibs", "DuckDB join", "Polars join", "Spark SQL explode, join, count"}


@pytest.mark.spark
def test_outside_rivals_have_found_the_same(tmp_path: Path) -> None:
    """In a process of its own: it starts a Spark of its own and ends it."""
    out = tmp_path / "outside.json"
    size = ("--only", "outside", "--together", "--subscriptions", "300", "--out", str(out))
    done = subprocess.run([sys.executable, str(RUN), *size], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    section = json.loads(out.read_text())["sections"]["outside"]
    assert set(section["absent"]) <= ENGINES, "they need Go and Maven"
    assert set(section["workloads"]) == {"sparse", "dense"}
    for workload in section["workloads"].values():
        assert set(workload["join"]["agreed"]) == set(workload["join"]["microseconds per event"]) == JOINS
        assert set(workload["rules"]["agreed"]) == {"dibs", "rule-engine", "Python lambdas"}
        assert workload["rules"]["matches per event"] >= 1
    assert section["patterns"]["agreed"] == ["dibs", "hyperscan"]
