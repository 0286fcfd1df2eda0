"""Every experiment of the papers runs at a tiny scale; every claim is about experiments that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dibs.index import INDEXES, options_of
from dibs.index.options import check_options
from dibs.papers.experiments import EXPERIMENTS, measure, standing, verdicts
from dibs.papers.experiments.claims import (
    FAILS,
    HOLDS,
    IN_PART,
    Claim,
    best,
    changes_more,
    falls,
    less,
    rank,
    rises,
    steady,
)
from dibs.papers.experiments.experiment import MEASURES, Size
from dibs.papers.experiments.measure import DifferentMatches, measure_point
from dibs.papers.experiments.remarks import REMARKS
from dibs.papers.experiments.results import Result, run
from dibs.papers.experiments.whys import explain, explain_change

TINY = Size(0.00003, events=10, repeats=1)
OWN = [name for name, its in EXPERIMENTS.items() if not its.points_of]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_of_structures_that_there_are_and_has_auto(name: str) -> None:
    its = EXPERIMENTS[name]
    assert set(its.measures) <= set(MEASURES) and its.x and ", " in its.about
    for value in its.values:
        series = its.series_at(value)
        assert any(one.structure == "auto" for one in series)
        assert len({one.label for one in series}) == len(series)
        for one in series:
            assert one.structure in INDEXES
            assert check_options(one.structure, options_of(one.structure), one.options) == one.options
    if its.points_of:
        shown = EXPERIMENTS[its.points_of]
        assert not shown.points_of and (shown.values, shown.series) == (its.values, its.series)


@pytest.mark.parametrize("name", OWN)
def test_a_point_of_every_experiment(name: str) -> None:
    its = EXPERIMENTS[name]
    point = measure_point(its, its.values[-1], TINY)
    assert set(point["rows"]) == {one.label for one in its.series_at(its.values[-1])}
    assert all({"match_us", "build_s", "bytes", "matches"} <= row.keys() for row in point["rows"].values())
    for one in its.series_at(its.values[-1]):
        if one.updates and "13" not in name:
            assert point["rows"][one.label]["insert_us"] > 0
    for measured in its.measures:
        assert any(measured in row for row in point["rows"].values())


def test_figures_and_tables_of_the_papers_are_there() -> None:
    def has(paper: str, *figures: int) -> bool:
        return all(any(re.fullmatch(f"{paper}-{n}[a-f]?", name) for name in EXPERIMENTS) for n in figures)

    assert has("opindex", 1, *range(7, 15)) and has("betree", *range(4, 14)) and has("pstree", *range(5, 16))
    assert has("tatbul", 7, 8, 9) and has("pstree-table", 2, 3) and has("betree-table", 4, 5) and has("pbtree-table", 1)


def test_structures_that_differ_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where they find as many."""
    digests = iter(range(1000))
    monkeypatch.setattr(measure, "_digest", lambda pairs: next(digests))
    with pytest.raises(DifferentMatches, match="figure 7"):
        measure_point(EXPERIMENTS["opindex-7"], 5, TINY)


def test_every_claim_is_about_experiments_and_structures_that_there_are() -> None:
    assert len(verdicts.CLAIMS) >= 40
    assert len({claim.name for claim in verdicts.CLAIMS}) == len(verdicts.CLAIMS)
    for claim in verdicts.CLAIMS:
        assert claim.checks and claim.statement.endswith(".") and claim.section
        for name in claim.experiments:
            assert name in EXPERIMENTS, claim.name


def make_result(name: str, lines: dict[str, list[float]], values: list[Any]) -> Result:
    points = []
    for i, value in enumerate(values):
        rows = {label: dict.fromkeys([*MEASURES, "nodes"], line[i]) for label, line in lines.items()}
        points.append({"x": value, "subscriptions": 10, "rows": rows})
    return Result(name, EXPERIMENTS[name], {"scale": 0.1, "events": 10}, points)


def test_every_claim_can_be_judged_and_the_page_written() -> None:
    """On results that are made up: every label that a check names exists in its experiment."""
    made: dict[str, Result] = {}

    def find(name: str) -> Result:
        if name not in made:
            its = EXPERIMENTS[name]
            labels = dict.fromkeys(one.label for value in its.values for one in its.series_at(value))
            lines = {label: [float(k + 1) * (i + 1) for i in range(len(its.values))] for k, label in enumerate(labels)}
            made[name] = make_result(name, lines, list(its.values))
        return made[name]

    found = [verdicts.judge(claim, find) for claim in verdicts.CLAIMS]
    page = verdicts.write(found, {"OpIndex": (0.1, 0.5)})
    assert "refused" not in page and "| OpIndex | 0.1 to 0.5 |" in page
    assert set(REMARKS) <= {claim.name for claim in verdicts.CLAIMS}
    for verdict in found:
        assert f"### {verdict.claim.name}: {verdict.word}" in page
        assert all(outcome.figure for outcome in verdict.outcomes)
        assert all(outcome.why for outcome in verdict.outcomes if not outcome.passed), verdict


