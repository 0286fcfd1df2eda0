"""The partitions of OpIndex: units of one kind (counted or bitmaps) under their pivots. See .blocks for
the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs, Rate, Sink, in_parts, refuse_too_many
from dibs.index.operators import Limits
from dibs.jit.pools import Pool, Space
from dibs.papers.structures.growing import grow_array
from dibs.papers.structures.opindex.blocks import (
    DEAD,
    DIRECTORIES,
    DIRECTORY,
    ENTRIES_A_SEGMENT,
    EXTRA_SIZE,
    FREE,
    HEAD,
    NARROW,
    PART,
    ROOM,
    SHIFT,
    SIZE,
    SLOTS,
    START,
    STATE,
    USED,
    WANTED,
    WIDE,
    BlockSizes,
    append_slots,
    build_lists,
    delete_rows,
    insert_entries,
    purge_lists,
    purge_slots,
)
from dibs.papers.structures.opindex.forms import (
    CLAUSE_BITS,
    LISTS,
    RANK_BITS,
    Directories,
    DirectorySizes,
    NewEntries,
    PredicateLists,
    Units,
    entries_of,
)
from dibs.papers.structures.opindex.kernels import match_lists
from dibs.tuning import tuned

OPINDEX_SHORT_LIST = tuned("opindex_short_list", 128, 1, "entries", "of a list that has no extra block")
OPINDEX_EXTRA = tuned("opindex_extra", 16, 1, "entries", "of an extra block, at least")

NAME = "opindex"
POOLS = {NARROW: ("key", "pointer", "no_far", "no_link"), WIDE: ("wide_key", "wide_pointer", "far", "link")}


class Places:
    """Where the slots of each row are, for deletions: made when the first one comes."""

    def __init__(self, rows: int, parts: NDArray[np.int32], owner: NDArray[np.int32]):
        partition = np.repeat(np.arange(len(parts), dtype=np.int32), parts[:, SIZE])
        slot = np.concatenate([np.empty(0, np.int32), *(np.arange(n, dtype=np.int32) for n in parts[:, SIZE])])
        row = owner[parts[partition, START] + slot]
        row = np.where(row < 0, ~row, row)
        order = np.argsort(row, kind="stable")
        self.first_unit = np.zeros(rows + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=rows), out=self.first_unit[1:])
        self.unit_partition, self.unit_slot = partition[order], slot[order]
        self._rows, self._units = rows, len(order)

    def add(self, rows: int, row: NDArray[np.int32], partition: NDArray[np.int32], slot: NDArray[np.int32]) -> None:
        """The units of new rows, in their order."""
        sizes = np.bincount(np.where(row < 0, ~row, row) - self._rows, minlength=rows)
        ends = self._units + np.cumsum(sizes)
        self.first_unit = _append(self.first_unit, self._rows + 1, ends)
        self.unit_partition = _append(self.unit_partition, self._units, partition)
        self.unit_slot = _append(self.unit_slot, self._units, slot)
        self._rows += rows
        self._units += len(row)

    @property
    def nbytes(self) -> int:
        return self.first_unit.nbytes + self.unit_partition.nbytes + self.unit_slot.nbytes


def _append(array: NDArray[Any], at: int, more: NDArray[Any]) -> NDArray[Any]:
    array = grow_array(array, at + len(more))
    array[at : at + len(more)] = more
    return array


class Lists:
    """See above."""

    ARRAYS = (
        *("partition", "parts", "heads", "need", "owner", "signature", "ends"),
        *("key", "pointer", "wide_key", "wide_pointer", "far", "link", "state"),
    )

    def __init__(self, bitmaps: bool, sizes: DirectorySizes, rows: int, arrays: dict[str, NDArray[Any]]):
        self._bitmaps, (self._segments, self._width) = bitmaps, sizes
        self._bits = CLAUSE_BITS if bitmaps else 0
        self._a = {name: arrays[name] for name in self.ARRAYS} | {n: np.empty(0, np.int32) for n in POOLS[NARROW][2:]}
        self._rows = rows
        self._several = bool((self._a["owner"] < 0).any())
        self._count = len(self._a["parts"])  # partitions; the arrays may have room for more
        self._places: Places | None = None
        self._rate = Rate()
        self._pool = Pool()

    @classmethod
    def build(
        cls,
        bitmaps: bool,
        sizes: DirectorySizes,
        clauses: Clauses,
        units: Units,
        clause: NDArray[np.uint8],
        limits: Limits,
    ) -> Lists:
        row, _, _, pivot, need = units
        segments, width = sizes
        attributes = clauses.attributes
        pivots = (
            np.unique(pivot) if len(pivot) < attributes else np.flatnonzero(np.bincount(pivot, minlength=attributes))
        )
        partition = np.full(attributes, -1, np.int32)
        partition[pivots] = np.arange(len(pivots))
        state = np.full(STATE, -1, np.int64)
        state[:, :FREE] = 0
        parts, heads = np.zeros((len(pivots), PART), np.int32), np.zeros((len(pivots) * LISTS, HEAD), np.int32)
        to = partition[pivot]
        parts[:, ROOM] = np.bincount(to, minlength=len(pivots))
        parts[:, START] = np.cumsum(parts[:, ROOM]) - parts[:, ROOM]
        state[SLOTS, USED] = len(row)
        _refuse_too_many_slots(parts, CLAUSE_BITS if bitmaps else 0)
        kind = np.uint64 if bitmaps else _counter_type(need)
        counters, owner, slot = np.empty(len(row), kind), np.empty(len(row), np.int32), np.empty(len(row), np.int32)
        if len(row):
            append_slots(0, to, row, need, slot, parts, counters, owner, state)
        both = entries_of(clauses, units, to, slot, clause, limits, CLAUSE_BITS if bitmaps else 0)
        heads[:, SIZE] = sum(np.bincount(entries.list_of, minlength=len(heads)) for entries in both)
        filled = heads[:, SIZE] > 0
        counts = np.zeros(len(heads), np.int64)  # of segments
        if segments:
            steps = ENTRIES_A_SEGMENT << np.arange(1, segments.bit_length())  # where directories double
            doublings = np.searchsorted(steps, heads[filled, SIZE], "right")
            heads[filled, SHIFT] = RANK_BITS - doublings
            counts[filled] = 1 << doublings
            heads[:, DIRECTORY] = np.cumsum(counts) - counts
        state[DIRECTORIES, USED] = total = int(counts.sum())
        signature, ends = np.zeros(total, np.uint64), np.zeros(total, np.int32)
        arrays = {"partition": partition, "parts": parts, "heads": heads, "need": counters, "owner": owner}
        for pool, entries in zip((NARROW, WIDE), both):
            refuse_too_many(NAME, len(entries.key), "entries of its lists")
            order = np.argsort(entries.key)
            made = build_lists(pool, order, entries, segments, Directories(heads, signature, ends, width), state)
            arrays |= zip(POOLS[pool], made)
        return cls(bitmaps, sizes, len(clauses), arrays | {"signature": signature, "ends": ends, "state": state})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Without the spare room."""
        a, used = self._a, self._a["state"][:, USED]
        sizes = {"parts": self._count, "heads": self._count * LISTS, "need": used[SLOTS], "owner": used[SLOTS]}
        sizes |= {n: used[pool] for pool, names in POOLS.items() for n in names}
        sizes |= {"ends": used[DIRECTORIES], "signature": used[DIRECTORIES]}
        return {n: a[n][: sizes.get(n, len(a[n]))] for n in self.ARRAYS}

    @property
    def size(self) -> int:
        """Room taken by slots: 0 means that there never was a unit."""
        return int(self._a["state"][SLOTS, USED])

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._a.values()) + (self._places.nbytes if self._places else 0)

    def count_looked_at(self, presence: NDArray[np.float64]) -> float:
        """How many units an event finds, if attributes are in events as often as this says."""
        pivots = np.flatnonzero(self._a["partition"] >= 0)
        return float((presence[pivots] * self._a["parts"][self._a["partition"][pivots], SIZE]).sum())

    def numbers(self) -> dict[str, int]:
        parts, heads = self._a["parts"][: self._count], self._a["heads"][: self._count * LISTS]
        size = heads[:, SIZE] + heads[:, EXTRA_SIZE]
        return {
            "pivots": int((parts[:, SIZE] > 0).sum()),
            "largest partition": int((parts[:, SIZE] - parts[:, DEAD]).max(initial=0)),
            "lists": int((size > 0).sum()),
            "longest list": int(size.max(initial=0)),
            "entries": int(size.sum(dtype=np.int64)),
            "entries to be merged": int(heads[:, EXTRA_SIZE].sum(dtype=np.int64)),
            "segments": int(self._a["state"][DIRECTORIES, USED]),
        }

    # ---- matching ----

    def match(self, events: CodedEvents, limits: Limits, threads: int, sink: Sink | None) -> Pairs:
        a, (floor, ceiling) = self._a, limits
        own = (a[n] for n in ("parts", "heads", "signature", "ends", "need", "owner"))
        partitions = (a["partition"], floor, ceiling, *own, self._width)  # what Partitions has
        entries = tuple(a[n] for n in ("key", "pointer", *POOLS[WIDE]))  # AllEntries
        points = events.offsets, events.attribute, events.lo  # Points
        bitmaps, signed = True if self._bitmaps else None, self._segments > 0

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            taken = self._pool.take(self._space)
            match_lists(bitmaps, signed, partitions, entries, points, last, taken.space, room, progress)
            self._pool.give(taken)

        return in_parts(work, len(events), threads, rate=self._rate, sink=sink)

    def _space(self) -> Space:
        """What Counting has."""
        most = int(self._a["parts"][:, SIZE].max(initial=1))
        rows = self._rows if self._several else 1
        counter, hits = np.empty(most, self._a["need"].dtype), np.empty(most + 1, np.int32)
        return counter, hits, np.zeros(rows, np.int64), np.zeros(1, np.int64)

    # ---- updates ----

    def insert(self, clauses: Clauses, units: Units, clause: NDArray[np.uint8], limits: Limits) -> None:
        a, (row, _, _, pivot, need) = self._a, units
        self._pool.forget()
        a["partition"] = grow_array(a["partition"], clauses.attributes, -1)
        if not len(row):
            self._rows += len(clauses)
            if self._places is not None:
                self._places.add(len(clauses), row, row, row)
            return
        new = np.unique(pivot[a["partition"][pivot] < 0])
        a["partition"][new] = np.arange(self._count, self._count + len(new))
        self._count += len(new)
        a["parts"], a["heads"] = grow_array(a["parts"], self._count), grow_array(a["heads"], self._count * LISTS)
        if not self._bitmaps and _counter_type(need) != np.uint8:
            a["need"] = a["need"].astype(np.int32)
        to, slot = a["partition"][pivot], np.empty(len(row), np.int32)
        done = 0
        while True:
            done = append_slots(done, to, row, need, slot, a["parts"], a["need"], a["owner"], a["state"])
            if done == len(row):
                break
            self._grow(("need", "owner"), SLOTS)
        _refuse_too_many_slots(a["parts"], self._bits)
        self._several |= bool((row < 0).any())
        self._rows += len(clauses)
        if self._places is not None:
            self._places.add(len(clauses), row, to, slot)
        extra = 1 << (max(OPINDEX_EXTRA.value, 1).bit_length() - 1)
        sizes = BlockSizes(OPINDEX_SHORT_LIST.value, extra)
        both = entries_of(clauses, units, to, slot, clause, limits, self._bits)
        for pool, entries in zip((NARROW, WIDE), both):
            self._insert_entries(pool, entries, sizes)

    def _insert_entries(self, pool: int, new: NewEntries, sizes: BlockSizes) -> None:
        done, state = 0, self._a["state"]
        while done < len(new.list_of):
            lists = self._directories(), self._entries(pool)
            done = insert_entries(done, pool, new, self._segments, sizes, *lists, state)
            if done < len(new.list_of):
                self._grow(POOLS[pool] if pool == WIDE else POOLS[pool][:2], pool)
                if self._segments:
                    self._grow(("signature", "ends"), DIRECTORIES)

    def _directories(self) -> Directories:
        return Directories(self._a["heads"], self._a["signature"], self._a["ends"], self._width)

    def _entries(self, pool: int) -> PredicateLists:
        return PredicateLists(*(self._a[n] for n in POOLS[pool]))

    def _grow(self, names: tuple[str, ...], pool: int) -> None:
        wanted = int(self._a["state"][pool, WANTED])
        refuse_too_many(NAME, wanted, "entries of its lists")
        for name in names:
            self._a[name] = grow_array(self._a[name], wanted)

    def delete(self, rows: NDArray[np.int64]) -> None:
        """Rows that are there, each once; those that are not of this kind do nothing."""
        a = self._a
        if self._places is None:
            self._places = Places(self._rows, a["parts"][: self._count], a["owner"])
        p = self._places
        places = p.first_unit, p.unit_partition, p.unit_slot
        for t in delete_rows(rows, *places, a["parts"], a["need"]).tolist():
            moved = purge_slots(t, a["parts"], a["need"], a["owner"], *places)
            for pool in POOLS:
                purge_lists(pool, t, moved, self._bits, self._segments, self._directories(), self._entries(pool))


def _refuse_too_many_slots(parts: NDArray[np.int32], bits: int) -> None:
    """Pointers of entries are slots with so many bits behind them."""
    refuse_too_many(NAME, int(parts[:, ROOM].max(initial=0)) << bits, "places of subscriptions under one pivot")


def _counter_type(need: NDArray[np.uint64]) -> type[Any]:
    """Small counters stay in the cache; few subscriptions have more than 255 predicates."""
    return np.uint8 if need.max(initial=0) < 256 else np.int32
