"""The reference evaluator, case by case: it judges everything else, so here nothing but hand-made answers judges it."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections import Counter
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches import FORMS, random_case
from dibs.coding.values import Range
from dibs.errors import EventError
from dibs.language.expression import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Between,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    RLike,
    StringTest,
    literal,
)
from dibs.language.expression import predicates as leaves_of
from dibs.reference import evaluate, is_like, matches, values_of
from strategies import events, expressions, json_events, predicates, scalars


def compare(operator: str, constant: Any) -> Compare:
    return Compare("a", operator, literal(constant))


def one_of(*constants: Any, negated: bool = False, null: bool = False) -> In:
    return In("a", tuple(literal(c) for c in constants), negated, null)


def between(low: Any, high: Any, negated: bool = False) -> Between:
    return Between("a", literal(low), literal(high), negated)


def truths(predicate: Any, *values: Any) -> list[bool | None]:
    return [evaluate(predicate, {"a": value}) for value in values]


# --- single values ---


def test_comparisons_of_numbers() -> None:
    assert truths(compare("=", 5), 5, 5.0, 4, np.int8(5), np.float32(5)) == [True, True, False, True, True]
    assert truths(compare("<", 5), 4.999, 5, 6) == [True, False, False]
    assert truths(compare(">=", 5), 4.999, 5, 6) == [False, True, True]
    assert truths(compare("<>", 5), 5, 4) == [False, True]


def test_integers_and_floats_compare_exactly() -> None:
    assert truths(compare("=", 2**53), 2**53, 2**53 + 1, 2.0**53) == [True, False, True]
    assert truths(compare(">", 2.0**53), 2**53 + 1, 2**53) == [True, False]
    assert truths(compare("<", 0.1), decimal.Decimal("0.1"), 0.1, math.nextafter(0.1, 0)) == [False, False, True]
    assert truths(compare("=", 2**64 - 1), 2**64 - 1, 2.0**64, 2**64) == [True, False, False]
    assert truths(compare("=", 2.0**64), 2**64, 2**64 + 1) == [True, True]  # beyond 64 bits: the nearest float
    assert truths(compare("=", math.inf), 10**400, math.inf) == [True, True]
    assert truths(compare("=", 3), decimal.Decimal("3.000"), decimal.Decimal(2**63) / 2**63 * 3) == [True, True]


@given(st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False)), st.data())
def test_order_of_numbers_is_that_of_fractions(value: int | float, data: st.DataObject) -> None:
    near = [value, math.nextafter(float(value), -1e400), int(value), min(int(value) + 1, 2**64 - 1)]
    other = data.draw(st.sampled_from([x for x in near if abs(x) < 2**63 or isinstance(x, float)] + [0, 2**53 + 1]))
    if math.isinf(other):
        return
    expected = Fraction(value) < Fraction(other)
    assert evaluate(Compare("a", "<", literal(other)), {"a": value}) is expected
    assert evaluate(Compare("a", ">=", literal(other)), {"a": value}) is not expected


def test_nan_equals_itself_and_is_above_every_number() -> None:
    assert truths(compare("=", math.nan), math.nan, np.float32("nan"), math.inf, 1) == [True, True, False, False]
    assert truths(compare(">", math.inf), math.nan, math.inf) == [True, False]
    assert truths(compare(">", 2**63), math.nan) == [True]
    assert truths(compare("<=", math.nan), math.nan, 1, -math.inf) == [True, True, True]
    assert truths(one_of(1, math.nan), math.nan, 2) == [True, False]
    assert truths(compare("=", 0), decimal.Decimal("sNaN")) == [False]


def test_negative_zero_is_zero() -> None:
    assert truths(compare("=", 0), -0.0, 0.0, 0) == [True, True, True]
    assert truths(compare("<", 0), -0.0, -5e-324) == [False, True]


def test_strings_are_ordered_by_utf8_bytes() -> None:
    assert truths(compare("<", "\U0001f600"), "\uffff", "z", "\U0001f601") == [True, True, False]
    assert truths(compare(">", ""), "a", "", "\0") == [True, False, True]
    assert truths(compare("<", "a"), "A", "B", "aa") == [True, True, False]


def test_times() -> None:
    midnight = dt.datetime(2024, 2, 29)
    in_india = dt.datetime(2024, 2, 29, 5, 30, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))
    day = compare("=", midnight.date())
    assert truths(day, midnight, midnight.date(), in_india, np.datetime64("2024-02-29")) == [True, True, True, True]
    assert truths(day, np.datetime64("2024-02-29T00:00:00.000000999", "ns")) == [True]  # microseconds, the rest is cut
    assert truths(compare(">", midnight), midnight + dt.timedelta(microseconds=1), midnight) == [True, False]
    year_20000 = np.datetime64("20000-01-01")
    assert truths(compare(">", dt.datetime.max), year_20000, [midnight, year_20000]) == [True, True]
    far_east = dt.timezone(dt.timedelta(hours=14))
    assert truths(compare("<", dt.date.min), dt.datetime.min, dt.datetime.min.replace(tzinfo=far_east)) == [False, True]


def test_a_comparison_across_kinds_is_unknown() -> None:
    for value in ("1", True, dt.date(2024, 1, 1)):
        assert truths(compare("=", 1), value) == truths(compare("<>", 1), value) == [None]
    assert truths(compare("=", True), 1, np.bool_(True)) == [None, True]
    assert truths(compare("=", "2024-01-01"), dt.date(2024, 1, 1)) == [None]
    assert (
        truths(StringTest("a", "CONTAINS", "1"), 1) == truths(Like("a", "%"), 1) == truths(RLike("a", "."), 1) == [None]
    )
    assert truths(StringTest("a", "CONTAINS", "1", True), 1) == [None]


def test_in_lists() -> None:
    assert truths(one_of(1, 3), 1, 2, "x") == [True, False, None]
    assert truths(one_of(1, 3, negated=True), 1, 2, "x") == [False, True, None]
    assert truths(one_of(1, 3, null=True), 1, 2) == [True, None]
    assert truths(one_of(1, 3, negated=True, null=True), 1, 2) == [False, None]
    assert truths(one_of(1, "x"), 1, "x", 2, "y", True) == [True, True, None, None, None]
    assert truths(one_of(1, "x", negated=True), 1, "x", 2, "y") == [False, False, None, None]
    assert truths(one_of(null=True), 1) == truths(one_of(null=True, negated=True), 1) == [None]


def test_between() -> None:
    assert truths(between(1, 3), 0.999, 1, 3, 3.001) == [False, True, True, False]
    assert truths(between(1, 3, negated=True), 0.999, 1, 3, 3.001) == [True, False, False, True]
    assert truths(between(3, 1), 2, 0) == [False, False]
    assert truths(between(3, 1, negated=True), 2, 0) == [True, True]
    # 1 <= a AND a <= 'x': FALSE where the half that can be compared is, else unknown
    assert truths(between(1, "x"), 0, 2, "a", "z") == [False, None, None, False]
    assert truths(between(1, "x", negated=True), 0, 2, "a", "z") == [True, None, None, True]


def test_strings_functions_and_patterns() -> None:
    for function, text in (("STARTSWITH", "ab"), ("ENDSWITH", "bc"), ("CONTAINS", "b")):
        assert truths(StringTest("a", function, text), "abc", "xyz", "") == [True, False, False]
        assert truths(StringTest("a", function, text, True), "abc", "xyz", "") == [False, True, True]
        assert truths(StringTest("a", function, ""), "", "x") == [True, True]
    assert truths(RLike("a", "^b+$"), "bbb", "abbb", "b\n") == [True, False, False]
    assert truths(RLike("a", "(a|aa)+$"), "a" * 5000 + "b") == [False]
    assert truths(RLike("a", "é.", True), "xéß") == [False]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", "ABC"]),
        ("a%", ["a", "ab", "a\nb"], ["", "ba"]),
        ("%b", ["b", "ab"], ["ba"]),
        ("_", ["a", "é", "\U0001f600", "\n"], ["", "ab"]),
        ("%a%b%", ["ab", "xaxbx"], ["ba", "a"]),
        ("a\\%b", ["a%b"], ["axb", "a\\%b"]),
        ("a\\_", ["a_"], ["ab"]),
        ("a\\\\b", ["a\\b"], ["ab"]),
        ("__%", ["ab", "abc"], ["a"]),
        ("%_%", ["a"], [""]),
    ],
)
def test_like(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [is_like(text, pattern, "\\") for text in yes + no] == [True] * len(yes) + [False] * len(no)


def test_like_with_its_own_escape_and_without_end() -> None:
    assert truths(Like("a", "a!%", "!"), "a%", "ab") == [True, False]
    assert truths(Like("a", "%a" * 40 + "b"), "a" * 300) == [False]


# --- absence ---


def test_predicates_over_nothing_are_unknown() -> None:
    tests: list[Predicate] = [
        compare("<>", 1),
        one_of(1, negated=True),
        between(1, 2, True),
        Like("a", "%", "\\", True),
    ]
    nothing = (None, [], [None, []], {}, {"b": 1}, np.datetime64("NaT"), pd.NaT, [pd.NA])
    for event in ({}, {"b": 1}, *({"a": value} for value in nothing)):
        assert [evaluate(test, event) for test in tests] == [None] * 4
        assert evaluate(IsNull("a"), event) is True
        assert evaluate(IsNull("a", negated=True), event) is False
    for value in (0, "", False, math.nan, [None, 1], Range(1, 2)):
        assert truths(IsNull("a"), value) == [False]
        assert truths(IsNull("a", negated=True), value) == [True]


def test_values_of_no_kind_make_everything_unknown() -> None:
    for value in (
        b"x",
        object(),
        1j,
        dt.time(1),
        dt.timedelta(1),
        "\ud800",
        Range(None, None),
        Range(1, "x"),
        Range(2, 1),
    ):
        assert truths(compare("=", 1), value) == truths(IsNull("a"), value) == [None], value
        assert truths(IsNull("a", negated=True), value) == [None]
        assert truths(compare("=", 1), [value, 1]) == truths(IsNull("a", negated=True), [value, 1]) == [True]


def test_events_that_are_none() -> None:
    with pytest.raises(EventError, match="mapping"):
        evaluate(TRUE, [1])  # type: ignore[arg-type]
    circle: dict[str, Any] = {}
    circle["a"] = [circle]
    with pytest.raises(EventError, match="inside each other"):
        evaluate(TRUE, circle)
    with pytest.raises(EventError, match="attribute 'a': the attribute name 5 is not a string"):
        evaluate(TRUE, {"a": {5: 1}})


# --- three-valued logic ---


def test_truth_tables() -> None:
    constants = {True: TRUE, False: FALSE, None: UNKNOWN}
    for x, left in constants.items():
        assert evaluate(Not(left), {}) is (None if x is None else not x)
        for y, right in constants.items():
            both = False if x is False or y is False else None if x is None or y is None else True
            either = True if x is True or y is True else None if x is None or y is None else False
            assert evaluate(And((left, right)), {}) is both
            assert evaluate(Or((left, right)), {}) is either


def test_a_tree_deeper_than_the_stack_of_python() -> None:
    deep: Any = compare("=", 1)
    for level in range(20_000):
        deep = Not(deep) if level % 2 else And((TRUE, Or((FALSE, deep))))
    assert evaluate(deep, {"a": 1}) is True
    assert evaluate(deep, {"a": 2}) is False


# --- arrays and objects ---


def test_some_element_of_an_array_is_enough() -> None:
    both = [1, 2]
    assert truths(And((compare("=", 1), compare("=", 2))), both) == [True]
    assert truths(compare("<>", 1), both, [1], [1, 1]) == [True, False, False]
    assert truths(Not(compare("=", 1)), both, [1], [None, 1]) == [True, False, False]
    assert truths(one_of(1, 2, negated=True), both, [1, 2, 3]) == [False, True]
    assert truths(between(2, 3), [1, 4], [1, 2]) == [False, True]  # one element has to be inside
    assert truths(between(2, 3, negated=True), [2, 3], [2, 3, 4]) == [False, True]
    assert truths(compare("=", 1), ["x", None], ["x", 2], [[["x"], 1]]) == [None, False, True]
    assert truths(compare("=", 1), (2, 1), np.array([2, 1]), np.array(1), np.array([[2], [1]]), {1, 2}) == [True] * 5
    # De Morgan holds: NOT (a = 1 OR a = 2) asks for an element that is not 1 and for one that is not 2
    assert truths(Not(Or((compare("=", 1), compare("=", 2)))), both, [1]) == [True, False]


def test_objects_are_dotted_paths() -> None:
    event = {"a": {"b": [{"c": 1}, {"c": [2, None]}, 7], "d": None, "": "x"}, "a.b.c": 3, "": {"e": 4}}
    assert values_of(event) == {"a.b.c": [1, 2, 3], "a.b": [7], "a.": ["x"], ".e": [4]}


# --- ranges ---


def test_a_range_satisfies_what_one_of_its_values_does() -> None:
    assert truths(compare("=", 3), Range(3, 4), Range(2, 3), Range(3.5, 4)) == [True, True, False]
    assert truths(compare("<", 3), Range(3, 4), Range(2.9, 4), Range(None, 9)) == [False, True, True]
    assert truths(compare(">", 3), Range(1, 3), Range(1, 3.1), Range(9, None)) == [False, True, True]
    assert truths(compare("<>", 3), Range(3, 3), Range(3, 4)) == [False, True]
    assert truths(between(1, 2), Range(2, 5), Range(3, 5)) == [True, False]
    assert truths(between(1, 2, negated=True), Range(1, 2), Range(1, 2.1)) == [False, True]
    assert truths(compare("=", "x"), Range(1, 2)) == [None]
    assert truths(compare("=", 3), [1, Range(2, 4)]) == [True]


def test_ranges_are_dense() -> None:
    assert truths(one_of(3, 4, negated=True), Range(3, 4), Range(3, 3)) == [True, False]
    moment = dt.datetime(2024, 1, 1)
    next_one = moment + dt.timedelta(microseconds=1)
    assert truths(one_of(moment, next_one, negated=True), Range(moment, next_one)) == [True]
    assert truths(one_of("a", "a\0", negated=True), Range("a", "a\0")) == [True]


def test_booleans_are_just_two_values() -> None:
    assert truths(one_of(True, False, negated=True), Range(False, True)) == [False]
    assert truths(compare(">", True), Range(False, None)) == truths(compare("<", False), Range(None, True)) == [False]
    assert truths(compare("=", True), Range(False, None), Range(None, False)) == [True, False]


def test_nothing_lies_beyond_the_last_value_of_a_kind() -> None:
    assert truths(compare(">", math.inf), Range(0, None)) == [True]  # NaN
    assert truths(compare(">", math.nan), Range(0, None)) == [False]
    assert truths(compare("<", -math.inf), Range(None, 0)) == [False]
    assert truths(compare("<", ""), Range(None, "a")) == [False]
    assert truths(compare(">", "\U0010ffff"), Range("a", None)) == [True]
    assert truths(compare(">", dt.datetime.max), Range(dt.date(2024, 1, 1), None)) == [True]


def test_prefixes_and_patterns_over_ranges() -> None:
    starts = StringTest("a", "STARTSWITH", "ab")
    assert truths(starts, Range("a", "b"), Range("ac", "b"), Range("abz", "b"), Range("a", "aa")) == [
        True,
        False,
        True,
        False,
    ]
    assert truths(starts._replace(negated=True), Range("ab", "abz"), Range("ab", "ac")) == [False, True]
    assert truths(Like("a", "ab%"), Range("abc", "abd"), Range("ac", "b")) == [True, False]
    assert truths(Like("a", "ab"), Range("a", "b"), Range("abc", "b")) == [True, False]
    assert truths(Like("a", "a\\%"), Range("a%", "a%")) == [True]
    assert truths(Like("a", "%", "\\", True), Range("a", "b")) == [False]
    assert truths(StringTest("a", "CONTAINS", ""), Range("a", "b")) == [True]
    for test in (Like("a", "%b"), RLike("a", "."), StringTest("a", "ENDSWITH", "b"), StringTest("a", "CONTAINS", "b")):
        assert truths(test, Range("a", "b"), Range("ab", "ab")) == [None, None]
        assert truths(test._replace(negated=True), Range("a", "b")) == [None]
    assert truths(starts, Range(1, 2)) == [None]


@given(predicates(extremes=True, attributes=["a"]), scalars())
def test_a_range_of_one_value_is_that_value(predicate: Predicate, value: Any) -> None:
    as_range = evaluate(predicate, {"a": Range(value, value)})
    assert as_range in (evaluate(predicate, {"a": value}), None)
    if not isinstance(predicate, (Like, RLike, StringTest)):
        assert as_range is evaluate(predicate, {"a": value})


# --- laws ---


@given(expressions(extremes=True), events())
def test_two_nots_cancel(expression: Any, event: dict[str, Any]) -> None:
    assert evaluate(Not(Not(expression)), event) is evaluate(expression, event)


@given(expressions(extremes=True), events(arrays=False, with_ranges=False))
def test_not_is_three_valued_for_single_values(expression: Any, event: dict[str, Any]) -> None:
    truth = evaluate(expression, event)
    assert evaluate(Not(expression), event) is (None if truth is None else not truth)
    assert matches(expression, event) is (truth is True)


@pytest.mark.parametrize("event_strategy", [events(), json_events()], ids=["events", "json_events"])
def test_random_pairs_match_often_and_fail_often(event_strategy: st.SearchStrategy[dict[str, Any]]) -> None:
    """The pools of the strategies are small enough for properties over them to mean something."""
    counts = Counter[bool | None]()

    @settings(max_examples=200)
    @given(expressions(), event_strategy)
    def count(expression: Any, event: dict[str, Any]) -> None:
        counts[evaluate(expression, event)] += 1

    count()
    assert min(counts[True], counts[False], counts[None]) > 0.1 * counts.total(), counts


@pytest.mark.parametrize("form", FORMS)
def test_cases_match_often_and_fail_often(form: str) -> None:
    """The same of the seeded ones, and none of the things that they are for is missing."""
    truths_found, has = Counter[bool](), Counter[str]()
    for seed in range(120):
        expressions_here, batch = random_case(Random(seed), 12, 6, form)
        truths_found.update(matches(e, event) for e in expressions_here for event in batch.events)
        kinds = [{x.kind for x in literals_of(p)} for e in expressions_here for p in leaves_of(e)]
        has["several kinds in one predicate"] += any(len(found) > 1 for found in kinds)
        has["IS NOT NULL"] += any(p == IsNull(p.attribute, True) for e in expressions_here for p in leaves_of(e))
        several = {p.attribute for e in expressions_here for p in leaves_of(e)}
        has["several kinds for one attribute"] += any(
            len({x.kind for e in expressions_here for p in leaves_of(e) if p.attribute == a for x in literals_of(p)})
            > 1
            for a in several
        )
        values = [value for event in batch.events for found in values_of(event).values() for value in found]
        for value in values:
            has[type(value).__name__] += 1
        has["array"] += any(len(found) > 1 for event in batch.events for found in values_of(event).values())
        has["huge"] += any(isinstance(value, int) and abs(value) > 2**53 for value in values)
        has["single values only"] += all(
            len(found) == 1 for event in batch.events for found in values_of(event).values()
        )
    assert 0.1 < truths_found[True] / truths_found.total() < 0.5
    wanted = [
        "several kinds in one predicate",
        "IS NOT NULL",
        "several kinds for one attribute",
        "bool",
        "int",
        "float",
    ]
    wanted += ["str", "huge", "single values only", *(["array"] if form != "map" else [])]
    wanted += ["datetime"] * (form != "json") + ["Range", "OfNoKind"] * (form == "python")
    assert [what for what in wanted if has[what] < 3] == []


def literals_of(predicate: Predicate) -> list[Literal]:
    match predicate:
        case Compare(_, _, constant):
            return [constant]
        case In(_, constants):
            return list(constants)
        case Between(_, low, high):
            return [low, high]
    return []
