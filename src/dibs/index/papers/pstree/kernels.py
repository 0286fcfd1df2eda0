"""The trees of index.pstree_forest: finding a predicate space, partitioning one, merging two, and lists of spaces.

These are the paper's MatchPair (Algorithm 3), Partition (Algorithm 2) and DeletePredicate; the arrays and their
invariants are described in index.pstree_forest.
"""

from __future__ import annotations

import numpy as np

from dibs.index.papers.pstree.chunks import chunk_size, give_back, take
from dibs.jit.kernel import kernel

BITS = 4  # of an element
FANOUT = 1 << BITS
MOST_LEVELS = 8
HIGHEST = 0x7FFFFFFF  # the last value of every domain
ENDLESS = 1 << 40  # the end of a last space: beyond all slots

START, NEXT, BEFORE, PREDICATES, EDGES, AT, SIZE, ROOM = range(8)  # columns of a leaf
ROOT, LEVELS, FIRST, LAST = range(4)  # columns of a tree
ATTRIBUTE, LO, HI, ROW = range(4)  # columns of a predicate, see index.pstree_rows
NODES, FREE_NODE, LEAVES, FREE_LEAF, PARTIAL, EVENTS, STATE = range(7)  # numbers of the state, and how many


@kernel
def find_space(a, value, tree, node, leaf):
    """The leaf of attribute a whose space holds the value (int64)."""
    shift = BITS * tree[a, LEVELS]
    if value >> shift != 0:
        return tree[a, LAST]
    link = tree[a, ROOT]
    while link < 0:
        shift -= BITS
        link = node[~link, (value >> shift) & (FANOUT - 1)]
    if value < leaf[link, START]:
        link = leaf[link, BEFORE]
    return link


@kernel
def find_spaces(first, last, attribute, value, tree, node, leaf, space):
    """The leaves of entries first to last of a batch of events; returns how many nodes were visited."""
    visited = np.int64(0)
    for i in range(first, last):
        a, v = np.uint64(attribute[i]), np.int64(value[i])
        shift = np.int64(BITS) * tree[a, LEVELS]
        link = tree[a, LAST]
        if v >> shift == 0:
            link = tree[a, ROOT]
            while link < 0:
                shift -= BITS
                link = node[np.uint64(~link), np.uint64((v >> shift) & (FANOUT - 1))]
                visited += 1
            if v < leaf[np.uint64(link), START]:
                link = leaf[np.uint64(link), BEFORE]
                visited += 1
        visited += 1
        space[i] = link
    return visited


@kernel
def _point(a, value, last, to, tree, node):
    """Links every slot that ends between value and last to the leaf `to`. The values are one space, or its end, so the
    slots lie along two paths."""
    top = BITS * np.int64(tree[a, LEVELS])
    beyond = np.int64(1) << top
    if tree[a, ROOT] >= 0:
        if last >= beyond - 1:
            tree[a, ROOT] = to
        return
    while value <= last and value < beyond:
        n = ~tree[a, ROOT]
        shift = top - BITS
        while node[n, (value >> shift) & (FANOUT - 1)] < 0:
            n = ~node[n, (value >> shift) & (FANOUT - 1)]
            shift -= BITS
        i = (value >> shift) & (FANOUT - 1)
        end = value | ((np.int64(1) << shift) - 1)
        while i < FANOUT and node[n, i] >= 0 and end <= last:
            node[n, i] = to
            value = end + 1
            end += np.int64(1) << shift
            i += 1
        if i < FANOUT and node[n, i] >= 0:
            return


@kernel
def _new_node(node, state):
    n = state[FREE_NODE]
    if n >= 0:
        state[FREE_NODE] = node[n, 0]
    else:
        n = state[NODES]
        state[NODES] += 1
    return n


