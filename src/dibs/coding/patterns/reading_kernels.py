"""RE2 texts of patterns to pieces: what CONTAINS and LIKE were made of, and what a regular expression must contain.

An expression of plain characters, `.`, `.*` and `.+` between its ends is a LIKE, whoever wrote it. Of any other one the
texts are taken of which each match contains at least one. Where there is any doubt, there are none: such an
expression is always tried.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dibs.coding.patterns.automaton_kernels import read_automata
from dibs.coding.patterns.groups import ANY, CONTAINS, LIKE, NO_NEWLINES, ONE, REGEX, TEXT, PatternPieces
from dibs.coding.patterns.needs_kernels import DEEPEST, FOLDING, MOST, Runs, read_needs
from dibs.jit.kernel import kernel, phase
from dibs.tuning import tuned

# 1.6 kB each; in RE2 20 kB
PATTERN_AUTOMATA = tuned("pattern_automata", 1 << 14, 0, "expressions", "of an attribute that kernels verify, not RE2")

# Bytes that are no plain characters; `{` and what closes brackets may be plain, which is left to RE2.
_SPECIAL = np.zeros(256, np.bool_)
_SPECIAL[np.frombuffer(rb"\.[](){}*+?|^$", np.uint8)] = True
_MOST_COUNTS = 22  # bits: counters of runs
_ALPHANUMERIC = np.array([chr(c).isalnum() and c < 128 for c in range(256)])


def read_patterns(starts: NDArray[np.int64], data: NDArray[np.uint8]) -> PatternPieces:
    """The patterns data[starts[i]:starts[i + 1]]."""
    n, size = len(starts) - 1, int(starts[-1] - starts[0])
    kind, offsets = np.empty(n, np.uint8), np.zeros(n + 1, np.int64)
    text = np.empty(len(FOLDING) + size, np.uint8)
    text[: len(FOLDING)] = FOLDING
    pieces = np.empty((3 * (size + n), 3), np.int64)  # the most there can be: memory that is not touched costs nothing
    frames, found = np.empty((DEEPEST + 1, 6), np.int64), np.empty((2 * MOST * (DEEPEST + 2), 2), np.int64)
    runs = Runs(np.zeros(1 << min(max(size.bit_length(), 4), _MOST_COUNTS), np.uint32), 0)
    end = _read_patterns(starts, data, kind, offsets, pieces, (text, frames, found, runs))
    expressions = int(np.count_nonzero(kind == REGEX))
    if expressions > 1:  # again, as it is known now which texts many of them have
        end = _read_patterns(starts, data, kind, offsets, pieces, (text, frames, found, Runs(runs.counts, expressions)))
    automaton, automata = read_automata(starts, data, np.flatnonzero(kind == REGEX), PATTERN_AUTOMATA.value)
    return PatternPieces(kind, offsets, pieces[: offsets[n]].copy(), text[:end].copy(), automaton, automata)


@kernel
def _read_patterns(starts, data, kind, offsets, pieces, space):
    """Fills kind, offsets and pieces, and returns the end of the text. space: (text, frames, found, runs)."""
    text, _, found, _ = space
    count, end = 0, len(FOLDING)
    for p in range(len(kind)):
        what, count_now, end_now = _read_like(data, starts[p], starts[p + 1], pieces, count, text, end)
        if what == REGEX:
            needs = read_needs(data, starts[p], starts[p + 1], space, end)
            for i in range(needs):
                pieces[count_now, 0], pieces[count_now, 1], pieces[count_now, 2] = TEXT, found[i, 0], found[i, 1]
                count_now += 1
                end_now = max(end_now, found[i, 1])
        kind[p], count, end = what, count_now, end_now
        offsets[p + 1] = count
    return end


@phase(inline=False)
def _read_like(data, at, stop, pieces, count, text, end):
    """(what the pattern is, pieces and bytes of text then). REGEX: nothing that counts was written."""
    first = count
    with_newlines = stop - at >= 4 and data[at] == 40 and data[at + 1] == 63 and data[at + 2] == 115
    if with_newlines and data[at + 3] == 41:  # (?s)
        at += 4
    else:
        with_newlines = False
    wildcards = False
    if at < stop and data[at] == 94:  # ^
        at += 1
    elif at + 1 < stop and data[at] == 92 and data[at + 1] == 65:  # \A
        at += 2
    else:
        count = _add_any(pieces, first, count)
    open_end = True
    while at < stop:
        byte = data[at]
        if byte == 46:  # .
            wildcards = True
            times = data[at + 1] if at + 1 < stop else np.uint8(0)
            if times != 42:
                count = _add_one(pieces, first, count)
            if times == 42 or times == 43:  # * +
                count = _add_any(pieces, first, count)
                at += 1
            at += 1
            continue
        if byte == 36 and at + 1 == stop:  # $
            open_end = False
            break
        if byte == 92:
            byte, at = _unescape(data, at, stop)
            if byte == _END:
                open_end = False
                break
            if byte == _NO_BYTE:
                return REGEX, first, end
        elif _SPECIAL[byte]:
            return REGEX, first, end
        if count == first or pieces[count - 1, 0] != TEXT:
            pieces[count, 0], pieces[count, 1] = TEXT, end
            count += 1
        text[end] = byte
        end += 1
        pieces[count - 1, 2] = end
        at += 1
    if open_end:
        count = _add_any(pieces, first, count)
    if wildcards and not with_newlines:
        return NO_NEWLINES, count, end
    contains = count == first + 3 and pieces[first, 0] == ANY and pieces[first + 1, 0] == TEXT
    return (CONTAINS if contains and pieces[first + 2, 0] == ANY else LIKE), count, end


_NO_BYTE, _END = 256, 257


@phase(inline=False)
def _unescape(data, at, stop):
    """(the byte behind a backslash that stands for itself, where it ends). Instead of the byte: _END for the end of
    the string, _NO_BYTE for anything else."""
    if at + 1 >= stop:
        return np.int64(_NO_BYTE), at
    byte = data[at + 1]
    if byte < 128 and not _ALPHANUMERIC[byte]:
        return np.int64(byte), at + 1
    if byte == 122 and at + 2 == stop:  # \z
        return np.int64(_END), at + 1
    if byte == 120 and at + 3 < stop and data[at + 2] == 48 and data[at + 3] == 48:  # \x00
        return np.int64(0), at + 3
    return np.int64(_NO_BYTE), at


@phase(inline=False)
def _add_any(pieces, first, count):
    if count > first and pieces[count - 1, 0] == ANY:
        return count
    pieces[count, 0], pieces[count, 1], pieces[count, 2] = ANY, 0, 0
    return count + 1


@phase(inline=False)
def _add_one(pieces, first, count):
    """One more character; before an ANY that stands at the end."""
    behind = np.int64(count > first and pieces[count - 1, 0] == ANY)
    at = count - behind
    if at > first and pieces[at - 1, 0] == ONE:
        pieces[at - 1, 1] += 1
        return count
    pieces[at, 0], pieces[at, 1], pieces[at, 2] = ONE, 1, 0
    if behind:
        pieces[at + 1, 0], pieces[at + 1, 1], pieces[at + 1, 2] = ANY, 0, 0
    return count + 1
