"""The pages of a PB+tree as a kernel reads them, in bounded memory (see index.pbtree).

A kernel asks for pages by their number. A file is read in blocks of four pages into pools, one for each thread that is
at work; all pools together have so many bytes and no more. A block that is needed takes the place of the one that came
first. (A mapping of the file could not be bounded: the operating system makes more resident than is touched, 64 KB or,
where it keeps files in large pieces, 2 MB.) When another thread comes, pools get smaller: all begin anew.

What is an ordinary array is read where it is.

    place    int64   what a kernel must know of the pages, see below
    shared   int64   LIMIT: blocks that a pool may have; TURN: goes up when the limit goes down
    slots    int32   by block of the file: its place in the pool of this thread, or -1
    blocks   int32   by place in the pool: the block that is there, or -1
    own      int64   of this thread, see below
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from dibs.errors import FormatError
from dibs.index.papers.pbtree.lmdb_pages import HEAD, LAYOUT, MAGIC, NO_PAGE, NODE, TREE, Meta, Tree, meta

PAGES = 2  # 2 ** 2 pages are a block
FEWEST = 8  # blocks of a pool
PAGE_SIZE, ROOT, BASE, FILE, START = range(5)  # of `place`. BASE: address of the pages, or 0: START bytes into a file
LIMIT, TURN = range(2)
POOL, SIZE, NEXT, KNOWN_TURN, READS, FAILED = range(6)  # of `own`. POOL: address; NEXT: the place for the next block
SLACK = 1 << 17  # bytes behind a pool that are never used: whatever a page says when it was not read, it is not far
DONTNEED = mmap.MADV_DONTNEED
NO_RESERVE = 0x4000  # MAP_NORESERVE, which Python 3.10 does not name: memory is taken when it is used

ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (NO_RESERVE if sys.platform == "linux" else 0)

Pool = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]

_madvise = types.ExternalFunction("madvise", types.int32(types.uintp, types.uintp, types.int32))
_pread = types.ExternalFunction("pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))


@njit(cache=True, nogil=True)
def _read(place, shared, slots, blocks, own, page):  # type: ignore[no-untyped-def]
    if own[KNOWN_TURN] != shared[TURN]:
        turn = shared[TURN]
        slots[:] = -1
        blocks[:] = -1
        own[NEXT] = 0
        _madvise(np.uint64(own[POOL]), np.uint64(own[SIZE]), np.int32(DONTNEED))  # it has no file: it is free
        own[KNOWN_TURN] = turn  # now others may take more
    size = place[PAGE_SIZE] << PAGES
    block, at = page >> PAGES, own[NEXT]
    if block >= len(slots):
        own[FAILED] = 1
        return own[POOL]
    own[NEXT] = at + 1 if at + 1 < shared[LIMIT] else 0
    if blocks[at] >= 0:
        slots[blocks[at]] = -1
    to, start = own[POOL] + at * size, place[START] + block * size
    got = _pread(np.int32(place[FILE]), np.uint64(to), np.uint64(size), start)
    own[READS] += 1
    within = (page - (block << PAGES)) * place[PAGE_SIZE]
    if got < within + place[PAGE_SIZE]:
        own[FAILED] = 1
        blocks[at] = -1
    else:
        blocks[at], slots[block] = block, at
    return to + within


@njit(cache=True, nogil=True, forceinline=True)
def fetch(place, shared, slots, blocks, own, page):  # type: ignore[no-untyped-def]
    """The address of a page, which holds until the next call. When it cannot be read, own[FAILED] is set, and anything
    may be there."""
    if place[BASE] != 0:
        return place[BASE] + page * place[PAGE_SIZE]
    block = page >> PAGES
    if own[KNOWN_TURN] == shared[TURN] and block < len(slots) and slots[block] >= 0:
        return own[POOL] + (np.int64(slots[block]) << PAGES | page - (block << PAGES)) * place[PAGE_SIZE]
    return _read(place, shared, slots, blocks, own, page)


class Pages:
    """A snapshot: the tree as the newest meta page has it. Nobody may write to the file while it is read."""

    def __init__(self, source: Path | NDArray[np.uint8], memory: int):
        """source: a file, or an array (if it is the mapping of a file, that file is read); memory: bytes of all
        pools."""
        self._content: NDArray[np.uint8] | None = None
        if isinstance(source, Path):
            self._file, self._start = os.open(source, os.O_RDONLY), 0
            self.nbytes = os.fstat(self._file).st_size
        else:
            self.nbytes = len(source)
            self._file, self._start = _file_of(source)
            if self._file < 0:
                self._content = source
        if self._file >= 0:
            weakref.finalize(self, os.close, self._file)
        self.meta, self.tree = self._newest()
        base = 0 if self._content is None else self._content.ctypes.data
        root = -1 if self.tree.root == NO_PAGE else self.tree.root
        self.place = np.array([self.page_size, root, base, self._file, self._start], np.int64)
        self._block = self.page_size << PAGES
        self._blocks = -(-self.nbytes // self._block)
        self._total = max(memory // self._block, FEWEST)
        self.shared = np.array([min(self._total, self._blocks), 0], np.int64)
        self._change = threading.Condition()
        self._turns = threading.BoundedSemaphore(self._total // FEWEST)  # more threads than that wait
        self._memory: dict[int, mmap.mmap] = {}  # of pools, by address
        self._count = 0
        self._all: list[Pool] = []
        self._idle: list[Pool] = []
        self._most = 0

    @property
    def page_size(self) -> int:
        return self.meta.free.pad

    def read(self, start: int, size: int) -> bytes:
        if self._content is not None:
            return self._content[start : start + size].tobytes()
        return os.pread(self._file, min(size, self.nbytes - start), self._start + start)

    def pieces(self, size: int) -> Iterator[bytes]:
        """All of it."""
        for start in range(0, self.nbytes, size):
            yield self.read(start, size)

    def array(self) -> NDArray[np.uint8] | None:
        """The array that is read where it is."""
        return self._content

    def take(self) -> Pool:
        """A pool for a thread, to be given back by `put`."""
        self._turns.acquire()
        with self._change:
            if self._idle:
                return self._idle.pop()
            own = np.zeros(6, np.int64)
            if self._content is not None:
                none = np.empty(0, np.int32)
                self._all.append((none, none, own))
                return self._all[-1]
            self._count += 1
            self._make_smaller(max(min(self._total // self._count, self._blocks), 1))
            limit = int(self.shared[LIMIT])
            memory = mmap.mmap(-1, limit * self._block + SLACK, flags=ANONYMOUS)
            with suppress(AttributeError, OSError):  # where there are no huge pages
                memory.madvise(mmap.MADV_NOHUGEPAGE)
            own[POOL], own[SIZE] = np.frombuffer(memory, np.uint8).ctypes.data, limit * self._block
            own[KNOWN_TURN] = self.shared[TURN]
            self._memory[int(own[POOL])] = memory
            self._all.append((np.full(self._blocks, -1, np.int32), np.full(limit, -1, np.int32), own))
            return self._all[-1]

    def _make_smaller(self, limit: int) -> None:
        """From now on pools have so many blocks at most. Those that are at work begin anew at their next page, those
        that are not are emptied here; nobody gets more before they have done so."""
        if limit >= self.shared[LIMIT]:
            return
        self._most = max(self._most, self.resident())
        self.shared[LIMIT] = limit
        self.shared[TURN] += 1
        for pool in self._idle:
            self._empty(pool)
        while any(own[KNOWN_TURN] != self.shared[TURN] for _, _, own in self._all):
            self._change.wait(0.001)

    def _empty(self, pool: Pool) -> None:
        slots, blocks, own = pool
        slots[:] = -1
        blocks[:] = -1
        own[NEXT], own[KNOWN_TURN] = 0, self.shared[TURN]
        self._memory[int(own[POOL])].madvise(DONTNEED)

    def put(self, pool: Pool) -> None:
        with self._change:
            if self._content is None and pool[2][KNOWN_TURN] != self.shared[TURN]:
                self._empty(pool)
            self._idle.append(pool)
            self._change.notify_all()
        self._turns.release()

    @property
    def tables(self) -> int:
        """Bytes that say which block is where: four for each block of the file and thread."""
        return sum(slots.nbytes + blocks.nbytes for slots, blocks, _ in self._all)

    @property
    def failed(self) -> bool:
        return any(own[FAILED] for _, _, own in self._all)

    @property
    def reads(self) -> int:
        """Blocks that were read."""
        return sum(int(own[READS]) for _, _, own in self._all)

    @property
    def most(self) -> int:
        """Bytes of the pools that were in use, at most."""
        return max(self._most, self.resident())

    def resident(self) -> int:
        """Bytes of the pools that are in use; an array that is read where it is counts as a whole."""
        if self._content is not None:
            return self.nbytes
        turn = self.shared[TURN]
        pools = [blocks for _, blocks, own in self._all if own[KNOWN_TURN] == turn]
        return sum(int(np.count_nonzero(blocks >= 0)) for blocks in pools) * self._block

    def _newest(self) -> tuple[Meta, Tree]:
        """The meta page that counts, and the tree of lists: the one database that the file has."""
        first = meta(self.read(0, 256).ljust(256, b"\0"))
        if first.magic != MAGIC or first.layout != LAYOUT:
            raise FormatError("the pages of a saved pbtree are none of LMDB's: compile the index again")
        size = first.free.pad
        second = meta(self.read(size, 256).ljust(256, b"\0"))
        newest = max(first, second, key=lambda m: m.transaction)
        if newest.main.root == NO_PAGE:
            raise FormatError("the pages of a saved pbtree hold no tree: compile the index again")
        page = self.read(newest.main.root * size, size)
        record = int.from_bytes(page[HEAD : HEAD + 2], sys.byteorder)
        data = record + NODE + int.from_bytes(page[record + 6 : record + 8], sys.byteorder)
        return newest, Tree(*TREE.unpack_from(page, data))


def mapped(path: Path) -> NDArray[np.uint8]:
    """The file as an array, which looks writable like any other; nothing is ever written."""
    with path.open("rb") as file:
        if sys.platform == "linux":
            flags, protection = mmap.MAP_PRIVATE | NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
            return np.frombuffer(mmap.mmap(file.fileno(), 0, flags=flags, prot=protection), np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)


def _file_of(content: NDArray[np.uint8]) -> tuple[int, int]:
    """The file, opened, of which the array is a mapping, and where it begins there; -1: it is none, or the file is no
    longer where it was."""
    base: Any = content
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if not isinstance(base, mmap.mmap):
        return -1, 0
    first, last = content.ctypes.data, content.ctypes.data + len(content)
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
