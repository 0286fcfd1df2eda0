"""The benchmarks run, agree on the matches and become tables and plots; their baselines are right."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dibs.matcher import Matcher
from dibs.papers import page
from dibs.papers.experiments import EXPERIMENTS
from dibs.papers.experiments.results import COLUMNS, FORMS, path_of
from dibs.papers.workloads import boolean

pytestmark = pytest.mark.slow  # most of it is a tiny run of all benchmarks

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
    """A tiny run of everything but what has a test of its own: the papers and the outside rivals."""
    out = tmp_path_factory.mktemp("benchmarks") / "tiny.json"
    sections = {
        "first-use",
        "parsing",
        "bulk",
        "json",
        "growth-sparse",
        "growth-dense",
        "single",
        "live",
        "durable",
        "pages",
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
        timed, agreed = set(section["microseconds per event"]), set(section["agreed"])
        assert {"access lists", "bit slices", "NumPy counting", "scan"} <= timed & agreed
        assert {"auto, 1 threads", "auto, 2 threads", "match_batch, 1 threads", "match_batch, 2 threads"} <= agreed
        assert ("match_batch of columns, 1 threads" in agreed) == ("match_batch of columns" in timed)
        assert 0 < section["threads"]["cores"] < 3
        assert section["matches per event"] >= 1  # each subscription is made from an event that satisfies it
        assert all(t["best"] > 0 for t in section["microseconds per event"].values())
        assert all(r > 0 for r in section["ratios"].values())


def test_sections_have_their_figures(results: dict[str, Any]) -> None:
    sections = results["sections"]
    assert 0 < sections["first-use"]["README's first example, empty cache"]["clock"] < 20
    assert sections["parsing"]["templates"]["of sqlglot's time"]["templates"] > 0
    assert 0 < sections["parsing"]["40 factors"]["milliseconds to add"] < 1000
    assert sections["bulk"]["predicates"] > 1000 and sections["bulk"]["bytes per subscription"]["index"] > 0
    points = sections["growth-dense"]["points"]
    assert [p["subscriptions"] for p in points] == [62, 250, 1000, 4000]
    assert 0 < sections["single"]["few matches"]["match(dict) / kernel"] < 5  # the promise of docs/benchmarks
    assert set(sections["cliffs"]["batch sizes"]["dense"]) >= {"1", "256"}
    json_events = sections["json"]
    assert 550 < json_events["bytes per event"] < 650
    assert all(0 < json_events[rules]["/ orjson and dicts"] < 1 for rules in ("equality", "ranges"))
    assert json_events["wide"]["columns"] == 1000 and json_events["wide"]["columns / map"] > 0


def test_structures_have_their_figures(results: dict[str, Any]) -> None:
    section = results["sections"]["structures"]
    assert section["subscriptions"] == 1000 and set(section["workloads"]) == {"dense"}
    rows = {row["structure"]: row for row in section["workloads"]["dense"]["rows"]}
    assert list(rows) == ["auto", "scan", "pbtree"]
    for row in rows.values():
        assert row["subscriptions"] == 1000 and not row["refused"]
        assert row["microseconds per event"] > 0 and row["/ auto"] > 0 and row["build seconds"] > 0
        assert row["matches per event"] >= 1 and row["events"] >= 20
    assert rows["scan"]["candidates per event"] == 1000 and rows["scan"]["predicates evaluated per event"] > 1000
    assert rows["pbtree"]["bytes per subscription"] > 0 and rows["pbtree"]["nodes per event"] > 30


def test_durable_has_its_figures(results: dict[str, Any]) -> None:
    section = results["sections"]["durable"]
    assert section["subscriptions"] == 1000 and section["filesystem"]
    assert section["reopen / rebuild"] > 0 and section["new process"]["ratio"] > 0
    assert section["reopening"]["changes replayed after a crash"] >= 100
    assert {"rebuilt", "base, reopened", "crashed, reopened", "changed and reopened"} <= set(section["agreed"])
    assert section["disk"]["catalog"] > section["disk"]["texts"] > 0 and section["disk"]["segments"] > 0
    assert section["checking"]["both"]["bytes"] > 1000 * section["disk"]["texts"]
    rows = {(r["where"], r["change"], r["batch"]): r for r in section["changing"]["rows"]}
    kinds = ("add", "replace", "remove")
    assert set(rows) == {(w, k, b) for w in ("memory", "durable") for k in kinds for b in (1, 10, 100)}
    assert all(0 < r["median ms"] <= r["p99 ms"] <= r["worst ms"] and r["a second"] > 0 for r in rows.values())
    assert section["changing"]["fdatasync of 4 KB"]["calls"] > 0


def test_live_has_its_figures(results: dict[str, Any]) -> None:
    matchers = results["sections"]["live"]["matchers"]
    assert [(m["index"], m["where"]) for m in matchers] == [("auto", "memory"), ("auto", "durable")]
    for m in matchers:
        for kind in ("batches", "single events"):
            rows = m[kind]["rows"]
            assert [r["rate"] for r in rows] == ([100, 1000, 5000] if kind == "batches" else [100])
            assert all(r["adds per second"] > 0 and r["of idle, worst"] <= r["of idle"] + 1e-9 for r in rows)
            assert all(r["of idle"] > 0 and r["match"]["calls"] > 0 and r["segments"] >= 1 for r in rows)
        assert {(r["change"], r["a match after every"]) for r in m["one by one"]} == {
            (change, every) for change in ("add", "remove") for every in (1, 100)
        }
        amortised = m["amortised"]
        assert 0 < amortised["microseconds of the call"] <= amortised["microseconds until settled"]


def test_pages_have_their_figures(results: dict[str, Any]) -> None:
    workloads = results["sections"]["pages"]["workloads"]
    assert set(workloads) == {"dense", "sparse"}
    for workload in workloads.values():
        points = workload["points"]
        assert [p["subscriptions"] for p in points] == [10, 100, 500]
        for p in points:
            assert set(p["microseconds per event"]) == {"pbtree", "pbtree-memory", "counting", "auto"}
            assert {"scan", "pbtree", "pbtree-memory", "counting", "pbtree, cold", "Matcher"} <= set(p["agreed"])
            assert 0 < p["resident at most"] <= p["budget"] and p["bytes on disk"] > 0
            assert p["whole"]["pages visited"] > 0
        assert points[-1]["pages per event"] > points[0]["pages per event"] > 0
        assert points[-1]["entries met per event"] > points[0]["entries met per event"]
        assert all(0 < p["pages / bound of the worst event"] <= 1 for p in points)
        assert all(p["pages per event"] <= p["pages per event at most"] for p in points)


def test_an_event_that_touches_too_many_pages_is_seen(load: Any) -> None:
    pages, index = load("sections.pages"), load("dibs.index")
    segment, coded = pages._coded(boolean.make_named("sparse", 2_000, events=50))
    tree = index.create("pbtree", segment.clauses)
    bound, visited = pages._bound(tree._structure, coded), pages._visited(tree, coded)
    pages._check(bound, visited)
    visited[7] = bound[7] + 1
    with pytest.raises(pages.TooManyPages, match=r"1 of 50 events .* event 7 touches"):
        pages._check(bound, visited)


def test_a_change_that_a_match_misses_is_seen(load: Any) -> None:
    windows, books, measure = load("sections.live_windows"), load("sections.live_books"), load("measure")
    oracle = books.Oracle(boolean.make_named("sparse", 400, events=50), 300)
    own = books.Books(oracle)
    before = own.counts.copy()
    groups = [own.group(20, 20) for _ in range(3)]
    own.forget(groups[2:])
    history = own.note(groups[:2])
    assert history.shape == (3, 50) and (history[0] == before).all() and len(own) == 300
    assert own.group(1, 1) == books.Group(groups[2].added[:1], groups[2].removed[:1])
    event = own.event_of(groups[0].added[0][0])
    assert oracle.counts([groups[0].added[0][0]])[event] == 1

    def check(first: int, last: int, seen: Any, event: int = 0) -> None:
        windows.check_calls([windows.Call(first, last, event, seen)], history)

    for first, last, state in ((0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 2, 2)):
        check(first, last, history[state])
    for first, last, seen in ((1, 2, history[0]), (0, 1, history[2]), (0, 2, history[0] + np.eye(50, dtype=int)[7])):
        with pytest.raises(measure.WrongMatches, match="match 0"):
            check(first, last, seen)
    event = int(np.flatnonzero(history[0] != history[1])[0])
    check(0, 0, history[0, event : event + 1], event)
    with pytest.raises(measure.WrongMatches, match="match 0"):
        check(1, 1, history[0, event : event + 1], event)


def test_a_matcher_that_shows_changes_late_is_seen(load: Any) -> None:
    windows, books, measure = load("sections.live_windows"), load("sections.live_books"), load("measure")
    workload = boolean.make_named("sparse", 400, events=50)
    oracle = books.Oracle(workload, 300)
    batch = workload.event_batch()

    class Late(Matcher):
        """Answers with what the match before found."""

        last: Any = None

        def match_batch(self, *arguments: Any, **options: Any) -> Any:
            last, self.last = self.last, super().match_batch(*arguments, **options)
            return last or self.last

    work = windows.Work(
        lambda m, _: m.match_batch(batch, attributes="attributes").pairs(),
        lambda pairs: np.bincount(pairs["event"].to_numpy(), minlength=50),
        single=False,
        events=50,
    )

    def run_windows(kind: Any, count: int) -> Any:
        matcher, own = kind(threads=1), books.Books(oracle)
        matcher.add_table(workload.subscription_table().slice(0, 300))
        for _ in range(count):
            run = windows.window(matcher, own, [own.group(2, 2) for _ in range(40)], 400, work, 0.2)
        return run

    run = run_windows(Matcher, 1)
    assert run.adds > 0 and run.throughput > 0
    with pytest.raises(measure.WrongMatches):
        run_windows(Late, 20)  # several: on a busy machine one may hold a single match


def test_a_structure_that_takes_too_much_is_tried_with_less(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    structures, tables, measure = load("sections.structures"), load("tables"), load("measure")
    tried = []

    def outcome(name: str, subscriptions: int, *_: Any) -> Any:
        tried.append(subscriptions)
        figures = {"build seconds": 1.0, "microseconds per event": 2.0, "/ auto": 3.0}
        return figures if name == "small" and subscriptions <= 100 else "more than 60 s of building"

    monkeypatch.setattr(structures, "_measure", outcome)
    size = measure.Size(1000, 1, 20, 1, structure_subscriptions=1000)
    said: list[str] = []
    rows = [structures._row("dense", name, size, "", said.append) for name in ("small", "never")]
    assert tried == [1000, 300, 100, 1000, 300, 100, 30]
    assert rows[0]["subscriptions"] == 100 and "subscriptions" not in rows[1]
    workload = {"matches per event": 1.0, "rows": rows}
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

    assert measured("pbtree")["microseconds per event"] > 0
    with monkeypatch.context() as patched:
        patched.setattr(structures, "MOST_MEMORY", 1 << 20)
        assert "memory" in measured("counting")  # 30 MB
    with monkeypatch.context() as patched:
        patched.setitem(structures.SECONDS, "building", 0)
        assert measured("pbtree") == "more than 0 s of building"


OUTSIDE: dict[str, Any] = {
    "absent": {"Some engine": "it needs Go"},
    "workloads": {
        shape: {
            kind: {"subscriptions": 1000, "microseconds per event": {"dibs": 1.0, rival: 20.0}}
            for kind, rival in (("join", "DuckDB join"), ("rules", "rule-engine"))
        }
        for shape in ("sparse", "dense")
    },
    "patterns": {"patterns": 50, "microseconds per string": {"dibs": 1.0, "hyperscan": 0.5}},
    "engines": {
        "100 rules": {
            "rules": 100,
            "bytes per event": 600.0,
            "matches per event": 1.0,
            "microseconds per event": {"dibs, match": 5.0, "dibs, match_batch": 1.0, "event-ruler (Java)": 6.0},
            "left out": {"quamina (Go)": "cannot say these rules"},
        }
    },
}


def make_figures(folder: Path) -> None:
    """Results of the papers' figures, made up."""
    folder.mkdir(parents=True)
    for name, its in EXPERIMENTS.items():
        labels = dict.fromkeys(one.label for value in its.values for one in its.series_at(value))
        points = []
        for i, value in enumerate(its.values):
            rows = {label: dict.fromkeys(COLUMNS[:-1], (k + 1.0) * (i + 1)) for k, label in enumerate(labels)}
            x = value // 1000 if its.is_size else value
            points.append({"x": x, "of": value, "seed": 1, "subscriptions": 1000, "events": 10, "rows": rows})
        settings = {"scale": 0.001, "events": 10, "repeats": 1, "forms": FORMS}
        path_of(name, folder).write_text(json.dumps({"name": name, "settings": settings, "points": points}))


