"""Masks to matches, block by block of events. See index.auto.masks for the idea and the arrays, mask_layout for the
groups of them, mask_filling for how predicates become masks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dibs.index.auto.mask_filling import fill_masks, sort_block
from dibs.index.auto.mask_layout import (
    AHEAD,
    BEGIN,
    ENTRY,
    LATER,
    ON_FALSE,
    ON_TRUE,
    PART_FIRST,
    PART_LAST,
    PREDICATE,
    RANK,
    ROW,
    STEP,
    STEPS,
    WORD,
    Chunk,
    MaskArrays,
    Position,
    Spans,
    WorkSpace,
)
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NEXT_ROW, PAIRS, PREDICATES, EventArrays, Room
from dibs.jit.group_at import grouped
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import and_run, and_two, clear, count_bits, is_empty, lowest_bit, prefetch, split
from dibs.language.table import ACCEPT, REJECT

ONE = np.uint64(1)


class MaskCall(NamedTuple):
    """What `match_blocks` reads and writes."""

    own: MaskArrays
    spans: Spans
    events: EventArrays
    space: WorkSpace
    room: Room


@kernel
def match_blocks(lanes, sizes, last_event, progress, *parts):
    """parts: those of a MaskCall.

    Goes on where `progress` says (NEXT_ROW: a clause or, behind all clauses, a program; behind these, the rows without
    predicates) and stops when the room for pairs is full."""
    index, spans, events, space, room = grouped(parts, MaskCall)
    width, most = len(lanes), np.int64(sizes.chunk)
    chunk = Chunk(
        np.empty(most, np.uint32),
        np.empty(most * width, np.uint64),
        np.empty(most * width, np.uint64),
        np.empty(most * width, np.uint64),
    )
    rank = np.empty(sizes.most_tabulated + 3, np.int32)
    progress[PAIRS] = 0
    full = False
    while progress[NEXT_EVENT] < last_event and not full:
        first_event = progress[NEXT_EVENT]
        stop_event = min(first_event + width * WORD, last_event)
        block = sort_block(width, first_event, stop_event, index, spans.null_attributes, space.entries_of, events)
        written = fill_masks(lanes, sizes, block, index, spans, space.masks, space.written, rank)
        full = _match_clauses(lanes, sizes, block, index, space, chunk, room, progress)
        if not full:
            full = _run_unreached(lanes, block, index, space, room, progress)
        if not full:
            full = _report_always(block, index, room, progress)
        _clear_masks(lanes, written, space)
        if not full:
            progress[NEXT_EVENT], progress[NEXT_ROW] = stop_event, 0


@phase(inline=False)
def _clear_masks(lanes, written, space):
    """Leaves them as they were found: all zero, but the true one."""
    for i in range(written):
        clear(lanes, space.masks, np.uint64(space.written[i]) * np.uint64(len(lanes)))


# ---- clauses: the groups of the attributes that the block has


@phase(inline=False)
def _match_clauses(lanes, sizes, block, index, space, chunk, room, progress):
    """Chunk by chunk: survivors are collected, finished, written out. True if the room is full."""
    position = _find_clause(progress[NEXT_ROW], block, index)
    while position.touched < len(block.attributes):
        start, survivors, position = _collect(lanes, sizes, position, block, index, space.masks, chunk, progress)
        words, pairs = _finish(lanes, sizes, survivors, index, space, chunk, progress)
        if progress[PAIRS] + pairs > len(room.event):
            progress[NEXT_ROW] = start
            return True
        _write_words(words, block.first_event, index, chunk, room, progress)
    return False


@kernel(inline="always")
def _find_clause(clause, block, index):
    """The position of a clause, or of the next one of the attributes touched."""
    n, t, g, s = np.int64(len(block.attributes)), np.int64(0), np.int64(0), np.int64(clause)
    while t < n and clause > 0 and index.group_start[index.groups_of[block.attributes[t] + 1]] <= clause:
        t += 1
    if t < n:
        g, end = index.groups_of[block.attributes[t]], index.groups_of[block.attributes[t] + 1]
        while g < end and index.group_start[g + 1] <= clause:
            g += 1
        if g < end:
            s = max(s, np.int64(index.group_start[g]))
    return Position(t, g, s)


@kernel(inline="always")
def _collect(lanes, sizes, position, block, index, masks, chunk, progress):
    """Survivors from the position on, half a chunk of them or more (if there are), the first clause looked at, and
    where to go on. No branch depends on whether a clause survives: it would be mispredicted."""
    lane, half = np.uint64(len(lanes)), np.int64(sizes.chunk) // 2
    n = np.int64(len(block.attributes))
    t, g, s = position.touched, position.group, position.clause
    end_of_groups = index.groups_of[block.attributes[t] + 1]
    start, count = s, np.uint64(0)
    while t < n and count < half:
        if g >= end_of_groups:
            t += 1
            if t < n:
                g, end_of_groups = index.groups_of[block.attributes[t]], index.groups_of[block.attributes[t] + 1]
                if g < end_of_groups:
                    s = np.int64(index.group_start[g])
                    if count == 0:
                        start = s
            continue
        shared = np.uint64(index.group_predicate[g]) * lane
        end = np.int64(index.group_start[g + 1])
        if is_empty(lanes, masks, shared):
            g += 1
            s = end
            if count == 0:
                start = s
            continue
        stop = min(end, s + half)
        progress[CANDIDATES] += stop - s
        for c in range(np.uint64(s), np.uint64(stop)):
            prefetch(masks, np.uint64(index.second[c + np.uint64(AHEAD)]) * lane)
            some = and_two(lanes, masks, shared, np.uint64(index.second[c]) * lane, chunk.mask, count * lane)
            chunk.clause[count] = c
            count += np.uint64(some != 0)
        s = stop
        if s == end:
            g += 1
    return start, count, Position(t, g, s)


@kernel(inline="always")
def _finish(lanes, sizes, survivors, index, space, chunk, progress):
    """The survivors' other predicates and, of entries, their programs. Returns how many words are not empty in the
    end, and how many pairs these are."""
    lane = np.uint64(len(lanes))
    words, pairs, tested = np.uint64(0), np.int64(0), np.int64(0)
    for i in range(survivors):
        c, to = np.uint64(chunk.clause[i]), np.uint64(i) * lane
        if i + LATER < survivors:
            _ask_for_masks(lane, np.uint64(chunk.clause[i + LATER]), index, space.masks)
        first, last = np.int64(index.rest_start[c]), np.int64(index.rest_start[c + ONE])
        tested += last - first
        filled = and_run(lanes, space.masks, index.rest, first, last, chunk.mask, to)
        if filled and index.row[c] < 0:
            filled, steps = _run_entry(lanes, sizes, -1 - np.int64(index.row[c]), to, index, space, chunk.mask)
            tested += steps
        while filled:
            k = np.uint64(lowest_bit(filled))
            filled &= filled - ONE
            x = chunk.mask[to + k]
            chunk.word[words] = x
            chunk.word_of[words] = (c << np.uint64(8)) | k
            words += ONE
            pairs += count_bits(x)
    progress[PREDICATES] += tested
    return words, pairs


@kernel(inline="always")
def _ask_for_masks(lane, c, index, masks):
    """Prefetches what clause c will need."""
    for q in range(np.int64(index.rest_start[c]), np.int64(index.rest_start[c + ONE])):
        prefetch(masks, np.uint64(index.rest[q]) * lane)
    if index.row[c] < 0:
        prefetch(index.entry, np.uint64(ENTRY * (-1 - np.int64(index.row[c]))))


@kernel(inline="always")
def _write_words(words, first_event, index, chunk, room, progress):
    found = progress[PAIRS]
    for i in range(words):
        row = index.row[chunk.word_of[i] >> np.uint64(8)]
        if row < 0:
            row = index.entry[ENTRY * (-1 - row) + ROW]
        e = first_event + WORD * np.int64(chunk.word_of[i] & np.uint64(255))
        found = _write_word(chunk.word[i], e, row, found, room)
    progress[PAIRS] = found


@kernel(inline="always")
def _write_word(x, e, row, found, room):
    """A pair for each bit of a mask word whose first event is e."""
    while x:
        room.event[found] = e + lowest_bit(x)
        room.row[found] = row
        found += 1
        x &= x - ONE
    return found


# ---- programs


@kernel(inline="always")
def _run_entry(lanes, sizes, j, to, index, space, survivors):
    """Runs the survivors at survivors[to:], which passed the tests of entry j, through its program; those remain that
    it accepts in a step of the entry's part and that no earlier access predicate of the part leads to. Returns a bit
    for each word that is not empty, and how many steps were made."""
    width, steps = len(lanes), np.int64(index.entry[ENTRY * j + STEPS])
    bits = np.int64(0)
    for k in range(width):
        bits += count_bits(survivors[to + np.uint64(k)])
    if bits <= sizes.few_events:
        tested = _run_singly(width, j, to, index, space, survivors)
    else:
        for k in range(width):
            x = survivors[to + np.uint64(k)]
            for q in range(j - np.int64(index.entry[ENTRY * j + RANK]), j):
                x &= ~space.masks[np.int64(index.entry_access[q]) * width + k]
            space.reach[k] = x
        part_first, part_last = index.entry[ENTRY * j + PART_FIRST], index.entry[ENTRY * j + PART_LAST]
        _run(lanes, np.int64(index.entry[ENTRY * j + BEGIN]), steps, part_first, part_last, index, space)
        tested = steps
    filled = np.uint64(0)
    for k in range(width):
        x = space.reach[steps * width + k]
        space.reach[steps * width + k] = 0
        survivors[to + np.uint64(k)] = x
        filled |= np.uint64(x != 0) << np.uint64(k)
    return filled, tested


@kernel(inline="always")
def _run_singly(width, j, to, index, space, survivors):
    """Event by event. Those accepted are then at reach[steps]. Returns how many steps were made."""
    begin, steps = np.int64(index.entry[ENTRY * j + BEGIN]), np.int64(index.entry[ENTRY * j + STEPS])
    part_first, part_last = index.entry[ENTRY * j + PART_FIRST], index.entry[ENTRY * j + PART_LAST]
    tested = np.int64(0)
    for k in range(width):
        x = survivors[to + np.uint64(k)]
        kept = np.uint64(0)
        while x:
            b = np.uint64(lowest_bit(x))
            x &= x - ONE
            alone = ONE
            for q in range(j - np.int64(index.entry[ENTRY * j + RANK]), j):
                alone &= ~(space.masks[np.int64(index.entry_access[q]) * width + k] >> b)
            step = np.int64(0) if alone else np.int64(REJECT)
            last_step = step
            while step >= 0:
                last_step = step
                tested += 1
                place = STEP * (begin + step)
                holds = (space.masks[np.int64(index.program[place + PREDICATE]) * width + k] >> b) & ONE
                step = np.int64(index.program[place + ON_TRUE] if holds else index.program[place + ON_FALSE])
            if step == ACCEPT and part_first <= last_step < part_last:
                kept |= ONE << b
        space.reach[steps * width + k] = kept
    return tested


@kernel(inline="always")
def _run(lanes, begin, steps, part_first, part_last, index, space):
    """Runs the events at reach[0] through a program, all at once; those that it accepts in a step of the part are then
    at reach[steps], and all else in `reach` is zero, as it was."""
    lane = np.uint64(len(lanes))
    for step in range(steps):
        inside = part_first <= step < part_last
        place = STEP * (begin + step)
        yes, no = np.int64(index.program[place + ON_TRUE]), np.int64(index.program[place + ON_FALSE])
        # Behind all steps those accepted, and behind them those rejected, or accepted elsewhere.
        yes = yes if yes >= 0 else steps + np.int64(yes != ACCEPT or not inside)
        no = no if no >= 0 else steps + np.int64(no != ACCEPT or not inside)
        mask = np.uint64(index.program[place + PREDICATE]) * lane
        split(
            lanes, space.masks, mask, space.reach, np.uint64(step) * lane, np.uint64(yes) * lane, np.uint64(no) * lane
        )
    for k in range(len(lanes)):
        space.reach[(steps + 1) * len(lanes) + k] = 0


@phase(inline=False)
def _run_unreached(lanes, block, index, space, room, progress):
    """Programs that no entry leads to: run for all events. True if the room is full."""
    width, behind_clauses = len(lanes), len(index.row) + 1
    for u in range(max(progress[NEXT_ROW] - behind_clauses, 0), index.unreached[0]):
        steps = np.int64(index.entry[ENTRY * u + STEPS])
        for k in range(width):
            space.reach[k] = block.valid[k]
        _run(lanes, np.int64(index.entry[ENTRY * u + BEGIN]), steps, 0, steps, index, space)
        accepted = np.int64(0)
        for k in range(width):
            accepted += count_bits(space.reach[steps * width + k])
        full = progress[PAIRS] + accepted > len(room.event)
        for k in range(width):
            x = space.reach[steps * width + k]
            space.reach[steps * width + k] = 0
            if not full:
                e, row = block.first_event + k * WORD, index.entry[ENTRY * u + ROW]
                progress[PAIRS] = _write_word(x, e, row, progress[PAIRS], room)
        if full:
            progress[NEXT_ROW] = behind_clauses + u
            return True
        progress[CANDIDATES] += 1
        progress[PREDICATES] += steps
    return False


@phase(inline=False)
def _report_always(block, index, room, progress):
    """Rows without predicates. True if the room is full."""
    found = progress[PAIRS]
    progress[CANDIDATES] += len(index.always)
    if found + len(index.always) * block.events > len(room.event):
        progress[NEXT_ROW] = len(index.row) + 1 + index.unreached[0]
        return True
    for i in range(len(index.always)):
        for e in range(block.first_event, block.first_event + block.events):
            room.event[found] = e
            room.row[found] = index.always[i]
            found += 1
    progress[PAIRS] = found
    return False
