"""Streams: clients that come and listen.

A *destination* of the kind stream is kept in the outbox: its last `limit` deliveries. A client follows it from a place
(`follow`), in any process, and after a break goes on where it was (SSE's Last-Event-ID is the place of the last
delivery that it saw). A client that is slower than that is told how many it has missed: there is no buffer for each
client but the one on the disk.

A *live view* (`LiveFeed`) is of this process only and keeps nothing: what is put is handed to all that listen, each
with a buffer of so many items; when one's is full, the oldest go, and it is told how many.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Union

import orjson

from dibs.service.delivery.model import UnknownDestination
from dibs.service.delivery.outbox import Outbox
from dibs.service.delivery.writing import find_lane

T = TypeVar("T")
LOOK = 0.05  # seconds between looks at the outbox
AT_ONCE = 100  # deliveries that are read at once
BUFFER = 1_000  # items for each listener of a live feed


@dataclass(frozen=True)
class Lost:
    """So many items were not handed over: the client was too slow, or away for too long."""

    count: int


@dataclass(frozen=True)
class StreamItem:
    place: int  # 1, 2, 3... within the stream
    body: bytes


# ---- streams that are kept ----


def read_stream(outbox: Outbox, name: str, tenant: str, after: int, count: int = AT_ONCE) -> list[StreamItem]:
    """What a stream keeps after some place. Raises UnknownDestination."""

    def work(connection: sqlite3.Connection) -> list[StreamItem]:
        lane = find_lane(connection, tenant, name)
        if lane.destination.kind != "stream":
            raise UnknownDestination(tenant, name)
        rows = connection.execute(
            "SELECT place, body FROM deliveries WHERE destination = ? AND place > ? ORDER BY place LIMIT ?",
            (lane.number, after, count),
        )
        return [StreamItem(*row) for row in rows]

    return outbox.session.read(work)


def last_place(outbox: Outbox, name: str, tenant: str) -> int:
    """Of the latest delivery to a stream. Raises UnknownDestination."""
    return outbox.session.read(lambda connection: find_lane(connection, tenant, name)).placed


async def follow(
    outbox: Outbox, name: str, tenant: str, after: int | None, executor: Executor | None = None
) -> AsyncIterator[Union[StreamItem, Lost, None]]:
    """What comes to a stream after some place (None: from now on). None about every 15 seconds: still here. Ends by
    UnknownDestination when the stream is removed."""
    loop = asyncio.get_running_loop()
    place = after
    if place is None:
        place = await loop.run_in_executor(executor, last_place, outbox, name, tenant)
    quiet = loop.time()
    while True:
        items = await loop.run_in_executor(executor, read_stream, outbox, name, tenant, place)
        for item in items:
            if item.place > place + 1:
                yield Lost(item.place - place - 1)
            place = item.place
            yield item
        if items:
            quiet = loop.time()
        elif loop.time() > quiet + 15.0:
            quiet = loop.time()
            yield None
        if len(items) < AT_ONCE:
            await asyncio.sleep(LOOK)


# ---- live views ----


class Listener(Generic[T]):
    """One that listens to a live feed: `async for` gives items, and Lost where some are missing."""

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

    async def __anext__(self) -> Union[T, Lost]:
        while not self._items:
            self._news.clear()
            await self._news.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return Lost(lost)
        return self._items.popleft()

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


def sse(event: str, data: Any, place: int | None = None) -> bytes:
    """One server-sent event. Data: an object, or JSON text without line breaks."""
    text = data if isinstance(data, bytes) else orjson.dumps(data)
    head = f"event: {event}\n" if place is None else f"event: {event}\nid: {place}\n"
    return head.encode() + b"data: " + text.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"


async def sse_of_stream(items: AsyncIterator[Union[StreamItem, Lost, None]]) -> AsyncIterator[bytes]:
    """What `follow` gives, as server-sent events: `delivery`, `lost`, and comments while nothing comes."""
    async for item in items:
        if item is None:
            yield b": still here\n\n"
        elif isinstance(item, Lost):
            yield sse("lost", {"count": item.count})
        else:
            yield sse("delivery", item.body, item.place)
