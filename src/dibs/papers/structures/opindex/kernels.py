"""The match of OpIndex: Algorithm 2 of the paper over the blocks of opindex.blocks.

Memory latency is the cost on sparse data, so the partitions of an event go through a pipeline: the heads of all of them
are prefetched at once, then the signatures of the one after next; those of the next one are tested, which gives the
places to search in it (a list, an attribute of the event, a piece of the list), and these are prefetched while one is
searched. On dense data it is mispredicted branches: tests, binary searches and counting do without branches on what the
data says (each slot that an entry points to is written behind the last hit, and is one if its counter became zero).
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES
from dibs.index.operators import BETWEEN, EQ, GE, LE, NE
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch
from dibs.jit.pointers import CHECKED
from dibs.papers.structures.opindex.blocks import (
    DEAD,
    DIRECTORY,
    EXTRA,
    EXTRA_SIZE,
    HEAD,
    PART,
    SHIFT,
    SIZE,
    START,
    signature_bit,
)
from dibs.papers.structures.opindex.forms import (
    CLAUSE_BITS,
    LISTS,
    RANK_BITS,
    AllEntries,
    Partitions,
    PartitionSpace,
    Points,
    Searches,
    rank_of,
)

LINE = 8  # words of a cache line
OPERATOR, VALUE, FIRST, COUNT, WHERE = range(5)  # columns of a search, and how many: list, entry of the event, keys
ONE, ABOVE, BELOW = np.uint64(1), np.uint64(CLAUSE_BITS), np.uint64((1 << CLAUSE_BITS) - 1)


@intrinsic
def copy(typingctx, to, source, at, count):
    """to[:count] = source[at : at + count], of one type. (The plain loop is not made into vectors.)"""

    def code(context, builder, signature, args):
        target, data = (context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 1))
        size = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
        cgutils.raw_memcpy(builder, target, builder.gep(data, [args[2]]), args[3], size)
        return context.get_dummy_value()

    return types.void(to, source, types.int64, types.int64), code


@kernel
def match_lists(bitmaps, signed, partitions, entries, events, last_event, counting, room, progress):
    """bitmaps: None for counters; signed: whether there are directories and signatures. An event whose pairs do not fit
    is left for the next call, as if it had not been begun."""
    partitions, entries, events = Partitions(*partitions), AllEntries(*entries), Points(*events)
    counting = PartitionSpace(*counting)
    searches = _no_searches(progress[NEXT_EVENT], last_event, events)
    half = len(searches.where) // 2  # the searches of two partitions in turn
    found = np.int64(0)
    for e in range(progress[NEXT_EVENT], last_event):
        begun, candidates, tests, nodes = found, np.int64(0), np.int64(0), np.int64(0)
        counting.tick[0] += 1
        count = _find_pivots(e, events, partitions, searches)
        first, last = np.int64(0), np.int64(0)
        for j in range(-2, count):
            if signed and j + 2 < count:
                _ask_for_signatures(searches.pivots[j + 2], partitions)
            next_first = half * (j & 1)
            next_last = next_first
            if -1 <= j < count - 1:
                t = searches.pivots[j + 1]
                next_last, lists = _choose_segments(t, next_first, signed, e, events, partitions, entries, searches)
                nodes += lists
            if j >= 0:
                t = searches.pivots[j]
                candidates += _reset_counters(t, partitions, counting.counter)
                zeros = np.uint64(0)
                for q in range(first, last):
                    zeros, held = _search(bitmaps, t, q, (e, zeros), events, partitions, entries, searches, counting)
                    tests += held
                found = _report(e, t, zeros, found, partitions, counting, room)
            first, last = next_first, next_last
        if found > len(room[0]):
            found = begun
            break
        progress[NEXT_EVENT] = e + 1
        progress[CANDIDATES] += candidates
        progress[PREDICATES] += tests
        progress[NODES] += nodes
    progress[PAIRS] = found


@kernel(forceinline=True)
def _no_searches(first_event, last_event, events):
    most = np.int64(1)  # attributes of an event
    for e in range(first_event, last_event):
        most = max(most, events.offsets[e + 1] - events.offsets[e])
    where = np.empty((2 * (LISTS * most + 1), WHERE), np.int64)
    return Searches(np.empty(most, np.int64), np.empty((2, most), np.uint64), np.empty(most, np.int64), where)


@phase
def _find_pivots(e, events, partitions, searches):
    """Lines 3 to 5: which attributes of the event are pivots, and all that is to be looked for in their lists."""
    first, count = events.offsets[e], np.int64(0)
    for i in range(events.offsets[e + 1] - first):
        a = events.attribute[first + i]
        t = np.int64(partitions.partition[a])
        if t >= 0:
            searches.pivots[count] = t
            count += 1
            prefetch(partitions.parts, t * PART)
            for line in range(t * LISTS * HEAD, (t + 1) * LISTS * HEAD, 2 * LINE):
                prefetch(partitions.heads, line)
        base = rank_of(a) << 32
        searches.base[i] = base
        searches.bits[0, i] = signature_bit(base + events.value[first + i], True, partitions.width)
        searches.bits[1, i] = signature_bit(base, False, partitions.width)
    return count


@phase
def _ask_for_signatures(t, partitions):
    heads = partitions.heads
    for h in range(t * LISTS, (t + 1) * LISTS):
        if heads[h, SHIFT] > 0:
            line = np.int64(heads[h, DIRECTORY])
            after = line + (1 << (RANK_BITS - heads[h, SHIFT]))
            while line < after:
                prefetch(partitions.signature, line)
                line += LINE


@phase
def _choose_segments(t, k, signed, e, events, partitions, entries, searches):
    """Lines 6 to 8: the segments of a partition whose signatures have the event's bits; without signatures the whole
    lists. Writes searches from k on; returns where they end and how many lists the partition has."""
    m, heads, where = events.offsets[e + 1] - events.offsets[e], partitions.heads, searches.where
    lists = np.int64(0)
    prefetch(partitions.need, np.int64(partitions.parts[t, START]))
    for op in range(LISTS):
        h = t * LISTS + op
        length = np.int64(heads[h, SIZE])
        if length + heads[h, EXTRA_SIZE] == 0:
            continue
        lists += 1
        if signed:
            k = _test_signatures(h, op, k, m, partitions, entries, searches)
            continue
        for i in range(m):
            where[k, OPERATOR], where[k, VALUE] = op, i
            where[k, FIRST], where[k, COUNT] = heads[h, START], length
            k += 1
    return k, lists


@phase
def _test_signatures(h, op, k, m, partitions, entries, searches):
    """Line 8 for one list and all m attributes of the event: first the tests, without branches, then what is left."""
    heads, ends, where, own = partitions.heads, partitions.ends, searches.where, k
    start, directory = np.int64(heads[h, START]), np.int64(heads[h, DIRECTORY])
    shift, other = np.int64(heads[h, SHIFT]) + 32, np.int64(op != EQ)
    for i in range(m):
        segment = directory + (searches.base[i] >> shift)
        where[k, VALUE], where[k, FIRST] = i, segment
        k += np.int64((partitions.signature[segment] & searches.bits[other, i]) != 0)
    for q in range(own, k):
        segment = where[q, FIRST]
        before = np.int64(ends[segment - 1]) if segment > directory else 0
        where[q, OPERATOR], where[q, FIRST], where[q, COUNT] = op, start + before, ends[segment] - before
        middle = start + (before + ends[segment]) // 2
        if op == BETWEEN:
            prefetch(entries.wide_key, middle)
        else:
            prefetch(entries.key, middle)
            prefetch(entries.pointer, middle)
    return k


@phase
def _reset_counters(t, partitions, counter):
    """Line 2, when the partition has its turn; how many subscriptions it has."""
    start, size = np.int64(partitions.parts[t, START]), np.int64(partitions.parts[t, SIZE])
    if CHECKED and (size > len(counter) or start + size > len(partitions.need)):
        raise IndexError("counters beyond the partition or their room")
    copy(counter, partitions.need, start, size)
    return size - partitions.parts[t, DEAD]


@phase
def _search(bitmaps, t, q, so_far, events, partitions, entries, searches, counting):
    """Lines 9 to 11 for search q, which is of a segment, and for the extra block of its list. so_far: the event, and
    how many counters are zero. Returns the latter, and how many entries were read."""
    e, zeros = so_far
    where, heads, tests = searches.where, partitions.heads, np.int64(0)
    op, i = where[q, OPERATOR], where[q, VALUE]
    at = events.offsets[e] + i
    a, x, least = events.attribute[at], np.int64(events.value[at]), searches.base[i]
    floor, ceiling = partitions.floor, partitions.ceiling
    if ((op == LE or op == NE) and x < floor[a]) or ((op == GE or op == NE) and x > ceiling[a]):
        return zeros, tests
    p, n = where[q, FIRST], where[q, COUNT]
    for _ in range(2):
        if n > 0:
            if op == BETWEEN:
                zeros, held = _scan_nested(bitmaps, p, n, (least, x), entries, counting, zeros)
                tests += held
            else:
                for above in range(2 if op == NE else 1):  # for <> those below the value and those above it
                    low, high = _keys_that_hold(op, above, least, x)
                    zeros, held = _scan_run(bitmaps, p, n, low, high, entries, counting, zeros)
                    tests += held
        h = t * LISTS + op
        p, n = np.int64(heads[h, EXTRA]), np.int64(heads[h, EXTRA_SIZE])
        if n == 0:
            break
    return zeros, tests


@phase
def _keys_that_hold(op, above, least, x):
    """The keys of the predicates that hold for x are from the first result on and below the second."""
    low = least + (x if op <= LE else x + 1 if above else 0)
    high = least + (1 << 32 if op == LE or above else x if op == NE else x + 1)
    return low, high


@phase
def _not_below(key, p, n, bound):
    """The first of the n > 0 keys from p on that is not below the bound, or the end."""
    while n > 1:
        half = n >> 1
        p += half * np.int64(key[p + half - 1] < bound)
        n -= half
    return p + np.int64(key[p] < bound)


@phase
def _scan_run(bitmaps, p, n, low, high, entries, counting, zeros):
    """Counts down for all entries of a block whose keys are from low on and below high."""
    key, pointer, counter, hits = entries.key, entries.pointer, counting.counter, counting.hits
    end = p + n
    p = _not_below(key, p, n, low)
    if high == low + 1:  # equality: few, if any
        n = p
        while n < end and key[n] == low:
            n += 1
        end = n
    elif p < end:
        end = _not_below(key, p, end - p, high)
    for at in range(np.uint64(p), np.uint64(end)):
        zeros = _decrement(bitmaps, np.uint64(pointer[at]), counter, hits, zeros)
    return zeros, end - p


@phase
def _scan_nested(bitmaps, p, n, value, entries, counting, zeros):
    """Counts down for all entries of a BETWEEN block that hold for the value: from the last one that begins at it or
    before downwards, by links over those that end too soon."""
    least, x = value
    key, far, link, counter, hits = entries.wide_key, entries.far, entries.link, counting.counter, counting.hits
    at, tests = p, np.int64(0)
    while n > 1:
        half = n >> 1
        at += half * np.int64(key[at + half] <= least + x)
        n -= half
    at -= np.int64(key[at] > least + x)
    while at >= p and key[at] >= least:
        tests += 1
        if far[at] < x:
            at -= link[at]
            continue
        zeros = _decrement(bitmaps, np.uint64(entries.wide_pointer[at]), counter, hits, zeros)
        at -= 1
    return zeros, tests


@phase
def _decrement(bitmaps, to, counter, hits, zeros):
    """Lines 10 and 11: one predicate (or the clause's bit) less is to be satisfied. Its slot is written behind the last
    hit, and is one if nothing is left. Returns how many there are then."""
    if bitmaps is None:
        left = np.int64(counter[to]) - 1
        zero = left == 0
    else:
        clause = ONE << (to & BELOW)
        to >>= ABOVE
        left = counter[to] & ~clause
        zero = (left == 0) & (counter[to] != 0)
    counter[to] = left
    hits[zeros] = to
    return zeros + np.uint64(zero)


@phase
def _report(e, t, zeros, found, partitions, counting, room):
    """Line 12: the rows of the hits, those of several slots once. Returns the end of the pairs: beyond the room if they
    do not fit."""
    out_event, out_row = room
    stamp, tick, start = counting.stamp, counting.tick[0], np.int64(partitions.parts[t, START])
    for z in range(zeros):
        row = partitions.owner[start + counting.hits[z]]
        if row < 0:
            row = ~row
            if stamp[row] == tick:
                continue
            stamp[row] = tick
        if found < len(out_event):
            out_event[found], out_row[found] = e, row
        found += 1
    return found
