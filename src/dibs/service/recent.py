"""The recent events of a tenant, in memory: to look at, to backtest against, and to learn attributes and
values from. A restart forgets them."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from dibs.arguments import Id
from dibs.coding.events import WantedNames
from dibs.past.before import Before
from dibs.past.columns import Expressions

SHOWN_IDS = 100  # of an event's matches
LEARNT_FROM = 2_000  # events
BARS = 30  # of a histogram
HOUR = 3_600
DEPTH = 20  # of nested objects that attributes are learnt from
EVENT, RECEIVED = "event", "received"


@dataclass(frozen=True)
class RecentEvent:
    seq: int
    id: str
    time: float
    text: bytes  # JSON
    count: int
    ids: tuple[Id, ...]  # the first of them


@dataclass(frozen=True)
class Past:
    """What an expression would have matched."""

    events: int
    count: int
    bars: list[tuple[float, int, int]]  # start, matches, events
    examples: list[RecentEvent]  # the newest first
    hours: float  # that the events are from


class RecentEvents:
    def __init__(self, most: int, most_bytes: int):
        self._most, self._most_bytes = most, most_bytes
        self._events: deque[RecentEvent] = deque()
        self._bytes = 0
        self._next = 1
        self._turn = threading.Lock()
        self._table: tuple[int, pa.Table, list[RecentEvent]] | None = None  # as of some seq
        self._learnt: tuple[int, dict[str, Counter[Any]], Counter[str]] | None = None

    def __len__(self) -> int:
        return len(self._events)

    def add(self, found: list[tuple[str, bytes, list[Id]]]) -> list[RecentEvent]:
        """(id, text, matches) of each event."""
        now = time.time()
        with self._turn:
            new = [
                RecentEvent(self._next + i, id, now, text, len(ids), tuple(ids[:SHOWN_IDS]))
                for i, (id, text, ids) in enumerate(found)
            ]
            self._next += len(new)
            self._events.extend(new)
            self._bytes += sum(len(event.text) for event in new)
            while self._events and (len(self._events) > self._most or self._bytes > self._most_bytes):
                self._bytes -= len(self._events.popleft().text)
        return new

    def newest(self, limit: int, before: int | None) -> list[RecentEvent]:
        with self._turn:
            events = list(self._events)
        if before is not None:
            events = [event for event in events if event.seq < before]
        return events[: -limit - 1 : -1]

    # ---- the past ----

    def _as_table(self) -> tuple[pa.Table, list[RecentEvent]]:
        with self._turn:
            if self._table is not None and self._table[0] == self._next:
                return self._table[1:]
            events, version = list(self._events), self._next
        texts = pa.array([event.text.decode("utf-8", "replace") for event in events], pa.string())
        times = pa.array([int(event.time * 1e6) for event in events], pa.timestamp("us", "UTC"))
        table = pa.table({EVENT: texts, RECEIVED: times})
        self._table = version, table, events
        return table, events

    def backtest(self, expression: str, examples: int) -> Past:
        compiled = Expressions([expression], None)
        table, events = self._as_table()
        values = Before(compiled.joins).read(table, WantedNames(compiled.names), EVENT)  # each after those before it
        [found] = compiled.find(values)
        places = found.tolist()
        now = time.time()
        first = events[0].time if events else now
        step = max(now - first, 1.0) / BARS
        of_matches, of_all = ([0] * BARS for _ in range(2))
        for counts, chosen in ((of_matches, (events[place] for place in places)), (of_all, iter(events))):
            for event in chosen:
                counts[min(int((event.time - first) / step), BARS - 1)] += 1
        bars = [(first + i * step, of_matches[i], of_all[i]) for i in range(BARS)] if events else []
        shown = [events[place] for place in places[::-1][:examples]]
        return Past(len(events), len(places), bars, shown, (now - first) / HOUR)

    # ---- what events look like ----

    def learnt(self) -> tuple[dict[str, Counter[Any]], Counter[str], int]:
        """The values of each attribute, and in how many events it is: of the latest ones."""
        with self._turn:
            events, version = list(self._events)[-LEARNT_FROM:], self._next
            known = self._learnt
        if known is None or known[0] != version:
            values: dict[str, Counter[Any]] = {}
            having: Counter[str] = Counter()
            for event in events:
                pairs = set(_pairs(orjson.loads(event.text), "", DEPTH))
                having.update({name for name, _ in pairs})
                for name, value in pairs:
                    values.setdefault(name, Counter())[value] += 1
            known = self._learnt = version, values, having
        return known[1], known[2], len(events)


def _pairs(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Attributes and their values. (1 and True are told apart by their type.)"""
    if isinstance(value, dict):
        if depth:
            for key, each in value.items():
                yield from _pairs(each, f"{name}.{key}" if name else key, depth - 1)
    elif isinstance(value, list):
        if depth:
            for each in value:
                yield from _pairs(each, name, depth - 1)
    elif value is not None:
        yield name, value if isinstance(value, str) else (type(value).__name__, value)


def plain_value(value: Any) -> Any:
    return value[1] if isinstance(value, tuple) else value
