"""The PB+tree in memory: the paper's list order and pointers, and what holds of its pages after any updates."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pbtree_model import (
    Updated,
    any_order,
    clauses_of,
    events_of,
    matched,
    pairs_of,
    plain_clauses,
    random_updates,
    thirds,
)

from coded import random_events
from dibs.coding.clauses import Clauses
from dibs.index.papers.pbtree.filing import EQUAL, GREATER, LESS, LISTS, UNEQUAL
from dibs.index.papers.pbtree.memory import PBTreeMemory
from dibs.index.papers.pbtree.memory_updates import (
    ADJUSTED,
    COUNT,
    FLIP,
    FREE,
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

SMALL = 20  # words of a page: 10 children or entries, 4 items


def list_of(tree: PBTreeMemory, op: int) -> list[tuple[int, int, int]]:
    """(page, key, row) from the head of a list to its tail, by the links between its pages."""
    pages, small = tree.pages, tree.small
    rows_at = 2 * (HEAD + capacity(pages.shape[1], NARROW))
    page, before, found = int(pages[0, HEADS + op]), -1, []
    while page >= 0:
        assert pages[page, PREVIOUS] == before
        for i in range(pages[page, COUNT]):
            found.append((page, int(pages[page, HEAD + i]) ^ FLIP[op], int(small[page, rows_at + i])))
        before, page = page, int(pages[page, NEXT])
    assert pages[0, TAILS + op] == before
    return found


def items_of(tree: PBTreeMemory) -> list[tuple[int, list[int], int]]:
    """(key, pointers, uses) of the items, by the links between leaf pages."""
    pages, small = tree.pages, tree.small
    words = pages.shape[1]
    items_at, children_at = 2 * (HEAD + capacity(words, WIDE)), 2 * (HEAD + capacity(words, NARROW))
    page = int(pages[0, ROOT])
    for _ in range(pages[0, HEIGHT]):
        page = int(small[page, children_at])
    before, found = -1, []
    while page >= 0:
        assert pages[page, PREVIOUS] == before
        for i in range(pages[page, COUNT]):
            own = small[page, items_at + i * WIDE : items_at + (i + 1) * WIDE].tolist()
            found.append((int(pages[page, HEAD + i]), own[:LISTS], own[USES]))
        before, page = page, int(pages[page, NEXT])
    return found


def keys_of(tree: PBTreeMemory, op: int) -> list[int]:
    return [key for _, key, _ in list_of(tree, op)]


def check(tree: PBTreeMemory) -> None:
    """Everything that must hold of the pages."""
    pages, small = tree.pages, tree.small
    narrow, wide = capacity(pages.shape[1], NARROW), capacity(pages.shape[1], WIDE)
    children_at = 2 * (HEAD + narrow)
    seen = [0]

    def below(page: int, level: int, least: int, limit: int) -> None:
        """All keys of the page are in [least, limit), in order; it is half full unless it is the root."""
        seen.append(page)
        count, most = int(pages[page, COUNT]), narrow if level else wide
        keys = pages[page, HEAD : HEAD + count].tolist()
        assert keys == sorted(set(keys)) and all(least <= k < limit for k in keys)
        assert count <= most
        assert count >= most // 2 or page == pages[0, ROOT]
        if level:
            assert count >= 2 and keys[0] == least
            for i, (key, end) in enumerate(zip(keys, [*keys[1:], limit])):
                below(int(small[page, children_at + i]), level - 1, key, end)

    below(int(pages[0, ROOT]), int(pages[0, HEIGHT]), LEAST, 2**63 - 1)
    items = items_of(tree)
    keys = [key for key, _, _ in items]
    assert keys == sorted(set(keys)) and len(keys) == pages[0, KEYS]
    uses = dict.fromkeys(keys, 0)
    filed = np.zeros_like(tree._filed)
    for op in range(LISTS):
        entries = list_of(tree, op)
        order = [(key ^ FLIP[op], -row) for _, key, row in entries]
        assert order == sorted(set(order))
        chain, page = [], int(pages[0, HEADS + op])
        while page >= 0:
            chain.append(page)
            own = [key ^ FLIP[op] for p, key, _ in entries if p == page]
            assert pages[page, COUNT] == len(own) <= narrow
            assert pages[page, LAST] == (own[-1] if own else LEAST)
            page = int(pages[page, NEXT])
        seen += chain
        counts = [int(pages[p, COUNT]) for p in chain]
        assert all(a + b > narrow // 2 and a and b for a, b in zip(counts, counts[1:]))
        for key, pointers, _ in items:
            wanted = next((p for p in chain if pages[p, LAST] >= key ^ FLIP[op]), chain[-1])
            assert pointers[op] == wanted
        for _, key, _ in entries:
            uses[key] += 1
            filed[key >> 32, op] += 1
    assert uses == {key: n for key, _, n in items}
    assert (filed == tree._filed).all()
    assert tree.plan()["entries"] == filed.sum() and tree.plan()["outside the limits"] == filed[1::2].sum()
    free = int(pages[0, FREE])
    while free >= 0:
        seen.append(free)
        free = int(pages[free, NEXT])
    assert sorted(seen) == list(range(pages[0, USED])), "every page is in use once or free"


# ---- the paper ----


def test_lists_are_in_the_order_of_the_paper():
    """> and <> descend, so that what a value satisfies of > is read from the highest key below it to the head, the
    least key; < ascends, to the tail. Each list has the keys of its operators only, the tree has all."""
    constants = [50, 10, 5, 30, 20, 80, 6]
    rows = [[(0, op, c)] for c in constants for op in (">=", "<=", "!=", "=")]
    for tree in (PBTreeMemory.build(clauses_of(rows), SMALL), PBTreeMemory.build(clauses_of(rows[:1]), SMALL)):
        for i in range(tree._rows, len(rows)):
            tree.insert(clauses_of(rows[i : i + 1]))
        check(tree)
        assert keys_of(tree, GREATER) == sorted(constants, reverse=True)
        assert keys_of(tree, UNEQUAL) == sorted(constants, reverse=True)
        assert keys_of(tree, LESS) == sorted(constants)
        assert keys_of(tree, EQUAL) == sorted(constants)
        assert [key for key, _, _ in items_of(tree)] == sorted(constants)


def test_pointers_of_neighbouring_items_lead_to_the_same_entry():
    """GTPointer leads to the list page of the highest key that is not above the item's: where the > list has 5 and not
    6, the items 5 and 6 have the same. LTPointer: of the least key that is not below."""
    rows = [[(0, ">=", c)] for c in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13)] + [[(0, "=", 6)], [(0, "<=", 40)]]
    tree = PBTreeMemory.build(clauses_of(rows), SMALL)
    pointers = {key: own for key, own, _ in items_of(tree)}
    place = {key: page for page, key, _ in list_of(tree, GREATER)}
    assert len(set(place.values())) > 1
    assert pointers[5][GREATER] == pointers[6][GREATER] == place[5]
    assert pointers[7][GREATER] == place[7]
    assert {own[LESS] for own in pointers.values()} == {page for page, _, _ in list_of(tree, LESS)}


def test_a_search_reads_only_what_is_satisfied():
    """O(log n + L): entries met are predicates satisfied, and pages visited are few more than hold these."""
    rng = np.random.default_rng(1)
    clauses = thirds(rng.integers(2, 2_000_000, 60_000), 2_000_001)
    lo, hi = clauses.lo, clauses.hi
    tree = PBTreeMemory.build(clauses)
    for x in (1, 700, 1_000_000, 1_999_999):
        pairs = tree.match(events_of([{0: x}]), 1)
        holds = int(((lo <= x) & (x <= hi)).sum())
        assert pairs.count == pairs.candidates == pairs.predicates == holds
        assert pairs.nodes <= tree.plan()["height"] + 2 + 2 * LISTS + holds / (capacity(512, NARROW) * 0.8)
    assert tree.plan()["height"] == 3


def test_a_split_adjusts_only_the_pointers_that_changed():
    """Fig. 7, line 7. Section 5: where constants are spread evenly, an insertion adjusts far fewer pointers than n."""
    rng = np.random.default_rng(2)
    ops = ("<=", ">=", "=", "!=")

    def part(n: int) -> Clauses:
        return clauses_of(
            [[(int(rng.integers(40)), ops[int(rng.integers(4))], int(rng.integers(2, 99)))] for _ in range(n)], 40
        )

    tree = PBTreeMemory.build(part(3000))
    for _ in range(3000):
        tree.insert(part(1))
    check(tree)
    assert tree.pages[0, KEYS] > 3000
    assert 0 < tree.pages[0, ADJUSTED] / 3000 < 3


# ---- updates ----


@pytest.mark.parametrize("words", [16, SMALL, 44])
@pytest.mark.parametrize("seed", range(4))
def test_pages_after_random_updates(words, seed):
    rng, build = np.random.default_rng(seed), partial(PBTreeMemory.build, words=words)
    tree = random_updates(build, check, rng, first=40, inserted=30, deleted=40, steps=40)
    assert tree.pages[0, KEYS] == 0 and tree.plan()["pages"] == 1 + LISTS + 1


@given(st.lists(st.tuples(st.sampled_from(["=", "<=", ">=", "!="]), st.integers(2, 30)), max_size=60), st.randoms())
def test_any_order_of_insertion_and_deletion(predicates, random):
    any_order(partial(PBTreeMemory.build, words=SMALL), check, predicates, random)


def test_one_key_with_many_rows_spans_pages():
    rows = [[(0, "=", 5)] for _ in range(60)] + [[(0, "<=", 5)] for _ in range(60)]
    tree = PBTreeMemory.build(clauses_of(rows), SMALL)
    for _ in range(30):
        tree.insert(clauses_of([[(0, "=", 5)], [(0, "<=", 5)], [(0, "<=", 4)]]))
    check(tree)
    assert [len(m) for m in matched(tree, [{0: 5}, {0: 4}, {0: 6}])] == [180, 120, 0]
    tree.delete(np.arange(0, 120, 2))
    check(tree)
    assert [len(m) for m in matched(tree, [{0: 5}, {0: 4}, {0: 6}])] == [120, 90, 0]


def test_updates_after_restoring():
    rng = np.random.default_rng(4)
    first, more = plain_clauses(rng, 80, 3, 30), plain_clauses(rng, 30, 3, 30)
    arrays = PBTreeMemory.build(first, SMALL).arrays()
    model = Updated(PBTreeMemory.restore(first, {k: v.copy() for k, v in arrays.items()}), first)
    model.insert(more)
    check(model.tree)
    events = random_events(rng, 40, 3, 30, several=False)
    assert pairs_of(model.tree, events) == model.expected(events)
