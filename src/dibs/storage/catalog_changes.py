"""Changes to the tables of a catalog, within a transaction: each takes the state before and returns the state after.

What is read is as of one moment, in a session that says what is unsound.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.errors import DamagedError, FormatError
from dibs.segments.ids import Id
from dibs.storage import catalog_check as checking
from dibs.storage.catalog_rows import (
    CatalogColumns,
    Entry,
    Unsound,
    all_rows,
    checksum_of,
    checksums_of,
    columns_of,
    entries_of,
    rows_of_columns,
    seed_of,
    total,
    wrap,
)
from dibs.storage.catalog_schema import BY_ID, COLUMNS, CatalogState, LaterFormat, read_state
from dibs.storage.documents import HistoryNews, read_news
from dibs.storage.sqlite import ADVICE, Session, file_size
from dibs.tuning import tuned

CATALOG_INDEX_REBUILT = tuned(
    "catalog_index_rebuilt", 1_000, 2, "subscriptions", "that are new, and as many as old ones, for a new index of ids"
)
# a million rows take 1.6 s to check
CATALOG_CHECKED_BY_TWO = tuned("catalog_checked_by_two", 10_000_000, 0, "bytes", "of a catalog that two threads check")

AT_ONCE = 100  # rows of one statement: SQLite allows 999 parameters at least
OBJECTS = 10_000  # rows of which there are Python objects at a time

INSERT = f"INSERT INTO subscriptions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
INSERT_REMOVED = "INSERT INTO removed (id, version, time, checksum) VALUES (?, ?, ?, ?)"

RowChanges = list[tuple[Id, str | None, float]]  # id, text, weight; text None: removed


class IdsInUse(Exception):
    """Some of many new ids are not new."""


class NewRows(NamedTuple):
    """Subscriptions in columns."""

    ids: pa.Array  # int64 or large_string
    texts: pa.Array  # large_string
    weights: NDArray[np.float64]


def put(connection: sqlite3.Connection, state: CatalogState, changes: RowChanges) -> CatalogState:
    """Change i has the version state.version + 1 + i. Of several changes of an id the last one counts."""
    final = {id: row for row, (id, _, _) in enumerate(changes)}
    new, gone = [], []
    for id, row in final.items():
        _, text, weight = changes[row]
        its = (state.version + 1 + row, state.time)
        if text is None:
            gone.append(Entry(id, "", 0.0, *its))
        else:
            new.append(Entry(id, text, float(weight), *its))
    seed = seed_of(state.identity)
    old, old_sums = _delete(connection, list(final))
    new_sums = [checksum_of(entry, seed) for entry in new]
    gone_sums = [checksum_of(entry, seed) for entry in gone]
    if new:
        connection.executemany(INSERT, ((*entry, checksum) for entry, checksum in zip(new, new_sums)))
    if gone:
        rows = ((entry.id, entry.version, entry.time, checksum) for entry, checksum in zip(gone, gone_sums))
        connection.executemany(INSERT_REMOVED, rows)
    return state._replace(
        version=state.version + len(changes),
        subscriptions=state.subscriptions - old + len(new),
        subscriptions_sum=wrap(state.subscriptions_sum - old_sums + sum(new_sums)),
        removed=state.removed + len(gone),
        removed_sum=wrap(state.removed_sum + sum(gone_sums)),
    )


def _delete(connection: sqlite3.Connection, ids: list[Id]) -> tuple[int, int]:
    """Deletes the subscriptions of these ids, as far as they are there: how many, and the sum of their checksums."""
    count = sums = 0
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        query = f"SELECT version, checksum FROM subscriptions WHERE id IN ({', '.join('?' * len(some))})"
        found = connection.execute(query, some).fetchall()
        if not all(type(checksum) is int for _, checksum in found):
            raise Unsound("a row does not fit its checksum")
        if not found:
            continue
        query = f"DELETE FROM subscriptions WHERE version IN ({', '.join('?' * len(found))})"
        connection.execute(query, [version for version, _ in found])
        count, sums = count + len(found), sums + sum(checksum for _, checksum in found)
    return count, sums


def put_new(connection: sqlite3.Connection, state: CatalogState, rows: NewRows) -> CatalogState:
    """Many new subscriptions; row i has the version state.version + 1 + i. Raises IdsInUse if an id is there, or comes
    twice: then the transaction must be rolled back."""
    n = len(rows.ids)
    versions = np.arange(state.version + 1, state.version + 1 + n)
    sums = checksums_of(rows_of_columns(*rows, versions, state.time), seed_of(state.identity))
    # To sort all ids once is quicker than to file each where it belongs.
    sort = n >= max(state.subscriptions, CATALOG_INDEX_REBUILT.value)
    try:
        if sort:
            connection.execute("DROP INDEX by_id")
        _insert(connection, state.time, (*rows, versions, sums))
        if sort:
            connection.execute(BY_ID)
    except sqlite3.IntegrityError:
        raise IdsInUse from None
    return state._replace(
        version=state.version + n,
        subscriptions=state.subscriptions + n,
        subscriptions_sum=wrap(state.subscriptions_sum + total(sums)),
    )


def _insert(connection: sqlite3.Connection, time: int, columns: tuple[Any, ...]) -> None:
    """Rows of (id, text, weight, version, checksum): many in a statement, which is half the time of one by one."""
    for first in range(0, len(columns[0]), OBJECTS):
        some = [column[first : first + OBJECTS] for column in columns]
        lists = [c.to_pylist() if isinstance(c, pa.Array) else c.tolist() for c in some]
        for start in range(0, len(lists[0]), AT_ONCE):
            part = [values[start : start + AT_ONCE] for values in lists]
            size = len(part[0])
            flat: list[Any] = [None] * (5 * size)
            for place, own in enumerate(part):
                flat[place::5] = own
            rows = ", ".join([f"(?, ?, ?, ?, {time}, ?)"] * size)
            connection.execute(f"INSERT INTO subscriptions ({COLUMNS}) VALUES {rows}", flat)


def forget_removals(connection: sqlite3.Connection, state: CatalogState, version: int) -> CatalogState:
    """Those up to this version."""
    query = "SELECT CAST(checksum AS INTEGER) FROM removed WHERE version <= ?"
    sums = [checksum for (checksum,) in connection.execute(query, (version,)).fetchall()]
    connection.execute("DELETE FROM removed WHERE version <= ?", (version,))
    return state._replace(
        trimmed=version, removed=state.removed - len(sums), removed_sum=wrap(state.removed_sum - sum(sums))
    )


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
    by_two = file_size(session.path) >= CATALOG_CHECKED_BY_TWO.value
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
