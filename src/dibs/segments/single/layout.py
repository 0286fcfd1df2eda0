"""What stands where in the tables of addresses: an entry is an address and a length, or a plain number.

The table of a state begins with the number of its layers, what waits in it and the names that are wanted
(coding.events.paths.Paths); then comes a block of LAYER entries for each layer. The table of a work space is WORK
entries.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.events.json_kernels import Found, Work
from dibs.coding.events.paths import Paths
from dibs.coding.patterns.groups import Filter, PatternPieces, PatternSpace
from dibs.index.auto.bit_layout import Clusters, Predicates
from dibs.index.auto.record_layout import RecordArrays
from dibs.index.auto.singles import SieveArrays
from dibs.index.groups import ClauseArrays

ASKS_RE2 = -2  # instead of the place of a set of patterns: RE2 is asked about every string of the attribute


class DomainArrays(NamedTuple):
    """What values are coded by: see coding.domain. (JSON has no times but those that strings read as.)"""

    own: NDArray[np.int32]  # by number of a wanted name: the attribute, or -1
    number_offsets: NDArray[np.int64]
    number_value: NDArray[np.float64]
    number_rest: NDArray[np.int16]
    string_offsets: NDArray[np.int64]
    string_starts: NDArray[np.int64]
    string_bytes: NDArray[np.uint8]
    string_prefix: NDArray[np.uint64]
    string_base: NDArray[np.int32]


class FacetArrays(NamedTuple):
    """What else strings are coded by: see language.table.Facet. All are empty where no predicate asks for it."""

    reversed: NDArray[np.int32]  # by number of a wanted name: the attribute of its strings in reverse, or -1
    matching: NDArray[np.int32]  # of the patterns that they satisfy
    others: NDArray[np.int32]  # of those that they do not satisfy
    times: NDArray[np.int32]  # of the times that they read as
    time_offsets: NDArray[np.int64]  # these and the next as coding.groups.TimeConstants has them
    time_value: NDArray[np.int64]
    time_base: NDArray[np.int32]
    cells: NDArray[np.int32]  # of an attribute
    set_of: NDArray[np.int32]  # the place of an attribute's patterns in `sets`; -1: it has none; or ASKS_RE2
    sets: NDArray[np.int64]  # a table: SET entries for each set of patterns


class Entries(NamedTuple):
    """The coded entries of all layers, of each one by attribute and first cell."""

    attribute: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]


class Search(NamedTuple):
    """Where the search for each value is: see segments.single.coding_kernels."""

    attribute: NDArray[np.int32]  # of the layer; -1: it has none of this name
    head: NDArray[np.uint64]  # of a string: its prefix
    at: NDArray[np.int64]  # its lower bound is not before this constant
    left: NDArray[np.int64]  # and not behind the next so many


class Sifting(NamedTuple):
    """What segments.single.sieve_kernels needs."""

    present: NDArray[np.uint64]  # bits: the attributes of the event. Zeros between events
    passed: NDArray[np.uint64]  # places of clauses


def _places(first: int, *sizes: int) -> list[int]:
    """Where each of several runs of entries begins, and where the last one ends."""
    return [first + sum(sizes[:i]) for i in range(len(sizes) + 1)]


# Of a state.
LAYERS = 0
# The records of what waits (segments.single.waiting), as int64, float64 and bytes, each with its true length; and their
# heads, int32 n x 2.
WAITING, WAITING_HEADS, NAMES, HEAD = _places(1, 3, 1, len(Paths._fields))

# Of a layer, from the beginning of its block. A part that a layer does not have is empty arrays.
(
    DOMAIN,
    FACETS,
    CLAUSES,
    JUMPS,
    RECORDS,
    SIEVE,
    PREDICATES,
    CLUSTERS,
    BIT_ROWS,
    SCANNED,
    IDS,
    GONE,
    FLAGS,
    FIRST_PROGRAM,
    LAYER,
) = _places(
    0,
    len(DomainArrays._fields),
    len(FacetArrays._fields),
    len(ClauseArrays._fields),
    2,
    len(RecordArrays._fields),
    len(SieveArrays._fields),
    len(Predicates._fields),
    len(Clusters._fields),
    1,  # int32: the row of each clause that is filed for bits
    1,  # int32: rows that are tested one by one
    1,  # int64: the ids of rows, if they are integers
    1,  # uint8: see segments.gone
    1,
    1,
)
OWN = DOMAIN

# Of a set of patterns.
PROGRAMS, FILTER, SET = _places(0, len(PatternPieces._fields), len(Filter._fields))
# Bits of FLAGS.
HAS_RECORDS, INEXACT, HAS_BITS, ASKS_FOR_VALUES, HAS_FACETS, HAS_SIEVE = 1, 2, 4, 8, 16, 32

# Of a work space.
(
    RESULT,
    OFFSETS,
    ENDS,
    CODED,
    SEARCH,
    TEXT,
    FOUND,
    READING,
    SLOTS,
    COARSE,
    STAMPS,
    SURVIVORS,
    BUCKETS,
    SIFTING,
    BITS,
    ROOM,
    FOUND_IDS,
    PROGRESS,
    BY_NAME,
    PATTERNS,
    SATISFIED,
    REVERSED,
    WORK,
) = _places(
    0,
    1,  # int64: what a call has done
    1,  # int64, layers + 1: where the coded entries of each layer begin
    1,  # int64, layers: where the rows of each layer end; behind the last are those of what waits
    3,  # int32: attribute, first and last cell of all entries, layer by layer
    len(Search._fields),
    1,  # uint8: the text and the padding behind it
    len(Found._fields),
    len(Work._fields),
    3,
    1,
    1,
    1,
    2,
    len(Sifting._fields),
    3,
    2,
    1,  # int64: the ids of the rows of layers whose ids are integers
    1,
    3,  # of values: see segments.single.waiting_kernels
    len(PatternSpace._fields),
    1,  # int32: patterns of a string
    1,  # uint8: a string in reverse
)

# Beside the number of layers: by it a kernel knows that it was compiled for tables that are laid out like this. (An
# older one, out of the cache, would write anywhere.)
LIKE_THIS = zlib.crc32(repr([(name, value) for name, value in sorted(globals().items()) if name.isupper()]).encode())

# What a call returns.
DONE = 0
UNSURE = 1  # of the text: another reader decides
LONG = 2  # more bytes, values or entries than there is room for: batches have it
FULL = 3  # more rows than there is room for: call again with more
STALE = 4  # the kernel is older than the tables
