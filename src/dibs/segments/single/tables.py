"""The tables of addresses that the call of a single event reads: the groups of arrays that stand there (jit.groups).

The table of a state is a `Head`, then a `LayerTable` for each of its layers. The table of a work space is a `Space`.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.events.json_kernels import Work as Reading
from dibs.coding.events.paths import Paths
from dibs.coding.groups import NumberConstants, StringConstants, TimeConstants
from dibs.coding.patterns.groups import Filter, PatternPieces, PatternSpace
from dibs.index.auto.bit_layout import Clusters, ClusterSpace, Predicates
from dibs.index.auto.record_layout import RecordArrays, WorkSpace
from dibs.index.auto.singles import SieveArrays
from dibs.index.auto.vector_layout import VectorArrays, VectorSpace
from dibs.index.groups import PROGRESS, ClauseArrays, EventArrays, Room
from dibs.index.kernels import Jumps
from dibs.jit.groups import Clean, Sized, fingerprint, size_of
from dibs.segments.single.memtable_kernels import Records as WaitingRecords
from dibs.segments.single.memtable_kernels import Values
from dibs.segments.single.program_kernels import Programs, Running
from dibs.segments.single.sieve_kernels import Sifting

ASKS_RE2 = -2  # instead of the place of a set of patterns: RE2 is asked about every string of the attribute
RESULTS = 5  # pairs, candidates, predicates, nodes, and how many of the pairs are of layers


class Head(NamedTuple):
    layers: int
    like_this: int  # LIKE_THIS
    waiting: WaitingRecords  # see segments.single.memtable
    names: Paths  # that are wanted
    programs: Programs  # of computed values


class DomainArrays(NamedTuple):
    """What values are coded by: see coding.domain. (JSON has no times but those that strings read as.)"""

    own: NDArray[np.int32]  # by number of a wanted name: the attribute, or -1
    numbers: NumberConstants
    strings: StringConstants


class FacetArrays(NamedTuple):
    """What else strings are coded by: see language.table.Facet. All are empty where no predicate asks for it."""

    reversed: NDArray[np.int32]  # by number of a wanted name: the attribute of its strings in reverse, or -1
    matching: NDArray[np.int32]  # of the patterns that they satisfy
    others: NDArray[np.int32]  # of those that they do not satisfy
    times: NDArray[np.int32]  # of the times that they read as
    constants: TimeConstants
    set_of: NDArray[np.int32]  # the place of an attribute's patterns among the sets; -1: it has none; or ASKS_RE2
    sets: int  # the address of their table: a SetOfPatterns for each


class SetOfPatterns(NamedTuple):
    programs: PatternPieces
    filter: Filter


class LayerTable(NamedTuple):
    """A part that a layer does not have is empty arrays."""

    domain: DomainArrays
    facets: FacetArrays
    clauses: ClauseArrays
    jumps: Jumps
    records: RecordArrays
    sieve: SieveArrays
    vectors: VectorArrays
    programs: RecordArrays  # of masks: see index.auto.planner.OneByOne
    predicates: Predicates
    clusters: Clusters
    bit_rows: NDArray[np.int32]  # the row of each clause that is filed for bits
    scanned: NDArray[np.int32]  # rows that are tested one by one
    repeats: NDArray[np.int32]  # the first row of each clause, and the end, where several rows have one: coding.repeats
    ids: NDArray[np.int64]  # of rows, if they are integers
    gone: NDArray[np.uint8]  # see segments.tombstones
    flags: int  # of those below


# Bits of the flags of a layer.
HAS_RECORDS, HAS_SIEVE, HAS_VECTORS, HAS_PROGRAMS, HAS_BITS, HAS_FACETS, ASKS_FOR_VALUES = 1, 2, 4, 8, 16, 32, 64
RECORDS_INEXACT, VECTORS_INEXACT, PROGRAMS_INEXACT = 128, 256, 512


class Search(NamedTuple):
    """Where the search for each value is: see segments.single.coding_kernels."""

    attribute: Annotated[NDArray[np.int32], Sized("values")]  # of the layer; -1: it has none of this name
    head: Annotated[NDArray[np.uint64], Sized("values")]  # of a string: its prefix
    at: Annotated[NDArray[np.int64], Sized("values")]  # its lower bound is not before this constant
    left: Annotated[NDArray[np.int64], Sized("values")]  # and not behind the next so many


class Space(NamedTuple):
    """All that a call writes; sizes are those of segments.single.space.Needs."""

    result: Annotated[NDArray[np.int64], Clean(RESULTS)]  # what a call has done
    events: EventArrays  # the entries of all layers, as if each layer had an event of its own
    ends: Annotated[NDArray[np.int64], Clean("layers")]  # of the rows of each layer; behind them, those of what waits
    search: Search
    text: Annotated[NDArray[np.uint8], Clean("padded_text")]  # and the padding behind it
    values: Values
    reading: Reading
    running: Running
    work: WorkSpace  # of records
    sifting: Sifting
    vectors: VectorSpace  # its slots are those of `work`
    bits: ClusterSpace
    room: Room
    ids: Annotated[NDArray[np.int64], Sized("rows")]  # of the rows of layers whose ids are integers
    progress: Annotated[NDArray[np.int64], Clean(PROGRESS)]
    patterns: PatternSpace
    satisfied: Annotated[NDArray[np.int32], Sized("patterns")]  # by a string
    reversed: Annotated[NDArray[np.uint8], Sized("reversed")]  # a string in reverse


FIRST_LAYER, LAYER, SET = size_of(Head), size_of(LayerTable), size_of(SetOfPatterns)  # bytes in a table

# In the table of a state: by it a kernel knows that it was compiled for tables that are laid out like this. (An older
# one, out of the cache, would write anywhere.)
LAYOUT_FINGERPRINT = fingerprint(Head, LayerTable, SetOfPatterns, Space)

# What a call returns.
DONE = 0
UNSURE = 1  # of the text: another reader decides
LONG = 2  # more bytes, values or entries than there is room for: batches have it
FULL = 3  # more rows than there is room for: call again with more
STALE = 4  # the kernel is older than the tables
LEFT = 5  # a computed value that is not for the machine: call again with all of them as members of the text
