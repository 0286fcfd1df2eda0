"""Time limits of what is under way, by one timer of the loop: a timer for each request costs more than its limit.

For one event loop, in its thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count


class Deadlines:
    def __init__(self) -> None:
        self._due: dict[int, tuple[float, Callable[[], None]]] = {}
        self._keys = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def begin(self, seconds: float, be_late: Callable[[], None]) -> int:
        """be_late is called after so many seconds, unless `end` is before; 0: never. Returns what to end."""
        if not seconds:
            return 0
        loop = asyncio.get_running_loop()
        key, due = next(self._keys), loop.time() + seconds
        self._due[key] = due, be_late
        if self._timer is None or due < self._timer_at:
            self._arm(loop, due)
        return key

    def end(self, key: int) -> None:
        self._due.pop(key, None)

    def _arm(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(due, self._look, loop), due

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for key in [key for key, (due, _) in self._due.items() if due <= now]:
            _, be_late = self._due.pop(key)
            be_late()
        if self._due:
            self._arm(loop, min(due for due, _ in self._due.values()))
