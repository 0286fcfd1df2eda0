"""Streams over WebSocket: the same streams as server-sent events, for clients that would rather have messages.

A WebSocket of a stream's address is answered as a GET of it is, by the same code: the same token, rate, tenant and
limits, the same waiting for a slow client. Each server-sent event becomes a message, a JSON text with the same parts:

    {"event": "delivery", "id": 17, "data": {...}}

What a client sends is read and given away. A refusal is the answer to the handshake, a problem document as ever.
Whether the other side is still there is asked by pings of the protocol (uvicorn).

A browser cannot send a header with a WebSocket; it names two protocols instead: dibs, and the token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import orjson

from dibs.service.call import Receive, Scope, Send
from dibs.service.schemas import EVENT_STREAM

PROTOCOL = "dibs"
LARGEST = 1 << 16  # bytes of a message from a client
GOING_AWAY, POLICY = 1001, 1008  # how a WebSocket ends: the service stops, or the stream has; it was refused
OF_A_HANDSHAKE = (b"sec-websocket-", b"upgrade", b"connection")


def as_get(scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
    """A GET of the same address, whose answer goes to the WebSocket."""
    given = dict(scope["headers"])
    headers = [(name, value) for name, value in scope["headers"] if not name.startswith(OF_A_HANDSHAKE)]
    protocols = given.get(b"sec-websocket-protocol", b"").decode("latin-1").split(",")
    names = [name.strip() for name in protocols]
    if names[0] == PROTOCOL and len(names) == 2 and b"authorization" not in given:
        headers.append((b"authorization", b"Bearer " + names[1].encode("latin-1")))
    socket = _Socket(receive, send, PROTOCOL if names[0] == PROTOCOL else None, scope.get("extensions") or {})
    return {**scope, "type": "http", "method": "GET", "headers": headers}, socket.receive, socket.send


class _Socket:
    """A WebSocket as the two ends of a request."""

    def __init__(self, receive: Receive, send: Send, protocol: str | None, extensions: Scope):
        self._receive, self._send, self._protocol = receive, send, protocol
        self._may_answer = "websocket.http.response" in extensions  # else a refusal has no words
        self._is_asked = self._is_open = False
        self._left = b""  # of an event whose end has not come

    async def receive(self) -> Scope:
        if not self._is_asked:
            self._is_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        while (await self._receive())["type"] != "websocket.disconnect":
            pass
        return {"type": "http.disconnect"}

    async def send(self, message: Scope) -> None:
        with suppress(OSError, RuntimeError):  # the client is gone, or has sent what is no frame: `receive` says so
            await self._hand_on(message)

    async def _hand_on(self, message: Scope) -> None:
        if message["type"] == "http.response.start":
            await self._start(message)
        elif self._is_open:
            for text in self._texts(message.get("body", b"")):
                await self._send({"type": "websocket.send", "text": text})
            if not message.get("more_body"):
                await self._send({"type": "websocket.close", "code": GOING_AWAY})
        elif self._may_answer:
            await self._send({**message, "type": "websocket.http.response.body"})

    async def _start(self, message: Scope) -> None:
        headers = dict(message["headers"])
        if message["status"] == 200 and headers.get(b"content-type", b"").startswith(EVENT_STREAM.encode()):
            self._is_open = True
            await self._send({"type": "websocket.accept", "subprotocol": self._protocol})
        elif self._may_answer:
            await self._send({**message, "type": "websocket.http.response.start"})
        else:
            await self._send({"type": "websocket.close", "code": POLICY, "reason": str(message["status"])})

    def _texts(self, body: bytes) -> Iterator[str]:
        *events, self._left = (self._left + body).split(b"\n\n")
        for event in events:
            if not event.startswith(b":"):
                yield message_of(event)


def message_of(event: bytes) -> str:
    """A server-sent event as a message."""
    parts = dict(line.split(b": ", 1) for line in event.split(b"\n"))
    about = {"event": parts[b"event"].decode()} | ({"id": _id(parts[b"id"])} if b"id" in parts else {})
    return orjson.dumps(about | {"data": orjson.Fragment(parts[b"data"])}).decode()


def _id(text: bytes) -> int | str:
    return int(text) if text.isdigit() else text.decode()
