"""What predicates do to the spaces that they cover (counters, lists, the events seen there), and how matches read them.

A predicate covers a run of neighbouring spaces for each of its spans:

    for s in range(span_count(p, rows)):
        at, high = first_space(p, s, rows, links)
        while at >= 0:
            ...
            at = next_space(at, high, links)

The matches of the PS-Tree family share how candidates are gathered in blocks and verified block by block. An event goes
through

    begin_event     its values by attribute
    screen_spaces   the lists of its spaces; the next predicate of each entry, which it carries, is tested on the way
    verify          the predicates that are left of the candidates that passed, whenever a block is full and at the end
    finish_event    its costs to the progress, and the slots clean again

and is begun again in the next call if its matches do not fit (stop_before).
"""

from __future__ import annotations

import numpy as np

from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES, PROGRESS
from dibs.index.spans import count_spans, nth_span
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch
from dibs.papers.structures.pstree.kernels import find_space
from dibs.papers.structures.pstree.spaces import (
    AT,
    ATTRIBUTE,
    CODE,
    ENTRY,
    FIRST,
    HI,
    HIGHEST,
    LO,
    NEXT,
    PARTIAL,
    PREDICATE,
    PREDICATE_COUNTER,
    ROOM,
    ROW,
    SIZE,
    START,
    WaitingCandidates,
    chunk_size,
    copy_entries,
    give_back,
    take,
)


@phase
def span_count(p, rows):
    return max(1, -rows.predicate[p, HI])


@phase
def span_of(p, s, rows):
    """The first and the last value of a predicate's span."""
    low, high = rows.predicate[p, LO], rows.predicate[p, HI]
    if high < 0:
        low, high = rows.span[low + s, 0], rows.span[low + s, 1]
    return low, high


@phase
def first_space(p, s, rows, links):
    """The leaf where a span begins, and the last value of the span."""
    low, high = span_of(p, s, rows)
    return find_space(np.int64(rows.predicate[p, ATTRIBUTE]), np.int64(low), links), high


@phase
def next_space(at, high, links):
    """The leaf after this one; -1 if it begins beyond the last value, or there is none."""
    at = links.leaf[at, NEXT]
    return at if at >= 0 and links.leaf[at, START] <= high else np.int32(-1)


@kernel
def cover(which, change, rows, links):
    """Adds `change` to the predicate counters of all spaces that these predicates cover; returns how many they are."""
    leaf, total = links.leaf, np.int64(0)
    for p in which:
        for s in range(span_count(p, rows)):
            at, high = first_space(p, s, rows, links)
            while at >= 0:
                leaf[at, PREDICATE_COUNTER] += change
                total += 1
                at = next_space(at, high, links)
    return total


@kernel
def cover_many(which, change, rows, links):
    """The same for many predicates: notes where each begins and ends, then walks along all spaces once."""
    tree, leaf = links.tree, links.leaf
    steps = np.zeros(len(leaf), np.int64)
    for p in which:
        a = np.int64(rows.predicate[p, ATTRIBUTE])
        for s in range(span_count(p, rows)):
            at, high = first_space(p, s, rows, links)
            steps[at] += 1
            if high < HIGHEST:
                steps[find_space(a, np.int64(high) + 1, links)] -= 1
    total = np.int64(0)
    for a in range(len(tree)):
        at, over = tree[a, FIRST], np.int64(0)
        while at >= 0:
            over += steps[at]
            leaf[at, PREDICATE_COUNTER] += change * over
            total += over
            at = leaf[at, NEXT]
    return total


@kernel
def count_needed(which, rows, links):
    """By leaf: how many of these predicates cover its space."""
    need = np.zeros(len(links.leaf), np.int32)
    for p in which:
        for s in range(span_count(p, rows)):
            at, high = first_space(p, s, rows, links)
            while at >= 0:
                need[at] += 1
                at = next_space(at, high, links)
    return need


