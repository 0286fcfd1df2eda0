"""Steps on the memory of a BE-Tree (see betree_layout) that its kernels share: blocks, p-directories, nodes, buckets,
records.

The functions have their types written out: called with numbers of both widths, Numba would compile most of them
several times (34 seconds instead of 12). So they are compiled when they are imported, and index.betree imports the
files with kernels when it first needs them.
"""

from __future__ import annotations

from typing import Any

from numba import boolean, int32, int64, njit, types, void

from dibs.index.papers.betree.layout import (
    ATTRIBUTE,
    BLOCK,
    CAPACITY,
    CLASSES,
    COUNT,
    HEAD,
    HI,
    KEY,
    LARGE,
    LARGE_FREE,
    LEFT,
    LEFT_LO,
    LISTS,
    LO,
    MAX_CAP,
    MOST,
    NODE_WORDS,
    NODES,
    OWNER,
    PART,
    PLACE,
    PLACES,
    RIGHT,
    RIGHT_LO,
    SPLIT,
    STACK,
    TABLE,
    TASKS,
    UP,
    WANTED,
    WORDS,
)

N, W, S, P = int64, int32[::1], int64[::1], int32[:, ::1]  # a number, the words, the state, a table
BOTH = types.UniTuple(N, 2)


def step(signature: Any) -> Any:
    """A function that only other compiled functions call."""
    return njit(signature, cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


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


@step(void(N, W, S))
def release(at, words, state):
    k = words[at - 1]
    words[at] = state[LISTS + k]
    state[LISTS + k] = at
    state[LARGE_FREE] += k >= state[LARGE]


@step(N(N, W, S))
def allocate(size, words, state):
    """A block with room for so many words. The caller has made sure of them, see `lacks`."""
    k = class_of(size)
    for j in range(k, CLASSES if state[LARGE_FREE] > 0 else k + 1):
        at = state[LISTS + j]
        if at >= 0 and (j == k or j >= state[LARGE]):
            state[LISTS + j] = words[at]
            state[LARGE_FREE] -= j >= state[LARGE]
            words[at - 1] = k
            rest, left = at - 1 + class_size(k), class_size(j) - class_size(k)
            while left >= class_size(0):
                i = class_of(left) - 1  # the largest that fits
                words[rest] = i
                release(rest + 1, words, state)
                rest += class_size(i)
                left -= class_size(i)
            return at
    at = state[WORDS] + 1
    state[WORDS] += class_size(k)
    words[at - 1] = k
    return at


@step(boolean(N, N, W, S))
def lacks(size, tasks, words, state):
    """Whether there is too little room to allocate `size` words (in classes: see `cost`) and to push so many tasks;
    then the state says how many words are wanted. Free blocks are not counted on: what there is of them is used, and
    what was asked for stays in reserve."""
    stack = state[STACK]
    full = state[TASKS] + tasks + 4 > class_size(words[stack - 1]) - 1
    larger = 2 * (state[TASKS] + tasks) + 16
    if full:
        size += 2 * larger
    if state[WORDS] + size > len(words):
        state[WANTED] = state[WORDS] + size
        return True
    if full:
        to = allocate(larger, words, state)
        for i in range(state[TASKS]):
            words[to + i] = words[stack + i]
        release(stack, words, state)
        state[STACK] = to
    return False


@step(N(N))
def cost(size):
    """What a block for so many words takes at most."""
    return size + size // 2 + 12


# ---- p-directories ----


@step(N(N, N))
def home(attribute, places):
    """Where to begin to look for an attribute; `places` is a power of two."""
    return ((attribute * 0x9E3779B1) >> 7) & (places - 1)


@step(N(N, N, W))
def find(attribute, c, words):
    """The attribute's place in the p-directory that a c-node has, or -1."""
    places = words[c + PLACES]
    i = home(attribute, places)
    while True:
        at = words[c + TABLE] + PLACE * i
        if words[at] == attribute:
            return at
        if words[at] < 0:
            return -1
        i = (i + 1) & (places - 1)


@step(N(N, N, W))
def enter(attribute, c, words):
    """A place for an attribute that is not there; the p-directory has one to spare."""
    places = words[c + PLACES]
    i = home(attribute, places)
    while words[words[c + TABLE] + PLACE * i] >= 0:
        i = (i + 1) & (places - 1)
    at = words[c + TABLE] + PLACE * i
    words[at] = attribute
    return at


@step(void(N, N, W, S))
def rehash(c, places, words, state):
    """Gives the p-directory of a c-node so many places."""
    old, old_places = words[c + TABLE], words[c + PLACES]
    table = allocate(PLACE * places, words, state)
    for i in range(places):
        words[table + PLACE * i] = -1
    words[c + TABLE], words[c + PLACES] = table, places
    for start in range(old, old + PLACE * old_places, PLACE):
        if words[start] >= 0:
            at = enter(words[start], c, words)
            for j in range(1, PLACE):
                words[at + j] = words[start + j]
    if old_places > 0:
        release(old, words, state)


@step(void(N, N, W, S))
def forget(at, c, words, state):
    """Takes a place out of the p-directory of a c-node. Those behind it move up, so that probing still finds them.
    There must be room for a p-directory of half the size."""
    table, places = words[c + TABLE], words[c + PLACES]
    words[c + COUNT] -= 1
    hole = (at - table) // PLACE
    i = hole
    while True:
        i = (i + 1) & (places - 1)
        start = table + PLACE * i
        if words[start] < 0:
            break
        if ((i - home(words[start], places)) & (places - 1)) >= ((i - hole) & (places - 1)):
            for j in range(PLACE):
                words[table + PLACE * hole + j] = words[start + j]
            hole = i
    words[table + PLACE * hole] = -1
    if words[c + COUNT] == 0:
        release(table, words, state)
        words[c + TABLE], words[c + PLACES] = -1, 0
    elif 8 * words[c + COUNT] < places:
        rehash(c, places // 2, words, state)


# ---- nodes ----


@step(void(N, N, W))
def empty_half(c, side, words):
    """side: LEFT or RIGHT."""
    words[c + side] = -1
    words[c + 2 * side - LEFT + 2], words[c + 2 * side - LEFT + 3] = MOST, -1


@step(N(N, N, N, N, N, W, S))
def new_node(up, part, attribute, lo, hi, words, state):
    """A c-node with an empty l-node, whose bucket is lo to hi."""
    c = allocate(NODE_WORDS, words, state)
    state[NODES] += 1
    for i in range(NODE_WORDS):
        words[c + i] = 0
    words[c + BLOCK], words[c + TABLE] = -1, -1
    empty_half(c, LEFT, words)
    empty_half(c, RIGHT, words)
    words[c + ATTRIBUTE], words[c + UP], words[c + PART] = attribute, up, part
    words[c + CAPACITY], words[c + LO], words[c + HI] = state[MAX_CAP], lo, hi
    return c


@step(void(N, W, S))
def free_node(c, words, state):
    """A c-node whose p-directory is gone."""
    if words[c + BLOCK] >= 0:
        release(words[c + BLOCK], words, state)
    release(c, words, state)
    state[NODES] -= 1


@step(N(N, W))
def interval_of(c, words):
    """Where the least interval stands that covers all below a c-node with a bucket: an event enters by it. It lies
    within the bucket, so what equals the bucket holds for every event that comes."""
    up, part = words[c + UP], words[c + PART]
    if up < 0:
        return find(words[part + KEY], words[part + OWNER], words) + 2
    return up + (LEFT_LO if words[up + LEFT] == c else RIGHT_LO)


@step(boolean(N, W))
def is_open_leaf(c, words):
    """A bucket that is neither split nor partitioned."""
    return words[c + SPLIT] == 0 and words[c + PLACES] == 0


# ---- buckets ----


@step(N(N, N, N))
def cut(lo, hi, ceiling):
    """Where a bucket is halved: the last cell of its left half. An attribute's buckets are the tree of halves of 1 to
    `ceiling`, the highest cell known when the attribute came first; beyond it buckets double up to the highest cell
    there can be, so the tree is fixed for ever and no bucket depends on the order of insertion."""
    if lo == 1 and hi > ceiling:
        t = ceiling
        while 2 * t < hi:
            t *= 2
        return t
    return lo + (hi - lo) // 2


@step(BOTH(N, N, N, N, N))
def smallest(lo, hi, x, y, ceiling):
    """The smallest bucket inside lo to hi that encloses the cells x to y."""
    while lo < hi:
        m = cut(lo, hi, ceiling)
        if y <= m:
            hi = m
        elif x > m:
            lo = m + 1
        else:
            break
    return lo, hi


# ---- records ----


@step(BOTH(N, N, W))
def key(at, attribute, words):
    """The hull by which a record is clustered on an attribute: that of its narrowest (then lowest) predicate on it,
    or (1, 0) if it has none."""
    x, y = 1, 0
    for e in range(at + HEAD, at + HEAD + 3 * words[at + 2], 3):
        low, high = words[e + 1], words[e + 2]
        if words[e] == attribute and high >= 0:
            if y == 0 or high - low < y - x or (high - low == y - x and low < x):
                x, y = low, high
    return x, y


@step(void(N, N, W))
def swap(a, b, words):
    for i in range(3):
        words[a + i], words[b + i] = words[b + i], words[a + i]


@step(void(N, N, N, N, W))
def settle(at, attribute, lo, hi, words):
    """A record has come into the bucket lo to hi of an attribute: predicates that equal it are subsumed and need no
    test, others are covered (they probably hold) and are tested last."""
    tested, entries = words[at + 1], words[at + 2]
    first = at + HEAD
    several = False  # of several spans: the hull alone says nothing
    for e in range(first + 3 * tested, first + 3 * entries, 3):
        if words[e] == attribute:
            if words[e + 2] < 0:
                several = True
            else:
                swap(e, first + 3 * tested, words)
                tested += 1
    last = tested
    for e in range(first + 3 * (tested - 1), first - 1, -3):
        if words[e] == attribute:
            last -= 1
            swap(e, first + 3 * last, words)
    e = first + 3 * last
    while not several and e < first + 3 * tested:
        if words[e + 1] == lo and words[e + 2] == hi:
            tested -= 1
            swap(e, first + 3 * tested, words)
        else:
            e += 3
    words[at + 1] = tested
