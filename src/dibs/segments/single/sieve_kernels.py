"""The records of a layer for a single event, through a sieve (index.auto.singles)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.auto.record_layout import COARSE, FLAGS, HIGH, LINE, LOW, MIDDLE, ONE, RecordArrays
from dibs.index.auto.record_tests import next_stamp, verify
from dibs.index.auto.singles import PLACE, SieveArrays
from dibs.index.groups import CANDIDATES, NEXT_EVENT, PAIRS, PREDICATES, ClauseArrays
from dibs.index.kernels import Jumps, clear, lay_out
from dibs.jit.groups import Clean, Sized
from dibs.jit.kernel import phase
from dibs.jit.prefetching import prefetch

SOON, LINES = 8, 16  # so many values before its turn, a group is prefetched, and so many cache lines of it
SIFTED = 256  # clauses that are sifted before those that passed are asked for
PASSED = 2 * SIFTED  # and how many may have passed before they are tested
_SIX, _LOW_SIX = np.uint64(6), np.uint64(63)


class Sifting(NamedTuple):
    present: Annotated[NDArray[np.uint64], Clean("attribute_words")]  # bits: the attributes of the event
    passed: Annotated[NDArray[np.uint64], Sized(PASSED)]  # places of clauses


class Sieved(NamedTuple):
    """What a layer has."""

    records: RecordArrays
    sieve: SieveArrays
    clauses: ClauseArrays
    jumps: Jumps


@phase(inline=False)
def match_sieved(own, events, inexact, layer, work, sifting, room, progress):
    """Adds the rows of an event whose attributes have one cell each. If the room is full, NEXT_EVENT stays what it
    is."""
    first, last = events.offsets[layer], events.offsets[layer + 1]
    _mark(own.records, events, first, last, work.coarse, sifting.present)
    if inexact:
        lay_out(first, last, events.attribute, events.lo, events.hi, work.slots.lo, work.slots.hi, work.slots.more)
    next_stamp(work.stamps)
    fits = _sift(own, events, layer, work, sifting, room, progress)
    _clear(own.records, events, first, last, work.coarse, sifting.present)
    if inexact:
        clear(first, last, events.attribute, work.slots.lo, work.slots.hi, work.slots.more)
    if fits:
        progress[NEXT_EVENT] = layer + 1


@phase
def _mark(records, events, first, last, coarse, present):
    for i in range(first, last):
        prefetch(records.shift, events.attribute[i])
        prefetch(coarse, events.attribute[i])
    for i in range(first, last):
        a = np.uint64(events.attribute[i])
        coarse[a] = np.uint16(min(events.lo[i] >> records.shift[a], COARSE - 2))  # above every span, below "never"
        present[a >> _SIX] |= ONE << (a & _LOW_SIX)
    every = np.uint64(len(records.shift))  # stands for: needs no attribute
    present[every >> _SIX] |= ONE << (every & _LOW_SIX)


@phase
def _clear(records, events, first, last, coarse, present):
    for i in range(first, last):
        a = np.uint64(events.attribute[i])
        coarse[a] = 0
        present[a >> _SIX] = 0
    present[np.uint64(len(records.shift)) >> _SIX] = 0


@phase
def _sift(own, events, layer, work, sifting, room, progress):
    """False if the room is full."""
    first, last = events.offsets[layer], events.offsets[layer + 1]
    passed = np.uint64(0)
    for i in range(first, last):
        prefetch(own.sieve.start, events.attribute[i])
    for i in range(first, min(first + SOON, last)):
        _ask_for_group(own.sieve, events.attribute[i])
    for i in range(first, last):
        if i + SOON < last:
            _ask_for_group(own.sieve, events.attribute[i + SOON])
        a = np.uint64(events.attribute[i])
        at, end = np.uint64(own.sieve.start[a]), np.uint64(own.sieve.start[a + ONE])
        progress[CANDIDATES] += np.int64(end - at)
        progress[PREDICATES] += np.int64(end - at)
        while at < end:
            if passed > np.uint64(PASSED - SIFTED):
                if not _test_passed(passed, own, events, layer, work, sifting, room, progress):
                    return False
                passed = np.uint64(0)
            stop, before = min(end, at + np.uint64(SIFTED)), passed
            while at < stop:  # no branch on the outcome: it would be mispredicted
                word = own.sieve.words[at]
                sifting.passed[passed] = word & PLACE
                needed = word >> HIGH
                passed += (sifting.present[needed >> _SIX] >> (needed & _LOW_SIX)) & ONE
                at += ONE
            for k in range(before, passed):
                prefetch(own.records.words, sifting.passed[k])
                prefetch(own.records.words, sifting.passed[k] + np.uint64(LINE - 1))
    return _test_passed(passed, own, events, layer, work, sifting, room, progress)


@phase
def _ask_for_group(sieve, attribute):
    at, end = sieve.start[attribute], min(sieve.start[attribute + 1], sieve.start[attribute] + LINE * LINES)
    while at < end:
        prefetch(sieve.words, at)
        at += LINE


@phase(inline=False)
def _test_passed(passed, own, events, layer, work, sifting, room, progress):
    """Tests the clauses that passed the sieve. False if the room is full."""
    found, tested = progress[PAIRS], np.int64(0)
    if found + np.int64(passed) > len(room.row):
        return False
    for k in range(passed):
        p = sifting.passed[k]
        header = own.records.words[p]
        after = p + (header & LOW) + ONE
        tested += np.int64(after - p)
        p += ONE
        fails = np.uint64(0)
        while p < after:
            test = own.records.words[p]
            fails |= np.uint64(((np.uint64(work.coarse[test >> HIGH]) - (test >> MIDDLE)) & LOW) > (test & LOW))
            p += ONE
        row, flags = header >> HIGH, (header >> MIDDLE) & FLAGS
        if flags != 0 and fails == 0:
            fails = np.uint64(not verify(np.int64(row), flags, False, False, own.clauses, own.jumps, events, work))
        room.event[found], room.row[found] = layer, row
        found += np.int64(fails == 0)
    progress[PAIRS] = found
    progress[PREDICATES] += tested - np.int64(passed)
    return True
