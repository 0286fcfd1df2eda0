"""The compiled parts of index.gryphon, whose docstring says what the arrays hold."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch

AHEAD, LINES, TAIL_LINES = 8, 8, 2  # the node or tail after so many others is asked for, so many cache lines of it
LAST = np.int32(2**31 - 1)  # above every level


@kernel
def write_tails(start, row, skip, offsets, number, level, lo, hi, tails):
    """Tail i begins at start[i] and has the predicates of row[i] from the skip[i]-th on; number: the predicates of
    each row in order of their levels, which level, lo and hi are about."""
    for i in range(len(start)):
        at, first, last = start[i], offsets[row[i]] + skip[i], offsets[row[i] + 1]
        tails[at], tails[at + 1] = row[i], last - first
        at += 2
        for q in range(first, max(last, first + 2)):
            tails[at], tails[at + 1], tails[at + 2] = 0, 0, -1
            if q < last:
                p = number[q]
                tails[at], tails[at + 1], tails[at + 2] = level[p], lo[p], hi[p]
            at += 3


@kernel
def write_directories(tree, node, levels, few):
    """The directories of the nodes, which the nodes are told of; node: where each of them stands, the root first; few:
    edges of a node that has none."""
    room = levels + 1
    for t in node[1:]:
        if tree[t, 0] > few:
            room += tree[t, 0] + 2
    entry = np.empty((room, 3), np.int32)
    n = 0
    for t in node:
        x, end = t + 1, t + 1 + tree[t, 0]
        if t == 0:
            tree[t, 3] = 0
            for k in range(levels + 1):
                while x < end and tree[x, 0] < k:
                    x += 1
                wide = x
                while wide < end and tree[wide, 0] == k and tree[wide, 1] == tree[wide, 2]:
                    wide += 1
                entry[k, 0], entry[k, 1], entry[k, 2] = k, x, wide
            n = levels + 1
        elif tree[t, 0] <= few:
            tree[t, 3] = -1
        else:
            tree[t, 3], count = n, n
            n += 1
            while x < end:
                k, wide = tree[x, 0], x
                while wide < end and tree[wide, 0] == k and tree[wide, 1] == tree[wide, 2]:
                    wide += 1
                entry[n, 0], entry[n, 1], entry[n, 2] = k, x, wide
                n += 1
                x = wide
                while x < end and tree[x, 0] == k:
                    x += 1
            entry[n, 0], entry[n, 1], entry[n, 2] = LAST, end, end
            entry[count, 0], entry[count, 1], entry[count, 2] = n - count - 1, 0, 0
            n += 1
    return entry[:n].copy()


@kernel
def match_events(
    level,
    tree,
    reach,
    entry,
    tails,
    rows,
    block,
    span_lo,
    span_hi,
    event_offsets,
    event_attribute,
    event_cell,
    last_event,
    slot,
    queue,
    out_event,
    out_row,
    done,
):
    """Stops between events: one whose pairs do not fit into the room is begun again in a larger one."""
    two, five = np.uint64(2), np.uint64(5)
    flat = tree.reshape(-1)
    found = 0
    for e in range(done[0], last_event):
        first, last = event_offsets[e], event_offsets[e + 1]
        for i in range(first, last):
            slot[level[event_attribute[i]]] = event_cell[i]
        candidates, compared, before, full = 0, 0, found, False
        queue[0] = 0
        head, n = 0, 1
        while head < n:
            t = np.int64(queue[head])
            head += 1
            if head + AHEAD < n:
                # One of the two is about place 0, which is in the cache: cheaper than a branch on which one.
                ahead = np.int64(queue[head + AHEAD])
                for line in range(LINES):
                    prefetch(tree, 4 * max(ahead, 0) + 16 * line)
                for line in range(TAIL_LINES):
                    prefetch(tails, max(-1 - ahead, 0) + 16 * line)
            if t < 0:
                candidates += 1
                # The first two tests without a branch between them: that both hold is rare enough to be predicted.
                u = np.uint64(-1 - t)
                v, w = slot[np.uint64(tails[u + two])], slot[np.uint64(tails[u + five])]
                low, high = tails[u + np.uint64(3)], tails[u + np.uint64(4)]
                maybe = ((low <= v) & (v <= high)) | (high < 0)
                low, high = tails[u + np.uint64(6)], tails[u + np.uint64(7)]
                if not (maybe & (((low <= w) & (w <= high)) | (high < 0))):
                    compared += 2
                    continue
                at = -1 - t
                q, end = at + 2, at + 2 + 3 * np.int64(tails[at + 1])
                while q < end:
                    v, low, high = slot[tails[q]], tails[q + 1], tails[q + 2]
                    compared += 1
                    if high < 0:
                        s, size, stop = np.int64(low), np.int64(-high), np.int64(low - high)
                        while size > 0:  # the first span that ends at the value or later
                            half = size >> 1
                            below = span_hi[s + half] < v
                            s = s + half + 1 if below else s
                            size = size - half - 1 if below else half
                        if s == stop or span_lo[s] > v:
                            break
                    elif v < low or v > high:
                        break
                    q += 3
                if q == end:
                    if found == len(out_event):
                        full = True
                        break
                    out_event[found] = e
                    out_row[found] = tails[at]
                    found += 1
                continue
            count = np.int64(tree[t, 2])
            if count > 0:
                candidates += count
                if found + count > len(out_event):
                    full = True
                    break
                for r in range(np.int64(tree[t, 1]), np.int64(tree[t, 1]) + count):
                    out_event[found] = e
                    out_row[found] = rows[r]
                    found += 1
            directory = np.int64(tree[t, 3])
            if directory < 0:
                compared += np.int64(tree[t, 0])
                x, stop, u = np.uint64(4 * t + 4), np.uint64(4 * (t + 1 + tree[t, 0])), np.uint64(n)
                while x < stop:
                    v = slot[np.uint64(flat[x])]
                    queue[u] = flat[x + np.uint64(3)]
                    u += np.uint64((flat[x + np.uint64(1)] <= v) & (v <= flat[x + two]))
                    x += np.uint64(4)
                n = np.int64(u)
                continue
            # The entries of the directory that the event has a value for: looked for on the shorter side.
            levels = np.int64(len(level)) if t == 0 else np.int64(entry[directory, 0])
            by_entry = levels <= last - first
            for i in range(levels if by_entry else last - first):
                if by_entry:
                    d = directory + i + (t != 0)
                    v = slot[entry[d, 0]]
                    if v == 0:
                        continue
                else:
                    k, v = level[event_attribute[first + i]], event_cell[first + i]
                    d = np.int64(k)
                    if t != 0:
                        d, size = directory + 1, levels
                        while size > 0:
                            half = size >> 1
                            below = entry[d + half, 0] < k
                            d = d + half + 1 if below else d
                            size = size - half - 1 if below else half
                        if entry[d, 0] != k:
                            continue
                x, wide, end = np.int64(entry[d, 1]), np.int64(entry[d, 2]), np.int64(entry[d + 1, 1])
                size = wide - x
                while size > 0:
                    half = size >> 1
                    below = tree[x + half, 1] < v
                    x = x + half + 1 if below else x
                    size = size - half - 1 if below else half
                while x < wide and tree[x, 1] == v:
                    queue[n] = tree[x, 3]
                    n += 1
                    compared += 1
                    x += 1
                x = wide
                while x < end and tree[x, 1] <= v:
                    if reach[x // block] < v:
                        x = (x // block + 1) * block
                        continue
                    stop = min(end, (x // block + 1) * block)
                    while x < stop and tree[x, 1] <= v:
                        queue[n] = tree[x, 3]
                        n += v <= tree[x, 2]
                        compared += 1
                        x += 1
        for i in range(first, last):
            slot[level[event_attribute[i]]] = 0
        if full:
            found = before
            done[0] = e
            break
        done[0] = e + 1
        done[3] += candidates
        done[4] += compared
        done[6] += n
    done[2] = found
