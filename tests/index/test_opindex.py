"""OpIndex: the paper's running example, CNF and DNF, the invariants of its lists after any updates, what it reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coded
import dibs
from coded import events_of, expected, pairs_of, random_clauses, random_events
from dibs.coding.clauses import code_clauses, concatenate_clauses
from dibs.index.base import do_pending
from dibs.index.complete import Completed
from dibs.index.operators import BETWEEN, EQ
from dibs.language.flatten import program_table
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.language.table import ACCEPT, REJECT
from dibs.papers.structures.opindex.blocks import (
    DEAD,
    DIRECTORIES,
    DIRECTORY,
    EXTRA,
    EXTRA_ROOM,
    EXTRA_SIZE,
    FREE,
    NARROW,
    ROOM,
    SHIFT,
    SIZE,
    SLOTS,
    START,
    USED,
    WIDE,
    signature_bit,
)
from dibs.papers.structures.opindex.forms import CNF, DNF, LISTS, OTHER, RANK_BITS, program_forms, rank_of
from dibs.papers.structures.opindex.opindex import OpIndex, OpIndexBS
from dibs.tuning import numbers, using

KINDS = [OpIndex, OpIndexBS]
A, B, C, D, E = range(5)
LAST = 20  # cells are the values of the example themselves


def batch_of(*events):
    return events_of(events)


def rows_of(rows, attributes=5, programs=()):
    return coded.rows_of(rows, attributes, programs)


def eq(x):
    return [(x, x)]


def le(x):
    return [(1, x)]


def ge(x):
    return [(x, LAST)]


def among(*points):
    return [(x, x) for x in points]


TABLE_1 = [
    [(A, eq(2)), (B, among(3, 6, 9))],
    [(A, le(8)), (C, ge(2))],
    [(B, le(4)), (C, eq(6)), (E, [(3, 12)])],
    [(A, eq(2))],
    [(D, ge(12)), (E, le(9))],
    [(B, among(3, 6)), (C, le(4)), (D, ge(10)), (E, le(7))],
]


def partitions(lists):
    """Pivot -> the rows and counters of its slots."""
    a = lists._a
    result = {}
    for pivot in np.flatnonzero(a["partition"] >= 0).tolist():
        part = a["parts"][a["partition"][pivot]]
        slots = slice(part[START], part[START] + part[SIZE])
        result[pivot] = a["owner"][slots].tolist(), a["need"][slots].tolist()
    return result


# ---- the paper's examples ----


@pytest.mark.parametrize("kind", KINDS)
def test_example_2_pivots_and_subscription_lists(kind):
    """S1, S2 and S4 under A, S3 under C, S5 and S6 under D; an event of A and B looks at the first three only."""
    index = kind.build(rows_of(TABLE_1))
    assert {pivot: rows for pivot, (rows, _) in partitions(index._lists[0]).items()} == {
        A: [0, 1, 3],
        C: [2],
        D: [4, 5],
    }
    found = index.match(batch_of({A: 2, B: 6}), 1)
    assert found.candidates == 3
    assert sorted(found.row.tolist()) == [0, 3]


def test_example_3_a_signature_saves_the_search():
    """A value whose bit is off is not searched for: nothing is read, and nothing could have been found."""
    index = OpIndex.build(rows_of([[(A, eq(x))] for x in range(1, 9)], attributes=1))
    a = index._lists[0]._a
    head = a["heads"][EQ]
    assert head[SIZE] == 8
    signature = a["signature"][head[DIRECTORY]]  # all predicates of one attribute are in one segment
    on = {x for x in range(1, 200) if int(signature) & int(signature_bit.py_func(x, True, 64))}
    assert set(range(1, 9)) <= on
    assert len(on) < 60  # of the other values most are known not to be there
    for x in (5, min(set(range(1, 200)) - on)):
        assert index.match(batch_of({A: x}), 1).count == (x == 5)


def test_example_4_segments_and_counters():
    """With two segments A, C and E are in one and B and D in the other; counters start at the sizes."""
    segment = [rank_of.py_func(a) >> (RANK_BITS - 1) for a in (A, B, C, D, E)]
    assert segment == [0, 1, 0, 1, 0]
    index = OpIndex.build(rows_of(TABLE_1))
    assert {pivot: need for pivot, (_, need) in partitions(index._lists[0]).items()} == {
        A: [2, 2, 1],
        C: [3],
        D: [2, 4],
    }
    check(index)


@pytest.mark.parametrize("kind", KINDS)
def test_example_5_only_the_lists_of_c_are_read(kind):
    index = kind.build(rows_of(TABLE_1))
    found = index.match(batch_of({B: 6, C: 3, E: 9}), 1)
    heads = index._lists[0]._a["heads"].reshape(-1, LISTS, 8)
    lists_of_c = int((heads[index._lists[0]._a["partition"][C], :, SIZE] > 0).sum())
    assert (found.candidates, found.count, found.nodes) == (1, 0, lists_of_c)
    assert found.predicates == 1  # of S3, only E holds for 9; S2 and S5, which hold in part, are not looked at


@pytest.mark.parametrize("kind", KINDS)
def test_matches_of_table_1(kind):
    clauses = rows_of(TABLE_1)
    values = [(0, *range(1, LAST + 1, 3)) for _ in range(5)]
    rng = np.random.default_rng(1)
    events = batch_of(*({a: int(x) for a in range(5) if (x := rng.choice(values[a]))} for _ in range(300)))
    assert pairs_of(kind.build(clauses), events) == expected(clauses, events) != set()


# ---- CNF and DNF ----


def normal(groups, form):
    """A program of a CNF or DNF whose groups are lists of predicates."""
    jumps, n = [], sum(map(len, groups))
    for group in groups:
        end = len(jumps) + len(group)
        won, lost = (ACCEPT, REJECT) if form == DNF else (REJECT, ACCEPT)
        for p in range(len(jumps), end):
            onward, aside = (p + 1 if p + 1 < end else won), (end if end < n else lost)
            jumps.append((onward, aside) if form == DNF else (aside, onward))
    return [p for g in groups for p in g], jumps


def coded_text(*texts):
    return code_clauses(program_table(normal_form(parse(text)) for text in texts))[1]


def test_forms_of_texts():
    clauses = coded_text(
        "(a = 1 OR b = 2) AND (c = 3 OR d = 4 OR e = 5)",
        "(a = 1 AND b = 2) OR (c = 3 AND d = 4)",
        "a = 1 OR b = 2",
        "a = 1 AND (b = 2 OR c <= 3)",
        "a = 1 OR (b = 2 AND c NOT IN (3, 4))",
        "(a = 1 AND (b = 2 OR c = 3)) OR d = 4",
        "a IS NULL OR b = 2",
        "(a = 1 OR b IS NULL) AND c = 3",
        " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(40)),
        " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(65)),
        " OR ".join(f"(a{i} = 1 AND b{i} = 1)" for i in range(65)),
        "("
        + " OR ".join(f"a{i} = 1" for i in range(50))
        + ") AND ("
        + " OR ".join(f"b{i} = 1" for i in range(50))
        + ")",
    )
    forms = [CNF, DNF, DNF, CNF, DNF, OTHER, OTHER, OTHER, CNF, OTHER, DNF, OTHER]
    assert program_forms(clauses).tolist() == forms
    assert OpIndex.takes_programs(clauses).tolist() == [form != OTHER for form in forms]


@pytest.mark.parametrize("kind", KINDS)
def test_cnf_is_filed_under_the_attributes_of_its_smallest_clause(kind):
    """(A or B) and (C or D or E) appears under A and B; of two smallest clauses the one of rarer attributes counts."""
    cnf = normal([[(A, eq(1)), (B, eq(2))], [(C, eq(3)), (D, eq(4)), (E, eq(5))]], CNF)
    tie = normal([[(A, eq(1)), (B, eq(1))], [(D, eq(1)), (E, eq(1))], [(C, eq(1)), (A, eq(9)), (A, eq(8))]], CNF)
    index = kind.build(rows_of([], programs=[cnf, tie]))
    # A is in 4 predicates, B, D and E in 2 each, C in 2: D and E are the rarer pair.
    assert partitions(index._lists[1]) == {
        A: ([~0], [0b11]),
        B: ([~0], [0b11]),
        D: ([~1], [0b111]),
        E: ([~1], [0b111]),
    }
    events = batch_of({A: 1, B: 2, C: 3}, {A: 1, C: 9}, {B: 2, D: 4}, {C: 3, D: 4}, {A: 1, D: 1, E: 1, C: 1})
    assert pairs_of(index, events) == {(0, 0), (2, 0), (4, 1)}


@pytest.mark.parametrize("kind", KINDS)
def test_dnf_is_its_terms_and_reported_once(kind):
    dnf = normal([[(A, eq(1)), (B, eq(2))], [(C, eq(3)), (D, eq(4))]], DNF)
    index = kind.build(rows_of([], programs=[dnf]))
    assert partitions(index._lists[0]) == {A: ([~0], [2]), C: ([~0], [2])}
    events = batch_of({A: 1, B: 2, C: 3, D: 4}, {A: 1, B: 2}, {C: 3, D: 4}, {A: 1, D: 4})
    found = index.match(events, 1)
    assert found.event.tolist() == [0, 1, 2]
    index.delete(np.array([0]))
    assert index.match(events, 1).count == 0


def random_programs(rng, rows, attributes, cells):
    """CNF and DNF of up to four groups of up to three predicates."""

    def predicate():
        kind = rng.random()
        if kind < 0.2:
            x = int(rng.integers(2, cells - 1))
            return int(rng.integers(attributes)), [(1, x - 1), (x + 1, cells - 1)]
        a, b = sorted(rng.integers(1, cells, 2).tolist())
        return int(rng.integers(attributes)), [(a, a) if kind < 0.5 else (1, b) if kind < 0.7 else (a, b)]

    return [
        normal([[predicate() for _ in range(rng.integers(1, 4))] for _ in range(rng.integers(1, 5))], form)
        for form in rng.choice([CNF, DNF], rows).tolist()
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_programs_come_and_go(kind, seed):
    rng = np.random.default_rng(seed)
    parts = [rows_of(TABLE_1, 5, random_programs(rng, 40, 5, LAST))]
    assert kind.takes_programs(parts[0]).all()
    index, gone = kind.build(parts[0]), set()
    for _ in range(5):
        parts.append(rows_of(TABLE_1[:3], 6, random_programs(rng, 15, 6, LAST)))
        index.insert(parts[-1])
        clauses, place = concatenate_clauses(parts)
        more = set(rng.choice(len(clauses), 12, replace=False).tolist()) - gone
        index.delete(np.array(sorted(more), np.int64))
        gone |= more
        check(index)
        events = random_events(rng, 40, 6, LAST, several=False)
        assert pairs_of(index, events) == {
            (e, int(place[r])) for e, r in expected(clauses, events) if int(place[r]) not in gone
        }


@pytest.mark.parametrize("seed", range(4))
def test_random_jumps_are_read_as_they_run(seed):
    """Short random programs are often in a normal form by chance; the others are left to be completed."""
    rng = np.random.default_rng(seed)
    clauses = random_clauses(rng, 300, 3, 9, programs=1.0, nulls=0.02)
    events = random_events(rng, 60, 3, 9, several=False)
    assert program_forms(clauses).any()
    assert pairs_of(Completed.build(OpIndex, clauses), events) == expected(clauses, events)


@pytest.mark.parametrize("name", ["opindex", "opindex-bs"])
def test_texts_of_all_operators(name):
    texts = [
        "s LIKE 'ab%'",
        "s LIKE 'a%' AND n <> 3",
        "s LIKE 'abc%' AND n NOT IN (1, 2, 3)",
        "s LIKE '%z' OR n BETWEEN 2 AND 4",
        "(s LIKE '%b%' OR n = 5) AND (n > 3 OR s RLIKE '^a.c')",
        "s BETWEEN 'aa' AND 'ac' AND n NOT BETWEEN 2 AND 3",
        "s NOT LIKE 'ab%' AND n IN (1, 5, 7)",
        "s IS NULL OR n >= 7",
    ]
    events = [{"s": s, "n": n} for s in ("a", "ab", "abc", "abz", "az", "b", None) for n in (1, 2, 3, 4, 5, 7)]
    found = []
    for index in (name, "scan"):
        matcher = dibs.Matcher(index=index)
        matcher.add_many(enumerate(texts))
        found.append([list(ids) for ids in matcher.match_batch(events)])
    assert found[0] == found[1]
    assert {i for ids in found[0] for i in ids} == set(range(len(texts)))


# ---- the invariants of the lists ----


def blocks(lists, pool):
    """Every block of a pool: of the lists, and the free ones."""
    a = lists._a
    if pool == SLOTS:
        used = [(p[START], p[ROOM]) for p in a["parts"][: lists._count]]
        chain = a["owner"]
    else:
        own = [h for i, h in enumerate(a["heads"][: lists._count * LISTS]) if (i % LISTS == BETWEEN) == (pool == WIDE)]
        used = [(h[START], h[ROOM]) for h in own] + [(h[EXTRA], h[EXTRA_ROOM]) for h in own]
        chain = a["key" if pool == NARROW else "wide_key"]
    free = []
    for k, block in enumerate(a["state"][pool, FREE:].tolist()):
        while block >= 0:
            free.append((block, 1 << k))
            block = int(chain[block])
    return [(int(s), int(n)) for s, n in used + free if n]


def check(index):
    """Lists are sorted, point to slots, are covered by signatures and directories; links skip exactly what does not
    reach far enough; blocks do not overlap."""
    for lists in (index._lists[0], index._lists[1]):
        a, bits = lists._a, lists._bits
        for pool in (NARROW, WIDE, SLOTS):
            end = 0
            for start, size in sorted(blocks(lists, pool)):
                assert start >= end, "blocks overlap"
                end = start + size
            assert end <= a["state"][pool, USED]
        for h, head in enumerate(a["heads"][: lists._count * LISTS].tolist()):
            between = h % LISTS == BETWEEN
            keys, pointers = (a["wide_key"], a["wide_pointer"]) if between else (a["key"], a["pointer"])
            part = a["parts"][h // LISTS]
            assert not head[EXTRA_SIZE] or head[EXTRA_SIZE] <= max(16, 8 * head[ROOM] ** 0.5)
            for block in (START, EXTRA):
                start, size, room = head[block : block + 3]
                assert size <= room
                own = keys[start : start + size]
                assert (own[1:] >= own[:-1]).all()
                slots = pointers[start : start + size] >> bits
                assert ((slots >= 0) & (slots < part[SIZE])).all()
                for p in range(start, start + size) if between else ():
                    back = [q for q in range(start, p) if a["far"][q] > a["far"][p]]
                    assert a["link"][p] == p - max(back, default=start - 1)
            if head[SIZE] + head[EXTRA_SIZE] and lists._segments:
                first, shift = head[DIRECTORY], head[SHIFT]
                last = first + (1 << (RANK_BITS - shift))
                assert last <= a["state"][DIRECTORIES, USED]
                own = keys[head[START] : head[START] + head[SIZE]]
                counts = np.bincount(own >> (32 + shift), minlength=last - first)
                assert a["ends"][first:last].tolist() == np.cumsum(counts).tolist()
                for key in [*own.tolist(), *keys[head[EXTRA] : head[EXTRA] + head[EXTRA_SIZE]].tolist()]:
                    bit = int(signature_bit.py_func(key, h % LISTS == EQ, lists._width))
                    assert int(a["signature"][first + (key >> (32 + shift))]) & bit
        for part in a["parts"][: lists._count].tolist():
            assert part[DEAD] == (a["need"][part[START] : part[START] + part[SIZE]] == 0).sum()
            assert 4 * part[DEAD] <= part[SIZE]


def entries(index, rows):
    """The entries of the counted rows, without regard to slots and blocks."""
    a = index._lists[0]._a
    found = []
    for h, head in enumerate(a["heads"][: index._lists[0]._count * LISTS].tolist()):
        between = h % LISTS == BETWEEN
        key, pointer = ("wide_key", "wide_pointer") if between else ("key", "pointer")
        for start, size in ((head[START], head[SIZE]), (head[EXTRA], head[EXTRA_SIZE])):
            for p in range(start, start + size):
                row = int(a["owner"][a["parts"][h // LISTS, START] + a[pointer][p]])
                if row in rows:
                    found.append((row, h % LISTS, int(a[key][p]), int(a["far"][p]) if between else 0))
    return sorted(found)


def conjunctions(rng, rows, attributes, cells):
    """At most one predicate for each attribute, all of which can hold."""
    made = []
    for _ in range(rows):
        row = []
        for a in np.sort(rng.choice(attributes, rng.integers(1, min(attributes, 4) + 1), replace=False)).tolist():
            x, y = sorted(rng.integers(1, cells, 2).tolist())
            row.append((a, [(1, cells - 1), (x, x), (1, y), (x, cells - 1), (x, y), (x, y)][rng.integers(6)]))
            row[-1] = (a, [row[-1][1]] if rng.random() < 0.8 else [(1, 1), (3, 4), (6, cells - 1)])
        made.append(row)
    return rows_of(made, attributes)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from(KINDS))
def test_lists_after_any_updates(seed, attributes, kind):
    """Few attributes: lists are long enough for extra blocks, merges, larger directories and cleaning."""
    rng = np.random.default_rng(seed)
    parts = [rows_of([[(0, [(1, 9)])], [(0, [(9, 29)])], [(0, [(1, 29)])]], 5), conjunctions(rng, 30, attributes, 30)]
    index = kind.build(parts[0])
    index.insert(parts[1])
    alive = set(range(33))
    for _ in range(4):
        count = sum(map(len, parts))
        parts.append(conjunctions(rng, int(rng.integers(1, 200)), attributes, 30))
        index.insert(parts[-1])
        alive |= set(range(count, count + len(parts[-1])))
        check(index)
        gone = rng.choice(sorted(alive), int(rng.integers(0, len(alive) // 2)), replace=False)
        alive -= set(gone.tolist())
        index.delete(gone.astype(np.int64))
        check(index)
    clauses, _ = concatenate_clauses(parts)
    events = random_events(rng, 40, 5, 30, several=False)
    wanted = {(e, r) for e, r in expected(clauses, events) if r in alive}
    assert pairs_of(index, events) == wanted
    restored = kind.restore(clauses, {n: a.copy() for n, a in index.arrays().items()})
    check(restored)
    assert pairs_of(restored, events) == wanted
    assert entries(restored, alive) == entries(index, alive)
    more = conjunctions(rng, 50, attributes, 30)
    restored.insert(more)
    check(restored)
    both = concatenate_clauses([clauses, more])[0]
    assert pairs_of(restored, events) == {(e, r) for e, r in expected(both, events) if r in alive or r >= len(clauses)}


def test_more_than_255_predicates():
    """Counters of a byte become wider ones when such a row comes."""
    long = [(a, eq(2)) for a in range(300)]
    events = batch_of(dict.fromkeys(range(300), 2), dict.fromkeys(range(299), 2))
    assert pairs_of(OpIndex.build(rows_of([long, [(0, eq(2))]], 300)), events) == {(0, 0), (0, 1), (1, 1)}
    index = OpIndex.build(rows_of([[(0, eq(2))]], 300))
    assert index._lists[0]._a["need"].dtype == np.uint8
    index.insert(rows_of([long], 300))
    assert pairs_of(index, events) == {(0, 0), (1, 0), (0, 1)}


# ---- what is read and moved ----


@pytest.mark.parametrize("kind", KINDS)
def test_entries_read_are_the_predicates_that_hold(kind):
    """Lemmas 1 and 7: candidates are the subscriptions under the event's pivots; of their predicates those that hold
    are read, each once."""
    rng = np.random.default_rng(2)
    rows = [
        [(int(a), [eq, le, ge][rng.integers(3)](int(rng.integers(2, LAST)))) for a in np.sort(rng.choice(30, 3, False))]
        for _ in range(800)
    ]
    clauses = rows_of([[(a, [(1, LAST)])] for a in range(30)] + rows, 30)
    index = kind.build(clauses)
    events = random_events(rng, 50, 30, LAST, several=False, most=8)
    pivot = {row: p for p, (owned, _) in partitions(index._lists[0]).items() for row in owned}
    candidates = holding = 0
    for e in range(len(events)):
        values = {int(events.attribute[i]): int(events.lo[i]) for i in range(*events.offsets[e : e + 2])}
        for r in range(len(clauses)):
            if pivot[r] in values:
                candidates += 1
                for p in range(*clauses.offsets[r : r + 2]):
                    holding += clauses.lo[p] <= values.get(int(clauses.attribute[p]), 0) <= clauses.hi[p]
    found = index.match(events, 1)
    assert (found.candidates, found.predicates) == (candidates, holding)


@pytest.mark.parametrize("kind", KINDS)
def test_nested_prefixes_cost_their_matches_and_the_depth(kind):
    """Spans that nest as prefixes do: a value reads those that hold and a few for each level that do not."""
    depth, width = 6, 3**6
    spans = [
        (2 + i * width // 3**d, 1 + (i + 1) * width // 3**d)
        for d in range(depth)
        for i in range(3**d)
        for _ in range(5)
    ]
    rows = [[(0, [(1, 2 * width)])], *([(0, [span])] for span in spans)]
    index = kind.build(rows_of(rows, 1))
    events = batch_of(*({0: x} for x in range(2, width + 2, 7)))
    found = index.match(events, 1)
    assert found.count == len(events) * (1 + 5 * depth)
    assert found.predicates <= found.count + len(events) * 2 * depth


def test_an_insertion_moves_few_entries():
    """A list of n entries takes the next ones in an extra block of at most about 4 times the root of n."""
    rng = np.random.default_rng(3)
    cells = rng.integers(2, 1 << 30, 40_000).astype(np.int32)
    index = OpIndex.build(rows_of([[(0, [(1, int(x))])] for x in cells[:20_000]], 1))
    largest = merges = 0
    heads = index._lists[0]._a["heads"]
    for start in range(20_000, 40_000, 250):
        before = int(heads[1, SIZE])
        index.insert(rows_of([[(0, [(1, int(x))])] for x in cells[start : start + 250]], 1))
        heads = index._lists[0]._a["heads"]
        largest = max(largest, int(heads[1, EXTRA_ROOM]))
        merges += int(heads[1, SIZE]) > before
    size = int(heads[1, SIZE])
    assert size > 4 * numbers["opindex_short_list"].value
    assert 250 <= largest <= 8 * size**0.5
    assert 1 <= merges <= 20_000 // (4 * 20_000**0.5)
    events = batch_of({0: int(np.median(cells))})
    assert index.match(events, 1).count == int((cells >= np.median(cells)).sum())


# ---- pivots by events ----


def test_pivots_follow_an_event_log_where_there_is_one():
    rows = rows_of([[(A, [(1, 1)]), (B, [(2, 2)])]] * 20 + [[(B, [(3, 3)])]] * 5, attributes=2)
    assert OpIndex.build(rows).plan()["pivots"] == 2  # B is in more subscriptions, so A is the pivot of the first 20
    by_log = OpIndex.build(rows, presence=np.array([0.9, 0.1]))
    assert by_log.plan()["pivots"] == 1
    event = batch_of({A: 1, B: 2}, {A: 1})
    assert pairs_of(by_log, event) == {(0, r) for r in range(20)}
    assert by_log.match(event, 1).candidates == 25


@pytest.mark.parametrize("kind", KINDS)
def test_pivots_are_revised_when_events_drift(kind):
    rows = rows_of([[(A, [(1, 1)]), (B, [(2, 2)])]] * 20 + [[(B, [(3, 3)])]] * 5, attributes=2)
    popular = batch_of(*[{A: 1}] * 9, {A: 1, B: 2})
    with using({"look_every": 20, "enough_events": 20}):
        index = kind.build(rows)
        before = index.match(popular, 1)
        assert not do_pending(index)
        wanted = pairs_of(index, popular)
        assert do_pending(index)
        after = index.match(popular, 1)
        assert (before.candidates, after.candidates) == (10 * 20 + 5, 25)
        assert pairs_of(index, popular) == wanted
        old, _ = index._lists
        index.match(popular, 1)
        assert do_pending(index) and index._lists[0] is old, "nothing to be gained"
        restored = kind.restore(rows, index.arrays())
        assert restored.match(popular, 1).candidates == 25
        index.delete(np.array([0]))
        index.match(popular, 1)
        index.match(popular, 1)
        assert not do_pending(index), "after an update of its own"


# ---- the paper's lemmas ----


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_lemma_2_no_other_choice_of_pivots_is_looked_at_less(seed):
    """Candidates by the least frequent attribute of the event log, against any other choice."""
    rng = np.random.default_rng(seed)
    attributes, share = int(rng.integers(2, 7)), rng.random(7)
    events = [{a: 1 for a in range(attributes) if rng.random() < share[a]} or {0: 1} for _ in range(40)]
    own = [sorted(rng.permutation(attributes)[: rng.integers(1, attributes + 1)].tolist()) for _ in range(30)]
    log = np.array([sum(a in e for e in events) for a in range(attributes)])
    rows = rows_of([[(a, [(1, 1)]) for a in row] for row in own], attributes)
    found = OpIndex.build(rows, presence=log / len(events)).match(batch_of(*events), 1)
    assert found.candidates == sum(min(log[a] for a in row) for row in own)
    assert found.candidates <= sum(log[rng.choice(row)] for row in own)


def lemma_workload(rng, rows, attributes, size, cardinality):
    """Subscriptions as the analysis has them: attributes, operators =, <=, >= and operands uniform."""
    chosen = [sorted(rng.permutation(attributes)[:size].tolist()) for _ in range(rows)]

    def spans(v):
        return [[(v, v)], [(1, v)], [(v, cardinality)]][rng.integers(3)]

    return rows_of([[(a, spans(int(rng.integers(1, cardinality + 1)))) for a in row] for row in chosen], attributes)


def test_lemmas_3_and_4_segments_have_n_gamma_over_3bd_predicates_and_space_is_linear():
    rng = np.random.default_rng(1)
    b, size, per_predicate = 4, 3, {}
    for n in (2_000, 8_000):
        index = OpIndex.build(lemma_workload(rng, n, 8, size, 50), segments=b)
        numbers = index.plan()
        assert numbers["entries"] == n * size, "each predicate is in one list"
        d = numbers["pivots"]  # the lemma has a pivot for each attribute
        assert numbers["entries"] / numbers["segments"] == pytest.approx(n * size / (3 * b * d), rel=0.15)
        per_predicate[n] = index.nbytes / (n * size)
    assert per_predicate[8_000] < 1.1 * per_predicate[2_000]


def test_lemma_5_an_insertion_goes_to_one_list_for_each_of_its_predicates():
    """test_an_insertion_moves_few_entries has what it moves there."""
    rng = np.random.default_rng(2)
    index = OpIndex.build(lemma_workload(rng, 4_000, 8, 3, 50))
    before = index.plan()["entries"]
    index.insert(lemma_workload(rng, 1, 8, 3, 50))
    assert index.plan()["entries"] == before + 3


def test_lemma_6_a_predicate_holds_with_probability_a_third_of_one_plus_two_over_sigma():
    rng = np.random.default_rng(3)
    for cardinality in (2, 5, 50):
        rows = lemma_workload(rng, 3_000, 1, 1, cardinality)
        index = OpIndex.build(rows)
        events = batch_of(*({0: v} for v in range(1, cardinality + 1)))
        found = index.match(events, 1)
        assert found.count / (3_000 * cardinality) == pytest.approx((1 + 2 / cardinality) / 3, rel=0.05)


def test_lemma_8_an_event_reads_a_square_of_lists_and_a_signature_lets_it_search_as_many_segments_as_foreseen():
    rng = np.random.default_rng(4)
    rows = lemma_workload(rng, 3_000, 400, 4, 50)
    for m in (2, 5, 10):
        attributes = [rng.permutation(400)[:m].tolist() for _ in range(50)]
        events = batch_of(*({int(a): int(rng.integers(1, 51)) for a in own} for own in attributes))
        signed, plain = (kind.build(rows).match(events, 1) for kind in KINDS)
        assert (signed.count, signed.predicates) == (plain.count, plain.predicates)
        assert signed.nodes <= plain.nodes <= 50 * 3 * m * m
    rows = lemma_workload(rng, 20_000, 200, 3, 1_000)
    for width in (8, 64):
        arrays = OpIndex.build(rows, width=width).arrays()
        share, foreseen = [], []
        for head in arrays["counted.heads"][EQ::LISTS]:
            if head[SIZE]:
                segments = slice(head[DIRECTORY], head[DIRECTORY] + (1 << (RANK_BITS - head[SHIFT])))
                sizes = np.diff(arrays["counted.ends"][segments], prepend=0)
                share += [int(s).bit_count() / width for s in arrays["counted.signature"][segments]]
                foreseen += (1 - (1 - 1 / width) ** sizes).tolist()
        assert len(share) > 100
        assert int(arrays["counted.signature"].max()).bit_length() <= width
        assert np.mean(share) == pytest.approx(np.mean(foreseen), rel=0.05)


def test_pivots_stay_where_programs_were_taken_at_other_thresholds():
    """An index that was saved with larger programs than would be taken now."""
    rng = np.random.default_rng(4)
    clauses = rows_of(TABLE_1, 5, random_programs(rng, 40, 5, LAST))
    events = random_events(rng, 40, 5, LAST, several=False)
    saved = OpIndex.build(clauses).arrays()
    with using({"opindex_clauses": 1, "look_every": 1, "enough_events": 1}):
        assert not OpIndex.takes_programs(clauses).all()
        index = OpIndex.restore(clauses, saved)
        assert pairs_of(index, events) == expected(clauses, events)
        assert do_pending(index)
        assert pairs_of(index, events) == expected(clauses, events)
