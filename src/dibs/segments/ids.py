"""Finding a subscription by its id: the 64-bit hashes of a segment's ids, sorted, beside their rows.

12 bytes per id instead of the 150 that a Python dict takes; equal hashes are told apart by the ids themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.arguments import Id as Id
from dibs.arrays import from_numpy, to_numpy
from dibs.coding.domain import string_buffers
from dibs.jit.kernel import kernel
from dibs.jit.sorting import order_hashes
from dibs.lazy import lazy
from dibs.segments.state import MERGED_AT_ONCE

WORD = 2**64 - 1
SMALL = 1_000
LONG = 64  # bytes of an id
FEW = 64  # texts that are read without Arrow


def id_hashes(ids: pa.Array) -> NDArray[np.uint64]:
    """A hash of each id of an int64 or large_string array."""
    if pa.types.is_integer(ids.type):
        return _mix(to_numpy(ids).view(np.uint64).copy())
    return _hash_strings(*string_buffers(ids))


def id_hash(id: Id) -> np.uint64:
    """The hash of one id."""
    if isinstance(id, str):
        data = id.encode()
        if len(data) > LONG:
            return _hash_strings(np.array([0, len(data)]), np.frombuffer(data, np.uint8))[0]
        h = 14695981039346656037  # as _hash_strings does, which takes longer to call
        for byte in data:
            h = ((h ^ byte) * 1099511628211) & WORD
        return np.uint64(h ^ (h >> 29))
    h = (id + 0x9E3779B97F4A7C15) & WORD  # as _mix does, which takes longer to call
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & WORD
    return np.uint64(h ^ (h >> 31))


@kernel
def _mix(x):
    for i in range(len(x)):
        h = x[i] + np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x[i] = h ^ (h >> np.uint64(31))
    return x


@kernel
def _hash_strings(starts, data):
    result = np.empty(len(starts) - 1, np.uint64)
    for i in range(len(result)):
        h = np.uint64(14695981039346656037)
        for k in range(starts[i], starts[i + 1]):
            h = (h ^ np.uint64(data[k])) * np.uint64(1099511628211)
        result[i] = h ^ (h >> np.uint64(29))
    return result


class IdIndex:
    """Rows by id."""

    def __init__(self, ids: pa.Array, hashes: NDArray[np.uint64] | None = None, rows: NDArray[np.int32] | None = None):
        self.ids = ids
        self._sorted = None if hashes is None or rows is None else (hashes, rows)
        if len(ids) > SMALL:
            self._lookup()
        self.integers: NDArray[np.int64] | None = to_numpy(ids) if pa.types.is_integer(ids.type) else None
        self._is_small = len(ids) <= MERGED_AT_ONCE.value
        self.order: Any = None  # of texts, once it is worth it: see segments.id_lists
        self.given = 0  # texts that were asked for meanwhile

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """Sorted."""
        return self._lookup()[0]

    @property
    def rows(self) -> NDArray[np.int32]:
        """Of the hashes."""
        return self._lookup()[1]

    def _lookup(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Of a small segment it is made when it is first asked for: the segment may go before that."""
        if self._sorted is None:
            hashes = id_hashes(self.ids)
            ordered, rows, is_done = order_hashes(hashes)
            if not is_done:  # ids that somebody has made up so that their hashes are alike
                rows = np.argsort(hashes, kind="stable").astype(np.int32)
                ordered = hashes[rows]
            self._sorted = ordered, rows
        return self._sorted

    def at(self, rows: NDArray[np.int32]) -> list[Id]:
        """The ids of the rows."""
        if self.integers is not None:
            return self.integers[rows].tolist()
        if len(rows) > FEW:
            return self.ids.take(from_numpy(rows)).to_pylist()
        starts, data = self._content
        return [str(data[starts[row] : starts[row + 1]], "utf-8") for row in rows.tolist()]

    @lazy
    def _content(self) -> tuple[memoryview, memoryview]:
        """Where each text begins, and the bytes of all: for few ids, Arrow would take longer to be asked."""
        _, starts, data = self.ids.buffers()
        places = memoryview(starts)[8 * self.ids.offset : 8 * (self.ids.offset + len(self.ids) + 1)].cast("q")
        return places, memoryview(b"" if data is None else data)

    def first(self, rows: NDArray[np.int32], k: int) -> NDArray[np.int64]:
        """Places among the rows of the k least ids, in no set order; there are more than k rows."""
        if self.integers is not None:
            return np.argpartition(self.integers[rows], k - 1)[:k]
        ids = pa.table({"id": self.ids.take(from_numpy(rows))})
        return to_numpy(pc.select_k_unstable(ids, k, sort_keys=[("id", "ascending")])).astype(np.int64)

    def find(self, id: Id, hash: np.uint64 | None = None) -> int | None:
        """The row of the id; `hash`, if known already."""
        if self._is_small:
            return self._row_of.get(id)
        integers = self.integers
        if isinstance(id, str) == (integers is not None):
            return None
        wanted = id_hash(id) if hash is None else hash
        hashes, rows = self._lookup()
        at = int(hashes.searchsorted(wanted))
        while at < len(hashes) and hashes[at] == wanted:
            row = int(rows[at])
            if (self.ids[row].as_py() if integers is None else integers[row]) == id:
                return row
            at += 1
        return None

    @lazy
    def _row_of(self) -> dict[Id, int]:
        """Of a small segment, of which a matcher that grows one by one has many: each add looks into all of them."""
        return {id: row for row, id in reversed(list(enumerate(self.ids.to_pylist())))}

    def find_all(self, ids: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Places in ids of those that are here, and their rows; the ids are of this segment's type."""
        wanted = id_hashes(ids)
        at = np.searchsorted(self.hashes, wanted)
        hit = np.flatnonzero(at < len(self.hashes))
        hit = hit[self.hashes[at[hit]] == wanted[hit]]
        rows = self.rows[at[hit]]
        same = to_numpy(pc.equal(self.ids.take(from_numpy(rows)), ids.take(from_numpy(hit))))
        for i in np.flatnonzero(~same).tolist():  # another id of the same hash comes first
            row = self.find(ids[int(hit[i])].as_py())
            if row is not None:
                rows[i], same[i] = row, True
        return hit[same], rows[same]

    def find_repeated(self) -> list[int]:
        """Rows whose id stands in an earlier row too."""
        same = np.flatnonzero(self.hashes[1:] == self.hashes[:-1])
        result = set()
        for i in same.tolist():
            # Equal hashes stand together in the order of their rows: compare with all earlier ones of the run.
            at, id = i, self.ids[int(self.rows[i + 1])].as_py()
            while at >= 0 and self.hashes[at] == self.hashes[i + 1]:
                if self.ids[int(self.rows[at])].as_py() == id:
                    result.add(int(self.rows[i + 1]))
                    break
                at -= 1
        return sorted(result)

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.rows.nbytes + (0 if self.order is None else self.order.nbytes)
