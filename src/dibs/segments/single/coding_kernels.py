"""The values of a single event as cells of a layer's domains.

All values are searched at once, step by step: of very many constants little is in the caches, and a search that is
finished before the next one begins waits for memory at every step. Here each step asks for what the next one of the
same value reads, and by then all other values have had their turn.
"""

from __future__ import annotations

import numpy as np

from dibs.coding.arrange import NUMBER, STRING
from dibs.coding.domain import NUMBER_BASE, number_cell, prefix, string_cell
from dibs.jit.kernel import phase
from dibs.jit.prefetching import prefetch


@phase(inline=False)
def code_values(found, numbers, domain, coded, search, first):
    """The entries of one layer, from coded[first] on, by attribute and cell; where they end, and whether no attribute
    has several. No place (-1): they might be more than there is room for."""
    if first + found.counts[0] > len(coded.attribute):
        return np.int64(-1), False
    _begin(found, domain, search)
    while _go_on(found, numbers, domain, search):
        pass
    last, points = first, True
    for i in range(found.counts[0]):
        if search.attribute[i] >= 0:
            c = _cell_of(found, numbers, i, domain, search)
            last, single = add_entry(coded, first, last, np.int64(search.attribute[i]), c, c)
            points = points and single
    return last, points


@phase
def _begin(found, domain, search):
    """In turns, because each needs what the one before has asked for."""
    count = found.counts[0]
    for i in range(count):
        prefetch(domain.own, found.name[i])
    for i in range(count):
        a = domain.own[found.name[i]]
        search.attribute[i] = a
        if a >= 0:
            prefetch(domain.numbers.offsets if found.kind[i] == NUMBER else domain.strings.offsets, a)
    for i in range(count):
        search.left[i] = 0
        a = np.int64(search.attribute[i])
        if a >= 0 and found.kind[i] == NUMBER:
            _begin_one(domain.numbers.offsets, domain.numbers.value, a, i, search)
        elif a >= 0 and found.kind[i] == STRING:
            s = found.key[i]
            search.head[i] = prefix(found.data, found.starts[s], found.starts[s + 1])
            _begin_one(domain.strings.offsets, domain.strings.prefix, a, i, search)


@phase
def _begin_one(offsets, values, a, i, search):
    search.at[i], search.left[i] = offsets[a], offsets[a + 1] - offsets[a]
    prefetch(values, offsets[a] + ((search.left[i] + 1) >> 1) - 1)


@phase(inline=False)
def _go_on(found, numbers, domain, search):
    """One step for each value; whether there is another one."""
    more = np.int64(0)
    for i in range(found.counts[0]):
        if search.left[i] > 0:
            if found.kind[i] == NUMBER:
                more |= _step(numbers[i], domain.numbers.value, i, search)
                if search.left[i] == 0:
                    prefetch(domain.numbers.rest, search.at[i])
            else:
                more |= _step(search.head[i], domain.strings.prefix, i, search)
                if search.left[i] == 0:
                    prefetch(domain.strings.starts, search.at[i])
    return more > 0


@phase
def _step(value, values, i, search):
    """As in coding.domain.lower_bound: how many constants are left."""
    a, half = search.at[i], (search.left[i] + 1) >> 1
    a += half * np.int64(values[a + half - 1] < value)
    left = search.left[i] - half
    search.at[i], search.left[i] = a, left
    prefetch(values, a + ((left + 1) >> 1) - np.int64(left > 0))
    return left


@phase
def _cell_of(found, numbers, i, domain, search):
    """The cell of value i, whose lower bound is found."""
    a, at, kind = np.int64(search.attribute[i]), search.at[i], found.kind[i]
    if kind == NUMBER:
        x, y = domain.numbers.offsets[a], domain.numbers.offsets[a + 1]
        exact = at < y and domain.numbers.value[at] == numbers[i]
        c = NUMBER_BASE + 2 * (at - x) + np.int64(exact)
        if exact and (domain.numbers.rest[at] | found.rest[i]) != 0:  # others may share its float
            c = NUMBER_BASE + number_cell(numbers[i], found.rest[i], x, y, domain.numbers.value, domain.numbers.rest)
    elif kind == STRING:
        s, x, y = found.key[i], domain.strings.offsets[a], domain.strings.offsets[a + 1]
        c = domain.strings.base[a] + 2 * (at - x)
        if at < y and domain.strings.prefix[at] == search.head[i]:
            c = domain.strings.base[a] + string_cell(
                found.data,
                found.starts[s],
                found.starts[s + 1],
                x,
                y,
                domain.strings.starts,
                domain.strings.data,
                domain.strings.prefix,
            )
    else:
        c = 1 + found.key[i]
    return np.int64(c)


@phase
def add_entry(entries, first, last, a, lo, hi):
    """Where the entries end with one more in its place, and whether it is one cell and the only entry of its
    attribute. There is room for it: who calls has asked."""
    attribute, los, his = entries.attribute, entries.lo, entries.hi
    at = last
    while at > first and (attribute[at - 1] > a or (attribute[at - 1] == a and los[at - 1] > lo)):
        at -= 1
    single = lo == hi and not (at < last and attribute[at] == a)
    if at > first and attribute[at - 1] == a:
        if los[at - 1] == lo and his[at - 1] == hi:
            return last, True
        single = False
    for k in range(last, at, -1):
        attribute[k], los[k], his[k] = attribute[k - 1], los[k - 1], his[k - 1]
    attribute[at], los[at], his[at] = a, lo, hi
    return last + 1, single
