"""Domains: per attribute the sorted constants that predicates mention, cut into cells.

Cells of an attribute, in order:

    0                no value (missing or null)
    1, 2             FALSE, TRUE
    3 ... 3+2n       numbers: n constants, a cell for each (odd offsets) and one for each gap around them (even)
    s ... s+2m       strings, likewise, in byte order
    t ... t+2k       times, likewise
    cells            (one past the last) a value that could not be read: no span ever covers it

For the facets PATTERN and NO_PATTERN the constants are patterns and their cells are 1 + rank, without gaps. For the
facet TIME the constants are times, and a string that reads as none has the last cell.
All attributes share flat arrays; `*_offsets` (attributes + 1) say which part belongs to whom. Numbers are ordered by
the key (value, rest) of coding.values, so int64 and float64 compare exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy
from dibs.jit.kernel import kernel, phase
from dibs.jit.scanning import reverse_word
from dibs.jit.words import word_at
from dibs.language.table import Attribute, Facet
from dibs.language.time_kernels import read_time
from dibs.lazy import lazy

NUMBER_BASE = 3
_PATTERN, _NO_PATTERN = int(Facet.PATTERN), int(Facet.NO_PATTERN)


@dataclass
class Domains:
    """See above. `string_prefix` holds the first 8 bytes of each string, big-endian, zero-filled: one integer
    comparison decides most steps of a search. The attributes of domains that are made from a table are sorted by name
    and facet (coding.constants); those of merged ones may not be."""

    attributes: list[Attribute]
    facet: NDArray[np.uint8]
    number_offsets: NDArray[np.int64]
    number_value: NDArray[np.float64]
    number_rest: NDArray[np.int16]
    string_offsets: NDArray[np.int64]
    string_starts: NDArray[np.int64]  # strings + 1
    string_bytes: NDArray[np.uint8]
    string_prefix: NDArray[np.uint64]
    time_offsets: NDArray[np.int64]
    time_value: NDArray[np.int64]
    string_base: NDArray[np.int32] = field(init=False, repr=False)  # the cell where the attribute's strings start
    time_base: NDArray[np.int32] = field(init=False, repr=False)
    cells: NDArray[np.int32] = field(init=False, repr=False)  # how many cells the attribute has
    numbered: Any = field(init=False, repr=False, default=None)  # coding.batch.Numbered, of the last names
    lookup: Any = field(init=False, repr=False, default=None)  # coding.lookup.Lookup, once there was a large batch
    patterns: dict[int, Any] = field(init=False, repr=False, default_factory=dict)  # compiled, see coding.patterns

    ARRAYS = (
        "facet",
        "number_offsets",
        "number_value",
        "number_rest",
        "string_offsets",
        "string_starts",
        "string_bytes",
        "string_prefix",
        "time_offsets",
        "time_value",
    )

    def __post_init__(self) -> None:
        self.string_base, self.time_base, self.cells = bases(
            self.facet, self.number_offsets, self.string_offsets, self.time_offsets
        )

    @lazy
    def number_of(self) -> dict[Attribute, int]:
        """The number of each attribute."""
        return {a: i for i, a in enumerate(self.attributes)}

    @lazy
    def number_rests(self) -> NDArray[np.int16]:
        """number_rest; empty if all are 0, as nearly always: searches need not look at them then."""
        return self.number_rest if self.number_rest.any() else np.empty(0, np.int16)

    def string(self, i: int) -> bytes:
        """String constant i of all."""
        return self.string_bytes[self.string_starts[i] : self.string_starts[i + 1]].tobytes()

    def section(self, kind: NDArray[Any], attribute: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """First and last cell of a kind of values of an attribute (VALUE, REVERSED and TIME facets)."""
        first = np.choose(kind, [1, NUMBER_BASE, self.string_base[attribute], self.time_base[attribute]])
        last = np.choose(
            kind, [2, self.string_base[attribute] - 1, self.time_base[attribute] - 1, self.cells[attribute] - 1]
        )
        return first.astype(np.int32), last.astype(np.int32)

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in self.ARRAYS)


@kernel
def bases(facet, number_offsets, string_offsets, time_offsets):
    """(string_base, time_base, cells) of each attribute."""
    n = len(facet)
    string_base, time_base, cells = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    for a in range(n):
        strings = string_offsets[a + 1] - string_offsets[a]
        pattern = facet[a] == _PATTERN or facet[a] == _NO_PATTERN
        string_base[a] = 1 if pattern else NUMBER_BASE + 2 * (number_offsets[a + 1] - number_offsets[a]) + 1
        time_base[a] = string_base[a] + 2 * strings + 1
        cells[a] = 1 + strings if pattern else time_base[a] + 2 * (time_offsets[a + 1] - time_offsets[a]) + 1
    return string_base, time_base, cells


def ranks(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The sorted distinct values and each value's place among them (like np.unique; hashing first is faster)."""
    if not len(values):
        return values, np.empty(0, np.int64)
    encoded = from_numpy(values).dictionary_encode()
    distinct = to_numpy(encoded.dictionary)
    order = np.argsort(distinct, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return distinct[order], place[to_numpy(encoded.indices)]


def number_ranks(
    value: NDArray[np.float64], rest: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int16], NDArray[np.int64]]:
    """Distinct (value, rest) keys in order, and each key's place. |rest| is at most 1024."""
    distinct, place = ranks(value)
    if not rest.any():
        return distinct, np.zeros(len(distinct), np.int16), place
    combined, place = ranks(place * 4096 + (rest + 2048))
    return distinct[combined >> 12], ((combined & 4095) - 2048).astype(np.int16), place