def test_the_page_of_the_papers_has_true_sizes_and_names_what_is_missing(tmp_path: Path, monkeypatch: Any) -> None:
    figures = tmp_path / "figures"
    make_figures(figures)
    pages = tmp_path / "docs" / "laboratory"
    pages.mkdir(parents=True)
    drawn = []
    monkeypatch.setattr(page.pictures, "draw", lambda found, path, endings: drawn.append(path.name) or [])
    page.write(figures, tmp_path)
    assert {"pstree-5", "opindex-10", "betree-13", "tatbul-7", "pbtree-table-1"} <= set(drawn)
    assert len(drawn) >= 36
    shown = (pages / "figures.md").read_text()
    assert "PS-Tree, table 2: advertisements: 1,000 subscriptions, 10 events, 0.1 % of the paper's size." in shown
    assert "| PSTBloom | signatures of all attributes | of three | pstree-6a, 1,000 subscriptions | " in shown
    assert "3,000,000" not in shown and "| 20,000 | 3 | 6 | 9 |" in shown
    assert "### opindex-memory: " in (pages / "verdicts.md").read_text() and "Not measured" not in shown
    path_of("tatbul-9", figures).unlink()
    page.write(figures, tmp_path)
    assert "Not measured: tatbul-9." in (pages / "figures.md").read_text()
    assert "figures are missing: tatbul-joins" in (pages / "verdicts.md").read_text()


