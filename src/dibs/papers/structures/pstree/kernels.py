"""The trees of pstree.forest: finding a predicate space, partitioning one, merging two.

These are the paper's MatchPair (Algorithm 3), Partition (Algorithm 2) and DeletePredicate; the arrays and their
invariants are described in pstree.forest.
"""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel, phase
from dibs.papers.structures.pstree.spaces import (
    AT,
    BEFORE,
    BITS,
    EDGES,
    FANOUT,
    FREE_LEAF,
    FREE_NODE,
    LAST,
    LEAVES_MADE,
    LEVELS,
    LOW,
    MOST_LEVELS,
    NEXT,
    NODES_MADE,
    PREDICATE_COUNTER,
    ROOM,
    ROOT,
    SIZE,
    START,
    chunk_size,
    copy_entries,
    give_back,
    take,
)

ENDLESS = 1 << 40  # the end of a last space: beyond all slots
SLOT = FANOUT - 1  # the bits of an element


@phase
def find_space(a, value, links):
    """MatchPair: the leaf of attribute a whose space holds the value (int64)."""
    tree, node, leaf = links
    shift = BITS * tree[a, LEVELS]
    if value >> shift != 0:
        return tree[a, LAST]
    link = tree[a, ROOT]
    while link < 0:
        shift -= BITS
        link = node[~link, (value >> shift) & SLOT]
    if value < leaf[link, START]:
        link = leaf[link, BEFORE]
    return link


@kernel
def find_spaces(first, last, events, links):
    """MatchPair for the entries first to last of a batch of events; returns how many nodes were visited."""
    tree, node, leaf = links
    _, attribute, value, space = events
    visited = np.int64(0)
    for i in range(first, last):
        a, v = np.uint64(attribute[i]), np.int64(value[i])
        shift = np.int64(BITS) * tree[a, LEVELS]
        link = tree[a, LAST]
        if v >> shift == 0:
            link = tree[a, ROOT]
            while link < 0:
                shift -= BITS
                link = node[np.uint64(~link), np.uint64((v >> shift) & SLOT)]
                visited += 1
            if v < leaf[np.uint64(link), START]:
                link = leaf[np.uint64(link), BEFORE]
                visited += 1
        visited += 1
        space[i] = link
    return visited


@phase(inline=False)
def _point(a, value, last, to, links):
    """Links every slot that ends between value and last to the leaf `to`. The values are one space, or its end, so the
    slots lie along two paths."""
    tree, node, _ = links
    top = BITS * np.int64(tree[a, LEVELS])
    beyond = np.int64(1) << top
    if tree[a, ROOT] >= 0:
        if last >= beyond - 1:
            tree[a, ROOT] = to
        return
    while value <= last and value < beyond:
        n = ~tree[a, ROOT]
        shift = top - BITS
        while node[n, (value >> shift) & SLOT] < 0:
            n = ~node[n, (value >> shift) & SLOT]
            shift -= BITS
        i = (value >> shift) & SLOT
        end = value | ((np.int64(1) << shift) - 1)
        while i < FANOUT and node[n, i] >= 0 and end <= last:
            node[n, i] = to
            value = end + 1
            end += np.int64(1) << shift
            i += 1
        if i < FANOUT and node[n, i] >= 0:
            return


@phase
def _link(a, parent, slot, link, links):
    """What stands in a slot of the node `parent`; below no node (-1) it is the root."""
    if parent < 0:
        links.tree[a, ROOT] = link
    else:
        links.node[parent, slot] = link


# ---- Partition ----


@phase
def partition(a, value, trees):
    """The leaf whose space begins at the value: if there is none, the space that holds the value is cut in two and the
    new leaf, for the upper part, is a copy of the old one. -1, and nothing done, when an array has to grow first."""
    leaf = trees.links.leaf
    old = find_space(a, value, trees.links)
    if leaf[old, START] == value:
        return old
    if not _has_room(trees):
        return np.int32(-1)
    at, size = np.int64(0), np.int64(leaf[old, SIZE])
    if size > 0:
        at = take(size, trees.lists)
        if at < 0:
            return np.int32(-1)
        copy_entries(at, leaf[old, AT], size, trees.lists)
    _raise_root(a, value, trees)
    _create_inner_nodes(a, value, trees)
    return np.int32(_partition_leaf_node(a, value, old, at, trees))


