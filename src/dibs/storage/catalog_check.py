"""Is a catalog as it was written?

SQLite answers damage to its structure by an error, but it cannot see a changed value, and it drops what it finds
damaged at the end of its log as if it had never been committed. So there is more to look at:

- every row's checksum, and the sums of all in the state: what is there is what was written, no more and no less;
- that the index of ids says the same as the table;
- the seal, a line in a file beside: how many changes were committed, of subscriptions (which is the version) and of the
  history together. A database that ends earlier has lost its log.
  It is written after each commit without a sync, so it may be older than the database, but never newer.

Reading all rows takes about a second for a million. So a writer that closes the catalog looks at all of it, and writes
the size and the checksum of the file into the seal; whoever opens that very file needs to look no further.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dibs.errors import DamagedError
from dibs.storage.catalog_rows import (
    Unsound,
    all_rows,
    bare,
    checksums_of,
    entries_of,
    index_rows,
    seed_of,
    total,
    wrap,
)
from dibs.storage.catalog_schema import CatalogState, check_schema, read_state
from dibs.storage.checksum import checksums
from dibs.storage.documents import check_history, read_head
from dibs.storage.sqlite import ADVICE, DATA, LOG, file_size

SEAL = "catalog.seal"
PIECE = 1 << 24  # bytes read at once
LINE = re.compile(rb"([0-9a-f]{32}) (\d{20}) (\d{20}) ([0-9a-f]{16}) ([0-9a-f]{16})\n")


class Half(NamedTuple):
    """What one half of the check found, when nothing was wrong."""

    state: CatalogState
    ids: int  # how many
    keys: int  # the sum of the checksums of ids and versions


def verify(connection: sqlite3.Connection) -> CatalogState:
    """Looks at everything. Raises Unsound, LaterFormat, sqlite3.Error."""
    return agree(check_rows(connection), check_structure(connection))


def agree(rows: Half, structure: Half) -> CatalogState:
    """Both halves, of one state, say the same."""
    if rows != structure:
        raise Unsound("the index of ids differs from the subscriptions")
    return rows.state


def check_head(connection: sqlite3.Connection) -> CatalogState:
    """Only that it is a catalog, and what it says of itself."""
    check_schema(connection)
    return read_state(connection)


def count_committed(connection: sqlite3.Connection) -> int:
    """How many changes were committed."""
    state = read_state(connection)
    return state.version + read_head(connection, state.identity).change


def check_rows(connection: sqlite3.Connection) -> Half:
    """That every row fits its checksum, and that all are there."""
    state = check_head(connection)
    seed = seed_of(state.identity)
    count = found = keys = 0
    for rows, sums in all_rows(connection, seed):
        count, found = count + len(sums), found + total(sums)
        keys += total(checksums_of(bare(rows), seed))
        if not 0 < rows.versions[0] <= rows.versions[-1] <= state.version:
            raise Unsound(f"there are subscriptions of later versions than {state.version}")
    if (count, wrap(found)) != (state.subscriptions, state.subscriptions_sum):
        raise Unsound(f"not the {state.subscriptions:,} subscriptions that were written are there")
    removed = read_removed(connection, 0)
    entries_of(removed, seed)
    if (len(removed), wrap(sum(row[5] for row in removed))) != (state.removed, state.removed_sum):
        raise Unsound(f"not the {state.removed:,} removals that were written are there")
    check_history(connection, state.identity)
    return Half(state, count, wrap(keys))


def check_structure(connection: sqlite3.Connection) -> Half:
    """That SQLite finds its pages in order, and what the index of ids says."""
    state = check_head(connection)
    problems = [text for (text,) in connection.execute("PRAGMA quick_check(1)").fetchall()]
    if problems != ["ok"]:
        raise Unsound(f"SQLite finds: {problems[0]}")
    seed = seed_of(state.identity)
    count = keys = 0
    for rows in index_rows(connection):
        count, keys = count + len(rows.versions), keys + total(checksums_of(rows, seed))
    return Half(state, count, wrap(keys))


def read_removed(connection: sqlite3.Connection, since: int) -> list[tuple[Any, ...]]:
    query = "SELECT id, '', 0.0, version, time, checksum FROM removed WHERE version > ?"
    return connection.execute(query, (since,)).fetchall()


# ---- the seal ----


class Seal(NamedTuple):
    identity: str
    committed: int  # changes
    size: int = 0  # bytes of the file when the catalog was closed; 0: it was not
    checksum: int = 0  # of the file

    def line(self) -> bytes:
        own = f"{self.identity} {self.committed:020d} {self.size:020d} {self.checksum:016x} ".encode()
        return own + blake2b(own, digest_size=8).hexdigest().encode() + b"\n"


def read_seal(folder: Path) -> Seal | None:
    """None: there is none that makes sense. It only spares and tells; nothing is lost without it."""
    try:
        line = (folder / SEAL).read_bytes()
    except OSError:
        return None
    parts = LINE.fullmatch(line)
    if parts is None:
        return None
    seal = Seal(parts[1].decode(), int(parts[2]), int(parts[3]), int(parts[4], 16))
    return seal if seal.line() == line else None


def is_sealed(folder: Path, seal: Seal | None) -> bool:
    """Whether the file is, byte for byte, the one that was sealed, and there is no log."""
    if seal is None or not seal.size or file_size(folder / LOG) or file_size(folder / DATA) != seal.size:
        return False
    return _file_checksum(folder / DATA) == seal.checksum


def make_seal(folder: Path, identity: str, changes: int) -> Seal:
    """The seal of a catalog that nobody writes now, and that has no log any more."""
    path = folder / DATA
    return Seal(identity, changes, path.stat().st_size, _file_checksum(path))


def check_seal(folder: Path, seal: Seal | None, identity: str, changes: int) -> None:
    """seal: as it was before the changes were counted."""
    if seal is None:
        return
    if seal.identity != identity:
        raise DamagedError(
            folder / DATA, f"it is not the database that {SEAL} belongs to; put both back from one backup"
        )
    if seal.committed > changes:
        raise DamagedError(
            folder / DATA,
            f"it ends at change {changes:,}, though change {seal.committed:,} was committed: its log {LOG} is "
            f"missing or damaged; {ADVICE}",
        )


def _file_checksum(path: Path) -> int:
    """That of the checksums of its pieces. It is read, not mapped: a bad sector must be an error, not a signal."""
    buffer, found = np.empty(PIECE, np.uint8), []
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(buffer.data):
            found.append(checksums([buffer[:size]])[0])
    return checksums([np.array(found, np.uint64).view(np.uint8)])[0]


class SealFile:
    """The seal of the one writer."""

    def __init__(self, folder: Path):
        self._file = os.open(folder / SEAL, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._pid = os.getpid()

    def write(self, seal: Seal) -> None:
        """At once: it is one small write to one page."""
        with suppress(OSError):  # then it is older than it could be
            os.pwrite(self._file, seal.line(), 0)

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
