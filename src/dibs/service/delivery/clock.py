"""The time by which retries, periods, digests and ages are reckoned. The date of a machine is set by people and by time
servers, forth and back; a retry that was due in a second must not wait for an hour because of that. So the outbox has
a time of its own:

- from one start of the machine to the next, the time since that start (CLOCK_BOOTTIME, which nobody sets), plus an
  offset that is in the outbox: all processes see the same time, whatever becomes of the date and whenever they start;
- at the first opening after that, it goes on at the date, but never before the latest time that is in the outbox. If
  the date is behind that, the time goes on from there.

Dates for people and receivers are those of the machine; `date_of` makes them from times.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from dibs.storage.sqlite import Session

BOOT = Path("/proc/sys/kernel/random/boot_id")  # another one after each start of the machine
NOTED = 1.0  # seconds between two notes of the latest time
TABLE = "CREATE TABLE IF NOT EXISTS clock (boot TEXT NOT NULL, ahead REAL NOT NULL, latest REAL NOT NULL)"


class OutboxClock:
    """`clock()` is the time in seconds."""

    def __init__(self, session: Session, source: Callable[[], float] | None = None):
        """source: in place of the machine's clock and date, for tests; each opening is then like a new start."""
        self._date = source or _date_of_machine
        self._source = source or _seconds_of_machine
        boot = "" if source is not None else _boot()
        self._ahead, self._noted = session.write(lambda connection: self._begin(connection, boot))

    def _begin(self, connection: sqlite3.Connection, boot: str) -> tuple[float, float]:
        connection.execute(TABLE)
        found = connection.execute("SELECT boot, ahead, latest FROM clock").fetchone()
        if found is not None and boot and found[0] == boot:
            return found[1], found[2]
        latest = found[2] if found is not None else 0.0
        now = max(self._date(), latest)
        ahead = now - self._source()
        connection.execute("DELETE FROM clock")
        connection.execute("INSERT INTO clock VALUES (?, ?, ?)", (boot, ahead, now))
        return ahead, now

    def __call__(self) -> float:
        return self._source() + self._ahead

    def note(self, connection: sqlite3.Connection, now: float) -> None:
        """Within a transaction: it is so late by now."""
        if now > self._noted + NOTED:
            connection.execute("UPDATE clock SET latest = max(latest, ?)", (now,))
            self._noted = now

    def date(self) -> float:
        """As people have it."""
        return self._date()

    def date_of(self, moment: float) -> float:
        """When some time was, or will be: by today's date, to the second where the two differ."""
        return moment + round(self._date() - self())


def _date_of_machine() -> float:
    return time.time()


def _seconds_of_machine() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _boot() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""
