"""The outbox as the deliverer sees it: what can be sent now, and what became of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dibs.service.delivery.model import Delivery, Destination
from dibs.service.delivery.outbox import OF_DELIVERY, Outbox
from dibs.service.delivery.writing import COLUMNS, REPEATS_KNOWN, Writing, read_lane

DEAD_LETTERS = 100_000  # that are kept per destination: the oldest go, and are counted as dropped


@dataclass(frozen=True)
class ReadyLane:
    """A destination for which something waits that can be sent."""

    number: int
    destination: Destination
    failures: int  # one after the other


@dataclass(frozen=True)
class Outcome:
    """What became of one attempt: nothing is left to do, unless there is an error."""

    lane: int
    delivery: int
    error: str = ""
    retry_at: float | None = None  # when the lane may go on; with an error
    given_up: bool = False


class Sending:
    """Calls of one transaction each; any thread may make them."""

    def __init__(self, outbox: Outbox):
        self.outbox = outbox

    def stamp(self) -> tuple[int, ...]:
        """Another one after each commit of somebody else."""
        return self.outbox.session.stamp()

    def lanes(self) -> tuple[list[ReadyLane], float | None]:
        """Who can be sent to now; when somebody else can, or a digest is due."""
        now = self.outbox.clock()

        def work(connection: sqlite3.Connection) -> tuple[list[ReadyLane], float | None]:
            rows = connection.execute(
                f"SELECT {COLUMNS}, secret, failures, retry_at FROM destinations "
                "WHERE waiting > 0 AND NOT paused AND kind <> 'stream' ORDER BY number"
            ).fetchall()
            ready = [row for *row, retry_at in rows if retry_at is None or retry_at <= now]
            later = [retry_at for *_, retry_at in rows if retry_at is not None and retry_at > now]
            [due] = connection.execute("SELECT min(due) FROM digests").fetchone()
            times = [*later, *([due] if due is not None else [])]
            return [self._lane(*row) for row in ready], min(times, default=None)

        return self.outbox.session.read(work)

    def _lane(self, *row: Any) -> ReadyLane:
        *columns, secret, failures = row
        lane = read_lane(columns)
        destination = replace(lane.destination, secret=self.outbox.sealing.open(secret))
        return ReadyLane(lane.number, destination, failures)

    def head(self, lane: int, count: int) -> list[Delivery]:
        """The next deliveries of a destination; none if it is paused, or gone."""

        def work(connection: sqlite3.Connection) -> list[Delivery]:
            rows = connection.execute(
                f"SELECT {OF_DELIVERY} FROM deliveries d JOIN destinations t ON d.destination = t.number "
                "WHERE d.destination = ? AND NOT t.paused ORDER BY d.number LIMIT ?",
                (lane, count),
            )
            return [self.outbox.delivery_of(row) for row in rows]

        return self.outbox.session.read(work)

    def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Keeps what became of attempts. What is gone meanwhile is left out."""
        now = self.outbox.clock()

        def work(connection: sqlite3.Connection) -> None:
            self.outbox.clock.note(connection, now)
            for outcome in outcomes:
                if outcome.given_up:
                    _bury(connection, outcome, now)
                elif outcome.error:
                    connection.execute(
                        "UPDATE deliveries SET attempts = attempts + 1 WHERE number = ?", (outcome.delivery,)
                    )
                else:
                    _delete(connection, outcome, now)
                if outcome.error:
                    connection.execute(
                        "UPDATE destinations SET failures = failures + 1, retry_at = ?, last_error = ?, "
                        "failing_since = coalesce(failing_since, ?) WHERE number = ?",
                        (outcome.retry_at, outcome.error[:1_000], now, outcome.lane),
                    )

        self.outbox.session.write(work)

    def send_digests(self) -> int:
        """Digests that are due become deliveries; how many."""
        now = self.outbox.clock()
        columns = ", ".join(f"t.{name.strip()}" for name in COLUMNS.split(","))
        due = (
            f"SELECT {columns}, g.number, g.subscription, g.opened, g.matches FROM digests g "
            "JOIN destinations t ON g.destination = t.number WHERE g.due <= ? ORDER BY g.due, g.number LIMIT 100"
        )
        if not self.outbox.session.read(lambda c: c.execute(due, (now,)).fetchall()):
            return 0

        def work(connection: sqlite3.Connection) -> int:
            writing = Writing(connection, self.outbox.identity, self.outbox.clock)
            rows = connection.execute(due, (now,)).fetchall()
            for *row, number, subscription, opened, matches in rows:
                writing.send_digest(writing.lane_of(row), (number, subscription, opened, matches))
            writing.finish()
            return len(rows)

        return self.outbox.session.write(work)

    def forget_old(self) -> None:
        """What no longer has an effect: keys of publishers, periods that are over, dead letters above their number."""
        now = self.outbox.clock()

        def work(connection: sqlite3.Connection) -> None:
            self.outbox.clock.note(connection, now)
            connection.execute("DELETE FROM published WHERE at < ?", (now - REPEATS_KNOWN,))
            connection.execute("DELETE FROM periods WHERE until < ?", (now,))
            crowded = connection.execute(
                "SELECT number, dead FROM destinations WHERE dead > ?", (DEAD_LETTERS,)
            ).fetchall()
            for lane, dead in crowded:
                over = dead - DEAD_LETTERS
                oldest = "SELECT number FROM dead WHERE destination = ? ORDER BY number LIMIT ?"
                [size] = connection.execute(
                    f"SELECT sum(length(body)) FROM dead WHERE number IN ({oldest})", (lane, over)
                ).fetchone()
                connection.execute(f"DELETE FROM dead WHERE number IN ({oldest})", (lane, over))
                connection.execute(
                    "UPDATE destinations SET dead = dead - ?, dropped = dropped + ? WHERE number = ?",
                    (over, over, lane),
                )
                connection.execute("UPDATE state SET bytes = bytes - ?", (size,))

        self.outbox.session.write(work)


def _delete(connection: sqlite3.Connection, outcome: Outcome, now: float) -> None:
    found = connection.execute(
        "DELETE FROM deliveries WHERE number = ? RETURNING length(body)", (outcome.delivery,)
    ).fetchall()
    for [size] in found:
        connection.execute("UPDATE state SET bytes = bytes - ?", (size,))
        connection.execute(
            "UPDATE destinations SET waiting = waiting - 1, delivered = delivered + 1, failures = 0, retry_at = NULL, "
            "failing_since = NULL, last_error = '', last_success = ? WHERE number = ?",
            (now, outcome.lane),
        )


def _bury(connection: sqlite3.Connection, outcome: Outcome, now: float) -> None:
    moved = connection.execute(
        "INSERT INTO dead SELECT number, destination, place, event, created, attempts + 1, body, ?, ? FROM deliveries "
        "WHERE number = ?",
        (now, outcome.error, outcome.delivery),
    ).rowcount
    connection.execute("DELETE FROM deliveries WHERE number = ?", (outcome.delivery,))
    connection.execute(
        "UPDATE destinations SET waiting = waiting - ?, dead = dead + ? WHERE number = ?", (moved, moved, outcome.lane)
    )
