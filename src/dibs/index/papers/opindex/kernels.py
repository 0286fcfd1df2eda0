"""The match of OpIndex: Algorithm 2 of the paper over the blocks of index.opindex_blocks.

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

from dibs.index.operators import BETWEEN, EQ, GE, LE, NE
from dibs.index.papers.opindex.blocks import (
    DEAD,
    DIRECTORY,
    EXTRA,
    EXTRA_SIZE,
    SHIFT,
    SIZE,
    START,
    signature_bit,
)
from dibs.index.papers.opindex.forms import CLAUSE_BITS, LISTS, RANK_BITS, rank_of
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch

PART, HEAD = 4, 8  # columns of parts and heads
LINE = 8  # words of a cache line


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
def match_lists(
    bitmaps,
    signed,
    partition,
    floor,
    ceiling,
    parts,
    heads,
    signature,
    ends,
    key,
    pointer,
    wide_key,
    wide_pointer,
    far,
    link,
    need,
    owner,
    event_offsets,
    event_attribute,
    event_lo,
    last_event,
    counter,
    hits,
    stamp,
    tick,
    out_event,
    out_row,
    done,
):
    """bitmaps: None for counters; signed: whether there are directories and signatures. An event whose pairs do not fit
    is left for the next call, as if it had not been begun. A row of several slots is reported once: stamp[row] is then
    the tick of the event."""
    most = np.int64(1)
    for e in range(done[0], last_event):
        most = max(most, event_offsets[e + 1] - event_offsets[e])
    base = np.empty(most, np.int64)  # the least key of each attribute of the event
    bits = np.empty((2, most), np.uint64)  # its bit in signatures, of equality and of other operators
    pivots = np.empty(most, np.int64)  # the partitions of the event
    # Where to search: list, entry of the event, first and number of the keys; of two partitions in turn.
    half_room = LISTS * most + 1
    where = np.empty((2 * half_room, 4), np.int64)
    room = len(out_event)
    one, above, below = np.uint64(1), np.uint64(CLAUSE_BITS), np.uint64((1 << CLAUSE_BITS) - 1)
    found = np.int64(0)
    for e in range(done[0], last_event):
        first, m = event_offsets[e], event_offsets[e + 1] - event_offsets[e]
        tick[0] += 1
        count = np.int64(0)
        for i in range(m):
            a = event_attribute[first + i]
            t = np.int64(partition[a])
            if t >= 0:
                pivots[count] = t
                count += 1
                prefetch(parts, t * PART)
                for line in range(t * LISTS * HEAD, (t + 1) * LISTS * HEAD, 2 * LINE):
                    prefetch(heads, line)
            base[i] = rank_of(a) << 32
            bits[0, i] = signature_bit(base[i] + event_lo[first + i], True)
            bits[1, i] = signature_bit(base[i], False)
        begun = found
        candidates, tests, nodes = np.int64(0), np.int64(0), np.int64(0)
        searches, searches_end = np.int64(0), np.int64(0)
        for j in range(-2, count):
            if signed and j + 2 < count:
                for h in range(pivots[j + 2] * LISTS, (pivots[j + 2] + 1) * LISTS):
                    if heads[h, SHIFT] > 0:
                        line = np.int64(heads[h, DIRECTORY])
                        after = line + (1 << (RANK_BITS - heads[h, SHIFT]))
                        while line < after:
                            prefetch(signature, line)
                            line += LINE
            k = half_room * (j & 1)
            next_searches = k
            if -1 <= j < count - 1:
                t = pivots[j + 1]
                prefetch(need, np.int64(parts[t, START]))
                for op in range(LISTS):
                    h = t * LISTS + op
                    length = np.int64(heads[h, SIZE])
                    if length + heads[h, EXTRA_SIZE] == 0:
                        continue
                    nodes += 1
                    start, directory = np.int64(heads[h, START]), np.int64(heads[h, DIRECTORY])
                    shift, other = np.int64(heads[h, SHIFT]) + 32, np.int64(op != EQ)
                    if not signed:
                        for i in range(m):
                            where[k, 0], where[k, 1], where[k, 2], where[k, 3] = op, i, start, length
                            k += 1
                        continue
                    own = k
                    for i in range(m):
                        segment = directory + (base[i] >> shift)
                        where[k, 1], where[k, 2] = i, segment
                        k += np.int64((signature[segment] & bits[other, i]) != 0)
                    for q in range(own, k):
                        segment = where[q, 2]
                        before = np.int64(ends[segment - 1]) if segment > directory else 0
                        where[q, 0], where[q, 2], where[q, 3] = op, start + before, ends[segment] - before
                        middle = start + (before + ends[segment]) // 2
                        if op == BETWEEN:
                            prefetch(wide_key, middle)
                        else:
                            prefetch(key, middle)
                            prefetch(pointer, middle)
            next_end = k
            if j >= 0:
                t = pivots[j]
                slots, size = np.int64(parts[t, START]), np.int64(parts[t, SIZE])
                candidates += size - parts[t, DEAD]
                copy(counter, need, slots, size)
                zeros = np.uint64(0)
                for q in range(searches, searches_end):
                    op, i = where[q, 0], where[q, 1]
                    h = t * LISTS + op
                    a, x, least = event_attribute[first + i], np.int64(event_lo[first + i]), base[i]
                    if ((op == LE or op == NE) and x < floor[a]) or ((op == GE or op == NE) and x > ceiling[a]):
                        continue
                    for piece in range(4):  # of the main block (0, 1) and the extra block: below and, for <>, above x
                        p, n = where[q, 2], where[q, 3]
                        if piece >= 2:
                            p, n = np.int64(heads[h, EXTRA]), np.int64(heads[h, EXTRA_SIZE])
                            if n == 0:
                                break
                        if (piece & 1 and op != NE) or n == 0:
                            continue
                        if op == BETWEEN:
                            at = p  # the last one that begins at x or before, or the first of all
                            while n > 1:
                                half = n >> 1
                                at += half * np.int64(wide_key[at + half] <= least + x)
                                n -= half
                            at -= np.int64(wide_key[at] > least + x)
                            while at >= p and wide_key[at] >= least:
                                tests += 1
                                if far[at] < x:
                                    at -= link[at]
                                    continue
                                to = np.uint64(wide_pointer[at])
                                at -= 1
                                if bitmaps is None:
                                    left = np.int64(counter[to]) - 1
                                    zero = left == 0
                                else:
                                    clause = one << (to & below)
                                    to >>= above
                                    left = counter[to] & ~clause
                                    zero = (left == 0) & (counter[to] != 0)
                                counter[to] = left
                                hits[zeros] = to
                                zeros += np.uint64(zero)
                            continue
                        # The keys of the predicates that hold are from low on and below high.
                        low = least + (x if op <= LE else x + 1 if piece & 1 else 0)
                        high = least + (1 << 32 if op == LE or piece & 1 else x if op == NE else x + 1)
                        end = p + n
                        while n > 1:
                            half = n >> 1
                            p += half * np.int64(key[p + half - 1] < low)
                            n -= half
                        p += np.int64(key[p] < low)
                        if op == EQ:
                            n = p
                            while n < end and key[n] == low:
                                n += 1
                            end = n
                        elif p < end:
                            n = end - p
                            end = p
                            while n > 1:
                                half = n >> 1
                                end += half * np.int64(key[end + half - 1] < high)
                                n -= half
                            end += np.int64(key[end] < high)
                        tests += end - p
                        for at in range(np.uint64(p), np.uint64(end)):
                            to = np.uint64(pointer[at])
                            if bitmaps is None:
                                left = np.int64(counter[to]) - 1
                                zero = left == 0
                            else:
                                clause = one << (to & below)
                                to >>= above
                                left = counter[to] & ~clause
                                zero = (left == 0) & (counter[to] != 0)
                            counter[to] = left
                            hits[zeros] = to
                            zeros += np.uint64(zero)
                for z in range(zeros):
                    row = owner[slots + hits[z]]
                    if row < 0:
                        row = ~row
                        if stamp[row] == tick[0]:
                            continue
                        stamp[row] = tick[0]
                    if found < room:
                        out_event[found], out_row[found] = e, row
                    found += 1
            searches, searches_end = next_searches, next_end
        if found > room:
            found = begun
            break
        done[0] = e + 1
        done[3] += candidates
        done[4] += tests
        done[6] += nodes
    done[2] = found
