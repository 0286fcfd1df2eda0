"""Whether the service can write its files: asked by /ready, found out by writing."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING

from dibs.errors import DibsError
from dibs.service.database import FORMAT

if TYPE_CHECKING:
    from dibs.service.app import Service

FRESH = 2.0  # seconds
WITHIN = 5.0  # seconds that a write may take
log = logging.getLogger("dibs.service")


class Writability:
    def __init__(self, service: Service):
        self._service = service
        self._found: tuple[float, bool] | None = None
        self._asking: asyncio.Future[None] | None = None

    async def ask(self) -> bool:
        """As of the last seconds."""
        if self._found is None or monotonic() - self._found[0] > FRESH:
            if self._asking is None or self._asking.done():
                loop = asyncio.get_running_loop()
                self._asking = asyncio.ensure_future(loop.run_in_executor(self._service.pool, self._write))
            done, _ = await asyncio.wait([self._asking], timeout=WITHIN)
            if not done:
                return False
        return self._found is not None and self._found[1]

    def _write(self) -> None:
        """What is there already, once more: the same to all who read, and a commit to the disk."""
        try:
            self._service.database.write(lambda c: c.execute(f"PRAGMA user_version = {FORMAT}"))
            self._service.outbox.session.write(lambda c: c.execute("UPDATE state SET bytes = bytes"))
            found = True
        except DibsError as error:
            found = False
            if self._found is None or self._found[1]:
                log.error("not ready: %s", error)
        self._found = monotonic(), found
