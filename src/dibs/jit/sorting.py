"""Orders that NumPy takes longer for: of short runs, of hashes, and of numbers that are few."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel, phase

_SHORT = 32  # items that are sorted by insertion


@phase(inline=False)
def sort_run(items, first, last):
    """Sorts items[first:last] in place: n log n at worst, without memory of its own (a heap sort), so that phases can
    have it whatever an event says."""
    if last - first <= _SHORT:
        for i in range(first + 1, last):
            x, at = items[i], i
            while at > first and items[at - 1] > x:
                items[at] = items[at - 1]
                at -= 1
            items[at] = x
        return
    sorted_to = first + 1
    while sorted_to < last and items[sorted_to - 1] <= items[sorted_to]:
        sorted_to += 1
    if sorted_to == last:
        return
    for root in range((last - first) // 2 - 1, -1, -1):
        _sift_down(items, first, root, last - first)
    for size in range(last - first - 1, 0, -1):
        items[first], items[first + size] = items[first + size], items[first]
        _sift_down(items, first, 0, size)


@phase
def _sift_down(items, first, root, size):
    """Puts the item at `root` of the heap items[first : first + size] where it belongs below it."""
    x, at = items[first + root], root
    child = 2 * at + 1
    while child < size:
        child += child + 1 < size and items[first + child + 1] > items[first + child]
        if items[first + child] <= x:
            break
        items[first + at] = items[first + child]
        at, child = child, 2 * child + 1
    items[first + at] = x


@kernel
def order_each(items, first, size, key):
    """Sorts each run of items by the key of the item, in place."""
    for r in range(len(first)):
        for i in range(first[r] + 1, first[r] + size[r]):
            x, at = items[i], i
            while at > first[r] and key[items[at - 1]] > key[x]:
                items[at] = items[at - 1]
                at -= 1
            items[at] = x


@kernel
def order_hashes(hashes):
    """Hashes in order, the places where they stood (equal ones in the order of these), and whether that was to be had:
    not if many begin alike, as of numbers that are no hashes. They are counted by their first bits, one bucket for
    each, and there is little left to sort: five times as fast as a sort."""
    bits = np.uint64(1)
    while (np.int64(1) << np.int64(bits)) < len(hashes):
        bits += np.uint64(1)
    shift = np.uint64(64) - bits
    free = np.zeros((np.int64(1) << np.int64(bits)) + 1, np.int32)
    ordered, places = np.empty(len(hashes), np.uint64), np.empty(len(hashes), np.int32)
    for h in hashes:
        free[np.int64(h >> shift) + 1] += 1
    for b in range(1, len(free)):
        free[b] += free[b - 1]
    for i in range(len(hashes)):
        b = np.int64(hashes[i] >> shift)
        ordered[free[b]], places[free[b]] = hashes[i], i
        free[b] += 1
    moved = 0
    for i in range(1, len(hashes)):
        h, place, at = ordered[i], places[i], i
        while at > 0 and ordered[at - 1] > h:
            ordered[at], places[at] = ordered[at - 1], places[at - 1]
            at -= 1
        ordered[at], places[at] = h, place
        moved += i - at
        if moved > _SHORT * len(hashes):
            return ordered, places, False
    return ordered, places, True


@kernel
def order_by_group(group, groups):
    """The places of the items group by group, each as they were; and where each group begins, and the last one ends. By
    counting: a sort takes ten times as long."""
    offsets, order = np.zeros(groups + 1, np.int32), np.empty(len(group), np.int32)
    for g in group:
        offsets[g + 1] += 1
    for g in range(groups):
        offsets[g + 1] += offsets[g]
    free = offsets[:groups].copy()
    for i in range(len(group)):
        g = group[i]
        order[free[g]] = i
        free[g] += 1
    return order, offsets
