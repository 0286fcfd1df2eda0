"""The directories and l-nodes of a BE-Tree: p-directories, which lead from a c-node to p-nodes by attribute, and
c-directories, which lead from a p-node to c-nodes by halves of halves of the attribute's domain; l-nodes are records
one after another, with room for more.
"""

from __future__ import annotations

from numba import void

from dibs.jit.pointers import CHECKED
from dibs.papers.structures.betree.layout import (
    C_NODE_WORDS,
    C_NODES,
    ENTRY_WORDS,
    LEFT,
    MAX_CAP,
    MOST,
    NONE,
    P_NODE_WORDS,
    P_NODES,
    PLACE_WORDS,
    RIGHT,
    WORDS,
)
from dibs.papers.structures.betree.nodes import (
    BOTH,
    N,
    T,
    W,
    allocate,
    c_node_at,
    class_at,
    class_of,
    class_size,
    copy,
    empty_half,
    entry_at,
    erase,
    half_interval,
    length_of,
    nth_entry,
    nth_place,
    p_node_at,
    place_at,
    place_interval,
    record_at,
    release,
    room_in,
    step,
    where_at,
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
