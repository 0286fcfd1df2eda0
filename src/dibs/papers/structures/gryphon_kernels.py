"""The compiled parts of papers.structures.gryphon, whose docstring says what the arrays hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch

EDGES, FIRST_ROW, ROWS, DIRECTORY = range(4)  # the columns of a node
LEVEL, LO, HI, TARGET = range(4)  # the columns of an edge
WIDTH = 4  # of a row of the tree
FIRST_EDGE, FIRST_RANGE = 1, 2  # the columns of an entry, after its LEVEL; LEVELS is that of a directory's first
LEVELS = LEVEL
ROW, TESTS, HEAD, TEST = 0, 1, 2, 3  # a tail: its row, how many tests, after this head the tests, words of a test
AHEAD, LINES, TAIL_LINES = 8, 8, 2  # the node or tail after so many others is asked for, so many cache lines of it
A_LINE = 16  # words
BLOCK = 3  # where `shape` has it
LAST = np.int32(2**31 - 1)  # above every level
FULL = -1  # instead of a number of pairs: there is no room for one more


class MatchingTree(NamedTuple):
    """The arrays of the index: see gryphon."""

    level: NDArray[np.int32]
    tree: NDArray[np.int32]
    reach: NDArray[np.int32]
    entry: NDArray[np.int32]
    tails: NDArray[np.int32]
    rows: NDArray[np.int32]
    shape: NDArray[np.int64]


class Walk(NamedTuple):
    """Work space of the way through the tree."""

    slot: NDArray[np.int32]  # the event's value of each level, zero between events
    queue: NDArray[np.int32]  # nodes and tails to visit, as the targets of edges say them

    @classmethod
    def at_rest(cls, levels: int, rows: int) -> Walk:
        return cls(np.zeros(levels + 1, np.int32), np.empty(rows + 1, np.int32))


class SeveralSpans(NamedTuple):
    """Of the predicates that have several: see coding.clauses."""

    lo: NDArray[np.int32]
    hi: NDArray[np.int32]


class DistinctPredicates(NamedTuple):
    """The distinct predicates, and which of them rows have."""

    number: NDArray[np.int64]  # by row, from offsets on: its predicates in order of their levels
    level: NDArray[np.int32]  # these by number
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]


@kernel
def write_tails(start, row, skip, offsets, predicates, tails):
    """Tail i begins at start[i] and has the predicates of row[i] from the skip[i]-th on."""
    number, level, lo, hi = predicates
    for i in range(len(start)):
        at, first, last = start[i], offsets[row[i]] + skip[i], offsets[row[i] + 1]
        tails[at + ROW], tails[at + TESTS] = row[i], last - first
        at += HEAD
        for q in range(first, max(last, first + 2)):
            tails[at + LEVEL], tails[at + LO], tails[at + HI] = 0, 0, -1
            if q < last:
                p = number[q]
                tails[at + LEVEL], tails[at + LO], tails[at + HI] = level[p], lo[p], hi[p]
            at += TEST


@kernel
def write_directories(tree, node, levels, few):
    """The directories of the nodes, which the nodes are told of; node: where each of them stands, the root first; few:
    edges of a node that has none."""
    room = levels + 1
    for t in node[1:]:
        if tree[t, EDGES] > few:
            room += tree[t, EDGES] + 2
    entry = np.empty((room, 3), np.int32)
    n = 0
    for t in node:
        x, end = t + 1, t + 1 + tree[t, EDGES]
        if t == 0:
            tree[t, DIRECTORY] = 0
            for k in range(levels + 1):
                while x < end and tree[x, LEVEL] < k:
                    x += 1
                entry[k, LEVEL], entry[k, FIRST_EDGE], entry[k, FIRST_RANGE] = k, x, _first_range(tree, x, end, k)
            n = levels + 1
        elif tree[t, EDGES] <= few:
            tree[t, DIRECTORY] = -1
        else:
            tree[t, DIRECTORY], first = n, n
            n += 1
            while x < end:
                k, wide = tree[x, LEVEL], _first_range(tree, x, end, tree[x, LEVEL])
                entry[n, LEVEL], entry[n, FIRST_EDGE], entry[n, FIRST_RANGE] = k, x, wide
                n += 1
                x = wide
                while x < end and tree[x, LEVEL] == k:
                    x += 1
            entry[n, LEVEL], entry[n, FIRST_EDGE], entry[n, FIRST_RANGE] = LAST, end, end
            entry[first, LEVELS], entry[first, FIRST_EDGE], entry[first, FIRST_RANGE] = n - first - 1, 0, 0
            n += 1
    return entry[:n].copy()


@kernel
def _first_range(tree, x, end, level):
    """The first of a node's edges from x on that is no equality on the level."""
    while x < end and tree[x, LEVEL] == level and tree[x, LO] == tree[x, HI]:
        x += 1
    return x


