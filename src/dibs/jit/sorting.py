"""What builds share: numbers for equal pairs, and the order of short runs."""

from __future__ import annotations

import numpy as np

from dibs.jit.kernel import kernel


@kernel
def number_pairs(a, b):
    """A number for each pair, equal for equal ones in order of first occurrence, and the place of each first."""
    room = 16
    while room < 2 * len(a):
        room *= 2
    slots = np.zeros(room, np.int32)  # 1 + number of a distinct pair
    mask = np.uint64(room - 1)
    number, first = np.empty(len(a), np.int64), np.empty(len(a), np.int64)
    n = 0
    for i in range(len(a)):
        h = np.uint64(a[i]) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(b[i]) * np.uint64(0xC2B2AE3D27D4EB4F)
        h ^= h >> np.uint64(29)
        at = (h * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(20)) & mask
        while True:
            s = slots[at]
            if s == 0:
                first[n] = i
                n += 1
                slots[at] = n
                number[i] = n - 1
                break
            j = first[s - 1]
            if a[j] == a[i] and b[j] == b[i]:
                number[i] = s - 1
                break
            at = (at + np.uint64(1)) & mask
    return number, first[:n]


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
