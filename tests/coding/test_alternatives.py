"""OR over one attribute becomes one predicate: the same answers, in fewer steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.coding.alternatives import join_alternatives
from dibs.coding.clauses import Clauses, code_clauses
from dibs.language.flatten import program_table
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.language.table import Facet
from dibs.reference import evaluate


def joined(text: str) -> Clauses:
    domains, clauses = code_clauses(program_table([normal_form(parse(text))]))
    facet = domains.facet
    gapless = (facet == Facet.PATTERN) | (facet == Facet.NO_PATTERN)
    result, place = join_alternatives(clauses, np.zeros(len(facet), np.bool_), gapless)
    assert place.tolist() == [0]
    return result


@pytest.mark.parametrize(
    ("text", "predicates", "conjunctions"),
    [
        ("a = 1 OR a < 0 OR a LIKE 'x%'", 1, 1),
        ("a LIKE 'x%' OR a LIKE 'y%' OR a LIKE 'x%z%'", 2, 0),  # the last one is a pattern
        ("a LIKE '%x%y' OR a LIKE '%z%' OR a RLIKE '[0-9]'", 1, 1),
        ("a < 1 OR b = 1 OR a > 5 OR b > 7", 2, 0),
        ("c = 1 AND (a < 1 OR a > 5) AND d = 2", 3, 1),
        ("c = 1 AND (a < 1 OR a > 5) OR d = 2 OR d > 5", 3, 0),
        ("(c = 1 AND a < 1) OR a > 5", 3, 0),  # the last one is also asked when c = 1 does not hold
        ("a < 1 AND a > 5 OR b = 1", 3, 0),  # AND is no list: arrays
        ("a IS NULL OR a = 1 OR a > 5", 2, 0),  # what absence satisfies stays by itself
        ("NOT (a = 1 AND a < 5)", 1, 1),  # a <> 1 OR a >= 5
        ("NOT (a = 1 OR a > 5) OR b = 1", 3, 0),
        ("a NOT LIKE '%x%' OR a NOT LIKE '%y%'", 1, 1),
    ],
)
def test_tests_of_one_attribute_are_one_predicate(text: str, predicates: int, conjunctions: int) -> None:
    clauses = joined(text)
    assert (len(clauses.attribute), clauses.conjunctions) == (predicates, conjunctions)


def test_spans_are_sorted_and_apart() -> None:
    clauses = joined("a > 5 OR a = 1 OR a < 0 OR a = 3 OR a BETWEEN 4 AND 7")
    low, high = clauses.span_lo.tolist(), clauses.span_hi.tolist()
    assert clauses.hi.tolist() == [-len(low)] and len(low) == 4
    assert all(x <= y for x, y in zip(low, high)) and all(y + 1 < x for x, y in zip(low[1:], high))


def test_neighbouring_patterns_stay_apart() -> None:
    """Another pattern may come between them when segments are merged: `b` is between `a` and `c`."""
    m = dibs.Matcher()
    m.add("first", "s LIKE '%a%' OR s LIKE '%c%'")
    assert m.match({"s": "xbx"}) == [] and m.match({"s": "xcx"}) == ["first"]
    m.match_batch([{}])
    m.add_many([(f"b{i}", f"s LIKE '%b%' AND n = {i}") for i in range(50)])
    m.compact()
    assert m.match({"s": "xbx", "n": 7}) == ["b7"] and m.match({"s": "xax"}) == ["first"]


def test_over_arrays_not_is_pushed_down_first() -> None:
    m = dibs.Matcher()
    m.add("none of them", "NOT (a = 1 OR a = 2)")
    m.add("not in", "a NOT IN (1, 2)")
    m.add("either", "a < 2 OR a > 8")
    for event, expected in (
        ({"a": [1, 2]}, ["either", "none of them"]),
        ({"a": [5, 9]}, ["either", "none of them", "not in"]),
        ({"a": [5]}, ["none of them", "not in"]),
    ):
        assert m.match(event) == expected
        assert [list(found) for found in m.match_batch([event])] == [expected]


def test_explanations_show_each_test() -> None:
    m = dibs.Matcher()
    m.add("x", "a = 1 OR a LIKE 'x%' OR a > 7")
    told = str(m.explain("x", {"a": 9}))
    assert "a = 1" in told and "LIKE 'x%'" in told and "a > 7" in told


TESTS = ("{} = 1", "{} <> 2", "{} < 2", "{} BETWEEN 1 AND 2", "{} IN (0, 3)", "{} NOT IN (1, 3)", "{} IS NULL",
         "{} > 2", "{} LIKE 'x%'", "{} LIKE '%y'", "{} LIKE '%z%'", "{} NOT LIKE '%z%'", "{} IS NOT NULL")  # fmt: skip
leaves = st.builds(str.format, st.sampled_from(TESTS), st.sampled_from("ab"))


def _both(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    some = st.lists(children, min_size=2, max_size=5)
    joined = (some.map(f" {word} ".join).map("({})".format) for word in ("OR", "AND"))
    return st.one_of(*joined, children.map("NOT {}".format))


values = st.sampled_from([None, 0, 1, 2, 3, "x", "xy", "zy", [1, 2], [0, "x"], ["xz", 3]])


expressions = st.lists(st.recursive(leaves, _both, max_leaves=12), min_size=1, max_size=6)


@given(expressions, st.lists(st.tuples(values, values)))
def test_answers_are_those_of_the_reference(texts: list[str], pairs: list[tuple[Any, Any]]) -> None:
    """The reference, which knows nothing of spans, decides."""
    m = dibs.Matcher()
    m.add_many(list(enumerate(texts)))
    events = [{"a": a, "b": b} for a, b in pairs]
    expected = [[i for i, text in enumerate(texts) if evaluate(parse(text), event) is True] for event in events]
    assert [list(found) for found in m.match_batch(events)] == expected
