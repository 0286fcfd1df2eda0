"""One value of a document against operands, one document against tests (layout.py says what they are), and where in an
index the documents are that a conjunction asks for: groups by hash, stretches of runs by search.
"""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import compare_bytes
from dibs.history.coded.index_kernels import mix
from dibs.history.coded.layout import (
    AT_LEAST,
    AT_MOST,
    EQUAL,
    IS_NULL,
    LESS,
    MISSING,
    MORE,
    NEVER,
    NOT_IN,
    NOT_NULL,
    OPEN_HIGH,
    OPEN_LOW,
    PATTERN,
    SEVERAL,
    STRING,
    TIME,
    UNEQUAL,
    UNREADABLE,
    IndexEntries,
)
from dibs.jit.group_at import part_at
from dibs.jit.hashing import find_slot
from dibs.jit.kernel import phase


@phase
def compare_end(docs, ops, kind, key, tie, i, offset):
    """-1, 0 or 1: a document's value against the end i of an operand, both of one kind."""
    other = ops.key[i]
    if offset != 0:
        moved = other + offset
        if offset > 0 and moved < other:  # later than all times
            return -1
        if offset < 0 and moved > other:
            return 1
        other = moved
    if key != other:
        return -1 if key < other else 1
    own = ops.tie[i]
    if tie == own:
        return 0
    if kind == STRING:
        return compare_bytes(
            docs.text_data, docs.text_start[tie], docs.text_start[tie + 1], ops.data, ops.start[i], ops.stop[i]
        )
    return -1 if tie < own else 1


@phase
def stands(docs, ops, operator, v, kind, key, tie, offset):
    """Whether a document's value stands in the relation to operand v, or to some value of its interval."""
    if kind != ops.kind[v] or kind >= UNREADABLE:
        return False
    low, high, is_open = ops.low[v], ops.high[v], ops.is_open[v]
    if operator == UNEQUAL:
        return low < 0 or low != high or compare_end(docs, ops, kind, key, tie, low, offset) != 0
    if low >= 0 and (operator == EQUAL or operator == MORE or operator == AT_LEAST):
        c = compare_end(docs, ops, kind, key, tie, low, offset)
        if c < 0 or (c == 0 and (operator == MORE or is_open & OPEN_LOW)):
            return False
        if low == high and operator == EQUAL:
            return c == 0
    if high >= 0 and (operator == EQUAL or operator == LESS or operator == AT_MOST):
        c = compare_end(docs, ops, kind, key, tie, high, offset)
        if c > 0 or (c == 0 and (operator == LESS or is_open & OPEN_HIGH)):
            return False
    return True


@phase
def _first_of_kind(ops, first, last, kind):
    """The first of these operands that is of this or a later kind."""
    while first < last:
        middle = (first + last) >> 1
        if ops.kind[middle] < kind:
            first = middle + 1
        else:
            last = middle
    return first


@phase(inline=False)
def _stands_to_several(docs, ops, operator, first, last, kind, key, tie, offset):
    first = _first_of_kind(ops, first, last, kind)
    last = _first_of_kind(ops, first, last, kind + 1)
    if last - first < 2:
        return first < last and stands(docs, ops, operator, first, kind, key, tie, offset)
    if operator == UNEQUAL:
        return kind < UNREADABLE
    if operator == LESS or operator == AT_MOST:
        return stands(docs, ops, operator, last - 1, kind, key, tie, offset)
    if operator == MORE or operator == AT_LEAST:
        return stands(docs, ops, operator, first, kind, key, tie, offset)
    below, above = first, last  # the last one that does not begin above the value is the only one that may have it
    while above - below > 1:
        middle = (below + above) >> 1
        low = ops.low[middle]
        if low >= 0 and compare_end(docs, ops, kind, key, tie, low, offset) < 0:
            above = middle
        else:
            below = middle
    return stands(docs, ops, operator, below, kind, key, tie, offset)


