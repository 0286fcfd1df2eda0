"""The pages of a PB+tree as plain Python sees them, and everything that must hold of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dibs.papers.structures.pbtree.filing import GONE, rows_of
from dibs.papers.structures.pbtree.layout import (
    COUNT,
    FENCE,
    FREE,
    HEAD,
    HEIGHT,
    INNER,
    ITEM,
    KEYS,
    LEAF,
    LEAST,
    LISTS,
    NEXT,
    PREVIOUS,
    ROOT,
    ROWS,
    USED,
    USES,
    VALUE,
    capacity,
)
from dibs.papers.structures.pbtree.lists import FIRST_LEAF


class Item(NamedTuple):
    key: int
    pointers: list[int]
    uses: int


class Plain:
    """A copy of all pages."""

    def __init__(self, tree: Any):
        self.pages = np.array(tree._pages.content(int(tree._tree[USED])))
        self.size = self.pages.shape[1]
        self.tree = tree._tree

    def items(self, page: int, width: int) -> list[list[int]]:
        count = int(self.pages[page, COUNT])
        return self.pages[page, HEAD : HEAD + count * width].reshape(count, width).tolist()

    def keys(self, page: int, width: int) -> list[int]:
        return [tree << 32 | cell for tree, cell, *_ in self.items(page, width)]

    def fence(self, page: int) -> int:
        return int(self.pages[page, FENCE]) << 32 | int(self.pages[page, FENCE + 1])

    def filled(self, page: int) -> int:
        return int(self.pages[page, COUNT]) * ITEM + int(self.pages[page, ROWS])

    def chain(self, page: int) -> list[int]:
        """From a first page to the last, by the links both ways."""
        found, before = [], -1
        while page >= 0:
            assert self.pages[page, PREVIOUS] == before
            found.append(page)
            before, page = page, int(self.pages[page, NEXT])
        return found

    def sid_sets(self, page: int) -> list[tuple[int, list[int]]]:
        rows = self.pages[page, self.size - int(self.pages[page, ROWS]) :][::-1].tolist()
        start, found = 0, []
        for tree, cell, end in self.items(page, ITEM):
            found.append((tree << 32 | cell, rows[start:end]))
            start = end
        assert start == len(rows)
        return found

    def list_of(self, which: int) -> list[tuple[int, int, int]]:
        """(page, key, row) from the head of a list to its tail."""
        return [(page, key, row) for page in self.chain(which) for key, rows in self.sid_sets(page) for row in rows]

    def leaf_items(self) -> list[Item]:
        """All but the head, by the links between leaf pages."""
        own = [item for page in self.chain(FIRST_LEAF) for item in self.items(page, LEAF)]
        found = [Item(i[0] << 32 | i[1], i[VALUE : VALUE + LISTS], i[USES]) for i in own]
        assert found[0] == Item(LEAST, list(range(LISTS)), 1), "the head of all lists"
        return found[1:]


def stored(tree: Any) -> list[tuple[int, int, int]]:
    """(list, key, row) of all entries."""
    plain = Plain(tree)
    return [(which, key, row) for which in range(LISTS) for _, key, row in plain.list_of(which)]


def check(tree: Any) -> None:
    """Everything that must hold of the pages, and that they hold just the entries of the rows that are there."""
    plain, seen = Plain(tree), []
    _check_tree(plain, seen)
    entries = _check_lists(plain, seen)
    _check_entries(tree, plain, entries)
    free = int(plain.tree[FREE])
    while free >= 0:
        seen.append(free)
        free = int(plain.pages[free, NEXT])
    assert sorted(seen) == list(range(plain.tree[USED])), "every page is in use once or free"


def _check_tree(plain: Plain, seen: list[int]) -> None:
    root, height = int(plain.tree[ROOT]), int(plain.tree[HEIGHT])

    def below(page: int, level: int, least: int, limit: int) -> None:
        """All keys of the page are in [least, limit), in order; it is half full unless it is the root or the last."""
        seen.append(page)
        width = INNER if level else LEAF
        keys, most = plain.keys(page, width), capacity(plain.size, width)
        assert keys == sorted(set(keys)) and all(least <= k < limit for k in keys)
        assert 1 <= len(keys) <= most
        assert len(keys) >= most // 2 or page == root or plain.pages[page, NEXT] < 0
        if level:
            assert keys[0] == least and (len(keys) > 1 or page != root)
            for (_, _, child), key, end in zip(plain.items(page, INNER), keys, [*keys[1:], limit]):
                below(child, level - 1, key, end)

    below(root, height, LEAST, 2**63 - 1)
    keys = [item.key for item in plain.leaf_items()]
    assert keys == sorted(set(keys)) and len(keys) == plain.tree[KEYS]


def _check_lists(plain: Plain, seen: list[int]) -> list[tuple[int, int, int]]:
    items, found = plain.leaf_items(), []
    for which in range(LISTS):
        chain = plain.chain(which)
        seen += chain
        entries = [(key, row) for _, key, row in plain.list_of(which)]
        assert entries == sorted(set(entries))
        fences = [plain.fence(page) for page in chain]
        assert fences[0] == LEAST and fences == sorted(fences)
        for page, fence, limit in zip(chain, fences, [*fences[1:], 2**63 - 1]):
            keys = plain.keys(page, ITEM)
            assert keys == sorted(set(keys)) and all(fence <= key <= limit for key in keys)
            assert all(rows for _, rows in plain.sid_sets(page)), "no SidSet is empty"
            assert plain.filled(page) <= plain.size - HEAD
        sizes = [plain.filled(page) for page in chain]
        assert all(sizes[1:]) and (sizes[0] or len(sizes) == 1)
        assert all(a + b > (plain.size - HEAD) // 2 for a, b in zip(sizes, sizes[1:]))
        for item in items:
            assert item.pointers[which] == [p for p, fence in zip(chain, fences) if fence <= item.key][-1]
        found += [(which, key, row) for key, row in entries]
    uses = {item.key: 0 for item in items}
    for _, key, _ in found:
        uses[key] += 1
    assert uses == {item.key: item.uses for item in items}
    return found


def _check_entries(tree: Any, plain: Plain, found: list[tuple[int, int, int]]) -> None:
    rows = np.flatnonzero(tree._need[: tree._rows] != GONE)
    wanted = tree._entries_of(rows_of(tree._growing.clauses, rows), rows)
    assert found == sorted(zip(wanted.operator.tolist(), wanted.key.tolist(), wanted.row.tolist()))
    filed = np.zeros_like(tree._filed)
    for which, key, _ in found:
        filed[key >> 32, which] += 1
    assert (filed == tree._filed).all()
    assert (tree._need[rows] == wanted.need).all() and (tree._verify[rows] == wanted.verify).all()
    plan = tree.plan()
    assert plan["entries"] == len(found) and plan["outside the limits"] == filed[1::2].sum()
    assert plan["keys"] == len({key for _, key, _ in found})
