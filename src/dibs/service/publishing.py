"""Publishing: events are matched, handed to the outbox, kept among the recent ones and counted, in this order and one
after the other. While a commit is on its way to the disk the next ones gather, and share the next."""

from __future__ import annotations

import asyncio
import secrets
import time
from concurrent.futures import Executor
from dataclasses import dataclass

from dibs.arguments import Id
from dibs.coding.lines import read_lines
from dibs.matches import Matches
from dibs.segments.single.texts import dict_of
from dibs.service.delivery import Enqueued, MatchedDestination, Mode, Outbox, Publication
from dibs.service.details import Receiver
from dibs.service.problems import Refusal
from dibs.service.tenants import Tenant

GATHERED = 64  # requests that share a commit


@dataclass(frozen=True)
class Published:
    """What became of one event."""

    event: str  # its id
    ids: list[Id]
    deliveries: int
    refused: dict[str, str]  # destinations that are full
    position: int = 0  # in its request


@dataclass
class Wish:
    """A request to publish, and its answer: what was published, and what could not be read."""

    tenant: Tenant
    texts: list[bytes]
    key: str | None
    skip: bool
    answer: asyncio.Future[tuple[list[Published], list[tuple[int, str]]]]


@dataclass
class Matched:
    wish: Wish
    texts: list[bytes]
    positions: list[int]
    ids: list[list[Id]]
    problems: list[tuple[int, str]]


def split_lines(body: bytes) -> list[bytes]:
    return [text for lines in read_lines(body) for text in lines.texts]


