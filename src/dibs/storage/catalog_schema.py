"""The database of a catalog: its tables, its one row of state, and making an empty one.

    subscriptions   id, expression, weight, version, time, checksum; the version is the row's number, so what is new
                    since some version is at the end of the table
    removed         id, version, time, checksum: the removals that somebody may not have heard of yet
    state           one row: see CatalogState
    documents, gone, history   the history of the matcher, once it has one (storage.documents)

An id is an integer or a text, as it was given: its column has no type that SQLite would convert it to. SQLite's order
of ids is ours: integers first, then texts by their bytes.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from dibs.errors import StorageError
from dibs.storage.catalog_rows import Unsound
from dibs.storage.files import storage_error, sync_folder
from dibs.storage.sqlite import DATA, write_database

APPLICATION = 0x64696273  # "dibs", in the head of the file
FORMAT = 2  # of a catalog without documents, as all were before there were any
HISTORY_FORMAT = 3
COLUMNS = "id, expression, weight, version, time, checksum"  # of subscriptions, as rows are read and written
BY_ID = "CREATE UNIQUE INDEX by_id ON subscriptions (id)"
SCHEMA = {
    "subscriptions": "CREATE TABLE subscriptions (id NOT NULL, expression TEXT NOT NULL, weight REAL NOT NULL, "
    "version INTEGER PRIMARY KEY, time INTEGER NOT NULL, checksum INTEGER NOT NULL)",
    "by_id": BY_ID,
    "removed": "CREATE TABLE removed (id NOT NULL, version INTEGER PRIMARY KEY, time INTEGER NOT NULL, "
    "checksum INTEGER NOT NULL)",
    "state": "CREATE TABLE state (identity TEXT, version INTEGER, trimmed INTEGER, time INTEGER, "
    "subscriptions INTEGER, subscriptions_sum INTEGER, removed INTEGER, removed_sum INTEGER, checksum TEXT)",
}
HISTORY = {
    "documents": "CREATE TABLE documents (number INTEGER PRIMARY KEY, size INTEGER NOT NULL, form TEXT NOT NULL, "
    "attributes TEXT, content NOT NULL, keys TEXT, version INTEGER NOT NULL, time INTEGER NOT NULL, "
    "checksum INTEGER NOT NULL)",
    "gone": "CREATE TABLE gone (number INTEGER PRIMARY KEY)",
    "history": "CREATE TABLE history (change INTEGER, first INTEGER, end INTEGER, newest INTEGER, retain TEXT, "
    "rows INTEGER, rows_sum INTEGER, gone INTEGER, gone_sum INTEGER, checksum INTEGER)",
}


class CatalogState(NamedTuple):
    """What the catalog says of itself."""

    identity: str  # random, 32 hexadecimal digits
    version: int  # of the last change
    trimmed: int  # removals up to this version are forgotten
    time: int  # the latest that was given to a change
    subscriptions: int  # how many
    subscriptions_sum: int  # of their checksums
    removed: int  # rows of that table
    removed_sum: int


UPDATE_STATE = f"UPDATE state SET {', '.join(f'{name} = ?' for name in (*CatalogState._fields, 'checksum'))}"


class LaterFormat(Exception):
    """A catalog that a later version of Dibs has written."""


def read_state(connection: sqlite3.Connection) -> CatalogState:
    """Raises Unsound."""
    found = connection.execute("SELECT * FROM state").fetchall()
    if len(found) == 1 and len(found[0]) == len(CatalogState._fields) + 1:
        state = CatalogState(*found[0][:-1])
        if found[0][-1] == _checksum(state):
            return state
    raise Unsound("the state of the catalog does not fit its checksum")


def write_state(connection: sqlite3.Connection, state: CatalogState) -> None:
    connection.execute(UPDATE_STATE, (*state, _checksum(state)))


def _checksum(state: CatalogState) -> str:
    return blake2b(repr(tuple(state)).encode(), digest_size=8).hexdigest()


def check_schema(connection: sqlite3.Connection) -> None:
    """That it is a catalog's database, of a format that is known. Raises LaterFormat, Unsound."""
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [number] = connection.execute("PRAGMA user_version").fetchone()
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master").fetchall())
    expected = {FORMAT: SCHEMA, HISTORY_FORMAT: SCHEMA | HISTORY}.get(number)
    if found == expected and application == APPLICATION:
        return
    if application == APPLICATION and number > HISTORY_FORMAT:
        raise LaterFormat(
            f"the catalog has the format {number}, this version of Dibs reads up to {HISTORY_FORMAT}: use the version "
            "that wrote it"
        )
    raise Unsound("its tables are not those of a catalog")


# ---- making one ----


def create_catalog(folder: Path) -> None:
    """Makes an empty catalog in a folder that is missing or empty: under another name first, so that it is there wholly
    or not at all. No mistake can make a new one of a catalog whose file is missing."""
    beside = f"{folder.name}.partial-"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for old in folder.parent.glob(f"{beside}*"):
            if not _is_running(old.name[len(beside) :]):
                shutil.rmtree(old, ignore_errors=True)
        partial = folder.with_name(f"{beside}{os.getpid()}")
        partial.mkdir()
        try:
            _write_empty(partial / DATA)
            sync_folder(partial)
            try:
                os.rename(partial, folder)
            except OSError:
                if not (folder / DATA).exists():  # else somebody else was faster
                    raise
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as e:
        raise storage_error(folder, e) from e
    except sqlite3.Error as e:
        raise StorageError(folder, f"the catalog cannot be made ({e}): check permissions and room") from e


def _write_empty(path: Path) -> None:
    state = CatalogState(os.urandom(16).hex(), *[0] * 7)
    row = ", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in (*state, _checksum(state)))
    write_database(path, APPLICATION, FORMAT, [*SCHEMA.values(), f"INSERT INTO state VALUES ({row})"])


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
