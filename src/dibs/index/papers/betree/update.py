"""How a BE-Tree changes: insertion (algorithms 3 and 4 of the paper), deletion, recycling, and the kernel of them all.

The tasks, `place` and `about` are explained in betree_leaves.
"""

from __future__ import annotations

from numba import boolean, void

from dibs.index.papers.betree.layout import (
    ALIVE,
    ATTRIBUTE,
    BLOCK,
    CAPACITY,
    CHANGES,
    COUNT,
    DEAD,
    DELETE,
    GAIN,
    HEAD,
    HI,
    INSERT,
    KEY,
    LAST_LOSS,
    LEFT,
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
    PLANT,
    RECYCLED,
    RIGHT,
    ROOT,
    ROWS,
    SAMPLE,
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
    WINDOW,
    WORDS,
)
from dibs.index.papers.betree.leaves import (
    CEILING,
    CLUSTER,
    DISSOLVE,
    PARTITION,
    RECYCLE,
    REINSERT,
    TIDY,
    append,
    cover,
    make_room,
    push,
    shrink,
)
from dibs.index.papers.betree.split import (
    add_part,
    cluster,
    depth_of,
    partition,
)
from dibs.index.papers.betree.steps import (
    N,
    P,
    S,
    W,
    allocate,
    class_size,
    cost,
    cut,
    empty_half,
    find,
    forget,
    free_node,
    is_open_leaf,
    key,
    lacks,
    new_node,
    release,
    settle,
    smallest,
    step,
    swap,
)
from dibs.jit.kernel import kernel

# ---- insertion ----


@step(N(N, N, N, W, S, P))
def descend(at, x, y, words, state, about):
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


@step(boolean(N, W, S))
def window_ends(part, words, state):
    """One more insertion or deletion below a p-node. At the end of its window (a tenth of its rows in operations) its
    loss is taken down; says whether its rank is below the threshold, 0."""
    words[part + CHANGES] += 1
    if words[part + CHANGES] + state[SAMPLE] * words[part + SEEN] < max(words[part + SIZE] // 10, state[WINDOW]):
        return False
    if words[part + SEEN] > 0:
        words[part + LAST_LOSS] = words[part + LOSS] // words[part + SEEN]
    words[part + CHANGES], words[part + SEEN], words[part + LOSS] = 0, 0, 0
    return words[part + GAIN] < words[part + LAST_LOSS]


@step(boolean(N, boolean, W, S, P, P))
def insert(at, again, words, state, place, about):
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
        if not again and window_ends(part, words, state):
            worst = part
        part = words[words[part + OWNER] + PART]
    if worst >= 0:
        push(RECYCLE, worst, words, state)
    elif words[c + ROWS] > words[c + CAPACITY]:
        push(CLUSTER, c, words, state)
    return True


# ---- deletion ----


@step(void(N, W, S, P))
def erase(row, words, state, place):
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
        if window_ends(part, words, state):
            worst = part
        part = words[words[part + OWNER] + PART]
    if worst >= 0:
        push(RECYCLE, worst, words, state)
    else:
        push(TIDY, c, words, state)


@step(N(N, W, S))
def remove_part(part, words, state):
    """Takes a p-node out of its p-directory; its owner."""
    owner = words[part + OWNER]
    forget(find(words[part + KEY], owner, words), owner, words, state)
    release(part, words, state)
    state[PART_NODES] -= 1
    return owner


@step(boolean(N, W, S, P))
def tidy(c, words, state, place):
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
def recycle(part, words, state):
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
def dissolve(c, words, state):
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


@kernel
def prepare(record, words, state):
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
def load(row, number, offsets, attribute, lo, hi, spans, span_lo, span_hi, words, state):
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


@kernel
def update(
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
