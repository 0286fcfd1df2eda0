"""All entries of a PB+tree in order, in bounded memory: they are dealt out to files by ranges of keys, each of which
holds so many that they can be sorted in memory (see index.pbtree). Where all entries can, there are no files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dibs.index.papers.pbtree.environment import AN_ENTRY, Environment

SORTED = 64  # bytes for each entry while it is sorted
ABOVE = 2**63 - 1  # all keys
KEYS = 24  # bytes for each key while keys alone are sorted
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
        """Portions in order, and whether they are behind all before."""
        if not len(self._bounds):
            if self._held:
                yield *_in_order(*(np.concatenate(column) for column in zip(*self._held))), True
            return
        for number in np.flatnonzero(self._sizes).tolist():
            path = self._file(number)
            size = int(self._sizes[number])
            if size <= self._most:
                records = np.fromfile(path, RECORD)
                yield *_in_order(records["list"], records["value"]), True
            else:
                yield from self._divided(path, size)
            path.unlink()

    def _divided(self, path: Path, size: int) -> Iterator[tuple[Lists, Values, bool]]:
        """The portions of a range that is too large to be sorted at once, because the sample was not good enough or one
        key has very many entries. It is read again for each of its parts."""
        stride = -(-size // (self._most * SORTED // KEYS))  # 1: there is memory for all keys
        keys = np.sort(np.concatenate([_keys(r["list"], r["value"])[::stride] for r in self._read(path, size)]))
        step = max(self._most // (4 * stride), 1)
        cuts = keys[step::step]
        often = cuts[:-1][cuts[1:] == cuts[:-1]]  # a key of as many as there is memory for is a part of its own
        bounds = np.unique(np.concatenate([cuts, often + 1])).tolist()
        for first, last in zip([0, *bounds], [*bounds, ABOVE]):
            behind = True
            for lists, values in self._between(path, size, first, last):
                yield *_in_order(lists, values), behind
                behind = last == first + 1  # rows come in order

    def _between(self, path: Path, size: int, first: int, last: int) -> Iterator[tuple[Lists, Values]]:
        """The entries of these keys, as many at once as there is memory for."""
        held: list[tuple[Lists, Values]] = []
        count = 0
        for records in self._read(path, size):
            key = _keys(records["list"], records["value"])
            own = records[(key >= first) & (key < last)]
            if held and count + len(own) > self._most:
                yield tuple(np.concatenate(column) for column in zip(*held))  # type: ignore[misc]
                held, count = [], 0
            held.append((own["list"].copy(), own["value"].copy()))
            count += len(own)
        if count:
            yield tuple(np.concatenate(column) for column in zip(*held))  # type: ignore[misc]

    def _read(self, path: Path, size: int) -> Iterator[NDArray[Any]]:
        step = max(self._most // 4, 1)
        for start in range(0, size, step):
            yield np.fromfile(path, RECORD, step, offset=start * RECORD.itemsize)

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
