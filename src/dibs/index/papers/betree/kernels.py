"""Matching over the memory of a BE-Tree (see betree_layout), a look at its shape, and a copy without gaps."""

from __future__ import annotations

import numpy as np

from dibs.index.kernels import clear, holds_several, lay_out
from dibs.index.papers.betree.layout import (
    ATTRIBUTE,
    BLOCK,
    CLASSES,
    HEAD,
    LEFT,
    LEFT_HI,
    LEFT_LO,
    LISTS,
    LOSS,
    NODE_WORDS,
    OWNER,
    PART,
    PART_WORDS,
    PLACE,
    PLACES,
    RIGHT,
    RIGHT_HI,
    RIGHT_LO,
    ROOT,
    ROWS,
    SCRATCH,
    SEEN,
    STACK,
    TABLE,
    TOP,
    UP,
    USED,
)
from dibs.index.papers.betree.steps import (
    allocate,
    class_size,
    home,
)
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch

LINES = 12  # cache lines of the next l-node that are prefetched


@kernel
def match(
    words,
    span_lo,
    span_hi,
    event_offsets,
    event_attribute,
    event_lo,
    event_hi,
    last_event,
    sample,
    phase,
    visit,
    slot_lo,
    slot_hi,
    slot_more,
    out_event,
    out_row,
    done,
):
    """Algorithms 1 and 2, with the c-nodes to visit in a queue instead of recursion, so that each is fetched while
    those before it are worked on. Each c-node comes at most once, whatever the event: one decision for each half and
    p-node, by all entries that the event has for its attribute. An event whose pairs find no room is done again.
    Every sample-th event (none if 0) leaves its losses with the p-nodes."""
    found = np.int64(0)
    for e in range(done[0], last_event):
        first, last = event_offsets[e], event_offsets[e + 1]
        lay_out(first, last, event_attribute, event_lo, event_hi, slot_lo, slot_hi, slot_more)
        several = False
        for i in range(first + 1, last):
            several |= event_attribute[i] == event_attribute[i - 1]
        watched = sample > 0 and (e + phase) % sample == 0
        before = found
        candidates, tests = np.int64(0), np.int64(0)
        visit[0] = ROOT
        next_one, end_visit = 0, 1
        full = False
        while next_one < end_visit:
            c = visit[next_one]
            next_one += 1
            if next_one < end_visit:
                n = visit[next_one]
                at = np.int64(words[n + BLOCK])
                for line in range(at, at + min(words[n + USED], 16 * LINES), 16):
                    prefetch(words, line)
                prefetch(words, np.int64(words[n + TABLE]))
            rows = words[c + ROWS]
            if rows > 0:
                if found + rows > len(out_event):
                    full = True
                    break
                candidates += rows
                p = np.int64(words[c + BLOCK])
                end = p + words[c + USED]
                lost = np.int64(0)
                while p < end:
                    entries = words[p + 2]
                    q = p + HEAD
                    last_test = q + 3 * words[p + 1]
                    after = q + 3 * entries
                    ok = True
                    while q < last_test:
                        a = words[q]
                        if words[q + 1] > slot_hi[a] or slot_lo[a] > words[q + 2]:
                            ok = False
                            if several:
                                for i in range(slot_more[a, 0], slot_more[a, 1]):
                                    ok |= words[q + 1] <= event_hi[i] and event_lo[i] <= words[q + 2]
                            if not ok:
                                break
                        q += 3
                    made = (q - p - HEAD) // 3 + (not ok)
                    tests += made
                    if ok:
                        r = after - 3
                        while r >= q and words[r + 2] < 0:
                            if not holds_several(
                                words[r],
                                words[r + 1],
                                words[r + 2],
                                span_lo,
                                span_hi,
                                slot_lo,
                                slot_hi,
                                slot_more,
                                event_lo,
                                event_hi,
                            ):
                                ok = False
                                break
                            r -= 3
                    if ok:
                        out_event[found] = e
                        out_row[found] = words[p]
                        found += 1
                    else:
                        lost += made
                    p = after
                if watched:
                    part = np.int64(words[c + PART])
                    while part >= 0:
                        words[part + LOSS] += lost
                        if words[part + LOSS] > 1 << 29:  # keeps the average
                            words[part + LOSS] >>= 1
                            words[part + SEEN] >>= 1
                        part = np.int64(words[words[part + OWNER] + PART])
            places = words[c + PLACES]
            if places > 0:
                table = np.int64(words[c + TABLE])
                if places <= 2 * (last - first):
                    # A small p-directory: is its attribute in the event?
                    for at in range(table, table + PLACE * places, PLACE):
                        a = words[at]
                        if a < 0:
                            continue
                        inside = words[at + 2] <= slot_hi[a] and slot_lo[a] <= words[at + 3]
                        if several and not inside:
                            for i in range(slot_more[a, 0], slot_more[a, 1]):
                                inside |= words[at + 2] <= event_hi[i] and event_lo[i] <= words[at + 3]
                        if inside:
                            visit[end_visit] = words[at + 1]
                            prefetch(words, np.int64(words[at + 1]))
                            end_visit += 1
                            if watched:
                                words[words[at + 4] + SEEN] += 1
                else:
                    for j in range(first, last):
                        a = event_attribute[j]
                        if j > first and event_attribute[j - 1] == a:
                            continue
                        i = home(a, places)
                        while True:
                            at = table + PLACE * i
                            if words[at] < 0:
                                break
                            if words[at] == a:
                                inside = words[at + 2] <= slot_hi[a] and slot_lo[a] <= words[at + 3]
                                if several and not inside:
                                    for k in range(slot_more[a, 0], slot_more[a, 1]):
                                        inside |= words[at + 2] <= event_hi[k] and event_lo[k] <= words[at + 3]
                                if inside:
                                    visit[end_visit] = words[at + 1]
                                    prefetch(words, np.int64(words[at + 1]))
                                    end_visit += 1
                                    if watched:
                                        words[words[at + 4] + SEEN] += 1
                                break
                            i = (i + 1) & (places - 1)
            left, right = words[c + LEFT], words[c + RIGHT]
            if left >= 0 or right >= 0:
                a = words[c + ATTRIBUTE]
                x, y = slot_lo[a], slot_hi[a]
                go_left = words[c + LEFT_LO] <= y and x <= words[c + LEFT_HI]
                go_right = words[c + RIGHT_LO] <= y and x <= words[c + RIGHT_HI]
                if several:
                    for i in range(slot_more[a, 0], slot_more[a, 1]):
                        x, y = event_lo[i], event_hi[i]
                        go_left |= words[c + LEFT_LO] <= y and x <= words[c + LEFT_HI]
                        go_right |= words[c + RIGHT_LO] <= y and x <= words[c + RIGHT_HI]
                if go_left:
                    visit[end_visit] = left
                    prefetch(words, np.int64(left))
                    end_visit += 1
                if go_right:
                    visit[end_visit] = right
                    prefetch(words, np.int64(right))
                    end_visit += 1
        clear(first, last, event_attribute, slot_lo, slot_hi, slot_more)
        if full:
            found = before
            done[0], done[2] = e, found
            return
        done[3] += candidates
        done[4] += tests
        done[6] += end_visit
    done[0], done[2] = last_event, found


