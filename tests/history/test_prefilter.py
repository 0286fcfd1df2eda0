"""Pre-filtering: subscriptions that the present history cannot satisfy are not tried, and no other is left out."""

from __future__ import annotations

import operator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.language.expression import And, Expression
from dibs.language.printer import to_sql
from dibs.reference import matches
from join_strategies import documents, join_predicates, subscriptions
from strategies import events, predicates

TESTS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
# Table 2 of the paper: (d.a OP1 a) AND (a OP2 c) implies d.a OP c.
TABLE_2 = {
    ("=", "="): "=", ("<", "="): "<", ("<=", "="): "<=", (">", "="): ">", (">=", "="): ">=",
    ("=", "<"): "<", ("<", "<"): "<", ("<=", "<"): "<",
    ("=", "<="): "<=", ("<", "<="): "<", ("<=", "<="): "<=",
    ("=", ">"): ">", (">", ">"): ">", (">=", ">"): ">",
    ("=", ">="): ">=", (">", ">="): ">", (">=", ">="): ">=",
}  # fmt: skip


def dead(m: dibs.Matcher) -> set[Any]:
    """The subscriptions that are left out for the history as it is."""
    m.plan_joins(prefilter=True)
    m.match_batch([{"nothing": 1}])
    alive = m._matching.prefilter.in_use
    if alive is None:
        return set()
    found = set()
    for segment, rows in zip(alive.segments, alive.rows):
        if rows is not None:
            ids = segment.ids.ids.to_pylist()
            found |= {id for id, lives in zip(ids, rows.tolist()) if not lives}
    return found


@pytest.mark.parametrize("values", [[1], [2], [3], [1, 3], [1, 2, 3], []])
def test_table_2(values: list[int]) -> None:
    cells = [(first, second) for first in TESTS for second in TESTS]
    with dibs.Matcher() as m:
        m.add_many([(n, f"a {second} 2 AND EXISTS d (d.b {first} a)") for n, (first, second) in enumerate(cells)])
        m.history.load([{"b": value} for value in values])
        expected = set()
        for n, cell in enumerate(cells):
            test = TABLE_2.get(cell)
            if not any(test is None or TESTS[test](value, 2) for value in values):
                expected.add(n)
        assert dead(m) == expected


def test_table_2_is_necessary_and_the_first_row_is_enough() -> None:
    """For every cell, value of a document and value of an event."""
    for (first, second), implied in TABLE_2.items():
        for document in range(5):
            pairs = [(a, TESTS[first](document, a)) for a in range(5) if TESTS[second](a, 2)]
            if any(met for _, met in pairs):
                assert TESTS[implied](document, 2)
            if second == "=":
                assert TESTS[implied](document, 2) == pairs[0][1]


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("a = 10 AND EXISTS d (d.a = a)", {"a": 10}),  # example 6
        ("a < 10 AND EXISTS d (d.a = a)", {"a": 9}),  # example 7
        ("5 < a AND a <= 10 AND EXISTS d (d.a = a)", {"a": 10}),
        ("a BETWEEN 5 AND 10 AND EXISTS d (d.a < a)", {"a": 9}),
        ("a IN (3, 5) AND EXISTS d (d.b = a)", {"b": 5}),
        ("a IN (3, 5, 6, 7, 8, 9) AND EXISTS d (d.b >= a)", {"b": 3}),
        ("s LIKE 'ab%' AND EXISTS d (d.t = s)", {"t": "abc"}),
        ("s > 'm' AND EXISTS d (d.s = s AND d.x < x)", {"s": "n", "x": 0}),
        ("flag = TRUE AND EXISTS d (d.flag = flag)", {"flag": True}),
        ("EXISTS d (d.year > 1999 AND d.author = author)", {"year": 2000, "author": "Doe"}),
        ("a = 1 AND price < (SELECT MIN(d.price) FROM history d WHERE d.a = a)", {"a": 1, "price": 3}),
        ("price > 5 AND price < (SELECT MAX(d.price) FROM history d)", {"price": 6}),
        ("a = 1 AND (SELECT COUNT(*) FROM history d WHERE d.a = a) > 0", {"a": 1}),
        ("a = 1 AND (SELECT COUNT(DISTINCT d.s) FROM history d WHERE d.a = a) > 0", {"a": 1, "s": "x"}),
        ("a = 1 AND (SELECT SUM(d.price) FROM history d WHERE d.a = a) > 0", {"a": 1, "price": 3}),
        ("price > 5 AND price < (SELECT MIN_BY(d.price, d.a) FROM history d)", {"price": 6, "a": 1}),
        ("lower(s) = 'x' AND EXISTS d (lower(d.s) = lower(s))", {"s": "X"}),
        ("time < DATE '2024-01-01' AND EXISTS d (d.time = time)", {"time": "2023-12-31T23:59:59Z"}),
        ("time < DATE '2024-01-01' AND EXISTS d (d.time < time + INTERVAL 0 DAYS)", {"time": "2023-12-31T23:59:58Z"}),
        ("time = DATE '2024-01-01' AND EXISTS d (d.time = time - INTERVAL 1 DAY)", {"time": "2023-12-31"}),
    ],
)
def test_a_document_that_is_needed(text: str, needed: dict[str, Any]) -> None:
    others = [{}, {"a": 11, "b": 1, "price": 5, "s": "a", "t": "ac", "flag": False, "year": 1999}]
    with dibs.Matcher(retain=3) as m:
        m.add("it", text)
        m.history.load(others)
        assert dead(m) == {"it"}
        m.history.add(needed)
        assert dead(m) == set()
        m.history.load([{}, {}, {}])  # which retention keeps instead
        assert dead(m) == {"it"}
        m.history.add(needed, key="k")
        assert dead(m) == set()
        m.history.prune(keys=["k"])
        assert dead(m) == {"it"}


