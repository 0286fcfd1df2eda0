"""pbtree: the PB+tree of Wang, Zhang and Kitsuregawa (2004), in memory: one B+tree for all operators, and three lists.

The idea: a B+tree over the constants of predicates. Each of its items points into three lists, one for >, one for <
and one for <>, whose order is that of the tree. An event's value is searched once; the item found knows the
subscriptions that ask for just this value, and where the lists are entered. What the value satisfies is then a run
of each list: of the > list all that is smaller, read towards the head of the list; of the < list all that is larger,
read towards its tail; of the <> list both. No list is ever searched from its beginning and nothing that is read is
false, so an event costs O(log n + L) for n constants and L satisfied predicates. Satisfied predicates are counted for
each subscription, and those whose count is full match.

Arrays:
    pages    int64  pages, 512          4 KB each, all kinds alike (and the same memory as int32, `small`)
    floor, ceiling  int32  attributes   the limits of index.operators by which predicates were filed
    filed    int32  2 * attributes, 4   how many entries each tree has in each list
    need     uint8  rows                how many entries an event must meet; 127: the row was deleted
    verify   uint8  rows                whether it is then tested on the clause itself

A page is what a durable form keeps as a page, with the same order and the same search:
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

    = <= >= <>      one entry
    BETWEEN         two: >= lo and <= hi
    IN, NOT IN ...  `=` for a single cell, two for each range. The ranges of a predicate are disjoint, so a value meets
                    one of >= lo and <= hi of every range, and both only of the range that it is in: the predicate holds
                    when it meets (ranges + 1) entries, and it never meets more. A range that begins at the floor or
                    ends at the ceiling of its attribute needs only its other half.

Tree 2a + 1 is for what does not lie within the limits of attribute a because it came after they were taken; nothing
there relies on them. When a quarter of all entries is such, all pages are made anew by limits that fit.

To the counters, a node is a page visited, and a predicate evaluated is an entry met (or one tested on a clause).

Useful for: long runs of few attributes that would be read anyway; many updates; indexes that live in pages on a disk.
Not useful for: in memory, wherever one selective predicate would rule a subscription out: every satisfied predicate of
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

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses, runs
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.counters import AT_ONCE
from dibs.index.growing import GrowingClauses, grown
from dibs.index.operators import limits, operators
from dibs.index.pbtree_kernels import GONE, entries, load, pages_for, ranks, search
from dibs.index.pbtree_updates import (
    ADJUSTED,
    FREE,
    HEIGHT,
    KEYS,
    LISTS,
    NARROW,
    NEXT,
    USED,
    WIDE,
    capacity,
    delete,
    insert,
)

WORDS = 512  # of a page: 4 KB
FEW = 64  # entries outside the limits that are never worth making all pages anew


class PBTree:
    name: ClassVar[str] = "pbtree"
    about: ClassVar[str] = (
        "PB+tree: one B+tree of constants with lists for >, < and <>, counted; for updates, and for pages"
    )
    takes: ClassVar[Takes] = Takes(updates=True)

    ARRAYS = ("pages", "floor", "ceiling", "filed", "need", "verify")

    def __init__(self, clauses: Clauses, pages: NDArray[np.int64]):
        self._growing = GrowingClauses(clauses)
        self.pages = pages
        self._floor = self._ceiling = np.empty(0, np.int32)
        self._filed = np.empty((0, LISTS), np.int32)
        self._need = self._verify = np.empty(0, np.uint8)
        self._entries = self._outside = self._counters = 0
        self._rows, self._alive = len(clauses), 0  # rows that there ever were, and those that are there
        self._rate = Rate()
        self._spaces: list[tuple[NDArray[np.uint8], NDArray[np.int32]]] = []  # work space of past calls, clean

    @classmethod
    def build(cls, clauses: Clauses, words: int = WORDS) -> PBTree:
        """words: of a page, at least 16."""
        tree = cls(clauses, np.empty((0, words), np.int64))
        tree._make_room()
        tree._make_pages(np.arange(len(clauses)))
        return tree

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> PBTree:
        tree = cls(clauses, arrays["pages"])
        tree._floor, tree._ceiling, tree._filed, tree._need, tree._verify = (arrays[name] for name in cls.ARRAYS[1:])
        tree._rows, tree._alive = len(tree._need), int(np.count_nonzero(tree._need != GONE))
        tree._make_room()
        tree._entries, tree._outside = int(tree._filed.sum()), int(tree._filed[1::2].sum())
        return tree

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "pages": self.pages[: self.pages[0, USED]],
            "floor": self._floor,
            "ceiling": self._ceiling,
            "filed": self._filed,
            "need": self._need[: self._rows],
            "verify": self._verify[: self._rows],
        }

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

        need = self._need[: self._counters]
        own = self._filed, self._floor, self._ceiling, need, self._verify

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            try:
                space = self._spaces.pop()
            except IndexError:  # others have taken all
                space = need.copy(), np.empty(len(need) + 1, np.int32)  # hits are written one place ahead
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
        if 4 * self._outside > self._entries + FEW:
            self._make_pages(np.flatnonzero(self._need != GONE))

    def delete(self, rows: NDArray[np.int64]) -> None:
        rows = np.sort(rows)
        operator, key, row, _, _ = self._entries_of(_rows_of(self._growing.clauses, rows), rows)
        order = np.argsort(key)
        delete(self.pages, self.small, operator[order], key[order], row[order])
        self._count(operator, key, -1)
        self._alive -= len(rows)
        self._set_need(rows, GONE, 0)

    def _file(self, clauses: Clauses, rows: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """Operator, key and row of the entries of rows that are to be inserted, which are counted as filed."""
        operator, key, row, need, verify = self._entries_of(clauses, rows)
        self._count(operator, key, 1)
        self._alive += len(rows)
        self._set_need(rows, need, verify)
        return operator, key, row

    def _entries_of(self, clauses: Clauses, rows: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """Operator, key and row of the entries of the clauses, which are numbered `rows`; how many of them each needs,
        and which are to be verified."""
        c = clauses
        code = operators(c, self._floor, self._ceiling)
        columns = c.offsets, c.attribute, c.lo, c.hi, c.span_lo, c.span_hi
        found: tuple[NDArray[Any], ...] = entries(*columns, code, self._floor, self._ceiling, rows)
        return found

    def _count(self, operator: NDArray[np.uint8], key: NDArray[np.int64], change: int) -> None:
        np.add.at(self._filed.reshape(-1), (key >> 32) * LISTS + operator, change)
        self._entries += change * len(key)
        self._outside += change * int(np.count_nonzero(key >> 32 & 1))

    def _make_room(self) -> None:
        """Needs for all rows, and up to a multiple of 64 as of rows that were deleted."""
        size = -(-self._rows // AT_ONCE) * AT_ONCE
        self._need, self._verify = grown(self._need, size, GONE), grown(self._verify, size)
        if size > self._counters:
            self._counters, self._spaces = size, []

    def _set_need(self, rows: NDArray[np.int64], need: Any, verify: Any) -> None:
        self._need[rows], self._verify[rows] = need, verify
        for left, _ in self._spaces:
            left[rows] = need

    def _widen(self, clauses: Clauses) -> None:
        """Room for more attributes; those that had no limits take those of the clauses."""
        if clauses.attributes > len(self._floor):
            self._floor = grown(self._floor, clauses.attributes, 2**31 - 1)
            self._ceiling = grown(self._ceiling, clauses.attributes, -1)
            self._filed = grown(self._filed, 2 * len(self._floor))
        if (self._ceiling[clauses.attribute] >= 0).all():
            return
        own, attribute = np.unique(clauses.attribute, return_inverse=True)
        floor, ceiling = limits(replace(clauses, attribute=attribute.astype(np.int32), attributes=len(own)))
        free = self._ceiling[own] < 0
        self._floor[own[free]], self._ceiling[own[free]] = floor[free], ceiling[free]

    def _make_pages(self, rows: NDArray[np.int64]) -> None:
        """All pages anew, from these rows."""
        c = _rows_of(self._growing.clauses, rows)
        self._floor, self._ceiling = limits(c)
        self._filed = np.zeros((2 * c.attributes, LISTS), np.int32)
        self._entries = self._outside = self._alive = 0
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


def _rows_of(c: Clauses, rows: NDArray[np.int64]) -> Clauses:
    """The clauses of some rows, in this order; they share the spans of all."""
    if len(rows) == len(c):
        return c
    sizes = c.offsets[rows + 1] - c.offsets[rows]
    predicates = runs(c.offsets[rows], sizes)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    attribute, lo, hi = c.attribute[predicates], c.lo[predicates], c.hi[predicates]
    return replace(c, offsets=offsets, attribute=attribute, lo=lo, hi=hi, conjunctions=len(rows))
