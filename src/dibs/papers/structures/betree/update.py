"""How a BE-Tree changes: the kernels for all that is inserted and deleted. See betree.nodes for the tasks."""

from __future__ import annotations

from numba import boolean, void

from dibs.jit.kernel import kernel
from dibs.jit.pointers import CHECKED
from dibs.papers.structures.betree.changes import delete, dissolve, insert, recycle, reinsert, take_out, tidy
from dibs.papers.structures.betree.directories import add_p_node, append, key, make_room, new_c_node, settle
from dibs.papers.structures.betree.layout import (
    ADJUST,
    ALIVE,
    C_NODE_WORDS,
    DELETE,
    ENTRY_WORDS,
    INSERT,
    MOST,
    MOVE,
    NEXT,
    NONE,
    P_NODE_WORDS,
    PLACE_WORDS,
    RECORD_WORDS,
    RECYCLED,
    ROOT,
    SCRATCH,
    STACK,
    TASKS,
    WORDS,
    Incoming,
    Update,
)
from dibs.papers.structures.betree.nodes import (
    CLUSTER,
    DISSOLVE,
    PARTITION,
    RECYCLE,
    TIDY,
    N,
    T,
    allocate,
    c_node_at,
    copy,
    cost,
    cover,
    entry_at,
    lacks,
    length_of,
    nth_entry,
    p_node_at,
    place_at,
    place_interval,
    push,
    record_at,
    release,
    room_in,
    step,
    top_task,
    tree_of,
    where_at,
)
from dibs.papers.structures.betree.partition import cluster, partition


@kernel
def prepare(arrays, longest):
    """Before an update: the root and the stack if there is nothing yet, and a scratch block for records of so many
    words. The words have room for them."""
    tree = tree_of(arrays)
    words, state = tree.words, tree.state
    if state[WORDS] == 0:
        new_c_node(tree, NONE, NONE, NONE, 1, MOST)
        c_node_at(words, ROOT).is_split = 1  # it has no bucket, so that an overflow always leads to partitioning
        state[STACK] = allocate(tree, 64)
        state[SCRATCH] = allocate(tree, 64)
    if longest > room_in(words, state[SCRATCH]):
        release(tree, state[SCRATCH])
        state[SCRATCH] = allocate(tree, longest)


@kernel
def update(arrays, change, new):
    """What `change.mode` says. Goes on where the state says; False when there are too few words.

    INSERT  all new rows, one by one
    DELETE  `change.rows`
    ADJUST  recycles the p-nodes `change.rows`, see betree.ranks
    MOVE    takes `change.rows` out and inserts them again; the scratch block has room for each
    PLANT   `change.rows` of the new ones as the first of a tree, those at once that have chosen the same attribute for
            the root: they stand together, and those that have chosen none stand last

    One kernel for all: three would be compiled with all the steps each. Arrays come in plain tuples of what TreeArrays,
    Update and Incoming name: see betree.match."""
    tree, change, new = tree_of(arrays), Update(*change), Incoming(*new)
    state = tree.state
    total = len(new.offsets) - 1 if change.mode == INSERT else len(change.rows)
    while state[TASKS] > 0 or state[NEXT] < total:
        if state[TASKS] > 0:
            done = do_task(tree)
        elif change.mode == INSERT:
            done = insert_next(tree, new)
        elif change.mode == DELETE:
            done = delete_next(tree, change)
        elif change.mode == ADJUST:
            done = recycle_next(tree, change)
        elif change.mode == MOVE:
            done = move_next(tree, change)
        else:
            done = plant_next(tree, change, new)
        if not done:
            return False
    return True


@step(boolean(T))
def do_task(tree):
    kind, node = top_task(tree)
    if kind == CLUSTER:
        return cluster(tree, node)
    if kind == PARTITION:
        return partition(tree, node)
    if kind == TIDY:
        return tidy(tree, node)
    if kind == RECYCLE:
        return recycle(tree, node)
    if kind == DISSOLVE:
        return dissolve(tree, node)
    return reinsert(tree, node)


@kernel
def insert_next(tree, new):
    state = tree.state
    record = load(tree, new, state[NEXT])
    if not insert(tree, record, False):
        return False
    state[ALIVE] += 1
    state[NEXT] += 1
    return True


