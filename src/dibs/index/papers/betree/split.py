"""How the l-nodes of a BE-Tree are split: space clustering and space partitioning, algorithms 6 and 5 of the paper.

The tasks, `place` and `about` are explained in betree_leaves.
"""

from __future__ import annotations

from numba import boolean, void

from dibs.index.papers.betree.layout import (
    ATTRIBUTE,
    BLOCK,
    CAPACITY,
    COUNT,
    GAIN,
    HEAD,
    HI,
    KEY,
    LEFT,
    LEFT_HI,
    LEFT_LO,
    LO,
    MANY,
    MAX_CAP,
    MIN_SIZE,
    MOST,
    NODE_WORDS,
    OWNER,
    PART,
    PART_NODES,
    PART_WORDS,
    PLACE,
    PLACES,
    RIGHT,
    RIGHT_HI,
    RIGHT_LO,
    ROWS,
    SIZE,
    SPLIT,
    STACK,
    TASKS,
    TOP,
    USED,
)
from dibs.index.papers.betree.leaves import (
    CEILING,
    CHOSE,
    CLUSTER,
    HAVE,
    PARTITION,
    SPACE,
    append,
    capacity,
    compact,
    cover,
    push,
    shrink,
)
from dibs.index.papers.betree.steps import (
    BOTH,
    N,
    P,
    S,
    W,
    allocate,
    cost,
    cut,
    enter,
    find,
    interval_of,
    key,
    lacks,
    new_node,
    rehash,
    settle,
    smallest,
    step,
)

SLACK = 16  # an l-node of many rows, if it stays large, takes 1/16 more rows before the next attempt


# ---- clustering ----


@step(boolean(N, W, S, P, P))
def cluster(c, words, state, place, about):
    """Algorithm 6, one bucket. False when it lacks room."""
    task = state[STACK] + state[TASKS] - 2
    if words[c + ROWS] <= words[c + CAPACITY]:
        state[TASKS] -= 2
        return True
    if words[c + SPLIT] == 1 or words[c + LO] == words[c + HI]:
        words[task] = PARTITION
        return True
    a = words[c + ATTRIBUTE]
    ceiling = about[a, CEILING]
    least, most = MOST, 0
    block = words[c + BLOCK]
    end = block + words[c + USED]
    p = block
    while p < end:
        if words[p] >= 0:
            x, y = key(p, a, words)
            least, most = min(least, x), max(most, y)
        p += HEAD + 3 * words[p + 2]
    # Halvings that would put all rows on one side are skipped.
    lo, hi = smallest(words[c + LO], words[c + HI], least, most, ceiling)
    m = cut(lo, hi, ceiling)
    left_words, right_words = 0, 0
    left_lo, left_hi, right_lo, right_hi = MOST, -1, MOST, -1
    p = block
    while p < end and lo < hi:
        length = HEAD + 3 * words[p + 2]
        if words[p] >= 0:
            x, y = key(p, a, words)
            if y <= m:
                left_words += length
                left_lo, left_hi = min(left_lo, x), max(left_hi, y)
            elif x > m:
                right_words += length
                right_lo, right_hi = min(right_lo, x), max(right_hi, y)
        p += length
    if lacks(cost(left_words) + cost(right_words) + 2 * cost(NODE_WORDS), 6, words, state):
        return False
    words[c + LO], words[c + HI], words[c + SPLIT] = lo, hi, lo < hi
    # The bucket may have become smaller than what deleted rows covered, and rows that equal it are not tested. (A
    # bucket that is not split has no p-directory unless it is atomic, so these are all rows below it.)
    slot = interval_of(c, words)
    words[slot], words[slot + 1] = least, most
    left, right = -1, -1
    if left_words > 0:
        left = new_node(c, words[c + PART], a, lo, m, words, state)
        words[left + BLOCK] = allocate(left_words, words, state)
        words[c + LEFT], words[c + LEFT_LO], words[c + LEFT_HI] = left, left_lo, left_hi
    if right_words > 0:
        right = new_node(c, words[c + PART], a, m + 1, hi, words, state)
        words[right + BLOCK] = allocate(right_words, words, state)
        words[c + RIGHT], words[c + RIGHT_LO], words[c + RIGHT_HI] = right, right_lo, right_hi
    p = block
    while p < end:
        length = HEAD + 3 * words[p + 2]
        if words[p] >= 0:
            to, at = c, p
            x, y = key(p, a, words)
            if lo < hi and (y <= m or x > m):
                to = left if y <= m else right
                at = append(to, p, words, place)
                words[p] = -1
                words[c + ROWS] -= 1
            settle(at, a, words[to + LO], words[to + HI], words)
        p += length
    shrink(c, words, state, place)
    state[TASKS] -= 2
    if right >= 0:
        push(CLUSTER, right, words, state)
    if left >= 0:
        push(CLUSTER, left, words, state)
    push(PARTITION, c, words, state)
    return True


