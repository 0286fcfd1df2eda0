"""dibs bench: every experiment runs, what it writes, going on after a stop, and comparing."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

from dibs.cli.bench import judge
from dibs.cli.commands import app
from dibs.index import INDEXES, options_of
from dibs.index.options import check_options
from dibs.workloads import figures
from dibs.workloads.figures import EXPERIMENTS, measure_point


def dibs(*args):
    return CliRunner().invoke(app, ["bench", *map(str, args)])


def test_the_list_names_all():
    listed = dibs("list")
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_of_structures_that_there_are_and_has_auto(name):
    its = EXPERIMENTS[name]
    for value in its.values:
        shape, subscriptions = its.workload(value)
        assert shape.largest <= shape.event_size and subscriptions >= 300_000
        series = its.series if isinstance(its.series, tuple) else its.series(value)
        assert series[-1] == ("auto", "auto", {})
        for _, index, options in series:
            assert index in INDEXES and check_options(index, options_of(index), options) == options


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_point_of_every_experiment(name, monkeypatch):
    monkeypatch.setattr(figures, "EVENTS", 10)
    monkeypatch.setattr(figures, "REPEATS", 1)
    point = measure_point(name, EXPERIMENTS[name].values[-1], 0.00005)
    assert all({"match_us", "build_s", "bytes"} <= row.keys() for row in point["rows"].values())
    assert len({row["matches"] for row in point["rows"].values()}) == 1
    again = measure_point(name, EXPERIMENTS[name].values[-1], 0.00005)
    assert [row["matches"] for row in again["rows"].values()] == [row["matches"] for row in point["rows"].values()]


def test_a_figure_is_written_goes_on_and_is_compared(tmp_path, monkeypatch):
    args = "opindex-7", "--scale", 0.00005, "--out", tmp_path
    measured = []
    monkeypatch.setattr(figures, "EVENTS", 10)
    monkeypatch.setattr(figures, "measure_point", lambda *own: measured.append(own[1]) or measure_point(*own))
    assert dibs("figure", *args).exit_code == 0
    values = list(EXPERIMENTS["opindex-7"].values)
    assert measured == values
    assert {path.name for path in tmp_path.iterdir()} >= {"opindex-7.json", "opindex-7.csv"}
    rows = list(csv.DictReader((tmp_path / "opindex-7.csv").open()))
    assert [row["structure"] for row in rows] == ["BE-Tree", "auto"] * len(values)

    path = tmp_path / "opindex-7.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"points": result["points"][:4]}))
    measured.clear()
    shown = dibs("figure", *args)
    assert measured == values[4:]
    assert "OpIndex, figure 7" in shown.stdout and "BE-Tree" in shown.stdout

    result = json.loads(path.read_text())
    slower = json.loads(path.read_text())
    for point in slower["points"]:
        for row in point["rows"].values():
            row["all_us"] = [9 * t + max(row["all_us"]) for t in row["all_us"]]
    other = tmp_path / "slower.json"
    other.write_text(json.dumps(slower))
    assert dibs("compare", path, path).exit_code == 0
    worse, better = dibs("compare", path, other), dibs("compare", other, path)
    assert (worse.exit_code, better.exit_code) == (1, 0)
    assert worse.stdout.count(": worse") == better.stdout.count(": better") == 2 * len(values)
    other.write_text(json.dumps(result | {"settings": [1, 1]}))
    refused = dibs("compare", path, other)
    assert refused.exit_code == 2 and "measure the same twice" in refused.output


def test_an_unknown_figure():
    refused = dibs("figure", "nonesuch")
    assert refused.exit_code == 3 and "no experiment is called 'nonesuch'; there are: pstree-5a" in refused.output


def test_verdicts():
    assert judge([10.0, 11.0], [10.5, 30.0]) == "noise"
    assert judge([10.0, 14.0], [13.0, 15.0]) == "noise"
    assert judge([10.0, 11.0], [12.0, 13.0]) == "worse"
    assert judge([12.0, 13.0], [10.0, 11.0]) == "better"
