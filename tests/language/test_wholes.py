"""Arrays as wholes: which conditions are TRUE, FALSE and UNKNOWN for which events, worked out by hand."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import dibs
from dibs.language.functions import arrays
from dibs.language.sql import parse, validate
from dibs.matcher import Matcher
from dibs.reference import evaluate
from lanes import check_lanes, check_without_kernels, negated
from wholes import EVENTS, HOLDS, SCHEMA

SEVERAL = ("a[0] = 7", "element_at(a, 1) = 1")  # of which an array of arrays satisfies both the test and its negation


@pytest.mark.parametrize("text", HOLDS)
def test_without_kernels(text: str) -> None:
    check_without_kernels(text, HOLDS, EVENTS)


def test_every_lane() -> None:
    some = {text: truths for text, truths in HOLDS.items() if text not in SEVERAL}
    check_lanes(some | negated(some), EVENTS, SCHEMA)


def found(expression: str, *events: dict[str, Any]) -> list[bool | None]:
    """What the evaluator says, after all ways have agreed on who matches."""
    truths = [evaluate(parse(expression), event) for event in events]
    with Matcher() as matcher:
        matcher.add("it", expression)
        assert [matcher.match(event) == ["it"] for event in events] == [truth is True for truth in truths]
        for several in (1, 10):
            matched = [bool(ids) for ids in matcher.match_batch(list(events) * several)]
            assert matched == [truth is True for truth in truths] * several
    return truths


def test_values_that_json_does_not_have() -> None:
    day = dt.date(2024, 2, 29)
    times = {"at": [day, dt.datetime(2024, 3, 1, 12)], "x": [float("nan"), 1.5], "big": [2**64, 2**63]}
    assert found("exists(at, x -> x = DATE '2024-02-29')", times) == [True]
    assert found("at[1] > TIMESTAMP '2024-03-01 11:00:00'", times) == [True]
    assert found("exists(at, x -> hour(x) = 12)", times) == [True]
    assert found("exists(x, y -> y > 1e300)", times) == [True]
    assert found("arrays_overlap(at, array('2024-02-29'))", times) == [True]
    assert found("big[0] = 18446744073709551616", times) == [True]
    assert found("size(a) = 2", {"a": (1, 2)}, {"a": {1, 2}}, {"a": frozenset([1])}) == [True, True, False]


def test_ranges_and_what_cannot_be_read() -> None:
    assert found("size(a) = 2", {"a": [dibs.Range(1, 2), 3]}) == [None]
    assert found("size(a) IS NULL", {"a": [dibs.Range(1, 2), 3]}) == [None]
    with Matcher() as matcher:
        matcher.add("it", "size(a) = 2")
        with pytest.raises(dibs.EventError, match="bytes"):
            matcher.match({"a": [b"x", 3]})
        result = matcher.match_batch([{"a": [b"x", 3]}, {"a": [1, 2], "b": b"x"}], on_error="skip")
        assert [list(ids) for ids in result] == [[], ["it"]]
        assert [(problem.event, problem.attribute) for problem in result.problems] == [(0, "a")]
        table = pa.table({"a": pa.array([[b"x"], [b"y", b"z"]], pa.list_(pa.binary()))})
        assert [problem.attribute for problem in matcher.match_batch(table, on_error="skip").problems] == ["a", "a"]


def test_names_of_our_own_are_nobodys() -> None:
    for key in ("\0\x11a", "\0\x12a", "\0\x13"):
        event = {key: ["x", "y"]}
        assert found("size(a) = 2 OR is_present(a)", event) == [None]
    inside = {"a": [{"\0": 5}, {"\0": "nan"}]}
    assert found("exists(a, x -> x > 1)", inside) == [None]


def test_depth() -> None:
    deep: Any = 1
    for _ in range(199):
        deep = [deep]
    assert found("exists(a, x -> x = 1)", {"a": deep}, {"a": [deep]}) == [True, True]
    with Matcher() as matcher:
        matcher.add("it", "exists(a, x -> x = 1)")
        for event in ({"a": [[deep]]}, {"a": {"b": [[deep]]}}):
            with pytest.raises(dibs.EventError, match="more than 200"):
                matcher.match(event)
        matcher.add("other", "exists(b.c, x -> x = 1)")
        assert matcher.match({"b": {"d": [[[deep]]], "c": 1}}) == ["other"]


def test_many_elements_are_tried_and_too_many_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MOST_TRIALS", 1000)
    assert found("exists(a, x -> x = -1)", {"a": list(range(1000))}, {"a": list(range(1001))}) == [False, None]
    assert found("exists(a, x -> x = -1 - b)", {"a": list(range(100)), "b": list(range(11))}) == [None]
    assert found("exists(a, x -> exists(a, y -> y = x + 1000))", {"a": list(range(40))}) == [None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size(5) = 1", "size takes an array here, not a number"),
        ("size(lower(a)) = 1", "size takes an array here, not a string"),
        ("array(1, 2) = a", "an array as a whole is not compared"),
        ("exists(a, x -> x * 1)", "exists takes a condition here, not a number or an interval"),
        ("exists(a, x.y -> x = 1)", "the element has a name without dots"),
        ("exists(a, x -> )", "a value is expected, not )"),
        ("exists(a, x -> x = 1", ") is expected, not the end"),
        ("a[0 = 1", "] is expected, not the end"),
        ("a[0]. = 1", "a name is expected, not ="),
        ("a -> 1", "-> is not expected here"),
        ("is_present(a + 1)", "is_present takes an attribute"),
        ("lower(array('x')) = 'x'", "lower takes a string here, not an array"),
        ("EXISTS d (size(d.a || a) = 1)", "size takes an array here, not a string"),
    ],
)
def test_problems(text: str, message: str) -> None:
    problems = validate(text)
    assert message in [problem.message for problem in problems], [problem.message for problem in problems]
    assert all(0 <= problem.start <= problem.end <= len(text) and problem.advice for problem in problems)


def test_variables_have_no_names() -> None:
    """Whatever they are called, the value is the same attribute, and no attribute of the event is taken for one."""
    same = ["exists(a, x -> x > 1)", "exists(a, y -> y > 1)", "EXISTS(a, long_name -> long_name > 1)"]
    assert len({parse(text) for text in same}) == 1
    assert parse("exists(a, x -> x > y)") == parse("exists(a, q -> q > y)") != parse("exists(a, y -> y > y)")
    nested = "exists(a, x -> exists(x.b, x -> x > 1))"  # the inner one hides the outer one
    assert parse(nested) == parse("exists(a, x -> exists(x.b, y -> y > 1))")
    assert found(nested, {"a": [{"b": [0, 2]}]}) == [True]
    assert found("exists(a, x -> x = `x y`) AND `x` = 3", {"a": [2], "x y": 2, "x": 3}) == [True]
