"""The signatures of index.pstbloom, and its match."""

from __future__ import annotations

import numpy as np

from dibs.index.papers.pstree.chunks import give_back, take
from dibs.index.papers.pstree.kernels import (
    AT,
    ATTRIBUTE,
    BEFORE,
    EDGES,
    HI,
    LO,
    NEXT,
    PREDICATES,
    SIZE,
    START,
    find_space,
    merge,
    partition,
)
from dibs.index.papers.pstree.rows import verify
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch

NOTHING, EVERYTHING = 0, 1  # the first two words of all signatures: in the one is no id, in the other every one
IDS_A_WORD = 8  # at most, when a signature is made: 4 to 8 bits an id
INLINE = 3  # attributes of an entry
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@kernel
def _hashed(code):
    return np.uint64(np.uint32(code)) * GOLDEN


@kernel
def _bits(h):
    """The two bits of an id in its word, which is (h >> 20) & mask."""
    one = np.uint64(1)
    both = (one << (h >> np.uint64(59))) | (one << ((h >> np.uint64(54)) & np.uint64(31)))
    return np.int32(np.uint32(both))


@kernel
def partition_signed(keys, counts, at, sign, signature, free_words, tree, node, inside, leaf, seen, entry, free, state):
    """index.pstree_kernels.partition_all; the new leaf has a copy of the signature too."""
    for i in range(at, len(keys)):
        a, value = keys[i] >> 32, keys[i] & 0xFFFFFFFF
        found = partition(a, value, tree, node, inside, leaf, seen, entry, free, state)
        if found < 0 or found >= len(sign):
            return i
        if leaf[found, EDGES] == 0:  # new, or its signature did not fit before
            old, mask = np.int64(sign[leaf[found, BEFORE], 0]), np.int64(sign[leaf[found, BEFORE], 1])
            new = old
            if old > EVERYTHING:
                new = take(mask + 1, signature, free_words)
                if new < 0:
                    return i
                for w in range(mask + 1):
                    signature[new + w, 0] = signature[old + w, 0]
            sign[found, 0], sign[found, 1] = new, mask
        leaf[found, EDGES] += counts[i]
    return len(keys)


@kernel
def merge_signed(keys, counts, sign, signature, free_words, tree, node, inside, leaf, seen, entry, free, state):
    """index.pstree_kernels.merge_all; what the same predicates cover has the same ids in its signature."""
    for i in range(len(keys)):
        a, value = keys[i] >> 32, keys[i] & 0xFFFFFFFF
        found = np.int64(find_space(a, value, tree, node, leaf))
        leaf[found, EDGES] -= counts[i]
        if leaf[found, EDGES] == 0:
            if sign[found, 0] > EVERYTHING:
                give_back(np.int64(sign[found, 0]), np.int64(sign[found, 1]) + 1, signature, free_words)
            sign[found, 0], sign[found, 1] = NOTHING, 0
            merge(a, found, tree, node, inside, leaf, seen, entry, free, state)


@kernel
def sizes(leaves, leaf):
    """How many words the signature of each leaf should have: a power of 2, or 0 where it is empty."""
    result = np.zeros(leaves, np.int64)
    for at in range(leaves):
        ids = leaf[at, PREDICATES] - leaf[at, SIZE]
        if leaf[at, START] >= 0 and ids > 0:
            result[at] = 1
            while result[at] * IDS_A_WORD < ids:
                result[at] *= 2
    return result


@kernel
def add_ids(which, codes, owner, start, sign, signature, free_words, predicate, span, tree, node, leaf):
    """Adds the id codes[owner[i]] to the signatures of all spaces of predicate which[i], from i = start on. Returns
    where it stopped, because the pool has to grow; adding an id again does no harm."""
    for i in range(start, len(which)):
        p, h = which[i], _hashed(codes[owner[i]])
        place, bits = np.int64(h >> np.uint64(20)), _bits(h)
        spans = max(1, -predicate[p, HI])
        for s in range(spans):
            low, high = predicate[p, LO], predicate[p, HI]
            if high < 0:
                low, high = span[predicate[p, LO] + s, 0], span[predicate[p, LO] + s, 1]
            at = find_space(np.int64(predicate[p, ATTRIBUTE]), np.int64(low), tree, node, leaf)
            while at >= 0 and leaf[at, START] <= high:
                if sign[at, 0] == NOTHING:
                    new = take(np.int64(1), signature, free_words)
                    if new < 0:
                        return i
                    signature[new, 0] = 0
                    sign[at, 0] = new
                signature[sign[at, 0] + (place & sign[at, 1]), 0] |= bits
                at = leaf[at, NEXT]
    return len(which)


