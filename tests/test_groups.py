"""Tests that share what is expensive run in one process; one that dies costs the test that it ran (groups.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import groups

RAN: list[str] = []
CONFTEST = """
from groups import GroupScheduling

def pytest_xdist_make_scheduler(config, log):
    return GroupScheduling(config, log)
"""
TESTS = """
import os, pytest, time

@pytest.mark.parametrize("i", range(6))
def test_of_this_file(i):
    time.sleep({seconds})
    if i in {dies_at}:
        time.sleep({before_death})
        os._exit(1)
"""


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
    places = [groups.place_of(group) for group in ("spark", "test_lives", "test_groups", "test_tokens")]
    assert places == sorted(set(places))


@pytest.mark.parametrize("before_death", [0, 1])
@pytest.mark.parametrize("dies_at", [(4,), (1, 5)])
def test_a_process_that_dies(dies_at: tuple[int, ...], before_death: int, tmp_path: Path) -> None:
    """At once; or after a second, when the other process has no group left to take, and the one that died has two, of
    the first of which one test is left."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, dies, seconds in (("test_a", dies_at, 0), ("test_b", (), before_death / 20), ("test_c", (), 0)):
        (tmp_path / f"{name}.py").write_text(TESTS.format(dies_at=dies, seconds=seconds, before_death=before_death))
    arguments = ["--numprocesses", "2", "--dist", "loadscope", "--no-loadscope-reorder", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "-p", "xdist", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert f"{len(dies_at)} failed, {18 - len(dies_at)} passed in" in done.stdout, done.stdout
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED")] == [
        f"test_a.py::test_of_this_file[{i}]" for i in dies_at
    ]
