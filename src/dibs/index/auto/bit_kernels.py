"""Matching in two phases: all predicates, then the clauses that a satisfied one gives access to."""

from __future__ import annotations

import numpy as np

from dibs.index.auto.bit_layout import (
    CEILING,
    COLUMNS,
    EQ,
    FIRST_SPAN,
    FLOOR,
    GE,
    LE,
    PLACE_BITS,
    SPANS,
    Clusters,
    ClusterSpace,
    Predicates,
)
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES, EventArrays, Room
from dibs.index.kernels import meets_entries
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import count_bits, lowest_bit, prefetch

LINE = 16  # int32 in a cache line
SPANS_AHEAD = 256  # of the next attribute, so many spans are asked for
MANY = 64  # entries of one attribute that are tested together
AHEAD, LINES = 16, 4  # the clusters of the access predicate after so many are asked for, so many cache lines

ONE, SIX, LOW_SIX = np.uint64(1), np.uint64(6), np.uint64(63)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
CLAUSES_AT, PLACE = np.uint64(PLACE_BITS), np.uint64((1 << PLACE_BITS) - 1)  # the parts of a survivor: ClusterSpace


@kernel
def match(predicates, clusters, events, last_event, work, room, progress):
    """Stops between events: one whose pairs do not fit into the room is begun again in a larger one. (The groups come
    as plain tuples: for a call from Python that is half the price of named ones, which tells where events come one by
    one.)"""
    predicates, clusters, events = Predicates(*predicates), Clusters(*clusters), EventArrays(*events)
    work, room = ClusterSpace(*work), Room(*room)
    progress[PAIRS] = 0
    match_events(predicates, clusters, events, last_event, work, room, progress)


@phase(inline=False)
def match_events(predicates, clusters, events, last_event, work, room, progress):
    """Goes on where `progress` says (PAIRS: where the next pair goes)."""
    found = progress[PAIRS]
    for e in range(progress[NEXT_EVENT], last_event):
        first, last = events.offsets[e], events.offsets[e + 1]
        _test_predicates(predicates, events, first, last, work.bits)
        satisfied, hits = _find_access_predicates(predicates, clusters, events, first, last, work)
        candidates, kept = _test_two_predicates(clusters, hits, work)
        full = found + kept > len(room.event)
        tested = 0
        if not full:
            found, tested = _test_other_predicates(clusters, kept, work, e, found, room)
        _clear(predicates, events, first, last, work.bits)
        if full:
            break
        progress[NEXT_EVENT] = e + 1
        progress[CANDIDATES] += candidates
        progress[PREDICATES] += satisfied + 2 * candidates + tested
        progress[NODES] += hits
    progress[PAIRS] = found


# ---- the first phase: the bits of the satisfied predicates ----


@phase
def _test_predicates(predicates, events, first, last, bits):
    """The bits of all predicates that the entries first to last of the events satisfy. Several entries of an attribute,
    and those of several cells, are alternatives: what one of them satisfies is satisfied."""
    for i in range(first, last):
        prefetch(predicates.groups, events.attribute[i] * COLUMNS)
    tested = first
    for i in range(first, last):
        if i < tested:
            continue
        a, low, high = events.attribute[i], events.lo[i], events.hi[i]
        if i + MANY <= last and events.attribute[i + MANY - 1] == a:
            tested = _test_many(predicates, a, events, i, last, bits)
            continue
        if i + 1 < last:
            _ask_for(predicates, events.attribute[i + 1])
        for g in range(SPANS):
            _test_group(predicates, a, g, low, high, bits)
        _test_spans(predicates, a, low, high, bits)


