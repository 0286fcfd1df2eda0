"""The search of a PB+tree in LMDB's pages, read where they lie (see index.pbtree for what is in them, index.lmdb_pages
for how they are laid out, index.pbtree_pages for how much of them is resident)."""

from __future__ import annotations

import numpy as np
from numba import njit

from dibs.index.papers.counters import take_zeros
from dibs.index.papers.pbtree.filing import CELLS, EQUAL, GONE, GREATER, LESS, LISTS, TOUCHED
from dibs.index.papers.pbtree.lmdb_pages import (
    BRANCH,
    DUPDATA,
    HEAD,
    NODE,
    SUBDATA,
    child_at,
    count_at,
    flags_at,
    load16,
    load32,
    load64,
    node_at,
)
from dibs.index.papers.pbtree.pages import FAILED, ROOT, fetch

ENTRY = 8  # bytes: cell << 32 | row
KEY = 4  # bytes of the key of a list: tree * LISTS + operator
END = 2**63 - 1
DEEPEST = 32  # levels of a tree; LMDB has no more
ROWS_A_ROW_SEEN = 16  # when more than one in so many rows was touched, all counters are set back instead of those
HITS, SEEN, MET, NODES, ALL = range(5)  # of `tally`, what an event has had so far; ALL: the rows seen are too many


@njit(cache=True, nogil=True, forceinline=True)
def _meet(entries, n, left, hits, seen, tally):  # type: ignore[no-untyped-def]
    """Counts the rows of n entries, which begin at an address, down."""
    tally[MET] += n
    if not tally[ALL] and tally[SEEN] + n >= len(seen):
        for k in range(tally[SEEN]):
            left[seen[k]] &= GONE
        tally[ALL] = 1
    if tally[ALL]:
        for at in range(entries, entries + n * ENTRY, ENTRY):
            left[np.uint64(load32(at))] -= 1
        return
    h, s = np.uint64(tally[HITS]), np.uint64(tally[SEEN])
    for at in range(entries, entries + n * ENTRY, ENTRY):
        r = np.uint64(load32(at))
        before = left[r]
        seen[s] = r
        s += np.uint64(before < TOUCHED)
        still = np.uint8(before - 1) | np.uint8(TOUCHED)
        left[r] = still
        hits[h] = r
        h += np.uint64(still == TOUCHED)
    tally[HITS], tally[SEEN] = h, s


@njit(cache=True, nogil=True)
def _below(entries, n, value):  # type: ignore[no-untyped-def]
    """How many of n entries, which begin at an address, are below the value."""
    low, high = np.int64(0), n
    while low < high:
        middle = (low + high) >> 1
        if load64(entries + middle * ENTRY) < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _branch(page, value, size):  # type: ignore[no-untyped-def]
    """The last node of a branch page whose key (of this size) is not above the value; the first has none."""
    low, high = np.int64(1), count_at(page)
    while low < high:
        middle = (low + high) >> 1
        at = node_at(page, middle) + NODE
        key = load32(at) if size == KEY else load64(at)
        if key <= value:
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit(cache=True, nogil=True, forceinline=True)
def _read_tree(  # type: ignore[no-untyped-def]
    root, low, high, path, place, shared, slots, blocks, own, left, hits, seen, tally
):
    """Meets the entries from low to high of a list that is a tree: down to the first of them, then page by page."""
    number, level, wanted = root, 0, low
    while True:
        page = fetch(place, shared, slots, blocks, own, number)
        tally[NODES] += 1
        while flags_at(page) & BRANCH and own[FAILED] == 0:
            i = _branch(page, wanted, ENTRY)
            path[0, level], path[1, level] = number, i
            level += 1
            number = child_at(node_at(page, i))
            page = fetch(place, shared, slots, blocks, own, number)
            tally[NODES] += 1
        if own[FAILED]:
            return
        n, entries = count_at(page), page + HEAD
        start = 0 if load64(entries) >= wanted else _below(entries, n, wanted)
        end = n if load64(entries + (n - 1) * ENTRY) <= high else _below(entries, n, high + 1)
        if start < end:
            _meet(entries + start * ENTRY, end - start, left, hits, seen, tally)
        if end < n:
            return
        i = np.int64(0)
        while level > 0:  # to the next page: up to where there is a node to the right
            number, i = path[0, level - 1], path[1, level - 1] + 1
            page = fetch(place, shared, slots, blocks, own, number)
            if i < count_at(page):
                break
            level -= 1
        if level == 0 or own[FAILED]:
            return
        at = node_at(page, i)
        wanted = load64(at + NODE)  # the least that the next page can hold
        if wanted > high:
            return
        path[1, level - 1] = i
        number = child_at(at)


@njit(cache=True, nogil=True, forceinline=True)
def _find(key, leaf, place, shared, slots, blocks, own, tally):  # type: ignore[no-untyped-def]
    """The page that a list is in, and the place of its node; the list is there. leaf: the page of the last one, or -1;
    the lists of an event are asked for in their order, so many are in the same page."""
    number, page = leaf, np.int64(0)
    if number >= 0:
        page = fetch(place, shared, slots, blocks, own, number)
        if load32(node_at(page, count_at(page) - 1) + NODE) < key:
            number = np.int64(-1)
    if number < 0:
        number = place[ROOT]
        page = fetch(place, shared, slots, blocks, own, number)
        tally[NODES] += 1
        while flags_at(page) & BRANCH and own[FAILED] == 0:
            number = child_at(node_at(page, _branch(page, key, KEY)))
            page = fetch(place, shared, slots, blocks, own, number)
            tally[NODES] += 1
    low, high = np.int64(0), count_at(page)
    while low < high:
        middle = (low + high) >> 1
        if load32(node_at(page, middle) + NODE) < key:
            low = middle + 1
        else:
            high = middle
    return number, low


