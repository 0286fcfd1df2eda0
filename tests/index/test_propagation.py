"""Propagation: what its two phases do, told by counters, and what its arrays promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coded import conjunctions_of, events_of, expected, random_clauses, random_events
from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.auto.bit_layout import EQ, true_predicate
from dibs.index.conjunctions import select
from dibs.index.predicates import distinct
from dibs.index.statistics import guess_presence, highest_cells, probabilities
from dibs.papers.structures.propagation import Propagation


def ranges_of(rows: list[list[tuple[int, int, int]]], attributes: int) -> Clauses:
    """Rows of predicates (attribute, lo, hi)."""
    return conjunctions_of(([(a, [(lo, hi)]) for a, lo, hi in row] for row in rows), attributes)


def random_pair(seed: int, rows: int = 150, attributes: int = 6, cells: int = 30) -> tuple[Clauses, CodedEvents]:
    rng = np.random.default_rng(seed)
    clauses, _, _ = select(random_clauses(rng, rows, attributes, cells, programs=0), several=False)
    return clauses, random_events(rng, 25, attributes, cells, several=False)


def pairs_of(index: Propagation, events: CodedEvents) -> set[tuple[int, int]]:
    pairs = index.match(events, 1)
    found = list(zip(pairs.event.tolist(), pairs.row.tolist()))
    assert len(found) == len(set(found))
    return set(found)


def single(clauses: Clauses, predicates: np.ndarray) -> Clauses:
    """A clause for each of the predicates."""
    one = np.arange(len(predicates) + 1)
    columns = (getattr(clauses, n)[predicates] for n in ("attribute", "lo", "hi"))
    none = np.empty(0, np.int32)
    spans = clauses.span_lo, clauses.span_hi
    return Clauses(one, *columns, *spans, none, none, len(predicates), clauses.attributes)


def tables(index: Propagation) -> list[tuple[int, list[int], list[list[int]]]]:
    """(access predicate, rows, other predicates of each row), read from the arrays."""
    a = index.arrays()
    bits = np.unpackbits(a["access"].view(np.uint8), bitorder="little")
    true, words, result = true_predicate(len(a["key"])), a["clusters"], []
    for i, access in enumerate(np.flatnonzero(bits).tolist()):
        at = int(a["start"][i])
        m = int(words[at])
        first, second, rows, distance = (words[at + 1 + m * j : at + 1 + m * (j + 1)] for j in range(4))
        others = []
        for c in range(m):
            here = at + 1 + 3 * m + c
            rest = words[here + distance[c] : here + 1 + words[here + 1]].tolist()
            others.append([p for p in (int(first[c]), int(second[c])) if p != true] + rest)
        result.append((access, rows.tolist(), others))
    return result


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_clusters_hold_every_row_once_by_its_most_selective_predicate(seed):
    clauses, _ = random_pair(seed)
    index = Propagation.build(clauses, access="any")
    number, example = distinct(clauses)
    share = probabilities(clauses, guess_presence(clauses), highest_cells(clauses))[example]
    own = [number[clauses.offsets[r] : clauses.offsets[r + 1]] for r in range(len(clauses))]
    seen: list[int] = []
    shares: dict[int, float] = {}  # of each predicate by its number in the index: the same wherever it stands
    for access, rows, others in tables(index):
        assert [len(o) for o in others] == sorted(len(o) for o in others), "clusters are ordered by size"
        for row, rest in zip(rows, others):
            seen.append(row)
            wanted = np.sort(share[own[row]]).tolist()
            assert len(wanted) == 1 + len(rest)
            for predicate, likely in zip([access, *rest], wanted):
                assert shares.setdefault(predicate, likely) == likely
    assert sorted(seen) == list(range(len(clauses)))


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_candidates_are_the_rows_whose_access_predicate_holds(seed):
    clauses, events = random_pair(seed)
    index = Propagation.build(clauses, access="any")
    pairs = index.match(events, 1)
    number, example = distinct(clauses)
    holds = expected(single(clauses, example), events)  # (event, distinct predicate)
    share = probabilities(clauses, guess_presence(clauses), highest_cells(clauses))
    low, high = 0, 0  # several predicates of a row may be equally likely: any of them may give access
    for e in range(len(events)):
        for r in range(len(clauses)):
            own = np.arange(clauses.offsets[r], clauses.offsets[r + 1])
            best = own[share[own] == share[own].min()]
            outcome = [(e, int(number[p])) in holds for p in best]
            low, high = low + all(outcome), high + any(outcome)
    assert low <= pairs.candidates <= high
    assert pairs.count == len(expected(clauses, events))


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_first_phase_finds_each_satisfied_predicate_once(seed):
    """Rows of at most three predicates are decided by two bits beside their access predicate, so the rest of the
    counter is the first phase: the distinct predicates that hold."""
    clauses, events = random_pair(seed)
    short = np.flatnonzero(np.diff(clauses.offsets) <= 3)
    rows = [np.arange(clauses.offsets[r], clauses.offsets[r + 1]) for r in short]
    kept = single(clauses, np.concatenate(rows))
    kept.offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    kept.conjunctions = len(rows)
    pairs = Propagation.build(kept, access="any").match(events, 1)
    holds = expected(single(kept, distinct(kept)[1]), events)
    assert pairs.predicates == len(holds) + 2 * pairs.candidates
    assert pairs.count == len(expected(kept, events))


def test_numbers_of_one_group_are_runs():
    """= 3, = 7, <= 4, <= 8, >= 2, >= 6 over the cells 1 to 9, each a row: a value of 5 satisfies <= 8 and >= 2."""
    rows = [[(0, 3, 3)], [(0, 7, 7)], [(0, 1, 4)], [(0, 1, 8)], [(0, 2, 9)], [(0, 6, 9)]]
    index = Propagation.build(ranges_of(rows[::-1], 1), access="any")
    assert index.arrays()["key"].tolist() == [3, 7, 4, 8, 2, 6]
    assert index.arrays()["groups"][:, :5].tolist() == [[0, 2, 4, 6, 6], [6] * 5]
    pairs = index.match(events_of([{0: 5}]), 1)
    assert sorted(pairs.row.tolist()) == [1, 2] and pairs.nodes == 2


def test_equality_reads_one_cluster_however_many_there_are():
    for rows in (1_000, 20_000):
        clauses = ranges_of([[(0, 2 * r + 1, 2 * r + 1), (1, 1, 5)] for r in range(rows)], 2)
        pairs = Propagation.build(clauses, access="any").match(events_of([{0: 2 * r + 1, 1: 3} for r in range(50)]), 1)
        assert (pairs.candidates, pairs.nodes, pairs.count) == (50, 50, 50)


def test_many_spans_of_one_attribute():
    """More spans than a block: those that end before the value are skipped."""
    rng = np.random.default_rng(1)
    start = rng.integers(10, 5_000, 2_000)
    rows = [[(0, int(a), int(a + w))] for a, w in zip(start, rng.integers(1, 60, len(start)))]
    rows += [[(0, 1, int(x))] for x in (100, 2_000)] + [[(0, int(x), 6_000)] for x in (100, 2_000)]
    clauses = ranges_of(rows, 1)
    events = events_of([{0: int(v)} for v in (*rng.integers(1, 6_000, 30), 6_001)])
    assert pairs_of(Propagation.build(clauses, access="any"), events) == expected(clauses, events)


@pytest.mark.parametrize("rows", [3, 30_000])
def test_no_bit_is_left_behind_and_rooms_do_not_count(rows):
    """30,000 matches do not fit into the first room, so the event is begun again: what it did counts once."""
    clauses = ranges_of([[(0, 1, 4), (1, 2, 9), (2, 3, 3), (3, 1, 1)]] * rows, 4)
    index = Propagation.build(clauses, access="any")
    event = {0: 2, 1: 5, 2: 3, 3: 1}
    for _ in range(2):
        pairs = index.match(events_of([event, {0: 2}, event]), 1)
        assert (pairs.candidates, pairs.predicates, pairs.nodes) == (2 * rows, 2 * (4 + 3 * rows) + 1, 2)
        assert pairs.count == 2 * rows
        for (bits, *_), _ in index._pool._idle:
            assert bits[-1] == 1 and not bits[:-1].any()


def test_arrays_say_what_the_docstring_says():
    clauses, _ = random_pair(3, rows=400)
    a = Propagation.build(clauses, access="any").arrays()
    assert all(x.flags.c_contiguous and x.flags.writeable for x in a.values())
    for attribute in range(clauses.attributes):
        begin, end = a["groups"][attribute, :4], a["groups"][attribute, 1:5]
        for p, q in zip(begin, end):
            assert (np.diff(a["key"][p:q]) > 0).all(), "a group is sorted, and its predicates differ"
        s, t = a["groups"][attribute : attribute + 2, 5]
        assert (np.diff(a["span_begin"][s:t]) >= 0).all()
        inside = a["span_predicate"][s:t]
        assert ((inside >= a["groups"][attribute, 4]) & (inside < a["groups"][attribute + 1, EQ])).all()
    for i, x in enumerate(a["span_end"]):
        assert a["span_reach"][i // 64] >= x


def test_only_equality_gives_access_as_published():
    """A clause without equality is looked at for every event, whatever attributes this has."""
    rows = [[(0, 1, 9), (1, 3, 3)], [(0, 1, 9), (1, 3, 3), (2, 5, 5)], [(0, 1, 4), (1, 2, 8)], [(2, 1, 3)]]
    index = Propagation.build(ranges_of(rows, 4))
    true = true_predicate(len(index.arrays()["key"]))
    access = {row: predicate for predicate, own, _ in tables(index) for row in own}
    assert access[2] == access[3] == true and true not in (access[0], access[1])
    assert index.plan()["clauses looked at for every event"] == 2
    pairs = index.match(events_of([{0: 2, 1: 3}, {3: 1}, {2: 2}]), 1)
    assert sorted(zip(pairs.event.tolist(), pairs.row.tolist())) == [(0, 0), (0, 2), (2, 3)]
    assert (pairs.candidates, pairs.nodes) == (2 + 3 * 2, 1 + 3)


@pytest.mark.parametrize("seed", range(20))
def test_every_row_is_in_one_cluster_whatever_gives_access(seed):
    clauses, events = random_pair(seed)
    index = Propagation.build(clauses)
    assert sorted(row for _, own, _ in tables(index) for row in own) == list(range(len(clauses)))
    assert pairs_of(index, events) == expected(clauses, events)
