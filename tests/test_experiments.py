"""Every experiment of the papers runs at a tiny scale; every claim is about experiments that there are."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dibs.index import INDEXES, options_of
from dibs.index.options import check_options
from dibs.papers.experiments import EXPERIMENTS, measure, standing, verdicts
from dibs.papers.experiments.claims import (
    FAILS,
    HOLDS,
    IN_PART,
    ROWS,
    STEPS,
    TOO_SMALL,
    Claim,
    Outcome,
    best,
    changes_more,
    falls,
    least_at,
    less,
    rank,
    reached,
    rises,
    steady,
)
from dibs.papers.experiments.experiment import MEASURES, Size
from dibs.papers.experiments.measure import BeyondLimit, DifferentMatches, Limits, measure_point, run_within
from dibs.papers.experiments.pictures import draw
from dibs.papers.experiments.results import Result, read, read_seeds, run
from dibs.papers.experiments.whys import REMARKS, explain, explain_change

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
    assert point["of"] == its.values[-1] and point["x"] == (TINY.of(point["of"]) if its.is_size else point["of"])
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
        for row in rows.values():
            row["nodes"] += STEPS
        points.append({"x": value, "of": value, "seed": 1, "subscriptions": ROWS, "events": 10, "rows": rows})
    return Result(name, EXPERIMENTS[name], {"scale": 0.1, "events": 10}, points)


def test_every_claim_can_be_judged_and_the_page_written() -> None:
    """On results that are made up: every label that a check names exists in its experiment."""
    made: dict[str, Result] = {}

    def find(name: str) -> list[Result]:
        if name not in made:
            its = EXPERIMENTS[name]
            labels = dict.fromkeys(one.label for value in its.values for one in its.series_at(value))
            lines = {label: [float(k + 1) * (i + 1) for i in range(len(its.values))] for k, label in enumerate(labels)}
            made[name] = make_result(name, lines, list(its.values))
        return [made[name]]

    found = [verdicts.judge(claim, find) for claim in verdicts.CLAIMS]
    page = verdicts.write(found, {"opindex-1": "1,000 subscriptions (5 % of the paper's)"})
    assert "opindex-1: 1,000 subscriptions (5 % of the paper's)." in page
    assert not any(outcome.passed is None for verdict in found for outcome in verdict.outcomes)
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
        return verdicts.judge(Claim("c", "p", "s", "t.", checks), lambda name: [result]).word

    yes = [
        best("", "PSTHash"),
        less("", "PSTHash", "OpIndex"),
        less("", "PSTHash", "OpIndex", by=0.9),
        less("", "PSTHash", "OpIndex", times=10),
        best("", "PSTHash", by=0.875),
        least_at("", "PSTHash", 2),
        rises("", "OpIndex", "SCAN"),
        rises("", "OpIndex", times=2.5),
        falls("", "PSTHash"),
        steady("", "auto"),
        changes_more("", ["SCAN"], ["OpIndex"]),
        rank("", ["PSTHash", "OpIndex", "SCAN"]),
    ]
    no = [
        best("", "SCAN"),
        best("", "OpIndex", where=lambda v: v == 2),
        less("", "PSTHash", "OpIndex", at=0, by=0.9),
        less("", "PSTHash", "OpIndex", times=1_000),
        best("", "PSTHash", by=0.99),
        least_at("", "PSTHash", 1),
        rises("", "OpIndex", times=10),
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


def test_the_margin_is_of_logarithms() -> None:
    """A claim of 1,000 times does not pass at 5, nor at 100."""
    assert not reached(5, 1_000) and not reached(100, 1_000) and reached(130, 1_000)
    assert reached(1.65, 2) and not reached(1.5, 2) and not reached(0.5, 2)


def test_what_is_too_small_is_not_judged() -> None:
    lines = {"OpIndex": [4.0, 8.0], "PSTHash": [2.0, 1.0], "SCAN": [3.0, 9.0]}

    def judge(result: Result, *checks: Any) -> verdicts.Verdict:
        return verdicts.judge(Claim("c", "p", "s", "t.", checks), lambda name: [result])

    small, few, refused = (make_result("pstree-6a", lines, [1, 2]) for _ in range(3))
    for point in small.points:
        point["subscriptions"] = ROWS - 1
    few.points[1]["rows"]["PSTHash"]["nodes"] = 0.0
    refused.points[1]["rows"]["PSTHash"] = {"refused": "more than 12 GB"}
    checks = [
        less("", "PSTHash", "OpIndex"),
        best("", "PSTHash"),
        rank("", ["PSTHash", "OpIndex"]),
        falls("", "PSTHash"),
        changes_more("", ["PSTHash"], ["OpIndex"]),
        least_at("", "PSTHash", 2),
    ]
    assert [judge(small, check).word for check in checks] == [TOO_SMALL] * len(checks)
    assert "999 subscriptions are fewer than 1,000" in judge(small, checks[0]).outcomes[0].figure
    others = checks[:1] + checks[2:]  # PSTHash is the fastest at the value that can be judged
    assert [judge(few, check).word for check in others] == [TOO_SMALL] * len(others)
    assert "PSTHash takes 2 steps per event, fewer than 50" in judge(few, checks[0]).outcomes[0].figure
    assert judge(few, less("", "PSTHash", "OpIndex", "bytes")).word == HOLDS  # nothing that an event costs
    assert "PSTHash was refused (more than 12 GB)" in judge(refused, checks[0]).outcomes[0].figure
    assert judge(refused, less("", "OpIndex", "PSTHash", "bytes")).word == HOLDS  # it did not fit
    assert judge(few, checks[0], less("", "OpIndex", "SCAN")).word == IN_PART
    assert judge(few, checks[0], less("", "SCAN", "OpIndex")).word == FAILS
    whole = Result(small.name, small.experiment, small.settings | {"scale": 1.0}, small.points)
    assert judge(whole, checks[0]).word == HOLDS  # the paper has no more


def test_most_seeds_decide() -> None:
    def judge(*times: float) -> Outcome:
        results = [make_result("pstree-6a", {"OpIndex": [4.0], "PSTHash": [time]}, [1]) for time in times]
        claim = Claim("c", "p", "s", "t.", (less("", "PSTHash", "OpIndex"),))
        return verdicts.judge(claim, lambda name: results).outcomes[0]

    assert judge(1.0, 1.0, 9.0).passed and "2 of 3 seeds" in judge(1.0, 1.0, 9.0).figure
    assert judge(1.0, 9.0, 9.0).passed is False and judge(1.0, 9.0).passed is False


def test_points_are_in_the_order_of_the_values(tmp_path: Path) -> None:
    result = run("tatbul-8", tmp_path, TINY)
    assert result.values == list(EXPERIMENTS["tatbul-8"].values)
    assert run("tatbul-8", tmp_path, TINY).points == result.points


def test_every_structure_at_a_point_is_saved_and_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    original = measure._measure

    def stop_after(most: int) -> None:
        def one(series: Any, *own: Any) -> Any:
            if len(done) == most:
                raise KeyboardInterrupt
            done.append(series.label)
            return original(series, *own)

        monkeypatch.setattr(measure, "_measure", one)

    stop_after(4)
    with pytest.raises(KeyboardInterrupt):
        run("opindex-7", tmp_path, TINY)
    (first, second) = json.loads((tmp_path / "opindex-7.json").read_text())["points"]
    both = ["BE-Tree", "BE-Tree, ours", "auto"]
    assert list(first["rows"]) == both and list(second["rows"]) == both[:1]
    stop_after(1000)
    result = run("opindex-7", tmp_path, TINY)
    assert done == both * len(result.values)


def test_the_numbers_are_the_true_ones(tmp_path: Path) -> None:
    """On axes, lines and labels: nothing is called by the paper's size that is not of it."""
    size = Size(0.001, events=10, repeats=1)
    result = run("pstree-6a", tmp_path, size)
    assert result.values == [300, 1_000, 3_000, 10_000]
    assert [point["of"] for point in result.points] == [300_000, 1_000_000, 3_000_000, 10_000_000]
    assert [point["subscriptions"] for point in result.points] == result.values
    assert result.sizes == "300 to 10,000 subscriptions, 10 events"
    point = result.points[0]
    assert point["attributes"] == 100 and 4 < point["predicates"] < 6 and 25 < point["values"] <= 30
    assert point["code_s"] > 0 and point["code_bytes"] > 0 and " cores" in point["made"]
    outcome = less("", "SCAN", "k-index").judge(result)
    assert "10,000 subscriptions" in outcome.figure and "10,000,000" not in outcome.figure
    pytest.importorskip("matplotlib")
    (picture,) = draw([result], tmp_path / "drawn", ["svg"])
    shown = picture.read_text()
    assert "300 to 10,000 subscriptions, 10 events" in shown and "0.001 of the paper" in shown
    assert ">10M<" not in shown and "in the paper" not in shown


