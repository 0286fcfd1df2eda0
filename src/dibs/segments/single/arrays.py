"""The arrays of the tables of segments.single, in the groups in which kernels get them. All of this is inlined: nothing
else can give back arrays that nobody counts (jit.borrowing)."""

from __future__ import annotations

import numpy as np

from dibs.coding.events.json_kernels import Found
from dibs.coding.events.json_kernels import Work as Reading
from dibs.coding.events.paths import COLUMNS as NODE_COLUMNS
from dibs.coding.events.paths import Paths
from dibs.coding.patterns.automaton_kernels import WIDTH
from dibs.coding.patterns.groups import Filter, PatternPieces, PatternSpace
from dibs.index.auto.bit_layout import COLUMNS, Clusters, Predicates
from dibs.index.auto.bit_layout import ClusterSpace as Bits
from dibs.index.auto.record_layout import RecordArrays, WorkSpace
from dibs.index.auto.singles import SieveArrays
from dibs.index.groups import ClauseArrays, EventArrays, Room
from dibs.index.kernels import Jumps, Slots
from dibs.jit.borrowing import array_at, number_at, rows_at
from dibs.jit.kernel import kernel
from dibs.segments.single.layout import (
    BITS,
    BUCKETS,
    BY_NAME,
    CLAUSES,
    CLUSTERS,
    COARSE,
    CODED,
    DOMAIN,
    FACETS,
    FILTER,
    FIRST_PROGRAM,
    FOUND,
    JUMPS,
    NAMES,
    OFFSETS,
    PATTERNS,
    PREDICATES,
    PROGRAMS,
    READING,
    RECORDS,
    ROOM,
    SEARCH,
    SIEVE,
    SIFTING,
    SLOTS,
    STAMPS,
    SURVIVORS,
    WAITING,
    WAITING_HEADS,
    DomainArrays,
    Entries,
    FacetArrays,
    Search,
    Sifting,
)
from dibs.segments.single.waiting_kernels import Records as WaitingRecords
from dibs.segments.single.waiting_kernels import Values


@kernel(inline="always")
def names_at(plan):
    return Paths(
        array_at(plan, NAMES, np.int32),
        rows_at(plan, NAMES + 1, np.int64, NODE_COLUMNS),
        array_at(plan, NAMES + 2, np.uint8),
    )


@kernel(inline="always")
def waiting_at(plan):
    return WaitingRecords(
        rows_at(plan, WAITING_HEADS, np.int32, 2),
        array_at(plan, WAITING, np.int64),
        array_at(plan, WAITING + 1, np.float64),
        array_at(plan, WAITING + 2, np.uint8),
    )


@kernel(inline="always")
def domain_at(plan, own):
    return DomainArrays(
        array_at(plan, own + DOMAIN, np.int32),
        array_at(plan, own + DOMAIN + 1, np.int64),
        array_at(plan, own + DOMAIN + 2, np.float64),
        array_at(plan, own + DOMAIN + 3, np.int16),
        array_at(plan, own + DOMAIN + 4, np.int64),
        array_at(plan, own + DOMAIN + 5, np.int64),
        array_at(plan, own + DOMAIN + 6, np.uint8),
        array_at(plan, own + DOMAIN + 7, np.uint64),
        array_at(plan, own + DOMAIN + 8, np.int32),
    )


@kernel(inline="always")
def facets_at(plan, own):
    return FacetArrays(
        array_at(plan, own + FACETS, np.int32),
        array_at(plan, own + FACETS + 1, np.int32),
        array_at(plan, own + FACETS + 2, np.int32),
        array_at(plan, own + FACETS + 3, np.int32),
        array_at(plan, own + FACETS + 4, np.int64),
        array_at(plan, own + FACETS + 5, np.int64),
        array_at(plan, own + FACETS + 6, np.int32),
        array_at(plan, own + FACETS + 7, np.int32),
        array_at(plan, own + FACETS + 8, np.int32),
        array_at(plan, own + FACETS + 9, np.int64),
    )