class Publisher:
    def __init__(self, outbox: Outbox, pool: Executor):
        self._outbox, self._pool = outbox, pool
        self._waiting: list[Wish] = []
        self._is_busy = False

    async def publish(
        self, tenant: Tenant, texts: list[bytes], key: str | None, skip: bool
    ) -> tuple[list[Published], list[tuple[int, str]]]:
        """All of the texts or, when one cannot be read and skip is not said, none."""
        wish = Wish(tenant, texts, key, skip, asyncio.get_running_loop().create_future())
        self._waiting.append(wish)
        self._next()
        return await wish.answer

    def _next(self) -> None:
        if self._is_busy or not self._waiting:
            return
        wishes, self._waiting = self._waiting[:GATHERED], self._waiting[GATHERED:]
        self._is_busy = True
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._pool, self._work, wishes, loop).add_done_callback(self._finish)

    def _finish(self, done: asyncio.Future[None]) -> None:
        self._is_busy = False
        done.result()
        self._next()

    def _work(self, wishes: list[Wish], loop: asyncio.AbstractEventLoop) -> None:
        """In a thread; only one of them at a time."""
        ready: list[Matched] = []
        for wish in wishes:
            try:
                if wish.tenant.remembers:
                    self._keep_and_tell(ready, loop)  # those before it, first
                    ready = []
                    self._tell(*self._remember(wish), loop)
                else:
                    ready.append(_match(wish))
            except Exception as error:
                loop.call_soon_threadsafe(_fail, wish, error)
        self._keep_and_tell(ready, loop)

    def _remember(self, wish: Wish) -> tuple[Matched, list[Enqueued]]:
        """Matches, with joins over what was published before, and keeps. The deliveries are on the disk before the
        documents: a kill between the two leaves an event that was not acknowledged, and that finds its history without
        itself when it is published again; under the same Idempotency-Key it is delivered once and remembered once."""
        matcher, events = wish.tenant.matcher, [dict_of(text) for text in wish.texts]
        bad = _problems(matcher.match_batch(events, on_error="skip")) if wish.skip else {}
        positions = [place for place in range(len(events)) if place not in bad]
        done: list[tuple[Matched, list[Enqueued]]] = []
        keys = None if wish.key is None else [f"publish/{wish.key}/{place}" for place in positions]

        def keep(matches: Matches) -> None:
            texts = [wish.texts[place] for place in positions]
            one = Matched(wish, texts, positions, list(matches), sorted(bad.items()))
            done.append((one, self._keep([one])[0]))

        matcher.match_after(matcher.history, [events[place] for place in positions], None, "raise", keys, keep)
        return done[0]

    def _keep_and_tell(self, ready: list[Matched], loop: asyncio.AbstractEventLoop) -> None:
        if not ready:
            return
        try:
            answers = self._keep(ready)
        except Exception as error:
            if len(ready) == 1:
                loop.call_soon_threadsafe(_fail, ready[0].wish, error)
                return
            for one in ready:  # one of them may be too much: the others are not to suffer
                try:
                    self._tell(one, self._keep([one])[0], loop)
                except Exception as error:
                    loop.call_soon_threadsafe(_fail, one.wish, error)
            return
        for one, told in zip(ready, answers):
            self._tell(one, told, loop)

    def _keep(self, ready: list[Matched]) -> list[list[Enqueued]]:
        """On the disk."""
        publications: list[Publication] = []
        of_outbox: list[bool] = []
        for one in ready:
            receivers = one.wish.tenant.details.receivers
            of_outbox.append(bool(receivers))
            if not receivers:  # nobody is to be told of anything
                continue
            for number, (text, ids) in enumerate(zip(one.texts, one.ids)):
                key = one.wish.key if one.wish.key is None else f"{one.wish.key}/{one.positions[number]}"
                matches = [_match_destination(id, receivers[id]) for id in ids if id in receivers]
                publications.append(Publication(text, tuple(matches), key, one.wish.tenant.name))
        told = iter(self._outbox.enqueue_many(publications)) if publications else iter(())
        return [[next(told) if kept else Enqueued(_new_id()) for _ in one.texts] for one, kept in zip(ready, of_outbox)]

    def _tell(self, one: Matched, told: list[Enqueued], loop: asyncio.AbstractEventLoop) -> None:
        new = [place for place, enqueued in enumerate(told) if not enqueued.repeated]
        tenant = one.wish.tenant
        events = tenant.recent.add([(told[place].event, one.texts[place], one.ids[place]) for place in new])
        tenant.counts.add(one.ids[place] for place in new)
        published = [
            Published(e.event, ids, e.deliveries, e.refused, position)
            for e, ids, position in zip(told, one.ids, one.positions)
        ]
        loop.call_soon_threadsafe(_succeed, one.wish, (published, one.problems))
        if len(tenant.feed):
            loop.call_soon_threadsafe(tenant.show, events)


def _match(wish: Wish) -> Matched:
    texts = wish.texts
    matcher = wish.tenant.matcher
    if len(texts) == 1 and not wish.skip:
        return Matched(wish, texts, [0], [matcher.match(texts[0])], [])
    matches = matcher.match_batch(b"\n".join(texts), on_error="skip" if wish.skip else "raise")
    if len(matches) != len(texts):
        raise Refusal("body", f"{len(texts):,} events were expected, {len(matches):,} were read: one event per line")
    bad = _problems(matches)
    good = [place for place in range(len(texts)) if place not in bad]
    ids = list(matches)
    return Matched(wish, [texts[p] for p in good], good, [ids[p] for p in good], sorted(bad.items()))


def _problems(matches: Matches) -> dict[int, str]:
    return {problem.event: problem.message for problem in matches.problems}


def _match_destination(id: Id, receiver: Receiver) -> MatchedDestination:
    return MatchedDestination(id, receiver.destination, Mode.of(receiver.mode), receiver.version, receiver.weight)


def _new_id() -> str:
    return f"{time.time_ns() // 1_000:x}-{secrets.token_hex(6)}"


def _succeed(wish: Wish, answer: tuple[list[Published], list[tuple[int, str]]]) -> None:
    if not wish.answer.done():
        wish.answer.set_result(answer)


def _fail(wish: Wish, error: Exception) -> None:
    if not wish.answer.done():
        wish.answer.set_exception(error)
