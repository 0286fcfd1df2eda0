"""Building the filter: which text of each pattern is looked for, and under which gram it is filed.

Of a LIKE one text is enough. The best one has a gram that few texts of all patterns contain: then its slot is short,
and strings, which tend to be about the same things, seldom lead to it.
"""

from __future__ import annotations

import numpy as np

from dibs.coding.patterns.groups import REGEX, TEXT
from dibs.jit.kernel import kernel, phase

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
THREE = np.uint64(0xFFFFFF)
FOUR = np.uint64(0xFFFFFFFF)
MASKS = np.array([(1 << 8 * q) - 1 for q in range(9)], np.uint64)  # the last q bytes
SIZES = np.array([8, 4, 3, 2, 1])  # of grams
EIGHT, ONE_BYTE = np.uint64(8), np.uint64(1)
FOLD = np.arange(256, dtype=np.uint64)  # bytes as they are compared: ASCII letters in lower case
FOLD[65:91] += np.uint64(32)
_MOST_COUNTERS = 22  # bits
_FEWEST_GRAMS, _MOST_GRAMS = 12, 24  # bits of a place in `grams`
_BITS_FOR_ONE = 32  # in `grams`, for each text
_SHORT = np.array([0, 1 << 40, 1 << 35, 1 << 30], np.int64)  # what a gram of so few bytes costs


@kernel
def build_filter(kind, offsets, pieces, text):
    """(grams, pairs, slots, entries, always, sizes) of Filter, and the patterns of which nothing is known."""
    entries, always, unknown = _choose(kind, offsets, pieces, text)
    n = len(entries)
    bits = _FEWEST_GRAMS
    while bits < _MOST_GRAMS and (1 << bits) < _BITS_FOR_ONE * n:
        bits += 1
    grams, pairs = np.zeros(1 << (bits - 6), np.uint64), np.zeros(1024, np.uint64)
    sizes = np.zeros(9, np.bool_)
    room = 16
    while room < 2 * n:
        room *= 2
    slots, slot = np.zeros((room, 2), np.uint64), np.empty(n, np.int64)
    last = np.uint64(room - 1)
    for i in range(n):
        after = entries[i, 1] + entries[i, 3]
        size = gram_size(entries[i, 3])
        gram = gram_at(text, after - size, after)
        sizes[size] = True
        _mark(grams, np.uint64(64 - bits), pairs, gram, size)
        key = tagged(gram, size)
        at = slot_of(key, last)
        while slots[at, 1] and slots[at, 0] != key:
            at = (at + np.uint64(1)) & last
        slots[at, 0] = key
        slots[at, 1] += np.uint64(1)  # how many, for now
        slot[i] = at
    return grams, pairs, slots, _file(entries, slots, slot), always, sizes, unknown


@kernel
def _file(entries, slots, slot):
    """The entries by slot; and the slots' counts become places."""
    start = 0
    for s in range(len(slots)):
        count = np.int64(slots[s, 1])
        if count:
            slots[s, 1] = start + 1
            start += count
    filed, to = np.empty_like(entries), slots[:, 1].astype(np.int64) - 1
    for i in range(len(entries)):
        at = to[slot[i]]
        to[slot[i]] += 1
        filed[at] = entries[i]
    for s in range(len(slots)):
        for at in range(np.int64(slots[s, 1]) - 1, to[s] - 1):
            filed[at, 0] = ~filed[at, 0]
    return filed


@kernel
def _choose(kind, offsets, pieces, text):
    """(rows of entries; patterns without one that a kernel verifies, and those that only RE2 can)."""
    counters, shift = _count(pieces, text)
    entries = np.empty((len(pieces), 4), np.int64)
    always, unknown = np.empty(len(kind), np.int64), np.empty(len(kind), np.int64)
    n, kernels, others = 0, 0, 0
    for p in range(len(kind)):
        before, lowest = n, np.int64(-1)
        for i in range(offsets[p], offsets[p + 1]):
            if pieces[i, 0] != TEXT:
                continue
            after, cost = _best_gram(text, pieces[i, 1], pieces[i, 2], counters, shift)
            if kind[p] != REGEX and lowest >= 0:
                if cost >= lowest:
                    continue
                n = before
            lowest = cost
            start = pieces[i, 1]
            entries[n, 0], entries[n, 1] = p, start
            entries[n, 2], entries[n, 3] = pieces[i, 2] - start, after - start
            n += 1
        if n == before and kind[p] == REGEX:
            unknown[others] = p
            others += 1
        elif n == before:
            always[kernels] = p
            kernels += 1
    return entries[:n].copy(), always[:kernels].copy(), unknown[:others].copy()


@kernel
def _count(pieces, text):
    """How often each gram of four bytes occurs in all texts, by its hash; and how far hashes are shifted."""
    bits = 10
    while bits < _MOST_COUNTERS and (1 << bits) < 2 * len(text):
        bits += 1
    counters, shift = np.zeros(1 << bits, np.uint32), np.uint64(64 - bits)
    for i in range(len(pieces)):
        if pieces[i, 0] == TEXT:
            gram = np.uint64(0)
            for k in range(pieces[i, 1], pieces[i, 2]):
                gram = (gram << EIGHT) | FOLD[text[k]]
                if k >= pieces[i, 1] + 3:
                    counters[((gram & FOUR) * MULTIPLIER) >> shift] += np.uint32(1)
    return counters, shift


@phase
def _best_gram(text, start, end, counters, shift):
    """(where the best gram of a text ends, what it costs). With eight bytes before its end it is filed under all of
    them, which is worth a little."""
    if end - start < 4:
        return end, _SHORT[end - start]
    best, lowest, gram = end, np.int64(1) << 60, np.uint64(0)
    for k in range(start, end):
        gram = (gram << EIGHT) | FOLD[text[k]]
        if k >= start + 3:
            cost = 2 * np.int64(counters[((gram & FOUR) * MULTIPLIER) >> shift]) + np.int64(k < start + 7)
            if cost < lowest:
                best, lowest = k + 1, cost
    return best, lowest


@phase
def gram_size(before):
    """Bytes of the gram of a text that has so many up to the gram's end."""
    return 8 if before >= 8 else (4 if before >= 4 else before)


@phase
def gram_at(text, start, end):
    gram = np.uint64(0)
    for k in range(start, end):
        gram = (gram << EIGHT) | FOLD[text[k]]
    return gram


@phase
def tagged(gram, size):
    """The gram with its size. (One of eight bytes may look like a shorter one: then they share a slot.)"""
    return gram | (np.uint64(0) if size == 8 else np.uint64(size + 1) << np.uint64(56))


@phase
def slot_of(key, last):
    h = key * MULTIPLIER
    return (h ^ (h >> np.uint64(32))) & last


@phase
def three_hash(gram, shift):
    """Where the last three bytes have their bit, unlike four bytes of which the first is zero."""
    return (((gram & THREE) | np.uint64(1) << np.uint64(40)) * MULTIPLIER) >> shift


@phase
def _mark(grams, shift, pairs, gram, size):
    """Sets the bits by which a search finds the end of this gram."""
    one = np.uint64(1)
    if size >= 3:
        place = three_hash(gram, shift) if size == 3 else ((gram & FOUR) * MULTIPLIER) >> shift
        grams[place >> np.uint64(6)] |= one << (place & np.uint64(63))
    elif size == 2:
        pairs[gram >> np.uint64(6)] |= one << (gram & np.uint64(63))
    else:
        for before in range(256):
            pair = np.uint64(before) << EIGHT | gram
            pairs[pair >> np.uint64(6)] |= one << (pair & np.uint64(63))
