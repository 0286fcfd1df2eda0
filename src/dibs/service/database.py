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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from dibs.errors import FormatError
from dibs.storage.sqlite import Session, create_database

T = TypeVar("T")
APPLICATION = 0
FORMAT = 1
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
        if not read_only:
            create_database(path, "the service's database", APPLICATION, FORMAT, SCHEMA.split(";"))
            path.chmod(0o600)
        self._session = Session(path.parent, read_only, path.name)
        [(number,)] = self.read("PRAGMA user_version")
        if number != FORMAT:
            self.close()
            raise FormatError(f"{path} has the format {number}, not {FORMAT}: use the version of Dibs that wrote it")

    def read(self, query: str, arguments: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        given = tuple(arguments)
        return self._session.read(lambda connection: connection.execute(query, given).fetchall())

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Does the work in one transaction, which is on the disk when this returns."""
        return self._session.write(work)

    def stamp(self) -> tuple[int, ...]:
        """Another one after each commit of another process (or connection)."""
        return self._session.stamp()

    def close(self) -> None:
        self._session.close()
