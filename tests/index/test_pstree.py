"""The PS-Tree family: the worked examples of Ji and Jacobsen 2018, and what must hold of trees, lists, signatures and
cells after any updates."""

from __future__ import annotations

from bisect import bisect_right
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coded import conjunctions_of, events_of, expected, random_clauses, random_events
from dibs.coding.clauses import Clauses
from dibs.index.base import Pairs
from dibs.index.complete import Completed
from dibs.jit.kernel import kernel
from dibs.papers.structures.pstree.kernels import find_spaces
from dibs.papers.structures.pstree.pstbloom import PSTBloom
from dibs.papers.structures.pstree.pstbloom_kernels import NOTHING, _bits, _hash, _place
from dibs.papers.structures.pstree.psthash import PSTHash
from dibs.papers.structures.pstree.psthash_table import DIMENSIONS, EMPTY, PREFIX
from dibs.papers.structures.pstree.pstree import PSTree
from dibs.papers.structures.pstree.spaces import (
    AT,
    BEFORE,
    CODE,
    FREE_NODE,
    LOW,
    MOST_LEVELS,
    NEXT,
    NODES_MADE,
    ROOM,
    ROOT,
    SIZE,
    chunk_size,
    chunk_sizes,
)

KINDS = [PSTree, PSTBloom, PSTHash]
ALL = 1 << 40
TOP = 2**31 - 1
Row = dict[int, list[tuple[int, int]]]  # attribute: spans


def spans_of(rows: list[dict[int, list[tuple[int, int]]]], attributes: int) -> Clauses:
    """Conjunctions from the spans of each attribute."""
    return conjunctions_of((sorted(row.items()) for row in rows), attributes)


@kernel
def _place_and_bits(code):
    h = _hash(code)
    return _place(h), _bits(h)


def rows_of(pairs: Pairs, event: int = 0) -> set[int]:
    return set(pairs.row[pairs.event == event].tolist())


def byte(value: int) -> int:
    """The cell of a byte: -128 is the first value."""
    return value + 129


def bytes_between(low: int, high: int) -> list[tuple[int, int]]:
    return [(byte(low), byte(high))]


def listed(index, space: dict[str, int]) -> set[int]:
    """The rows in the list of a space."""
    codes = index.forest.chunks.entry[space["at"] : space["at"] + space["size"], CODE].tolist()
    return {row_of(index, code) for code in codes}


def row_of(index, code: int) -> int:
    if code >= 0:
        return code
    return int(np.searchsorted(index.rows.offsets[: len(index.rows) + 1], ~code, side="right")) - 1


# ---- the paper's examples ----


def test_figure_1():
    """S1 in [0, 4] and S2 in [2, 4] make the spaces [0, 2) of S1 and [2, 4] of both."""
    index = PSTree.build(spans_of([{0: [(10, 14)]}, {0: [(12, 14)]}], 1))
    spaces = index.forest.spaces(0)
    assert [s["start"] for s in spaces] == [0, 10, 12, 15]
    assert [listed(index, s) for s in spaces] == [set(), {0}, {0, 1}, set()]
    assert rows_of(index.match(events_of([{0: 13}]), 1)) == {0, 1}


@pytest.mark.parametrize("kind", KINDS)
def test_figure_2(kind):
    """[-5, -1] and [1, 5] cut the bytes into five spaces; the value 2 is in that of S2."""
    index = kind.build(spans_of([{0: bytes_between(-5, -1)}, {0: bytes_between(1, 5)}], 1))
    spaces = index.forest.spaces(0)
    assert [s["start"] for s in spaces] == [0, byte(-5), byte(0), byte(1), byte(6)]
    assert [listed(index, s) for s in spaces] == [set(), {0}, set(), {1}, set()]
    assert [s["predicates"] for s in spaces] == [0, 1, 0, 1, 0]
    assert rows_of(index.match(events_of([{0: byte(2)}]), 1)) == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_section_4_4(kind):
    """Ages in [20, 60] and [30, 80]: five spaces; without the second subscription three."""
    index = kind.build(spans_of([{0: [(20, 60)]}, {0: [(30, 80)]}], 1))
    assert [(s["start"], s["predicates"]) for s in index.forest.spaces(0)] == [
        (0, 0),
        (20, 1),
        (30, 2),
        (61, 1),
        (81, 0),
    ]
    index.delete(np.array([1]))
    assert [(s["start"], s["predicates"]) for s in index.forest.spaces(0)] == [(0, 0), (20, 1), (61, 0)]
    assert [rows_of(index.match(events_of([{0: v}]), 1)) for v in (19, 20, 45, 60, 61)] == [set(), {0}, {0}, {0}, set()]


