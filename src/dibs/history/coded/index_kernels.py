"""Kernels that build indexes over documents: entries of documents, groups of equated values, runs merged, texts
numbered.

How many documents of a stretch are there is told without looking at each, by a wavelet matrix over the rows of a run. A
run is in the order of its keys, and which of its documents are there is told by their rows: those from the first one
on that retention keeps. The rows are taken apart bit by bit, the highest first: a level holds one bit of every row, in
an order in which those with a 0 in the level before come first. Counting the ones before a place, from words and sums
of words, leads from level to level; so a bound on rows is counted in as many steps as rows have bits.

    bits      level, word: bit i of word w is that of entry 64 * w + i in the order of the level
    before    level, word: how many ones are before it, and one entry more for all

Four bytes per entry for a million of them.
"""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import compare_bytes, prefix
from dibs.history.coded.layout import MISSING, SEVERAL, STRING, UNREADABLE, Sorted
from dibs.jit.group_at import part_at
from dibs.jit.hashing import file_slot, find_slot, hash_slice
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import count_bits
from dibs.jit.words import equal_bytes

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


_SIGN = np.uint64(2**63)


@phase
def _place_of(data, start, size, text_start, text_data, slots, count):
    """The slot of a text: (place, number), number -1 if it is not among the first `count` texts."""
    thing = data, start, size, text_start, text_data
    return find_slot(slots, hash_slice(data, start, size), count, _is_text, thing)


@phase
def _is_text(thing, number):
    data, start, size, text_start, text_data = thing
    own = text_start[number]
    return text_start[number + 1] - own == size and equal_bytes(data, start, text_data, own, size) == size


@kernel
def number_texts(offsets, data, text_start, text_data, slots, count):
    """The number of each text; those that are new get the next ones, for which there must be room. Returns (key, tie,
    how many texts there are then)."""
    key, tie = np.empty(len(offsets) - 1, np.int64), np.empty(len(offsets) - 1, np.int32)
    for i in range(len(key)):
        start, size = offsets[i], offsets[i + 1] - offsets[i]
        key[i] = np.int64(prefix(data, start, offsets[i + 1]) ^ _SIGN)
        at, number = _place_of(data, start, size, text_start, text_data, slots, count)
        if number < 0:
            number, end = count, text_start[count]
            text_data[end : end + size] = data[start : start + size]
            text_start[count + 1] = end + size
            count += 1
            slots[at] = count
        tie[i] = number
    return key, tie, count


@kernel
def find_texts(offsets, data, text_start, text_data, slots, count):
    """(key, tie) of each text; tie -1: no document has it."""
    key, tie = np.empty(len(offsets) - 1, np.int64), np.empty(len(offsets) - 1, np.int32)
    for i in range(len(key)):
        start, size = offsets[i], offsets[i + 1] - offsets[i]
        key[i] = np.int64(prefix(data, start, offsets[i + 1]) ^ _SIGN)
        tie[i] = _place_of(data, start, size, text_start, text_data, slots, count)[1]
    return key, tie


@kernel
def file_texts(text_start, text_data, slots, count):
    """Puts all texts into slots that are empty."""
    for i in range(count):
        file_slot(slots, hash_slice(text_data, text_start[i], text_start[i + 1] - text_start[i]), i)
