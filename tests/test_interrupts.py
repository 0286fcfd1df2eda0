"""Interrupts anywhere: what tests/interrupts.py does at length, in short; and every single point of some calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.tuning import at_random, smallest, using
from interrupts import EVENT, Injected, Life, Signals, Undisturbed, inject

SETTINGS = {"defaults": {}, "smallest": smallest(), "random": at_random("interrupts")}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("way", [Signals, Injected])
@pytest.mark.parametrize("durable", [False, True])
def test_nothing_is_lost_or_half_done_and_nothing_hangs(setting: str, way: Any, durable: bool, tmp_path: Path) -> None:
    draw = random.Random(f"{setting} {way.__name__} {durable}")
    with using(SETTINGS[setting]):
        life = Life(draw, tmp_path if durable else None, draw.choice(["auto", "counting", "opindex"]))
        life.go_on(Undisturbed(), 60, 1)
        life.go_on(way(draw), 300, 60)
        life.matcher.close()
    assert life.interrupts.total() > 20


def add(m: dibs.Matcher) -> None:
    m.add("new", "x = 1")


def replace(m: dibs.Matcher) -> None:
    m.replace("a", "x = 1 OR y = 1")


def remove(m: dibs.Matcher) -> None:
    m.remove("a")


def in_a_batch(m: dibs.Matcher) -> None:
    with m.batch():
        m.add("new", "x = 1")
        m.remove("a")


def match(m: dibs.Matcher) -> None:
    assert m.match(EVENT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # dropped where a finalizer was hit
@pytest.mark.parametrize("work", [add, replace, remove, in_a_batch, match])
def test_every_point(work: Callable[[dibs.Matcher], None]) -> None:
    """Before or after, never in between; and what comes next is not swallowed by what was interrupted."""
    undisturbed = dibs.Matcher(threads=1)  # what is compiled or loaded at first is not what is tried here
    undisturbed.add_many([("a", "x = 1"), ("b", "x = 1")])
    work(undisturbed)
    undisturbed.match(EVENT)
    point = 0
    while True:
        m = dibs.Matcher(threads=1)
        m.add_many([("a", "x = 1"), ("b", "x = 1")])  # waiting, so that a match must compile them
        before = {"a": "x = 1", "b": "x = 1"}
        after = {
            add: before | {"new": "x = 1"},
            replace: before | {"a": "x = 1 OR y = 1"},
            remove: {"b": "x = 1"},
            in_a_batch: {"b": "x = 1", "new": "x = 1"},
            match: before,
        }[work]
        seen = inject(point, lambda m=m: work(m))  # type: ignore[misc]
        ids = m.match(EVENT)
        assert {id: m.expression(id) for id in ids} in (before, after), point
        assert len(m) == len(ids)
        m.add("next", "x = 1")
        assert m.match(EVENT) == sorted([*ids, "next"]) and len(m) == len(ids) + 1, point
        m.close()
        if seen <= point:
            break
        point += 1
    assert point > 50


def test_a_batch_may_be_entered_by_an_exit_stack() -> None:
    m = dibs.Matcher()
    with ExitStack() as stack:
        assert stack.enter_context(m.batch()) is m
        m.add("a", "x = 1")
        assert len(m) == 1
    assert m.match(EVENT) == ["a"]

    def fail() -> None:
        with ExitStack() as stack:
            stack.enter_context(m.batch())
            m.remove("a")
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    m.add("b", "x = 1")
    assert m.match(EVENT) == ["a", "b"]
