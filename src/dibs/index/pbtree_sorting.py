"""All entries of a PB+tree in order, in bounded memory: they are dealt out to files by ranges of keys, each of which
holds so many that they can be sorted in memory (see index.pbtree). Where all entries can, there are no files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dibs.index.pbtree_environment import AN_ENTRY, Environment

SORTED = 64  # bytes for each entry while it is sorted
RECORD = np.dtype([("list", "<u4"), ("value", "<i8")])  # 12 bytes
SPARE = 1.5  # ranges are made from a sample, so they are made smaller than they could be

Lists = NDArray[np.uint32]
Values = NDArray[np.int64]


class Sorting:
    """lists: tree * 4 + operator; values: cell << 32 | row. Rows must come in their order."""

    def __init__(self, environment: Environment, memory: int, sample: tuple[Lists, Values], entries: int):
        """sample: some of the entries; entries: how many there are, about."""
        self._environment = environment
        self._most = max(memory // SORTED, 1)
        self._entries = entries
        ranges = 1 if entries <= self._most else int(np.ceil(SPARE * entries / self._most))
        keys = np.sort(_keys(*sample))
        self._bounds = np.unique(keys[len(keys) * np.arange(1, ranges) // ranges])  # a range begins at its bound
        self._held: list[tuple[Lists, Values]] = []  # where there is one range only
        self._sizes = np.zeros(len(self._bounds) + 1, np.int64)

    def add(self, lists: Lists, values: Values) -> None:
        if not len(self._bounds):
            self._held.append((lists, values))
            return
        at = np.searchsorted(self._bounds, _keys(lists, values), side="right")
        order = np.argsort(at, kind="stable")
        records = np.empty(len(order), RECORD)
        records["list"], records["value"] = lists[order], values[order]
        sizes = np.bincount(at, minlength=len(self._sizes))
        ends = np.cumsum(sizes)
        with self._environment.writing(AN_ENTRY * self._entries - RECORD.itemsize * int(self._sizes.sum())):
            for number in np.flatnonzero(sizes).tolist():
                with self._file(number).open("ab") as file:
                    file.write(records[ends[number] - sizes[number] : ends[number]].data)
        self._sizes += sizes

    def sorted(self) -> Iterator[tuple[Lists, Values, bool]]:
        """Portions in order, and whether they are behind all before. (Where one key has more entries than memory, a
        range comes in several portions.)"""
        if not len(self._bounds):
            if self._held:
                yield *_in_order(*(np.concatenate(column) for column in zip(*self._held))), True
            return
        for number in np.flatnonzero(self._sizes).tolist():
            path = self._file(number)
            for start in range(0, int(self._sizes[number]), self._most):
                records = np.fromfile(path, RECORD, self._most, offset=start * RECORD.itemsize)
                yield *_in_order(records["list"], records["value"]), start == 0
            path.unlink()

    def _file(self, number: int) -> Path:
        return self._environment.folder / f"entries-{number}"


def _keys(lists: Lists, values: Values) -> NDArray[np.int64]:
    """Order of lists and constants."""
    return lists.astype(np.int64) << 32 | values >> 32


def _in_order(lists: Lists, values: Values) -> tuple[Lists, Values]:
    order = np.argsort(_keys(lists, values), kind="stable")  # of one constant the rows are in order already
    return lists[order], values[order]


def in_order(lists: Lists, values: Values) -> tuple[Lists, Values]:
    """The same, in the order of lists and values, whatever the order of rows."""
    order = np.lexsort((values, lists))
    return lists[order], values[order]
