"""The lock of a folder's one writer: flock on a file, which also tells who holds it.

It ends with the process, however that ends. A forked child inherits the descriptor and would hold the lock on; so it
closes its copy at once.
"""

from __future__ import annotations

import fcntl
import os
import socket
import weakref
from pathlib import Path

from dibs.errors import StorageError, WriterActive

NAME = "writer.lock"


class WriterLock:
    def __init__(self, folder: Path, name: str = NAME):
        """Takes the lock; makes the folder if it is not there. Raises WriterActive, StorageError."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as e:
            advice = "to write, the folder must be writable; read_only=True only reads"
            raise StorageError(folder, f"cannot be opened for writing ({e.strerror}): {advice}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(file, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(file)
            raise WriterActive(folder, holder) from None
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        except OSError:
            pass  # a full disk: the lock holds all the same, only its holder has no name
        self._file: int | None = file
        _held.add(self)

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            fcntl.flock(file, fcntl.LOCK_UN)  # also for children that were forked while it was opened
            os.close(file)

    def forget(self) -> None:
        """In a forked child: the lock is the parent's."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
