"""Structures as published (the option `profile`): what they do otherwise than ours, on examples that can be counted."""

from __future__ import annotations

import numpy as np
import pytest

import dibs
from coded import conjunctions_of, events_of, expected, pairs_of, random_clauses, random_events
from dibs.index import INDEXES, create, options_of
from dibs.index.base import do_pending
from dibs.papers.structures.betree.betree import BETree
from dibs.papers.structures.counting import Counting
from dibs.papers.structures.kindex import KIndex
from dibs.papers.structures.opindex.opindex import OpIndex
from dibs.papers.structures.profiles import OURS, PUBLISHED, profiles_of
from dibs.papers.structures.propagation import Propagation
from dibs.papers.structures.pstree import psthash
from dibs.papers.structures.pstree.pstbloom import PSTBloom
from dibs.papers.structures.tatbul.interval import Interval

WITH_PROFILES = [name for name in INDEXES if profiles_of(options_of(name))]


def test_who_has_a_published_form():
    assert len(WITH_PROFILES) == 14 and "auto" not in WITH_PROFILES
    assert all("option profile='ours'" in dibs.indexes()[name] for name in WITH_PROFILES)


def test_opindex_writes_an_interval_as_two_predicates():
    """Section 4.2: E in [3, 12] is E >= 3 and E <= 12. An interval that reaches the end of the domain is one."""
    rows = [[(0, [(3, 12)])], [(0, [(1, 20)]), (1, [(5, 5)])], [(0, [(1, 7)])], [(0, [(9, 20)])]]
    clauses, events = conjunctions_of(rows, 2), events_of([{0: v, 1: 5} for v in range(1, 21)])
    ours, published = OpIndex.build(clauses), OpIndex.build(clauses, profile=PUBLISHED)
    assert ours.plan()["entries"] == 5 and published.plan()["entries"] == 6
    assert pairs_of(ours, events) == pairs_of(published, events) == expected(clauses, events)
    # At 2 the predicate <= 12 holds and is counted, though the interval does not.
    first, below = conjunctions_of(rows[:2], 2), events_of([{0: 2}])
    read = [OpIndex.build(first, profile=profile).match(below, 1).predicates for profile in (OURS, PUBLISHED)]
    assert read == [0, 1]


def test_counters_of_all_rows_are_set_back_after_each_event():
    """And those of k-index only count the lists of sizes that an event can match."""
    rows = [[(a, [(1, 1)]) for a in range(size)] for size in (1, 2, 3, 3)]
    clauses, events = conjunctions_of(rows, 4), events_of([{0: 1, 1: 1}, {0: 1}, {0: 1, 1: 1, 2: 1}])
    found = {kind: kind.build(clauses, profile=PUBLISHED).match(events, 1) for kind in (Counting, KIndex)}
    assert found[Counting].predicates == (4 + 3) + 4 + (4 + 3 + 2)
    assert found[KIndex].predicates == (2 + 1) + 1 + (4 + 3 + 2)
    assert all(pairs_of(kind.build(clauses, profile=PUBLISHED), events) == expected(clauses, events) for kind in found)


def test_no_bit_of_a_predicate_stays_set():
    rng = np.random.default_rng(1)
    clauses, events = random_clauses(rng, 300, 8, 30, programs=0), random_events(rng, 300, 8, 30)
    index = create("propagation", clauses, profile=PUBLISHED)
    assert pairs_of(index, events) == expected(clauses, events)
    assert Propagation.build(clauses.take(np.arange(clauses.conjunctions)), profile=PUBLISHED).arrays()["published"]


def test_pstbloom_asks_the_signatures_of_all_attributes():
    """Of five other attributes ours asks three; where the fifth fails, published no predicate is evaluated."""
    row = [(0, [(5, 5)]), *((a, [(1, 1 + a)]) for a in range(1, 5)), (5, [(1, 19), (21, 200)])]
    clauses = conjunctions_of([row] * 30, 6)
    miss, hit = (events_of([{0: 5, 1: 1, 2: 1, 3: 1, 4: 1, 5: value}]) for value in (20, 21))
    tested = {p: PSTBloom.build(clauses, profile=p).match(miss, 1).predicates for p in (OURS, PUBLISHED)}
    assert tested[OURS] >= 30 and tested[PUBLISHED] == 0
    assert pairs_of(PSTBloom.build(clauses, profile=PUBLISHED), hit) == expected(clauses, hit) != set()


