"""The benchmarks run, agree on the matches and become tables and plots; their baselines are right."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dibs.workloads import boolean

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
SHAPES = {"sparse", "dense", "zipf", "ads", "retail"}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the benchmarks as run.py does."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    return module


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "run.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A tiny run of everything but the compilation of all kernels, which takes a minute."""
    out = tmp_path_factory.mktemp("benchmarks") / "tiny.json"
    sections = {
        "parsing",
        "bulk",
        "growth-sparse",
        "growth-dense",
        "single",
        "updates",
        "cliffs",
        "structures",
    } | SHAPES
    size = ("--quick", "--together", "--subscriptions", 1000, "--events", 300, "--repeats", 1)
    some = ("--workloads", "dense", "--structures", "scan", "pbtree")
    done = run(*size, *some, "--out", out, "--only", *sorted(sections))
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert set(found["sections"]) == sections
    return found


def test_results_say_where_they_come_from(results: dict[str, Any]) -> None:
    host = results["host"]
    assert host["cores"] >= 1 and host["memory"] > 2**28 and host["cpu"] and host["date"]
    assert host["packages"]["numpy"] == np.__version__
    assert len(host["load average"]) == 3
    assert results["size"]["subscriptions"] == 1000 and not results["full"]


def test_every_rival_agreed_before_it_was_timed(results: dict[str, Any]) -> None:
    for shape in SHAPES:
        section = results["sections"][shape]
        timed, agreed = set(section["microseconds an event"]), set(section["agreed"])
        assert {"access lists", "bit slices", "NumPy counting", "scan"} <= timed & agreed
        assert {"auto, 1 threads", "auto, 2 threads", "match_batch, 1 threads", "match_batch, 2 threads"} <= agreed
        assert ("match_batch of columns, 1 threads" in agreed) == ("match_batch of columns" in timed)
        assert 0 < section["threads"]["cores"] < 3
        assert section["matches an event"] >= 1  # each subscription is made from an event that satisfies it
        assert all(t["best"] > 0 for t in section["microseconds an event"].values())
        assert all(r > 0 for r in section["ratios"].values())


def test_sections_have_their_figures(results: dict[str, Any]) -> None:
    sections = results["sections"]
    assert sections["parsing"]["fast lane"]["of sqlglot's time"]["fast lane"] > 0
    assert 0 < sections["parsing"]["40 factors"]["milliseconds to add"] < 1000
    assert sections["bulk"]["predicates"] > 1000 and sections["bulk"]["bytes a subscription"]["index"] > 0
    points = sections["growth-dense"]["points"]
    assert [p["subscriptions"] for p in points] == [62, 250, 1000, 4000]
    assert sections["single"]["few matches"]["match(dict) / kernel"] > 1
    assert sections["updates"]["adds"]["a second"] > 0
    assert set(sections["cliffs"]["batch sizes"]["dense"]) >= {"1", "256"}


def test_structures_have_their_figures(results: dict[str, Any]) -> None:
    section = results["sections"]["structures"]
    assert section["subscriptions"] == 1000 and set(section["workloads"]) == {"dense"}
    rows = {row["structure"]: row for row in section["workloads"]["dense"]["rows"]}
    assert list(rows) == ["auto", "scan", "pbtree"]
    for row in rows.values():
        assert row["subscriptions"] == 1000 and not row["refused"]
        assert row["microseconds an event"] > 0 and row["/ auto"] > 0 and row["build seconds"] > 0
        assert row["matches an event"] >= 1 and row["events"] >= 20
    assert rows["scan"]["candidates an event"] == 1000 and rows["scan"]["predicates evaluated an event"] > 1000
    assert rows["pbtree"]["bytes a subscription"] > 0 and rows["pbtree"]["nodes an event"] > 30


