"""The outbox: what was published and is not yet delivered, on the disk.

    outbox = Outbox.open(folder)
    outbox.put_destination(Destination("ops", "webhook", "https://example.org/hook"))
    told = outbox.enqueue(b'{"price": 490}', [MatchedDestination("alice", "ops", Mode("transition"))], "order-7")

What `enqueue` has returned is committed: each of its deliveries is made at least once, whatever ends the process in
between, in the order in which they were enqueued for a destination. All matches of an event that go to one destination
are one delivery. Its id is the same in every attempt, after every restart, and when it is sent again from the list of
dead letters: a receiver that remembers ids drops repeats.

Any number of threads and processes enqueue. One process delivers (deliverer.py), with an Outbox of its own.

The room is bounded. When `limit` deliveries wait for a destination, further ones are refused: for that destination
alone, and `Enqueued.refused` says so, so that the publisher can try again (or whole=True: then nothing is enqueued and
OutboxFull is raised); a destination with when_full="drop" counts them instead. When all bodies together reach
`most_bytes`, or the disk is full, the whole publication is refused (OutboxFull, StorageError).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dibs.service.delivery.model import (
    DeadLetter,
    Delivery,
    Destination,
    DestinationStats,
    Enqueued,
    MatchedDestination,
    OutboxFull,
    Publication,
    UnknownDelivery,
)
from dibs.service.delivery.schema import FILE, check_outbox, create_outbox
from dibs.service.delivery.signing import new_secret
from dibs.service.delivery.writing import COLUMNS, Writing, find_lane, read_lane
from dibs.storage.catalog_session import Session

MOST_BYTES = 8 << 30
OF_DELIVERY = "d.number, t.name, d.event, d.created, d.attempts, d.body"


class Outbox:
    """An open outbox; `close` it, or use it in a with block."""

    def __init__(self, folder: Path, most_bytes: int, clock: Callable[[], float]):
        self.folder, self.most_bytes, self.clock = folder, most_bytes, clock
        self.session = Session(folder, read_only=False, name=FILE)
        self.session.read(check_outbox)
        [[self.identity]] = self.session.read(lambda c: c.execute("SELECT identity FROM state").fetchall())

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], *, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.time
    ) -> Outbox:
        """Opens the outbox of a folder; makes it if it is not there."""
        create_outbox(Path(folder))
        return cls(Path(folder), most_bytes, clock)

    def close(self) -> None:
        self.session.close()

    def __enter__(self) -> Outbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- publishing ----

    def enqueue(
        self,
        event: bytes,
        matches: Iterable[MatchedDestination],
        event_key: str | None = None,
        *,
        tenant: str = "",
        whole: bool = False,
    ) -> Enqueued:
        """Keeps an event for all that it has matched. Call it for each published event, also if that is nothing:
        transitions end by it. event_key: the publisher's name for the event; one that came before, within a day, is
        not enqueued again, and answered as it was then. whole: if a destination is full, nothing is enqueued."""
        return self.enqueue_many([Publication(event, tuple(matches), event_key, tenant)], whole=whole)[0]

    def enqueue_many(self, publications: Sequence[Publication], *, whole: bool = False) -> list[Enqueued]:
        """The same for several, in their order, with one commit: all of them or none."""

        def work(connection: sqlite3.Connection) -> list[Enqueued]:
            writing = Writing(connection, self.identity, self.clock())
            told = [writing.publish(publication) for publication in publications]
            full = sorted({name for one in told for name in one.refused}) if whole else []
            if full:
                raise OutboxFull(f"as much as may wait for {', '.join(full)} does wait: try again later", full)
            if writing.finish() > self.most_bytes:
                message = f"the outbox has all the {self.most_bytes:,} bytes that it may have: try again later"
                raise OutboxFull(message, [])
            return told

        return self.session.write(work)

    # ---- destinations ----

    def put_destination(self, destination: Destination) -> Destination:
        """Adds a destination, or changes the one of this name; as it is now. What waits goes to the new target."""

        def work(connection: sqlite3.Connection) -> Destination:
            old = connection.execute(
                "SELECT secret FROM destinations WHERE tenant = ? AND name = ?", (destination.tenant, destination.name)
            ).fetchone()
            secret = destination.secret or (old[0] if old else new_secret())
            d = replace(destination, secret=secret)
            connection.execute(
                "INSERT INTO destinations (tenant, name, kind, target, secret, most, when_full, paused) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, name) DO UPDATE SET kind = excluded.kind, "
                "target = excluded.target, secret = excluded.secret, most = excluded.most, "
                "when_full = excluded.when_full, paused = excluded.paused, retry_at = NULL, failures = 0",
                (d.tenant, d.name, d.kind, d.target, d.secret, d.limit, d.when_full, d.paused),
            )
            return d

        return self.session.write(work)

    def destination(self, name: str, tenant: str = "") -> Destination:
        return self.session.read(lambda connection: find_lane(connection, tenant, name)).destination

    def destinations(self, tenant: str | None = None) -> list[Destination]:
        """Of one tenant, or of all."""
        return [one.destination for one in self.stats(tenant)]

    def remove_destination(self, name: str, tenant: str = "") -> int:
        """Removes a destination with all that waits for it and its dead letters; how many deliveries that were."""

        def work(connection: sqlite3.Connection) -> int:
            number = find_lane(connection, tenant, name).number
            lost = 0
            for table in ("deliveries", "dead"):
                [count, size] = connection.execute(
                    f"SELECT count(*), coalesce(sum(length(body)), 0) FROM {table} WHERE destination = ?", (number,)
                ).fetchone()
                connection.execute(f"DELETE FROM {table} WHERE destination = ?", (number,))
                connection.execute("UPDATE state SET bytes = bytes - ?", (size,))
                lost += count
            of_digests = "digest IN (SELECT number FROM digests WHERE destination = ?)"
            [size] = connection.execute(
                f"SELECT coalesce(sum(length(item)), 0) FROM collected WHERE {of_digests}", (number,)
            ).fetchone()
            connection.execute(f"DELETE FROM collected WHERE {of_digests}", (number,))
            connection.execute("UPDATE state SET bytes = bytes - ?", (size,))
            for table in ("digests", "active", "periods"):
                connection.execute(f"DELETE FROM {table} WHERE destination = ?", (number,))
            connection.execute("DELETE FROM destinations WHERE number = ?", (number,))
            return lost

        return self.session.write(work)

    # ---- looking ----

    def stats(self, tenant: str | None = None) -> list[DestinationStats]:
        """Of each destination, by tenant and name."""

        def work(connection: sqlite3.Connection) -> list[DestinationStats]:
            rows = connection.execute(
                f"SELECT {COLUMNS}, delivered, suppressed, refused, dropped, dead, failing_since, retry_at, "
                "last_error, last_success, (SELECT created FROM deliveries d WHERE d.destination = t.number "
                "ORDER BY d.number LIMIT 1) "
                "FROM destinations t WHERE ? IS NULL OR tenant = ? ORDER BY tenant, name",
                (tenant, tenant),
            )
            found = []
            for *columns, delivered, suppressed, refused, dropped, dead, since, retry, error, success, oldest in rows:
                lane = read_lane(columns)
                counts = (delivered, suppressed, refused, dropped, dead)
                found.append(
                    DestinationStats(lane.destination, lane.waiting, oldest, *counts, since, retry, error, success)
                )
            return found

        return self.session.read(work)

    def dead_letters(
        self, tenant: str = "", destination: str | None = None, *, after: str = "", limit: int = 100
    ) -> list[DeadLetter]:
        """The deliveries that were given up, in the order in which they were published; those after some id."""

        def work(connection: sqlite3.Connection) -> list[DeadLetter]:
            rows = connection.execute(
                f"SELECT {OF_DELIVERY}, d.died, d.reason FROM dead d JOIN destinations t ON d.destination = t.number "
                "WHERE t.tenant = ? AND (? IS NULL OR t.name = ?) AND d.number > ? ORDER BY d.number LIMIT ?",
                (tenant, destination, destination, self.number_of(after) if after else 0, limit),
            )
            return [DeadLetter(self.delivery_of(row[:-2]), row[-2], row[-1]) for row in rows]

        return self.session.read(work)

    def resend(self, delivery: str, tenant: str = "") -> None:
        """Takes a dead letter back into its destination's queue, where it is the next: under the same id, with all
        attempts before it. Raises UnknownDelivery."""
        number = self.number_of(delivery)

        def work(connection: sqlite3.Connection) -> None:
            found = connection.execute(
                "SELECT t.number FROM dead d JOIN destinations t ON d.destination = t.number "
                "WHERE d.number = ? AND t.tenant = ?",
                (number, tenant),
            ).fetchone()
            if found is None:
                raise UnknownDelivery(delivery)
            connection.execute(
                "INSERT INTO deliveries SELECT number, destination, place, event, created, 0, body FROM dead "
                "WHERE number = ?",
                (number,),
            )
            connection.execute("DELETE FROM dead WHERE number = ?", (number,))
            connection.execute(
                "UPDATE destinations SET dead = dead - 1, waiting = waiting + 1, retry_at = NULL WHERE number = ?",
                found,
            )

        self.session.write(work)

    def number_of(self, delivery: str) -> int:
        """Of a delivery's id; 0 if it is none of this outbox."""
        identity, _, number = delivery.partition("-")
        return int(number) if identity == self.identity and number.isdecimal() and len(number) < 19 else 0

    def delivery_of(self, row: Sequence[Any]) -> Delivery:
        return Delivery(f"{self.identity}-{row[0]}", *row)
