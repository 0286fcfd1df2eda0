"""Which cells a row of pstree.psthash is in, and what partitions and merges of spaces do to them; and
MatchEvent (Algorithm 7): the event's spaces in all combinations, each a look-up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch
from dibs.papers.structures.pstree.kernels import leave_boundary, merge, partition_at
from dibs.papers.structures.pstree.lists import (
    begin_event,
    finish_event,
    first_space,
    next_space,
    no_candidates,
    screen_spaces,
    span_count,
    span_of,
    stop_before,
    verify,
)
from dibs.papers.structures.pstree.psthash_table import (
    CELLS_DONE,
    DIMENSIONS,
    EMPTY,
    KEY,
    MOST_DIMENSIONS,
    OK,
    ONE,
    POOL_FULL,
    PREFIX,
    PREFIXES,
    ROWS_DONE,
    SLOT,
    TABLE_FULL,
    VALUE,
    below,
    change_cell,
    find_slot,
    only_code,
    place_of,
    size_of,
    slot_of,
    start_of,
)
from dibs.papers.structures.pstree.spaces import (
    AT,
    ATTRIBUTE,
    BEFORE,
    EDGES,
    ROOM,
    SIZE,
    EventSpaces,
    ListArrays,
    RowArrays,
    chunk_size,
    copy_entries,
    give_back,
    take,
)


class Only(NamedTuple):
    """Those cells of a row whose space on an attribute is this leaf."""

    attribute: int  # -1: all cells
    leaf: int


class Digits(NamedTuple):
    """The cell of a row that has its turn, by dimension; dimensions are in the order of their attributes."""

    predicate: NDArray[np.int64]
    span: NDArray[np.int64]  # of the predicate
    leaf: NDArray[np.int64]  # the space; -1: all had their turn
    parent: NDArray[np.int64]  # what the key of the cell begins with: all spaces before this one
    slot: NDArray[np.int64]  # of the prefix that ends with this space


@kernel
def _no_digits():
    n, kind = MOST_DIMENSIONS, np.int64
    return Digits(np.empty(n, kind), np.empty(n, kind), np.empty(n, kind), np.empty(n, kind), np.empty(n, kind))


# ---- the cells of a row ----


@phase(inline=False)
def _change_cells(r, only, change, digits, rows, links, cells):
    """Adds the code of a row to the cells that its access predicates cover (change 1), or takes it from them (-1).
    Returns OK, or what there is no room for; then table[CELLS_DONE] cells are done, which the next call skips."""
    slots, table, parent = cells.slots, cells.table, digits.parent
    dimensions = np.int64(cells.dims[r])
    code = _code(r, dimensions, rows)
    _order_predicates(r, dimensions, digits.predicate, rows)
    done, d, begin = np.int64(0), 0, True
    while d >= 0:
        here = _next_leaf(d, begin, only, dimensions, digits, rows, links, slots)
        begin = False
        if here < 0:
            d -= 1
        elif d == 0:
            parent[1] = here << 32
            d, begin = 1, True
        elif d < dimensions - 1:
            if not _enter_prefix(d, here, change, digits, cells):
                table[CELLS_DONE] = done
                return TABLE_FULL
            d, begin = d + 1, True
        else:
            done += 1
            if done <= table[CELLS_DONE]:
                continue
            status = change_cell(parent[d] | here, code, change, cells)
            if status != OK:
                table[CELLS_DONE] = done - 1
                return status
            for i in range(1, dimensions - 1):
                slots[digits.slot[i], VALUE] += change * ONE
    table[CELLS_DONE] = 0
    return OK


@phase
def _code(r, dimensions, rows):
    left = rows.offsets[r] + dimensions
    return np.int32(r) if left == rows.offsets[r + 1] else np.int32(~left)


@phase
def _order_predicates(r, dimensions, ordered, rows):
    """The access predicates in the order of their attributes, as an event has them."""
    predicate = rows.predicate
    for d in range(dimensions):
        p, at = rows.offsets[r] + d, d
        while at > 0 and predicate[ordered[at - 1], ATTRIBUTE] > predicate[p, ATTRIBUTE]:
            ordered[at] = ordered[at - 1]
            at -= 1
        ordered[at] = p


@phase
def _next_leaf(d, begin, only, dimensions, digits, rows, links, slots):
    """The next space of dimension d, or the first one; -1 when there is none."""
    p, here = digits.predicate[d], np.int64(-1)
    if np.int64(rows.predicate[p, ATTRIBUTE]) == only.attribute:
        here = only.leaf if begin else np.int64(-1)
    else:
        s = np.int64(-1) if begin else digits.span[d]
        if not begin:
            here = np.int64(next_space(digits.leaf[d], span_of(p, s, rows)[1], links))
        if here < 0 and s + 1 < span_count(p, rows):
            s += 1
            found, high = first_space(p, s, rows, links)
            here = np.int64(found)
            if d == dimensions - 1:
                _ask_for_cells(here, high, digits.parent[d], links, slots)
        digits.span[d] = s
    digits.leaf[d] = here
    return here


@phase
def _ask_for_cells(at, high, parent, links, slots):
    """Prefetches the slots of all cells of a span in the last dimension."""
    while at >= 0:
        prefetch(slots, SLOT * start_of(parent | at, len(slots)))
        at = np.int64(next_space(at, high, links))


@phase
def _enter_prefix(d, here, change, digits, cells):
    """Goes on from the cell of dimensions 0 to d. False if the table has no room for it."""
    slots, table = cells.slots, cells.table
    at = slot_of(digits.parent[d] | here | PREFIX, change, slots, table)
    if at < 0:
        return False
    if slots[at, VALUE] == 0:  # new: a number of its own. Without cells below it keeps the number while it stays
        table[PREFIXES] += 1
        slots[at, VALUE] = table[PREFIXES]
    digits.slot[d] = at
    digits.parent[d + 1] = below(place_of(slots[at, VALUE]))
    return True


@kernel
def change_rows(which, start, change, rows, links, cells):
    """Puts rows into all their cells (change 1) or takes them out (-1). Returns where it stopped and why."""
    digits, everywhere = _no_digits(), Only(np.int64(-1), np.int64(-1))
    for i in range(start, len(which)):
        status = _change_cells(which[i], everywhere, np.int64(change), digits, rows, links, cells)
        if status != OK:
            return i, status
    return len(which), OK


# ---- partitions and merges ----


@kernel
def partition_hashed(boundaries, start, rows, cells, trees):
    """kernels.partition_all; what is in cells of the old space is copied to cells of the new one. Returns where it
    stopped and why; table[ROWS_DONE] and table[CELLS_DONE] say how far that copy is."""
    digits, leaf = _no_digits(), trees.links.leaf
    for i in range(start, len(boundaries.key)):
        found = partition_at(boundaries, i, trees)
        if found < 0 or found >= len(cells.cover):
            return i, OK
        if leaf[found, EDGES] == 0:  # new, or not copied to the end
            only = Only(boundaries.key[i] >> 32, found)
            status = _copy_cells(np.int64(leaf[found, BEFORE]), only, digits, rows, trees.links, cells)
            if status != OK:
                return i, status
        leaf[found, EDGES] += boundaries.predicates[i]
    return len(boundaries.key), OK


@phase
def _copy_cells(old, only, digits, rows, links, cells):
    """The new leaf `only.leaf` is in the cells that the old one is in."""
    cover, table, new = cells.cover, cells.table, only.leaf
    size, at = np.int64(cover[old, SIZE]), np.int64(cover[old, AT])
    if size > 0 and cover[new, SIZE] == 0:
        place = take(size, cells.pool)
        if place < 0:
            return POOL_FULL
        copy_entries(place, at, size, cells.pool)
        cover[new, AT], cover[new, SIZE], cover[new, ROOM] = place, size, chunk_size(size)
    for k in range(table[ROWS_DONE], size):
        r = np.int64(cells.pool.entry[at + k, 0])
        status = _change_cells(r, only, np.int64(1), digits, rows, links, cells)
        if status != OK:
            table[ROWS_DONE] = k
            return status
    table[ROWS_DONE] = 0
    return OK


@kernel
def merge_hashed(boundaries, rows, cells, trees):
    """The opposite: the cells of a space that is merged are emptied first."""
    digits = _no_digits()
    for i in range(len(boundaries.key)):
        gone = leave_boundary(boundaries, i, trees)
        if gone >= 0:
            a = boundaries.key[i] >> 32
            _empty_cells(Only(a, gone), digits, rows, trees.links, cells)
            merge(a, gone, trees)


@phase
def _empty_cells(only, digits, rows, links, cells):
    cover, gone = cells.cover, only.leaf
    for k in range(cover[gone, AT], cover[gone, AT] + cover[gone, SIZE]):
        r = np.int64(cells.pool.entry[k, 0])
        _change_cells(r, only, np.int64(-1), digits, rows, links, cells)
    if cover[gone, ROOM] > 0:
        give_back(np.int64(cover[gone, AT]), np.int64(cover[gone, ROOM]), cells.pool)
    cover[gone, AT], cover[gone, SIZE], cover[gone, ROOM] = 0, 0, 0


@kernel
def dimensions_of(which, most, most_cells, rows, links):
    """By how many predicates each row is found: `most`, or fewer lest it be in more than `most_cells` cells, or one if
    it has fewer. In how many cells these rows will be, and how many rows would be in too many."""
    offsets = rows.offsets
    result, total, wide = np.empty(len(which), np.uint8), np.int64(0), np.int64(0)
    for i in range(len(which)):
        first, product, kept = offsets[which[i]], np.int64(1), np.int64(0)
        result[i] = 1
        if first + most > offsets[which[i] + 1]:
            continue
        for p in range(first, first + most):
            product *= _count_spaces(p, most_cells, rows, links)
            if product > most_cells:
                wide += 1
                break
            result[i], kept = p + 1 - first, product
        total += kept if result[i] > 1 else 0
    return result, total, wide


@phase
def _count_spaces(p, most, rows, links):
    """How many spaces a predicate covers; one for each span, at least, once they are more than `most`."""
    spaces = np.int64(0)
    for s in range(span_count(p, rows)):
        at, high = first_space(p, s, rows, links)
        while at >= 0 and spaces <= most:
            spaces += 1
            at = next_space(at, high, links)
    return spaces


class CellArrays(NamedTuple):
    """The cells as a match reads them; see psthash_table.Cells."""

    slots: NDArray[np.int64]
    table: NDArray[np.int64]
    cover: NDArray[np.int32]
    pool: NDArray[np.int32]  # (entries, 1)


class Combinations(NamedTuple):
    """Work space: how far the combinations of an event's spaces are. At depth d the first d of a cell are chosen."""

    own: NDArray[np.int64]  # attributes + 1: the event's spaces that take part in cells, and a place for none
    start: NDArray[np.int64]  # by these: where the search for the cell that ends with it begins
    parent: NDArray[np.int64]  # by depth: what the keys of its cells begin with
    turn: NDArray[np.int64]  # by depth: which of the spaces comes next


