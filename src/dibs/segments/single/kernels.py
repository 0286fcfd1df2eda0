"""The compiled call of a single event: see dibs.segments.single."""

from __future__ import annotations

import numpy as np

from dibs.coding.arrange import NUMBER, STRING
from dibs.coding.domain import NUMBER_BASE, number_cell, string_cell
from dibs.coding.events.json_kernels import READ, read_object
from dibs.index.auto.record_kernels import ask_for_event
from dibs.index.auto.record_kernels import match_events as match_records
from dibs.index.auto.record_layout import Facts, WorkSpace
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS
from dibs.index.groups import PREDICATES as TESTED
from dibs.index.kernels import clear, lay_out, test_conjunction, test_program
from dibs.index.papers.propagation.kernels import match_events as match_bits
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
    slots_at,
    values_at,
    waiting_at,
)
from dibs.segments.single.facet_kernels import add_entry, code_facets
from dibs.segments.single.layout import (
    ASKS_FOR_VALUES,
    BIT_ROWS,
    COARSE,
    DONE,
    ENDS,
    FLAGS,
    FULL,
    GONE,
    HAS_BITS,
    HAS_FACETS,
    HAS_RECORDS,
    HEAD,
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
    SEVERAL,
    STALE,
    STAMPS,
    SURVIVORS,
    TEXT,
    UNSURE,
)
from dibs.segments.single.waiting_kernels import match_waiting

AHEAD, SOON = 12, 6  # so many values before one is coded, what it needs is prefetched


@kernel
def match_text(plan, space, text, most_values):
    """The event that a text says, against the state of a plan (its address, and that of a work space). DONE: its rows,
    and what they cost, are in the space."""
    if len(array_at(plan, LAYERS, np.uint8)) != LIKE_THIS:
        return STALE
    copy = array_at(space, TEXT, np.uint8)
    size = len(text)
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
    if found.counts[0] > most_values:
        return LONG
    for i in range(len(progress)):
        progress[i] = 0
    offsets, ends = array_at(space, OFFSETS, np.int64), array_at(space, ENDS, np.int64)
    offsets[0] = 0
    status = DONE
    for layer in range(number_at(plan, LAYERS)):
        own = HEAD + layer * LAYER
        last, points = _code_values(found, numbers_at(space), domain_at(plan, own), code_at(space), offsets[layer])
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
            _drop_gone(array_at(plan, own + GONE, np.uint8), array_at(space, ROOM + 1, np.int32), start, progress)
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


# ---- values to cells ----


@phase(inline=False)
def _code_values(found, numbers, domain, coded, first):
    """The entries of one layer, from coded[first] on, by attribute and cell; where they end, and whether no attribute
    has several."""
    last, points = first, True
    for i in range(min(AHEAD, found.counts[0])):
        _ask_for_offsets(found, i, domain)
    for i in range(found.counts[0]):
        if i + AHEAD < found.counts[0]:
            _ask_for_offsets(found, i + AHEAD, domain)
        if i + SOON < found.counts[0]:
            _ask_for_constants(found, i + SOON, domain)
        a = np.int64(domain.own[found.name[i]])
        if a < 0:
            continue
        c = _cell_of(found, numbers, i, a, domain)
        last, single = add_entry(coded, first, last, a, c, c)
        points = points and single
    return last, points


@phase
def _ask_for_offsets(found, i, domain):
    """Prefetches where the constants of a value's attribute stand: of very many attributes, little is in the caches."""
    a = np.int64(domain.own[found.name[i]])
    if a >= 0:
        prefetch(domain.number_offsets if found.kind[i] == NUMBER else domain.string_offsets, a)


@phase
def _ask_for_constants(found, i, domain):
    """Prefetches those that a search begins with."""
    a = np.int64(domain.own[found.name[i]])
    if a >= 0:
        if found.kind[i] == NUMBER:
            middle = (domain.number_offsets[a] + domain.number_offsets[a + 1]) >> 1
            prefetch(domain.number_value, middle)
            prefetch(domain.number_rest, middle)
        else:
            prefetch(domain.string_prefix, (domain.string_offsets[a] + domain.string_offsets[a + 1]) >> 1)


@phase
def _cell_of(found, numbers, i, a, domain):
    """The cell of value i for attribute a."""
    kind = found.kind[i]
    if kind == NUMBER:
        x, y = domain.number_offsets[a], domain.number_offsets[a + 1]
        c = NUMBER_BASE + number_cell(numbers[i], found.rest[i], x, y, domain.number_value, domain.number_rest)
    elif kind == STRING:
        s, x, y = found.key[i], domain.string_offsets[a], domain.string_offsets[a + 1]
        c = domain.string_base[a] + string_cell(
            found.data,
            found.starts[s],
            found.starts[s + 1],
            x,
            y,
            domain.string_starts,
            domain.string_bytes,
            domain.string_prefix,
        )
    else:
        c = 1 + found.key[i]
    return np.int64(c)


# ---- cells to rows ----


@phase(inline=False)
def _match_layer(plan, space, layer, points):
    """Adds the rows of a layer to the room."""
    own = HEAD + layer * LAYER
    flags = number_at(plan, own + FLAGS)
    progress = array_at(space, PROGRESS, np.int64)
    if flags & HAS_RECORDS != 0:
        progress[NEXT_EVENT] = layer
        _match_records(plan, own, space, layer, points)
        if progress[NEXT_EVENT] == layer:
            return FULL
    if flags & HAS_BITS != 0:
        if not points:
            return SEVERAL
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
    work = WorkSpace(
        slots_at(space),
        array_at(space, COARSE, np.uint16),
        array_at(space, STAMPS, np.int32),
        array_at(space, SURVIVORS, np.uint32),
    )
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