@pytest.fixture(scope="module")
def report_module() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("report")


def test_the_report_fills_the_pages(results: dict[str, Any], report_module: ModuleType, tmp_path: Path):
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copytree(ROOT / "docs" / "benchmarks", tmp_path / "docs" / "benchmarks")
    papers = {"scale": 0.01, "experiments": len(EXPERIMENTS), "seconds": {"tatbul-7": 3.0}, "auto": "It is fast."}
    whole = results | {"sections": results["sections"] | {"papers": papers, "outside": OUTSIDE}}
    written = report_module.write(whole, tmp_path)
    plots = {p.stem for p in written if p.suffix == ".svg"}
    assert plots == {"matching", "growth", "single", "batches", "structures", "pages", "live", "outside"}
    page = (tmp_path / "docs" / "benchmarks" / "index.md").read_text()
    begin, end = page.index("<!-- begin growth -->"), page.index("<!-- end growth -->")
    assert "| dense | 4,000 |" in page[begin:end] and "(../plots/growth.svg)" in page[begin:end]
    assert "a sample, 0.01 of the papers' sizes, in 3 s of processor time: It is fast." in page
    assert "DuckDB join" in page and "rule-engine" in page and "hyperscan" in page
    assert "| 100 rules (100), 1 matches | 5.00 | 1.00 | 6.00 |" in page
    assert "quamina (Go) with 100 rules: cannot say these rules" in page
    assert "(../../benchmarks/spark.py)" in page
    assert "1,000 subscriptions, one core:" in (tmp_path / "README.md").read_text()
    once = {path: path.read_text() for path in tmp_path.rglob("*.md")}
    assert not any("Not measured in this run." in text for text in once.values())
    report_module.write(whole, tmp_path)
    assert {path: path.read_text() for path in tmp_path.rglob("*.md")} == once  # a second time changes nothing