@kernel(inline="always")
def programs_at(sets, at):
    """Of the set at this place of a table of sets."""
    return PatternPieces(
        array_at(sets, at + PROGRAMS, np.uint8),
        array_at(sets, at + PROGRAMS + 1, np.int64),
        rows_at(sets, at + PROGRAMS + 2, np.int64, 3),
        array_at(sets, at + PROGRAMS + 3, np.uint8),
        array_at(sets, at + PROGRAMS + 4, np.int32),
        rows_at(sets, at + PROGRAMS + 5, np.uint64, WIDTH),
    )


@kernel(inline="always")
def filter_at(sets, at):
    return Filter(
        array_at(sets, at + FILTER, np.uint64),
        array_at(sets, at + FILTER + 1, np.uint64),
        array_at(sets, at + FILTER + 2, np.bool_),
        array_at(sets, at + FILTER + 3, np.uint64),
        rows_at(sets, at + FILTER + 4, np.int64, 4),
        array_at(sets, at + FILTER + 5, np.bool_),
        array_at(sets, at + FILTER + 6, np.int64),
        rows_at(sets, at + FILTER + 7, np.int64, 2),
        array_at(sets, at + FILTER + 8, np.int64),
        array_at(sets, at + FILTER + 9, np.int64),
        array_at(sets, at + FILTER + 10, np.int64),
    )


@kernel(inline="always")
def patterns_at(space):
    return PatternSpace(
        array_at(space, PATTERNS, np.int64),
        array_at(space, PATTERNS + 1, np.int64),
        array_at(space, PATTERNS + 2, np.int64),
        array_at(space, PATTERNS + 3, np.int64),
        array_at(space, PATTERNS + 4, np.uint64),
        array_at(space, PATTERNS + 5, np.int64),
        array_at(space, PATTERNS + 6, np.int64),
    )


@kernel(inline="always")
def clauses_at(plan, own):
    return ClauseArrays(
        array_at(plan, own + CLAUSES, np.int64),
        array_at(plan, own + CLAUSES + 1, np.int32),
        array_at(plan, own + CLAUSES + 2, np.int32),
        array_at(plan, own + CLAUSES + 3, np.int32),
        array_at(plan, own + CLAUSES + 4, np.int32),
        array_at(plan, own + CLAUSES + 5, np.int32),
    )


@kernel(inline="always")
def jumps_at(plan, own):
    return Jumps(
        array_at(plan, own + JUMPS, np.int32),
        array_at(plan, own + JUMPS + 1, np.int32),
        number_at(plan, own + FIRST_PROGRAM),
    )


@kernel(inline="always")
def records_at(plan, own):
    return RecordArrays(
        array_at(plan, own + RECORDS, np.uint64),
        array_at(plan, own + RECORDS + 1, np.int64),
        array_at(plan, own + RECORDS + 2, np.int32),
        array_at(plan, own + RECORDS + 3, np.uint8),
        array_at(plan, own + RECORDS + 4, np.int32),
        array_at(plan, own + RECORDS + 5, np.uint8),
        array_at(plan, own + RECORDS + 6, np.int64),
        array_at(plan, own + RECORDS + 7, np.int32),
        array_at(plan, own + RECORDS + 8, np.uint32),
        array_at(plan, own + RECORDS + 9, np.uint64),
        array_at(plan, own + RECORDS + 10, np.uint32),
        array_at(plan, own + RECORDS + 11, np.uint8),
        array_at(plan, own + RECORDS + 12, np.uint8),
    )


@kernel(inline="always")
def sieve_at(plan, own):
    return SieveArrays(array_at(plan, own + SIEVE, np.uint64), array_at(plan, own + SIEVE + 1, np.int32))


