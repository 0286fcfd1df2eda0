"""Warnings of what can never be TRUE: each is right, by the reference over values of all kinds."""

from __future__ import annotations

import datetime as dt
import json
from random import Random

import pytest
from hypothesis import given

import dibs
from dibs.language.expression import Expression, attributes
from dibs.language.never import find_warnings
from dibs.language.printer import to_sql
from dibs.language.sql import parse, validate
from dibs.matcher import Matcher
from dibs.reference import evaluate
from strategies import expressions

NEVER = [
    "a > 5 AND a < 3",
    "a = 1 AND a = 2",
    "a >= 5 AND a < 5",
    "a IN (1, 2) AND a > 2",
    "a IN (1, 2) AND a IN (3)",
    "x = NULL",
    "a <> NULL",
    "a NOT IN (1, NULL)",
    "FALSE",
    "NULL",
    "a BETWEEN 5 AND 3",
    "a IS NULL AND a = 1",
    "a = 1 AND a = 'x'",
    "a LIKE 'x%' AND a > 5",
    "b = 1 AND (a > 5 AND a < 3)",
    "a < 'a' AND a > 'b'",
    "t < DATE '2024-01-01' AND t > DATE '2025-01-01'",
    "a AND NOT a",
    "(a > 5 AND a < 3) OR (b > 5 AND b < 3)",
]
MAYBE = [
    "a > 3 AND a < 5",
    "a = 1",
    "a >= 5 AND a <= 5",
    "a IN (1, 2) AND a >= 2",
    "a <> 1 AND a <> 2",
    "a IS NULL",
    "a BETWEEN 3 AND 3",
    "t > DATE '2024-01-01' AND t = '2024-05-01'",
    "NOT (a > 5 AND a < 3)",
    "TRUE",
    "(a > 5 AND a < 3) IS NOT TRUE",
    "a = CAST('NaN' AS DOUBLE) AND a > 5",
    "lower(a) = 'x' AND a = 'X'",
    "a > 5 OR a < 3",
    "a IS NOT NULL AND a = 1",
]


@pytest.mark.parametrize("text", NEVER)
def test_what_is_never_true(text: str) -> None:
    found = validate(text)
    assert found == [] and found.warnings, text
    for warning in found.warnings:
        assert "never TRUE" in warning.message and warning.advice and warning.text == text
    with dibs.Matcher() as matcher:
        matcher.add(1, text)  # it is accepted


@pytest.mark.parametrize("text", MAYBE)
def test_what_may_be_true(text: str) -> None:
    assert validate(text) == [] and validate(text).warnings == []


WINDOW = "EXISTS d (d.user = user AND d.time > time - INTERVAL 5 MINUTES AND {})"


@pytest.mark.parametrize("test", ["d.time <= time", "time > d.time", "(d.time < time OR d.n = 1)"])
def test_times_that_are_compared_as_strings(test: str) -> None:
    text = WINDOW.format(test)
    (warning,) = validate(f"n = 1 AND {text}").warnings
    assert "compares strings" in warning.message and "to_timestamp" in warning.advice
    (within,) = validate(
        f"EXISTS e (e.n = n AND {text.replace(' user', ' e.user').replace(' time', ' e.time')})"
    ).warnings
    assert within.message.startswith("a join compares strings")
    assert validate(text, types={"time": "timestamp"}).warnings == []


@pytest.mark.parametrize(
    "test", ["d.time <= to_timestamp(time)", "d.time = time", "d.at <= time", "d.time <= time + INTERVAL 0 DAYS"]
)
def test_times_that_are_compared_as_times(test: str) -> None:
    assert validate(WINDOW.format(test)).warnings == []


def test_one_side_of_or() -> None:
    (warning,) = validate("a = 1 OR b = 2 AND b = 3").warnings
    assert warning.message.startswith("b = 2 AND b = 3 is never TRUE")


VALUES = [None, True, False, 0, 1, 5, 7.5, -3, "", "a", "red", "5", "2024-02-29", dt.date(2024, 2, 29), float("nan")]


@given(expressions())
def test_warnings_are_right(tree: Expression) -> None:
    """Where all of it is said to be never TRUE, no event of single values satisfies it."""
    text = to_sql(tree)
    tree = parse(text)
    warnings = [warning for warning in find_warnings(tree, text) if "never TRUE" in warning.message]
    parts = tree.children if type(tree).__name__ == "Or" else (tree,)
    if len(warnings) < len(parts):
        return
    names = sorted(set(attributes(tree)))
    random = Random(text)
    for value in VALUES:
        event = dict.fromkeys(names, value)
        other = {name: random.choice(VALUES) for name in names}
        assert evaluate(tree, event) is not True and evaluate(tree, other) is not True, (text, value)


def test_kinds_that_disagree() -> None:
    with Matcher() as matcher:
        matcher.add_many([(1, "price > 5"), (2, "at > DATE '2024-01-01'"), (3, "name = 'x'"), (4, "n = 1 OR n = '1'")])
        assert matcher.stats()["disagreements"] == {}
        matcher.match_batch([{"price": "6", "at": "2024-05-01", "name": 5, "n": "1", "other": 1}] * 3)
        assert matcher.stats()["disagreements"] == {
            "name": {"compared with": ["string"], "seen as": ["number"]},
            "price": {"compared with": ["number"], "seen as": ["string"]},
        }
        matcher.match_batch([{"price": 6}])
        assert list(matcher.stats()["disagreements"]) == ["name"]
        json.dumps(matcher.stats()["disagreements"])