def test_figure_3():
    """The subscriptions are in the lists of their narrow predicates and in the signatures of the others."""
    rows = [
        {0: bytes_between(-128, -6), 1: bytes_between(1, 5)},
        {0: bytes_between(-5, -1), 1: bytes_between(-128, 0)},
        {0: bytes_between(-5, -1), 1: bytes_between(6, 127)},
    ]
    index = PSTBloom.build(spans_of(rows, 2))
    first, second = index.forest.spaces(0), index.forest.spaces(1)
    assert [s["start"] for s in first] == [0, byte(-128), byte(-5), byte(0)]
    assert [s["start"] for s in second] == [0, byte(-128), byte(1), byte(6), byte(128)]
    assert [listed(index, s) for s in first] == [set(), set(), {1, 2}, set()]
    assert [listed(index, s) for s in second] == [set(), set(), {0}, set(), set()]
    assert [signed(index, s) for s in first] == [None, {0}, None, None]
    assert [signed(index, s) for s in second] == [None, {1}, None, {2}, None]
    assert rows_of(index.match(events_of([{0: byte(-3), 1: byte(-7)}]), 1)) == {1}


def test_figure_4():
    """S1 and S2 share a cell, S3 and S4 have their own; the event of section 6.1 has two candidates, and S2 matches."""
    equal = bytes_between
    rows = [
        {0: equal(1, 1), 1: equal(-1, -1), 2: bytes_between(-128, -1)},
        {0: equal(1, 1), 1: equal(-1, -1), 2: bytes_between(1, 127)},
        {0: equal(1, 1), 1: bytes_between(-128, -2), 2: equal(0, 0)},
        {0: bytes_between(-128, 0), 1: equal(-1, -1), 2: equal(0, 0)},
    ]
    index = PSTHash.build(spans_of(rows, 3))
    second = [index.forest.spaces(a)[1]["leaf"] for a in range(3)]
    assert {k: sorted(v) for k, v in cells_of(index).items()} == {
        (second[0], second[1]): [0, 1],
        (second[0], second[2]): [2],
        (second[1], second[2]): [3],
    }
    found = index.match(events_of([{0: byte(1), 1: byte(-1), 2: byte(2)}]), 1)
    assert (found.candidates, found.predicates, rows_of(found)) == (2, 2, {1})


# ---- what must hold after any updates ----


def signed(index: PSTBloom, space: dict[str, int]) -> set[int] | None:
    """Which rows' ids are in the signature of a space."""
    sign, words = index._signatures
    at, mask = sign[space["leaf"]].tolist()
    if at == NOTHING:
        return None
    found = set()
    for row in range(len(index.rows)):
        p, end = index.rows.offsets[row : row + 2].tolist()
        code = row if end == p + 1 else ~(p + 1)
        place, bits = map(int, _place_and_bits(np.int32(code)))
        if int(words.entry[at + (place & mask), 0]) & bits == bits:
            found.add(row)
    return found


def cells_of(index: PSTHash) -> dict[tuple[int, ...], list[int]]:
    """Rows by cell; cells of more than two dimensions are unfolded."""
    live = [(int(k), int(v)) for k, v in index._cells.slots.tolist() if k != EMPTY and v >> 32]
    prefix = {v & LOW: (k ^ int(PREFIX)) if k < 0 else k for k, v in live if k < 0}

    def leaves(key: int) -> tuple[int, ...]:
        parent, leaf, long = key >> 32, key & 0x7FFFFFFF, key >> 31 & 1
        return (*(leaves(prefix[parent]) if long else (parent,)), leaf)

    result, pool = {}, index._cells.pool.entry
    for key, value in live:
        if key >= 0:
            size, at = value >> 32, value & LOW
            codes = [at - (1 << 32) if at >= 1 << 31 else at] if size == 1 else pool[at + 1 : at + 1 + size, 0]
            result[leaves(key)] = [row_of(index, int(c)) for c in codes]
    return result