@kernel
def partition(a, value, tree, node, inside, leaf, seen, entry, free, state):
    """The leaf whose space begins at the value: if there is none, the space that holds the value is cut in two and the
    new leaf, for the upper part, is a copy of the old one. -1, and nothing done, when an array has to grow first."""
    old = find_space(a, value, tree, node, leaf)
    if leaf[old, START] == value:
        return old
    if state[NODES] + 2 * MOST_LEVELS > len(node) or (state[FREE_LEAF] < 0 and state[LEAVES] == len(leaf)):
        return np.int32(-1)
    at, size, room = np.int64(0), np.int64(leaf[old, SIZE]), np.int64(0)
    if size > 0:
        at, room = take(size, entry, free), chunk_size(size)
        if at < 0:
            return np.int32(-1)
        start = leaf[old, AT]
        for i in range(size):
            for column in range(entry.shape[1]):
                entry[at + i, column] = entry[start + i, column]

    while value >> (BITS * tree[a, LEVELS]) != 0:
        if tree[a, ROOT] < 0:
            n = _new_node(node, state)
            node[n, 0] = tree[a, ROOT]
            for i in range(1, FANOUT):
                node[n, i] = tree[a, LAST]
            inside[n] = inside[~tree[a, ROOT]]
            tree[a, ROOT] = ~n
        tree[a, LEVELS] += 1
    base, shift = np.int64(0), BITS * np.int64(tree[a, LEVELS])
    link, parent, slot = np.int64(tree[a, ROOT]), np.int64(-1), np.int64(0)
    while True:  # the slot from base on, 2**shift values with `value` among them, has the link
        if link >= 0:
            other, before = leaf[link, START], leaf[link, BEFORE]
            if value == base or other <= base:
                break
            n = _new_node(node, state)  # for a slot with two boundaries inside
            for i in range(FANOUT):
                node[n, i] = link if base + ((i + 1) << (shift - BITS)) > other else before
            inside[n] = 1
            link = ~n
            if parent < 0:
                tree[a, ROOT] = link
            else:
                node[parent, slot] = link
        parent = ~link
        if value > base:
            inside[parent] += 1
        shift -= BITS
        slot = (value >> shift) & (FANOUT - 1)
        base += slot << shift
        link = np.int64(node[parent, slot])

    new = state[FREE_LEAF]
    if new >= 0:
        state[FREE_LEAF] = leaf[new, NEXT]
    else:
        new = state[LEAVES]
        state[LEAVES] += 1
    after = leaf[old, NEXT]
    last = np.int64(ENDLESS)
    if after >= 0:
        last = np.int64(leaf[after, START]) - 1
        leaf[after, BEFORE] = new
    else:
        tree[a, LAST] = new
    leaf[old, NEXT] = new
    leaf[new, START], leaf[new, NEXT], leaf[new, BEFORE] = value, after, old
    leaf[new, PREDICATES], leaf[new, EDGES] = leaf[old, PREDICATES], 0
    leaf[new, AT], leaf[new, SIZE], leaf[new, ROOM] = at, size, room
    seen[new] = seen[old]
    _point(a, value, last, new, tree, node)
    return np.int32(new)


@kernel
def merge(a, gone, tree, node, inside, leaf, seen, entry, free, state):
    """The space of leaf `gone`, at whose start no predicate begins or ends any more, joins the one before it."""
    value, into, after = np.int64(leaf[gone, START]), np.int64(leaf[gone, BEFORE]), leaf[gone, NEXT]
    last = np.int64(ENDLESS) if after < 0 else np.int64(leaf[after, START]) - 1
    _point(a, value, last, into, tree, node)
    leaf[into, NEXT] = after
    if after >= 0:
        leaf[after, BEFORE] = into
    else:
        tree[a, LAST] = into
    # A partition copies the event counter, so the larger one is the better guess for both parts together.
    seen[into] = max(seen[into], seen[gone])
    if leaf[gone, ROOM] > 0:
        give_back(np.int64(leaf[gone, AT]), np.int64(leaf[gone, ROOM]), entry, free)
    for column in range(leaf.shape[1]):
        leaf[gone, column] = 0
    leaf[gone, START], leaf[gone, NEXT] = -1, state[FREE_LEAF]
    state[FREE_LEAF] = gone

    base, shift = np.int64(0), BITS * np.int64(tree[a, LEVELS])
    link, parent, slot = np.int64(tree[a, ROOT]), np.int64(-1), np.int64(0)
    dropped = False
    while link < 0:
        n = ~link
        if value > base:
            inside[n] -= 1
        if inside[n] <= 1 and not dropped:  # so few boundaries need no node, nor any below it
            over = find_space(a, base + (np.int64(1) << shift) - 1, tree, node, leaf)
            if parent < 0:
                tree[a, ROOT] = over
            else:
                node[parent, slot] = over
            dropped = True
        shift -= BITS
        slot = (value >> shift) & (FANOUT - 1)
        base += slot << shift
        link, parent = np.int64(node[n, slot]), n
        if dropped:
            node[n, 0] = state[FREE_NODE]
            state[FREE_NODE] = n


