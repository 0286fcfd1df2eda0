"""The directories of a BE-Tree: p-directories, which lead from a c-node to p-nodes by attribute, and c-directories,
which lead from a p-node to c-nodes by halves of halves of the attribute's domain."""

from __future__ import annotations

from numba import void

from dibs.papers.structures.betree.layout import (
    C_NODE_WORDS,
    C_NODES,
    LEFT,
    MAX_CAP,
    MOST,
    NONE,
    P_NODE_WORDS,
    P_NODES,
    PLACE_WORDS,
    RIGHT,
)
from dibs.papers.structures.betree.memory import allocate, release
from dibs.papers.structures.betree.nodes import (
    BOTH,
    N,
    T,
    W,
    c_node_at,
    copy,
    empty_half,
    erase,
    half_interval,
    nth_place,
    p_node_at,
    place_at,
    place_interval,
    step,
)

# ---- p-directories ----


@step(N(N, N))
def home(attribute, places):
    """Where to begin to look for an attribute; `places` is a power of two."""
    return ((attribute * 0x9E3779B1) >> 7) & (places - 1)


@step(N(W, N, N))
def find(words, c, attribute):
    """The attribute's place in the p-directory that a c-node has, or NONE."""
    p_directory, places = c_node_at(words, c).p_directory, c_node_at(words, c).places
    i = home(attribute, places)
    while True:
        at = nth_place(p_directory, i)
        found = place_at(words, at).attribute
        if found == attribute:
            return at
        if found < 0:
            return NONE
        i = (i + 1) & (places - 1)


@step(N(W, N, N))
def enter(words, c, attribute):
    """A place for an attribute that is not there; the p-directory has one to spare."""
    p_directory, places = c_node_at(words, c).p_directory, c_node_at(words, c).places
    i = home(attribute, places)
    while place_at(words, nth_place(p_directory, i)).attribute >= 0:
        i = (i + 1) & (places - 1)
    at = nth_place(p_directory, i)
    place_at(words, at).attribute = attribute
    return at


@step(void(T, N, N))
def rehash(tree, c, places):
    """Gives the p-directory of a c-node so many places."""
    words, node = tree.words, c_node_at(tree.words, c)
    old, old_places = node.p_directory, node.places
    node.p_directory, node.places = allocate(tree, PLACE_WORDS * places), places
    for i in range(places):
        place_at(words, nth_place(node.p_directory, i)).attribute = NONE
    for i in range(old_places):
        at = nth_place(old, i)
        attribute = place_at(words, at).attribute
        if attribute >= 0:
            copy(words, enter(words, c, attribute), at, PLACE_WORDS)
    if old_places > 0:
        release(tree, old)


@step(void(T, N, N))
def forget(tree, c, at):
    """Takes a place out of the p-directory of a c-node. Those behind it move up, so that probing still finds them.
    There must be room for a p-directory of half the size."""
    words, node = tree.words, c_node_at(tree.words, c)
    p_directory, places = node.p_directory, node.places
    node.p_nodes -= 1
    hole = (at - p_directory) // PLACE_WORDS
    i = hole
    while True:
        i = (i + 1) & (places - 1)
        behind = nth_place(p_directory, i)
        attribute = place_at(words, behind).attribute
        if attribute < 0:
            break
        if ((i - home(attribute, places)) & (places - 1)) >= ((i - hole) & (places - 1)):
            copy(words, nth_place(p_directory, hole), behind, PLACE_WORDS)
            hole = i
    place_at(words, nth_place(p_directory, hole)).attribute = NONE
    if node.p_nodes == 0:
        release(tree, p_directory)
        node.p_directory, node.places = NONE, 0
    elif 8 * node.p_nodes < places:
        rehash(tree, c, places // 2)


# ---- nodes ----


@step(N(T, N, N, N, N, N))
def new_c_node(tree, parent, p, attribute, lo, hi):
    """A c-node with an empty l-node, whose bucket is lo to hi."""
    words, state = tree.words, tree.state
    c = allocate(tree, C_NODE_WORDS)
    state[C_NODES] += 1
    erase(words, c, C_NODE_WORDS)
    empty_half(words, c, LEFT)
    empty_half(words, c, RIGHT)
    node = c_node_at(words, c)
    node.l_node, node.p_directory = NONE, NONE
    node.attribute, node.parent, node.p_node = attribute, parent, p
    node.capacity, node.lo, node.hi = state[MAX_CAP], lo, hi
    return c


@step(void(T, N))
def free_c_node(tree, c):
    """A c-node whose p-directory is gone."""
    node = c_node_at(tree.words, c)
    if node.l_node >= 0:
        release(tree, node.l_node)
    release(tree, c)
    tree.state[C_NODES] -= 1


@step(N(T, N, N, N))
def add_p_node(tree, c, attribute, size):
    """A p-node for an attribute, whose top bucket has an empty l-node for so many words; its place."""
    words, node = tree.words, c_node_at(tree.words, c)
    if node.places * 3 < (node.p_nodes + 1) * 4:
        rehash(tree, c, max(2 * node.places, 2))
    p = allocate(tree, P_NODE_WORDS)
    tree.state[P_NODES] += 1
    erase(words, p, P_NODE_WORDS)
    p_node = p_node_at(words, p)
    p_node.c_node, p_node.attribute = c, attribute
    p_node.top = new_c_node(tree, NONE, p, attribute, 1, MOST)
    c_node_at(words, p_node.top).l_node = allocate(tree, size)
    at = enter(words, c, attribute)
    place = place_at(words, at)
    place.top, place.lo, place.hi, place.p_node = p_node.top, MOST, -1, p
    node.p_nodes += 1
    return at


@step(N(T, N))
def remove_p_node(tree, p):
    """Takes a p-node out of its p-directory; the c-node that had it."""
    node = p_node_at(tree.words, p)
    c = node.c_node
    forget(tree, c, find(tree.words, c, node.attribute))
    release(tree, p)
    tree.state[P_NODES] -= 1
    return c


# ---- c-directories ----


@step(N(W, N))
def side_of(words, c):
    """Which half of its parent's bucket a c-node has."""
    return LEFT if c_node_at(words, c_node_at(words, c).parent).left == c else RIGHT


@step(N(W, N))
def interval_of(words, c):
    """Where the least interval stands that covers all below a c-node with a bucket: an event enters by it. It lies
    within the bucket, so what equals the bucket holds for every event that comes."""
    node = c_node_at(words, c)
    if node.parent < 0:
        p_node = p_node_at(words, node.p_node)
        return place_interval(find(words, p_node.c_node, p_node.attribute))
    return half_interval(node.parent, side_of(words, c))


@step(N(N, N, N))
def cut(lo, hi, ceiling):
    """Where a bucket is halved: the last cell of its left half. An attribute's buckets are the tree of halves of 1 to
    `ceiling`, the highest cell known when the attribute came first; beyond it buckets double up to the highest cell
    there can be, so the tree is fixed for ever and no bucket depends on the order of insertion."""
    if lo == 1 and hi > ceiling:
        t = ceiling
        while 2 * t < hi:
            t *= 2
        return t
    return lo + (hi - lo) // 2


@step(BOTH(N, N, N, N, N))
def smallest(lo, hi, x, y, ceiling):
    """The smallest bucket inside lo to hi that encloses the cells x to y."""
    while lo < hi:
        m = cut(lo, hi, ceiling)
        if y <= m:
            hi = m
        elif x > m:
            lo = m + 1
        else:
            break
    return lo, hi