@kernel
def delete_next(tree, change):
    if lacks(tree, 0, 1):
        return False
    delete(tree, change.rows[tree.state[NEXT]])
    tree.state[NEXT] += 1
    return True


@kernel
def recycle_next(tree, change):
    if lacks(tree, 0, 1):
        return False
    push(tree, RECYCLE, change.rows[tree.state[NEXT]])
    tree.state[NEXT] += 1
    return True


@kernel
def move_next(tree, change):
    """Takes a row out; and when what it left has been tidied, inserts it again."""
    words, state = tree.words, tree.state
    row = change.rows[state[NEXT]]
    where = where_at(tree.place, row)
    if where.c_node >= 0:
        if lacks(tree, 0, 1):
            return False
        record = c_node_at(words, where.c_node).l_node + where.offset
        if CHECKED:
            check_scratch(tree, length_of(words, record))
        copy(words, state[SCRATCH], record, length_of(words, record))
        take_out(tree, row, False)
        return True
    if not insert(tree, state[SCRATCH], True):
        return False
    state[RECYCLED] += 1
    state[NEXT] += 1
    return True


@kernel
def plant_next(tree, change, new):
    """The rows that stand together from the next one on because they have chosen the same attribute."""
    words, state, root = tree.words, tree.state, c_node_at(tree.words, ROOT)
    start, attribute = state[NEXT], change.chosen[change.rows[state[NEXT]]]
    end, size = start, 0
    while end < len(change.rows) and change.chosen[change.rows[end]] == attribute:
        size += length_when_loaded(new, change.rows[end])
        end += 1
    p_directory = cost(2 * PLACE_WORDS * max(root.places, 2))
    if lacks(tree, cost(root.used + size) + p_directory + cost(C_NODE_WORDS) + cost(P_NODE_WORDS), 1):
        return False
    if attribute < 0:
        make_room(tree, ROOT, size)
        for i in range(start, end):
            append(tree, ROOT, load(tree, new, change.rows[i]))
        push(tree, CLUSTER, ROOT)
    else:
        at = add_p_node(tree, ROOT, attribute, size)
        place = place_at(words, at)
        p_node = p_node_at(words, place.p_node)
        p_node.rows, p_node.gain = end - start, end - start
        for i in range(start, end):
            record = load(tree, new, change.rows[i])
            x, y = key(words, record, attribute)
            cover(words, place_interval(at), x, y)
            settle(words, record, attribute, 1, MOST)
            append(tree, place.top, record)
        push(tree, CLUSTER, place.top)
    state[ALIVE] += end - start
    state[NEXT] = end
    return True


# ---- new rows as records ----


@kernel
def length_when_loaded(new, row):
    """Words of the record of a new row."""
    entries = new.offsets[row + 1] - new.offsets[row]
    for p in range(new.offsets[row], new.offsets[row + 1]):
        entries += new.hi[p] < 0
    return RECORD_WORDS + ENTRY_WORDS * entries


@step(void(T, N))
def check_scratch(tree, length):
    """In a checked build; `prepare` has made sure of the room."""
    if length > room_in(tree.words, tree.state[SCRATCH]):
        raise IndexError("a record beyond the scratch block")


@kernel
def load(tree, new, row):
    """A new row as a record in the scratch block."""
    if CHECKED:
        check_scratch(tree, length_when_loaded(new, row))
    words, record = tree.words, tree.state[SCRATCH]
    first, last = new.offsets[row], new.offsets[row + 1]
    entries = last - first
    for p in range(first, last):
        entry = entry_at(words, nth_entry(record, p - first))
        entry.attribute, entry.lo, entry.hi = new.attribute[p], new.lo[p], new.hi[p]
        if new.hi[p] < 0:
            span = new.first_span + new.lo[p]
            entry.lo, entry.hi = new.span_lo[span], new.span_hi[span - new.hi[p] - 1]
            exact = entry_at(words, nth_entry(record, entries))
            exact.attribute, exact.lo, exact.hi = new.attribute[p], span, new.hi[p]
            entries += 1
    head = record_at(words, record)
    head.row, head.tested, head.entries = new.first_row + row, last - first, entries
    return record
