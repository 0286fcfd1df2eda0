"""Very many LIKEs that may hold for one long string: where each of their texts stands in it is listed once.

Each LIKE alone takes a pass over the string, so that a string with as many of them as it has words would take the
square of its length. Here the texts are looked for together, those of one length by one pass (a rolling hash leads to
the one text that may stand at a place), and then the next place of a text behind another is found by halving.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.coding.patterns.filter_kernels import FROM, LENGTH, MULTIPLIER, hash_shift
from dibs.coding.patterns.groups import ANY, SPENT, PatternPieces, PatternSpace
from dibs.coding.patterns.like_kernels import NO, NOWHERE, TOO_MUCH, YES, behind_part, between_ends, next_part
from dibs.jit.borrowing import borrow
from dibs.jit.kernel import kernel, phase

_LENGTHS = 64  # different ones that are looked for; a pattern with a text of another length is decided alone
_PLACES = 2  # for each byte of the string, that are listed at most
_BASE = np.uint64(0x2545F4914F6CDD1D)


def are_like(
    programs: PatternPieces,
    numbered: tuple[NDArray[np.int64], NDArray[np.int64]],
    patterns: NDArray[np.int64],
    data: NDArray[np.uint8],
    work: tuple[NDArray[np.int64], ...],
) -> NDArray[np.int8]:
    """NO, YES or TOO_MUCH for each of the patterns, none of which is a REGEX; a string with line breaks has none that
    is NO_NEWLINES. numbered: filter_kernels.number_texts(programs); work: a PatternSpace."""
    number, texts = numbered
    needed = np.unique(number[_first_texts(programs, patterns)])
    needed = needed[needed >= 0]
    sizes, counts = np.unique(texts[needed, LENGTH], return_counts=True)
    most = sizes[np.argsort(-counts, kind="stable")][:_LENGTHS]
    groups = [needed[texts[needed, LENGTH] == size] for size in most.tolist()]
    ends = np.zeros(len(texts), np.int64)  # first how many places a text has, then where they end
    listed = np.zeros(len(texts), np.bool_)
    for group, size in zip(groups, most.tolist()):
        listed[group] = _find_places(programs.text, data, texts[group, FROM], size, group, ends, ends[:0])
    if ends.sum() > _PLACES * (len(data) + (1 << 15)):
        return np.full(len(patterns), TOO_MUCH, np.int8)
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(ends, out=offsets[1:])
    ends[:] = offsets[:-1]
    places = np.empty(int(offsets[-1]), np.int64)
    for group, size in zip(groups if len(places) else (), most.tolist()):
        _find_places(programs.text, data, texts[group, FROM], size, group, ends, places)
    return _verify_all(tuple(programs), patterns, number, listed, offsets, places, data, work)


def _first_texts(programs: PatternPieces, patterns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pieces behind an ANY, of which a part between two of them begins with one (or is none)."""
    own = np.zeros(len(programs.pieces) + 1, np.bool_)
    marks = np.zeros(len(programs.pieces) + 1, np.int64)
    np.add.at(marks, programs.offsets[patterns], 1)
    np.add.at(marks, programs.offsets[patterns + 1], -1)
    own[1:] = (np.cumsum(marks)[:-1] > 0) & (programs.pieces[:, 0] == ANY)
    return np.flatnonzero(own[: len(programs.pieces)])


@kernel
def _find_places(text, data, starts, length, numbers, ends, places):
    """Where the texts of one length, which begin at `starts`, may stand in the data: one more of ends[t] for text t
    and, if there is room for places, at places[ends[t]], in order. False: two texts have the same hash, and nothing is
    known of them. (That something else has the hash of a text is found out when the place is looked at.)"""
    room = 16
    while room < 2 * len(starts):
        room *= 2
    shift, last = hash_shift(room), np.uint64(room - 1)
    table, hashes = np.zeros(room, np.int64), np.empty(len(starts), np.uint64)
    for i in range(len(starts)):
        h = np.uint64(0)
        for k in range(starts[i], starts[i] + length):
            h = h * _BASE + np.uint64(text[k])
        hashes[i] = h
        at = (h * MULTIPLIER) >> shift
        while table[at] != 0:
            if hashes[table[at] - 1] == h:
                return False
            at = (at + np.uint64(1)) & last
        table[at] = i + 1
    leaving = np.uint64(1)  # what the byte before the first of a place counts for
    for _ in range(length):
        leaving *= _BASE
    h = np.uint64(0)
    for i in range(len(data)):
        h = h * _BASE + np.uint64(data[i])
        begin = i + 1 - length
        if begin < 0:
            continue
        if begin > 0:
            h -= leaving * np.uint64(data[begin - 1])
        at = (h * MULTIPLIER) >> shift
        while table[at] != 0:
            k = table[at] - 1
            if hashes[k] == h:
                t = numbers[k]
                if len(places) > 0:
                    places[ends[t]] = begin
                ends[t] += 1
                break
            at = (at + np.uint64(1)) & last
    return True


@kernel
def _verify_all(programs, patterns, number, listed, offsets, places, data, work):
    """NO, YES or TOO_MUCH for each pattern."""
    programs, work = borrow(PatternPieces(*programs)), borrow(PatternSpace(*work))
    result = np.empty(len(patterns), np.int8)
    for i in range(len(patterns)):
        result[i] = _verify(programs, patterns[i], number, listed, offsets, places, data, work)
    return result


@phase(inline=False)
def _verify(programs, p, number, listed, offsets, places, data, work):
    ok, first, last, start, end = between_ends(programs, p, data, np.int64(0), np.int64(len(data)), work)
    if first >= last:
        return YES if ok else NO
    allowed = work.counters[SPENT] + work.allowed[0] * (end - start + 16)
    while first < last:
        t = number[first]
        if not listed[t]:
            return TOO_MUCH
        at, behind = _first_place(places, offsets[t], offsets[t + 1], start), np.int64(NOWHERE)
        while behind == NOWHERE:
            if at == offsets[t + 1]:
                return NO
            if work.counters[SPENT] > allowed:
                return TOO_MUCH
            behind = behind_part(programs, first, data, places[at], end, work)
            at += 1
        start, first = behind, next_part(programs, first)
    return YES


@phase
def _first_place(places, a, b, start):
    """The first of these places that is not before the start."""
    while a < b:
        m = (a + b) >> 1
        if places[m] < start:
            a = m + 1
        else:
            b = m
    return a
