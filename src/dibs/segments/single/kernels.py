"""The compiled call of a single event: see dibs.segments.single."""

from __future__ import annotations

import numpy as np

from dibs.coding.events.json_kernels import READ, read_object
from dibs.index.auto.bit_kernels import match_events as match_bits
from dibs.index.auto.record_kernels import ask_for_event
from dibs.index.auto.record_kernels import match_events as match_records
from dibs.index.auto.record_layout import Facts
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS
from dibs.index.groups import PREDICATES as TESTED
from dibs.index.kernels import clear, lay_out, test_conjunction, test_program
from dibs.jit.borrowing import array_at, number_at
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel, phase
from dibs.jit.prefetching import prefetch
from dibs.jit.scanning import PADDING
from dibs.segments.single.arrays import (
    bits_at,
    clauses_at,
    clusters_at,
    code_at,
    domain_at,
    events_at,
    find_at,
    jumps_at,
    names_at,
    numbers_at,
    predicates_at,
    reading_at,
    records_at,
    room_at,
    search_at,
    sieve_at,
    sifting_at,
    slots_at,
    values_at,
    waiting_at,
    work_at,
)
from dibs.segments.single.coding_kernels import code_values
from dibs.segments.single.facet_kernels import code_facets
from dibs.segments.single.layout import (
    ASKS_FOR_VALUES,
    BIT_ROWS,
    DONE,
    ENDS,
    FLAGS,
    FOUND_IDS,
    FULL,
    GONE,
    HAS_BITS,
    HAS_FACETS,
    HAS_RECORDS,
    HAS_SIEVE,
    HEAD,
    IDS,
    INEXACT,
    LAYER,
    LAYERS,
    LIKE_THIS,
    LONG,
    OFFSETS,
    PROGRESS,
    RESULT,
    ROOM,
    SCANNED,
    STALE,
    TEXT,
    UNSURE,
)
from dibs.segments.single.sieve_kernels import Sieved, match_sieved
from dibs.segments.single.waiting_kernels import match_waiting


@kernel
def match_text(plan, space, text, most_values):
    """The event that a text says, against the state of a plan (its address, and that of a work space). DONE: its rows,
    and what they cost, are in the space."""
    if len(array_at(plan, LAYERS, np.uint8)) != LIKE_THIS:
        return STALE
    copy, size = array_at(space, TEXT, np.uint8), len(text)
    if size + PADDING > len(copy):  # all that is read from it has as much room
        return LONG
    for i in range(size):
        copy[i] = text[i]
    for i in range(size, size + PADDING):
        copy[i] = 0
    return _match_event(plan, space, size, most_values)


match_text_keeping = keeping(match_text)


@phase(inline=False)
def _match_event(plan, space, size, most_values):
    found, progress = find_at(space), array_at(space, PROGRESS, np.int64)
    found.counts[0], found.counts[1] = 0, 0
    if read_object(array_at(space, TEXT, np.uint8), 0, size, names_at(plan), found, reading_at(space)) != READ:
        return UNSURE
    if found.counts[0] > most_values or found.counts[0] > len(search_at(space).left):
        return LONG
    for i in range(len(progress)):
        progress[i] = 0
    offsets, ends = array_at(space, OFFSETS, np.int64), array_at(space, ENDS, np.int64)
    offsets[0] = 0
    status = DONE
    for layer in range(number_at(plan, LAYERS)):
        own = HEAD + layer * LAYER
        last, points = code_values(
            found, numbers_at(space), domain_at(plan, own), code_at(space), search_at(space), offsets[layer]
        )
        if last < 0:
            return LONG
        if number_at(plan, own + FLAGS) & HAS_FACETS != 0:
            last, more = code_facets(plan, own, space, offsets[layer], last)
            points = points and more
            if last < 0:
                return UNSURE
        offsets[layer + 1] = offsets[-1] = last
        flags = number_at(plan, own + FLAGS)
        if last > offsets[layer] or flags & ASKS_FOR_VALUES == 0:
            start = progress[PAIRS]
            status = _match_layer(plan, space, layer, points)
            if status != DONE:
                break
            row = array_at(space, ROOM + 1, np.int32)
            _drop_gone(array_at(plan, own + GONE, np.uint8), row, start, progress)
            _look_up_ids(
                array_at(plan, own + IDS, np.int64), row, start, progress[PAIRS], array_at(space, FOUND_IDS, np.int64)
            )
        ends[layer] = progress[PAIRS]
    of_layers = progress[PAIRS]
    if status == DONE:
        waiting, row = waiting_at(plan), array_at(space, ROOM + 1, np.int32)
        if progress[PAIRS] + len(waiting.heads) > len(row):
            return FULL
        if len(waiting.heads) > 0:
            match_waiting(waiting, values_at(space), row, progress)
    result = array_at(space, RESULT, np.int64)
    result[0], result[1], result[2], result[3], result[4] = (
        progress[PAIRS],
        progress[CANDIDATES],
        progress[TESTED],
        progress[NODES],
        of_layers,
    )
    return status


