"""What a subscription has beside expression and weight: owner, labels, destination, mode, and whether it is paused.

Only subscriptions that have something of it have a row. Those with a destination are in memory too, because each
published event asks for them.

A row is written before the matcher is changed, with `settled` 0, and holds the expression that the matcher is to have.
So whatever kills the process, on opening each row is made true (`Subscriptions.settle`): what was begun is finished. A
paused subscription is not in its matcher at all; the row is all there is of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from dibs.arguments import Id
from dibs.service.database import Database
from dibs.service.delivery import MatchedDestination, Mode

COLUMNS = "id, owner, labels, destination, mode, paused, expression, weight, version, time"


@dataclass(frozen=True)
class Detail:
    id: Id
    owner: str | None = None
    labels: dict[str, str] | None = None
    destination: str | None = None
    mode: Any = None  # as JSON
    paused: bool = False
    expression: str = ""
    weight: float = 1.0
    version: int = 0  # of a paused one: that of the change by which it was paused
    time: int = 0  # likewise, UTC microseconds

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to keep."""
        others = (self.owner, self.labels, self.destination, self.mode)
        return not self.paused and all(each is None for each in others)

    def row(self) -> tuple[Any, ...]:
        labels, mode = (None if value is None else orjson.dumps(value).decode() for value in (self.labels, self.mode))
        about = (self.id, self.owner, labels, self.destination, mode, int(self.paused))
        return (*about, self.expression, self.weight, self.version, self.time)


def _of_row(row: tuple[Any, ...]) -> Detail:
    id, owner, labels, destination, mode, paused, *rest = row
    labels, mode = (None if text is None else orjson.loads(text) for text in (labels, mode))
    return Detail(id, owner, labels, destination, mode, bool(paused), *rest)


class Details:
    """Of one tenant."""

    def __init__(self, database: Database, tenant: str):
        self._database, self._tenant = database, tenant
        self._done: list[Id] = []  # rows that are true, and do not say so yet
        self.receivers: dict[Id, MatchedDestination] = {}  # where matches of a subscription go

    # ---- reading ----

    def get(self, id: Id) -> Detail | None:
        found = self._select("AND id = ?", id)
        return found[0] if found else None

    def get_many(self, ids: Iterable[Id]) -> dict[Id, Detail]:
        result: dict[Id, Detail] = {}
        wanted = list(ids)
        for start in range(0, len(wanted), 500):
            some = wanted[start : start + 500]
            result |= {d.id: d for d in self._select(f"AND id IN ({', '.join('?' * len(some))})", *some)}
        return result

    def of_owner(self, owner: str, after: Id | None, limit: int) -> list[Detail]:
        return self._after("AND owner = ?", (owner,), after, limit)

    def list_paused(self, after: Id | None, limit: int) -> list[Detail]:
        return self._after("AND paused", (), after, limit)

    def count_paused(self) -> int:
        query = "SELECT count(*) FROM details WHERE tenant = ? AND paused"
        return int(self._database.read(query, (self._tenant,))[0][0])

    def users_of(self, destination: str) -> list[Id]:
        """The subscriptions that name it, paused ones included."""
        query = "SELECT id FROM details WHERE tenant = ? AND destination = ?"
        return [id for [id] in self._database.read(query, (self._tenant, destination))]

    def list_unsettled(self) -> list[Detail]:
        return self._select("AND NOT settled")

    def all(self) -> Iterator[Detail]:
        after: Id | None = None
        while found := self._after("", (), after, 10_000):
            yield from found
            after = found[-1].id

    def _after(self, condition: str, arguments: tuple[Any, ...], after: Id | None, limit: int) -> list[Detail]:
        first: Any = float("-inf") if after is None else after
        return self._select(f"{condition} AND id > ? ORDER BY id LIMIT ?", *arguments, first, limit)

    def _select(self, condition: str, *arguments: Any) -> list[Detail]:
        query = f"SELECT {COLUMNS} FROM details WHERE tenant = ? {condition}"
        return [_of_row(row) for row in self._database.read(query, (self._tenant, *arguments))]

    # ---- writing ----

    def begin(self, details: Iterable[Detail]) -> None:
        """What is about to become true of the matcher."""
        done, self._done = self._done, []
        rows = [(self._tenant, *d.row()) for d in details]

        def work(connection: sqlite3.Connection) -> None:
            query = "UPDATE details SET settled = 1 WHERE tenant = ? AND id = ?"
            connection.executemany(query, [(self._tenant, id) for id in done])
            places = ", ".join("?" * 11)
            connection.executemany(f"INSERT OR REPLACE INTO details VALUES ({places}, 0)", rows)

        self._database.write(work)

    def forget(self, ids: Iterable[Id]) -> None:
        """What is no longer true, or never became so."""
        rows = [(self._tenant, id) for id in ids]
        for _, id in rows:
            self.receivers.pop(id, None)
        self._database.write(lambda c: c.executemany("DELETE FROM details WHERE tenant = ? AND id = ?", rows))

    def finish(self, detail: Detail, version: int) -> None:
        """It is true. version: the one that the matcher gave."""
        self._done.append(detail.id)
        self.receive(detail, version)

    def receive(self, detail: Detail, version: int) -> None:
        if detail.destination is None or detail.paused:
            self.receivers.pop(detail.id, None)
        else:
            mode = Mode.of(detail.mode)
            self.receivers[detail.id] = MatchedDestination(detail.id, detail.destination, mode, version, detail.weight)

    def close(self) -> None:
        if self._done:
            self.begin(())