@phase(inline=False)
def _test_many(predicates, a, events, first, last, bits):
    """The same for all entries of attribute a, from the first one on, where they are many: each predicate is looked at
    once. Returns where they end."""
    groups, key = predicates.groups, predicates.key
    begin, end, span = groups[a, EQ], groups[a, EQ + 1], groups[a, FIRST_SPAN]
    low, high = np.int64(2**31), np.int64(-1)  # of what lies between floor and ceiling: none so far
    i = first
    while i < last and events.attribute[i] == a:
        if i > first and events.hi[i] < events.hi[i - 1]:
            events.hi[i] = events.hi[i - 1]  # see index.kernels.lay_out
        x, y = max(events.lo[i], groups[a, FLOOR]), min(events.hi[i], groups[a, CEILING])
        if x <= y:
            low, high = min(low, np.int64(x)), max(high, np.int64(y))
        begin = _first_at_least(key, begin, end, events.lo[i])
        after = _first_at_least(key, begin, end, events.hi[i] + 1)
        _set_run(bits, begin, after)
        begin = after
        i += 1
    for g in range(LE, SPANS):  # what the outermost cells say, and that there are two of them
        if low <= high:
            _test_group(predicates, a, g, low, high, bits)
    for s in range(span, groups[a + 1, FIRST_SPAN]):
        p = predicates.span_predicate[s]
        holds = meets_entries(predicates.span_begin[s], predicates.span_end[s], first, i, events)
        bits[p >> 6] |= np.uint64(holds) << np.uint64(p & 63)
    return i


@phase
def _ask_for(predicates, a):
    """Asks for the constants and the first spans of attribute a."""
    groups = predicates.groups
    p, end = groups[a, EQ], groups[a, SPANS]
    while p < end:
        prefetch(predicates.key, p)
        p += LINE
    s, end = groups[a, FIRST_SPAN], min(groups[a + 1, FIRST_SPAN], groups[a, FIRST_SPAN] + SPANS_AHEAD)
    while s < end:
        prefetch(predicates.span_begin, s)
        prefetch(predicates.span_end, s)
        prefetch(predicates.span_predicate, s)
        s += LINE


@phase
def _test_group(predicates, a, g, low, high, bits):
    """A sorted group of attribute a: a run of its predicates holds, and of NE two."""
    groups, key = predicates.groups, predicates.key
    begin, end = groups[a, g], groups[a, g + 1]
    if begin == end:
        return
    if g != EQ:
        low, high = max(low, groups[a, FLOOR]), min(high, groups[a, CEILING])
        if low > high:
            return
    first = _first_at_least(key, begin, end, low)
    if low == high:
        after = first + np.int64(first < end and key[first] == low)
    else:
        after = _first_at_least(key, first, end, high + 1)
    if g == EQ:
        _set_run(bits, first, after)
    elif g == LE:
        _set_run(bits, first, end)
    elif g == GE:
        _set_run(bits, begin, after)
    else:  # NE: of several cells one is another than the constant, whatever that is
        _set_run(bits, begin, first if low == high else end)
        _set_run(bits, after, end)


@phase
def _first_at_least(key, begin, end, cell):
    """The first predicate whose constant is not below the cell."""
    n = end - begin
    while n > 0:
        half = n >> 1
        below = key[begin + half] < cell
        begin = begin + half + 1 if below else begin
        n = n - half - 1 if below else half
    return begin


@phase
def _set_run(bits, begin, end):
    """The bits from begin to end (not included)."""
    if begin < end:
        w, last = begin >> 6, (end - 1) >> 6
        mask = ALL << np.uint64(begin & 63)
        while w < last:
            bits[w] |= mask
            mask = ALL
            w += 1
        bits[w] |= mask & (ALL >> np.uint64(63 - ((end - 1) & 63)))


@phase
def _test_spans(predicates, a, low, high, bits):
    """The other predicates of attribute a: those of which a span begins at `high` or before, and ends at `low` or
    behind."""
    span_begin, span_end = predicates.span_begin, predicates.span_end
    s, end = predicates.groups[a, FIRST_SPAN], predicates.groups[a + 1, FIRST_SPAN]
    while s < end and span_begin[s] <= high:
        after = ((s >> 6) + 1) << 6  # the next 64
        if predicates.span_reach[s >> 6] < low:
            s = after
            continue
        stop = min(end, after)
        while s < stop and span_begin[s] <= high:
            p = predicates.span_predicate[s]
            bits[p >> 6] |= np.uint64(span_end[s] >= low) << np.uint64(p & 63)
            s += 1


