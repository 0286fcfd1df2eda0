"""What the trees of all attributes found, combined: which profiles have all their predicates satisfied.

Tatbul (2001) ANDs bit vectors in which profiles without a predicate on the attribute have a 1: the vectors of all
attributes, those that the event lacks included, each as long as there are profiles. With thousands of attributes that
is (attributes) x (profiles) bits of mostly "does not care". So only predicates that hold are represented, and they are
counted: a profile is in the AND of all vectors when as many of its predicates hold as it has. What makes it fast:

    places     profiles are numbered by pivot predicate (index.intervals), and those whose pivot predicate fails are
               ruled out first, block by block, as an AND passes over empty words
    stretches  the blocks that are left are a few runs: only their counters are set to zero, and they are compared with
               the sizes many at a time
    no branch  depends on single places where predicates are counted: what is ruled out counts 0, it is not jumped over
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.papers.tatbul.bit_vectors import MEMBER, MEMBERS, NONE, OWN, OWN_END, RANK, WORD
from dibs.jit.kernel import kernel
from dibs.jit.lanes import lowest_bit, prefetch
from dibs.jit.pools import Space

CHUNK = 64  # counters that are compared at a time
AHEAD = 8  # rows to be verified are asked for before it is their turn


class Found(NamedTuple):
    """What the trees found for some events. Entry i of the events (from the first event's first on) has slot[i] of its
    attribute's bit vectors, or NONE, or NONE - n if it has n runs. Event e has the runs start[e]:start[e + 1], those of
    its entries in order, each of length[r] places from entries[first[r]] on; a negative length takes places away."""

    slot: NDArray[np.int32]
    start: NDArray[np.int64]  # events + 1
    first: NDArray[np.int64]
    length: NDArray[np.int32]
    evaluations: NDArray[np.int64]  # by event
    nodes: NDArray[np.int64]  # by event


def room_for(events: int, entries: int, runs: int) -> Found:
    """Nothing found so far; `runs` is how many there are at most."""
    return Found(
        np.full(entries, NONE, np.int32),
        np.zeros(events + 1, np.int64),
        np.empty(runs, np.int64),
        np.empty(runs, np.int32),
        np.zeros(events, np.int64),
        np.zeros(events, np.int64),
    )


def work_space(size: NDArray[Any], attributes: int, block_bits: int) -> Space:
    """Counters by place, as large as whole blocks; whether a block is alive; the stretches of alive blocks; the rows
    that are left; the event's cells by attribute. Between calls no block is alive and all cells are zero."""
    blocks = (len(size) >> block_bits) + 1
    return (
        np.zeros(blocks << block_bits, size.dtype),
        np.zeros(blocks, np.uint8),
        np.empty((blocks, 2), np.int32),
        np.empty(len(size) + 1, np.int32),
        np.zeros(attributes, np.int32),
    )


@kernel
def combine(
    row,
    size,
    group,
    entries,
    block_bits,
    table,
    members,
    words,
    rank,
    ordered,
    verifies,
    offsets,
    attribute,
    lo,
    hi,
    span_lo,
    span_hi,
    event_offsets,
    event_attribute,
    event_cell,
    slot,
    run_start,
    run_first,
    run_length,
    evaluations,
    nodes,
    first_event,
    last_event,
    count,
    alive,
    stretch,
    left,
    cell,
    out_event,
    out_row,
    done,
):
    """The events from done[0] on, until the room is full. An event for which there is no room is begun again from the
    start the next time, so its work is only counted when it is done."""
    block, one = np.uint64(block_bits), np.uint64(1)
    places = len(size)
    entry = event_offsets[first_event]
    found = done[2]
    for e in range(done[0], last_event):
        begin, end = event_offsets[e], event_offsets[e + 1]

        # Which blocks have a place whose pivot predicate holds (or might, where looking through costs more than it
        # saves: small attributes, and long runs that are not sorted).
        n, stretches = e - first_event, np.int64(0)
        next_run = run_start[n]
        for i in range(begin, end):
            a, s = event_attribute[i], np.int64(slot[i - entry])
            first_run, next_run = next_run, next_run + max(NONE - s, 0)
            if s == NONE or group[a] == group[a + 1]:
                continue
            x, y = group[a] >> block_bits, ((group[a + 1] - 1) >> block_bits) + 1
            if s < NONE and ordered:
                for r in range(first_run, next_run):
                    at, top = run_first[r], run_first[r] + run_length[r]
                    after = top
                    while at < after:
                        m = (at + after) >> 1
                        if entries[m] < group[a]:
                            at = m + 1
                        else:
                            after = m
                    while at < top and entries[at] < group[a + 1]:
                        alive[entries[at] >> block_bits] = 1
                        at += 1
            elif s < NONE:
                length = np.int64(0)
                for r in range(first_run, next_run):
                    length += max(run_length[r], 0)
                if length < group[a + 1] - group[a]:
                    for r in range(first_run, next_run):
                        for k in range(run_first[r], run_first[r] + run_length[r]):
                            alive[entries[k] >> block_bits] |= group[a] <= entries[k] < group[a + 1]
                else:
                    for b in range(x, y):
                        alive[b] = 1
            elif table[a, RANK] < 0:
                for b in range(x, y):
                    alive[b] = 1
            else:
                at = table[a, WORD] + s * ((table[a, MEMBERS] + 63) >> 6)
                own, after, member = table[a, OWN], table[a, OWN_END], table[a, MEMBER]
                for w in range(own >> 6, ((after - 1) >> 6) + 1):
                    bits = words[at + w]
                    while bits != 0:
                        m = (w << 6) + lowest_bit(bits)
                        bits &= bits - one
                        if own <= m < after:
                            alive[members[member + m] >> block_bits] = 1
            # Groups come in order, so stretches do; the last block of a group may be the first of the next.
            if stretches > 0:
                x = max(x, np.int64(stretch[stretches - 1, 1]))
            for b in range(x, y):
                if alive[b] == 0:
                    continue
                if stretches > 0 and stretch[stretches - 1, 1] == b:
                    stretch[stretches - 1, 1] = b + 1
                else:
                    stretch[stretches, 0], stretch[stretches, 1] = b, b + 1
                    stretches += 1
        for k in range(stretches):
            for p in range(np.int64(stretch[k, 0]) << block_bits, np.int64(stretch[k, 1]) << block_bits):
                count[p] = 0

        for i in range(begin, end):
            a, s = event_attribute[i], np.int64(slot[i - entry])
            if s < 0 or stretches == 0:
                continue
            width, member = (table[a, MEMBERS] + 63) >> 6, table[a, MEMBER]
            at, ranks = table[a, WORD] + s * width, table[a, RANK]
            if ranks < 0:
                if i + 1 < end and slot[i + 1 - entry] >= 0:
                    b, k = event_attribute[i + 1], np.int64(slot[i + 1 - entry])
                    prefetch(words, table[b, WORD] + k * ((table[b, MEMBERS] + 63) >> 6))
                    prefetch(members, table[b, MEMBER])
                    prefetch(members, table[b, MEMBER] + 16)
                for w in range(width):
                    bits = words[at + w]
                    while bits != 0:
                        p = np.uint64(members[member + (w << 6) + lowest_bit(bits)])
                        bits &= bits - one
                        count[p] += alive[p >> block]
                continue
            for k in range(stretches):
                x, y = rank[ranks + stretch[k, 0]], rank[ranks + stretch[k, 1]]
                for w in range(x >> 6, ((y - 1) >> 6) + 1):
                    bits = words[at + w]
                    if w == x >> 6:
                        bits &= ~np.uint64(0) << np.uint64(x & 63)
                    if w == y >> 6:
                        bits &= (one << np.uint64(y & 63)) - one
                    while bits != 0:
                        p = np.uint64(members[member + (w << 6) + lowest_bit(bits)])
                        bits &= bits - one
                        count[p] += 1

        for r in range(run_start[n], run_start[n + 1]):
            if stretches == 0:
                break
            x = run_first[r]
            if r + 1 < run_start[n + 1]:
                prefetch(entries, run_first[r + 1])
            if ordered:
                for i in range(x, x + run_length[r]):
                    p = np.uint64(entries[i])
                    if alive[p >> block] != 0:  # mostly not, and neighbours are alike
                        count[p] += 1
            elif run_length[r] >= 0:
                for i in range(x, x + run_length[r]):
                    p = np.uint64(entries[i])
                    count[p] += alive[p >> block]
            else:
                for i in range(x, x - run_length[r]):
                    p = np.uint64(entries[i])
                    count[p] -= alive[p >> block]

        candidates, tested, remain = np.int64(0), np.int64(0), np.int64(0)
        for k in range(stretches):
            x, top = np.int64(stretch[k, 0]) << block_bits, min(np.int64(stretch[k, 1]) << block_bits, places)
            for b in range(stretch[k, 0], stretch[k, 1]):
                alive[b] = 0
            candidates += top - x
            while x < top:
                after = min(x + CHUNK, top)
                some = False
                for p in range(x, after):
                    some |= count[p] == size[p]
                if some:
                    for p in range(x, after):
                        left[remain] = row[p]
                        remain += count[p] == size[p]
                x = after

        if verifies:
            for i in range(begin, end):
                cell[event_attribute[i]] = event_cell[i]
            held = np.int64(0)
            for i in range(remain):
                r = left[i]
                if i + 2 * AHEAD < remain:
                    prefetch(offsets, left[i + 2 * AHEAD])
                if i + AHEAD < remain:
                    q = offsets[left[i + AHEAD]]
                    prefetch(attribute, q)
                    prefetch(lo, q)
                    prefetch(hi, q)
                ok = True
                for q in range(offsets[r], offsets[r + 1]):
                    v = cell[attribute[q]]
                    tested += 1
                    if hi[q] >= 0:
                        ok = lo[q] <= v <= hi[q]
                    else:
                        ok = False
                        for s in range(lo[q], lo[q] - hi[q]):
                            ok |= span_lo[s] <= v <= span_hi[s]
                    if not ok:
                        break
                left[held] = r
                held += ok
            remain = held
            for i in range(begin, end):
                cell[event_attribute[i]] = 0

        if found + remain > len(out_event):
            break
        for i in range(remain):
            out_event[found + i] = e
            out_row[found + i] = left[i]
        found += remain
        done[0] = e + 1
        done[3] += candidates
        done[4] += tested + evaluations[n]
        done[6] += nodes[n]
    done[2] = found
