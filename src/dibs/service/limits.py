"""What may be under way in a process at once: requests, the bytes of their bodies and answers, and streams; for a token
(streams: for a tenant) and in all. Above it a request is refused, by a problem document that names the limit: 429 where
it is the token's own doing, 503 where it is everybody's.

Bodies and answers of up to SMALL bytes are not counted: connections bound them (protocol.py). So nobody who asks for
little is refused because others ask for much.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from dibs.service.problems import Refusal
from dibs.service.settings import Limits, Settings
from dibs.service.tokens import Identity

What = Literal["bytes", "streams"]
SMALL = 64 << 10  # bytes
AGAIN = {"requests": "1", "bytes": "2", "streams": "10"}  # seconds


class Room:
    """Of a process."""

    def __init__(self, settings: Settings):
        self._most = {"bytes": settings.max_bytes, "streams": settings.max_streams}
        self._taken: dict[tuple[str, str], int] = {}  # of a token, or a tenant
        self.requests: dict[str, int] = {}  # of a token: apart, because each request takes one
        self.taken = {"bytes": 0, "streams": 0}  # in all

    def take(self, what: What, whose: str, amount: int, most: int) -> None:
        """most: of this token or tenant; 0: any number."""
        own = self._taken.get((what, whose), 0) + amount
        if most and own > most:
            raise over(what, own, most)
        in_all = self._most[what]
        if in_all and self.taken[what] + amount > in_all:
            detail = f"{self.taken[what] + amount:,} {what} would be under way at once; at most {in_all:,} are taken"
            raise Refusal(
                "unavailable", detail, {"limit": f"{what} in all", "most": in_all}, {"Retry-After": AGAIN[what]}
            )
        self.add(what, whose, amount)

    def add(self, what: What, whose: str, amount: int) -> None:
        self.taken[what] += amount
        left = self._taken[what, whose] = self._taken.get((what, whose), 0) + amount
        if not left:
            del self._taken[what, whose]


def over(what: str, own: int, most: int) -> Refusal:
    of = "the tenant" if what == "streams" else "the token"
    detail = f"{own:,} {what} of {of} would be under way at once; at most {most:,} are taken"
    return Refusal("quota", detail, {"limit": what, "most": most}, {"Retry-After": AGAIN[what]})


class Hold:
    """What one request takes of it, until it ends."""

    __slots__ = ("_bytes", "_is_request", "_is_stream", "ending", "identity", "limits", "reason", "room", "tenant")

    def __init__(self, room: Room, identity: Identity, tenant: str, limits: Limits):
        self.room, self.identity, self.tenant, self.limits = room, identity, tenant, limits
        self._bytes = 0
        self._is_request = self._is_stream = False
        self.ending: asyncio.Event  # of a stream; set: it ends
        self.reason = ""  # why it does, if that is to be said

    def begin(self) -> None:
        requests, token, most = self.room.requests, self.identity.token, self.limits.requests
        own = requests.get(token, 0) + 1
        if most and own > most:
            raise over("requests", own, most)
        requests[token] = own
        self._is_request = True

    def take_bytes(self, amount: int) -> None:
        """Of a body, as they come."""
        self.room.take("bytes", self.identity.token, amount, self.limits.bytes)
        self._bytes += amount

    def add_bytes(self, amount: int) -> None:
        """Of an answer, which is there already."""
        if amount > SMALL:
            self.room.add("bytes", self.identity.token, amount)
            self._bytes += amount

    def become_stream(self) -> None:
        """It has no end of its own: it is none of the requests any more."""
        self.room.take("streams", self.tenant, 1, self.limits.streams)
        self._is_stream = True
        self._end_request()
        self.ending = asyncio.Event()

    def end_stream(self, reason: str = "") -> None:
        self.reason = self.reason or reason
        self.ending.set()

    def end(self) -> None:
        if self._bytes:
            self.room.add("bytes", self.identity.token, -self._bytes)
            self._bytes = 0
        if self._is_stream:
            self.room.add("streams", self.tenant, -1)
            self._is_stream = False
        self._end_request()

    def _end_request(self) -> None:
        if not self._is_request:
            return
        self._is_request = False
        requests, token = self.room.requests, self.identity.token
        requests[token] -= 1
        if not requests[token]:
            del requests[token]
