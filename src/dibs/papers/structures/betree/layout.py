"""The memory of a BE-Tree: one array of words, and what a block of them is.

`words` (int32) is cut into blocks, as a heap is (see betree.nodes). A node is named by the word at which its block
begins. A block is one of

    c-node       C_NODE
    p-node       P_NODE
    l-node       the records of its rows, one after another
    p-directory  a hash table with linear probing over PLACEs; one whose attribute is -1 is empty
    stack        of TASKs, see betree.nodes
    scratch      one record, on its way in

A c-directory has no block of its own: its buckets are the fields `lo`, `hi`, `left` and `right` of c-nodes, because a
match that comes to a bucket wants its c-node too, and finds both in one or two cache lines. That is also why nodes are
blocks of one array and not rows of one array for each field.

A record is a RECORD and then `entries` times an ENTRY: first the hulls of the row's predicates, of which the first
`tested` have to be tested and the others are subsumed (the buckets on the way say that they hold); then, for each
predicate of several spans, one more entry in the form of coding.clauses (hi = -spans, lo the first of them) for the
exact test. A deleted record has the row -1 and a hull that nothing meets.

These types are also the form of saved files: their fields keep their order. betree.nodes reads and writes them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST = 2**31 - 1  # the highest cell
NONE = -1  # no node, no block, no attribute, no row
LEFT, RIGHT = range(2)  # the halves of a bucket


def _words(*names: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int32) for name in names], align=True)


# First what a match reads.
C_NODE = _words(
    "l_node",  # its block, or NONE
    "used",  # words of the l-node, those of deleted records included
    "rows",  # of the l-node
    "p_directory",  # its block, or NONE
    "places",  # of the p-directory: a power of two, or 0
    "left",  # the c-node of the left half of the bucket, or NONE
    "right",
    "left_lo",  # the least interval that covers all rows in the left half; MOST, -1 if there are none
    "left_hi",
    "right_lo",
    "right_hi",
    "attribute",  # of the bucket; NONE at the root
    "parent",  # the c-node of the bucket of which this is a half; NONE at the top
    "p_node",  # in whose c-directory it is; NONE at the root
    "capacity",  # rows of the l-node before it overflows
    "is_split",  # 1: the bucket has been halved, and rows that fit into a half are there
    "dead",  # words of deleted records in the l-node; out of the tree: how many words have been inserted again
    "p_nodes",  # in the p-directory
    "lo",  # the bucket
    "hi",
    # By the events that were watched since the last window of its p-node, see betree.ranks (in trees that were saved
    # before there were these two: any numbers, until the first window ends):
    "loss",  # evaluations of rows in the l-node that did not match
    "way_loss",  # evaluations that led here in vain
)
P_NODE = _words(
    "c_node",  # in whose p-directory it is
    "attribute",
    "top",  # the c-node of the top bucket of its c-directory
    "rows",  # below it
    "gain",  # predicates of these rows that the way to them has evaluated
    "loss",  # evaluations in vain below it in this window, by the events that were watched
    "seen",  # how many events these were
    "changes",  # insertions and deletions in this window
    "last_loss",  # the average loss in the last window
    "entered",  # how many events were watched since the window of the c-nodes below it began
)
PLACE = _words("attribute", "top", "lo", "hi", "p_node")  # lo to hi: the least interval that covers all rows below
RECORD = _words("row", "tested", "entries")
ENTRY = _words("attribute", "lo", "hi")
INTERVAL = _words("lo", "hi")
TASK = _words("kind", "node")
WHERE = _words("c_node", "offset")  # a row of `place`: NONE if deleted; where in the l-node the record begins
ABOUT = _words(  # a row of `about`
    "ceiling",  # the highest cell of the attribute when it came first
    "have",  # three to count in, zero between steps: see betree.partition
    "chose",
    "space",
)

# Walks through the tree keep lists of these.
ON_PATH = _words("c", "level")  # a c-node, and how many are on the path to it, itself included
RANKED = np.dtype(  # a c-node; the place in the list of the one above it; attributes on the way; whether it fails
    [("c", np.int32), ("above", np.int32), ("depth", np.int32), ("fails", np.int32), ("rank", np.int64)], align=True
)
TO_COPY = _words("c", "link", "parent", "p")  # a c-node; where to name its copy, if anywhere; the copies of those above


def words_of(block: np.dtype[Any]) -> int:
    return block.itemsize // 4


def offset_of(block: np.dtype[Any], name: str) -> int:
    """Which word of a block a field is."""
    assert block.fields is not None
    return block.fields[name][1] // 4


C_NODE_WORDS, P_NODE_WORDS, PLACE_WORDS = words_of(C_NODE), words_of(P_NODE), words_of(PLACE)
RECORD_WORDS, ENTRY_WORDS, TASK_WORDS = words_of(RECORD), words_of(ENTRY), words_of(TASK)
ROOT = 1  # the first block of all: a c-node without a bucket

# The state: how many words are used and how many are wanted; c-nodes, p-nodes, rows; the stack and how many of its
# words are used; the scratch block; how many rows of the present call have been done.
WORDS, WANTED, C_NODES, P_NODES, ALIVE, STACK, TASKS, SCRATCH, NEXT = range(9)
MAX_CAP, MIN_SIZE, RECYCLED, LARGE_FREE = range(9, 13)
MANY, SAMPLE, WINDOW, LARGE = range(13, 17)  # as the numbers of betree.py were when the tree was begun
# Options: whether max_cap is kept, whether new p-nodes have a loss by histogram, the window in rows for each operation.
FIXED, HISTOGRAM, ROWS_A_CHANGE = range(17, 20)
LISTS = 20  # from here on: the first free block of each class
CLASSES = 60
STATE = LISTS + CLASSES

INSERT, DELETE, PLANT, ADJUST, MOVE = range(5)  # what betree.update does


class TreeArrays(NamedTuple):
    """All that an update reads and writes."""

    words: NDArray[np.int32]  # the blocks
    state: NDArray[np.int64]  # STATE numbers: WORDS and what follows
    place: NDArray[np.int32]  # a WHERE for each row
    about: NDArray[np.int32]  # an ABOUT for each attribute


class TreePointers(NamedTuple):
    """The same in compiled functions: pointers (see jit.pointers), and how many words there are."""

    words: Any
    state: Any
    place: Any
    about: Any
    size: int


class Searched(NamedTuple):
    """All that a match reads."""

    words: NDArray[np.int32]  # it also writes losses there
    span_lo: NDArray[np.int32]  # the spans of predicates that have several
    span_hi: NDArray[np.int32]


class MatchSpace(NamedTuple):
    """What a match needs besides."""

    # A queue with room for all c-nodes; behind it, for each of an event that is watched, the place in the queue of the
    # one that led to it, as ~place if something matched there or below.
    visit: NDArray[np.int32]
    slot_lo: NDArray[np.int32]  # slots for one event by attribute (see index.kernels), all zero between calls
    slot_hi: NDArray[np.int32]
    slot_more: NDArray[np.int64]


class Update(NamedTuple):
    """What an update is to do."""

    mode: int  # INSERT, DELETE, PLANT, ADJUST or MOVE
    # DELETE, PLANT, MOVE: which ones, in this order; ADJUST: p-nodes to recycle, none below another
    rows: NDArray[np.int64]
    chosen: NDArray[np.int64]  # PLANT: the attribute under which each row goes at the root, or NONE


class Incoming(NamedTuple):
    """Rows on their way in: clauses (see coding.clauses), whose spans are already among those of the tree."""

    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    span_lo: NDArray[np.int32]  # of the tree
    span_hi: NDArray[np.int32]
    first_row: int  # the number of the first among all rows
    first_span: int  # where their spans begin among all spans
