"""From a matching process to the writer, over a socket in the file system that nobody else may open: what only the
writer can answer is handed on as it came, token included, and its answer as it comes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from dibs.service.call import Answer, Receive, Scope, Send, until_gone
from dibs.service.problems import Refusal
from dibs.service.schemas import EVENT_STREAM

OF_A_CONNECTION = {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade", b"host"}
WRITER = "http://localhost"  # by name; a service without tokens answers to the names of this machine only
READY_WITHIN = 2.0  # seconds
SECRET = b"x-dibs-process"  # of the processes of one service


class Forwarder:
    """An ASGI application: the writer, from here."""

    def __init__(self, socket: Path, secret: str):
        self._socket, self._secret = socket, secret
        self._name = secrets.token_hex(4)  # of this process
        self._client: httpx.AsyncClient | None = None
        self.closing: asyncio.Event  # of the service

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            transport = httpx.AsyncHTTPTransport(uds=str(self._socket), limits=httpx.Limits(max_connections=None))
            self._client = httpx.AsyncClient(transport=transport, base_url=WRITER, timeout=None)
        return self._client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._open()
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        headers = [(name, value) for name, value in scope["headers"] if name not in OF_A_CONNECTION]
        headers.append((b"host", dict(scope["headers"]).get(b"host", b"localhost")))
        url = httpx.URL(WRITER).copy_with(raw_path=target)
        request = client.build_request(scope["method"], url, headers=headers, content=_body(receive, scope))
        started = False
        try:
            answer = await client.send(request, stream=True)
            try:
                out = [
                    (name.lower(), value) for name, value in answer.headers.raw if name.lower() not in OF_A_CONNECTION
                ]
                await send({"type": "http.response.start", "status": answer.status_code, "headers": out})
                started = True
                chunks: AsyncIterator[bytes | None] = answer.aiter_raw()
                if answer.headers.get("content-type") == EVENT_STREAM:  # it has no end of its own
                    chunks = until_gone(receive, self.closing, answer.aiter_raw())
                async for chunk in chunks:
                    if chunk is not None:
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                await answer.aclose()
        except httpx.HTTPError:
            if started:
                raise
            refusal = Refusal("unavailable", "the writer does not answer now", headers={"Retry-After": "1"})
            await Answer.refuse(refusal).send(send)

    async def hand_over(self, metrics: dict[str, Any]) -> None:
        headers = {SECRET.decode(): self._secret}
        with suppress(httpx.HTTPError):  # the writer is being started: the next time has all of it
            await self._open().post("/internal/metrics", json={"process": self._name, **metrics}, headers=headers)

    async def is_ready(self) -> bool:
        """Whether the writer answers requests."""
        try:
            answer = await self._open().get("/ready", timeout=READY_WITHIN)
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def _body(receive: Receive, scope: Scope) -> AsyncIterator[bytes] | None:
    if scope["method"] in ("GET", "DELETE", "HEAD"):
        return None
    return _chunks(receive)


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return
