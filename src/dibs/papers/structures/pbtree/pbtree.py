"""pbtree and pbtree-memory: the PB+tree of Wang, Zhang and Kitsuregawa (2004), one structure of pages of 4 KB, in a
file behind a pool of frames or all in memory.

The idea: a B+tree over the constants of predicates. Each of its items points into four lists, Equal, GreaterThan,
LessThan and Inequality, whose order is that of the tree. An event's value is searched once; the items found there know
where the lists are entered. What the value satisfies is then a run of each list: of Equal its own SidSet; of
GreaterThan all up to it, read towards the head of the list; of LessThan all from it on, read towards the tail; of
Inequality both ways, but its own. No list is ever searched from its beginning and nothing that is read is false, so an
event costs O(log n + L) pages for n constants and L satisfied predicates. These are counted for each subscription, and
those whose count is full match.

Arrays:
    pages    int32  pages, 1024    4 KB each; pbtree.layout has what is in them
    tree     int64  7              root, height (levels of inner pages), keys, pointers adjusted so far, pages used, the
                                   first of the pages that were given back, or -1, and how many these are
    floor, ceiling, filed, need, verify   see pbtree.filing, as for which entries a predicate has

Invariants:
- The tree has an item for each key that a list has, and one for the least key, the head of all lists. Its leaf pages
  are linked in order; its pages are half full, but for the root and the last of each level.
- Pages 0 to 3 are the first of the lists. A list's pages are linked in order; no other one is empty, and two neighbours
  hold more than half a page.
- A page of a list begins at its fence, and the pointer of an item leads to the last page whose fence is not above its
  key. So there the SidSet of the key ends, and what follows are higher keys.

The files: layout (pages, and the cache of frames), btree, lists, search are kernels; filing makes entries of clauses;
pages has the memory and the file, folder where that lies; sorting brings all entries in order in bounded memory.

Memory: `memory` bytes bound the pool with its tables, whatever the size of the file, and what building and updating
take. What is not bounded by it is shown apart: two bytes for each row, 40 for each attribute, and for each thread
five and a quarter for each row. The clauses are the segment's.

To the counters, a node is a page visited, and a predicate evaluated is an entry met (or one tested on a clause).

Useful for: indexes that are larger than the memory they may take; long runs of few attributes, which lie together;
many updates.
Not useful for: wherever one selective predicate would rule a subscription out: every satisfied predicate of every
subscription is counted, which is half of all that are about the event's attributes. On disk, for very many attributes
of few predicates: a value needs a page of the tree and one of each list, where a page for each attribute would do.

Where it differs from the paper:
- One tree for all attributes, ordered by attribute first, instead of a tree for each: pages are full even where there
  are thousands of attributes with few predicates.
- Below the coding stage there is no > and no <: `> 5` is `>=` of the next cell. So >= and <= are not kept both in the
  SidSet of their item and in a list, but in the list alone, which is entered at the key itself.
- The SidSets of `=` are a fourth list with a pointer of its own, so that items of the tree have a fixed size. A SidSet
  may go on over several pages of its list.
- All four pointers are set as the paper sets GTPointer and INEQPointer. LessThan is entered by the pointer of the item
  before: that page may end before the key, which costs a page where a SidSet begins a page, and it leaves one rule.
- Links lead both ways in every list, and there is a head but no tail: the end of a list is a page without a next one.
- The paper leaves open how lists shrink (neighbours that hold little are joined), how the tree is built (all entries
  are inserted in the order of their keys, and the last page of a list or level is filled to seven eighths before the
  next is begun; so where more rows are inserted than there are) and how predicates are combined (they are counted, the
  one way that needs all satisfied predicates, which is what this index finds).
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.errors import FormatError, StorageError
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.groups import ClauseArrays, Room
from dibs.index.options import Option
from dibs.jit.pools import Pool
from dibs.papers.structures.pbtree.filing import GONE, Entered, Filing, Sorting, in_order, rows_of
from dibs.papers.structures.pbtree.layout import ADJUSTED, FREED, HEIGHT, KEYS, LISTS, STATE, USED
from dibs.papers.structures.pbtree.lists import TreeEntries, begin, delete, insert
from dibs.papers.structures.pbtree.pages import Pooled, Resident
from dibs.papers.structures.pbtree.search import CounterNeeds, CountingSpace, Events, search, space_for
from dibs.tuning import tuned

PBTREE_PAGE = tuned("pbtree_page", 4096, 128, "bytes", "of a page: a larger list or tree has several")
PBTREE_ROWS_A_ROW_SEEN = tuned(
    "pbtree_rows_a_row_seen", 16, 1_000_000, "rows", "for one met; with fewer, all counters are set back"
)

MEMORY = 64 << 20  # bytes
LEAST_MEMORY = 1 << 20
A_PREDICATE = 128  # bytes, about, while its entries are made
AT_A_TIME = 64  # pages by which there is more room than is used, at least


class PBTreeMemory(Filing):
    name: ClassVar[str] = "pbtree-memory"
    about: ClassVar[str] = (
        "PB+tree in memory: one B+tree of constants with lists for =, >, < and <>, counted; for updates"
    )
    takes: ClassVar[Takes] = Takes(updates=True)
    options: ClassVar[tuple[Option, ...]] = (
        Option("page", "bytes of a page, in steps of 64", None, 128, 1 << 20, none="4,096"),
    )

    def __init__(self, clauses: Clauses, pages: Resident | Pooled):
        super().__init__(clauses)
        self._pages = pages
        self._tree = np.zeros(STATE, np.int64)
        self._unfinished = ""  # why an update came to nothing
        self._rate = Rate()
        self._lock = threading.Lock()
        self._visited = 0  # pages
        self._pool = Pool()

    @classmethod
    def build(cls, clauses: Clauses, *, page: int | None = None) -> PBTreeMemory:
        """page: bytes, a multiple of 64, at least 128."""
        tree = cls(clauses, Resident(_size(page)))
        tree._make_room()
        tree._make_pages(np.arange(len(clauses)))
        return tree

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> PBTreeMemory:
        content = _check_pages(arrays)
        tree = cls(clauses, Resident(content.shape[1], content))
        tree._take_over(arrays)
        return tree

    def _take_over(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._tree = arrays["tree"].copy()
        self._restore(arrays)

    def arrays(self) -> dict[str, NDArray[Any]]:
        self._check()
        own: dict[str, NDArray[Any]] = {"pages": self._pages.content(int(self._tree[USED])), "tree": self._tree}
        return own | self._small_arrays()

    @property
    def nbytes(self) -> int:
        return int(self._tree[USED]) * self._pages.size * 4 + self._fixed_bytes()

    def _fixed_bytes(self) -> int:
        """Bytes beside the pages."""
        own = [*self._small_arrays().values(), *(array for space in self._pool.idle for array in space[:3])]
        return sum(array.nbytes for array in own)

    def plan(self) -> dict[str, Any]:
        return {
            "keys": int(self._tree[KEYS]),
            "entries": self._entries,
            "outside the limits": self._outside,
            "height": int(self._tree[HEIGHT]) + 1,
            "pages": int(self._tree[USED] - self._tree[FREED]),
            "pages visited": self._visited,
            "pointers adjusted": int(self._tree[ADJUSTED]),
            "grounds": "one search for each attribute of an event, then every predicate that it satisfies is counted",
        }

    # ---- matching ----

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        self._check()
        clauses = ClauseArrays.of(self._growing.clauses)
        batch = Events(events.offsets, events.attribute, events.lo)
        own = CounterNeeds(self._filed, self._floor, self._ceiling, self._need[: self._counters], self._verify)

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            taken = self._pool.take(self._space)
            with self._pages.reading() as store:
                search(store, self._tree, own, clauses, batch, taken.space, Room(*room), last, done)
            self._pool.give(taken)

        found = in_parts(work, len(events), threads, rate=self._rate, sink=sink)
        with self._lock:
            self._visited += found.nodes
        return found

    def _space(self) -> CountingSpace:
        seen = self._counters // PBTREE_ROWS_A_ROW_SEEN.value + 1
        return space_for(self._need[: self._counters], seen)

    # ---- updates ----

    def insert(self, clauses: Clauses) -> None:
        self._check()
        rows = np.arange(self._rows, self._rows + len(clauses))
        self._rows += len(clauses)
        self._growing.add(clauses)
        self._pool.forget()
        self._make_room()
        if len(clauses) > self._alive:
            self._make_pages(np.concatenate([np.flatnonzero(self._need[: rows[0]] != GONE), rows]))
            return
        self._widen(clauses)
        self._insert(in_order(_entries(self._file(clauses, rows))))
        if self._much_outside():
            self._make_pages(np.flatnonzero(self._need[: self._rows] != GONE))

    def delete(self, rows: NDArray[np.int64]) -> None:
        self._check()
        rows = np.sort(rows)
        self._pool.forget()
        gone = self._entries_of(rows_of(self._growing.clauses, rows), rows)
        self._grow()  # pages of a saved index are not changed
        with self._changing(), self._pages.writing() as store:
            delete(store, self._tree, in_order(_entries(gone)))
        self._count(gone, -1)
        self._alive -= len(rows)
        self._set_need(rows, GONE, 0)

    def _insert(self, entries: TreeEntries) -> None:
        done = 0
        while done < len(entries.key):
            self._grow()
            with self._changing(), self._pages.writing() as store:
                done = insert(store, self._tree, entries, done, self._pages.room)

    def _grow(self) -> None:
        with self._changing():
            self._pages.grow(int(self._tree[USED] + self._tree[HEIGHT]) + AT_A_TIME)

    def _make_pages(self, rows: NDArray[Any]) -> None:
        """All pages again, from these rows."""
        self._clear(self._growing.clauses)
        self._pages.forget()
        self._tree[USED] = LISTS + 1
        self._grow()
        with self._changing(), self._pages.writing() as store:
            begin(store, self._tree)
        for entries in self._sort(rows):
            self._insert(entries)
        with self._changing():
            self._pages.trim(int(self._tree[USED]))

    def _sort(self, rows: NDArray[Any]) -> Iterable[TreeEntries]:
        """All entries of the rows in portions: see Sorting.sort."""
        return [in_order(_entries(self._file(rows_of(self._growing.clauses, rows), rows)))]

    def _check(self) -> None:
        if self._unfinished:
            raise StorageError(tempfile.gettempdir(), f"the index is incomplete, build it again: {self._unfinished}")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """What comes to nothing half way leaves an index that must not be used."""
        try:
            yield
        except StorageError as e:
            self._unfinished = str(e)
            raise


class PBTree(PBTreeMemory):
    name: ClassVar[str] = "pbtree"
    about: ClassVar[str] = (
        "PB+tree in pages on disk: one B+tree of constants with lists for =, >, < and <>, counted; "
        "for indexes larger than memory, and updates"
    )
    least_memory: ClassVar[int] = LEAST_MEMORY
    _pages: Pooled

    @classmethod
    def build(
        cls, clauses: Clauses, *, memory: int = MEMORY, folder: str | None = None, page: int | None = None
    ) -> PBTree:
        """memory: bytes, see above; folder: where the folder with the pages is made, if not where temporary files are;
        page: bytes, a multiple of 64, at least 128."""
        tree = cls(clauses, Pooled(_size(page), _enough(memory), folder))
        tree._make_room()
        tree._make_pages(np.arange(len(clauses), dtype=np.int32))
        return tree

    @classmethod
    def restore(
        cls, clauses: Clauses, arrays: dict[str, NDArray[Any]], memory: int = MEMORY, folder: str | None = None
    ) -> PBTree:
        content = _check_pages(arrays)
        tree = cls(clauses, Pooled(content.shape[1], _enough(memory), folder, content))
        tree._take_over(arrays)
        return tree

    @property
    def nbytes(self) -> int:
        """On disk and in memory."""
        return self._pages.nbytes + self._fixed_bytes()

    def plan(self) -> dict[str, Any]:
        pages = self._pages
        return super().plan() | {
            "bytes on disk": pages.nbytes,
            "memory": pages.memory,
            "memory not bounded": self._fixed_bytes(),
            "resident": pages.resident,
            "resident at most": pages.most,
            "blocks read": pages.reads,
        }

    def _make_pages(self, rows: NDArray[Any]) -> None:
        memory = self._pages.memory
        self._pages.use(memory // 3)  # the rest is for sorting
        try:
            super()._make_pages(rows)
        except StorageError:
            self._pages.close()
            raise
        self._pages.use(memory)

    def _sort(self, rows: NDArray[Any]) -> Iterable[TreeEntries]:
        """By way of files where there are too many for the memory that the pool leaves."""
        c, memory = self._growing.clauses, 2 * self._pages.memory
        width = (len(c.attribute) + len(c.span_lo)) / max(len(c), 1)
        step = max(int(memory // 4 / A_PREDICATE / max(width, 1)), 1)
        sample = rows
        if len(rows) > step:  # at random: what is regular may be out of step with the rows
            sample = rows[np.unique(np.random.default_rng(0).integers(len(rows), size=step))]
        keys = self._entries_of(rows_of(c, sample), sample.astype(np.int64)).key
        entries = len(keys) * len(rows) // max(len(sample), 1)
        with self._changing():
            sorting = Sorting(self._pages.own_folder(), memory, keys, entries)
            for start in range(0, len(rows), step):
                some = rows[start : start + step].astype(np.int64)
                sorting.add(_entries(self._file(rows_of(c, some), some)))
        return sorting.sort()


def _size(page: int | None) -> int:
    """Of a page, in int32."""
    return (PBTREE_PAGE.value if page is None else page) // 64 * 16


def _enough(memory: int) -> int:
    if memory < LEAST_MEMORY:
        raise ValueError(f"memory is {memory:,} bytes; a pbtree needs at least {LEAST_MEMORY:,}")
    return memory


def _check_pages(arrays: dict[str, NDArray[Any]]) -> NDArray[np.int32]:
    """The pages of a saved index."""
    content, tree = arrays["pages"], arrays.get("tree")
    if (
        tree is None
        or content.ndim != 2
        or content.dtype != np.int32
        or len(tree) != STATE
        or len(content) < tree[USED]
    ):
        raise FormatError("the pages of a saved pbtree are not those of this version: compile the index again")
    return content


def _entries(found: Entered) -> TreeEntries:
    return TreeEntries(found.operator, found.key, found.row)
