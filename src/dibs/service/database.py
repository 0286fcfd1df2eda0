"""service.sqlite: what the service knows beside the matchers. The matchers' own catalogs know the expressions.

    tokens    who may do what; only a hash of the secret, which is random, so that a plain SHA-256 is enough
    tenants   the limits of those that have some of their own
    details   of subscriptions that have more than expression and weight (details.py)
    answers   to requests with an Idempotency-Key, for a day (answers.py)
    audit     who changed what
    totals    how often each subscription has matched, and when last; hours: in which hour (counts.py)

The process that writes is the service's writer; `dibs token` writes from beside, which SQLite's lock allows. Others
only read. Ids are integers or texts, as they were given: their columns have no type that SQLite would convert them to.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from dibs.errors import FormatError, StorageError

T = TypeVar("T")
FORMAT = 1
BUSY = 10.0  # seconds to wait for another process that writes
SCHEMA = """
CREATE TABLE tokens (name TEXT PRIMARY KEY, hash BLOB UNIQUE NOT NULL, tenant TEXT NOT NULL, roles TEXT NOT NULL,
                     about TEXT NOT NULL, created REAL NOT NULL, expires REAL, revoked REAL);
CREATE TABLE tenants (name TEXT PRIMARY KEY, limits TEXT NOT NULL);
CREATE TABLE details (tenant TEXT NOT NULL, id NOT NULL, owner TEXT, labels TEXT, destination TEXT, mode TEXT,
                      paused INTEGER NOT NULL, expression TEXT NOT NULL, weight REAL NOT NULL, version INTEGER NOT NULL,
                      time INTEGER NOT NULL, settled INTEGER NOT NULL, PRIMARY KEY (tenant, id)) WITHOUT ROWID;
CREATE INDEX details_by_owner ON details (tenant, owner, id) WHERE owner IS NOT NULL;
CREATE INDEX details_paused ON details (tenant, id) WHERE paused;
CREATE TABLE answers (tenant TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, status INTEGER NOT NULL,
                      headers TEXT NOT NULL, body BLOB NOT NULL, time REAL NOT NULL,
                      PRIMARY KEY (tenant, key)) WITHOUT ROWID;
CREATE INDEX answers_by_time ON answers (time);
CREATE TABLE audit (number INTEGER PRIMARY KEY, time REAL NOT NULL, tenant TEXT NOT NULL, token TEXT NOT NULL,
                    action TEXT NOT NULL, about TEXT NOT NULL, status INTEGER NOT NULL);
CREATE INDEX audit_by_tenant ON audit (tenant, number);
CREATE TABLE totals (tenant TEXT NOT NULL, id NOT NULL, total INTEGER NOT NULL, last INTEGER NOT NULL,
                     PRIMARY KEY (tenant, id)) WITHOUT ROWID;
CREATE TABLE hours (tenant TEXT NOT NULL, hour INTEGER NOT NULL, id NOT NULL, count INTEGER NOT NULL,
                    PRIMARY KEY (tenant, hour, id)) WITHOUT ROWID;
"""


class Database:
    """Any thread may use it; one after the other."""

    def __init__(self, path: Path, read_only: bool = False):
        self.path, self.read_only = path, read_only
        self._turn = threading.Lock()
        try:
            self._connection = self._open()
        except sqlite3.Error as e:
            raise StorageError(
                path, f"cannot be opened ({e}): check the permissions, and that it is a file of Dibs"
            ) from e

    def _open(self) -> sqlite3.Connection:
        mode = "ro" if self.read_only else "rwc"
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False)
        try:
            if not self.read_only:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA trusted_schema = OFF")
            [number] = connection.execute("PRAGMA user_version").fetchone()
            if number == 0 and not self.read_only:
                connection.executescript(f"BEGIN IMMEDIATE;{SCHEMA};PRAGMA user_version = {FORMAT};COMMIT")
            elif number != FORMAT:
                raise FormatError(
                    f"{self.path} has the format {number}, not {FORMAT}: use the version of Dibs that wrote it"
                )
        except BaseException:
            connection.close()
            raise
        self.path.chmod(0o600) if not self.read_only else None
        return connection

    def read(self, query: str, arguments: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        return self._do(lambda c: c.execute(query, tuple(arguments)).fetchall())

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Does the work in one transaction, which is on the disk when this returns."""

        def whole(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return result

        return self._do(whole)

    def stamp(self) -> int:
        """Another one after each commit of another process (or connection)."""
        [(found,)] = self.read("PRAGMA data_version")
        return int(found)

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._turn:
            try:
                return work(self._connection)
            except sqlite3.Error as e:
                raise StorageError(self.path, f"{e}: check the disk, and that no other program holds it") from e

    def close(self) -> None:
        with self._turn:
            self._connection.close()
