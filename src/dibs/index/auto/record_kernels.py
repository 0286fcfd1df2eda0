"""Searching records: the groups of an event's attributes and values, clause by clause."""

from __future__ import annotations

import numpy as np

from dibs.index.auto.record_layout import (
    COARSE,
    EARLY,
    FLAGS,
    HIGH,
    LINE,
    LINES,
    LOW,
    MIDDLE,
    ONE,
    PROGRAM,
    SOON,
    VERIFY,
    Facts,
    RecordArrays,
    WorkSpace,
)
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NEXT_ROW, PAIRS, PREDICATES, ClauseArrays, EventArrays, Room
from dibs.index.kernels import Jumps, Slots, clear, lay_out, test_conjunction, test_program
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch


@kernel
def match(points, inexact, has_programs, first_program, last_event, progress, *arrays):
    """The arrays of RecordArrays, ClauseArrays, Jumps, EventArrays, WorkSpace and Room, one after the other: handing
    groups over from Python takes twice the time, which single events would notice."""
    records, clauses = RecordArrays(*arrays[:7]), ClauseArrays(*arrays[7:13])
    jumps, events = Jumps(arrays[13], arrays[14], first_program), EventArrays(*arrays[15:19])
    slots, coarse, stamps = Slots(*arrays[19:22]), arrays[22], arrays[23]
    facts, space, room = Facts(points, inexact, has_programs), WorkSpace(slots, coarse, stamps), Room(*arrays[24:])
    progress[PAIRS] = 0
    match_events(records, clauses, jumps, events, facts, last_event, space, room, progress)


match_few = keeping(match)


@phase(inline=False)
def match_events(records, clauses, jumps, events, facts, last_event, space, room, progress):
    """Goes on where `progress` says (NEXT_ROW: the entry of the event; PAIRS: where the next pair goes) and stops when
    the room for pairs is full."""
    slots = space.slots
    while progress[NEXT_EVENT] < last_event:
        e = progress[NEXT_EVENT]
        first, last = events.offsets[e], events.offsets[e + 1]
        # Whether some value is no single cell: tests do not do then, candidates go to their clauses.
        several = not facts.points and _has_several(first, last, events)
        for i in range(first, last):
            a = events.attribute[i]
            cell = min(events.lo[i] >> records.shift[a], COARSE - 2)  # above every span, below "never"
            space.coarse[a] = np.uint16(cell)
        if several or facts.inexact:
            lay_out(first, last, events.attribute, events.lo, events.hi, slots.lo, slots.hi, slots.more)
        next_stamp(space.stamps)
        finished = _read_groups(several, facts, records, clauses, jumps, events, space, room, progress)
        for i in range(first, last):
            space.coarse[events.attribute[i]] = 0
        if several or facts.inexact:
            clear(first, last, events.attribute, slots.lo, slots.hi, slots.more)
        if not finished:
            return
        progress[NEXT_EVENT], progress[NEXT_ROW] = e + 1, 0


@kernel(inline="always")
def _has_several(first, last, events):
    several = False
    for i in range(first, last):
        again = i > first and events.attribute[i - 1] == events.attribute[i]
        several = several or again or events.lo[i] != events.hi[i]
    return several


@kernel(inline="always")
def next_stamp(stamps):
    if stamps[-1] == 2**31 - 1:
        for i in range(len(stamps)):
            stamps[i] = 0
    stamps[-1] += 1


@kernel(inline="always")
def _read_groups(several, facts, records, clauses, jumps, events, space, room, progress):
    """The groups of the event's entries: that of the attribute, at its first value; then those of the value's cells
    (one, unless it is a range, of which an earlier value may have had a part). False if the room is full."""
    first, last = events.offsets[progress[NEXT_EVENT]], events.offsets[progress[NEXT_EVENT] + 1]
    has_cells = len(records.count) > len(records.shift)
    event_start = progress[PAIRS], progress[CANDIDATES], progress[PREDICATES]
    reached = np.int64(0)  # the last cell that was read, of an attribute with several values
    full = False
    i = first + progress[NEXT_ROW]
    while i < last and not full:
        if i + EARLY < events.offsets[-1]:
            _ask_for_place(events.attribute[i + EARLY], events.lo[i + EARLY], has_cells, records)
        if i + SOON < events.offsets[-1]:
            _ask_for_groups(events.attribute[i + SOON], events.lo[i + SOON], has_cells, records)
        a = events.attribute[i]
        again = i > first and events.attribute[i - 1] == a
        first_cell = np.int64(events.lo[i])
        if again:
            first_cell = max(first_cell, reached + 1)
        last_cell = np.int64(min(events.hi[i], records.cell_end[a] - 1)) if has_cells else np.int64(-1)
        reached = max(last_cell, reached) if again else last_cell
        entry_start = progress[PAIRS], progress[CANDIDATES], progress[PREDICATES]
        cell = first_cell if again else first_cell - 1  # one before the first: the attribute's group
        while cell <= last_cell or cell < first_cell:
            g = records.cell_group[a] + cell if cell >= first_cell else np.int64(a)
            cell += 1
            if not _is_filled(g, records):
                continue
            if progress[PAIRS] + records.count[g] > len(room.event):
                full = True
                # What is written out of this entry is found again; if there are stamps, which are not kept, all of
                # the event is.
                progress[NEXT_ROW] = 0 if facts.has_programs else i - first
                counts = event_start if facts.has_programs else entry_start
                progress[PAIRS], progress[CANDIDATES], progress[PREDICATES] = counts
                break
            _read_group(g, several, records, clauses, jumps, events, space, room, progress)
        i += 1
    return not full


