"""Turns: work of many tenants in a few threads, none of which can keep the others waiting.

Each tenant has a line of its own. Whenever a thread is free, the tenant that has used least has the next turn: the
seconds of each turn are added up (start-time fair queueing). Who has been away begins with what the others have by
then, so nobody saves up; and a tenant has only some of the threads at once. So what a tenant waits is a turn of those
who run, whatever lies in the lines of others. Turns should be short: what takes long is cut into many.

For one event loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from dibs.service.deadlines import Deadlines
from dibs.service.problems import Refusal

T = TypeVar("T")
MEAN = 1 / 8  # weight of the last turn in the mean that the next one is expected to take
SWITCH = 0.0001  # seconds for which a thread may keep the interpreter from the loop (Python's own: 0.005)


def share_interpreter() -> None:
    """In a process that serves: each time that the loop comes back from the system it has to wait so long for each
    thread that runs Python, and for one answer it comes back from there some five times."""
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH))


Finish = Callable[[Any, "BaseException | None"], None]  # is told what a turn has given, or what went wrong, in the loop


@dataclass
class _Line:
    """Of a tenant."""

    waiting: deque[tuple[Callable[[], Any], Finish, asyncio.Future[Any] | None]] = field(default_factory=deque)
    running: int = 0
    used: float = 0.0  # seconds, on the clock of all lines
    mean: float = 0.0  # seconds of a turn


class _Turn(NamedTuple):
    loop: asyncio.AbstractEventLoop
    work: Callable[[], Any]
    finish: Finish
    line: _Line
    expected: float  # seconds


class Turns:
    def __init__(self, threads: int, of_tenant: int, name: str, deadlines: Deadlines | None = None):
        """of_tenant: threads that one may have at once."""
        self._queue: SimpleQueue[_Turn | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []  # begun as they are needed
        self._most, self._name = threads, name
        self._free, self._of_tenant = threads, of_tenant
        self._deadlines = deadlines or Deadlines()
        self._lines: dict[str, _Line] = {}
        self._clock = 0.0  # what those have used who had a turn last
        self._is_closed = False

    def submit(self, tenant: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Cancelled before its turn has come, it is never done; afterwards it is done for nobody."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def finish(result: Any, error: BaseException | None) -> None:
            if not answer.done():
                answer.set_result(result) if error is None else answer.set_exception(error)

        self.begin(tenant, work, finish, answer)
        return answer

    def begin(
        self, tenant: str, work: Callable[[], Any], finish: Finish, wanted: asyncio.Future[Any] | None = None
    ) -> None:
        """When its turn comes; not if what is wanted is done by then."""
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = _Line()
        if not line.waiting and not line.running:
            line.used = max(line.used, self._clock)
        line.waiting.append((work, finish, wanted))
        self._begin()

    async def run(self, tenant: str, work: Callable[[], T], seconds: float | None) -> T:
        """Waiting and working within these seconds."""
        answer = self.submit(tenant, work)

        def be_late() -> None:
            if not answer.done():
                detail = f"it took more than {seconds} seconds; ask for less at once"
                answer.set_exception(Refusal("timeout", detail))

        limit = self._deadlines.begin(seconds or 0.0, be_late)
        try:
            return await answer
        finally:
            self._deadlines.end(limit)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while self._free and not self._is_closed:
            ready = [line for line in self._lines.values() if line.waiting and line.running < self._of_tenant]
            if not ready:
                return
            line = min(ready, key=lambda each: each.used) if len(ready) > 1 else ready[0]
            work, finish, wanted = line.waiting.popleft()
            if wanted is not None and wanted.done():
                continue
            self._clock = max(self._clock, line.used)
            self._free -= 1
            line.running += 1
            line.used += line.mean
            self._queue.put(_Turn(loop, work, finish, line, line.mean))
            if len(self._threads) < self._most - self._free:
                self._threads.append(threading.Thread(target=self._serve, name=self._name, daemon=True))
                self._threads[-1].start()

    def _serve(self) -> None:
        """A thread."""
        while (turn := self._queue.get()) is not None:
            result, error = None, None
            begun = perf_counter()
            try:
                result = turn.work()
            except Exception as raised:
                error = raised
            seconds = perf_counter() - begun
            with suppress(RuntimeError):  # the loop is gone
                turn.loop.call_soon_threadsafe(self._end, turn, result, error, seconds)
            del turn, result, error  # what it has worked on is not kept until the next

    def _end(self, turn: _Turn, result: Any, error: BaseException | None, seconds: float) -> None:
        line = turn.line
        self._free += 1
        line.running -= 1
        line.used += seconds - turn.expected
        line.mean += (seconds - line.mean) * MEAN
        turn.finish(result, error)
        self._begin()

    def close(self) -> None:
        """Waits for what runs; what waits is not begun."""
        self._is_closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
