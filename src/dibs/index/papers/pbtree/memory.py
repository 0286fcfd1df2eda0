"""pbtree-memory: the PB+tree of Wang, Zhang and Kitsuregawa (2004), in memory: the paper's structure with its pointers,
one B+tree for all operators, and three lists. (index.pbtree has the same lists on disk, in the pages of LMDB.)

The idea: a B+tree over the constants of predicates. Each of its items points into three lists, one for >, one for <
and one for <>, whose order is that of the tree. An event's value is searched once; the item found knows the
subscriptions that ask for just this value, and where the lists are entered. What the value satisfies is then a run
of each list: of the > list all that is smaller, read towards the head of the list; of the < list all that is larger,
read towards its tail; of the <> list both. No list is ever searched from its beginning and nothing that is read is
false, so an event costs O(log n + L) for n constants and L satisfied predicates. Satisfied predicates are counted for
each subscription, and those whose count is full match.

Arrays:
    pages    int64  pages, 512          4 KB each, all kinds alike (and the same memory as int32, `small`)
    floor, ceiling, filed, need, verify   see index.pbtree_filing

A page:
    head     4 words: count, previous page, next page, last key (of a list page)
    keys     int64, ascending: 338, or 145 in a leaf page
    inner    int32 for each key: the child whose keys begin there
    leaf     5 int32 for each key, an item of the tree: where the four lists are entered; how many entries have the key
    list     int32 for each key: a row. A SidSet is a run of entries of one key, the highest row (the newest) first
    page 0   root, height, number of keys, pages used, chain of free pages, first and last page of each list

A key is  tree << 32 | cell;  trees 2a and 2a + 1 are those of attribute a. The lists EQUAL and LESS ascend, GREATER and
UNEQUAL descend (they have ~key for key), so every part of a list is read forward, from where it is entered to where the
attribute ends. The pointer of an item leads to the first page that ends at its key or behind it, in the order of the
list, or to the last page. No list page is empty but a list's only one, and two neighbours hold more than half a page.

Which entries a predicate has, and what tree 2a + 1 is for: see index.pbtree_filing.

To the counters, a node is a page visited, and a predicate evaluated is an entry met (or one tested on a clause).

Useful for: long runs of few attributes that would be read anyway; many updates.
Not useful for: wherever one selective predicate would rule a subscription out: every satisfied predicate of
every subscription is counted, which is half of all that are about the event's attributes.

Where it differs from the paper:
- One tree for all attributes, ordered by attribute first, instead of a tree for each: pages are full even where there
  are thousands of attributes with few predicates.
- Below the coding stage there is no > and no <: `> 5` is `>=` of the next cell. So >= and <= are not kept both in the
  SidSet of their item and in a list, but in the list alone, which is entered at the key itself.
- The SidSets of `=` are a fourth list with a pointer of its own, so that items have a fixed size.
- The tree's pages follow the usual rules (half full, by borrowing and joining). How lists shrink is left open by the
  paper, as is how predicates are combined, for which it names the ways of others; counting is the one that needs all
  satisfied predicates, which is what this index finds.
- All values of an event are searched together, step by step, so that the memory is asked for many pages at once.
- Building sorts all entries and fills pages to seven eighths; so does inserting more rows than are there.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.growing import grown
from dibs.index.papers.pbtree.filing import GONE, Filing, rows_of
from dibs.index.papers.pbtree.memory_kernels import load, pages_for, ranks, search
from dibs.index.papers.pbtree.memory_updates import (
    ADJUSTED,
    FREE,
    HEIGHT,
    KEYS,
    NARROW,
    NEXT,
    USED,
    WIDE,
    capacity,
    delete,
    insert,
)

WORDS = 512  # of a page: 4 KB


class PBTreeMemory(Filing):
    name: ClassVar[str] = "pbtree-memory"
    about: ClassVar[str] = "PB+tree in memory: one B+tree of constants with lists for >, < and <>, counted; for updates"
    takes: ClassVar[Takes] = Takes(updates=True)

    def __init__(self, clauses: Clauses, pages: NDArray[np.int64]):
        super().__init__(clauses)
        self.pages = pages
        self._rate = Rate()

    @classmethod
    def build(cls, clauses: Clauses, words: int = WORDS) -> PBTreeMemory:
        """words: of a page, at least 16."""
        tree = cls(clauses, np.empty((0, words), np.int64))
        tree._make_room()
        tree._make_pages(np.arange(len(clauses)))
        return tree

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> PBTreeMemory:
        tree = cls(clauses, arrays["pages"])
        tree._restore(arrays)
        return tree

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"pages": self.pages[: self.pages[0, USED]]} | self._small_arrays()

    @property
    def small(self) -> NDArray[np.int32]:
        return self.pages.view(np.int32)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays().values())

    def plan(self) -> dict[str, Any]:
        state = self.pages[0]
        free, page = 0, int(state[FREE])
        while page >= 0:
            free, page = free + 1, int(self.pages[page, NEXT])
        return {
            "keys": int(state[KEYS]),
            "entries": self._entries,
            "outside the limits": self._outside,
            "height": int(state[HEIGHT]) + 1,
            "pages": int(state[USED]) - free,
            "pointers adjusted": int(state[ADJUSTED]),
            "grounds": "one search for each attribute of an event, then every predicate that it satisfies is counted",
        }

    # ---- matching ----

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        c = self._growing.clauses
        clauses = c.offsets, c.attribute, c.lo, c.hi, c.span_lo, c.span_hi
        batch = events.offsets, events.attribute, events.lo
        own = self._filed, self._floor, self._ceiling, self._need[: self._counters], self._verify

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            space = self._space()
            search(self.pages, self.small, *own, *clauses, *batch, *space, last, *room, done)
            self._spaces.append(space)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)

    # ---- updates ----

    def insert(self, clauses: Clauses) -> None:
        rows = np.arange(self._rows, self._rows + len(clauses))
        self._rows += len(clauses)
        self._growing.add(clauses)
        self._make_room()
        if len(clauses) > self._alive:
            self._make_pages(np.concatenate([np.flatnonzero(self._need != GONE), rows]))
            return
        self._widen(clauses)
        operator, key, row = self._file(clauses, rows)
        order = np.argsort(key, kind="stable")  # neighbours one after the other: their pages are at hand
        operator, key, row = operator[order], key[order], row[order]
        done = insert(self.pages, self.small, operator, key, row, 0)
        while done < len(key):
            self.pages = grown(self.pages, len(self.pages) + 1)
            done = insert(self.pages, self.small, operator, key, row, done)
        if self._much_outside():
            self._make_pages(np.flatnonzero(self._need != GONE))

    def delete(self, rows: NDArray[np.int64]) -> None:
        rows = np.sort(rows)
        operator, key, row, _, _ = self._entries_of(rows_of(self._growing.clauses, rows), rows)
        order = np.argsort(key)
        delete(self.pages, self.small, operator[order], key[order], row[order])
        self._count(operator, key, -1)
        self._alive -= len(rows)
        self._set_need(rows, GONE, 0)

    def _make_pages(self, rows: NDArray[np.int64]) -> None:
        """All pages anew, from these rows."""
        c = rows_of(self._growing.clauses, rows)
        self._clear(c)
        operator, key, row = self._file(c, rows)
        distinct, uses, rank = ranks(key)
        words = self.pages.shape[1]
        lists = [pages_for(int(n), capacity(words, NARROW)) for n in self._filed.sum(axis=0)]
        tree = [pages_for(len(distinct), capacity(words, WIDE))]
        while tree[-1] > 1:
            tree.append(pages_for(tree[-1], capacity(words, NARROW)))
        self.pages = np.zeros((1 + sum(lists) + sum(tree), words), np.int64)
        self.pages[0, FREE] = -1
        load(self.pages, self.small, operator, row, rank, distinct, uses, np.array(lists), np.array(tree))