# ---- partitioning ----


@step(BOTH(N, W, P))
def count_attributes(c, words, about):
    """about[a, HAVE]: how many rows of an l-node have attribute a (negative if it has led there: no attribute is used
    twice on a path). Returns the attribute that most have, the lowest of several, and how many."""
    part = words[c + PART]
    while part >= 0:
        about[words[part + KEY], HAVE] = -(1 << 30)
        part = words[words[part + OWNER] + PART]
    best, most = -1, 0
    p = words[c + BLOCK]
    end = p + words[c + USED]
    while p < end:
        row, after = words[p], p + HEAD + 3 * words[p + 2]
        if row >= 0:
            for e in range(p + HEAD, after, 3):
                a = words[e]
                if about[a, CHOSE] != row + 1:  # once a row
                    about[a, CHOSE] = row + 1
                    about[a, HAVE] += 1
                    if about[a, HAVE] > most or (about[a, HAVE] == most and a < best):
                        best, most = a, about[a, HAVE]
        p = after
    return best, most


@step(void(N, W, P))
def clear_counts(c, words, about):
    part = words[c + PART]
    while part >= 0:
        about[words[part + KEY], HAVE] = 0
        part = words[words[part + OWNER] + PART]
    p = words[c + BLOCK]
    end = p + words[c + USED]
    while p < end:
        after = p + HEAD + 3 * words[p + 2]
        for e in range(p + HEAD, after, 3):
            a = words[e]
            about[a, HAVE], about[a, CHOSE], about[a, SPACE] = 0, 0, 0
        p = after


@step(N(N, W))
def depth_of(c, words):
    """How many attributes lead to a c-node."""
    depth = 0
    part = words[c + PART]
    while part >= 0:
        depth += 1
        part = words[words[part + OWNER] + PART]
    return depth


@step(N(N, N, N, W, S))
def add_part(c, a, size, words, state):
    """A p-node for an attribute, whose top bucket has an empty l-node for so many words; its place."""
    if words[c + PLACES] * 3 < (words[c + COUNT] + 1) * 4:
        rehash(c, max(2 * words[c + PLACES], 2), words, state)
    part = allocate(PART_WORDS, words, state)
    state[PART_NODES] += 1
    top = new_node(-1, part, a, 1, MOST, words, state)
    words[top + BLOCK] = allocate(size, words, state)
    for i in range(PART_WORDS):
        words[part + i] = 0
    words[part + OWNER], words[part + KEY], words[part + TOP] = c, a, top
    at = enter(a, c, words)
    words[at + 1], words[at + 2], words[at + 3], words[at + 4] = top, MOST, -1, part
    words[c + COUNT] += 1
    return at