def test_verdicts() -> None:
    result = make_result(
        "pstree-6a", {"OpIndex": [4.0, 8.0], "PSTHash": [2.0, 1.0], "SCAN": [3.0, 9.0], "auto": [0.1, 0.1]}, [1, 2]
    )

    def word(*checks: Any) -> str:
        return verdicts.judge(Claim("c", "p", "s", "t.", checks), lambda name: result).word

    yes = [
        best("", "PSTHash"),
        less("", "PSTHash", "OpIndex"),
        less("", "PSTHash", "OpIndex", by=0.9),
        rises("", "OpIndex", "SCAN"),
        falls("", "PSTHash"),
        steady("", "auto"),
        changes_more("", ["SCAN"], ["OpIndex"]),
        rank("", ["PSTHash", "OpIndex", "SCAN"]),
    ]
    no = [
        best("", "SCAN"),
        best("", "OpIndex", where=lambda v: v == 2),
        less("", "PSTHash", "OpIndex", at=0, by=0.9),
        rises("", "OpIndex", "auto"),
        falls("", "SCAN"),
        steady("", "OpIndex"),
        changes_more("", ["OpIndex"], ["SCAN"]),
        rank("", ["PSTHash", "SCAN", "OpIndex"]),
    ]
    assert all(word(check) == HOLDS for check in yes)
    assert all(word(check) == FAILS for check in no)
    assert word(yes[0], no[0]) == IN_PART


def test_a_refused_structure_is_no_winner(tmp_path: Path) -> None:
    result = make_result("pstree-6a", {"OpIndex": [4.0], "PSTHash": [2.0]}, [1])
    del result.points[0]["rows"]["PSTHash"]["match_us"]
    assert not less("", "PSTHash", "OpIndex").judge(result).passed
    assert (
        best("", "OpIndex")
        .judge(make_result("pstree-6a", {"OpIndex": [4.0], "auto": [1.0], "SCAN": [5.0]}, [1]))
        .passed
    )
    assert not best("", "PSTHash").judge(result).passed


def test_points_are_in_the_order_of_the_values(tmp_path: Path) -> None:
    result = run("tatbul-8", tmp_path, TINY)
    assert result.values == list(EXPERIMENTS["tatbul-8"].values)
    assert run("tatbul-8", tmp_path, TINY).points == result.points


def test_whys_say_who_has_more_to_do_and_whose_steps_are_dearer() -> None:
    def count(match_us: float, candidates: float, predicates: float, nodes: float) -> dict[str, float]:
        return {"match_us": match_us, "candidates": candidates, "predicates": predicates, "nodes": nodes, "bytes": 100}

    rows = {"OpIndex": count(10, 100, 100, 50), "k-index": count(1, 60, 100, 40), "BE-Tree": count(2, 500, 500, 0)}
    later = {"OpIndex": count(40, 200, 200, 100), "k-index": count(2, 2, 2, 1), "BE-Tree": count(2, 500, 500, 0)}
    points = [{"x": x, "subscriptions": 10, "rows": own} for x, own in ((1, rows), (2, later))]
    result = Result("opindex-10b", EXPERIMENTS["opindex-10b"], {"scale": 1.0}, points)
    assert "OpIndex has more to do, 100 candidates per event against 60" in explain(
        result, 1, "OpIndex", "k-index", "match_us"
    )
    assert "less to do, 250 steps per event against 1,000, but a step takes it 40 ns instead of 2" in explain(
        result, 1, "OpIndex", "BE-Tree", "match_us"
    )
    assert "OpIndex has 10 bytes a subscription" in explain(result, 1, "OpIndex", "BE-Tree", "build_s")
    grown = explain_change(result, "OpIndex", -1, "match_us")
    assert "its steps change by x 2, and a step takes 80 ns instead of 40" in grown
    assert "with 5 of them what any event costs outweighs them" in explain_change(result, "k-index", -1, "match_us")


def test_how_auto_stands(tmp_path: Path) -> None:
    """Rivals are those of the same data; each point counts once."""

    def times(*found: float) -> dict[str, dict[str, float]]:
        labels = ("CNF", "auto, CNF", "DNF", "auto, DNF")
        return {label: {"match_us": time} for label, time in zip(labels, found, strict=True)}

    points = [
        {"x": 5, "rows": times(2.0, 1.0, 1.0, 1.05)},  # fastest, near
        {"x": 10, "rows": times(1.0, 3.0, 9.0, 8.0)},  # slower, fastest
    ]
    settings = {"scale": 1.0}
    (tmp_path / "opindex-13b.json").write_text(json.dumps({"settings": settings, "points": points}))
    found = standing.judge(tmp_path, ["opindex-13b"])
    assert (found.fastest, found.near, found.slower) == (2, 1, 1)
    assert found.worst == (standing.Point("opindex-13b, 10 clauses, cnf", 3.0, "CNF", 1.0),)
    assert "the fastest at 2, within 10 % of the fastest at 1, and slower at 1, at worst 3 times" in found.line
    assert "| opindex-13b, 10 clauses, cnf | 3 | CNF | 1 | 3.00 |" in standing.write(found)
