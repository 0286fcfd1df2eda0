"""L-nodes of a BE-Tree: records one after another, and the room for them."""

from __future__ import annotations

from numba import void

from dibs.jit.pointers import CHECKED
from dibs.papers.structures.betree.layout import ENTRY_WORDS, NONE, WORDS
from dibs.papers.structures.betree.memory import allocate, class_at, class_of, class_size, release, room_in
from dibs.papers.structures.betree.nodes import (
    BOTH,
    N,
    T,
    W,
    c_node_at,
    copy,
    entry_at,
    length_of,
    nth_entry,
    record_at,
    step,
    where_at,
)

# ---- records ----


@step(BOTH(W, N, N))
def key(words, record, attribute):
    """The hull by which a record is clustered on an attribute: that of its narrowest (then lowest) predicate on it,
    or (1, 0) if it has none."""
    x, y = 1, 0
    for i in range(record_at(words, record).entries):
        entry = entry_at(words, nth_entry(record, i))
        low, high = entry.lo, entry.hi
        if entry.attribute == attribute and high >= 0:
            if y == 0 or high - low < y - x or (high - low == y - x and low < x):
                x, y = low, high
    return x, y


@step(void(W, N, N, N))
def swap(words, record, i, j):
    """Two entries of a record."""
    a, b = nth_entry(record, i), nth_entry(record, j)
    for k in range(ENTRY_WORDS):
        words[a + k], words[b + k] = words[b + k], words[a + k]


@step(void(W, N, N, N, N))
def settle(words, record, attribute, lo, hi):
    """A record has come into the bucket lo to hi of an attribute: predicates that equal it are subsumed and need no
    test, others are covered (they probably hold) and are tested last."""
    head = record_at(words, record)
    tested = head.tested
    several = False  # of several spans: the hull alone says nothing
    for i in range(tested, head.entries):
        entry = entry_at(words, nth_entry(record, i))
        if entry.attribute == attribute:
            if entry.hi < 0:
                several = True
            else:
                swap(words, record, i, tested)
                tested += 1
    covered = tested
    for i in range(tested - 1, -1, -1):
        if entry_at(words, nth_entry(record, i)).attribute == attribute:
            covered -= 1
            swap(words, record, i, covered)
    i = covered
    while not several and i < tested:
        entry = entry_at(words, nth_entry(record, i))
        if entry.lo == lo and entry.hi == hi:
            tested -= 1
            swap(words, record, i, tested)
        else:
            i += 1
    head.tested = tested


# ---- l-nodes ----


@step(BOTH(W, N))
def records_of(words, c):
    """Where the records of an l-node begin and end."""
    node = c_node_at(words, c)
    return node.l_node, node.l_node + node.used


@step(void(T, N))
def compact(tree, c):
    """Closes the gaps that deleted records left in an l-node, and notes where each record is."""
    words, node = tree.words, c_node_at(tree.words, c)
    record, end = records_of(words, c)
    to = record
    while record < end:
        length = length_of(words, record)
        row = record_at(words, record).row
        if row >= 0:
            where_at(tree.place, row).offset = to - node.l_node
            if to < record:
                copy(words, to, record, length)
            to += length
        record += length
    node.used = to - node.l_node
    node.dead = 0


@step(void(T, N, N))
def resize(tree, c, size):
    """Gives an l-node a block for so many words."""
    node = c_node_at(tree.words, c)
    old = node.l_node
    if size > 0:
        node.l_node = allocate(tree, size)
        copy(tree.words, node.l_node, old, node.used)
    else:
        node.l_node = NONE
    if old >= 0:
        release(tree, old)


@step(void(T, N))
def shrink(tree, c):
    """Closes gaps, and moves an l-node that has become much smaller than its block to another, if there is room."""
    compact(tree, c)
    words, node = tree.words, c_node_at(tree.words, c)
    if node.l_node >= 0:
        k = class_of(node.used)
        fits = tree.state[WORDS] + class_size(k) <= tree.size
        if node.used == 0 or (k + 2 <= class_at(words, node.l_node) and fits):
            resize(tree, c, node.used)


@step(void(T, N, N))
def make_room(tree, c, more):
    """Room for so many words more in an l-node. `cost(used + more)` words can be allocated."""
    node = c_node_at(tree.words, c)
    if node.dead > 0:
        compact(tree, c)
    if node.l_node < 0 or node.used + more > room_in(tree.words, node.l_node):
        resize(tree, c, node.used + more)


@step(N(T, N, N))
def append(tree, c, record):
    """A copy of a record at the end of an l-node that has room for it; where it stands now."""
    words, node = tree.words, c_node_at(tree.words, c)
    row, length = record_at(words, record).row, length_of(words, record)
    if CHECKED and (node.l_node < 0 or node.used + length > room_in(words, node.l_node)):
        raise IndexError("a record beyond its l-node")
    to = node.l_node + node.used
    copy(words, to, record, length)
    where_at(tree.place, row).c_node, where_at(tree.place, row).offset = c, node.used
    node.used += length
    node.rows += 1
    return to


@step(N(N, N))
def capacity(rows, max_cap):
    """The capacity of an l-node with so many rows, by the paper's formula."""
    return max(-(-rows // max_cap), 1) * max_cap
