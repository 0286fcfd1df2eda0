"""Searching records: the groups of an event's attributes and values, clause by clause."""

from __future__ import annotations

import numpy as np

from dibs.index.auto.record_layout import (
    COARSE,
    EARLY,
    FAR,
    FLAGS,
    HIGH,
    LATER,
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
from dibs.index.groups import CANDIDATES, NEXT_EVENT, PAIRS, PREDICATES, ClauseArrays, EventArrays, Room
from dibs.index.kernels import Jumps, Slots, clear, lay_out, test_conjunction, test_program
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch


@kernel
def match(points, inexact, first_program, last_event, progress, *arrays):
    """The arrays of RecordArrays, ClauseArrays, Jumps, EventArrays, WorkSpace and Room, one after the other: handing
    groups over from Python takes twice the time, which single events would notice."""
    records, clauses = RecordArrays(*arrays[:13]), ClauseArrays(*arrays[13:19])
    jumps, events = Jumps(arrays[19], arrays[20], first_program), EventArrays(*arrays[21:25])
    space = WorkSpace(Slots(*arrays[25:28]), arrays[28], arrays[29], arrays[30])
    progress[PAIRS] = 0
    match_events(
        records, clauses, jumps, events, Facts(points, inexact), last_event, space, Room(*arrays[31:]), progress
    )


match_few = keeping(match)


@phase(inline=False)
def match_events(records, clauses, jumps, events, facts, last_event, space, room, progress):
    """Goes on where `progress` says (PAIRS: where the next pair goes) and stops before the event for whose pairs there
    is no room."""
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
        before = progress[PAIRS], progress[CANDIDATES], progress[PREDICATES]
        fits = len(records.words) == 0 or _read_groups(several, records, clauses, jumps, events, space, room, progress)
        if fits and len(records.guard) > 0:
            fits = search_buckets(several, records, clauses, jumps, events, space, room, progress)
        for i in range(first, last):
            space.coarse[events.attribute[i]] = 0
        if several or facts.inexact:
            clear(first, last, events.attribute, slots.lo, slots.hi, slots.more)
        if not fits:
            progress[PAIRS], progress[CANDIDATES], progress[PREDICATES] = before
            return
        progress[NEXT_EVENT] = e + 1


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
def _read_groups(several, records, clauses, jumps, events, space, room, progress):
    """The groups of the event's attributes. False if the room is full."""
    first, last = events.offsets[progress[NEXT_EVENT]], events.offsets[progress[NEXT_EVENT] + 1]
    for i in range(first, last):
        if i + SOON < events.offsets[-1]:
            _ask_for_group(np.int64(events.attribute[i + SOON]), records)
        a = np.int64(events.attribute[i])
        again = i > first and events.attribute[i - 1] == a
        if not again and _has_bit(records.filled, a):
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
    if len(records.guard) > FAR:
        for i in range(first, min(first + EARLY, last)):
            ask_for_places(events.attribute[i], events.lo[i], records)
        for i in range(first, min(first + SOON, last)):
            ask_for_guards(events.attribute[i], events.lo[i], records)


@phase
def _has_bit(bits, i):
    """Those bits are in the caches; what they tell of is not."""
    i = np.uint64(i)
    return (bits[i >> np.uint64(3)] >> (i & np.uint64(7))) & 1 != 0


@kernel(inline="always")
def _ask_for_group(g, records):
    if not _has_bit(records.filled, g):
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
        fails = _test(p, header, several, records, clauses, jumps, events, space)
        p += (header & LOW) + ONE
        room.event[found] = progress[NEXT_EVENT]
        room.row[found] = header >> HIGH
        found += fails == 0
    progress[PAIRS] = found


@kernel(inline="always")
def _test(p, header, several, records, clauses, jumps, events, space):
    """0 if the clause at words[p] holds, and was not reported before. No test is left out because another one failed:
    that branch would be mispredicted."""
    after = p + (header & LOW) + ONE
    fails = np.uint64(0)
    if not several:
        p += ONE
        while p < after:
            test = records.words[p]
            v = np.uint64(space.coarse[test >> HIGH])
            fails |= np.uint64(((v - (test >> MIDDLE)) & LOW) > (test & LOW))
            p += ONE
    flags = (header >> MIDDLE) & FLAGS
    if (several or flags != 0) and fails == 0:
        fails = np.uint64(not verify(np.int64(header >> HIGH), flags, several, clauses, jumps, events, space))
    return fails


@phase(inline=False)
def verify(row, flags, several, clauses, jumps, events, space):
    """Whether a candidate that passed its tests, if they could be made, is a pair that was not reported before: a
    program may have several entries, and an event of several values meets a clause under each of them."""
    program, ask_clauses = flags & np.uint64(PROGRAM) != 0, several or flags & np.uint64(VERIFY) != 0
    ok = not (program or several) or space.stamps[row] != space.stamps[-1]
    if ok and ask_clauses:
        if program:
            ok, _ = test_program(row, clauses, jumps, space.slots, events)
        else:
            ok, _ = test_conjunction(row, clauses, space.slots, events)
    if ok and (program or several):
        space.stamps[row] = space.stamps[-1]
    return ok


# ---- clauses that are filed by value: guards first, then the records of those that hold


@phase(inline=False)
def search_buckets(several, records, clauses, jumps, events, space, room, progress):
    """The buckets of the event's values. False if the room is full."""
    first, last = events.offsets[progress[NEXT_EVENT]], events.offsets[progress[NEXT_EVENT] + 1]
    far = len(records.guard) > FAR
    survivors = np.uint64(0)
    for i in range(first, last):
        if far and i + EARLY < events.offsets[-1]:
            ask_for_places(events.attribute[i + EARLY], events.lo[i + EARLY], records)
        if far and i + SOON < events.offsets[-1]:
            ask_for_guards(events.attribute[i + SOON], events.lo[i + SOON], records)
        a = np.uint64(events.attribute[i])
        for r in range(np.uint64(records.rungs[a]), np.uint64(records.rungs[a + ONE])):
            shift = records.rung_shift[r]
            b = np.int64(events.lo[i] >> shift)
            end = min(np.int64(events.hi[i] >> shift), np.int64(records.rung_end[r]) - 1)
            while b <= end:
                bucket = np.uint64(records.rung_bucket[r] + b)
                b += 1
                if not _has_bit(records.filled_bucket, bucket):
                    continue
                at, stop = np.uint64(records.guards[bucket]), np.uint64(records.guards[bucket + ONE])
                progress[CANDIDATES] += np.int64(stop - at)
                while at < stop:
                    until = min(stop, at + np.uint64(len(space.survivors)) - survivors)
                    survivors = _collect(at, until, several, survivors, records, space)
                    at = until
                    if survivors == len(space.survivors):
                        if not _finish(survivors, several, records, clauses, jumps, events, space, room, progress):
                            return False
                        survivors = np.uint64(0)
    return _finish(survivors, several, records, clauses, jumps, events, space, room, progress)


@kernel(inline="always")
def _collect(at, until, several, survivors, records, space):
    """Adds the guards that hold. No branch depends on whether one does: it would be mispredicted."""
    for k in range(at, until):
        guard = records.guard[k]
        v = np.uint64(space.coarse[guard >> HIGH])
        space.survivors[survivors] = k
        survivors += np.uint64(((v - (guard >> MIDDLE)) & LOW) <= (guard & LOW)) | np.uint64(several)
    return survivors


@kernel(inline="always")
def _finish(survivors, several, records, clauses, jumps, events, space, room, progress):
    """The records of the survivors: first one more test of each, again without a branch, then the others. False if the
    room is full."""
    found = progress[PAIRS]
    if found + np.int64(survivors) > len(room.event):
        return False
    tested, left = np.int64(survivors), np.uint64(0)
    for i in range(survivors):
        if i + np.uint64(LATER) < survivors:
            prefetch(records.words, records.place[space.survivors[i + np.uint64(LATER)]])
        p = np.uint64(records.place[space.survivors[i]])
        test = records.words[p + ONE]  # of a clause without tests, whatever stands behind it
        v = np.uint64(space.coarse[(test >> HIGH) * np.uint64(records.words[p] & LOW != 0)])
        fails = ((v - (test >> MIDDLE)) & LOW) > (test & LOW)
        space.survivors[left] = p
        left += np.uint64(not fails) | np.uint64(records.words[p] & LOW == 0) | np.uint64(several)
    for i in range(left):
        p = np.uint64(space.survivors[i])
        header = records.words[p]
        tested += np.int64(header & LOW)
        fails = _test(p, header, several, records, clauses, jumps, events, space)
        room.event[found] = progress[NEXT_EVENT]
        room.row[found] = header >> HIGH
        found += fails == 0
    progress[PREDICATES] += tested
    progress[PAIRS] = found
    return True


@kernel(inline="always")
def ask_for_places(a, cell, records):
    """Prefetches where the guards of a value stand."""
    for r in range(records.rungs[a], records.rungs[a + 1]):
        b = cell >> records.rung_shift[r]
        if b < records.rung_end[r] and _has_bit(records.filled_bucket, records.rung_bucket[r] + b):
            prefetch(records.guards, records.rung_bucket[r] + b)


@kernel(inline="always")
def ask_for_guards(a, cell, records):
    for r in range(records.rungs[a], records.rungs[a + 1]):
        b = cell >> records.rung_shift[r]
        if b < records.rung_end[r] and _has_bit(records.filled_bucket, records.rung_bucket[r] + b):
            at, end = records.guards[records.rung_bucket[r] + b], records.guards[records.rung_bucket[r] + b + 1]
            at, end = np.int64(at), min(np.int64(end), np.int64(at) + LINE * LINES)
            while at < end:
                prefetch(records.guard, at)
                at += LINE
