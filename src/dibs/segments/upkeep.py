"""Upkeep: the work that nobody should wait for (merging segments, saving them), in a thread of its own.

The thread is there only while there is work, and a moment longer: to start one takes longer than to wake it. A job
that fails leaves everything as it was; its error is kept in `problem`, logged, and told by Matcher.stats(). Nothing is
lost by it: what is not merged is matched as it lies, and what is not saved is in the catalog. It is tried again when
the next change wakes the upkeep, but not before PAUSE.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PAUSE = 5.0  # seconds after a job that failed
LINGER = 0.2  # seconds after the last job
log = logging.getLogger("dibs")


Job = Callable[[], None]


class Upkeep:
    def __init__(self, lock: threading.RLock, next_job: Callable[[], Job | None]):
        self._lock: Any = lock
        self._changed = threading.Condition(self._lock)  # there is a job, or one is done
        self.sources = [next_job]  # asked in this order for a job, with the lock held
        self.problem: Exception | None = None
        self._thread: threading.Thread | None = None
        self._job: Job | None = None  # that is to be done or under way
        self._paused = 0  # how many want no new work
        self._not_before = 0.0

    @property
    def busy(self) -> bool:
        return self._job is not None and self._alive()

    def _alive(self) -> bool:
        """A forked child has the object but not the thread."""
        return self._thread is not None and self._thread.is_alive()

    def wake(self) -> None:
        """There may be work. Costs nothing when there is none, or when it is being done."""
        with self._lock:
            if self.busy or self._paused or time.monotonic() < self._not_before:
                return
            self._job = self._next()
            if self._job is not None:
                if not self._alive():
                    self._thread = threading.Thread(target=self._work, name="dibs-upkeep")
                    self._thread.start()
                else:
                    self._changed.notify_all()

    def _next(self) -> Job | None:
        for source in self.sources:
            job = source()
            if job is not None:
                return job
        return None

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._job is None and not self._paused:
                    self._changed.wait(LINGER)
                job = self._job
                if job is None:
                    self._thread = None
                    return
            failed: Exception | None = None
            try:
                job()
            except Exception as e:
                failed = e
                log.exception("work in the background failed; it will be tried again")
            with self._lock:
                self.problem = failed
                if failed is not None:
                    self._not_before = time.monotonic() + PAUSE
                    self.sources.append(self.sources.pop(0))  # one that fails again and again keeps no other waiting
                self._job = None  # it is done, also when asking for the next one fails
                if failed is None and not self._paused:
                    self._job = self._next()
                self._changed.notify_all()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No work is under way, and none begins. The caller must not hold the lock on entering."""
        with self._lock:
            self._paused += 1
        try:
            self.rest()
            yield
        finally:
            with self._lock:
                self._paused -= 1
            self.wake()

    def rest(self) -> None:
        """Returns when the work that was under way is done. The caller must not hold the lock."""
        if self._thread is not threading.current_thread():
            with self._lock:
                while self.busy:
                    self._changed.wait()

    def close(self) -> None:
        with self._lock:
            self._paused += 1  # for good
            self._changed.notify_all()
        self.rest()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
