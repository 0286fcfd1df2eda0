"""What PB+trees are tested with: clauses as the paper writes them, events, and what a tree must hold after any
updates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from coded import events_of, expected, pairs_of, random_clauses, random_events
from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses, concatenate_clauses
from dibs.index.conjunctions import select
from dibs.papers.structures.pbtree.pbtree import LEAST_MEMORY, PBTree, PBTreeMemory

SMALL = 128  # bytes, the smallest page: items for 3 keys, 8 children, 6 rows of different keys
FLOOR, CEILING = 1, 100  # cells of one attribute in the examples; cell = constant


def on_few_frames(clauses: Clauses) -> PBTree:
    """On disk, with the smallest pages and the fewest frames that there can be: one set."""
    tree = PBTree.build(clauses, memory=LEAST_MEMORY, page=SMALL)
    tree._pages.use(1)
    return tree


KINDS: dict[str, Callable[[Clauses], PBTreeMemory]] = {
    "memory": partial(PBTreeMemory.build, page=4096),
    "memory, small pages": partial(PBTreeMemory.build, page=SMALL),
    "disk": partial(PBTree.build, page=4096),
    "disk, small pages, few frames": on_few_frames,
}


def clauses_of(rows: Any, attributes: int = 1) -> Clauses:
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


def plain_clauses(rng: np.random.Generator, rows: int, attributes: int, cells: int) -> Clauses:
    """Random conjunctions of what a PB+tree takes."""
    return select(random_clauses(rng, rows, attributes, cells, programs=0, nulls=0), several=False)[0]


def thirds(constants: Any, ceiling: int) -> Clauses:
    """One predicate for each constant: a third of them =, a third <=, a third >=."""
    single, n = np.array(constants, np.int32), len(constants)
    lo, hi, none = single.copy(), single.copy(), np.empty(0, np.int32)
    lo[n // 3 : 2 * n // 3] = FLOOR
    hi[2 * n // 3 :] = ceiling
    return Clauses(np.arange(n + 1), np.zeros(n, np.int32), lo, hi, none, none, none, none, n, 1)


def wide_clauses(rng: np.random.Generator, rows: int, attributes: int = 4, cells: int = 1000) -> Clauses:
    """One =, <= or >= for each attribute."""
    n = rows * attributes
    constant = rng.integers(2, cells, n).astype(np.int32)
    kind = rng.integers(3, size=n)
    lo = np.where(kind == 1, 1, constant).astype(np.int32)
    hi = np.where(kind == 2, cells, constant).astype(np.int32)
    attribute = np.tile(np.arange(attributes, dtype=np.int32), rows)
    none = np.empty(0, np.int32)
    return Clauses(np.arange(rows + 1) * attributes, attribute, lo, hi, none, none, none, none, rows, attributes)


def held(clauses: Clauses, events: CodedEvents) -> list[int]:
    """The keys of the pairs of wide_clauses, where every event has every attribute."""
    width = clauses.attributes
    lo, hi, found = clauses.lo.reshape(-1, width), clauses.hi.reshape(-1, width), []
    for e, cells in enumerate(events.lo.reshape(-1, width)):
        found.append((e << 32) + np.flatnonzero(((lo <= cells) & (cells <= hi)).all(axis=1)))
    return np.concatenate(found).tolist()


def keys_of(tree: PBTreeMemory, events: CodedEvents, threads: int = 1) -> list[int]:
    pairs = tree.match(events, threads)
    return np.sort(pairs.event.astype(np.int64) << 32 | pairs.row).tolist()


def wide_events(rng: np.random.Generator, events: int, attributes: int = 4, cells: int = 1000) -> CodedEvents:
    return events_of([{a: int(rng.integers(1, cells + 1)) for a in range(attributes)} for _ in range(events)])


def matched(tree: PBTreeMemory, events: Any) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in events]
    for e, r in pairs_of(tree, events_of(events)):
        found[e].add(r)
    return found


class Updated:
    """A tree that is updated, and the rows that it must hold then."""

    def __init__(self, tree: PBTreeMemory, clauses: Clauses):
        self.tree, self.parts = tree, [clauses]
        self.alive = set(range(len(clauses)))

    def insert(self, clauses: Clauses) -> None:
        first = sum(len(part) for part in self.parts)
        self.parts.append(clauses)
        self.alive |= set(range(first, first + len(clauses)))
        self.tree.insert(clauses)

    def delete(self, rows: Any) -> None:
        self.alive -= set(rows.tolist())
        self.tree.delete(rows.astype(np.int64))

    def expected(self, events: CodedEvents) -> set[tuple[int, int]]:
        clauses, place = concatenate_clauses(self.parts)
        return {(e, int(place[r])) for e, r in expected(clauses, events) if int(place[r]) in self.alive}


def random_updates(
    build: Callable[[Clauses], Any],
    check: Callable[[Any], None],
    rng: np.random.Generator,
    first: int,
    inserted: int,
    deleted: int,
    steps: int,
) -> Any:
    """The tree after all its rows are gone again. first: rows that it is built with; then up to so many are inserted or
    deleted in each step, and in the last one all that are left."""
    attributes, cells = 3, int(rng.integers(20, 60))
    clauses = plain_clauses(rng, first, attributes, cells)
    model = Updated(build(clauses), clauses)
    check(model.tree)
    for step in range(steps):
        if step < 0.3 * steps or 0.5 * steps <= step < 0.7 * steps:
            attributes += step % 3 == 0
            model.insert(plain_clauses(rng, int(rng.integers(1, inserted + 1)), attributes, cells))
        elif model.alive:
            last, left = step == steps - 1, len(model.alive)
            count = left if last else int(rng.integers(1, min(left, deleted) + 1))
            model.delete(rng.choice(sorted(model.alive), count, replace=False))
        check(model.tree)
        if step % 4 == 0:
            events = random_events(rng, 12, attributes, cells, several=False)
            assert pairs_of(model.tree, events) == model.expected(events)
    assert not model.alive
    return model.tree


def any_order(build: Callable[[Clauses], Any], check: Callable[[Any], None], predicates: Any, random: Any) -> None:
    """Rows of one predicate each are inserted one by one, then half of them deleted in any order."""
    one = clauses_of([[(0, "=", 1)]])
    model = Updated(build(one), one)
    for op, c in predicates:
        model.insert(clauses_of([[(0, op, c)]]))
    check(model.tree)
    gone = list(range(1, len(predicates) + 1))
    random.shuffle(gone)
    for r in gone[: len(gone) // 2]:
        model.delete(np.array([r]))
        check(model.tree)
    events = events_of([{0: x} for x in (1, 2, 7, 15, 29, 31)])
    assert pairs_of(model.tree, events) == model.expected(events)
