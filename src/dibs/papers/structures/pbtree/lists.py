"""The four lists of a PB+tree: to put a row into the SidSet of a key and to take it out again, and the kernels that do
so for many entries, with the B+tree (Fig. 6 and 7 of the paper). See pbtree.layout for the pages.

A list is a chain of pages in the order of keys. Each begins at its fence, the first one at the least key; the pointer
of an item leads to the last page whose fence is not above its key: there its SidSet ends. (Where the SidSet goes on
over several pages, all but the first of them have its key for their fence.) The rows of a SidSet ascend.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.jit.kernel import kernel
from dibs.jit.pointers import CHECKED
from dibs.papers.structures.pbtree.btree import (
    DEEPEST,
    add_item,
    adjust_pointers,
    find_item,
    give_back,
    new_page_after,
    remove_item,
)
from dibs.papers.structures.pbtree.layout import (
    COUNT,
    FENCE,
    FREE,
    HEAD,
    HEIGHT,
    ITEM,
    LEAF,
    LEAST,
    LISTS,
    NEXT,
    NONE,
    PREVIOUS,
    ROOT,
    ROWS,
    USED,
    USES,
    VALUE,
    below,
    fence_of,
    fetch,
    key_of,
    set_key,
    start_of,
    touch,
    used_words,
    value_of,
)

FIRST_LEAF = LISTS  # pages 0 to 3 are the first of the lists


class TreeEntries(NamedTuple):
    """Subscription `row` has a predicate of the list `operator` with the constant `key`."""

    operator: NDArray[np.uint8]
    key: NDArray[np.int64]
    row: NDArray[np.int32]


@kernel
def begin(store, tree):
    """An empty tree: the least key, the head of all lists, is its only item."""
    for page in range(LISTS + 1):
        at = touch(store, page)
        store.frames[at : at + HEAD] = 0
        store.frames[at + PREVIOUS], store.frames[at + NEXT] = NONE, NONE
        store.frames[at + FENCE] = LEAST >> 32
    at = touch(store, FIRST_LEAF)
    store.frames[at + COUNT] = 1
    set_key(store.frames, at, 0, LEAF, LEAST)
    for which in range(LISTS):
        store.frames[at + HEAD + VALUE + which] = which
    store.frames[at + HEAD + USES] = 1
    tree[:] = 0
    tree[ROOT], tree[HEIGHT], tree[USED], tree[FREE] = FIRST_LEAF, 0, LISTS + 1, NONE


@kernel
def _cut(frames, at):
    """Where a list page is halved: the first item that goes to the right, and how many of its rows stay. A SidSet that
    is a large part of the page is cut, others stay in one piece."""
    half = used_words(frames, at) // 2
    i, count = np.int64(0), np.int64(frames[at + COUNT])
    while i < count - 1 and (i + 1) * ITEM + value_of(frames, at, i, ITEM, VALUE) <= half:
        i += 1
    start = start_of(frames, at, i)
    rows = value_of(frames, at, i, ITEM, VALUE) - start
    if 2 * rows > half or (i == 0 and count == 1):
        return i, min(max(half - i * ITEM - start, 1), rows - 1)
    return max(i, 1), np.int64(0)


@kernel
def _split(store, tree, page):
    """The upper half of a list page becomes a page of its own, next to it."""
    right = new_page_after(store, tree, page)
    x, y, frames = touch(store, page), touch(store, right), store.frames
    first, stay = _cut(frames, x)
    count, rows = np.int64(frames[x + COUNT]), np.int64(frames[x + ROWS])
    kept = start_of(frames, x, first) + stay
    set_fence(frames, y, key_of(frames, x, first, ITEM))
    for i in range(first, count):
        set_key(frames, y, i - first, ITEM, key_of(frames, x, i, ITEM))
        frames[y + HEAD + (i - first) * ITEM + VALUE] = value_of(frames, x, i, ITEM, VALUE) - kept
    for j in range(kept, rows):
        frames[y + store.size - 1 - (j - kept)] = frames[x + store.size - 1 - j]
    frames[y + COUNT], frames[y + ROWS] = count - first, rows - kept
    if stay:
        frames[x + HEAD + first * ITEM + VALUE] = kept
        first += 1
    frames[x + COUNT], frames[x + ROWS] = first, kept
    return right


@kernel(forceinline=True)
def set_fence(frames, at, key):
    frames[at + FENCE], frames[at + FENCE + 1] = key >> 32, np.int64(key) & 0x7FFFFFFF


@kernel
def insert_to_list(store, tree, page, which, key, row, path):
    """Puts a row, the highest of its SidSet, into the list page that the pointer of its key leads to (Fig. 7). Where
    the page splits, pointers are adjusted. The page where the row is."""
    at, frames = touch(store, page), store.frames
    count = np.int64(frames[at + COUNT])
    i = below(frames, at, ITEM, key)
    there = i < count and key_of(frames, at, i, ITEM) == key
    more, most = (1 if there else 1 + ITEM), store.size - HEAD
    last = frames[at + NEXT] == NONE and i + there == count  # behind all others: pages are filled one by one
    if used_words(frames, at) + more > (most - most // 8 if last else most):
        if last:
            right = new_page_after(store, tree, page)
            set_fence(frames, touch(store, right), key)
        else:
            right = _split(store, tree, page)
        begins = fence_of(frames, fetch(store, right))
        adjust_pointers(store, tree, which, begins, page, right, path)
        page = right if key >= begins else page
        at = touch(store, page)
        i = below(frames, at, ITEM, key)
        there = i < frames[at + COUNT] and key_of(frames, at, i, ITEM) == key
    _put(store, at, i, there, key, row)
    return page


@kernel
def _put(store, at, i, there, key, row):
    """Into the SidSet of item i of a page that has room for it; if it is not there, into a new one."""
    frames, end = store.frames, at + store.size - 1
    count, rows = np.int64(frames[at + COUNT]), np.int64(frames[at + ROWS])
    if CHECKED and used_words(frames, at) + (1 if there else 1 + ITEM) > store.size - HEAD:
        raise IndexError("a row beyond its page")
    if not there:
        start = start_of(frames, at, i)
        first = at + HEAD + i * ITEM
        for k in range(at + HEAD + count * ITEM - 1, first - 1, -1):
            frames[k + ITEM] = frames[k]
        set_key(frames, at, i, ITEM, key)
        frames[first + VALUE] = start
        count += 1
        frames[at + COUNT] = count
    place = value_of(frames, at, i, ITEM, VALUE)
    for k in range(end - rows + 1, end - place + 1):
        frames[k - 1] = frames[k]
    frames[end - place] = row
    frames[at + ROWS] = rows + 1
    for k in range(i, count):
        frames[at + HEAD + k * ITEM + VALUE] += 1


@kernel
def _find_row(store, page, key, row):
    """The page, the item and the place among the rows of an entry that is there; `page`: where its SidSet ends."""
    frames = store.frames
    while page != NONE:
        at = fetch(store, page)
        i = below(frames, at, ITEM, key)
        if i < frames[at + COUNT] and key_of(frames, at, i, ITEM) == key:
            low, high = start_of(frames, at, i), value_of(frames, at, i, ITEM, VALUE)
            while low < high:
                middle = (low + high) >> 1
                if frames[at + store.size - 1 - middle] < row:
                    low = middle + 1
                else:
                    high = middle
            if low < value_of(frames, at, i, ITEM, VALUE) and frames[at + store.size - 1 - low] == row:
                return page, i, low
        page = np.int64(frames[at + PREVIOUS])
    raise ValueError("an entry is not there")


@kernel
def delete_from_list(store, tree, page, which, key, row, path):
    """Takes a row out of the SidSet that ends in this list page. Pages that hold little are joined."""
    page, i, place = _find_row(store, page, key, row)
    at, frames = touch(store, page), store.frames
    count, rows, end = np.int64(frames[at + COUNT]), np.int64(frames[at + ROWS]), at + store.size - 1
    for k in range(end - place, end - rows + 1, -1):
        frames[k] = frames[k - 1]
    frames[at + ROWS] = rows - 1
    for k in range(i, count):
        frames[at + HEAD + k * ITEM + VALUE] -= 1
    if start_of(frames, at, i) == value_of(frames, at, i, ITEM, VALUE):
        for k in range(at + HEAD + i * ITEM, at + HEAD + (count - 1) * ITEM):
            frames[k] = frames[k + ITEM]
        frames[at + COUNT] = count - 1
    own, before, after = used_words(frames, at), np.int64(frames[at + PREVIOUS]), np.int64(frames[at + NEXT])
    little = (store.size - HEAD) // 2
    if after != NONE and (own == 0 or own + used_words(frames, fetch(store, after)) <= little):
        _join(store, tree, page, after, which, path)
    elif before != NONE and (own == 0 or own + used_words(frames, fetch(store, before)) <= little):
        _join(store, tree, before, page, which, path)


@kernel
def _join(store, tree, left, right, which, path):
    """All of the right one of two neighbours into the left one."""
    x, y, frames = touch(store, left), touch(store, right), store.frames
    count, rows, more = np.int64(frames[x + COUNT]), np.int64(frames[x + ROWS]), np.int64(frames[y + ROWS])
    begins = fence_of(frames, y)
    for i in range(frames[y + COUNT]):
        key = key_of(frames, y, i, ITEM)
        if i > 0 or count == 0 or key_of(frames, x, count - 1, ITEM) != key:  # or the same SidSet goes on
            count += 1
        set_key(frames, x, count - 1, ITEM, key)
        frames[x + HEAD + (count - 1) * ITEM + VALUE] = rows + value_of(frames, y, i, ITEM, VALUE)
    for j in range(more):
        frames[x + store.size - 1 - (rows + j)] = frames[y + store.size - 1 - j]
    frames[x + COUNT], frames[x + ROWS] = count, rows + more
    adjust_pointers(store, tree, which, begins, right, left, path)
    give_back(store, tree, right)


# ---- many entries ----


@kernel
def insert(store, tree, entries, first, room):
    """Inserts the entries from `first` on, in the order of their keys, of one key and list in the order of rows, which
    are higher than those that are there. Where it stopped because there might not be room for another: the pages that
    there are may be `room`."""
    path = np.empty((DEEPEST, 2), np.int64)
    leaf, place, found = np.int64(NONE), np.int64(0), False
    for i in range(first, len(entries.key)):
        if tree[USED] + tree[HEIGHT] + 4 > room:
            return i
        key, which = entries.key[i], np.int64(entries.operator[i])
        if i == first or entries.key[i - 1] != key:
            leaf, place, found = find_item(store, tree, key, path)
            if not found:
                leaf, place = add_item(store, tree, key, leaf, place, path)
        item = touch(store, leaf) + HEAD + place * LEAF
        store.frames[item + USES] += 1
        page = np.int64(store.frames[item + VALUE + which])
        insert_to_list(store, tree, page, which, key, entries.row[i], path)
    return len(entries.key)


@kernel
def delete(store, tree, entries):
    """Deletes the entries, each of which is there: the reverse of inserting them."""
    path = np.empty((DEEPEST, 2), np.int64)
    for i in range(len(entries.key)):
        key, which = entries.key[i], np.int64(entries.operator[i])
        leaf, place, _ = find_item(store, tree, key, path)
        item = touch(store, leaf) + HEAD + place * LEAF
        store.frames[item + USES] -= 1
        uses, page = store.frames[item + USES], np.int64(store.frames[item + VALUE + which])
        delete_from_list(store, tree, page, which, key, entries.row[i], path)
        if uses == 0:
            remove_item(store, tree, key, path)
