"""How many documents of a stretch are there, without looking at each: a wavelet matrix over the rows of a run.

A run is in the order of its keys, and which of its documents are there is told by their rows: those from the first one
on that retention keeps. The rows are taken apart bit by bit, the highest first: a level holds one bit of every row, in
an order in which those with a 0 in the level before come first. Counting the ones before a place, from words and sums
of words, leads from level to level; so a bound on rows is counted in as many steps as rows have bits.

    bits      level, word: bit i of word w is that of entry 64 * w + i in the order of the level
    before    level, word: how many ones are before it, and one entry more for all

Four bytes per entry for a million of them.
"""

from __future__ import annotations

import numpy as np

from dibs.history.coded.layout import Sorted
from dibs.jit.group_at import part_at
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import count_bits


@kernel
def make_ranks(rows, levels):
    """(bits, before) of rows below 2 ** levels."""
    n = len(rows)
    words = (n + 63) >> 6
    bits, before = np.zeros(levels * words, np.uint64), np.zeros(levels * (words + 1), np.int32)
    current, other = rows.copy(), np.empty_like(rows)
    for level in range(levels):
        shift = levels - 1 - level
        zeros = 0
        for i in range(n):
            one = (current[i] >> shift) & 1
            zeros += 1 - one
            bits[level * words + (i >> 6)] |= np.uint64(one) << np.uint64(i & 63)
        total = 0
        for w in range(words):
            before[level * (words + 1) + w] = total
            total += np.int64(count_bits(bits[level * words + w]))
        before[level * (words + 1) + words] = total
        a, b = 0, zeros
        for i in range(n):
            if (current[i] >> shift) & 1:
                other[b] = current[i]
                b += 1
            else:
                other[a] = current[i]
                a += 1
        current, other = other, current
    return bits, before


@phase
def _ones(bits, before, first_word, first_sum, place):
    """The ones of a level before a place."""
    word = place >> 6
    count = np.int64(before[first_sum + word])
    rest = np.uint64(place & 63)
    if rest:
        mask = (np.uint64(1) << rest) - np.uint64(1)
        count += np.int64(count_bits(bits[first_word + word] & mask))
    return count


@phase
def is_ranked(run):
    return len(part_at(run, Sorted, "ranks.before")) > 0


@phase(inline=False)
def count_below(run, size, start, stop, limit):
    """How many entries of [start, stop) have a row below the limit. run: the address of a Sorted; size: its entries."""
    bits, before = part_at(run, Sorted, "ranks.bits"), part_at(run, Sorted, "ranks.before")
    words = (size + 63) >> 6
    levels = np.int64(len(before)) // (words + 1)
    if limit <= 0:
        return np.int64(0)
    if limit >> levels:
        return stop - start
    a, b, found = start, stop, np.int64(0)
    for level in range(levels):
        first_word, first_sum = level * words, level * (words + 1)
        ones_a, ones_b = _ones(bits, before, first_word, first_sum, a), _ones(bits, before, first_word, first_sum, b)
        zeros = size - np.int64(before[first_sum + words])
        if (limit >> (levels - 1 - level)) & 1:
            found += (b - ones_b) - (a - ones_a)
            a, b = zeros + ones_a, zeros + ones_b
        else:
            a, b = a - ones_a, b - ones_b
    return found
