"""Changes to the tables of a catalog, within a transaction: each takes the state before and returns the state after."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.segments.ids import Id
from dibs.storage.catalog_rows import Entry, Unsound, checksum_of, checksums_of, rows_of_columns, seed_of, total, wrap
from dibs.storage.catalog_schema import BY_ID, COLUMNS, CatalogState
from dibs.thresholds import thresholds

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
    sort = n >= max(state.subscriptions, thresholds.catalog_index_rebuilt)
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