def constants_of(
    attribute: NDArray[np.int64], place: NDArray[np.int64], distinct: int, attributes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The distinct (attribute, place) in order: offsets by attribute, places, and each row's rank in its attribute."""
    if not len(place):
        return np.zeros(attributes + 1, np.int64), place, place
    keys, row = ranks(attribute * max(distinct, 1) + place)
    owner, places = np.divmod(keys, max(distinct, 1))
    offsets = np.zeros(attributes + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=attributes), out=offsets[1:])
    return offsets, places, row - offsets[attribute]


def string_buffers(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Writable (starts, bytes) of a large_binary or large_string array without nulls; starts[0] is 0."""
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    starts = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    content = np.frombuffer(data, np.uint8)[starts[0] : starts[-1]] if data is not None else np.empty(0, np.uint8)
    return starts - starts[0], content.copy()


@kernel
def string_prefixes(starts, data):
    """The first 8 bytes of each string as a big-endian integer, zero-filled."""
    result = np.empty(len(starts) - 1, np.uint64)
    for i in range(len(result)):
        result[i] = prefix(data, starts[i], starts[i + 1])
    return result


@phase
def prefix(data, start, end):
    if start + 8 <= len(data):
        word = reverse_word(word_at(data, start))
        missing = max(start + 8 - end, 0)
        return word >> np.uint64(8 * missing) << np.uint64(8 * missing) if missing < 8 else np.uint64(0)
    x = np.uint64(0)
    for k in range(8):
        x = (x << np.uint64(8)) | np.uint64(data[start + k] if start + k < end else 0)
    return x


@kernel
def compare_bytes(a, a_start, a_end, b, b_start, b_end):
    """-1, 0 or 1."""
    for k in range(min(a_end - a_start, b_end - b_start)):
        x, y = a[a_start + k], b[b_start + k]
        if x != y:
            return -1 if x < y else 1
    x, y = a_end - a_start, b_end - b_start
    return 0 if x == y else (-1 if x < y else 1)


@kernel
def number_cell(value, rest, first, last, values, rests):
    """The cell of a number among the constants [first, last), counted from the section's start. The search takes the
    same steps for every value, without a branch that depends on it: mispredicted ones cost five times as much.
    rests: see Domains.number_rests."""
    return number_cell_at(lower_bound(value, first, last, values), value, rest, first, last, values, rests)


@kernel(inline="always")
def number_cell_at(a, value, rest, first, last, values, rests):
    """The same, for a value whose lower bound is known."""
    if len(values) == 0:
        return np.int64(0)
    at = min(a, len(values) - 1)
    exact = np.int64(a < last) & np.int64(values[at] == value)
    rested = len(rests) > 0
    if (exact & np.int64(rested or rest != 0)) != 0:  # integers beyond 2 ** 53 that share their float, or NaN
        while a < last and values[a] == value and (rests[a] if rested else 0) < rest:
            a += 1
        exact = np.int64(a < last and values[a] == value and (rests[a] if rested else 0) == rest)
    return 2 * (a - first) + exact


@kernel
def time_cell(value, first, last, values):
    a = lower_bound(value, first, last, values)
    return 2 * (a - first) + (1 if a < last and values[a] == value else 0)


@phase(inline=False)
def time_text_cell(data, start, end, attribute, constants):
    """The cell of a string as a time, of an attribute whose facet is TIME."""
    offsets, values, base, cells = constants
    is_time, value = read_time(data, start, end)
    if not is_time:
        return np.int64(cells[attribute])  # of what could not be read
    return np.int64(base[attribute]) + time_cell(value, offsets[attribute], offsets[attribute + 1], values)


@kernel(inline="always")
def lower_bound(value, first, last, values):
    """The first place in [first, last) whose value is not below the given one; last if there is none."""
    a, n = first, last - first
    while n > 0:
        half = (n + 1) >> 1
        a += half * np.int64(values[a + half - 1] < value)  # a product: LLVM makes a branch of a choice
        n -= half
    return a


@phase
def string_cell(data, start, end, first, last, starts, constants, prefixes):
    """The cell of a string among the constants [first, last), counted from the section's start: by its first 8 bytes,
    searched as numbers are, and only among constants that have the same by the rest."""
    head = prefix(data, start, end)
    a = lower_bound(head, first, last, prefixes)
    if a == last or prefixes[a] != head:
        return 2 * (a - first)
    # Few have the same head, mostly: their end is looked for from here on, in steps that grow.
    step, b = 1, a + 1
    while b < last and prefixes[b] == head:
        step *= 2
        b = min(b + step, last)
    b = lower_bound(head + np.uint64(1), a, b, prefixes) if head != np.uint64(2**64 - 1) else last
    stop = b
    while a < b:
        m = (a + b) >> 1
        if compare_rest(constants, starts[m], starts[m + 1], data, start, end) < 0:
            a = m + 1
        else:
            b = m
    exact = a < stop and compare_rest(constants, starts[a], starts[a + 1], data, start, end) == 0
    return 2 * (a - first) + np.int64(exact)


@phase
def compare_rest(a, a_start, a_end, b, b_start, b_end):
    """-1, 0 or 1, of two texts whose first 8 bytes are the same, or all that there are of them and zeros behind."""
    size = min(a_end - a_start, b_end - b_start)
    for k in range(8, size):
        x, y = a[a_start + k], b[b_start + k]
        if x != y:
            return -1 if x < y else 1
    x, y = a_end - a_start, b_end - b_start
    return 0 if x == y else (-1 if x < y else 1)
