"""The heap of a BE-Tree, and the stack of what is to be done with its nodes.

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

from numba import boolean, void

from dibs.jit.pointers import CHECKED
from dibs.papers.structures.betree.layout import (
    CLASSES,
    LARGE,
    LARGE_FREE,
    LISTS,
    STACK,
    TASK_WORDS,
    TASKS,
    WANTED,
    WORDS,
)
from dibs.papers.structures.betree.nodes import BOTH, N, T, W, copy, step, task_at

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