@kernel
def partition_all(keys, counts, at, tree, node, inside, leaf, seen, entry, free, state):
    """Boundaries keys[at:], each attribute << 32 | value, that counts[at:] predicates more begin or end at. Returns
    where it stopped: at the end, or where an array has to grow first."""
    for i in range(at, len(keys)):
        a, value = keys[i] >> 32, keys[i] & 0xFFFFFFFF
        found = partition(a, value, tree, node, inside, leaf, seen, entry, free, state)
        if found < 0:
            return i
        leaf[found, EDGES] += counts[i]
    return len(keys)


@kernel
def merge_all(keys, counts, tree, node, inside, leaf, seen, entry, free, state):
    """The opposite: so many predicates fewer."""
    for i in range(len(keys)):
        a, value = keys[i] >> 32, keys[i] & 0xFFFFFFFF
        found = find_space(a, value, tree, node, leaf)
        leaf[found, EDGES] -= counts[i]
        if leaf[found, EDGES] == 0:
            merge(a, np.int64(found), tree, node, inside, leaf, seen, entry, free, state)


@kernel
def cover(which, change, predicate, span, tree, node, leaf):
    """Adds `change` to the predicate counters of all spaces that these predicates cover; returns how many they are."""
    total = np.int64(0)
    for p in which:
        spans = max(1, -predicate[p, HI])
        for s in range(spans):
            low, high = predicate[p, LO], predicate[p, HI]
            if high < 0:
                low, high = span[predicate[p, LO] + s, 0], span[predicate[p, LO] + s, 1]
            at = find_space(np.int64(predicate[p, ATTRIBUTE]), np.int64(low), tree, node, leaf)
            while at >= 0 and leaf[at, START] <= high:
                leaf[at, PREDICATES] += change
                total += 1
                at = leaf[at, NEXT]
    return total


@kernel
def cover_many(which, change, predicate, span, tree, node, leaf):
    """The same for many predicates: notes where each begins and ends, then walks along all spaces once."""
    steps = np.zeros(len(leaf), np.int64)
    for p in which:
        spans = max(1, -predicate[p, HI])
        for s in range(spans):
            low, high = predicate[p, LO], predicate[p, HI]
            if high < 0:
                low, high = span[predicate[p, LO] + s, 0], span[predicate[p, LO] + s, 1]
            a = np.int64(predicate[p, ATTRIBUTE])
            steps[find_space(a, np.int64(low), tree, node, leaf)] += 1
            if high < HIGHEST:
                steps[find_space(a, np.int64(high) + 1, tree, node, leaf)] -= 1
    total = np.int64(0)
    for a in range(len(tree)):
        at, over = tree[a, FIRST], np.int64(0)
        while at >= 0:
            over += steps[at]
            leaf[at, PREDICATES] += change * over
            total += over
            at = leaf[at, NEXT]
    return total


@kernel
def reserve(need, leaf, entry, free):
    """Makes room for need[l] entries more in the list of each leaf l, as far as the pool has it."""
    for at in range(len(need)):
        if need[at] > 0 and leaf[at, SIZE] + need[at] > leaf[at, ROOM]:
            if not enlarge(np.int64(at), np.int64(leaf[at, SIZE] + need[at]), leaf, entry, free):
                return


@kernel
def enlarge(at, size, leaf, entry, free):
    """Gives the list of a leaf a chunk for so many entries. False, and nothing done, when the pool has to grow."""
    new = take(size, entry, free)
    if new < 0:
        return False
    old = np.int64(leaf[at, AT])
    for i in range(leaf[at, SIZE]):
        for column in range(entry.shape[1]):
            entry[new + i, column] = entry[old + i, column]
    if leaf[at, ROOM] > 0:
        give_back(old, np.int64(leaf[at, ROOM]), entry, free)
    leaf[at, AT], leaf[at, ROOM] = new, chunk_size(size)
    return True


