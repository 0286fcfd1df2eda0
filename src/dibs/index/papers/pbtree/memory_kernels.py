"""From the entries of a PB+tree in memory to full pages at once, and the search (see index.pbtree_memory)."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dibs.index.papers.counters import take_zeros
from dibs.index.papers.pbtree.filing import CELLS, EQUAL, GONE, GREATER, LESS, LISTS, TOUCHED, UNEQUAL
from dibs.index.papers.pbtree.memory_updates import (
    COUNT,
    FLIP,
    HEAD,
    HEADS,
    HEIGHT,
    KEYS,
    LAST,
    LEAST,
    NARROW,
    NEXT,
    PREVIOUS,
    ROOT,
    TAILS,
    USED,
    USES,
    WIDE,
    capacity,
)
from dibs.jit.lanes import prefetch

PREFETCHED = 128  # rows of each run that are asked for before they are counted
ROWS_AN_ENTRY = 16  # with fewer rows for each entry met, all counters are set back instead of those touched


def pages_for(count: int, most: int) -> int:
    """How many pages of at most `most` hold `count` things, evenly: seven eighths full where there are many, and at
    least half full where there is more than one page."""
    return max(1, -(-count // most), min(-(-count // (most - most // 8)), count // (most // 2)))


def ranks(key: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """The distinct keys in order, how often each is there, and the place of each key among them."""
    found: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]] = _ranks(key, np.argsort(key))
    return found


@njit(cache=True, nogil=True)
def _ranks(key, order):  # type: ignore[no-untyped-def]
    distinct, uses = np.empty(len(key), np.int64), np.zeros(len(key), np.int32)
    rank = np.empty(len(key), np.int32)
    n = -1
    for i in order:
        if n < 0 or distinct[n] != key[i]:
            n += 1
            distinct[n] = key[i]
        uses[n] += 1
        rank[i] = n
    return distinct[: n + 1].copy(), uses[: n + 1].copy(), rank


@njit(cache=True, nogil=True)
def load(pages, small, operator, row, rank, distinct, uses, list_pages, tree_pages):  # type: ignore[no-untyped-def]
    """Fills pages with entries whose rows ascend. list_pages: the number of pages of each list; tree_pages: of each
    level of the tree, the leaf pages first. Of m pages for n things, page j gets n * j // m to n * (j + 1) // m."""
    pointers = np.empty((len(distinct), LISTS), np.int32)
    rows_at = 2 * (HEAD + capacity(pages.shape[1], NARROW))
    base = np.int64(1)
    for op in range(LISTS):
        flip, m = FLIP[op], list_pages[op]
        start = np.zeros(len(distinct) + 1, np.int64)  # of each key in the order of the list
        for i in range(len(row)):
            if operator[i] == op:
                start[len(distinct) - rank[i] if flip else rank[i] + 1] += 1
        for k in range(len(distinct)):
            start[k + 1] += start[k]
        n = start[len(distinct)]
        for k in range(len(distinct)):
            pointer = base + (min(start[k] + 1, n) * m - 1) // n if n else base
            pointers[len(distinct) - 1 - k if flip else k, op] = pointer
        for i in range(len(row) - 1, -1, -1):  # of one key the highest row first
            if operator[i] == op:
                k = len(distinct) - 1 - rank[i] if flip else rank[i]
                j = ((start[k] + 1) * m - 1) // n
                at = start[k] - n * j // m
                pages[base + j, HEAD + at], small[base + j, rows_at + at] = distinct[rank[i]] ^ flip, row[i]
                start[k] += 1
        for j in range(m):
            page = base + j
            count = n * (j + 1) // m - n * j // m
            pages[page, COUNT], pages[page, LAST] = count, (pages[page, HEAD + count - 1] if count else LEAST)
            pages[page, PREVIOUS], pages[page, NEXT] = (page - 1 if j else -1), (page + 1 if j < m - 1 else -1)
        pages[0, HEADS + op], pages[0, TAILS + op] = base, base + m - 1
        base += m

    below, n = np.int64(0), len(distinct)  # what the next level holds: at first items, then pages from `below` on
    items_at = 2 * (HEAD + capacity(pages.shape[1], WIDE))
    for level in range(len(tree_pages)):
        m = tree_pages[level]
        for j in range(m):
            page, first = base + j, n * j // m
            pages[page, COUNT] = n * (j + 1) // m - first
            pages[page, PREVIOUS], pages[page, NEXT] = (page - 1 if j else -1), (page + 1 if j < m - 1 else -1)
            for k in range(pages[page, COUNT]):
                if level == 0:
                    pages[page, HEAD + k] = distinct[first + k]
                    small[page, items_at + k * WIDE + USES] = uses[first + k]
                    for op in range(LISTS):
                        small[page, items_at + k * WIDE + op] = pointers[first + k, op]
                else:
                    pages[page, HEAD + k] = pages[below + first + k, HEAD] if first + k else LEAST
                    small[page, rows_at + k] = below + first + k
        below, n, base = base, m, base + m
    pages[0, ROOT], pages[0, HEIGHT], pages[0, KEYS], pages[0, USED] = below, len(tree_pages) - 1, len(distinct), base


