"""The LMDB environment of a catalog: one for each file and process, shared by all who open it.

LMDB asks for care in some things, which is taken here, so that nobody else has to think of it:

- The map must not be resized while this process has a transaction: transactions share a lock, resizing takes it alone.
- Readers open it without the right to write: to open a named database with that right, LMDB waits for whoever is
  writing just now. When a writer comes second, it is opened anew under the readers, between their transactions.
- A file may be damaged, and LMDB would follow that anywhere: nothing is read through LMDB before it was checked.

A reader whose folder cannot be written has no place in the table of readers: a writer does not know of it. Pages of
transaction n are reused from n + 3 on, which can be at work as soon as n + 2 is there. So such a reader looks
afterwards, and reads again if that was the case.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from dibs.errors import DamagedError, DibsError, FormatError, StorageError
from dibs.index.papers.pbtree.lmdb_pages import OLD_LAYOUT, Meta
from dibs.storage.catalog_check import Whole, verified
from dibs.storage.catalog_records import ABOUT, CHANGES, STATE, SUBSCRIPTIONS, state_of, state_record
from dibs.storage.lmdb_check import Damage, Pages, mapped, metas, page_size

T = TypeVar("T")
DATA, LOCK = "data.mdb", "lock.mdb"
SMALLEST_MAP = 1 << 24  # bytes; maps are powers of two
READERS = 1024
LOCK_SIZE = 64 * READERS + 128  # bytes of LMDB's lock file for so many
TRIES = 20  # of what a busy writer can spoil
ADVICE = "restore a backup of the folder, or import an export into a new folder"


class Environment:
    """LMDB's environment of one file in this process."""

    def __init__(self, folder: Path, writable: bool, protected: bool):
        self.folder = folder
        self.writable = writable
        self.protected = protected  # writers know of our readers
        self.users = 0
        self.ended = ""  # why it cannot be used any more
        self.writing = threading.RLock()
        self._turn = threading.Condition()
        self._active = 0  # transactions
        self._resizing = False
        self._env = _open(folder, writable, protected)
        try:
            self.whole = self._checked(deep=True)
            self._open_databases()
        except lmdb.Error as e:
            self._env.close()
            raise _error(self.folder, e) from e
        except BaseException:
            self._env.close()
            raise

    def _open_databases(self) -> None:
        names = (SUBSCRIPTIONS, CHANGES, ABOUT)
        self.subscriptions, self.changes, self.about = (self._env.open_db(name, create=False) for name in names)

    def let_write(self) -> None:
        """Opens it anew, for writing too."""
        self.alone()
        try:
            self._env.close()
            self.ended = "could not be opened for writing; close it and open it again"
            self._env = _open(self.folder, True, True)
            self._open_databases()
            self.writable, self.ended = True, ""
        finally:
            self.together()

    # Transactions

    def read(self, work: Callable[[Any], T]) -> T:
        """What `work` makes of a transaction that reads. It may be called again, and must not keep the transaction."""
        for _ in range(TRIES):
            number = -1
            try:
                with self.sharing(), self._env.begin() as txn:
                    number = txn.id()
                    result = work(txn)
                    if self._kept(number):
                        return result
            except lmdb.MapResizedError:
                self._resize(0)
            except lmdb.ReadersFullError as e:
                with self.sharing():
                    freed = self._env.reader_check()  # places of processes that are gone
                if not freed:
                    raise self._translated(e) from e
            except lmdb.Error as e:
                raise self._translated(e) from e
            except DamagedError:
                if self._kept(number):
                    raise
        raise StorageError(self.folder, "is written so busily that it cannot be read without its lock file; try again")

    def _kept(self, number: int) -> bool:
        """Whether the pages of this transaction were kept until now."""
        return self.protected or self._env.info()["last_txnid"] - number < 2

    def write(self, work: Callable[[Any], T]) -> T:
        """What `work` makes of a transaction that writes, which is durable afterwards; or nothing is written. It may be
        called again."""
        with self.writing:
            while True:
                try:
                    with self.sharing(), self._env.begin(write=True) as txn:
                        return work(txn)
                except lmdb.MapFullError:
                    self.make_room(2 * self.info()["map_size"])
                except lmdb.MapResizedError:
                    self._resize(0)
                except lmdb.Error as e:
                    raise self._translated(e) from e

    def make_room(self, size: int) -> None:
        """Makes the map so large, if it is smaller."""
        with self.sharing():
            held = self._env.info()["map_size"]
        if size > held:
            self._resize(_map_size(size))

    def transaction_number(self) -> int:
        """Of the last commit by anybody. Every call of LMDB is one that `alone` waits for, this one too."""
        with self._turn:  # as `sharing`, but quicker
            if not self._resizing and not self.ended:
                return int(self._env.info()["last_txnid"])
        with self.sharing():
            return int(self._env.info()["last_txnid"])

    def file_size(self) -> int:
        """Bytes of all pages up to the last one."""
        info = self.info()
        return (info["last_pgno"] + 1) * info["page_size"]

    def info(self) -> dict[str, int]:
        """LMDB's own, and the size of a page."""
        with self.sharing():
            return {**self._env.info(), "page_size": self._env.stat()["psize"]}

    def snapshot(self, work: Callable[[Pages, Meta, Meta | None], T]) -> T:
        """What `work` makes of the file's pages while a transaction keeps them, with its meta page and that of the
        transaction before, if that is still there."""
        found: list[T] = []

        def attempt(txn: Any) -> bool:
            path = self.folder / DATA
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                current, other = _steady_metas(file, path)
                number = txn.id()
                if number == current.transaction:
                    it, before = current, other
                elif number == other.transaction:
                    it, before = other, None
                else:
                    return False  # two commits since the transaction began
                last = max(it.last_page, before.last_page if before else 0)
                pages = mapped(file, last, page_size(file))
                try:
                    found[:] = [work(pages, it, before)]
                except Damage as e:
                    raise DamagedError(path, f"{e}; {ADVICE}") from None
                except DamagedError:
                    raise
                except FormatError as e:
                    raise FormatError(f"{path}: {e}") from None
                return True
            finally:
                os.close(file)

        for _ in range(TRIES):
            if self.read(attempt):
                return found[0]
        raise StorageError(self.folder, "is written so busily that no snapshot could be taken; try again")

    def check(self, deep: bool) -> Whole:
        return self._checked(deep)

    def _checked(self, deep: bool) -> Whole:
        return self.snapshot(lambda pages, it, before: verified(pages, it, before, deep))

    # The lock of the map

    @contextmanager
    def sharing(self) -> Iterator[None]:
        with self._turn:
            while self._resizing:
                self._turn.wait()
            if self.ended:
                raise StorageError(self.folder, self.ended)
            self._active += 1
        try:
            yield
        finally:
            with self._turn:
                self._active -= 1
                self._turn.notify_all()

    def alone(self, timeout: float | None = None) -> bool:
        """Waits until there is no transaction, and lets none begin until `together`."""
        with self._turn:
            if not self._turn.wait_for(lambda: not self._resizing, timeout):
                return False
            self._resizing = True
            if self._turn.wait_for(lambda: not self._active, timeout):
                return True
            self._resizing = False
            self._turn.notify_all()
            return False

    def together(self) -> None:
        with self._turn:
            self._resizing = False
            self._turn.notify_all()

    def _resize(self, size: int) -> None:
        """0: as large as another process has made it."""
        self.alone()
        try:
            if not self.ended and (size == 0 or size > self._env.info()["map_size"]):
                self._env.set_mapsize(size)
        except lmdb.Error as e:
            self.end("could not get a larger map of the file; close it and open it again")
            raise StorageError(
                self.folder, f"the map cannot grow to {size:,} bytes ({e}); is there a ulimit -v?"
            ) from e
        finally:
            self.together()

    # Ends

    def leave(self, why: str) -> None:
        """In a forked child: nobody else is here now. Closes it if nobody used it in the parent; to end a transaction
        here would end it there, and LMDB waits for calls that nobody is left to end, so then it is left for good."""
        was_alone = self._resizing and not self._active
        self.writing, self._turn = threading.RLock(), threading.Condition()
        self._resizing, self._active = False, 0
        if was_alone:
            self.end(why)
        else:
            self.ended = self.ended or why
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._env))  # never collected, which would close it

    def end(self, why: str) -> None:
        """Closes it for everybody; no transaction may be active."""
        if not self.ended:
            self.ended = why
            self._env.close()

    def _translated(self, error: lmdb.Error) -> DibsError:
        path = self.folder
        if isinstance(error, lmdb.PanicError) or self._panics():
            self.alone()
            if not self.ended:
                self.end("failed while writing and is closed: close it and open it again")
                _settle(self.folder)
            self.together()
            advice = "close it and open it again; only then is it known whether the last change was kept"
            return StorageError(path, f"failed while writing ({error}): {advice}")
        return _error(path, error)

    def _panics(self) -> bool:
        try:
            with self.sharing():
                self._env.begin().abort()
        except lmdb.PanicError:
            return True
        except (lmdb.Error, StorageError):
            pass
        return False


