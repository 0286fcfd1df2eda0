"""Tests that share what is expensive run in one process (groups.py)."""

from __future__ import annotations

import pytest

import groups

RAN: list[str] = []


@pytest.mark.parametrize("turn", range(6))
def test_a_process_runs_a_whole_group(turn: int, request: pytest.FixtureRequest) -> None:
    """Those of this test that were to run before this one ran here, also when tests are spread over processes."""
    own = [item.nodeid for item in request.session.items if "test_a_process_runs_a_whole_group" in item.nodeid]
    assert own[: own.index(request.node.nodeid)] == RAN
    RAN.append(request.node.nodeid)


def test_groups_of_tests() -> None:
    assert groups.group_of("tests/test_lives.py::test_it[a::b]") == "test_lives"
    assert groups.group_of("tests/test_exactness.py::test_by_spark[random]") == "spark"
    assert groups.group_of("tests/test_exactness.py::test_by_duckdb[random]") == "test_exactness"
    assert groups.group_of("tests/spark/test_pipeline.py::test_it") == "spark streams"
    assert groups.group_of("tests/test_interrupts.py::test_every_point[add]") == "interrupts"
    places = [groups.place_of(group) for group in ("interrupts", "spark", "test_lives", "test_groups")]
    assert places == sorted(set(places))
