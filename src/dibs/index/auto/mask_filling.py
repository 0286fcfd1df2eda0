"""Predicates to masks: the entries of a block by attribute, and the masks of its predicates. See index.auto.masks."""

from __future__ import annotations

import numpy as np

from dibs.index.auto.mask_layout import WORD, Block, FillSpace
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import and_not, is_empty, or_and_not

MANY = 8  # entries of an event for an attribute, on average, from which on they are searched rather than tested singly


@kernel
def _sort(items, first, last, key):
    """Sorts items[first:last] by key[item]: Shell's way. (Numba's own sort takes seconds to compile.)"""
    gap = 1
    while gap < (last - first) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(first + gap, last):
            x, at = items[i], i
            while at - gap >= first and key[items[at - gap]] > key[x]:
                items[at] = items[at - gap]
                at -= gap
            items[at] = x
        gap //= 3


@kernel
def sort_block(width, first_event, stop_event, index, null_attributes, entries_of, events):
    """The Block of these events. Leaves entries_of as it was: all zero."""
    first, last = events.offsets[first_event], events.offsets[stop_event]
    touched = np.empty(last - first + len(null_attributes), np.int32)
    n = _count_entries(first, last, touched, index, null_attributes, entries_of, events)
    _sort(touched, 0, n, index.of_attribute)  # which grows with every attribute that has predicates
    begin = np.zeros(n + 1, np.int64)
    for t in range(n):
        begin[t + 1] = begin[t] + entries_of[touched[t]]
        entries_of[touched[t]] = t
    valid = np.empty(width, np.uint64)
    for k in range(width):
        here = min(max(stop_event - first_event - k * WORD, 0), WORD)
        valid[k] = ~np.uint64(0) if here == WORD else (np.uint64(1) << np.uint64(here)) - np.uint64(1)
    event, lo, hi = np.empty(last - first, np.int32), np.empty(last - first, np.int32), np.empty(last - first, np.int32)
    block = Block(first_event, stop_event - first_event, valid, touched[:n], begin, event, lo, hi)
    _distribute(block, begin[:-1].copy(), index, entries_of, events)
    for t in range(n):
        entries_of[touched[t]] = 0
    return block


@phase(inline=False)
def _count_entries(first, last, touched, index, null_attributes, entries_of, events):
    n = 0
    for i in range(first, last):
        a = events.attribute[i]
        if index.of_attribute[a + 1] > index.of_attribute[a]:
            if entries_of[a] == 0:
                touched[n] = a
                n += 1
            entries_of[a] += 1
    for i in range(len(null_attributes)):
        if entries_of[null_attributes[i]] == 0:
            touched[n] = null_attributes[i]
            n += 1
    return n


@phase(inline=False)
def _distribute(block, at, index, entries_of, events):
    """The entries to their attributes; at: where the next one of each stands."""
    for e in range(block.events):
        for i in range(events.offsets[block.first_event + e], events.offsets[block.first_event + e + 1]):
            a = events.attribute[i]
            if index.of_attribute[a + 1] > index.of_attribute[a]:
                t = entries_of[a]
                block.event[at[t]], block.lo[at[t]], block.hi[at[t]] = e, events.lo[i], events.hi[i]
                at[t] += 1


@kernel
def fill_masks(lanes, sizes, block, index, spans, masks, written, rank):
    """The masks, all zero before, of the predicates on the block's attributes, and the one that is true. Returns how
    many are no longer zero: they are listed in `written`."""
    width, most, n = len(lanes), 0, np.uint64(0)
    for t in range(len(block.attributes)):
        most = max(most, block.begin[t + 1] - block.begin[t])
    space = FillSpace(
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty(width, np.uint64),
        np.empty((most + 1) * width, np.uint64),
        written,
        rank,
    )
    for k in range(width):
        masks[len(index.lo) * width + k] = block.valid[k]
    for t in range(len(block.attributes)):
        n = _fill_attribute(lanes, sizes, t, n, block, index, spans, masks, space)
    return n