@njit(cache=True, nogil=True)
def _places(pages, page, key, place, size, count):  # type: ignore[no-untyped-def]
    """place[i]: how many keys of page[i] are below key[i]. All searches go on together, a step each, so that the memory
    is asked for many pages at once instead of for one after the other."""
    step = np.int64(1)
    while 2 * step <= capacity(pages.shape[1], NARROW):
        step *= 2
    for i in range(count):
        place[i], size[i] = 0, pages[page[i], COUNT]
    while step > 0:
        for i in range(count):
            to = place[i] + step
            below = pages[page[i], HEAD - 1 + min(to, size[i])] < key[i]
            place[i] = to if (to <= size[i]) & below else place[i]
        step >>= 1


@njit(cache=True, nogil=True)
def _satisfied(  # type: ignore[no-untyped-def]
    pages, small, filed, floor, ceiling, attribute, cell, first_value, last_value, sought, space, run_from, run_to
):
    """The entries that the values first_value to last_value meet, as runs of `small`; how many runs, and how many nodes
    were visited. Collects from EQUAL, GREATER, LESS, and from UNEQUAL the lower keys and the higher keys."""
    rows_at = 2 * (HEAD + capacity(pages.shape[1], NARROW))
    items_at = 2 * (HEAD + capacity(pages.shape[1], WIDE))
    page, key, place, size = sought[0], sought[1], sought[2], sought[3]
    n = 0
    for i in range(2 * first_value, 2 * last_value):
        a, x, away = np.int64(attribute[i >> 1]), np.int64(cell[i >> 1]), i & 1
        tree = 2 * a + away
        if filed[tree, EQUAL] + filed[tree, GREATER] + filed[tree, LESS] + filed[tree, UNEQUAL]:
            if away or filed[tree, EQUAL] or (floor[a] <= x and x <= ceiling[a]):
                page[n], key[n] = pages[0, ROOT], (tree << 32 | x) + 1
                n += 1
    height = pages[0, HEIGHT]
    for _ in range(height):
        _places(pages, page, key, place, size, n)
        for i in range(n):
            page[i] = small[page[i], rows_at + place[i] - 1]
    _places(pages, page, key, place, size, n)
    nodes = n * (height + 1)

    # From items to parts of lists: entries with list keys from `first` to `stop`, from the page that an item points to.
    pages_of, bounds, places, sizes = space[0], space[1], space[2], space[3]
    parts = 0
    for i in range(n):
        wanted = key[i] - 1
        tree, a, x = wanted >> 32, wanted >> 33, wanted & CELLS
        inside = tree & 1 or (floor[a] <= x and x <= ceiling[a])
        leaf, at = page[i], place[i] - 1  # the item of the highest key that is not above, and the next one
        after, after_at = leaf, at + 1
        if at < 0:
            leaf = pages[leaf, PREVIOUS]
            at = pages[leaf, COUNT] - 1 if leaf >= 0 else 0
        elif after_at == pages[leaf, COUNT]:
            after, after_at = pages[after, NEXT], 0
        here = leaf >= 0 and pages[leaf, HEAD + at] >> 32 == tree
        found = here and pages[leaf, HEAD + at] == wanted
        there = after >= 0 and pages[after, HEAD + after_at] >> 32 == tree
        for part in range(LISTS + 1 if inside else 1):
            op = min(part, UNEQUAL)
            if filed[tree, op] == 0:
                continue
            item, item_at = (leaf, at) if here else (after, after_at)
            if part == EQUAL:
                some, first, stop = found, wanted, wanted
            elif part == GREATER:
                some, first, stop = here, ~wanted, ~(tree << 32)
            elif part == LESS:
                some, first, stop = found or there, wanted, tree << 32 | CELLS
                if not found:
                    item, item_at = after, after_at
            elif part == UNEQUAL:
                # From the item of the highest key below: what is of the key itself may go on over several pages.
                item, item_at = leaf, at - int(found)
                if item_at < 0:
                    item = pages[leaf, PREVIOUS]
                    item_at = pages[item, COUNT] - 1 if item >= 0 else 0
                some = item >= 0 and pages[item, HEAD + item_at] >> 32 == tree
                first, stop = ~wanted + 1, ~(tree << 32)
            else:
                some, first, stop = here or there, ~(tree << 32 | CELLS), ~wanted - 1
            if some:
                start = np.int64(small[item, items_at + item_at * WIDE + op])
                if part > UNEQUAL:  # back to where the attribute begins
                    while pages[start, PREVIOUS] >= 0 and pages[pages[start, PREVIOUS], LAST] >= first:
                        start = pages[start, PREVIOUS]
                        nodes += 1
                pages_of[2 * parts], pages_of[2 * parts + 1] = start, start
                bounds[2 * parts], bounds[2 * parts + 1] = first, stop + 1
                parts += 1

    # From there to the end of the part, over as many pages as it has.
    _places(pages, pages_of, bounds, places, sizes, 2 * parts)
    runs = 0
    for i in range(0, 2 * parts, 2):
        low, end, stop, at = places[i], places[i + 1], bounds[i + 1] - 1, pages_of[i]
        while True:
            nodes += 1
            if low < end:
                run_from[runs] = at * small.shape[1] + rows_at + low
                run_to[runs] = at * small.shape[1] + rows_at + end
                runs += 1
            if pages[at, LAST] > stop or pages[at, NEXT] < 0:
                break
            at, low = pages[at, NEXT], 0
            end = pages[at, COUNT]
            if pages[at, LAST] > stop:
                left = end
                end = 0
                while left > 0:
                    half = left >> 1
                    if pages[at, HEAD + end + half] <= stop:
                        end += half + 1
                        left -= half + 1
                    else:
                        left = half
    return runs, nodes


