"""The k-index: the example of Zhang et al. (2014, Table 1 and Figure 2), exclusions, and what the merge skips."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from test_counting import lists_of, rows_of, spans_of

import dibs
from coded import events_of, expected, random_clauses, random_events
from dibs.index import create
from dibs.index.conjunctions import select
from dibs.papers.structures.counting import Counting
from dibs.papers.structures.kindex import AT_ONCE, END, KIndex, pass_key

A, B, C, D, E = range(5)
TOP = 15  # the values are 1, 2, ..., 15
S1, S2, S3, S4, S5, S6 = range(6)
TABLE_1 = [
    {A: [(2, 2)], B: [(3, 3), (6, 6), (9, 9)]},
    {A: [(1, 8)], C: [(2, TOP)]},
    {B: [(1, 4)], C: [(6, 6)], E: [(3, 12)]},
    {A: [(2, 2)]},
    {D: [(12, TOP)], E: [(1, 9)]},
    {B: [(3, 3), (6, 6)], C: [(1, 4)], D: [(10, TOP)], E: [(1, 7)]},
]


@pytest.fixture(scope="module")
def example():
    return KIndex.build(spans_of(TABLE_1, 5))


def test_the_entries_of_figure_2(example):
    """All of them but (4, A, 1), which the figure gives to S2: S2 has two predicates, and S6 has none on A."""
    figure = {(1, A, 2): [S4], (2, A, 2): [S1, S2], (3, C, 6): [S3]}
    figure |= {(2, A, v): [S2] for v in (1, 3, 4, 5, 6, 7, 8)}
    figure |= {(2, B, v): [S1] for v in (3, 6, 9)}
    figure |= {(2, C, v): [S2] for v in range(2, TOP + 1)}
    figure |= {(2, D, v): [S5] for v in range(12, TOP + 1)}
    figure |= {(2, E, v): [S5] for v in range(1, 10)}
    figure |= {(3, B, v): [S3] for v in range(1, 5)}
    figure |= {(3, E, v): [S3] for v in range(3, 13)}
    figure |= {(4, B, v): [S6] for v in (3, 6)}
    figure |= {(4, C, v): [S6] for v in range(1, 5)}
    figure |= {(4, D, v): [S6] for v in range(10, TOP + 1)}
    figure |= {(4, E, v): [S6] for v in range(1, 8)}
    sizes = example.arrays()["sizes"].tolist()
    assert sizes == [1, 2, 3, 4]
    assert {(sizes[g], a, v): rows for (g, a, v), rows in lists_of(example, len(sizes)).items()} == figure
    assert sum(size == 2 and a == A for size, a, _ in figure) == 8  # A <= 8 takes eight entries


def test_the_event_of_example_5_reads_lists_of_two_predicates_only(example):
    """B = 6, C = 3, E = 9: S6 is larger than the event, and of size 3 one list is too few for S3. S1, S2 and S5, which
    have a predicate that holds, are looked at; counting touches S3 and S6 too."""
    event = events_of([{B: 6, C: 3, E: 9}])
    pairs = example.match(event, 1)
    assert (pairs.count, pairs.nodes, pairs.predicates) == (0, 3, 3)
    assert pairs.candidates == 2  # S2 and then S5 are reached, each time by one list of two
    counted = Counting.build(spans_of(TABLE_1, 5)).match(event, 1)
    assert (counted.count, counted.candidates, counted.predicates) == (0, 5, 6)


@pytest.mark.parametrize(
    ("event", "matches"),
    [
        ({A: 2, B: 6}, [S1, S4]),  # the event of example 2
        ({A: 2, B: 3, C: 2, D: 12, E: 3}, [S1, S2, S4, S5, S6]),
        ({B: 4, C: 6, E: 12}, [S3]),
        ({A: 8, C: TOP}, [S2]),
        ({A: 9, C: TOP}, []),
        ({D: 12, E: 9}, [S5]),
        ({}, []),
    ],
)
def test_the_subscriptions_of_table_1(example, event, matches):
    assert rows_of(example, event) == matches


def test_table_1_as_text():
    matcher = dibs.Matcher(index="kindex")
    matcher.add_many(
        [
            ("S1", "A = 2 AND B IN (3, 6, 9)"),
            ("S2", "A <= 8 AND C >= 2"),
            ("S3", "C = 6 AND B <= 4 AND E BETWEEN 3 AND 12"),
            ("S4", "A = 2"),
            ("S5", "D >= 12 AND E <= 9"),
            ("S6", "B IN (3, 6) AND C <= 4 AND D >= 10 AND E <= 7"),
        ]
    )
    assert matcher.match({"A": 2, "B": 6}) == ["S1", "S4"]
    assert matcher.match({"A": 2, "B": 3, "C": 2, "D": 12, "E": 3}) == ["S1", "S2", "S4", "S5", "S6"]
    assert matcher.match({"B": 6, "C": 3, "E": 9}) == []


# ---- inequality ----


@pytest.mark.parametrize("size", [1, 2, 3])
def test_excluded_rows_are_rejected_however_many_lists_they_are_in(size):
    """A row that all its inequalities exclude is in as many exclusion lists as in `any` lists: twice its size."""
    not_five = [(1, 4), (6, 9)]
    index = KIndex.build(spans_of([dict.fromkeys(range(size), not_five)] * 3 + [{0: [(5, 5)]}], 4))
    assert rows_of(index, dict.fromkeys(range(4), 5)) == [3]
    assert rows_of(index, dict.fromkeys(range(size), 5)) == [3]
    assert rows_of(index, dict.fromkeys(range(size), 4)) == [0, 1, 2]
    assert rows_of(index, {**dict.fromkeys(range(size), 4), size - 1: 5}) == ([3] if size == 1 else [])
    assert rows_of(index, dict.fromkeys(range(size), 10)) == []  # no cell of any predicate


@pytest.mark.parametrize("kind", [KIndex, Counting])
def test_inequalities_hold_only_for_values_of_their_kind(kind):
    """Cells 5 to 9 are the numbers, say: `a <> 7` is unknown for anything else. With inequalities of two kinds on one
    attribute, neither reaches from floor to ceiling, and both are written out."""
    index = kind.build(spans_of([{0: [(5, 6), (8, 9)]}, {0: [(6, 6)]}], 1))
    assert index.plan()["attributes with exclusions"] == 1
    assert [v for v in range(1, 13) if rows_of(index, {0: v}) == [0]] == [5, 8, 9]
    assert [v for v in range(1, 13) if rows_of(index, {0: v}) == []] == [1, 2, 3, 4, 7, 10, 11, 12]
    both = kind.build(spans_of([{0: [(5, 6), (8, 9)]}, {0: [(10, 13), (15, 19)]}], 1))
    assert both.plan()["attributes with exclusions"] == 0
    assert [rows_of(both, {0: v}) for v in (5, 7, 9, 10, 14, 19, 20)] == [[0], [], [0], [1], [], [1], []]


def test_weak_semantics_is_not_ours():
    index = KIndex.build(spans_of([{0: [(1, 4), (6, 9)], 1: [(3, 3)]}], 2))
    assert rows_of(index, {1: 3}) == []
    assert rows_of(index, {0: 1, 1: 3}) == [0]


@given(st.integers(0, 2**32 - 1))
def test_rows_of_inequalities(seed):
    rng = np.random.default_rng(seed)

    def predicate():
        cuts = sorted(set(rng.integers(2, 9, int(rng.integers(1, 3))).tolist()))
        edges = [0, *cuts, 10]
        spans = [(x + 1, y - 1) for x, y in zip(edges, edges[1:]) if x + 1 < y]
        return spans if rng.random() < 0.8 else [(cuts[0], 9)]

    rows = [{int(a): predicate() for a in rng.choice(5, int(rng.integers(1, 5)), False)} for _ in range(30)]
    clauses = spans_of(rows, 5)
    events = random_events(rng, 10, 5, 11, several=False)
    for kind in (KIndex, Counting):
        pairs = kind.build(clauses).match(events, 1)
        assert sorted(zip(pairs.event.tolist(), pairs.row.tolist())) == sorted(expected(clauses, events))


# ---- the merge ----


@njit
def moved(keys, place, key):
    keys[place] = -1
    for i in range(place, len(keys) - AT_ONCE - 1, AT_ONCE):
        pass_key(keys, i, key)


@given(st.sets(st.integers(0, 1000), min_size=1, max_size=40), st.integers(0, 39), st.integers(0, 1000))
def test_a_key_that_moves_up_keeps_the_order(values, place, key):
    keys = sorted(values)
    place %= len(keys)
    key = max(key, keys[place])
    array = np.array(keys + [END] * (AT_ONCE + 1), np.int64)
    moved(array, place, key)
    assert array.tolist() == sorted(keys[:place] + keys[place + 1 :] + [key]) + [END] * (AT_ONCE + 1)


def test_long_lists_are_skipped_through():
    """10,000 rows where attribute 0 agrees, 5 of them where attribute 1 does too: a few postings are looked at."""
    rows = [{0: [(1, 1)], 1: [(1 + (r % 2000 != 7),) * 2]} for r in range(10_000)]
    index, event = KIndex.build(spans_of(rows, 2)), events_of([{0: 1, 1: 1}])
    pairs = index.match(event, 1)
    assert pairs.row.tolist() == [7, 2007, 4007, 6007, 8007]
    assert pairs.predicates <= 4 * 5 + 2 and pairs.candidates <= 2 * 5 + 1
    assert Counting.build(spans_of(rows, 2)).match(event, 1).predicates == 10_005


def test_sizes_without_enough_lists_are_not_opened():
    rows = [{a: [(1, 3)] for a in range(k)} for k in (1, 2, 3, 4, 5, 5, 5)]
    index = KIndex.build(spans_of(rows, 8))
    larger = KIndex.build(spans_of([{0: [(1, 3)], 1: [(1, 1)]}, {0: [(1, 1), (3, 9)], 1: [(1, 1)]}], 2))
    assert larger.match(events_of([{0: 1}]), 1).nodes == 0  # two lists, but of one value
    for values, matches, nodes in [
        ({5: 1, 6: 1, 7: 1}, 0, 0),  # nothing is listed there
        ({0: 1}, 1, 1),  # the sizes from 2 on have more predicates than the event has values
        ({0: 1, 1: 4, 5: 1, 6: 1, 7: 1}, 1, 1),  # one list of each size: enough for size 1
        ({0: 1, 1: 1, 2: 4, 6: 1, 7: 1}, 2, 1 + 2),
        ({0: 1, 1: 1, 2: 1, 3: 1, 4: 1}, 7, 1 + 2 + 3 + 4 + 5),
    ]:
        pairs = index.match(events_of([values]), 1)
        assert (pairs.count, pairs.nodes) == (matches, nodes)


@pytest.mark.parametrize("seed", range(3))
def test_many_lists_at_once(seed):
    """Events of up to 60 values: more keys than one vector step moves."""
    rng = np.random.default_rng(seed)
    clauses = random_clauses(rng, 3000, 60, 8, programs=0)
    events = random_events(rng, 40, 60, 8, several=False, most=60)
    found, wanted = (create(name, clauses).match(events, 1) for name in ("kindex", "scan"))
    pairs = [sorted(zip(p.event.tolist(), p.row.tolist())) for p in (found, wanted)]
    assert pairs[0] == pairs[1]


def test_the_counters_do_not_depend_on_threads():
    rng = np.random.default_rng(4)
    clauses, _, _ = select(random_clauses(rng, 2000, 30, 10, programs=0), several=False)
    events = random_events(rng, 60, 30, 10, several=False, most=30)
    index = KIndex.build(clauses)
    one, two = index.match(events, 1), index.match(events, 2)
    assert (one.count, one.candidates, one.predicates, one.nodes) == (
        two.count,
        two.candidates,
        two.predicates,
        two.nodes,
    )
    assert one.candidates >= one.count > 0
