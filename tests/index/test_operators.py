"""Operators: one test for a whole list is right for each of its predicates, of whatever kinds constants are."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

import dibs
from coded import random_clauses
from dibs.index import INDEXES, operators
from dibs.index.operators import BETWEEN, EQ, GE, IN, LE, NE
from dibs.tuning import smallest, using

EVENTS = [{"b": v} for v in (True, False, 0, -1.5, "x", "", dibs.Range(0, 3), [False, "x"])] + [{}, {"c": 1}]


def spans_of(clauses, p):
    lo, hi = int(clauses.lo[p]), int(clauses.hi[p])
    if hi >= 0:
        return [(lo, hi)]
    return [(int(clauses.span_lo[s]), int(clauses.span_hi[s])) for s in range(lo, lo - hi)]


def by_operator(code, spans, floor, ceiling, cell):
    """Whether a predicate holds, as the structures find out by the list that it is in."""
    within = floor <= cell <= ceiling
    low, high = spans[0][0], spans[-1][1]
    return {
        EQ: lambda: low == cell,
        LE: lambda: within and cell <= high,
        GE: lambda: within and low <= cell,
        NE: lambda: within and cell != spans[0][1] + 1,
    }[code]()


@pytest.mark.parametrize("seed", range(30))
def test_a_list_tells_the_same_as_its_predicates(seed):
    """With the clauses' own limits, and with any others: those of rows that came before."""
    rng = np.random.default_rng(seed)
    attributes, cells = int(rng.integers(1, 4)), int(rng.integers(4, 14))
    clauses = random_clauses(rng, 60, attributes, cells, programs=0, nulls=0)
    earlier = random_clauses(rng, 5, attributes, cells, programs=0, nulls=0)
    anything = np.sort(rng.integers(0, cells + 1, (2, attributes)), axis=0).astype(np.int32)
    seen = set()
    for floor, ceiling in (operators.limits(clauses), operators.limits(earlier), tuple(anything)):
        code = operators.operators(clauses, floor, ceiling)
        for p, a in enumerate(clauses.attribute):
            spans = spans_of(clauses, p)
            if spans[0][0] > spans[0][1] or code[p] in (BETWEEN, IN):
                continue  # never holds: structures do not get it; spans are compared one by one
            seen.add(int(code[p]))
            for cell in range(1, cells + 2):
                holds = any(x <= cell <= y for x, y in spans)
                assert by_operator(int(code[p]), spans, floor[a], ceiling[a], cell) == holds
    assert EQ in seen


def test_each_operator_is_found():
    """So that lists are short and the rest is not left to BETWEEN and IN."""
    m = dibs.Matcher(index="scan")
    texts = ["b = 3", "b <= 3", "b > 1", "b <> 2", "b BETWEEN 1 AND 2", "b IN (1, 3)", "b IS NOT NULL"]
    m.add_many(enumerate(texts))
    m.match({})
    clauses = m._layers.state.layers[0].segment.clauses
    code = operators.operators(clauses, *operators.limits(clauses))
    assert code.tolist() == [EQ, LE, GE, NE, BETWEEN, IN, BETWEEN]


@pytest.mark.parametrize("name", list(INDEXES))
@pytest.mark.parametrize(
    "texts",
    [
        ["b IS NOT NULL", "b >= FALSE"],
        ["b IS NOT NULL", "b >= FALSE", "b <> DATE '2020-01-01'"],
        ["b IS NOT NULL", "b <= 3", "b > 'm'", "b <> 'q'", "b NOT IN (1, 2)", "b NOT BETWEEN 'a' AND 'c'"],
        ["b IS NOT NULL", "b <> 1", "b <> 'x'", "b >= TRUE", "b < DATE '2020-01-01'", "b <> FALSE", "b = 0"],
        ["b IS NOT NULL"],
        ["b <> 'x'", "b <= 0", "b >= 'x'"],
    ],
)
def test_constants_of_several_kinds(name, texts):
    m, oracle = dibs.Matcher(index=name), dibs.Matcher(index="scan")
    for matcher in (m, oracle):
        matcher.add_many(enumerate(texts))
        matcher.compact()
    for event in EVENTS:
        assert m.match(event) == oracle.match(event), event
    assert list(m.match_batch(EVENTS)) == list(oracle.match_batch(EVENTS))
    for i, text in enumerate(["b IS NOT NULL", "b >= FALSE", "b <> TIMESTAMP '2020-01-01'", "b <> 5", "b <= 'y'"]):
        for matcher in (m, oracle):
            matcher.add(f"later {i}", text)
            matcher.compact()
        for event in EVENTS:
            assert m.match(event) == oracle.match(event), (text, event)


def settled(index, matched):
    """Matches again and again until what is built in the background is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        matched()
        if index.plan()["one by one"]:
            return
        time.sleep(0.01)
    pytest.fail(f"nothing was built for single events: {index.plan()}")


def watched(rows):
    """IS NOT NULL among rows about the same attribute, of another kind than its values."""
    r = random.Random(1)
    return [("nn", "b IS NOT NULL")] + [
        (
            f"s{i}",
            f"b <> DATE '2020-01-{1 + i % 28:02d}' AND a{i % 5} >= {r.randrange(1000)} "
            f"AND a{(i + 1) % 5} <= {r.randrange(1000)}",
        )
        for i in range(rows)
    ]


@pytest.mark.parametrize(("rows", "values"), [(21_000, {}), (300, smallest() | {"look_cost": 1e9, "mask_cost": -1.0})])
def test_single_events_of_a_kind_without_constants(rows, values):
    """The default index, before and after it has filed its clauses for single events."""
    event = {"b": 0} | {f"a{i}": 500 for i in range(5)}
    with using(values):
        m = dibs.Matcher()
        m.add_many(watched(rows))
        m.compact()

        def match():
            assert m.match(event) == ["nn"]

        match()
        settled(m._layers.state.layers[0].segment.index, match)
        for _ in range(3):
            match()
