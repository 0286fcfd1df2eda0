"""The kernel of questions that subscriptions ask of documents before an event comes: see history/prefilter.py."""

from __future__ import annotations

import numpy as np

from dibs.history.coded.document_kernels import take_conjunction
from dibs.history.coded.layout import UNREADABLE, Result
from dibs.jit.kernel import kernel


@kernel
def find_witnesses(asked, event, join):
    """For each question (event, join): a document that satisfies it, or -1. All joins are EXISTS."""
    count, has, key = np.zeros(3, np.int64), np.zeros(UNREADABLE, np.uint8), np.zeros(UNREADABLE, np.int64)
    tie, row = np.zeros(UNREADABLE, np.int32), np.zeros(UNREADABLE, np.int32)
    result = Result(count, has, key, tie, row)
    found = np.empty(len(event), np.int64)
    for i in range(len(event)):
        result.counts[0], result.counts[1] = 0, -1
        j, e = np.int64(join[i]), np.int64(event[i])
        for c in range(asked.joins.first[j], asked.joins.last[j]):
            if take_conjunction(asked, j, c, e, result):
                break
        found[i] = result.counts[1]
    return found
