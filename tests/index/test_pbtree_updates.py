"""What holds of the pages of a PB+tree after any updates, and that it matches as a scan does."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pbtree_model import (
    KINDS,
    SMALL,
    Updated,
    any_order,
    clauses_of,
    events_of,
    matched,
    on_few_frames,
    pairs_of,
    plain_clauses,
    random_updates,
)
from pbtree_pages import check, stored

from coded import coded_cases, expected, random_events
from dibs.coding.clauses import Clauses
from dibs.index import create
from dibs.index.conjunctions import select
from dibs.papers.structures.pbtree.layout import KEYS, LISTS
from dibs.papers.structures.pbtree.pbtree import PBTreeMemory
from dibs.tuning import smallest, using

predicates = st.lists(st.tuples(st.sampled_from(["=", "<=", ">=", "!="]), st.integers(2, 30)), max_size=60)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_pages_after_random_updates(kind, seed):
    rng, large = np.random.default_rng(seed), "small" not in kind
    sizes = {"first": 600, "inserted": 300, "deleted": 400, "steps": 20} if large else {}
    sizes = sizes or {"first": 40, "inserted": 30, "deleted": 40, "steps": 40}
    tree = random_updates(KINDS[kind], check, rng, **sizes)
    assert stored(tree) == [] and tree._tree[KEYS] == 0 and tree.plan()["pages"] == LISTS + 1


@pytest.mark.parametrize("page", [192, 448])
def test_pages_of_other_sizes(page):
    rng, build = np.random.default_rng(page), partial(PBTreeMemory.build, page=page)
    random_updates(build, check, rng, first=100, inserted=60, deleted=80, steps=40)


@given(predicates, st.randoms())
def test_any_order_of_insertion_and_deletion(rows, random):
    any_order(partial(PBTreeMemory.build, page=SMALL), check, rows, random)


@given(predicates, st.randoms())
@settings(max_examples=40)
def test_any_order_of_insertion_and_deletion_on_few_frames(rows, random):
    any_order(on_few_frames, check, rows, random)


@pytest.mark.parametrize("kind", KINDS)
@given(case=coded_cases())
@settings(max_examples=60)
def test_it_matches_as_a_scan_does(kind, case):
    clauses, events = case
    own = select(clauses, several=False)[0]
    single = events.take(np.flatnonzero(events.single_valued()), points=True)
    tree = KINDS[kind](own)
    check(tree)
    scan = create("scan", own).match(single, 1)
    assert pairs_of(tree, single) == set(zip(scan.event.tolist(), scan.row.tolist()))


@pytest.mark.parametrize("name", ["pbtree", "pbtree-memory"])
@given(case=coded_cases())
@settings(max_examples=40)
def test_it_matches_with_all_thresholds_at_their_smallest(name, case):
    clauses, events = case
    with using(smallest()):
        pairs = create(name, clauses).match(events, 2)
    assert set(zip(pairs.event.tolist(), pairs.row.tolist())) == expected(clauses, events)


@pytest.mark.parametrize("kind", KINDS)
def test_one_key_with_many_rows_spans_pages(kind):
    rows = [[(0, op, 5)] for op in ("=", "<=", "!=") for _ in range(60)]
    tree = KINDS[kind](clauses_of(rows))
    for _ in range(30):
        tree.insert(clauses_of([[(0, "=", 5)], [(0, "<=", 5)], [(0, "<=", 4)], [(0, "!=", 5)]]))
    check(tree)
    assert [len(m) for m in matched(tree, [{0: 5}, {0: 4}, {0: 6}])] == [180, 210, 90]
    tree.delete(np.arange(0, 180, 2))
    check(tree)
    assert [len(m) for m in matched(tree, [{0: 5}, {0: 4}, {0: 6}])] == [120, 150, 60]
    tree.delete(np.arange(1, 180, 2))
    check(tree)
    assert [len(m) for m in matched(tree, [{0: 5}, {0: 4}, {0: 6}])] == [60, 90, 30]


def of_kinds(first: int, last: int) -> Clauses:
    """An attribute with constants of two kinds, cells 3 to 20 and 30 to 60, and what is about all kinds: IS NOT NULL
    from the first to the last cell, NOT IN, a hole at either end; first, last: which of the rows."""
    rows = [
        [(3, 10)],
        [(10, 20)],
        [(30, 40)],
        [(40, 60)],
        [(3, 9), (11, 20)],
        [(30, 44), (46, 60)],
        [(1, 70)],
        [(1, 29), (31, 70)],
        [(4, 20)],
        [(3, 19)],
        [(31, 60)],
        [(30, 59)],
        [(70, 70)],
        [(1, 1)],
        [(3, 60)],
        [(3, 3), (5, 60)],
        [(3, 58), (60, 60)],
    ][first:last]
    lo, hi, span_lo, span_hi = [], [], [], []
    for spans in rows:
        several = len(spans) > 1
        lo.append(len(span_lo) if several else spans[0][0])
        hi.append(-len(spans) if several else spans[0][1])
        span_lo += [x for x, _ in spans] if several else []
        span_hi += [y for _, y in spans] if several else []
    columns = (np.array(x, np.int32) for x in ([0] * len(rows), lo, hi, span_lo, span_hi, [], []))
    return Clauses(np.arange(len(rows) + 1), *columns, conjunctions=len(rows), attributes=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("built", [0, 1, 2, 4, 6, 8, 17])
def test_constants_of_several_kinds_and_values_of_none(kind, built):
    """Whatever the limits were when it was built, in the topmost and in the bottom cell too; the rest is inserted."""
    model = Updated(KINDS[kind](of_kinds(0, built)), of_kinds(0, built))
    events = events_of([{0: x} for x in range(1, 73)])
    for first in range(built, 17, 3):
        model.insert(of_kinds(first, min(first + 3, 17)))
        check(model.tree)
    assert pairs_of(model.tree, events) == model.expected(events)
    model.delete(np.arange(0, 17, 2))
    check(model.tree)
    assert pairs_of(model.tree, events) == model.expected(events)


@pytest.mark.parametrize("kind", KINDS)
def test_updates_after_restoring(kind):
    rng = np.random.default_rng(4)
    first, more = plain_clauses(rng, 300, 3, 30), plain_clauses(rng, 80, 3, 30)
    tree = KINDS[kind](first)
    arrays = {k: v.copy() for k, v in tree.arrays().items()}
    before = arrays["pages"].tobytes()
    model = Updated(type(tree).restore(first, arrays), first)
    model.insert(more)
    model.delete(np.arange(0, len(first), 3))
    check(model.tree)
    events = random_events(rng, 40, 3, 30, several=False)
    assert pairs_of(model.tree, events) == model.expected(events)
    assert arrays["pages"].tobytes() == before, "what it was restored from is as it was"


def test_an_entry_that_is_not_there_is_seen():
    tree = PBTreeMemory.build(clauses_of([[(0, "=", 5)], [(0, "=", 5)]]))
    tree.delete(np.array([0]))
    with pytest.raises(ValueError, match="an entry is not there"):
        tree.delete(np.array([0]))
