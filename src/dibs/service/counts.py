"""How often subscriptions have matched: in all, by hour for a week (in the database), and by minute for two hours (in
memory). What the last seconds brought is lost if the process is killed: these counts are for people, not for bills."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from dibs.arguments import Id
from dibs.segments.id_lists import IdColumns
from dibs.service.database import Database

MINUTE, HOUR = 60, 3_600
MINUTES_KEPT, HOURS_KEPT = 120, 168


@dataclass
class Minute:
    number: int  # since 1970
    events: int = 0
    matches: Counter[Id] = field(default_factory=Counter)


@dataclass(frozen=True)
class Counted:
    id: Id
    total: int
    last: int | None  # seconds since 1970
    series: list[int]


class MatchCounts:
    def __init__(self, database: Database, tenant: str):
        self._database, self._tenant = database, tenant
        self.turn = threading.RLock()
        self._minutes: deque[Minute] = deque(maxlen=MINUTES_KEPT)
        self._new: dict[int, Counter[Id]] = {}  # by hour, not yet in the database
        self.events = self.matches = 0  # since the start

    def add(self, matches: Sequence[list[Id]]) -> None:
        """The ids of each event."""
        number = int(time.time()) // MINUTE
        if isinstance(matches, IdColumns):
            found, count = matches.times(), matches.pairs
        else:
            found, count = Counter(chain.from_iterable(matches)), sum(map(len, matches))
        with self.turn:
            if not self._minutes or self._minutes[-1].number < number:
                self._minutes.append(Minute(number))
            minute = self._minutes[-1]
            new = self._new.setdefault(number * MINUTE // HOUR, Counter())
            minute.events += len(matches)
            self.events += len(matches)
            self.matches += count
            minute.matches.update(found)
            new.update(found)

    def flush(self) -> None:
        """Into the database."""
        with self.turn:
            new, self._new = self._new, {}
        new = {hour: counts for hour, counts in new.items() if counts}
        if not new:
            return
        now = int(time.time())

        def work(connection: sqlite3.Connection) -> None:
            for hour, counts in new.items():
                rows = [(self._tenant, hour, id, count) for id, count in counts.items()]
                connection.executemany(
                    "INSERT INTO hours VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
                    rows,
                )
                connection.executemany(
                    "INSERT INTO totals VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET total = total + excluded.total, "
                    "last = excluded.last",
                    [(self._tenant, id, count, now) for id, count in counts.items()],
                )
            oldest = now // HOUR - HOURS_KEPT
            connection.execute("DELETE FROM hours WHERE tenant = ? AND hour < ?", (self._tenant, oldest))

        self._database.write(work)

    def forget(self, ids: Iterable[Id]) -> None:
        """Of subscriptions that are gone: another one of that id begins at 0."""
        gone = list(ids)
        with self.turn:
            for counts in (*self._new.values(), *(m.matches for m in self._minutes)):
                for id in gone:
                    counts.pop(id, None)
        rows = [(self._tenant, id) for id in gone]

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM totals WHERE tenant = ? AND id = ?", rows)

        self._database.write(work)

    def most_frequent(self, limit: int) -> list[Id]:
        self.flush()
        query = "SELECT id FROM totals WHERE tenant = ? ORDER BY total DESC, id LIMIT ?"
        return [id for (id,) in self._database.read(query, (self._tenant, limit))]

    def silent(self, ids: list[Id]) -> set[Id]:
        """Those without a match."""
        return set(ids) - {c.id for c in self.of(ids, "hour", 1) if c.total}

    def of(self, ids: Iterable[Id], by: str, last: int) -> list[Counted]:
        """Of each id, in their order: the total, the last time, and the last steps up to now."""
        self.flush()
        wanted = list(dict.fromkeys(ids))
        now, series = int(time.time()), {id: [0] * last for id in wanted}
        totals: dict[Id, tuple[int, int]] = {}
        first = now // (HOUR if by == "hour" else MINUTE) - last + 1
        for start in range(0, len(wanted), 500):
            some = wanted[start : start + 500]
            places = ", ".join("?" * len(some))
            query = f"SELECT id, total, last FROM totals WHERE tenant = ? AND id IN ({places})"
            totals |= {id: (total, at) for id, total, at in self._database.read(query, (self._tenant, *some))}
            if by == "hour":
                query = f"SELECT id, hour, count FROM hours WHERE tenant = ? AND hour >= ? AND id IN ({places})"
                for id, hour, count in self._database.read(query, (self._tenant, first, *some)):
                    if hour - first < last:
                        series[id][hour - first] = count
        if by == "minute":
            with self.turn:
                for minute in self._minutes:
                    place = minute.number - first
                    if 0 <= place < last:
                        for id in wanted:
                            series[id][place] = minute.matches.get(id, 0)
        return [Counted(id, *_total(totals.get(id)), series[id]) for id in wanted]

    def events_by_minute(self, last: int) -> list[int]:
        first = int(time.time()) // MINUTE - last + 1
        counts = [0] * last
        with self.turn:
            for minute in self._minutes:
                if 0 <= minute.number - first < last:
                    counts[minute.number - first] = minute.events
        return counts


def _total(found: tuple[int, int] | None) -> tuple[int, int | None]:
    return (0, None) if found is None else found