@njit(cache=True, nogil=True, forceinline=True)
def _read(  # type: ignore[no-untyped-def]
    leaf, i, low, high, path, place, shared, slots, blocks, own, left, hits, seen, tally
):
    """Meets the entries from low to high of the list whose node is the i-th of the page `leaf`."""
    page = fetch(place, shared, slots, blocks, own, leaf)
    if own[FAILED]:
        return
    at = node_at(page, i)
    kind, data = load16(at + 4), at + NODE + KEY
    if kind & SUBDATA:
        root = load64(data + 40)
        _read_tree(root, low, high, path, place, shared, slots, blocks, own, left, hits, seen, tally)
        return
    n = np.int64(1)
    if kind & DUPDATA:  # a page within the page
        n, data = count_at(data), data + HEAD
    start = _below(data, n, low)
    end = n if high == END else _below(data, n, high + 1)
    if start < end:
        _meet(data + start * ENTRY, end - start, left, hits, seen, tally)


@njit(cache=True, nogil=True)
def depth_of(key, place, shared, slots, blocks, own):  # type: ignore[no-untyped-def]
    """How many levels the list has below the page that its node is in."""
    leaf, i = _find(key, np.int64(-1), place, shared, slots, blocks, own, np.zeros(ALL + 1, np.int64))
    at = node_at(fetch(place, shared, slots, blocks, own, leaf), i)
    return load16(at + NODE + KEY + 6) if load16(at + 4) & SUBDATA else np.int64(0)


@njit(cache=True, nogil=True)
def _collect(  # type: ignore[no-untyped-def]
    filed, floor, ceiling, attribute, cell, first, last, path, pages, left, hits, seen, tally
):
    """Meets every entry that the values first to last of an event satisfy."""
    place, shared, slots, blocks, own = pages
    leaf = np.int64(-1)
    for i in range(first, last):
        a, x = np.int64(attribute[i]), np.int64(cell[i])
        inside = floor[a] <= x and x <= ceiling[a]
        lowest, highest = x << 32, x << 32 | CELLS  # the entries of this constant
        for tree in range(2 * a, 2 * a + 2):
            for operator in range(LISTS if inside or tree & 1 else 1):
                if filed[tree, operator] == 0:
                    continue
                leaf, node = _find(tree * LISTS + operator, leaf, place, shared, slots, blocks, own, tally)
                low, high = np.int64(0), np.int64(END)
                if operator == EQUAL:
                    low, high = lowest, highest
                elif operator == GREATER:
                    high = highest
                elif operator == LESS:
                    low = lowest
                else:
                    high = lowest - 1
                    _read(leaf, node, low, high, path, place, shared, slots, blocks, own, left, hits, seen, tally)
                    low, high = highest + 1, np.int64(END)
                _read(leaf, node, low, high, path, place, shared, slots, blocks, own, left, hits, seen, tally)


@njit(cache=True, nogil=True)
def _holds(  # type: ignore[no-untyped-def]
    r, offsets, attribute, lo, hi, span_lo, span_hi, event_attribute, event_cell, first, end
):
    """Whether the clause r holds, and how many of its predicates were tested."""
    i, tested = first, 0
    for p in range(offsets[r], offsets[r + 1]):
        tested += 1
        while i < end and event_attribute[i] < attribute[p]:
            i += 1
        matched = i < end and event_attribute[i] == attribute[p]
        if matched and hi[p] >= 0:
            matched = lo[p] <= event_cell[i] and event_cell[i] <= hi[p]
        elif matched:
            low, high = np.int64(lo[p]), np.int64(lo[p] - hi[p])  # the first span that ends at the cell or later
            while low < high:
                middle = (low + high) >> 1
                if span_hi[middle] < event_cell[i]:
                    low = middle + 1
                else:
                    high = middle
            matched = low < lo[p] - hi[p] and span_lo[low] <= event_cell[i]
        if not matched:
            return False, tested
    return True, tested


@njit(cache=True, nogil=True)
def search(  # type: ignore[no-untyped-def]
    pages, filed, floor, ceiling, need, verify, clauses, events, left, hits, last_event, room, done
):
    """Goes on where `done` says (see index.base) and stops before an event whose pairs do not fit into the room.
    pages: see index.pbtree_pages; `left` is a copy of `need` and is one again afterwards; `hits` has room for all rows
    and one more."""
    event_offsets, event_attribute, event_cell = events
    out_event, out_row = room
    path = np.empty((2, DEEPEST), np.int64)
    seen, tally = np.empty(len(left) // ROWS_A_ROW_SEEN + 1, np.uint32), np.empty(ALL + 1, np.int64)
    own = pages[4]
    found = 0
    for e in range(done[0], last_event):
        first, end = event_offsets[e], event_offsets[e + 1]
        tally[:] = 0
        event = event_attribute, event_cell, first, end
        _collect(filed, floor, ceiling, *event, path, pages, left, hits, seen, tally)
        n, candidates = tally[HITS], tally[SEEN]
        if tally[ALL]:
            n, candidates = take_zeros(left, need, hits)
        else:
            for k in range(candidates):
                left[seen[k]] = need[seen[k]]
        if found + n > len(out_event) or own[FAILED]:
            done[0], done[2] = e, found
            return
        tested = tally[MET]
        for k in range(n):
            matched = True
            if verify[hits[k]]:
                matched, more = _holds(hits[k], *clauses, *event)
                tested += more
            if matched:
                out_event[found] = e
                out_row[found] = hits[k]
                found += 1
        done[3] += candidates
        done[4] += tested
        done[6] += tally[NODES]
    done[0], done[2] = last_event, found
