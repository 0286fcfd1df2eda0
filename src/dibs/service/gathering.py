"""Single events of many clients, gathered: what comes while others come is matched with them.

idle         an event is matched at once, where it is: nothing waits for anything
some at once those that were read from their connections in the same turn of the loop are matched one after the other
under load   when that many come together that a batch costs less than one by one (`at_least`), the
             next ones wait some hundred microseconds for each other, and a thread matches them as a batch while the
             loop reads on

Each gets what Matcher.match would have given, errors included: whatever a batch is not sure of is asked again alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from dibs.arguments import Id
from dibs.matcher import Matcher

Waiting = tuple[bytes, "asyncio.Future[list[Id]]"]


class Gatherer:
    def __init__(self, matcher: Matcher, pool: Executor, seconds: float, at_least: int):
        self._matcher, self._pool, self._seconds, self._at_least = matcher, pool, seconds, at_least
        self._waiting: list[Waiting] = []
        self._is_due = False  # a turn is coming
        self._is_busy = False  # a thread is matching
        self._last = 1  # how many came together in the last turn
        self.batches = self.gathered = 0

    async def match(self, text: bytes) -> list[Id]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Id]] = loop.create_future()
        self._waiting.append((text, answer))
        if not self._is_due and not self._is_busy:
            self._is_due = True
            if self._last >= self._at_least:
                loop.call_later(self._seconds, self._turn)
            else:
                loop.call_soon(self._turn)
        return await answer

    def _turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._is_due = False
        self._last = len(waiting)
        if len(waiting) < self._at_least:
            for text, answer in waiting:
                _answer(answer, self._matcher.match, text)
            return
        self.batches += 1
        self.gathered += len(waiting)
        self._is_busy = True
        work = asyncio.get_running_loop().run_in_executor(self._pool, self._batch, [text for text, _ in waiting])
        work.add_done_callback(lambda done: self._hand_out(waiting, done))

    def _batch(self, texts: list[bytes]) -> list[list[Id] | None]:
        """None: ask again alone."""
        lines = [text if b"\n" not in text else b"{}" for text in texts]
        matches = self._matcher.match_batch(b"\n".join(lines), on_error="skip")
        if len(matches) != len(texts):  # a blank line is no event
            return [None] * len(texts)
        unsure = {problem.event for problem in matches.problems}
        return [
            None if place in unsure or lines[place] is not texts[place] else ids for place, ids in enumerate(matches)
        ]

    def _hand_out(self, waiting: list[Waiting], done: asyncio.Future[list[list[Id] | None]]) -> None:
        self._is_busy = False
        found: list[list[Id] | None] = [None] * len(waiting) if done.exception() is not None else done.result()
        for (text, answer), ids in zip(waiting, found):
            if ids is None:
                _answer(answer, self._matcher.match, text)
            elif not answer.done():
                answer.set_result(ids)
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)


def _answer(answer: asyncio.Future[list[Id]], match: Callable[[bytes], list[Id]], text: bytes) -> None:
    if answer.done():  # its client is gone
        return
    try:
        answer.set_result(match(text))
    except Exception as error:
        answer.set_exception(error)
