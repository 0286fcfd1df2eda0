"""All entries of a PB+tree in order, in bounded memory: they are dealt out to files by ranges of keys, each of which
holds so many that they can be sorted in memory. Where all entries can, there are no files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.papers.structures.pbtree.folder import PageFolder
from dibs.papers.structures.pbtree.lists import TreeEntries

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
                yield in_order(_entries(np.fromfile(path, RECORD)))
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
            held.append(_entries(own))
            count += len(own)
        if count:
            yield _join(held)

    def _read(self, path: Path, size: int) -> Iterator[NDArray[Any]]:
        step = max(self._most // 4, 1)
        for start in range(0, size, step):
            yield np.fromfile(path, RECORD, step, offset=start * RECORD.itemsize)

    def _file(self, number: int) -> Path:
        return self._folder.path / f"entries-{number}"


def _entries(records: NDArray[Any]) -> TreeEntries:
    return TreeEntries(*(records[name].copy() for name in TreeEntries._fields))


def _join(parts: list[TreeEntries]) -> TreeEntries:
    return TreeEntries(*(np.concatenate(columns) for columns in zip(*parts)))


def in_order(entries: TreeEntries) -> TreeEntries:
    """In the order of keys; of one key they stay in the order of rows that they have."""
    order = np.argsort(entries.key, kind="stable")
    return TreeEntries(entries.operator[order], entries.key[order], entries.row[order])
