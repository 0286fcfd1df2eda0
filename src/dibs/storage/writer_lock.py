"""The lock of a folder's one writer: flock on a file, which also tells who holds it.

It ends with the process, however that ends. A forked child inherits the descriptor and would hold the lock on; so it
closes its copy at once.
"""

from __future__ import annotations

import fcntl
import os
import socket
import weakref
from io import FileIO
from pathlib import Path

from dibs.errors import StorageError, WriterActive

NAME = "writer.lock"


def _holder() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def is_here(holder: str) -> bool:
    """Whether the holder of a lock is this process."""
    return holder == _holder()


class WriterLock:
    def __init__(self, folder: Path, name: str = NAME):
        """Takes the lock; makes the folder if it is not there. Raises WriterActive, StorageError."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A file object, not a descriptor: what an interrupt cuts off here is closed, and the lock with it.
            file = FileIO(folder / name, "a+")
        except OSError as e:
            advice = "to write, the folder must be writable; read_only=True only reads"
            raise StorageError(folder, f"cannot be opened for writing ({e.strerror}): {advice}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(file.fileno(), 200, 0).decode(errors="replace").strip() or "another process"
            file.close()
            raise WriterActive(folder, holder) from None
        try:
            file.truncate(0)
            file.write(f"{_holder()}\n".encode())  # it appends
        except OSError:
            pass  # a full disk: the lock holds all the same, only its holder has no name
        self._file: FileIO | None = file
        _held.add(self)

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            fcntl.flock(file, fcntl.LOCK_UN)  # also for children that were forked while it was opened
            file.close()

    def forget(self) -> None:
        """In a forked child: the lock is the parent's."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
