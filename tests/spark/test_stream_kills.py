"""A short form of tests/spark/stream_kills.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from stream_kills import THROUGH, run


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.parametrize("through", THROUGH)
def test_a_stream_that_is_killed_goes_on_exactly(tmp_path: Path, through: str) -> None:
    told = run(tmp_path, kills=2, seed=3, victims=("worker", "jvm"), pause=1.0, through=through)
    assert "killed driver 0 times, jvm 1 times, worker 1 times" in told
