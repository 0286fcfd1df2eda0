"""Strings of a batch without repeats, and what was found in them as spans of cells."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel, phase
from dibs.jit.sorting import sort_run
from dibs.jit.words import equal_bytes, word_at

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


@kernel
def distinct_strings(rows, offsets, data):
    """(which, ends, bytes): the distinct ones among the given strings behind each other, and which of them each is."""
    which, ends = np.empty(len(rows), np.int64), np.zeros(len(rows) + 1, np.int64)
    room = 16
    while room < 2 * len(rows):
        room *= 2
    slots, hashes = np.zeros(room, np.int32), np.empty(len(rows), np.uint64)  # 1 + number of a distinct string
    total = 0
    for row in rows:
        total += offsets[row + 1] - offsets[row]
    kept = np.empty(total, np.uint8)
    n = 0
    for i in range(len(rows)):
        start, end = offsets[rows[i]], offsets[rows[i] + 1]
        own = _hash(data, start, end)
        at = np.int64(own & np.uint64(room - 1))
        while True:
            s = slots[at] - 1
            if s < 0:
                slots[at], hashes[n], which[i] = n + 1, own, n
                ends[n + 1] = ends[n] + end - start
                _copy(data, np.uint64(start), np.uint64(end - start), kept, np.uint64(ends[n]))
                n += 1
                break
            if hashes[s] == own and _same(kept, ends[s], ends[s + 1], data, start, end):
                which[i] = s
                break
            at = (at + 1) & (room - 1)
    return which, ends[: n + 1], kept[: ends[n]]


@phase
def _copy(data, start, size, kept, to):
    """Unsigned places: those of other types are tested for being negative, and it is no loop of vectors."""
    for k in range(size):
        kept[to + k] = data[start + k]


@phase
def _hash(data, start, end):
    h = np.uint64(end - start)
    at = start
    while at + 8 <= end:
        h = (h ^ word_at(data, at)) * _MULTIPLIER
        h ^= h >> _SHIFT
        at += 8
    while at < end:
        h = (h ^ np.uint64(data[at])) * _MULTIPLIER
        at += 1
    return h ^ (h >> _SHIFT)


@phase
def _same(a, a_start, a_end, b, b_start, b_end):
    length = a_end - a_start
    return length == b_end - b_start and equal_bytes(a, a_start, b, b_start, length) == length


@kernel
def spans_of(event, which, ends, found, cells, matching):
    """(event, lo, hi) of the cells of what was found in the string of each event or, if not matching, of the rest."""
    counts = np.empty(len(ends) - 1, np.int64)
    for s in range(len(counts)):
        sort_run(found, ends[s], ends[s + 1])
        counts[s] = ends[s + 1] - ends[s] if matching else _gaps(found, ends[s], ends[s + 1], cells, found, found, -1)
    total = 0
    for s in which:
        total += counts[s]
    owner, lo, hi = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.int32)
    n = 0
    for i in range(len(which)):
        s = which[i]
        owner[n : n + counts[s]] = event[i]
        if matching:
            for k in range(ends[s], ends[s + 1]):
                lo[n] = hi[n] = 1 + found[k]
                n += 1
        else:
            n = _gaps(found, ends[s], ends[s + 1], cells, lo, hi, n)
    return owner, lo, hi


@phase(inline=False)
def _gaps(found, first, last, cells, lo, hi, n):
    """Writes the spans between what was found from place n on, and returns the place behind them; n = -1: only counts
    them."""
    write, at, count = n >= 0, 1, max(n, 0)
    for k in range(first, last + 1):
        stop = 1 + found[k] if k < last else cells
        if at < stop:
            if write:
                lo[count], hi[count] = at, stop - 1
            count += 1
        at = stop + 1
    return count
