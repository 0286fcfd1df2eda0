"""A forked child has the parent's matchers, but none of its threads: it goes on with them."""

from __future__ import annotations

import os
import threading
import time

import pytest

import dibs

EVENT = {"x": 1, "y": 2}
FORKS = 15


def ended(child: int, seconds: float = 60.0) -> int | None:
    """The exit code of the child; None: it hung, and was killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


@pytest.mark.parametrize("index", ["auto", "counting"])
def test_a_child_matches_and_changes_while_the_parents_threads_were_at_work(index: str) -> None:
    m = dibs.Matcher(index=index, threads=2)
    m.add_many([(i, f"x = 1 AND y < {i % 7}") for i in range(3_000)])
    events = [EVENT] * 600
    found = len(m.match(EVENT))
    stop = threading.Event()
    problems: list[BaseException] = []

    def run(work) -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as e:
            problems.append(e)

    def change() -> None:
        with m.batch():
            m.add("t", "x = 1")
        m.remove("t")

    works = (lambda: m.match(EVENT), lambda: m.match_batch(events), change, m.compact)
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    codes = []
    try:
        for _ in range(FORKS):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    seen = len(m.match(EVENT))
                    m.add("child", "x = 1")
                    more = m.match_batch(events)
                    m.compact()
                    right = found <= seen <= found + 1 and all("child" in ids for ids in more)
                    code = 0 if right and len(m.match(EVENT)) == seen + 1 else 2
                finally:
                    os._exit(code)
            codes.append(ended(child))
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert codes == [0] * FORKS
    assert not problems and "child" not in m
    m.close()