@kernel
def match_events(tree, spans, walk, events, last_event, room, progress):
    """Stops between events: one whose pairs do not fit into the room is begun again in a larger one."""
    _match_events(tree, tree.tree.reshape(-1), spans, walk, events, last_event, room, progress)


@phase
def _match_events(tree, words, spans, walk, events, last_event, room, progress):
    """words: those of the tree."""
    level, nodes, tails = tree.level, tree.tree, tree.tails
    slot, queue = walk
    found = np.int64(0)
    for e in range(progress[NEXT_EVENT], last_event):
        first, last = events.offsets[e], events.offsets[e + 1]
        for i in range(first, last):
            slot[level[events.attribute[i]]] = events.lo[i]
        candidates, compared, before = np.int64(0), np.int64(0), found
        queue[0] = 0
        head, n = np.int64(0), np.int64(1)
        while head < n:
            t = np.int64(queue[np.uint64(head)])
            head += 1
            if head + AHEAD < n:
                _ask_for(nodes, tails, np.int64(queue[np.uint64(head + AHEAD)]))
            if t < 0:
                candidates += 1
                if not _may_hold(tails, -1 - t, slot):
                    compared += 2
                    continue
                holds, tests = _test_tail(tails, -1 - t, slot, spans)
                compared += tests
                if holds:
                    found = _take_tail(tails, -1 - t, e, found, room)
                    if found == FULL:
                        break
                continue
            own = nodes[np.uint64(t), ROWS]
            if own > 0:
                candidates += own
                found = _take_rows(nodes, t, tree.rows, e, found, room)
                if found == FULL:
                    break
            if nodes[np.uint64(t), DIRECTORY] < 0:
                compared += nodes[np.uint64(t), EDGES]
                n = _follow_all(words, t, slot, queue, n)
            else:
                n, edges = _follow_directory(tree, t, events, first, last, walk, n)
                compared += edges
        for i in range(first, last):
            slot[level[events.attribute[i]]] = 0
        if found == FULL:
            progress[NEXT_EVENT], progress[PAIRS] = e, before
            return
        progress[CANDIDATES] += candidates
        progress[PREDICATES] += compared
        progress[NODES] += n
    progress[NEXT_EVENT], progress[PAIRS] = last_event, found


# The parts of that. n is the length of the queue.


@kernel(inline="always")
def _ask_for(nodes, tails, target):
    """One of the two is about place 0, which is in the cache: cheaper than a branch on which one."""
    for line in range(LINES):
        prefetch(nodes, WIDTH * max(target, 0) + A_LINE * line)
    for line in range(TAIL_LINES):
        prefetch(tails, max(-1 - target, 0) + A_LINE * line)


@kernel(inline="always")
def _maybe(tails, test, slot):
    """Whether a test of a tail holds, or has several spans. No branches, unsigned places."""
    v = slot[np.uint64(tails[test])]
    low, high = tails[test + np.uint64(LO)], tails[test + np.uint64(HI)]
    return ((low <= v) & (v <= high)) | (high < 0)


@kernel(inline="always")
def _may_hold(tails, at, slot):
    """The first two tests of a tail without a branch between them: that both hold is rare enough to be predicted."""
    test = np.uint64(at + HEAD)
    return _maybe(tails, test, slot) & _maybe(tails, test + np.uint64(TEST), slot)


