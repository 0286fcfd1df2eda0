"""The short form of kills.py."""

from __future__ import annotations

import pytest
from kills import run_kills


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_processes_are_killed() -> None:
    counts = run_kills(kills=4, workers=1, seed=5, told=False)
    assert counts["acknowledged"] > 0 and counts["deliveries: good"] >= counts["acknowledged"]
    assert counts["documents"] >= counts["acknowledged"]
    assert counts["kills: all"] and counts["kills: deliverer"]
