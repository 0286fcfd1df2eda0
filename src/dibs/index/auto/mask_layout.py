"""What the kernels of index.auto.masks are handed, in named groups (see there for what the arrays mean), and the names
of columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WORD = 64  # events of a mask word
AHEAD, LATER = 12, 4  # clauses and survivors whose masks are prefetched

# Columns of `program`, by step, and of `entry`, by entry: rows of so many numbers.
PREDICATE, ON_TRUE, ON_FALSE = range(3)
STEP = 4
ROW, BEGIN, STEPS, PART_FIRST, PART_LAST, RANK = range(6)
ENTRY = 8


class Sizes(NamedTuple):
    """Where another way begins (see dibs.tuning)."""

    chunk: int  # survivors collected at once: at least 2
    most_spans: int  # a predicate of more spans is tested value by value
    few_events: int  # that pass an entry's tests are run through its program one by one
    small_domain: int  # cells; larger ones are searched instead of tabulated, unless predicates are many
    most_tabulated: int  # cells of any domain that is tabulated


class MaskArrays(NamedTuple):
    """The arrays of the structure."""

    attribute: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    of_attribute: NDArray[np.int64]
    plain_of: NDArray[np.int64]
    group_predicate: NDArray[np.uint32]
    group_start: NDArray[np.uint32]
    groups_of: NDArray[np.int64]
    second: NDArray[np.uint32]
    rest_start: NDArray[np.uint32]
    rest: NDArray[np.uint32]
    row: NDArray[np.int32]
    always: NDArray[np.int32]
    program: NDArray[np.int32]
    entry: NDArray[np.int32]
    entry_access: NDArray[np.uint32]
    unreached: NDArray[np.int64]


class Spans(NamedTuple):
    """Those of the clauses, and the attributes that some IS NULL asks for."""

    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    null_attributes: NDArray[np.int32]


class WorkSpace(NamedTuple):
    """All zero between calls, but the list of masks that were written."""

    masks: NDArray[np.uint64]  # by predicate, and one that is true
    written: NDArray[np.uint32]  # predicates; one more than there are
    entries_of: NDArray[np.int32]  # by attribute: how many entries the block has, then its place among those touched
    reach: NDArray[np.uint64]  # by step of a program: the events that reach it; then those accepted, then rejected


class Block(NamedTuple):
    """The events of a block by attribute: attributes[t] has the entries begin[t] : begin[t + 1]."""

    first_event: int
    events: int
    valid: NDArray[np.uint64]  # a mask: a bit for each event
    attributes: NDArray[np.int32]  # that have predicates, and an entry or an IS NULL; in order
    begin: NDArray[np.int64]
    event: NDArray[np.int32]  # counted from the block's first one; grows within an attribute
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]


class FillSpace(NamedTuple):
    """What the masks of one attribute are made with."""

    order: NDArray[np.int32]  # its entries: first the points, by value
    behind: NDArray[np.int32]  # the same before they are sorted
    present: NDArray[np.uint64]  # a mask: the events that have it
    cumulative: NDArray[np.uint64]  # masks: the events of no point, the first one, the first two, ...
    written: NDArray[np.uint32]  # predicates whose masks are not zero
    rank: NDArray[np.int32]  # by cell: how many points lie there or below


class Chunk(NamedTuple):
    """Survivors: clauses whose first two predicates hold for some event, and what becomes of them."""

    clause: NDArray[np.uint32]
    mask: NDArray[np.uint64]
    word: NDArray[np.uint64]  # the words of their masks that are not empty in the end
    word_of: NDArray[np.uint64]  # clause << 8 | which word of the mask


class Position(NamedTuple):
    """Where the walk over the clauses is: place among the attributes touched, group, clause."""

    touched: int
    group: int
    clause: int
