"""Sends deliveries to one webhook: a signed POST each, over a connection that is kept while it is used.

2xx is a success and all else a failure, redirects included (a 3xx would lead to an address that nobody has checked).
What a receiver answers is read up to a bound and given away. `seconds` is for a whole attempt, from the name to the end
of the answer, so that one that answers byte by byte is no different from one that hangs.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass

import h11

from dibs.retrying import read_retry_after
from dibs.service.delivery.addresses import Reach, Target, Unreachable, parse_target, resolve
from dibs.service.delivery.model import Delivery, Destination
from dibs.service.delivery.signing import sign

ANSWER = 1 << 16  # bytes of an answer that are read; after a longer one the connection is closed
CONNECTING = 5.0  # seconds, for each address of a host


@dataclass(frozen=True)
class Failure:
    """Why an attempt has failed; after how many seconds the receiver wants the next one."""

    reason: str
    retry_after: float | None = None


class WebhookSender:
    def __init__(self, destination: Destination, reach: Reach, seconds: float, executor: Executor):
        self.destination, self.reach, self.seconds, self.executor = destination, reach, seconds, executor
        self._wire: _Wire | None = None

    async def send(self, delivery: Delivery) -> Failure | None:
        try:
            return await asyncio.wait_for(self._attempt(delivery), self.seconds)
        except asyncio.TimeoutError:
            self._hang_up()
            return Failure(f"no answer within {self.seconds:g} seconds")
        except BaseException:
            self._hang_up()
            raise

    async def close(self) -> None:
        self._hang_up()

    async def _attempt(self, delivery: Delivery) -> Failure | None:
        try:
            target = parse_target(self.destination.target)
            request = _request(target, self.destination.secret, delivery)
            wire, self._wire = self._wire, None
            if wire is not None:
                answer = await wire.ask(request, delivery.body)
                if answer is None:  # closed since the last one: not an answer to this one
                    wire.hang_up()
                    wire = None
            if wire is None:
                wire = await self._connect(target)
                answer = await wire.ask(request, delivery.body)
            if answer is None:
                wire.hang_up()
                return Failure("the connection was closed before an answer came")
            self._wire = wire if wire.can_go_on() else None
            if self._wire is None:
                wire.hang_up()
            return _judge(answer)
        except (OSError, h11.ProtocolError, Unreachable, ValueError) as e:
            self._hang_up()
            return Failure(f"{type(e).__name__}: {e}" if isinstance(e, (OSError, h11.ProtocolError)) else str(e))

    async def _connect(self, target: Target) -> _Wire:
        context = ssl.create_default_context() if target.secure else None
        error: OSError = OSError("no address answers")
        for address in await resolve(target, self.reach, self.executor):
            opening = asyncio.open_connection(
                address, target.port, ssl=context, server_hostname=target.host if context else None
            )
            try:
                return _Wire(*await asyncio.wait_for(opening, CONNECTING))
            except asyncio.TimeoutError:
                error = OSError(f"{address} does not answer")
            except OSError as e:
                error = e
        raise error

    def _hang_up(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.hang_up()


class _Wire:
    """A connection; h11 knows what may be said on it next."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer
        self.state = h11.Connection(h11.CLIENT)

    async def ask(self, request: h11.Request, body: bytes) -> h11.Response | None:
        """The answer; None if the connection was closed before any of it."""
        try:
            parts = [self.state.send(event) or b"" for event in (request, h11.Data(data=body), h11.EndOfMessage())]
            self.writer.write(b"".join(parts))
            await self.writer.drain()
            return await self._answer()
        except (ConnectionError, ssl.SSLError):
            return None
        except BaseException:
            self.hang_up()
            raise

    async def _answer(self) -> h11.Response | None:
        answer, size = None, 0
        while True:
            event = self.state.next_event()
            if event is h11.NEED_DATA:
                received = await self.reader.read(1 << 14)
                if not received and answer is None and self.state.their_state is h11.SEND_RESPONSE:
                    return None
                self.state.receive_data(received)
            elif isinstance(event, h11.Response):
                answer = event
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > ANSWER:
                    return answer
            elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                return answer

    def can_go_on(self) -> bool:
        if self.state.our_state is h11.DONE and self.state.their_state is h11.DONE:
            self.state.start_next_cycle()
            return not self.reader.at_eof()
        return False

    def hang_up(self) -> None:
        with suppress(Exception):
            self.writer.transport.abort()  # says nothing more, waits for nothing


def _request(target: Target, secret: str, delivery: Delivery) -> h11.Request:
    now = int(time.time())
    headers = {
        "Host": target.authority,
        "User-Agent": "dibs",
        "Content-Type": "application/json",
        "Content-Length": str(len(delivery.body)),
        "Webhook-Id": delivery.id,
        "Webhook-Timestamp": str(now),
        "Webhook-Signature": sign(secret, delivery.id, now, delivery.body),
        "Dibs-Attempt": str(delivery.attempts + 1),
    }
    return h11.Request(method="POST", target=target.path, headers=list(headers.items()))


def _judge(answer: h11.Response) -> Failure | None:
    if 200 <= answer.status_code < 300:
        return None
    if 300 <= answer.status_code < 400:
        return Failure(f"answered {answer.status_code}: redirects are not followed, give the address that it leads to")
    wait = dict(answer.headers).get(b"retry-after", b"").decode("ascii", "replace")
    return Failure(f"answered {answer.status_code}", read_retry_after(wait))
