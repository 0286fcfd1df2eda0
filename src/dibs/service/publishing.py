"""Publishing: events are matched, handed to the outbox, kept among the recent ones and counted, in this order.

A request has one slice of its events published after the other (slices.py), each when its tenant has a turn
(turns.py). The publications of a tenant go one after the other, so that its destinations are told in order; those of
different tenants go side by side. The single events that have gathered while others had their turn are one turn
together, and what several tenants have for the outbox is one commit.

    Publication.turn   in the loop: waits for the tenant's turn, gives the answer to the next slice
    Publisher._work    in a thread: match -> outbox -> recent events, counts -> answer

All or none: where what cannot be read is an error, a body of several slices is read through before its first slice is
published. What fails afterwards (a full disk, a full outbox) is told with how many of its events were published by
then; where the answer has begun, it ends: the events whose lines have come are published.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from time import thread_time
from typing import Any

from dibs.arguments import Id
from dibs.errors import EventError
from dibs.language.present import datetime_at, read_clock
from dibs.matches import Matches
from dibs.segments.id_lists import IdColumns
from dibs.segments.single.texts import dict_of
from dibs.service.deadlines import Deadlines
from dibs.service.delivery import Enqueued, Outbox
from dibs.service.delivery import Publication as OfOutbox
from dibs.service.problems import Refusal
from dibs.service.shared_outbox import SharedOutbox
from dibs.service.slices import Pace, Slices, split_lines
from dibs.service.tenants import Tenant
from dibs.service.turns import Turns

GATHERED = 64  # requests that share a turn
THREADS = 8  # mostly they wait for the disk
Outcomes = list[tuple["Publishing", Any]]  # what each is told, or what went wrong


@dataclass
class PublishedSlice:
    """What became of some events of a request."""

    first: int  # the position of the first of them
    events: int
    ids: Sequence[list[Id]]  # that each has matched
    positions: list[int] | None = None  # None: one after the other
    problems: list[tuple[int, str]] = field(default_factory=list)  # of those that could not be read
    front: str = ""  # events are called front + position, where `told` does not say otherwise
    told: list[Enqueued] | None = None  # None: nobody was to be told of anything

    @property
    def count(self) -> int:
        return self.ids.pairs if isinstance(self.ids, IdColumns) else sum(map(len, self.ids))

    def position(self, number: int) -> int:
        return self.first + number if self.positions is None else self.positions[number]


class Publishing:
    """A request to publish. `turn` gives what became of its next events, until `is_done`."""

    def __init__(self, lane: _TenantQueue, body: bytes, lines: bool, key: str | None, skip: bool, longest: int):
        """longest: bytes of an event."""
        self.tenant, self.key, self.skip, self.lines = lane.tenant, key, skip, lines
        self._lane = lane
        self.slices = Slices(body, longest)
        self.answer: asyncio.Future[Any]
        self.published = 0  # events
        published = read_clock()  # which the ids of its events say, too
        self.now = datetime_at(published)  # for all of them
        self.front = f"{published:x}-{secrets.token_hex(6)}-"
        self.is_small = not lines or len(body) <= lane.pace.size  # one slice
        self.is_read = skip or self.is_small  # nothing is to be found out beforehand

    @property
    def is_done(self) -> bool:
        return self.is_read and self.slices.is_at_end

    async def turn(self) -> PublishedSlice:
        while not self.is_read:
            await self._lane.turn(self)
        found: PublishedSlice = await self._lane.turn(self)
        self.published += found.events
        return found

    def at_once(self) -> PublishedSlice | None:
        """Of one event, in the loop, where nothing of it can take long: the tenant has nothing else to publish, nobody
        is to be told and nothing is remembered, the event is matched in no time, and no thread is at what it is noted
        in. None: it needs a turn."""
        tenant = self.tenant
        if not self._lane.is_idle or tenant.details.receivers or tenant.remembers or not tenant.gatherer.is_quick():
            return None
        recent, counts = tenant.recent, tenant.counts
        if not recent.turn.acquire(blocking=False):
            return None
        try:
            if not counts.turn.acquire(blocking=False):
                return None
            try:
                ids = [tenant.gatherer.match_now(self.slices.body, self.now)]
                counts.add(ids)
                tenant.show(recent.add([(f"{self.front}0", self.slices.body, ids[0])]))
            finally:
                counts.turn.release()
        finally:
            recent.turn.release()
        return PublishedSlice(0, 1, ids, front=self.front)

    def be_late(self) -> None:
        if not self.answer.done():
            detail = "it had no turn in time; try again, with the same Idempotency-Key if there is one"
            self.answer.set_exception(Refusal("unavailable", detail, headers={"Retry-After": "5"}))

    # ---- in a thread ----

    def work(self, remembers: bool) -> Matched | None:
        """The next slice, matched (with a history: later), or read through (None)."""
        matcher, slices = self.tenant.matcher, self.slices
        if not self.lines:
            text = slices.advance(len(slices.body))
            slices.events = 1
            return Matched(self, 0, [text], None if remembers else [matcher.match(text, now=self.now)])
        pace = self._lane.pace if self.is_read else self._lane.reading
        begun, text = thread_time(), slices.advance(len(slices.body) if self.is_small else pace.size)
        first = slices.events
        try:
            if not self.is_read:
                slices.events += matcher.check_batch(text)
                pace.measured(len(text), begun)
                if slices.is_at_end:
                    slices.back_to_start()
                    self.is_read = True
                return None
            if remembers:
                texts = split_lines(text)
                return Matched(self, first, texts)
            matches = matcher.match_batch(text, on_error="skip" if self.skip else "raise", now=self.now)
        except EventError as error:
            raise slices.place_error(error) from None
        slices.events += len(matches)
        return self._matched(first, matches)

    def measured(self, begun: float) -> None:
        """A turn that began then has published a slice of this one."""
        if self.is_read and not self.is_small:
            self._lane.pace.measured(len(self.slices.text), begun)

    def _matched(self, first: int, matches: Matches) -> Matched:
        events = len(matches)
        # Columns pay where nobody asks for the ids of one event.
        ids = list(matches) if self.tenant.details.receivers else matches.columns()
        found = Matched(self, first, None, ids, text=self.slices.text)
        if matches.problems:
            bad = {p.event: self.slices.place(p.message) for p in matches.problems}
            good = [place for place in range(events) if place not in bad]
            texts = found.texts
            found = Matched(self, first, [texts[p] for p in good], [ids[p] for p in good])
            found.positions = [first + place for place in good]
            found.problems = [(first + place, message) for place, message in sorted(bad.items())]
        return found


class Matched:
    """Some events of a request, and what they match."""

    def __init__(
        self,
        request: Publishing,
        first: int,
        texts: list[bytes] | None,
        ids: Sequence[list[Id]] | None = None,
        text: bytes = b"",
    ):
        self.request, self.tenant, self.first = request, request.tenant, first
        self._texts, self.text = texts, text
        self.ids: Sequence[list[Id]] = [] if ids is None else ids
        self.positions: list[int] | None = None
        self.problems: list[tuple[int, str]] = []

    @cached_property
    def texts(self) -> list[bytes]:
        if self._texts is not None:
            return self._texts
        found = split_lines(self.text)
        if len(found) != len(self.ids):
            detail = f"{len(found):,} events were expected, {len(self.ids):,} were read: one event per line"
            raise Refusal("body", detail)
        return found

    def position(self, number: int) -> int:
        return self.first + number if self.positions is None else self.positions[number]

    def publications(self) -> list[OfOutbox]:
        """For the outbox; none where nobody is to be told of anything."""
        receivers, name, key = self.tenant.details.receivers, self.tenant.name, self.request.key
        if not receivers:
            return []
        found = []
        for number, (text, ids) in enumerate(zip(self.texts, self.ids)):
            own = None if key is None else f"{key}/{self.position(number)}"
            told = tuple([receiver for id in ids if (receiver := receivers.get(id)) is not None])
            found.append(OfOutbox(text, told, own, name))
        return found


class _TenantQueue:
    """What a tenant has to publish."""

    def __init__(
        self, tenant: Tenant, turns: Turns, deadlines: Deadlines, work: Callable[[list[Publishing]], Outcomes]
    ):
        self.tenant, self._deadlines = tenant, deadlines
        self.pace, self.reading = Pace(), Pace()  # of publishing, and of only reading
        self._turns, self._work = turns, work
        self._waiting: deque[Publishing] = deque()
        self._taken: list[Publishing] = []
        self._is_due = False

    @property
    def is_idle(self) -> bool:
        return not self._is_due and not self._waiting

    async def turn(self, request: Publishing) -> Any:
        loop = asyncio.get_running_loop()
        request.answer = loop.create_future()
        self._waiting.append(request)
        self._next()
        limit = self._deadlines.begin(self.tenant.limits.seconds, request.be_late)
        try:
            return await request.answer
        finally:
            self._deadlines.end(limit)

    def _next(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._turns.begin(self.tenant.name, lambda: self._work(self._take()), self._finish)

    def _take(self) -> list[Publishing]:
        """Those whose turn it is, and only one with more than a slice. (In a thread; others only append.)"""
        taken: list[Publishing] = []
        others: list[Publishing] = []
        large = False
        while self._waiting and len(taken) < GATHERED:
            request = self._waiting.popleft()
            if request.answer.done():  # nobody waits for it any more
                continue
            if large and not request.is_small:
                others.append(request)
                continue
            large = large or not request.is_small
            taken.append(request)
        self._waiting.extendleft(reversed(others))
        self._taken = taken
        return taken

    def _finish(self, answers: Any, error: BaseException | None) -> None:
        self._is_due = False
        for request, told in answers if error is None else [(each, error) for each in self._taken]:
            if request.answer.done():
                continue
            if isinstance(told, BaseException):
                request.answer.set_exception(told)
            else:
                request.answer.set_result(told)
        self._next()


class Publisher:
    def __init__(self, outbox: Outbox, deadlines: Deadlines):
        self._outbox, self._deadlines = SharedOutbox(outbox), deadlines
        self._turns = Turns(THREADS, 1, "dibs-publish")
        self._lanes: dict[str, _TenantQueue] = {}

    def begin(self, tenant: Tenant, body: bytes, *, lines: bool, key: str | None, skip: bool) -> Publishing:
        """lines: of JSON, else one event."""
        lane = self._lanes.get(tenant.name)
        if lane is None:
            lane = self._lanes[tenant.name] = _TenantQueue(
                tenant, self._turns, self._deadlines, partial(self._work, asyncio.get_running_loop())
            )
        return Publishing(lane, body, lines, key, skip, tenant.limits.document)

    def close(self) -> None:
        self._turns.close()

    # ---- in a thread; for one tenant only one at a time ----

    def _work(self, loop: asyncio.AbstractEventLoop, requests: list[Publishing]) -> Outcomes:
        answers: Outcomes = []
        ready: list[Matched] = []
        begun = thread_time()
        remembers = bool(requests) and requests[0].tenant.remembers
        for request in requests:
            try:
                found = request.work(remembers)
                if found is None:
                    answers.append((request, None))
                elif remembers:
                    answers += self._keep_and_tell(ready, loop)  # those before it, first
                    ready = []
                    answers.append((request, self._tell(*self._remember(found), loop)))
                else:
                    ready.append(found)
            except Exception as error:
                answers.append((request, error))
        answers += self._keep_and_tell(ready, loop)
        for request in requests:
            request.measured(begun)
        return answers

    def _remember(self, found: Matched) -> tuple[Matched, list[Enqueued] | None]:
        """Matches, with joins over what was published before, and keeps. The deliveries are on the disk before the
        documents: a kill between the two leaves an event that was not acknowledged, and that finds its history without
        itself when it is published again; under the same Idempotency-Key it is delivered once and remembered once."""
        request = found.request
        matcher, events = found.tenant.matcher, [dict_of(text) for text in found.texts]
        if request.lines:
            request.slices.events = found.first  # what goes wrong is told by its place
        bad = {}
        if request.skip:
            problems = matcher.match_batch(events, on_error="skip").problems
            bad = {problem.event: problem.message for problem in problems}
        good = [place for place in range(len(events)) if place not in bad]
        one = Matched(request, found.first, [found.texts[place] for place in good])
        one.positions = [found.first + place for place in good]
        one.problems = [(found.first + place, message) for place, message in sorted(bad.items())]
        keys = None if request.key is None else [f"publish/{request.key}/{position}" for position in one.positions]
        told: list[list[Enqueued] | None] = []

        def keep(matches: Matches) -> None:
            one.ids = list(matches)
            told.append(self._keep([one])[0])

        try:
            known = [events[place] for place in good]
            matcher.match_after(matcher.history, known, None, "raise", keys, keep, now=request.now)
        except EventError as error:
            raise (request.slices.place_error(error) if request.lines else error) from None
        if request.lines:
            request.slices.events = found.first + len(events)
        return one, told[0]

    def _keep_and_tell(self, ready: list[Matched], loop: asyncio.AbstractEventLoop) -> Outcomes:
        if not ready:
            return []
        try:
            kept = self._keep(ready)
        except Exception as error:
            if len(ready) == 1:
                return [(ready[0].request, error)]
            # One of them may be too much: the others are not to suffer.
            return [answer for one in ready for answer in self._keep_and_tell([one], loop)]
        return [(one.request, self._tell(one, told, loop)) for one, told in zip(ready, kept)]

    def _keep(self, ready: list[Matched]) -> list[list[Enqueued] | None]:
        """On the disk; None where nobody is to be told of anything."""
        parts = [one.publications() for one in ready]
        publications = [publication for part in parts for publication in part]
        told = iter(self._outbox.enqueue_many(publications)) if publications else iter(())
        return [[next(told) for _ in part] if part else None for part in parts]

    def _tell(self, one: Matched, told: list[Enqueued] | None, loop: asyncio.AbstractEventLoop) -> PublishedSlice:
        tenant, front = one.tenant, one.request.front
        if told is None and one.positions is None and one.text and not len(tenant.feed):
            tenant.recent.add_lines(front, one.first, one.text, one.ids)
            tenant.counts.add(one.ids)
        else:
            ids = list(one.ids)
            names = [f"{front}{one.position(n)}" for n in range(len(ids))] if told is None else [e.event for e in told]
            new = [n for n in range(len(names)) if told is None or not told[n].repeated]
            events = tenant.recent.add([(names[n], one.texts[n], ids[n]) for n in new])
            tenant.counts.add([ids[n] for n in new])
            if len(tenant.feed):
                loop.call_soon_threadsafe(tenant.show, events)
        return PublishedSlice(one.first, len(one.ids), one.ids, one.positions, one.problems, front, told)