def test_seeds_are_kept_apart_and_shown_by_their_median(tmp_path: Path) -> None:
    run("tatbul-8", tmp_path, TINY)
    result = run("tatbul-8", tmp_path, TINY, seeds=3)
    by_seed = read_seeds("tatbul-8", tmp_path)
    assert [one.points[0]["seed"] for one in by_seed] == [1, 2, 3]
    shown = read("tatbul-8", tmp_path)
    assert shown.points == result.points and shown.values == result.values and "3 seeds" in shown.sizes
    found = sorted(one.points[0]["rows"]["Cluster"]["predicates"] for one in by_seed)
    assert shown.points[0]["rows"]["Cluster"]["predicates"] == found[1]


def test_limits_end_what_takes_too_much() -> None:
    def take_memory() -> int:
        return int(np.ones(1 << 29).sum())

    def take_time() -> None:
        while True:
            pass

    def fail() -> None:
        raise DifferentMatches("they differ")

    assert run_within(Limits(), lambda: 7) == 7
    with pytest.raises(BeyondLimit, match="more than 3 GB"):
        run_within(Limits(gigabytes=3), take_memory)
    with pytest.raises(BeyondLimit, match=r"more than 0\.01 minutes"):
        run_within(Limits(minutes=0.01), take_time)
    with pytest.raises(DifferentMatches, match="they differ"):
        run_within(Limits(), fail)


