"""The background thread: it comes when there is work, lingers, and goes."""

from __future__ import annotations

import os
import threading
import time
import warnings

import pytest

import dibs
from dibs.segments import upkeep
from dibs.segments.upkeep import Upkeep
from dibs.tuning import smallest, using


class Work:
    """Jobs that are to be done, and those that were, with their thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.wanted: list[str] = []
        self.done: list[tuple[str, int]] = []
        self.upkeep = Upkeep(self.lock, self.next)

    def next(self):
        if not self.wanted:
            return None
        name = self.wanted.pop(0)
        return lambda: self.done.append((name, threading.get_ident()))

    def do(self, *names: str) -> None:
        with self.lock:
            self.wanted += names
        self.upkeep.wake()
        self.upkeep.rest()


def wait_until(holds) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_one_thread_does_what_comes_in_a_short_while(monkeypatch):
    monkeypatch.setattr(upkeep, "LINGER", 60.0)
    work = Work()
    work.do("a", "b")
    work.do("c")
    assert [name for name, _ in work.done] == ["a", "b", "c"]
    assert len({thread for _, thread in work.done}) == 1 and not work.upkeep.busy
    start = time.monotonic()
    work.upkeep.close()  # it does not wait for the thread to have waited
    assert time.monotonic() - start < 30 and work.upkeep._worker is None
    work.do("d")
    assert work.wanted == ["d"]
    with pytest.raises(dibs.DibsError, match="closed"):
        work.upkeep.run(lambda: None)


def test_the_thread_goes_when_nothing_comes(monkeypatch):
    monkeypatch.setattr(upkeep, "LINGER", 0.01)
    work = Work()
    work.do("a")
    wait_until(lambda: work.upkeep._worker is None)
    work.do("b")
    assert [name for name, _ in work.done] == ["a", "b"]


def test_a_caller_waits_for_its_job_and_gets_what_it_raises():
    work = Work()
    ran: list[int] = []
    work.upkeep.run(lambda: ran.append(threading.get_ident()))
    assert ran and ran[0] != threading.get_ident()

    def fail() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        work.upkeep.run(fail)
    assert work.upkeep.problem is None  # it was told to the one who asked
    work.upkeep.run(lambda: work.upkeep.run(lambda: ran.append(0)))  # from within
    assert ran[1:] == [0]
    work.upkeep.close()
    work.upkeep.close()


def test_a_failure_in_the_background_is_told_once_and_does_not_end_the_work(monkeypatch):
    monkeypatch.setattr(upkeep, "PAUSE", 0.0)
    work = Work()

    tries: list[int] = []

    def fail() -> None:
        tries.append(len(work.done))
        if tries[-1] < 2:
            raise OSError("no space")

    work.upkeep.sources.append(lambda: fail if not tries or tries[-1] < 2 else None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work.do("a")
        wait_until(lambda: caught)
        assert str(work.upkeep.problem) == "no space"
        work.do("b")
        work.do("c")
        work.upkeep.rest()
    assert [w.category for w in caught] == [dibs.BackgroundWarning]
    assert [name for name, _ in work.done] == ["a", "b", "c"] and work.upkeep.problem is None
    work.upkeep.close()


def test_a_forked_child_works_without_the_thread_of_its_parent(monkeypatch):
    monkeypatch.setattr(upkeep, "LINGER", 60.0)
    work = Work()
    work.do("a")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work.upkeep.reset_after_fork(work.lock)
            work.do("b")
            work.upkeep.close()
            code = 0 if [name for name, _ in work.done] == ["a", "b"] else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 60
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < deadline:
        time.sleep(0.02)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended and os.waitstatus_to_exitcode(status) == 0
    work.upkeep.close()


def test_a_plan_that_fails_is_told_and_matching_goes_on(monkeypatch):
    """What `auto` wants to have planned is done by the upkeep too, so its failures reach the user."""

    def fails(*_):
        raise MemoryError("no room for a plan")

    monkeypatch.setattr("dibs.index.auto.planner.Auto._plan_again", fails)
    monkeypatch.setattr("dibs.index.auto.planner.is_worth_planning", lambda *_: True)
    with using(smallest()), warnings.catch_warnings(record=True) as caught, dibs.Matcher() as m:
        warnings.simplefilter("always")
        m.add_many([(i, f"a{i % 40} = {i}") for i in range(400)])
        for _ in range(20):
            assert m.match({"a1": 1, "a2": 42}) == [1, 42]
        m._layers.upkeep.rest()
        wait_until(lambda: caught)
        assert m.stats()["background problem"] == "no room for a plan"
        assert m.match({"a1": 1}) == [1]
    assert {w.category for w in caught} == {dibs.BackgroundWarning}