@kernel
def match_hashed(attributes, block, last_event, lists, cells, rows, events, room, progress):
    """See index.base.in_parts. block: candidates that are verified together."""
    lists, rows, events = ListArrays(*lists), RowArrays(*rows), EventSpaces(*events)
    cells = CellArrays(*cells)
    waiting, combinations = no_candidates(attributes, block), _no_combinations(attributes)
    found = np.int64(0)
    for e in range(progress[NEXT_EVENT], last_event):
        before = found
        begin_event(e, events, waiting.slot)
        # Subscriptions that are found by one predicate, as in pstree; then those that are in cells.
        n, found = screen_spaces(e, last_event, found, lists, rows, events, waiting, room)
        if found >= 0:
            m = _choose_spaces(e, events, cells.cover, combinations.own)
            n, found = _look_up_combinations(e, m, n, found, combinations, cells, rows, waiting, room)
        found = verify(n, e, found, waiting, rows, room)
        if found < 0:
            stop_before(e, before, progress)
            return
        finish_event(e, events, waiting, progress)
    progress[NEXT_EVENT], progress[PAIRS] = last_event, found


@kernel(forceinline=True)
def _no_combinations(attributes):
    own, start = np.empty(attributes + 1, np.int64), np.empty(attributes + 1, np.int64)
    return Combinations(own, start, np.empty(MOST_DIMENSIONS + 1, np.int64), np.empty(MOST_DIMENSIONS + 1, np.int64))


