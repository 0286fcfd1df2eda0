"""The PB+tree of the paper, in memory and on disk: its examples, its lists and pointers, what the coded model adds,
and how many pages are visited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pbtree_model import KINDS, clauses_of, matched, thirds
from pbtree_pages import Plain, check

from coded import events_of, expected, pairs_of
from dibs.coding.clauses import Clauses
from dibs.papers.structures.counters import counters, take_zeros
from dibs.papers.structures.pbtree.layout import ADJUSTED, EQUAL, GREATER, HEAD, ITEM, KEYS, LESS, LISTS
from dibs.papers.structures.pbtree.pbtree import PBTreeMemory

Build = Callable[[Clauses], Any]


@pytest.fixture(params=KINDS)
def build(request: pytest.FixtureRequest) -> Build:
    return KINDS[request.param]


# ---- the paper ----


def test_an_index_as_in_the_figure(build):
    """Fig. 5: items of the tree for all constants, each list with the keys of its own operator, pointers of items to
    the page of the highest key that is not above: those of 5 and 6 are the same, where the > list has no 6."""
    rows = [[(0, ">=", c)] for c in (2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13)] + [[(0, "=", 6)], [(0, "<=", 40)]]
    tree = build(clauses_of(rows))
    check(tree)
    plain = Plain(tree)
    items = {item.key: item.pointers for item in plain.leaf_items()}
    assert list(items) == [*range(2, 14), 40]
    page_of = {key: page for page, key, _ in plain.list_of(GREATER)}
    assert [key for _, key, _ in plain.list_of(GREATER)] == [2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13]
    assert [key for _, key, _ in plain.list_of(EQUAL)] == [6] and [key for _, key, _ in plain.list_of(LESS)] == [40]
    assert items[5][GREATER] == items[6][GREATER] == page_of[5] and items[7][GREATER] == page_of[7]
    assert matched(tree, [{0: 6}, {0: 5}, {0: 41}]) == [{0, 1, 2, 3, 11, 12}, {0, 1, 2, 3, 12}, set(range(11))]


def test_lists_are_in_the_order_of_constants(build):
    """Whether they are built or inserted one by one; the tree has all constants."""
    constants = [50, 10, 5, 30, 20, 80, 6]
    rows = [[(0, op, c)] for c in constants for op in (">=", "<=", "!=", "=")]
    for tree in (build(clauses_of(rows)), build(clauses_of(rows[:1]))):
        for i in range(tree._rows, len(rows)):
            tree.insert(clauses_of(rows[i : i + 1]))
        check(tree)
        plain = Plain(tree)
        for which in range(LISTS):
            assert [key & 0xFFFFFFFF for _, key, _ in plain.list_of(which)] == sorted(constants)


def test_a_split_adjusts_only_the_pointers_that_changed():
    """Fig. 7, line 7. Section 5: where constants are spread evenly, an insertion adjusts far fewer pointers than n."""
    rng = np.random.default_rng(2)
    ops = ("<=", ">=", "=", "!=")

    def part(n: int) -> Clauses:
        return clauses_of(
            [[(int(rng.integers(40)), ops[int(rng.integers(4))], int(rng.integers(2, 99)))] for _ in range(n)], 40
        )

    tree = PBTreeMemory.build(part(3000), page=4096)
    for _ in range(3000):
        tree.insert(part(1))
    check(tree)
    assert tree._tree[KEYS] > 3000
    assert 0 < tree._tree[ADJUSTED] / 3000 < 3


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_pages_visited_grow_with_the_logarithm_and_the_output(kind):
    """O(log n + L): entries met are predicates satisfied, and pages visited are few more than hold these."""
    rng = np.random.default_rng(1)
    fixed = {}
    for n in (3_000, 30_000, 300_000):
        clauses = thirds(rng.integers(3_000, 2_000_000, n), 2_000_001)
        lo, hi = clauses.lo, clauses.hi
        lo[-1000:] = np.arange(1000) + 2  # what an event of 1,500 satisfies of >=, for every n
        tree = KINDS[kind](clauses)
        height = tree.plan()["height"]
        for x in (1, 1_500, 700_000, 1_999_999):
            pairs = tree.match(events_of([{0: x}]), 1)
            holds = int(((lo <= x) & (x <= hi)).sum())
            assert pairs.count == pairs.candidates == pairs.predicates == holds
            entries_a_page = (1024 - HEAD) / (ITEM + 1)  # where each has a key of its own
            assert pairs.nodes <= height + 1 + 2 * LISTS + holds / (entries_a_page * 0.8)
        less = clauses.take(np.arange(0, n // 3).astype(np.int64))  # = only: the output stays the same
        fixed[n] = KINDS[kind](less).match(events_of([{0: int(lo[0])}]), 1).nodes
    assert fixed[300_000] <= fixed[3_000] + 2 <= 6


def test_a_larger_value_satisfies_every_smaller_bound(build):
    """Attribute > 10 is true means that Attribute > 5 is true too."""
    tree = build(clauses_of([[(0, ">", 10)], [(0, ">", 5)], [(0, "<", 10)], [(0, "<", 5)]]))
    assert matched(tree, [{0: 11}, {0: 10}, {0: 6}, {0: 5}, {0: 4}]) == [{0, 1}, {1}, {1, 2}, {2}, {2, 3}]


def test_stock_example(build):
    """Section 2: CompanyName 0 (Intel is 3, Yahoo is 7), Price 1, ChangeRatio 2, in cells."""
    price, ratio = {500: 50, 1000: 60, 5000: 70}, {0.03: 10, 0.05: 20, 0.1: 30}
    rows = [
        [(0, "=", 7), (1, ">", price[1000]), (2, "<", ratio[0.05])],
        [(0, "=", 7), (1, "<", price[1000])],
    ]
    tree = build(clauses_of(rows, 3))
    events = [
        {0: 3, 1: price[5000], 2: ratio[0.03]},
        {0: 7, 1: price[500], 2: ratio[0.1]},
        {0: 7, 1: price[5000], 2: ratio[0.03]},
    ]
    assert matched(tree, events) == [set(), {1}, {0}]


@pytest.mark.parametrize("times", [1, 200, 2000])
def test_every_operator_at_below_and_above_its_constant(build, times):
    """Lists of one entry, of a page, and of many pages."""
    rows = [[(0, op, 50)] for op in ("<", "<=", "=", "!=", ">=", ">")] * times
    tree = build(clauses_of(rows))
    # 51 stands for all values between 50 and the next constant.
    found = matched(tree, [{0: 49}, {0: 50}, {0: 51}])
    kinds = [{0, 1, 3}, {1, 2, 4}, {3, 4, 5}]
    assert found == [{6 * i + k for i in range(times) for k in own} for own in kinds]


@pytest.mark.parametrize("times", [1, 2000])
def test_one_constant_of_many_inequalities(build, times):
    """Its entries go on over pages, with keys of other operators below and above it, or none."""
    other = [[(0, "=", 30)], [(0, "!=", 70)], [(0, "<=", 90)]]
    for others in ([], other[:1], other[1:], other):
        tree = build(clauses_of([[(0, "!=", 50)] for _ in range(times)] + others))
        found = matched(tree, [{0: x} for x in (1, 30, 49, 50, 51, 70, 100)])
        assert [len({r for r in own if r < times}) for own in found] == [times] * 3 + [0] + [times] * 3


# ---- what the coded model adds ----


def test_what_lies_outside_the_limits_is_filed_apart_until_it_is_much(build):
    """Limits stand as they were taken, and rows beyond them are right all the same; after many, limits move."""
    first = set(range(200))
    tree = build(clauses_of([[(0, "between", (20, 60))] for _ in first]))
    assert tree._filed[0, GREATER] == 0, "each begins at the floor, 20"
    tree.insert(clauses_of([[(0, "between", (10, 30))], [(0, "between", (50, 90))], [(0, "between", (5, 95))]]))
    check(tree)
    assert tree.plan()["outside the limits"] == 6
    found = matched(tree, [{0: 7}, {0: 15}, {0: 25}, {0: 55}, {0: 70}, {0: 95}, {0: 96}])
    late = [[202], [200, 202], [200, 202], [201, 202], [201, 202], [202], []]
    assert [sorted(f - first) for f in found] == late
    assert [len(f & first) for f in found] == [0, 0, 200, 200, 0, 0, 0]
    for _ in range(60):
        tree.insert(clauses_of([[(0, "<=", 70)]]))
    check(tree)
    assert tree.plan()["outside the limits"] < 60
    assert [len(f) for f in matched(tree, [{0: 7}, {0: 25}, {0: 70}, {0: 96}])] == [61, 262, 62, 0]


def test_lists_of_ranges_are_counted(build):
    """A predicate of ranges and points holds once for any value in them; long lists and long conjunctions, whose
    counts do not fit, are tested on the clause."""
    rng = np.random.default_rng(5)
    size, attribute, lo, hi, span_lo, span_hi = [], [], [], [], [], []
    for predicates, spans in ((1, 3), (2, 16), (1, 30), (3, 40), (40, 9), (300, 1), (1, 100)):
        size.append(predicates)
        for a in range(predicates):
            attribute.append(a)
            bounds = np.sort(rng.choice(np.arange(1, 400), 2 * spans, replace=False)).tolist()
            own = [(x, x if rng.random() < 0.3 else y) for x, y in zip(bounds[::2], bounds[1::2])]
            if spans == 1:
                lo.append(1)
                hi.append(390)
            else:
                lo.append(len(span_lo))
                hi.append(-spans)
                span_lo += [x for x, _ in own]
                span_hi += [y for _, y in own]
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    columns = (np.array(x, np.int32) for x in (attribute, lo, hi, span_lo, span_hi, [], []))
    clauses = Clauses(offsets, *columns, conjunctions=len(size), attributes=300)
    tree = build(clauses)
    check(tree)
    assert tree._verify[:7].tolist() == [0, 0, 1, 1, 1, 1, 1]
    # Values that satisfy the first 40 attributes' predicates more often than chance: starts of their spans.
    events = [{a: int(rng.integers(1, 400)) for a in range(300)} for _ in range(150)]
    for e in range(0, 150, 3):
        for a in range(40):
            p = int(offsets[4]) + a
            events[e][a] = int(clauses.span_lo[clauses.lo[p]])
    batch = events_of(events)
    wanted = expected(clauses, batch)
    assert pairs_of(tree, batch) == wanted
    assert len({r for _, r in wanted}) >= 5


# ---- counters ----


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=200), st.sampled_from(["u1", "u2", "u4"]))
def test_counters_that_are_zero_are_taken_and_all_are_set_back(rows, dtype):
    now, sizes = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    size = counters(sizes, 5).astype(dtype)
    left, found = size.copy(), np.full(len(size) + 1, -1, np.int32)
    left[: len(rows)] = now
    n, changed = take_zeros(left, size, found)
    assert found[:n].tolist() == np.flatnonzero(now == 0).tolist() and (found[n:] == -1).all()
    assert changed == np.count_nonzero(now != sizes)
    assert (left == size).all()
