"""The compiled call of a single event: see dibs.segments.single."""

from __future__ import annotations

import numpy as np

from dibs.coding.events.json_kernels import READ, read_object
from dibs.index.auto.bit_kernels import match_events as match_bits
from dibs.index.auto.record_kernels import ask_for_event
from dibs.index.auto.record_kernels import match_events as match_records
from dibs.index.auto.record_layout import Facts
from dibs.index.auto.vector_kernels import match_events as match_vectors
from dibs.index.auto.vector_layout import LANES
from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS
from dibs.index.groups import PREDICATES as TESTED
from dibs.index.kernels import clear, lay_out, test_conjunction, test_program
from dibs.jit.group_at import part_at
from dibs.jit.interpreter import keeping
from dibs.jit.kernel import kernel, phase
from dibs.jit.prefetching import prefetch
from dibs.jit.scanning import PADDING
from dibs.segments.single.coding_kernels import code_values
from dibs.segments.single.facet_kernels import code_facets
from dibs.segments.single.memtable_kernels import match_waiting
from dibs.segments.single.program_kernels import IS_READ, compute_values
from dibs.segments.single.sieve_kernels import Sieved, match_sieved
from dibs.segments.single.tables import (
    ASKS_FOR_VALUES,
    DONE,
    FIRST_LAYER,
    FULL,
    HAS_BITS,
    HAS_FACETS,
    HAS_PROGRAMS,
    HAS_RECORDS,
    HAS_SIEVE,
    HAS_VECTORS,
    LAYER,
    LAYOUT_FINGERPRINT,
    LEFT,
    LONG,
    PROGRAMS_INEXACT,
    RECORDS_INEXACT,
    STALE,
    UNSURE,
    VECTORS_INEXACT,
    Head,
    LayerTable,
    Space,
)


@kernel
def match_text(plan, space, text, most_values):
    """The event that a text says, against the state of a plan (its address, and that of a work space). DONE: its rows,
    and what they cost, are in the space."""
    if part_at(plan, Head, "like_this") != LAYOUT_FINGERPRINT:
        return STALE
    copy, size = part_at(space, Space, "text"), len(text)
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
    found, progress = part_at(space, Space, "values.found"), part_at(space, Space, "progress")
    text, names, reading = part_at(space, Space, "text"), part_at(plan, Head, "names"), part_at(space, Space, "reading")
    found.counts[0], found.counts[1] = 0, 0
    if read_object(text, 0, size, names, found, reading) != READ:
        return UNSURE
    if len(part_at(plan, Head, "programs.name")) > 0:
        running = part_at(space, Space, "running")
        if running.told[IS_READ] == 0 and not compute_values(part_at(plan, Head, "programs"), running, found):
            return LEFT
    search = part_at(space, Space, "search")
    if found.counts[0] > most_values or found.counts[0] > len(search.left):
        return LONG
    for i in range(len(progress)):
        progress[i] = 0
    entries, ends = part_at(space, Space, "events"), part_at(space, Space, "ends")
    offsets, row = entries.offsets, part_at(space, Space, "room.row")
    offsets[0] = 0
    status = DONE
    for number in range(part_at(plan, Head, "layers")):
        layer = plan + FIRST_LAYER + LAYER * number
        flags, first = part_at(layer, LayerTable, "flags"), offsets[number]
        numbers, domain = part_at(space, Space, "values.numbers"), part_at(layer, LayerTable, "domain")
        last, points = code_values(found, numbers, domain, entries, search, first)
        if last < 0:
            return LONG
        if flags & HAS_FACETS != 0:
            last, more = code_facets(layer, space, first, last)
            points = points and more
            if last < 0:
                return UNSURE
        offsets[number + 1] = offsets[-1] = last
        if last > first or flags & ASKS_FOR_VALUES == 0:
            start = progress[PAIRS]
            status = _match_layer(layer, space, number, points)
            if status == DONE:
                status = _spread(part_at(layer, LayerTable, "repeats"), row, start, progress)
            if status != DONE:
                break
            _drop_gone(part_at(layer, LayerTable, "gone"), row, start, progress)
            _look_up_ids(part_at(layer, LayerTable, "ids"), row, start, progress[PAIRS], part_at(space, Space, "ids"))
        ends[number] = progress[PAIRS]
    of_layers = progress[PAIRS]
    if status == DONE:
        waiting = part_at(plan, Head, "waiting")
        if progress[PAIRS] + len(waiting.heads) > len(row):
            return FULL
        if len(waiting.heads) > 0:
            match_waiting(waiting, part_at(space, Space, "values"), row, progress)
    result = part_at(space, Space, "result")
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
def _match_layer(layer, space, number, points):
    """Adds the rows of a layer to the room. Its entries are those of the event `number` in the space."""
    flags, progress = part_at(layer, LayerTable, "flags"), part_at(space, Space, "progress")
    if flags & HAS_RECORDS != 0:
        progress[NEXT_EVENT] = number
        if points and flags & HAS_SIEVE != 0:
            _match_sieved(layer, space, number)
        else:
            facts = Facts(points, flags & RECORDS_INEXACT != 0)
            _match_records(part_at(layer, LayerTable, "records"), layer, space, number, facts)
        if progress[NEXT_EVENT] == number:
            return FULL
    if flags & HAS_PROGRAMS != 0:
        progress[NEXT_EVENT] = number
        facts = Facts(points, flags & PROGRAMS_INEXACT != 0)
        _match_records(part_at(layer, LayerTable, "programs"), layer, space, number, facts)
        if progress[NEXT_EVENT] == number:
            return FULL
    if flags & HAS_VECTORS != 0:
        progress[NEXT_EVENT] = number
        _match_vectors(layer, space, number, Facts(points, flags & VECTORS_INEXACT != 0))
        if progress[NEXT_EVENT] == number:
            return FULL
    if flags & HAS_BITS != 0:
        progress[NEXT_EVENT] = number
        _match_bits(layer, space, number)
        if progress[NEXT_EVENT] == number:
            return FULL
    scanned = part_at(layer, LayerTable, "scanned")
    if len(scanned) > 0:
        if progress[PAIRS] + len(scanned) > len(part_at(space, Space, "room.row")):
            return FULL
        _scan(layer, space, number)
    return DONE


