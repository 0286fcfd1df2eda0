"""The B+tree of constants in a PB+tree: to find the item of a key, to add one, to take one out, and to make the
pointers of items lead elsewhere. Pages are half full by the usual rules, splitting, borrowing and joining (but the
last of each level, which are filled one after the other where keys come in order). See pbtree.layout for
the pages."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel
from dibs.jit.pointers import CHECKED
from dibs.papers.structures.pbtree.layout import (
    ADJUSTED,
    COUNT,
    FREE,
    FREED,
    HEAD,
    HEIGHT,
    INNER,
    KEYS,
    LEAF,
    LEAST,
    LISTS,
    NEXT,
    NONE,
    PREVIOUS,
    ROOT,
    USED,
    USES,
    VALUE,
    below,
    capacity,
    fence_of,
    fetch,
    key_of,
    set_key,
    touch,
    value_of,
)

DEEPEST = 64  # levels of inner pages; no tree has more
_most = kernel(capacity)


@kernel
def take_page(store, tree):
    """A page: one that was given back, or a new one."""
    page = tree[FREE]
    if page == NONE:
        page = tree[USED]
        tree[USED] += 1
    else:
        tree[FREE] = store.frames[fetch(store, page) + NEXT]
        tree[FREED] -= 1
    return page


@kernel
def give_back(store, tree, page):
    """A page that leaves the chain of its level or list."""
    at = touch(store, page)
    before, after = store.frames[at + PREVIOUS], store.frames[at + NEXT]
    store.frames[at + NEXT] = tree[FREE]
    tree[FREE] = page
    tree[FREED] += 1
    if before != NONE:
        store.frames[touch(store, before) + NEXT] = after
    if after != NONE:
        store.frames[touch(store, after) + PREVIOUS] = before


@kernel
def new_page_after(store, tree, page):
    """An empty page, linked in behind `page`."""
    right = take_page(store, tree)
    at = touch(store, page)
    after = store.frames[at + NEXT]
    store.frames[at + NEXT] = right
    if after != NONE:
        store.frames[touch(store, after) + PREVIOUS] = right
    at = touch(store, right)
    store.frames[at : at + HEAD] = 0
    store.frames[at + PREVIOUS], store.frames[at + NEXT] = page, after
    return right


@kernel
def move_items(store, source, start, target, to, count, width):
    """Copies items to their place in another page or in the same one."""
    x = fetch(store, source) + HEAD + start * width
    y = touch(store, target) + HEAD + to * width
    n = count * width
    if x < y:
        for i in range(n - 1, -1, -1):
            store.frames[y + i] = store.frames[x + i]
    else:
        for i in range(n):
            store.frames[y + i] = store.frames[x + i]


@kernel
def descend(store, tree, key, path):
    """The leaf page where `key` is or would be. The path: the inner page of each level and the child taken there."""
    page = tree[ROOT]
    for level in range(tree[HEIGHT]):
        at = fetch(store, page)
        child = below(store.frames, at, INNER, key + 1) - 1
        path[level, 0], path[level, 1] = page, child
        page = value_of(store.frames, at, child, INNER, VALUE)
    return page


@kernel
def find_item(store, tree, key, path):
    """The leaf page and the place in it where the key is or would be, and whether it is there."""
    leaf = descend(store, tree, key, path)
    at = fetch(store, leaf)
    place = below(store.frames, at, LEAF, key)
    found = place < store.frames[at + COUNT] and key_of(store.frames, at, place, LEAF) == key
    return leaf, place, found


@kernel
def previous_item(store, leaf, place):
    """The page and the place of the item before; there is one before each but the first, which has the least key."""
    if place > 0:
        return leaf, place - 1
    before = np.int64(store.frames[fetch(store, leaf) + PREVIOUS])
    return before, np.int64(store.frames[fetch(store, before) + COUNT]) - 1


@kernel
def _room_for(store, tree, page, place, width):
    """Splits the page if it is full. The page and the place where a new item goes, and the new page or NONE. Behind the
    last item of its level a page is begun that holds the new one alone."""
    most = _most(store.size, width)
    at = fetch(store, page)
    count = np.int64(store.frames[at + COUNT])
    last = place == count and store.frames[at + NEXT] == NONE
    if count < (most - most // 8 if last else most):
        return page, place, np.int64(NONE)
    right = new_page_after(store, tree, page)
    if last:
        return right, np.int64(0), right
    keep = (count + 1) // 2
    move_items(store, page, keep, right, 0, count - keep, width)
    store.frames[touch(store, page) + COUNT] = keep
    store.frames[touch(store, right) + COUNT] = count - keep
    if place > keep:
        return right, place - keep, right
    return page, place, right


@kernel
def _insert_at(store, page, place, width, key):
    """Room for an item at this place of a page that is not full, with its key. Where the page begins."""
    at = touch(store, page)
    count = np.int64(store.frames[at + COUNT])
    if CHECKED and count >= _most(store.size, width):
        raise IndexError("an item beyond its page")
    move_items(store, page, place, page, place + 1, count - place, width)
    at = touch(store, page)
    store.frames[at + COUNT] = count + 1
    set_key(store.frames, at, place, width, key)
    return at


@kernel
def _last_page_for(store, page, key):
    """The last page of a list whose fence is not above the key, from this one on. (It is this one, unless keys were
    deleted at which pages begin.)"""
    while True:
        after = np.int64(store.frames[fetch(store, page) + NEXT])
        if after == NONE or fence_of(store.frames, fetch(store, after)) > key:
            return page
        page = after


@kernel
def add_item(store, tree, key, leaf, place, path):
    """Inserts Predicate.constant into the B+tree (Fig. 6), at this place of the leaf page: the page and the place
    where it stands. Its pointers are those of PreviousItem."""
    before, last = previous_item(store, leaf, place)
    leaf, place, right = _room_for(store, tree, leaf, place, LEAF)
    _insert_at(store, leaf, place, LEAF, key)
    if right != NONE:
        before, last = previous_item(store, leaf, place)
    for which in range(LISTS):
        pointer = value_of(store.frames, fetch(store, before), last, LEAF, VALUE + which)
        pointer = _last_page_for(store, pointer, key)
        store.frames[touch(store, leaf) + HEAD + place * LEAF + VALUE + which] = pointer
    store.frames[touch(store, leaf) + HEAD + place * LEAF + USES] = 0
    tree[KEYS] += 1
    level = tree[HEIGHT] - 1
    while right != NONE:  # a page more on the level below
        new, begins = right, key_of(store.frames, fetch(store, right), 0, LEAF if level == tree[HEIGHT] - 1 else INNER)
        if level < 0:
            _grow(store, tree)
            page, slot = tree[ROOT], np.int64(1)
            right = np.int64(NONE)
        else:
            page, slot, right = _room_for(store, tree, path[level, 0], path[level, 1] + 1, INNER)
        at = _insert_at(store, page, slot, INNER, begins)
        store.frames[at + HEAD + slot * INNER + VALUE] = new
        level -= 1
    return leaf, place


@kernel
def _grow(store, tree):
    """A new root above the old one, its only child so far."""
    page = take_page(store, tree)
    at = touch(store, page)
    store.frames[at : at + HEAD] = 0
    store.frames[at + COUNT], store.frames[at + PREVIOUS], store.frames[at + NEXT] = 1, NONE, NONE
    set_key(store.frames, at, 0, INNER, LEAST)
    store.frames[at + HEAD + VALUE] = tree[ROOT]
    tree[ROOT] = page
    tree[HEIGHT] += 1


@kernel
def remove_item(store, tree, key, path):
    """Takes the item of the key out of the tree: up from its leaf as long as pages are joined."""
    page, place, _ = find_item(store, tree, key, path)
    tree[KEYS] -= 1
    width = LEAF
    for level in range(tree[HEIGHT] - 1, -2, -1):
        at = touch(store, page)
        count = np.int64(store.frames[at + COUNT]) - 1
        store.frames[at + COUNT] = count
        move_items(store, page, place + 1, page, place, count - place, width)
        if level < 0:
            if width == INNER and count == 1:  # a root with one child
                tree[ROOT] = value_of(store.frames, fetch(store, page), 0, INNER, VALUE)
                tree[HEIGHT] -= 1
                give_back(store, tree, page)
            return
        if count >= _most(store.size, width) // 2:
            return
        parent = path[level, 0]
        at = fetch(store, parent)
        place = min(path[level, 1] + 1, np.int64(store.frames[at + COUNT]) - 1)  # of the right one of two siblings
        if place == 0:  # it has no sibling: the last page of its level may be small, but not empty
            if count:
                return
            give_back(store, tree, page)
            page, width = parent, INNER
            continue
        left = value_of(store.frames, at, place - 1, INNER, VALUE)
        right = value_of(store.frames, at, place, INNER, VALUE)
        if not _join(store, left, right, width):
            begins = key_of(store.frames, fetch(store, right), 0, width)
            set_key(store.frames, touch(store, parent), place, INNER, begins)
            return
        give_back(store, tree, right)
        page, width = parent, INNER


@kernel
def _join(store, left, right, width):
    """All items of two siblings into the left one, or half of them into each. Whether the right one is empty then."""
    a = np.int64(store.frames[fetch(store, left) + COUNT])
    b = np.int64(store.frames[fetch(store, right) + COUNT])
    keep = a + b if a + b <= _most(store.size, width) else (a + b) // 2
    if keep < a:
        move_items(store, right, 0, right, a - keep, b, width)
        move_items(store, left, keep, right, 0, a - keep, width)
    else:
        move_items(store, right, 0, left, a, keep - a, width)
        move_items(store, right, keep - a, right, 0, a + b - keep, width)
    store.frames[touch(store, left) + COUNT] = keep
    store.frames[touch(store, right) + COUNT] = a + b - keep
    return keep == a + b


@kernel
def adjust_pointers(store, tree, which, key, source, target, path):
    """Items from `key` on whose pointer leads to `source` shall lead to `target` (Fig. 7, line 7): they stand together
    in the list of leaf pages."""
    leaf, place, _ = find_item(store, tree, key, path)
    while leaf != NONE:
        at = touch(store, leaf)
        for i in range(place, store.frames[at + COUNT]):
            item = at + HEAD + i * LEAF + VALUE + which
            if store.frames[item] != source:
                return
            store.frames[item] = target
            tree[ADJUSTED] += 1
        leaf, place = np.int64(store.frames[at + NEXT]), np.int64(0)