def test_the_pages_have_one_place_for_every_block(load: Any, results: dict[str, Any]) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs" / "benchmarks").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    for name in (*load("tables").blocks(results), "papers", "outside"):
        assert text.count(f"<!-- begin {name} -->") == text.count(f"<!-- end {name} -->") == 1, name


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


def test_promises_of_what_is_live_are_seen(results: dict[str, Any], load: Any) -> None:
    tables = load("tables")
    changed = json.loads(json.dumps(results))
    changed["size"]["subscriptions"] = tables.PROMISED_AT
    sections = changed["sections"]
    dense, first = sections["pages"]["workloads"]["dense"], sections["live"]["matchers"][0]

    def state(good: bool) -> dict[str, bool]:
        sections["durable"]["reopen / rebuild"] = 0.05 if good else 0.051
        first["batches"]["most adds per second at 0.7 of idle"] = 99.0 if good else 98.0
        dense["points"][-1] |= {"index / budget": 10.0 if good else 9.9}
        dense["points"][0] |= {"budget": 1000, "resident at most": 1000 if good else 1001}
        dense["points"][1] |= {"pages / bound of the worst event": 1.0 if good else 1.01}
        found = {(p.measure, p.where): p.kept for p in tables.promises(changed)}
        return {
            "reopen": found["reopen / rebuild", "sparse"],
            "adds": found["adds per second with matching at 0.7 of idle", "auto memory"],
            "smaller": found["pbtree: index / memory budget", "dense"],
            "resident": found["pbtree: resident / memory budget", "dense"],
            "bound": found["pbtree: pages of any event / log n + output", "dense"],
        }

    assert all(state(True).values()) and not any(state(False).values())
    changed["size"]["subscriptions"] = tables.PROMISED_AT - 1
    assert [what for what, kept in state(False).items() if kept] == ["reopen", "smaller"]  # the size decides these
    assert "(not judged at this size)" in tables.blocks(changed)["promises"]
    text = tables.blocks(changed)["pages"]
    assert "the budget: **not met**" in text and "its output account for: **not met**" in text


@pytest.mark.parametrize("shape", ["sparse", "dense", "ads"])
def test_baselines_find_every_match(shape: str, load: Any) -> None:
    baselines = load("baselines")
    workload = boolean.make_named(shape, 700, events=300)
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
    workload = boolean.make_named("dense", 3_000, events=300)
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
