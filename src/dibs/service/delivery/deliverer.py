"""The deliverer: takes what waits in the outbox to its destinations. One process of a service runs one.

Each destination has a lane: its deliveries are sent one after the other, each when the one before was taken. Lanes know
nothing of each other: one that hangs holds its own connection and nothing else. A failure ends the lane's turn; when it
comes back is written to the outbox, so that a restart changes nothing about it:

    after the n-th failure in a row   first * 2^(n-1) seconds, at most `longest`, of which a random half is left out;
                                      more if the receiver asks for it (Retry-After), up to `longest`
    a delivery is given up            after `attempts` of its own, or when it is `age` seconds old and fails: it goes to
                                      the dead letters, and the lane goes on with the next one

What was taken is deleted from the outbox, many lanes with one commit; a lane does not wait for that before it sends the
next, up to BATCH. So a process that is killed leaves at most BATCH deliveries per lane that are sent again, in the same
order and with the same ids.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from dibs.errors import ArgumentError, StorageError
from dibs.retrying import Retries
from dibs.service.delivery.addresses import Reach, check_target
from dibs.service.delivery.kafka import KafkaSender, check_kafka_target
from dibs.service.delivery.model import Delivery, Destination
from dibs.service.delivery.outbox import Outbox
from dibs.service.delivery.sealing import Sealing
from dibs.service.delivery.sending import Outcome, ReadyLane, Sending
from dibs.service.delivery.webhook import Failure, WebhookSender
from dibs.storage.writer_lock import WriterLock

T = TypeVar("T")
LOCK = "deliverer.lock"
BATCH = 32  # deliveries of a lane that are read at once
LOOK = 0.02  # seconds between looks for what others have enqueued
IDLE = 30.0  # seconds after which a connection that is not used is closed
TIDY = 60.0  # seconds between removals of what no longer has an effect


@dataclass(frozen=True)
class DeliverySettings:
    reach: Reach = field(default_factory=Reach)
    brokers: tuple[str, ...] = ()  # of Kafka: "host:port"
    secrets_key: Path | None = None  # the file of the keys that secrets are encrypted with (sealing.py)
    seconds: float = 10.0  # of one attempt
    first: float = 1.0  # seconds after a first failure
    longest: float = 600.0  # seconds between attempts
    attempts: int = 20
    age: float = 86_400.0  # seconds
    at_once: int = 500  # attempts to different destinations


class Sender(Protocol):
    """The way to one destination."""

    destination: Destination

    async def send(self, delivery: Delivery) -> Failure | None: ...

    async def close(self) -> None: ...


def check_destination(destination: Destination, settings: DeliverySettings) -> None:
    """That deliveries may go there, as far as it can be said now. Raises ArgumentError."""
    if destination.kind == "webhook":
        check_target(destination.target, settings.reach)
    elif destination.kind == "kafka":
        check_kafka_target(destination.target, settings.brokers)


class Deliverer:
    def __init__(self, folder: str | os.PathLike[str], settings: DeliverySettings | None = None):
        self.folder, self.settings = Path(folder), settings or DeliverySettings()
        self._stopping = asyncio.Event()
        self._senders: dict[int, Sender] = {}
        self._used: dict[int, float] = {}  # when a sender was last used
        self._lanes: dict[int, asyncio.Task[None]] = {}
        self._outcomes: list[tuple[Outcome, asyncio.Future[None]]] = []
        self._settling: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()  # a lane has: it may have more to send
        self._slots = asyncio.Semaphore(self.settings.at_once)
        self._random = random.Random()

    def stop(self) -> None:
        """Attempts under way may end within their seconds; what waits stays in the outbox."""
        self._stopping.set()

    async def run(self) -> None:
        """Delivers until `stop`. Raises WriterActive if another process does so for this folder."""
        lock = WriterLock(self.folder, LOCK)
        try:
            with (
                Outbox.open(self.folder, sealing=Sealing.of_file(self.settings.secrets_key)) as outbox,
                ThreadPoolExecutor(1, "outbox") as self._store,
                ThreadPoolExecutor(32, "names") as self._names,
            ):
                self._sending = Sending(outbox)
                try:
                    await self._work()
                finally:
                    await self._end()
        finally:
            lock.release()

    # ---- which lanes run ----

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        seen: tuple[int, ...] | None = None
        wake = tidy = 0.0
        while not self._stopping.is_set():
            try:
                stamp = await self._call_store(self._sending.stamp)
                ended = self._ended.is_set()
                if stamp != seen or ended or loop.time() >= wake:
                    seen = stamp
                    self._ended.clear()
                    await self._call_store(self._sending.send_digests)
                    lanes, later = await self._call_store(self._sending.lanes)
                    now = self._sending.outbox.clock()
                    wake = loop.time() + min(1.0, max(0.0, later - now) if later is not None else 1.0)
                    for lane in lanes:
                        if lane.number not in self._lanes:
                            self._lanes[lane.number] = asyncio.create_task(self._run_lane(lane))
                if loop.time() >= tidy:
                    tidy = loop.time() + TIDY
                    await self._call_store(self._sending.forget_old)
                await self._close_idle(loop.time() - IDLE)
            except StorageError:  # a full disk, somebody's long transaction: what waits goes on waiting
                await self._pause(1.0)
            await self._pause(LOOK)

    async def _pause(self, seconds: float) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _end(self) -> None:
        running = list(self._lanes.values())
        if running:
            await asyncio.wait(running, timeout=self.settings.seconds + 1.0)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._settling is not None:
            await asyncio.gather(self._settling, return_exceptions=True)
        for sender in self._senders.values():
            await sender.close()

    async def _close_idle(self, before: float) -> None:
        for number in [n for n, used in self._used.items() if used < before and n not in self._lanes]:
            del self._used[number]
            await self._senders.pop(number).close()

    # ---- one lane ----

    async def _run_lane(self, lane: ReadyLane) -> None:
        try:
            failures = lane.failures
            while not self._stopping.is_set():
                batch = await self._call_store(lambda: self._sending.head(lane.number, BATCH))
                if not batch:
                    return
                kept: list[asyncio.Future[None]] = []
                for delivery in batch:
                    if self._stopping.is_set():
                        break
                    async with self._slots:
                        failure = await self._sender(lane).send(delivery)
                    outcome = self._outcome(lane, delivery, failure, failures)
                    kept.append(self._settle(outcome))
                    failures = 0
                    if failure is not None:
                        await asyncio.gather(*kept)
                        return
                await asyncio.gather(*kept)
        except StorageError:
            await asyncio.sleep(1.0)  # nothing was written down: these are sent again
        finally:
            del self._lanes[lane.number]
            self._ended.set()

    def _outcome(self, lane: ReadyLane, delivery: Delivery, failure: Failure | None, failures: int) -> Outcome:
        if failure is None:
            return Outcome(lane.number, delivery.number)
        s, now = self.settings, self._sending.outbox.clock()
        wait = Retries(s.first, s.longest).wait(failures + 1, failure.retry_after, self._random)
        given_up = delivery.attempts + 1 >= s.attempts or now - delivery.created >= s.age
        return Outcome(lane.number, delivery.number, failure.reason, now + wait, given_up)

    def _sender(self, lane: ReadyLane) -> Sender:
        self._used[lane.number] = asyncio.get_running_loop().time()
        known = self._senders.get(lane.number)
        if known is None or known.destination != lane.destination:
            if known is not None:
                asyncio.get_running_loop().create_task(known.close())
            self._senders[lane.number] = known = self._make(lane.destination)
        return known

    def _make(self, destination: Destination) -> Sender:
        if destination.kind == "webhook":
            return WebhookSender(destination, self.settings.reach, self.settings.seconds, self._names)
        if destination.kind == "kafka":
            return KafkaSender(destination, self.settings.brokers, self.settings.seconds)
        raise ArgumentError(f"nothing is sent to a {destination.kind}: clients come to it")

    # ---- the outbox ----

    async def _call_store(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._store, call)

    def _settle(self, outcome: Outcome) -> asyncio.Future[None]:
        """Will be done when it is on the disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outcomes.append((outcome, done))
        if self._settling is None or self._settling.done():
            self._settling = asyncio.create_task(self._settle_all())
        return done

    async def _settle_all(self) -> None:
        while self._outcomes:
            waiting, self._outcomes = self._outcomes, []
            try:
                await self._call_store(partial(self._sending.settle, [outcome for outcome, _ in waiting]))
            except Exception as e:
                for _, done in waiting:
                    if not done.cancelled():
                        done.set_exception(e)
            else:
                for _, done in waiting:
                    if not done.cancelled():
                        done.set_result(None)


def run_deliverer(folder: str | os.PathLike[str], settings: DeliverySettings | None = None) -> None:
    """A process that delivers until SIGTERM or SIGINT."""

    async def work() -> None:
        deliverer = Deliverer(folder, settings)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, deliverer.stop)
        await deliverer.run()

    asyncio.run(work())
