"""SIFT counting, and the posting lists with ranges written out that it shares with the k-index."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

import dibs
from coded import conjunctions_of, events_of, expected, random_clauses, random_events
from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index import create
from dibs.index.conjunctions import select
from dibs.papers.structures import postings
from dibs.papers.structures.counters import AT_ONCE, changes, counters, set_back, zeros
from dibs.papers.structures.counting import Counting
from dibs.papers.structures.kindex import KIndex
from dibs.papers.structures.postings import write_out
from dibs.tuning import smallest, using


def spans_of(rows: list[dict[int, list[tuple[int, int]]]], attributes: int) -> Clauses:
    """Conjunctions from the spans of each attribute."""
    return conjunctions_of((sorted(row.items()) for row in rows), attributes)


def rows_of(index, event: dict[int, int]) -> list[int]:
    return sorted(index.match(events_of([event]), 1).row.tolist())


def lists_of(index, groups: int = 1) -> dict[tuple[int, int, int], list[int]]:
    """(group, attribute, cell) to rows, as the arrays say. Exclusion lists have the cell negated, `any` has cell 0."""
    arrays = index.arrays()
    block, limits, start, rows = (arrays[n] for n in ("block", "limits", "start", "rows"))
    found = {}
    for a, (first, cells, exclusions) in enumerate(block.tolist()):
        slots = [(first + cell, cell) for cell in range(cells)]
        if exclusions >= 0:
            floor, ceiling = limits[a].tolist()
            slots.append((exclusions, 0))
            slots += [(exclusions + 1 + cell - floor, -cell) for cell in range(floor, ceiling + 1)]
        for slot, cell in slots:
            for g in range(groups):
                i = slot * groups + g
                if start[i] < start[i + 1]:
                    found[g, a, cell] = rows[start[i] : start[i + 1]].tolist()
    assert sum(map(len, found.values())) == len(rows), "every posting is in a list of some attribute and cell"
    return found


# ---- posting lists ----


def test_a_range_stands_in_the_list_of_each_of_its_cells():
    index = Counting.build(spans_of([{0: [(2, 4)]}, {0: [(4, 4)], 1: [(1, 1)]}, {0: [(1, 2), (5, 5)]}], 2))
    assert lists_of(index) == {
        (0, 0, 1): [2],
        (0, 0, 2): [0, 2],
        (0, 0, 3): [0],
        (0, 0, 4): [0, 1],
        (0, 0, 5): [2],
        (0, 1, 1): [1],
    }


def test_an_inequality_stands_in_any_and_in_the_lists_of_what_it_excludes():
    rows = [{0: [(1, 49), (51, 99)]}, {0: [(1, 9), (11, 19), (30, 99)]}, {0: [(10, 10), (60, 60)]}]
    index = Counting.build(spans_of(rows, 1))
    lists = lists_of(index)
    assert lists[0, 0, 0] == [0, 1]
    assert lists[0, 0, -50] == [0]
    assert [cell for (_, _, cell), found in lists.items() if cell < 0 and found == [1]] == [-10, *range(-20, -30, -1)]
    assert lists[0, 0, 10] == lists[0, 0, 60] == [2]  # IN is written out
    assert index.plan()["attributes with exclusions"] == 1
    assert index.plan()["postings"] == (1 + 1) + (1 + 11) + 2


def test_the_strong_semantics_of_inequality():
    """Who does not say what color it is does not say that it is not red."""
    matcher = dibs.Matcher(index="counting")
    matcher.add("not red", "color <> 'red'")
    matcher.add("cheap and not red", "color NOT IN ('red', 'pink') AND price < 10")
    assert matcher.match({"price": 5}) == []
    assert matcher.match({"color": "red", "price": 5}) == []
    assert matcher.match({"color": "pink", "price": 5}) == ["not red"]
    assert matcher.match({"color": "blue", "price": 5}) == ["cheap and not red", "not red"]
    assert matcher.match({"color": 7, "price": 5}) == []  # a number is neither red nor not red


@pytest.mark.parametrize("kind", [Counting, KIndex])
@given(st.integers(0, 2**32 - 1))
def test_the_lists_say_what_the_clauses_say(kind, seed):
    rng = np.random.default_rng(seed)
    cells = int(rng.integers(4, 16))
    clauses, _, _ = select(random_clauses(rng, 15, 4, cells, programs=0), several=False)
    index = kind.build(clauses)
    sizes = np.diff(clauses.offsets)
    group = np.searchsorted(np.unique(sizes), sizes) if kind is KIndex else np.zeros(len(clauses), np.int64)
    lists = lists_of(index, int(group.max(initial=0)) + 1)
    assert all(found == sorted(set(found)) for found in lists.values())
    for cell in range(1, cells + 1):
        holds = expected(clauses_alone(clauses), events_of([{a: cell} for a in range(4)]))
        for a in range(4):
            floor, ceiling = index.arrays()["limits"][a].tolist()
            found = []
            for g in range(int(group.max(initial=0)) + 1):
                own = set(lists.get((g, a, cell), []))
                if floor <= cell <= ceiling:
                    own |= set(lists.get((g, a, 0), [])) - set(lists.get((g, a, -cell), []))
                assert all(group[r] == g for r in own)
                found += sorted(own)
            predicates = [p for p in range(len(clauses.attribute)) if clauses.attribute[p] == a]
            row = np.repeat(np.arange(len(clauses)), sizes)
            assert sorted(found) == [int(row[p]) for p in predicates if (a, p) in holds]


def clauses_alone(clauses: Clauses) -> Clauses:
    """Each predicate as a row of its own."""
    n = len(clauses.attribute)
    none = np.empty(0, np.int32)
    columns = (clauses.attribute, clauses.lo, clauses.hi, clauses.span_lo, clauses.span_hi, none, none)
    return Clauses(np.arange(n + 1), *columns, conjunctions=n, attributes=clauses.attributes)


@pytest.mark.parametrize("name", ["counting", "kindex"])
def test_too_many_postings_are_refused_before_they_are_made(name, monkeypatch):
    clauses = spans_of([{0: [(1, 2**30)]}] * 10, 1)  # 40 GB
    with pytest.raises(dibs.DibsError) as caught:
        create(name, clauses)
    error = caught.value
    assert type(error).__name__ == "IndexTooLarge"
    assert (error.name, error.limit) == (name, postings.MOST_POSTINGS)
    assert error.needed == 10 * 2**30 + 2**30 + 2  # postings, and a list for each cell (with 0 and a last one)
    assert f"{10 * 2**30:,} and" in str(error) and "1,500,000,000" in str(error) and "auto" in str(error)

    small = spans_of([{0: [(1, 10)]}] * 10, 1)
    monkeypatch.setattr(postings, "MOST_POSTINGS", 100 + 12)
    assert rows_of(create(name, small), {0: 10}) == list(range(10))
    monkeypatch.setattr(postings, "MOST_POSTINGS", 100 + 11)
    with pytest.raises(dibs.DibsError, match=r"would need 112 postings .* the limit is 111"):
        create(name, small)


def test_an_add_that_is_refused_leaves_the_matcher_as_it_was(monkeypatch):
    matcher = dibs.Matcher(index="counting")
    matcher.add("a", "x = 1")
    assert matcher.match({"x": 1}) == ["a"]
    monkeypatch.setattr(postings, "MOST_POSTINGS", 50)
    with pytest.raises(dibs.DibsError, match="written out cell by cell"):
        matcher.add_many([(i, f"x BETWEEN {i} AND {i + 50}") for i in range(300)])
    assert len(matcher) == 1 and matcher.match({"x": 1}) == ["a"]
    for i in range(20):  # one by one they wait, and what was accepted is matched
        matcher.add(i, f"x BETWEEN {i} AND {i + 50}")
    assert matcher.match({"x": 1}) == [0, 1, "a"]
    with pytest.warns(UserWarning, match="matched by 'auto' instead"):
        assert list(matcher.match_batch([{"x": 1}])) == [[0, 1, "a"]]


# ---- counting ----


def touched(clauses: Clauses, events: CodedEvents) -> int:
    """Pairs of an event and a row of which at least one predicate holds."""
    row = np.repeat(np.arange(len(clauses)), np.diff(clauses.offsets))
    return len({(e, int(row[p])) for e, p in expected(clauses_alone(clauses), events)})


@pytest.mark.parametrize(("rows", "attributes"), [(2000, 600), (200, 3)])
def test_candidates_are_the_rows_with_a_predicate_that_holds(rows, attributes):
    """Few postings an event (counters are set back one by one) and many (all in one pass), in both cases twice: the
    counters are as before."""
    rng = np.random.default_rng(rows)
    clauses, _, _ = select(random_clauses(rng, rows, attributes, 12, programs=0), several=False)
    events = random_events(rng, 8, attributes, 12, several=False)
    index = Counting.build(clauses)
    for _ in range(2):
        pairs = index.match(events, 1)
        assert set(zip(pairs.event.tolist(), pairs.row.tolist())) == expected(clauses, events)
        assert pairs.candidates == touched(clauses, events)
        # Each predicate that holds is a posting read; one that is excluded is two, in `any` and in the exclusions.
        assert pairs.predicates >= len(expected(clauses_alone(clauses), events))


def test_the_work_is_the_postings_of_the_event_and_nothing_else():
    clauses = spans_of([{0: [(1, 5)], 1: [(r % 50 + 1,) * 2]} for r in range(1000)], 2)
    index = Counting.build(clauses)
    pairs = index.match(events_of([{0: 6, 1: 7}, {0: 5}, {1: 60}]), 1)
    assert pairs.count == 0
    assert (pairs.predicates, pairs.candidates) == (20 + 1000, 20 + 1000)
    assert pairs.nodes == 2


@pytest.mark.parametrize("size", [127, 128, 254, 255, 300])
def test_counters_are_wide_enough(size):
    """Twice its size is what a row is counted to if all its predicates are excluded."""
    everything = {a: [(1, 4), (6, 9)] for a in range(size)}
    index = Counting.build(spans_of([everything, {0: [(5, 5)]}], size))
    assert index._size.dtype == (np.uint8 if size < 128 else np.uint16)
    assert rows_of(index, dict.fromkeys(range(size), 1)) == [0]
    assert rows_of(index, {a: 1 + 4 * (a == 0) for a in range(size)}) == [1]
    assert rows_of(index, dict.fromkeys(range(size), 5)) == [1]
    assert rows_of(index, dict.fromkeys(range(size), 9)) == [0]


@pytest.mark.parametrize("kind", [Counting, KIndex])
@pytest.mark.parametrize("size", [1, 2])
def test_an_event_that_does_not_fit_into_a_room_is_counted_once(kind, size):
    index = kind.build(spans_of([{a: [(1, 2)] for a in range(size)}] * 9000, 3))
    events = events_of([{0: 1, 1: 1}, {0: 2, 1: 2}, {0: 2, 1: 1, 2: 5}])
    given = []
    runs = [index.match(events, 1), index.match(events, 2), index.match(events, 1, lambda e, r: given.append(len(e)))]
    assert sum(given) == 27_000
    for pairs in runs:
        assert (pairs.count, pairs.candidates, pairs.predicates) == (27_000, 27_000, 27_000 * size)
        assert pairs.nodes == 3 * size
        assert len({*zip(pairs.event.tolist(), pairs.row.tolist())}) == len(pairs)


@njit
def looked_at(array, other):
    """Zeros, changes, and the array after everything was set back."""
    empty, changed = np.zeros(len(array), np.bool_), np.zeros(len(array), np.bool_)
    for at in range(0, len(array), AT_ONCE):
        a, b = zeros(array, at), changes(array, other, at)
        for i in range(AT_ONCE):
            empty[at + i] = (a >> np.uint64(i)) & np.uint64(1)
            changed[at + i] = (b >> np.uint64(i)) & np.uint64(1)
        set_back(array, other, at)
    return empty, changed


@pytest.mark.parametrize(("most", "kind"), [(255, np.uint8), (256, np.uint16), (70_000, np.uint32)])
def test_counters_64_at_a_time(most, kind):
    rng = np.random.default_rng(1)
    size = counters(rng.integers(0, 4, 300), most)
    assert size.dtype == kind and len(size) == 320 and (size[300:] == 1).all()
    left = np.where(rng.random(320) < 0.5, size, rng.integers(0, most + 1, 320)).astype(kind)
    before = left.copy()
    empty, changed = looked_at(left, size)
    assert np.array_equal(empty, before == 0)
    assert np.array_equal(changed, before != size)
    assert np.array_equal(left, size)


def test_no_rows():
    none = spans_of([], 0)
    assert write_out("counting", none, np.zeros(0, np.uint16), 1).plan()["postings"] == 0
    assert Counting.build(spans_of([], 3)).match(events_of([{0: 1}]), 1).count == 0


@pytest.mark.parametrize("name", ["counting", "kindex"])
@pytest.mark.parametrize("size", [127, 128, 254, 255])
@pytest.mark.parametrize("values", [{}, smallest()])
def test_a_long_row_that_several_values_exclude(name, size, values):
    """Each excluded predicate counts the row up before its list counts it down: so far up that a byte is too small."""
    rows = [{size: [(1, 1)]}] * 9_000
    clauses = spans_of([*rows, {a: [(1, 3), (5, 8)] for a in range(size)}], size + 1)
    with using(values):
        index = create(name, clauses)
        for excluded in (0, 1, 2, 3, 60):
            event = dict.fromkeys(range(size), 7) | dict.fromkeys(range(excluded), 4)
            found = index.match(events_of([event, event]), 1)
            assert found.row.tolist() == ([] if excluded else [len(rows)] * 2)
