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
and those whose predicates are so wide that they would be in too many cells (256). Nodes visited are inner nodes
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
from dibs.index.growing import grown
from dibs.index.papers.pstree.chunks import USED, empty_pool, with_room
from dibs.index.papers.pstree.forest import Forest
from dibs.index.papers.pstree.kernels import AT, LEAVES, SIZE, detach
from dibs.index.papers.pstree.psthash_kernels import (
    DIMENSIONS,
    EMPTY,
    GOLDEN,
    KEYS,
    LONG,
    LOW,
    MIX,
    MOST_DIMENSIONS,
    OK,
    PREFIX,
    TABLE,
    TABLE_FULL,
    change_rows,
    dimensions_of,
    merge_hashed,
    partition_hashed,
    rehash,
)
from dibs.index.papers.pstree.psthash_kernels import MOST_CELLS as CELLS
from dibs.index.papers.pstree.pstree import words
from dibs.index.papers.pstree.rows import Rows, verify
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch
from dibs.thresholds import thresholds


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
    def build(cls, clauses: Clauses, dimensions: int = 2, cells: int | None = None) -> PSTHash:
        """dimensions: access predicates of a subscription; cells: in how many it may be when it comes. (At 1M dense
        subscriptions 1,024 instead of 256 takes a quarter off the candidates but only 3 % off the time, for three times
        the memory and four times the time to build: lists whose entries carry a predicate are read so fast that fewer
        candidates hardly pay.)"""
        if not 1 <= dimensions <= MOST_DIMENSIONS:
            raise ValueError(f"dimensions must be 1 to {MOST_DIMENSIONS}, not {dimensions}")
        table = np.zeros(TABLE, np.int64)
        table[DIMENSIONS], table[CELLS] = dimensions, thresholds.psthash_cells if cells is None else cells
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
        at, status = change_rows(others, 0, 1, self._dims, *own, *forest.links(), *self._cells())
        while at < len(others):
            self._make_room(status)
            at, status = change_rows(others, at, 1, self._dims, *own, *forest.links(), *self._cells())

    def delete(self, rows: NDArray[np.int64]) -> None:
        known, forest, most = self.rows, self.forest, int(self._table[DIMENSIONS])
        own = known.offsets, known.predicate, known.span
        alone, others = self._by_dimensions(rows)
        forest.detach(known, known.offsets[alone], words(alone, *own)[:, 0].copy())
        change_rows(others, 0, -1, self._dims, *own, *forest.links(), *self._cells())
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
            _match(
                thresholds.pstree_block,
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


@kernel
def _match(
    block,
    leaf,
    entry,
    attributes,
    cover,
    slots,
    table,
    pool,
    predicate,
    span,
    event_offsets,
    event_attribute,
    event_value,
    space,
    last_event,
    out_event,
    out_row,
    done,
):
    """See index.base.in_parts. An event whose matches do not fit is begun again."""
    slot = np.zeros(attributes, np.int32)
    left = np.empty(block + 1, np.int32)
    own = np.empty(attributes + 1, np.int64)  # the event's spaces that take part in cells
    start = np.empty(attributes + 1, np.int64)
    parent, turn = np.empty(MOST_DIMENSIONS + 1, np.int64), np.empty(MOST_DIMENSIONS + 1, np.int64)
    found, most, mask = np.int64(0), table[DIMENSIONS], len(slots) - 1
    entries_end = event_offsets[last_event]
    for e in range(done[0], last_event):
        first, last = event_offsets[e], event_offsets[e + 1]
        candidates, tests, probes, before, n = np.int64(0), np.int64(0), np.int64(0), found, np.int64(0)
        inline = np.int64(0)
        m = 0
        for i in range(first, last):
            slot[event_attribute[i]] = event_value[i]
            own[m] = space[i]
            m += cover[space[i], SIZE] > 0
        for i in range(first, last):  # subscriptions found by one predicate, as in pstree
            if i + 2 < entries_end:
                prefetch(entry, 4 * np.int64(leaf[np.uint64(space[i + 2]), AT]))
            here = np.uint64(space[i])
            at = np.uint64(leaf[here, AT])
            end = at + np.uint64(leaf[here, SIZE])
            inline += np.int64(end - at)
            while at < end:
                stop = min(end, at + np.uint64(block - n))
                while at < stop:
                    v = slot[np.uint64(entry[at, np.uint64(1)])]
                    left[n] = entry[at, np.uint64(0)]
                    n += np.int64((entry[at, np.uint64(2)] <= v) & (v <= entry[at, np.uint64(3)]))
                    at += np.uint64(1)
                if n == block:
                    found, more = verify(left, n, slot, predicate, span, e, found, out_event, out_row)
                    tests += more
                    n = np.int64(0)
                    if found < 0:
                        done[0], done[2] = e, before
                        return
        # Depth first through the combinations: at depth d, cells of d + 1 spaces whose first d are chosen.
        for i in range(m - 1 if most > 1 else 0):
            d = 1
            parent[1], turn[1] = own[i] << 32, i + 1
            fresh = True
            while d > 0:
                if fresh:
                    for j in range(turn[d], m):
                        key = parent[d] | own[j]
                        x = np.uint64(key) * MIX
                        x = (x ^ (x >> np.uint64(32))) * GOLDEN
                        start[j] = np.int64((x >> np.uint64(24)) & np.uint64(mask))
                        prefetch(slots, 2 * start[j])
                    probes += m - turn[d]
                    for j in range(turn[d], m):
                        key, at_slot = parent[d] | own[j], start[j]
                        while slots[at_slot, 0] != key and slots[at_slot, 0] != EMPTY:
                            at_slot = (at_slot + 1) & mask
                        if slots[at_slot, 0] == EMPTY:
                            continue
                        value = slots[at_slot, 1]
                        size = value >> 32
                        candidates += size
                        if size == 1:
                            left[n] = np.int32(np.uint32(value & LOW))
                            n += 1
                        k, end_k = (value & LOW) + 1, (value & LOW) + 1 + size
                        if size <= 1:
                            k = end_k
                        while k < end_k or n == block:
                            if n == block:
                                found, more = verify(left, n, slot, predicate, span, e, found, out_event, out_row)
                                tests += more
                                n = np.int64(0)
                                if found < 0:
                                    done[0], done[2] = e, before
                                    return
                            while k < end_k and n < block:
                                left[n] = pool[k, 0]
                                n += 1
                                k += 1
                    fresh = False
                if d + 1 >= most or turn[d] >= m - 1:
                    d -= 1
                    continue
                j = turn[d]
                turn[d] += 1
                key = parent[d] | own[j] | PREFIX
                x = np.uint64(key) * MIX
                x = (x ^ (x >> np.uint64(32))) * GOLDEN
                at_slot = np.int64((x >> np.uint64(24)) & np.uint64(mask))
                probes += 1
                while slots[at_slot, 0] != key and slots[at_slot, 0] != EMPTY:
                    at_slot = (at_slot + 1) & mask
                if slots[at_slot, 0] == key and slots[at_slot, 1] >> 32 != 0:
                    d += 1
                    parent[d], turn[d] = ((slots[at_slot, 1] & LOW) << 32) | LONG, j + 1
                    fresh = True
        found, more = verify(left, n, slot, predicate, span, e, found, out_event, out_row)
        if found < 0:
            done[0], done[2] = e, before
            return
        done[3] += candidates + inline
        done[4] += inline + tests + more
        done[6] += probes
        for i in range(first, last):
            slot[event_attribute[i]] = 0
    done[0], done[2] = last_event, found
