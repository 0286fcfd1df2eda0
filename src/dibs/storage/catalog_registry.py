"""Which catalogs this process has open.

LMDB forbids a process to open a file twice (its locks belong to the process, and closing one would release those of the
other), so all who open a catalog share one environment, which the last one closes. A forked child must not use what it
inherited: forking waits for transactions to end, and whoever uses one in the child is told so.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from dibs.errors import DamagedError, StorageError
from dibs.storage.catalog_environment import ADVICE, DATA, Environment, allocate_lock

FORK_WAITS = 30.0  # seconds, for transactions to end

# Environments of this process, by device and number of the file.
_held: dict[tuple[int, int], Environment] = {}
_registry = threading.RLock()


def opened(folder: Path, write: bool) -> Environment:
    """The environment of the catalog in the folder, which exists; `release` gives it back."""
    path = folder / DATA
    with _registry:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            raise DamagedError(path, f"the file is missing; {ADVICE}") from None
        except OSError as e:
            raise StorageError(path, f"cannot be read ({e.strerror})") from e
        key = (status.st_dev, status.st_ino)
        held = _held.get(key)
        if held is None or held.ended:
            held = _held[key] = Environment(folder, write, _can_lock(folder, write))
        elif write and not held.writable:
            _can_lock(folder, write)
            held.let_write()
        held.users += 1
        return held


def _can_lock(folder: Path, write: bool) -> bool:
    """Whether the lock file can be used. Raises StorageError for a writer, who can do nothing without."""
    try:
        allocate_lock(folder)
        if not write or os.access(folder / DATA, os.W_OK):
            return True
        reason = os.strerror(errno.EACCES)
    except OSError as e:
        if not write:
            return False
        reason = e.strerror or str(e)
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(folder, f"the disk is full ({reason}): make room and try again") from None
    raise StorageError(
        folder, f"cannot be written ({reason}): check the permissions, or open with read_only=True"
    ) from None


def release(held: Environment) -> None:
    """One user less; the last one closes it."""
    with _registry:
        held.users -= 1
        if held.users == 0:
            for key in [key for key, other in _held.items() if other is held]:
                del _held[key]
            held.alone()
            held.end("is closed")
            held.together()


def _before_fork() -> None:
    global _ready
    _registry.acquire()
    _ready = [held for held in _held.values() if held.alone(FORK_WAITS)]


def _after_fork_in_parent() -> None:
    for held in _ready:
        held.together()
    _registry.release()


def _after_fork_in_child() -> None:
    global _registry
    for held in _held.values():
        held.leave("was opened before this process was forked: open it again here")
    _held.clear()
    _registry = threading.RLock()


_ready: list[Environment] = []  # to fork
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
