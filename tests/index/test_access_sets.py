"""Access sets: whenever a program accepts, some predicate of its set holds; and the sets are the cheapest."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from coded import _holds, _row_holds, random_clauses, random_events
from dibs.coding.clauses import code_clauses
from dibs.index.auto.access_sets import access_sets, complements
from dibs.language.flatten import program_table
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse


def sets_of(clauses, share=None):
    """The access set of each program, by places in it; None where it has none."""
    rows = np.arange(clauses.conjunctions, len(clauses))
    share = np.ones(len(clauses.attribute), np.float32) if share is None else np.array(share, np.float32)
    found, entries = access_sets(clauses, rows, share)
    members = {int(r): [] for r, f in zip(rows, found) if f}
    for i in range(len(entries)):
        members[int(entries.row[i])].append(int(entries.access[i] - clauses.offsets[entries.row[i]]))
    return [members.get(int(r)) for r in rows]


def set_of(text, share=None):
    clauses = code_clauses(program_table([normal_form(parse(text))]))[1]
    return sets_of(clauses, share)[0]


@pytest.mark.parametrize(
    ("text", "share", "wanted"),
    [
        ("a = 1 OR b = 1", [0.5, 0.5], [0, 1]),
        ("(a = 1 OR b = 1) AND (c = 1 OR d = 1)", [0.1, 0.4, 0.2, 0.2], [2, 3]),
        ("(a = 1 OR b = 1) AND (c = 1 OR d = 1)", [0.1, 0.2, 0.2, 0.2], [0, 1]),
        ("(a = 1 AND b = 1) OR (c = 1 AND d = 1)", [0.1, 0.2, 0.5, 0.3], [0, 3]),
        ("(a = 1 OR b = 1) AND c = 1", [0.2, 0.2, 0.3], [2]),
        ("a = 1 OR (b = 1 AND (c = 1 OR (d = 1 AND e = 1)))", [0.1, 0.5, 0.1, 0.2, 0.3], [0, 2, 3]),
        ("a = 1 OR b IS NULL", None, None),
        ("(a = 1 OR b IS NULL) AND c = 1", None, [2]),
        ("(a = 1 OR b = 2) AND (c IS NULL OR d IS NULL)", None, [0, 1]),
        ("a IS NULL OR (b IS NULL AND c = 1)", None, None),
        ("(a IS NULL AND b = 1) OR (c = 1 AND d IS NULL)", None, [1, 2]),
        ("(a = 1) IS NOT TRUE", None, None),
        ("(a = 1) IS NOT TRUE OR b = 1", None, None),
        ("(a = 1) IS NOT TRUE AND b = 1", [0.1, 0.9], [1]),
        ("(a = 1 OR b = 1) IS NOT TRUE", None, None),
        ("(a = 1 AND (b = 1) IS NOT TRUE) OR (c = 1 AND d = 1)", [0.5, 0.1, 0.1, 0.2], [0, 2]),
    ],
)
def test_and_takes_its_cheapest_child_or_all_of_them(text, share, wanted):
    assert set_of(text, share) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a = 1 OR b = 1", []),
        ("(a = 1) IS NOT TRUE", [0]),
        ("a = 1 AND (b = 1) IS NOT TRUE", [1]),
        ("((a = 1) IS NOT TRUE AND b = 1) OR c = 1", [0]),  # its first step jumps as that of (a OR b) AND c does
        ("(a = 1 OR b = 1) AND c = 1", []),
        ("((a = 1 OR (b = 1 AND (c = 1) IS NOT TRUE)) AND d = 1) IS NOT TRUE", [0, 1, 3]),
    ],
)
def test_complements(text, wanted):
    clauses = code_clauses(program_table([normal_form(parse(text))]))[1]
    assert np.flatnonzero(complements(clauses, np.array([0]))).tolist() == wanted


def test_forty_factors_and_long_lists():
    factors = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(40))
    share = np.full(80, 0.5)
    share[34:36] = 0.1
    assert set_of(factors, share) == [34, 35]
    assert set_of(" OR ".join(f"a{i} = 1" for i in range(5000))) == list(range(5000))


def test_entries():
    clauses = code_clauses(program_table([normal_form(parse("(a = 1 AND (b = 1 OR c = 1) AND d = 1) OR e = 1"))]))[1]
    _, entries = access_sets(clauses, np.array([0]), np.array([0.9, 0.1, 0.1, 0.9, 0.1], np.float32))
    assert entries.access.tolist() == [1, 2, 4]
    assert entries.rank.tolist() == [0, 1, 0]
    assert entries.first.tolist() == [0, 0, 4]
    assert entries.last.tolist() == [4, 4, 5]
    assert [entries.tests[a:b].tolist() for a, b in zip(entries.test_start, entries.test_start[1:])] == [
        [1, 0, 3],
        [2, 0, 3],
        [4],
    ]
    assert entries.exact.tolist() == [False, False, True]


@pytest.mark.parametrize("seed", range(10))
def test_a_program_accepts_only_with_a_predicate_of_its_set(seed):
    """Random jumps, most of which no expression would give: backed by the words of the definition alone."""
    rng = np.random.default_rng(seed)
    clauses = random_clauses(rng, 300, 4, 8, programs=1.0)
    sets = sets_of(clauses, rng.random(len(clauses.attribute)))
    assert any(s is not None and len(s) < clauses.offsets[r + 1] - clauses.offsets[r] for r, s in enumerate(sets))
    events = random_events(rng, 40, 4, 8)
    _, entries = access_sets(clauses, np.arange(len(clauses)), np.ones(len(clauses.attribute), np.float32))
    for e in range(len(events)):
        values: dict[int, list[tuple[int, int]]] = {}
        for i in range(events.offsets[e], events.offsets[e + 1]):
            values.setdefault(int(events.attribute[i]), []).append((int(events.lo[i]), int(events.hi[i])))
        matched = [r for r in range(len(clauses)) if _row_holds(clauses, r, values)]
        for r in matched:
            members = sets[r]
            if members is not None:
                assert any(_holds(clauses, int(clauses.offsets[r]) + p, values) for p in members)
        passed = {
            int(entries.row[i])
            for i, (a, b) in enumerate(itertools.pairwise(entries.test_start))
            if all(_holds(clauses, int(p), values) for p in entries.tests[a:b])
        }
        assert {r for r in matched if r in set(entries.row.tolist())} <= passed