def test_a_structure_that_takes_too_much_is_tried_with_less(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    structures, tables, measure = load("sections.structures"), load("tables"), load("measure")
    tried = []

    def outcome(name: str, subscriptions: int, *_: Any) -> Any:
        tried.append(subscriptions)
        figures = {"build seconds": 1.0, "microseconds an event": 2.0, "/ auto": 3.0}
        return figures if name == "small" and subscriptions <= 100 else "more than 60 s of building"

    monkeypatch.setattr(structures, "_measure", outcome)
    size = measure.Size(1000, 1, 20, 1, structure_subscriptions=1000)
    said: list[str] = []
    rows = [structures._row("dense", name, size, "", said.append) for name in ("small", "never")]
    assert tried == [1000, 300, 100, 1000, 300, 100, 30]
    assert rows[0]["subscriptions"] == 100 and "subscriptions" not in rows[1]
    workload = {"matches an event": 1.0, "rows": rows}
    text = tables._structures({"structures": {"subscriptions": 1000, "workloads": {"dense": workload}}})
    assert "| small (100) | 2.00 | 3.00 |" in text and "| never |  |" in text
    assert "- small, 300 subscriptions: more than 60 s of building" in text
    assert all(line.endswith("\n") for line in said) and len(said) == 7


def test_a_structure_is_stopped_where_it_takes_too_much(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    structures, measure = load("sections.structures"), load("measure")
    size = measure.Size(1, 1, 20, 1, structure_subscriptions=20_000)
    structures._prepare("dense", size, tmp_path, lambda _: None)

    def measured(name: str) -> Any:
        return structures._measure(name, 20_000, 1, str(tmp_path), lambda _: None)

    assert measured("pbtree")["microseconds an event"] > 0
    with monkeypatch.context() as patched:
        patched.setattr(structures, "MOST_MEMORY", 1 << 20)
        assert "memory" in measured("counting")  # 30 MB
    with monkeypatch.context() as patched:
        patched.setitem(structures.SECONDS, "building", 0)
        assert measured("pbtree") == "more than 0 s of building"


def test_the_report_fills_the_page(results: dict[str, Any], load: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shutil.copy(ROOT / "BENCHMARKS.md", page)
    written = load("report").write(results, page, tmp_path / "plots")
    assert {p.name for p in written} == {
        "matching.svg",
        "growth.svg",
        "single.svg",
        "batches.svg",
        "structures.svg",
        "page.md",
    }
    text = page.read_text()
    begin, end = text.index("<!-- begin growth -->"), text.index("<!-- end growth -->")
    assert "| dense | 4,000 |" in text[begin:end]
    assert "(benchmarks/plots/growth.svg)" in text[begin:end]
    assert load("report").write(results, page, tmp_path / "plots")
    assert page.read_text() == text  # a second time changes nothing


def test_the_page_has_a_place_for_every_block(load: Any) -> None:
    page = (ROOT / "BENCHMARKS.md").read_text()
    for name in (
        "host",
        "promises",
        "matching",
        "building",
        "growth",
        "parsing",
        "bulk",
        "single",
        "updates",
        "cliffs",
        "structures",
    ):
        assert page.count(f"<!-- begin {name} -->") == page.count(f"<!-- end {name} -->") == 1, name


def test_promises_that_are_broken_are_seen(results: dict[str, Any], load: Any) -> None:
    broken = json.loads(json.dumps(results))
    broken["sections"]["ads"]["ratios"] |= {"auto / better baseline": 0.81, "scan / auto": 29.0}
    found = {(p.measure, p.where): p for p in load("tables").promises(broken)}
    assert not found["auto / better baseline", "ads"].kept
    assert not found["scan / auto", "ads"].kept
    broken["sections"]["ads"]["ratios"] |= {"auto / better baseline": 0.8, "scan / auto": 30.0}
    found = {(p.measure, p.where): p for p in load("tables").promises(broken)}
    assert found["auto / better baseline", "ads"].kept
    assert found["scan / auto", "ads"].kept


@pytest.mark.parametrize("shape", ["sparse", "dense", "ads"])
def test_baselines_find_every_match(shape: str, load: Any) -> None:
    baselines = load("baselines")
    workload = boolean.named(shape, 700, events=300)
    expected = set()
    for event, (attributes, values) in enumerate(zip(workload.event_attribute, workload.event_value)):
        current = np.full(workload.shape.attributes, -1)
        current[attributes] = values
        value = current[workload.attribute]
        holds = (workload.low <= value) & (value <= workload.high)
        matched = np.logical_and.reduceat(holds, workload.offsets[:-1])
        expected |= {(event, s) for s in np.flatnonzero(matched).tolist()}
    for kind in (baselines.AccessLists, baselines.BitSlices, baselines.Counting):
        event, subscription = kind(workload).match(workload.event_attribute, workload.event_value)
        assert len(event) == len(expected), kind.name
        assert set(zip(event.tolist(), subscription.tolist())) == expected, kind.name


@pytest.mark.parametrize("kind", ["AccessLists", "BitSlices"])
def test_baselines_make_room(kind: str, load: Any) -> None:
    workload = boolean.named("dense", 3_000, events=300)
    baseline = getattr(load("baselines"), kind)(workload)
    expected = [a.copy() for a in baseline.match(workload.event_attribute, workload.event_value)]
    baseline._room = (np.empty(300, np.int32), np.empty(300, np.int32))
    assert len(expected[0]) > 300
    found = baseline.match(workload.event_attribute, workload.event_value)
    assert all(np.array_equal(a, b) for a, b in zip(expected, found))


def test_a_wrong_match_stops_the_clock(load: Any) -> None:
    measure = load("measure")
    keys = measure.Keys(np.array([0, 0, 1]), np.array([5, 7, 5]))
    keys.check("in another order", np.array([1, 0, 0]), np.array([5, 7, 5]))
    keys.check("of the first event", np.array([0, 0]), np.array([7, 5]), 1)
    for event, subscription in (([0, 0, 1], [5, 7, 6]), ([0, 0], [5, 7]), ([0, 0, 1, 1], [5, 7, 5, 5])):
        with pytest.raises(measure.WrongMatches, match="not the 3 expected"):
            keys.check("wrong", np.array(event), np.array(subscription))


def test_bad_options_are_explained() -> None:
    done = run("--only", "sparce")
    assert done.returncode == 2 and "sparce" in done.stderr and "retail" in done.stderr
    done = run("--only", "structures", "--structures", "betre", "--together")
    assert done.returncode == 1 and "no index is called betre" in done.stderr and "Traceback" not in done.stderr
    done = run("--subscriptions", "0")
    assert done.returncode == 2 and "--subscriptions" in done.stderr and "Traceback" not in done.stderr
