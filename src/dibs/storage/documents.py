"""The documents of a durable history: tables of the catalog's database, made when the first document comes.

    documents   number, size, form, attributes, content, keys, version, time, checksum: so many documents that came
                together, numbered from `number` on. What `content` and `keys` mean is the history's business
                (history.encoding); `version` is that of the subscriptions when they came, which orders both
    gone        number: documents that are gone, though others of their row, and older ones, are there
    history     one row: see HistoryHead

A change of the history has a number, 1, 2, 3... of its own: nothing that follows subscriptions hears of documents that
no join asks for. As with subscriptions, each row has a checksum, and the one row of `history` has the sums of them.
A row of documents is deleted when all of them are gone.

DocumentRow, HistoryHead and HistoryNews are the form in which a history is stored, here or in a file (store.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from dibs.storage.catalog_rows import Unsound, wrap
from dibs.storage.catalog_schema import HISTORY, HISTORY_FORMAT

COLUMNS = "number, size, form, attributes, content, keys, version, time, checksum"
READ_AT_ONCE = 1_000  # rows


def read_head(connection: sqlite3.Connection, identity: str) -> HistoryHead:
    """Raises Unsound."""
    if not _has_history(connection):
        return HistoryHead()
    found = connection.execute("SELECT * FROM history").fetchall()
    if len(found) == 1 and len(found[0]) == len(HistoryHead._fields) + 1:
        head = HistoryHead(*found[0][:-1])
        if found[0][-1] == _checksum(identity, head):
            return head
    raise Unsound("the state of the history does not fit its checksum")


def read_news(connection: sqlite3.Connection, identity: str, change: int, end: int) -> HistoryNews | None:
    """What is new to somebody who knows the history up to a change, after which the next document was to be `end`.
    None: nothing."""
    head = read_head(connection, identity)
    if head.change == change:
        return None
    rows = list(_rows(connection, identity, end)) if head.rows else []
    gone = frozenset(_read_gone(connection, 0)) if head.gone else frozenset()
    _check_gone(identity, head, gone)
    return HistoryNews(head, rows, gone)


def put_change(connection: sqlite3.Connection, identity: str, version: int, time: int, change: HistoryChange) -> None:
    """Writes a change; `version` and `time` are those of the subscriptions and of now."""
    if not _has_history(connection):
        for table in HISTORY.values():
            connection.execute(table)
        connection.execute(f"INSERT INTO history VALUES ({', '.join('?' * 10)})", (*HistoryHead(), 0))
        connection.execute(f"PRAGMA user_version = {HISTORY_FORMAT}")
        old = HistoryHead()
    else:
        old = read_head(connection, identity)
    went, went_sum = _delete(connection, change.head.first)
    came_sum = 0
    for row in change.rows:
        whole = (*row, version, time)
        checksum = _checksum(identity, whole)
        values = (*whole, checksum)
        connection.execute(f"INSERT INTO documents ({COLUMNS}) VALUES ({', '.join('?' * len(values))})", values)
        came_sum += checksum
    no_more = list(_read_gone(connection, 0, change.head.first))
    connection.execute("DELETE FROM gone WHERE number < ?", (change.head.first,))
    more = [number for number in change.gone if number >= change.head.first]
    connection.executemany("INSERT INTO gone VALUES (?)", ((number,) for number in more))
    head = change.head._replace(
        rows=old.rows - went + len(change.rows),
        rows_sum=wrap(old.rows_sum - went_sum + came_sum),
        gone=old.gone - len(no_more) + len(more),
        gone_sum=wrap(old.gone_sum - _sum(identity, no_more) + _sum(identity, more)),
    )
    fields = ", ".join(f"{name} = ?" for name in (*HistoryHead._fields, "checksum"))
    connection.execute(f"UPDATE history SET {fields}", (*head, _checksum(identity, head)))


def check_history(connection: sqlite3.Connection, identity: str) -> None:
    """That every row fits its checksum, and that all are there. Raises Unsound."""
    if not _has_history(connection):
        return
    head = read_head(connection, identity)
    count = total = 0
    for row, checksum in _check_rows(connection, identity, -1):
        count, total = count + 1, total + checksum
        if not row.number < row.number + row.size <= head.end:
            raise Unsound(f"there are documents of later numbers than {head.end}")
    if (count, wrap(total)) != (head.rows, head.rows_sum):
        raise Unsound(f"not the {head.rows:,} rows of documents that were written are there")
    _check_gone(identity, head, frozenset(_read_gone(connection, 0)))


def _has_history(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'history'").fetchall()
    return bool(found)


def _rows(connection: sqlite3.Connection, identity: str, end: int) -> Iterator[DocumentRow]:
    """Those from the document `end` on."""
    return (row for row, _ in _check_rows(connection, identity, end - 1))


def _check_rows(connection: sqlite3.Connection, identity: str, last: int) -> Iterator[tuple[DocumentRow, int]]:
    """The rows of documents after this one, with their checksums, which fit."""
    cursor = connection.execute(f"SELECT {COLUMNS} FROM documents WHERE number > ? ORDER BY number", (last,))
    seed = blake2b(digest_size=8, key=identity.encode())
    while found := cursor.fetchmany(READ_AT_ONCE):
        for *columns, version, time, checksum in found:
            row = DocumentRow(*columns)
            if type(row.content) not in (str, bytes) or checksum != _checksum_of(seed, (*row, version, time)):
                raise Unsound(f"the row of document {row.number} does not fit its checksum")
            yield row, checksum


def _delete(connection: sqlite3.Connection, first: int) -> tuple[int, int]:
    """Deletes the rows of which all documents are before `first`: how many, and the sum of their checksums."""
    query = "SELECT number, size, checksum FROM documents WHERE number < ?"
    found = [row for row in connection.execute(query, (first,)).fetchall() if row[0] + row[1] <= first]
    if not all(type(checksum) is int for *_, checksum in found):
        raise Unsound("a row of documents does not fit its checksum")
    connection.executemany("DELETE FROM documents WHERE number = ?", ((row[0],) for row in found))
    return len(found), sum(checksum for *_, checksum in found)


def _read_gone(connection: sqlite3.Connection, low: int, high: int = 2**63 - 1) -> Iterator[int]:
    query = "SELECT number FROM gone WHERE number >= ? AND number < ?"
    return (number for (number,) in connection.execute(query, (low, high)).fetchall())


def _check_gone(identity: str, head: HistoryHead, gone: frozenset[int]) -> None:
    if (len(gone), _sum(identity, gone)) != (head.gone, head.gone_sum):
        raise Unsound(f"not the {head.gone:,} documents that are gone are noted as such")


def _sum(identity: str, numbers: Iterable[int]) -> int:
    seed = blake2b(digest_size=8, key=identity.encode())
    return wrap(sum(_checksum_of(seed, (number,)) for number in numbers))


def _checksum(identity: str, values: tuple[Any, ...]) -> int:
    return _checksum_of(blake2b(digest_size=8, key=identity.encode()), values)


def _checksum_of(seed: Any, values: tuple[Any, ...]) -> int:
    """Over the catalog's identity, so that a row of another one does not fit, and everything in the row."""
    state = seed.copy()
    state.update(repr(values).encode("utf-8", "surrogatepass"))
    return int.from_bytes(state.digest(), "little", signed=True)


class DocumentRow(NamedTuple):
    """Documents that came together."""

    number: int  # of the first
    size: int
    form: str
    attributes: str | None  # the column that holds the attributes
    content: bytes | str
    keys: str | None  # None: they have none


class HistoryHead(NamedTuple):
    """What the history says of itself."""

    change: int = 0  # the number of the last one
    first: int = 0  # documents before it are gone
    end: int = 0  # the number that the next document gets
    newest: int | None = None  # the greatest time by which documents were retained
    retain: str | None = None  # how much is kept, in the history's words
    rows: int = 0  # of documents
    rows_sum: int = 0  # of their checksums
    gone: int = 0  # rows of that table
    gone_sum: int = 0


class HistoryChange(NamedTuple):
    """The history after a change, with what came and what went by it."""

    head: HistoryHead  # rows, gone and their sums are worked out when it is written
    rows: list[DocumentRow]
    gone: Iterable[int]  # that were there before, or have just come; those below head.first need not be named


class HistoryNews(NamedTuple):
    """What has changed since some change."""

    head: HistoryHead
    rows: list[DocumentRow]  # of documents that came since
    gone: frozenset[int]