# ---- cells to rows ----


@phase(inline=False)
def _match_layer(plan, space, layer, points):
    """Adds the rows of a layer to the room."""
    own = HEAD + layer * LAYER
    flags = number_at(plan, own + FLAGS)
    progress = array_at(space, PROGRESS, np.int64)
    if flags & HAS_RECORDS != 0:
        progress[NEXT_EVENT] = layer
        if points and flags & HAS_SIEVE != 0:
            _match_sieved(plan, own, space, layer)
        else:
            _match_records(plan, own, space, layer, points)
        if progress[NEXT_EVENT] == layer:
            return FULL
    if flags & HAS_BITS != 0:
        progress[NEXT_EVENT] = layer
        _match_bits(plan, own, space, layer)
        if progress[NEXT_EVENT] == layer:
            return FULL
    scanned = array_at(plan, own + SCANNED, np.int32)
    if len(scanned) > 0:
        if progress[PAIRS] + len(scanned) > len(array_at(space, ROOM, np.int32)):
            return FULL
        _scan(plan, own, space, layer)
    return DONE


@phase(inline=False)
def _match_records(plan, own, space, layer, points):
    flags = number_at(plan, own + FLAGS)
    facts = Facts(points, flags & INEXACT != 0)
    work = work_at(space)
    ask_for_event(layer, records_at(plan, own), events_at(space))
    match_records(
        records_at(plan, own),
        clauses_at(plan, own),
        jumps_at(plan, own),
        events_at(space),
        facts,
        layer + 1,
        work,
        room_at(space),
        array_at(space, PROGRESS, np.int64),
    )


@phase(inline=False)
def _match_sieved(plan, own, space, layer):
    work = work_at(space)
    match_sieved(
        Sieved(records_at(plan, own), sieve_at(plan, own), clauses_at(plan, own), jumps_at(plan, own)),
        events_at(space),
        number_at(plan, own + FLAGS) & INEXACT != 0,
        layer,
        work,
        sifting_at(space),
        room_at(space),
        array_at(space, PROGRESS, np.int64),
    )


@phase(inline=False)
def _match_bits(plan, own, space, layer):
    progress, rows = array_at(space, PROGRESS, np.int64), array_at(plan, own + BIT_ROWS, np.int32)
    clusters, work, room = clusters_at(plan, own), bits_at(space), room_at(space)
    before, true = progress[PAIRS], len(clusters.access) - 1  # the word of the true predicate
    work.bits[true] = 1
    match_bits(predicates_at(plan, own), clusters, events_at(space), layer + 1, work, room, progress)
    work.bits[true] = 0
    for i in range(before, progress[PAIRS]):
        room.row[i] = rows[room.row[i]]


@phase(inline=False)
def _scan(plan, own, space, layer):
    """Rows that are tested one by one; there is room for all of them."""
    clauses, jumps, slots, events = clauses_at(plan, own), jumps_at(plan, own), slots_at(space), events_at(space)
    scanned, progress = array_at(plan, own + SCANNED, np.int32), array_at(space, PROGRESS, np.int64)
    room = array_at(space, ROOM + 1, np.int32)
    first, last = events.offsets[layer], events.offsets[layer + 1]
    lay_out(first, last, events.attribute, events.lo, events.hi, slots.lo, slots.hi, slots.more)
    found = progress[PAIRS]
    for i in range(len(scanned)):
        row = np.int64(scanned[i])
        if row < jumps.first_program:
            holds, tests = test_conjunction(row, clauses, slots, events)
        else:
            holds, tests = test_program(row, clauses, jumps, slots, events)
        progress[TESTED] += tests
        room[found] = row
        found += holds
    progress[PAIRS] = found
    progress[CANDIDATES] += len(scanned)
    clear(first, last, events.attribute, slots.lo, slots.hi, slots.more)


@phase
def _drop_gone(gone, row, start, progress):
    """Closes the gaps of rows that are gone."""
    if len(gone) > 0:
        kept = start
        for i in range(start, progress[PAIRS]):
            r = row[i]
            row[kept] = r
            kept += 1 - np.int64((gone[r >> 3] >> (r & 7)) & 1)
        progress[PAIRS] = kept


@phase(inline=False)
def _look_up_ids(ids, row, start, end, found):
    """Of the rows from start to end, if the layer's ids are integers."""
    if len(ids) > 0:
        for i in range(start, end):
            prefetch(ids, row[i])
        for i in range(start, end):
            found[i] = ids[row[i]]
