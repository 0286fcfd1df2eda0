"""Nodes of a BE-Tree by name: `c_node_at(words, c).rows += 1`; the heap that they lie in, and the stack of what is to
be done with them.

Each `..._at(words, at)` is a view of the words from `at` on, whose fields are those of a type of betree.layout. It is
a pointer: it costs nothing, follows every later change of the words, and is no longer to be used when the words have
been given to something else. Functions that end in `_link` or `_interval` say where in the words something stands, for
what has to be changed from outside its node. No other file knows an offset.

The word before a block is its size class; free blocks of a class are a list that goes through their first words.

An insertion or deletion may leave c-nodes that have to be clustered, partitioned, merged or recycled. These are tasks
on a stack, so that the kernel can stop before any of them when memory is full: every step first makes sure of all the
words that it may take (`lacks`), and the caller makes the array larger and calls again.

    CLUSTER    SpaceClustering of the paper (algorithm 6): halve the bucket of an overflowing l-node
    PARTITION  SpacePartitioning (algorithm 5): give the rows with the highest ranking attribute a p-node of their own
    TIDY       the merge rule, and removal of what is empty
    RECYCLE    take a p-node out of the tree: its c-nodes are
    DISSOLVE   taken apart, and their rows
    REINSERT   inserted again, one by one
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import boolean, from_dtype, int32, int64, types, void
from numba.extending import intrinsic

from dibs.jit.kernel import kernel
from dibs.jit.pointers import CHECKED, pointer_to_write, pointer_type
from dibs.jit.prefetching import place_of
from dibs.papers.structures.betree.layout import (
    ABOUT,
    C_NODE,
    CLASSES,
    ENTRY,
    ENTRY_WORDS,
    INTERVAL,
    LARGE,
    LARGE_FREE,
    LISTS,
    MOST,
    NONE,
    P_NODE,
    PLACE,
    PLACE_WORDS,
    RECORD,
    RECORD_WORDS,
    STACK,
    TASK,
    TASK_WORDS,
    TASKS,
    WANTED,
    WHERE,
    WORDS,
    TreeArrays,
    TreePointers,
    offset_of,
    words_of,
)

N, W = int64, pointer_type(int32)  # a number, the words
T = types.NamedTuple((W, pointer_type(int64), W, W, N), TreePointers)
BOTH = types.UniTuple(N, 2)


def step(signature: Any) -> Any:
    """A function that only other compiled functions call.

    Its types are written out: called with numbers of both widths, Numba would compile most of them several times,
    in three times the time. So it is compiled when it is imported, and betree.betree imports the files with kernels
    when it first needs them."""
    return kernel(signature=signature, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


# ---- views ----


def _view_of(block: np.dtype[Any], numbered: bool = False) -> Any:
    """numbered: blocks of this type fill an array, and `at` is the number of one."""
    fields, size = from_dtype(block), words_of(block) if numbered else 1

    @intrinsic
    def view_at(typingctx, words, at):
        def code(context, builder, signature, args):
            word = builder.mul(args[1], args[1].type(size))
            place = place_of(context, builder, signature.args[0], args[0], word, words_of(block))
            return builder.bitcast(place, context.get_value_type(fields))

        return fields(words, types.int64), code

    return view_at


c_node_at = _view_of(C_NODE)
p_node_at = _view_of(P_NODE)
place_at = _view_of(PLACE)
record_at = _view_of(RECORD)
entry_at = _view_of(ENTRY)
interval_at = _view_of(INTERVAL)
task_at = _view_of(TASK)
where_at = _view_of(WHERE, numbered=True)  # where_at(tree.place, row)
about_at = _view_of(ABOUT, numbered=True)  # about_at(tree.about, attribute)


@kernel(inline="always")
def tree_of(arrays):
    """From what TreeArrays names, in a plain tuple."""
    a = TreeArrays(*arrays)
    return TreePointers(
        pointer_to_write(a.words),
        pointer_to_write(a.state),
        pointer_to_write(a.place),
        pointer_to_write(a.about),
        len(a.words),
    )


# ---- where something stands ----

_HALVES, _HALF_INTERVALS = offset_of(C_NODE, "left"), offset_of(C_NODE, "left_lo")
_PLACE_LINK, _PLACE_INTERVAL = offset_of(PLACE, "top"), offset_of(PLACE, "lo")
_INTERVAL_WORDS = words_of(INTERVAL)


@step(N(N, N))
def half_link(c, side):
    """Where a c-node names the c-node of a half of its bucket."""
    return c + _HALVES + side


@step(N(N, N))
def half_interval(c, side):
    """Where the least interval stands that covers all rows in a half."""
    return c + _HALF_INTERVALS + _INTERVAL_WORDS * side


@step(N(N))
def place_link(at):
    """Where a place names the c-node of the top bucket."""
    return at + _PLACE_LINK


@step(N(N))
def place_interval(at):
    return at + _PLACE_INTERVAL


@step(N(N, N))
def nth_place(p_directory, i):
    return p_directory + PLACE_WORDS * i


@step(N(N, N))
def nth_entry(record, i):
    return record + RECORD_WORDS + ENTRY_WORDS * i


@step(N(W, N))
def length_of(words, record):
    """Words of a record with its entries: the next one begins behind them."""
    return RECORD_WORDS + ENTRY_WORDS * record_at(words, record).entries


# ---- the tree ----


@step(N(W, N, N))
def half_of(words, c, side):
    """The c-node of a half of a bucket, or NONE."""
    return words[half_link(c, side)]


@step(N(W, N))
def p_node_above(words, p):
    """The p-node on whose c-directory another one hangs, or NONE."""
    return c_node_at(words, p_node_at(words, p).c_node).p_node


@step(N(W, N))
def depth_of(words, c):
    """How many attributes lead to a c-node."""
    depth = 0
    p = c_node_at(words, c).p_node
    while p >= 0:
        depth += 1
        p = p_node_above(words, p)
    return depth


@step(boolean(W, N))
def is_open_leaf(words, c):
    """A bucket that is neither split nor partitioned."""
    node = c_node_at(words, c)
    return node.is_split == 0 and node.places == 0


@step(void(W, N, N))
def empty_half(words, c, side):
    words[half_link(c, side)] = NONE
    interval = interval_at(words, half_interval(c, side))
    interval.lo, interval.hi = MOST, -1


@step(void(W, N, N, N))
def cover(words, at, x, y):
    """The least interval at `at` covers the cells x to y too."""
    interval = interval_at(words, at)
    interval.lo, interval.hi = min(interval.lo, x), max(interval.hi, y)


@step(void(W, N, N, N))
def copy(words, to, at, size):
    """So many words; downwards if they overlap."""
    for i in range(size):
        words[to + i] = words[at + i]


@step(void(W, N, N))
def erase(words, at, size):
    """So many words become zero."""
    for i in range(size):
        words[at + i] = 0


CLUSTER, PARTITION, TIDY, RECYCLE, DISSOLVE, REINSERT = range(6)


# ---- blocks ----


@step(N(N))
def class_size(k):
    """Words of a block of class k, the one before it included: 8, 12, 16, 24, 32, 48, ..."""
    return (2 + (k & 1)) << ((k >> 1) + 2)


@step(N(N))
def class_of(size):
    """The least class with room for so many words."""
    k = 0
    while class_size(k) <= size:
        k += 1
    return k


@step(N(W, N))
def class_at(words, block):
    return words[block - 1]


@step(N(W, N))
def room_in(words, block):
    """How many words a block has room for."""
    return class_size(class_at(words, block)) - 1


@step(void(T, N))
def release(tree, block):
    words, state = tree.words, tree.state
    k = class_at(words, block)
    words[block] = state[LISTS + k]
    state[LISTS + k] = block
    state[LARGE_FREE] += k >= state[LARGE]


@step(void(T, N, N))
def release_rest(tree, at, size):
    """So many words from `at` on, as free blocks: the largest that fits, and again. A splinter is lost."""
    while size >= class_size(0):
        k = class_of(size) - 1
        tree.words[at] = k
        release(tree, at + 1)
        at += class_size(k)
        size -= class_size(k)


@step(N(T, N))
def allocate(tree, size):
    """A block with room for so many words. The caller has made sure of them, see `lacks`."""
    words, state = tree.words, tree.state
    k = class_of(size)
    for j in range(k, CLASSES if state[LARGE_FREE] > 0 else k + 1):
        block = state[LISTS + j]
        if block >= 0 and (j == k or j >= state[LARGE]):
            state[LISTS + j] = words[block]
            state[LARGE_FREE] -= j >= state[LARGE]
            words[block - 1] = k
            release_rest(tree, block - 1 + class_size(k), class_size(j) - class_size(k))
            return block
    block = state[WORDS] + 1
    state[WORDS] += class_size(k)
    if CHECKED and state[WORDS] > tree.size:
        raise IndexError("a block beyond the words")
    words[block - 1] = k
    return block


@step(N(N))
def cost(size):
    """What a block for so many words takes at most."""
    return size + size // 2 + 12


@step(boolean(T, N, N))
def lacks(tree, size, tasks):
    """Whether there is too little room to allocate `size` words (in classes: see `cost`) and to push so many tasks;
    then the state says how many words are wanted. Free blocks are not counted on: what there is of them is used, and
    what was asked for stays in reserve."""
    words, state = tree.words, tree.state
    stack = state[STACK]
    most = state[TASKS] + TASK_WORDS * tasks
    full = most + 2 * TASK_WORDS > room_in(words, stack)
    larger = 2 * most + 16
    if full:
        size += 2 * larger
    if state[WORDS] + size > tree.size:
        state[WANTED] = state[WORDS] + size
        return True
    if full:
        to = allocate(tree, larger)
        copy(words, to, stack, state[TASKS])
        release(tree, stack)
        state[STACK] = to
    return False


# ---- tasks ----


@step(void(T, N, N))
def push(tree, kind, node):
    """The caller has made sure of the room, see `lacks`."""
    if CHECKED and tree.state[TASKS] + TASK_WORDS > room_in(tree.words, tree.state[STACK]):
        raise IndexError("a task beyond the stack")
    task = task_at(tree.words, tree.state[STACK] + tree.state[TASKS])
    task.kind, task.node = kind, node
    tree.state[TASKS] += TASK_WORDS


@step(BOTH(T))
def top_task(tree):
    """Kind and node."""
    task = task_at(tree.words, tree.state[STACK] + tree.state[TASKS] - TASK_WORDS)
    return task.kind, task.node


@step(void(T))
def pop(tree):
    """The task on top is done."""
    tree.state[TASKS] -= TASK_WORDS


@step(void(T, N, N))
def replace(tree, kind, node):
    """The task on top is done but for this."""
    pop(tree)
    push(tree, kind, node)