def test_psthash_refuses_later_rows_too_and_stays_what_it_was(monkeypatch):
    monkeypatch.setattr(psthash, "MOST_IN_ALL", 500)
    rng = np.random.default_rng(2)
    few = conjunctions_of([[(0, [(v, v)]), (1, [(v, v)])] for v in range(1, 20)], 2)
    wide = conjunctions_of([[(0, [(v, 60)]), (1, [(v, 60)])] for v in range(1, 40)], 2)
    events = random_events(rng, 40, 2, 40)
    index = psthash.PSTHash.build(few, profile=PUBLISHED)
    for _ in range(2):
        with pytest.raises(dibs.IndexTooLarge, match="cells"):
            index.insert(wide)
        assert pairs_of(index, events) == expected(few, events)
    index.insert(few)
    assert len(pairs_of(index, events)) == 2 * len(expected(few, events))
    index.delete(np.arange(len(few)))
    assert len(pairs_of(index, events)) == len(expected(few, events))


def test_tatbul_s_vectors_have_a_bit_for_each_profile():
    """Profiles on x alone, on y alone and on both: those without an attribute have a 1 in all its vectors."""
    rows = [[(0, [(1, 3)])], [(1, [(2, 2)])], [(0, [(2, 5)]), (1, [(1, 9)])]]
    clauses = conjunctions_of(rows, 3)
    arrays = Interval.build(clauses, profile=PUBLISHED).arrays()
    place = {int(row): p for p, row in enumerate(arrays["row"])}

    def vectors(attribute):
        first, after = arrays["whole_first"][attribute : attribute + 2]
        return [{row for row, p in place.items() if int(v[0]) >> p & 1} for v in arrays["whole"][first:after]]

    assert vectors(0) == [{0, 1}, {0, 1, 2}, {1, 2}, {1}]
    assert vectors(1) == [{0, 2}, {0, 1, 2}, {0, 2}, {0}] and vectors(2) == [{0, 1, 2}]
    events = events_of([{0: x, 1: y} for x in range(1, 7) for y in range(1, 4)] + [{0: 2}, {1: 2}, {2: 1}])
    for name in ("cluster", "interval", "hybrid", "segment-tree", "interval-tree"):
        assert pairs_of(create(name, clauses, profile=PUBLISHED), events) == expected(clauses, events)
    too_large = conjunctions_of([[(a, [(1, 2)])] for a in range(9)], 9)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("dibs.papers.structures.tatbul.whole_vectors.MOST_WORDS", 17)
        with pytest.raises(dibs.IndexTooLarge, match="words of bit vectors"):
            Interval.build(too_large, profile=PUBLISHED)


def test_a_published_be_tree_recycles_whole_nodes_as_events_come():
    """Rows 0 to 3 came to the p-node of attribute 0 before attribute 1 had one, and are tested there in vain. (Ours
    looks after thousands of events, of which it watches some.)"""
    first = [[(0, [(1, 1)]), (1, [(1, 90)]), (2, [(i + 1, i + 1)])] for i in range(4)]
    first += [[(0, [(v, v)])] for v in range(50, 70)]
    later = [[(1, [(v, v)])] for v in range(30, 60)]
    events, moved = events_of([{0: 1, 1: 5, 2: 60}] * 20), {}
    for profile in (OURS, PUBLISHED):
        tree = BETree.build(conjunctions_of(first, 3), max_cap=5, profile=profile)
        tree.insert(conjunctions_of(later, 3))
        before = tree.match(events, 1).candidates
        do_pending(tree)
        found = events_of([{0: 1, 1: 45, 2: 3}])
        assert pairs_of(tree, found) == expected(conjunctions_of(first + later, 3), found)
        moved[profile] = tree.plan()["rows recycled"], tree.match(events, 1).candidates <= before
    assert moved[OURS] == (0, True) and moved[PUBLISHED][0] >= 4 and moved[PUBLISHED][1]
