"""One suite for every index: the same pairs as a plain-Python twin, on everything that the coded model can say, and on
every way that an index takes (dibs.tuning)."""

from __future__ import annotations

import threading
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings

import dibs
from coded import clauses_of_kinds, coded_cases, expected, pairs_of, random_clauses, random_events
from dibs import index as all_indexes
from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses, concatenate_clauses
from dibs.coding.merge import move_clauses
from dibs.index import INDEXES, options_of, takes
from dibs.index.base import do_pending, options_in
from dibs.papers.structures.profiles import profiles_of
from dibs.tuning import at_random, smallest, using

NAMES = list(INDEXES)
TATBUL = ("cluster", "interval", "hybrid", "segment-tree", "interval-tree")
# Structures with other options than their paper's: a name, and what it stands for.
VARIANTS = {
    "psthash, 3 dimensions": ("psthash", {"dimensions": 3}),
    "psthash, 4 dimensions, few cells": ("psthash", {"dimensions": 4, "cells": 6, "access": "statistics"}),
    "betree, small l-nodes": ("betree", {"max_cap": 1, "min_size": 2, "loss": "histogram", "window": 3}),
    "betree, one at a time": ("betree", {"partition": "one"}),
    "betree-batch, large l-nodes": ("betree-batch", {"max_cap": 40, "min_size": 9, "loss": "histogram"}),
    "propagation by any predicate": ("propagation", {"access": "any"}),
    "gryphon, rare attributes first": ("gryphon", {"order": "rare"}),
    **{f"{name} with pivots": (name, {"pivots": True}) for name in TATBUL},
    "opindex, 4 segments": ("opindex", {"segments": 4}),
    "opindex, short signatures": ("opindex", {"width": 5}),
    "pbtree of small pages": ("pbtree", {"page": 128}),
    "pstree by statistics": ("pstree", {"access": "statistics"}),
    "pstbloom by statistics": ("pstbloom", {"access": "statistics"}),
}
PUBLISHED = {f"{name}, published": (name, {"profile": "published"}) for name in NAMES if profiles_of(options_of(name))}
VARIANTS |= PUBLISHED
DYNAMIC = [name for name in NAMES if (part := takes(name)) and part.updates]
DYNAMIC_VARIANTS = [name for name, (index, _) in VARIANTS.items() if index in DYNAMIC]
SETTINGS = {"default": {}, "smallest": smallest(), "random 1": at_random(1), "random 2": at_random(2)}
RECORDS = {"look_cost": 0.0, "mask_cost": 1e9}
# A sample of all clauses: in the smallest one, groups as small as those here are not seen.
VECTORS = {"line_cost": -1e3, "look_cost": 1e6, "mask_cost": 1e6, "sampled_clauses": 20_000}
PLACES = {
    "attributes": {"often": 2.0, "read_cost": 0.0, **RECORDS},
    "values": {"often": 0.0, **RECORDS},
    "masks": {"look_cost": 1e9, "mask_cost": -1.0},
    "vectors": {**VECTORS, "vector_bytes": 32.0},
    "coarse vectors": VECTORS,
}
# Where the planner files clauses decides which of its structures sees them, so it has some settings more.
NAMES_AND_SETTINGS = [(name, s) for name in NAMES for s in SETTINGS] + [("auto", s) for s in PLACES]
NAMES_AND_SETTINGS += [
    (name, s)
    for name in VARIANTS
    for s in ("default", "smallest", "random 1")
    if s != "random 1" or name not in PUBLISHED
]

