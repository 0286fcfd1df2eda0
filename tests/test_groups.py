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
import os, pytest

@pytest.mark.parametrize("i", range(6))
def test_of_this_file(i):
    if i in {dies_at}:
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


@pytest.mark.parametrize("dies_at", [(4,), (1, 5)])
def test_a_process_that_dies(dies_at: tuple[int, ...], tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, dies in (("test_a", dies_at), ("test_b", ()), ("test_c", ())):
        (tmp_path / f"{name}.py").write_text(TESTS.format(dies_at=dies))
    arguments = ["--numprocesses", "2", "--dist", "loadscope", "--no-loadscope-reorder", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert f"{len(dies_at)} failed, {18 - len(dies_at)} passed in" in done.stdout, done.stdout
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED")] == [
        f"test_a.py::test_of_this_file[{i}]" for i in dies_at
    ]