@phase
def stands_to_any(docs, ops, operator, first, last, kind, key, tie, offset):
    """Whether a document's value stands in the relation to one of these operands, which are those of a test or slot."""
    if last - first == 1:
        return stands(docs, ops, operator, first, kind, key, tie, offset)
    return last > first and _stands_to_several(docs, ops, operator, first, last, kind, key, tie, offset)


@phase
def passes_value(docs, ops, tests, t, base, kind, key, tie):
    """Whether one value of a document passes a test. base: the first slot of the event."""
    operator = tests.operator[t]
    if operator == NOT_NULL:
        return kind != UNREADABLE
    if operator == PATTERN:
        return kind == STRING and docs.patterns[tests.first[t], tie] != 0
    if operator == NEVER:
        return False
    slot = tests.slot[t]
    first, last = np.int64(tests.first[t]), np.int64(tests.last[t])
    if slot >= 0:
        first, last = ops.at[base + slot], ops.at[base + slot + 1]
    if operator == NOT_IN:
        if kind >= UNREADABLE or (first < last and (ops.kind[first] != kind or ops.kind[last - 1] != kind)):
            return False
        return not stands_to_any(docs, ops, EQUAL, first, last, kind, key, tie, 0)
    if tests.is_timed[t] and kind != TIME:
        return False
    return stands_to_any(docs, ops, operator, first, last, kind, key, tie, tests.offset[t])


@phase
def passes(docs, ops, tests, t, base, row):
    """Whether a document passes a test."""
    column = tests.column[t]
    kind = docs.kind[column, row]
    if tests.operator[t] == IS_NULL:
        return kind == MISSING
    if kind == MISSING:
        return False
    if kind != SEVERAL:
        return passes_value(docs, ops, tests, t, base, kind, docs.key[column, row], docs.tie[column, row])
    first = docs.key[column, row]
    for i in range(first, first + docs.tie[column, row]):
        if passes_value(docs, ops, tests, t, base, docs.extra_kind[i], docs.extra_key[i], docs.extra_tie[i]):
            return True
    return False


@phase(inline=False)
def passes_all(docs, ops, tests, first, stop, base, row):
    for t in range(first, stop):
        if not passes(docs, ops, tests, t, base, row):
            return False
    return True


@phase
def is_visible(view, e, row):
    return row >= view.first[e] and row < view.end[e] and (len(view.gone) == 0 or view.gone[row] > e)


BEFORE_KIND, NOT_BELOW, ABOVE, AFTER_KIND = range(4)  # where in a kind a search ends


@phase
def operand_of(ops, tests, t, base, k):
    """The k-th operand of a test."""
    slot = tests.slot[t]
    return (ops.at[base + slot] if slot >= 0 else np.int64(tests.first[t])) + k


@phase
def operand_count(ops, tests, t, base):
    slot = tests.slot[t]
    if slot >= 0:
        return ops.at[base + slot + 1] - ops.at[base + slot]
    return np.int64(tests.last[t] - tests.first[t])


@phase
def combinations(ops, tests, first, stop, base, most):
    """How many groups the equalities of a conjunction ask for; -1: more than so many, or one of them asks for an
    interval."""
    total = np.int64(1)
    for t in range(first, stop):
        n = operand_count(ops, tests, t, base)
        for k in range(n):
            v = operand_of(ops, tests, t, base, k)
            if ops.kind[v] < UNREADABLE and (ops.low[v] < 0 or ops.low[v] != ops.high[v]):
                return np.int64(-1)
            if ops.kind[v] > UNREADABLE:
                return np.int64(-1)
        total *= n
        if total > most:  # and no further: the product may be beyond all numbers
            return np.int64(-1)
    return total


