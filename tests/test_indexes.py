"""One suite for every index: the same pairs as a plain-Python twin, on everything that the coded model can say."""

from __future__ import annotations

import numpy as np
import pytest

import dibs
from coded import expected, random_clauses, random_events
from dibs.index import INDEXES, create

NAMES = list(INDEXES)


def pairs_of(index, events, threads=1):
    pairs = index.match(events, threads)
    found = list(zip(pairs.event.tolist(), pairs.row.tolist()))
    assert len(found) == len(set(found)), "a pair was reported twice"
    return set(found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_random_clauses(name, several, seed):
    rng = np.random.default_rng(seed)
    attributes, cells = int(rng.integers(1, 12)), int(rng.integers(5, 40))
    clauses = random_clauses(rng, int(rng.integers(1, 200)), attributes, cells)
    events = random_events(rng, int(rng.integers(1, 60)), attributes, cells, several)
    index = create(name, clauses)
    wanted = expected(clauses, events)
    assert pairs_of(index, events) == wanted
    assert pairs_of(index, events, threads=2) == wanted
    restored = type(index).restore(clauses, {k: v.copy() for k, v in index.arrays().items()})
    assert pairs_of(restored, events) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_nothing_and_one(name):
    rng = np.random.default_rng(5)
    for rows in (0, 1):
        clauses = random_clauses(rng, rows, 3, 8, programs=0)
        for events in (0, 1):
            batch = random_events(rng, events, 3, 8)
            assert pairs_of(create(name, clauses), batch) == expected(clauses, batch)


@pytest.mark.parametrize("name", NAMES)
def test_many_matches_fill_several_rooms(name):
    """40,000 clauses that always hold against 3 events: more pairs than a kernel's first room."""
    rng = np.random.default_rng(6)
    clauses = random_clauses(rng, 1, 1, 8, programs=0)
    clauses.offsets = np.zeros(40_001, np.int64)
    clauses.attribute, clauses.lo, clauses.hi = (np.empty(0, np.int32) for _ in range(3))
    clauses.conjunctions = 40_000
    events = random_events(rng, 3, 1, 8)
    assert len(pairs_of(create(name, clauses), events)) == 120_000
    assert len(pairs_of(create(name, clauses), events, threads=2)) == 120_000


@pytest.mark.parametrize("name", NAMES)
def test_soak_equals_scan(name):
    rng = np.random.default_rng(7)
    clauses = random_clauses(rng, 6_000, 60, 50, programs=0.1, nulls=0.01)
    events = random_events(rng, 300, 60, 50, most=20)
    assert pairs_of(create(name, clauses), events, threads=2) == pairs_of(create("scan", clauses), events)


def test_counters_say_what_was_done():
    rng = np.random.default_rng(8)
    clauses, events = random_clauses(rng, 50, 4, 9), random_events(rng, 7, 4, 9)
    pairs = create("scan", clauses).match(events, 1)
    assert pairs.candidates == 50 * 7
    assert 0 < pairs.predicates <= len(clauses.attribute) * 7


def test_names():
    assert list(dibs.indexes()) == NAMES
    assert all(dibs.indexes().values())
    with pytest.raises(dibs.UnknownIndex, match=r"no index is called 'nope'; there are: auto, scan"):
        dibs.Matcher(index="nope")
