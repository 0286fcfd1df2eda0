"""The ranks of a BE-Tree's nodes (section 5 of the paper), looked at after many events.

    l-node  gain - loss: the predicates of its rows that the way to them has evaluated, and the average number of
            evaluations that an event makes there for rows that do not match
    c-node  the ranks of its l-node, of its halves and of the p-nodes in its p-directory, less the average number of
            evaluations that led to it in vain
    p-node  the same of all below it, kept at hand: see .insert and `find_failing`

A loss is an average over the events that came to the p-node in whose c-directory the node is, in a window that ends as
the p-node's does. What is in a node whose rank is below 0 is inserted again, all that is below it included. Most rows
would come back to where they are, since the way down follows the ranks of p-nodes: only the others are moved, but in
the published form.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, from_dtype

from dibs.jit.kernel import kernel
from dibs.papers.structures.betree.changes import rank_of, window_ends
from dibs.papers.structures.betree.directories import find, records_of
from dibs.papers.structures.betree.layout import NONE, RANKED, ROOT, ROWS_A_CHANGE, SAMPLE, WINDOW
from dibs.papers.structures.betree.nodes import (
    N,
    T,
    W,
    c_node_at,
    entry_at,
    length_of,
    nth_entry,
    nth_place,
    p_node_above,
    p_node_at,
    place_at,
    record_at,
    step,
    tree_of,
)

NODES = from_dtype(RANKED)[::1]


@kernel
def find_failing(arrays, to_do, found):
    """The p-nodes whose window has ended with a rank below 0, none below another, into `found`, which has room for all;
    how many. `to_do`: a list with room for all c-nodes."""
    tree = tree_of(arrays)
    words, count = tree.words, 0
    to_do[0] = ROOT
    n = 1
    while n > 0:
        n -= 1
        node = c_node_at(words, np.int64(to_do[n]))
        for half in (node.left, node.right):
            if half >= 0:
                to_do[n] = half
                n += 1
        for i in range(node.places):
            place = place_at(words, nth_place(node.p_directory, i))
            if place.attribute < 0:
                continue
            if window_ends(tree, np.int64(place.p_node)):
                found[count] = place.p_node
                count += 1
            else:
                to_do[n] = place.top
                n += 1
    return count


@step(N(NODES, N, N, N, N))
def add_node(nodes, n, c, above, depth):
    """One more at the end of a list of n; how many they are now."""
    last = nodes[n]
    last.c, last.above, last.depth, last.fails, last.rank = c, above, depth, 0, 0
    return n + 1


@step(N(W, NODES))
def list_nodes(words, nodes):
    """All c-nodes, each after the one above it; how many."""
    n = add_node(nodes, 0, ROOT, 0, 0)
    i = 0
    while i < n:
        node, depth = c_node_at(words, np.int64(nodes[i].c)), nodes[i].depth
        for half in (node.left, node.right):
            if half >= 0:
                n = add_node(nodes, n, half, i, depth)
        for k in range(node.places):
            place = place_at(words, nth_place(node.p_directory, k))
            if place.attribute >= 0:
                n = add_node(nodes, n, place.top, i, depth + 1)
        i += 1
    return n


@step(N(W, N, N))
def average(words, p, loss):
    """A loss of this window for each event that came to the p-node."""
    return loss // max(p_node_at(words, p).entered, 1)


@step(N(W, NODES, N))
def rank_l_node(words, nodes, i):
    node = c_node_at(words, np.int64(nodes[i].c))
    return node.rows * nodes[i].depth - average(words, node.p_node, node.loss)


@step(boolean(T, N))
def window_is_over(tree, p):
    """Whether so many events came to a p-node that what is in its c-directory may be judged."""
    state, node = tree.state, p_node_at(tree.words, p)
    return state[SAMPLE] * node.entered >= max(node.rows // state[ROWS_A_CHANGE], state[WINDOW])


@step(boolean(W, N, N))
def finds_better(words, c, record):
    """Whether a record in the l-node of a c-node would be inserted elsewhere: to a p-node of the c-node itself, or, at
    some c-node above, to one of a higher rank than that through which it came."""
    p, below = np.int64(NONE), c
    while True:
        if c_node_at(words, below).places > 0:
            for i in range(record_at(words, record).entries):
                entry = entry_at(words, nth_entry(record, i))
                at = find(words, below, entry.attribute) if entry.hi >= 0 else NONE
                if at >= 0 and (p < 0 or rank_of(words, place_at(words, at).p_node) > rank_of(words, p)):
                    return True
        p = c_node_at(words, below).p_node if p < 0 else p_node_above(words, p)
        if p < 0:
            return False
        below = p_node_at(words, p).c_node


@kernel
def find_misplaced(arrays, nodes, found, whole):
    """The rows of c-nodes and l-nodes whose rank is below 0 that would go elsewhere (or, for `whole` ones, all), into
    `found`, which has room for all; how many, and the words of the longest record. `nodes` has room for all c-nodes,
    RANKED. Begins new windows."""
    tree = tree_of(arrays)
    words = tree.words
    n = list_nodes(words, nodes)
    for i in range(n - 1, 0, -1):
        node = c_node_at(words, np.int64(nodes[i].c))
        nodes[i].rank += rank_l_node(words, nodes, i) - average(words, node.p_node, node.way_loss)
        nodes[nodes[i].above].rank += nodes[i].rank
    count, longest = 0, 0
    for i in range(1, n):
        c = np.int64(nodes[i].c)
        ended = window_is_over(tree, np.int64(c_node_at(words, c).p_node))
        nodes[i].fails = nodes[nodes[i].above].fails | (ended and nodes[i].rank < 0)
        if nodes[i].fails or (ended and rank_l_node(words, nodes, i) < 0):
            record, end = records_of(words, c)
            while record < end:
                if record_at(words, record).row >= 0 and (whole or finds_better(words, c, record)):
                    found[count] = record_at(words, record).row
                    longest = max(longest, length_of(words, record))
                    count += 1
                record += length_of(words, record)
    begin_windows(tree, nodes, n)
    return count, longest


@kernel
def begin_windows(tree, nodes, n):
    """Where a window is over, all counts of its c-directory begin again."""
    words = tree.words
    for i in range(1, n):
        node = c_node_at(words, np.int64(nodes[i].c))
        if window_is_over(tree, np.int64(node.p_node)):
            node.loss, node.way_loss = 0, 0
    for i in range(1, n):  # only now: all of a directory were to see that it is over
        node = c_node_at(words, np.int64(nodes[i].c))
        if node.parent < 0 and window_is_over(tree, np.int64(node.p_node)):
            p_node_at(words, node.p_node).entered = 0
