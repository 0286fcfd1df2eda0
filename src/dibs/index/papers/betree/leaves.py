"""L-nodes of a BE-Tree, and the stack of what is to be done with its nodes.

An insertion or deletion may leave c-nodes that have to be clustered, partitioned, merged or recycled. These are tasks
on a stack, so that the kernel can stop before any of them when memory is full: every step first makes sure of all the
words that it may take (`lacks`), and the caller makes the array larger and calls again.

    CLUSTER    SpaceClustering of the paper (algorithm 6): halve the bucket of an overflowing l-node
    PARTITION  SpacePartitioning (algorithm 5): give the rows with the highest ranking attribute a p-node of their own
    TIDY       the merge rule, and removal of what is empty
    RECYCLE    take a p-node out of the tree: its c-nodes are
    DISSOLVE   taken apart, and their rows
    REINSERT   inserted again, one by one

`place` (int32, rows x 2) says for each row its c-node (-1: none) and where in the l-node its record begins; `about`
(int32, attributes x 4) has the ceiling of each attribute and three columns to count in, which are zero between steps.
"""

from __future__ import annotations

from numba import void

from dibs.index.papers.betree.layout import (
    BLOCK,
    DEAD,
    HEAD,
    ROWS,
    STACK,
    TASKS,
    USED,
    WORDS,
)
from dibs.index.papers.betree.steps import (
    N,
    P,
    S,
    W,
    allocate,
    class_of,
    class_size,
    release,
    step,
)

CLUSTER, PARTITION, TIDY, RECYCLE, DISSOLVE, REINSERT = range(6)
CEILING, HAVE, CHOSE, SPACE = range(4)  # columns of `about`


@step(void(N, N, W, S))
def push(kind, node, words, state):
    at = state[STACK] + state[TASKS]
    words[at], words[at + 1] = kind, node
    state[TASKS] += 2


@step(void(N, W, P))
def compact(c, words, place):
    """Closes the gaps that deleted records left in an l-node, and notes where each record is."""
    block = words[c + BLOCK]
    p, to = block, block
    while p < block + words[c + USED]:
        length = HEAD + 3 * words[p + 2]
        if words[p] >= 0:
            place[words[p], 1] = to - block
            if to < p:
                for i in range(length):
                    words[to + i] = words[p + i]
            to += length
        p += length
    words[c + USED] = to - block
    words[c + DEAD] = 0


@step(void(N, N, W, S))
def resize(c, size, words, state):
    """Gives an l-node a block for so many words."""
    block = words[c + BLOCK]
    if size > 0:
        to = allocate(size, words, state)
        for i in range(words[c + USED]):
            words[to + i] = words[block + i]
        words[c + BLOCK] = to
    else:
        words[c + BLOCK] = -1
    if block >= 0:
        release(block, words, state)


@step(void(N, W, S, P))
def shrink(c, words, state, place):
    """Closes gaps, and moves an l-node that has become much smaller than its block to another, if there is room."""
    compact(c, words, place)
    block, used = words[c + BLOCK], words[c + USED]
    if block >= 0:
        k = class_of(used)
        if used == 0 or (k + 2 <= words[block - 1] and state[WORDS] + class_size(k) <= len(words)):
            resize(c, used, words, state)


@step(void(N, N, W, S, P))
def make_room(c, more, words, state, place):
    """Room for so many words more in an l-node. `cost(USED + more)` words can be allocated."""
    block = words[c + BLOCK]
    if words[c + DEAD] > 0:
        compact(c, words, place)
    if block < 0 or words[c + USED] + more > class_size(words[block - 1]) - 1:
        resize(c, words[c + USED] + more, words, state)


@step(N(N, N, W, P))
def append(c, at, words, place):
    """A copy of the record at `at` at the end of an l-node that has room for it; where it stands now."""
    to = words[c + BLOCK] + words[c + USED]
    length = HEAD + 3 * words[at + 2]
    for i in range(length):
        words[to + i] = words[at + i]
    place[words[at], 0], place[words[at], 1] = c, words[c + USED]
    words[c + USED] += length
    words[c + ROWS] += 1
    return to


@step(N(N, N))
def capacity(rows, max_cap):
    """The capacity of an l-node with so many rows, by the paper's formula."""
    return max(-(-rows // max_cap), 1) * max_cap


@step(void(N, N, N, W))
def cover(slot, x, y, words):
    """The least interval at `slot` covers the cells x to y too."""
    words[slot], words[slot + 1] = min(words[slot], x), max(words[slot + 1], y)
