"""The sampler of workload shapes: its shapes are whole, and what it reports was found equal."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dibs

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_drawn_shapes_are_expressions_and_events(load):
    """Every shape gives expressions that are understood, the same ones whenever it is asked."""
    shapes = load("shapes")
    drawn = [replace(shapes.drawn(5, k), subscriptions=10, events=3) for k in range(60)]
    for shape in [*drawn, *(replace(s, subscriptions=3, events=2) for s in shapes.NAMED.values())]:
        maker = shapes.Maker(shape, 1)
        texts, events = maker.texts(), maker.events()
        assert [text for text in texts if dibs.validate(text)] == []
        assert texts == shapes.Maker(shape, 1).texts() and texts != shapes.Maker(shape, 2).texts()
        assert len(texts) == shape.subscriptions and len(events) == shape.events and all(events)
    assert {o for shape in drawn for o in shape.operators} >= set(shapes.OPERATORS)


def test_sampler_measures_and_refuses(load, tmp_path, monkeypatch):
    """A structure has its figures or the reason why it has none; `auto` is compared with the best."""
    shapes, sampler = load("shapes"), load("sampler")
    monkeypatch.setattr(sampler, "SETTLING", 0.2)
    small = replace(shapes.NAMED["three lists"], subscriptions=300, events=40, batch=15)
    result = sampler.sample(small, 3, ["auto", "counting", "scan"], sampler.Limits(8, 60))
    rows = result["structures"]
    assert result["matches"] == rows["counting"]["matches"] / rows["counting"]["events"]
    assert all(row["us"] > 0 and row["bytes"] >= 0 for row in rows.values())
    assert result["best"] in ("counting", "scan") and result["ratio"] == rows["auto"]["us"] / rows[result["best"]]["us"]
    json.dumps(result)
    assert (
        sampler._in_a_process(lambda: {"bytes": bytes(1 << 32)[0]}, sampler.Limits(0.5, 60))["refused"]
        == "more than 0.5 GB"
    )
    assert (
        sampler._in_a_process(lambda: sampler.time.sleep(9) or {}, sampler.Limits(1, 0.1))["refused"]
        == "more than 0.1 s"
    )
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        sampler._in_a_process(lambda: {"x": 1 / 0}, sampler.Limits(1, 60))


def test_sampler_refuses_to_compare_different_answers(load, monkeypatch):
    shapes, sampler = load("shapes"), load("sampler")
    outcome = {"us": 1.0, "bytes": 1, "build": 0.0, "events": 40, "plan": {}}
    answers = iter([outcome | {"matches": 7}, outcome | {"matches": 8}])
    monkeypatch.setattr(sampler, "_in_a_process", lambda *_: next(answers))
    small = replace(shapes.NAMED["three lists"], subscriptions=30, events=40)
    with pytest.raises(AssertionError, match="different matches"):
        sampler.sample(small, 3, ["auto", "counting"], sampler.Limits(1, 1))
