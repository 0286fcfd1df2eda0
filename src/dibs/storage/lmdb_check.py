"""Is a file of LMDB as LMDB wrote it? LMDB has no checksums: it follows a damaged page number to wherever that leads,
and makes a new database of an empty file. So the pages are checked here, where nothing is followed that was not checked
before, and LMDB is let at them afterwards.

What holds in a file of LMDB 0.9, and is checked:

    metas    magic, layout, own number, flags; transaction t is written to meta page t mod 2, so their transactions are
             neighbours and of the right parity. A new file has transaction 0 in both.
    pages    in the file, with their own number and the flags of their level, each reached once
    values   large ones have pages of their own, one after the other; more than they need, if they shrank in the
             transaction that put them
    nodes    one after the other without a gap from `upper` to the end of the page
    trees    as deep as they say, with as many pages and entries as they say; keys strictly ascending, and within what
             the branches above say; a branch has two children or more, a leaf an entry or more
    free     free pages are in range, in descending lists, not in use, and listed once; pages in use + free
             pages + 2 = last page + 1

A free page may lie behind the end of the file (a transaction took it and gave it back before it was written), and the
file may be longer than the last page, by part of a page even (a transaction that failed).
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dibs.index.papers.pbtree.lmdb_pages import (
    BIGDATA,
    BRANCH,
    HEAD,
    LAYOUT,
    LEAF,
    MAGIC,
    META,
    NO_PAGE,
    NODE,
    OVERFLOW,
    SUBDATA,
    Meta,
    Tree,
    count,
    flags,
    key_size,
    meta,
    node,
    u32,
    u48,
)
from dibs.storage.catalog_records import load64

LEVELS = 32  # LMDB's own limit
LARGEST_MAP = 1 << 46  # bytes: what a process can address
INTEGER_KEYS = 0x08  # flag of a tree; that of free pages has it

# Problems that the kernels find.
RANGE, TWICE, NUMBER, KIND, BOUNDS, LAYOUT_OF_NODES, ORDER, FEW, LARGE, FLAGS, ENTRIES = range(1, 12)
WORDS = {
    RANGE: "a page beyond the end is referred to",
    TWICE: "the page is referred to twice",
    NUMBER: "the page carries another number",
    KIND: "the page is of another kind than its place in the tree asks for",
    BOUNDS: "the bounds of the page's free space are impossible",
    LAYOUT_OF_NODES: "the page's entries overlap, or leave the page",
    ORDER: "keys are not in order",
    FEW: "the page has too few entries",
    LARGE: "a large value has fewer pages than it needs",
    FLAGS: "an entry has flags that no entry has",
    ENTRIES: "there are more entries than the tree says",
}


class Damage(Exception):
    """What is wrong; the caller knows the path and the advice."""


class Pages(NamedTuple):
    """The file, mapped: the same bytes three times."""

    u1: NDArray[np.uint8]
    u2: NDArray[np.uint16]
    u8: NDArray[np.uint64]
    size: int  # of a page

    @property
    def whole(self) -> int:
        """Pages that are in the file."""
        return len(self.u1) // self.size


def page_size(file: int) -> int:
    """The size of pages, as the first meta page says; it must be plausible."""
    head = os.pread(file, HEAD + 24 + 4, 0)
    size = int.from_bytes(head[HEAD + 24 :], "little")
    if len(head) < HEAD + 28 or size not in (4096, 8192, 16384, 32768):
        raise Damage("page 0: the size of pages is impossible" if len(head) >= HEAD + 28 else "the file is too short")
    return size


def metas(file: int) -> tuple[Meta, Meta]:
    """Both meta pages, checked, the current one first."""
    size = page_size(file)
    content = os.pread(file, 2 * size, 0)
    if len(content) < 2 * size:
        raise Damage(f"the file is too short: {len(content):,} bytes")
    found = []
    for place in (0, 1):
        page = content[place * size : (place + 1) * size]
        it = meta(page)
        number, kind = int.from_bytes(page[:8], "little"), int.from_bytes(page[10:12], "little")
        address = int.from_bytes(page[HEAD + 8 : HEAD + 16], "little")
        if (it.magic, it.layout, it.free.pad, number, kind, address) != (MAGIC, LAYOUT, size, place, META, 0):
            raise Damage(f"page {place}: this is no meta page of LMDB 0.9 with pages of {size:,} bytes")
        if (it.free.flags, it.main.flags, it.main.pad) != (INTEGER_KEYS, 0, 0):
            raise Damage(f"page {place}: the databases have other flags than they were made with")
        if it.map_size % size or not (it.last_page + 1) * size <= it.map_size <= LARGEST_MAP or it.last_page < 1:
            raise Damage(f"page {place}: the size of the map ({it.map_size:,} bytes) or the last page is impossible")
        for tree in (it.free, it.main):
            if (tree.root == NO_PAGE) != (tree.depth == 0) or tree.depth > LEVELS:
                raise Damage(f"page {place}: the depth of a tree is impossible")
            if tree.root != NO_PAGE and not 2 <= tree.root <= it.last_page:
                raise Damage(f"page {place}: a root is out of range")
        found.append(it)
    even, odd = found
    if even.transaction % 2 or abs(even.transaction - odd.transaction) != 1:
        if (even.transaction, odd.transaction) == (0, 0):
            raise Damage("nothing was ever written to it")
        raise Damage(f"pages 0 and 1: transactions {even.transaction} and {odd.transaction} do not follow each other")
    return (even, odd) if even.transaction > odd.transaction else (odd, even)


def mapped(path: Path | int, last_page: int, size: int) -> Pages:
    """The pages of the file up to the last one, as far as they are there."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if isinstance(path, Path) else path
    try:
        length = min(os.fstat(file).st_size // size, last_page + 1) * size
        # Populated: one call instead of a fault for every few pages.
        content = mmap.mmap(file, length, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0), mmap.PROT_READ)
    finally:
        if isinstance(path, Path):
            os.close(file)
    u1 = np.frombuffer(content, np.uint8)
    return Pages(u1, u1.view(np.uint16), u1.view(np.uint64), size)