@phase
def _has_room(trees):
    """For one leaf more, and for as many nodes as that can take."""
    state = trees.state
    nodes = state[NODES_MADE] + 2 * MOST_LEVELS <= len(trees.links.node)
    return nodes and (state[FREE_LEAF] >= 0 or state[LEAVES_MADE] < len(trees.links.leaf))


@phase
def _raise_root(a, value, trees):
    """As many levels as the value has elements."""
    tree, node, _ = trees.links
    while value >> (BITS * tree[a, LEVELS]) != 0:
        if tree[a, ROOT] < 0:
            n = _new_node(trees)
            node[n, 0] = tree[a, ROOT]
            for i in range(1, FANOUT):
                node[n, i] = tree[a, LAST]
            trees.inside[n] = trees.inside[~tree[a, ROOT]]
            tree[a, ROOT] = ~n
        tree[a, LEVELS] += 1


@phase
def _create_inner_nodes(a, value, trees):
    """Counts a boundary at the value in all nodes above it; a slot with two boundaries inside becomes a node."""
    tree, node, leaf = trees.links
    inside = trees.inside
    base, shift = np.int64(0), BITS * np.int64(tree[a, LEVELS])
    link, parent, slot = np.int64(tree[a, ROOT]), np.int64(-1), np.int64(0)
    while True:  # the slot from base on, 2**shift values with `value` among them, has the link
        if link >= 0:
            other, before = leaf[link, START], leaf[link, BEFORE]
            if value == base or other <= base:
                return
            n = _new_node(trees)
            for i in range(FANOUT):
                node[n, i] = link if base + ((i + 1) << (shift - BITS)) > other else before
            inside[n] = 1
            link = ~n
            _link(a, parent, slot, link, trees.links)
        parent = ~link
        if value > base:
            inside[parent] += 1
        shift -= BITS
        slot = (value >> shift) & SLOT
        base += slot << shift
        link = np.int64(node[parent, slot])


@phase
def _partition_leaf_node(a, value, old, at, trees):
    """The new leaf, from the value on, behind the old one; `at` is where the copy of its list stands."""
    tree, _, leaf = trees.links
    new, after = _new_leaf(trees), leaf[old, NEXT]
    last = np.int64(ENDLESS)
    if after >= 0:
        last = np.int64(leaf[after, START]) - 1
        leaf[after, BEFORE] = new
    else:
        tree[a, LAST] = new
    leaf[old, NEXT] = new
    leaf[new, START], leaf[new, NEXT], leaf[new, BEFORE] = value, after, old
    leaf[new, PREDICATE_COUNTER], leaf[new, EDGES] = leaf[old, PREDICATE_COUNTER], 0
    size = np.int64(leaf[old, SIZE])
    leaf[new, AT], leaf[new, SIZE], leaf[new, ROOM] = at, size, chunk_size(size) if size > 0 else 0
    trees.seen[new] = trees.seen[old]
    _point(a, value, last, new, trees.links)
    return new


@phase
def _new_node(trees):
    state = trees.state
    n = state[FREE_NODE]
    if n >= 0:
        state[FREE_NODE] = trees.links.node[n, 0]
    else:
        n = state[NODES_MADE]
        state[NODES_MADE] += 1
    return n


@phase
def _new_leaf(trees):
    state = trees.state
    new = state[FREE_LEAF]
    if new >= 0:
        state[FREE_LEAF] = trees.links.leaf[new, NEXT]
    else:
        new = state[LEAVES_MADE]
        state[LEAVES_MADE] += 1
    return new


# ---- DeletePredicate ----


