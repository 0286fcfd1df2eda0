"""Joins answered for events: every join once per event, over the documents that the event sees (document_kernels).
Before an event comes, the documents that the indexed part of a condition lets through are listed (candidates.py), and
questions that subscriptions ask of documents get their witnesses (history/prefilter.py)."""

from __future__ import annotations

import numpy as np

from dibs.history.coded.document_kernels import take_conjunction
from dibs.history.coded.layout import (
    FUNCTION_COUNT,
    FUNCTION_EXISTS,
    FUNCTION_FIRST,
    FUNCTION_LAST,
    FUNCTION_SUM,
    IS_FALSE,
    IS_TRUE,
    NUMBER,
    SEVERAL,
    UNREADABLE,
    Result,
)
from dibs.history.coded.search_kernels import stands_to_any
from dibs.history.coded.total_kernels import COUNT, IS_SECOND, end_total, start_total
from dibs.jit.bits import bits_of_number, number_of_bits
from dibs.jit.kernel import kernel, phase

_SIGN = np.int64(2**63 - 1)


@phase
def _scale(key, tie, factor):
    """(key, tie) of a number times a factor, as float64 multiplies them."""
    bits = key if key >= 0 else key ^ _SIGN
    value = number_of_bits(bits)
    if tie != 0 and value == np.inf:
        return key, tie
    product = value * factor + 0.0
    if product != product:
        return bits_of_number(np.inf), np.int32(1)
    own = bits_of_number(product)
    return (own if own >= 0 else own ^ _SIGN), np.int32(0)


@phase
def _compare_one(asked, j, e, kind, key, tie):
    """The truth of the comparison of a join's value with those of the event."""
    joins, ops = asked.joins, asked.ops
    if kind == NUMBER and not np.isnan(joins.factor[j]):
        key, tie = _scale(key, tie, joins.factor[j])
    elif not np.isnan(joins.factor[j]):
        return 0
    truth, base = 0, e * asked.slots + joins.slot[j]
    first, last = ops.at[base], ops.at[base + 1]
    if stands_to_any(asked.docs, ops, joins.operator[j], first, last, kind, key, tie, 0):
        truth |= IS_TRUE
    if stands_to_any(asked.docs, ops, joins.negated[j], first, last, kind, key, tie, 0):
        truth |= IS_FALSE
    return truth


@phase
def _truth(asked, j, e, result):
    """The truth of a join that is a condition."""
    joins, docs = asked.joins, asked.docs
    function = joins.function[j]
    if function == FUNCTION_EXISTS:
        return IS_TRUE if result.counts[0] else IS_FALSE
    if function == FUNCTION_COUNT:
        return _compare_one(asked, j, e, NUMBER, bits_of_number(np.float64(result.counts[0])), np.int32(0))
    truth = 0
    for kind in range(UNREADABLE):
        if not result.has[kind]:
            continue
        if function != FUNCTION_LAST and function != FUNCTION_FIRST:
            truth |= _compare_one(asked, j, e, kind, result.key[kind], result.tie[kind])
            continue
        column, row = joins.attribute[j], result.row[kind]
        if docs.kind[column, row] != SEVERAL:
            truth |= _compare_one(asked, j, e, docs.kind[column, row], docs.key[column, row], docs.tie[column, row])
            continue
        first = docs.key[column, row]
        for i in range(first, first + docs.tie[column, row]):
            truth |= _compare_one(asked, j, e, docs.extra_kind[i], docs.extra_key[i], docs.extra_tie[i])
    return truth


@phase
def _emit(asked, j, e, result, answers, n):
    """Writes the values of a join that is no condition behind the n that are there; how many there are then."""
    if asked.joins.function[j] == FUNCTION_COUNT:
        answers.event[n], answers.join[n], answers.kind[n] = e, j, NUMBER
        answers.key[n], answers.tie[n], answers.row[n] = bits_of_number(np.float64(result.counts[0])), 0, -1
        return n + 1
    for kind in range(UNREADABLE):
        if result.has[kind]:
            answers.event[n], answers.join[n], answers.kind[n] = e, j, kind
            answers.key[n], answers.tie[n], answers.row[n] = result.key[kind], result.tie[kind], result.row[kind]
            n += 1
    return n


@kernel(forceinline=True)
def _no_result():
    has, key = np.zeros(UNREADABLE, np.uint8), np.zeros(UNREADABLE, np.int64)
    return Result(np.zeros(3, np.int64), has, key, np.zeros(UNREADABLE, np.int32), np.zeros(UNREADABLE, np.int32))


