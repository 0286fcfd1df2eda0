"""The matching tree: its shape, what it shares, and how much of it an event visits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coded import conjunctions_of, events_of, expected, pairs_of, random_clauses
from dibs.coding.clauses import Clauses
from dibs.index.conjunctions import select
from dibs.papers.structures.gryphon import Gryphon
from dibs.tuning import numbers

Spans = tuple[tuple[int, int], ...]


def ranges_of(rows: list[list[tuple[int, int, int]]], attributes: int) -> Clauses:
    """Rows of predicates (attribute, lo, hi)."""
    return conjunctions_of(([(a, [(lo, hi)]) for a, lo, hi in row] for row in rows), attributes)


def spans_of(clauses: Clauses, lo: int, hi: int) -> Spans:
    if hi >= 0:
        return ((lo, hi),)
    return tuple(zip(clauses.span_lo[lo : lo - hi].tolist(), clauses.span_hi[lo : lo - hi].tolist()))


def paths(clauses: Clauses, index: Gryphon) -> dict[int, dict[int, Spans]]:
    """The predicates on the way to each row, {level: spans}, with the order of edges checked on the way."""
    a = index.arrays()
    tree, tails, found = a["tree"], a["tails"], {}

    def put(row: int, path: dict[int, Spans]) -> None:
        assert row not in found, "a row is at one place"
        found[row] = path

    pending: list[tuple[int, dict[int, Spans]]] = [(0, {})]
    visited = 0
    while pending:
        at, path = pending.pop()
        if at < 0:
            at = -1 - at
            path = dict(path)
            for q in range(at + 2, at + 2 + 3 * int(tails[at + 1]), 3):
                assert not path or max(path) < tails[q], "levels rise along a path"
                path[int(tails[q])] = spans_of(clauses, int(tails[q + 1]), int(tails[q + 2]))
            put(int(tails[at]), path)
            continue
        visited += 1
        count, first, rows, directory = tree[at].tolist()
        assert at == 0 or count + rows > 0
        assert directory == -1 or at == 0 or count > numbers["gryphon_edges"].value
        for row in a["rows"][first : first + rows].tolist():
            put(row, path)
        edges = tree[at + 1 : at + 1 + count].tolist()
        keys = [(level, lo != hi, lo) for level, lo, hi, _ in edges]
        assert keys == sorted(keys), "by level, equality first, then by constant"
        by_target: dict[int, list[tuple[int, int, int]]] = {}
        for level, lo, hi, target in edges:
            assert not path or max(path) < level, "levels rise along a path"
            by_target.setdefault(target, []).append((level, lo, hi))
        for target, pieces in by_target.items():
            assert len({level for level, _, _ in pieces}) == 1
            pending.append((target, path | {pieces[0][0]: tuple(sorted((lo, hi) for _, lo, hi in pieces))}))
    assert visited == a["shape"][0]
    return found


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_way_to_a_row_is_its_predicates(seed):
    rng = np.random.default_rng(seed)
    attributes = int(rng.integers(1, 8))
    clauses, _, _ = select(random_clauses(rng, 200, attributes, 12, programs=0), several=False)
    order = ("popular", "rare")[seed % 2]
    index = Gryphon.build(clauses, order)
    level = index.arrays()["level"]
    assert sorted(level.tolist()) == list(range(attributes))
    rising = np.diff(np.bincount(clauses.attribute, minlength=attributes)[np.argsort(level)])
    assert (rising >= 0 if order == "rare" else rising <= 0).all(), "the first attribute is the most or least mentioned"
    found = paths(clauses, index)
    assert sorted(found) == list(range(len(clauses)))
    for r, path in found.items():
        own = range(clauses.offsets[r], clauses.offsets[r + 1])
        wanted = {level[clauses.attribute[p]]: spans_of(clauses, int(clauses.lo[p]), int(clauses.hi[p])) for p in own}
        assert path == wanted
    reach, tree = index.arrays()["reach"], index.arrays()["tree"]
    at = 0
    while at < len(tree):
        for x in range(at + 1, at + 1 + tree[at, 0]):
            assert reach[x // numbers["gryphon_block"].value] >= tree[x, 2]
        at += 1 + tree[at, 0]


def test_a_small_tree():
    """Levels: c, b, a (mentioned by one, two and three rows).

        0: a = 1 and b = 2 and c = 3      1: a = 1 and b = 2      2: a = 1      3: a = 1, again

    The root has the edges c = 3 (a tail: b = 2, a = 1), b = 2 (a tail: a = 1) and a = 1 (a node with two rows). An
    event without c passes the level of c by don't-care."""
    rows = [[(0, 1, 1), (1, 2, 2), (2, 3, 3)], [(0, 1, 1), (1, 2, 2)], [(0, 1, 1)], [(0, 1, 1)]]
    index = Gryphon.build(ranges_of(rows, 3), "rare")
    assert index.arrays()["level"].tolist() == [2, 1, 0]
    assert index.arrays()["tree"][:, :3].tolist() == [[3, 0, 0], [0, 3, 3], [1, 2, 2], [2, 1, 1], [0, 0, 2]]
    assert index.arrays()["rows"].tolist() == [2, 3]
    assert index.plan() | {"grounds": ""} == {"nodes": 2, "edges": 3, "tails": 2, "depth": 2, "grounds": ""}
    events = events_of([{0: 1, 1: 2, 2: 3}, {0: 1, 1: 2}, {0: 1}, {1: 2, 2: 3}, {}])
    assert pairs_of(index, events) == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 2), (2, 3)}
    pairs = index.match(events_of([{0: 1}]), 1)
    assert (pairs.nodes, pairs.candidates, pairs.predicates) == (2, 2, 1)


