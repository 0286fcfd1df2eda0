"""Reading the body of a request: within its bytes, its time, and the room that its token has (limits.py)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.service.deadlines import Deadlines
from dibs.service.limits import SMALL, Hold
from dibs.service.problems import Refusal

if TYPE_CHECKING:
    from dibs.service.call import Receive

CLOSE = {"Connection": "close"}  # what else is sent is not read


async def read_body(
    receive: Receive, declared: bytes, most: int, what: str, deadlines: Deadlines, seconds: float, hold: Hold
) -> bytes:
    """declared: the Content-Length. most: bytes, of `what`."""
    most = most or 1 << 40
    if declared.isdigit() and int(declared) > most:
        raise Refusal("too-large", f"{what} has {int(declared):,} bytes; at most {most:,} are taken", headers=CLOSE)
    task, is_late = asyncio.current_task(), False

    def cut_off() -> None:
        nonlocal is_late
        is_late = True
        if task is not None:
            task.cancel()

    limit = deadlines.begin(seconds, cut_off)
    try:
        return await _read(receive, most, what, hold)
    except asyncio.CancelledError:
        if not is_late:
            raise
        if task is not None and hasattr(task, "uncancel"):  # from Python 3.11 on
            task.uncancel()
        raise Refusal("timeout", f"the body did not come within {seconds} seconds", headers=CLOSE) from None
    finally:
        deadlines.end(limit)


async def _read(receive: Receive, most: int, what: str, hold: Hold) -> bytes:
    parts: list[bytes] = []
    size = counted = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal("body", "the connection ended before the body did")
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > most:
            raise Refusal("too-large", f"{what} has more than {most:,} bytes", headers=CLOSE)
        if size > SMALL:
            try:
                hold.take_bytes(size - counted)
            except Refusal as refusal:
                refusal.headers |= CLOSE
                raise
            counted = size
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)