@kernel(inline="always")
def _test_tail(tails, at, slot, spans):
    """(whether all tests of the tail hold, how many were made)."""
    q, compared = at + HEAD, np.int64(0)
    for _ in range(tails[at + TESTS]):
        v, low, high = slot[tails[q + LEVEL]], tails[q + LO], tails[q + HI]
        compared += 1
        if high < 0:
            stop = np.int64(low - high)
            s = _first_not_below(v, np.int64(low), np.int64(-high), spans.hi)
            if s == stop or spans.lo[s] > v:
                return False, compared
        elif v < low or v > high:
            return False, compared
        q += TEST
    return True, compared


@kernel(inline="always")
def _first_not_below(v, first, size, values):
    """The first of the values from `first` on, of which there are so many, that is not below v; else one past them."""
    while size > 0:
        half = size >> 1
        below = values[np.uint64(first + half)] < v
        first = first + half + 1 if below else first
        size = size - half - 1 if below else half
    return first


@kernel(inline="always")
def _take_tail(tails, at, e, found, room):
    """The pairs found, or FULL."""
    if found == len(room.event):
        return np.int64(FULL)
    room.event[found] = e
    room.row[found] = tails[at + ROW]
    return found + 1


@kernel(inline="always")
def _take_rows(nodes, t, rows, e, found, room):
    """The clauses that end at a node: the pairs found, or FULL."""
    first, count = np.int64(nodes[t, FIRST_ROW]), np.int64(nodes[t, ROWS])
    if found + count > len(room.event):
        return np.int64(FULL)
    for r in range(first, first + count):
        room.event[found] = e
        room.row[found] = rows[r]
        found += 1
    return found


@kernel(inline="always")
def _follow_all(words, t, slot, queue, n):
    """A node of few edges: each is compared, without a branch that depends on the value. words: of the tree."""
    edges = np.int64(words[WIDTH * t + EDGES])
    x, stop, u = np.uint64(WIDTH * (t + 1)), np.uint64(WIDTH * (t + 1 + edges)), np.uint64(n)
    while x < stop:
        v = slot[np.uint64(words[x])]
        queue[u] = words[x + np.uint64(TARGET)]
        u += np.uint64((words[x + np.uint64(LO)] <= v) & (v <= words[x + np.uint64(HI)]))
        x += np.uint64(WIDTH)
    return np.int64(u)


@kernel(inline="always")
def _follow_directory(tree, t, events, first, last, walk, n):
    """A node of many edges: (n, edges compared). The entries that the event has a value for are looked for on the
    shorter side."""
    level, entry = tree.level, tree.entry
    slot, queue = walk
    directory, root, compared = np.int64(tree.tree[t, DIRECTORY]), t == 0, np.int64(0)
    levels = np.int64(len(level)) if root else np.int64(entry[directory, LEVELS])
    by_entry = levels <= last - first
    for i in range(levels if by_entry else last - first):
        if by_entry:
            d = directory + i + (not root)
            v = slot[entry[d, LEVEL]]
            if v == 0:
                continue
        else:
            k, v = level[events.attribute[first + i]], events.lo[first + i]
            d = np.int64(k)
            if not root:
                d = _first_not_below(k, directory + 1, levels, entry[:, LEVEL])
                if entry[d, LEVEL] != k:
                    continue
        n, edges = _follow_entry(tree.tree, tree.reach, tree.shape[BLOCK], entry, d, v, queue, n)
        compared += edges
    return n, compared


@kernel(inline="always")
def _follow_entry(nodes, reach, block, entry, d, v, queue, n):
    """The edges of one level of a node that the value satisfies: (n, edges compared)."""
    x, wide = np.int64(entry[d, FIRST_EDGE]), np.int64(entry[d, FIRST_RANGE])
    end, compared = np.int64(entry[d + 1, FIRST_EDGE]), np.int64(0)
    x = _first_not_below(v, x, wide - x, nodes[:, LO])
    while x < wide and nodes[np.uint64(x), LO] == v:
        queue[np.uint64(n)] = nodes[np.uint64(x), TARGET]
        n += 1
        compared += 1
        x += 1
    x = wide
    while x < end and nodes[x, LO] <= v:
        if reach[x // block] < v:
            x = (x // block + 1) * block
            continue
        stop = min(end, (x // block + 1) * block)
        while x < stop and nodes[np.uint64(x), LO] <= v:
            queue[np.uint64(n)] = nodes[np.uint64(x), TARGET]
            n += v <= nodes[np.uint64(x), HI]
            compared += 1
            x += 1
    return n, compared