def test_a_shared_predicate_is_tested_once():
    """A thousand rows begin with the same range: an event that fails it sees none of them."""
    rows = [[(0, 5, 9), (1, r + 1, r + 1)] for r in range(1_000)]
    rows += [[(1, r + 1, r + 1)] for r in range(1_000)]  # so that attribute 0 is the rarer one
    index = Gryphon.build(ranges_of(rows, 2), "rare")
    fails, holds = (index.match(events_of([{0: v, 1: 7}]), 1) for v in (4, 6))
    assert (fails.count, fails.candidates, fails.nodes) == (1, 1, 2)
    assert fails.predicates == 1  # the equality edge; the range begins above the value
    assert (holds.count, holds.candidates, holds.nodes) == (2, 2, 4)


def test_depth_is_the_number_of_predicates_not_of_attributes():
    rng = np.random.default_rng(2)
    rows = []
    for _ in range(3_000):
        chosen = np.sort(rng.choice(20_000, 3, replace=False))
        rows.append([(int(a), 1, int(rng.integers(1, 4))) for a in chosen])
    index = Gryphon.build(ranges_of(rows, 20_000), "rare")
    assert index.plan()["depth"] <= 4
    event = {int(a): 1 for a in np.unique(rng.integers(0, 20_000, 30))}
    pairs = index.match(events_of([event] * 2), 1)
    assert pairs.nodes < 2 * 200, "no attribute costs anything that the event does not have"


def test_sublinear_for_equality():
    """The expected time of the paper: N ** (1 - x) for rows of equality tests and don't-cares. Eight times the rows
    visit less than four times the nodes."""
    rng = np.random.default_rng(3)
    events = events_of([{a: int(v) for a, v in enumerate(rng.integers(1, 9, 8))} for _ in range(50)])
    nodes = []
    for count in (2_000, 16_000):
        asked, value = rng.random((count, 8)) < 0.6, rng.integers(1, 9, (count, 8))
        asked[:, 0] |= ~asked.any(axis=1)
        rows = [[(a, int(v[a]), int(v[a])) for a in np.flatnonzero(k)] for k, v in zip(asked, value)]
        clauses = ranges_of(rows, 8)
        index = Gryphon.build(clauses, "rare")
        pairs = index.match(events, 1)
        if count == 2_000:
            assert pairs_of(index, events) == expected(clauses, events)
        nodes.append(pairs.nodes / len(events))
    assert nodes[1] < 4 * nodes[0]
    assert nodes[1] < 16_000 / 50


@pytest.mark.parametrize("levels", [3, 60])
def test_nodes_with_many_edges(levels):
    """Below the root too: few levels are gone through, of many the event's are looked for."""
    rng = np.random.default_rng(levels)
    rows = []
    for _ in range(2 * numbers["gryphon_edges"].value):
        a, lo = int(rng.integers(1, 1 + levels)), int(rng.integers(1, 3_000))
        rows.append([(0, 4, 4), (a, lo, lo + int(rng.choice([0, 0, 3, 400])))])
    # Attribute 0 is tested first: these rows mention all others more often.
    rows += [[(a, 5_000, 5_000) for a in range(1, 1 + levels)]] * (2 * numbers["gryphon_edges"].value + 1)
    clauses = ranges_of(rows, 1 + levels)
    index = Gryphon.build(clauses, "rare")
    tree = index.arrays()["tree"]
    node = tree[1, 3]
    assert tree[1].tolist()[:3] == [0, 4, 4] and tree[node, 0] > numbers["gryphon_edges"].value and tree[node, 3] > 0
    some = rng.integers(1, 3_400, (40, 1 + levels))
    events = [{a: int(v) for a, v in enumerate(line) if rng.random() < 0.5} | {0: 4} for line in some]
    batch = events_of(events)
    assert pairs_of(index, batch) == expected(clauses, batch)


@pytest.mark.parametrize("rows", [3, 30_000])
def test_rooms_do_not_count(rows):
    """30,000 matches do not fit into the first room, so the event is begun again: what it did counts once."""
    index = Gryphon.build(ranges_of([[(0, 1, 4), (1, 2, 9)]] * rows, 2), "rare")
    pairs = index.match(events_of([{0: 2, 1: 5}, {0: 2}, {0: 2, 1: 5}]), 1)
    assert (pairs.candidates, pairs.count, pairs.nodes) == (2 * rows, 2 * rows, 3 + 2 + 3)
    for (slot, _), _ in index._pool._idle:
        assert not slot.any()


def test_nothing_to_match():
    index = Gryphon.build(ranges_of([], 2), "rare")
    assert index.match(events_of([{0: 1}, {}]), 1).count == 0