@pytest.mark.parametrize(
    ("text", "forbidden", "allowed"),
    [
        ("isbn = 7 AND FORALL d (isbn <> d.isbn)", {"isbn": 7}, {"isbn": 8}),
        ("FORALL d (d.year > 1999)", {"year": 1999}, {"year": 2000}),
        ("FORALL d (d.year > 1999 AND price < d.price)", {"year": 1999}, {"year": 2000, "price": 1}),
        ("a = 3 AND NOT EXISTS d (d.a = a AND d.b > 5)", {"a": 3, "b": 6}, {"a": 3, "b": 5}),
        ("t = DATE '2024-01-02' AND NOT EXISTS d (d.t > t - INTERVAL 1 DAY)", {"t": "2024-01-02"}, {"t": "2024-01-01"}),
    ],
)
def test_a_document_that_must_not_be_there(text: str, forbidden: dict[str, Any], allowed: dict[str, Any]) -> None:
    with dibs.Matcher() as m:
        m.add("it", text)
        m.history.add(allowed)
        assert dead(m) == set()
        m.history.add(forbidden, key=1)
        assert dead(m) == {"it"}
        m.history.add(forbidden, key=2)
        m.history.prune(keys=[1])
        assert dead(m) == {"it"}
        m.history.prune(keys=[2])
        assert dead(m) == set()


def test_events_with_several_values_see_no_filter() -> None:
    """5 is below 10 and 20 is the document's: two values of one event."""
    with dibs.Matcher() as m:
        m.add("it", "a < 10 AND EXISTS d (d.a = a)")
        m.history.add({"a": 20})
        assert dead(m) == {"it"}
        assert m.match({"a": [5, 20]}) == ["it"] and m.match({"a": dibs.Range(5, 20)}) == ["it"]
        assert [list(ids) for ids in m.match_batch([{"a": 5}, {"a": [20, 5]}])] == [[], ["it"]]


def test_what_cannot_be_said_of_documents_is_not() -> None:
    texts = [
        "a < 10 AND (SELECT COUNT(*) FROM history d WHERE d.a = a) = 0",
        "a < 10 AND n > (SELECT COUNT(*) FROM history d WHERE d.a = a)",
        "a < 10 AND NOT EXISTS d (d.a = a)",
        "a = 1 OR EXISTS d (d.a = a)",
        "a <> 1 AND NOT EXISTS d (d.b IS NULL)",
        "time < TIMESTAMP '2024-01-01' AND EXISTS d (d.time < time)",  # strings are in an order of their own
        "time = DATE '2024-01-01' AND NOT EXISTS d (d.time = time)",  # one may be a time, the other a string
        "a = 1 AND EXISTS d (d.b + a > 7)",
    ]
    with dibs.Matcher() as m:
        m.add_many(list(enumerate(texts)))
        m.history.add({"a": 20, "b": 1, "time": 5})
        assert dead(m) == set()


# ---- never one too few ----


def narrow() -> st.SearchStrategy[Expression]:
    """A join beside tests of the event, by which it is filtered."""
    constants = st.lists(predicates(extremes=True), min_size=1, max_size=3)
    joins = st.lists(join_predicates(), min_size=1, max_size=2)
    both = st.tuples(constants, joins).map(lambda parts: And((*parts[0], *parts[1])))
    return st.one_of(both, both, both, subscriptions())


@given(
    st.lists(narrow(), min_size=1, max_size=6),
    st.lists(documents(), max_size=6),
    st.lists(events(), min_size=1, max_size=5),
    st.sampled_from(["joins", "constants"]),
)
def test_no_match_is_lost(trees: list[Expression], older: list[Any], seen: list[Any], order: str) -> None:
    expected = [[n for n, tree in enumerate(trees) if matches(tree, event, older)] for event in seen]
    with dibs.Matcher() as m:
        m.plan_joins(order=order, prefilter=True)
        m.add_many(list(enumerate(map(to_sql, trees))))
        m.history.load(older)
        assert [list(ids) for ids in m.match_batch(seen)] == expected
        assert [m.match(event) for event in seen] == expected


@given(
    st.lists(narrow(), min_size=1, max_size=5),
    st.lists(documents(), min_size=1, max_size=8),
    st.sampled_from([None, 1, 3]),
    st.integers(0, 2**32),
)
def test_no_match_is_lost_as_documents_come_and_go(
    trees: list[Expression], seen: list[Any], retain: int | None, seed: int
) -> None:
    random = Random(seed)
    with dibs.Matcher(retain=retain) as m:
        m.plan_joins(order=random.choice(["joins", "constants", None]), prefilter=True)
        m.add_many(list(enumerate(map(to_sql, trees))))
        kept: list[Any] = []
        while seen:
            batch, seen = seen[: random.randint(1, 3)], seen[3:]
            expected = []
            for event in batch:
                expected.append([n for n, tree in enumerate(trees) if matches(tree, event, [d for _, d in kept])])
                kept = [*kept, (None, event)][-retain if retain else 0 :]
            assert [list(ids) for ids in m.match_batch(batch, remember=True)] == expected
            if random.random() < 0.5:
                document = random.choice(batch)
                m.history.add(document, key=(key := random.randint(0, 2**60)))
                kept = [*kept, (key, document)][-retain if retain else 0 :]
                if random.random() < 0.5:
                    m.history.prune(keys=[key])
                    kept = [each for each in kept if each[0] != key]
                event = random.choice(batch)
                expected_now = [n for n, t in enumerate(trees) if matches(t, event, [d for _, d in kept])]
                assert m.match(event) == expected_now
