"""MatchEvent of pstree.psthash (Algorithm 7): the event's spaces in all combinations, each a look-up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS
from dibs.jit.kernel import kernel, phase
from dibs.jit.lanes import prefetch
from dibs.papers.structures.pstree.groups import SIZE, EventSpaces, ListArrays, RowArrays
from dibs.papers.structures.pstree.matching import (
    begin_event,
    finish_event,
    no_candidates,
    screen_spaces,
    stop_before,
    verify,
)
from dibs.papers.structures.pstree.psthash_table import (
    DIMENSIONS,
    EMPTY,
    KEY,
    MOST_DIMENSIONS,
    PREFIX,
    SLOT,
    VALUE,
    below,
    find_slot,
    only_code,
    place_of,
    size_of,
    start_of,
)


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
