"""pbtree: the PB+tree of Wang, Zhang and Kitsuregawa (2004) on secondary storage: in the pages of LMDB's B+tree.

The idea: the predicates of an attribute are kept in the order of their constants, in a list for each operator: Equal,
GreaterThan, LessThan and Inequality. What a value satisfies is then a run of each list: of Equal the entries of this
constant; of GreaterThan all up to it; of LessThan all from it on; of Inequality all but its own. So an event costs
O(log n + L) pages and entries, for n entries and L satisfied predicates; these are counted for each subscription, and
those whose count is full match. (index.pbtree_memory has the same with the paper's own pages and pointers, in memory.)

In LMDB's pages:
    key      uint32   tree * 4 + list; trees 2a and 2a + 1 are those of attribute a (see index.pbtree_filing)
    entries  int64    cell << 32 | row: the duplicates of the key, of a fixed size and in order. A SidSet is a run of
                      entries of one cell
A short list is a page within the page of its key; one of more than about 250 entries is a B+tree of its own, whose leaf
pages hold nothing but 510 entries each. So an entry takes 8 bytes, however many constants there are (a key for each
constant would take 24), and a run is read from full pages. LMDB writes the pages (index.pbtree_environment); the search
is a kernel that reads them in the file, as the last commit left them (index.pbtree_kernels).

Arrays:
    pages    uint8    the file of LMDB, whole
    floor, ceiling, filed, need, verify   see index.pbtree_filing

Memory: `memory` bytes bound what is kept of the pages, whatever the size of the file (index.pbtree_pages), and
what building and updating take: changes are committed in portions, and entries are sorted by way of files where they
are too many (index.pbtree_sorting). What is not bounded by it is shown apart: two bytes for each row, 32 for each
attribute, and for each thread five for each row and one for each 4 KB of the file. The clauses are the segment's.

To the counters, a node is a page visited, and a predicate evaluated is an entry met (or one tested on a clause).

Useful for: indexes that are larger than the memory they may take; many updates.
Not useful for: as the one in memory, wherever one selective predicate would rule a subscription out: every satisfied
predicate of every subscription is counted, which is half of all that are about the event's attributes.

Where it differs from the paper (besides what index.pbtree_memory says of >=, <= and = ):
- Lists are found by keys, not by pointers from the items of one tree: LMDB has no pointers to adjust, which is what
  insertion costs O(n) for in the paper, and a constant is searched once for each list that its attribute has.
- LMDB's leaf pages are not linked: the way from the root is kept while a run is read, so that the next page is found
  from the page above it.
"""

from __future__ import annotations

import tempfile
import threading
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.errors import StorageError
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.papers.pbtree.environment import Environment
from dibs.index.papers.pbtree.filing import CELLS, GONE, LISTS, Filing, rows_of
from dibs.index.papers.pbtree.kernels import depth_of, search
from dibs.index.papers.pbtree.pages import Pages, mapped
from dibs.index.papers.pbtree.sorting import Sorting, in_order

MEMORY = 64 << 20  # bytes
LEAST_MEMORY = 1 << 20
A_PREDICATE = 128  # bytes, about, while its entries are made


