"""What the kernels of joins are handed, in named groups of arrays.

A value, of a document, an event or a constant, is (kind, key, tie). Within a kind, key and then tie are in the order of
the values:

    number    key: the bits of the nearest float64, in order; tie: what is left of an integer (NaN is infinity and 1)
    string    key: the first 8 bytes; tie: the number of the text, and of two texts their bytes are compared. Equal
              texts of documents have one number. (An event's text that no document has is -1.)
    time      key: microseconds
    boolean   key: 0 or 1
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.groups import size_of
from dibs.language.expression import Kind

BOOLEAN, NUMBER, STRING, TIME = (int(k) for k in (Kind.BOOLEAN, Kind.NUMBER, Kind.STRING, Kind.TIME))
UNREADABLE = 4  # there, and nothing is known of it
MISSING = 5
SEVERAL = 6  # of a document: an array; key is the place of its first value among the extra ones, tie their number

# Operators of tests. EQUAL with several operands is IN, with an interval it is BETWEEN.
EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST, NOT_IN, IS_NULL, NOT_NULL, PATTERN, NEVER = range(11)
OPERATORS = {"=": EQUAL, "<>": UNEQUAL, "<": LESS, "<=": AT_MOST, ">": MORE, ">=": AT_LEAST}

# Those from FUNCTION_SUM on are totals: see total_kernels.py. FUNCTION_ROWS lists documents: see candidates.py.
(FUNCTION_EXISTS, FUNCTION_COUNT, FUNCTION_MIN, FUNCTION_MAX, FUNCTION_LAST, FUNCTION_FIRST, FUNCTION_SUM, FUNCTION_AVG,
 FUNCTION_STDDEV, FUNCTION_STDDEV_POP, FUNCTION_DISTINCT, FUNCTION_ROWS) = range(12)  # fmt: skip
DIGITS = 72  # of 32 bits, of a sum
IS_TRUE, IS_FALSE = 1, 2  # bits of a truth: both where an event has several values
OPEN_LOW, OPEN_HIGH = 1, 2  # bits of an interval: the end does not belong to it


class Documents(NamedTuple):
    """Columns by attribute and document, from the base of the state on."""

    kind: NDArray[np.uint8]
    key: NDArray[np.int64]
    tie: NDArray[np.int32]
    extra_kind: NDArray[np.uint8]
    extra_key: NDArray[np.int64]
    extra_tie: NDArray[np.int32]
    text_start: NDArray[np.int64]  # text i is text_data[text_start[i]:text_start[i + 1]]
    text_data: NDArray[np.uint8]
    patterns: NDArray[np.uint8]  # pattern, text: whether it is met


class Operands(NamedTuple):
    """What documents are compared with: first the constants of the joins, then the values of events by event and slot.
    Operand v is of kind[v], from the end low[v] to the end high[v] (-1: without one; the same: one value). Ends are
    places in key, tie, start and stop, the last two in data.

    Those of one test, or slot, are in order, by kind and low end, and of one kind each ends above those before it: so
    one search finds what stands in a relation to any of them, however many there are."""

    kind: NDArray[np.uint8]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    is_open: NDArray[np.uint8]
    key: NDArray[np.int64]
    tie: NDArray[np.int32]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    data: NDArray[np.uint8]
    at: NDArray[np.int64]  # operands of slot s of event e: at[e * slots + s] to the next


class Tests(NamedTuple):
    """Test t of a document: whether some value of its column stands in this relation to some operand."""

    column: NDArray[np.int32]
    operator: NDArray[np.uint8]
    slot: NDArray[np.int32]  # of the event; -1: the operands are constants
    first: NDArray[np.int32]  # the constants, up to last; of PATTERN its number
    last: NDArray[np.int32]
    offset: NDArray[np.int64]  # microseconds that are added to operands
    is_timed: NDArray[np.uint8]  # there is an offset, so that only times are compared


class Conjunctions(NamedTuple):
    """Tests that one document must pass: equal (on the first columns of the index, in order), then those on its last
    column, then the others."""

    number: NDArray[np.int32]  # of the index; -1: all documents are tested
    equal: NDArray[np.int32]  # the first test
    order: NDArray[np.int32]
    rest: NDArray[np.int32]
    stop: NDArray[np.int32]


class JoinTable(NamedTuple):
    function: NDArray[np.uint8]
    first: NDArray[np.int32]  # conjunctions
    last: NDArray[np.int32]
    attribute: NDArray[np.int32]  # column of MIN, MAX, totals and the last or first value; -1
    by: NDArray[np.int32]  # column by which the last or first document is told; -1
    slot: NDArray[np.int32]  # the attribute of the event that is compared with the result; -1
    operator: NDArray[np.uint8]  # result OPERATOR event's value
    negated: NDArray[np.uint8]  # the operator for which that is false
    factor: NDArray[np.float64]  # of the result; NaN: none
    is_fixed: NDArray[np.uint8]  # the result is the same for all events


class Program(NamedTuple):
    joins: JoinTable
    conjunctions: Conjunctions
    tests: Tests
    slots: int


class Run(NamedTuple):
    """Entries of an index in order: by group, kind, key, tie and row."""

    group: NDArray[np.int32]
    kind: NDArray[np.uint8]  # this and the next two are empty where the index has no last column; tie also if all are 0
    key: NDArray[np.int64]
    tie: NDArray[np.int32]
    row: NDArray[np.int32]


class Groups(NamedTuple):
    """Values of the equated columns that occur together, numbered. Numbers from the count of a snapshot on are free."""

    slots: NDArray[np.int32]  # by hash, 1 + number
    kind: NDArray[np.uint8]  # by number and column
    key: NDArray[np.int64]
    tie: NDArray[np.int32]


class View(NamedTuple):
    """Which documents each event sees: from first to end, without those that are gone."""

    first: NDArray[np.int64]
    end: NDArray[np.int64]
    gone: NDArray[np.int32]  # by document, the first event that does not see it any more; empty: none is gone


class Result(NamedTuple):
    """What is found for one join and event: how many documents, one of them, and a value of each kind."""

    counts: NDArray[np.int64]  # [0]; [1] a document or -1; [2] how many results there were before
    has: NDArray[np.uint8]
    key: NDArray[np.int64]
    tie: NDArray[np.int32]
    row: NDArray[np.int32]


class Memo(NamedTuple):
    """Results by join of those that are the same for all events."""

    is_known: NDArray[np.uint8]
    counts: NDArray[np.int64]
    has: NDArray[np.uint8]
    key: NDArray[np.int64]
    tie: NDArray[np.int32]
    row: NDArray[np.int32]


class Answers(NamedTuple):
    truth: NDArray[np.uint8]  # event, join: bits IS_TRUE and IS_FALSE
    witness: NDArray[np.int32]  # event, join: a document; only where there is room for it
    event: NDArray[np.int32]  # of joins that have a value: one row for each
    join: NDArray[np.int32]
    kind: NDArray[np.uint8]
    key: NDArray[np.int64]
    tie: NDArray[np.int32]
    row: NDArray[np.int32]  # the document


class Ranks(NamedTuple):
    """By which the documents of a run are counted that are there; empty: they have not been needed."""

    bits: NDArray[np.uint64]
    before: NDArray[np.int32]


NO_RANKS = Ranks(np.empty(0, np.uint64), np.empty(0, np.int32))


class Sorted(NamedTuple):
    """A run of an index, in the table of addresses."""

    run: Run
    oldest: int
    newest: int
    ranks: Ranks = NO_RANKS


class IndexEntries(NamedTuple):
    """An index, in the table of addresses: INDEX bytes for each, then RUN bytes for each of its runs."""

    runs: int
    first_run: int  # bytes from the beginning of the table
    sorted: int  # documents from this one on are in no run yet
    group_count: int
    equated: int
    last_column: int  # -2: none
    is_multiple: int
    groups: Groups
    wide: NDArray[np.int32]  # documents without entries, which are tested one by one


INDEX, RUN = size_of(IndexEntries), size_of(Sorted)


class Tally(NamedTuple):
    """Room for totals; empty where none is asked for."""

    digits: NDArray[np.int64]  # DIGITS of them
    counts: NDArray[np.int64]
    mean: NDArray[np.float64]
    stamp: NDArray[np.int32]  # a table of values by hash: the number of the result that each was met for
    kind: NDArray[np.uint8]
    key: NDArray[np.int64]
    tie: NDArray[np.int32]
    rows: NDArray[np.int32]  # documents, of which there is room for all


class Asked(NamedTuple):
    """All that answering reads."""

    table: int  # the address of the indexes' table
    docs: Documents
    ops: Operands
    tests: Tests
    conjunctions: Conjunctions
    joins: JoinTable
    sight: View  # (Numba takes "view" for that of an array)
    slots: int
    seen: np.ndarray  # by document: the count (Result.counts[2]) in which it was met last
    tally: Tally
