"""Whether a string is LIKE a pattern: its start, its end, then each part between two % as early as possible.

That is linear in the string for ordinary patterns. Where a text begins again and again without ever being there
(%aaaab% in aaaa...), the work is bounded: the kernel gives up. A part with characters (%aaaa_b%) may take its length
for each byte of the string, which is still ten times as fast as RE2, whose automaton would then not fit.
"""

from __future__ import annotations

from dibs.coding.patterns.groups import ANY, NO_NEWLINES, SPENT, TEXT
from dibs.jit.kernel import phase
from dibs.jit.words import equal_bytes

NO, YES, TOO_MUCH = 0, 1, 2
_NOWHERE = -1


@phase
def is_like(programs, p, data, start, end, work):
    """NO, YES or TOO_MUCH, for the string data[start:end]."""
    if programs.kind[p] == NO_NEWLINES:
        for i in range(start, end):
            if data[i] == 10:
                return TOO_MUCH
    first, last = programs.offsets[p], programs.offsets[p + 1]
    while first < last and programs.pieces[first, 0] != ANY:
        start = _behind(programs, first, data, start, end, work)
        if start == _NOWHERE:
            return NO
        first += 1
    if first == last:
        return YES if start == end else NO
    while programs.pieces[last - 1, 0] != ANY:
        end = _before(programs, last - 1, data, start, end)
        if end == _NOWHERE:
            return NO
        last -= 1
    return _are_between(programs, first + 1, last, data, start, end, work)


@phase
def _are_between(programs, first, last, data, start, end, work):
    """The parts from `first` on, each with an ANY behind it, up to that of the last one. Each begins with a TEXT."""
    allowed = work.counters[SPENT] + work.allowed[0] * (end - start + 16)
    while first < last:
        behind = _NOWHERE
        byte = programs.text[programs.pieces[first, 1]]
        while behind == _NOWHERE:
            while start < end and data[start] != byte:
                start += 1
            if start == end:
                return NO
            if work.counters[SPENT] >= allowed and programs.pieces[first + 1, 0] == ANY:
                return TOO_MUCH
            behind, piece = start, first
            while behind != _NOWHERE and programs.pieces[piece, 0] != ANY:
                behind = _behind(programs, piece, data, behind, end, work)
                piece += 1
            start += 1
        start = behind
        while programs.pieces[first, 0] != ANY:
            first += 1
        first += 1
    return YES


@phase
def _behind(programs, piece, data, start, end, work):
    """Where the piece ends if it starts here."""
    a, b = programs.pieces[piece, 1], programs.pieces[piece, 2]
    if programs.pieces[piece, 0] == TEXT:
        if b - a > end - start:
            return _NOWHERE
        k = equal_bytes(programs.text, a, data, start, b - a)
        work.counters[SPENT] += k
        return start + k if k == b - a else _NOWHERE
    if a > end - start:
        return _NOWHERE
    for _ in range(a):
        if start >= end:
            return _NOWHERE
        start += 1
        while start < end and data[start] & 0xC0 == 0x80:  # the rest of a character beyond ASCII
            start += 1
    work.counters[SPENT] += a
    return start


@phase
def _before(programs, piece, data, start, end):
    """Where the piece starts if it ends here."""
    a, b = programs.pieces[piece, 1], programs.pieces[piece, 2]
    if programs.pieces[piece, 0] == TEXT:
        if b - a > end - start:
            return _NOWHERE
        k = equal_bytes(programs.text, a, data, end - (b - a), b - a)
        return end - k if k == b - a else _NOWHERE
    for _ in range(a):
        if start >= end:
            return _NOWHERE
        end -= 1
        while end > start and data[end] & 0xC0 == 0x80:
            end -= 1
    return end