def predicates_of(index, row: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """The predicates of a row in the order that the index has given them: attribute and spans."""
    result = []
    for a, lo, hi, _ in index.rows.predicate[index.rows.offsets[row] : index.rows.offsets[row + 1]].tolist():
        result.append((a, [(lo, hi)] if hi >= 0 else [tuple(s) for s in index.rows.span[lo : lo - hi].tolist()]))
    return result


def check(index, alive: set[int]) -> None:
    """Every invariant that forest, pstbloom and psthash state."""
    forest = index.forest
    if isinstance(index, PSTHash) and index._small is not None:
        small = {r for r in alive if len(predicates_of(index, r)) < int(index._cells.table[DIMENSIONS])}
        assert small == {r for r in alive if index._cells.dims[r] == 0}
        check(index._small.bloom, {index._small.rows.tolist().index(r) for r in small})
        alive = alive - small
    dims = {r: 1 if not isinstance(index, PSTHash) else int(index._cells.dims[r]) for r in alive}
    in_trees = (
        int(index._cells.table[DIMENSIONS]) if isinstance(index, PSTHash) else {PSTree: 1, PSTBloom: ALL}[type(index)]
    )
    known = {r: predicates_of(index, r) for r in alive}
    chunks: list[tuple[int, int]] = []
    space_at: dict[int, list[dict[str, int]]] = {}
    for a in range(forest.attributes):
        spaces = space_at[a] = forest.spaces(a)
        starts = [s["start"] for s in spaces]
        treed = [spans for r in alive for b, spans in known[r][:in_trees] if a == b]
        edges = [v for spans in treed for x, y in spans for v in (x, y + 1) if v <= TOP]
        # The spaces are disjoint and cover the domain; each predicate is a union of them, and none is cut needlessly.
        assert starts == sorted({0, *edges})
        assert [s["edges"] for s in spaces] == [edges.count(v) for v in starts]
        covering = [sum(any(x <= v <= y for x, y in spans) for spans in treed) for v in starts]
        assert [s["predicates"] for s in spaces] == covering
        for s in spaces:
            wanted = {r for r in alive if dims[r] == 1 and covers(known[r][0], a, s["start"])}
            assert listed(index, s) == wanted and s["size"] == len(wanted)
            if s["size"]:
                chunks.append((s["at"], int(forest.leaf[s["leaf"], ROOM])))
            if isinstance(index, PSTBloom):
                others = {r for r in alive if any(covers(p, a, s["start"]) for p in known[r][1:])}
                assert others <= (signed(index, s) or set())
        check_tree(forest, a, starts)
    chunks.sort()
    assert all(x + n <= y for (x, n), (y, _) in zip(chunks, chunks[1:])), "two lists share memory"
    nodes, at = 0, int(forest.state[FREE_NODE])
    while at >= 0:
        nodes, at = nodes + 1, int(forest.node[at, 0])
    assert nodes + sum(count_nodes(forest, int(link)) for link in forest.tree[:, ROOT]) == forest.state[NODES_MADE]
    if isinstance(index, PSTHash):
        check_cells(index, alive, known, dims, space_at)


def covers(predicate: tuple[int, list[tuple[int, int]]], attribute: int, value: int) -> bool:
    return predicate[0] == attribute and any(x <= value <= y for x, y in predicate[1])


def check_cells(index, alive, known, dims, space_at) -> None:
    wanted: dict[tuple[int, ...], list[int]] = {}
    for r in alive:
        if dims[r] > 1:
            chosen = sorted(known[r][: dims[r]])
            own = [[s["leaf"] for s in space_at[p[0]] if covers(p, p[0], s["start"])] for p in chosen]
            for cell in product(*own):
                wanted.setdefault(cell, []).append(r)
    assert {k: sorted(v) for k, v in cells_of(index).items()} == {k: sorted(v) for k, v in wanted.items()}
    for a, spaces in space_at.items():
        for s in spaces:
            at, size = index._cells.cover[s["leaf"], [AT, SIZE]].tolist()
            rows = {r for r in alive if dims[r] > 1 and any(covers(p, a, s["start"]) for p in known[r][: dims[r]])}
            assert set(index._cells.pool.entry[at : at + size, 0].tolist()) == rows and size == len(rows)


def check_tree(forest, a: int, starts: list[int]) -> None:
    root, levels, first, last = forest.tree[a].tolist()
    order, at = [], first
    while at >= 0:
        order.append(at)
        after = int(forest.leaf[at, NEXT])
        assert after < 0 or forest.leaf[after, BEFORE] == at
        at = after
    assert order[-1] == last and forest.leaf[first, BEFORE] == -1
    assert starts[-1] < 16**levels

    def slot(link: int, base: int, bits: int) -> None:
        inside = sum(base < v < base + (1 << bits) for v in starts)
        if link >= 0:
            assert inside <= 1 and order[bisect_right(starts, base + (1 << bits) - 1) - 1] == link
        else:
            assert inside == forest.inside[~link] >= 2
            for i in range(16):
                slot(int(forest.node[~link, i]), base + (i << bits - 4), bits - 4)

    slot(root, 0, 4 * levels)
    values = np.array(sorted({min(max(v + d, 0), TOP) for v in starts for d in (-1, 0, 1)} | {TOP}), np.int32)
    found = np.empty(len(values), np.int32)
    events = np.arange(len(values) + 1), np.full(len(values), a, np.int32), values, found
    find_spaces(0, len(values), events, tuple(forest.links()))
    assert found.tolist() == [order[bisect_right(starts, v) - 1] for v in values.tolist()]


def count_nodes(forest, link: int) -> int:
    return 0 if link >= 0 else 1 + sum(count_nodes(forest, int(x)) for x in forest.node[~link])


labels = st.one_of(st.integers(1, 40), st.sampled_from([2**20, 2**20 + 1, 2**24, 2**30, TOP - 1, TOP]))


@st.composite
def some_row(draw) -> Row:
    row: Row = {}
    for a in draw(st.sets(st.integers(0, 3), min_size=1, max_size=4)):
        ends = sorted(draw(st.sets(labels, min_size=1, max_size=6)))
        ends = ends if len(ends) % 2 == 0 else [ends[0], *ends]
        spans: list[tuple[int, int]] = []
        for x, y in zip(ends[::2], ends[1::2]):
            if not spans or x > spans[-1][1] + 1:
                spans.append((x, y))
        row[a] = spans
    return row


steps = st.lists(st.one_of(st.lists(some_row(), max_size=6), st.floats(0.1, 1)), min_size=1, max_size=7)


@pytest.mark.parametrize("kind", [PSTree, PSTBloom, PSTHash, "three dimensions", "few cells"])
@given(steps=steps, seed=st.integers(0, 2**16))
@settings(max_examples=60, deadline=None)
def test_invariants_after_any_updates(kind, steps, seed):
    rng = np.random.default_rng(seed)
    nothing = spans_of([], 4)
    if isinstance(kind, str):
        index = PSTHash.build(nothing, 3, 1000) if kind == "three dimensions" else PSTHash.build(nothing, 2, 4)
    else:
        index = kind.build(nothing)
    rows: list[Row] = []
    alive: set[int] = set()
    for step in steps:
        if isinstance(step, list):
            index.insert(spans_of(step, 4))
            alive |= set(range(len(rows), len(rows) + len(step)))
            rows += step
        elif alive:
            gone = rng.choice(sorted(alive), max(1, int(step * len(alive))), replace=False)
            index.delete(np.sort(gone).astype(np.int64))
            alive -= set(gone.tolist())
        check(index, alive)
        values = [1, *(v for row in rows for spans in row.values() for s in spans for v in s)]
        events = events_of([{a: int(rng.choice(values)) for a in range(4) if rng.random() < 0.8} for _ in range(8)])
        found = index.match(events, 1)
        wanted = {(e, r) for e, r in expected(spans_of(rows, 4), events) if r in alive}
        assert sorted(zip(found.event.tolist(), found.row.tolist())) == sorted(wanted)
    index.delete(np.array(sorted(alive), np.int64))
    check(index, set())
    assert index.plan()["inner nodes"] == 0 and index.plan()["spaces"] == 4


# ---- costs ----


@pytest.mark.parametrize("spread", ["even", "one cluster"])
def test_a_space_is_found_in_as_many_steps_as_a_value_has_elements(spread):
    """However many spaces there are: at most an inner node for each element, the leaf and the leaf before it."""
    rng = np.random.default_rng(1)
    for size in (10, 1_000, 30_000):
        most = TOP - 1 if spread == "even" else 2 * size
        values = np.unique(rng.integers(1, most, size)).tolist()
        index = PSTree.build(spans_of([{0: [(v, v)]} for v in values], 1))
        spaces = index.plan()["spaces"]
        assert spaces > size / 2
        events = events_of([{0: int(v)} for v in rng.integers(1, TOP, 500)])
        nodes = index.match(events, 1).nodes / 500
        assert 1 <= nodes <= MOST_LEVELS + 2
        assert nodes <= np.log2(spaces) / 4 + 4  # evenly spread labels need far fewer


def test_only_lists_of_the_event_s_spaces_are_read():
    rng = np.random.default_rng(2)
    clauses = random_clauses(rng, 2_000, 50, 30, programs=0, nulls=0)
    index = Completed.build(PSTree, clauses)
    events = random_events(rng, 50, 50, 30, several=False)
    assert index.match(events, 1).candidates < 0.1 * len(clauses) * len(events)


# ---- choices ----


def test_access_predicates_follow_the_events_seen():
    """`=` is the access predicate until events show that they all satisfy it."""
    row = {0: [(5, 5)], 1: [(10, 40)]}
    index = PSTree.build(spans_of([row, {1: [(50, 70)]}], 2))
    assert predicates_of(index, 0)[0][0] == 0
    index.match(events_of([{0: 5, 1: 60}] * 50), 1)
    assert [s["events"] for s in index.forest.spaces(0)] == [0, 50, 0]
    index.insert(spans_of([row], 2))
    assert predicates_of(index, 2)[0][0] == 1
    assert rows_of(index.match(events_of([{0: 5, 1: 20}]), 1)) == {0, 2}


@pytest.mark.parametrize("kind", KINDS)
def test_events_are_counted_once_for_every_number_of_threads(kind):
    rng = np.random.default_rng(3)
    events = random_events(rng, 300, 5, 30, several=False)
    clauses = spans_of([{a: [(x, x + 6)]} for a in range(5) for x in range(1, 20, 5)], 5)
    for threads in (1, 2):
        index = kind.build(clauses)
        index.match(events, threads)
        for a in range(5):
            assert sum(s["events"] for s in index.forest.spaces(a)) == (events.attribute == a).sum()


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_any_number_of_dimensions(dimensions):
    rng = np.random.default_rng(dimensions)
    clauses = random_clauses(rng, 150, 7, 15, programs=0, nulls=0)
    events = random_events(rng, 60, 7, 15, several=False)

    class Own(PSTHash):
        @classmethod
        def build(cls, clauses):
            return super().build(clauses, dimensions, 10_000)

    index = Completed.build(Own, clauses)
    found = index.match(events, 1)
    assert set(zip(found.event.tolist(), found.row.tolist())) == expected(clauses, events)
    assert max(index.plan()["by dimensions"]) == dimensions


def test_more_dimensions_leave_fewer_candidates():
    rng = np.random.default_rng(4)
    rows = [
        {int(a): [(int(x), int(x) + 4)] for a, x in zip(rng.permutation(8)[:4], rng.integers(1, 16, 4))}
        for _ in range(800)
    ]
    events = events_of([{a: int(rng.integers(1, 20)) for a in range(8)} for _ in range(40)])
    found = [PSTHash.build(spans_of(rows, 8), n, 10_000).match(events, 1) for n in (1, 2, 3, 4)]
    assert len({f.count for f in found}) == 1
    assert sorted((f.candidates for f in found), reverse=True) == [f.candidates for f in found]
    assert found[3].candidates == found[3].count  # all four predicates are access predicates


def test_subscriptions_of_fewer_predicates_than_dimensions_are_found_by_the_method_of_pstbloom():
    """An event whose value of the other attribute is in no signature of theirs evaluates none of their predicates."""
    rows = [{0: [(1, 1)]}, {0: [(1, 1)], 1: [(2, 3)]}, {0: [(1, 1)], 1: [(2, 3)], 2: [(1, 4)]}]
    index = PSTHash.build(spans_of(rows, 3), 3)
    assert index.plan()["by dimensions"] == {3: 1} and index.plan()["by the method of PSTBloom"] == 2
    assert (
        index.match(events_of([{0: 1, 1: 9}]), 1).predicates
        == PSTBloom.build(spans_of(rows[:2], 3)).match(events_of([{0: 1, 1: 9}]), 1).predicates
    )
    assert PSTHash.build(spans_of(rows, 3)).plan()["by the method of PSTBloom"] == 0  # two dimensions
    events = events_of([{0: 1, 1: 2, 2: 4}, {0: 1, 1: 2}, {0: 1}])
    found = index.match(events, 1)
    assert sorted(zip(found.event.tolist(), found.row.tolist())) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize("kind", KINDS)
def test_access_predicates_are_chosen_by_operators_and_then_by_width(kind):
    """Section 3.3: =, IN, BETWEEN, inequalities, NOT IN, <>; whatever the attributes are mentioned by."""
    equal, several, between, below = [(9, 9)], [(3, 3), (7, 7)], [(4, 8)], [(1, 12)]
    without, other = [(1, 3), (5, 7), (9, 20)], [(1, 5), (7, 20)]
    ranked = [equal, several, between, below, without, other]
    rng = np.random.default_rng(1)
    popular = [{a: [ends] for a in range(6)} for ends in 15 * [(1, 19), (2, 20)]]  # and the ends of the domain
    for left, right in product(range(6), repeat=2):
        if left == right:
            continue
        a, b = rng.permutation(6)[:2].tolist()
        rows = [*popular, {a: ranked[left], b: ranked[right]}]
        index = kind.build(spans_of(rows, 6))
        first = index.rows.predicate[index.rows.offsets[len(popular)], 0]
        assert first == (a if left < right else b)
    index = kind.build(spans_of([*popular, {0: [(4, 9)], 1: [(4, 6)], 2: [(4, 8)]}], 6))
    assert index.rows.predicate[index.rows.offsets[len(popular)] :][:3, 0].tolist() == [1, 2, 0]


def test_signatures_forget_what_was_deleted():
    rows = [{0: [(v % 40 + 1, v % 40 + 1)], 1: [(1, 50)], 2: [(1 + v % 9, 60)]} for v in range(400)]
    index = PSTBloom.build(spans_of(rows, 3))
    index.delete(np.arange(390))
    for a in (1, 2):
        for s in index.forest.spaces(a):
            assert len(signed(index, s) or ()) <= 100  # far fewer than the 400 that were there
    check(index, set(range(390, 400)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_index_goes_on(kind):
    rng = np.random.default_rng(6)

    def more(count: int) -> list[Row]:
        starts = rng.integers(1, 60, (count, 3)).tolist()
        return [{a: [(x, x + 3)] for a, x in enumerate(s) if x % 3 or a == 0} for s in starts]

    rows = more(80)
    index = kind.build(spans_of(rows, 3))
    index.delete(np.arange(0, 80, 3))
    index = kind.restore(spans_of(rows, 3), {k: v.copy() for k, v in index.arrays().items()})
    rows += more(60)
    index.insert(spans_of(rows[80:], 3))
    index.delete(np.arange(1, 140, 3))
    check(index, set(range(2, 80, 3)) | {r for r in range(80, 140) if r % 3 != 1})


def test_chunks():
    sizes = np.arange(1, 5_000)
    rooms = [chunk_size.py_func(int(n)) for n in sizes]
    assert chunk_sizes(sizes).tolist() == rooms
    assert all(n <= room <= 1.25 * n for n, room in zip(sizes, rooms))