@phase(inline=False)
def _fill_attribute(lanes, sizes, t, n, block, index, spans, masks, space):
    """n: masks written so far. Returns how many they are then."""
    a, entries = block.attributes[t], block.begin[t + 1] - block.begin[t]
    first, last = index.of_attribute[a], index.of_attribute[a + 1]
    points, top = _part_entries(len(lanes), block.begin[t], block.begin[t + 1], block, space)
    tabulated = top < cells_to_tabulate(sizes.small_domain, last - first, points) and top + 3 <= len(space.rank)
    if tabulated:
        _sort_by_cell(points, top, block, space)
    else:
        _sort(space.order, 0, points, block.lo)
    _cumulate(len(lanes), points, block, space)
    runs = _part_events(points, entries, block, space)
    if tabulated and points == entries:
        n = _fill_plain(lanes, first, index.plain_of[a], top, n, index, masks, space)
        first = index.plain_of[a]
    for p in range(first, last):
        lo, hi = index.lo[p], index.hi[p]
        count = 1 if hi >= 0 else -hi
        base = p * len(lanes)
        if count > sizes.most_spans:
            _fill_by_values(base, lo, count, points if runs else entries, block, spans, masks, space)
            _fill_by_runs(base, (lo, count), (points, runs, entries), block, spans, masks, space)
        for s in range(count if count <= sizes.most_spans else 0):
            x, y = (lo, hi) if hi >= 0 else (spans.lo[lo + s], spans.hi[lo + s])
            if x <= y:
                above, below = _ranks(x, y, points, top, tabulated, block, space)
                if above > below:
                    or_and_not(lanes, space.cumulative, above * len(lanes), below * len(lanes), masks, base)
                if x == 0:
                    _add_absent(len(lanes), base, block, masks, space)
                if runs:
                    _add_runs(base, x, y, points, runs, entries, block, masks, space)
                elif points < entries:
                    _add_others(base, x, y, points, entries, block, masks, space)
        space.written[n] = p
        n += np.uint64(not is_empty(lanes, masks, np.uint64(base)))
    return n


@kernel
def cells_to_tabulate(small_domain, predicates, points):
    """A domain of fewer cells is tabulated: a cell costs less than a step of a search, of which each predicate would
    make one for each bit of the number of points."""
    steps = 1
    while points >> steps > 0:
        steps += 1
    return max(small_domain, predicates * steps)


@kernel(inline="always")
def _add_event(masks, base, e):
    masks[base + (e >> 6)] |= np.uint64(1) << np.uint64(e & 63)


@kernel(inline="always")
def _is_point(i, first, last, block):
    """Whether the entry is all that its event has for the attribute, and one cell."""
    e = block.event[i]
    alone = (i == first or block.event[i - 1] != e) and (i + 1 == last or block.event[i + 1] != e)
    return alone and block.lo[i] == block.hi[i]


@phase(inline=False)
def _part_entries(width, first, last, block, space):
    """Points come first, the other entries stay behind them. Returns how many are points, and their highest cell."""
    for k in range(width):
        space.present[k] = 0
    points, top = 0, np.int32(0)
    for i in range(first, last):
        _add_event(space.present, 0, block.event[i])
        if _is_point(i, first, last, block):
            points += 1
            top = max(top, block.lo[i])
    at, behind = 0, points
    for i in range(first, last):
        if points == last - first or _is_point(i, first, last, block):
            space.order[at] = i
            at += 1
        else:
            space.order[behind] = i
            behind += 1
    return points, top


@phase(inline=False)
def _part_events(points, entries, block, space):
    """How many events the entries behind the points are of, if these are many for each: runs, which begin at the
    places space.behind[points:] of space.order. Else 0. The last cells of a run grow then, as the first ones do (see
    index.kernels.lay_out)."""
    runs = 0
    for j in range(points, entries):
        i = space.order[j]
        if j == points or block.event[i] != block.event[i - 1]:
            space.behind[points + runs] = j
            runs += 1
        elif block.hi[i] < block.hi[i - 1]:
            block.hi[i] = block.hi[i - 1]
    return runs if entries - points > MANY * runs else 0


@phase(inline=False)
def _sort_by_cell(points, top, block, space):
    """Puts the points in the order of their cells, and tabulates the ranks of the cells to the top one; those above it
    count as the one behind it."""
    rank, cells = space.rank, np.int64(top) + 2
    for c in range(cells + 1):
        rank[c] = 0
    for i in range(points):
        space.behind[i] = space.order[i]
        rank[block.lo[space.order[i]] + 1] += 1
    for c in range(cells):
        rank[c + 1] += rank[c]
    # rank[c] is now where the first point of cell c goes, and, when all have their places, the rank of c.
    for i in range(points):
        cell = block.lo[space.behind[i]]
        space.order[rank[cell]] = space.behind[i]
        rank[cell] += 1


