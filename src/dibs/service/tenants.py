"""Tenants: each has a matcher, events and counts of its own, opened when it is first needed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

import orjson

from dibs import engine
from dibs.history.retention import Retain
from dibs.history.stored import DurableHistory
from dibs.language.types import Types, check_types
from dibs.matcher import Matcher
from dibs.service.counts import MatchCounts
from dibs.service.database import Database
from dibs.service.delivery.streams import LiveFeed
from dibs.service.details import Details
from dibs.service.gathering import Gatherer
from dibs.service.problems import Refusal
from dibs.service.recent import Past, RecentEvent, RecentEvents
from dibs.service.settings import HISTORY, MAIN, Limits, Settings
from dibs.service.slices import Pace
from dibs.service.subscriptions import Subscriptions
from dibs.storage.manifest import change_types, types_stamp
from dibs.storage.store import is_durable


class Rate:
    """So many requests per second, and as many at once after a pause."""

    def __init__(self, rate: float):
        self.rate = rate
        self._left, self._at = rate, time.monotonic()

    def take(self) -> None:
        if not self.rate:
            return
        now = time.monotonic()
        self._left = min(self.rate, self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left < 1:
            wait = max(1, round((1 - self._left) / self.rate))
            detail = f"more than {self.rate:,.0f} requests per second: try again in {wait} s"
            raise Refusal("quota", detail, {"limit": "rate", "most": self.rate}, {"Retry-After": str(wait)})
        self._left -= 1


class Tenant:
    """What a process has of a tenant. In a matching process the matcher follows the writer's, and there is no more."""

    def __init__(
        self, name: str, settings: Settings, limits: Limits, database: Database, pool: Executor, follows: bool
    ):
        self.name, self.limits, self.follows = name, limits, follows
        self._settings, self._pool = settings, pool
        self._declaring = threading.Lock()
        self._types = types_stamp(settings.folder_of(name))  # before the matcher reads them
        self.rate = Rate(limits.rate / (settings.workers if follows else 1))
        self.details = Details(database, name)
        self._take(_open_matcher(settings, name, follows))
        self.feed: LiveFeed[RecentEvent] = LiveFeed()
        self.recent = RecentEvents(settings.recent_events, settings.recent_bytes)
        self.counts = MatchCounts(database, name)
        self.pace = Pace()  # of matching many events
        if not follows:
            self.subscriptions.settle()

    def _take(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self.gatherer = Gatherer(matcher, self._pool, self._settings.gather_from)
        self.subscriptions = Subscriptions(matcher, self.details, self.limits)

    def declare(self, types: Types) -> None:
        """Other types of attributes. They say what subscriptions and documents mean, so that only a tenant without any
        may get others. Its matcher is another one then: who asks the old one just now is told to ask again."""
        with self._declaring:
            if types == check_types(self.matcher.types):
                return
            if self.name == MAIN and self._settings.types is not None:
                raise Refusal("in-use", "the types of main are those that the service was started with (--types)")
            self._check_empty()
            self.matcher.compact()
            folder = self._settings.folder_of(self.name)
            self.matcher.close()
            try:
                with Matcher.open(folder) as matcher:  # what came in between is there
                    is_empty = not matcher.stats()["segments"] and not len(matcher) and not len(matcher.history)
                if is_empty:
                    change_types(folder, types)
            finally:
                self._take(_open_matcher(self._settings, self.name, False))
            self._check_empty()

    def _check_empty(self) -> None:
        subscriptions, documents = len(self.subscriptions), len(self.matcher.history)
        if subscriptions or documents:
            has = f"{subscriptions:,} subscriptions and {documents:,} documents in its history"
            raise Refusal(
                "in-use",
                f"the tenant has {has}, and types say what these mean: export and remove them first, declare the types "
                "and put them again, or declare the types for a new tenant",
            )

    def has_old_types(self) -> bool:
        """Of one that follows: the writer has declared others."""
        return self._types != types_stamp(self._settings.folder_of(self.name))

    @property
    def remembers(self) -> bool:
        """Whether what is published becomes a document of the history: from the first subscription with a join on."""
        return self.matcher.history.retain.count != 0 and self.matcher.asks_history

    def backtest(self, expression: str, examples: int) -> Past:
        """Against the recent events."""
        return self.recent.backtest(expression, examples, check_types(self.matcher.types))

    def show(self, events: list[RecentEvent]) -> None:
        """To those who watch, in the loop."""
        for event in events:
            self.feed.put(event)

    def close(self) -> None:
        if not self.follows:
            self.counts.flush()
            self.details.close()
        self.matcher.close()


def _open_matcher(settings: Settings, name: str, follows: bool) -> Matcher:
    engine.load()  # kernels are compiled when they are called
    folder = settings.folder_of(name)
    if follows:
        return Matcher.open(folder, threads=settings.threads, read_only=True)
    # What is new gets the types that the service is started with; what is there keeps its own.
    types = settings.types if name == MAIN or not is_durable(folder) else None
    matcher = Matcher.open(folder, threads=settings.threads, retain=settings.history, types=types)
    history = matcher.history
    if isinstance(history, DurableHistory) and not len(history) and history.retain == Retain():
        history.keep(Retain(count=HISTORY))
    return matcher


class Tenants:
    def __init__(self, settings: Settings, database: Database, pool: Executor, follows: bool):
        self._settings, self._database, self._pool, self._follows = settings, database, pool, follows
        self._open: dict[str, Tenant] = {}
        self._opening: dict[str, asyncio.Future[Tenant]] = {}

    def __iter__(self) -> Iterator[Tenant]:
        return iter(list(self._open.values()))

    def find(self, name: str) -> Tenant | None:
        """If it is open."""
        tenant = self._open.get(name)
        return None if self._follows and tenant is not None and tenant.has_old_types() else tenant

    async def get(self, name: str) -> Tenant:
        """Opened if it is not. (A million subscriptions take seconds: others are answered meanwhile.)"""
        tenant = self.find(name)
        if tenant is not None:
            return tenant
        future = self._opening.get(name)
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._opening[name] = asyncio.ensure_future(loop.run_in_executor(None, self._open_tenant, name))
        try:
            tenant = await asyncio.shield(future)
        finally:
            if future.done():
                self._opening.pop(name, None)
        return tenant

    def is_there(self, name: str) -> bool:
        """Whether it has a folder. Only the writer makes one."""
        return name in self._open or is_durable(self._settings.folder_of(name))

    def _open_tenant(self, name: str) -> Tenant:
        rows = self._database.read("SELECT limits FROM tenants WHERE name = ?", (name,))
        limits = Limits.of(orjson.loads(rows[0][0]), self._settings.limits) if rows else self._settings.limits
        folder = self._settings.folder_of(name)
        if not self._follows and name != MAIN:
            folder.parent.mkdir(exist_ok=True)
        tenant = Tenant(name, self._settings, limits, self._database, self._pool, self._follows)
        self._open[name] = tenant
        return tenant

    def each(self, work: Callable[[Tenant], None]) -> None:
        for tenant in list(self._open.values()):
            work(tenant)

    def close(self) -> None:
        opened, self._open = self._open, {}
        for tenant in opened.values():
            tenant.close()
