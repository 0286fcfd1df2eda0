"""Insertion into a BE-Tree (algorithms 3 and 4 of the paper), and deletion: the merge rule, and p-nodes that are
recycled.
"""

from __future__ import annotations

from numba import boolean, void

from dibs.papers.structures.betree.directories import (
    append,
    cut,
    find,
    free_c_node,
    key,
    make_room,
    new_c_node,
    records_of,
    remove_p_node,
    settle,
    shrink,
    side_of,
    smallest,
    swap,
)
from dibs.papers.structures.betree.layout import (
    ALIVE,
    C_NODE_WORDS,
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
    ROWS_A_CHANGE,
    SAMPLE,
    WINDOW,
)
from dibs.papers.structures.betree.nodes import (
    CLUSTER,
    DISSOLVE,
    RECYCLE,
    REINSERT,
    TIDY,
    N,
    T,
    W,
    about_at,
    c_node_at,
    cost,
    cover,
    depth_of,
    empty_half,
    entry_at,
    half_interval,
    half_link,
    half_of,
    interval_at,
    is_open_leaf,
    lacks,
    length_of,
    nth_entry,
    nth_place,
    p_node_above,
    p_node_at,
    place_at,
    place_interval,
    place_link,
    pop,
    push,
    record_at,
    release,
    replace,
    step,
    where_at,
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
