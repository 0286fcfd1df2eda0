"""The database of an outbox: `outbox.sqlite` in the service's folder, with a log that is synced at each commit.

    state          one row: its identity (the front of delivery ids), the last delivery's number, bytes of bodies
    destinations   what a Destination says, and counters: `waiting` is the number of its rows in deliveries
    deliveries     what waits, in the order of numbers; of streams: what is kept. `place` counts within a destination
    dead           deliveries that were given up
    active         transitions that are on: a row for each subscription, destination and key that matched last
    attributes     names of keys that transitions have used: what is looked up in a published event
    periods        until when matches of a subscription, destination and key are held back
    digests, collected   what was matched since the last digest of a subscription and destination
    published      the publishers' own keys of events, for as long as a repeat is known as one

Each change of modes is made in the transaction that enqueues what follows from it, so that both are there or neither.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from dibs.errors import DamagedError, FormatError
from dibs.storage.sqlite import create_database

FILE = "outbox.sqlite"
APPLICATION = 0x6469626F  # "dibo"
FORMAT = 1
TABLES = (
    "CREATE TABLE state (identity TEXT NOT NULL, number INTEGER NOT NULL, bytes INTEGER NOT NULL)",
    "CREATE TABLE destinations (number INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, "
    "kind TEXT NOT NULL, target TEXT NOT NULL, secret TEXT NOT NULL, most INTEGER NOT NULL, when_full TEXT NOT NULL, "
    "paused INTEGER NOT NULL, waiting INTEGER NOT NULL DEFAULT 0, placed INTEGER NOT NULL DEFAULT 0, "
    "delivered INTEGER NOT NULL DEFAULT 0, "
    "suppressed INTEGER NOT NULL DEFAULT 0, refused INTEGER NOT NULL DEFAULT 0, dropped INTEGER NOT NULL DEFAULT 0, "
    "dead INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0, failing_since REAL, retry_at REAL, "
    "last_error TEXT NOT NULL DEFAULT '', "
    "last_success REAL, UNIQUE (tenant, name))",
    "CREATE TABLE deliveries (number INTEGER PRIMARY KEY, destination INTEGER NOT NULL, place INTEGER NOT NULL, "
    "event TEXT NOT NULL, created REAL NOT NULL, attempts INTEGER NOT NULL, body BLOB NOT NULL)",
    "CREATE INDEX lanes ON deliveries (destination, number)",
    "CREATE INDEX places ON deliveries (destination, place)",
    "CREATE TABLE dead (number INTEGER PRIMARY KEY, destination INTEGER NOT NULL, place INTEGER NOT NULL, "
    "event TEXT NOT NULL, created REAL NOT NULL, attempts INTEGER NOT NULL, body BLOB NOT NULL, died REAL NOT NULL, "
    "reason TEXT NOT NULL)",
    "CREATE INDEX dead_by_destination ON dead (destination, number)",
    "CREATE TABLE active (tenant TEXT NOT NULL, attribute TEXT NOT NULL, value TEXT NOT NULL, subscription NOT NULL, "
    "destination INTEGER NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (tenant, attribute, value, subscription, "
    "destination)) WITHOUT ROWID",
    "CREATE TABLE attributes (tenant TEXT NOT NULL, attribute TEXT NOT NULL, PRIMARY KEY (tenant, attribute)) "
    "WITHOUT ROWID",
    "CREATE TABLE periods (tenant TEXT NOT NULL, subscription NOT NULL, destination INTEGER NOT NULL, "
    "attribute TEXT NOT NULL, value TEXT NOT NULL, version INTEGER NOT NULL, until REAL NOT NULL, "
    "PRIMARY KEY (tenant, subscription, destination, attribute, value)) WITHOUT ROWID",
    "CREATE INDEX periods_by_end ON periods (until)",
    "CREATE TABLE digests (number INTEGER PRIMARY KEY, tenant TEXT NOT NULL, subscription NOT NULL, "
    "destination INTEGER NOT NULL, opened REAL NOT NULL, due REAL NOT NULL, matches INTEGER NOT NULL, "
    "UNIQUE (tenant, subscription, destination))",
    "CREATE INDEX digests_by_time ON digests (due)",
    "CREATE TABLE collected (digest INTEGER NOT NULL, place INTEGER NOT NULL, item BLOB NOT NULL, "
    "PRIMARY KEY (digest, place)) WITHOUT ROWID",
    "CREATE TABLE published (tenant TEXT NOT NULL, key TEXT NOT NULL, event TEXT NOT NULL, at REAL NOT NULL, "
    "PRIMARY KEY (tenant, key)) WITHOUT ROWID",
    "CREATE INDEX published_by_time ON published (at)",
)


def create_outbox(folder: Path) -> None:
    """Makes an empty one if there is none."""
    state = f"INSERT INTO state VALUES ('{os.urandom(6).hex()}', 0, 0)"
    create_database(folder / FILE, "the outbox", APPLICATION, FORMAT, [*TABLES, state])


def check_outbox(connection: sqlite3.Connection) -> None:
    """That it is an outbox of this format."""
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [number] = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise DamagedError(
            Path(FILE), "it is no outbox of Dibs: restore a backup, or move it away to begin with an empty one"
        )
    if number != FORMAT:
        raise FormatError(
            f"{FILE} has the format {number}, this version of Dibs reads {FORMAT}: use the version that wrote it"
        )
