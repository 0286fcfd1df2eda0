"""Streams: clients that come and listen.

A *destination* of the kind stream is kept in the outbox: its last `limit` deliveries. A client follows it from a place
(`Streams.follow`), in any process, and after a break goes on where it was: SSE's Last-Event-ID is the place of the last
delivery that it saw, with the number of the stream (17-3). A client that is slower than that is told how many it has
missed: there is no buffer for each client but the one on the disk.

A *live view* (`LiveFeed`) is of this process only and keeps nothing: what is put is handed to all that listen, each
with a buffer of so many items; when one's is full, the oldest go, and it is told how many.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, TypeVar, Union

import orjson

from dibs.errors import ArgumentError, StorageError, show
from dibs.service.delivery.model import UnknownDestination
from dibs.service.delivery.outbox import Outbox
from dibs.service.delivery.schema import FILE
from dibs.storage.sqlite import Session

T = TypeVar("T")
LOOK = 0.05  # seconds between looks at the outbox
STILL_HERE = 15.0  # seconds of silence
KEPT_BYTES = 1 << 20  # of the latest deliveries of a stream, for all who follow it
WOKEN = 4  # followers that are told something in one turn of the loop
AT_ONCE = 100  # deliveries that are read at once
BUFFER = 1_000  # items for each listener of a live feed


@dataclass(frozen=True)
class Lost:
    """So many items were not handed over: the client was too slow, or away for too long."""

    count: int


@dataclass(frozen=True)
class Reset:
    """The stream is another one than the client has followed: one of the same name, made after that was removed. What
    comes is from its beginning."""


@dataclass(frozen=True)
class StreamItem:
    place: int  # 1, 2, 3... within the stream
    body: bytes
    stream: int | None = None  # which one: no two ever have the same number

    @cached_property
    def sse(self) -> bytes:
        """As a server-sent event: made once for all who follow."""
        return sse("delivery", self.body, self.place if self.stream is None else f"{self.place}-{self.stream}")


@dataclass(frozen=True)
class Place:
    """Where a client is: the id of the last delivery that it saw."""

    place: int
    stream: int | None = None  # None: the client does not say of which

    @classmethod
    def of(cls, text: str) -> Place:
        """From "17-3", as ids of deliveries are, or from a place alone. Raises ArgumentError."""
        place, dash, stream = text.partition("-")
        if not all(part.isascii() and part.isdigit() and len(part) <= 16 for part in (place, stream or "0")):
            raise ArgumentError(f"a place in a stream is the id of a delivery, as 17-3, or a number, not {show(text)}")
        return cls(int(place), int(stream) if dash else None)


Followed = list[Union[StreamItem, Lost, Reset]]  # what has come; nothing, about every 15 seconds: still here


# ---- streams that are kept ----


def read_stream(outbox: Outbox, name: str, tenant: str, after: int, count: int = AT_ONCE) -> list[StreamItem]:
    """What a stream keeps after some place. Raises UnknownDestination."""
    return outbox.session.read(lambda connection: _read(connection, (tenant, name), after, count)[1])


def _find_stream(connection: sqlite3.Connection, key: tuple[str, str]) -> tuple[int, int]:
    """Its number, and the place of its latest delivery."""
    found = connection.execute(
        "SELECT number, placed FROM destinations WHERE tenant = ? AND name = ? AND kind = 'stream'", key
    ).fetchone()
    if found is None:
        raise UnknownDestination(*key)
    number, placed = found
    return number, placed


def _read(connection: sqlite3.Connection, key: tuple[str, str], after: int, count: int) -> tuple[int, list[StreamItem]]:
    number, _ = _find_stream(connection, key)
    rows = connection.execute(
        "SELECT place, body FROM deliveries WHERE destination = ? AND place > ? ORDER BY place LIMIT ?",
        (number, after, count),
    )
    return number, [StreamItem(place, body, number) for place, body in rows]


class _Stream:
    """What is known of one that somebody follows."""

    def __init__(self) -> None:
        self.followers = 0
        self.number = self.placed = -1  # -1: nobody has looked yet; -2: there is none
        self.items: list[StreamItem] = []  # the latest
        self.looks = 0  # that have found something
        self.waiting: list[asyncio.Future[None]] = []  # those who have seen it

    def after(self, number: int, place: int) -> list[StreamItem] | None:
        """None: what is known does not go back so far."""
        if number != self.number or place > self.placed:
            return None
        if place == self.placed:
            return []
        if not self.items or self.items[0].place > place + 1:
            return None
        return self.items[place + 1 - self.items[0].place :]

    def update(self, number: int, placed: int, new: list[StreamItem]) -> None:
        kept = [*self.items, *new][-AT_ONCE:] if number == self.number else new
        while len(kept) > 1 and sum(len(item.body) for item in kept) > KEPT_BYTES:
            kept = kept[len(kept) // 2 :]
        together = not kept or kept[-1].place - kept[0].place == len(kept) - 1
        self.number, self.placed, self.items = number, placed, kept if together else []
        self.looks += 1

    async def wait(self, looks: int, seconds: float) -> bool:
        """Whether something has come within this time, or since so many looks."""
        if looks != self.looks:
            return True
        loop = asyncio.get_running_loop()
        news: asyncio.Future[None] = loop.create_future()
        self.waiting.append(news)
        timer = loop.call_later(seconds, _cancel, news)
        try:
            await news
        except asyncio.CancelledError:
            if timer.when() > loop.time():  # it is the follower who is cancelled
                raise
            return False
        finally:
            timer.cancel()
            if news.cancelled() and news in self.waiting:
                self.waiting.remove(news)
        return True

    async def wake(self) -> None:
        """Those who wait, some at a time: what the loop does for all of them together others would have to wait for."""
        waiting, self.waiting = self.waiting, []
        for start in range(0, len(waiting), WOKEN):
            for news in waiting[start : start + WOKEN]:
                if not news.done():
                    news.set_result(None)
            await asyncio.sleep(0)


def _cancel(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.cancel()


class Streams:
    """All streams of an outbox that are followed in a process. One look for all of them, over a connection of its own:
    how many follow makes no difference to those who publish."""

    def __init__(self, outbox: Outbox, executor: Executor | None = None):
        self._executor = executor
        self._session = Session(outbox.folder, read_only=True, name=FILE)
        self._followed: dict[tuple[str, str], _Stream] = {}
        self._stamp: tuple[int, ...] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def check(self, name: str, tenant: str) -> None:
        """Raises UnknownDestination."""
        await self._call(partial(_find_stream, key=(tenant, name)))

    async def follow(self, name: str, tenant: str, after: Place | None) -> AsyncIterator[Followed]:
        """What comes to a stream after some place (None: from now on). Ends by UnknownDestination when the stream is
        removed."""
        key = (tenant, name)
        stream = self._followed.setdefault(key, _Stream())
        stream.followers += 1
        self._stamp = None  # look at it
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look_for_ever())
        try:
            number, placed = await self._call(partial(_find_stream, key=key))
            place = placed if after is None else after.place
            if after is not None and (after.stream not in (None, number) or place > placed):
                yield [Reset()]
                place = 0
            while True:
                looks = stream.looks
                known = stream.after(number, place)
                items = known or []
                if known is None:
                    found, items = await self._call(partial(_read, key=key, after=place, count=AT_ONCE))
                    if found != number:
                        yield [Reset()]
                        number, place = found, 0
                        continue
                if items:
                    yield _with_lost(items, place)
                    place = items[-1].place
                elif not await stream.wait(looks, STILL_HERE):
                    yield []
        finally:
            stream.followers -= 1
            if not stream.followers:
                self._followed.pop(key, None)

    async def _look_for_ever(self) -> None:
        while self._followed:
            try:
                for key, found in (await self._call_plain(self._look)).items():
                    stream = self._followed.get(key)
                    if stream is not None:
                        stream.update(*found)
                        await stream.wake()
            except StorageError:  # somebody's long transaction: the next look finds it
                self._stamp = None
            await asyncio.sleep(LOOK)

    def _look(self) -> dict[tuple[str, str], tuple[int, int, list[StreamItem]]]:
        """What is new of those that are followed."""
        stamp = self._session.stamp()
        if stamp == self._stamp:
            return {}
        self._stamp = stamp
        return self._session.read(self._read_news)

    def _read_news(self, connection: sqlite3.Connection) -> dict[tuple[str, str], tuple[int, int, list[StreamItem]]]:
        rows = connection.execute("SELECT tenant, name, number, placed FROM destinations WHERE kind = 'stream'")
        there = {(tenant, name): (number, placed) for tenant, name, number, placed in rows}
        news = {}
        for key, stream in list(self._followed.items()):
            number, placed = there.get(key, (-2, -2))
            if (number, placed) == (stream.number, stream.placed):
                continue
            new: list[StreamItem] = []
            if number >= 0:
                known = stream.placed if stream.number == number else placed
                new = _read(connection, key, max(known, placed - AT_ONCE), AT_ONCE)[1]
            news[key] = number, placed, new
        return news

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._call_plain(lambda: self._session.read(work))

    async def _call_plain(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        self._session.close()


def _with_lost(items: list[StreamItem], place: int) -> Followed:
    """What comes after this place, with what is missing there."""
    found: Followed = []
    for item in items:
        if item.place > place + 1:
            found.append(Lost(item.place - place - 1))
        found.append(item)
        place = item.place
    return found


async def follow(outbox: Outbox, name: str, tenant: str, after: int | None) -> AsyncIterator[Followed]:
    """`Streams.follow`, for one."""
    streams = Streams(outbox)
    try:
        async for items in streams.follow(name, tenant, None if after is None else Place(after)):
            yield items
    finally:
        streams.close()


# ---- live views ----


class Listener(Generic[T]):
    """One that listens to a live feed: `async for` gives the items that have come, after a Lost where some are
    missing."""

    def __init__(self, feed: LiveFeed[T], buffer: int):
        self._feed = feed
        self._items: deque[T] = deque(maxlen=buffer)
        self._lost = 0
        self._news = asyncio.Event()

    def put(self, item: T) -> None:
        if len(self._items) == self._items.maxlen:
            self._lost += 1
        self._items.append(item)
        self._news.set()

    def __aiter__(self) -> Listener[T]:
        return self

    async def __anext__(self) -> list[Union[T, Lost]]:
        while not self._items:
            self._news.clear()
            await self._news.wait()
        found: list[Union[T, Lost]] = [Lost(self._lost), *self._items] if self._lost else [*self._items]
        self._lost = 0
        self._items.clear()
        return found

    def __enter__(self) -> Listener[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self._feed.leave(self)


class LiveFeed(Generic[T]):
    """`with feed.listen() as listener: async for item in listener: ...`. For one event loop."""

    def __init__(self) -> None:
        self._listeners: set[Listener[T]] = set()

    def __len__(self) -> int:
        return len(self._listeners)

    def put(self, item: T) -> None:
        """Never waits."""
        for listener in self._listeners:
            listener.put(item)

    def listen(self, buffer: int = BUFFER) -> Listener[T]:
        listener = Listener(self, buffer)
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener[T]) -> None:
        self._listeners.discard(listener)


# ---- as server-sent events ----


def sse(event: str, data: Any, place: int | str | None = None) -> bytes:
    """One server-sent event. Data: an object, or JSON text without line breaks."""
    text = data if isinstance(data, bytes) else orjson.dumps(data)
    head = f"event: {event}\n" if place is None else f"event: {event}\nid: {place}\n"
    return head.encode() + b"data: " + text.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"


async def sse_of_stream(found: AsyncIterator[Followed | None]) -> AsyncIterator[bytes]:
    """What `follow` gives, as server-sent events: `delivery`, `lost`, `reset`, and comments while nothing comes."""
    async for items in found:
        yield b"".join([_sse_of(item) for item in items]) if items else b": still here\n\n"


def _sse_of(item: StreamItem | Lost | Reset) -> bytes:
    if isinstance(item, Lost):
        return sse("lost", {"count": item.count})
    return sse("reset", {}) if isinstance(item, Reset) else item.sse