@kernel
def needed(which, predicate, span, tree, node, leaf):
    """By leaf: how many of these predicates cover its space."""
    need = np.zeros(len(leaf), np.int32)
    for p in which:
        spans = max(1, -predicate[p, HI])
        for s in range(spans):
            low, high = predicate[p, LO], predicate[p, HI]
            if high < 0:
                low, high = span[predicate[p, LO] + s, 0], span[predicate[p, LO] + s, 1]
            at = find_space(np.int64(predicate[p, ATTRIBUTE]), np.int64(low), tree, node, leaf)
            while at >= 0 and leaf[at, START] <= high:
                need[at] += 1
                at = leaf[at, NEXT]
    return need


@kernel
def attach(which, words, start, lists, entry, free, predicate, span, tree, node, leaf, state):
    """Adds words[i] to the lists of all spaces that predicate which[i] covers, from i = start on; `lists` is `leaf`, or
    an array that has its columns AT, SIZE and ROOM. Returns where it stopped, at the end or because the pool has to
    grow; state[PARTIAL] spaces of that predicate are done."""
    for i in range(start, len(which)):
        p = which[i]
        done = np.int64(0)
        spans = max(1, -predicate[p, HI])
        for s in range(spans):
            low, high = predicate[p, LO], predicate[p, HI]
            if high < 0:
                low, high = span[predicate[p, LO] + s, 0], span[predicate[p, LO] + s, 1]
            at = find_space(np.int64(predicate[p, ATTRIBUTE]), np.int64(low), tree, node, leaf)
            while at >= 0 and leaf[at, START] <= high:
                if done >= state[PARTIAL]:
                    size = np.int64(lists[at, SIZE])
                    if size == lists[at, ROOM] and not enlarge(np.int64(at), size + 1, lists, entry, free):
                        state[PARTIAL] = done
                        return i
                    for column in range(entry.shape[1]):
                        entry[lists[at, AT] + size, column] = words[i, column]
                    lists[at, SIZE] += 1
                done += 1
                at = leaf[at, NEXT]
        state[PARTIAL] = 0
    return len(which)


@kernel
def detach(which, codes, lists, entry, free, predicate, span, tree, node, leaf):
    """The opposite: takes the entry that begins with codes[i] out of those lists."""
    for i in range(len(which)):
        p = which[i]
        spans = max(1, -predicate[p, HI])
        for s in range(spans):
            low, high = predicate[p, LO], predicate[p, HI]
            if high < 0:
                low, high = span[predicate[p, LO] + s, 0], span[predicate[p, LO] + s, 1]
            at = find_space(np.int64(predicate[p, ATTRIBUTE]), np.int64(low), tree, node, leaf)
            while at >= 0 and leaf[at, START] <= high:
                last = lists[at, AT] + lists[at, SIZE] - 1
                k = last
                while entry[k, 0] != codes[i]:
                    k -= 1
                for column in range(entry.shape[1]):
                    entry[k, column] = entry[last, column]
                lists[at, SIZE] -= 1
                if lists[at, SIZE] == 0:
                    give_back(np.int64(lists[at, AT]), np.int64(lists[at, ROOM]), entry, free)
                    lists[at, ROOM] = 0
                at = leaf[at, NEXT]


@kernel
def observed(rank, attribute, lo, hi, span_lo, span_hi, tree, node, leaf, seen):
    """Adds to each predicate's rank the events seen in the spaces that it meets."""
    for p in range(len(rank)):
        spans = max(1, -hi[p])
        for s in range(spans):
            low, high = lo[p], hi[p]
            if high < 0:
                low, high = span_lo[lo[p] + s], span_hi[lo[p] + s]
            at = find_space(np.int64(attribute[p]), np.int64(low), tree, node, leaf)
            while at >= 0 and leaf[at, START] <= high:
                rank[p] += seen[at]
                at = leaf[at, NEXT]


@kernel
def count_events(space, seen):
    for i in range(len(space)):
        seen[space[i]] += 1