# Random cases grow with DIBS_EXAMPLES.
FEWER = max(3 * settings.default.max_examples // 8, 3)
SEEDS = range(max(settings.default.max_examples // 20, 1))


def create(name, clauses):
    index, options = VARIANTS.get(name, (name, {}))
    return all_indexes.create(index, clauses, **options)


def restore(name, clauses, arrays):
    restored = all_indexes.restore(VARIANTS.get(name, (name, {}))[0], clauses, arrays)
    assert options_in(restored) == VARIANTS.get(name, (name, {}))[1]
    return restored


def thresholds_of(setting):
    return SETTINGS[setting] if setting in SETTINGS else smallest() | PLACES[setting]


def cells_as_they_are(attributes, cells):
    return np.arange(attributes + 1) * cells, *2 * (np.tile(np.arange(cells, dtype=np.int32), attributes),)


def labels_for_cells(rng, attributes, cells):
    """A run of labels for each cell, in order and up to 2**31 - 2: (where the cells of an
    attribute start, the first, the last label of each). The cell behind the last is that of what cannot be read."""
    first, last = [], []
    for _ in range(attributes):
        bounds = np.sort(rng.choice(2**31 - 4, cells, replace=False)) + 1
        first.append(np.concatenate([[0], bounds[:-1], [2**31 - 1]]))
        last.append(np.concatenate([[0], bounds[1:] - 1, [2**31 - 1]]))
    return np.arange(attributes + 1) * (cells + 1), *(np.concatenate(x).astype(np.int32) for x in (first, last))


def copies(arrays):
    return {name: array.copy() for name, array in arrays.items()}


@cache
def random_case(setting, several, seed):
    """(clauses, events, their pairs), the same for every index."""
    rng = np.random.default_rng([seed, *setting.encode()])
    attributes, cells = int(rng.integers(1, 12)), int(rng.integers(5, 40))
    clauses = random_clauses(rng, int(rng.integers(1, 200)), attributes, cells)
    events = random_events(rng, int(rng.integers(1, 60)), attributes, cells, several)
    return clauses, events, expected(clauses, events)


@pytest.mark.parametrize(("name", "setting"), NAMES_AND_SETTINGS)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_clauses(name, setting, several, seed):
    clauses, events, wanted = random_case(setting, several, seed)
    with using(thresholds_of(setting)):
        index = create(name, clauses)
        assert pairs_of(index, events) == wanted
        assert pairs_of(index, events, threads=2) == wanted
        assert pairs_of(restore(name, clauses, copies(index.arrays())), events) == wanted


def settled(index, matched, most=8):
    """Matches again and again, until nothing is built in the background any more: the plan stays what it is. (Or it
    never does, when the smallest difference is worth another plan.)"""
    before = None
    for _ in range(most):
        matched()
        do_pending(index)
        plan = {k: v for k, v in index.plan().items() if k in ("records", "masks", "vectors", "one by one")}
        if plan == before:
            return
        before = plan


@cache
def case_of_kinds(setting, seed):
    rng = np.random.default_rng([seed, *setting.encode()])
    attributes, cells = int(rng.integers(1, 6)), int(rng.integers(8, 30))
    clauses = clauses_of_kinds(rng, int(rng.integers(30, 160)), attributes, cells)
    events = random_events(rng, 24, attributes, cells)
    return clauses, events, expected(clauses, events)


@pytest.mark.parametrize(("name", "setting"), NAMES_AND_SETTINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_constants_of_several_kinds(name, setting, seed):
    """IS NOT NULL, complements and ranges over attributes whose constants, and whose values, are of several kinds: in a
    batch, through a sink, one by one until all that is built in the background is there, by several threads, and saved
    under some thresholds and restored under others."""
    clauses, events, wanted = case_of_kinds(setting, seed)
    single = events.single_valued()
    ones = [events.take(np.array([e]), bool(single[e])) for e in range(len(events))]
    of_event = [{r for e, r in wanted if e == i} for i in range(len(events))]

    def one_by_one(first=0):
        for i in range(len(ones)):
            e = (first + i) % len(ones)
            assert {r for _, r in pairs_of(index, ones[e])} == of_event[e]

    with using(thresholds_of(setting)):
        index = create(name, clauses)
        assert pairs_of(index, events) == wanted
        given = []
        index.match(events, 2, lambda event, row: given.extend(zip(event.tolist(), row.tolist())))
        assert sorted(given) == sorted(wanted)
        settled(index, one_by_one)
        assert pairs_of(index, events, threads=2) == wanted
        together(one_by_one, 3)
        saved = copies(index.arrays())
        assert pairs_of(restore(name, clauses, copies(saved)), events) == wanted
    assert pairs_of(restore(name, clauses, saved), events) == wanted
    saved = copies(create(name, clauses).arrays())
    with using(thresholds_of(setting)):
        assert pairs_of(restore(name, clauses, saved), events) == wanted


def together(work, threads):
    """work(0), work(1), ... at once."""
    problems = []

    def run(number):
        try:
            work(number)
        except BaseException as e:
            problems.append(e)

    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not problems, problems[0]


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


with_cases = settings(max_examples=FEWER)


@cache
def cases_of_the_model():
    """What Hypothesis draws, once for all indexes: drawing takes longer than matching."""
    drawn = []

    @with_cases
    @given(coded_cases())
    def draw(case):
        drawn.append(case)

    draw()
    return drawn


@pytest.mark.parametrize(("name", "setting"), NAMES_AND_SETTINGS)
def test_everything_that_the_model_can_say(name, setting):
    def agrees(case):
        clauses, events = case
        with using(thresholds_of(setting)):
            return pairs_of(create(name, clauses), events) == expected(clauses, events)

    @with_cases
    @given(coded_cases())
    def check(case):
        assert agrees(case)

    if not all(map(agrees, cases_of_the_model())):
        check()  # makes a wrong case small
        raise AssertionError("a case that was wrong is right when it is tried again")


@pytest.fixture(scope="module")
def soak():
    """100,000 clauses, some events, and their pairs as the scan finds them."""
    rng = np.random.default_rng(7)
    parts = [random_clauses(rng, 10_000, 60, 50, programs=0.1, nulls=0.01) for _ in range(10)]
    clauses, _ = concatenate_clauses(parts)
    events = random_events(rng, 150, 60, 50, most=20)
    return clauses, events, keys_of(create("scan", clauses).match(events, 2))


def keys_of(pairs):
    keys = np.sort((pairs.event.astype(np.int64) << 32) | pairs.row)
    assert (np.diff(keys) > 0).all(), "a pair was reported twice"
    return keys


@pytest.mark.parametrize("name", NAMES)
def test_soak_equals_scan(name, soak):
    clauses, events, wanted = soak
    assert len(wanted) > 100_000
    assert np.array_equal(keys_of(create(name, clauses).match(events, 2)), wanted)


CHANGING = "changing"  # from step to step
DYNAMIC_AND_SETTINGS = [(name, s) for name in DYNAMIC for s in (*SETTINGS, CHANGING)]
DYNAMIC_AND_SETTINGS += [(name, s) for name in DYNAMIC_VARIANTS for s in ("default", CHANGING)]


def thresholds_now(setting, step):
    return at_random(step) if setting == CHANGING else thresholds_of(setting)


class Update(NamedTuple):
    """One step: rows that come, or rows that go, or neither; then some events, and their pairs."""

    inserted: Clauses | None
    deleted: np.ndarray | None
    events: CodedEvents
    wanted: set[tuple[int, int]]


@cache
def updates(setting, several, make):
    """(rows to begin with, the steps), the same for every index."""
    rng = np.random.default_rng([several, *make.__name__.encode(), *setting.encode()])
    attributes, cells = int(rng.integers(1, 8)), int(rng.integers(8, 40))
    parts, steps = [make(rng, int(rng.integers(0, 60)), attributes, cells)], []
    alive = set(range(len(parts[0])))
    for _ in range(12):
        inserted = deleted = None
        step = rng.random()
        if step < 0.45:
            attributes += int(rng.integers(0, 2))
            inserted = make(rng, int(rng.integers(0, 40)), attributes, cells)
            first = sum(len(p) for p in parts)
            parts.append(inserted)
            alive |= set(range(first, first + len(inserted)))
        elif step < 0.7 and alive:
            gone = rng.choice(sorted(alive), int(rng.integers(1, len(alive) + 1)), replace=False)
            alive -= set(gone.tolist())
            deleted = np.sort(gone).astype(np.int64)
        clauses, place = concatenate_clauses(parts)
        events = random_events(rng, 20, attributes, cells, several)
        found = {(e, int(place[r])) for e, r in expected(clauses, events)}
        steps.append(Update(inserted, deleted, events, {(e, r) for e, r in found if r in alive}))
    return parts[0], steps


@pytest.mark.parametrize(("name", "setting"), DYNAMIC_AND_SETTINGS)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("make", [random_clauses, clauses_of_kinds])
def test_updates_in_any_order(name, setting, several, make):
    """Rows come and go, attributes are added, and every match in between is that of the rows that are there."""
    base, steps = updates(setting, several, make)
    with using(thresholds_now(setting, 0)):
        index = create(name, base)
    for number, step in enumerate(steps):
        with using(thresholds_now(setting, number)):
            if step.inserted is not None:
                index.insert(step.inserted)
            if step.deleted is not None:
                index.delete(step.deleted)
            assert pairs_of(index, step.events) == step.wanted
            do_pending(index)


@pytest.mark.parametrize(("name", "setting"), DYNAMIC_AND_SETTINGS)
@pytest.mark.parametrize("make", [random_clauses, clauses_of_kinds])
def test_updates_with_labels(name, setting, make):
    """Cells that are far apart, as an index that takes rows in place sees them."""
    rng = np.random.default_rng([200, *make.__name__.encode(), *setting.encode()])
    attributes, cells = int(rng.integers(1, 6)), int(rng.integers(8, 40))
    base, first, last = labels_for_cells(rng, attributes, cells)
    parts, alive, index = [], set(), None
    for number in range(10):
        parts.append(make(rng, int(rng.integers(1, 40)), attributes, cells))
        clauses, place = concatenate_clauses(parts)
        move = np.arange(attributes), base, first, last
        labelled, _ = move_clauses([(parts[-1], np.arange(len(parts[-1])), move)], attributes)
        alive |= set(range(len(clauses) - len(parts[-1]), len(clauses)))
        gone = rng.choice(sorted(alive), len(alive) // 4, replace=False)
        alive -= set(gone.tolist())
        with using(thresholds_now(setting, number)):
            if index is None:
                index = create(name, labelled)
            else:
                index.insert(labelled)
            index.delete(np.sort(gone).astype(np.int64))
        events = random_events(rng, 20, attributes, cells)
        at = base[events.attribute]
        lo, hi = first[at + events.lo], last[at + events.hi]
        hi = np.where(events.lo == events.hi, lo, hi)
        labelled_events = CodedEvents(events.offsets, events.attribute, lo, hi, events.points)
        wanted = {(e, int(place[r])) for e, r in expected(clauses, events)}
        with using(thresholds_now(setting, number)):
            assert pairs_of(index, labelled_events) == {(e, r) for e, r in wanted if r in alive}


@pytest.mark.parametrize("name", [*DYNAMIC, *DYNAMIC_VARIANTS])
def test_growing_one_by_one_equals_building_at_once(name):
    rng = np.random.default_rng(9)
    rows = [random_clauses(rng, 1, 5, 30, programs=0) for _ in range(300)]
    clauses, place = concatenate_clauses(rows)
    index = create(name, rows[0])
    for row in rows[1:]:
        index.insert(row)
    events = random_events(rng, 60, 5, 30)
    assert pairs_of(index, events) == {(e, int(place[r])) for e, r in expected(clauses, events)}
    index.delete(np.arange(0, 300, 2))
    assert pairs_of(index, events) == {(e, int(place[r])) for e, r in expected(clauses, events) if place[r] % 2}


def test_counters_say_what_was_done():
    rng = np.random.default_rng(8)
    clauses, events = random_clauses(rng, 50, 4, 9), random_events(rng, 7, 4, 9)
    pairs = create("scan", clauses).match(events, 1)
    assert pairs.candidates == 50 * 7
    assert 0 < pairs.predicates <= len(clauses.attribute) * 7
    assert pairs.count == len(pairs)
    assert pairs.false_candidates == 350 - len(pairs)


@pytest.mark.parametrize("name", NAMES)
def test_counters_are_the_same_for_every_number_of_threads_and_with_a_sink(name):
    rng = np.random.default_rng(8)
    clauses, events = random_clauses(rng, 400, 6, 9, programs=0), random_events(rng, 40, 6, 9, several=False)
    index, taken = create(name, clauses), []
    one, two = index.match(events, 1), index.match(events, 2)
    sunk = index.match(events, 1, lambda event, row: taken.append(len(event)))
    for other in (two, sunk):
        assert (one.predicates, one.count) == (other.predicates, other.count)
    assert one.count == len(one) == sum(taken)
    if takes(name):  # rows without predicates are left to masks, which look at a row once for many events
        clauses = random_clauses(rng, 400, 6, 9, programs=0, nulls=0)
        filled = np.flatnonzero(np.diff(clauses.offsets))
        clauses = move_clauses([(clauses, filled, (np.arange(6), *cells_as_they_are(6, 10)))], 6)[0]
        assert (pairs := create(name, clauses).match(events, 1)).candidates >= pairs.count


def test_names():
    assert list(dibs.indexes()) == NAMES
    assert all(dibs.indexes().values())
    for name, about in dibs.indexes().items():
        assert all(f"option {option.name}={option.default!r}" in about for option in options_of(name))
    with pytest.raises(dibs.UnknownIndex, match=r"no index is called 'nope'; there are: auto, scan"):
        dibs.Matcher(index="nope")


@pytest.mark.parametrize("name", NAMES)
def test_what_was_given_to_be_saved_does_not_change(name):
    """A segment is saved while others match on it."""
    rng = np.random.default_rng(5)
    clauses, events = random_clauses(rng, 200, 6, 20), random_events(rng, 400, 6, 20)
    with using(smallest()):
        index = create(name, clauses)
        arrays = index.arrays()
        before = copies(arrays)
        for _ in range(3):
            index.match(events, 1)
            do_pending(index)
    assert all(np.array_equal(arrays[key], before[key]) for key in before)
