"""A request as handlers see it (its token, tenant, parameters and body checked), and an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from dibs.arguments import Id
from dibs.service.checking import integer_of, problem_with
from dibs.service.limits import Hold
from dibs.service.problems import Refusal
from dibs.service.routes import JSON, LINES, PROBLEM, Route
from dibs.service.subscriptions import Condition
from dibs.service.tokens import Identity

if TYPE_CHECKING:
    from dibs.service.app import Service
    from dibs.service.tenants import Tenant

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
LINE_TYPES = {LINES, "application/x-ndjson", "application/jsonlines"}
BODY_TYPES = {JSON, "", *LINE_TYPES}
PLAIN = JSON.encode()  # what most requests have
LONGEST_ID = 1_000  # characters
LONGEST_KEY = 200
PIECE = 256 << 10  # bytes
PING = 15.0  # seconds of silence in a stream


@dataclass(slots=True)
class Answer:
    body: bytes = b""
    status: int = 200
    media: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    chunks: AsyncIterator[bytes] | None = None  # in place of the body, as they come
    kept: bytes | None = None  # what a repeat of the request gets, if not the body

    @classmethod
    def of(cls, value: Any, status: int = 200, **headers: str) -> Answer:
        """As JSON."""
        return cls(orjson.dumps(value), status, headers=headers)

    @classmethod
    def refuse(cls, refusal: Refusal) -> Answer:
        body = orjson.dumps(refusal.document(), default=str)
        return cls(body, refusal.status, PROBLEM, dict(refusal.headers))

    async def send(self, send: Send, head: bool = False) -> None:
        """head: only that. A long body goes piece by piece, as the client takes it."""
        headers = [(b"content-type", self.media.encode()), *SAFE]
        for name, value in self.headers.items():
            headers.append((name.lower().encode(), value.encode("latin-1", "replace")))
        if self.chunks is None:
            headers.append((b"content-length", b"%d" % len(self.body)))
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            body = b"" if head else self.body
            start = 0
            while len(body) - start > PIECE:
                await send({"type": "http.response.body", "body": body[start : start + PIECE], "more_body": True})
                start += PIECE
            await send({"type": "http.response.body", "body": body[start:]})
            return
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        if head:
            await send({"type": "http.response.body", "body": b""})
            return
        async for chunk in self.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


# No page of another site may read, frame or guess the type of an answer, and no cache keeps it.
SAFE = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
]


@dataclass(slots=True)
class Call:
    service: Service
    route: Route
    scope: Scope
    receive: Receive
    send: Send
    headers: dict[bytes, bytes]
    path: dict[str, str]  # its {names}
    identity: Identity
    tenant: Tenant
    parameters: dict[str, Any]
    hold: Hold
    body: bytes = b""

    # ---- what was sent ----

    @property
    def media(self) -> str:
        given = self.headers.get(b"content-type", b"")
        if given == PLAIN:
            return JSON
        return given.decode("latin-1").split(";")[0].strip().lower()

    @property
    def is_lines(self) -> bool:
        return self.media in LINE_TYPES

    def json(self) -> Any:
        """The body, as the route's schema says."""
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError as e:
            raise Refusal("body", f"the body is no JSON: {e}") from None
        assert self.route.body is not None
        problem = problem_with(value, self.route.body)
        if problem:
            raise Refusal("body", problem)
        return value

    @property
    def id(self) -> Id:
        """The subscription in the path."""
        return self.id_of(self.path["id"])

    def id_of(self, text: str) -> Id:
        if self.parameters["integer"]:
            number = integer_of(text, "an id")
            if -(2**63) <= number < 2**63:
                return number
            raise Refusal("argument", f"an id has 64 bits with sign, which is not enough for {number}")
        if not text or len(text) > LONGEST_ID:
            raise Refusal("argument", f"an id has 1 to {LONGEST_ID:,} characters, not {len(text):,}")
        return text

    @property
    def condition(self) -> Condition:
        """If-Match and If-None-Match."""
        wanted = self.headers.get(b"if-match", b"").decode("latin-1").strip()
        unwanted = self.headers.get(b"if-none-match", b"").decode("latin-1").strip()
        if unwanted not in ("", "*"):
            raise Refusal("argument", 'If-None-Match must be *: "only if it is not there"')
        if wanted in ("", "*"):
            return Condition(exists=wanted == "*", absent=unwanted == "*")
        versions = [integer_of(tag.strip().removeprefix("W/").strip('"'), "If-Match") for tag in wanted.split(",")]
        return Condition(frozenset(versions), absent=unwanted == "*")

    @property
    def key(self) -> str | None:
        """The Idempotency-Key."""
        found = self.headers.get(b"idempotency-key")
        if found is None:
            return None
        text = found.decode("latin-1")
        if not 1 <= len(text) <= LONGEST_KEY:
            raise Refusal("argument", f"an Idempotency-Key has 1 to {LONGEST_KEY} characters, not {len(text):,}")
        return text

    # ---- working ----

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Not in the loop, when it is the tenant's turn, and within its time."""
        return await self.service.turns.run(self.tenant.name, work, self.tenant.limits.seconds)

    def open_stream(self) -> Hold:
        """It ends when its `ending` is set. Raises Refusal if too many are open."""
        self.hold.become_stream()
        self.service.open_streams.add(self.hold)
        return self.hold


# ---- streams ----


async def until_gone(receive: Receive, closing: asyncio.Event, items: AsyncIterator[T]) -> AsyncIterator[T | None]:
    """The items, until the client leaves or the service stops; None when there was none for a while."""
    gone = asyncio.ensure_future(_wait_for_disconnect(receive))
    stop = asyncio.ensure_future(closing.wait())
    following: asyncio.Future[T] | None = None
    try:
        while not gone.done() and not stop.done():
            if following is None:
                following = asyncio.ensure_future(_next(items))
            awaited: set[asyncio.Future[Any]] = {following, gone, stop}
            done, _ = await asyncio.wait(awaited, timeout=PING, return_when="FIRST_COMPLETED")
            if following in done:
                found, following = following.result(), None
                yield found
            elif not done:
                yield None
    except RuntimeError as end:  # a task cannot end by StopAsyncIteration
        if not isinstance(end.__cause__, StopAsyncIteration):
            raise
    finally:
        for task in (gone, stop, following):
            if task is not None:
                task.cancel()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
