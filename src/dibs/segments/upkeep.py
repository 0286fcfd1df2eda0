"""Upkeep: the work that nobody should wait for (merging segments, planning, saving), in a thread of its own.

The thread is there only while there is work, and a moment longer: to start one takes longer than to wake it. All work
that replaces segments is done here, also what a caller waits for (`run`): signals reach the main thread only, so
nothing here is ever interrupted half way.

A background job that fails leaves everything as it was; its error is kept in `problem`, logged, warned of once, and
told by Matcher.stats(). Nothing is lost by it: what is not merged is matched as it lies, and what is not saved is in
the catalog. It is tried again when the next change wakes the upkeep, but not before PAUSE.

What the main thread does here holds only the interpreter's own locks, in `with` blocks or by timeouts: see jit.threads.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Union

from dibs.errors import BackgroundWarning, DibsError

PAUSE = 5.0  # seconds after a job that failed
LINGER = 0.2  # seconds after the last job
A_MOMENT = 0.002  # seconds between two looks whether the work is done
log = logging.getLogger("dibs")


Job = Callable[[], None]
Source = Callable[[], Union[Job, None]]


class _Asked:
    """A job that a caller waits for."""

    def __init__(self, job: Job):
        self._job = job
        self._error: BaseException | None = None
        self.done = _thread.allocate_lock()  # held until it is
        self.done.acquire()

    def __call__(self) -> None:
        try:
            self._job()
        except BaseException as e:
            self._error = e
        finally:
            self.done.release()

    def outcome(self) -> None:
        if self._error is not None:
            raise self._error


class Upkeep:
    def __init__(self, lock: threading.RLock, next_job: Source):
        self._lock: Any = lock
        self._changed = threading.Condition(self._lock)  # there is a job; only the thread waits for it
        self.sources = [next_job]  # asked in this order for a job, with the lock held
        self._problems: dict[Source, Exception] = {}  # of sources whose latest job failed, the latest last
        self._worker: int | None = None  # the thread, which sets this itself
        self._asked: list[_Asked] = []  # done before all others
        self._under_way: _Asked | None = None
        self._job: Job | None = None  # of the background, to be done or under way
        self._source: Source | None = None  # of that job
        self._closed = False
        self._not_before = 0.0
        self._warned = False
        _all.add(self)

    @property
    def problem(self) -> Exception | None:
        """What failed last and has not been done since."""
        return next(reversed(list(self._problems.values())), None)

    @property
    def busy(self) -> bool:
        return self._job is not None or self._under_way is not None or bool(self._asked)

    @property
    def is_current_thread(self) -> bool:
        return self._worker == _thread.get_ident()

    def wake(self) -> None:
        """There may be work. Costs nothing when there is none, or when it is being done."""
        with self._lock:
            if self._closed or time.monotonic() < self._not_before:
                return
            is_new = self._job is None
            if is_new:
                self._job = self._next()
            if self._job is not None and (is_new or self._worker is None):
                self._call()

    def run(self, job: Job) -> None:
        """Does the job in the thread, after the one under way, and waits for it; what it raises is raised here. An
        interrupted caller does not stop it. The caller must not hold the lock."""
        if self.is_current_thread:
            job()
            return
        asked = _Asked(job)
        with self._lock:
            if self._closed:
                raise DibsError("this matcher is closed")
            self._asked.append(asked)
        while True:
            with self._lock:
                self._call()
            if asked.done.acquire(timeout=1.0):
                break
        asked.outcome()

    def _call(self) -> None:
        """The thread, which may wait for work, or be gone, or not have begun yet. The lock is held."""
        if self._worker is None:
            _thread.start_new_thread(self._work, ())
        else:
            self._changed.notify_all()

    def _next(self) -> Job | None:
        for source in self.sources:
            job = source()
            if job is not None:
                self._source = source
                return job
        return None

    def _work(self) -> None:
        with self._lock:
            if self._worker is not None:  # it was called twice before it came
                return
            self._worker = _thread.get_ident()
        while True:
            with self._lock:
                if not self.busy and not self._closed:
                    self._changed.wait(LINGER)
                self._under_way = asked = self._asked.pop(0) if self._asked else None
                job = asked or self._job
                if job is None:
                    self._worker = None
                    return
            failed: Exception | None = None
            try:
                job()
            except Exception as e:
                failed = e
                _log("work in the background failed and will be tried again", e)
            with self._lock:
                self._under_way = None
                if asked is None:
                    self._finish(failed)
            if failed is not None:
                self._warn(failed)

    def _finish(self, failed: Exception | None) -> None:
        """After a background job; the lock is held."""
        source = self._source
        assert source is not None
        self._problems.pop(source, None)
        self._job = None  # it is done, also when asking for the next one fails
        if failed is not None:
            self._problems[source] = failed
            self._not_before = time.monotonic() + PAUSE
            self.sources.remove(source)  # one that fails again and again keeps no other waiting
            self.sources.append(source)
        elif not self._closed:
            try:
                self._job = self._next()
            except Exception as e:
                self._problems[source] = e
                _log("work in the background could not be planned", e)

    def _warn(self, failed: Exception) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"work in the background failed and will be tried again: {failed}; matching goes on, nothing is lost "
                "(stats()['background problem'] tells the latest)",
                BackgroundWarning,
                stacklevel=1,
            )

    def rest(self) -> None:
        """Returns when there is no more work. The caller must not hold the lock."""
        while self.busy and not self.is_current_thread:
            with self._lock:
                if self.busy and self._worker is None:
                    self._call()
            time.sleep(A_MOMENT)

    def close(self) -> None:
        """No more work; waits for what is under way, and for the thread to go. May be called again."""
        with self._lock:
            self._closed = True
            if self._worker is not None:
                self._changed.notify_all()
        self.rest()
        while self._worker is not None and not self.is_current_thread:
            time.sleep(A_MOMENT)

    def reset_after_fork(self, lock: threading.RLock) -> None:
        """After a fork: the parent's thread is not here, nor is whoever held its locks."""
        self._lock, self._changed = lock, threading.Condition(lock)
        self._worker = self._under_way = self._job = None
        self._asked = []


def _log(what: str, error: Exception) -> None:
    """A full disk, a folder that may not be written and the like are no defects: one line says what to do."""
    if isinstance(error, (DibsError, OSError, MemoryError)):
        log.warning("%s: %s", what, error)
    else:
        log.error(what, exc_info=error)


_all: weakref.WeakSet[Upkeep] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """A compiled function that is cut off when the interpreter ends takes the process with it."""
    for upkeep in list(_all):
        upkeep.close()
