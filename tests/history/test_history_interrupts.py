"""Interrupts at every point of a change: the history is what it was or what it was to be, and goes on as such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dibs
from dibs.reference import matches
from dibs.tuning import using
from interrupts import inject

TEXTS = [
    "EXISTS d (d.n = n)",
    "(SELECT COUNT(*) FROM history d WHERE d.n > n) >= 2",
    "n < (SELECT MIN(d.n) FROM history d)",
]
TREES = [dibs.parse(text) for text in TEXTS]
OLD = [{"n": n, "key": f"k{n}"} for n in range(4)]


def add(m: dibs.Matcher) -> list[Any]:
    m.history.add({"n": 7}, key="new")
    return [*OLD, {"n": 7}]


def load(m: dibs.Matcher) -> list[Any]:
    m.history.load([{"n": 7, "key": "k1"}, {"n": 8, "key": "new"}, {"n": 9, "key": "k9"}], key="key")
    return [*OLD, {"n": 8}, {"n": 9}]


def remember(m: dibs.Matcher) -> list[Any]:
    m.match({"n": 7}, remember=True)
    return [*OLD, {"n": 7}]


def remember_several(m: dibs.Matcher) -> list[Any]:
    m.match_batch([{"n": 7}, {"n": 8}, {"n": 9}], remember=True)
    return [*OLD, {"n": 7}, {"n": 8}, {"n": 9}]


def prune(m: dibs.Matcher) -> list[Any]:
    m.history.prune(keep=1)
    return OLD[-1:]


def clear(m: dibs.Matcher) -> list[Any]:
    m.history.clear()
    return []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a weak set may be interrupted too
@pytest.mark.parametrize("work", [add, load, remember, remember_several, prune, clear])
@pytest.mark.parametrize("setting", [{}, {"history_tail": 2, "history_rebuilt": 1, "history_compacted": 1}])
def test_every_point(work: Callable[[dibs.Matcher], list[Any]], setting: dict[str, int]) -> None:
    point, is_there, outcomes = 0, True, set()
    with using(setting), dibs.Matcher() as warm:
        warm.add_many(list(enumerate(TEXTS)))
        warm.history.load(OLD, key="key")
        warm.match({"n": 1})
        after = work(warm)
        while is_there:
            m = dibs.Matcher()
            m.add_many(list(enumerate(TEXTS)))
            m.history.load(OLD, key="key")
            m.match({"n": 1})
            is_there = inject(point, lambda m=m: work(m)) > point
            documents = OLD if len(m.history) == len(OLD) else after
            outcomes.add(len(documents))
            assert len(m.history) == len(documents)
            check(m, documents)
            is_new = "new" not in m.history
            assert m.history.add({"n": 5}, key="new") == is_new  # which takes the place of what was left half done
            check(m, [*documents, {"n": 5}] if is_new else documents)
            m.close()
            point += 1 if point < 20 else 13  # all of them would take minutes
    assert outcomes == {len(OLD), len(after)}


def check(m: dibs.Matcher, documents: list[dict[str, Any]]) -> None:
    for n in (-1, 0, 5, 7, 8):
        assert m.match({"n": n}) == [i for i, tree in enumerate(TREES) if matches(tree, {"n": n}, documents)]
