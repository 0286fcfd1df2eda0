"""The documents that satisfy the part of a condition that indexes and tests can tell: see candidates.py."""

from __future__ import annotations

import numpy as np

from dibs.history.coded.document_kernels import take_conjunction
from dibs.history.coded.layout import UNREADABLE, Result
from dibs.history.coded.total_kernels import COUNT
from dibs.jit.kernel import kernel, phase


@phase
def _find(asked, j, e, result):
    """Lists the documents of join j for event e in asked.tally.rows; how many there are."""
    asked.tally.counts[COUNT] = 0
    result.counts[2] += 1
    for c in range(asked.joins.first[j], asked.joins.last[j]):
        take_conjunction(asked, j, c, e, result)
    return asked.tally.counts[COUNT]


@kernel
def count_candidates(asked, event, join):
    """For each event: how many documents join number `join` lists. (asked.seen is all 0.)"""
    count, has, key = np.zeros(3, np.int64), np.zeros(UNREADABLE, np.uint8), np.zeros(UNREADABLE, np.int64)
    tie, row = np.zeros(UNREADABLE, np.int32), np.zeros(UNREADABLE, np.int32)
    result = Result(count, has, key, tie, row)
    found = np.empty(len(event), np.int64)
    for i in range(len(event)):
        found[i] = _find(asked, np.int64(join), np.int64(event[i]), result)
    return found


@kernel
def list_candidates(asked, event, join, offsets):
    """The documents, those of event[i] at offsets[i] to offsets[i + 1]. (asked.seen is all 0.)"""
    count, has, key = np.zeros(3, np.int64), np.zeros(UNREADABLE, np.uint8), np.zeros(UNREADABLE, np.int64)
    tie, row = np.zeros(UNREADABLE, np.int32), np.zeros(UNREADABLE, np.int32)
    result = Result(count, has, key, tie, row)
    found = np.empty(offsets[len(event)], np.int32)
    for i in range(len(event)):
        size = min(_find(asked, np.int64(join), np.int64(event[i]), result), offsets[i + 1] - offsets[i])
        for k in range(size):
            found[offsets[i] + k] = asked.tally.rows[k]
    return found