def test_the_clock_of_what_is_limited_is_fine() -> None:
    """With a limit of the kernel's own it moved by ticks of 4 ms, and points of a few ms took nothing."""

    def count_readings() -> int:
        begin, found = time.process_time(), set()
        while time.process_time() < begin + 0.02:
            found.add(time.process_time())
        return len(found)

    assert run_within(Limits(), count_readings) > 100


def test_a_process_that_waits_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "IDLE", 1)
    with pytest.raises(BeyondLimit, match="stuck"):
        run_within(Limits(), threading.Event().wait)


def test_a_structure_that_takes_too_much_has_the_reason_and_the_others_their_figures(tmp_path: Path) -> None:
    limits = Limits(gigabytes=3, from_subscriptions=0)
    result = run("tatbul-7", tmp_path, Size(1.0, events=10, repeats=1), limits=limits)
    assert all("match_us" in row for point in result.points for row in point["rows"].values())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measure, "_measure", lambda *own: np.ones(1 << 29))
        refused = run("tatbul-7", tmp_path / "other", Size(1.0, events=10, repeats=1), limits=limits)
    assert refused.points[0]["rows"]["Cluster"] == {"refused": "more than 3 GB"}


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
        {"x": 5, "of": 5, "seed": 1, "rows": times(2.0, 1.0, 1.0, 1.05)},  # fastest, near
        {"x": 10, "of": 10, "seed": 1, "rows": times(1.0, 3.0, 9.0, 8.0)},  # slower, fastest
    ]
    settings = {"scale": 1.0}
    (tmp_path / "opindex-13b.json").write_text(json.dumps({"settings": settings, "points": points}))
    found = standing.judge(tmp_path, ["opindex-13b"])
    assert (found.fastest, found.near, found.slower) == (2, 1, 1)
    assert found.worst == (standing.Point("opindex-13b, 10 clauses, cnf", 3.0, "CNF", 1.0),)
    assert "the fastest at 2, within 10 % of the fastest at 1, and slower at 1, at worst 3 times" in found.line
    assert "| opindex-13b, 10 clauses, cnf | 3 | CNF | 1 | 3.00 |" in standing.write(found)
