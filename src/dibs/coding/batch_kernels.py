"""The kernels of coding.batch: values to cells, and entries by event."""

from __future__ import annotations

import numpy as np

from dibs.coding.arrange import BOOLEAN, NUMBER, STRING, TIME
from dibs.coding.domain import NUMBER_BASE, number_cell, string_cell, time_cell
from dibs.jit.interpreter import keeping
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
def code_values(
    offsets,
    name,
    kind,
    key,
    rest,
    number,
    starts,
    data,
    own,
    number_offsets,
    number_value,
    number_rest,
    string_offsets,
    string_starts,
    string_bytes,
    string_prefix,
    string_base,
    time_offsets,
    time_value,
    time_base,
    cells,
    rests,
):
    """rests: 1 if some number of the domains has one. (Not in groups: as coding.arrange._arrange.)"""
    if len(number_value) == 0:
        number_value = np.zeros(1)  # so that there is always a place to look at
    last_number = len(number_value) - 1
    kept_offsets, attribute, place = _asked_for(offsets, name, own)
    asked, cell = kept_offsets[-1], np.empty(len(attribute), np.int32)
    points = True
    kept, p = 0, 0
    for e in range(len(offsets) - 1):
        first = kept
        while p < kept_offsets[e + 1]:
            if p + AHEAD < asked:
                a = attribute[p + AHEAD]
                prefetch(number_value, (number_offsets[a] + number_offsets[a + 1]) >> 1)
            a, i = attribute[p], place[p]
            p += 1
            k = kind[i]
            if k == NUMBER:
                # number_cell written out: handing arrays over costs a third of the search.
                v, x, y = number[i], number_offsets[a], number_offsets[a + 1]
                at, half = x, y - x
                while half > 0:
                    step = (half + 1) >> 1
                    at += step * np.int64(number_value[at + step - 1] < v)
                    half -= step
                exact = np.int64(at < y) & np.int64(number_value[min(at, last_number)] == v)
                if (exact & (rests | np.int64(rest[i] != 0))) != 0:
                    while at < y and number_value[at] == v and number_rest[at] < rest[i]:
                        at += 1
                    exact = np.int64(at < y and number_value[at] == v and number_rest[at] == rest[i])
                c = NUMBER_BASE + 2 * (at - x) + exact
            elif k == STRING:
                s, x, y = key[i], string_offsets[a], string_offsets[a + 1]
                c = np.int64(
                    string_base[a]
                    + string_cell(data, starts[s], starts[s + 1], x, y, string_starts, string_bytes, string_prefix)
                )
            elif k == TIME:
                x, y = time_offsets[a], time_offsets[a + 1]
                c = np.int64(time_base[a] + time_cell(key[i], x, y, time_value))
            elif k == BOOLEAN:
                c = 1 + key[i]
            else:
                c = np.int64(cells[a])
            if kept > first and attribute[kept - 1] == a:
                before = kept
                kept = insert_entry(attribute, cell, first, kept, a, c)
                points &= kept == before
                continue
            attribute[kept], cell[kept] = a, c
            kept += 1
        kept_offsets[e + 1] = kept
    return kept_offsets, attribute[:kept], cell[:kept], points


code_few_values = keeping(code_values)


@kernel(inline="always")
def _asked_for(offsets, name, own):
    """(offsets, attribute, place) of the values that are asked for: a small segment mentions few names, and nothing of
    the others is looked at. There is room for one more than there are values."""
    kept_offsets = np.zeros(len(offsets), np.int64)
    attribute, place = np.empty(len(name) + 1, np.int32), np.empty(len(name) + 1, np.int32)
    asked = 0
    for e in range(len(offsets) - 1):
        for i in range(offsets[e], offsets[e + 1]):
            attribute[asked], place[asked] = own[name[i]], i
            asked += attribute[asked] >= 0
        kept_offsets[e + 1] = asked
    return kept_offsets, attribute, place


@kernel
def insert_entry(attribute, cell, first, kept, a, c):
    """One more value of an array: by cell, none twice. Entries first to kept are the event's; where they end then."""
    at = kept
    while at > first and attribute[at - 1] == a and cell[at - 1] > c:
        at -= 1
    if at > first and attribute[at - 1] == a and cell[at - 1] == c:
        return kept
    for m in range(kept, at, -1):
        attribute[m], cell[m] = attribute[m - 1], cell[m - 1]
    attribute[at], cell[at] = a, c
    return kept + 1


@kernel
def code_numbers(own, name, value, rest, offsets, values, rests):
    n = len(name)
    attribute, cell = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        if i + 2 * AHEAD < n:
            prefetch(offsets, np.int64(max(own[name[i + 2 * AHEAD]], 0)))
        if i + AHEAD < n:
            a = max(own[name[i + AHEAD]], 0)
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
def find_string(data, first, last, constant_starts, constants, prefixes):
    """The cell of a single string: see coding.domain.string_cell."""
    return string_cell(data, 0, len(data), first, last, constant_starts, constants, prefixes)


@kernel
def reversed_strings(starts, data):
    result = np.empty(len(data), np.uint8)
    for i in range(len(starts) - 1):
        a, b = starts[i], starts[i + 1]
        for k in range(b - a):
            result[a + k] = data[b - 1 - k]
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