@phase
def _move(ops, tests, t, v):
    """(whether there is one, kind, key, tie): what a document has that is equal to operand v."""
    i = ops.low[v]
    kind, offset = ops.kind[v], tests.offset[t]
    if kind == UNREADABLE or (tests.is_timed[t] and kind != TIME):
        return False, kind, np.int64(0), np.int32(0)
    key = ops.key[i] + offset
    if (offset > 0 and key < ops.key[i]) or (offset < 0 and key > ops.key[i]):
        return False, kind, key, np.int32(0)
    return ops.tie[i] >= 0 or kind != STRING, kind, key, ops.tie[i]


@phase(inline=False)
def group_of(index, ops, tests, first, stop, base, combination):
    """The group of a combination of operands; -1: no document is in it. index: the address of its entries."""
    if first == stop:
        return np.int64(0)
    h = np.uint64(stop - first)
    left = combination
    for t in range(first, stop):
        n = operand_count(ops, tests, t, base)
        exists, kind, key, tie = _move(ops, tests, t, operand_of(ops, tests, t, base, left % n))
        if not exists:
            return np.int64(-1)
        left //= n
        h = mix(h, kind, key, tie)
    slots, kinds, keys, ties = part_at(index, IndexEntries, "groups")
    count = part_at(index, IndexEntries, "group_count")
    return find_slot(slots, h, count, _is_group, (ops, tests, first, stop, base, combination, kinds, keys, ties))[1]


@phase
def _is_group(thing, group):
    ops, tests, first, stop, base, left, kinds, keys, ties = thing
    for t in range(first, stop):
        n = operand_count(ops, tests, t, base)
        _, kind, key, tie = _move(ops, tests, t, operand_of(ops, tests, t, base, left % n))
        left //= n
        i = group * np.int64(stop - first) + (t - first)
        if kinds[i] != kind or keys[i] != key or ties[i] != tie:
            return False
    return True


@phase
def group_start(run, group):
    """The first entry whose group is not below."""
    a, n = np.int64(0), np.int64(len(run.group))
    while n > 0:
        half = (n + 1) >> 1
        a += half * np.int64(run.group[a + half - 1] < group)
        n -= half
    return a


@phase(inline=False)
def search(run, start, stop, docs, ops, kind, i, mode, offset):
    """Within a group, [start, stop) of the run: the first entry of this or a later kind that is at the place which the
    mode tells, with respect to the end i of an operand."""
    a, b = start, stop
    while a < b:
        m = (a + b) >> 1
        if run.kind[m] != kind:
            is_below = run.kind[m] < kind
        elif mode == BEFORE_KIND or mode == AFTER_KIND:
            is_below = mode == AFTER_KIND
        else:
            tie = run.tie[m] if len(run.tie) else np.int32(0)
            c = compare_end(docs, ops, kind, run.key[m], tie, i, offset)
            is_below = c < 0 or (c == 0 and mode == ABOVE)
        if is_below:
            a = m + 1
        else:
            b = m
    return a


@phase
def lower_end(run, start, stop, docs, ops, operator, v, offset):
    """Where the entries begin that are in a relation to operand v (not UNEQUAL)."""
    kind, i = ops.kind[v], ops.low[v]
    if i < 0 or not (operator == EQUAL or operator == MORE or operator == AT_LEAST):
        return search(run, start, stop, docs, ops, kind, 0, BEFORE_KIND, offset)
    mode = ABOVE if operator == MORE or ops.is_open[v] & OPEN_LOW else NOT_BELOW
    return search(run, start, stop, docs, ops, kind, i, mode, offset)


@phase
def upper_end(run, start, stop, docs, ops, operator, v, offset):
    """Where they end."""
    kind, i = ops.kind[v], ops.high[v]
    if i < 0 or not (operator == EQUAL or operator == LESS or operator == AT_MOST):
        return search(run, start, stop, docs, ops, kind, 0, AFTER_KIND, offset)
    mode = NOT_BELOW if operator == LESS or ops.is_open[v] & OPEN_HIGH else ABOVE
    return search(run, start, stop, docs, ops, kind, i, mode, offset)