@phase(inline=False)
def _choose_spaces(e, events, cover, own):
    """The event's spaces that take part in cells; how many."""
    space, m = events.space, 0
    for i in range(events.offsets[e], events.offsets[e + 1]):
        own[m] = space[i]
        m += cover[space[i], SIZE] > 0
    return m


@phase
def _look_up_combinations(e, m, n, found, combinations, cells, rows, waiting, room):
    """Depth first through the combinations of the event's m spaces. Returns how many candidates wait, and the end of
    the matches: 0 and -1 if there is no room for them."""
    own, _, parent, turn = combinations
    slots, most, probes = cells.slots, cells.table[DIMENSIONS], np.int64(0)
    for i in range(m - 1 if most > 1 else 0):
        d, fresh = 1, True
        parent[1], turn[1] = own[i] << 32, i + 1
        while d > 0:
            if fresh:
                fresh = False
                n, found = _look_up_cells(e, d, m, n, found, combinations, cells, (waiting, rows), room)
                if found < 0:
                    return np.int64(0), found
            if d + 1 >= most or turn[d] >= m - 1:
                d -= 1
                continue
            j = turn[d]
            turn[d] += 1
            probes += 1
            key = parent[d] | own[j] | PREFIX
            at = find_slot(key, start_of(key, len(slots)), slots)
            if slots[at, KEY] == key and size_of(slots[at, VALUE]) != 0:
                d, fresh = d + 1, True
                parent[d], turn[d] = below(place_of(slots[at, VALUE])), j + 1
    waiting.tally[NODES] += probes
    return n, found


@phase
def _look_up_cells(e, d, m, n, found, combinations, cells, candidates, room):
    """The cells that the chosen spaces make with each of those that follow; all are asked for at once."""
    own, start, parent, turn = combinations
    waiting, rows = candidates
    slots, pool, code = cells.slots, cells.pool, waiting.code
    block, total = len(code) - 1, np.int64(0)
    for j in range(turn[d], m):
        start[j] = start_of(parent[d] | own[j], len(slots))
        prefetch(slots, SLOT * start[j])
    for j in range(turn[d], m):
        at = find_slot(parent[d] | own[j], start[j], slots)
        if slots[at, KEY] == EMPTY:
            continue
        value = slots[at, VALUE]
        size = size_of(value)
        total += size
        k = place_of(value) + 1
        end = k + size
        if size == 1:
            code[n] = only_code(value)
            n += 1
        if size <= 1:
            k = end
        while k < end or n == block:
            if n == block:
                found = verify(n, e, found, waiting, rows, room)
                n = np.int64(0)
                if found < 0:
                    return n, found
            while k < end and n < block:
                code[n] = pool[k, 0]
                n += 1
                k += 1
    waiting.tally[CANDIDATES] += total
    waiting.tally[NODES] += m - turn[d]
    return n, found