def _settle(folder: Path) -> None:
    """After LMDB failed to write a meta page: it has put part of the old content back, the number of the transaction
    before the current one, but not its trees. The next transaction writes that page wholly, so one is made that changes
    nothing. If that fails too, the folder will be taken for damaged."""
    try:
        with open_lmdb(folder) as env:
            about = env.open_db(ABOUT, create=False)
            with env.begin(write=True) as txn:
                state = state_of(txn.get(STATE, db=about))
                txn.put(STATE, state_record(state._replace(transaction=txn.id())), db=about)
    except lmdb.Error:
        pass


def _error(folder: Path, error: lmdb.Error) -> DibsError:
    if isinstance(error, (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError)):
        return DamagedError(folder / DATA, f"{error}; {ADVICE}")
    return StorageError(folder, _words(error, getattr(error, "code", 0)))


def _words(error: lmdb.Error, code: int) -> str:
    if isinstance(error, lmdb.ReadersFullError):
        return f"has {READERS} readers at once already; close some"
    if isinstance(error, lmdb.DiskError) or code in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({error}); nothing was changed: make room and try again"
    if code == errno.EIO:  # so LMDB calls a write that was cut short
        advice = "is the disk full, or a limit (ulimit -f) reached?"
        return f"not all could be written ({error}); nothing was changed: {advice}"
    if code == errno.EFBIG:
        return (
            f"the file may not become larger ({error}); nothing was changed: raise the limit (ulimit -f) and try again"
        )
    if code in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"may not be written or read ({error}): check the permissions, or open with read_only=True"
    if code == errno.ENOMEM:
        return f"the file cannot be mapped ({error}): is there a ulimit -v?"
    return f"LMDB reports: {error}"


