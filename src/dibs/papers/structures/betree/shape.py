"""The shape of a BE-Tree, and a copy of it without gaps."""

from __future__ import annotations

from typing import NamedTuple

from numba import from_dtype, void

from dibs.jit.kernel import kernel
from dibs.jit.pointers import pointer_to
from dibs.papers.structures.betree.layout import (
    C_NODE_WORDS,
    CLASSES,
    LEFT,
    LISTS,
    NONE,
    ON_PATH,
    P_NODE_WORDS,
    PLACE_WORDS,
    RIGHT,
    ROOT,
    SCRATCH,
    STACK,
    TO_COPY,
)
from dibs.papers.structures.betree.nodes import (
    N,
    T,
    W,
    allocate,
    c_node_at,
    class_size,
    depth_of,
    half_link,
    half_of,
    length_of,
    nth_place,
    p_node_at,
    place_at,
    place_link,
    record_at,
    step,
    tree_of,
    where_at,
)


class TreeShape(NamedTuple):
    height: int  # c-nodes on the longest path
    attributes: int  # on the longest path
    largest: int  # rows of the largest l-node
    partitioned: int  # c-nodes that are
    free: int  # words in free blocks


@step(N(from_dtype(ON_PATH)[::1], N, N, N))
def plan_visit(to_do, n, c, level):
    """One more at the end of a list of n; how many they are now."""
    to_do[n].c, to_do[n].level = c, level
    return n + 1


@kernel
def free_words(tree):
    words, state = tree.words, tree.state
    free = 0
    for k in range(CLASSES):
        block = state[LISTS + k]
        while block >= 0:
            free += class_size(k)
            block = words[block]
    return free


@kernel
def survey(arrays, to_do):
    """`to_do` has room for all c-nodes, ON_PATH."""
    tree = tree_of(arrays)
    words = tree.words
    height, attributes, largest, partitioned = 0, 0, 0, 0
    n = plan_visit(to_do, 0, ROOT, 1)
    while n > 0:
        n -= 1
        c, level = to_do[n].c, to_do[n].level
        node = c_node_at(words, c)
        height, attributes = max(height, level), max(attributes, depth_of(words, c))
        largest = max(largest, node.rows)
        partitioned += node.places > 0
        for side in range(LEFT, RIGHT + 1):
            half = half_of(words, c, side)
            if half >= 0:
                n = plan_visit(to_do, n, half, level + 1)
        for i in range(node.places):
            place = place_at(words, nth_place(node.p_directory, i))
            if place.attribute >= 0:
                n = plan_visit(to_do, n, place.top, level + 1)
    return height, attributes, largest, partitioned, free_words(tree)


# ---- a copy without gaps ----

COPIES = from_dtype(TO_COPY)[::1]


@step(N(COPIES, N, N, N, N, N))
def plan_copy(to_do, n, c, link, parent, p):
    """One more at the end of a list of n; how many they are now."""
    last = to_do[n]
    last.c, last.link, last.parent, last.p = c, link, parent, p
    return n + 1


@step(void(W, N, W, N, N))
def copy_over(new, to, words, at, size):
    for i in range(size):
        new[to + i] = words[at + i]


@step(void(W, T, N))
def pack_l_node(words, tree, c):
    """The copy of a c-node gets a copy of its l-node."""
    node = c_node_at(tree.words, c)
    old = node.l_node
    node.l_node = allocate(tree, node.used)
    copy_over(tree.words, node.l_node, words, old, node.used)
    record = node.l_node
    while record < node.l_node + node.used:
        where_at(tree.place, record_at(tree.words, record).row).c_node = c
        record += length_of(tree.words, record)


@step(N(W, T, N, COPIES, N))
def pack_p_directory(words, tree, c, to_do, n):
    """The copy of a c-node gets a copy of its p-directory and of the p-nodes; what is below them is to be done."""
    node, size = c_node_at(tree.words, c), PLACE_WORDS * c_node_at(tree.words, c).places
    old = node.p_directory
    node.p_directory = allocate(tree, size)
    copy_over(tree.words, node.p_directory, words, old, size)
    for i in range(node.places):
        at = nth_place(node.p_directory, i)
        place = place_at(tree.words, at)
        if place.attribute >= 0:
            p = allocate(tree, P_NODE_WORDS)
            copy_over(tree.words, p, words, place.p_node, P_NODE_WORDS)
            p_node_at(tree.words, p).c_node = c
            place.p_node = p
            n = plan_copy(to_do, n, place.top, place_link(at), NONE, p)
    return n


@kernel
def pack(old, arrays, to_do):
    """Copies the tree in the words `old` to those of another, which is empty: each c-node followed by its l-node,
    p-directory and p-nodes, then what is below it. `to_do` has room for all c-nodes, TO_COPY."""
    words, tree = pointer_to(old), tree_of(arrays)
    n = plan_copy(to_do, 0, ROOT, NONE, NONE, NONE)
    while n > 0:
        n -= 1
        c, link, parent, p = to_do[n].c, to_do[n].link, to_do[n].parent, to_do[n].p
        to = allocate(tree, C_NODE_WORDS)
        copy_over(tree.words, to, words, c, C_NODE_WORDS)
        node = c_node_at(tree.words, to)
        node.parent, node.p_node = parent, p
        if link >= 0:
            tree.words[link] = to
        if parent < 0 and p >= 0:
            p_node_at(tree.words, p).top = to
        if node.l_node >= 0:
            pack_l_node(words, tree, to)
        if node.places > 0:
            n = pack_p_directory(words, tree, to, to_do, n)
        for side in range(LEFT, RIGHT + 1):
            half = half_of(words, c, side)
            if half >= 0:
                n = plan_copy(to_do, n, half, half_link(to, side), to, p)
    tree.state[STACK] = allocate(tree, 64)
    tree.state[SCRATCH] = allocate(tree, 64)
