"""auto: plans are tried, and what they took corrects what is estimated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dibs
from coded import conjunctions_of, events_of, expected, random_clauses, random_events
from dibs.index import create
from dibs.index.auto import planner, trials
from dibs.index.auto.plan import AS_ESTIMATED, FIXED_BYTES, PartCosts, Plan
from dibs.index.base import do_pending
from dibs.tuning import using

TRIED = {"tried_clauses": 1_000_000, "enough_events": 64, "look_every": 64}


def pairs_of(index: Any, events: Any) -> set[tuple[int, int]]:
    pairs = index.match(events, 1)
    return set(zip(pairs.event.tolist(), pairs.row.tolist()))


def settled(index: Any, events: Any) -> None:
    for _ in range(6):
        index.match(events, 1)
        do_pending(index)


@pytest.mark.parametrize("dear", ["records", "masks", "vectors"])
@pytest.mark.parametrize("most", [1_000_000, 10])
def test_the_fastest_is_taken(monkeypatch: pytest.MonkeyPatch, dear: str, most: int) -> None:
    """Whatever the estimates say: a part that takes a thousand times as long is left, of few clauses and of many."""
    rng = np.random.default_rng(3)
    rows = [[(int(a), [(x := int(rng.integers(1, 30)), x + 8)]) for a in rng.choice(5, 2, False)] for _ in range(400)]
    clauses, events = conjunctions_of(rows, 5), random_events(rng, 128, 5, 40, several=False)
    wanted = expected(clauses, events)

    def times(plan: Plan, batches: Any) -> PartCosts:
        assert sum(map(len, batches)) >= 64
        sizes = PartCosts(plan.records.size, plan.masks.size, plan.vectors.size)
        return PartCosts(*(1e6 * size if name == dear else size for name, size in zip(sizes._fields, sizes)))

    monkeypatch.setattr(planner, "time_parts", times)
    with using(TRIED | {"tried_clauses": most, "vector_rows": 1}):
        index = create("auto", clauses)
        for _ in range(4):
            settled(index, events)
            assert pairs_of(index, events) == wanted
        plan = index.plan()
        if most > 10 or dear != "masks":  # of many clauses, what was not tried is believed to cost what is estimated
            assert plan[dear] == 0, plan
        assert plan["measured ns an event"] != "not yet"
        told = plan["plans"]
        settled(index, events)
        assert index.plan()["plans"] == told, "the same events, and another plan"


def test_what_was_measured_corrects_estimates() -> None:
    rng = np.random.default_rng(3)
    clauses, events = random_clauses(rng, 100, 4, 20), random_events(rng, 64, 4, 20, several=False)
    with using(TRIED):
        index = create("auto", clauses)
        pairs_of(index, events)
        plan = index._plan
        assert plan is not None and plan.factors == AS_ESTIMATED
        estimated = PartCosts(100.0, 10.0, 0.0)
        seen = trials.remember(plan._replace(estimated=estimated), PartCosts(140.0, 30.0, 5.0))
        assert seen.factors == PartCosts(1.0, 3.0, 1.0), (
            "what is right within OFF stays as it is, and what is not there"
        )
        assert estimated.corrected(seen.factors) == 130.0
        lazy = trials.remember(plan._replace(estimated=estimated), PartCosts(1e9, 1e-9, 0.0))
        assert lazy.factors == PartCosts(trials.MOST_OFF, 1 / trials.MOST_OFF, 1.0)


@pytest.mark.parametrize("several", [False, True])
def test_timed_for_real(several: bool) -> None:
    """Which one is the fastest depends on the machine; the answers do not."""
    rng = np.random.default_rng(5)
    clauses, events = random_clauses(rng, 300, 6, 50), random_events(rng, 200, 6, 50, several)
    with using(TRIED | {"vector_rows": 4}):
        index = create("auto", clauses)
        wanted = expected(clauses, events)
        for _ in range(4):
            settled(index, events)
            assert pairs_of(index, events) == wanted
        assert "not yet" not in index.plan()["measured ns an event"]


def test_the_plan_says_what_it_costs() -> None:
    with using(TRIED), dibs.Matcher() as m:
        m.add_many([(i, f"a{i % 7} = {i % 50} AND b < {i}") for i in range(2_000)])
        for _ in range(4):
            m.match_batch([{f"a{i % 7}": i % 50, "b": i} for i in range(100)])
        told = m.explain_plan()
        for words in (
            "way",
            "shares of clauses",
            "shares of events",
            "estimated ns an event",
            "measured ns an event",
            "bytes by part",
            "bytes at most",
        ):
            assert f"{words}: " in told


def test_a_plan_takes_no_more_bytes_than_it_may() -> None:
    """Ranges whose copies by value would be the fastest: they are masks where that is too much, tried or not."""
    rng = np.random.default_rng(11)
    rows = [[(a, [(x, x + 20)]) for a, x in enumerate(rng.integers(1, 2_000, 2).tolist())] for _ in range(600)]
    clauses = conjunctions_of(rows, 2)
    events = events_of([dict(enumerate(rng.integers(1, 2_000, 2).tolist())) for _ in range(300)])
    records = {"mask_cost": 1e6, "vector_rows": 10_000, "often": 0.0}
    sizes = {}
    for tried, most in (({}, 1e9), ({}, 20.0), (TRIED, 20.0)):
        with using({"tried_clauses": 0, **tried, **records, "plan_bytes": most}):
            index = create("auto", clauses)
            settled(index, events)
            assert pairs_of(index, events) == expected(clauses, events)
            sizes[most] = index.nbytes
            assert index.plan()["records" if most == 1e9 else "masks"] == 600
    assert sizes[20.0] <= 20.0 * 1_800 + FIXED_BYTES < sizes[1e9]


def test_events_of_few_attributes_look_nowhere() -> None:
    """k-index's idea: a clause of three attributes is nothing to an event of two, whatever its values."""
    rows = [[(a, [(1, 5)]) for a in (0, 1 + i % 3, 4 + i % 3)] for i in range(60)]
    clauses = conjunctions_of(rows, 7)
    few, many = events_of([{0: 3, 4: 3}, {0: 2}, {}]), events_of([{0: 3, 1: 3, 4: 3}])
    for places in ({"often": 0.0}, {"often": 2.0, "read_cost": 0.0}):
        with using(places | {"look_cost": 0.0, "mask_cost": 1e9, "vector_rows": 1_000}):
            index = create("auto", clauses)
            assert index.plan()["records"] == 60
            assert index.match(few, 1).candidates == 0
            found = index.match(many, 1)
            assert found.candidates > 0 and pairs_of(index, many) == expected(clauses, many)


def test_few_looks_without_laying_out() -> None:
    """Events of many values of which hardly one is asked for: where nothing holds, and where something does."""
    rng = np.random.default_rng(1)
    rows = [[(0, [(i, i)]), (int(rng.integers(1, 60)), [(5, 9)]), (60 + i % 30, [(3, 3)])] for i in range(1, 40)]
    rows += [[(100 + i, [(1, 4)]), (int(rng.integers(1, 60)), [(2, 6)])] for i in range(30)]
    clauses = conjunctions_of(rows, 140)
    events = events_of([
        {int(a): int(rng.integers(1, 12)) for a in [0, *sorted(rng.choice(np.arange(1, 140), 80, replace=False))]}
        for _ in range(200)
    ])  # fmt: skip
    for places in ({"often": 0.0}, {"often": 0.9, "read_cost": 0.0}):
        with using(places | {"look_cost": 0.0, "mask_cost": 1e9, "vector_rows": 1_000}):
            index = create("auto", clauses)
            assert pairs_of(index, events) == expected(clauses, events) != set()
