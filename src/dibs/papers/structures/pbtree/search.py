"""The search of a PB+tree: which subscriptions an event satisfies, for a batch of events (Fig. 8 and 9 of the paper).
See pbtree.layout for the pages, pbtree.lists for their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.spans import meets_spans
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch
from dibs.papers.structures.counters import take_zeros
from dibs.papers.structures.pbtree.filing import GONE, TOUCHED
from dibs.papers.structures.pbtree.layout import (
    COUNT,
    EQUAL,
    GREATER,
    HEAD,
    HEIGHT,
    INNER,
    ITEM,
    LEAF,
    LESS,
    LISTS,
    NEXT,
    NONE,
    PREVIOUS,
    ROOT,
    UNEQUAL,
    VALUE,
    WAYS,
    Sought,
    all_below,
    below,
    fence_of,
    fetch,
    key_of,
    start_of,
    value_of,
)

LAST_CELL = 2**31 - 1
AT_ONCE = 64  # pages that are asked for together where all are in memory
MOST_PARTS = LISTS + 1  # of lists, for a value: of Inequality two
# Of CountingSpace.tally, what an event has had so far; ALL: `seen` was too small.
HITS, SEEN, MET, NODES, ALL = range(5)


class CounterNeeds(NamedTuple):
    """See pbtree.filing."""

    filed: NDArray[np.int32]
    floor: NDArray[np.int32]
    ceiling: NDArray[np.int32]
    need: NDArray[np.uint8]
    verify: NDArray[np.uint8]


class Events(NamedTuple):
    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    cell: NDArray[np.int32]


class Together(NamedTuple):
    """Values that are searched together, and then the parts of lists that they satisfy: the keys from low to high, from
    `page` on towards the head of the list or towards its tail."""

    number: NDArray[np.int64]  # of the tree: twice the attribute, or one more
    cell: NDArray[np.int64]
    leaf: NDArray[np.int64]
    sought: Sought
    page: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    forth: NDArray[np.bool_]
    ends: Sought  # for each part `low` and the key behind `high`


class CountingSpace(NamedTuple):
    """What one thread counts in. Between events it is clean."""

    left: NDArray[np.uint8]  # of each row: how many entries are still to be met, with TOUCHED when one was; see `need`
    hits: NDArray[np.int32]  # rows that have none left; written one place ahead
    seen: NDArray[np.uint32]  # rows that were touched, while they are few
    tally: NDArray[np.int64]
    together: Together


def space_for(need: NDArray[np.uint8], seen: int) -> CountingSpace:
    """For counters that need so many; seen: rows that are remembered one by one."""
    values, sought, parts, ends = (np.empty((3, AT_ONCE * n), np.int64) for n in (1, 1, MOST_PARTS, 1))
    together = Together(
        number=values[0],
        cell=values[1],
        leaf=values[2],
        sought=Sought(*sought),
        page=parts[0],
        low=parts[1],
        high=parts[2],
        forth=np.empty(AT_ONCE * MOST_PARTS, np.bool_),
        ends=Sought(*ends),
    )
    hits, tally = np.empty(len(need) + 1, np.int32), np.zeros(ALL + 1, np.int64)
    return CountingSpace(need.copy(), hits, np.empty(seen, np.uint32), tally, together)


@phase
def _add_sid_sets(store, at, first, last, space):
    """Adds the SidSets of the items first to last of a list page to the result: counts their rows down."""
    if first >= last:
        return
    frames, left, hits, seen, tally = store.frames, space.left, space.hits, space.seen, space.tally
    end = at + store.size
    start = end - value_of(frames, at, last - 1, ITEM, VALUE)
    stop = end - start_of(frames, at, first)
    n = stop - start
    tally[MET] += n
    if not tally[ALL] and tally[SEEN] + n >= len(seen):
        for k in range(tally[SEEN]):
            left[seen[k]] &= GONE
        tally[ALL] = 1
    if tally[ALL]:
        for k in range(np.uint64(start), np.uint64(stop)):
            left[np.uint32(frames[k])] -= 1
        return
    h, s = np.uint64(tally[HITS]), np.uint64(tally[SEEN])
    for k in range(np.uint64(start), np.uint64(stop)):
        r = np.uint32(frames[k])
        was = left[r]
        seen[s] = r
        s += np.uint64(was < TOUCHED)
        still = np.uint8(was - 1) | np.uint8(TOUCHED)
        left[r] = still
        hits[h] = r
        h += np.uint64(still == TOUCHED)
    tally[HITS], tally[SEEN] = h, s


@phase(inline=False)
def _collect_back(store, page, low, space):
    """Collects what is not below `low` towards the head of the list (Fig. 9), from this page on."""
    frames = store.frames
    while page != NONE:
        at = fetch(store, page)
        space.tally[NODES] += 1
        _add_sid_sets(store, at, below(frames, at, ITEM, low), np.int64(frames[at + COUNT]), space)
        if fence_of(frames, at) < low:
            return
        page = np.int64(frames[at + PREVIOUS])


@phase(inline=False)
def _collect_forth(store, page, high, space):
    """Collects what is not above `high` towards the tail of the list, from this page on."""
    frames = store.frames
    while page != NONE:
        at = fetch(store, page)
        space.tally[NODES] += 1
        last = below(frames, at, ITEM, high + 1)
        _add_sid_sets(store, at, np.int64(0), last, space)
        if last < frames[at + COUNT]:
            return
        page = np.int64(frames[at + NEXT])


@phase
def _collect(store, together, parts, space):
    """Collects the parts of lists: the first pages of some of them at a time, then those that follow."""
    t, frames, at_once = together, store.frames, _at_once(store) // 2
    for first in range(0, parts, at_once):
        n = min(at_once, parts - first)
        ends = _some(t.ends, 2 * n)
        for i in range(n):
            at = fetch(store, t.page[first + i])
            ends.at[2 * i], ends.at[2 * i + 1] = at, at
            ends.key[2 * i], ends.key[2 * i + 1] = t.low[first + i], t.high[first + i] + 1
        all_below(frames, ends, ITEM, (store.size - HEAD) // (ITEM + 1))
        for i in range(n):  # the rows, all at once too
            prefetch(frames, ends.at[2 * i] + store.size - start_of(frames, ends.at[2 * i], ends.place[2 * i + 1]))
        for i in range(n):
            k, low, high = first + i, ends.place[2 * i], ends.place[2 * i + 1]
            at = fetch(store, t.page[k])  # the pages of the one before may have taken its place
            space.tally[NODES] += 1
            _add_sid_sets(store, at, low, high, space)
            if t.forth[k] and high == frames[at + COUNT]:
                _collect_forth(store, np.int64(frames[at + NEXT]), t.high[k], space)
            elif not t.forth[k] and fence_of(frames, at) >= t.low[k]:
                _collect_back(store, np.int64(frames[at + PREVIOUS]), t.low[k], space)


@phase
def _at_once(store):
    """How many pages may be looked at together: so many stay where they are."""
    return WAYS if len(store.tags) else AT_ONCE


@phase
def _some(sought, n):
    return Sought(sought.at[:n], sought.key[:n], sought.place[:n])


@phase
def _search_tree(store, tree, together, n):
    """Searches n keys from the root of the B+tree (Fig. 8, line 3): the leaf and the place of each."""
    t, frames = together, store.frames
    sought = _some(t.sought, n)
    t.leaf[:n] = tree[ROOT]
    for level in range(tree[HEIGHT], -1, -1):
        for i in range(n):
            sought.at[i] = fetch(store, t.leaf[i])
            sought.key[i] = (t.number[i] << 32 | t.cell[i]) + (level > 0)
        if level == 0:
            all_below(frames, sought, LEAF, (store.size - HEAD) // LEAF)
            return
        all_below(frames, sought, INNER, (store.size - HEAD) // INNER)
        for i in range(n):
            t.leaf[i] = value_of(frames, sought.at[i], sought.place[i] - 1, INNER, VALUE)


@phase
def _pointer(frames, at, place, which):
    return value_of(frames, at, place, LEAF, VALUE + which)


@phase
def _add_part(together, parts, page, low, high, forth):
    t = together
    t.page[parts], t.low[parts], t.high[parts], t.forth[parts] = page, low, high, forth
    return parts + 1


@phase
def _enter_lists(store, filed, together, i, parts, tally):
    """Where the lists are entered for a value that was searched (Fig. 8, lines 4 to 14): its parts are added."""
    t, frames, own = together, store.frames, filed.filed
    number, cell, place = t.number[i], t.cell[i], t.sought.place[i]
    key, lowest, highest = number << 32 | cell, number << 32, number << 32 | LAST_CELL
    inside = number & 1 or (filed.floor[number >> 1] <= cell and cell <= filed.ceiling[number >> 1])
    here = fetch(store, t.leaf[i])
    count = np.int64(frames[here + COUNT])
    found = place < count and key_of(frames, here, place, LEAF) == key
    before, last = here, place - 1  # the item before
    if place == 0:
        before = fetch(store, np.int64(frames[here + PREVIOUS]))
        last = np.int64(frames[before + COUNT]) - 1
        tally[NODES] += 1
    at, item = (here, place) if found else (before, last)  # the item of the highest key that is not above
    if found and own[number, EQUAL]:
        parts = _add_part(t, parts, _pointer(frames, at, item, EQUAL), key, key, False)
    if not inside:
        return parts
    after = place + found
    if found or key_of(frames, before, last, LEAF) >= lowest:
        if own[number, GREATER]:
            parts = _add_part(t, parts, _pointer(frames, at, item, GREATER), lowest, key, False)
        if own[number, UNEQUAL]:
            parts = _add_part(t, parts, _pointer(frames, before, last, UNEQUAL), lowest, key - 1, False)
    if found or after == count or key_of(frames, here, after, LEAF) <= highest:
        if own[number, LESS]:
            parts = _add_part(t, parts, _pointer(frames, before, last, LESS), key, highest, True)
        if own[number, UNEQUAL]:
            parts = _add_part(t, parts, _pointer(frames, at, item, UNEQUAL), key + 1, highest, True)
    return parts


@phase
def _search(store, tree, filed, together, n, space):
    """Search(InputKey, Root, Result) for n values: all entries that they satisfy (Fig. 8)."""
    _search_tree(store, tree, together, n)
    space.tally[NODES] += n * (tree[HEIGHT] + 1)
    parts = np.int64(0)
    for i in range(n):
        parts = _enter_lists(store, filed, together, i, parts, space.tally)
    _collect(store, together, parts, space)


@phase
def _search_event(store, tree, filed, events, first, end, space):
    """The values first to end of an event, some at a time."""
    t, n, at_once = space.together, 0, _at_once(store)
    for i in range(2 * first, 2 * end):
        number, cell = 2 * np.int64(events.attribute[i >> 1]) + (i & 1), np.int64(events.cell[i >> 1])
        own, a = filed.filed, number >> 1
        wide = own[number, GREATER] + own[number, LESS] + own[number, UNEQUAL]
        inside = number & 1 or (filed.floor[a] <= cell and cell <= filed.ceiling[a])
        if own[number, EQUAL] or (inside and wide):
            t.number[n], t.cell[n] = number, cell
            n += 1
        if n == at_once:
            _search(store, tree, filed, t, n, space)
            n = 0
    if n:
        _search(store, tree, filed, t, n, space)


@phase(inline=False)
def _holds(clauses, r, events, first, end):
    """Whether the clause r holds, and how many of its predicates were tested."""
    i, tested = first, 0
    for p in range(clauses.offsets[r], clauses.offsets[r + 1]):
        tested += 1
        while i < end and events.attribute[i] < clauses.attribute[p]:
            i += 1
        if i == end or events.attribute[i] != clauses.attribute[p]:
            return False, tested
        if not meets_spans(events.cell[i], events.cell[i], clauses.lo[p], clauses.hi[p], clauses):
            return False, tested
    return True, tested


@phase
def _take_hits(filed, space):
    """How many rows have nothing left, and how many were met; all counters are set back."""
    if space.tally[ALL]:
        return take_zeros(space.left, filed.need, space.hits)
    for k in range(space.tally[SEEN]):
        r = space.seen[k]
        space.left[r] = filed.need[r]
    return space.tally[HITS], space.tally[SEEN]


@kernel
def search(store, tree, filed, clauses, events, space, room, last_event, done):
    """Goes on where `done` says (see index.base) and stops before an event whose pairs do not fit into the room."""
    _search_events(store, tree, filed, clauses, events, space, room, last_event, done)


@phase
def _search_events(store, tree, filed, clauses, events, space, room, last_event, done):
    count, tally = 0, space.tally
    for e in range(done[0], last_event):
        first, end = events.offsets[e], events.offsets[e + 1]
        tally[:] = 0
        _search_event(store, tree, filed, events, first, end, space)
        n, candidates = _take_hits(filed, space)
        if count + n > len(room.event):
            done[0], done[2] = e, count
            return
        tested = tally[MET]
        for k in range(n):
            matched = True
            if filed.verify[space.hits[k]]:
                matched, more = _holds(clauses, space.hits[k], events, first, end)
                tested += more
            if matched:
                room.event[count], room.row[count] = e, space.hits[k]
                count += 1
        done[3] += candidates
        done[4] += tested
        done[6] += tally[NODES]
    done[0], done[2] = last_event, count
