"""The catalog: the truth of a durable matcher, in SQLite. Each subscription by its id, and what was removed of late.

A change has a version: 1, 2, 3... in the order of changes. Its time is for people only; it never goes back, even if the
clock does. What was written is durable when the call returns (SQLite's write-ahead log, synced at each commit); a call
is done wholly or not at all, whatever interrupts it.

There is no log of changes but the subscriptions themselves, which lie in the order of their versions, and the removals:
what is new since a version is at the end of both.

Any number of threads and processes read while one writes. A reader sees what was committed when it asked. There is one
writer; who that is is decided by the lock of the matcher's folder, not here, but a second one is found by its versions,
before it does harm. Everything is checked when it is opened (catalog_check).

    catalog.db          the database: any tool that reads SQLite reads it (catalog_schema)
    catalog.db-wal      SQLite's log of what is not yet in the database, part of it; catalog.db-shm: where in it
    catalog.seal        what must be there (catalog_check)

Good for: backup by copying the folder while nobody writes.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.errors import DamagedError, FormatError, StorageError
from dibs.segments.ids import Id
from dibs.segments.segment import DEFAULT_WEIGHT
from dibs.storage import catalog_check as checking
from dibs.storage.catalog_check import Seal, SealFile, removed_rows
from dibs.storage.catalog_rows import (
    Columns,
    Entry,
    Unsound,
    all_rows,
    checksums_of,
    columns_of,
    entries_of,
    rows_of,
    rows_of_columns,
    seed_of,
    total,
    wrapped,
)
from dibs.storage.catalog_schema import BY_ID, State, check_schema, create_catalog, read_state, write_state
from dibs.storage.catalog_session import ADVICE, DATA, Session, log_size
from dibs.thresholds import thresholds

T = TypeVar("T")
OLD_DATA = "data.mdb"  # of LMDB, up to format 1
READERS_END = 500  # milliseconds that closing waits for readers
AT_ONCE = 100  # rows of one INSERT: SQLite allows 999 parameters at least
COLUMNS = "id, expression, weight, version, time, checksum"


def _now() -> int:
    return time.time_ns() // 1000


class News(NamedTuple):
    """What has changed since some version."""

    version: int  # now
    removed: list[Id]
    entries: list[Entry]  # added or replaced


class _Taken(Exception):
    """Some of many new ids are not new."""


class Catalog:
    """An open catalog; `close` it, or use it in a with block."""

    def __init__(self, folder: Path, read_only: bool):
        self.folder, self.read_only = folder, read_only
        self.clock: Callable[[], int] = _now  # UTC microseconds
        self._reader = Session(folder, read_only=True)
        self._writer: Session | None = None if read_only else Session(folder, read_only=False)
        self._seal: SealFile | None = None
        self._closing = threading.Lock()
        try:
            seal = checking.read_seal(folder)
            self._sealed = self._is_sealed(seal)
            state = self._verified(whole=not self._sealed)
            checking.check_seal(folder, seal, state)
            self.identity = state.identity  # random, made with the catalog
            self._row_seed = seed_of(state.identity)
            self._seen: tuple[Any, State] = (None, state)
            if not read_only:
                self._seal = SealFile(folder)
                if seal is None or seal.version < state.version:
                    self._seal.write(Seal(state.identity, state.version))
        except OSError as e:
            self._end()
            raise StorageError(folder, f"cannot be opened ({e.strerror}): check the permissions") from e
        except BaseException:
            self._end()
            raise

    @classmethod
    def open(cls, folder: Path, read_only: bool = False, create: bool = True) -> Catalog:
        """The catalog in the folder. It is made if it is not there, unless read_only or create says otherwise.
        Everything in it is checked."""
        folder = Path(folder)
        if not folder.is_dir() or not any(folder.iterdir()):
            if read_only or not create:
                raise StorageError(folder, "there is no catalog; it is made by opening it for writing")
            create_catalog(folder)
        if (folder / OLD_DATA).exists() and not (folder / DATA).exists():
            raise FormatError(
                f"{folder} was written by an earlier version of Dibs, with LMDB: export it with that version (dibs "
                "catalog export FOLDER backup.parquet), and import it into a new folder here (dibs catalog import)"
            )
        return cls(folder, read_only)

    def close(self) -> None:
        """What is in the log moves to the database, which is looked at and sealed."""
        with self._closing:
            if self._seal is not None and self._writer is not None and self._writer.is_usable():
                self._settle(self._writer, self._seal)
            self._end()

    def let_go(self) -> None:
        """Closes it without a look: the next one to open it looks at everything."""
        with self._closing:
            self._end()

    def _settle(self, writer: Session, seal: SealFile) -> None:
        """What is wrong is told to the next one who opens it."""
        if self._sealed:
            return
        with suppress(StorageError, FormatError, OSError):
            writer.execute(f"PRAGMA busy_timeout = {READERS_END}")
            [(busy, _, _)] = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if not busy and log_size(self.folder) == 0:
                self._reader.close()
                self._reader = Session(self.folder, read_only=True)  # one that must read from the disk
                seal.write(checking.sealed(self.folder, self._verified(whole=True)))
                self._sealed = True

    def _end(self) -> None:
        self._reader.close()  # first: whoever is last clears up, and a reader may not
        if self._writer is not None:
            self._writer.close()
        seal, self._seal = self._seal, None
        if seal is not None:
            seal.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what it is ----

    @property
    def version(self) -> int:
        """Of the last change; 0 if there was none."""
        return self._state().version

    @property
    def trimmed(self) -> int:
        """Removals up to this version are forgotten."""
        return self._state().trimmed

    def __len__(self) -> int:
        return self._state().subscriptions

    def counted(self) -> tuple[int, int]:
        """The version, and how many subscriptions there are at it."""
        state = self._state()
        return state.version, state.subscriptions

    def stamp(self) -> tuple[int, ...]:
        """Another one after each commit of anybody."""
        return self._reader.stamp()

    def sizes(self) -> dict[str, int]:
        """Bytes: the files, what is in use of the database (the rest is reused), the log that is not yet in it;
        subscriptions; changes that can be followed."""

        def work(connection: sqlite3.Connection) -> tuple[int, ...]:
            pragmas = ("page_size", "page_count", "freelist_count")
            return tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)

        page, pages, free = self._read(work)
        state, log = self._state(), log_size(self.folder)
        return {
            "file": (self.folder / DATA).stat().st_size + log,
            "used": (pages - free) * page,
            "wal": log,
            "entries": state.subscriptions,
            "log": state.version - state.trimmed,
        }

    def check(self) -> list[str]:
        """What is wrong with the files now; [] if nothing is."""
        try:
            seal = checking.read_seal(self.folder)
            checking.check_seal(self.folder, seal, self._verified(whole=True))
        except DamagedError as e:
            return [str(e)]
        return []

    # ---- reading ----

    def get(self, id: Id) -> Entry | None:
        return self.get_many([id])[0]

    def get_many(self, ids: Iterable[Id]) -> list[Entry | None]:
        """The entries of the ids, as of one moment."""
        wanted, query = list(ids), f"SELECT {COLUMNS} FROM subscriptions WHERE id = ?"

        def work(connection: sqlite3.Connection) -> list[Entry | None]:
            found = [row for id in wanted for row in connection.execute(query, (id,)).fetchall()]
            there = {entry.id: entry for entry in entries_of(found, self._row_seed)}
            return [there.get(id) for id in wanted]

        return self._read(work)

    def entries(self, after: Id | None = None, batch: int = 10_000) -> Iterator[list[Entry]]:
        """All entries, or those after an id, which need not be there: integers ascending, then strings by their UTF-8
        bytes. Each batch is as of one moment, the next one as of a later: what is there all the time comes once, what
        changes meanwhile comes as it was or as it is, or not."""
        query = f"SELECT {COLUMNS} FROM subscriptions WHERE id > ? ORDER BY id LIMIT ?"
        last: Any = float("-inf") if after is None else after  # below every id

        def work(connection: sqlite3.Connection) -> list[Entry]:
            return entries_of(connection.execute(query, (last, batch)).fetchall(), self._row_seed)

        while found := self._read(work):
            yield found
            last = found[-1].id

    def columns(self) -> tuple[int, list[Columns]]:
        """The version and all entries as of one moment, in the order of their versions: one part for each type of ids
        that there is, integers first."""

        def work(connection: sqlite3.Connection) -> tuple[int, list[Columns]]:
            state = read_state(connection)
            portions = list(all_rows(connection, self._row_seed))
            count, found = sum(len(sums) for _, sums in portions), sum(total(sums) for _, sums in portions)
            if (count, wrapped(found)) != (state.subscriptions, state.subscriptions_sum):
                raise Unsound(f"not the {state.subscriptions:,} subscriptions that were written are there")
            return state.version, columns_of([rows for rows, _ in portions])

        return self._read(work)

    def news(self, since: int) -> News | None:
        """What has become of the ids that changed after version `since`, as of one moment; None if the removals do not
        go back so far."""
        query = f"SELECT {COLUMNS} FROM subscriptions WHERE version > ? ORDER BY version"

        def work(connection: sqlite3.Connection) -> News | None:
            state = read_state(connection)
            if state.trimmed > since:
                return None
            entries = entries_of(connection.execute(query, (since,)).fetchall(), self._row_seed)
            gone = {entry.id for entry in entries_of(removed_rows(connection, since), self._row_seed)}
            return News(state.version, list(gone.difference(entry.id for entry in entries)), entries)

        return self._read(work)

    # ---- writing ----

    def write(self, changes: Iterable[tuple[Id, str | None, float]], first_version: int) -> None:
        """Writes the changes: (id, text, weight); text None removes. Change i has the version first_version + i, which
        continues from `version`. Of several changes of an id the last one counts."""
        self._check_writable()
        changes = list(changes)
        if changes:
            self._write(lambda connection: self._put(connection, changes, first_version))

    def _put(
        self, connection: sqlite3.Connection, changes: list[tuple[Id, str | None, float]], first_version: int
    ) -> State:
        state = self._next(connection, first_version)
        final = {id: row for row, (id, _, _) in enumerate(changes)}
        new, gone = [], []
        for id, row in final.items():
            _, text, weight = changes[row]
            its = (first_version + row, state.time)
            if text is None:
                gone.append(Entry(id, "", 0.0, *its))
            else:
                new.append(Entry(id, text, float(weight), *its))
        old, old_sums = _delete(connection, list(final))
        new_sums, gone_sums = (checksums_of(rows_of(entries), self._row_seed) for entries in (new, gone))
        insert = f"INSERT INTO subscriptions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
        connection.executemany(insert, ((*e, s) for e, s in zip(new, new_sums.tolist())))
        insert = "INSERT INTO removed (id, version, time, checksum) VALUES (?, ?, ?, ?)"
        connection.executemany(insert, ((e.id, e.version, e.time, s) for e, s in zip(gone, gone_sums.tolist())))
        return state._replace(
            version=state.version + len(changes),
            subscriptions=state.subscriptions - old + len(new),
            subscriptions_sum=wrapped(state.subscriptions_sum - old_sums + total(new_sums)),
            removed=state.removed + len(gone),
            removed_sum=wrapped(state.removed_sum + total(gone_sums)),
        )

    def write_columns(
        self, ids: pa.Array, texts: pa.Array, weights: NDArray[np.float64] | None, first_version: int
    ) -> None:
        """Adds, or replaces, many at once: int64 or large_string ids and large_string texts without nulls, weights
        (None: all the default). Row i has the version first_version + i. All in one transaction, as `write`."""
        self._check_writable()
        if len(ids) == 0:
            return
        weights = np.full(len(ids), DEFAULT_WEIGHT) if weights is None else np.asarray(weights, np.float64)
        try:
            self._write(lambda connection: self._put_new(connection, ids, texts, weights, first_version))
        except _Taken:  # which is rare: ids are checked before
            self.write(zip(ids.to_pylist(), texts.to_pylist(), weights.tolist()), first_version)

    def _put_new(
        self,
        connection: sqlite3.Connection,
        ids: pa.Array,
        texts: pa.Array,
        weights: NDArray[np.float64],
        first_version: int,
    ) -> State:
        """Raises _Taken if an id is there, or comes twice."""
        state, n = self._next(connection, first_version), len(ids)
        versions = np.arange(first_version, first_version + n)
        sums = checksums_of(rows_of_columns(ids, texts, weights, versions, state.time), self._row_seed)
        # To sort all ids once is quicker than to file each where it belongs.
        sort = n >= max(state.subscriptions, thresholds.catalog_index_rebuilt)
        try:
            if sort:
                connection.execute("DROP INDEX by_id")
            self._insert(connection, state.time, (ids, texts, weights, versions, sums))
            if sort:
                connection.execute(BY_ID)
        except sqlite3.IntegrityError:
            raise _Taken from None
        return state._replace(
            version=state.version + n,
            subscriptions=state.subscriptions + n,
            subscriptions_sum=wrapped(state.subscriptions_sum + total(sums)),
        )

    def _insert(self, connection: sqlite3.Connection, at: int, columns: tuple[Any, ...]) -> None:
        n = len(columns[0])
        for first in range(0, n, 10_000):  # Python objects of some rows at a time
            some = [column[first : first + 10_000] for column in columns]
            lists = [c.to_pylist() if isinstance(c, pa.Array) else c.tolist() for c in some]
            for start in range(0, len(lists[0]), AT_ONCE):
                part = [values[start : start + AT_ONCE] for values in lists]
                size = len(part[0])
                values = ", ".join([f"(?, ?, ?, ?, {at}, ?)"] * size)
                flat: list[Any] = [None] * (5 * size)
                for place, own in enumerate(part):
                    flat[place::5] = own
                connection.execute(f"INSERT INTO subscriptions ({COLUMNS}) VALUES {values}", flat)

    def trim(self, version: int) -> None:
        """Forgets the removals up to this version."""

        def work(connection: sqlite3.Connection) -> State:
            state = read_state(connection)
            if version > state.version:
                raise StorageError(self.folder, f"has changes up to {state.version}, not up to {version}")
            if version <= state.trimmed:
                return state
            query = "SELECT CAST(checksum AS INTEGER) FROM removed WHERE version <= ?"
            sums = [checksum for (checksum,) in connection.execute(query, (version,)).fetchall()]
            connection.execute("DELETE FROM removed WHERE version <= ?", (version,))
            return state._replace(
                trimmed=version,
                removed=state.removed - len(sums),
                removed_sum=wrapped(state.removed_sum - sum(sums)),
            )

        self._write(work)

    # ---- the state ----

    def _state(self) -> State:
        stamp = self._reader.stamp()
        seen, state = self._seen
        if seen != stamp:
            state = self._read(read_state)
            self._seen = (stamp, state)
        return state

    def _next(self, connection: sqlite3.Connection, first_version: int) -> State:
        """The state before a change, with the change's time."""
        state = read_state(connection)
        if first_version != state.version + 1:
            expected = f"the next change has the version {state.version + 1}, not {first_version}"
            raise StorageError(self.folder, f"{expected}; has somebody else written to it? Close it and open it again")
        return state._replace(time=max(self.clock(), state.time))

    def _check_writable(self) -> Session:
        if self._writer is None:
            raise StorageError(self.folder, "was opened with read_only=True")
        return self._writer

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._reader.read(self._told(work))

    def _write(self, work: Callable[[sqlite3.Connection], State]) -> None:
        """`work` returns the new state."""
        writer = self._check_writable()

        def whole(connection: sqlite3.Connection) -> State:
            state = work(connection)
            write_state(connection, state)
            return state

        self._sealed = False
        state = writer.write(self._told(whole))
        if self._seal is not None:
            self._seal.write(Seal(state.identity, state.version))

    def _verified(self, whole: bool) -> State:
        def work(connection: sqlite3.Connection) -> State:
            try:
                if whole:
                    return checking.verify(connection)
                check_schema(connection)
                return read_state(connection)
            except FormatError as e:
                raise FormatError(f"{self.folder / DATA}: {e}") from None

        return self._read(work)

    def _is_sealed(self, seal: Seal | None) -> bool:
        try:
            return checking.is_sealed(self.folder, seal)
        except FileNotFoundError:
            return False

    def _told(self, work: Callable[[sqlite3.Connection], T]) -> Callable[[sqlite3.Connection], T]:
        """The same, with what is unsound as an error that names the file."""

        def telling(connection: sqlite3.Connection) -> T:
            try:
                return work(connection)
            except Unsound as e:
                raise DamagedError(self.folder / DATA, f"{e}; {ADVICE}") from None

        return telling


def _delete(connection: sqlite3.Connection, ids: list[Id]) -> tuple[int, int]:
    """Deletes the subscriptions of these ids, as far as they are there: how many, and the sum of their checksums."""
    count = sums = 0
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        query = f"SELECT version, checksum FROM subscriptions WHERE id IN ({', '.join('?' * len(some))})"
        found = connection.execute(query, some).fetchall()
        if not all(type(checksum) is int for _, checksum in found):
            raise Unsound("a row does not fit its checksum")
        query = f"DELETE FROM subscriptions WHERE version IN ({', '.join('?' * len(found))})"
        connection.execute(query, [version for version, _ in found])
        count, sums = count + len(found), sums + sum(checksum for _, checksum in found)
    return count, sums
