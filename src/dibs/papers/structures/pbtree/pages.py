"""Where the pages of a PB+tree are: all in memory (Resident), or in a file of which a pool of frames holds some
(Pooled). Both give kernels a Store (pbtree.layout) to read from and to write to.

The pool has so many bytes and no more, its tables included, whatever the size of the file. Threads that match at once
share it out: each has sets of frames of its own, so that no kernel waits for another. When one more comes than there
are shares, it waits until all shares are given back, and the frames are divided again. (A mapping of the file could
not be bounded: the operating system makes more of it resident than is touched.)

Nobody matches while the index is updated: updates write to the first share, and the others are emptied afterwards.

On disk the pages lie in a file in a folder of its own, with the files that entries are sorted in. The index is a cache
of what its segment knows, so nothing is synced and nothing has a checksum (what is saved has one: storage.files); the
folder goes when the index goes, or at exit. Its process holds a lock on it: folders that nobody holds are those of
processes that were killed, and the next one to make a folder there removes them.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import sys
import tempfile
import threading
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
from dibs.papers.structures.growing import grow_array
from dibs.papers.structures.pbtree.layout import FILE, READS, SHIFT, START, WAYS, Store, flush, no_store

A_FRAME = 4 + 8 + 1  # bytes of a frame's tag, stamp and mark
CANNOT_READ = "a page cannot be read: is the disk all right? Build the index again"


class Resident:
    """All pages are in memory."""

    def __init__(self, size: int, content: NDArray[np.int32] | None = None):
        """content: pages that it begins with; they are copied before they are changed."""
        self.size, self._own = size, content is None
        self._frames = np.empty(0, np.int32) if content is None else content.reshape(-1)

    @property
    def room(self) -> int:
        """Pages that there is room for."""
        return len(self._frames) // self.size if self._own else 0

    @contextmanager
    def reading(self) -> Iterator[Store]:
        yield Store(self._frames, *no_store(self.size))

    writing = reading

    def forget(self) -> None:
        """Nothing is there any more."""
        self._frames, self._own = np.empty(0, np.int32), True

    def grow(self, pages: int) -> None:
        """Room for so many pages, or some more. Not while a store is in use."""
        if not self._own:
            self._frames, self._own = self._frames.copy(), True
        self._frames = grow_array(self._frames, pages * self.size)

    def trim(self, pages: int) -> None:
        """No room for many more than these."""
        if 8 * self.room > 9 * pages:
            self._frames = self._frames[: pages * self.size].copy()

    def content(self, pages: int) -> NDArray[np.int32]:
        """The first pages."""
        return self._frames[: pages * self.size].reshape(pages, self.size)


class Pooled:
    """The pages are in a file; see above."""

    def __init__(self, size: int, memory: int, above: str | None, content: NDArray[np.int32] | None = None):
        """memory: bytes of the pool; above: where the folder for the file is made; content: pages that it begins with,
        which are read where they are (in the file that they are a mapping of) until something changes."""
        self.size, self.memory, self.room = size, memory, 0
        self.folder: PageFolder | None = None
        self._above, self._content, self._length = above, content, 0 if content is None else content.nbytes
        self._file, self._start = (-1, 0) if content is None else file_of(content)
        if self._file >= 0:
            weakref.finalize(self, os.close, self._file)
        self._change = threading.Condition()
        self._users = 0  # threads that have a share or wait for one
        self._shares: list[Store] = []
        self._idle: list[Store] = []
        self._reads = self._most = 0  # of shares that are no more

    # ---- the pool ----

    @property
    def _block(self) -> int:
        return self.size * 4 << SHIFT

    @property
    def _sets(self) -> int:
        """That there is memory for."""
        return max((self.memory - 4096) // (WAYS * (self._block + A_FRAME)), 1)

    @property
    def _needed(self) -> int:
        """Sets that hold the whole file, with room to spare: blocks are not spread quite evenly."""
        return 2 * self._length // (self._block * WAYS) + 1

    def _flush(self) -> None:
        if self.folder is not None and self._shares:
            with self.folder.writing(0):
                flush(self._shares[0])

    def _drop(self) -> None:
        """No shares, no frames. Nobody has one."""
        self._flush()
        self._most, self._reads = self.most, self.reads
        self._shares, self._idle = [], []

    def _divide(self, shares: int) -> None:
        """The frames to so many shares, all of them empty."""
        self._drop()
        each = min(self._sets // shares, self._needed) * WAYS
        frames = np.empty(shares * each * self._block // 4, np.int32)
        for share in range(shares):
            own = frames[share * len(frames) // shares : (share + 1) * len(frames) // shares]
            state = np.zeros(START + 1, np.int64)
            state[FILE], state[START] = self._file, self._start
            tags, stamps, dirty = np.full(each, -1, np.int32), np.zeros(each, np.int64), np.zeros(each, np.uint8)
            self._shares.append(Store(own, tags, stamps, dirty, state, self.size))
        self._idle = self._shares[:]

    def _take(self) -> Store:
        with self._change:
            self._users += 1
            while True:
                wanted = min(self._users, self._sets)
                if wanted > len(self._shares) and len(self._idle) == len(self._shares):
                    self._divide(wanted)
                if self._idle and wanted <= len(self._shares):
                    return self._idle.pop()
                self._change.wait()

    def _put(self, share: Store) -> None:
        with self._change:
            self._users -= 1
            self._idle.append(share)
            self._change.notify_all()

    @contextmanager
    def reading(self) -> Iterator[Store]:
        if self._content is not None and self._file < 0:
            yield Store(self._content.reshape(-1), *no_store(self.size))
            return
        share = self._take()
        try:
            yield share
        except OSError as e:
            raise StorageError(self._place, CANNOT_READ) from e
        finally:
            self._put(share)

    @contextmanager
    def writing(self) -> Iterator[Store]:
        """Not while anybody reads."""
        assert self.folder is not None and not self._users
        if not self._shares:
            self._divide(1)
        with self.folder.writing(self.room * self.size * 4 // 8):
            yield self._shares[0]
            if len(self._shares) > 1:
                flush(self._shares[0])
                for share in self._shares[1:]:
                    share.tags[:] = -1

    def use(self, memory: int) -> None:
        """From now on the pool may have so many bytes. Not while a store is in use."""
        self._drop()
        self.memory = memory

    @property
    def tables(self) -> int:
        """Bytes of the tables of the pool, which are within its memory."""
        return sum(len(share.tags) * A_FRAME for share in self._shares)

    @property
    def reads(self) -> int:
        """Blocks that were read."""
        return self._reads + sum(int(share.state[READS]) for share in self._shares)

    @property
    def resident(self) -> int:
        """Bytes of the pool that are in use. Content that is in memory is read there and counts as a whole."""
        if self._content is not None and self._file < 0:
            return self._content.nbytes
        return sum(int(np.count_nonzero(share.tags >= 0)) for share in self._shares) * self._block + self.tables

    @property
    def most(self) -> int:
        return max(self._most, self.resident)

    # ---- the file ----

    @property
    def nbytes(self) -> int:
        return self._length

    @property
    def _place(self) -> Path | str:
        return self.folder.path if self.folder else "a saved pbtree"

    def forget(self) -> None:
        if self._content is not None:
            self._content, self._file, self._start, self._length = None, -1, 0, 0

    def close(self) -> None:
        """Removes the files; nothing can be read after that."""
        if self.folder is not None:
            self.folder.close()

    def own_folder(self) -> PageFolder:
        if self.folder is None:
            self._begin()
        assert self.folder is not None
        return self.folder

    def grow(self, pages: int) -> None:
        """The disk has room for all that kernels will write, or this fails: nothing has changed then."""
        folder = self.own_folder()
        if pages <= self.room:
            return
        length = -(-max(pages, self.room + self.room // 8) * self.size * 4 // self._block) * self._block
        with folder.writing(length - self._length):
            if length > self._length and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, self._length, length - self._length)
            elif length > self._length:
                os.ftruncate(self._file, length)
        self._length = max(length, self._length)
        self.room = self._length // (self.size * 4)
        if self._shares and min(self._sets, self._needed) > 2 * sum(len(share.tags) for share in self._shares) // WAYS:
            self._drop()  # a larger pool, from the next use on

    def trim(self, pages: int) -> None:
        self._flush()
        self._length = -(-pages * self.size * 4 // self._block) * self._block
        self.room = self._length // (self.size * 4)
        os.ftruncate(self._file, self._length)

    def _begin(self) -> None:
        """A file of its own, with the content if there is any."""
        folder = PageFolder(self._above)
        content, self._content = self._content, None
        file = os.open(folder.pages, os.O_RDWR | os.O_CREAT, 0o600)
        weakref.finalize(self, os.close, file)
        with folder.writing(self._length):
            if content is not None:
                own = content.reshape(-1).view(np.uint8)
                read = self._read if self._file >= 0 else lambda at, size: own[at : at + size].tobytes()
                copy_bytes(read, content.nbytes, file, self.memory // 4)
        self._drop()  # what is in the pool is of another file
        self.folder, self._file, self._start = folder, file, 0
        self.room = self._length // (self.size * 4)

    def _read(self, at: int, size: int) -> bytes:
        return os.pread(self._file, size, self._start + at)

    def content(self, pages: int) -> NDArray[np.int32]:
        """The first pages, as an array that nobody will change."""
        if self._content is not None:
            return self._content
        self._flush()
        other = PageFolder(self._above)
        with other.writing(self._length), other.pages.open("wb") as file:
            copy_bytes(self._read, pages * self.size * 4, file.fileno(), self.memory // 4)
        content = map_file(other.pages)
        other.close()  # what is mapped stays
        return content.reshape(pages, self.size)


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
