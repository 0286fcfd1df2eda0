"""What the kernels of coding are handed, in named groups: NamedTuples of arrays, free inside compiled code.

The constants of all attributes, kind by kind, as coding.domain.Domains has them: attribute a has those from offsets[a]
to offsets[a + 1], in order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.domain import Domains


class NumberConstants(NamedTuple):
    offsets: NDArray[np.int64]
    value: NDArray[np.float64]
    rest: NDArray[np.int16]

    @classmethod
    def of(cls, domains: Domains) -> NumberConstants:
        return cls(domains.number_offsets, domains.number_value, domains.number_rest)


class StringConstants(NamedTuple):
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]  # strings + 1
    data: NDArray[np.uint8]
    prefix: NDArray[np.uint64]  # the first 8 bytes of each, big-endian
    base: NDArray[np.int32]  # by attribute: the cell where its strings start

    @classmethod
    def of(cls, domains: Domains) -> StringConstants:
        d = domains
        return cls(d.string_offsets, d.string_starts, d.string_bytes, d.string_prefix, d.string_base)


class TimeConstants(NamedTuple):
    offsets: NDArray[np.int64]
    value: NDArray[np.int64]
    base: NDArray[np.int32]  # by attribute: the cell where its times start
    cells: NDArray[np.int32]  # and how many it has

    @classmethod
    def of(cls, domains: Domains) -> TimeConstants:
        return cls(domains.time_offsets, domains.time_value, domains.time_base, domains.cells)


class Sections(NamedTuple):
    """By attribute: where its cells of each kind begin. See coding.domain."""

    string_base: NDArray[np.int32]
    time_base: NDArray[np.int32]
    cells: NDArray[np.int32]  # how many there are


class Literals(NamedTuple):
    """The literals of a table of predicates."""

    kind: NDArray[np.uint8]
    cell: NDArray[np.int32]


class SpanRoom(NamedTuple):
    """Where spans are written, and which cells a list has."""

    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    listed: NDArray[np.int32]  # work space: as long as the longest IN list


class Ranked(NamedTuple):
    """Literals that are being sorted."""

    key: NDArray[np.int64]
    tie: NDArray[np.int32]
    who: NDArray[np.int32]  # where each stood


class Texts(NamedTuple):
    """Strings, one after the other."""

    starts: NDArray[np.int64]  # texts + 1
    data: NDArray[np.uint8]


class Constants(NamedTuple):
    """Those of the domains, all kinds together: see coding.domain.Domains."""

    number_offsets: NDArray[np.int64]
    number_value: NDArray[np.float64]
    number_rests: NDArray[np.int16]  # empty: all are 0
    string_offsets: NDArray[np.int64]
    string_starts: NDArray[np.int64]
    string_bytes: NDArray[np.uint8]
    string_prefix: NDArray[np.uint64]
    string_base: NDArray[np.int32]
    time_offsets: NDArray[np.int64]
    time_value: NDArray[np.int64]
    time_base: NDArray[np.int32]
    cells: NDArray[np.int32]
    facet: NDArray[np.uint8]

    @classmethod
    def of(cls, domains: Domains) -> Constants:
        return cls._make(getattr(domains, name) for name in cls._fields)


class Lookup(NamedTuple):
    """Constants by their hash, see coding.lookup: two tables, of numbers and of strings, whose slots are pairs of
    words. Slot s is [2 * s] and [2 * s + 1]. A constant is in the first free slot from that of its hash on. Empty slots
    are 0 in their second word, which has a cell in its lower half."""

    number_slots: NDArray[np.uint64]  # the bits of the number; the attribute above its cell
    string_slots: NDArray[np.uint64]  # the hash of attribute and string; where the constant starts above its cell
    likely: NDArray[np.uint64]  # bits: one is set for the hash of each constant, so most others are told by it alone
    numbers: NDArray[np.uint8]  # of each attribute: 1 if its numbers are here; empty: there is nothing here
    strings: NDArray[np.uint8]


class CodedRoom(NamedTuple):
    """For the entries of events: as many as there are values, twice that with times, and one more."""

    offsets: NDArray[np.int64]  # events + 1
    attribute: NDArray[np.int32]
    cell: NDArray[np.int32]
    place: NDArray[np.int32]  # of the value
