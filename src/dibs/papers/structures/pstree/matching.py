"""What the matches of the PS-Tree family share: candidates are gathered in blocks and verified block by block.

An event goes through

    begin_event     its values by attribute
    screen_spaces   the lists of its spaces; the next predicate of each entry, which it carries, is tested on the way
    verify          the predicates that are left of the candidates that passed, whenever a block is full and at the end
    finish_event    its costs to the progress, and the slots clean again

and is begun again in the next call if its matches do not fit (stop_before).
"""

from __future__ import annotations

import numpy as np

from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES, PROGRESS
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch
from dibs.papers.structures.pstree.groups import (
    AT,
    ATTRIBUTE,
    CODE,
    ENTRY,
    HI,
    LO,
    PREDICATE,
    ROW,
    SIZE,
    WaitingCandidates,
)

AHEAD = 4  # candidates whose predicates are asked for before their turn
LISTS_AHEAD = 2  # lists that are asked for before their turn
NEXT_ATTRIBUTE, NEXT_LO, NEXT_HI = np.uint64(1), np.uint64(2), np.uint64(3)  # columns of an entry, see pstree.groups
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
