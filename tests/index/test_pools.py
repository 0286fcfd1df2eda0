"""Work space: one call at a time, clean, of the right size, in every structure and under threads."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from coded import expected, random_clauses, random_events
from dibs.index import INDEXES, create
from dibs.jit.pools import Pool

WITHOUT_POOLS = ("scan",)  # all others have some, if only those of the masks that complete them


class Spaces:
    """Makes spaces, and knows how many."""

    def __init__(self):
        self.made = 0

    def __call__(self, size):
        self.made += 1
        return (np.zeros(size),)


def test_a_space_is_used_again_but_by_one_at_a_time():
    pool, make = Pool(), Spaces()
    first, second = pool.take(make, 3), pool.take(make, 3)
    assert first.space[0] is not second.space[0] and make.made == 2
    pool.give(first)
    assert pool.take(make, 3).space[0] is first.space[0] and make.made == 2


def test_what_was_in_use_when_an_exception_came_is_not_used_again():
    pool, make = Pool(), Spaces()
    with pytest.raises(KeyboardInterrupt):
        _interrupted(pool, make)
    assert not pool.take(make, 3).space[0].any() and make.made == 2


def _interrupted(pool, make):
    taken = pool.take(make, 3)
    taken.space[0][:] = 7
    raise KeyboardInterrupt


def test_what_was_made_before_a_change_of_size_never_comes_back():
    pool, make = Pool(), Spaces()
    idle, busy = pool.take(make, 3), pool.take(make, 3)
    pool.give(idle)
    pool.forget()
    pool.give(busy)
    pool._idle.append(busy)  # as a thread does that looked at the age just before
    assert len(pool.take(make, 4).space[0]) == 4 and make.made == 3


class Contested(list):
    """Idle spaces of which another thread takes the last one between a look and a grasp."""

    def __len__(self):
        return super().__len__() + 1

    def __bool__(self):
        return True


def pools_in(thing, seen):
    """All pools of an index and of what it is made of."""
    if isinstance(thing, Pool):
        return [thing]
    if id(thing) in seen or not (hasattr(thing, "__dict__") or isinstance(thing, list | tuple | dict)):
        return []
    seen.add(id(thing))
    parts = vars(thing) if hasattr(thing, "__dict__") else thing
    values = list(parts.values()) if hasattr(parts, "values") else list(parts)
    return [pool for value in values for pool in pools_in(value, seen)]


@pytest.mark.parametrize("name", list(INDEXES))
def test_another_thread_was_faster(name):
    rng = np.random.default_rng(4)
    clauses, events = random_clauses(rng, 120, 5, 12), random_events(rng, 24, 5, 12)
    index = create(name, clauses)
    index.match(events, 1)
    pools = pools_in(index, set())
    assert pools or name in WITHOUT_POOLS
    for pool in pools:
        pool._idle = Contested()
    found = index.match(events, 1)
    assert set(zip(found.event.tolist(), found.row.tolist())) == expected(clauses, events)


@pytest.mark.parametrize("name", list(INDEXES))
def test_threads_that_match_single_events(name):
    """As many as a service has, with the interpreter changing hands all the time."""
    rng = np.random.default_rng(3)
    clauses, events = random_clauses(rng, 120, 5, 12), random_events(rng, 24, 5, 12)
    index, wanted = create(name, clauses), expected(clauses, events)
    singles = [events.take(np.array([e]), bool(events.single_valued()[e])) for e in range(24)]
    by_event = [{r for e, r in wanted if e == i} for i in range(24)]
    index.match(events, 1)  # compiled before threads begin
    problems = []
    barrier = threading.Barrier(6)

    def match(first):
        barrier.wait()
        try:
            for i in range(150):
                e = (first + i) % 24
                found = index.match(singles[e], 1).row.tolist()
                assert len(found) == len(set(found)) and set(found) == by_event[e]
        except BaseException as e:
            problems.append(e)

    threads = [threading.Thread(target=match, args=(4 * t,)) for t in range(6)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
    assert not problems