class PBTree(Filing):
    name: ClassVar[str] = "pbtree"
    about: ClassVar[str] = (
        "PB+tree in LMDB's pages on disk: lists in the order of constants for =, >, < and <>, counted; "
        "for indexes larger than memory, and updates"
    )
    takes: ClassVar[Takes] = Takes(updates=True)
    least_memory: ClassVar[int] = LEAST_MEMORY

    def __init__(self, clauses: Clauses, memory: int, folder: str | None):
        if memory < LEAST_MEMORY:
            raise ValueError(f"memory is {memory:,} bytes; a pbtree needs at least {LEAST_MEMORY:,}")
        super().__init__(clauses)
        self._memory, self._folder = memory, folder
        self._environment: Environment | None = None  # None: the pages are those that it was restored from
        self._pages: Pages
        self._unfinished = ""  # why an update came to nothing
        self._rate = Rate()
        self._lock = threading.Lock()
        self._visited = self._reads = self._most = 0  # pages; the last two of pages that were replaced

    @classmethod
    def build(cls, clauses: Clauses, memory: int = MEMORY, folder: str | None = None) -> PBTree:
        """memory: bytes, see above; folder: where the folder with the pages is made, if not where temporary files
        are."""
        tree = cls(clauses, memory, folder)
        tree._make_room()
        tree._make_pages(np.arange(len(clauses)))
        return tree

    @classmethod
    def restore(
        cls, clauses: Clauses, arrays: dict[str, NDArray[Any]], memory: int = MEMORY, folder: str | None = None
    ) -> PBTree:
        tree = cls(clauses, memory, folder)
        tree._restore(arrays)
        tree._pages = Pages(arrays["pages"], memory)
        return tree

    def arrays(self) -> dict[str, NDArray[Any]]:
        self._check()
        return {"pages": self._content()} | self._small_arrays()

    def _content(self) -> NDArray[np.uint8]:
        """The pages as a file that nobody will change. (LMDB's compacting copy does not: it crashes on entries of a
        fixed size.)"""
        if (content := self._pages.array()) is not None:
            return content
        other = Environment(self._memory, self._folder, self._pages)
        content = mapped(other.path)
        other.close()  # what is mapped stays
        return content

    @property
    def nbytes(self) -> int:
        """On disk and in memory."""
        return self._pages.nbytes + self._fixed()

    def _fixed(self) -> int:
        small = sum(array.nbytes for array in self._small_arrays().values())
        return small + sum(left.nbytes + hits.nbytes for left, hits in self._spaces) + self._pages.tables

    def plan(self) -> dict[str, Any]:
        pages = self._pages
        return {
            "keys": int(np.count_nonzero(self._filed)),
            "entries": self._entries,
            "outside the limits": self._outside,
            "height": self._height(),
            "pages": pages.nbytes // pages.page_size,
            "bytes on disk": pages.nbytes,
            "memory": self._memory,
            "memory not bounded": self._fixed(),
            "resident": pages.resident(),
            "resident at most": max(self._most, pages.most),
            "pages visited": self._visited,
            "blocks read": self._reads + pages.reads,
            "grounds": "a search in each list of an event's attributes, then every satisfied predicate is counted",
        }

    def _height(self) -> int:
        """Levels from the root to the entries of the longest list."""
        if not self._entries:
            return 0
        pool = self._pages.take()
        try:
            longest = int(np.argmax(self._filed))
            below = depth_of(longest, self._pages.place, self._pages.shared, *pool)
        finally:
            self._pages.put(pool)
        return self._pages.tree.depth + int(below)

    # ---- matching ----

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        self._check()
        c, pages = self._growing.clauses, self._pages
        clauses = c.offsets, c.attribute, c.lo, c.hi, c.span_lo, c.span_hi
        batch = events.offsets, events.attribute, events.lo
        own = self._filed, self._floor, self._ceiling, self._need[: self._counters], self._verify

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            space, pool = self._space(), pages.take()
            try:
                read_from = pages.place, pages.shared, *pool
                search(read_from, *own, clauses, batch, *space, last, room, done)
            finally:
                pages.put(pool)
            self._spaces.append(space)
            if pages.failed:
                raise self._error("a page cannot be read: is the disk all right? Build the index again")

        found = in_parts(work, len(events), threads, rate=self._rate, sink=sink)
        with self._lock:
            self._visited += found.nodes
        return found

    # ---- updates ----

    def insert(self, clauses: Clauses) -> None:
        self._check()
        rows = np.arange(self._rows, self._rows + len(clauses))
        self._rows += len(clauses)
        self._growing.add(clauses)
        self._make_room()
        if len(clauses) > self._alive:
            self._make_pages(np.concatenate([np.flatnonzero(self._need[: rows[0]] != GONE), rows]))
            return
        self._widen(clauses)
        self._change("put", *in_order(*_filed_as(*self._file(clauses, rows))))
        if self._much_outside():
            self._make_pages(np.flatnonzero(self._need[: self._rows] != GONE))

    def delete(self, rows: NDArray[np.int64]) -> None:
        self._check()
        rows = np.sort(rows)
        operator, key, row, _, _ = self._entries_of(rows_of(self._growing.clauses, rows), rows)
        self._change("delete", *in_order(*_filed_as(operator, key, row)))
        self._count(operator, key, -1)
        self._alive -= len(rows)
        self._set_need(rows, GONE, 0)

    def _check(self) -> None:
        if self._unfinished:
            raise self._error(f"the index is incomplete, build it again: {self._unfinished}")

    def _error(self, message: str) -> StorageError:
        return StorageError(self._folder or tempfile.gettempdir(), message)

    def _change(self, action: str, lists: NDArray[np.uint32], values: NDArray[np.int64]) -> None:
        if not len(lists):
            return
        try:
            if self._environment is None:
                self._environment = Environment(self._memory, self._folder, self._pages)
            getattr(self._environment, action)(lists, values)
        except StorageError as e:
            self._unfinished = str(e)
            raise
        self._show(self._environment)

    def _show(self, environment: Environment) -> None:
        """From now on the pages are those of the last commit."""
        if hasattr(self, "_pages"):
            self._reads += self._pages.reads
            self._most = max(self._most, self._pages.most)
        self._pages = Pages(environment.path, self._memory)

    def _make_pages(self, rows: NDArray[np.int64]) -> None:
        """All pages anew, from these rows."""
        c = self._growing.clauses
        self._clear(c)
        width = (len(c.attribute) + len(c.span_lo)) / max(len(c), 1)
        step = max(int(self._memory // 4 / A_PREDICATE / max(width, 1)), 1)
        sample = rows  # at random: what is regular may be out of step with the rows
        if len(rows) > step:
            sample = np.sort(np.random.default_rng(0).choice(rows, step, replace=False))
        operator, key, row, _, _ = self._entries_of(rows_of(c, sample), sample)
        entries = len(key) * len(rows) // max(len(sample), 1)
        environment = Environment(self._memory, self._folder)
        try:
            sorting = Sorting(environment, self._memory, _filed_as(operator, key, row), entries)
            for start in range(0, len(rows), step):
                some = rows[start : start + step]
                sorting.add(*_filed_as(*self._file(rows_of(c, some), some)))
            for lists, values, behind in sorting.sorted():
                environment.append(lists, values) if behind else environment.put(lists, values)
        except StorageError as e:
            self._unfinished = str(e)
            environment.close()
            raise
        self._environment = environment
        self._show(environment)


def _filed_as(
    operator: NDArray[np.uint8], key: NDArray[np.int64], row: NDArray[np.int32]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Entries as LMDB has them: lists and values."""
    return ((key >> 32) * LISTS + operator).astype(np.uint32), (key & CELLS) << 32 | row