@njit(cache=True, nogil=True)
def search(  # type: ignore[no-untyped-def]
    pages,
    small,
    filed,
    floor,
    ceiling,
    need,
    verify,
    offsets,
    attribute,
    lo,
    hi,
    span_lo,
    span_hi,
    event_offsets,
    event_attribute,
    event_cell,
    left,
    hits,
    last_event,
    out_event,
    out_row,
    done,
):
    """Goes on where `done` says (see index.base) and stops before an event whose pairs do not fit into the room.
    `left` is a copy of `need` and is one again afterwards; `hits` has room for all rows and one more."""
    widest = 0
    for e in range(done[0], last_event):
        widest = max(widest, event_offsets[e + 1] - event_offsets[e])
    # An attribute has two trees of five parts each, which begin and end within a page; other pages are in one run.
    sought, space = np.empty((4, 2 * widest), np.int64), np.empty((4, 20 * widest), np.int64)
    most = pages[0, USED] + 20 * widest
    run_from, run_to = np.empty(most, np.uint64), np.empty(most, np.uint64)
    flat = small.reshape(-1)
    count = 0
    for e in range(done[0], last_event):
        values = event_offsets[e], event_offsets[e + 1]
        event = event_attribute, event_cell, values[0], values[1]
        runs, nodes = _satisfied(pages, small, filed, floor, ceiling, *event, sought, space, run_from, run_to)
        met = 0
        for k in range(runs):
            met += np.int64(run_to[k] - run_from[k])
            for q in range(run_from[k], min(run_to[k], run_from[k] + np.uint64(PREFETCHED)), 16):
                prefetch(flat, np.int64(q))
        n, candidates = 0, 0
        if met * ROWS_AN_ENTRY < len(left):
            for k in range(runs):
                for q in range(run_from[k], run_to[k]):
                    r = np.uint32(flat[q])
                    before = left[r]
                    candidates += before < TOUCHED
                    still = np.uint8(before - 1) | np.uint8(TOUCHED)
                    left[r] = still
                    hits[n] = r
                    n += still == TOUCHED
            for k in range(runs):
                for q in range(run_from[k], run_to[k]):
                    r = np.uint32(flat[q])
                    left[r] = (left[r] & GONE) + 1
        else:
            for k in range(runs):
                for q in range(run_from[k], run_to[k]):
                    left[np.uint32(flat[q])] -= 1
            n, candidates = take_zeros(left, need, hits)

        if count + n > len(out_event):
            done[0], done[2] = e, count
            return
        tested = met
        for k in range(n):
            r = hits[k]
            matched = True
            if verify[r]:
                i, end = event_offsets[e], event_offsets[e + 1]
                for p in range(offsets[r], offsets[r + 1]):
                    tested += 1
                    while i < end and event_attribute[i] < attribute[p]:
                        i += 1
                    matched = i < end and event_attribute[i] == attribute[p]
                    if matched and hi[p] >= 0:
                        matched = lo[p] <= event_cell[i] and event_cell[i] <= hi[p]
                    elif matched:
                        low, high = np.int64(lo[p]), np.int64(lo[p] - hi[p])  # the first span that ends at x or later
                        while low < high:
                            middle = (low + high) >> 1
                            if span_hi[middle] < event_cell[i]:
                                low = middle + 1
                            else:
                                high = middle
                        matched = low < lo[p] - hi[p] and span_lo[low] <= event_cell[i]
                    if not matched:
                        break
            if matched:
                out_event[count] = e
                out_row[count] = r
                count += 1
        done[3] += candidates
        done[4] += tested
        done[6] += nodes
    done[0], done[2] = last_event, count
