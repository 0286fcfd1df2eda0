"""An ordered index over documents: the values of some attributes, sorted, with the documents that have them.

    names   (result, user, time): the attributes of a key, those asked for by equality first, at most one by order last
    key     (kind, value, kind, value, ...): one for each combination of a document's values, so that a document with an
            array has several; a document that lacks one of the attributes has none, because it can satisfy nothing here
    run     keys in order, and the document of each; equal keys by document

An index is a value that never changes. A document that comes is put into a copy of the last run, which is short; when
it is full it is sorted in with the runs before it that are not much longer, so that a document is moved a logarithmic
number of times and there are a logarithmic number of runs. Whatever is asked is a stretch of each run, found by two
searches.

Useful for: conditions with equality and one bound, COUNT, MIN and MAX. Not useful for: <> and patterns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.history.keys import Cells
from dibs.thresholds import thresholds

Key = tuple[Any, ...]


class KeyRun(NamedTuple):
    keys: list[Key]
    rows: NDArray[np.int64] | list[int]  # documents; an array in a run that is not the last
    oldest: int  # of the rows


class KeyStretch(NamedTuple):
    run: KeyRun
    start: int
    end: int  # not included, above start


class Bounds(NamedTuple):
    """Which keys are asked for: those not below `low` and below `high`. A key that begins with another one is above it,
    so (kind,) is below all keys of the kind and (kind + 1,) above them."""

    low: Key
    high: Key


class Ordered(NamedTuple):
    names: tuple[str, ...]
    runs: tuple[KeyRun, ...]
    is_multiple: bool  # some document has more than one key

    @classmethod
    def build(cls, names: tuple[str, ...], documents: Iterable[tuple[int, Sequence[Cells]]]) -> Ordered:
        """Of documents in order: row, and the cells of each name."""
        keys: list[Key] = []
        rows: list[int] = []
        is_multiple = False
        for row, cells in documents:
            own = keys_of(cells)
            keys += own
            rows += [row] * len(own)
            is_multiple |= len(own) > 1
        return cls(names, (_run(keys, rows),) if keys else (), is_multiple)

    def add(self, row: int, cells: Sequence[Cells]) -> Ordered:
        """With one more document, the newest."""
        new = keys_of(cells)
        if not new:
            return self
        *older, last = self.runs or (KeyRun([], [], row),)
        if len(last.keys) >= thresholds.history_tail:
            older, last = [*older, last], KeyRun([], [], row)
        keys, rows = last.keys.copy(), np.asarray(last.rows).tolist()
        for key in new:
            place = bisect_right(keys, key)
            keys.insert(place, key)
            rows.insert(place, row)
        runs = (*older, KeyRun(keys, rows, min(last.oldest, row)))
        if len(keys) >= thresholds.history_tail:
            runs = _merge(runs)
        return Ordered(self.names, runs, self.is_multiple or len(new) > 1)

    def stretches(self, bounds: Bounds) -> Iterator[KeyStretch]:
        """Where the keys within the bounds are, the newest run first."""
        low, high = bounds
        for run in reversed(self.runs):
            start = bisect_left(run.keys, low)
            end = bisect_left(run.keys, high, start)
            if start < end:
                yield KeyStretch(run, start, end)

    @property
    def entries(self) -> int:
        return sum(len(run.keys) for run in self.runs)


def keys_of(cells: Sequence[Cells]) -> Sequence[Key]:
    """The keys of a document: one for each combination of its values."""
    if len(cells) == 1:
        return cells[0] if len(cells[0]) < 2 else list(dict.fromkeys(cells[0]))
    if all(len(each) == 1 for each in cells):
        return [tuple(part for each in cells for part in each[0])]
    combined = product(*(dict.fromkeys(each) for each in cells))
    return [tuple(part for cell in each for part in cell) for each in combined]


def after(key: Key) -> Key:
    """Above the key and below all that are above it (of the same length)."""
    return (*key, 0)


def _run(keys: list[Key], rows: list[int]) -> KeyRun:
    """Of keys in any order; equal ones are in the order of their rows."""
    order = _quick_order(keys)
    if order is None:
        order = sorted(range(len(keys)), key=keys.__getitem__)
    sorted_rows = np.array(rows, np.int64)[order]
    return KeyRun([keys[place] for place in order], sorted_rows, int(sorted_rows.min()))


def _quick_order(keys: list[Key]) -> list[int] | None:
    """The order of many keys whose parts are of one kind each, by NumPy; None where it cannot tell them all apart."""
    if len(keys) <= thresholds.history_rebuilt:
        return None
    columns: list[NDArray[Any]] = []
    for place, parts in enumerate(zip(*keys)):
        if place % 2 == 0:
            if len(set(parts)) > 1:  # kinds
                return None
        elif (ranks := _ranks(parts)) is not None:
            columns.append(ranks)
        else:
            return None
    result: list[int] = np.lexsort(columns[::-1]).tolist()
    return result


def _ranks(values: tuple[Any, ...]) -> NDArray[Any] | None:
    """Numbers in the order of the values."""
    if isinstance(values[0], str):
        rank = {value: number for number, value in enumerate(sorted(set(values)))}
        return np.fromiter((rank[value] for value in values), np.int64, len(values))
    if all(type(value) is float for value in values):  # neither TOP, nor an integer that is no float64
        return np.array(values, np.float64)
    return np.array(values, np.int64) if all(type(value) in (int, bool) for value in values) else None


def _merge(runs: tuple[KeyRun, ...]) -> tuple[KeyRun, ...]:
    """With the last run sorted into those before it that are at most twice as long as all that come after."""
    total, first = 0, len(runs)
    for run in reversed(runs):
        if total and len(run.keys) > 2 * total:
            break
        total += len(run.keys)
        first -= 1
    keys = [key for run in runs[first:] for key in run.keys]
    rows = [row for run in runs[first:] for row in np.asarray(run.rows).tolist()]
    return (*runs[:first], _run(keys, rows))
