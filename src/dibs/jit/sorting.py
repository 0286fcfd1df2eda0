"""What builds share: the order of short runs."""

from __future__ import annotations

from dibs.jit.kernel import kernel


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
