"""Tatbul (2001): the worked examples of the text, what is said of each tree, and its figures by counted evaluations.

Cells stand for the values themselves: the paper's examples are over integers, and a cell is compared as a value is.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coded import expected, random_clauses, random_events
from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index import create, find
from dibs.papers.structures.tatbul.bit_vectors import RANK, WORD
from dibs.papers.structures.tatbul.cluster import best_key, split
from dibs.papers.structures.tatbul.interval import elementary
from dibs.tuning import numbers

NAMES = ["cluster", "interval", "hybrid", "segment-tree", "interval-tree"]
EXACT = [name for name in NAMES if name != "cluster"]
NO_CUTS = np.zeros(2, np.int64), np.empty(0, np.int32)


def profiles(rows, attributes=1):
    """Clauses of rows, each a list of (attribute, first cell, last cell)."""
    flat = [p for row in rows for p in row]
    attribute, lo, hi = (np.array([p[i] for p in flat], np.int32) for i in range(3))
    none = np.empty(0, np.int32)
    offsets = np.cumsum([0, *map(len, rows)])
    return Clauses(offsets, attribute, lo, hi, none, none, none, none, len(rows), attributes)


def documents(values):
    """Events that have the attributes 0, 1, ... with these cells."""
    cell = np.array(values, np.int32).ravel()
    width = len(values[0])
    attribute = np.tile(np.arange(width, dtype=np.int32), len(values))
    return CodedEvents(np.arange(0, len(cell) + 1, width), attribute, cell, cell, True)


def rows_of(index, values):
    return [sorted(index.match(documents([v]), 1).row.tolist()) for v in values]


def pairs_of(pairs):
    found = list(zip(pairs.event.tolist(), pairs.row.tolist()))
    assert len(found) == len(set(found)), "a pair was reported twice"
    return set(found)


# ---- the examples of the text ----

# The text walks x = 20 through Figure 6: the root is 35, whose list by first value is 4, 6, 1, 2, 7 and stops at 7; its
# left child is 25, which has only 0. (The profiles themselves are in a figure; these have that tree.)
EXAMPLE_4 = [(15, 25), (12, 40), (18, 35), (26, 33), (2, 45), (52, 70), (8, 36), (30, 55), (57, 62), (66, 80)]


@pytest.mark.parametrize("name", NAMES)
def test_example_4(name):
    index = create(name, profiles([[(0, lo, hi)] for lo, hi in EXAMPLE_4]))
    assert rows_of(index, [[20]]) == [[0, 1, 2, 4, 6]]
    for value in range(1, 90):
        wanted = [i for i, (lo, hi) in enumerate(EXAMPLE_4) if lo <= value <= hi]
        assert rows_of(index, [[value]]) == [wanted]


def test_example_4_in_the_interval_tree():
    clauses = profiles([[(0, lo, hi)] for lo, hi in EXAMPLE_4])
    index = find("interval-tree").build(clauses)
    arrays = index.arrays()
    point, left, right, start, end = arrays["nodes"][0].tolist()
    profile = arrays["row"][arrays["entries"]].tolist()
    assert point == 35 and profile[start:end] == [4, 6, 1, 2, 7]
    assert arrays["bounds"][start:end].tolist() == [2, 8, 12, 18, 30]
    by_last = slice(len(EXAMPLE_4) + start, len(EXAMPLE_4) + end)
    assert arrays["bounds"][by_last].tolist() == [35, 36, 40, 45, 55]
    point, _, _, start, end = arrays["nodes"][left].tolist()
    assert point == 25 and profile[start:end] == [0] and right >= 0
    pairs = index.match(documents([[20]]), 1)
    # 35; 4, 6, 1, 2 and 7, where the list ends; 25; 0.
    assert (pairs.nodes, pairs.predicates) == (2, 8)
    # A value that is the point of a node: all that it has, and nothing below it.
    pairs = index.match(documents([[35]]), 1)
    assert (pairs.nodes, pairs.predicates, pairs.count) == (1, 1, 5)


def test_the_key_of_the_cluster_example():
    """Endpoints 2, 6, 19, 21, 23, 48, 50: first 21, with 3 and 4 of 5 profiles, then 48 with 5 and 2, then 23."""
    rows = [(2, 6), (6, 21), (19, 48), (21, 23), (23, 50)]
    points = [2, 6, 19, 21, 23, 48, 50]
    began = np.array([sum(lo < p for lo, _ in rows) for p in [*points, 99]])
    ended = np.array([sum(hi < p for _, hi in rows) for p in [*points, 99]])

    def score(k):
        left, right = began[k], len(rows) - ended[k]
        return left, right, abs(left - right) + left + right - len(rows)

    assert score(3) == (3, 4, 3) and score(5) == (5, 2, 5) and score(4) == (4, 3, 3)
    assert points[best_key(began, ended, 0, 7)] == 21
    nodes = find("cluster").build(profiles([[(0, *r)] for r in rows])).arrays()["nodes"]
    assert nodes[0, 0] == 21


def test_elementary_intervals():
    """The endpoints 2, 5, 18, 30 cut the line into 9; here they are the cells 2, 4, 6, 8 and the gaps the odd ones."""
    lo, hi = np.array([2, 3, 6, 7], np.int32), np.array([4, 3, 8, 7], np.int32)  # [2, 5], (2, 5), [18, 30], (18, 30)
    start = np.array([0, 4])
    nodes, slots, first, last = elementary(start, lo, hi, *NO_CUTS, False)
    assert nodes.tolist() == [[2, 2], [3, 3], [4, 4], [6, 6], [7, 7], [8, 8]], "no node where no profile is satisfied"
    assert list(zip(first.tolist(), last.tolist())) == [(0, 2), (1, 1), (3, 5), (4, 4)] and slots.tolist() == [0, 6]
    nodes, _, _, _ = elementary(start, lo, hi, *NO_CUTS, True)
    assert nodes.tolist() == [[2, 2], [3, 3], [4, 4], [5, 5], [6, 6], [7, 7], [8, 8]]
    nodes, _, _, _ = elementary(start, lo[[0, 2, 0, 2]], hi[[0, 2, 0, 2]], *NO_CUTS, False)
    assert nodes.tolist() == [[2, 4], [6, 8]], "cut only where some profile begins or ends"


# ---- what is said of each tree ----

intervals = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 25)), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(intervals, st.integers(1, 5))
def test_clusters_are_split_as_said(spans, minimum):
    """Each leaf has the profiles that meet its values; no larger one could be split; keys come by halving."""
    rows = sorted((lo, lo + more) for lo, more in spans)
    lo, hi = (np.array([r[i] for r in rows], np.int32) for i in range(2))
    nodes, _, cells, slots, first, last = split(np.array([0, len(rows)]), lo, hi, minimum)
    points = sorted({*lo.tolist(), *hi.tolist()})
    leaves = []

    def walk(at, low, high):
        """low: the first endpoint of the cluster; high: the first one behind it."""
        inside = [r for r in rows if (high is None or r[0] < high) and r[1] >= low]
        keys = [p for p in points if p > low and (high is None or p < high)]
        useful = [k for k in keys if any(r[1] < k for r in inside) and any(r[0] >= k for r in inside)]
        if at < 0:
            assert len(inside) <= minimum or not useful
            leaf = ~at
            assert leaf == len(leaves) and cells[leaf] == (low if leaf else 0)
            assert [r for r, x, y in zip(rows, first, last) if x <= leaf <= y] == inside
            leaves.append(leaf)
            return
        key, left, right = nodes[at].tolist()
        assert len(inside) > minimum and key in useful
        assert key == halving(inside, keys, useful)
        walk(left, low, key)
        walk(right, key, high)

    walk(0 if len(nodes) else -1, points[0], None)
    assert len(leaves) == slots[1]


def halving(inside, keys, useful):
    for candidates in (keys, useful):
        best = None
        while candidates:
            key = candidates[(len(candidates) - 1) // 2]
            left, right = sum(r[0] < key for r in inside), sum(r[1] >= key for r in inside)
            score = abs(left - right) + left + right - len(inside)
            if key in useful and (best is None or score < best[0]):
                best = score, key
            candidates = [k for k in candidates if (k < key if left > right else k > key)]
        if best:
            return best[1]
    return None


def test_nested_profiles_cannot_be_split():
    clauses = profiles([[(0, 1 + i, 100 - i)] for i in range(40)])
    index = create("cluster", clauses)
    assert index.plan()["nodes"] == 0 and index.plan()["leaves"] == 1
    pairs = index.match(documents([[20]]), 1)
    assert (pairs.predicates, pairs.count) == (40, 20), "every profile of the only cluster is verified"
    hybrid = create("hybrid", clauses).match(documents([[20]]), 1)
    assert hybrid.count == 20 and hybrid.predicates <= math.log2(2 * 40) + 1


@settings(max_examples=60, deadline=None)
@given(intervals)
def test_segment_tree_keeps_a_profile_as_high_as_it_can(spans):
    rows = [(lo, lo + more) for lo, more in spans]
    index = find("segment-tree").build(profiles([[(0, *r)] for r in rows]))
    arrays = index.arrays()
    cells, starts, entries = arrays["cells"], arrays["starts"], arrays["entries"]
    leaves = len(cells) - 1
    node, width, level = 0, leaves, 0
    covers = {}  # node -> its cells
    levels = []
    while True:
        levels.append([])
        for i in range(width):
            a, b = i << level, min((i + 1) << level, leaves)
            covers[node] = set(range(cells[a], cells[b]))
            levels[-1].append(node)
            node += 1
        if width == 1:
            break
        width, level = (width + 1) // 2, level + 1
    ends = [*starts.tolist()[1:-1], len(entries)]
    kept = {n: arrays["row"][entries[starts[n] : ends[n]]].tolist() for n in covers}
    for r, (lo, hi) in enumerate(rows):
        inside = set(range(lo, hi + 1))
        at = [n for n in covers if r in kept[n]]
        assert set().union(*(covers[n] for n in at)) == inside
        assert sum(len(covers[n]) for n in at) == len(inside), "once on the way to each leaf"
        for nodes, above in zip(levels, levels[1:]):
            assert all(not covers[above[nodes.index(n) // 2]] <= inside for n in at if n in nodes)
            assert sum(n in nodes for n in at) <= 2


@settings(max_examples=60, deadline=None)
@given(intervals)
def test_interval_tree_keeps_a_profile_once(spans):
    rows = [(lo, lo + more) for lo, more in spans]
    arrays = find("interval-tree").build(profiles([[(0, *r)] for r in rows])).arrays()
    n = len(rows)
    profile = arrays["row"][arrays["entries"]]
    assert sorted(profile[:n].tolist()) == sorted(profile[n:].tolist()) == list(range(n))
    for point, left, right, start, end in arrays["nodes"].tolist():
        assert start < end
        assert profile[start:end].tolist() != [] and set(profile[start:end]) == set(profile[n + start : n + end])
        assert all(rows[r][0] <= point <= rows[r][1] for r in profile[start:end])
        for half in (arrays["bounds"][start:end], arrays["bounds"][n + start : n + end]):
            assert (np.diff(half) >= 0).all()
        for child, side in ((left, -1), (right, 1)):
            if child >= 0:
                assert (arrays["nodes"][child, 0] - point) * side > 0
    assert len(arrays["nodes"]) <= n


@pytest.mark.parametrize("count", [1, 2, 7, 8, 100, 1000])
def test_searches_in_trees_of_points(count):
    """Disjoint profiles: a search in a segment tree always reaches a leaf, one in an interval index may stop."""
    clauses = profiles([[(0, 2 * i + 2, 2 * i + 2)] for i in range(count)])
    inside = documents([[2 * i + 2] for i in range(count)])
    depth = math.floor(math.log2(count)) + 1
    interval, segment = create("interval", clauses), create("segment-tree", clauses)
    assert interval.plan()["nodes"] == count and interval.plan()["depth"] == depth
    each = [interval.match(documents([[2 * i + 2]]), 1).predicates for i in range(count)]
    assert min(each) == 1 and max(each) == depth
    # The root of a balanced tree is the middle one.
    assert each.index(1) == (count - 1) // 2
    leaves = 2 * count - 1  # with the gaps
    found = segment.match(inside, 1)
    assert found.count == count
    assert count * math.floor(math.log2(leaves)) <= found.predicates <= count * (math.ceil(math.log2(leaves)) + 1)


# ---- bit vectors ----


def random_spans(rng, rows, attributes, cells, width, each=2):
    """Rows of up to `each` predicates, of spans up to `width` cells; `cells` may be a number for each attribute."""
    cells, result = np.broadcast_to(cells, attributes), []
    for _ in range(rows):
        chosen = np.sort(rng.choice(attributes, int(rng.integers(1, each + 1)), replace=False))
        lo = rng.integers(1, cells[chosen])
        hi = np.minimum(lo + rng.integers(0, width, len(chosen)), cells[chosen] - 1)
        result.append(list(zip(chosen.tolist(), lo.tolist(), hi.tolist())))
    return profiles(result, attributes)


def by_numpy(clauses, events):
    """The pairs, predicate by predicate over all rows at once."""
    row = np.repeat(np.arange(len(clauses)), np.diff(clauses.offsets))
    size, result = np.diff(clauses.offsets), set()
    for e in range(len(events)):
        value = np.zeros(clauses.attributes, np.int32)
        part = slice(events.offsets[e], events.offsets[e + 1])
        value[events.attribute[part]] = events.lo[part]
        v = value[clauses.attribute]
        held = np.bincount(row[(clauses.lo <= v) & (v <= clauses.hi)], minlength=len(size))
        result |= {(e, r) for r in np.flatnonzero(held == size).tolist()}
    return result


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [3, 60, 3000])
def test_many_slots_are_lists_of_differences(name, width):
    rng = np.random.default_rng(width)
    clauses = random_spans(rng, 3000, 3, 4000, width)
    events = random_events(rng, 60, 3, 4000, several=False)
    index = find(name).build(clauses)
    assert pairs_of(index.match(events, 2)) == by_numpy(clauses, events)
    if name in ("interval", "hybrid"):
        table = index.arrays()["table"]
        assert (table[:, WORD] < 0).all(), "these are to be lists"
        # Each interval begins and ends once, and an anchor is paid for by differences.
        assert len(index.arrays()["entries"]) <= 2 * len(clauses.lo) * (1 + 1 / numbers["tatbul_differences"].value)


@pytest.mark.parametrize("name", NAMES)
def test_words_and_lists_together(name):
    """One attribute of many values, one of few; rows of only one and of both."""
    rng = np.random.default_rng(4)
    clauses = random_spans(rng, 2000, 2, [30, 4000], 900)
    events = random_events(rng, 80, 2, 4000, several=False)
    events.lo[events.attribute == 0] %= 31
    index = find(name).build(clauses)
    assert pairs_of(index.match(events, 1)) == by_numpy(clauses, events)
    if name == "interval":
        assert (index.arrays()["table"][:, WORD] >= 0).tolist() == [True, False]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attributes", [6, 700])
def test_large_and_small_attributes(name, attributes):
    """Attributes with more members than there are blocks of places, and with fewer."""
    rng = np.random.default_rng(attributes)
    clauses = random_spans(rng, 6000, attributes, 40, 25, each=4)
    events = random_events(rng, 40, attributes, 40, several=False, most=400)
    index = find(name).build(clauses)
    assert pairs_of(index.match(events, 2)) == by_numpy(clauses, events)
    if name in ("cluster", "interval", "hybrid"):
        table = index.arrays()["table"]
        assert ((table[:, RANK] >= 0).mean() > 0.9) == (attributes == 6)


@pytest.mark.parametrize("name", ["interval", "interval-tree"])
def test_profiles_of_more_predicates_than_a_short_counter_counts(name):
    count = 1 << 16
    clauses = profiles([[(a, 2, 3) for a in range(count)], [(7, 1, 1)], [(7, 2, 2)]], count)
    values = np.full(count, 2)
    index = find(name).build(clauses)
    assert index.arrays()["size"].dtype == np.uint32
    assert rows_of(index, [values]) == [[0, 2]]
    values[3] = 1
    assert rows_of(index, [values]) == [[2]]


def test_pivots_rule_out_most_profiles():
    """Candidates are near those whose least likely predicate holds, not all that an attribute of the event has."""
    rows = [[(0, 1 + i % 100, 1 + i % 100), (1, 1, 50)] for i in range(20_000)]
    index = find("interval").build(profiles(rows, 2), pivots=True)
    pairs = index.match(documents([[7, 20]]), 1)
    assert pairs.count == 200 and pairs.candidates <= 200 + 2 * 256


@pytest.mark.parametrize("name", NAMES)
def test_several_spans(name):
    """!=, IN and NOT IN, whose spans may fall into one cluster."""
    rng = np.random.default_rng(5)
    clauses = random_clauses(rng, 400, 3, 25, programs=0)
    events = random_events(rng, 50, 3, 25, several=False)
    assert (clauses.hi < 0).sum() > 50
    assert pairs_of(create(name, clauses).match(events, 1)) == expected(clauses, events)


# ---- the figures ----


def workload(rng, count, width):
    """Profiles of two closed intervals of one width, dispersed from an origin by a Zipf distribution, either way."""
    away = np.minimum(rng.zipf(1.3, (count, 2)), 450) * rng.choice([-1, 1], (count, 2))
    lo = 500 + away - width // 2
    rows = [[(a, int(max(lo[i, a], 1)), int(min(lo[i, a] + width, 1000))) for a in range(2)] for i in range(count)]
    return profiles(rows, 2), documents(rng.integers(1, 1001, (50, 2)).tolist())


def evaluations(name, clauses, events):
    return create(name, clauses).match(events, 1).predicates / len(events)


def test_evaluations_by_number_of_profiles():
    """Figure 7: 100 to 1000 profiles of little overlap. All far below no index (2 predicates a profile), the interval
    index and the cluster index best; all grow as logarithms do, not as the profiles."""
    rng = np.random.default_rng(7)
    for count in (100, 1000):
        lo = rng.integers(1, 20_000, (count, 2))
        rows = [[(a, int(lo[i, a]), int(lo[i, a]) + 10) for a in range(2)] for i in range(count)]
        events = documents(rng.integers(1, 20_010, (50, 2)).tolist())
        cost = {name: evaluations(name, profiles(rows, 2), events) for name in NAMES}
        assert max(cost.values()) < 0.25 * 2 * count
        assert cost["interval"] <= 2 * (math.log2(2 * count) + 1)
        assert cost["interval"] < min(cost["segment-tree"], cost["hybrid"])
        assert cost["segment-tree"] <= 2 * (math.log2(2 * count) + 2)
        assert max(cost["interval"], cost["cluster"]) < cost["segment-tree"]


def test_evaluations_by_overlap():
    """Figure 8: the interval index and the segment tree do not mind overlap, the cluster index and the interval tree
    do, and the hybrid index is better than the cluster index once overlap is very high."""
    cost = {name: [] for name in NAMES}
    for width in (10, 100, 400, 900):
        clauses, events = workload(np.random.default_rng(8), 100, width)
        for name in NAMES:
            cost[name].append(evaluations(name, clauses, events))
    bound = 2 * (math.log2(2 * 100) + 2)
    for name in ("interval", "segment-tree", "hybrid"):
        assert max(cost[name]) <= (1.5 if name == "hybrid" else 1) * bound
    for name in ("cluster", "interval-tree"):
        assert cost[name][-1] > 4 * cost[name][0] and cost[name][-1] > 2 * bound
        assert cost[name][0] < cost[name][2] < cost[name][3]
    assert cost["hybrid"][-1] < cost["cluster"][-1] / 3


@pytest.mark.parametrize("name", EXACT)
def test_exact_trees_verify_nothing(name):
    """Evaluations do not depend on how many profiles match, but in the lists of the interval tree."""
    one = profiles([[(0, 10, 20), (1, 10, 20)]] * 1, 2)
    many = profiles([[(0, 10, 20), (1, 10, 20)]] * 5000, 2)
    for values in ([15, 15], [10, 15], [5, 15]):
        cost = [evaluations(name, clauses, documents([values])) for clauses in (one, many)]
        if name == "interval-tree":
            assert cost[0] <= cost[1]
        else:
            assert cost[0] == cost[1]