@kernel
def signed_words(rows, offsets, predicate):
    """The entries of the rows: the code, and 1 + attribute of up to three more predicates, 0 where there is none."""
    result = np.zeros((len(rows), 1 + INLINE), np.int32)
    for i in range(len(rows)):
        p, end = offsets[rows[i]], offsets[rows[i] + 1]
        result[i, 0] = rows[i] if end == p + 1 else ~(p + 1)
        for q in range(p + 1, min(end, p + 1 + INLINE)):
            result[i, q - p] = 1 + predicate[q, ATTRIBUTE]
    return result


@kernel
def match_signed(
    block,
    leaf,
    entry,
    attributes,
    sign,
    signature,
    predicate,
    span,
    event_offsets,
    event_attribute,
    event_value,
    space,
    last_event,
    out_event,
    out_row,
    done,
):
    """See index.base.in_parts. An event whose matches do not fit is begun again."""
    slot = np.zeros(attributes, np.int32)
    place, mask = np.zeros(1 + attributes, np.uint32), np.zeros(1 + attributes, np.uint32)
    place[0] = EVERYTHING
    left, some = np.empty(block + 1, np.int32), np.empty(block + 1, np.uint64)
    one, two, three, zero = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(0)
    found = np.int64(0)
    entries_end = event_offsets[last_event]
    for e in range(done[0], last_event):
        first, last = event_offsets[e], event_offsets[e + 1]
        for i in range(first, last):
            a = event_attribute[i]
            slot[a] = event_value[i]
            place[a + 1], mask[a + 1] = sign[space[i], 0], sign[space[i], 1]
        candidates, tests, before, n = np.int64(0), np.int64(0), found, zero
        for i in range(first, last):
            if i + 2 < entries_end:
                prefetch(entry, 4 * np.int64(leaf[np.uint64(space[i + 2]), AT]))
            here = np.uint64(space[i])
            at = np.uint64(leaf[here, AT])
            end = at + np.uint64(leaf[here, SIZE])
            candidates += np.int64(end - at)
            while at < end:
                stop = min(end, at + np.uint64(block) - n)
                passed = zero  # the first signature stops most, so the other two are asked apart, both without branches
                while at < stop:
                    x = np.uint64(entry[at, one])
                    h = np.uint64(np.uint32(entry[at, zero])) * GOLDEN
                    bits = (one << (h >> np.uint64(59))) | (one << ((h >> np.uint64(54)) & np.uint64(31)))
                    w = np.uint64(signature[np.uint64(place[x]) + ((h >> np.uint64(20)) & np.uint64(mask[x])), zero])
                    some[passed] = at
                    passed += np.uint64((w & bits) == bits)
                    at += one
                for k in range(passed):
                    there = some[k]
                    code = entry[there, zero]
                    y, z = np.uint64(entry[there, two]), np.uint64(entry[there, three])
                    h = np.uint64(np.uint32(code)) * GOLDEN
                    word = h >> np.uint64(20)
                    bits = (one << (h >> np.uint64(59))) | (one << ((h >> np.uint64(54)) & np.uint64(31)))
                    w = np.uint64(signature[np.uint64(place[y]) + (word & np.uint64(mask[y])), zero])
                    w &= np.uint64(signature[np.uint64(place[z]) + (word & np.uint64(mask[z])), zero])
                    left[n] = code
                    n += np.uint64((w & bits) == bits)
                if n == np.uint64(block):
                    found, more = verify(left, np.int64(n), slot, predicate, span, e, found, out_event, out_row)
                    tests += more
                    n = zero
                    if found < 0:
                        done[0], done[2] = e, before
                        return
        found, more = verify(left, np.int64(n), slot, predicate, span, e, found, out_event, out_row)
        if found < 0:
            done[0], done[2] = e, before
            return
        done[3] += candidates
        done[4] += tests + more
        for i in range(first, last):
            a = event_attribute[i]
            slot[a] = 0
            place[a + 1], mask[a + 1] = NOTHING, 0
    done[0], done[2] = last_event, found
