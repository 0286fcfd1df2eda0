"""Which attributes of an event are looked at, and their numbers."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import from_strings
from dibs.coding.computed.naming import ComputedNames, with_fields
from dibs.coding.events.arrow_values import text_buffers
from dibs.coding.events.declared import DeclaredNames
from dibs.coding.events.paths import Paths, paths_of
from dibs.coding.events.raw import RawNames
from dibs.coding.values import Names
from dibs.jit.kernel import kernel
from dibs.language.scalars import PRESENT, is_computed, is_raw
from dibs.language.types import Types
from dibs.lazy import lazy
from dibs.tuning import tuned

NAMES_IN_ORDER = tuned("names_in_order", 10_000, 0, "names", "of attributes; new ones among fewer are put in order")

# Codes of paths that have no number.
SKIP = -1  # neither wanted nor on the way to a wanted attribute
LEADS = -2  # not wanted itself, but an object here may hold wanted attributes


class WantedNames:
    """The attributes that some subscription mentions. Everything else in an event is passed over unread.

    Immutable; make it once for many batches, because it takes time in proportion to the number of names. A name's
    number is its place in `names`, the same in every batch (`EventValues.names` is this very list). The names are
    sorted, but for those by which it was extended: they stand behind the others.
    """

    def __init__(self, names: Iterable[str]):
        self.names = Names(sorted(with_fields(names)))
        self.codes = self.names.codes
        # Sorted, because a set of all prefixes would be quadratic in the length of a name with very many dots.
        self._dotted = [name for name in self.names if "." in name]
        self._sorted: WantedNames = self  # without what stands behind
        self._lock = threading.Lock()  # see extended
        self._extended = False
        self.plan: Any = None  # coding.events.arrow_columns.ColumnPlan, of the last schema
        self._own_time: str | None = None
        self._declared: tuple[Types, DeclaredNames | None] | None = None  # of the last types that were asked for
        self._at_times_of: dict[str, WantedNames] = {}
        self._fewer_paths: Paths | None = None  # of the names that were extended, if anybody has asked for them

    @property
    def is_sorted(self) -> bool:
        return self._sorted is self

    def extend_by(self, names: Iterable[str]) -> WantedNames | None:
        """With more names, whose numbers follow: a new name costs a copy, not a new order of a million. None: they are
        too many for that, or it was done already (all extensions of a list extend each other: see Names.extends)."""
        new = sorted(name for name in with_fields(names) if name not in self.codes)
        first = len(self._sorted.names)
        behind = len(self.names) + len(new) - first
        if first <= NAMES_IN_ORDER.value or behind > max(first // 8, 1):
            return None
        with self._lock:
            if self._extended:
                return None
            self._extended = True
        result = WantedNames(())
        result.names = self.names.extend_by(new)
        result.codes = result.names.codes
        result._dotted = self._dotted.copy()
        for name in new:
            if "." in name:
                insort(result._dotted, name)
        result._sorted = self._sorted
        result._fewer_paths = self.__dict__.get("paths")
        return result

    @lazy
    def computed(self) -> ComputedNames | None:
        """The names that are computed from others, if there are any."""
        return ComputedNames(self.names, self._own_time) if any(map(is_computed, self.names)) else None

    def declared(self, types: Types) -> DeclaredNames | None:
        """The names that have declared types, if there are any."""
        if self._declared is None or self._declared[0] is not types:
            found = DeclaredNames(self.names, types)
            self._declared = types, found if found.types else None
        return self._declared[1]

    def at_time_of(self, attribute: str) -> WantedNames:
        """The same, where that attribute is the time of the match."""
        if PRESENT not in self.codes:
            return self
        known = self._at_times_of.get(attribute)
        if known is None:
            known = WantedNames([*self.names, attribute])
            known._own_time = attribute
            self._at_times_of[attribute] = known
        return known

    @lazy
    def raw(self) -> RawNames | None:
        """What is read of events as it came, if there is anything."""
        return RawNames(self.codes) if any(map(is_raw, self.names)) else None

    def leads(self, path: str) -> bool:
        """Whether an object at this path may hold a wanted attribute."""
        if not self._dotted:
            return False
        start = path + "."
        place = bisect_left(self._dotted, start)
        return place < len(self._dotted) and self._dotted[place].startswith(start)

    def code(self, path: str) -> int:
        """The number of a wanted name, SKIP or LEADS."""
        code = self.codes.get(path)
        if code is None:
            code = LEADS if self.leads(path) else SKIP
        return code

    def numbers_of(self, names: pa.Array) -> NDArray[np.int32]:
        """The numbers of many names (a string array without nulls); SKIP for what is not wanted."""
        buffers = text_buffers(names)
        found = _find(*buffers, *self._table)
        if not self.is_sorted:
            behind, before = found, _find(*buffers, *self._sorted._table)
            found = np.where(behind >= 0, behind + np.int32(len(self._sorted.names)), before)
        return found

    @lazy
    def paths(self) -> Paths:
        """The names as a tree, for kernels that follow nested objects."""
        return paths_of(self.names, self._fewer_paths)

    @lazy
    def _table(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.uint8]]:
        """Slots of 1 + number by hash (0: empty), and the names' own offsets and bytes; of an extension: of what stands
        behind, counted from there."""
        own = self.names if self.is_sorted else self.names[len(self._sorted.names) :]
        offsets, data = text_buffers(from_strings(own))
        slots = np.zeros(1 << max(4, (4 * len(own)).bit_length()), np.int32)
        _insert(offsets, data, slots)
        return slots, offsets, data.copy()


@kernel
def _hash(data, start, end):
    h = np.uint64(14695981039346656037)
    for k in range(start, end):
        h = (h ^ np.uint64(data[k])) * np.uint64(1099511628211)
    return h ^ (h >> np.uint64(29))


@kernel
def _insert(offsets, data, slots):
    mask = np.uint64(len(slots) - 1)
    for i in range(len(offsets) - 1):
        at = _hash(data, offsets[i], offsets[i + 1]) & mask
        while slots[at] != 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = i + 1


@kernel
def _find(offsets, data, slots, name_offsets, names):
    result = np.full(len(offsets) - 1, SKIP, np.int32)
    mask = np.uint64(len(slots) - 1)
    for i in range(len(result)):
        a, n = offsets[i], offsets[i + 1] - offsets[i]
        at = _hash(data, a, a + n) & mask
        while slots[at] != 0:
            number = slots[at] - 1
            b = name_offsets[number]
            same = name_offsets[number + 1] - b == n
            if same:
                for k in range(n):
                    if data[a + k] != names[b + k]:
                        same = False
                        break
            if same:
                result[i] = number
                break
            at = (at + np.uint64(1)) & mask
    return result
