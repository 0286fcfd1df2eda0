"""Whether a string is LIKE a pattern: its start, its end, then each part between two % as early as possible.

That is linear in the string for ordinary patterns. Where a part begins again and again without ever being there
(%aaaab%, %aaa_b% in aaaa...), the work is bounded: the kernel gives up, and `is_like_at_once` decides about patterns
with single characters: all beginnings of a part that are still possible are bits of a few words, so that a byte of the
string takes a step for each 64 of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.patterns.groups import ANY, NO_NEWLINES, SPENT, TEXT
from dibs.jit.kernel import kernel, phase
from dibs.jit.words import equal_bytes

NO, YES, TOO_MUCH = 0, 1, 2
NOWHERE = -1


@phase
def is_like(programs, p, data, start, end, work):
    """NO, YES or TOO_MUCH, for the string data[start:end]."""
    if programs.kind[p] == NO_NEWLINES:
        work.counters[SPENT] += end - start
        for i in range(start, end):
            if data[i] == 10:
                return TOO_MUCH
    ok, first, last, start, end = between_ends(programs, p, data, start, end, work)
    if first == last:
        return YES if ok else NO
    return _are_between(programs, first, last, data, start, end, work)


@phase
def between_ends(programs, p, data, start, end, work):
    """(whether the string begins and ends as the pattern does, the pieces of the parts between, and the bytes that are
    left to them). Each part has an ANY behind it, also the last one. No pieces: nothing is left to find out."""
    first, last = programs.offsets[p], programs.offsets[p + 1]
    while first < last and programs.pieces[first, 0] != ANY:
        start = _behind_piece(programs, first, data, start, end, work)
        if start == NOWHERE:
            return False, first, first, start, end
        first += 1
    if first == last:
        return start == end, first, first, start, end
    while programs.pieces[last - 1, 0] != ANY:
        end = _before_piece(programs, last - 1, data, start, end)
        if end == NOWHERE:
            return False, first, first, start, end
        last -= 1
    return True, first + 1, last, start, end


@phase
def _are_between(programs, first, last, data, start, end, work):
    """The parts from `first` on, each with an ANY behind it, up to that of the last one. Each begins with a TEXT."""
    allowed = work.counters[SPENT] + work.allowed[0] * (end - start + 16)
    while first < last:
        behind = NOWHERE
        byte = programs.text[programs.pieces[first, 1]]
        while behind == NOWHERE:
            work.counters[SPENT] -= start
            while start < end and data[start] != byte:
                start += 1
            work.counters[SPENT] += start
            if start == end:
                return NO
            if work.counters[SPENT] >= allowed:
                return TOO_MUCH
            behind = behind_part(programs, first, data, start, end, work)
            start += 1
        start, first = behind, next_part(programs, first)
    return YES


@phase
def behind_part(programs, piece, data, start, end, work):
    """Where the part that begins with this piece ends if it starts here: before the next ANY."""
    while start != NOWHERE and programs.pieces[piece, 0] != ANY:
        start = _behind_piece(programs, piece, data, start, end, work)
        piece += 1
    return start


@phase
def next_part(programs, piece):
    """The first piece behind the next ANY."""
    while programs.pieces[piece, 0] != ANY:
        piece += 1
    return piece + 1


@phase
def _behind_piece(programs, piece, data, start, end, work):
    """Where the piece ends if it starts here."""
    a, b = programs.pieces[piece, 1], programs.pieces[piece, 2]
    if programs.pieces[piece, 0] == TEXT:
        if b - a > end - start:
            return NOWHERE
        k = equal_bytes(programs.text, a, data, start, b - a)
        work.counters[SPENT] += k
        return start + k if k == b - a else NOWHERE
    if a > end - start:
        return NOWHERE
    for _ in range(a):
        if start >= end:
            return NOWHERE
        start += 1
        while start < end and data[start] & 0xC0 == 0x80:  # the rest of a character beyond ASCII
            start += 1
    work.counters[SPENT] += a
    return start


@phase
def _before_piece(programs, piece, data, start, end):
    """Where the piece starts if it ends here."""
    a, b = programs.pieces[piece, 1], programs.pieces[piece, 2]
    if programs.pieces[piece, 0] == TEXT:
        if b - a > end - start:
            return NOWHERE
        k = equal_bytes(programs.text, a, data, end - (b - a), b - a)
        return end - k if k == b - a else NOWHERE
    for _ in range(a):
        if start >= end:
            return NOWHERE
        end -= 1
        while end > start and data[end] & 0xC0 == 0x80:
            end -= 1
    return end


class States(NamedTuple):
    """A LIKE as an automaton. State i, a bit: the first i of its bytes and single characters are there. Word w of the
    states in which a byte can arrive is arriving[byte, w]."""

    arriving: NDArray[np.uint64]  # 256 x words
    # Two rows: states behind which a % stands, which any byte leaves as they are; these, and states behind a single
    # character, which may have more bytes.
    staying: NDArray[np.uint64]
    resting: NDArray[np.int64]  # words with states behind which a % stands
    last: int  # the state of the whole pattern


def states_of(pieces: list[tuple[int, int, int]], content: NDArray[np.uint8]) -> States:
    """Of a pattern's pieces and the text that they point into."""
    size = sum(b - a if kind == TEXT else a for kind, a, b in pieces if kind != ANY)
    bits = np.zeros((258, -(-(size + 1) // 64) * 64), np.bool_)
    arriving, staying, going_on = bits[:256], bits[256], bits[257]
    state = 0
    for kind, a, b in pieces:
        if kind == ANY:
            staying[state] = True
        elif kind == TEXT:
            arriving[content[a:b], np.arange(state + 1, state + 1 + b - a)] = True
            state += b - a
        else:
            arriving[:128, state + 1 : state + 1 + a] = arriving[192:, state + 1 : state + 1 + a] = True
            going_on[state + 1 : state + 1 + a] = True
            state += a
    going_on |= staying
    words = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    return States(words[:256].copy(), words[256:].copy(), np.flatnonzero(words[256]), state)


@kernel
def is_like_at_once(arriving, staying, resting, last, data):
    """Whether the string is what the States (see there) describe. Where a % was reached, nothing before it is needed
    any more, so only the words from there to the farthest state are looked at."""
    states = np.zeros(staying.shape[1], np.uint64)
    one, top, highest = np.uint64(1), np.uint64(63), np.uint64(len(states) - 1)
    states[0] = one
    low, high = np.uint64(0), np.uint64(0)  # words with states
    rest = 0  # the words of `resting` before it are behind
    for i in range(np.uint64(len(data))):
        byte = np.uint64(data[i])
        row = np.uint64(byte & np.uint64(0xC0) == np.uint64(0x80))  # inside a character beyond ASCII
        high = min(high + one, highest)
        before = np.uint64(0)
        for w in range(low, high + one):
            s = states[w]
            states[w] = (((s << one) | (before >> top)) & arriving[byte, w]) | (s & staying[row, w])
            before = s
        k = rest
        while k < len(resting) and np.uint64(resting[k]) <= high:
            w = np.uint64(resting[k])
            if states[w] & staying[0, w] != 0:
                rest = k
                for x in range(low, w):
                    states[x] = 0
                low = max(low, w)
            k += 1
        while high > low and states[high] == 0:
            high -= one
        while low < high and states[low] == 0:
            low += one
        if states[low] == 0:
            return False
    return (states[last >> 6] >> np.uint64(last & 63)) & one != 0
