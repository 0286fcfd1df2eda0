"""Searching records: the groups of an event's attributes and values, clause by clause."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dibs.index.auto.record_bucket_kernels import is_spared, list_buckets, search_listed, search_ranges
from dibs.index.auto.record_layout import (
    COARSE,
    GROUP,
    HIGH,
    LINE,
    LINES,
    LOW,
    ONE,
    SEVERAL,
    SOON,
    Facts,
    RecordArrays,
    WorkSpace,
)
from dibs.index.auto.record_tests import is_read, next_stamp, test_record
from dibs.index.groups import CANDIDATES, NEXT_EVENT, PAIRS, PREDICATES, ClauseArrays, EventArrays, Room
from dibs.index.kernels import Jumps, clear, lay_out
from dibs.jit.group_at import group_at, grouped
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch


class FiledRecords(NamedTuple):
    """What every search reads."""

    records: RecordArrays
    clauses: ClauseArrays
    jumps: Jumps


class RecordCall(NamedTuple):
    """What one search reads and writes besides."""

    events: EventArrays
    room: Room


@kernel
def match(points, inexact, last_event, progress, filed, space, *parts):
    """filed, space: the addresses of a FiledRecords and a WorkSpace; parts: those of a RecordCall."""
    records, clauses, jumps = group_at(filed, FiledRecords)
    space = group_at(space, WorkSpace)
    events, room = grouped(parts, RecordCall)
    progress[PAIRS] = 0
    match_events(records, clauses, jumps, events, Facts(points, inexact), last_event, space, room, progress)


match_few = keeping(match)


@phase(inline=False)
def match_events(records, clauses, jumps, events, facts, last_event, space, room, progress):
    """Goes on where `progress` says (PAIRS: where the next pair goes) and stops before the event for whose pairs there
    is no room."""
    listed = progress[NEXT_EVENT]  # the buckets of the events before this one have been listed
    window = listed
    while progress[NEXT_EVENT] < last_event:
        if len(records.guard) > 0 and progress[NEXT_EVENT] == listed:
            window = listed
            listed = list_buckets(window, last_event, records, events, space)
        before = progress[PAIRS], progress[CANDIDATES], progress[PREDICATES]
        place = progress[NEXT_EVENT] - window
        if not _match_event(place, records, clauses, jumps, events, facts, space, room, progress):
            progress[PAIRS], progress[CANDIDATES], progress[PREDICATES] = before
            return
        progress[NEXT_EVENT] += 1


@kernel(inline="always")
def _match_event(place, records, clauses, jumps, events, facts, space, room, progress):
    """place: of the event in the window. False if the room is full."""
    slots, e = space.slots, progress[NEXT_EVENT]
    first, last = events.offsets[e], events.offsets[e + 1]
    # Whether some value is no single cell: candidates that pass the tests of others go to their clauses then.
    several = not facts.points and _has_several(first, last, events)
    if not several and is_spared(place, records, events, space, progress):
        return True
    for i in range(first, last):
        a = events.attribute[i]
        cell = min(events.lo[i] >> records.shift[a], COARSE - 2)  # above every span, below "never"
        space.coarse[a] = np.uint16(cell)
    if several:
        _mark_several(first, last, events, space)
    if several or facts.inexact:
        lay_out(first, last, events.attribute, events.lo, events.hi, slots.lo, slots.hi, slots.more)
    next_stamp(space.stamps)
    fits = len(records.words) == 0 or _read_groups(several, records, clauses, jumps, events, space, room, progress)
    if fits and len(records.guard) > 0:
        if several:
            fits = search_ranges(records, clauses, jumps, events, space, room, progress)
        else:
            fits = search_listed(place, records, clauses, jumps, events, space, room, progress)
    for i in range(first, last):
        space.coarse[events.attribute[i]] = 0
    if several or facts.inexact:
        clear(first, last, events.attribute, slots.lo, slots.hi, slots.more)
    return fits


@kernel(inline="always")
def _has_several(first, last, events):
    several = False
    for i in range(first, last):
        again = i > first and events.attribute[i - 1] == events.attribute[i]
        several = several or again or events.lo[i] != events.hi[i]
    return several


@phase(inline=False)
def _mark_several(first, last, events, space):
    for i in range(first, last):
        again = i > first and events.attribute[i - 1] == events.attribute[i]
        if again or events.lo[i] != events.hi[i]:
            space.coarse[events.attribute[i]] = SEVERAL


@kernel(inline="always")
def _read_groups(several, records, clauses, jumps, events, space, room, progress):
    """The groups of the event's attributes. False if the room is full."""
    first, last = events.offsets[progress[NEXT_EVENT]], events.offsets[progress[NEXT_EVENT] + 1]
    for i in range(first, last):
        if i + SOON < events.offsets[-1]:
            _ask_for_group(np.int64(events.attribute[i + SOON]), records)
        a = np.int64(events.attribute[i])
        again = i > first and events.attribute[i - 1] == a
        if not again and is_read(records.filled[a], last - first):
            if progress[PAIRS] + records.count[a] > len(room.event):
                return False
            _read_group(a, several, records, clauses, jumps, events, space, room, progress)
    return True


@phase
def ask_for_event(e, records, events):
    """Prefetches what an event reads first: nobody has met it before, as each event of a batch but the first is."""
    first, last = events.offsets[e], events.offsets[e + 1]
    for i in range(first, min(first + SOON, last)):
        _ask_for_group(np.int64(events.attribute[i]), records)


@kernel(inline="always")
def _ask_for_group(g, records):
    if records.filled[g] < GROUP:
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
        fails = test_record(p, header, several, False, records, clauses, jumps, events, space)
        p += (header & LOW) + ONE
        room.event[found] = progress[NEXT_EVENT]
        room.row[found] = header >> HIGH
        found += fails == 0
    progress[PAIRS] = found
