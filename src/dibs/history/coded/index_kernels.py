"""Kernels that build indexes over documents: entries of documents, groups of equated values, runs merged."""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import compare_bytes
from dibs.history.coded.layout import MISSING, SEVERAL, STRING, UNREADABLE
from dibs.jit.hashing import file_slot, find_slot
from dibs.jit.kernel import kernel, phase

_MIX = np.uint64(0x9E3779B97F4A7C15)


@phase
def mix(h, kind, key, tie):
    """The hash h with one more value."""
    h = (h ^ np.uint64(key)) * _MIX
    h ^= h >> np.uint64(29)
    h = (h ^ (np.uint64(np.int64(tie)) << np.uint64(3)) ^ np.uint64(kind)) * _MIX
    return h ^ (h >> np.uint64(32))


@phase
def _count_of(docs, column, row):
    kind = docs.kind[column, row]
    if kind == SEVERAL:
        return np.int64(docs.tie[column, row])
    return np.int64(0) if kind == MISSING or kind == UNREADABLE else np.int64(1)


@phase
def _value(docs, column, row, k):
    """The k-th value of a document: (kind, key, tie)."""
    if docs.kind[column, row] == SEVERAL:
        i = docs.key[column, row] + k
        return docs.extra_kind[i], docs.extra_key[i], docs.extra_tie[i]
    return docs.kind[column, row], docs.key[column, row], docs.tie[column, row]


@phase
def _entries_of(docs, columns, row, most):
    """How many entries a document has at most: one for each combination of the values of the columns. -1: it is wide,
    because they are more than `most` for each of these values. (Several long arrays would be more than any memory has,
    and than any number tells.)"""
    values = np.int64(0)
    for c in columns:
        n = _count_of(docs, c, row)
        if n == 0:
            return np.int64(0)
        values += n
    product = np.int64(1)
    for c in columns:
        product *= _count_of(docs, c, row)
        if product > most * values:
            return np.int64(-1)
    return product


@kernel
def count_entries(docs, columns, first, end, most):
    """How many entries the documents have at most, without those that are wide, and how many these are."""
    total = wide = 0
    for row in range(first, end):
        product = _entries_of(docs, columns, row, most)
        total += max(product, 0)
        wide += product < 0
    return total, wide


@phase
def _number_group(groups, count, docs, columns, equated, row, combination):
    """The number of the group that a combination of a document's values is in; count: it is new, and -1: none."""
    h = np.uint64(equated)
    left = combination
    for at in range(equated):
        n = _count_of(docs, columns[at], row)
        kind, key, tie = _value(docs, columns[at], row, left % n)
        left //= n
        if kind == UNREADABLE:
            return np.int64(-1)
        groups.kind[count * equated + at] = kind
        groups.key[count * equated + at] = key
        groups.tie[count * equated + at] = tie
        h = mix(h, kind, key, tie)
    return look_up(groups, count, equated, count, h, True)


@phase
def look_up(groups, count, equated, place, h, may_add):
    """The number of the group whose values stand at `place`, of which h is the hash; count if there is none."""
    at, number = find_slot(groups.slots, h, count, _is_group, (groups, equated, place))
    if number >= 0:
        return number
    if may_add:
        groups.slots[at] = count + 1
    return np.int64(count)


@phase
def _is_group(thing, number):
    groups, equated, place = thing
    for k in range(equated):
        i, j = number * equated + k, place * equated + k
        if groups.kind[i] != groups.kind[j] or groups.key[i] != groups.key[j] or groups.tie[i] != groups.tie[j]:
            return False
    return True


@kernel
def make_entries(docs, columns, equated, bounds, groups, count):
    """The entries of the documents from bounds[0] to bounds[1], room for which, for wide documents and for entries of
    one are the others: (group, kind, key, tie, row), the wide documents, how many groups there are then, and whether
    some document has several entries. There must be room for as many new groups."""
    first, end, room, wide_room, most = bounds
    group, row = np.empty(room, np.int32), np.empty(room, np.int32)
    is_ordered = len(columns) > equated
    size = room if is_ordered else 0
    kind, key, tie = np.empty(size, np.uint8), np.empty(size, np.int64), np.empty(size, np.int32)
    wide = np.empty(wide_room, np.int32)
    n, wide_ones, is_multiple = 0, 0, False
    for r in range(first, end):
        product, prefix = _entries_of(docs, columns, r, most), np.int64(1)
        if product < 0:
            wide[wide_ones] = r
            wide_ones += 1
            continue
        for at in range(equated if product > 0 else 0):
            prefix *= _count_of(docs, columns[at], r)
        is_multiple |= product > 1
        for combination in range(product):
            g = np.int64(0)
            if equated:
                g = _number_group(groups, count, docs, columns, equated, r, combination % prefix)
                if g < 0:
                    continue
            if is_ordered:
                kind[n], key[n], tie[n] = _value(docs, columns[equated], r, combination // prefix)
                if kind[n] == UNREADABLE:
                    if g == count and equated:  # it is known now, and has no entry yet: as good as any
                        count += 1
                    continue
            if g == count and equated:
                count += 1
            group[n], row[n] = g, r
            n += 1
    if not is_ordered:
        return group[:n], kind, key, tie, row[:n], wide, count, is_multiple
    return group[:n], kind[:n], key[:n], tie[:n], row[:n], wide, count, is_multiple


@kernel
def file_groups(groups, count, equated):
    """Puts all groups into slots that are empty."""
    for g in range(count):
        h = np.uint64(equated)
        for k in range(equated):
            i = g * equated + k
            h = mix(h, groups.kind[i], groups.key[i], groups.tie[i])
        file_slot(groups.slots, h, g)


@phase
def _is_before(docs, a, i, b, j):
    """Whether entry i of one run stands before entry j of an older one."""
    if a.group[i] != b.group[j]:
        return a.group[i] < b.group[j]
    if len(a.key) == 0:
        return False
    if a.kind[i] != b.kind[j]:
        return a.kind[i] < b.kind[j]
    if a.key[i] != b.key[j]:
        return a.key[i] < b.key[j]
    x = a.tie[i] if len(a.tie) else np.int32(0)
    y = b.tie[j] if len(b.tie) else np.int32(0)
    if x == y:
        return False
    if a.kind[i] != STRING:
        return x < y
    starts, data = docs.text_start, docs.text_data
    return compare_bytes(data, starts[x], starts[x + 1], data, starts[y], starts[y + 1]) < 0


@kernel
def merge_order(docs, older, newer):
    """Which entries follow each other in both runs together: i of the older one, or its length and j of the newer."""
    n, m = len(older.group), len(newer.group)
    result = np.empty(n + m, np.int64)
    i, j = 0, 0
    for at in range(n + m):
        if j < m and (i == n or _is_before(docs, newer, j, older, i)):
            result[at] = n + j
            j += 1
        else:
            result[at] = i
            i += 1
    return result
