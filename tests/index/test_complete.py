"""What a structure gets of the model, and that index.complete does the rest: with the scan as a structure that takes
only part of it."""

from __future__ import annotations

import numpy as np
import pytest

from coded import expected, random_clauses, random_events
from dibs.coding.clauses import Clauses, concatenate_clauses
from dibs.index.base import Takes
from dibs.index.complete import Completed
from dibs.index.conjunctions import select
from dibs.index.scan import Scan
from dibs.papers.structures.growing import GrowingClauses


class Points(Scan):
    """Conjunctions and single values only."""

    takes = Takes()

    @classmethod
    def build(cls, clauses):
        assert len(clauses) == clauses.conjunctions
        for r in range(len(clauses)):
            own = clauses.attribute[clauses.offsets[r] : clauses.offsets[r + 1]].tolist()
            assert own and own == sorted(set(own)), "one predicate for each attribute, in order"
        single = clauses.hi >= 0
        assert (clauses.lo[single] > 0).all() and (clauses.lo <= clauses.hi)[single].all()
        return cls(clauses)

    def match(self, events, threads, sink=None):
        assert events.points
        return super().match(events, threads, sink)


class Updated(Scan):
    """One that takes several values, programs and updates."""

    takes = Takes(several=True, programs=True, updates=True)

    def __init__(self, clauses):
        super().__init__(clauses)
        self._place = np.arange(len(clauses))
        self._gone = np.zeros(len(clauses), np.bool_)

    @classmethod
    def takes_programs(cls, clauses):
        return np.arange(len(clauses) - clauses.conjunctions) % 2 == 0

    def insert(self, clauses):
        count = len(self._place)
        together, place = concatenate_clauses([self._clauses, clauses])
        Scan.__init__(self, together)
        self._place = np.concatenate([self._place, np.arange(count, count + len(clauses))])[place]
        self._gone = np.append(self._gone, np.zeros(len(clauses), np.bool_))

    def delete(self, rows):
        self._gone[rows] = True

    def match(self, events, threads, sink=None):
        pairs = super().match(events, threads, None)
        chunks = [(e, self._place[r].astype(np.int32)) for e, r in pairs.chunks]
        pairs.chunks = [(e[~self._gone[r]], r[~self._gone[r]]) for e, r in chunks]
        return pairs


def pairs_of(index, events):
    pairs = index.match(events, 1)
    found = list(zip(pairs.event.tolist(), pairs.row.tolist()))
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_all_that_points_do_not_say(several, seed):
    rng = np.random.default_rng(seed)
    clauses = random_clauses(rng, 80, 4, 12)  # few attributes: many rows have two predicates on one
    events = random_events(rng, 40, 4, 12, several)
    index = Completed.build(Points, clauses)
    assert pairs_of(index, events) == expected(clauses, events)
    restored = Completed.restore(Points, clauses, index.arrays())
    assert pairs_of(restored, events) == expected(clauses, events)


@pytest.mark.parametrize("seed", range(10))
def test_updates(seed):
    rng = np.random.default_rng(seed)
    parts = [random_clauses(rng, 30, 3, 12)]
    index = Completed.build(Updated, parts[0])
    gone: set[int] = set()
    for step in range(6):
        parts.append(random_clauses(rng, 10, 3 + step, 12))
        index.insert(parts[-1])
        clauses, place = concatenate_clauses(parts)
        more = set(rng.choice(len(clauses), 5, replace=False).tolist()) - gone
        index.delete(np.array(sorted(more), np.int64))
        gone |= more
        events = random_events(rng, 20, 3 + step, 12)
        wanted = {(e, int(place[r])) for e, r in expected(clauses, events)}
        assert pairs_of(index, events) == {(e, r) for e, r in wanted if r not in gone}


def test_clauses_that_need_no_change_are_not_copied():
    one = np.array([1], np.int32)
    none = np.empty(0, np.int32)
    clauses = Clauses(np.array([0, 1]), one * 0, one, one, none, none, none, none, 1, 1)
    assert select(clauses, several=False)[0] is clauses


def test_growing_clauses():
    rng = np.random.default_rng(3)
    parts = [random_clauses(rng, 20, 5, 12, programs=0) for _ in range(8)]
    growing = GrowingClauses(parts[0])
    for part in parts[1:]:
        growing.add(part)
    events = random_events(rng, 30, 5, 12)
    assert expected(growing.clauses, events) == expected(concatenate_clauses(parts)[0], events)
