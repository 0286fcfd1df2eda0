"""Searching the clauses of records that are filed by value. The buckets of several events are listed first, so that
what stands in them can be prefetched; then guards are tested, then the records of those that hold."""

from __future__ import annotations

import numpy as np

from dibs.index.auto.record_layout import (
    COARSE,
    FAR,
    FEWEST,
    HIGH,
    LATER,
    LINE,
    LINES,
    LOW,
    MIDDLE,
    ONE,
    SAID,
    SEARCHED,
    SEVERAL,
    WINDOW,
)
from dibs.index.auto.record_tests import has_bit, is_read, rules_out, test_record
from dibs.index.groups import CANDIDATES, NEXT_EVENT, PAIRS, PREDICATES
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch


@phase(inline=False)
def list_buckets(e, last_event, records, events, space):
    """Lists the buckets with guards in which the values of the events from e on lie; returns the first event for which
    there is no room. Those of ranges or several values are not all of them, and nobody looks at them."""
    listed, n = np.uint64(0), np.int64(0)
    while e < last_event and n < WINDOW and np.int64(listed) < len(space.buckets) - len(records.rung_end):
        space.bucket_start[n] = listed
        first, last = events.offsets[e], events.offsets[e + 1]
        for i in range(first, last):
            a = np.uint64(events.attribute[i])
            if i > first and events.attribute[i - 1] == events.attribute[i]:
                continue
            if last - first < np.int64(records.filled[a] & FEWEST):  # (k-index: by the number of attributes first)
                continue
            for r in range(np.uint64(records.rungs[a]), np.uint64(records.rungs[a + ONE])):
                b = np.uint64(events.lo[i] >> records.rung_shift[r])
                inside = b < np.uint64(records.rung_end[r])
                bucket = np.uint64(records.rung_bucket[r]) + b * np.uint64(inside)
                space.buckets[listed] = bucket
                # No branch depends on whether a bucket has guards: it would be mispredicted.
                listed += np.uint64(inside) & np.uint64(has_bit(records.filled_bucket, bucket))
        e += 1
        n += 1
    space.bucket_start[n] = listed
    if len(records.guard) > FAR:
        _ask_for_guards(listed, records, space)
    return e


@kernel(inline="always")
def _ask_for_guards(listed, records, space):
    for k in range(listed):
        prefetch(records.guards, space.buckets[k])
    for k in range(listed):
        bucket = np.uint64(space.buckets[k])
        at = np.int64(records.guards[bucket])
        end = min(np.int64(records.guards[bucket + ONE]), at + LINE * LINES)
        prefetch(records.place, at)
        while at < end:
            prefetch(records.guard, at)
            at += LINE


@phase(inline=False)
def is_spared(place, records, events, space, progress):
    """Whether nothing that is filed under the attributes of an event, and listed for it, can hold. Where that is not
    much, it is found out before the event is laid out; of more it is not asked."""
    first, last = events.offsets[progress[NEXT_EVENT]], events.offsets[progress[NEXT_EVENT] + 1]
    looks = np.int64(0)
    if records.start[-1] > 0:
        for i in range(first, last):
            a = np.int64(events.attribute[i])
            if is_read(records.filled[a], last - first):
                looks += records.count[a]
                if looks * SEARCHED > last - first or _one_may_hold(a, first, last, records, events):
                    return False
    if len(records.guard) > 0:
        for k in range(space.bucket_start[place], space.bucket_start[place + 1]):
            bucket = np.uint64(space.buckets[k])
            at, stop = np.int64(records.guards[bucket]), np.int64(records.guards[bucket + ONE])
            looks += stop - at
            if looks * SEARCHED > last - first:
                return False
            for g in range(at, stop):
                if _may_hold(records.guard[g], first, last, records, events):
                    return False
    progress[CANDIDATES] += looks
    return True


@phase(inline=False)
def _one_may_hold(g, first, last, records, events):
    """Whether the tests of some clause of a group hold."""
    p, end = records.start[g], records.start[g + 1]
    while p < end:
        after = p + 1 + np.int64(records.words[p] & LOW)
        p += 1
        while p < after and _may_hold(records.words[p], first, last, records, events):
            p += 1
        if p == after:
            return True
        p = after
    return False


@phase
def _may_hold(test, first, last, records, events):
    """Whether a test holds for an event whose values are first to last: its attribute is searched among them."""
    a, at, behind = np.int64(test >> HIGH), first, last
    while at < behind:
        middle = (at + behind) >> 1
        if events.attribute[middle] < a:
            at = middle + 1
        else:
            behind = middle
    v = np.uint64(0)
    if at < last and events.attribute[at] == a:
        v = np.uint64(min(events.lo[at] >> records.shift[a], COARSE - 2))
    return ((v - (test >> MIDDLE)) & LOW) <= (test & LOW)