@phase
def _words_of(groups, a):
    """The words with the bits of attribute a: first, and one past the last; none if it has no predicates."""
    p, q = groups[a, EQ], groups[a + 1, EQ]
    w = p >> 6
    return w, ((q - 1) >> 6) + 1 if p < q else w


@phase
def _find_access_predicates(predicates, clusters, events, first, last, work):
    """How many predicates hold, and how many of them give access: work.hits. Attributes share words at their ends, so
    each word is looked at once."""
    bits, access, hits = work.bits, clusters.access, work.hits
    satisfied, n = 0, 0
    after = 0
    for i in range(first, last):
        begin, end = _words_of(predicates.groups, events.attribute[i])
        for w in range(max(begin, after), end):
            satisfied += count_bits(bits[w])
            hot = bits[w] & access[w]
            while hot != 0:
                before = (ONE << np.uint64(lowest_bit(hot))) - ONE
                hits[n] = clusters.rank[w] + count_bits(access[w] & before)
                prefetch(clusters.start, hits[n])
                n += 1
                hot &= hot - ONE
        after = max(after, end)
    if access[len(access) - 1] != 0:  # clauses without an access predicate of their own are under the true one
        hits[n] = clusters.rank[len(access) - 1]
        n += 1
    return satisfied, n


# ---- the second phase: the clauses under the satisfied access predicates ----


@phase
def _holds(bits, predicate):
    """1 or 0, in the lowest bit; those above it mean nothing."""
    return bits[predicate >> SIX] >> (predicate & LOW_SIX)


@phase
def _test_two_predicates(clusters, hits, work):
    """The first two predicates of each clause, without a branch on the outcome: how many clauses there are, and how
    many are left in work.survivors."""
    table, start, survivors, bits = clusters.table, clusters.start, work.survivors, work.bits
    candidates, kept = 0, np.uint64(0)
    for h in range(min(AHEAD, hits)):
        prefetch(table, start[work.hits[h]])
    for h in range(hits):
        if h + AHEAD < hits:
            at = start[work.hits[h + AHEAD]]
            for line in range(LINES):
                prefetch(table, at + LINE * line)
        at = start[work.hits[h]]
        c, clauses = np.uint64(at + 1), np.uint64(table[at])
        stop = c + clauses
        candidates += np.int64(clauses)
        while c < stop:
            x, y = np.uint64(table[c]), np.uint64(table[c + clauses])
            survivors[kept] = (clauses << CLAUSES_AT) | c
            kept += _holds(bits, x) & _holds(bits, y) & ONE
            c += ONE
    return candidates, np.int64(kept)


@phase
def _test_other_predicates(clusters, kept, work, e, found, room):
    """The remaining predicates of the survivors. Those that match are the pairs of event e, from room[found] on."""
    table = clusters.table
    tested = 0
    for s in range(kept):
        clauses = work.survivors[s] >> CLAUSES_AT
        row = (work.survivors[s] & PLACE) + clauses + clauses
        room.event[found], room.row[found] = e, table[row]
        begin = row + clauses
        q, stop = begin + np.uint64(table[begin]), begin + ONE + np.uint64(table[begin + ONE])
        tested += np.int64(stop - q)
        hold = ONE
        while q < stop:
            hold &= _holds(work.bits, np.uint64(table[q]))
            q += ONE
        found += np.int64(hold)
    return found, tested


@phase
def _clear(predicates, events, first, last, bits):
    """No bit is set but that of the true predicate."""
    for i in range(first, last):
        if i > first and events.attribute[i] == events.attribute[i - 1]:
            continue
        begin, end = _words_of(predicates.groups, events.attribute[i])
        for w in range(begin, end):
            bits[w] = 0
