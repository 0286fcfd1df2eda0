"""auto: both of its structures, whichever the planner would choose, and the planner itself."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import dibs
from coded import conjunctions_of, events_of, expected, random_clauses, random_events, rows_of
from dibs.coding.batch import CodedEvents
from dibs.index import create, statistics
from dibs.index.auto.plan import plan_clauses
from dibs.index.auto.planner import Auto, Parts
from dibs.index.auto.shares import measure_shares
from dibs.index.base import do_pending
from dibs.language.table import ACCEPT, REJECT
from dibs.tuning import numbers, using


def pairs_of(index, events, threads=1):
    pairs = index.match(events, threads)
    found = list(zip(pairs.event.tolist(), pairs.row.tolist()))
    assert len(found) == len(set(found)), "a pair was reported twice"
    return set(found)


NO_OVERHEAD = {"values_cost": 0.0, "masks_cost": 0.0, "fill_cost": 0.0}
RECORDS = {"look_cost": 0.0, "mask_cost": 1e9}
BY_ATTRIBUTE = {"often": 2.0, "read_cost": 0.0}  # no value spares any reading
MASKS = {"look_cost": 1e9, "mask_cost": -1.0, **NO_OVERHEAD}
VECTORS = {"vector_rows": 1, "line_cost": -1e3, "look_cost": 1e6, "mask_cost": 1e6, **NO_OVERHEAD}
VECTORS["plan_bytes"] = 1e9  # so few rows have more in vectors than their texts allow
PLACES = {
    "records": {**BY_ATTRIBUTE, **RECORDS},
    "values": {"often": 0.0, **RECORDS},
    "single cells": {"often": 0.0, "copies_by_value": 1_000_000, **RECORDS},
    "masks": MASKS,
    "vectors": VECTORS,
    "coarse vectors": {"vector_bytes": 0.25, **VECTORS},
    "both": {"often": 0.5, "look_cost": 1.0, "mask_cost": 0.1, **NO_OVERHEAD},
}


@pytest.fixture(params=list(PLACES))
def place(request, monkeypatch):
    """Where clauses go, by what the planner thinks that they cost there."""
    for name, value in PLACES[request.param].items():
        monkeypatch.setattr(numbers[name], "value", value)
    return request.param


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("cells", [12, 5_000, 200_000])
def test_random_clauses(place, seed, several, cells):
    """Domains that are tabulated, searched, and coarse in records."""
    rng = np.random.default_rng(seed)
    attributes = int(rng.integers(1, 8))
    clauses = random_clauses(rng, 150, attributes, cells)
    events = random_events(rng, int(rng.integers(1, 80)), attributes, cells, several)
    index = create("auto", clauses)
    wanted = expected(clauses, events)
    assert pairs_of(index, events) == wanted
    assert pairs_of(index, events, threads=2) == wanted
    assert pairs_of(Auto.restore(clauses, index.arrays()), events) == wanted


def test_planner_uses_all_parts(place):
    rng = np.random.default_rng(1)
    plan = create("auto", random_clauses(rng, 300, 6, 20, programs=0.1)).plan()
    assert plan["records"] + plan["masks"] + plan["vectors"] == 300
    assert (plan["guards"] > 0) == (place not in ("records", "masks"))
    if place == "masks":
        assert plan["records"] == 0
    elif place.endswith("vectors"):
        assert plan["vectors"] > 150 and plan["groups"] < plan["vectors"]
    elif place == "both":
        assert 30 < plan["records"] < 270
    else:
        assert plan["records"] > 200


def test_copies_are_bounded(monkeypatch):
    """Wide predicates stand under large buckets, so that a clause has few guards; and an event looks at few of them."""
    clauses = random_clauses(np.random.default_rng(2), 500, 4, 3_000, programs=0.0)
    events = random_events(np.random.default_rng(3), 40, 4, 3_000)
    for copies in (1, 3, 16):
        with using({"often": 0.0, "copies_by_value": copies, **RECORDS}):
            index = create("auto", clauses)
        spans = np.where(clauses.hi < 0, -clauses.hi, 1)
        most = np.maximum.reduceat(np.append(spans, 0), clauses.offsets[:-1])[np.diff(clauses.offsets) > 0]
        assert index.plan()["guards"] <= np.maximum(copies, most).sum()
        assert pairs_of(index, events) == expected(clauses, events)


def test_long_lists_are_filed_under_each_of_their_values():
    """Not under large buckets, which scattered values cover whole: an event looks at the lists that have its value."""
    rng = np.random.default_rng(5)
    constants = np.arange(1, 100_000, 2)
    lists = [np.sort(rng.choice(constants, 200, replace=False)).tolist() for _ in range(300)]
    rows = [[(0, [(v, v) for v in values]), (1, [(1 + r % 50, 99)])] for r, values in enumerate(lists)]
    clauses = conjunctions_of(rows, 2)
    events = events_of([{0: int(cell), 1: 60} for cell in rng.choice(constants, 200)])
    with using({"vector_rows": 1_000}):
        index = create("auto", clauses)
    assert index.plan()["records"] == 300 and index.plan()["guards"] == 300 * 200
    assert pairs_of(index, events) == expected(clauses, events)
    assert index.match(events, 1).candidates < 2 * 200 * 300 * 200 / 50_000


def test_long_lists_of_spans(place):
    """IN lists too long for holes and too long for span by span."""
    m = dibs.Matcher()
    lists = {k: np.random.default_rng(k).choice(500, k, replace=False).tolist() for k in (2, 8, 9, 16, 17, 300)}
    for k, values in lists.items():
        m.add(k, f"a IN ({', '.join(map(str, values))}) AND b <> 3")
        m.add(f"not {k}", f"a NOT IN ({', '.join(map(str, values))})")
    for a, found in enumerate(m.match_batch([{"a": a, "b": 1} for a in range(500)])):
        wanted = [k for k, v in lists.items() if a in v] + sorted(f"not {k}" for k, v in lists.items() if a not in v)
        assert found == wanted


def test_small_rooms(place, monkeypatch):
    """Kernels that stop at every corner and go on give every pair once."""
    monkeypatch.setattr(numbers["first_room"], "value", 1)
    monkeypatch.setattr(numbers["largest_room"], "value", 16)
    rng = np.random.default_rng(3)
    for _ in range(6):
        clauses = random_clauses(rng, 80, 3, 9)
        events = random_events(rng, int(rng.choice([300, 600, 700])), 3, 9)
        assert pairs_of(create("auto", clauses), events) == expected(clauses, events)


@pytest.mark.parametrize("events", [1, 63, 64, 65, 192, 193, 511, 512, 513, 1100])
def test_blocks_of_every_size(place, events):
    rng = np.random.default_rng(events)
    clauses = random_clauses(rng, 60, 4, 12)
    batch = random_events(rng, events, 4, 12)
    index = create("auto", clauses)
    assert pairs_of(index, batch) == expected(clauses, batch)
    assert pairs_of(index, batch, threads=2) == expected(clauses, batch)


def test_cells_above_every_span(place):
    """A merged domain may have cells that no clause of the segment mentions any more."""
    rng = np.random.default_rng(9)
    clauses = random_clauses(rng, 100, 2, 10)
    events = random_events(rng, 50, 2, 10)
    high = CodedEvents(
        events.offsets, events.attribute, events.lo + 65_530, np.maximum(events.hi, events.lo) + 65_530, events.points
    )
    assert pairs_of(create("auto", clauses), high) == expected(clauses, high)


def test_plans_again_when_events_are_not_as_guessed(monkeypatch):
    """Every attribute is asked for by few but present in all events: filed as rare, measured as common."""
    monkeypatch.setattr(numbers["enough_events"], "value", 100)
    m = dibs.Matcher()
    m.add_many([(i, f"a{i % 3_000} <= {5 + i % 7} AND a{(i * 7 + 1) % 3_000} >= 0") for i in range(20_000)])
    batch = [{f"a{k}": (k + e) % 7 for k in range(3_000)} for e in range(40)]
    m.match({})
    index = m._layers.state.layers[0].segment.index
    assert index.plan()["masks"] == 0
    first = m.match_batch(batch).count
    for _ in range(4):
        assert m.match_batch(batch).count == first
    deadline = time.time() + 60
    while index.plan()["plans"] == 1 and time.time() < deadline:
        time.sleep(0.05)
    assert index.plan()["plans"] == 2
    assert index.plan()["records"] == 0
    assert m.match_batch(batch).count == first


def _candidates(m):
    return m.stats()["matching"]["candidates"]


def test_plans_follow_a_drift_and_its_return(monkeypatch):
    """Events of one half of the attributes, then of the other, then of the first again: exact all the way, and clauses
    are filed under attributes that events seldom have."""
    for name, value in (
        RECORDS
        | {"look_cost": 1.0, "values_cost": 0.0, "enough_events": 200, "look_every": 200, "remembered_events": 400}
    ).items():
        monkeypatch.setattr(numbers[name], "value", value)
    m = dibs.Matcher()
    m.add_many(
        [(i, f"a{i % 200} >= 0 AND a{200 + i % 200} >= 0 AND a{i % 400} <= {i % 5}.{i:04}") for i in range(4_000)]
    )
    oracle = dibs.Matcher(index="scan")
    oracle.add_many([(i, m.expression(i)) for i in range(4_000)])
    rng = np.random.default_rng(4)

    def events(first):
        others = rng.integers(0, 400, 3).tolist()
        return [{f"a{k}": int(rng.integers(5)) for k in [*range(first, first + 200), *others]} for _ in range(20)]

    m.match({})
    index = m._layers.state.layers[0].segment.index
    seen = []
    for first in (0, 200, 0):
        deadline, looked = time.time() + 60, np.inf
        while time.time() < deadline and looked > 400:
            batch = events(first)
            before = _candidates(m)
            assert m.match_batch(batch).count == oracle.match_batch(batch).count
            looked = (_candidates(m) - before) / len(batch)
        assert looked <= 400, f"never planned for events from a{first} on: {index.plan()}"
        seen.append(index.plan()["plans"])
    assert seen == sorted(set(seen)), "each turn took a new plan"


@pytest.mark.parametrize("copies", [1, 4, 16, 1_000_000])
def test_ranges_of_every_length(copies):
    """Buckets of several widths cover a range, and nothing beside it where no test follows."""
    ranges = [(x, y) for x in range(1, 80, 3) for y in range(x, 80)]
    two = [[(0, [(x, x + 17)]), (1, [(y, y)])] for x in range(1, 40) for y in range(1, 4)]
    several = [[(0, [(x, x + 15), (x + 17, x + 40)])] for x in range(1, 35)]
    clauses = conjunctions_of([*([(0, [span])] for span in ranges), *two, *several], 2)
    events = events_of([{0: cell, 1: 1 + cell % 4} for cell in range(1, 82)])
    with using({"copies_by_value": copies, "often": 0.0, **RECORDS}):
        index = create("auto", clauses)
        assert index.plan()["records"] == len(clauses)
        assert pairs_of(index, events) == expected(clauses, events)


@pytest.mark.parametrize(("size", "kind"), [(512, "masks"), (16, "records")])
def test_plans_follow_the_size_of_batches(size, kind):
    """A mask costs by the block of events, however few it holds."""
    rng = np.random.default_rng(3)
    clauses, events = random_clauses(rng, 2_000, 6, 200), random_events(rng, 512, 6, 200, several=False)
    with using({"enough_events": 512, "look_cost": 10.0, "mask_cost": 0.02, **NO_OVERHEAD}):
        index = create("auto", clauses)
        found = set()
        for first in range(0, 512, size):
            batch = events.take(np.arange(first, first + size), True)
            found |= {(first + e, r) for e, r in pairs_of(index, batch)}
        assert found == expected(clauses, events)
        do_pending(index)
        plan = index.plan()
        assert plan[kind] == max(plan["records"], plan["masks"]), plan
        assert set(pairs_of(index, events)) == found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("several", [False, True])
def test_events_one_by_one(monkeypatch, seed, several):
    """Once single events keep coming, what is in masks is filed for them too, and the answers stay the same."""
    for name, value in (MASKS | {"one_by_one_clauses": 1, "one_by_one_calls": 2}).items():
        monkeypatch.setattr(numbers[name], "value", value)
    rng = np.random.default_rng(seed)
    clauses = random_clauses(rng, 150, 5, 12)
    events = random_events(rng, 60, 5, 12, several)
    index, wanted, found = create("auto", clauses), expected(clauses, events), set()
    for e in range(60):
        one = events.take(np.array([e]), bool(events.single_valued()[e]))
        found |= {(e, r) for _, r in pairs_of(index, one)}
        if e == 20:
            assert do_pending(index) and not do_pending(index)
    assert found == wanted
    assert 0 < index.plan()["one by one"] <= clauses.conjunctions


def test_what_was_filed_for_an_old_plan_does_not_serve_a_new_one():
    """A thread may come between the moment at which a new plan is there and that at which the old one is forgotten."""
    rng = np.random.default_rng(5)
    clauses, events = random_clauses(rng, 150, 5, 12), random_events(rng, 30, 5, 12, several=False)
    singles = [events.take(np.array([e]), True) for e in range(len(events))]
    few = MASKS | {"one_by_one_clauses": 1, "one_by_one_calls": 0}
    with using(few):
        index = create("auto", clauses)
        pairs_of(index, singles[0])
        assert do_pending(index) and index.plan()["one by one"]
    with using(few | PLACES["both"]):
        plan = plan_clauses(clauses, index._plan.shares, statistics.highest_cells(clauses))
        index._parts = Parts.of(plan)
        assert index._parts[0].size and index._parts[1].size and index.plan()["one by one"]
        assert {(e, r) for e, one in enumerate(singles) for _, r in pairs_of(index, one)} == expected(clauses, events)


def test_events_are_observed_from_many_threads(monkeypatch):
    """What is remembered of the latest events is counted right, whoever matches."""
    monkeypatch.setattr(numbers["latest_events"], "value", 50)
    rng = np.random.default_rng(2)
    presence, events = statistics.Presence(4), random_events(rng, 7, 4, 9)
    problems = []

    def observe():
        try:
            for _ in range(2_000):
                presence.observe(events)
                presence.latest()
        except Exception as e:
            problems.append(e)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems
    assert presence._latest_events == sum(map(len, presence._latest)) == 56


def test_new_segments_are_planned_by_what_the_largest_has_seen():
    """In a few subscriptions every attribute looks common; the large segment knows which one is."""
    m = dibs.Matcher()
    m.add_many((i, f"a{i % 3_000} = 1 AND a{(i * 7 + 1) % 3_000} <= 5 AND often >= {i % 9}") for i in range(30_000))
    for e in range(3):
        m.match_batch([{f"a{(e * 400 + k) % 3_000}": 1, "often": 5} for k in range(400)])
    m.add_many((30_000 + i, f"a{i} = 1 AND a{i + 1} = 1 AND often = 3") for i in range(0, 600, 2))
    expected = m.match({"a4": 1, "a5": 1, "often": 3})
    large, small = (x.segment for x in m._layers.state.layers)
    assert (len(large), len(small)) == (30_000, 300) and 30_004 in expected
    assert small.index.plan()["masks"] == 0 and "larger part" in small.index.plan()["grounds"]
    m.compact()
    (whole,) = (x.segment for x in m._layers.state.layers)
    assert "larger part" in whole.index.plan()["grounds"] and m.match({"a4": 1, "a5": 1, "often": 3}) == expected


def mixed_rules(kind):
    """Rules over network events (attributes 0 to 2) and as many over process events (3 to 5), each about one value in a
    thousand of each attribute: conjunctions, or three tests with OR, or an AND with such an OR."""
    rng = np.random.default_rng(6)
    cells = (1 + 2 * rng.integers(0, 1_000, (3_000, 3))).tolist()
    tests = [[(3 * (r % 2) + k, [(c, c)]) for k, c in enumerate(own)] for r, own in enumerate(cells)]
    if kind == "conjunctions":
        return conjunctions_of([own[:1] + [(a, [(1, c[0][0])]) for a, c in own[1:]] for own in tests], 6)
    if kind == "or":
        jumps = [(ACCEPT, 1), (ACCEPT, 2), (ACCEPT, REJECT)]
    else:  # the first, and one of the others
        jumps = [(1, REJECT), (ACCEPT, 2), (ACCEPT, REJECT)]
    return rows_of([], 6, [(own, jumps) for own in tests])


class MixedEvents:
    """Batches of events that have the attributes from a first one on, matched by an index over such rules."""

    def __init__(self, kind):
        clauses = mixed_rules(kind)
        self._scan, self.index = create("scan", clauses), create("auto", clauses)
        self._rng = np.random.default_rng(7)

    def looks(self, first):
        """How many rules an event of the next batch looks at."""
        cells = (1 + 2 * self._rng.integers(0, 1_000, (500, 3))).tolist()
        events = events_of([{first + k: c for k, c in enumerate(own)} for own in cells])
        found = self.index.match(events, 1)
        assert set(zip(found.event.tolist(), found.row.tolist())) == pairs_of(self._scan, events)
        do_pending(self.index)
        return found.candidates / len(events)

    def plan_for_network_events(self):
        for _ in range(12):
            self.looks(0)
        self.index._plan_again(index_shares(self.index))
        assert self.looks(0) < 50


@pytest.mark.parametrize("kind", ["conjunctions", "or", "and with or"])
def test_plans_follow_the_mix_of_events(kind):
    """What is filed for network events is filed anew when process events come, within some thousand of them: an event
    then looks at what has its values, not at all rules over its attributes."""
    with using({"vector_rows": 10**9, "read_cost": 0.0}):  # so that what seems rare is filed under the attribute
        mixed = MixedEvents(kind)
        mixed.plan_for_network_events()
        changed = mixed.looks(3)
        after = [mixed.looks(3) for _ in range(14)]
        assert changed > 1_000 and after[-1] < 50 and mixed.index.plan()["plans"] >= 3


@pytest.mark.parametrize("kind", ["conjunctions", "or", "and with or"])
def test_many_rules_over_a_rare_attribute_are_filed_by_values(kind):
    """So the first process events already look at what has their values, by the plan for network events."""
    with using({"vector_rows": 10**9}):
        mixed = MixedEvents(kind)
        mixed.plan_for_network_events()
        assert mixed.looks(3) < 50


def index_shares(index):
    """What the index has measured."""
    return measure_shares(*index._presence.latest(), index._presence.share(), statistics.highest_cells(index._clauses))