@kernel
def reserve(need, lists):
    """Makes room for need[l] entries more in the list of each leaf l, as far as the pool has it."""
    place = lists.place
    for at in range(len(need)):
        if need[at] > 0 and place[at, SIZE] + need[at] > place[at, ROOM]:
            if not enlarge(np.int64(at), np.int64(place[at, SIZE] + need[at]), lists):
                return


@phase(inline=False)
def enlarge(at, size, lists):
    """Gives the list of a leaf a chunk for so many entries. False, and nothing done, when the pool has to grow."""
    place = lists.place
    new = take(size, lists.chunks)
    if new < 0:
        return False
    old = np.int64(place[at, AT])
    copy_entries(new, old, place[at, SIZE], lists.chunks)
    if place[at, ROOM] > 0:
        give_back(old, np.int64(place[at, ROOM]), lists.chunks)
    place[at, AT], place[at, ROOM] = new, chunk_size(size)
    return True


@kernel
def attach(which, words, start, lists, rows, links, state):
    """Adds words[i] to the lists of all spaces that predicate which[i] covers, from i = start on. Returns where it
    stopped, at the end or because the pool has to grow; state[PARTIAL] spaces of that predicate are done."""
    for i in range(start, len(which)):
        done = np.int64(0)
        for s in range(span_count(which[i], rows)):
            at, high = first_space(which[i], s, rows, links)
            while at >= 0:
                if done >= state[PARTIAL] and not _append(np.int64(at), words, i, lists):
                    state[PARTIAL] = done
                    return i
                done += 1
                at = next_space(at, high, links)
        state[PARTIAL] = 0
    return len(which)


@phase
def _append(at, words, i, lists):
    """The entry words[i] at the end of the list of a leaf. False, and nothing done, when the pool has to grow."""
    place, entry = lists.place, lists.chunks.entry
    size = np.int64(place[at, SIZE])
    if size == place[at, ROOM] and not enlarge(at, size + 1, lists):
        return False
    for column in range(entry.shape[1]):
        entry[place[at, AT] + size, column] = words[i, column]
    place[at, SIZE] += 1
    return True


@kernel
def detach(which, codes, lists, rows, links):
    """The opposite: takes the entry that begins with codes[i] out of those lists."""
    for i in range(len(which)):
        for s in range(span_count(which[i], rows)):
            at, high = first_space(which[i], s, rows, links)
            while at >= 0:
                _take_out(at, codes[i], lists)
                at = next_space(at, high, links)


@phase
def _take_out(at, code, lists):
    """The entry of this code, which is there, out of the list of a leaf: the last one takes its place."""
    place, entry = lists.place, lists.chunks.entry
    first, last = place[at, AT], place[at, AT] + place[at, SIZE] - 1
    k = last
    while k >= first and entry[k, CODE] != code:
        k -= 1
    if k < first:
        return
    for column in range(entry.shape[1]):
        entry[k, column] = entry[last, column]
    place[at, SIZE] -= 1
    if place[at, SIZE] == 0:
        give_back(np.int64(place[at, AT]), np.int64(place[at, ROOM]), lists.chunks)
        place[at, ROOM] = 0


@kernel
def add_observed(rank, clauses, links, seen):
    """Adds to the rank of each predicate of some clauses the events seen in the spaces that it meets."""
    for p in range(len(rank)):
        for s in range(count_spans(p, clauses)):
            low, high = nth_span(p, s, clauses)
            at = find_space(np.int64(clauses.attribute[p]), np.int64(low), links)
            while at >= 0:
                rank[p] += seen[at]
                at = next_space(at, high, links)


@kernel
def count_events(space, seen):
    for i in range(len(space)):
        seen[space[i]] += 1


AHEAD = 4  # candidates whose predicates are asked for before their turn
LISTS_AHEAD = 2  # lists that are asked for before their turn
NEXT_ATTRIBUTE, NEXT_LO, NEXT_HI = np.uint64(1), np.uint64(2), np.uint64(3)  # columns of an entry, see pstree.spaces
NONE, ONE = np.uint64(0), np.uint64(1)


