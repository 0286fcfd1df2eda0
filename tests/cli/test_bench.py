"""dibs bench: what it writes, going on after a stop, comparing, and verdicts."""

from __future__ import annotations

import csv
import json

from typer.testing import CliRunner

from dibs.cli.commands import app
from dibs.papers.commands import judge
from dibs.papers.experiments import EXPERIMENTS, results
from dibs.papers.experiments.measure import measure_point

VALUES = list(EXPERIMENTS["opindex-7"].values)


def dibs(*args):
    return CliRunner().invoke(app, ["bench", *map(str, args)])


def test_the_list_names_all():
    listed = dibs("list")
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(EXPERIMENTS)


def test_a_figure_is_written_goes_on_and_is_compared(tmp_path, monkeypatch):
    args = "opindex-7", "--scale", 0.00005, "--out", tmp_path
    measured = []
    monkeypatch.setattr(results, "measure_point", lambda *own: measured.append(own[1]) or measure_point(*own))
    done = dibs("figure", *args)
    assert done.exit_code == 0, done.output
    assert measured == VALUES
    endings = {path.suffix for path in tmp_path.iterdir()}
    assert endings == {".json", ".csv", ".svg", ".png"}
    rows = list(csv.DictReader((tmp_path / "opindex-7.csv").open()))
    assert [row["structure"] for row in rows] == ["BE-Tree", "BE-Tree, ours", "auto"] * len(VALUES)

    path = tmp_path / "opindex-7.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"points": result["points"][:2] + result["points"][4:]}))
    measured.clear()
    shown = dibs("figure", *args)
    assert measured == VALUES[2:4]
    assert [point["x"] for point in json.loads(path.read_text())["points"]] == VALUES
    assert "OpIndex, figure 7" in shown.stdout and "BE-Tree" in shown.stdout

    result, slower = (json.loads(path.read_text()) for _ in range(2))
    for point in slower["points"]:
        for row in point["rows"].values():
            row["all_us"] = [9 * t + max(row["all_us"]) for t in row["all_us"]]
    other = tmp_path / "slower.json"
    other.write_text(json.dumps(slower))
    assert dibs("compare", path, path).exit_code == 0
    worse, better = dibs("compare", path, other), dibs("compare", other, path)
    assert (worse.exit_code, better.exit_code) == (1, 0)
    assert worse.stdout.count(": worse") == better.stdout.count(": better") == 3 * len(VALUES)
    other.write_text(json.dumps(result | {"settings": {"scale": 1}}))
    refused = dibs("compare", path, other)
    assert refused.exit_code == 2 and "measure the same twice" in refused.output


def test_figures_that_show_the_same_points_share_them(tmp_path, monkeypatch):
    shown = EXPERIMENTS["opindex-8b"]
    assert shown.points_of == "opindex-10e"
    labels = [one.label for one in shown.series_at(50)]
    (tmp_path / "opindex-10e.json").write_text(
        json.dumps(
            {
                "name": "opindex-10e",
                "settings": {"scale": 0.001, "events": 200, "repeats": 5, "forms": results.FORMS},
                "points": [
                    {"x": v, "of": v, "seed": 1, "subscriptions": 1, "rows": {one: {"bytes": 7} for one in labels}}
                    for v in shown.values
                ],
            }
        )
    )
    monkeypatch.setattr(results, "measure_point", lambda *own: 1 / 0)
    assert dibs("figure", "opindex-8b", "--scale", 0.001, "--out", tmp_path).exit_code == 0


def test_an_unknown_figure():
    refused = dibs("figure", "nonesuch")
    assert refused.exit_code == 3 and "no experiment is called 'nonesuch'; there are: opindex-1" in refused.output


def test_verdicts_need_results(tmp_path):
    refused = dibs("verdicts", "--results", tmp_path)
    assert refused.exit_code == 3 and "measure it first (dibs bench figure" in refused.output


def test_how_two_results_are_judged():
    assert judge([10.0, 11.0], [10.5, 30.0]) == "noise"
    assert judge([10.0, 14.0], [13.0, 15.0]) == "noise"
    assert judge([10.0, 11.0], [12.0, 13.0]) == "worse"
    assert judge([12.0, 13.0], [10.0, 11.0]) == "better"