@step(BOTH(N, N, W, S, P, P))
def choose(c, best, words, state, place, about):
    """The attribute by which each row of an l-node will leave it, or -1, instead of its place there. Those that have
    attribute `best` leave by it. best < 0: every row goes to the highest ranking of its attributes, by the counts that
    stand in `about`; p-nodes that would get fewer than min_size rows are given up and their rows look again. (The
    outcome is that of one p-node after the other, but for the ranks, which are not counted again in between.) Returns
    how many p-nodes these are, and the words of their rows, in about[a, SPACE] those of each."""
    least = state[MIN_SIZE]
    start = words[c + BLOCK]
    end = start + words[c + USED]
    for time in range(0 if best < 0 else 2, 3):
        last = time == 2  # then only p-nodes that get enough rows count: no row stays that has the attribute of one
        p = start
        while p < end and not last:
            for e in range(p + HEAD, p + HEAD + 3 * words[p + 2], 3):
                if time == 1 and 0 < about[words[e], CHOSE] < least:
                    about[words[e], HAVE] = 0
                about[words[e], CHOSE] = 0
            p += HEAD + 3 * words[p + 2]
        p = start
        while p < end:
            choice, most = -1, least - 1
            for e in range(p + HEAD, p + HEAD + 3 * words[p + 2], 3):
                a = words[e]
                possible = a == best if best >= 0 else not last or about[a, CHOSE] >= least
                if possible and (about[a, HAVE] > most or (about[a, HAVE] == most and a < choice)):
                    choice, most = a, about[a, HAVE]
            if words[p] >= 0:
                place[words[p], 1] = choice
                if choice >= 0 and not last:
                    about[choice, CHOSE] += 1
            p += HEAD + 3 * words[p + 2]
    made, size = 0, 0
    p = start
    while p < end:
        length = HEAD + 3 * words[p + 2]
        if words[p] >= 0 and place[words[p], 1] >= 0:
            a = place[words[p], 1]
            made += about[a, SPACE] == 0
            about[a, SPACE] += length
            size += length
        p += length
    return made, size


@step(boolean(N, W, S, P, P))
def partition(c, words, state, place, about):
    """Algorithm 5: one p-node, or, where there are many rows, all p-nodes at once. False when it lacks room."""
    rows, max_cap = words[c + ROWS], state[MAX_CAP]
    if rows <= words[c + CAPACITY]:
        words[c + CAPACITY] = capacity(rows + rows // SLACK if rows > state[MANY] else rows, max_cap)
        state[TASKS] -= 2
        return True
    best, most = count_attributes(c, words, about)
    made, size = 0, 0
    if most >= state[MIN_SIZE]:
        made, size = choose(c, -1 if rows > state[MANY] else best, words, state, place, about)
    places = max(words[c + PLACES], 2)
    while places * 3 < (words[c + COUNT] + made) * 4:
        places *= 2
    wanted = cost(size) + cost(PLACE * places) + made * (cost(0) + cost(NODE_WORDS) + cost(PART_WORDS))
    if made == 0 or lacks(wanted, 2 * made, words, state):
        clear_counts(c, words, about)
        compact(c, words, place)
        if made == 0:
            # No way to split it: an extended l-node.
            words[c + CAPACITY] = max(words[c + CAPACITY] + max_cap, capacity(rows + rows // SLACK, max_cap))
            state[TASKS] -= 2
        return made == 0
    if places > words[c + PLACES]:
        rehash(c, places, words, state)
    depth = depth_of(c, words)
    p = words[c + BLOCK]
    end = p + words[c + USED]
    while p < end:
        length = HEAD + 3 * words[p + 2]
        if words[p] >= 0 and place[words[p], 1] >= 0:
            a = place[words[p], 1]
            at = -1
            if about[a, SPACE] > 0:
                at = add_part(c, a, about[a, SPACE], words, state)
                about[a, SPACE] = 0
                push(CLUSTER, words[at + 1], words, state)  # above the task to go on with this l-node
            else:
                at = find(a, c, words)
            part = words[at + 4]
            x, y = key(p, a, words)
            cover(at + 2, x, y, words)
            settle(append(words[at + 1], p, words, place), a, 1, MOST, words)
            words[part + SIZE] += 1
            words[part + GAIN] += depth + 1
            words[p] = -1
            words[c + ROWS] -= 1
        p += length
    clear_counts(c, words, about)
    moved = rows - words[c + ROWS]
    part = words[c + PART]
    while part >= 0:
        words[part + GAIN] += moved  # one more predicate of each is covered
        part = words[words[part + OWNER] + PART]
    shrink(c, words, state, place)
    if rows > state[MANY]:
        words[c + CAPACITY] = capacity(words[c + ROWS], max_cap)
    return True