@kernel(forceinline=True)
def no_candidates(attributes, block):
    """Work space for an event at a time."""
    return WaitingCandidates(
        np.zeros(attributes, np.int32), np.empty(block + 1, np.int32), np.zeros(PROGRESS, np.int64)
    )


@phase
def begin_event(e, events, slot):
    for i in range(events.offsets[e], events.offsets[e + 1]):
        slot[events.attribute[i]] = events.value[i]


@phase
def finish_event(e, events, waiting, progress):
    for name in (CANDIDATES, PREDICATES, NODES):
        progress[name] += waiting.tally[name]
        waiting.tally[name] = 0
    for i in range(events.offsets[e], events.offsets[e + 1]):
        waiting.slot[events.attribute[i]] = 0


@phase(inline=False)
def stop_before(e, found, progress):
    """There is no room for the matches of event e; those of the events before it end at `found`."""
    progress[NEXT_EVENT], progress[PAIRS] = e, found


@phase
def ask_for_list(i, end, lists, space):
    """Prefetches the list of an entry of the events that has its turn soon."""
    if i + LISTS_AHEAD < end:
        prefetch(lists.entry, ENTRY * np.int64(lists.place[np.uint64(space[i + LISTS_AHEAD]), AT]))


@phase
def list_of(leaf, lists):
    """Where the list of a space begins and ends."""
    at = np.uint64(lists.place[leaf, AT])
    return at, at + np.uint64(lists.place[leaf, SIZE])


@phase
def screen_spaces(e, last_event, found, lists, rows, events, waiting, room):
    """The lists of the event's spaces: which candidates pass the predicate of their entry. Full blocks are verified.
    Returns how many candidates wait, and the end of the matches: 0 and -1 if there is no room for them."""
    entry, slot, code, space = lists.entry, waiting.slot, waiting.code, events.space
    block, n, candidates = np.uint64(len(code) - 1), NONE, np.int64(0)
    for i in range(events.offsets[e], events.offsets[e + 1]):
        ask_for_list(i, events.offsets[last_event], lists, space)
        at, end = list_of(np.uint64(space[i]), lists)
        candidates += np.int64(end - at)
        while at < end:
            stop = min(end, at + block - n)
            while at < stop:
                v = slot[np.uint64(entry[at, NEXT_ATTRIBUTE])]
                code[n] = entry[at, CODE]
                n += np.uint64((entry[at, NEXT_LO] <= v) & (v <= entry[at, NEXT_HI]))
                at += ONE
            if n == block:
                found = verify(np.int64(n), e, found, waiting, rows, room)
                n = NONE
                if found < 0:
                    return np.int64(0), found
    waiting.tally[CANDIDATES] += candidates
    waiting.tally[PREDICATES] += candidates
    return np.int64(n), found


@phase(inline=False)
def verify(n, event, found, waiting, rows, room):
    """Tests what is left of the n candidates that wait against the event, and writes those that match from `found` on.
    Returns the end of the matches, -1 if there is no room for all."""
    codes, slot, predicate, span = waiting.code, waiting.slot, rows.predicate, rows.span
    out_event, out_row = room
    tests, most = np.int64(0), len(out_event)
    for k in range(n):
        if k + AHEAD < n and codes[k + AHEAD] < 0:
            prefetch(predicate, PREDICATE * np.int64(~codes[k + AHEAD]))
        row = codes[k]
        if row < 0:
            p = np.uint64(~row)
            while True:
                tests += 1
                low, high = predicate[p, LO], predicate[p, HI]
                v = slot[np.uint64(predicate[p, ATTRIBUTE])]
                if high >= 0:
                    ok = low <= v and v <= high
                else:
                    ok = False
                    for s in range(low, low - high):
                        if span[s, 0] <= v and v <= span[s, 1]:
                            ok = True
                row = predicate[p, ROW]
                if not ok or row >= 0:
                    break
                p += ONE
            if not ok:
                continue
        if found == most:
            return np.int64(-1)
        out_event[found] = event
        out_row[found] = row
        found += 1
    waiting.tally[PREDICATES] += tests
    return found
