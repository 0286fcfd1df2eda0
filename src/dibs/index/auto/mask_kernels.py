"""The kernels of index.masks: predicates to masks, masks to matches. See there for the idea and the arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from dibs.jit.kernel import kernel
from dibs.jit.lanes import (
    and_not,
    and_run,
    and_two,
    count_bits,
    is_empty,
    lowest_bit,
    prefetch,
    split,
)
from dibs.language.table import ACCEPT, REJECT

WORD = 64  # events of a mask word
AHEAD, LATER = 12, 4  # clauses and survivors whose masks are prefetched


class Sizes(NamedTuple):
    """Where another way begins (see dibs.thresholds)."""

    chunk: int  # survivors collected at once: at least 2
    most_spans: int  # a predicate of more spans is tested value by value
    few_events: int  # that pass an entry's tests are run through its program one by one
    small_domain: int  # cells; larger ones are searched instead of tabulated


@kernel
def _sort(items, n, key):
    """Sorts the first n items by key[item]: Shell's way. (Numba's own sort takes seconds to compile.)"""
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            x, at = items[i], i
            while at >= gap and key[items[at - gap]] > key[x]:
                items[at] = items[at - gap]
                at -= gap
            items[at] = x
        gap //= 3


@kernel
def _fill(
    lanes,
    sizes,
    first,
    plain,
    last,
    lo,
    hi,
    span_lo,
    span_hi,
    entry_event,
    entry_lo,
    entry_hi,
    n,
    valid,
    masks,
    cumulative,
    rank,
):
    """The masks of the predicates first to last of an attribute from its n entries (sorted by event). Those before
    `plain` are single spans of values; `valid` has a bit for each event of the block."""
    width = len(lanes)
    # Events with one point come first, sorted by value; the others stay behind them.
    points = 0
    present = np.zeros(width, np.uint64)
    for i in range(n):
        e = entry_event[i]
        present[e >> 6] |= np.uint64(1) << np.uint64(e & 63)
        alone = (i == 0 or entry_event[i - 1] != e) and (i + 1 == n or entry_event[i + 1] != e)
        if alone and entry_lo[i] == entry_hi[i]:
            points += 1
    order = np.empty(n, np.int32)
    at, behind = 0, points
    for i in range(n):
        e = entry_event[i]
        alone = (i == 0 or entry_event[i - 1] != e) and (i + 1 == n or entry_event[i + 1] != e)
        if alone and entry_lo[i] == entry_hi[i]:
            order[at] = i
            at += 1
        else:
            order[behind] = i
            behind += 1
    _sort(order, points, entry_lo)
    for k in range(width):
        cumulative[k] = 0
    for i in range(points):
        e = entry_event[order[i]]
        for k in range(width):
            cumulative[(i + 1) * width + k] = cumulative[i * width + k]
        cumulative[(i + 1) * width + (e >> 6)] |= np.uint64(1) << np.uint64(e & 63)
    # rank[c]: how many points lie at or below cell c; cells above the top one count as the one behind it.
    top = entry_lo[order[points - 1]] if points else 0
    tabulated = top < sizes.small_domain
    if tabulated:
        i = 0
        for c in range(top + 2):
            while i < points and entry_lo[order[i]] <= c:
                i += 1
            rank[c] = i
    if tabulated and points == n:
        lane = np.uint64(width)
        for p in range(np.uint64(first), np.uint64(plain)):
            above = np.uint64(rank[min(hi[p], top + 1)]) * lane
            below = np.uint64(rank[min(lo[p] - 1, top + 1)]) * lane
            and_not(lanes, cumulative, above, below, masks, p * lane)
        first = plain
    for p in range(first, last):
        base = p * width
        spans = 1 if hi[p] >= 0 else -hi[p]
        for k in range(width):
            masks[base + k] = 0
        if spans <= sizes.most_spans:
            for s in range(spans):
                x, y = (lo[p], hi[p]) if hi[p] >= 0 else (span_lo[lo[p] + s], span_hi[lo[p] + s])
                if x > y:
                    continue
                if x == 0:
                    for k in range(width):
                        masks[base + k] |= valid[k] & ~present[k]
                if tabulated:
                    above = rank[min(y, top + 1)]
                    below = 0 if x <= 0 else rank[min(x - 1, top + 1)]
                else:
                    above = _at_most(y, entry_lo, order, points)
                    below = _at_most(x - 1, entry_lo, order, points)
                for k in range(width):
                    masks[base + k] |= cumulative[above * width + k] & ~cumulative[below * width + k]
                for j in range(points, n):
                    i = order[j]
                    if entry_lo[i] <= y and x <= entry_hi[i]:
                        e = entry_event[i]
                        masks[base + (e >> 6)] |= np.uint64(1) << np.uint64(e & 63)
        else:
            for i in range(n):
                low, high = lo[p], lo[p] + spans  # the first span that ends at the value or later
                while low < high:
                    m = (low + high) >> 1
                    if span_hi[m] < entry_lo[i]:
                        low = m + 1
                    else:
                        high = m
                if low < lo[p] + spans and span_lo[low] <= entry_hi[i]:
                    e = entry_event[i]
                    masks[base + (e >> 6)] |= np.uint64(1) << np.uint64(e & 63)


@kernel
def _at_most(cell, entry_lo, order, points):
    a, b = 0, points
    while a < b:
        m = (a + b) >> 1
        if entry_lo[order[m]] <= cell:
            a = m + 1
        else:
            b = m
    return a


@njit(inline="always")
def _run(lanes, masks, reach, program, begin, steps, part_first, part_last):
    """Runs the events at reach[0] through a program; those that it accepts in a step of the part are then at
    reach[steps], and all else in `reach` is zero, as it was."""
    lane = np.uint64(len(lanes))
    for step in range(steps):
        inside = part_first <= step < part_last
        place = 4 * (begin + step)
        yes, no = np.int64(program[place + 1]), np.int64(program[place + 2])
        # Behind all steps those accepted, and behind them those rejected, or accepted elsewhere.
        yes = yes if yes >= 0 else steps + np.int64(yes != ACCEPT or not inside)
        no = no if no >= 0 else steps + np.int64(no != ACCEPT or not inside)
        split(
            lanes,
            masks,
            np.uint64(program[place]) * lane,
            reach,
            np.uint64(step) * lane,
            np.uint64(yes) * lane,
            np.uint64(no) * lane,
        )
    for k in range(len(lanes)):
        reach[(steps + 1) * len(lanes) + k] = 0


@kernel
def match_blocks(
    lanes,
    sizes,
    attribute,
    lo,
    hi,
    of_attribute,
    plain_of,
    group_predicate,
    group_start,
    groups_of,
    second,
    rest_start,
    rest,
    row,
    always,
    program,
    entry,
    entry_access,
    unreached,
    span_lo,
    span_hi,
    null_attributes,
    event_offsets,
    event_attribute,
    event_lo,
    event_hi,
    last_event,
    masks,
    entries_of,
    reach,
    out_event,
    out_row,
    done,
):
    width = len(lanes)
    lane = np.uint64(width)
    block = width * WORD
    true = len(lo)
    clauses, programs = len(row), unreached[0]
    chunk = np.int64(sizes.chunk)
    chosen = np.empty(chunk, np.uint32)
    survivors = np.empty(chunk * width, np.uint64)
    word = np.empty(chunk * width, np.uint64)
    word_of = np.empty(chunk * width, np.uint64)
    rank = np.empty(sizes.small_domain + 2, np.int32)
    valid = np.empty(width, np.uint64)
    found = np.int64(0)
    resume = done[1]
    start_event = done[0]
    while start_event < last_event:
        stop_event = min(start_event + block, last_event)
        # ---- the entries of the block by attribute, and the masks of their predicates
        first, last = event_offsets[start_event], event_offsets[stop_event]
        touched = np.empty(last - first + len(null_attributes), np.int32)
        n_touched = 0
        for i in range(first, last):
            a = event_attribute[i]
            if of_attribute[a + 1] > of_attribute[a]:
                if entries_of[a] == 0:
                    touched[n_touched] = a
                    n_touched += 1
                entries_of[a] += 1
        for i in range(len(null_attributes)):
            if entries_of[null_attributes[i]] == 0:
                touched[n_touched] = null_attributes[i]
                n_touched += 1
        _sort(touched, n_touched, of_attribute)  # which grows with every attribute that has predicates
        begin = np.zeros(n_touched + 1, np.int64)
        most = 0
        for t in range(n_touched):
            a = touched[t]
            begin[t + 1] = begin[t] + entries_of[a]
            most = max(most, entries_of[a])
            entries_of[a] = t
        at = begin[:-1].copy()
        entry_event, entry_lo, entry_hi = (
            np.empty(last - first, np.int32),
            np.empty(last - first, np.int32),
            np.empty(last - first, np.int32),
        )
        for e in range(start_event, stop_event):
            for i in range(event_offsets[e], event_offsets[e + 1]):
                a = event_attribute[i]
                if of_attribute[a + 1] > of_attribute[a]:
                    t = entries_of[a]
                    entry_event[at[t]], entry_lo[at[t]], entry_hi[at[t]] = e - start_event, event_lo[i], event_hi[i]
                    at[t] += 1
        cumulative = np.empty((most + 1) * width, np.uint64)
        for k in range(width):
            here = min(max(stop_event - start_event - k * WORD, 0), WORD)
            valid[k] = ~np.uint64(0) if here == WORD else (np.uint64(1) << np.uint64(here)) - np.uint64(1)
            masks[true * width + k] = valid[k]
        for t in range(n_touched):
            a = touched[t]
            entries_of[a] = 0
            x, y = begin[t], begin[t + 1]
            _fill(
                lanes,
                sizes,
                of_attribute[a],
                plain_of[a],
                of_attribute[a + 1],
                lo,
                hi,
                span_lo,
                span_hi,
                entry_event[x:y],
                entry_lo[x:y],
                entry_hi[x:y],
                y - x,
                valid,
                masks,
                cumulative,
                rank,
            )
        full = False
        # ---- conjunctions: groups of the touched attributes
        t, s = 0, np.int64(0)
        g, g_end = np.int64(0), np.int64(0)
        if resume > 0 and resume <= clauses:
            while t < n_touched and group_start[groups_of[touched[t] + 1]] <= resume:
                t += 1
        elif resume > clauses:
            t = n_touched
        if t < n_touched:
            g, g_end = groups_of[touched[t]], groups_of[touched[t] + 1]
            while g < g_end and group_start[g + 1] <= resume:
                g += 1
            s = max(resume, np.int64(group_start[g])) if g < g_end else resume
        while t < n_touched and not full:
            chunk_start = s
            count = np.uint64(0)
            while t < n_touched and count < chunk // 2:
                if g >= g_end:
                    t += 1
                    if t < n_touched:
                        g, g_end = groups_of[touched[t]], groups_of[touched[t] + 1]
                        if g < g_end:
                            s = np.int64(group_start[g])
                            if count == 0:
                                chunk_start = s
                    continue
                f = np.uint64(group_predicate[g]) * lane
                end = np.int64(group_start[g + 1])
                if is_empty(lanes, masks, f):
                    g += 1
                    s = end
                    if count == 0:
                        chunk_start = s
                    continue
                stop = min(end, s + chunk // 2)
                done[3] += stop - s
                for c in range(np.uint64(s), np.uint64(stop)):
                    prefetch(masks, np.uint64(second[c + np.uint64(AHEAD)]) * lane)
                    some = and_two(lanes, masks, f, np.uint64(second[c]) * lane, survivors, count * lane)
                    chosen[count] = c
                    count += np.uint64(some != 0)
                s = stop
                if s == end:
                    g += 1
            words = np.uint64(0)
            pairs, tested = np.int64(0), np.int64(0)
            for i in range(count):
                c = np.uint64(chosen[i])
                to = np.uint64(i) * lane
                if i + LATER < count:
                    later = np.uint64(chosen[i + LATER])
                    for q in range(np.int64(rest_start[later]), np.int64(rest_start[later + np.uint64(1)])):
                        prefetch(masks, np.uint64(rest[q]) * lane)
                    if row[later] < 0:
                        prefetch(entry, np.uint64(-8 - 8 * np.int64(row[later])))
                q, q_end = np.int64(rest_start[c]), np.int64(rest_start[c + np.uint64(1)])
                tested += q_end - q
                filled = and_run(lanes, masks, rest, q, q_end, survivors, to)
                if filled and row[c] < 0:
                    j = -1 - np.int64(row[c])
                    begin, steps = np.int64(entry[8 * j + 1]), np.int64(entry[8 * j + 2])
                    part_first, part_last = np.int64(entry[8 * j + 3]), np.int64(entry[8 * j + 4])
                    before = j - np.int64(entry[8 * j + 5])
                    bits = np.int64(0)
                    for k in range(width):
                        bits += count_bits(survivors[to + np.uint64(k)])
                    if bits <= sizes.few_events:
                        for k in range(width):
                            x = survivors[to + np.uint64(k)]
                            kept = np.uint64(0)
                            while x:
                                b = np.uint64(lowest_bit(x))
                                x &= x - np.uint64(1)
                                alone = np.uint64(1)
                                for q in range(before, j):
                                    alone &= ~(masks[np.int64(entry_access[q]) * width + k] >> b)
                                step = np.int64(0) if alone else np.int64(REJECT)
                                last_step = step
                                while step >= 0:
                                    last_step = step
                                    tested += 1
                                    at_step = 4 * (begin + step)
                                    if (masks[np.int64(program[at_step]) * width + k] >> b) & np.uint64(1):
                                        step = np.int64(program[at_step + 1])
                                    else:
                                        step = np.int64(program[at_step + 2])
                                if step == ACCEPT and part_first <= last_step < part_last:
                                    kept |= np.uint64(1) << b
                            reach[steps * width + k] = kept
                    else:
                        for k in range(width):
                            x = survivors[to + np.uint64(k)]
                            for q in range(before, j):
                                x &= ~masks[np.int64(entry_access[q]) * width + k]
                            reach[k] = x
                        _run(lanes, masks, reach, program, begin, steps, part_first, part_last)
                        tested += steps
                    filled = np.uint64(0)
                    for k in range(width):
                        x = reach[steps * width + k]
                        reach[steps * width + k] = 0
                        survivors[to + np.uint64(k)] = x
                        filled |= np.uint64(x != 0) << np.uint64(k)
                while filled:
                    k = np.uint64(lowest_bit(filled))
                    filled &= filled - np.uint64(1)
                    x = survivors[to + k]
                    word[words] = x
                    word_of[words] = (c << np.uint64(8)) | k
                    words += np.uint64(1)
                    pairs += count_bits(x)
            done[4] += tested
            if found + pairs > len(out_event):
                done[1] = chunk_start
                full = True
                break
            for i in range(words):
                x = word[i]
                r = row[word_of[i] >> np.uint64(8)]
                if r < 0:
                    r = entry[8 * (-1 - r)]
                e = start_event + WORD * np.int64(word_of[i] & np.uint64(255))
                while x:
                    out_event[found] = e + lowest_bit(x)
                    out_row[found] = r
                    found += 1
                    x &= x - np.uint64(1)
        # ---- programs that no entry leads to: run for all events
        u = max(resume - clauses - 1, np.int64(0))
        while u < programs and not full:
            begin, steps = np.int64(entry[8 * u + 1]), np.int64(entry[8 * u + 2])
            for k in range(width):
                reach[k] = valid[k]
            _run(lanes, masks, reach, program, begin, steps, np.int64(0), steps)
            accepted = np.int64(0)
            for k in range(width):
                accepted += count_bits(reach[steps * width + k])
            if found + accepted > len(out_event):
                done[1] = clauses + 1 + u
                full = True
            for k in range(width):
                x = reach[steps * width + k]
                reach[steps * width + k] = 0
                while x and not full:
                    out_event[found] = start_event + k * WORD + lowest_bit(x)
                    out_row[found] = entry[8 * u]
                    found += 1
                    x &= x - np.uint64(1)
            if not full:
                done[3] += 1
                done[4] += steps
                u += 1
        if not full:
            done[3] += len(always)
            if found + len(always) * (stop_event - start_event) > len(out_event):
                done[1] = clauses + 1 + programs
                full = True
            else:
                for i in range(len(always)):
                    for e in range(start_event, stop_event):
                        out_event[found] = e
                        out_row[found] = always[i]
                        found += 1
        # ---- leave the masks as they were found
        for t in range(n_touched):
            a = touched[t]
            for q in range(of_attribute[a] * width, of_attribute[a + 1] * width):
                masks[q] = 0
        if full:
            done[0], done[2] = start_event, found
            return
        resume = 0
        start_event = stop_event
    done[0], done[1], done[2] = last_event, 0, found