@kernel
def survey(words, state, visit):
    """C-nodes on the longest path, attributes on the longest path, rows of the largest l-node, partitioned c-nodes, and
    words in free blocks. `visit` has room for all c-nodes."""
    found = np.zeros(5, np.int64)
    visit[0, 0], visit[0, 1] = ROOT, 1
    n = 1
    while n > 0:
        n -= 1
        c, level = visit[n, 0], visit[n, 1]
        depth = 0
        part = words[c + PART]
        while part >= 0:
            depth += 1
            part = words[words[part + OWNER] + PART]
        found[0], found[1], found[2] = max(found[0], level), max(found[1], depth), max(found[2], words[c + ROWS])
        found[3] += words[c + PLACES] > 0
        for side in range(LEFT, RIGHT + 1):
            if words[c + side] >= 0:
                visit[n, 0], visit[n, 1] = words[c + side], level + 1
                n += 1
        for at in range(words[c + TABLE], words[c + TABLE] + PLACE * words[c + PLACES], PLACE):
            if words[at] >= 0:
                visit[n, 0], visit[n, 1] = words[at + 1], level + 1
                n += 1
    for k in range(CLASSES):
        at = state[LISTS + k]
        while at >= 0:
            found[4] += class_size(k)
            at = words[at]
    return found


@kernel
def pack(words, new, state, place, to_do):
    """Copies a tree to other words, whose state is `state`: each c-node followed by its l-node and p-directory, then
    what is below it. `to_do` has room for all c-nodes: (c-node, where the link to it stands, bucket above, p-node)."""
    to_do[0, 0], to_do[0, 1], to_do[0, 2], to_do[0, 3] = ROOT, -1, -1, -1
    n = 1
    while n > 0:
        n -= 1
        c, link, up, part = to_do[n, 0], to_do[n, 1], to_do[n, 2], to_do[n, 3]
        to = allocate(NODE_WORDS, new, state)
        for i in range(NODE_WORDS):
            new[to + i] = words[c + i]
        new[to + UP], new[to + PART] = up, part
        if link >= 0:
            new[link] = to
        if up < 0 and part >= 0:
            new[part + TOP] = to
        if words[c + BLOCK] >= 0:
            block = allocate(words[c + USED], new, state)
            new[to + BLOCK] = block
            for i in range(words[c + USED]):
                new[block + i] = words[words[c + BLOCK] + i]
            p = block
            while p < block + new[to + USED]:
                place[new[p], 0] = to
                p += HEAD + 3 * new[p + 2]
        if words[c + PLACES] > 0:
            table = allocate(PLACE * words[c + PLACES], new, state)
            new[to + TABLE] = table
            for i in range(PLACE * words[c + PLACES]):
                new[table + i] = words[words[c + TABLE] + i]
            for at in range(table, table + PLACE * new[to + PLACES], PLACE):
                if new[at] >= 0:
                    own = allocate(PART_WORDS, new, state)
                    for i in range(PART_WORDS):
                        new[own + i] = words[new[at + 4] + i]
                    new[own + OWNER] = to
                    to_do[n, 0], to_do[n, 1], to_do[n, 2], to_do[n, 3] = new[at + 1], at + 1, -1, own
                    new[at + 4] = own
                    n += 1
        for side in range(LEFT, RIGHT + 1):
            if words[c + side] >= 0:
                to_do[n, 0], to_do[n, 1], to_do[n, 2], to_do[n, 3] = words[c + side], to + side, to, part
                n += 1
    state[STACK] = allocate(64, new, state)
    state[SCRATCH] = allocate(64, new, state)