@phase(inline=False)
def _cumulate(width, points, block, space):
    for k in range(width):
        space.cumulative[k] = 0
    for i in range(points):
        for k in range(width):
            space.cumulative[(i + 1) * width + k] = space.cumulative[i * width + k]
        _add_event(space.cumulative, (i + 1) * width, block.event[space.order[i]])


@phase(inline=False)
def _fill_plain(lanes, first, last, top, n, index, masks, space):
    """Predicates of one span of values, where all entries are points: two look-ups and an and-not. Returns how many
    masks are written then."""
    lane = np.uint64(len(lanes))
    for p in range(np.uint64(first), np.uint64(last)):
        above = np.uint64(space.rank[min(index.hi[p], top + 1)]) * lane
        below = np.uint64(space.rank[min(index.lo[p] - 1, top + 1)]) * lane
        if above != below:
            and_not(lanes, space.cumulative, above, below, masks, p * lane)
            space.written[n] = p
            n += np.uint64(1)
    return n


@kernel(inline="always")
def _ranks(x, y, points, top, tabulated, block, space):
    """How many points lie at or below the cell y, and how many below x."""
    if tabulated:
        above = np.int64(space.rank[min(y, top + 1)])
        below = np.int64(0 if x <= 0 else space.rank[min(x - 1, top + 1)])
    else:
        above = _at_most(y, points, block, space)
        below = _at_most(x - 1, points, block, space)
    return above, below


@phase(inline=False)
def _at_most(cell, points, block, space):
    a, b = np.int64(0), np.int64(points)
    while a < b:
        m = (a + b) >> 1
        if block.lo[space.order[m]] <= cell:
            a = m + 1
        else:
            b = m
    return a


@kernel(inline="always")
def _add_absent(width, base, block, masks, space):
    """The events without the attribute: for a span that starts at the cell of no value."""
    for k in range(width):
        masks[base + k] |= block.valid[k] & ~space.present[k]


@kernel(inline="always")
def _add_others(base, x, y, points, entries, block, masks, space):
    """The entries that are no points, one by one."""
    for j in range(points, entries):
        i = space.order[j]
        if block.lo[i] <= y and x <= block.hi[i]:
            _add_event(masks, base, block.event[i])


@phase(inline=False)
def _add_runs(base, x, y, points, runs, entries, block, masks, space):
    """The events of which an entry meets the cells x to y, by their runs."""
    for r in range(points, points + runs):
        first, last = _entries_of_run(r, points + runs, entries, space)
        if _meets_run(x, y, first, last, block):
            _add_event(masks, base, block.event[first])


@phase
def _entries_of_run(r, runs_end, entries, space):
    """From where to where. They stand one behind the other; between those of two runs there may be points of other
    events."""
    end = space.behind[r + 1] if r + 1 < runs_end else entries
    return space.order[space.behind[r]], space.order[end - 1] + 1


@phase
def _meets_run(x, y, first, last, block):
    a, b = first, last  # the first entry that ends at x or later
    while a < b:
        m = (a + b) >> 1
        if block.hi[m] < x:
            a = m + 1
        else:
            b = m
    return a < last and block.lo[a] <= y


@phase(inline=False)
def _fill_by_runs(base, listed, parts, block, spans, masks, space):
    """A predicate of many spans (listed: the first of them, and how many): each run looks for its entries among the
    spans, or for the spans among its entries, whichever are fewer. parts: points, runs, all entries."""
    first_span, count = listed
    points, runs, entries = parts
    for r in range(points, points + runs):
        first, last = _entries_of_run(r, points + runs, entries, space)
        found = False
        if count < last - first:
            s = first_span
            while not found and s < first_span + count:
                found = _meets_run(spans.lo[s], spans.hi[s], first, last, block)
                s += 1
        else:
            i = first
            while not found and i < last:
                found = _meets_span(first_span, count, i, block, spans)
                i += 1
        if found:
            _add_event(masks, base, block.event[first])


@phase(inline=False)
def _fill_by_values(base, first_span, count, entries, block, spans, masks, space):
    """A predicate of many spans, for the first entries in space.order."""
    for j in range(entries):
        i = space.order[j]
        if _meets_span(first_span, count, i, block, spans):
            _add_event(masks, base, block.event[i])


@phase
def _meets_span(first_span, count, i, block, spans):
    """Whether entry i meets one of the spans: the first that ends at its value or later."""
    a, b = first_span, first_span + count
    while a < b:
        m = (a + b) >> 1
        if spans.hi[m] < block.lo[i]:
            a = m + 1
        else:
            b = m
    return a < first_span + count and spans.lo[a] <= block.hi[i]
