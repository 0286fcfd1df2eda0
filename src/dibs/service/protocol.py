"""HTTP on a connection, as uvicorn speaks it, with bounds. (Bodies are bounded in bodies.py.)

heads         a client that sends the head of a request byte by byte, or without end, is cut off
answers       a client that takes nothing of its answer, or stream, for so long that more could not be sent is cut off
connections   of more than `most`, the one is closed that has waited longest for a request; if none waits, the new one
              is answered 503
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import orjson

from dibs.service.problems import Refusal
from dibs.service.routes import PROBLEM

HEAD_SECONDS = 10.0
HEAD_BYTES = 64 << 10
STALLED = 30.0  # seconds
SWEEP = 5.0  # seconds between looks for those


def http_protocol(most: int = 0, stalled: float = STALLED) -> Any:
    """The class for uvicorn: of httptools where it is installed. most: connections; 0: any number. stalled: seconds in
    which some of an answer must be taken."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:  # h11 bounds its heads itself
        return "h11"

    opened: dict[Bounded, None] = {}  # in the order in which they were opened, or last had a request
    sweeping: list[asyncio.TimerHandle] = []

    class Bounded(HttpToolsProtocol):
        _guard: asyncio.TimerHandle | None = None
        _head_bytes = 0
        _is_refused = False
        _paused_at: float | None = None
        _under_way: list[
            Any
        ]  # requests that are not answered yet, in their order: several where a client does not wait

        def connection_made(self, transport: Any) -> None:
            self._under_way = []
            super().connection_made(transport)
            if most and len(opened) >= most and not _make_room():
                self._refuse()
                return
            opened[self] = None
            if not sweeping:
                sweeping.append(self.loop.call_later(min(SWEEP, stalled), _sweep, self.loop))
            self._begin_head()

        def connection_lost(self, exc: Exception | None) -> None:
            opened.pop(self, None)
            self._end_head()
            self._forget_client()
            super().connection_lost(exc)

        def handle_websocket_upgrade(self) -> None:
            opened.pop(self, None)  # streams are counted elsewhere (limits.py), and see to themselves by pings
            super().handle_websocket_upgrade()

        # ---- connections ----

        @property
        def waits(self) -> bool:
            """For a request."""
            return (self.cycle is None or self.cycle.response_complete) and not self.pipeline

        def _refuse(self) -> None:
            detail = f"{most:,} connections are open, and each has a request under way"
            more = {"limit": "connections in all", "most": most}
            self._answer(Refusal("unavailable", detail, more, {"Retry-After": "1"}))

        def send_400_response(self, msg: str) -> None:
            """To what the parser does not take. Requests before it have their answers, and the connection then ends."""
            self._is_refused = True
            waiting = [each for each in self._under_way if not each.response_complete]
            if waiting and not waiting[-1].more_body:
                waiting[-1].keep_alive = False
            elif waiting and (len(waiting) > 1 or waiting[0].response_started):  # the body of the last has no end
                self.cut_off()
            else:
                self._answer(Refusal("argument", f"this is no request of HTTP/1.1, or its address is too long: {msg}"))

        def _answer(self, refusal: Refusal) -> None:
            self._is_refused = True
            self._forget_client()
            self.transport.write(_text_of(refusal))
            self.transport.close()

        def _forget_client(self) -> None:
            """What is under way writes nothing more: a transport that is closed takes it for an error. (connection_lost
            comes later than that, and tells the last request alone.)"""
            for each in self._under_way:
                each.disconnected = True
                each.message_event.set()
            self._under_way.clear()

        # ---- answers ----

        def pause_writing(self) -> None:
            self._paused_at = self.loop.time()
            super().pause_writing()

        def resume_writing(self) -> None:
            self._paused_at = None
            super().resume_writing()

        def is_stalled(self, now: float) -> bool:
            return self._paused_at is not None and now - self._paused_at > stalled

        # ---- heads ----

        def data_received(self, data: bytes) -> None:
            if self._is_refused:
                return
            if self._guard is not None:
                self._head_bytes += len(data)
                if self._head_bytes > HEAD_BYTES + (1 << 20):  # with the beginning of a body behind it
                    self.cut_off()
                    return
            super().data_received(data)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if opened.pop(self, self) is None:
                opened[self] = None
            if self._guard is None:
                self._begin_head()

        def on_header(self, name: bytes, value: bytes) -> None:
            self._of_headers += len(name) + len(value)
            if self._of_headers > HEAD_BYTES:
                self.cut_off()
                return
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._end_head()
            super().on_headers_complete()
            if self._under_way:
                self._under_way = [each for each in self._under_way if not each.response_complete]
            if self.cycle is not None:
                self._under_way.append(self.cycle)

        def _begin_head(self) -> None:
            self._head_bytes = self._of_headers = 0
            self._guard = self.loop.call_later(HEAD_SECONDS, self.cut_off)

        def _end_head(self) -> None:
            if self._guard is not None:
                self._guard.cancel()
                self._guard = None

        def cut_off(self) -> None:
            self._end_head()
            self._forget_client()
            if self.transport is not None and not self.transport.is_closing():
                self.transport.abort() if hasattr(self.transport, "abort") else self.transport.close()

    def _make_room() -> bool:
        for each in opened:
            if each.waits:
                del opened[each]
                each.cut_off()
                return True
        return False

    def _sweep(loop: asyncio.AbstractEventLoop) -> None:
        sweeping.clear()
        now = loop.time()
        for each in [each for each in opened if each.is_stalled(now)]:
            each.cut_off()
        if opened:
            sweeping.append(loop.call_later(min(SWEEP, stalled), _sweep, loop))

    return Bounded


def _text_of(refusal: Refusal) -> bytes:
    """The whole answer, on a connection that ends with it."""
    body = orjson.dumps(refusal.document())
    lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}", f"Content-Type: {PROBLEM}"]
    lines += [*(f"{name}: {value}" for name, value in refusal.headers.items()), "Connection: close"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
