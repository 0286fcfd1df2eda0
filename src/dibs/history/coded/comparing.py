"""One value of a document against operands, and one document against tests: see layout.py for what they are."""

from __future__ import annotations

import numpy as np

from dibs.coding.domain import compare_bytes
from dibs.history.coded.layout import (
    ANYTHING,
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
)
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
    if kind != ops.kind[v]:
        return ops.kind[v] == ANYTHING and kind < UNREADABLE
    if kind >= UNREADABLE:
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
        for v in range(first, last):
            if kind != ops.kind[v] or stands(docs, ops, EQUAL, v, kind, key, tie, 0):
                return False
        return kind < UNREADABLE
    if tests.is_timed[t] and kind != TIME:
        return False
    for v in range(first, last):
        if stands(docs, ops, operator, v, kind, key, tie, tests.offset[t]):
            return True
    return False


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
