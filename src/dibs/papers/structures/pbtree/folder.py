"""Where the pages of a PB+tree lie on disk: a file in a folder of its own, with the files that entries are sorted in.

The index is a cache of what its segment knows, so nothing is synced and nothing has a checksum (what is saved has one:
storage.files); the folder goes when the index goes, or at exit. Its process holds a lock on it: folders that nobody
holds are those of processes that were killed, and the next one to make a folder there removes them.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.errors import StorageError

PREFIX = "dibs-pages-"
PAGES = "pages"
NO_RESERVE = 0x4000  # MAP_NORESERVE, which Python 3.10 does not name: memory is taken when it is used
_ADVICE = "make room there, or give a folder on a larger disk (folder=..., or the environment variable TMPDIR)"


class PageFolder:
    def __init__(self, above: str | None = None):
        """above: where it is made, if not where temporary files are."""
        above = above or tempfile.gettempdir()
        try:
            _remove_abandoned(above)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
            held = os.open(self.path, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_SH)
        except OSError as e:
            raise StorageError(above, f"no folder for the pages can be made there ({e.strerror}): {_ADVICE}") from None
        self.close = weakref.finalize(self, _remove, str(self.path), held, os.getpid())

    @property
    def pages(self) -> Path:
        return self.path / PAGES

    @contextmanager
    def writing(self, more: int) -> Iterator[None]:
        """What fails while files are written here; more: bytes that are still to be written, about."""
        try:
            yield
        except OSError as e:
            try:
                free = f"{shutil.disk_usage(self.path).free:,} bytes are free"
            except OSError:
                free = "it is gone"
            reason = e.strerror or str(e)
            message = f"the pages of the index cannot be written ({reason}); {free}, about {more:,} more are needed"
            raise StorageError(self.path, f"{message}: {_ADVICE}") from e


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


# ---- files and arrays ----


def copy_bytes(read: Callable[[int, int], bytes], length: int, target: int, step: int) -> None:
    """So many bytes to a file; read: gives those from a place on, at most so many."""
    at = 0
    while at < length:
        piece = read(at, min(max(step, 1 << 16), length - at))
        if not piece:
            raise OSError("the file is shorter than it was")
        at += os.pwrite(target, piece, at)


def map_file(path: Path) -> NDArray[np.int32]:
    """The file as an array, which looks writable like any other; nothing is ever written."""
    with path.open("rb") as file:
        if sys.platform == "linux":
            flags, protection = mmap.MAP_PRIVATE | NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
            return np.frombuffer(mmap.mmap(file.fileno(), 0, flags=flags, prot=protection), np.int32)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.int32)


def file_of(content: NDArray[np.int32]) -> tuple[int, int]:
    """The file, opened, of which the array is a mapping, and where it begins there; -1: it is none, or the file is no
    longer where it was."""
    base: Any = content
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if not isinstance(base, mmap.mmap):
        return -1, 0
    first, last = content.ctypes.data, content.ctypes.data + content.nbytes
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return -1, 0
    for line in lines:
        span, _, offset, device, inode, *path = line.split(maxsplit=5)
        start, end = (int(x, 16) for x in span.split("-"))
        if not start <= first < end:
            continue
        if last > end or not path or not path[0].startswith("/"):
            return -1, 0
        try:
            file = os.open(path[0], os.O_RDONLY)
        except OSError:
            return -1, 0
        is_now = os.fstat(file)
        if f"{os.major(is_now.st_dev):02x}:{os.minor(is_now.st_dev):02x} {is_now.st_ino}" == f"{device} {inode}":
            return file, int(offset, 16) + first - start
        os.close(file)
        return -1, 0
    return -1, 0
