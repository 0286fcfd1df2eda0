"""Where LMDB writes the pages of a PB+tree: an environment in a folder of its own, open only while something changes.

The index is a cache of what its segment knows, so nothing is synced; the folder goes when the index goes, or at exit.
Its process holds a lock on it: folders that nobody holds are those of processes that were killed, and the next one to
make a folder there removes them.

Memory: LMDB keeps the pages that it changes until they are committed, and has a mapping of its own through which it
reads. So changes are committed in portions, and the environment is closed after each, which gives both back.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from numpy.typing import NDArray

from dibs.errors import StorageError
from dibs.index.papers.pbtree.lmdb_pages import OLD_LAYOUT
from dibs.index.papers.pbtree.pages import Pages

PREFIX = "dibs-pages-"
DATA = "data.mdb"
DATABASE = b"lists"
AT_ONCE = 1 << 13  # entries that are Python objects at a time
APPENDED = 128  # bytes of changed pages for each entry that is appended, at most: half a page is a list of one entry
WINDOW = 1 << 16  # bytes that become resident for each entry that is put or deleted anywhere
AN_ENTRY = 24  # bytes on disk, about, while building: once in pages, once in files that are sorted
SMALLEST = 64  # entries of a portion


class Environment:
    def __init__(self, memory: int, folder: str | None = None, copied: Pages | None = None):
        """memory: bytes to get along with; folder: where the folder is made; copied: what it begins with."""
        self._memory = memory
        self._room = max(2 * memory, 1 << 24)  # bytes by which a portion may let the file grow
        above = folder or tempfile.gettempdir()
        try:
            _remove_abandoned(above)
            self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
            held = os.open(self.folder, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_SH)
        except OSError as e:
            raise StorageError(above, f"no folder for the pages can be made there ({e.strerror}): {_ADVICE}") from None
        self.close = weakref.finalize(self, _remove, str(self.folder), held, os.getpid())
        if copied is not None:
            self._copy(copied)
        self._change(np.empty(0, np.uint32), np.empty(0, np.int64), "put", 1)

    def _copy(self, pages: Pages) -> None:
        with self.writing(pages.nbytes), self.path.open("wb") as file:
            for piece in pages.pieces(self._memory // 4):
                file.write(piece)

    @property
    def path(self) -> Path:
        return self.folder / DATA

    @property
    def size(self) -> int:
        return os.path.getsize(self.path) if self.path.exists() else 0

    def put(self, lists: NDArray[np.uint32], values: NDArray[np.int64]) -> None:
        """Entries that are not there, in the order of their lists and values."""
        self._change(lists, values, "put", self._portion())

    def append(self, lists: NDArray[np.uint32], values: NDArray[np.int64]) -> None:
        """The same, of entries that are all behind those that are there."""
        self._change(lists, values, "append", max(self._memory // 4 // APPENDED, SMALLEST))

    def delete(self, lists: NDArray[np.uint32], values: NDArray[np.int64]) -> None:
        """Entries that are there."""
        self._change(lists, values, "delete", self._portion())

    def _portion(self) -> int:
        """Of a small file nothing is too much."""
        return max(self._memory // 4 // (APPENDED if self.size < self._memory // 4 else WINDOW), SMALLEST)

    def _change(self, lists: NDArray[np.uint32], values: NDArray[np.int64], action: str, portion: int) -> None:
        for start in range(0, max(len(lists), 1), portion):
            end = min(start + portion, len(lists))
            with self.writing((len(lists) - start) * AN_ENTRY):
                while not self._try(lists[start:end], values[start:end], action):
                    self._room *= 2

    def _try(self, lists: NDArray[np.uint32], values: NDArray[np.int64], action: str) -> bool:
        """False: the mapping was too small, and nothing has changed."""
        options: dict[str, Any] = {"sync": False, "metasync": False, "lock": False, "readahead": False, "max_dbs": 1}
        options |= OLD_LAYOUT
        with lmdb.open(str(self.folder), map_size=self.size + self._room, **options) as environment:
            try:
                database = environment.open_db(DATABASE, dupsort=True, dupfixed=True, integerkey=True, integerdup=True)
                with environment.begin(write=True, db=database) as transaction:
                    for start in range(0, len(lists), AT_ONCE):
                        keys = lists[start : start + AT_ONCE].view("V4").tolist()
                        entries = values[start : start + AT_ONCE].view("V8").tolist()
                        _act(transaction, keys, entries, action)
            except lmdb.MapFullError:
                return False
        return True

    @contextmanager
    def writing(self, more: int) -> Iterator[None]:
        """What fails while files are written here; more: bytes that are still to be written, about."""
        try:
            yield
        except (lmdb.Error, OSError) as e:
            reason = getattr(e, "strerror", None) or str(e)
            try:
                free = f"{shutil.disk_usage(self.folder).free:,} bytes are free"
            except OSError:
                free = "it is gone"
            message = f"the pages of the index cannot be written ({reason}); {free}, about {more:,} more are needed"
            raise StorageError(self.folder, f"{message}: {_ADVICE}") from e


_ADVICE = "make room there, or give a folder on a larger disk (folder=..., or the environment variable TMPDIR)"


def _act(transaction: Any, keys: list[bytes], entries: list[bytes], action: str) -> None:
    if action == "delete":
        done = sum(transaction.delete(key, entry) for key, entry in zip(keys, entries))
    else:
        with transaction.cursor() as cursor:
            _, done = cursor.putmulti(zip(keys, entries), dupdata=True, append=action == "append")
    assert done == len(keys), f"{len(keys) - done} entries of {len(keys)} were not as expected: {action}"


def _remove(folder: str, held: int, process: int) -> None:
    if os.getpid() == process:  # a forked child has the object, but the folder is not its own
        shutil.rmtree(folder, ignore_errors=True)
    os.close(held)


@cache
def _remove_abandoned(above: str) -> None:
    """Once for each process and place. A folder of the last minute may be one whose lock is just being taken."""
    for folder in Path(above).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime < 60:
                continue
            held = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)