@kernel(inline="always")
def predicates_at(plan, own):
    return Predicates(
        rows_at(plan, own + PREDICATES, np.int32, COLUMNS),
        array_at(plan, own + PREDICATES + 1, np.int32),
        array_at(plan, own + PREDICATES + 2, np.int32),
        array_at(plan, own + PREDICATES + 3, np.int32),
        array_at(plan, own + PREDICATES + 4, np.int32),
        array_at(plan, own + PREDICATES + 5, np.int32),
    )


@kernel(inline="always")
def clusters_at(plan, own):
    return Clusters(
        array_at(plan, own + CLUSTERS, np.uint64),
        array_at(plan, own + CLUSTERS + 1, np.int32),
        array_at(plan, own + CLUSTERS + 2, np.int64),
        array_at(plan, own + CLUSTERS + 3, np.int32),
    )


@kernel(inline="always")
def find_at(space):
    return Found(
        array_at(space, FOUND, np.int32),
        array_at(space, FOUND + 1, np.uint8),
        array_at(space, FOUND + 2, np.int64),
        array_at(space, FOUND + 3, np.int16),
        array_at(space, FOUND + 4, np.int64),
        array_at(space, FOUND + 5, np.uint8),
        array_at(space, FOUND + 6, np.int64),
    )


@kernel(inline="always")
def numbers_at(space):
    """The keys of values as numbers."""
    return array_at(space, FOUND + 2, np.float64)


@kernel(inline="always")
def values_at(space):
    return Values(
        find_at(space),
        numbers_at(space),
        array_at(space, BY_NAME, np.int32),
        array_at(space, BY_NAME + 1, np.int32),
        array_at(space, BY_NAME + 2, np.uint64),
    )


@kernel(inline="always")
def reading_at(space):
    return Reading(
        array_at(space, READING, np.int64),
        array_at(space, READING + 1, np.int64),
        array_at(space, READING + 2, np.int32),
        array_at(space, READING + 3, np.int64),
        array_at(space, READING + 4, np.int32),
        array_at(space, READING + 5, np.uint8),
        array_at(space, READING + 6, np.int32),
        array_at(space, READING + 7, np.int32),
    )


@kernel(inline="always")
def code_at(space):
    return Entries(
        array_at(space, CODED, np.int32), array_at(space, CODED + 1, np.int32), array_at(space, CODED + 2, np.int32)
    )


@kernel(inline="always")
def search_at(space):
    return Search(
        array_at(space, SEARCH, np.int32),
        array_at(space, SEARCH + 1, np.uint64),
        array_at(space, SEARCH + 2, np.int64),
        array_at(space, SEARCH + 3, np.int64),
    )


@kernel(inline="always")
def events_at(space):
    """The entries of all layers, as if each layer had an event of its own."""
    return EventArrays(
        array_at(space, OFFSETS, np.int64),
        array_at(space, CODED, np.int32),
        array_at(space, CODED + 1, np.int32),
        array_at(space, CODED + 2, np.int32),
    )


@kernel(inline="always")
def slots_at(space):
    return Slots(
        array_at(space, SLOTS, np.int32), array_at(space, SLOTS + 1, np.int32), rows_at(space, SLOTS + 2, np.int64, 2)
    )


@kernel(inline="always")
def sifting_at(space):
    return Sifting(array_at(space, SIFTING, np.uint64), array_at(space, SIFTING + 1, np.uint64))


@kernel(inline="always")
def work_at(space):
    """The work space of records."""
    return WorkSpace(
        slots_at(space),
        array_at(space, COARSE, np.uint16),
        array_at(space, STAMPS, np.int32),
        array_at(space, SURVIVORS, np.uint32),
        array_at(space, BUCKETS, np.uint32),
        array_at(space, BUCKETS + 1, np.uint32),
    )


@kernel(inline="always")
def bits_at(space):
    return Bits(
        array_at(space, BITS, np.uint64), array_at(space, BITS + 1, np.int32), array_at(space, BITS + 2, np.uint64)
    )


@kernel(inline="always")
def room_at(space):
    return Room(array_at(space, ROOM, np.int32), array_at(space, ROOM + 1, np.int32))
