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

import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dibs.service.delivery.clock import OutboxClock
from dibs.service.delivery.model import (
    DeadLetter,
    Delivery,
    Destination,
    DestinationExists,
    DestinationStats,
    Enqueued,
    MatchedDestination,
    OutboxFull,
    Publication,
    UnknownDelivery,
    UnknownDestination,
)
from dibs.service.delivery.schema import FILE, check_outbox, create_outbox
from dibs.service.delivery.sealing import Sealing, Stored
from dibs.service.delivery.signing import new_secret
from dibs.service.delivery.writing import COLUMNS, Writing, find_lane, read_lane
from dibs.storage.sqlite import Session, file_size

MOST_BYTES = 8 << 30
RESENT_AT_ONCE = 1_000  # dead letters of one transaction
log = logging.getLogger("dibs.service")
OF_DELIVERY = "d.number, t.name, d.event, d.created, d.attempts, d.body"


class Outbox:
    """An open outbox; `close` it, or use it in a with block."""

    def __init__(self, folder: Path, most_bytes: int, clock: Callable[[], float] | None, sealing: Sealing):
        self.folder, self.most_bytes, self.sealing = folder, most_bytes, sealing
        self.session = Session(folder, read_only=False, name=FILE)
        self.session.read(check_outbox)
        self.clock = OutboxClock(self.session, clock)
        self._seal_all()
        [[self.identity]] = self.session.read(lambda c: c.execute("SELECT identity FROM state").fetchall())

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] | None = None,
        sealing: Sealing | None = None,
    ) -> Outbox:
        """Opens the outbox of a folder; makes it if it is not there. clock: in place of the machine's (clock.py).
        sealing: of the secrets; those that it would seal otherwise are sealed again."""
        create_outbox(Path(folder))
        return cls(Path(folder), most_bytes, clock, sealing or Sealing())

    def _seal_all(self) -> None:
        def plan(connection: sqlite3.Connection) -> list[tuple[Stored, int]]:
            rows = connection.execute("SELECT secret, number FROM destinations").fetchall()
            renewed = [(self.sealing.renewed(secret), number) for secret, number in rows]
            return [(secret, number) for secret, number in renewed if secret is not None]

        def work(connection: sqlite3.Connection) -> int:
            changes = plan(connection)
            connection.executemany("UPDATE destinations SET secret = ? WHERE number = ?", changes)
            return len(changes)

        try:
            if not self.session.read(plan):
                return
            changed = self.session.write(work)
            self.session.execute("VACUUM")  # free pages may hold what they were
            self.session.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except BaseException:
            self.session.close()
            raise
        log.warning("the secrets of %d destinations were encrypted, with the first key of --secrets-key", changed)

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
            writing = Writing(connection, self.identity, self.clock)
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

    def put_destination(self, destination: Destination, *, absent: bool = False) -> Destination:
        """Adds a destination, or changes the one of this name; as it is now. What waits goes to the new target.
        absent: only if there is none; else raises DestinationExists."""

        def work(connection: sqlite3.Connection) -> Destination:
            old = connection.execute(
                "SELECT secret FROM destinations WHERE tenant = ? AND name = ?", (destination.tenant, destination.name)
            ).fetchone()
            secret = destination.secret or (self.sealing.open(old[0]) if old else new_secret())
            d = replace(destination, secret=secret)
            if old is not None and absent:
                raise DestinationExists(destination.name)
            number = None
            if old is None:  # one that none has had before: clients know streams by it
                highest = "(SELECT coalesce(max(number), 0) FROM destinations)"
                [number] = connection.execute(
                    f"UPDATE state SET number = 1 + max(number, {highest}) RETURNING number"
                ).fetchone()
            connection.execute(
                "INSERT INTO destinations (number, tenant, name, kind, target, secret, most, when_full, paused) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, name) DO UPDATE SET "
                "kind = excluded.kind, target = excluded.target, secret = excluded.secret, most = excluded.most, "
                "when_full = excluded.when_full, paused = excluded.paused, retry_at = NULL, failures = 0",
                (number, d.tenant, d.name, d.kind, d.target, self.sealing.seal(secret), d.limit, d.when_full, d.paused),
            )
            return d

        return self.session.write(work)

    def destination(self, name: str, tenant: str = "") -> Destination:
        return self.session.read(lambda connection: find_lane(connection, tenant, name)).destination

    def has_destination(self, name: str, tenant: str = "") -> bool:
        try:
            self.destination(name, tenant)
        except UnknownDestination:
            return False
        return True

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
                since, retry, success, oldest = map(self._date_of, (since, retry, success, oldest))
                lane = read_lane(columns)
                counts = (delivered, suppressed, refused, dropped, dead)
                rows_of = (0, lane.waiting) if lane.destination.kind == "stream" else (lane.waiting, 0)
                found.append(
                    DestinationStats(lane.destination, *rows_of, oldest, *counts, since, retry, error, success)
                )
            return found

        return self.session.read(work)

    def _date_of(self, moment: float | None) -> float | None:
        return None if moment is None else self.clock.date_of(moment)

    def bytes_kept(self) -> int:
        """Of all deliveries and what is collected for some, of all tenants."""
        [[size]] = self.session.read(lambda c: c.execute("SELECT bytes FROM state").fetchall())
        return int(size)

    def bytes_on_disk(self) -> int:
        """Of the database, with its log."""
        return sum(file_size(Path(f"{self.session.path}{end}")) for end in ("", "-wal", "-shm"))

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
            return [self._dead_letter(*row) for row in rows]

        return self.session.read(work)

    def _dead_letter(self, *row: Any) -> DeadLetter:
        *columns, died, reason = row
        delivery = self.delivery_of(columns)
        shown = replace(delivery, created=self.clock.date_of(delivery.created))
        return DeadLetter(shown, self.clock.date_of(died), reason)

    def resend(self, delivery: str, tenant: str = "") -> None:
        """Takes a dead letter back into its destination's queue, where it is the next: under the same id, with all
        attempts before it. Raises UnknownDelivery."""
        chosen = "d.number = ? AND t.tenant = ?"
        if not self.session.write(lambda c: _resend(c, chosen, (self.number_of(delivery), tenant))):
            raise UnknownDelivery(delivery)

    def resend_all(self, tenant: str = "", destination: str | None = None) -> int:
        """The same for all dead letters of a tenant, or of one of its destinations, that there are now; how many. Some
        at a time, so that others may publish in between. Raises UnknownDestination."""
        if destination is not None:
            self.destination(destination, tenant)
        [[last]] = self.session.read(lambda c: c.execute("SELECT coalesce(max(number), 0) FROM dead").fetchall())
        chosen = "d.number <= ? AND t.tenant = ? AND (? IS NULL OR t.name = ?)"
        sent = 0
        while found := self.session.write(lambda c: _resend(c, chosen, (last, tenant, destination, destination))):
            sent += found
        return sent

    def number_of(self, delivery: str) -> int:
        """Of a delivery's id; 0 if it is none of this outbox."""
        identity, _, number = delivery.partition("-")
        return int(number) if identity == self.identity and number.isdecimal() and len(number) < 19 else 0

    def delivery_of(self, row: Sequence[Any]) -> Delivery:
        return Delivery(f"{self.identity}-{row[0]}", *row)


def _resend(connection: sqlite3.Connection, chosen: str, arguments: tuple[Any, ...]) -> int:
    """Of dead letters that are chosen, the first; how many."""
    rows = connection.execute(
        "SELECT d.number, d.destination FROM dead d JOIN destinations t ON d.destination = t.number "
        f"WHERE {chosen} ORDER BY d.number LIMIT {RESENT_AT_ONCE}",
        arguments,
    ).fetchall()
    numbers = [(number,) for number, _ in rows]
    connection.executemany(
        "INSERT INTO deliveries SELECT number, destination, place, event, created, 0, body FROM dead WHERE number = ?",
        numbers,
    )
    connection.executemany("DELETE FROM dead WHERE number = ?", numbers)
    connection.executemany(
        "UPDATE destinations SET dead = dead - ?, waiting = waiting + ?, retry_at = NULL WHERE number = ?",
        [(count, count, lane) for lane, count in Counter(lane for _, lane in rows).items()],
    )
    return len(rows)
