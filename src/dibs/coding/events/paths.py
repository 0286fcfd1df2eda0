"""The wanted names as a tree, for kernels that follow the keys of nested objects.

A name is a path of segments with dots between them; a node is the beginning of some name up to a dot, or a whole one.
Splitting at dots tells paths apart exactly, so it does not matter how an event spells one: {"a": {"b": 1}} and
{"a.b": 1} lead to the same node. Children are found by a hash of their parent's number and their segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.events.arrow_values import text_buffers
from dibs.jit.kernel import kernel, phase
from dibs.jit.scanning import PADDING
from dibs.jit.words import word_at

ROOT = 0  # the event itself
NOWHERE = -1  # neither a wanted name nor on the way to one

_DOT = 46
_FACTOR = 0x9E3779B97F4A7C15


class Paths(NamedTuple):
    """The tree. Node 0 is the root; a node has a higher number than its parent."""

    slots: NDArray[np.int32]  # nodes by their hash, 0: empty; at most half of them are taken
    parent: NDArray[np.int32]
    start: NDArray[np.int64]  # the segment of a node is data[start:start + size]
    size: NDArray[np.int32]
    number: NDArray[np.int32]  # of the wanted name that ends here, or -1
    leads: NDArray[np.uint8]  # 0: it has no children; 2: it has grandchildren, so a key with dots may lead there
    data: NDArray[np.uint8]  # the names, and PADDING bytes


def paths_of(names: Sequence[str], before: Paths | None = None) -> Paths:
    """The tree of these names, whose numbers are their places. before: that of the first of them."""
    known = 0 if before is None else int(before.number.max(initial=-1)) + 1
    offsets, data = text_buffers(pa.array(names[known:], pa.large_string()))
    room = len(names) - known + int(np.count_nonzero(data == _DOT))
    if before is not None and 2 * (len(before.parent) + room) > len(before.slots):
        return paths_of(names)
    if before is None:
        slots = np.zeros(1 << max(4, (4 * room).bit_length()), np.int32)
        one = np.zeros(1, np.int32)
        before = Paths(slots, one, np.zeros(1, np.int64), one, one - 1, np.zeros(1, np.uint8), np.empty(0, np.uint8))
    first = len(before.parent)
    columns = [np.concatenate([column, np.zeros(room, column.dtype)]) for column in before[1:-1]]
    texts = np.concatenate([before.data, data, np.zeros(PADDING, np.uint8)])
    tree = Paths._make([before.slots.copy(), *columns, texts])
    nodes = _insert(offsets + len(before.data), known, first, tree)
    return Paths._make([tree.slots, *(column[:nodes] for column in columns), texts])


@kernel
def _insert(offsets, number, nodes, tree):
    """Names from this number on; returns how many nodes there are then."""
    slots, parent, start, size, numbers, leads, data = tree
    for i in range(len(offsets) - 1):
        node, at = ROOT, offsets[i]
        while at <= offsets[i + 1]:
            end = at
            while end < offsets[i + 1] and data[end] != _DOT:
                end += 1
            slot, found = _find(tree, node, data, at, end)
            if found == NOWHERE:
                found = nodes
                slots[slot] = found
                parent[found], start[found], size[found], numbers[found] = node, at, end - at, -1
                if leads[node] == 0:
                    leads[node], leads[parent[node]] = 1, 2 if node != ROOT else 1
                nodes += 1
            node, at = found, end + 1
        numbers[node] = number + i
    return nodes


@phase
def child(tree, node, text, start, end):
    """Where the key text[start:end] leads from a node, or NOWHERE. The text has PADDING bytes behind it."""
    if tree.leads[node] == 0:
        return np.int64(NOWHERE)
    _, found = _find(tree, node, text, start, end)
    if found == NOWHERE and tree.leads[node] == 2:
        return _descend(tree, node, text, start, end)
    return found


@phase(inline=False)
def _descend(tree, node, text, start, end):
    """The same for a key with dots, segment by segment."""
    at = start
    for k in range(start, end):
        if text[k] == _DOT:
            _, node = _find(tree, node, text, at, k)
            if node == NOWHERE or tree.leads[node] == 0:
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
    slot = _hash(node, text, start, end) & mask
    while tree.slots[slot] != 0:
        other = np.int64(tree.slots[slot])
        if (
            tree.parent[other] == node
            and tree.size[other] == size
            and _same_bytes(text, start, tree.data, tree.start[other], size)
        ):
            return slot, other
        slot = (slot + np.uint64(1)) & mask
    return slot, np.int64(NOWHERE)


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
    """The last 0 to 7 bytes of something."""
    return word_at(text, start) & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))
