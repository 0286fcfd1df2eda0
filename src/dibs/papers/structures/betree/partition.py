"""What becomes of an overflowing l-node: its rows go to new p-nodes (SpacePartitioning, algorithm 5 of the paper), or
its bucket is halved (SpaceClustering, algorithm 6).
"""

from __future__ import annotations

from numba import boolean, void

from dibs.papers.structures.betree.directories import (
    add_p_node,
    append,
    capacity,
    compact,
    cut,
    find,
    interval_of,
    key,
    new_c_node,
    records_of,
    rehash,
    settle,
    shrink,
    smallest,
)
from dibs.papers.structures.betree.layout import (
    C_NODE_WORDS,
    HISTOGRAM,
    LEFT,
    MANY,
    MAX_CAP,
    MIN_SIZE,
    MOST,
    NONE,
    P_NODE_WORDS,
    PLACE_WORDS,
    RIGHT,
)
from dibs.papers.structures.betree.nodes import (
    BOTH,
    CLUSTER,
    PARTITION,
    N,
    T,
    W,
    about_at,
    allocate,
    c_node_at,
    cost,
    cover,
    depth_of,
    entry_at,
    half_interval,
    half_link,
    half_of,
    interval_at,
    lacks,
    length_of,
    nth_entry,
    p_node_above,
    p_node_at,
    place_at,
    place_interval,
    pop,
    push,
    record_at,
    replace,
    step,
    where_at,
)

PARTS = 256  # of a row: losses are counted in these
SLACK = 16  # an l-node of many rows, if it stays large, takes 1/16 more rows before the next attempt


# ---- which attributes ----


@step(BOTH(T, N))
def count_attributes(tree, c):
    """`have`: how many rows of an l-node have an attribute (negative if it has led there: no attribute is used twice on
    a path). Returns the attribute that most have, the lowest of several, and how many."""
    words = tree.words
    p = c_node_at(words, c).p_node
    while p >= 0:
        about_at(tree.about, p_node_at(words, p).attribute).have = -(1 << 30)
        p = p_node_above(words, p)
    best, most = NONE, 0
    record, end = records_of(words, c)
    while record < end:
        head = record_at(words, record)
        row = head.row
        if row >= 0:
            for i in range(head.entries):
                a = entry_at(words, nth_entry(record, i)).attribute
                about = about_at(tree.about, a)
                if about.chose != row + 1:  # once per row
                    about.chose = row + 1
                    about.have += 1
                    if about.have > most or (about.have == most and a < best):
                        best, most = a, about.have
        record += length_of(words, record)
    return best, most


