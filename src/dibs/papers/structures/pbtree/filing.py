"""What a PB+tree files where: from clauses to entries, and what it keeps beside its pages.

An entry is (operator, key, row): subscription `row` has a predicate in the list `operator` with the constant `key`,
which is tree << 32 | cell; trees 2a and 2a + 1 are those of attribute a.

    = <= >= <>      one entry
    BETWEEN         two: >= lo and <= hi
    IN, NOT IN ...  `=` for a single cell, two for each range. The ranges of a predicate are disjoint, so a value meets
                    one of >= lo and <= hi of every range, and both only of the range that it is in: the predicate holds
                    when it meets (ranges + 1) entries, and it never meets more. A range that begins at the floor or
                    ends at the ceiling of its attribute needs only its other half.

Floor and ceiling are those of index.operators, but nothing here asks them to be right: what leaves a half out begins at
the floor (ends at the ceiling) exactly, and only values between the two ask for it. Tree 2a + 1 is for what does not
lie within the limits of attribute a; nothing there relies on them. When a quarter of all entries is such, all pages are
built again by limits that fit.

Arrays:
    floor, ceiling  int32  attributes   the limits by which predicates were filed
    filed    int32  2 * attributes, 4   how many entries each tree has in each list
    need     uint8  rows                how many entries an event must meet; 127: the row was deleted
    verify   uint8  rows                whether it is then tested on the clause itself

Sorting puts all entries in order, in bounded memory: they are dealt out to files by ranges of keys, each of which
holds so many that they can be sorted in memory. Where all entries can, there are no files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.clauses import Clauses, runs
from dibs.index.groups import ClauseArrays
from dibs.index.operators import NE, Limits, limits, operators
from dibs.jit.kernel import kernel
from dibs.papers.structures.counters import AT_ONCE
from dibs.papers.structures.growing import GrowingClauses, grow_array
from dibs.papers.structures.pbtree.layout import EQUAL, GREATER, LESS, LISTS, UNEQUAL
from dibs.papers.structures.pbtree.lists import TreeEntries
from dibs.papers.structures.pbtree.pages import PageFolder
from dibs.tuning import tuned

PBTREE_MOST_RANGES = tuned("pbtree_most_ranges", 16, 1, "ranges", "of a predicate that are filed; more are verified")
PBTREE_ENTRIES_OUTSIDE = tuned(
    "pbtree_entries_outside", 64, 1, "entries", "outside the limits that are never worth building again"
)

GONE = 127  # what a row that was deleted needs
TOUCHED = 128  # set in a counter that was counted down
MOST_PARTS = GONE - 1  # counters are bytes; a row whose predicates have more parts is verified


class Entered(NamedTuple):
    """The entries of some rows; for each row how many of them an event must meet, and whether it is verified then."""

    operator: NDArray[np.uint8]
    key: NDArray[np.int64]
    row: NDArray[np.int32]
    need: NDArray[np.uint8]
    verify: NDArray[np.uint8]


@kernel
def _file_range(into, n, tree, low, high, halves):
    """The entries of a range, or of a point. halves: whether its beginning and its end are to be met."""
    if low == high:
        into.operator[n], into.key[n] = EQUAL, tree | low
        return n + 1
    above, before = halves
    if above:
        into.operator[n], into.key[n] = GREATER, tree | low
        n += 1
    if before:
        into.operator[n], into.key[n] = LESS, tree | high
        n += 1
    return n


@kernel
def _entries(clauses, code, limits, row, most_ranges):
    """The entries of clauses that are numbered `row`."""
    c, most = clauses, 0
    for p in range(len(c.attribute)):
        most += 2 if c.hi[p] >= 0 else -2 * c.hi[p]
    into = Entered(
        np.empty(most, np.uint8),
        np.empty(most, np.int64),
        np.empty(most, np.int32),
        np.zeros(len(row), np.uint8),
        np.zeros(len(row), np.uint8),
    )
    n = 0
    for r in range(len(row)):
        parts, start = 0, n
        for p in range(c.offsets[r], c.offsets[r + 1]):
            floor, ceiling = limits.floor[c.attribute[p]], limits.ceiling[c.attribute[p]]
            several, first, last, ranges = c.hi[p] < 0, np.int64(0), np.int64(1), 0
            low, high = c.lo[p], c.hi[p]
            if several:
                first, last = np.int64(low), np.int64(low - high)
                low, high = c.span_lo[first], c.span_hi[last - 1]
                for s in range(first, last):
                    ranges += c.span_lo[s] < c.span_hi[s]
            if parts + min(ranges, most_ranges) + 2 > MOST_PARTS:
                into.verify[r] = 1
                break
            if ranges > most_ranges:  # filed as the range from the first to the last of them, and verified
                into.verify[r], several, first, last = 1, False, 0, 1
            outside = low < high and (low < floor or high > ceiling)
            tree = np.int64(2 * c.attribute[p] + outside) << 32
            parts += 1
            if code[p] == NE and several and not outside:
                into.operator[n], into.key[n] = UNEQUAL, tree | (c.span_hi[first] + 1)
                n += 1
                continue
            for s in range(first, last):
                x, y = (c.span_lo[s], c.span_hi[s]) if several else (low, high)
                # Within the limits every value is at least the floor and at most the ceiling.
                above, before = outside or x != floor, outside or x == floor or y != ceiling
                parts += int(above) + int(before) - 1 if x < y else 0
                n = _file_range(into, n, tree, np.int64(x), np.int64(y), (above, before))
        into.need[r] = parts
        into.row[start:n] = row[r]
    return into.operator[:n], into.key[:n], into.row[:n], into.need, into.verify


class Filing:
    """What a PB+tree keeps beside its pages."""

    SMALL_ARRAYS = ("floor", "ceiling", "filed", "need", "verify", "most_ranges")

    def __init__(self, clauses: Clauses):
        self._growing = GrowingClauses(clauses)
        self._floor = self._ceiling = np.empty(0, np.int32)
        self._filed = np.empty((0, LISTS), np.int32)
        self._need = self._verify = np.empty(0, np.uint8)
        # By which entries are filed, and found again when they are deleted: it stays as it was.
        self._most_ranges = np.array([PBTREE_MOST_RANGES.value])
        self._entries = self._outside = self._counters = 0
        self._rows, self._alive = len(clauses), 0  # rows that there ever were, and those that are there

    def _small_arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "floor": self._floor,
            "ceiling": self._ceiling,
            "filed": self._filed,
            "need": self._need[: self._rows],
            "verify": self._verify[: self._rows],
            "most_ranges": self._most_ranges,
        }

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        own = (arrays[name] for name in self.SMALL_ARRAYS)
        self._floor, self._ceiling, self._filed, self._need, self._verify, self._most_ranges = own
        self._rows, self._alive = len(self._need), int(np.count_nonzero(self._need != GONE))
        self._make_room()
        self._entries, self._outside = int(self._filed.sum()), int(self._filed[1::2].sum())

    def _clear(self, clauses: Clauses) -> None:
        """Nothing is filed; limits are those of the clauses."""
        self._floor, self._ceiling = limits(clauses)
        self._filed = np.zeros((2 * clauses.attributes, LISTS), np.int32)
        self._entries = self._outside = self._alive = 0

    def _much_outside(self) -> bool:
        return 4 * self._outside > self._entries + PBTREE_ENTRIES_OUTSIDE.value

    def _file(self, clauses: Clauses, rows: NDArray[np.int64]) -> Entered:
        """The entries of rows that are to be inserted, which are counted as filed."""
        found = self._entries_of(clauses, rows)
        self._count(found, 1)
        self._alive += len(rows)
        self._set_need(rows, found.need, found.verify)
        return found

    def _entries_of(self, clauses: Clauses, rows: NDArray[np.int64]) -> Entered:
        """The entries of the clauses, which are numbered `rows`."""
        code = operators(clauses, self._floor, self._ceiling)
        own = Limits(self._floor, self._ceiling)
        return Entered(*_entries(ClauseArrays.of(clauses), code, own, rows, int(self._most_ranges[0])))

    def _count(self, entries: Entered, change: int) -> None:
        tree = entries.key >> 32
        np.add.at(self._filed.reshape(-1), tree * LISTS + entries.operator, change)
        self._entries += change * len(tree)
        self._outside += change * int(np.count_nonzero(tree & 1))

    def _make_room(self) -> None:
        """Needs for all rows, and up to a multiple of 64 as of rows that were deleted."""
        size = -(-self._rows // AT_ONCE) * AT_ONCE
        self._need, self._verify = grow_array(self._need, size, GONE), grow_array(self._verify, size)
        self._counters = max(self._counters, size)

    def _set_need(self, rows: NDArray[np.int64], need: Any, verify: Any) -> None:
        self._need[rows], self._verify[rows] = need, verify

    def _widen(self, clauses: Clauses) -> None:
        """Room for more attributes; those that had no limits take those of the clauses."""
        if clauses.attributes > len(self._floor):
            self._floor = grow_array(self._floor, clauses.attributes, 2**31 - 1)
            self._ceiling = grow_array(self._ceiling, clauses.attributes, -1)
            self._filed = grow_array(self._filed, 2 * len(self._floor))
        if (self._ceiling[clauses.attribute] >= 0).all():
            return
        own, attribute = np.unique(clauses.attribute, return_inverse=True)
        floor, ceiling = limits(replace(clauses, attribute=attribute.astype(np.int32), attributes=len(own)))
        free = self._ceiling[own] < 0
        self._floor[own[free]], self._ceiling[own[free]] = floor[free], ceiling[free]


def rows_of(c: Clauses, rows: NDArray[Any]) -> Clauses:
    """The clauses of some rows, in this order; they share the spans of all."""
    if len(rows) == len(c):
        return c
    sizes = c.offsets[1:][rows] - c.offsets[rows]
    predicates = runs(c.offsets[rows], sizes)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    attribute, lo, hi = c.attribute[predicates], c.lo[predicates], c.hi[predicates]
    return replace(c, offsets=offsets, attribute=attribute, lo=lo, hi=hi, conjunctions=len(rows))


SORTED = 64  # bytes for each entry while it is sorted
ABOVE = 2**63 - 1  # all keys
KEYS = 24  # bytes for each key while keys alone are sorted
RECORD = np.dtype([("key", "<i8"), ("row", "<i4"), ("operator", "u1")])  # 13 bytes
AN_ENTRY = 24  # bytes on disk, about, while building: once in pages, once in files that are sorted
SPARE = 1.5  # ranges are made from a sample, so they are made smaller than they could be


class Sorting:
    """Rows must come in their order."""

    def __init__(self, folder: PageFolder, memory: int, sample: NDArray[np.int64], entries: int):
        """sample: the keys of some of the entries; entries: how many there are, about."""
        self._folder = folder
        self._most = max(memory // SORTED, 1)
        self._entries = entries
        ranges = 1 if entries <= self._most else int(np.ceil(SPARE * entries / self._most))
        keys = np.sort(sample)
        self._bounds = np.unique(keys[len(keys) * np.arange(1, ranges) // ranges])  # a range begins at its bound
        self._held: list[TreeEntries] = []  # not yet in a file; where there is one range only, all of them
        self._sizes = np.zeros(len(self._bounds) + 1, np.int64)

    def add(self, entries: TreeEntries) -> None:
        self._held.append(entries)
        if len(self._bounds) and sum(len(held.key) for held in self._held) > self._most // 2:
            self._deal()

    def _deal(self) -> None:
        """What is held, to the files."""
        if not self._held:
            return
        entries, self._held = _join(self._held), []
        at = np.searchsorted(self._bounds, entries.key, side="right")
        order = np.argsort(at, kind="stable")
        records = np.empty(len(order), RECORD)
        for name in RECORD.names or ():
            records[name] = getattr(entries, name)[order]
        sizes = np.bincount(at, minlength=len(self._sizes))
        ends = np.cumsum(sizes)
        with self._folder.writing(AN_ENTRY * self._entries - RECORD.itemsize * int(self._sizes.sum())):
            for number in np.flatnonzero(sizes).tolist():
                with self._file(number).open("ab") as file:
                    file.write(records[ends[number] - sizes[number] : ends[number]].data)
        self._sizes += sizes

    def sort(self) -> Iterator[TreeEntries]:
        """Portions, each in the order of keys, of one key in the order of rows. Mostly a portion is behind all before;
        where it is not, no key of it has a lower row than before."""
        if not len(self._bounds):
            if self._held:
                yield in_order(_join(self._held))
            return
        self._deal()
        for number in np.flatnonzero(self._sizes).tolist():
            path = self._file(number)
            size = int(self._sizes[number])
            if size <= self._most:
                yield in_order(_entries_of(np.fromfile(path, RECORD)))
            else:
                yield from self._divide(path, size)
            path.unlink()

    def _divide(self, path: Path, size: int) -> Iterator[TreeEntries]:
        """The portions of a range that is too large to be sorted at once, because the sample was not good enough or one
        key has very many entries. It is read again for each of its parts."""
        stride = -(-size // (self._most * SORTED // KEYS))  # 1: there is memory for all keys
        keys = np.sort(np.concatenate([records["key"][::stride] for records in self._read(path, size)]))
        step = max(self._most // (4 * stride), 1)
        cuts = keys[step::step]
        often = cuts[:-1][cuts[1:] == cuts[:-1]]  # a key of as many as there is memory for is a part of its own
        bounds = np.unique(np.concatenate([cuts, often + 1])).tolist()
        for first, last in zip([0, *bounds], [*bounds, ABOVE]):
            for entries in self._between(path, size, first, last):
                yield in_order(entries)

    def _between(self, path: Path, size: int, first: int, last: int) -> Iterator[TreeEntries]:
        """The entries of these keys, as many at once as there is memory for."""
        held: list[TreeEntries] = []
        count = 0
        for records in self._read(path, size):
            own = records[(records["key"] >= first) & (records["key"] < last)]
            if held and count + len(own) > self._most:
                yield _join(held)
                held, count = [], 0
            held.append(_entries_of(own))
            count += len(own)
        if count:
            yield _join(held)

    def _read(self, path: Path, size: int) -> Iterator[NDArray[Any]]:
        step = max(self._most // 4, 1)
        for start in range(0, size, step):
            yield np.fromfile(path, RECORD, step, offset=start * RECORD.itemsize)

    def _file(self, number: int) -> Path:
        return self._folder.path / f"entries-{number}"


def _entries_of(records: NDArray[Any]) -> TreeEntries:
    return TreeEntries(*(records[name].copy() for name in TreeEntries._fields))


def _join(parts: list[TreeEntries]) -> TreeEntries:
    return TreeEntries(*(np.concatenate(columns) for columns in zip(*parts)))


def in_order(entries: TreeEntries) -> TreeEntries:
    """In the order of keys; of one key they stay in the order of rows that they have."""
    order = np.argsort(entries.key, kind="stable")
    return TreeEntries(entries.operator[order], entries.key[order], entries.row[order])
