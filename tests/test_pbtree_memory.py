"""The PB+tree in memory: the paper's examples and list order, and what holds of its pages after any updates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coded import expected, random_clauses, random_events
from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses, concatenated
from dibs.index.conjunctions import select
from dibs.index.pbtree_filing import EQUAL, GREATER, LESS, LISTS, UNEQUAL
from dibs.index.pbtree_memory import PBTreeMemory
from dibs.index.pbtree_memory_updates import (
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
FLOOR, CEILING = 1, 100  # cells of one attribute in the examples; cell = constant


def clauses_of(rows, attributes: int = 1) -> Clauses:
    """Rows of (attribute, operator, constant); an operator is that of the paper, or "between" with two constants."""
    size, attribute, lo, hi, span_lo, span_hi = [], [], [], [], [], []
    spans = {
        "=": lambda c: (c, c),
        "<=": lambda c: (FLOOR, c),
        "<": lambda c: (FLOOR, c - 1),
        ">=": lambda c: (c, CEILING),
        ">": lambda c: (c + 1, CEILING),
        "between": lambda c: c,
    }
    for row in rows:
        size.append(len(row))
        for a, op, c in row:
            attribute.append(a)
            if op == "!=":
                lo.append(len(span_lo))
                hi.append(-2)
                span_lo += [FLOOR, c + 1]
                span_hi += [c - 1, CEILING]
            else:
                x, y = spans[op](c)
                lo.append(x)
                hi.append(y)
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    columns = (np.array(x, np.int32) for x in (attribute, lo, hi, span_lo, span_hi, [], []))
    return Clauses(offsets, *columns, conjunctions=len(rows), attributes=attributes)


def events_of(events) -> CodedEvents:
    """Dictionaries of attribute to cell."""
    offsets = np.concatenate([[0], np.cumsum([len(e) for e in events])]).astype(np.int64)
    entries = [(a, x) for e in events for a, x in sorted(e.items())]
    cell = np.array([x for _, x in entries], np.int32)
    return CodedEvents(offsets, np.array([a for a, _ in entries], np.int32), cell, cell, True)


def matched(tree: PBTreeMemory, events) -> list[set[int]]:
    pairs = tree.match(events_of(events), 1)
    found = [set() for _ in events]
    for e, r in zip(pairs.event.tolist(), pairs.row.tolist()):
        assert r not in found[e]
        found[e].add(r)
    return found


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


def test_a_larger_value_satisfies_every_smaller_bound():
    """Attribute > 10 is true means that Attribute > 5 is true too."""
    tree = PBTreeMemory.build(clauses_of([[(0, ">", 10)], [(0, ">", 5)], [(0, "<", 10)], [(0, "<", 5)]]))
    assert matched(tree, [{0: 11}, {0: 10}, {0: 6}, {0: 5}, {0: 4}]) == [{0, 1}, {1}, {1, 2}, {2}, {2, 3}]


def test_stock_example():
    """Section 2: CompanyName 0 (Intel is 3, Yahoo is 7), Price 1, ChangeRatio 2, in cells."""
    price, ratio = {500: 50, 1000: 60, 5000: 70}, {0.03: 10, 0.05: 20, 0.1: 30}
    rows = [
        [(0, "=", 7), (1, ">", price[1000]), (2, "<", ratio[0.05])],
        [(0, "=", 7), (1, "<", price[1000])],
    ]
    tree = PBTreeMemory.build(clauses_of(rows, 3))
    events = [
        {0: 3, 1: price[5000], 2: ratio[0.03]},
        {0: 7, 1: price[500], 2: ratio[0.1]},
        {0: 7, 1: price[5000], 2: ratio[0.03]},
    ]
    assert matched(tree, events) == [set(), {1}, {0}]


def test_every_operator_at_below_and_above_its_constant():
    rows = [[(0, op, 50)] for op in ("<", "<=", "=", "!=", ">=", ">")]
    tree = PBTreeMemory.build(clauses_of(rows))
    # 51 stands for all values between 50 and the next constant.
    assert matched(tree, [{0: 49}, {0: 50}, {0: 51}]) == [{0, 1, 3}, {1, 2, 4}, {3, 4, 5}]


def test_a_search_reads_only_what_is_satisfied():
    """O(log n + L): entries met are predicates satisfied, and pages visited are few more than hold these."""
    rng = np.random.default_rng(1)
    constants = rng.integers(2, 2_000_000, 60_000)
    single = np.array(constants, np.int32)
    n = len(constants)
    lo, hi = single.copy(), single.copy()
    lo[n // 3 : 2 * n // 3] = 1
    hi[2 * n // 3 :] = 2_000_001
    none = np.empty(0, np.int32)
    clauses = Clauses(np.arange(n + 1), np.zeros(n, np.int32), lo, hi, none, none, none, none, n, 1)
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
    rng = np.random.default_rng(seed)
    attributes, cells = 3, int(rng.integers(20, 60))

    def part(n: int) -> Clauses:
        return select(random_clauses(rng, n, attributes, cells, programs=0, nulls=0), several=False)[0]

    parts = [part(40)]
    tree = PBTreeMemory.build(parts[0], words)
    check(tree)
    alive = set(range(len(parts[0])))
    for step in range(40):
        growing = step < 12 or 20 <= step < 28
        if growing:
            attributes += step % 3 == 0
            parts.append(part(int(rng.integers(1, 30))))
            first = sum(len(p) for p in parts[:-1])
            alive |= set(range(first, first + len(parts[-1])))
            tree.insert(parts[-1])
        elif alive:
            most = len(alive) if step == 39 else min(len(alive), 40)
            gone = rng.choice(sorted(alive), int(rng.integers(1, most + 1)) if step < 39 else most, replace=False)
            alive -= set(gone.tolist())
            tree.delete(gone.astype(np.int64))
        check(tree)
        if step % 5 == 0:
            clauses, place = concatenated(parts)
            events = random_events(rng, 15, attributes, cells, several=False)
            pairs = tree.match(events, 1)
            found = set(zip(pairs.event.tolist(), pairs.row.tolist()))
            assert found == {(e, int(place[r])) for e, r in expected(clauses, events) if int(place[r]) in alive}
    assert not alive and tree.pages[0, KEYS] == 0 and tree.plan()["pages"] == 1 + LISTS + 1


@given(st.lists(st.tuples(st.sampled_from(["=", "<=", ">=", "!="]), st.integers(2, 30)), max_size=60), st.randoms())
def test_any_order_of_insertion_and_deletion(predicates, random):
    rows = [[(0, op, c)] for op, c in predicates]
    tree = PBTreeMemory.build(clauses_of([[(0, "=", 1)]]), SMALL)
    for row in rows:
        tree.insert(clauses_of([row]))
    check(tree)
    gone = list(range(len(rows)))
    random.shuffle(gone)
    gone = gone[: len(gone) // 2]
    for r in gone:
        tree.delete(np.array([r + 1]))
        check(tree)
    kept = clauses_of([row for r, row in enumerate(rows) if r not in gone])
    numbers = [r + 1 for r in range(len(rows)) if r not in gone]
    events = [{0: x} for x in (2, 7, 15, 29, 31)]
    wanted = [{numbers[r] for e, r in expected(kept, events_of(events)) if e == i} for i in range(len(events))]
    assert matched(tree, events) == wanted


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
    first, more = (
        select(random_clauses(rng, 80, 3, 30, programs=0, nulls=0), several=False)[0],
        select(random_clauses(rng, 30, 3, 30, programs=0, nulls=0), several=False)[0],
    )
    tree = PBTreeMemory.restore(first, {k: v.copy() for k, v in PBTreeMemory.build(first, SMALL).arrays().items()})
    tree.insert(more)
    check(tree)
    clauses, place = concatenated([first, more])
    events = random_events(rng, 40, 3, 30, several=False)
    pairs = tree.match(events, 1)
    wanted = {(e, int(place[r])) for e, r in expected(clauses, events)}
    assert set(zip(pairs.event.tolist(), pairs.row.tolist())) == wanted


# ---- what the coded model adds ----


def test_what_lies_outside_the_limits_is_filed_apart_until_it_is_much():
    """Limits stand as they were taken, and rows beyond them are right all the same; after many, limits move."""
    rows = [[(0, "between", (20, 60))] for _ in range(200)]
    tree = PBTreeMemory.build(clauses_of(rows), SMALL)
    assert keys_of(tree, GREATER) == []  # each begins at the floor, 20
    tree.insert(clauses_of([[(0, "between", (10, 30))], [(0, "between", (50, 90))], [(0, "between", (5, 95))]]))
    check(tree)
    assert tree.plan()["outside the limits"] == 6
    found = matched(tree, [{0: 7}, {0: 15}, {0: 25}, {0: 55}, {0: 70}, {0: 95}, {0: 96}])
    assert [sorted(f - set(range(200))) for f in found] == [
        [202],
        [200, 202],
        [200, 202],
        [201, 202],
        [201, 202],
        [202],
        [],
    ]
    assert [len(f & set(range(200))) for f in found] == [0, 0, 200, 200, 0, 0, 0]
    for _ in range(60):
        tree.insert(clauses_of([[(0, "<=", 70)]]))
    check(tree)
    assert tree.plan()["outside the limits"] < 60
    assert [len(f) for f in matched(tree, [{0: 7}, {0: 25}, {0: 70}, {0: 96}])] == [61, 262, 62, 0]


def test_lists_of_ranges_are_counted():
    """A predicate of ranges and points holds once for any value in them; long lists and long conjunctions, whose
    counts do not fit, are tested on the clause."""
    rng = np.random.default_rng(5)
    size, attribute, lo, hi, span_lo, span_hi = [], [], [], [], [], []
    for predicates, spans in ((1, 3), (2, 16), (1, 30), (3, 40), (40, 9), (300, 1), (1, 100)):
        size.append(predicates)
        for a in range(predicates):
            attribute.append(a)
            bounds = np.sort(rng.choice(np.arange(1, 400), 2 * spans, replace=False)).tolist()
            own = [(x, x if rng.random() < 0.3 else y) for x, y in zip(bounds[::2], bounds[1::2])]
            if spans == 1:
                lo.append(1)
                hi.append(390)
            else:
                lo.append(len(span_lo))
                hi.append(-spans)
                span_lo += [x for x, _ in own]
                span_hi += [y for _, y in own]
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    columns = (np.array(x, np.int32) for x in (attribute, lo, hi, span_lo, span_hi, [], []))
    clauses = Clauses(offsets, *columns, conjunctions=len(size), attributes=300)
    tree = PBTreeMemory.build(clauses)
    check(tree)
    assert tree._verify[:7].tolist() == [0, 0, 1, 1, 1, 1, 1]
    # Values that satisfy the first 40 attributes' predicates more often than chance: starts of their spans.
    events = [{a: int(rng.integers(1, 400)) for a in range(300)} for _ in range(150)]
    for e in range(0, 150, 3):
        for a in range(40):
            p = int(offsets[4]) + a
            events[e][a] = int(clauses.span_lo[clauses.lo[p]])
    batch = events_of(events)
    pairs = tree.match(batch, 1)
    wanted = expected(clauses, batch)
    assert set(zip(pairs.event.tolist(), pairs.row.tolist())) == wanted
    assert len({r for _, r in wanted}) >= 5
