"""The recent events of a tenant, in memory: to look at, to backtest against, and to learn attributes and
values from. A restart forgets them."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from dibs.arguments import Id
from dibs.coding.events import WantedNames
from dibs.coding.lines import read_lines
from dibs.language.types import NO_TYPES, Types
from dibs.past.columns import Expressions
from dibs.past.diagnosis import Before, Diagnosis, diagnose, matches_little
from dibs.past.sources import InMemory

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
    why: Diagnosis | None = None  # it matches so little


class _RecentLines(NamedTuple):
    """Events that came together."""

    seq: int  # of the first
    front: str
    first: int
    time: float
    text: bytes
    ids: Sequence[list[Id]]

    def event(self, number: int, text: bytes) -> RecentEvent:
        ids = self.ids[number]
        about = (self.seq + number, f"{self.front}{self.first + number}", self.time)
        return RecentEvent(*about, text, len(ids), tuple(ids[:SHOWN_IDS]))


class RecentEvents:
    def __init__(self, most: int, most_bytes: int):
        self._most, self._most_bytes = most, most_bytes
        self._events: deque[RecentEvent] = deque()
        self._bytes = 0
        self._next = 1
        self.turn = threading.RLock()
        self._lines: deque[_RecentLines] = deque()  # that came after the events, and nobody has looked at
        self._lines_bytes = self._lines_events = 0
        self._table: tuple[int, pa.Table, list[RecentEvent]] | None = None  # as of some seq
        self._learnt: tuple[int, dict[str, Counter[Any]], Counter[str]] | None = None

    def __len__(self) -> int:
        with self.turn:
            self._read_lines()
            return len(self._events)

    def add(self, found: list[tuple[str, bytes, list[Id]]]) -> list[RecentEvent]:
        """(id, text, matches) of each event."""
        now = time.time()
        with self.turn:
            self._read_lines()
            new = [
                RecentEvent(self._next + i, id, now, text, len(ids), tuple(ids[:SHOWN_IDS]))
                for i, (id, text, ids) in enumerate(found)
            ]
            self._next += len(new)
            self._keep(new)
        return new

    def add_lines(self, front: str, first: int, text: bytes, ids: Sequence[list[Id]]) -> None:
        """Many events: JSON lines and the matches of each; they are called front + number, from first on. What is
        superseded before somebody looks is never taken apart."""
        with self.turn:
            self._lines.append(_RecentLines(self._next, front, first, time.time(), text, ids))
            self._next += len(ids)
            self._lines_bytes += len(text)
            self._lines_events += len(ids)
            while len(self._lines) > 1 and self._is_full_without(self._lines[0]):
                gone = self._lines.popleft()
                self._lines_bytes -= len(gone.text)
                self._lines_events -= len(gone.ids)
                self._events.clear()
                self._bytes = 0

    def _is_full_without(self, lines: _RecentLines) -> bool:
        events, size = self._lines_events - len(lines.ids), self._lines_bytes - len(lines.text)
        return events >= self._most or size >= self._most_bytes

    def _read_lines(self) -> None:
        while self._lines:
            lines = self._lines.popleft()
            texts = [text for each in read_lines(lines.text) for text in each.texts]
            first = max(0, len(texts) - self._most)
            self._keep([lines.event(i, texts[i]) for i in range(first, len(texts))])
        self._lines_bytes = self._lines_events = 0

    def _keep(self, new: list[RecentEvent]) -> None:
        self._events.extend(new)
        self._bytes += sum(len(event.text) for event in new)
        while self._events and (len(self._events) > self._most or self._bytes > self._most_bytes):
            self._bytes -= len(self._events.popleft().text)

    def newest(self, limit: int, before: int | None) -> list[RecentEvent]:
        with self.turn:
            self._read_lines()
            events = list(self._events)
        if before is not None:
            events = [event for event in events if event.seq < before]
        return events[: -limit - 1 : -1]

    # ---- the past ----

    def _as_table(self) -> tuple[pa.Table, list[RecentEvent]]:
        with self.turn:
            if self._table is not None and self._table[0] == self._next:
                return self._table[1:]
            self._read_lines()
            events, version = list(self._events), self._next
        texts = pa.array([event.text.decode("utf-8", "replace") for event in events], pa.string())
        times = pa.array([int(event.time * 1e6) for event in events], pa.timestamp("us", "UTC"))
        table = pa.table({EVENT: texts, RECEIVED: times})
        self._table = version, table, events
        return table, events

    def backtest(self, expression: str, examples: int, types: Types = NO_TYPES) -> Past:
        compiled = Expressions([expression], None, types)
        table, events = self._as_table()
        came = table[RECEIVED].cast(pa.int64()).to_numpy()  # what now() was for each of them
        # Each after those before it.
        values = Before(compiled.joins, now=came, types=types).read(table, WantedNames(compiled.names), EVENT)
        [found] = compiled.find(values)
        places = found.tolist()
        now = time.time()
        times = np.array([event.time for event in events])
        first = float(times.min()) if events else now  # the date may have been set back since the oldest came
        step = max(now - first, 1.0) / BARS
        bar = np.clip((times - first) / step, 0, BARS - 1).astype(np.int64)
        of_matches, of_all = (np.bincount(chosen, minlength=BARS).tolist() for chosen in (bar[found], bar))
        bars = [(first + i * step, of_matches[i], of_all[i]) for i in range(BARS)] if events else []
        shown = [events[place] for place in places[::-1][:examples]]
        why = (
            diagnose(expression, InMemory(table), EVENT, types=types)
            if matches_little(len(places), len(events))
            else None
        )
        return Past(len(events), len(places), bars, shown, max(now - first, 1.0) / HOUR, why)

    # ---- what events look like ----

    def learnt(self) -> tuple[dict[str, Counter[Any]], Counter[str], int]:
        """The values of each attribute, and in how many events it is: of the latest ones."""
        with self.turn:
            self._read_lines()
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
