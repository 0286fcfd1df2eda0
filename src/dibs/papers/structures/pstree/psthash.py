"""psthash: subscriptions in a hash table of two-dimensional predicate spaces, made by the PS-Trees of two attributes.

The idea (Ji and Jacobsen 2018, section 6): the two least likely predicates of a subscription are its access predicates.
Each covers some spaces of its PS-Tree, and each pair of spaces, one of either, is a cell: a key of a hash table with
the list of its subscriptions. An event finds the space of each of its values and looks up all pairs of them; a
candidate satisfies both access predicates, so that there are few of them where one predicate leaves many.

Arrays: those of .rows and .forest (only access predicates are in the trees), and
    dims    uint8   rows, with spare room: by how many predicates a row is found; 0: it is one of SmallRows
    slots   int64   (a power of 2, 2): key and value. The key is leaf << 32 | leaf, in the order of their attributes,
                    or EMPTY; the value size << 32 | place of the list, where a single code stands for its list
    pool    int32   (entries, 1), free_pool int64: a pool of .spaces. The list of a cell is its room and its codes
    cover   int32   (leaves, 8): rows that are found by several predicates of which one covers the space: a list in
                    `pool`, with the columns AT, SIZE, ROOM of a leaf. It is what a partition copies
    table   int64   see .psthash_table
With more than two dimensions the beginning of a cell is a key too (with the bit PREFIX), whose value is the number of
cells that go on from it and a number of its own, which takes the place of the first leaf in longer keys (with the bit
LONG). So an event goes on only from beginnings that are there.

Subscriptions of fewer predicates than dimensions are found by the method of PSTBloom, as the paper says (SmallRows);
with two dimensions they have one predicate, which leaves nothing to ask a signature for, and are in the lists of its
spaces as in pstree. Nodes visited are inner nodes and leaves of the trees, and look-ups in the table.

Option `cells` (ours): a subscription that would be in more cells is found by fewer predicates, down to one. Without it
wide predicates are in as many cells as they are: an index of more than 2**26 in all is refused (IndexTooLarge).

Useful for: many subscriptions over few attributes, with equality or narrow ranges among their predicates.
Not useful for: wide predicates over domains of many constants: the number of cells is the product of the numbers of
spaces, in memory and time of insertion; events of very many attributes (all pairs are looked up).

Published (option `profile`): rows that are inserted later are in as many cells as they are, too: beyond 2**26 in all
they are refused, as those of a new index are.

Where it differs from the paper: subscriptions of fewer predicates than dimensions have PS-Trees of their own, where
there are more than two dimensions; the list of each space's rows, by which a partition finds the cells to copy (the
paper does not say how); the option `cells`, and that rows which are inserted into an index that stands never take it
beyond 2**26 cells: they are treated as if it were 256; the option `access`, see pstree.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.errors import IndexTooLarge
from dibs.index.base import Pairs, Rate, Sink, Takes, renumber
from dibs.index.options import Option
from dibs.papers.structures.growing import grow_array
from dibs.papers.structures.profiles import OURS, PROFILE, PUBLISHED, is_published, save_profile
from dibs.papers.structures.pstree.forest import ACCESS, OPERATORS, Forest
from dibs.papers.structures.pstree.lists import detach
from dibs.papers.structures.pstree.pstbloom import PSTBloom
from dibs.papers.structures.pstree.psthash_kernels import (
    change_rows,
    dimensions_of,
    match_hashed,
    merge_hashed,
    partition_hashed,
)
from dibs.papers.structures.pstree.psthash_table import (
    DIMENSIONS,
    KEYS,
    MOST_CELLS,
    MOST_DIMENSIONS,
    OK,
    TABLE,
    TABLE_FULL,
    VALUE,
    HashedSpaces,
    empty_table,
    rehash,
)
from dibs.papers.structures.pstree.pstree import words
from dibs.papers.structures.pstree.rows import Rows
from dibs.papers.structures.pstree.spaces import CODE, LEAF, Boundaries, Chunks, SpaceLists, empty_pool, with_room

MOST_IN_ALL = 1 << 26  # cells: some GB
SMALL = 0  # of `dims`: the row is one of SmallRows
WHEN_FULL = 256  # cells of each row that comes when there are so many


class PSTHash:
    name: ClassVar[str] = "psthash"
    about: ClassVar[str] = "PSTHash: a hash table of two-dimensional predicate spaces; for few, crowded attributes"
    takes: ClassVar[Takes] = Takes(updates=True)
    options: ClassVar[tuple[Option, ...]] = (
        Option("dimensions", "access predicates of a subscription, the paper's N", 2, 1, MOST_DIMENSIONS),
        Option("cells", "in which a subscription may be when it comes", None, 2, none="any number, as in the paper"),
        ACCESS,
        PROFILE,
    )

    def __init__(self, rows: Rows, forest: Forest, own: dict[str, NDArray[Any]], small: SmallRows | None):
        self.rows, self.forest, self._small = rows, forest, small
        pool = Chunks(own["pool"], own["free_pool"])
        self._cells = HashedSpaces(own["dims"], own["slots"], own["table"], own["cover"], pool)
        self._published = is_published(own)
        self._rate = Rate()

    @classmethod
    def build(
        cls,
        clauses: Clauses,
        dimensions: int = 2,
        cells: int | None = None,
        access: str = OPERATORS,
        profile: str = OURS,
    ) -> PSTHash:
        """cells: at 1M dense subscriptions 1,024 instead of 256 takes a quarter off the candidates but only 3 % off the
        time, for three times the memory and four times the time to build: lists whose entries carry a predicate are
        read so fast that fewer candidates hardly pay."""
        table = np.zeros(TABLE, np.int64)
        table[DIMENSIONS], table[MOST_CELLS] = dimensions, cells or 0
        own: dict[str, NDArray[Any]] = {
            "dims": np.zeros(0, np.uint8),
            "slots": empty_table(16),
            "cover": np.zeros((0, LEAF), np.int32),
            "table": table,
        }
        own["pool"], own["free_pool"] = empty_pool(1)
        own |= save_profile(profile == PUBLISHED)
        small = SmallRows.none(clauses, access) if dimensions > 2 else None
        index = cls(Rows.none(), Forest.empty(access), own, small)
        index.insert(clauses)
        return index

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> PSTHash:
        # Those that were saved by earlier versions have their small rows in lists, as pstree does.
        small = SmallRows.restore(clauses, arrays) if "small.rows" in arrays else None
        return cls(Rows(*(arrays[name] for name in Rows.ARRAYS)), Forest(arrays), arrays, small)

    def arrays(self) -> dict[str, NDArray[Any]]:
        cells = self._cells
        own: dict[str, NDArray[Any]] = {
            "dims": cells.dims[: len(self.rows)],
            "slots": cells.slots,
            "pool": cells.pool.entry[: cells.pool.used],
            "free_pool": cells.pool.free,
            "cover": cells.cover[: self.forest.leaves],
            "table": cells.table,
        }
        small = self._small.arrays() if self._small is not None else {}
        return self.rows.arrays() | self.forest.arrays() | own | small | save_profile(self._published)

    @property
    def nbytes(self) -> int:
        small = self._small.nbytes if self._small is not None else 0
        return self.rows.nbytes + self.forest.nbytes + sum(a.nbytes for a in self._cells) + small

    def plan(self) -> dict[str, Any]:
        cells = self._cells
        dims = np.bincount(cells.dims[: len(self.rows)], minlength=2)
        return self.forest.plan() | {
            "cells": int(cells.table[KEYS]),
            "slots": len(cells.slots),
            "by dimensions": {k: int(n) for k, n in enumerate(dims) if k and n},
            "by the method of PSTBloom": int(dims[0]),
            "grounds": f"each subscription is in all cells of its {self._most} least likely predicates",
        }

    @property
    def _most(self) -> int:
        """Access predicates of a subscription."""
        return int(self._cells.table[DIMENSIONS])

    # ---- updates ----

    def insert(self, clauses: Clauses) -> None:
        rows, forest = self.rows, self.forest
        rank = forest.ranks(clauses, len(rows) + len(clauses))
        new = rows.add(clauses, rank)
        small = np.diff(clauses.offsets) < (self._most if self._small is not None else 0)
        which = rows.by_access(new[~small])
        self._cells = self._cells._replace(dims=grow_array(self._cells.dims, len(rows)))
        self._partition(rows.boundaries(which, self._most))
        forest.cover(rows, rows.positions(which, 0, self._most)[0], 1)
        own, links, table = rows.group(), forest.links(), self._cells.table
        try:
            self._cells.dims[which], cells = self._dimensions(which)
        except IndexTooLarge:
            forest.cover(rows, rows.positions(which, 0, self._most)[0], -1)
            merge_hashed(rows.boundaries(which, self._most), own, self._cells, forest.trees())
            rows.forget(len(new))
            raise
        if self._small is not None:
            self._small.insert(clauses.take(np.flatnonzero(small)), new[small])
        if cells > len(self._cells.slots):  # at least half of the cells are new, as a guess
            self._enlarge(1 << (int(table[KEYS]) + cells // 2).bit_length())
        single, others = self._by_dimensions(which)
        forest.attach(rows, rows.offsets[single], words(single, own))
        for predicates, numbers in self._covering(others):
            lists = SpaceLists(self._cells.cover, self._cells.pool)
            pool = forest.list_rows(rows, predicates, numbers.reshape(-1, 1), lists)
            self._cells = self._cells._replace(pool=pool)
        at, status = change_rows(others, 0, 1, own, links, self._cells)
        while at < len(others):
            self._make_room(status)
            at, status = change_rows(others, at, 1, own, links, self._cells)

    def delete(self, rows: NDArray[np.int64]) -> None:
        known, forest, cells = self.rows, self.forest, self._cells
        own, links = known.group(), forest.links()
        small = cells.dims[rows] == SMALL
        if self._small is not None:
            self._small.delete(rows[small])
            known.mark_deleted(rows[small])
        rows = rows[~small]
        single, others = self._by_dimensions(rows)
        forest.detach(known, known.offsets[single], words(single, own)[:, CODE].copy())
        change_rows(others, 0, -1, own, links, cells)
        for predicates, numbers in self._covering(others):
            detach(predicates, numbers, SpaceLists(cells.cover, cells.pool), own, links)
        forest.cover(known, known.positions(rows, 0, self._most)[0], -1)
        merge_hashed(known.boundaries(rows, self._most), own, cells, forest.trees())
        known.mark_deleted(rows)

    def _dimensions(self, which: NDArray[np.int64]) -> tuple[NDArray[np.uint8], int]:
        """By how many predicates each of these new rows is found, and in how many cells they will be."""
        own, most = (self.rows.group(), self.forest.links()), int(self._cells.table[MOST_CELLS])
        dims, cells, wide = dimensions_of(which, self._most, most or MOST_IN_ALL, *own)
        used = int(self._cells.table[KEYS])
        if not most and (wide or used + cells > MOST_IN_ALL):
            if not used or self._published:
                advice = "give options={'cells': 256}, which bounds those of a subscription, or another index"
                raise IndexTooLarge(self.name, used + int(cells), MOST_IN_ALL, "cells, or more", advice)
            dims, cells, _ = dimensions_of(which, self._most, WHEN_FULL, *own)
        return dims, int(cells)

    def _by_dimensions(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows that are found by one predicate, and those by several."""
        single = self._cells.dims[rows] == 1
        return rows[single], rows[~single]

    def _covering(self, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """The access predicates of rows that are found by several, and whose each is."""
        for k in range(2, self._most + 1):
            some = rows[self._cells.dims[rows] == k]
            predicates, owner = self.rows.positions(some, 0, k)
            yield predicates, some[owner].astype(np.int32)

    def _partition(self, boundaries: Boundaries) -> None:
        forest, rows, at = self.forest, self.rows.group(), 0
        forest.expect(len(boundaries.key))
        while True:
            self._cells = self._cells._replace(cover=grow_array(self._cells.cover, len(forest.leaf)))
            at, status = partition_hashed(boundaries, at, rows, self._cells, forest.trees())
            if at == len(boundaries.key):
                return
            if status == OK:
                forest.make_room()
            else:
                self._make_room(status)

    def _make_room(self, status: int) -> None:
        if status != TABLE_FULL:
            self._cells = self._cells._replace(pool=with_room(self._cells.pool))
            return
        slots = self._cells.slots
        used = int(np.count_nonzero(slots[:, VALUE] >> 32))
        self._enlarge(2 * len(slots) if 4 * used > len(slots) else len(slots))

    def _enlarge(self, slots: int) -> None:
        larger = empty_table(max(slots, len(self._cells.slots)))
        rehash(self._cells.slots, larger, self._cells.table)
        self._cells = self._cells._replace(slots=larger)

    # ---- matching ----

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        own = self._cells
        cells = own.slots, own.table, own.cover, own.pool.entry
        found = self.forest.match(match_hashed, self.rows, (cells,), events, threads, self._rate, sink)
        if self._small is not None:
            found.add(self._small.match(events, threads, sink))
        return found


PREFIX = "small."


class SmallRows:
    """Subscriptions of fewer predicates than PSTHash has dimensions. `rows`: their numbers in the whole index,
    ascending, by their numbers in `bloom`."""

    def __init__(self, bloom: PSTBloom, rows: NDArray[np.int32]):
        self.bloom, self.rows = bloom, rows

    @classmethod
    def none(cls, clauses: Clauses, access: str) -> SmallRows:
        return cls(PSTBloom.build(clauses.take(np.zeros(0, np.int64)), access), np.zeros(0, np.int32))

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> SmallRows:
        own = {name.removeprefix(PREFIX): a for name, a in arrays.items() if name.startswith(PREFIX)}
        return cls(PSTBloom.restore(clauses, own), own["rows"])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {PREFIX + name: a for name, a in (self.bloom.arrays() | {"rows": self.rows}).items()}

    @property
    def nbytes(self) -> int:
        return self.bloom.nbytes + self.rows.nbytes

    def insert(self, clauses: Clauses, rows: NDArray[np.int64]) -> None:
        """Also when there are none: the clauses say how many attributes events may have."""
        self.bloom.insert(clauses)
        self.rows = np.concatenate([self.rows, rows.astype(np.int32)])

    def delete(self, rows: NDArray[np.int64]) -> None:
        self.bloom.delete(np.searchsorted(self.rows, rows).astype(np.int64))

    def match(self, events: CodedEvents, threads: int, sink: Sink | None) -> Pairs:
        return renumber(partial(self.bloom.match, events, threads), None, self.rows, None, sink)
