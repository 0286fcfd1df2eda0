"""SpaceClustering, algorithm 6 of the paper: the bucket of an overflowing l-node is halved."""

from __future__ import annotations

from numba import boolean, void

from dibs.papers.structures.betree.directories import cut, interval_of, new_c_node, smallest
from dibs.papers.structures.betree.layout import C_NODE_WORDS, LEFT, MOST, NONE, RIGHT
from dibs.papers.structures.betree.leaves import append, key, records_of, settle, shrink
from dibs.papers.structures.betree.memory import CLUSTER, PARTITION, allocate, cost, lacks, pop, push, replace
from dibs.papers.structures.betree.nodes import (
    BOTH,
    N,
    T,
    W,
    about_at,
    c_node_at,
    cover,
    half_interval,
    half_link,
    half_of,
    interval_at,
    length_of,
    record_at,
    step,
)


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
