"""Insertion into a BE-Tree, algorithms 3 and 4 of the paper."""

from __future__ import annotations

from numba import boolean, void

from dibs.papers.structures.betree.directories import cut, find, new_c_node, smallest
from dibs.papers.structures.betree.layout import (
    C_NODE_WORDS,
    LEFT,
    MAX_CAP,
    MOST,
    NONE,
    RIGHT,
    ROOT,
    ROWS_A_CHANGE,
    SAMPLE,
    WINDOW,
)
from dibs.papers.structures.betree.leaves import append, key, make_room, records_of, settle, swap
from dibs.papers.structures.betree.memory import CLUSTER, RECYCLE, cost, lacks, push
from dibs.papers.structures.betree.nodes import (
    N,
    T,
    W,
    about_at,
    c_node_at,
    cover,
    entry_at,
    half_interval,
    half_link,
    interval_at,
    is_open_leaf,
    length_of,
    nth_entry,
    p_node_above,
    p_node_at,
    place_at,
    place_interval,
    place_link,
    record_at,
    step,
)

# ---- InsertBETree ----


@step(N(W, N))
def count_hulls(words, record):
    hulls = 0
    for i in range(record_at(words, record).entries):
        hulls += entry_at(words, nth_entry(record, i)).hi >= 0
    return hulls


@step(N(W, N))
def rank_of(words, p):
    node = p_node_at(words, p)
    return node.gain - node.last_loss


@step(N(W, N, N, N))
def highest_ranking(words, c, record, unused):
    """Of the unused attributes of a record, the place of the one whose p-node has the highest rank, or NONE."""
    best, best_rank = NONE, 0
    for i in range(unused):
        at = find(words, c, entry_at(words, nth_entry(record, i)).attribute)
        if at >= 0:
            rank = rank_of(words, place_at(words, at).p_node)
            if best < 0 or rank > best_rank:
                best, best_rank = at, rank
    return best


@step(N(W, N, N, N))
def use(words, record, attribute, unused):
    """Entries with the attribute go behind those that are unused; how many these are now."""
    i = 0
    while i < unused:
        if entry_at(words, nth_entry(record, i)).attribute == attribute:
            unused -= 1
            swap(words, record, i, unused)
        else:
            i += 1
    return unused


# ---- InsertCDir ----


@step(void(W, N, N, N))
def widen(words, c, lo, hi):
    """Gives the bucket of an open leaf other bounds."""
    node = c_node_at(words, c)
    node.lo, node.hi = lo, hi
    record, end = records_of(words, c)
    while record < end:
        settle(words, record, node.attribute, lo, hi)
        record += length_of(words, record)


@step(N(T, N, N, N, N))
def make_skipped_halving(tree, c, interval, lo, hi):
    """A c-node for the bucket lo to hi, which has c in one half, takes the place of c, whose least interval stands at
    `interval`. The link to it is still to be set."""
    words, node, covered = tree.words, c_node_at(tree.words, c), interval_at(tree.words, interval)
    between = new_c_node(tree, node.parent, node.p_node, node.attribute, lo, hi)
    c_node_at(words, between).is_split = 1
    side = LEFT if node.hi <= cut(lo, hi, about_at(tree.about, node.attribute).ceiling) else RIGHT
    words[half_link(between, side)] = c
    cover(words, half_interval(between, side), covered.lo, covered.hi)
    if node.parent < 0:
        p_node_at(words, node.p_node).top = between
    node.parent = between
    return between


@step(N(T, N, N, N))
def insert_into_c_directory(tree, at, x, y):
    """Algorithm 4: the c-node of the smallest bucket, in the c-directory of the p-node at a place of a p-directory,
    that encloses the cells x to y. Makes up to two c-nodes."""
    words = tree.words
    p, attribute = place_at(words, at).p_node, place_at(words, at).attribute
    ceiling = about_at(tree.about, attribute).ceiling
    lo, hi = 1, MOST  # the bucket that c would have if no halving had been skipped
    link, interval = place_link(at), place_interval(at)  # where c and its least interval stand
    c = words[link]
    while True:
        node = c_node_at(words, c)
        if x < node.lo or y > node.hi:
            if is_open_leaf(words, c) and node.rows < tree.state[MAX_CAP]:
                widen(words, c, lo, hi)
            else:
                lo, hi = smallest(lo, hi, min(x, node.lo), max(y, node.hi), ceiling)
                c = make_skipped_halving(tree, c, interval, lo, hi)
                words[link] = c
        cover(words, interval, x, y)
        bucket = c_node_at(words, c)
        if bucket.is_split == 0:
            return c
        m = cut(bucket.lo, bucket.hi, ceiling)
        if x <= m < y:
            return c
        side = LEFT if y <= m else RIGHT
        lo, hi = (bucket.lo, m) if side == LEFT else (m + 1, bucket.hi)
        parent, link, interval = c, half_link(c, side), half_interval(c, side)
        c = words[link]
        if c < 0:
            c = new_c_node(tree, parent, p, attribute, lo, hi)
            words[link] = c


# ---- UpdatePartitionScore ----


@step(boolean(T, N))
def window_ends(tree, p):
    """At the end of the window of a p-node (a tenth of its rows in operations) its loss is taken down; says whether its
    rank is below the threshold, 0."""
    state, node = tree.state, p_node_at(tree.words, p)
    if node.changes + state[SAMPLE] * node.seen < max(node.rows // state[ROWS_A_CHANGE], state[WINDOW]):
        return False
    if node.seen > 0:
        node.last_loss = node.loss // node.seen
    node.changes, node.seen, node.loss = 0, 0, 0
    return node.gain < node.last_loss


@step(N(T, N, N, N, boolean))
def update_scores(tree, c, rows, depth, is_change):
    """So many rows more (or fewer), at this depth, below all p-nodes above a c-node. is_change: it is an insertion or
    deletion, not a move. Returns the highest p-node that is to be recycled, or NONE."""
    words = tree.words
    worst = NONE
    p = c_node_at(words, c).p_node
    while p >= 0:
        p_node = p_node_at(words, p)
        p_node.rows += rows
        p_node.gain += rows * depth
        if is_change:
            p_node.changes += 1
            if window_ends(tree, p):
                worst = p
        p = p_node_above(words, p)
    return worst


@step(boolean(T, N, boolean))
def insert(tree, record, again):
    """Algorithm 3. again: the record was there before and has been taken out. False when it lacks room."""
    words, head = tree.words, record_at(tree.words, record)
    unused = count_hulls(words, record)  # the first entries, whose attributes are not used on the way so far
    head.tested = unused
    if lacks(tree, 2 * unused * cost(C_NODE_WORDS), 1):
        return False
    c, depth = ROOT, 0
    while c_node_at(words, c).places > 0:
        at = highest_ranking(words, c, record, unused)
        if at < 0:
            break
        attribute = place_at(words, at).attribute
        x, y = key(words, record, attribute)
        unused = use(words, record, attribute, unused)
        c = insert_into_c_directory(tree, at, x, y)
        settle(words, record, attribute, c_node_at(words, c).lo, c_node_at(words, c).hi)
        depth += 1
    length, node = length_of(words, record), c_node_at(words, c)
    # What has been made on the way is found again if the room is made larger first.
    if lacks(tree, cost(node.used + length), 1):
        return False
    make_room(tree, c, length)
    append(tree, c, record)
    p = update_scores(tree, c, 1, depth, not again)
    if p >= 0:
        push(tree, RECYCLE, p)
    elif node.rows > node.capacity:
        push(tree, CLUSTER, c)
    return True