@phase(inline=False)
def search_listed(place, records, clauses, jumps, events, space, room, progress):
    """The guards of the buckets that are listed for an event. False if the room is full."""
    survivors = np.uint64(0)
    for k in range(space.bucket_start[place], space.bucket_start[place + 1]):
        bucket = np.uint64(space.buckets[k])
        at, stop = np.uint64(records.guards[bucket]), np.uint64(records.guards[bucket + ONE])
        progress[CANDIDATES] += np.int64(stop - at)
        while at < stop:
            until = min(stop, at + np.uint64(len(space.survivors)) - survivors)
            survivors = _collect(at, until, survivors, records, space)
            at = until
            if survivors == len(space.survivors):
                if not _finish(survivors, records, clauses, jumps, events, space, room, progress):
                    return False
                survivors = np.uint64(0)
    return _finish(survivors, records, clauses, jumps, events, space, room, progress)


@kernel(inline="always")
def _collect(at, until, survivors, records, space):
    """Adds the guards that hold. No branch depends on whether one does: it would be mispredicted."""
    for k in range(at, until):
        guard = records.guard[k]
        v = np.uint64(space.coarse[guard >> HIGH])
        space.survivors[survivors] = k
        survivors += np.uint64(((v - (guard >> MIDDLE)) & LOW) <= (guard & LOW))
    return survivors


@kernel(inline="always")
def _finish(survivors, records, clauses, jumps, events, space, room, progress):
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
        header = records.words[p]
        if header & SAID == 0:  # its guard was all of it: such clauses stand together, so this is predicted
            room.event[found] = progress[NEXT_EVENT]
            room.row[found] = header >> HIGH
            found += 1
            continue
        test = records.words[p + ONE]  # of a clause without tests, whatever stands behind it
        v = np.uint64(space.coarse[(test >> HIGH) * np.uint64(header & LOW != 0)])
        fails = ((v - (test >> MIDDLE)) & LOW) > (test & LOW)
        space.survivors[left] = p
        left += np.uint64(not fails) | np.uint64(header & LOW == 0)
    for i in range(left):
        p = np.uint64(space.survivors[i])
        header = records.words[p]
        tested += np.int64(header & LOW)
        fails = test_record(p, header, False, False, records, clauses, jumps, events, space)
        room.event[found] = progress[NEXT_EVENT]
        room.row[found] = header >> HIGH
        found += fails == 0
    progress[PREDICATES] += tested
    progress[PAIRS] = found
    return True


@phase(inline=False)
def search_ranges(records, clauses, jumps, events, space, room, progress):
    """The buckets of an event of ranges or several values: what stands in them is verified, unless a test of another
    attribute rules it out, or tests of others are all that is left. False if the room is full."""
    e = progress[NEXT_EVENT]
    i, last = events.offsets[e], events.offsets[e + 1]
    while i < last:
        a, after = np.int64(events.attribute[i]), i + 1
        while after < last and events.attribute[after] == a:
            after += 1
        for r in range(records.rungs[a], records.rungs[a + 1]):
            if not _search_rung(r, (i, after), records, clauses, jumps, events, space, room, progress):
                return False
        i = after
    return True


@phase(inline=False)
def _search_rung(r, entries, records, clauses, jumps, events, space, room, progress):
    """The buckets of one rung in which the entries of its attribute (from, to) lie. Entries come by their first
    cells, and buckets in order, so each bucket is read once, however many values lie in it."""
    shift, bucket, behind = records.rung_shift[r], records.rung_bucket[r], np.int64(records.rung_end[r])
    read = np.int64(0)  # the buckets before this one were read, or hold none of the entries
    for k in range(entries[0], entries[1]):
        first = max(np.int64(events.lo[k] >> shift), read)
        stop = min(np.int64(events.hi[k] >> shift) + 1, behind)
        if first < stop:
            read = stop
            filed = records.guards[bucket + first], records.guards[bucket + stop]
            of_cells = np.int64(events.attribute[k]) if shift == 0 else np.int64(-1)
            if not _verify_guarded(filed, of_cells, records, clauses, jumps, events, space, room, progress):
                return False
    return True


@kernel(inline="always")
def _verify_guarded(filed, of_cells, records, clauses, jumps, events, space, room, progress):
    """filed: from where to where. of_cells: the attribute whose buckets these are, if each is a cell that the event
    has; or -1."""
    for k in range(filed[0], filed[1]):
        if progress[PAIRS] == len(room.event):
            return False
        progress[CANDIDATES] += 1
        guard = records.guard[k]
        if rules_out(guard, space.coarse):
            continue
        p = np.uint64(records.place[k])
        header = records.words[p]
        row = np.int64(header >> HIGH)
        is_open = space.coarse[guard >> HIGH] == SEVERAL
        if is_open and np.int64(guard >> HIGH) == of_cells:  # by itself it is what the clause is filed under
            is_open = header & SAID != 0 or clauses.offsets[row + 1] - clauses.offsets[row] > 1
        room.event[progress[PAIRS]], room.row[progress[PAIRS]] = progress[NEXT_EVENT], row
        fails = test_record(p, header, True, is_open, records, clauses, jumps, events, space)
        progress[PAIRS] += np.int64(fails == 0)
    return True
