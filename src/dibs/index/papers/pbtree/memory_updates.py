"""Insertion into a PB+tree and deletion from it, entry by entry (index.pbtree_memory has the pages and their order).

An entry is (operator, key, row): subscription `row` has a predicate of this operator with the constant `key`. Inserting
it has the two steps of the paper: its key goes into the B+tree, a new item taking its pointers from its neighbours;
then the row goes into the list of its operator, and where a list page splits, the pointers of the items whose entries
moved are adjusted. Deletion is the reverse: the row leaves its list, pages that hold little are joined, and a key that
no list has any more leaves the tree, whose pages are kept half full by borrowing and joining.

`pages` and `small` are the same memory as 64-bit words and as 32-bit integers. A page is a head of four words, keys,
and `width` small integers for each key: the child of an inner page, the row of a list page, and for a leaf page the
list page where each list is entered and the number of entries with the key. So what moves things within pages and
between them is written once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dibs.index.papers.pbtree.filing import LISTS

# A list of flip -1 is in descending order of keys: ~key ascends. The list key is key ^ flip.
FLIP = (0, -1, 0, -1)
LEAST, MOST = -(2**63), 2**63 - 2
DEEPEST = 64  # levels of inner pages; no tree that fits into memory has more

COUNT, PREVIOUS, NEXT, LAST, HEAD = range(5)  # words of a head; LAST: of a list page its last key, LEAST when empty
USES = LISTS  # after the pointers of an item
NARROW, WIDE = 1, LISTS + 1  # widths: of inner and list pages, of leaf pages
# The words of page 0. HEIGHT: levels of inner pages; USED: pages ever taken; FREE: the first of those given back, -1
# when there is none, linked by NEXT; HEADS and TAILS: first and last page of each list.
ROOT, HEIGHT, KEYS, ADJUSTED, USED, FREE, HEADS = range(7)
TAILS = HEADS + LISTS
STATE = TAILS + LISTS


@njit(cache=True, nogil=True)
def capacity(words, width):  # type: ignore[no-untyped-def]
    """How many keys a page of so many words holds."""
    return (words - HEAD) * 2 // (2 + width)


@njit(cache=True, nogil=True)
def _place(pages, page, key):  # type: ignore[no-untyped-def]
    """The first key of the page that is not below `key`."""
    low, high = 0, pages[page, COUNT]
    while low < high:
        middle = (low + high) >> 1
        if pages[page, HEAD + middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _move(words, small, source, start, target, to, count, width):  # type: ignore[no-untyped-def]
    """Moves keys and what belongs to them, also within one page."""
    base = 2 * (HEAD + capacity(words, width))
    step = -1 if source == target and to > start else 1
    for part in range(2):  # the keys, each two small integers; the others
        size, at = (2, 2 * HEAD) if part == 0 else (width, base)
        n = count * size
        i = 0 if step > 0 else n - 1
        for _ in range(n):
            small[target, at + to * size + i] = small[source, at + start * size + i]
            i += step


@njit(cache=True, nogil=True)
def _taken(pages):  # type: ignore[no-untyped-def]
    """A page: one that was given back, or a new one."""
    page = pages[0, FREE]
    if page >= 0:
        pages[0, FREE] = pages[page, NEXT]
    else:
        page = pages[0, USED]
        pages[0, USED] += 1
    return page


@njit(cache=True, nogil=True)
def _split(pages, small, page, width):  # type: ignore[no-untyped-def]
    """The upper half of a page becomes a page of its own, next to it."""
    words, right = pages.shape[1], _taken(pages)
    count = pages[page, COUNT]
    keep = (count + 1) // 2
    after = pages[page, NEXT]
    pages[right, COUNT], pages[right, PREVIOUS], pages[right, NEXT] = count - keep, page, after
    pages[page, COUNT], pages[page, NEXT] = keep, right
    if after >= 0:
        pages[after, PREVIOUS] = right
    _move(words, small, page, keep, right, 0, count - keep, width)
    return right


@njit(cache=True, nogil=True)
def _give_back(pages, page):  # type: ignore[no-untyped-def]
    before, after = pages[page, PREVIOUS], pages[page, NEXT]
    if before >= 0:
        pages[before, NEXT] = after
    if after >= 0:
        pages[after, PREVIOUS] = before
    pages[page, NEXT] = pages[0, FREE]
    pages[0, FREE] = page


@njit(cache=True, nogil=True)
def _descend(pages, small, key, path):  # type: ignore[no-untyped-def]
    """The leaf page where `key` is or would be. The path is the inner page of each level and the child taken there."""
    page = pages[0, ROOT]
    base = 2 * (HEAD + capacity(pages.shape[1], NARROW))
    for level in range(pages[0, HEIGHT]):
        slot = _place(pages, page, key + 1) - 1
        path[2 * level], path[2 * level + 1] = page, slot
        page = np.int64(small[page, base + slot])
    return page


@njit(cache=True, nogil=True)
def _adjust(pages, small, op, after, page, to, path):  # type: ignore[no-untyped-def]
    """Items with list keys above `after` that point to `page` shall point to `to`: they stand together in the leaf
    list, which is walked in the order of the list."""
    base = 2 * (HEAD + capacity(pages.shape[1], WIDE)) + op
    key = min(after ^ FLIP[op], MOST)
    leaf = _descend(pages, small, key, path)
    at = _place(pages, leaf, key)
    step, onward = (-1, PREVIOUS) if FLIP[op] else (1, NEXT)
    if step < 0 or (at < pages[leaf, COUNT] and pages[leaf, HEAD + at] == key):
        at += step
    while True:
        while at < 0 or at >= pages[leaf, COUNT]:
            leaf = pages[leaf, onward]
            if leaf < 0:
                return
            at = pages[leaf, COUNT] - 1 if step < 0 else 0
        if small[leaf, base + at * WIDE] != page:
            return
        small[leaf, base + at * WIDE] = to
        pages[0, ADJUSTED] += 1
        at += step


@njit(cache=True, nogil=True)
def insert(pages, small, operators, keys, rows, first):  # type: ignore[no-untyped-def]
    """Inserts the entries from `first` on, whose rows are higher than all rows before; returns where it stopped
    because there might not be room for another one."""
    path, words = np.empty(2 * DEEPEST, np.int64), pages.shape[1]
    narrow, wide = capacity(words, NARROW), capacity(words, WIDE)
    children_at, items_at = 2 * (HEAD + narrow), 2 * (HEAD + wide)
    for i in range(first, len(keys)):
        if pages[0, USED] + pages[0, HEIGHT] + 3 > len(pages):
            return i
        op, key = np.int64(operators[i]), keys[i]

        # The key into the tree: up from the leaf as long as pages split, `right` being the new page of the level below.
        leaf = _descend(pages, small, key, path)
        leaf_at = _place(pages, leaf, key)
        if leaf_at < pages[leaf, COUNT] and pages[leaf, HEAD + leaf_at] == key:
            small[leaf, items_at + leaf_at * WIDE + USES] += 1
        else:
            page, at, new, right = leaf, leaf_at, key, np.int64(-1)
            for level in range(pages[0, HEIGHT], -2, -1):
                is_leaf = right < 0
                if level < 0:
                    page, at = _taken(pages), 1
                    pages[page, COUNT], pages[page, PREVIOUS], pages[page, NEXT] = 1, -1, -1
                    pages[page, HEAD], small[page, children_at] = LEAST, pages[0, ROOT]
                    pages[0, ROOT] = page
                    pages[0, HEIGHT] += 1
                elif not is_leaf:
                    page, at = path[2 * level], path[2 * level + 1] + 1
                below, right = right, np.int64(-1)
                width = WIDE if is_leaf else NARROW
                if pages[page, COUNT] == (wide if is_leaf else narrow):
                    right = _split(pages, small, page, width)
                    if at > pages[page, COUNT]:
                        at -= pages[page, COUNT]
                        page = right
                _move(words, small, page, at, page, at + 1, pages[page, COUNT] - at, width)
                pages[page, HEAD + at] = new
                pages[page, COUNT] += 1
                if is_leaf:
                    leaf, leaf_at = page, at
                else:
                    small[page, children_at + at] = below
                if right < 0:
                    break
                new = pages[right, HEAD]
            pages[0, KEYS] += 1
            small[leaf, items_at + leaf_at * WIDE + USES] = 1
            # Of lists in ascending order the pointer of the next item, of the others that of the previous one: where
            # their entries begin the new ones will stand.
            for k in range(LISTS):
                other, place = leaf, leaf_at - 1 if FLIP[k] else leaf_at + 1
                if place < 0:
                    other = pages[leaf, PREVIOUS]
                    place = pages[other, COUNT] - 1 if other >= 0 else 0
                elif place == pages[leaf, COUNT]:
                    other, place = pages[leaf, NEXT], 0
                pointer = small[other, items_at + place * WIDE + k] if other >= 0 else pages[0, TAILS + k]
                small[leaf, items_at + leaf_at * WIDE + k] = pointer

        # The row into its list, before all others of its key: they begin on the page where the pointer leads.
        page, wanted = np.int64(small[leaf, items_at + leaf_at * WIDE + op]), key ^ FLIP[op]
        if pages[page, COUNT] == narrow:
            right = _split(pages, small, page, NARROW)
            pages[right, LAST] = pages[page, LAST]
            pages[page, LAST] = pages[page, HEAD + pages[page, COUNT] - 1]
            if pages[right, NEXT] < 0:
                pages[0, TAILS + op] = right
            _adjust(pages, small, op, pages[page, LAST], page, right, path)
            if wanted > pages[page, LAST]:
                page = right
        count, at = pages[page, COUNT], _place(pages, page, wanted)
        _move(words, small, page, at, page, at + 1, count - at, NARROW)
        pages[page, HEAD + at], small[page, children_at + at] = wanted, rows[i]
        pages[page, COUNT], pages[page, LAST] = count + 1, pages[page, HEAD + count]
    return len(keys)


@njit(cache=True, nogil=True)
def delete(pages, small, operators, keys, rows):  # type: ignore[no-untyped-def]
    """Deletes the entries, each of which is there."""
    path, words = np.empty(2 * DEEPEST, np.int64), pages.shape[1]
    narrow, wide = capacity(words, NARROW), capacity(words, WIDE)
    children_at, items_at = 2 * (HEAD + narrow), 2 * (HEAD + wide)
    for i in range(len(keys)):
        op, key, row = np.int64(operators[i]), keys[i], rows[i]
        leaf = _descend(pages, small, key, path)
        leaf_at = _place(pages, leaf, key)

        # The row out of its list: the rows of its key begin on the page where the pointer leads, the highest first.
        page, wanted = np.int64(small[leaf, items_at + leaf_at * WIDE + op]), key ^ FLIP[op]
        while pages[page, LAST] == wanted and small[page, children_at + pages[page, COUNT] - 1] > row:
            page = pages[page, NEXT]
        at, high = 0, pages[page, COUNT]
        while at < high:
            middle = (at + high) >> 1
            here = pages[page, HEAD + middle]
            if here < wanted or (here == wanted and small[page, children_at + middle] > row):
                at = middle + 1
            else:
                high = middle
        count = pages[page, COUNT] - 1
        _move(words, small, page, at + 1, page, at, count - at, NARROW)
        pages[page, COUNT], pages[page, LAST] = count, (pages[page, HEAD + count - 1] if count else LEAST)
        before, after = pages[page, PREVIOUS], pages[page, NEXT]
        # Items may have to point elsewhere twice: because the page ends earlier now, and because two pages are joined,
        # or the page is empty: then `source` goes and `target` takes its entries.
        source, target = np.int64(-1), np.int64(-1)
        if count == 0 and (before >= 0 or after >= 0):
            source, target = page, after if after >= 0 else before
        elif after >= 0 and count + pages[after, COUNT] <= narrow // 2:
            source, target = after, page
        elif before >= 0 and count + pages[before, COUNT] <= narrow // 2:
            source, target = page, before
        for step in range(2):
            if step == 0 and count and at == count and after >= 0:
                _adjust(pages, small, op, pages[page, LAST], page, after, path)
            elif step == 1 and source >= 0:
                end = pages[source, PREVIOUS]
                _adjust(pages, small, op, pages[end, LAST] if end >= 0 else LEAST, source, target, path)
        if source >= 0:
            if pages[source, COUNT]:
                _move(words, small, source, 0, target, pages[target, COUNT], pages[source, COUNT], NARROW)
                pages[target, COUNT] += pages[source, COUNT]
                pages[target, LAST] = pages[source, LAST]
            if pages[source, PREVIOUS] < 0:
                pages[0, HEADS + op] = pages[source, NEXT]
            if pages[source, NEXT] < 0:
                pages[0, TAILS + op] = pages[source, PREVIOUS]
            _give_back(pages, source)

        # The key out of the tree, if no list has it: up from the leaf as long as pages are joined.
        small[leaf, items_at + leaf_at * WIDE + USES] -= 1
        if small[leaf, items_at + leaf_at * WIDE + USES]:
            continue
        pages[0, KEYS] -= 1
        page, at = _descend(pages, small, key, path), leaf_at  # the path again: _adjust has used it
        for level in range(pages[0, HEIGHT], -1, -1):
            is_leaf = page == leaf
            width, most = (WIDE, wide) if is_leaf else (NARROW, narrow)
            pages[page, COUNT] -= 1
            _move(words, small, page, at + 1, page, at, pages[page, COUNT] - at, width)
            if level == 0 and not is_leaf and pages[page, COUNT] == 1:
                pages[0, ROOT] = small[page, children_at]
                pages[0, HEIGHT] -= 1
                _give_back(pages, page)
            if level == 0 or pages[page, COUNT] >= most // 2:
                break
            page = path[2 * level - 2]
            at = min(path[2 * level - 1] + 1, pages[page, COUNT] - 1)  # of the right one of two siblings
            left, right = np.int64(small[page, children_at + at - 1]), np.int64(small[page, children_at + at])
            a, b = pages[left, COUNT], pages[right, COUNT]
            keep = a + b if a + b <= most else (a + b) // 2
            if keep < a:
                moves = (right, 0, right, a - keep, b), (left, keep, right, 0, a - keep)
            else:
                moves = (right, 0, left, a, keep - a), (right, keep - a, right, 0, a + b - keep)
            for source, start, target, to, size in moves:  # one call: LLVM copies the loop to each
                _move(words, small, source, start, target, to, size, width)
            pages[left, COUNT], pages[right, COUNT] = keep, a + b - keep
            if keep < a + b:
                pages[page, HEAD + at] = pages[right, HEAD]
                break
            _give_back(pages, right)
