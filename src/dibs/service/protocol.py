"""HTTP on a connection, as uvicorn speaks it, with a bound on the head of a request: a client that sends it byte by
byte, or without end, is cut off. (Bodies are bounded in app.py.)"""

from __future__ import annotations

import asyncio
from typing import Any

HEAD_SECONDS = 10.0
HEAD_BYTES = 64 << 10


def http_protocol() -> Any:
    """The class for uvicorn: of httptools where it is installed."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:  # h11 bounds its heads itself
        return "h11"

    class BoundedHeads(HttpToolsProtocol):
        _guard: asyncio.TimerHandle | None = None
        _head_bytes = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._begin_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_head()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._guard is not None:
                self._head_bytes += len(data)
                if self._head_bytes > HEAD_BYTES + (1 << 20):  # with the beginning of a body behind it
                    self._cut_off()
                    return
            super().data_received(data)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._guard is None:
                self._begin_head()

        def on_header(self, name: bytes, value: bytes) -> None:
            self._of_headers += len(name) + len(value)
            if self._of_headers > HEAD_BYTES:
                self._cut_off()
                return
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._end_head()
            super().on_headers_complete()

        def _begin_head(self) -> None:
            self._head_bytes = self._of_headers = 0
            self._guard = self.loop.call_later(HEAD_SECONDS, self._cut_off)

        def _end_head(self) -> None:
            if self._guard is not None:
                self._guard.cancel()
                self._guard = None

        def _cut_off(self) -> None:
            self._end_head()
            if self.transport is not None and not self.transport.is_closing():
                self.transport.abort() if hasattr(self.transport, "abort") else self.transport.close()

    return BoundedHeads
