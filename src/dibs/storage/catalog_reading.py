"""Reading a catalog: a session that says what is unsound, and what can be asked, each as of one moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np

from dibs.errors import DamagedError, FormatError
from dibs.segments.ids import Id
from dibs.storage import catalog_check as checking
from dibs.storage.catalog_rows import CatalogColumns, Entry, Unsound, all_rows, columns_of, entries_of, total, wrap
from dibs.storage.catalog_schema import COLUMNS, CatalogState, LaterFormat, read_state
from dibs.storage.documents import read_news
from dibs.storage.history_rows import HistoryNews
from dibs.storage.sqlite import ADVICE, Session, file_size
from dibs.thresholds import thresholds

T = TypeVar("T")
BELOW_ALL_IDS = float("-inf")


class CatalogSession(Session):
    """A session in which what is unsound is an error that names the file."""

    def _run(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        try:
            return super()._run(work, begin)
        except Unsound as e:
            raise DamagedError(self.path, f"{e}; {ADVICE}") from None
        except LaterFormat as e:
            raise FormatError(f"{self.path}: {e}") from None


class News(NamedTuple):
    """What has changed since some version."""

    version: int  # now
    removed: list[Id]
    entries: list[Entry]  # added or replaced
    history: HistoryNews | None  # None: nothing


def count_used_bytes(connection: sqlite3.Connection) -> int:
    """Of the database's file; the rest of it is reused."""
    pragmas = ("page_size", "page_count", "freelist_count")
    size, pages, free = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
    return int((pages - free) * size)


def read_entries(connection: sqlite3.Connection, ids: Sequence[Id], seed: np.uint64) -> list[Entry | None]:
    """Those of these ids."""
    query = f"SELECT {COLUMNS} FROM subscriptions WHERE id = ?"
    found = [row for id in ids for row in connection.execute(query, (id,)).fetchall()]
    there = {entry.id: entry for entry in entries_of(found, seed)}
    return [there.get(id) for id in ids]


def read_page(connection: sqlite3.Connection, after: Id | None, count: int, seed: np.uint64) -> list[Entry]:
    """At most `count` entries after an id."""
    query = f"SELECT {COLUMNS} FROM subscriptions WHERE id > ? ORDER BY id LIMIT ?"
    last = BELOW_ALL_IDS if after is None else after
    return entries_of(connection.execute(query, (last, count)).fetchall(), seed)


def read_columns(connection: sqlite3.Connection, seed: np.uint64) -> tuple[int, list[CatalogColumns]]:
    """The version and all entries; see Catalog.columns."""
    state = read_state(connection)
    portions = list(all_rows(connection, seed))
    count, found = sum(len(sums) for _, sums in portions), sum(total(sums) for _, sums in portions)
    if (count, wrap(found)) != (state.subscriptions, state.subscriptions_sum):
        raise Unsound(f"not the {state.subscriptions:,} subscriptions that were written are there")
    return state.version, columns_of([rows for rows, _ in portions])


def read_changes(
    connection: sqlite3.Connection, since: int, change: int | None, end: int, seed: np.uint64
) -> News | None:
    """What is new after a version; see Catalog.news."""
    query = f"SELECT {COLUMNS} FROM subscriptions WHERE version > ? ORDER BY version"
    state = read_state(connection)
    if state.trimmed > since:
        return None
    entries = entries_of(connection.execute(query, (since,)).fetchall(), seed)
    gone = {entry.id for entry in entries_of(checking.read_removed(connection, since), seed)}
    history = None if change is None else read_news(connection, state.identity, change, end)
    return News(state.version, list(gone.difference(entry.id for entry in entries)), entries, history)


def verify(session: CatalogSession, whole: bool) -> CatalogState:
    """The state, after a look at everything if `whole`."""
    if not whole:
        return session.read(checking.check_head)
    by_two = file_size(session.path) >= thresholds.catalog_checked_by_two
    found = _verify_by_two(session) if by_two else None
    return found or session.read(checking.verify)


def _verify_by_two(session: CatalogSession) -> CatalogState | None:
    """By two threads. None: somebody writes, so that they have seen different states."""
    other = CatalogSession(session.folder, read_only=True)
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="dibs") as pool:
            try:
                future = pool.submit(other.read, checking.check_structure)
            except RuntimeError:  # at the end of a program there are no new threads
                return None
            rows, structure = session.read(checking.check_rows), future.result()
    finally:
        other.close()
    if rows.state != structure.state:
        return None
    return session.read(lambda _: checking.agree(rows, structure))
