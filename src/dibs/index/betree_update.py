"""How a BE-Tree changes: insertion and deletion, and the steps that these bring about.

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

from numba import boolean, njit, void

from dibs.index.betree_layout import (
    ALIVE,
    ATTRIBUTE,
    BLOCK,
    BOTH,
    CAPACITY,
    CHANGES,
    COUNT,
    DEAD,
    GAIN,
    HEAD,
    HI,
    KEY,
    LAST_LOSS,
    LEFT,
    LEFT_HI,
    LEFT_LO,
    LO,
    LOSS,
    MAX_CAP,
    MIN_SIZE,
    MOST,
    NEXT,
    NODE_WORDS,
    OWNER,
    PART,
    PART_NODES,
    PART_WORDS,
    PLACE,
    PLACES,
    RECYCLED,
    RIGHT,
    RIGHT_HI,
    RIGHT_LO,
    ROOT,
    ROWS,
    SCRATCH,
    SEEN,
    SIZE,
    SPLIT,
    STACK,
    TABLE,
    TASKS,
    TOP,
    UP,
    USED,
    WORDS,
    N,
    P,
    S,
    W,
    allocate,
    class_of,
    class_size,
    cost,
    cut,
    empty_half,
    enter,
    find,
    forget,
    free_node,
    is_open_leaf,
    key,
    lacks,
    new_node,
    rehash,
    release,
    settle,
    smallest,
    step,
    swap,
)

INSERT, DELETE, PLANT = range(3)
CLUSTER, PARTITION, TIDY, RECYCLE, DISSOLVE, REINSERT = range(6)
CEILING, HAVE, CHOSE, SPACE = range(4)  # columns of `about`
MANY = 256  # an l-node of more rows is partitioned by all its attributes at once
SLACK = 16  # such an l-node, if it stays large, takes 1/16 more rows before the next attempt
LEAST_WINDOW = 64  # operations
SAMPLE = 16  # one event in so many is watched for its losses


@step(void(N, N, W, S))
def push(kind, node, words, state):  # type: ignore[no-untyped-def]
    at = state[STACK] + state[TASKS]
    words[at], words[at + 1] = kind, node
    state[TASKS] += 2


# ---- l-nodes ----


@step(void(N, W, P))
def compact(c, words, place):  # type: ignore[no-untyped-def]
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
def resize(c, size, words, state):  # type: ignore[no-untyped-def]
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
def shrink(c, words, state, place):  # type: ignore[no-untyped-def]
    """Closes gaps, and moves an l-node that has become much smaller than its block to another, if there is room."""
    compact(c, words, place)
    block, used = words[c + BLOCK], words[c + USED]
    if block >= 0:
        k = class_of(used)
        if used == 0 or (k + 2 <= words[block - 1] and state[WORDS] + class_size(k) <= len(words)):
            resize(c, used, words, state)


@step(void(N, N, W, S, P))
def make_room(c, more, words, state, place):  # type: ignore[no-untyped-def]
    """Room for so many words more in an l-node. `cost(USED + more)` words can be allocated."""
    block = words[c + BLOCK]
    if words[c + DEAD] > 0:
        compact(c, words, place)
    if block < 0 or words[c + USED] + more > class_size(words[block - 1]) - 1:
        resize(c, words[c + USED] + more, words, state)


@step(N(N, N, W, P))
def append(c, at, words, place):  # type: ignore[no-untyped-def]
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
def capacity(rows, max_cap):  # type: ignore[no-untyped-def]
    """The capacity of an l-node with so many rows, by the paper's formula."""
    return max(-(-rows // max_cap), 1) * max_cap


@step(void(N, N, N, W))
def cover(slot, x, y, words):  # type: ignore[no-untyped-def]
    """The least interval at `slot` covers the cells x to y too."""
    words[slot], words[slot + 1] = min(words[slot], x), max(words[slot + 1], y)


# ---- clustering ----


@step(boolean(N, W, S, P, P))
def cluster(c, words, state, place, about):  # type: ignore[no-untyped-def]
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
def count_attributes(c, words, about):  # type: ignore[no-untyped-def]
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
def clear_counts(c, words, about):  # type: ignore[no-untyped-def]
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
def depth_of(c, words):  # type: ignore[no-untyped-def]
    """How many attributes lead to a c-node."""
    depth = 0
    part = words[c + PART]
    while part >= 0:
        depth += 1
        part = words[words[part + OWNER] + PART]
    return depth


@step(N(N, N, N, W, S))
def add_part(c, a, size, words, state):  # type: ignore[no-untyped-def]
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
def choose(c, best, words, state, place, about):  # type: ignore[no-untyped-def]
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
def partition(c, words, state, place, about):  # type: ignore[no-untyped-def]
    """Algorithm 5: one p-node, or, where there are many rows, all p-nodes at once. False when it lacks room."""
    rows, max_cap = words[c + ROWS], state[MAX_CAP]
    if rows <= words[c + CAPACITY]:
        words[c + CAPACITY] = capacity(rows + rows // SLACK if rows > MANY else rows, max_cap)
        state[TASKS] -= 2
        return True
    best, most = count_attributes(c, words, about)
    made, size = 0, 0
    if most >= state[MIN_SIZE]:
        made, size = choose(c, -1 if rows > MANY else best, words, state, place, about)
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
    if rows > MANY:
        words[c + CAPACITY] = capacity(words[c + ROWS], max_cap)
    return True


# ---- insertion ----


@step(N(N, N, N, W, S, P))
def descend(at, x, y, words, state, about):  # type: ignore[no-untyped-def]
    """Algorithm 4: the c-node of the smallest bucket, in the directory of the p-node at place `at` of a p-directory,
    that encloses the cells x to y. Makes up to two c-nodes."""
    a, part = words[at], words[at + 4]
    ceiling = about[a, CEILING]
    lo, hi = 1, MOST  # the bucket that c would have if no halving had been skipped
    parent, c = -1, words[at + 1]
    link, slot = at + 1, at + 2  # where c and its least interval stand
    while True:
        if x < words[c + LO] or y > words[c + HI]:
            if is_open_leaf(c, words) and words[c + ROWS] < state[MAX_CAP]:
                words[c + LO], words[c + HI] = lo, hi
                p = words[c + BLOCK]
                end = p + words[c + USED]
                while p < end:
                    settle(p, a, lo, hi, words)
                    p += HEAD + 3 * words[p + 2]
            else:
                # A halving that was skipped is made after all.
                lo, hi = smallest(lo, hi, min(x, words[c + LO]), max(y, words[c + HI]), ceiling)
                between = new_node(parent, part, a, lo, hi, words, state)
                words[between + SPLIT] = 1
                words[c + UP] = between
                words[link] = between
                side = LEFT if words[c + HI] <= cut(lo, hi, ceiling) else RIGHT
                words[between + side] = c
                cover(between + 2 * side - LEFT + 2, words[slot], words[slot + 1], words)
                c = between
                if parent < 0:
                    words[part + TOP] = c
        cover(slot, x, y, words)
        if words[c + SPLIT] == 0:
            return c
        m = cut(words[c + LO], words[c + HI], ceiling)
        if y <= m:
            side, lo, hi = LEFT, words[c + LO], m
        elif x > m:
            side, lo, hi = RIGHT, m + 1, words[c + HI]
        else:
            return c
        parent, link, slot = c, c + side, c + 2 * side - LEFT + 2
        c = words[link]
        if c < 0:
            c = new_node(parent, part, a, lo, hi, words, state)
            words[link] = c


@step(boolean(N, W))
def window_ends(part, words):  # type: ignore[no-untyped-def]
    """One more insertion or deletion below a p-node. At the end of its window (a tenth of its rows in operations) its
    loss is taken down; says whether its rank is below the threshold, 0."""
    words[part + CHANGES] += 1
    if words[part + CHANGES] + SAMPLE * words[part + SEEN] < max(words[part + SIZE] // 10, LEAST_WINDOW):
        return False
    if words[part + SEEN] > 0:
        words[part + LAST_LOSS] = words[part + LOSS] // words[part + SEEN]
    words[part + CHANGES], words[part + SEEN], words[part + LOSS] = 0, 0, 0
    return words[part + GAIN] < words[part + LAST_LOSS]


@step(boolean(N, boolean, W, S, P, P))
def insert(at, again, words, state, place, about):  # type: ignore[no-untyped-def]
    """Algorithm 3 for the record at `at`; again: it was there before and has been taken out. False when it lacks
    room."""
    length = HEAD + 3 * words[at + 2]
    fresh = 0
    for e in range(at + HEAD, at + length, 3):
        fresh += words[e + 2] >= 0
    words[at + 1] = fresh
    # The first `fresh` entries have attributes that are not used on the way so far.
    if lacks(2 * fresh * cost(NODE_WORDS), 2, words, state):
        return False
    c, depth = ROOT, 0
    while words[c + PLACES] > 0:
        best, best_rank = -1, 0
        for e in range(at + HEAD, at + HEAD + 3 * fresh, 3):
            found = find(words[e], c, words)
            if found >= 0:
                rank = words[words[found + 4] + GAIN] - words[words[found + 4] + LAST_LOSS]
                if best < 0 or rank > best_rank:
                    best, best_rank = found, rank
        if best < 0:
            break
        a = words[best]
        x, y = key(at, a, words)
        e = at + HEAD
        while e < at + HEAD + 3 * fresh:
            if words[e] == a:
                fresh -= 1
                swap(e, at + HEAD + 3 * fresh, words)
            else:
                e += 3
        c = descend(best, x, y, words, state, about)
        settle(at, a, words[c + LO], words[c + HI], words)
        depth += 1
    # What has been made on the way is found again if the room is made larger first.
    if lacks(cost(words[c + USED] + length), 2, words, state):
        return False
    make_room(c, length, words, state, place)
    append(c, at, words, place)
    worst = -1
    part = words[c + PART]
    while part >= 0:
        words[part + SIZE] += 1
        words[part + GAIN] += depth
        if not again and window_ends(part, words):
            worst = part
        part = words[words[part + OWNER] + PART]
    if worst >= 0:
        push(RECYCLE, worst, words, state)
    elif words[c + ROWS] > words[c + CAPACITY]:
        push(CLUSTER, c, words, state)
    return True


# ---- deletion ----


@step(void(N, W, S, P))
def erase(row, words, state, place):  # type: ignore[no-untyped-def]
    c = place[row, 0]
    p = words[c + BLOCK] + place[row, 1]
    place[row, 0] = -1
    words[p], words[p + 1] = -1, 1
    words[p + HEAD + 1], words[p + HEAD + 2] = MOST, 0
    words[c + DEAD] += HEAD + 3 * words[p + 2]
    words[c + ROWS] -= 1
    state[ALIVE] -= 1
    if 4 * words[c + DEAD] >= words[c + USED]:
        shrink(c, words, state, place)
    depth = depth_of(c, words)
    worst = -1
    part = words[c + PART]
    while part >= 0:
        words[part + SIZE] -= 1
        words[part + GAIN] -= depth
        if window_ends(part, words):
            worst = part
        part = words[words[part + OWNER] + PART]
    if worst >= 0:
        push(RECYCLE, worst, words, state)
    else:
        push(TIDY, c, words, state)


@step(N(N, W, S))
def remove_part(part, words, state):  # type: ignore[no-untyped-def]
    """Takes a p-node out of its p-directory; its owner."""
    owner = words[part + OWNER]
    forget(find(words[part + KEY], owner, words), owner, words, state)
    release(part, words, state)
    state[PART_NODES] -= 1
    return owner


@step(boolean(N, W, S, P))
def tidy(c, words, state, place):  # type: ignore[no-untyped-def]
    """The merge rule, one step up at a time. False when it lacks room."""
    if c == ROOT or words[c + PLACES] > 0:
        state[TASKS] -= 2
        return True
    parent, part = words[c + UP], words[c + PART]
    if words[c + SPLIT] == 1:
        # Open, so its halves may be merged into it: if one underflows and all together do not overflow.
        rows, used = words[c + ROWS], words[c + USED]
        underflow, leaves = words[c + LEFT] < 0 and words[c + RIGHT] < 0, True
        for side in range(LEFT, RIGHT + 1):
            child = words[c + side]
            if child >= 0:
                rows += words[child + ROWS]
                used += words[child + USED]
                underflow |= words[child + ROWS] < state[MIN_SIZE]
                leaves &= is_open_leaf(child, words)
        if not underflow or not leaves or rows > state[MAX_CAP]:
            state[TASKS] -= 2
            return True
        if lacks(cost(used), 0, words, state):
            return False
        make_room(c, used - words[c + USED], words, state, place)
        for side in range(LEFT, RIGHT + 1):
            child = words[c + side]
            if child >= 0:
                p = words[child + BLOCK]
                end = p + words[child + USED]
                while p < end:
                    if words[p] >= 0:
                        at = append(c, p, words, place)
                        settle(at, words[c + ATTRIBUTE], words[c + LO], words[c + HI], words)
                    p += HEAD + 3 * words[p + 2]
                free_node(child, words, state)
                empty_half(c, side, words)
        words[c + SPLIT], words[c + CAPACITY] = 0, state[MAX_CAP]
    if words[c + ROWS] == 0:
        if lacks(cost(PLACE * words[words[part + OWNER] + PLACES]), 0, words, state):
            return False
    task = state[STACK] + state[TASKS] - 2
    if words[c + ROWS] == 0:
        free_node(c, words, state)
        if parent < 0:
            words[task + 1] = remove_part(part, words, state)
        else:
            empty_half(parent, LEFT if words[parent + LEFT] == c else RIGHT, words)
            words[task + 1] = parent
    elif words[c + ROWS] >= state[MIN_SIZE]:
        state[TASKS] -= 2
    elif parent >= 0:
        words[task + 1] = parent
    else:
        words[task], words[task + 1] = RECYCLE, part
    return True


@step(boolean(N, W, S))
def recycle(part, words, state):  # type: ignore[no-untyped-def]
    """Takes a p-node out of the tree. False when it lacks room."""
    owner, top = words[part + OWNER], words[part + TOP]
    if lacks(cost(PLACE * words[owner + PLACES]), 4, words, state):
        return False
    above = words[owner + PART]
    while above >= 0:
        words[above + SIZE] -= words[part + SIZE]
        words[above + GAIN] -= words[part + GAIN]
        above = words[words[above + OWNER] + PART]
    state[RECYCLED] += words[part + SIZE]
    state[TASKS] -= 2
    push(TIDY, remove_part(part, words, state), words, state)
    push(DISSOLVE, top, words, state)
    return True


@step(boolean(N, W, S))
def dissolve(c, words, state):  # type: ignore[no-untyped-def]
    """Takes a c-node apart that is out of the tree. False when it lacks room."""
    if lacks(0, 2 * (words[c + COUNT] + 3), words, state):
        return False
    state[TASKS] -= 2
    for side in range(LEFT, RIGHT + 1):
        if words[c + side] >= 0:
            push(DISSOLVE, words[c + side], words, state)
    for at in range(words[c + TABLE], words[c + TABLE] + PLACE * words[c + PLACES], PLACE):
        if words[at] >= 0:
            push(DISSOLVE, words[at + 1], words, state)
            release(words[at + 4], words, state)
            state[PART_NODES] -= 1
    if words[c + PLACES] > 0:
        release(words[c + TABLE], words, state)
    push(REINSERT, c, words, state)
    words[c + DEAD] = 0  # from now on: how many words of the l-node are done
    return True


# ---- the kernels ----


@njit(cache=True, nogil=True)
def prepare(record, words, state):  # type: ignore[no-untyped-def]
    """Before an update: the root and the stack if there is nothing yet, and a scratch block for records of so many
    words. The words have room for them."""
    if state[WORDS] == 0:
        new_node(-1, -1, -1, 1, MOST, words, state)
        words[ROOT + SPLIT] = 1  # it has no bucket, so that an overflow always leads to partitioning
        state[STACK] = allocate(64, words, state)
        state[SCRATCH] = allocate(64, words, state)
    if record > class_size(words[state[SCRATCH] - 1]) - 1:
        release(state[SCRATCH], words, state)
        state[SCRATCH] = allocate(record, words, state)


@step(N(N, N, S, W, W, W, N, W, W, W, S))
def load(row, number, offsets, attribute, lo, hi, spans, span_lo, span_hi, words, state):  # type: ignore[no-untyped-def]
    """A row of some clauses as a record in the scratch block, under its number among all rows. `spans` is where their
    spans begin among all spans."""
    at = state[SCRATCH]
    first, last = offsets[row], offsets[row + 1]
    entries = last - first
    for p in range(first, last):
        e = at + HEAD + 3 * (p - first)
        words[e], words[e + 1], words[e + 2] = attribute[p], lo[p], hi[p]
        if hi[p] < 0:
            s = spans + lo[p]
            words[e + 1], words[e + 2] = span_lo[s], span_hi[s - hi[p] - 1]
            e = at + HEAD + 3 * entries
            words[e], words[e + 1], words[e + 2] = attribute[p], s, hi[p]
            entries += 1
    words[at], words[at + 1], words[at + 2] = number, last - first, entries
    return at


@njit(cache=True, nogil=True)
def update(  # type: ignore[no-untyped-def]
    mode,
    rows,
    chosen,
    number,
    offsets,
    attribute,
    lo,
    hi,
    spans,
    span_lo,
    span_hi,
    words,
    state,
    place,
    about,
):
    """What `mode` says. Goes on where the state says; False when there are too few words.

    INSERT  all rows of some clauses, one by one, numbered from `number` on
    DELETE  `rows`
    PLANT   `rows` of clauses as the first rows of a tree, those at once that have chosen the same attribute for the
            root: they stand together, and those that have chosen none (-1) stand last

    One kernel for all: three would be compiled with all the steps each."""
    total = len(offsets) - 1 if mode == INSERT else len(rows)
    while True:
        if state[TASKS] > 0:
            task = state[STACK] + state[TASKS] - 2
            kind, node = words[task], words[task + 1]
            at = 0
            if kind == CLUSTER:
                done = cluster(node, words, state, place, about)
            elif kind == PARTITION:
                done = partition(node, words, state, place, about)
            elif kind == TIDY:
                done = tidy(node, words, state, place)
            elif kind == RECYCLE:
                done = recycle(node, words, state)
            elif kind == DISSOLVE:
                done = dissolve(node, words, state)
            else:
                done = True
                at = words[node + BLOCK] + words[node + DEAD]
                if words[node + DEAD] == words[node + USED]:
                    state[TASKS] -= 2
                    free_node(node, words, state)
                    continue
            if not done:
                return False
            if kind != REINSERT:
                continue
        elif state[NEXT] == total:
            return True
        elif mode == DELETE:
            if lacks(0, 2, words, state):
                return False
            erase(rows[state[NEXT]], words, state, place)
            state[NEXT] += 1
            continue
        elif mode == PLANT:
            start = state[NEXT]
            end, size, a = start, 0, chosen[rows[start]]
            while end < total and chosen[rows[end]] == a:
                r = rows[end]
                size += HEAD + 3 * (offsets[r + 1] - offsets[r])
                for p in range(offsets[r], offsets[r + 1]):
                    size += 3 * (hi[p] < 0)
                end += 1
            table = cost(2 * PLACE * max(words[ROOT + PLACES], 2))
            if lacks(cost(size) + table + cost(NODE_WORDS) + cost(PART_WORDS), 2, words, state):
                return False
            c, entry = ROOT, -1
            if a >= 0:
                entry = add_part(ROOT, a, size, words, state)
                c = words[entry + 1]
                words[words[entry + 4] + SIZE], words[words[entry + 4] + GAIN] = end - start, end - start
            else:
                make_room(ROOT, size, words, state, place)
            for i in range(start, end):
                at = load(rows[i], rows[i], offsets, attribute, lo, hi, 0, span_lo, span_hi, words, state)
                if a >= 0:
                    x, y = key(at, a, words)
                    cover(entry + 2, x, y, words)
                    settle(at, a, 1, MOST, words)
                append(c, at, words, place)
            push(CLUSTER, c, words, state)
            state[ALIVE] += end - start
            state[NEXT] = end
            continue
        else:
            r = state[NEXT]
            node = 0
            at = load(r, number + r, offsets, attribute, lo, hi, spans, span_lo, span_hi, words, state)
        # The record at `at` is to be inserted: a new one, or the next of a c-node that is out of the tree.
        if words[at] >= 0 and not insert(at, node > 0, words, state, place, about):
            return False
        if node > 0:
            words[node + DEAD] += HEAD + 3 * words[at + 2]
        else:
            state[ALIVE] += 1
            state[NEXT] += 1
