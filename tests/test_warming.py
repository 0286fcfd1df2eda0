"""`dibs warm` compiles whatever `auto` needs, and says so; `dibs doctor` knows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import orjson
import pytest

from command_line import run
from dibs.jit import ready
from dibs.warming import processes
from test_cold import COMPILER_FAILS, PAGES, doctest_of, examples_of

UNREACHED = """
import importlib, json
from numba.core.dispatcher import Dispatcher
from dibs.jit.ready import own_modules
from dibs import engine
from dibs.warming import workload
engine.load()
kernels = {
    value: f"{name}.{value.py_func.__qualname__}"
    for name in own_modules()
    for value in vars(importlib.import_module(name)).values()
    if isinstance(value, Dispatcher) and value.py_func.__module__ == name
}
assert len(kernels) > 100
for part in (*workload.PARTS, *workload.LAST):
    workload.run(part)
reached, waiting = set(), [kernel for kernel in kernels if kernel.overloads]
while waiting:  # what a kernel calls was compiled with it, perhaps in an earlier process
    kernel = waiting.pop()
    if kernel not in reached:
        reached.add(kernel)
        named = [kernel.py_func.__globals__.get(name) for name in kernel.py_func.__code__.co_names]
        waiting += [each for each in named if isinstance(each, Dispatcher)]
print(json.dumps([name for kernel, name in kernels.items() if kernel not in reached]))
"""
ENGINE = "from dibs import engine; engine.load()\n"
LONGER = """
import dibs, pyarrow as pa, tempfile
from pathlib import Path
m = dibs.Matcher()
assert m._matching is not None
for i in range(300):
    m.add(i, f"price < {i} AND color IN ('red', 'c{i}')", weight=i % 7)
    m.add(f"s{i}", f"price > {i} OR brand LIKE '%x{i}' OR NOT (size = {i})")
    if i % 50 == 0:
        m.match({"price": 5, "color": "red"})
texts = [f"a{i % 20} BETWEEN {i} AND {i + 9}" for i in range(3000)]
table = pa.table({"id": [f"t{i}" for i in range(3000)], "expression": texts})
m.add_table(table)
events = [{"price": i, "color": "red", "a3": i, "size": [1, i], "brand": f"x{i}"} for i in range(2000)]
expected = [sorted(ids, key=str) for ids in m.match_batch(events)]
assert sorted(m.match(events[3]), key=str) == expected[3]
assert m.count(events).tolist() == [len(ids) for ids in expected]
m.match_batch(pa.Table.from_pylist([{"price": 1.5, "color": "red"}] * 600)).pairs(weights=True)
m.remove_many([f"t{i}" for i in range(1500)])
m.match_batch(events).by_event()
m.match_batch(b'{"price": 5}\\n{"a1": 7}\\n' * 300)
m.compact()
m.match(events[5], top=3)
with tempfile.TemporaryDirectory() as folder:
    m.save(Path(folder, "saved"))
    dibs.Matcher.load(Path(folder, "saved")).match_batch(events[:50])
    with dibs.Matcher.open(Path(folder, "durable")) as live:
        live.add_table(table)
        live.match(events[5])
dibs.backtest(["price < 7", "brand LIKE '%x1%' OR size = 5"], events)
print("good")
"""


@pytest.fixture(scope="module")
def warm() -> None:
    """The cache of the tests has everything, as after `make setup`."""
    processes.warm()
    assert ready.is_ready()


def in_a_process(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_the_workload_reaches_every_kernel() -> None:
    assert json.loads(in_a_process(UNREACHED)) == []


@pytest.mark.usefixtures("warm")
def test_nothing_is_left_to_compile() -> None:
    """By the examples of the first pages, and by a longer use."""
    examples = ENGINE + "import os, tempfile; os.chdir(tempfile.mkdtemp())\n" + doctest_of(examples_of(*PAGES))
    assert in_a_process(COMPILER_FAILS + examples) == "good\n"
    assert in_a_process(COMPILER_FAILS + ENGINE + LONGER) == "good\n"


@pytest.mark.usefixtures("warm")
def test_the_command_keeps_what_is_there() -> None:
    done = run("warm")
    assert done.exit_code == 0
    assert "everything was compiled already" in done.stderr
    assert str(ready.note().parent) in done.stderr


@pytest.mark.usefixtures("warm")
def test_the_doctor_is_content() -> None:
    done = run("doctor", "--json")
    found = {finding["name"]: finding for finding in orjson.loads(done.stdout)}
    assert found["kernels"]["found"].startswith("warm: ")
    assert {"python", "numba", "java", "processor", "free disk"} <= found.keys()
    assert done.exit_code == (1 if any(f["advice"] and f["needed"] for f in found.values()) else 0)


def test_the_doctor_of_a_cold_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("DIBS_CACHE", str(tmp_path))
    done = run("doctor")
    assert done.exit_code == 1
    assert "cold: 0.0 MB" in done.stdout and "run `dibs warm`" in done.stdout


def test_a_part_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("DIBS_CACHE", str(tmp_path))
    monkeypatch.setattr(processes, "PARTS", ("no such part",))
    done = run("warm")
    assert done.exit_code == 3
    assert "the kernels cannot be compiled: dibs.errors.UnknownIndex" in done.stderr
    assert "Traceback" in (tmp_path / "warming.log").read_text()
    assert not ready.is_ready()


def test_no_part_is_lost_or_run_twice_by_processes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More processes than parts, so that some find none left; a thread that fails is an error of pytest."""
    monkeypatch.setattr(processes, "environment", lambda: os.environ | {"PYTHONPATH": str(tmp_path)})
    package = tmp_path / "dibs" / "warming"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "__main__.py").write_text(f"import sys; open({str(tmp_path / 'log')!r}, 'a').write(sys.argv[1] + ' ')")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(3):
            processes._run([str(i) for i in range(6)], 8, processes._Count(None))
    finally:
        sys.setswitchinterval(interval)
    assert sorted((tmp_path / "log").read_text().split()) == sorted([str(i) for i in range(6)] * 3)


def test_the_size_of_a_folder_from_which_others_take_folders_away(tmp_path: Path) -> None:
    (tmp_path / "stays").write_bytes(bytes(100))
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            for i in range(20):
                (tmp_path / f"{i}").mkdir()
            for i in range(20):
                (tmp_path / f"{i}").rmdir()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        assert {processes.size_of(tmp_path) for _ in range(200)} == {100}
    finally:
        done.set()
        thread.join()


def test_the_parts_are_those_of_the_workload() -> None:
    from dibs.warming import workload

    assert list(processes.PARTS) == list(workload.PARTS)
    assert processes.LAST == tuple(workload.LAST)
