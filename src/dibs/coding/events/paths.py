"""The wanted names as a tree, for kernels that follow the keys of nested objects.

A name is a path of segments with dots between them; a node is the beginning of some name up to a dot, or a whole one.
Splitting at dots tells paths apart exactly, so it does not matter how an event spells one: {"a": {"b": 1}} and
{"a.b": 1} lead to the same node. Children are found by a hash of their parent's number and their segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.arrays import from_strings
from dibs.coding.events.arrow_values import text_buffers
from dibs.jit.groups import Columns
from dibs.jit.kernel import kernel, phase
from dibs.jit.scanning import PADDING
from dibs.jit.words import word_at

ROOT = 0  # the event itself
NOWHERE = -1  # neither a wanted name nor on the way to one

_DOT = 46
_FACTOR = 0x9E3779B97F4A7C15


# The columns of a node: it is looked at as a whole, in one line of the cache.
_PLACE = 0  # its parent and the size of its segment, see _place
_HEAD = 1  # the first eight bytes of the segment, filled up with zeros
_START = 2  # the segment is data[start:start + size]
_ROLE = 3  # the number of the wanted name that ends here, or -1, times 4; plus what it leads to
COLUMNS = 4
# To what a node leads.
_CHILDREN, _GRANDCHILDREN = 1, 2  # the latter: a key with dots may lead there


class Paths(NamedTuple):
    """The tree. Node 0 is the root; a node has a higher number than its parent."""

    slots: NDArray[np.int32]  # nodes by their hash, 0: empty; at most half of them are taken
    nodes: Annotated[NDArray[np.int64], Columns(COLUMNS)]
    data: NDArray[np.uint8]  # the names, and PADDING bytes


def paths_of(names: Sequence[str], before: Paths | None = None) -> Paths:
    """The tree of these names, whose numbers are their places. before: that of the first of them."""
    known = 0 if before is None else int((before.nodes[:, _ROLE] >> 2).max()) + 1
    offsets, data = text_buffers(from_strings(names[known:]))
    room = len(names) - known + int(np.count_nonzero(data == _DOT))
    if before is not None and 2 * (len(before.nodes) + room) > len(before.slots):
        return paths_of(names)
    if before is None:
        slots, root = np.zeros(1 << max(4, (4 * room).bit_length()), np.int32), np.zeros((1, COLUMNS), np.int64)
        root[0, _ROLE] = -4
        before = Paths(slots, root, np.empty(0, np.uint8))
    first = len(before.nodes)
    nodes = np.concatenate([before.nodes, np.zeros((room, COLUMNS), np.int64)])
    texts = np.concatenate([before.data, data, np.zeros(PADDING, np.uint8)])
    slots = before.slots.copy()
    last = _insert(offsets + len(before.data), known, first, Paths(slots, nodes, texts))
    return Paths(slots, nodes[:last].copy(), texts)


@kernel
def _insert(offsets, number, count, tree):
    """Names from this number on; returns how many nodes there are then."""
    slots, nodes, data = tree
    for i in range(len(offsets) - 1):
        node, at = ROOT, offsets[i]
        while at <= offsets[i + 1]:
            end = at
            while end < offsets[i + 1] and data[end] != _DOT:
                end += 1
            slot, found = _find(tree, node, data, at, end)
            if found == NOWHERE:
                found = count
                slots[slot] = found
                nodes[found, _PLACE], nodes[found, _START] = _place(node, end - at), at
                nodes[found, _HEAD] = np.int64(_last_word(data, at, min(end - at, 8)))
                nodes[found, _ROLE] = -4
                _lead(nodes, node)
                count += 1
            node, at = found, end + 1
        nodes[node, _ROLE] = ((number + i) << 2) | (nodes[node, _ROLE] & 3)
    return count


@phase
def _lead(nodes, node):
    """A node has children, so its parent has grandchildren."""
    if nodes[node, _ROLE] & 3 == 0:
        nodes[node, _ROLE] |= _CHILDREN
        if node != ROOT:
            parent = nodes[node, _PLACE] >> 32
            nodes[parent, _ROLE] = (nodes[parent, _ROLE] & -4) | _GRANDCHILDREN


@phase
def name_at(tree, node):
    """The number of the wanted name that ends at a node, or -1."""
    return tree.nodes[node, _ROLE] >> 2


@phase
def leads_on(tree, node):
    """Whether a node has children."""
    return tree.nodes[node, _ROLE] & 3 != 0


@phase
def child(tree, node, text, start, end):
    """Where the key text[start:end] leads from a node, or NOWHERE. The text has PADDING bytes behind it."""
    if not leads_on(tree, node):
        return np.int64(NOWHERE)
    _, found = _find(tree, node, text, start, end)
    if found == NOWHERE and tree.nodes[node, _ROLE] & 3 == _GRANDCHILDREN:
        return _descend(tree, node, text, start, end)
    return found


@phase(inline=False)
def _descend(tree, node, text, start, end):
    """The same for a key with dots, segment by segment."""
    at = start
    for k in range(start, end):
        if text[k] == _DOT:
            _, node = _find(tree, node, text, at, k)
            if node == NOWHERE or not leads_on(tree, node):
                return np.int64(NOWHERE)
            at = k + 1
    if at == start:
        return np.int64(NOWHERE)
    _, node = _find(tree, node, text, at, end)
    return node


@phase
def _find(tree, node, text, start, end):
    """(its slot, the child of this segment), or (a free slot, NOWHERE)."""
    mask = np.uint64(len(tree.slots) - 1)
    size = end - start
    place, head = _place(node, size), np.int64(_last_word(text, start, min(size, 8)))
    slot = _hash(node, text, start, end) & mask
    while tree.slots[slot] != 0:
        other = np.int64(tree.slots[slot])
        if (
            tree.nodes[other, _PLACE] == place
            and tree.nodes[other, _HEAD] == head
            and (size <= 8 or _same_bytes(text, start + 8, tree.data, tree.nodes[other, _START] + 8, size - 8))
        ):
            return slot, other
        slot = (slot + np.uint64(1)) & mask
    return slot, np.int64(NOWHERE)


@phase
def _place(parent, size):
    return (np.int64(parent) << 32) | np.int64(size)


@phase
def _hash(node, text, start, end):
    h = np.uint64(node + 1) * np.uint64(_FACTOR)
    while end - start >= 8:
        h = (h ^ word_at(text, start)) * np.uint64(_FACTOR)
        h ^= h >> np.uint64(32)
        start += 8
    h = (h ^ _last_word(text, start, end - start)) * np.uint64(_FACTOR)
    h ^= h >> np.uint64(32)
    return h


@phase
def _same_bytes(a, a_start, b, b_start, size):
    """Whether so many bytes of two texts are the same; there are PADDING bytes behind both."""
    while size >= 8:
        if word_at(a, a_start) != word_at(b, b_start):
            return False
        a_start += 8
        b_start += 8
        size -= 8
    return _last_word(a, a_start, size) == _last_word(b, b_start, size)


@phase
def _last_word(text, start, size):
    """The last 0 to 8 bytes of something."""
    word = word_at(text, start)
    return word if size == 8 else word & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))
