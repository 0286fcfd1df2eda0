"""Vectors to matches, event by event. See index.auto.vectors for the idea and the arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dibs.index.auto.record_layout import Facts
from dibs.index.auto.vector_layout import LANES, WORD, VectorArrays, VectorSpace
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES, ClauseArrays, EventArrays, Room
from dibs.index.kernels import clear, lay_out, test_conjunction
from dibs.jit.group_at import group_at, grouped
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import and_lines, count_bits, lowest_bit, prefetch

ONE = np.uint64(1)
FAR = 1 << 15  # words of vectors that do not fit into the near caches: they are prefetched


class FiledVectors(NamedTuple):
    """What every search reads."""

    own: VectorArrays
    clauses: ClauseArrays


class VectorCall(NamedTuple):
    """What one search reads and writes besides."""

    events: EventArrays
    room: Room


@kernel
def match_vectors(points, inexact, last_event, progress, filed, space, *parts):
    """filed, space: the addresses of a FiledVectors and a VectorSpace; parts: those of a VectorCall."""
    index, clauses = group_at(filed, FiledVectors)
    space = group_at(space, VectorSpace)
    events, room = grouped(parts, VectorCall)
    progress[PAIRS] = 0
    match_events(LANES, index, clauses, events, Facts(points, inexact), last_event, space, room, progress)


@phase(inline=False)
def match_events(lanes, index, clauses, events, facts, last_event, space, room, progress):
    """Goes on where `progress` says (PAIRS: where the next pair goes) and stops before the event for whose pairs there
    is no room."""
    slots, fits = space.slots, True
    while fits and progress[NEXT_EVENT] < last_event:
        e = progress[NEXT_EVENT]
        first, last = events.offsets[e], events.offsets[e + 1]
        several = not facts.points and _has_several(first, last, events)
        if facts.inexact:
            lay_out(first, last, events.attribute, events.lo, events.hi, slots.lo, slots.hi, slots.more)
        before = progress[PAIRS], progress[CANDIDATES], progress[PREDICATES], progress[NODES]
        if several:
            _list_segments(first, last, index, events, space)
            fits = _search_several(first, last, index, clauses, events, space, room, progress)
        else:
            _find_segments(first, last, index, events, space)
            fits = _search(lanes, first, last, index, clauses, events, space, room, progress)
        for i in range(first, last):
            space.here[events.attribute[i]] = 0
        if facts.inexact:
            clear(first, last, events.attribute, slots.lo, slots.hi, slots.more)
        if fits:
            progress[NEXT_EVENT] += 1
        else:
            progress[PAIRS], progress[CANDIDATES], progress[PREDICATES], progress[NODES] = before


@phase(inline=False)
def _has_several(first, last, events):
    for i in range(first, last):
        if (i > first and events.attribute[i - 1] == events.attribute[i]) or events.lo[i] != events.hi[i]:
            return True
    return False


@phase
def _segment_at(a, cell, index):
    """The segment of a cell, or minus the last one before it; behind the last cell, minus the last one."""
    base, cells = index.cells[a], index.cells[a + 1] - index.cells[a]
    if cells == 0:
        return np.int64(0)
    return np.int64(index.segment[base + cell]) if cell < cells else index.segments[a] - index.segments[a + 1]


@phase(inline=False)
def _find_segments(first, last, index, events, space):
    for i in range(first, last):
        a = np.int64(events.attribute[i])
        space.here[a] = max(_segment_at(a, np.int64(events.lo[i]), index), np.int64(0))


@phase(inline=False)
def _list_segments(first, last, index, events, space):
    """The segments of all values of each attribute, in order and each once. Entries come by their first cells."""
    behind, previous = np.int64(1), np.int64(-1)
    for i in range(first, last):
        a = np.int64(events.attribute[i])
        if a != previous:
            behind, previous = np.int64(1), a
        x, y = _segment_at(a, np.int64(events.lo[i]), index), _segment_at(a, np.int64(events.hi[i]), index)
        begin, end = max(x if x > 0 else 1 - x, behind), abs(y)
        for s in range(begin, end + 1):
            space.listed[index.segments[a] + space.here[a]] = s
            space.here[a] += 1
        behind = max(behind, end + 1)


@phase
def _has_all(g, index, space):
    for slot in range(index.slots[g], index.slots[g + 1]):
        if space.here[index.slot_attribute[slot]] == 0:
            return False
    return True


@phase(inline=False)
def _search(lanes, first, last, index, clauses, events, space, room, progress):
    """The groups of an event with one value for each attribute. False if the room is full."""
    if len(index.vectors) > FAR:
        _ask_for_vectors(first, last, index, events, space)
    for i in range(first, last):
        a = np.int64(events.attribute[i])
        for g in range(index.groups_of[a], index.groups_of[a + 1]):
            if _has_all(g, index, space):
                _place_slots(g, index, space)
                if not _search_group(lanes, g, index, clauses, events, space, room, progress):
                    return False
    return True


@phase(inline=False)
def _ask_for_vectors(first, last, index, events, space):
    """Prefetches what is read first of each group: all at once, or one would be waited for after the other."""
    for i in range(first, last):
        a = np.int64(events.attribute[i])
        for g in range(index.groups_of[a], index.groups_of[a + 1]):
            if _has_all(g, index, space):
                _place_slots(g, index, space)
                for k in range(index.slots[g + 1] - index.slots[g]):
                    prefetch(index.summaries, space.summary[k])
                    if index.lines[g] == 1:
                        prefetch(index.vectors, space.vector[k] * len(space.line))


@phase
def _place_slots(g, index, space):
    words = (np.int64(index.lines[g]) + WORD - 1) // WORD
    for slot in range(index.slots[g], index.slots[g + 1]):
        s = np.int64(space.here[index.slot_attribute[slot]]) - 1
        k = slot - index.slots[g]
        space.vector[k] = index.slot_vector[slot] + s * index.lines[g]
        space.summary[k] = index.slot_summary[slot] + s * words


@phase(inline=False)
def _search_group(lanes, g, index, clauses, events, space, room, progress):
    """The lines that are empty in none of the vectors. False if the room is full."""
    n = np.int64(index.slots[g + 1] - index.slots[g])
    for w in range((np.int64(index.lines[g]) + WORD - 1) // WORD):
        left = ~np.uint64(0)
        for k in range(n):
            left &= index.summaries[space.summary[k] + w]
        while left:
            line = w * WORD + lowest_bit(left)
            left &= left - ONE
            progress[NODES] += 1
            filled = and_lines(lanes, index.vectors, space.vector, line, 0, n, space.line)
            if not _report_line(g, line, filled, index, clauses, events, space, room, progress):
                return False
    return True


@phase
def _report_line(g, line, filled, index, clauses, events, space, room, progress):
    """What is left of a line, verified where that is needed; filled: a bit for each of its words that is not empty.
    False if the room is full."""
    while filled:
        k = lowest_bit(filled)
        filled &= filled - ONE
        x = space.line[k]
        found, bits = progress[PAIRS], count_bits(x)
        if found + bits > len(room.event):
            return False
        progress[CANDIDATES] += bits
        base = index.start[g] + (line * len(space.line) + k) * WORD
        while x:
            row = np.int64(index.row[base + lowest_bit(x)])
            x &= x - ONE
            ok = True
            if index.exact[g] == 0:
                ok, tests = test_conjunction(row, clauses, space.slots, events)
                progress[PREDICATES] += tests
            room.event[found], room.row[found] = progress[NEXT_EVENT], row
            found += ok
        progress[PAIRS] = found
    return True


@phase(inline=False)
def _search_several(first, last, index, clauses, events, space, room, progress):
    """The groups of an event with several values for some attribute, or a range. False if the room is full."""
    for i in range(first, last):
        a = np.int64(events.attribute[i])
        if i > first and events.attribute[i - 1] == a:
            continue
        for g in range(index.groups_of[a], index.groups_of[a + 1]):
            if _has_all(g, index, space):
                for line in range(index.lines[g]):
                    filled = _and_listed(g, line, index, space)
                    progress[NODES] += 1
                    if not _report_line(g, line, filled, index, clauses, events, space, room, progress):
                        return False
    return True


@phase(inline=False)
def _and_listed(g, line, index, space):
    """What is left of a line: of each slot the OR of the vectors of all segments listed, of these the AND. Returns a
    bit for each word that is not empty."""
    filled, lines, width = np.uint64(0), np.int64(index.lines[g]), len(space.line)
    for k in range(width):
        left = ~np.uint64(0)
        for slot in range(index.slots[g], index.slots[g + 1]):
            a, some = index.slot_attribute[slot], np.uint64(0)
            at = index.segments[a]
            for q in range(at, at + space.here[a]):
                place = index.slot_vector[slot] + (np.int64(space.listed[q]) - 1) * lines + line
                some |= index.vectors[place * width + k]
            left &= some
        space.line[k] = left
        filled |= np.uint64(left != 0) << np.uint64(k)
    return filled