def walked(pages: Pages, tree: Tree, marks: NDArray[np.uint8], name: str) -> NDArray[np.int64]:
    """Where the tree's entries begin in the file, in order. Each page that the tree uses is marked; all is checked."""
    if tree.flags & ~INTEGER_KEYS or tree.depth > LEVELS or (tree.root == NO_PAGE) != (tree.depth == 0):
        raise Damage(f"{name}: the description of the tree is impossible")
    # An entry takes 10 bytes or more: a wrong number must not ask for all memory.
    if tree.entries > len(pages.u1) // 10:
        raise Damage(f"{name}: the tree says that it has {tree.entries:,} entries, more than the file can hold")
    places = np.empty(tree.entries, np.int64)
    found = np.zeros(6, np.int64)
    if tree.root != NO_PAGE:
        if tree.root > len(marks):
            raise Damage(f"{name}: the root is out of range")
        integers = tree.flags & INTEGER_KEYS != 0
        _walk(pages.u1, pages.u2, pages.u8, pages.size, tree.root, tree.depth, integers, marks, places, found)
    problem, page, *numbers = found.tolist()
    if problem:
        raise Damage(f"{name}, page {page}: {WORDS[problem]}")
    if tuple(numbers) != (tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries):
        raise Damage(f"{name}: the tree has other numbers of pages or entries than it says")
    return places


def check_free(pages: Pages, it: Meta, marks: NDArray[np.uint8], lists: NDArray[np.int64]) -> int:
    """Checks the free pages, after all trees were walked. Returns how many there are."""
    found = np.zeros(2, np.int64)
    if not _mark_free(pages.u1, pages.u2, pages.size, lists, it.transaction, marks, found):
        raise Damage(f"free pages: page {found[1]} is in use, free twice or out of range, or a list is cut")
    used = int(np.count_nonzero(marks))
    if used != it.last_page + 1:
        raise Damage(f"{it.last_page + 1 - used:,} pages are neither in use nor free")
    return int(found[0])


@njit(cache=True, nogil=True, inline="always")
def data_size(u2, at):  # type: ignore[no-untyped-def]
    """The size of the data of the leaf's node that begins at byte `at`."""
    return u32(u2, at)


@njit(cache=True, nogil=True, inline="always")
def data_place(u1, u2, at, size):  # type: ignore[no-untyped-def]
    """Where the data of the leaf's node is."""
    data = at + NODE + key_size(u2, at)
    if np.int64(u2[(at + 4) >> 1]) & BIGDATA:
        return np.int64(load64(u1, data)) * size + HEAD
    return data


@njit(cache=True, nogil=True)
def _ascending(u1, a, a_size, b, b_size):  # type: ignore[no-untyped-def]
    """Key a < key b, as bytes."""
    n = min(a_size, b_size)
    i = 0
    while i + 8 <= n and load64(u1, a + i) == load64(u1, b + i):
        i += 8
    while i < n:
        if u1[a + i] != u1[b + i]:
            return u1[a + i] < u1[b + i]
        i += 1
    return a_size < b_size


