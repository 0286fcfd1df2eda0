"""vectors: what groups are, what an event looks at, and how cells become segments. (test_auto and test_indexes match
random clauses by them.)"""

from __future__ import annotations

import numpy as np
import pytest

import dibs
from coded import conjunctions_of, events_of, expected, pairs_of, random_clauses, random_events
from dibs.coding.batch import CodedEvents
from dibs.index import create
from dibs.index.auto.planner import Auto
from dibs.index.auto.vector_building import make_segments
from dibs.index.auto.vector_groups import find_groups
from dibs.index.statistics import highest_cells
from dibs.tuning import using

ONLY = {"vector_rows": 1, "line_cost": -1e3, "look_cost": 1e6, "mask_cost": 1e6}


def three_lists(rows, present, seed=1):
    """Lists over three attributes of a hundred values, of which each holds for a tenth; events of some of them."""
    rng = np.random.default_rng(seed)

    def values():
        return [(int(v), int(v)) for v in np.sort(rng.choice(np.arange(1, 200, 2), 10, replace=False))]

    clauses = conjunctions_of([[(a, values()) for a in range(3)] for _ in range(rows)], 3)
    events = [
        {int(a): int(1 + 2 * rng.integers(100)) for a in rng.choice(3, present, replace=False)} for _ in range(60)
    ]
    return clauses, events_of(events)


def test_several_long_lists_become_vectors():
    """As masks or records, an event would look at thousands of them."""
    clauses, events = three_lists(3_000, present=3)
    index = create("auto", clauses)
    assert index.plan()["vectors"] == 3_000 and index.plan()["groups"] == 1
    found = index.match(events, 1)
    assert set(zip(found.event.tolist(), found.row.tolist())) == expected(clauses, events)
    assert found.candidates == found.count > 0 and found.predicates == 0


def test_events_that_lack_an_attribute_look_at_nothing():
    clauses, events = three_lists(3_000, present=2)
    found = create("auto", clauses).match(events, 1)
    assert (found.count, found.candidates, found.nodes) == (0, 0, 0)


def test_rectangles_become_vectors_within_their_room():
    """Their cells are too many to be told apart: what remains is verified, and that is little."""
    rng = np.random.default_rng(3)
    corners = rng.integers(1, 40_000, (20_000, 2)).tolist()
    clauses = conjunctions_of([[(0, [(x, x + 600)]), (1, [(y, y + 600)])] for x, y in corners], 2)
    events = events_of([{0: int(x), 1: int(y)} for x, y in rng.integers(1, 40_000, (100, 2))])
    index = create("auto", clauses)
    assert index.plan()["vectors"] == 20_000
    vectors = index.arrays()["vectors.vectors"].nbytes + index.arrays()["vectors.summaries"].nbytes
    assert vectors <= 1.1 * 2 * 32 * 20_000
    found = index.match(events, 1)
    assert pairs_of(index, events) == pairs_of(create("scan", clauses), events)
    assert found.candidates < 3 * found.count
    # The clauses stand by their first cells, so most lines of 512 are empty for one value.
    assert found.nodes < 0.25 * len(events) * 20_000 / 512


def test_groups_are_the_clauses_over_the_same_attributes():
    both = [[(1, [(1, 2)]), (0, [(3, 3)])], [(0, [(1, 1)]), (1, [(2, 4)])]]
    others = [[(0, [(1, 1)]), (0, [(2, 4)])], [(0, [(1, 1)])], [], [(0, [(0, 0)]), (1, [(1, 1)])]]
    rows = [*both, *others, [(2, [(1, 1)]), (0, [(1, 1)]), (1, [(1, 1)])]]
    with using({"vector_rows": 1}):
        groups = find_groups(conjunctions_of(rows, 3))
    of_row = groups.of_row.tolist()
    assert of_row[0] == of_row[1] and len({*of_row[1:4], of_row[6]}) == 4 and of_row[4] == of_row[5] == -1
    lists = [groups.attributes[groups.start[g] : groups.start[g + 1]].tolist() for g in of_row[:4]]
    assert lists == [[0, 1], [0, 1], [0, 0], [0]]
    with using({"vector_rows": 2}):
        assert find_groups(conjunctions_of(rows, 3)).of_row.tolist() == [0, 0, -1, -1, -1, -1, -1]


def test_clauses_whose_hashes_are_equal_are_still_compared(monkeypatch):
    """Attributes are hashed by a sum, so equal hashes prove nothing."""
    from dibs.index.auto import vector_groups, vector_layout

    rows = [[(0, [(1, 1)])], [(1, [(1, 1)])], [(0, [(1, 1)])]]
    clauses = conjunctions_of(rows, 2)
    of_row = np.full(3, -1, np.int32)
    own = vector_groups.ClauseArrays.of(clauses)
    known = np.unique(vector_groups._signatures(own, np.array([0])))
    vector_groups._number(known, own, 3, of_row)
    assert of_row.tolist() == [0, -1, 0]
    example, scratch = np.array([0]), np.empty(2 * vector_layout.MOST_SLOTS, np.int64)
    monkeypatch.setattr(vector_groups, "_signature", lambda row, clauses: known[0])
    monkeypatch.setattr(vector_groups, "_same_attributes", vector_groups._same_attributes.py_func)
    monkeypatch.setattr(vector_groups, "sort_predicates", vector_groups.sort_predicates.py_func)
    vector_groups._number_rows.py_func(known, example, scratch, own, 3, of_row)
    assert of_row.tolist() == [0, -1, 0]