@step(void(T, N))
def subtract_losses(tree, c):
    """`have` less the average bucket of a histogram over the values of an attribute, which is the sum of the shares of
    its domain that its predicates cover. What min_size rows have stays at least that."""
    words, least = tree.words, tree.state[MIN_SIZE]
    record, end = records_of(words, c)
    while record < end:
        head = record_at(words, record)
        if head.row >= 0:
            for i in range(head.entries):
                entry = entry_at(words, nth_entry(record, i))
                about = about_at(tree.about, entry.attribute)
                if entry.hi >= 0:
                    about.space += (entry.hi - entry.lo + 1) * PARTS // max(about.ceiling, entry.hi)
        record += length_of(words, record)
    record, end = records_of(words, c)
    while record < end:
        for i in range(record_at(words, record).entries):
            about = about_at(tree.about, entry_at(words, nth_entry(record, i)).attribute)
            if about.have >= least:
                about.have = max(about.have - about.space // PARTS, least)
            about.space = 0
        record += length_of(words, record)


@step(BOTH(T, N))
def highest_attribute(tree, c):
    """Which attribute of an l-node has the highest `have`, the lowest of several, and how much."""
    words, best, most = tree.words, NONE, 0
    record, end = records_of(words, c)
    while record < end:
        for i in range(record_at(words, record).entries):
            a = entry_at(words, nth_entry(record, i)).attribute
            have = about_at(tree.about, a).have
            if have > most or (have == most and a < best):
                best, most = a, have
        record += length_of(words, record)
    return best, most


@step(void(T, N))
def clear_counts(tree, c):
    words = tree.words
    p = c_node_at(words, c).p_node
    while p >= 0:
        about_at(tree.about, p_node_at(words, p).attribute).have = 0
        p = p_node_above(words, p)
    record, end = records_of(words, c)
    while record < end:
        for i in range(record_at(words, record).entries):
            about = about_at(tree.about, entry_at(words, nth_entry(record, i)).attribute)
            about.have, about.chose, about.space = 0, 0, 0
        record += length_of(words, record)


# ---- which rows: `offset` in `place` is, instead, the attribute by which a row will leave, or NONE ----


@step(void(T, N, N))
def choose_one(tree, c, best):
    """Rows that have attribute `best` leave by it."""
    words = tree.words
    record, end = records_of(words, c)
    while record < end:
        head = record_at(words, record)
        if head.row >= 0:
            choice = NONE
            for i in range(head.entries):
                if entry_at(words, nth_entry(record, i)).attribute == best:
                    choice = best
            where_at(tree.place, head.row).offset = choice
        record += length_of(words, record)


@step(void(T, N, N))
def reset_choices(tree, c, least):
    """Nobody has chosen; attributes that fewer than `least` rows had chosen are out."""
    words = tree.words
    record, end = records_of(words, c)
    while record < end:
        for i in range(record_at(words, record).entries):
            about = about_at(tree.about, entry_at(words, nth_entry(record, i)).attribute)
            if 0 < about.chose < least:
                about.have = 0
            about.chose = 0
        record += length_of(words, record)


@step(void(T, N, boolean))
def let_rows_choose(tree, c, last):
    """`chose`: how many rows choose an attribute. The last time, these numbers stay, and only attributes count that
    enough rows have chosen."""
    words, least = tree.words, tree.state[MIN_SIZE]
    record, end = records_of(words, c)
    while record < end:
        head = record_at(words, record)
        choice, most = NONE, least - 1
        for i in range(head.entries):
            a = entry_at(words, nth_entry(record, i)).attribute
            about = about_at(tree.about, a)
            if not last or about.chose >= least:
                if about.have > most or (about.have == most and a < choice):
                    choice, most = a, about.have
        if head.row >= 0:
            where_at(tree.place, head.row).offset = choice
            if choice >= 0 and not last:
                about_at(tree.about, choice).chose += 1
        record += length_of(words, record)


@step(void(T, N))
def choose_highest(tree, c):
    """Every row goes to the highest ranking of its attributes, by the counts that stand in `about`; p-nodes that would
    get fewer than min_size rows are given up and their rows look again. (The outcome is that of one p-node after the
    other, but for the ranks, which are not counted again in between.)"""
    reset_choices(tree, c, 0)
    let_rows_choose(tree, c, False)
    reset_choices(tree, c, tree.state[MIN_SIZE])
    let_rows_choose(tree, c, False)
    let_rows_choose(tree, c, True)  # only among p-nodes that get enough rows: no row stays that has one's attribute


@step(BOTH(T, N))
def space_of_choices(tree, c):
    """How many p-nodes have been chosen, and the words of their rows; `space`: the words of each."""
    words = tree.words
    made, size = 0, 0
    record, end = records_of(words, c)
    while record < end:
        length, row = length_of(words, record), record_at(words, record).row
        if row >= 0 and where_at(tree.place, row).offset >= 0:
            a = where_at(tree.place, row).offset
            made += about_at(tree.about, a).space == 0
            about_at(tree.about, a).space += length
            size += length
        record += length
    return made, size


# ---- moving them ----


@step(void(T, N))
def move_to_p_nodes(tree, c):
    """Rows leave an l-node by the attributes that they have chosen; gaps stay. New p-nodes are to be clustered before
    this l-node is looked at again."""
    words, node = tree.words, c_node_at(tree.words, c)
    depth = depth_of(words, c)
    record, end = records_of(words, c)
    while record < end:
        head = record_at(words, record)
        if head.row >= 0 and where_at(tree.place, head.row).offset >= 0:
            a = where_at(tree.place, head.row).offset
            if about_at(tree.about, a).space > 0:
                at = add_p_node(tree, c, a, about_at(tree.about, a).space)
                about_at(tree.about, a).space = 0
                push(tree, CLUSTER, place_at(words, at).top)
            else:
                at = find(words, c, a)
            place = place_at(words, at)
            x, y = key(words, record, a)
            cover(words, place_interval(at), x, y)
            settle(words, append(tree, place.top, record), a, 1, MOST)
            p_node = p_node_at(words, place.p_node)
            p_node.rows += 1
            p_node.gain += depth + 1
            head.row = NONE
            node.rows -= 1
        record += length_of(words, record)


@step(boolean(T, N))
def partition(tree, c):
    """One p-node, or, where there are many rows, all p-nodes at once. False when it lacks room."""
    words, state, node = tree.words, tree.state, c_node_at(tree.words, c)
    rows, max_cap = node.rows, state[MAX_CAP]
    if rows <= node.capacity:
        node.capacity = capacity(rows + rows // SLACK if rows > state[MANY] else rows, max_cap)
        pop(tree)
        return True
    best, most = count_attributes(tree, c)
    if state[HISTOGRAM] > 0:
        subtract_losses(tree, c)
        best, most = highest_attribute(tree, c)
    made, size = 0, 0
    if most >= state[MIN_SIZE]:
        if rows > state[MANY]:
            choose_highest(tree, c)
        else:
            choose_one(tree, c, best)
        made, size = space_of_choices(tree, c)
    places = max(node.places, 2)
    while places * 3 < (node.p_nodes + made) * 4:
        places *= 2
    wanted = cost(size) + cost(PLACE_WORDS * places) + made * (cost(0) + cost(C_NODE_WORDS) + cost(P_NODE_WORDS))
    if made == 0 or lacks(tree, wanted, made):
        clear_counts(tree, c)
        compact(tree, c)
        if made == 0:
            # No way to split it: an extended l-node.
            more = rows // SLACK if rows > state[MANY] else 0
            node.capacity = max(node.capacity + max_cap, capacity(rows + more, max_cap))
            pop(tree)
        return made == 0
    if places > node.places:
        rehash(tree, c, places)
    move_to_p_nodes(tree, c)
    clear_counts(tree, c)
    p = node.p_node
    while p >= 0:
        p_node_at(words, p).gain += rows - node.rows  # one more predicate of each that moved is covered
        p = p_node_above(words, p)
    shrink(tree, c)
    if rows > state[MANY]:
        node.capacity = capacity(node.rows, max_cap)
    return True


@step(BOTH(W, N))
def hull_of_rows(words, c):
    """The least interval that covers all rows of an l-node."""
    least, most = MOST, 0
    attribute = c_node_at(words, c).attribute
    record, end = records_of(words, c)
    while record < end:
        if record_at(words, record).row >= 0:
            x, y = key(words, record, attribute)
            least, most = min(least, x), max(most, y)
        record += length_of(words, record)
    return least, most


@step(BOTH(W, N, N))
def sizes_of_halves(words, c, m):
    """Words of the records of an l-node that fit into the left half, which ends with cell m, and into the right one."""
    left, right = 0, 0
    attribute = c_node_at(words, c).attribute
    record, end = records_of(words, c)
    while record < end:
        length = length_of(words, record)
        if record_at(words, record).row >= 0:
            x, y = key(words, record, attribute)
            if y <= m:
                left += length
            elif x > m:
                right += length
        record += length
    return left, right


@step(void(T, N, N, N, N, N))
def new_half(tree, c, side, lo, hi, size):
    """A c-node for a half of a bucket, with an empty l-node for so many words."""
    words, node = tree.words, c_node_at(tree.words, c)
    half = new_c_node(tree, c, node.p_node, node.attribute, lo, hi)
    c_node_at(words, half).l_node = allocate(tree, size)
    words[half_link(c, side)] = half


@step(void(T, N, N))
def move_to_halves(tree, c, m):
    """Rows of a bucket that fit into a half of it, if it has been split, go there; gaps stay. All are settled."""
    words, node = tree.words, c_node_at(tree.words, c)
    record, end = records_of(words, c)
    while record < end:
        head = record_at(words, record)
        if head.row >= 0:
            x, y = key(words, record, node.attribute)
            to, at = c, record
            if node.is_split == 1 and (y <= m or x > m):
                side = LEFT if y <= m else RIGHT
                cover(words, half_interval(c, side), x, y)
                to = half_of(words, c, side)
                at = append(tree, to, record)
                head.row = NONE
                node.rows -= 1
            bucket = c_node_at(words, to)
            settle(words, at, node.attribute, bucket.lo, bucket.hi)
        record += length_of(words, record)


@step(boolean(T, N))
def cluster(tree, c):
    """One bucket. False when it lacks room."""
    words, node = tree.words, c_node_at(tree.words, c)
    if node.rows <= node.capacity:
        pop(tree)
        return True
    if node.is_split == 1 or node.lo == node.hi:
        replace(tree, PARTITION, c)  # not a leaf, or atomic
        return True
    ceiling = about_at(tree.about, node.attribute).ceiling
    least, most = hull_of_rows(words, c)
    # Halvings that would put all rows on one side are skipped.
    lo, hi = smallest(node.lo, node.hi, least, most, ceiling)
    m = cut(lo, hi, ceiling)
    left_size, right_size = 0, 0
    if lo < hi:
        left_size, right_size = sizes_of_halves(words, c, m)
    if lacks(tree, cost(left_size) + cost(right_size) + 2 * cost(C_NODE_WORDS), 3):
        return False
    node.lo, node.hi, node.is_split = lo, hi, lo < hi
    # The bucket may have become smaller than what deleted rows covered, and rows that equal it are not tested. (A
    # bucket that is not split has no p-directory unless it is atomic, so these are all rows below it.)
    interval = interval_at(words, interval_of(words, c))
    interval.lo, interval.hi = least, most
    if left_size > 0:
        new_half(tree, c, LEFT, lo, m, left_size)
    if right_size > 0:
        new_half(tree, c, RIGHT, m + 1, hi, right_size)
    move_to_halves(tree, c, m)
    shrink(tree, c)
    pop(tree)
    if node.right >= 0:
        push(tree, CLUSTER, node.right)
    if node.left >= 0:
        push(tree, CLUSTER, node.left)
    push(tree, PARTITION, c)
    return True