def _open(folder: Path, writable: bool, protected: bool) -> Any:
    """LMDB's environment. LMDB reads the meta pages only, and those are checked before."""
    path = folder / DATA
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        raise StorageError(path, f"cannot be read ({e.strerror})") from e
    try:
        current, _ = _steady_metas(file, path)
        used = (current.last_page + 1) * page_size(file)
    finally:
        os.close(file)
    try:
        env = open_lmdb(folder, 2 * used, readonly=not writable, lock=protected)
    except lmdb.Error as e:
        raise _error(folder, e) from e
    if writable:
        env.reader_check()  # places in the table of readers of processes that are gone
    return env


def allocate_lock(folder: Path) -> None:
    """Gives LMDB's lock file its blocks on the disk. LMDB maps it without, and would die of a signal on a full disk."""
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if hasattr(os, "posix_fallocate"):  # macOS has none
            os.posix_fallocate(file, 0, os.fstat(file).st_size or LOCK_SIZE)
    finally:
        os.close(file)


def _map_size(needed: int) -> int:
    return max(SMALLEST_MAP, 1 << (needed - 1).bit_length())


def open_lmdb(folder: Path, size: int = 0, readonly: bool = False, lock: bool = True) -> Any:
    return lmdb.open(
        str(folder),
        map_size=_map_size(size),
        readonly=readonly,
        lock=lock,
        create=False,
        max_readers=READERS,
        max_dbs=3,
        mode=0o666,
        **OLD_LAYOUT,
    )


def _steady_metas(file: int, path: Path) -> tuple[Meta, Meta]:
    """Both meta pages. A writer may be just writing one: what looks damaged is read again."""
    problem = None
    for _ in range(3):
        try:
            return metas(file)
        except Damage as e:
            problem = e
    raise DamagedError(path, f"{problem}; {ADVICE}")