@pytest.mark.parametrize("room", [32.0, 0.25])
def test_segments_tell_apart_what_predicates_do(room):
    """Exact ones: two cells of a segment satisfy the same predicates. Coarse ones: numbers grow with the cells."""
    rng = np.random.default_rng(8)
    for seed in range(20):
        clauses = random_clauses(np.random.default_rng(seed), 30, 2, 40, programs=0.0, nulls=0.0)
        with using({"vector_rows": 1, "vector_bytes": room}):
            of_row = find_groups(clauses).of_row
            segments = make_segments(clauses, of_row, highest_cells(clauses))
        for a in range(2):
            numbers = segments.of_cell[segments.cells[a] : segments.cells[a + 1]]
            assert (np.diff(np.abs(numbers)) >= 0).all() and np.abs(numbers).max(initial=0) <= segments.count[a]
            assert (np.diff(np.abs(numbers)) <= 1).all()
            satisfied = expected(clauses, events_of([{a: c} for c in range(1, len(numbers))]))
            singles = np.flatnonzero((np.diff(clauses.offsets) == 1) & (of_row >= 0))
            for c, d in zip(*rng.integers(1, len(numbers), (2, 30))):
                if segments.exact[a] and numbers[c] == numbers[d]:
                    assert all(((c - 1, r) in satisfied) == ((d - 1, r) in satisfied) for r in singles)
                if numbers[c] <= 0:
                    assert not any((c - 1, r) in satisfied for r in singles)


def test_ranges_and_arrays_over_coarse_and_exact_segments():
    """Every pair of first and last cell: what lies between segments belongs to none of them."""
    rows = [[(0, [(x, x + w)])] for x in range(1, 40, 4) for w in (0, 1)] + [[(0, [(3, 3), (30, 31)]), (0, [(1, 99)])]]
    clauses = conjunctions_of(rows, 1)
    ranges = [(x, y) for x in range(1, 50) for y in range(x, 50)]
    lo, hi = (np.array([r[i] for r in ranges], np.int32) for i in (0, 1))
    events = CodedEvents(np.arange(len(ranges) + 1), np.zeros(len(ranges), np.int32), lo, hi, False)
    for room in (32.0, 0.25):
        with using(ONLY | {"vector_bytes": room}):
            index = create("auto", clauses)
            assert index.plan()["vectors"] == len(rows)
            assert pairs_of(index, events) == expected(clauses, events)


def test_folders_that_know_no_vectors_still_open(tmp_path):
    """What is saved without vectors is what was saved before there were any, and both are restored."""
    clauses, events = three_lists(600, present=3)
    with using({"vector_rows": 10**9}):
        without = create("auto", clauses).arrays()
    assert not any(name.startswith("vectors") for name in without)
    having = create("auto", clauses).arrays()
    assert any(name.startswith("vectors") for name in having)
    wanted = expected(clauses, events)
    assert pairs_of(Auto.restore(clauses, without), events) == wanted == pairs_of(Auto.restore(clauses, having), events)


def test_a_matcher_with_vectors(tmp_path):
    """Saved, opened, changed; asked for one event, and for many."""
    rng = np.random.default_rng(2)
    lists = [[sorted(rng.choice(50, 8, replace=False).tolist()) for _ in range(3)] for _ in range(600)]
    texts = [" AND ".join(f"{n} IN ({', '.join(map(str, own))})" for n, own in zip("xyz", each)) for each in lists]
    events = [dict(zip("xyz", rng.integers(50, size=3).tolist())) for _ in range(300)]

    def wanted(event, gone=()):
        return [r for r, each in enumerate(lists) if r not in gone and all(event[n] in v for n, v in zip("xyz", each))]

    with dibs.Matcher.open(tmp_path / "folder") as m:
        m.add_many(list(enumerate(texts)))
        assert list(m.match_batch(events)) == [wanted(e) for e in events]
        assert m.stats()["plans"][0]["vectors"] == 600 and "vectors: 600" in m.explain_plan()
        assert [m.match(e) for e in events[:50]] == [wanted(e) for e in events[:50]]
        m.compact()
    with dibs.Matcher.open(tmp_path / "folder") as m:
        assert list(m.match_batch(events)) == [wanted(e) for e in events]
        assert m.stats()["plans"][0]["vectors"] == 600
        gone = wanted(events[0]) + [1, 2, 3]
        m.remove_many(sorted(set(gone)))
        assert list(m.match_batch(events)) == [wanted(e, gone) for e in events]
        assert [m.match(e) for e in events[:50]] == [wanted(e, gone) for e in events[:50]]
        m.save(tmp_path / "version")
    loaded = dibs.Matcher.load(tmp_path / "version")
    assert list(loaded.match_batch(events)) == [wanted(e, gone) for e in events]


def test_small_rooms():
    """A full room in the middle of an event: each pair comes once."""
    rng = np.random.default_rng(4)
    clauses, events = random_clauses(rng, 300, 2, 9, nulls=0.0), random_events(rng, 40, 2, 9, several=True)
    for room in (1, 7, 64):
        with using(ONLY | {"first_room": room, "largest_room": room}):
            assert pairs_of(create("auto", clauses), events) == expected(clauses, events)