@phase
def merge(a, gone, trees):
    """The space of leaf `gone`, at whose start no predicate begins or ends any more, joins the one before it."""
    value = np.int64(trees.links.leaf[gone, START])
    _join_before(a, gone, trees)
    _drop_inner_nodes(a, value, trees)


@phase
def _join_before(a, gone, trees):
    tree, _, leaf = trees.links
    seen, state = trees.seen, trees.state
    value, into, after = np.int64(leaf[gone, START]), np.int64(leaf[gone, BEFORE]), leaf[gone, NEXT]
    last = np.int64(ENDLESS) if after < 0 else np.int64(leaf[after, START]) - 1
    _point(a, value, last, into, trees.links)
    leaf[into, NEXT] = after
    if after >= 0:
        leaf[after, BEFORE] = into
    else:
        tree[a, LAST] = into
    # A partition copies the event counter, so the larger one is the better guess for both parts together.
    seen[into] = max(seen[into], seen[gone])
    if leaf[gone, ROOM] > 0:
        give_back(np.int64(leaf[gone, AT]), np.int64(leaf[gone, ROOM]), trees.lists)
    for column in range(leaf.shape[1]):
        leaf[gone, column] = 0
    leaf[gone, START], leaf[gone, NEXT] = -1, state[FREE_LEAF]
    state[FREE_LEAF] = gone


@phase
def _drop_inner_nodes(a, value, trees):
    """One boundary fewer, at the value, in all nodes above it; those that have too few left are free."""
    tree, node, _ = trees.links
    inside, state = trees.inside, trees.state
    base, shift = np.int64(0), BITS * np.int64(tree[a, LEVELS])
    link, parent, slot = np.int64(tree[a, ROOT]), np.int64(-1), np.int64(0)
    dropped = False
    while link < 0:
        n = ~link
        if value > base:
            inside[n] -= 1
        if inside[n] <= 1 and not dropped:  # so few boundaries need no node, nor any below it
            over = find_space(a, base + (np.int64(1) << shift) - 1, trees.links)
            _link(a, parent, slot, over, trees.links)
            dropped = True
        shift -= BITS
        slot = (value >> shift) & SLOT
        base += slot << shift
        link, parent = np.int64(node[n, slot]), n
        if dropped:
            node[n, 0] = state[FREE_NODE]
            state[FREE_NODE] = n


# ---- many boundaries ----


@phase
def place_of(boundaries, i):
    """The attribute and the value."""
    key = boundaries.key[i]
    return key >> 32, key & LOW


@phase
def partition_at(boundaries, i, trees):
    """The leaf that begins at boundary i, as `partition`. It is a new one if it has no EDGES: structures that keep more
    than the list of a space copy that then, and count the predicates of the boundary in when all is done."""
    a, value = place_of(boundaries, i)
    return np.int64(partition(a, value, trees))


@phase
def leave_boundary(boundaries, i, trees):
    """The predicates of boundary i are no longer there: the leaf to be merged if they were the last, otherwise -1."""
    a, value = place_of(boundaries, i)
    leaf = trees.links.leaf
    found = np.int64(find_space(a, value, trees.links))
    leaf[found, EDGES] -= boundaries.predicates[i]
    return found if leaf[found, EDGES] == 0 else np.int64(-1)


@kernel
def partition_all(boundaries, at, trees):
    """Spaces begin at the boundaries from `at` on. Returns where it stopped: at the end, or where an array has to grow
    first."""
    leaf = trees.links.leaf
    for i in range(at, len(boundaries.key)):
        found = partition_at(boundaries, i, trees)
        if found < 0:
            return i
        leaf[found, EDGES] += boundaries.predicates[i]
    return len(boundaries.key)


@kernel
def merge_all(boundaries, trees):
    """The opposite."""
    for i in range(len(boundaries.key)):
        gone = leave_boundary(boundaries, i, trees)
        if gone >= 0:
            merge(boundaries.key[i] >> 32, gone, trees)
