"""Clauses to the words of records: a header for each, and its tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.auto.access_sets import Entries
from dibs.index.auto.record_layout import COARSE, HIGH, LOW, MIDDLE, ONE, PROGRAM, VERIFY
from dibs.index.spans import hull_of
from dibs.jit.kernel import kernel, phase

MOST_ORDERED = 64  # tests of a clause that are put in order: by insertion


class Filed(NamedTuple):
    """The clauses to pack, in order."""

    row: NDArray[np.int64]
    entry: NDArray[np.int64]  # of programs, which have the tests of the entry; -1: all predicates are tests
    by_value: NDArray[np.bool_]  # behind a guard; not so under an attribute
    known: NDArray[np.int64]  # filed x 2: predicates that need no test, as they hold for whoever looks; -1: none


class Tests(NamedTuple):
    """Those of index.auto.access_sets.Entries."""

    exact: NDArray[np.bool_]
    start: NDArray[np.int64]
    tests: NDArray[np.int64]

    @classmethod
    def of(cls, entries: Entries) -> Tests:
        return cls(entries.exact, entries.test_start, entries.tests)


@kernel
def pack(filed, longest, entries, clauses, share, shift, most_spans):
    """The stream of what is filed, and where each clause starts; at the end, where the last one ends, and a word that
    is none. The tests of what is filed by value, `longest` of a clause at the most, are in the order of their
    likelihood (share)."""
    place = np.zeros(len(filed.row) + 1, np.int64)
    _count_words(place, filed, entries, clauses, shift, most_spans)
    words = np.zeros(place[-1] + 1, np.uint64)
    _write_clauses(words, np.empty(longest, np.int64), filed, entries, clauses, share, shift, most_spans)
    return words, place


@phase(inline=False)
def _count_words(place, filed, entries, clauses, shift, most_spans):
    for i in range(len(filed.row)):
        n, _ = _count_tests(i, filed, entries, clauses, shift, most_spans)
        place[i + 1] = place[i] + 1 + n


@phase(inline=False)
def _write_clauses(words, tested, filed, entries, clauses, share, shift, most_spans):
    """tested: room for the tests of a clause."""
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
            for k in range(_order_tests(i, tested, filed, entries, clauses, share)):
                at = _write_tests(words, at, tested[k], clauses, shift, most_spans)


@phase(inline=False)
def _order_tests(i, tested, filed, entries, clauses, share):
    """The predicates that are tested, of what is filed by value the least likely first; how many."""
    first, last = tests_of(filed.row[i], filed.entry[i], entries, clauses)
    n = 0
    for k in range(first, last):
        p = entries.tests[k] if filed.entry[i] >= 0 else k
        if not _is_known(p, i, filed):
            at = n
            while filed.by_value[i] and at > 0 and n < MOST_ORDERED and share[tested[at - 1]] > share[p]:
                tested[at] = tested[at - 1]
                at -= 1
            tested[at] = p
            n += 1
    return n


@kernel(inline="always")
def _is_known(p, i, filed):
    return p == filed.known[i, 0] or p == filed.known[i, 1]


@kernel(inline="always")
def tests_of(row, entry, entries, clauses):
    """From where to where the tests of what is filed stand: among those of entries, or as predicates."""
    if entry >= 0:
        first, last = entries.start[entry], entries.start[entry + 1]
    else:
        first, last = clauses.offsets[row], clauses.offsets[row + 1]
    return first, last


@phase(inline=False)
def _count_tests(i, filed, entries, clauses, shift, most_spans):
    """How many words the tests take, and whether they are wider than the predicates."""
    n, verify = 0, False
    first, last = tests_of(filed.row[i], filed.entry[i], entries, clauses)
    for k in range(first, last):
        p = entries.tests[k] if filed.entry[i] >= 0 else k
        if _is_known(p, i, filed):
            continue
        spans = 1 if clauses.hi[p] >= 0 else -clauses.hi[p]
        if shift[clauses.attribute[p]] > 0 or spans > most_spans:
            verify = True
            n += 1
        else:
            n += spans
    if n > 0xFFFF:  # more than a header can count: all are left to the clauses
        n, verify = 0, True
    return n, verify


@kernel
def count_fewest(filed, attribute, attributes, entries, clauses):
    """By attribute: how many attributes, at least, what is filed under it needs; 0: nothing is. attribute: under which
    each is filed."""
    fewest = np.zeros(attributes, np.uint8)
    for i in range(len(filed.row)):
        n, a = np.uint8(_count_attributes(i, filed, entries, clauses)), attribute[i]
        if fewest[a] == 0 or n < fewest[a]:
            fewest[a] = n
    return fewest


@phase(inline=False)
def _count_attributes(i, filed, entries, clauses):
    """How many attributes an event must have for the tests to hold: of the first MOST_ORDERED, and at least 1."""
    n = 0
    first, last = tests_of(filed.row[i], filed.entry[i], entries, clauses)
    last = min(last, first + MOST_ORDERED)
    for k in range(first, last):
        p = entries.tests[k] if filed.entry[i] >= 0 else k
        is_new = hull_of(p, clauses)[0] > 0  # not without a value
        for before in range(first, k):
            q = entries.tests[before] if filed.entry[i] >= 0 else before
            is_new = is_new and clauses.attribute[q] != clauses.attribute[p]
        n += is_new
    return max(n, 1)


@phase(inline=False)
def _write_tests(words, at, p, clauses, shift, most_spans):
    """The hull of a predicate and, where that is exact, one test for each hole. Returns the place behind them."""
    a, low, high = clauses.attribute[p], clauses.lo[p], clauses.hi[p]
    words[at] = hull(p, clauses, shift)
    at += 1
    if high >= 0:
        return at
    first, last = low, low - high - 1  # the spans
    if last - first < most_spans and shift[a] == 0:
        for s in range(first, last):  # from the next span round to this one
            x, y = clauses.span_lo[s + 1], clauses.span_hi[s]
            words[at] = _word(a, x, (y - x) & 0xFFFF)
            at += 1
    return at


@phase(inline=False)
def hull(p, clauses, shift):
    """The test of whether a value lies between the first and the last cell of a predicate."""
    a = clauses.attribute[p]
    low, high = hull_of(p, clauses)
    x, y = COARSE - 1, COARSE - 1  # never holds: no event has this coarse cell
    if low <= high:
        x, y = np.int64(low >> shift[a]), np.int64(high >> shift[a])
    return _word(a, x, y - x)


@kernel(inline="always")
def _word(high, middle, low):
    return (np.uint64(high) << HIGH) | (np.uint64(middle) << MIDDLE) | np.uint64(low)


@kernel
def has_flag(words, flag):
    """Whether some header has it."""
    at = np.uint64(0)
    while at < np.uint64(len(words) - 1):
        if (words[at] >> MIDDLE) & np.uint64(flag) != 0:
            return True
        at += (words[at] & LOW) + ONE
    return False
