"""The kernels of coding.batch for values of any order: one kind after the other to cells, and then entries by event."""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import NUMBER_BASE, number_cell, string_cell, time_cell, time_text_cell
from dibs.jit.kernel import kernel
from dibs.jit.prefetching import prefetch

AHEAD = 16  # values whose constants are asked for before they are needed


@kernel
def are_single_valued(offsets, attribute, lo, hi):
    result = np.ones(len(offsets) - 1, np.bool_)
    for e in range(len(result)):
        for i in range(offsets[e], offsets[e + 1]):
            if lo[i] != hi[i] or (i > offsets[e] and attribute[i] == attribute[i - 1]):
                result[e] = False
    return result


@kernel
def code_numbers(own, name, value, rest, offsets, values, rests):
    n = len(name)
    attribute, cell = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        if i + 2 * AHEAD < n:
            prefetch(offsets, np.int64(max(own[name[i + 2 * AHEAD]], 0)))
        if i + AHEAD < n:
            a = own[name[i + AHEAD]]
            if a >= 0:
                prefetch(values, (offsets[a] + offsets[a + 1]) >> 1)
        a = own[name[i]]
        attribute[i] = a
        cell[i] = 0
        if a >= 0:
            cell[i] = NUMBER_BASE + number_cell(value[i], rest[i], offsets[a], offsets[a + 1], values, rests)
    return attribute, cell


@kernel
def code_times(own, name, value, offsets, values, base):
    n = len(name)
    attribute, cell = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        a = own[name[i]]
        attribute[i] = a
        cell[i] = 0
        if a >= 0:
            cell[i] = base[a] + time_cell(value[i], offsets[a], offsets[a + 1], values)
    return attribute, cell


@kernel
def code_strings(own, name, starts, data, offsets, constant_starts, constants, prefixes, base):
    n = len(name)
    attribute, cell = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        a = own[name[i]]
        attribute[i] = a
        cell[i] = 0
        if a >= 0:
            cell[i] = base[a] + string_cell(
                data, starts[i], starts[i + 1], offsets[a], offsets[a + 1], constant_starts, constants, prefixes
            )
    return attribute, cell


@kernel
def code_time_texts(timed, name, texts, constants):
    """Strings as times, of the attributes whose facet that is."""
    n = len(name)
    attribute, cell = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        a = timed[name[i]]
        attribute[i], cell[i] = a, 0
        if a >= 0:
            cell[i] = time_text_cell(texts.data, texts.starts[i], texts.starts[i + 1], np.int64(a), constants)
    return attribute, cell


@kernel
def find_string(data, first, last, constant_starts, constants, prefixes):
    """The cell of a single string: see coding.domain.string_cell."""
    return string_cell(data, 0, len(data), first, last, constant_starts, constants, prefixes)


@kernel
def reverse_strings(own, name, starts, data):
    """The strings of the names that have a number, each in reverse at its place. (Unsigned places, as those of other
    types are tested for being negative, which keeps the loop from being one of vectors.)"""
    result = np.empty(len(data), np.uint8)
    for i in range(len(name)):
        if own[name[i]] >= 0:
            a, size = np.uint64(starts[i]), np.uint64(starts[i + 1] - starts[i])
            behind = a + size - np.uint64(1)
            for k in range(size):
                result[a + k] = data[behind - k]
    return result


@kernel
def by_event(event, attribute, lo, hi, events):
    """Entries grouped by event (counting sort) and sorted by (attribute, lo) in each; repeated entries are dropped."""
    offsets = np.zeros(events + 1, np.int64)
    for i in range(len(event)):
        offsets[event[i] + 1] += 1
    for e in range(events):
        offsets[e + 1] += offsets[e]
    n = len(event)
    a, x, y = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    end = offsets[:-1].copy()
    for i in range(n):
        # Insertion from the back: columns mostly come in attribute order, so there is little to move.
        e = event[i]
        at = end[e]
        end[e] += 1
        while at > offsets[e] and (a[at - 1] > attribute[i] or (a[at - 1] == attribute[i] and x[at - 1] > lo[i])):
            a[at], x[at], y[at] = a[at - 1], x[at - 1], y[at - 1]
            at -= 1
        a[at], x[at], y[at] = attribute[i], lo[i], hi[i]
    points = True
    kept, start = 0, 0
    for e in range(events):
        first = kept
        for i in range(start, offsets[e + 1]):
            if kept > first and a[kept - 1] == a[i] and x[kept - 1] == x[i] and y[kept - 1] == y[i]:
                continue
            if x[i] != y[i] or (kept > first and a[kept - 1] == a[i]):
                points = False
            a[kept], x[kept], y[kept] = a[i], x[i], y[i]
            kept += 1
        start = offsets[e + 1]
        offsets[e + 1] = kept
    return offsets, a[:kept], x[:kept], y[:kept], points
