"""SQLite databases of Dibs, all of one kind: how one is made, and a connection to it: its transactions, its errors in
our words, forks.

A session has one connection and one lock, which is held for a whole call: any thread may call. Between calls there is
no transaction, so a session keeps nobody from writing, nor the write-ahead log from starting over. What an interrupt
cuts short is rolled back, at once or at the latest by the next call; there is nothing else to give back.

A process must neither use nor close a connection that it inherited. So forking closes all connections of the process
before (it waits for calls under way) and the parent opens them again when it needs them; in the child, whoever uses an
inherited session is told so. If a call takes too long, or forks itself, then its connection is left alone for good, and
the child refuses to open that file: what SQLite knows of it in the child's memory is not true there.

Readers open the database read-only. Where they cannot (SQLite wants a file for its index of the log, and there is no
right or no room to make one), they read the file as it lies, if there is no log; then every look at it ends with the
question whether it is still the same.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from dibs.errors import DamagedError, DibsError, StorageError
from dibs.storage.files import sync_folder

T = TypeVar("T")
DATA, LOG = "catalog.db", "catalog.db-wal"
ADVICE = "restore a backup of the folder, or import an export into a new folder"
PATIENCE = 10.0  # seconds, for somebody else's transaction
FORK_WAITS = 30.0  # seconds, for calls to end
FAILURES = (sqlite3.Error, UnicodeDecodeError)  # the latter: of what SQLite says about damage
TRIES = 20  # of what a busy writer can spoil
SETTINGS = (
    "synchronous=FULL",  # what is committed is on the disk
    "wal_autocheckpoint=1000",  # pages: the log moves to the file, and starts over when no reader is within it
    "journal_size_limit=16777216",  # bytes: what one large change made of the log is given back
    "cache_size=-65536",  # KiB at most
    "temp_store=MEMORY",
    "secure_delete=OFF",
    "trusted_schema=OFF",
    "cell_size_check=ON",  # damage is found sooner
)


class Session:
    def __init__(self, folder: Path, read_only: bool, name: str = DATA):
        self.folder, self.read_only = folder, read_only
        self.path = folder / name
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._alone: tuple[int, ...] | None = None  # what the file was when it was opened without its log
        self._opened = 0  # how often
        self._pid = os.getpid()
        self._ended = ""  # why it cannot be used any more
        self._inside = False  # the thread that forks is within a call
        with _registry:  # not within the session's own lock: forking takes them in this order
            _sessions.add(self)

    # ---- calls ----

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` finds, all as of one moment. It may be called again."""
        for _ in range(TRIES):
            with self._lock:
                try:
                    result = self._run(work, "BEGIN")
                except DamagedError:
                    if not self._has_changed():
                        raise
                else:
                    if not self._has_changed():
                        return result
                self._disconnect()
        raise StorageError(self.folder, "is written so busily that it cannot be read without its log; try again")

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns; what it changes is durable afterwards, or nothing is changed."""
        with self._lock:
            return self._run(work, "BEGIN IMMEDIATE")

    def _run(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        try:
            connection = self._ready()
            connection.execute(begin)
            result = work(connection)
            connection.execute("COMMIT")
            return result
        except BaseException as e:
            self._roll_back()
            if isinstance(e, FAILURES):
                raise translate(self.path, e) from e
            raise

    def execute(self, command: str) -> list[Any]:
        """Outside of any transaction."""
        with self._lock:
            try:
                return self._ready().execute(command).fetchall()
            except FAILURES as e:
                raise translate(self.path, e) from e

    def stamp(self) -> tuple[int, ...]:
        """Another one after each commit of another session, whosever that is."""
        with self._lock:
            if self._has_changed():
                self._disconnect()
            try:
                [number] = self._ready().execute("PRAGMA data_version").fetchone()
            except FAILURES as e:
                raise translate(self.path, e) from e
            return self._opened, number

    # ---- the connection ----

    def _ready(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            raise StorageError(self.folder, FORKED)
        if self._ended:
            raise StorageError(self.folder, self._ended)
        if self._connection is None:
            self._connection = self._connect()
            self._opened += 1
        elif self._connection.in_transaction:  # an interrupt came before it was rolled back
            self._connection.rollback()
        return self._connection

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            try:
                connection.rollback()
            except sqlite3.Error:
                self._disconnect()

    def _connect(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise DamagedError(self.path, f"the file is missing; {ADVICE}")
        _check_inherited(self.path)
        self._alone = None
        if not self.read_only:
            return self._ensure_connected("mode=rw")
        try:
            return self._ensure_connected("mode=ro")
        except sqlite3.OperationalError as e:
            self._alone = self._file()
            if self._alone[0]:  # there is a log, which must not be left out
                if "I/O" in str(e):
                    raise
                advice = "make the folder writable, or open it once where it is"
                raise StorageError(self.path, f"has a log, which cannot be read from here ({e}): {advice}") from e
            return self._ensure_connected("mode=ro&immutable=1")

    def _ensure_connected(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?{mode}",
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            for setting in SETTINGS:
                connection.execute(f"PRAGMA {setting}")
            [journal] = connection.execute("PRAGMA journal_mode").fetchone()
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # now the files are opened
        except BaseException:
            connection.close()
            raise
        if journal != "wal" and "immutable" not in mode:
            connection.close()
            raise DamagedError(self.path, f"it does not say that it has a log; {ADVICE}")
        return connection

    def _has_changed(self) -> bool:
        """Whether a file that was opened without its log is another one by now."""
        return self._alone is not None and self._alone != self._file()

    def _file(self) -> tuple[int, ...]:
        """Bytes of the log; which file it is, and how it was left."""
        try:
            file = os.stat(self.path)
        except FileNotFoundError:
            return (0,)
        return file_size(Path(f"{self.path}-wal")), file.st_ino, file.st_size, file.st_mtime_ns

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def is_usable(self) -> bool:
        return self._pid == os.getpid() and not self._ended

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        with self._lock:
            self._ended = self._ended or "is closed"
            self._disconnect()

    # ---- forking ----

    def _before_fork(self) -> None:
        self._inside = self._lock._is_owned()  # type: ignore[attr-defined]
        if not self._inside and self._lock.acquire(timeout=FORK_WAITS):
            self._disconnect()

    def _after_fork_in_parent(self) -> None:
        if not self._inside and self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock.release()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        if self._connection is not None:  # nobody could close it
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # never collected, which would close it
            _inherited.add(os.path.realpath(self.path))
            self._connection = None


FORKED = "was opened before this process was forked: open it again here"
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_registry = threading.RLock()
_inherited: set[str] = set()  # files with a connection of the parent's
_forking: list[Session] = []


def _check_inherited(path: Path) -> None:
    if os.path.realpath(path) in _inherited:
        advice = "start processes by spawn, or fork while the matcher is not in use"
        raise StorageError(path, f"was in use when this process was forked, and cannot be opened here: {advice}")


def _before_fork() -> None:
    _registry.acquire()
    _forking[:] = _sessions
    for session in _forking:
        session._before_fork()


def _after_fork_in_parent() -> None:
    for session in _forking:
        session._after_fork_in_parent()
    _forking.clear()
    if _registry._is_owned():  # type: ignore[attr-defined]
        _registry.release()


def _after_fork_in_child() -> None:
    global _registry
    for session in list(_sessions):
        session._after_fork_in_child()
    _forking.clear()
    _registry = threading.RLock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def file_size(path: Path) -> int:
    """Bytes; 0 if it is not there. (A log of 0 bytes: the database is all there is.)"""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def translate(path: Path, error: Exception) -> DibsError:
    """What SQLite says, as an error of Dibs."""
    text = str(error)
    if isinstance(error, UnicodeDecodeError):
        text = error.object.decode(errors="replace")
    if "is full" in text:
        return StorageError(path, f"the disk is full ({text}); nothing was changed: make room and try again")
    if "I/O error" in text:
        advice = "is the disk full, or a limit (ulimit -f) reached?"
        return StorageError(path, f"not all could be written or read ({text}); nothing was changed: {advice}")
    if "readonly" in text or "unable to open" in text:
        advice = "check the permissions and the room on the disk, or open with read_only=True"
        return StorageError(path, f"may not be written or read ({text}): {advice}")
    if "locked" in text:
        return StorageError(path, f"another program has held it for {PATIENCE:.0f} seconds ({text}): end that program")
    return DamagedError(path, f"SQLite reports: {text}; {ADVICE}")


# ---- making one ----


def create_database(path: Path, what: str, application: int, number: int, statements: Iterable[str]) -> None:
    """Makes a database if there is none: under another name first, so that it is there wholly or not at all. Only the
    user may read it."""
    if path.exists():
        return
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # its log will have the same mode
        write_database(partial, application, number, statements)
        with suppress(FileExistsError):  # somebody else was faster
            os.link(partial, path)  # unlike a rename it never takes the place of one that is there
        sync_folder(path.parent)
    except (OSError, sqlite3.Error) as e:
        raise StorageError(path.parent, f"{what} cannot be made ({e}): check permissions and room") from e
    finally:
        with suppress(OSError):
            partial.unlink()


def write_database(path: Path, application: int, number: int, statements: Iterable[str]) -> None:
    """application, number: what its head says it is, and in which format."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA page_size = 4096")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN")
        connection.execute(f"PRAGMA application_id = {application}")
        connection.execute(f"PRAGMA user_version = {number}")
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")
    finally:
        connection.close()  # the log is moved to the file, synced and removed
