"""psthash: subscriptions in a hash table of two-dimensional predicate spaces, made by the PS-Trees of two attributes.

The idea (Ji and Jacobsen 2018, section 6): the two least likely predicates of a subscription are its access predicates.
Each covers some spaces of its PS-Tree, and each pair of spaces, one of either, is a cell: a key of a hash table with
the list of its subscriptions. An event finds the space of each of its values and looks up all pairs of them; a
candidate satisfies both access predicates, so that there are few of them where one predicate leaves many.

Arrays: those of index.pstree_rows and index.pstree_forest (only access predicates are in the trees), and
    dims    uint8   rows, with spare room: by how many predicates a row is found
    slots   int64   (a power of 2, 2): key and value. The key is leaf << 32 | leaf, in the order of their attributes,
                    or EMPTY; the value size << 32 | place of the list, where a single code stands for its list
    pool    int32   (entries, 1), free_pool int64: a pool of index.chunks. The list of a cell is its room and its codes
    cover   int32   (leaves, 8): rows that are found by several predicates of which one covers the space: a list in
                    `pool`, with the columns AT, SIZE, ROOM of a leaf. It is what a partition copies
    table   int64   see index.psthash_kernels
With more than two dimensions the beginning of a cell is a key too (with the bit PREFIX), whose value is the number of
cells that go on from it and a number of its own, which takes the place of the first leaf in longer keys (with the bit
LONG). So an event goes on only from beginnings that are there.

Subscriptions that are found by one predicate are in the lists of its spaces as in pstree: those of one predicate only,
and those whose predicates are so wide that they would be in more than MOST_CELLS cells. Nodes visited are inner nodes
and leaves of the trees, and look-ups in the table.

Useful for: many subscriptions over few attributes, with equality or narrow ranges among their predicates.
Not useful for: wide predicates over domains of many constants: the number of cells is the product of the numbers of
spaces, in memory and time of insertion; events of very many attributes (all pairs are looked up).

Where it differs from the paper: small subscriptions and events (fewer predicates or values than dimensions) are treated
as in pstree, which is the method of PSTBloom where no other predicate is left to ask for, and with three dimensions
and more by cells of fewer dimensions; the bound on cells; the list of each space's rows, by which a partition finds the
cells to copy (the paper does not say how).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, Takes, in_parts
from dibs.index.chunks import USED, empty_pool, with_room
from dibs.index.growing import grown
from dibs.index.psthash_kernels import (
    DIMENSIONS,
    EMPTY,
    KEYS,
    MOST_DIMENSIONS,
    OK,
    TABLE,
    TABLE_FULL,
    add_rows,
    dimensions_of,
    match_hashed,
    merge_hashed,
    partition_hashed,
    rehash,
    remove_rows,
)
from dibs.index.psthash_kernels import MOST_CELLS as CELLS
from dibs.index.pstree import words
from dibs.index.pstree_forest import Forest
from dibs.index.pstree_kernels import LEAVES, detach
from dibs.index.pstree_rows import Rows

# Of a subscription, when it comes. At 1M dense subscriptions 1,024 takes a quarter off the candidates, but no time, for
# three times the memory and four times the time to build: a list whose entries carry a predicate is read so fast.
MOST_CELLS = 256


class PSTHash:
    name: ClassVar[str] = "psthash"
    about: ClassVar[str] = "PSTHash: a hash table of two-dimensional predicate spaces; for few, crowded attributes"
    takes: ClassVar[Takes] = Takes(updates=True)

    OWN = ("dims", "slots", "pool", "free_pool", "cover", "table")

    def __init__(self, rows: Rows, forest: Forest, own: dict[str, NDArray[Any]]):
        self.rows, self.forest = rows, forest
        self._dims, self._slots, self._pool, self._free_pool, self._cover, self._table = (own[n] for n in self.OWN)
        self._rate = Rate()

    @classmethod
    def build(cls, clauses: Clauses, dimensions: int = 2, cells: int = MOST_CELLS) -> PSTHash:
        """dimensions: access predicates of a subscription; cells: in how many it may be."""
        if not 1 <= dimensions <= MOST_DIMENSIONS:
            raise ValueError(f"dimensions must be 1 to {MOST_DIMENSIONS}, not {dimensions}")
        table = np.zeros(TABLE, np.int64)
        table[DIMENSIONS], table[CELLS] = dimensions, cells
        own: dict[str, NDArray[Any]] = {
            "dims": np.zeros(0, np.uint8),
            "slots": _empty_table(16),
            "cover": np.zeros((0, 8), np.int32),
            "table": table,
        }
        own["pool"], own["free_pool"] = empty_pool(1)
        index = cls(Rows.none(), Forest.empty(), own)
        index.insert(clauses)
        return index

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> PSTHash:
        return cls(Rows(*(arrays[name] for name in Rows.ARRAYS)), Forest(arrays), arrays)

    def arrays(self) -> dict[str, NDArray[Any]]:
        own = {
            "dims": self._dims[: len(self.rows)],
            "slots": self._slots,
            "pool": self._pool[: int(self._free_pool[USED])],
            "free_pool": self._free_pool,
            "cover": self._cover[: int(self.forest.state[LEAVES])],
            "table": self._table,
        }
        return self.rows.arrays() | self.forest.arrays() | own

    @property
    def nbytes(self) -> int:
        own = (self._dims, self._slots, self._pool, self._free_pool, self._cover, self._table)
        return self.rows.nbytes + self.forest.nbytes + sum(a.nbytes for a in own)

    def plan(self) -> dict[str, Any]:
        dims = np.bincount(self._dims[: len(self.rows)], minlength=2)
        return self.forest.plan() | {
            "cells": int(self._table[KEYS]),
            "slots": len(self._slots),
            "by dimensions": {k: int(n) for k, n in enumerate(dims) if n},
            "grounds": f"each subscription is in all cells of its {self._table[DIMENSIONS]} least likely predicates",
        }

    # ---- updates ----

    def insert(self, clauses: Clauses) -> None:
        rows, forest, most = self.rows, self.forest, int(self._table[DIMENSIONS])
        rank = forest.ranks(clauses, len(rows) + len(clauses))
        which = rows.by_access(rows.add(clauses, rank))
        self._dims = grown(self._dims, len(rows))
        self._partition(*rows.boundaries(which, most))
        forest.cover(rows, rows.positions(which, 0, most)[0], 1)
        own = rows.offsets, rows.predicate, rows.span
        self._dims[which], cells = dimensions_of(which, most, self._table[CELLS], *own, *forest.links())
        if cells > len(self._slots):  # at least half of the cells are new, as a guess
            self._enlarge(1 << (int(self._table[KEYS]) + int(cells) // 2).bit_length())
        alone, others = self._by_dimensions(which)
        forest.attach(rows, rows.offsets[alone], words(alone, *own))
        for k in range(2, most + 1):
            some = others[self._dims[others] == k]
            predicates, owner = rows.positions(some, 0, k)
            numbers = some[owner].astype(np.int32).reshape(-1, 1)
            self._pool = forest.listed(rows, predicates, numbers, self._cover, self._pool, self._free_pool)
        at, status = add_rows(others, 0, self._dims, *own, *forest.links(), *self._cells())
        while at < len(others):
            self._make_room(status)
            at, status = add_rows(others, at, self._dims, *own, *forest.links(), *self._cells())

    def delete(self, rows: NDArray[np.int64]) -> None:
        known, forest, most = self.rows, self.forest, int(self._table[DIMENSIONS])
        own = known.offsets, known.predicate, known.span
        alone, others = self._by_dimensions(rows)
        forest.detach(known, known.offsets[alone], words(alone, *own)[:, 0].copy())
        remove_rows(others, self._dims, *own, *forest.links(), *self._cells())
        for k in range(2, most + 1):
            some = others[self._dims[others] == k]
            predicates, owner = known.positions(some, 0, k)
            lists = self._cover, self._pool, self._free_pool
            detach(predicates, some[owner].astype(np.int32), *lists, *own[1:], *forest.links())
        forest.cover(known, known.positions(rows, 0, most)[0], -1)
        keys, counts = known.boundaries(rows, most)
        merge_hashed(keys, counts, self._dims, *own, self._cover, *self._cells(), *forest.trees())
        known.mark_deleted(rows)

    def _by_dimensions(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows that are found by one predicate, and those by several."""
        alone = self._dims[rows] == 1
        return rows[alone], rows[~alone]

    def _partition(self, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        forest, rows = self.forest, self.rows
        forest.expect(len(keys))
        at = 0
        while True:
            self._cover = grown(self._cover, len(forest.leaf))
            own = rows.offsets, rows.predicate, rows.span, self._cover, *self._cells()
            at, status = partition_hashed(keys, counts, at, self._dims, *own, *forest.trees())
            if at == len(keys):
                return
            if status == OK:
                forest.make_room()
            else:
                self._make_room(status)

    def _cells(self) -> tuple[NDArray[Any], ...]:
        return self._slots, self._table, self._pool, self._free_pool

    def _make_room(self, status: int) -> None:
        if status != TABLE_FULL:
            self._pool = with_room(self._pool, self._free_pool)
            return
        used = int(np.count_nonzero(self._slots[:, 1] >> 32))
        self._enlarge(2 * len(self._slots) if 4 * used > len(self._slots) else len(self._slots))

    def _enlarge(self, slots: int) -> None:
        larger = _empty_table(max(slots, len(self._slots)))
        rehash(self._slots, larger, self._table)
        self._slots = larger

    # ---- matching ----

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        space = np.empty(len(events.attribute), np.int32)
        forest, rows = self.forest, self.rows

        def work(last: int, room: tuple[Any, Any], done: NDArray[np.int64]) -> None:
            if not done[5]:
                done[5] = 1
                forest.find(events, int(done[0]), last, space, done)
            match_hashed(
                forest.leaf,
                forest.entry,
                forest.attributes,
                self._cover,
                self._slots,
                self._table,
                self._pool,
                rows.predicate,
                rows.span,
                events.offsets,
                events.attribute,
                events.lo,
                space,
                last,
                *room,
                done,
            )

        found = in_parts(work, len(events), threads, rate=self._rate, sink=sink)
        forest.observe(len(events), space)
        return found


def _empty_table(slots: int) -> NDArray[np.int64]:
    table = np.zeros((slots, 2), np.int64)
    table[:, 0] = EMPTY
    return table