@phase(inline=False)
def _take_documents(asked, j, e, result):
    result.counts[2] += 1
    for c in range(asked.joins.first[j], asked.joins.last[j]):
        if take_conjunction(asked, j, c, e, result):
            break


@phase(inline=False)
def _find_total(asked, j, e, result):
    tally, function = asked.tally, asked.joins.function[j]
    tally.counts[IS_SECOND] = 0
    while True:
        start_total(tally)
        _take_documents(asked, j, e, result)
        if not end_total(tally, function, result):
            return
        tally.counts[IS_SECOND] = 1


@phase
def _find(asked, j, e, memo, result):
    """What join j is for event e."""
    is_fixed = asked.joins.is_fixed[j] and len(memo.is_known) > 0
    if is_fixed and memo.is_known[j]:
        result.counts[0], result.counts[1] = memo.counts[j, 0], memo.counts[j, 1]
        for kind in range(UNREADABLE):
            result.has[kind], result.row[kind] = memo.has[j, kind], memo.row[j, kind]
            result.key[kind], result.tie[kind] = memo.key[j, kind], memo.tie[j, kind]
        return
    result.counts[0], result.counts[1] = 0, -1
    for kind in range(UNREADABLE):
        result.has[kind] = 0
    if asked.joins.function[j] >= FUNCTION_SUM:
        _find_total(asked, j, e, result)
    else:
        _take_documents(asked, j, e, result)
    if is_fixed:
        memo.counts[j, 0], memo.counts[j, 1] = result.counts[0], result.counts[1]
        for kind in range(UNREADABLE):
            memo.has[j, kind], memo.row[j, kind] = result.has[kind], result.row[kind]
            memo.key[j, kind], memo.tie[j, kind] = result.key[kind], result.tie[kind]
        memo.is_known[j] = 1


@kernel
def answer_joins(asked, offsets, needed, memo, answers):
    """The joins needed[offsets[e] : offsets[e + 1]] for each event e, all of them where there are no offsets. Returns
    how many values were written."""
    result = _no_result()
    n = 0
    all_of_them = len(offsets) == 0
    for e in range(len(asked.sight.end)):
        first, last = np.int64(0), np.int64(len(asked.joins.function))
        if not all_of_them:
            first, last = offsets[e], offsets[e + 1]
        for place in range(first, last):
            j = place if all_of_them else np.int64(needed[place])
            _find(asked, j, e, memo, result)
            if len(answers.witness):
                answers.witness[e, j] = result.counts[1]
            if asked.joins.function[j] == FUNCTION_EXISTS or asked.joins.slot[j] >= 0:
                answers.truth[e, j] = _truth(asked, j, e, result)
            else:
                n = _emit(asked, j, e, result, answers, n)
    return n


@phase
def _list_documents(asked, j, e, result):
    """Lists the documents of join j for event e in asked.tally.rows; how many there are."""
    asked.tally.counts[COUNT] = 0
    result.counts[2] += 1
    for c in range(asked.joins.first[j], asked.joins.last[j]):
        take_conjunction(asked, j, c, e, result)
    return asked.tally.counts[COUNT]


@kernel
def count_candidates(asked, event, join):
    """For each event: how many documents join number `join` lists. (asked.seen is all 0.)"""
    result = _no_result()
    found = np.empty(len(event), np.int64)
    for i in range(len(event)):
        found[i] = _list_documents(asked, np.int64(join), np.int64(event[i]), result)
    return found


@kernel
def list_candidates(asked, event, join, offsets):
    """The documents, those of event[i] at offsets[i] to offsets[i + 1]. (asked.seen is all 0.)"""
    result = _no_result()
    found = np.empty(offsets[len(event)], np.int32)
    for i in range(len(event)):
        size = min(_list_documents(asked, np.int64(join), np.int64(event[i]), result), offsets[i + 1] - offsets[i])
        for k in range(size):
            found[offsets[i] + k] = asked.tally.rows[k]
    return found


@kernel
def find_witnesses(asked, event, join):
    """For each question (event, join): a document that satisfies it, or -1. All joins are EXISTS."""
    result = _no_result()
    found = np.empty(len(event), np.int64)
    for i in range(len(event)):
        result.counts[0], result.counts[1] = 0, -1
        j, e = np.int64(join[i]), np.int64(event[i])
        for c in range(asked.joins.first[j], asked.joins.last[j]):
            if take_conjunction(asked, j, c, e, result):
                break
        found[i] = result.counts[1]
    return found
