"""Deletion from a BE-Tree: the merge rule, and p-nodes that are recycled."""

from __future__ import annotations

from numba import boolean, void

from dibs.papers.structures.betree.directories import free_c_node, remove_p_node, side_of
from dibs.papers.structures.betree.insert import insert, update_scores
from dibs.papers.structures.betree.layout import (
    ALIVE,
    LEFT,
    MAX_CAP,
    MIN_SIZE,
    MOST,
    NONE,
    P_NODES,
    PLACE_WORDS,
    RECYCLED,
    RIGHT,
    ROOT,
)
from dibs.papers.structures.betree.leaves import append, make_room, records_of, settle, shrink
from dibs.papers.structures.betree.memory import (
    DISSOLVE,
    RECYCLE,
    REINSERT,
    TIDY,
    cost,
    lacks,
    pop,
    push,
    release,
    replace,
)
from dibs.papers.structures.betree.nodes import (
    N,
    T,
    c_node_at,
    depth_of,
    empty_half,
    entry_at,
    half_of,
    is_open_leaf,
    length_of,
    nth_entry,
    nth_place,
    p_node_above,
    p_node_at,
    place_at,
    record_at,
    step,
    where_at,
)


@step(void(T, N, boolean))
def take_out(tree, row, is_change):
    """is_change: it does not come back."""
    words = tree.words
    c = where_at(tree.place, row).c_node
    node = c_node_at(words, c)
    record = node.l_node + where_at(tree.place, row).offset
    where_at(tree.place, row).c_node = NONE
    head, entry = record_at(words, record), entry_at(words, nth_entry(record, 0))
    head.row, head.tested = NONE, 1
    entry.lo, entry.hi = MOST, 0
    node.dead += length_of(words, record)
    node.rows -= 1
    if 4 * node.dead >= node.used:
        shrink(tree, c)
    p = update_scores(tree, c, -1, depth_of(words, c), is_change)
    if p >= 0:
        push(tree, RECYCLE, p)
    else:
        push(tree, TIDY, c)


@step(void(T, N))
def delete(tree, row):
    tree.state[ALIVE] -= 1
    take_out(tree, row, True)


# ---- TIDY ----


@step(N(T, N))
def size_if_merged(tree, c):
    """The words of the l-node of a split and open bucket with those of its halves, if these may be merged into it: if
    one underflows and all together do not overflow. Else -1."""
    words, node = tree.words, c_node_at(tree.words, c)
    rows, used = node.rows, node.used
    underflow, leaves = node.left < 0 and node.right < 0, True
    for side in range(LEFT, RIGHT + 1):
        half = half_of(words, c, side)
        if half >= 0:
            rows += c_node_at(words, half).rows
            used += c_node_at(words, half).used
            underflow |= c_node_at(words, half).rows < tree.state[MIN_SIZE]
            leaves &= is_open_leaf(words, half)
    return used if underflow and leaves and rows <= tree.state[MAX_CAP] else -1


@step(void(T, N, N))
def merge_halves(tree, c, size):
    """Takes the rows of both halves into a bucket, whose l-node will have so many words."""
    words, node = tree.words, c_node_at(tree.words, c)
    make_room(tree, c, size - node.used)
    for side in range(LEFT, RIGHT + 1):
        half = half_of(words, c, side)
        if half >= 0:
            record, end = records_of(words, half)
            while record < end:
                if record_at(words, record).row >= 0:
                    settle(words, append(tree, c, record), node.attribute, node.lo, node.hi)
                record += length_of(words, record)
            free_c_node(tree, half)
            empty_half(words, c, side)
    node.is_split, node.capacity = 0, tree.state[MAX_CAP]


@step(N(T, N))
def remove_empty(tree, c):
    """Takes a c-node without rows out of its c-directory, and that with its p-node out of the tree if it was the last;
    the c-node above."""
    words, node = tree.words, c_node_at(tree.words, c)
    parent, p = node.parent, node.p_node
    if parent >= 0:
        empty_half(words, parent, side_of(words, c))
        free_c_node(tree, c)
        return parent
    free_c_node(tree, c)
    return remove_p_node(tree, p)


@step(boolean(T, N))
def tidy(tree, c):
    """The merge rule, one step up at a time. False when it lacks room."""
    words, least, node = tree.words, tree.state[MIN_SIZE], c_node_at(tree.words, c)
    if c == ROOT or node.places > 0:
        pop(tree)
        return True
    if node.is_split == 1:
        size = size_if_merged(tree, c)
        if size < 0:
            pop(tree)
            return True
        if lacks(tree, cost(size), 0):
            return False
        merge_halves(tree, c, size)
    if node.rows == 0:
        if lacks(tree, cost(PLACE_WORDS * c_node_at(words, p_node_at(words, node.p_node).c_node).places), 0):
            return False
        replace(tree, TIDY, remove_empty(tree, c))
    elif node.rows >= least:
        pop(tree)
    elif node.parent >= 0:
        replace(tree, TIDY, node.parent)
    else:
        replace(tree, RECYCLE, node.p_node)
    return True


# ---- RECYCLE, DISSOLVE, REINSERT ----


@step(boolean(T, N))
def recycle(tree, p):
    """Takes a p-node out of the tree. False when it lacks room."""
    words, node = tree.words, p_node_at(tree.words, p)
    top, rows, gain = node.top, node.rows, node.gain
    if lacks(tree, cost(PLACE_WORDS * c_node_at(words, node.c_node).places), 2):
        return False
    above = p_node_above(words, p)
    while above >= 0:
        p_node_at(words, above).rows -= rows
        p_node_at(words, above).gain -= gain
        above = p_node_above(words, above)
    tree.state[RECYCLED] += rows
    replace(tree, TIDY, remove_p_node(tree, p))
    push(tree, DISSOLVE, top)
    return True


@step(boolean(T, N))
def dissolve(tree, c):
    """Takes a c-node apart that is out of the tree. False when it lacks room."""
    words, node = tree.words, c_node_at(tree.words, c)
    if lacks(tree, 0, node.p_nodes + 3):
        return False
    pop(tree)
    for side in range(LEFT, RIGHT + 1):
        half = half_of(words, c, side)
        if half >= 0:
            push(tree, DISSOLVE, half)
    for i in range(node.places):
        place = place_at(words, nth_place(node.p_directory, i))
        if place.attribute >= 0:
            push(tree, DISSOLVE, place.top)
            release(tree, place.p_node)
            tree.state[P_NODES] -= 1
    if node.places > 0:
        release(tree, node.p_directory)
    push(tree, REINSERT, c)
    node.dead = 0  # from now on: how many words of the l-node are done
    return True


@step(boolean(T, N))
def reinsert(tree, c):
    """Inserts the next row again of a c-node that is out of the tree, which is free when there is none. False when it
    lacks room."""
    words, node = tree.words, c_node_at(tree.words, c)
    if node.dead == node.used:
        pop(tree)
        free_c_node(tree, c)
        return True
    record = node.l_node + node.dead
    if record_at(words, record).row >= 0 and not insert(tree, record, True):
        return False
    node.dead += length_of(words, record)
    return True