@phase(inline=False)
def _match_records(records, layer, space, number, facts):
    events = part_at(space, Space, "events")
    ask_for_event(number, records, events)
    match_records(
        records,
        part_at(layer, LayerTable, "clauses"),
        part_at(layer, LayerTable, "jumps"),
        events,
        facts,
        number + 1,
        part_at(space, Space, "work"),
        part_at(space, Space, "room"),
        part_at(space, Space, "progress"),
    )


@phase(inline=False)
def _match_vectors(layer, space, number, facts):
    match_vectors(
        LANES,
        part_at(layer, LayerTable, "vectors"),
        part_at(layer, LayerTable, "clauses"),
        part_at(space, Space, "events"),
        facts,
        number + 1,
        part_at(space, Space, "vectors"),
        part_at(space, Space, "room"),
        part_at(space, Space, "progress"),
    )


@phase(inline=False)
def _match_sieved(layer, space, number):
    records, sieve = part_at(layer, LayerTable, "records"), part_at(layer, LayerTable, "sieve")
    match_sieved(
        Sieved(records, sieve, part_at(layer, LayerTable, "clauses"), part_at(layer, LayerTable, "jumps")),
        part_at(space, Space, "events"),
        part_at(layer, LayerTable, "flags") & RECORDS_INEXACT != 0,
        number,
        part_at(space, Space, "work"),
        part_at(space, Space, "sifting"),
        part_at(space, Space, "room"),
        part_at(space, Space, "progress"),
    )


@phase(inline=False)
def _match_bits(layer, space, number):
    progress, rows = part_at(space, Space, "progress"), part_at(layer, LayerTable, "bit_rows")
    predicates, clusters = part_at(layer, LayerTable, "predicates"), part_at(layer, LayerTable, "clusters")
    events, work, room = part_at(space, Space, "events"), part_at(space, Space, "bits"), part_at(space, Space, "room")
    before, true = progress[PAIRS], len(clusters.access) - 1  # the word of the true predicate
    work.bits[true] = 1
    match_bits(predicates, clusters, events, number + 1, work, room, progress)
    work.bits[true] = 0
    for i in range(before, progress[PAIRS]):
        room.row[i] = rows[room.row[i]]


@phase(inline=False)
def _scan(layer, space, number):
    """Rows that are tested one by one; there is room for all of them."""
    clauses, jumps = part_at(layer, LayerTable, "clauses"), part_at(layer, LayerTable, "jumps")
    slots, events = part_at(space, Space, "work.slots"), part_at(space, Space, "events")
    scanned, progress = part_at(layer, LayerTable, "scanned"), part_at(space, Space, "progress")
    room = part_at(space, Space, "room.row")
    first, last = events.offsets[number], events.offsets[number + 1]
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


@phase(inline=False)
def _spread(repeats, row, start, progress):
    """The rows of each clause in its place, where several have one: from the last on, as each has one at least."""
    if len(repeats) == 0:
        return DONE
    end = start
    for i in range(start, progress[PAIRS]):
        end += np.int64(repeats[row[i] + 1]) - repeats[row[i]]
    if end > len(row):
        return FULL
    at = end
    for i in range(progress[PAIRS] - 1, start - 1, -1):
        clause = np.int64(row[i])
        for r in range(repeats[clause + 1] - 1, repeats[clause] - 1, -1):
            at -= 1
            row[at] = r
    progress[CANDIDATES] += end - progress[PAIRS]
    progress[PAIRS] = end
    return DONE


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
