"""Single events of many clients, gathered: what comes while others come is matched with them.

idle          an event is matched at once, where it is: nothing waits for anything
some at once  those that were read from their connections in the same turn of the loop are matched one after the other,
              or, where that takes longer than a batch of them, or than the loop may be kept from others, by a thread,
              as a batch
under load    the next ones gather while the thread is matching: nobody waits for a clock

From how many on a batch is quicker depends on the subscriptions, from 2 to 64 events: so it is measured all the time.
A thread, because the loop has others to answer meanwhile: changes came at a third of their rate when it matched batches
itself.

Each gets what Matcher.match would have given, errors included: whatever a batch is not sure of is asked again alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from time import perf_counter

from dibs.arguments import Id
from dibs.language.present import Now
from dibs.matcher import Matcher

Waiting = tuple[bytes, "asyncio.Future[list[Id]]"]
WEIGHT = 1 / 8  # of what was measured last, in the mean
LONGEST = 0.003  # seconds for which the loop may match
QUICK = 0.0002  # seconds of an event that is published there: many clients' events are, one after the other
FADING = 0.99  # of what is known of batches, in each turn without one: so that one is tried again


class Gatherer:
    def __init__(self, matcher: Matcher, pool: Executor, at_least: int | None):
        """at_least: so many are matched as a batch. None: as many as it was measured to pay for."""
        self._matcher, self._pool, self._at_least = matcher, pool, at_least
        self._waiting: list[Waiting] = []
        self._is_due = False  # a turn is coming
        self._is_busy = False  # a thread is matching
        self._alone = self._together = 0.0  # seconds of one event, and of a batch from handing it over to having it
        self._working = 0.0  # seconds of the last batch, in its thread
        self.batches = self.gathered = 0

    async def match(self, text: bytes) -> list[Id]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Id]] = loop.create_future()
        self._waiting.append((text, answer))
        if not self._is_due and not self._is_busy:
            self._is_due = True
            loop.call_soon(self._turn)
        return await answer

    def is_quick(self) -> bool:
        """Whether one event is matched in no time."""
        if self._alone <= QUICK:
            return True
        self._alone *= FADING  # so that it is tried again
        return False

    def match_now(self, text: bytes, now: Now) -> list[Id]:
        """In the loop, at that time."""
        begun = perf_counter()
        found = self._matcher.match(text, now=now)
        self._alone += (perf_counter() - begun - self._alone) * WEIGHT
        return found

    def _is_worth_a_batch(self, count: int) -> bool:
        if self._at_least is not None:
            return count >= self._at_least
        alone = count * self._alone
        return alone > LONGEST or (count > 1 and alone > self._together)

    def _turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._is_due = False
        begun = perf_counter()
        if not self._is_worth_a_batch(len(waiting)):
            for text, answer in waiting:
                _answer(answer, self._matcher.match, text)
            self._alone += ((perf_counter() - begun) / len(waiting) - self._alone) * WEIGHT
            self._together *= FADING
            return
        self.batches += 1
        self.gathered += len(waiting)
        self._is_busy = True
        work = asyncio.get_running_loop().run_in_executor(self._pool, self._batch, [text for text, _ in waiting])
        work.add_done_callback(lambda done: self._hand_out(waiting, done, begun))

    def _batch(self, texts: list[bytes]) -> list[list[Id] | None]:
        """None: ask again alone."""
        begun = perf_counter()
        lines = [text if b"\n" not in text else b"{}" for text in texts]
        matches = self._matcher.match_batch(b"\n".join(lines), on_error="skip")
        self._working = perf_counter() - begun
        if len(matches) != len(texts):  # a blank line is no event
            return [None] * len(texts)
        unsure = {problem.event for problem in matches.problems}
        return [
            None if place in unsure or lines[place] is not texts[place] else ids for place, ids in enumerate(matches)
        ]

    def _hand_out(self, waiting: list[Waiting], done: asyncio.Future[list[list[Id] | None]], begun: float) -> None:
        self._is_busy = False
        self._together += (perf_counter() - begun - self._together) * WEIGHT
        # What took long once (its code was loaded, the machine was busy) is not to go to a thread for ever.
        self._alone += (min(self._working / len(waiting), self._alone) - self._alone) * WEIGHT
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
