"""Clauses to the words of records: a header for each, and its tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.auto.access_sets import Entries
from dibs.index.auto.record_layout import COARSE, HIGH, LOW, MIDDLE, ONE, PROGRAM, VERIFY
from dibs.jit.kernel import kernel, phase


class Filed(NamedTuple):
    """The clauses to pack, ordered by group."""

    row: NDArray[np.int64]
    group: NDArray[np.int64]
    entry: NDArray[np.int64]  # of programs, which have the tests of the entry; -1: all predicates are tests


class Tests(NamedTuple):
    """Those of index.auto.access_sets.Entries."""

    exact: NDArray[np.bool_]
    start: NDArray[np.int64]
    tests: NDArray[np.int64]

    @classmethod
    def of(cls, entries: Entries) -> Tests:
        return cls(entries.exact, entries.test_start, entries.tests)


@kernel
def pack(filed, groups, entries, clauses, shift, most_spans):
    """The stream of what is filed, and where each group starts."""
    start = np.zeros(groups + 1, np.int64)
    _count_words(start, filed, entries, clauses, shift, most_spans)
    for g in range(groups):
        start[g + 1] += start[g]
    words = np.empty(start[-1], np.uint64)
    _write_clauses(words, filed, entries, clauses, shift, most_spans)
    return words, start


@phase(inline=False)
def _count_words(start, filed, entries, clauses, shift, most_spans):
    """The words of each group, one place behind it."""
    for i in range(len(filed.row)):
        n, _ = _count_tests(i, filed, entries, clauses, shift, most_spans)
        start[filed.group[i] + 1] += 1 + n


@phase(inline=False)
def _write_clauses(words, filed, entries, clauses, shift, most_spans):
    at = 0
    for i in range(len(filed.row)):
        n, verify = _count_tests(i, filed, entries, clauses, shift, most_spans)
        flags = 0
        if filed.entry[i] >= 0:
            flags = PROGRAM
            verify = verify or not entries.exact[filed.entry[i]]
        if verify:
            flags |= VERIFY
        words[at] = _word(filed.row[i], flags, n)
        at += 1
        if n > 0:
            first, last = _tests_of(i, filed, entries, clauses)
            for k in range(first, last):
                p = entries.tests[k] if filed.entry[i] >= 0 else k
                at = _write_tests(words, at, p, clauses, shift, most_spans)


@kernel(inline="always")
def _tests_of(i, filed, entries, clauses):
    """From where to where the tests of what is filed stand: among those of entries, or as predicates."""
    if filed.entry[i] >= 0:
        first, last = entries.start[filed.entry[i]], entries.start[filed.entry[i] + 1]
    else:
        first, last = clauses.offsets[filed.row[i]], clauses.offsets[filed.row[i] + 1]
    return first, last


@phase(inline=False)
def _count_tests(i, filed, entries, clauses, shift, most_spans):
    """How many words the tests take, and whether they are wider than the predicates."""
    n, verify = 0, False
    first, last = _tests_of(i, filed, entries, clauses)
    for k in range(first, last):
        p = entries.tests[k] if filed.entry[i] >= 0 else k
        spans = 1 if clauses.hi[p] >= 0 else -clauses.hi[p]
        if shift[clauses.attribute[p]] > 0 or spans > most_spans:
            verify = True
            n += 1
        else:
            n += spans
    if n > 0xFFFF:  # more than a header can count: all are left to the clauses
        n, verify = 0, True
    return n, verify


@phase(inline=False)
def _write_tests(words, at, p, clauses, shift, most_spans):
    """The hull of a predicate and, where that is exact, one test for each hole. Returns the place behind them."""
    a, low, high = clauses.attribute[p], clauses.lo[p], clauses.hi[p]
    if high >= 0:
        words[at] = _hull(a, low, high, shift[a])
        return at + 1
    first, last = low, low - high - 1  # the spans
    words[at] = _hull(a, clauses.span_lo[first], clauses.span_hi[last], shift[a])
    at += 1
    if last - first < most_spans and shift[a] == 0:
        for s in range(first, last):  # from the next span round to this one
            x, y = clauses.span_lo[s + 1], clauses.span_hi[s]
            words[at] = _word(a, x, (y - x) & 0xFFFF)
            at += 1
    return at


@kernel(inline="always")
def _hull(a, low, high, shift):
    x, y = COARSE - 1, COARSE - 1  # never holds: no event has this coarse cell
    if low <= high:
        x, y = np.int64(low >> shift), np.int64(high >> shift)
    return _word(a, x, y - x)


@kernel(inline="always")
def _word(high, middle, low):
    return (np.uint64(high) << HIGH) | (np.uint64(middle) << MIDDLE) | np.uint64(low)


@kernel
def has_flag(words, start, flag):
    """Whether some header has it."""
    at = np.uint64(0)
    while at < np.uint64(start[-1]):
        if (words[at] >> MIDDLE) & np.uint64(flag) != 0:
            return True
        at += (words[at] & LOW) + ONE
    return False
