"""The documents that satisfy a join's conjunctions, for one event: found through indexes, and taken into its result.

A conjunction is answered through its index: the group of its equated values by hash, in each run of the index a stretch
of the group by search, and the documents that are not in runs (wide ones, and the tail) one by one. What the index does
not tell is tested document by document. A conjunction without an index tests all documents, the newest first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dibs.coding.domain import compare_bytes
from dibs.history.coded.index_kernels import count_below, is_ranked
from dibs.history.coded.layout import (
    AT_MOST,
    EQUAL,
    FUNCTION_COUNT,
    FUNCTION_EXISTS,
    FUNCTION_FIRST,
    FUNCTION_LAST,
    FUNCTION_MIN,
    FUNCTION_SUM,
    INDEX,
    LESS,
    NOT_NULL,
    RUN,
    SEVERAL,
    STRING,
    TIME,
    UNEQUAL,
    UNREADABLE,
    IndexEntries,
    Sorted,
)
from dibs.history.coded.search_kernels import (
    AFTER_KIND,
    BEFORE_KIND,
    combinations,
    group_of,
    group_start,
    is_visible,
    lower_end,
    operand_count,
    operand_of,
    passes_all,
    search,
    upper_end,
)
from dibs.history.coded.total_kernels import count_document
from dibs.jit.group_at import part_at
from dibs.jit.kernel import phase

_MOST = 64  # groups that one conjunction asks for; with more, all documents are tested


class Stretch(NamedTuple):
    """Entries of a run, and what is left to be tested of their documents."""

    start: int
    stop: int
    first_test: int
    last_test: int
    is_exact: bool  # each entry is another document, all are there, and nothing is left to be tested
    has_ends: bool  # the least and the greatest entry are those of the documents that count


@phase
def compare_values(docs, kind, key, tie, other_key, other_tie):
    """-1, 0 or 1: two values of documents, of one kind."""
    if key != other_key:
        return -1 if key < other_key else 1
    if tie == other_tie:
        return 0
    if kind == STRING:
        starts, data = docs.text_start, docs.text_data
        return compare_bytes(data, starts[tie], starts[tie + 1], data, starts[other_tie], starts[other_tie + 1])
    return -1 if tie < other_tie else 1


@phase
def _offer(docs, function, kind, key, tie, row, result):
    """A value of a document that counts, for MIN, MAX, and the last and the first value."""
    if kind >= UNREADABLE:
        return
    if result.has[kind]:
        c = compare_values(docs, kind, key, tie, result.key[kind], result.tie[kind])
        if function == FUNCTION_MIN or function == FUNCTION_FIRST:
            c = -c
        is_later = function == FUNCTION_LAST and row >= result.row[kind]
        is_earlier = function == FUNCTION_FIRST and row <= result.row[kind]
        if c < 0 or (c == 0 and not is_later and not is_earlier):
            return
    result.has[kind], result.key[kind], result.tie[kind], result.row[kind] = 1, key, tie, row


@phase
def has_value(docs, column, row):
    """Whether a document has a value of the column of which something is known."""
    kind = docs.kind[column, row]
    if kind != SEVERAL:
        return kind < UNREADABLE
    first = docs.key[column, row]
    for i in range(first, first + docs.tie[column, row]):
        if docs.extra_kind[i] < UNREADABLE:
            return True
    return False


@phase
def _take(asked, j, row, is_new, result):
    """Takes a document that satisfies the condition of join j; whether that is enough. is_new: it was not met yet."""
    docs, function = asked.docs, asked.joins.function[j]
    if function == FUNCTION_EXISTS:
        result.counts[0], result.counts[1] = 1, row
        return True
    if function == FUNCTION_COUNT:
        if is_new:
            result.counts[0] += 1
        elif asked.seen[row] != result.counts[2]:
            result.counts[0] += 1
            asked.seen[row] = result.counts[2]
        return False
    column = asked.joins.attribute[j]
    if function >= FUNCTION_SUM:
        if not is_new:
            if asked.seen[row] == result.counts[2]:
                return False
            asked.seen[row] = result.counts[2]
        count_document(docs, asked.tally, function, column, row, result.counts[2])
        return False
    if function == FUNCTION_LAST or function == FUNCTION_FIRST:
        if not has_value(docs, column, row):
            return False
        column = asked.joins.by[j]
    kind = docs.kind[column, row]
    if kind != SEVERAL:
        _offer(docs, function, kind, docs.key[column, row], docs.tie[column, row], row, result)
        return False
    first = docs.key[column, row]
    for i in range(first, first + docs.tie[column, row]):
        _offer(docs, function, docs.extra_kind[i], docs.extra_key[i], docs.extra_tie[i], row, result)
    return False


@phase
def _take_ends(asked, run, stretch, j, e, result):
    """The least (greatest) entry of each kind whose document is there."""
    docs, joins = asked.docs, asked.joins
    start, stop = stretch.start, stretch.stop
    function = joins.function[j]
    is_least = function == FUNCTION_MIN or function == FUNCTION_FIRST
    while start < stop:
        at = start if is_least else stop - 1
        step = 1 if is_least else -1
        kind = run.kind[at]
        edge = search(run, start, stop, docs, asked.ops, kind, 0, AFTER_KIND if is_least else BEFORE_KIND, 0)
        while start <= at < stop and run.kind[at] == kind:
            row = np.int64(run.row[at])
            there = is_visible(asked.sight, e, row)
            if there and (function == FUNCTION_LAST or function == FUNCTION_FIRST):
                there = has_value(docs, joins.attribute[j], row)
            if there:
                tie = run.tie[at] if len(run.tie) else np.int32(0)
                _offer(docs, function, kind, run.key[at], tie, row, result)
                break
            at += step
        if is_least:
            start = edge
        else:
            stop = edge


@phase(inline=False)
def _take_stretch(asked, run, stretch, j, e, are_new, result):
    """Takes the documents of a stretch; whether that is enough."""
    if stretch.start >= stretch.stop:
        return False
    function = asked.joins.function[j]
    if function == FUNCTION_COUNT and stretch.is_exact:
        result.counts[0] += stretch.stop - stretch.start
        return False
    if stretch.has_ends:
        _take_ends(asked, run, stretch, j, e, result)
        return False
    base = e * asked.slots
    at = stretch.stop - 1
    while at >= stretch.start:
        row = np.int64(run.row[at])
        if is_visible(asked.sight, e, row) and passes_all(
            asked.docs, asked.ops, asked.tests, stretch.first_test, stretch.last_test, base, row
        ):
            if _take(asked, j, row, are_new, result):
                return True
        at -= 1
    return False


@phase
def _take_rows(asked, first, end, j, c, e, are_new, result):
    """Tests documents one by one, the newest first; whether that is enough."""
    base = e * asked.slots
    tests = asked.conjunctions.stop[c] - asked.conjunctions.equal[c]
    if tests == 0 and are_new and asked.joins.function[j] == FUNCTION_COUNT and len(asked.sight.gone) == 0:
        result.counts[0] += max(end - first, 0)
        return False
    row = end - 1
    while row >= first:
        if (len(asked.sight.gone) == 0 or asked.sight.gone[row] > e) and passes_all(
            asked.docs, asked.ops, asked.tests, asked.conjunctions.equal[c], asked.conjunctions.stop[c], base, row
        ):
            if _take(asked, j, row, are_new, result):
                return True
        row -= 1
    return False


@phase
def _take_wide(asked, index, first, end, j, c, e, are_new, result):
    """Tests the documents that have no entries in the index one by one; whether that is enough."""
    wide = part_at(index, IndexEntries, "wide")
    for i in range(len(wide) - 1, -1, -1):
        row = np.int64(wide[i])
        if row < end and _take_rows(asked, max(first, row), row + 1, j, c, e, are_new, result):
            return True
    return False


@phase
def _is_narrowing(asked, c, base, is_multiple):
    """Whether all tests on the last column of the index are one stretch together."""
    first, stop = asked.conjunctions.order[c], asked.conjunctions.rest[c]
    if is_multiple and stop - first > 1:
        return False
    for t in range(first, stop):
        operator = asked.tests.operator[t]
        if operator == NOT_NULL and stop - first == 1:
            continue
        if operator == UNEQUAL or operator > UNEQUAL + 4 or operand_count(asked.ops, asked.tests, t, base) > 1:
            return False
    return True


@phase
def _narrow(asked, run, start, stop, c, base):
    """The stretch of a group that all tests on the last column leave."""
    tests, ops = asked.tests, asked.ops
    for t in range(asked.conjunctions.order[c], asked.conjunctions.rest[c]):
        if tests.operator[t] == NOT_NULL:
            continue
        if operand_count(ops, tests, t, base) == 0:
            return start, start
        v = operand_of(ops, tests, t, base, 0)
        if ops.kind[v] == UNREADABLE or (tests.is_timed[t] and ops.kind[v] != TIME):
            return start, start
        operator, offset = tests.operator[t], tests.offset[t]
        low = lower_end(run, start, stop, asked.docs, ops, operator, v, offset)
        stop = upper_end(run, low, stop, asked.docs, ops, operator, v, offset)
        start = low
    return start, stop


@phase(inline=False)
def _take_ranges(asked, run, start, stop, j, c, e, result):
    """The stretches of a group that the first test on the last column leaves, operand by operand; the other tests are
    left to do. No entry is in two of them. Whether that is enough."""
    tests, ops, docs = asked.tests, asked.ops, asked.docs
    base, t = e * asked.slots, np.int64(asked.conjunctions.order[c])
    operator, offset = tests.operator[t], tests.offset[t]
    has_ends, done = False, start
    first = operand_of(ops, tests, t, base, 0)
    last = first + operand_count(ops, tests, t, base)
    for v in range(first, last):
        if ops.kind[v] == UNREADABLE or (tests.is_timed[t] and ops.kind[v] != TIME):
            continue
        is_above = v > first and ops.kind[v - 1] == ops.kind[v]
        is_below = v + 1 < last and ops.kind[v + 1] == ops.kind[v]
        if is_below if operator == LESS or operator == AT_MOST else is_above and operator != EQUAL:
            continue  # the greatest of a kind, or the least, says it for all
        if operator != UNEQUAL:
            low = lower_end(run, done, stop, docs, ops, operator, v, offset)
            high = upper_end(run, low, stop, docs, ops, operator, v, offset)
            middle, done = high, high
        elif is_below or ops.low[v] < 0 or ops.low[v] != ops.high[v]:
            low = search(run, start, stop, docs, ops, ops.kind[v], 0, BEFORE_KIND, offset)
            high = search(run, low, stop, docs, ops, ops.kind[v], 0, AFTER_KIND, offset)
            middle = high
        else:
            low = search(run, start, stop, docs, ops, ops.kind[v], 0, BEFORE_KIND, offset)
            high = search(run, low, stop, docs, ops, ops.kind[v], 0, AFTER_KIND, offset)
            middle = lower_end(run, low, high, docs, ops, EQUAL, v, offset)
            above = upper_end(run, middle, high, docs, ops, EQUAL, v, offset)
            stretch = Stretch(above, high, t + 1, np.int64(asked.conjunctions.stop[c]), False, has_ends)
            if _take_stretch(asked, run, stretch, j, e, False, result):
                return True
        stretch = Stretch(low, middle, t + 1, np.int64(asked.conjunctions.stop[c]), False, has_ends)
        if _take_stretch(asked, run, stretch, j, e, False, result):
            return True
    return False


@phase(inline=False)
def take_conjunction(asked, j, c, e, result):
    """Takes the documents that satisfy a conjunction; whether that is enough."""
    conjunctions, sight = asked.conjunctions, asked.sight
    base = e * asked.slots
    first, end = sight.first[e], sight.end[e]
    total, index = np.int64(-1), asked.table + np.int64(conjunctions.number[c]) * INDEX
    if conjunctions.number[c] >= 0:
        total = combinations(asked.ops, asked.tests, conjunctions.equal[c], conjunctions.order[c], base, _MOST)
    if total < 0:
        is_alone = asked.joins.last[j] - asked.joins.first[j] == 1
        return _take_rows(asked, first, end, j, c, e, is_alone, result)
    is_multiple = part_at(index, IndexEntries, "is_multiple") != 0
    is_narrowing = _is_narrowing(asked, c, base, is_multiple)
    is_alone = total == 1 and asked.joins.last[j] - asked.joins.first[j] == 1 and not is_multiple
    rest, stop = np.int64(conjunctions.rest[c]), np.int64(conjunctions.stop[c])
    function = asked.joins.function[j]
    is_by = function == FUNCTION_LAST or function == FUNCTION_FIRST
    last = asked.joins.by[j] if is_by else asked.joins.attribute[j]
    has_ends = FUNCTION_COUNT < function < FUNCTION_SUM
    has_ends = has_ends and last == part_at(index, IndexEntries, "last_column") and rest == stop
    has_ends = has_ends and not (is_multiple and conjunctions.order[c] < rest)
    first_run = asked.table + part_at(index, IndexEntries, "first_run")
    for combination in range(total):
        group = group_of(index, asked.ops, asked.tests, conjunctions.equal[c], conjunctions.order[c], base, combination)
        if group < 0:
            continue
        for r in range(part_at(index, IndexEntries, "runs") - 1, -1, -1):
            sorted = first_run + r * RUN
            oldest, newest = part_at(sorted, Sorted, "oldest"), part_at(sorted, Sorted, "newest")
            if newest < first or oldest >= end:
                continue
            run = part_at(sorted, Sorted, "run")
            a, b = group_start(run, group), group_start(run, group + 1)
            if a == b:
                continue
            if not is_narrowing:
                if _take_ranges(asked, run, a, b, j, c, e, result):
                    return True
                continue
            a, b = _narrow(asked, run, a, b, c, base)
            are_there = len(sight.gone) == 0 and oldest >= first and newest < end
            if function == FUNCTION_COUNT and is_alone and rest == stop and not are_there and len(sight.gone) == 0:
                if is_ranked(sorted):
                    size = np.int64(len(run.row))
                    before = count_below(sorted, size, a, b, np.int64(first))
                    result.counts[0] += count_below(sorted, size, a, b, np.int64(end)) - before
                    continue
            stretch = Stretch(a, b, rest, stop, is_alone and are_there and rest == stop, has_ends)
            if _take_stretch(asked, run, stretch, j, e, is_alone, result):
                return True
    if _take_wide(asked, index, first, end, j, c, e, is_alone, result):
        return True
    tail = max(first, part_at(index, IndexEntries, "sorted"))
    return _take_rows(asked, tail, end, j, c, e, is_alone, result)
