"""The background thread: it comes when there is work, lingers, and goes."""

from __future__ import annotations

import os
import threading
import time

from dibs.segments import upkeep
from dibs.segments.upkeep import Upkeep


class Work:
    """Jobs that are to be done, and those that were, with their thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.wanted: list[str] = []
        self.done: list[tuple[str, threading.Thread]] = []
        self.upkeep = Upkeep(self.lock, self.next)

    def next(self):
        if not self.wanted:
            return None
        name = self.wanted.pop(0)
        return lambda: self.done.append((name, threading.current_thread()))

    def do(self, *names: str) -> None:
        with self.lock:
            self.wanted += names
        self.upkeep.wake()
        self.upkeep.rest()


def test_one_thread_does_what_comes_in_a_short_while(monkeypatch):
    monkeypatch.setattr(upkeep, "LINGER", 60.0)
    work = Work()
    work.do("a", "b")
    work.do("c")
    assert [name for name, _ in work.done] == ["a", "b", "c"]
    assert len({thread for _, thread in work.done}) == 1 and not work.upkeep.busy
    start = time.monotonic()
    work.upkeep.close()  # it does not wait for the thread to have waited
    assert time.monotonic() - start < 30 and not work.done[0][1].is_alive()
    work.do("d")
    assert work.wanted == ["d"]


def test_the_thread_goes_when_nothing_comes(monkeypatch):
    monkeypatch.setattr(upkeep, "LINGER", 0.01)
    work = Work()
    work.do("a")
    work.done[0][1].join(30)
    assert not work.done[0][1].is_alive()
    work.do("b")
    assert [name for name, _ in work.done] == ["a", "b"]


def test_nothing_begins_while_it_is_paused(monkeypatch):
    monkeypatch.setattr(upkeep, "LINGER", 60.0)
    work = Work()
    work.do("a")
    with work.upkeep.paused():
        work.do("b")
        assert len(work.done) == 1
    work.upkeep.rest()
    assert len(work.done) == 2
    work.upkeep.close()


def test_a_forked_child_works_without_the_thread_of_its_parent(monkeypatch):
    monkeypatch.setattr(upkeep, "LINGER", 60.0)
    work = Work()
    work.do("a")
    child = os.fork()
    if child == 0:
        code = 1
        try:
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
