"""The catalog: the truth of a durable matcher, in SQLite. Each subscription by its id, and recent removals.

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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.errors import DamagedError, FormatError, StorageError
from dibs.segments.ids import Id
from dibs.segments.segment import DEFAULT_WEIGHT
from dibs.storage import catalog_check as checking
from dibs.storage.catalog_changes import (
    CatalogSession,
    IdsInUse,
    NewRows,
    News,
    count_used_bytes,
    forget_removals,
    put,
    put_new,
    read_changes,
    read_columns,
    read_entries,
    read_page,
    verify,
)
from dibs.storage.catalog_check import Seal, SealFile
from dibs.storage.catalog_rows import CatalogColumns, Entry, seed_of
from dibs.storage.catalog_schema import CatalogState, create_catalog, read_state, write_state
from dibs.storage.documents import HistoryChange, HistoryNews, put_change, read_head, read_news
from dibs.storage.sqlite import DATA, LOG, file_size

OLD_DATA = "data.mdb"  # of LMDB, up to format 1
READERS_END = 500  # milliseconds that closing waits for readers


def _now() -> int:
    return time.time_ns() // 1000


class Catalog:
    """An open catalog; `close` it, or use it in a with block."""

    def __init__(self, folder: Path, read_only: bool):
        self.folder, self.read_only = folder, read_only
        self.clock: Callable[[], int] = _now  # UTC microseconds
        self._reader = CatalogSession(folder, read_only=True)
        self._writer: CatalogSession | None = None if read_only else CatalogSession(folder, read_only=False)
        self._seal: SealFile | None = None
        self._closing = threading.Lock()
        try:
            seal = checking.read_seal(folder)
            self._sealed = checking.is_sealed(folder, seal)
            state = verify(self._reader, whole=not self._sealed)
            changes = self._reader.read(checking.count_committed)
            checking.check_seal(folder, seal, state.identity, changes)
            self.identity = state.identity  # random, made with the catalog
            self._row_seed = seed_of(state.identity)
            self._seen: tuple[Any, CatalogState, int] = (None, state, 0)
            if not read_only:
                self._seal = SealFile(folder)
                if seal is None or seal.committed < changes:
                    self._seal.write(Seal(state.identity, changes))
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

    def _settle(self, writer: CatalogSession, seal: SealFile) -> None:
        """Whoever opens it next is told what is wrong."""
        if self._sealed:
            return
        with suppress(StorageError, FormatError, OSError):
            writer.execute(f"PRAGMA busy_timeout = {READERS_END}")
            [(busy, _, _)] = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if not busy and file_size(self.folder / LOG) == 0:
                self._reader.close()
                self._reader = CatalogSession(self.folder, read_only=True)  # one that must read from the disk
                state, changes = verify(self._reader, whole=True), self._reader.read(checking.count_committed)
                seal.write(checking.make_seal(self.folder, state.identity, changes))
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
        """Of the last change of subscriptions; 0 if there was none."""
        return self._state().version

    @property
    def change(self) -> int:
        """The number of the last change of the history; 0 if there was none."""
        self._state()
        return self._seen[2]

    @property
    def trimmed(self) -> int:
        """Removals up to this version are forgotten."""
        return self._state().trimmed

    def __len__(self) -> int:
        return self._state().subscriptions

    def count(self) -> tuple[int, int]:
        """The version, and how many subscriptions there are at it."""
        state = self._state()
        return state.version, state.subscriptions

    def stamp(self) -> tuple[int, ...]:
        """Another one after each commit of anybody."""
        return self._reader.stamp()

    def sizes(self) -> dict[str, int]:
        """Bytes: the files, what is in use of the database (the rest is reused), the log that is not yet in it;
        subscriptions; changes that can be followed; documents."""

        used = self._reader.read(count_used_bytes)
        head = self._reader.read(lambda c: read_head(c, self.identity))
        state, log = self._state(), file_size(self.folder / LOG)
        return {
            "file": file_size(self.folder / DATA) + log,
            "used": used,
            "wal": log,
            "entries": state.subscriptions,
            "log": state.version - state.trimmed,
            "documents": head.end - head.first - head.gone,
        }

    def check(self) -> list[str]:
        """What is wrong with the files now; [] if nothing is."""
        try:
            seal = checking.read_seal(self.folder)
            identity = verify(self._reader, whole=True).identity
            checking.check_seal(self.folder, seal, identity, self._reader.read(checking.count_committed))
        except DamagedError as e:
            return [str(e)]
        return []

    # ---- reading ----

    def get(self, id: Id) -> Entry | None:
        return self.get_many([id])[0]

    def get_many(self, ids: Iterable[Id]) -> list[Entry | None]:
        """The entries of the ids, as of one moment."""
        wanted = list(ids)
        return self._reader.read(lambda c: read_entries(c, wanted, self._row_seed))

    def entries(self, after: Id | None = None, batch: int = 10_000) -> Iterator[list[Entry]]:
        """All entries, or those after an id, which need not be there: integers ascending, then strings by their UTF-8
        bytes. Each batch is as of one moment, the next one as of a later: what is there all the time comes once, what
        changes meanwhile comes as it was or as it is, or not."""
        while found := self._reader.read(partial(read_page, after=after, count=batch, seed=self._row_seed)):
            yield found
            after = found[-1].id

    def columns(self) -> tuple[int, list[CatalogColumns]]:
        """The version and all entries as of one moment, in the order of their versions: one part for each type of ids
        that there is, integers first."""
        return self._reader.read(lambda c: read_columns(c, self._row_seed))

    def news(self, since: int, change: int | None = None, end: int = 0) -> News | None:
        """What has become of the ids that changed after version `since`, as of one moment; None if the removals do not
        go back so far. change, end: of the history as it is known, to hear of that, too."""
        return self._reader.read(lambda c: read_changes(c, since, change, end, seed=self._row_seed))

    def history(self, change: int = -1, end: int = 0) -> HistoryNews | None:
        """What is new in the history since a change; see read_news."""
        return self._reader.read(lambda c: read_news(c, self.identity, change, end))

    # ---- writing ----

    def write(self, changes: Iterable[tuple[Id, str | None, float]], first_version: int) -> None:
        """Writes the changes: (id, text, weight); text None removes. Change i has the version first_version + i, which
        continues from `version`. Of several changes of an id the last one counts."""
        self._check_writable()
        changes = list(changes)
        if changes:
            self._write(lambda c: put(c, self._next(c, first_version), changes))

    def write_columns(
        self, ids: pa.Array, texts: pa.Array, weights: NDArray[np.float64] | None, first_version: int
    ) -> None:
        """Adds, or replaces, many at once: int64 or large_string ids and large_string texts without nulls, weights
        (None: all the default). Row i has the version first_version + i. All in one transaction, as `write`."""
        self._check_writable()
        if len(ids) == 0:
            return
        weights = np.full(len(ids), DEFAULT_WEIGHT) if weights is None else np.asarray(weights, np.float64)
        rows = NewRows(ids, texts, weights)
        try:
            self._write(lambda c: put_new(c, self._next(c, first_version), rows))
        except IdsInUse:  # which is rare: ids are checked before
            self.write(zip(ids.to_pylist(), texts.to_pylist(), weights.tolist()), first_version)

    def write_history(self, change: HistoryChange) -> None:
        """Writes a change of the history, whose number continues from that of the last one."""

        def work(connection: sqlite3.Connection) -> int:
            state, last = read_state(connection), read_head(connection, self.identity).change
            if change.head.change != last + 1:
                expected = f"the next change of the history is {last + 1}, not {change.head.change}"
                raise StorageError(self.folder, f"{expected}; has somebody else written to it? Close it, open it again")
            put_change(connection, self.identity, state.version, max(self.clock(), state.time), change)
            return state.version + change.head.change

        self._commit(work)

    def trim(self, version: int) -> None:
        """Forgets the removals up to this version."""
        state = self._state()
        if version > state.version:
            raise StorageError(self.folder, f"has changes up to {state.version}, not up to {version}")
        if version > state.trimmed:
            self._write(lambda c: forget_removals(c, read_state(c), version))

    # ---- the state ----

    def _state(self) -> CatalogState:
        stamp = self._reader.stamp()
        seen, state, _ = self._seen
        if seen != stamp:
            state, changes = self._reader.read(lambda c: (read_state(c), checking.count_committed(c)))
            self._seen = (stamp, state, changes - state.version)
        return state

    def _next(self, connection: sqlite3.Connection, first_version: int) -> CatalogState:
        """The state before a change, with the change's time."""
        state = read_state(connection)
        if first_version != state.version + 1:
            expected = f"the next change has the version {state.version + 1}, not {first_version}"
            raise StorageError(self.folder, f"{expected}; has somebody else written to it? Close it and open it again")
        return state._replace(time=max(self.clock(), state.time))

    def _check_writable(self) -> CatalogSession:
        if self._writer is None:
            raise StorageError(self.folder, "was opened with read_only=True")
        return self._writer

    def _write(self, work: Callable[[sqlite3.Connection], CatalogState]) -> None:
        """`work` changes subscriptions and returns the new state."""

        def whole(connection: sqlite3.Connection) -> int:
            state = work(connection)
            write_state(connection, state)
            return state.version + read_head(connection, state.identity).change

        self._commit(whole)

    def _commit(self, work: Callable[[sqlite3.Connection], int]) -> None:
        """What `work` writes is durable afterwards; it returns how many changes there are then, for the seal."""
        writer = self._check_writable()
        self._sealed = False
        changes = writer.write(work)
        if self._seal is not None:
            self._seal.write(Seal(self.identity, changes))