@njit(cache=True, nogil=True)
def _page_problem(u1, u2, u8, size, page, is_leaf, marks, starts, ends, found):  # type: ignore[no-untyped-def]
    """Checks a page by itself, and marks it and the overflow pages of its entries; 0 or a problem."""
    whole = len(u1) // size
    if page < 2 or page >= whole or page >= len(marks):
        return RANGE
    if marks[page]:
        return TWICE
    marks[page] = 1
    at = page * size
    if np.int64(u8[at >> 3]) != page:
        return NUMBER
    if flags(u2, at) != (LEAF if is_leaf else BRANCH):
        return KIND
    lower, upper = np.int64(u2[(at + 12) >> 1]), np.int64(u2[(at + 14) >> 1])
    if lower < HEAD or lower > upper or upper > size or (lower | upper) & 1:
        return BOUNDS
    n = count(u2, at)
    if n < (1 if is_leaf else 2):
        return FEW
    # Nodes are without gap and overlap when no two begin or end at the same place and each ends where another begins
    # (one: at the end of the page). `starts` and `ends` say which page last had a node there.
    total = 0
    for i in range(n):
        offset = np.int64(u2[(at + HEAD + 2 * i) >> 1])
        if offset & 1 or offset < upper or offset + NODE > size or starts[offset >> 1] == page:
            return LAYOUT_OF_NODES
        starts[offset >> 1] = page
    for i in range(n):
        place = node(u2, at, i)
        length = NODE + key_size(u2, place)
        if is_leaf:
            kind = np.int64(u2[(place + 4) >> 1])
            if kind & ~(BIGDATA | SUBDATA) or kind == BIGDATA | SUBDATA:
                return FLAGS
            large = kind & BIGDATA != 0
            length += 8 if large else data_size(u2, place)
        length = (length + 1) & ~1
        end = place - at + length
        total += length
        if end > size or ends[end >> 1] == page or (end < size and starts[end >> 1] != page):
            return LAYOUT_OF_NODES
        ends[end >> 1] = page
        if is_leaf and large:
            first = np.int64(load64(u1, place + NODE + key_size(u2, place)))
            if first < 2 or first >= whole:
                return RANGE
            if np.int64(u8[(first * size) >> 3]) != first:
                return NUMBER
            if flags(u2, first * size) != OVERFLOW:
                return KIND
            pages = u32(u2, first * size + 12)
            if pages < (HEAD - 1 + data_size(u2, place)) // size + 1:
                return LARGE
            if first + pages > whole or first + pages > len(marks):
                return RANGE
            for k in range(first, first + pages):
                if marks[k]:
                    return TWICE
                marks[k] = 1
            found[4] += pages
    if total != size - upper:
        return LAYOUT_OF_NODES
    return 0


@njit(cache=True, nogil=True)
def _walk(u1, u2, u8, size, root, depth, integers, marks, places, found):  # type: ignore[no-untyped-def]
    """Fills `places`, and `found`: problem, page, branch pages, leaf pages, overflow pages, entries."""
    path, child = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    starts, ends = np.zeros(size // 2 + 1, np.int64), np.zeros(size // 2 + 1, np.int64)
    path[0] = root
    level = 0
    last = last_size = -1  # the key before
    bound = bound_size = -1  # the next key must not be less: the branch above the leaf says so
    entries = 0
    while level >= 0:
        page = path[level]
        at = page * size
        found[1] = page
        is_leaf = level == depth - 1
        if child[level] == 0:
            problem = _page_problem(u1, u2, u8, size, page, is_leaf, marks, starts, ends, found)
            if problem:
                found[0] = problem
                return
            found[3 if is_leaf else 2] += 1
        n = count(u2, at)
        if is_leaf:
            if entries + n > len(places):
                found[0] = ENTRIES
                return
            for i in range(n):
                place = node(u2, at, i)
                key, length = place + NODE, key_size(u2, place)
                if integers:
                    wrong = length != 8 or (last >= 0 and load64(u1, last) >= load64(u1, key))
                    wrong = wrong or (bound >= 0 and load64(u1, key) < load64(u1, bound))
                else:
                    wrong = length == 0 or (last >= 0 and not _ascending(u1, last, last_size, key, length))
                    wrong = wrong or (bound >= 0 and _ascending(u1, key, length, bound, bound_size))
                if wrong:
                    found[0] = ORDER
                    return
                bound = -1
                last, last_size = key, length
                places[entries] = place
                entries += 1
            level -= 1
            continue
        i = child[level]
        if i == n:
            level -= 1
            continue
        child[level] = i + 1
        place = node(u2, at, i)
        if i > 0:
            bound, bound_size = place + NODE, key_size(u2, place)
            if integers:
                wrong = bound_size != 8 or load64(u1, last) >= load64(u1, bound)
            else:
                wrong = not _ascending(u1, last, last_size, bound, bound_size)
            if wrong:
                found[0] = ORDER
                return
        level += 1
        path[level], child[level] = u48(u2, place), 0
    found[5] = entries


@njit(cache=True, nogil=True)
def _mark_free(u1, u2, size, lists, transaction, marks, found):  # type: ignore[no-untyped-def]
    """Marks the pages of the lists; False if one is marked already. `found`: how many, and the page that is wrong."""
    for i in range(len(lists)):
        at, length = data_place(u1, u2, lists[i], size), data_size(u2, lists[i])
        n = np.int64(load64(u1, at)) if length >= 8 else -1
        written = np.int64(load64(u1, lists[i] + NODE))
        if n < 0 or n > length // 8 - 1 or written < 1 or written > transaction:
            return False
        before = np.int64(len(marks))  # a list is descending
        for k in range(1, n + 1):
            page = np.int64(load64(u1, at + 8 * k))
            found[1] = page
            if page < 2 or page >= before or marks[page]:
                return False
            before = page
            marks[page] = 2
        found[0] += n
    return True