@phase
def ask_for_event(e, records, events):
    """Prefetches what an event reads first: nobody has met it before, as each event of a batch but the first is."""
    has_cells = len(records.count) > len(records.shift)
    first, last = events.offsets[e], events.offsets[e + 1]
    for i in range(first, min(first + EARLY, last)):
        _ask_for_place(events.attribute[i], events.lo[i], has_cells, records)
    for i in range(first, min(first + SOON, last)):
        _ask_for_groups(events.attribute[i], events.lo[i], has_cells, records)


@phase
def _is_filled(g, records):
    """Whether a group has clauses: those bits are in the caches, where the groups stand is not."""
    g = np.uint64(g)
    return (records.filled[g >> np.uint64(3)] >> (g & np.uint64(7))) & 1 != 0


@kernel(inline="always")
def _ask_for_place(a, cell, has_cells, records):
    """Prefetches where the group of an entry's cell stands: with very many cells that is a look into memory, too."""
    if has_cells and cell < records.cell_end[a] and _is_filled(records.cell_group[a] + cell, records):
        g = records.cell_group[a] + cell
        prefetch(records.start, g)
        prefetch(records.count, g)


@kernel(inline="always")
def _ask_for_groups(a, cell, has_cells, records):
    """Prefetches the groups of an entry."""
    _ask_for_group(np.int64(a), records)
    if has_cells and cell < records.cell_end[a]:
        _ask_for_group(records.cell_group[a] + cell, records)


@kernel(inline="always")
def _ask_for_group(g, records):
    if not _is_filled(g, records):
        return
    at, end = records.start[g], min(records.start[g + 1], records.start[g] + LINE * LINES)
    while at < end:
        prefetch(records.words, at)
        at += LINE


@kernel(inline="always")
def _read_group(g, several, records, clauses, jumps, events, space, room, progress):
    """Tests every clause of a group, for whose pairs there is room."""
    p, end = np.uint64(records.start[g]), np.uint64(records.start[g + 1])
    found = progress[PAIRS]
    progress[CANDIDATES] += records.count[g]
    progress[PREDICATES] += np.int64(end - p) - records.count[g]
    while p < end:
        header = records.words[p]
        after = p + (header & LOW) + ONE
        fails = np.uint64(0)
        if not several:
            p += ONE
            while p < after:
                test = records.words[p]
                v = np.uint64(space.coarse[test >> HIGH])
                fails |= np.uint64(((v - (test >> MIDDLE)) & LOW) > (test & LOW))
                p += ONE
        p = after
        row, flags = header >> HIGH, (header >> MIDDLE) & FLAGS
        if (several or flags != 0) and fails == 0:
            fails = np.uint64(not verify(np.int64(row), flags, several, clauses, jumps, events, space))
        room.event[found] = progress[NEXT_EVENT]
        room.row[found] = row
        found += fails == 0
    progress[PAIRS] = found


@kernel(inline="always")
def verify(row, flags, several, clauses, jumps, events, space):
    """Whether a candidate that passed its tests, if they could be made, is a pair that was not reported before."""
    ask_clauses = several or flags & np.uint64(VERIFY) != 0
    if flags & np.uint64(PROGRAM) == 0:
        ok = True
        if ask_clauses:
            ok, _ = test_conjunction(row, clauses, space.slots, events)
    else:
        program = row - jumps.first_program
        ok = space.stamps[program] != space.stamps[-1]
        if ok and ask_clauses:
            ok, _ = test_program(row, clauses, jumps, space.slots, events)
        if ok:
            space.stamps[program] = space.stamps[-1]
    return ok
