"""IS [NOT] TRUE, FALSE and UNKNOWN: for which events each condition holds, by every way to an answer.

The table was worked out by hand. Random expressions with these tests stand in strategies.py and cases.py, so that the
reference, DuckDB, Spark and every index are held against each other elsewhere.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.explain import explain
from dibs.index import INDEXES
from dibs.language.expression import Expression, Not, Truth
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.reference import evaluate, matches
from dibs.tuning import using
from plain_matchers import plain_matcher
from settings import THRESHOLDS
from strategies import events, expressions

EVENTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "null": {"a": None},
    "empty": {"a": []},
    "low": {"a": 1},
    "high": {"a": 9},
    "text": {"a": "x"},
    "both": {"a": [1, 9]},
    "lows": {"a": [1, 2]},
    "mixed": {"a": [1, "x"]},
    "on": {"on": True, "a": 9},
    "off": {"on": False, "b": "red"},
    "red": {"a": 1, "b": ["red", "blue"]},
}


def all_but(names: str) -> str:
    return " ".join(name for name in EVENTS if name not in names.split())


# condition -> the events for which it is TRUE
HOLDS = {
    "a > 5 IS TRUE": "high both on",
    "a > 5 IS NOT TRUE": "nothing null empty low text lows mixed off red",
    "a > 5 IS FALSE": "low both lows mixed red",
    "a > 5 IS NOT FALSE": "nothing null empty high text on off",
    "a > 5 IS UNKNOWN": "nothing null empty text off",
    "a > 5 IS NOT UNKNOWN": "low high both lows mixed on red",
    "NOT a > 5 IS TRUE": "nothing null empty low text lows mixed off red",
    "(NOT a > 5) IS NOT TRUE": "nothing null empty high text on off",
    "on IS TRUE": "on",
    "on IS NOT TRUE": all_but("on"),
    "on IS FALSE": "off",
    "on IS NOT FALSE": all_but("off"),
    "on IS UNKNOWN": all_but("on off"),
    "(a IS NULL) IS TRUE": "nothing null empty off",
    "(a IS NULL) IS UNKNOWN": "",
    "(b = 'red') IS NOT TRUE": all_but("off red"),
    "(b <> 'red') IS NOT TRUE": all_but("red"),
    "(b IN ('red', 'green')) IS NOT TRUE": all_but("off red"),
    "(b LIKE 'r%') IS FALSE": "red",
    "(b LIKE '%e%') IS UNKNOWN": all_but("off red"),
    "CONTAINS(b, 'lu') IS NOT TRUE": all_but("red"),
    "(b RLIKE '^bl') IS NOT FALSE": all_but("off red"),
    "a > 5 IS NOT TRUE AND b = 'red'": "off red",
    "a > 5 IS TRUE OR b = 'red'": "high both on off red",
    "(a > 5 OR b = 'red') IS NOT TRUE": "nothing null empty low text lows mixed",
    "(a > 5 AND on) IS NOT TRUE": all_but("on"),
    "(a > 5 AND on) IS FALSE": "low both lows mixed red off",
    "(a > 5 AND on) IS UNKNOWN": "nothing null empty high text",
    "((a > 5) IS UNKNOWN OR on) IS NOT TRUE": "low high both lows mixed red",
    "NOT ((a > 5) IS NOT TRUE AND (b = 'red') IS NOT TRUE)": "high both on off red",
    "(a BETWEEN 2 AND 5) IS NOT TRUE": all_but("lows"),
    "(a IN (1, NULL)) IS UNKNOWN": "nothing null empty high text on off",
    "(a NOT IN (1, 'x')) IS NOT TRUE": all_but(""),
    "(a = 1 OR a = 9) IS NOT TRUE": "nothing null empty text off",
    "TRUE IS NOT TRUE OR a = 2": "lows",
    "(a = 1) IS NOT TRUE AND (a = 9) IS NOT TRUE AND a IS NOT NULL": "text",
    "(a = 1 AND (b = 'blue' OR (on IS NOT TRUE AND a = 2))) IS TRUE": "lows red",
}
EXPECTED = {name: [text for text in HOLDS if name in HOLDS[text].split()] for name in EVENTS}


def matcher_of(index: str = "auto", times: int = 1) -> Matcher:
    matcher = Matcher(index=index)
    matcher.add_many((f"{time} {text}", text) for time in range(times) for text in HOLDS)
    return matcher


def found(ids: list[Any]) -> list[str]:
    own = {str(id).partition(" ")[2] for id in ids}
    assert len(ids) == len(own)
    return [text for text in HOLDS if text in own]


@pytest.mark.parametrize("text", HOLDS)
def test_without_kernels(text: str) -> None:
    tree = parse(text)
    with plain_matcher() as matcher:
        matcher.add("it", text)
        for name, event in EVENTS.items():
            wanted = name in HOLDS[text].split()
            assert (evaluate(tree, event) is True) == wanted, name
            assert matches(normal_form(tree), event) == wanted, name
            assert bool(matcher.match(event)) == wanted, name
            assert explain(tree, event).matched == wanted, name


@pytest.mark.parametrize("thresholds", ["default", "smallest"])
def test_every_index(thresholds: str) -> None:
    for index in INDEXES:
        with using(THRESHOLDS[thresholds](1)), matcher_of(index) as matcher:
            batch = list(EVENTS.values())
            assert [found(ids) for ids in matcher.match_batch(batch)] == list(EXPECTED.values()), index
            for name, event in EVENTS.items():
                assert found(matcher.match(event)) == EXPECTED[name], (index, name)
                assert found(matcher.match(json.dumps(event).encode())) == EXPECTED[name], (index, name)


def test_every_form_of_events() -> None:
    with matcher_of() as matcher:
        lines = "\n".join(map(json.dumps, EVENTS.values())).encode()
        assert [found(ids) for ids in matcher.match_batch(lines)] == list(EXPECTED.values())
        forms = {
            ("nothing", "null", "low", "high", "on", "off"): {"a": pa.int64(), "b": pa.string(), "on": pa.bool_()},
            ("empty", "both", "lows", "red"): {"a": pa.list_(pa.int64()), "b": pa.list_(pa.string())},
            ("text",): {"a": pa.string()},
        }
        for names, types in forms.items():
            columns = {}
            for column, type_ in types.items():
                values = [EVENTS[name].get(column) for name in names]
                as_lists = [x if x is None or isinstance(x, list) else [x] for x in values]
                columns[column] = pa.array(as_lists if pa.types.is_list(type_) else values, type_)
            table = pa.table(columns)
            assert [found(ids) for ids in matcher.match_batch(table)] == [EXPECTED[name] for name in names]
        unreadable = pa.table({"a": pa.array([b"x"], pa.binary())})  # of no kind: every test of it is UNKNOWN
        own = {*EXPECTED["nothing"], "(a IS NULL) IS UNKNOWN"} - {"(a IS NULL) IS TRUE"}
        [ids] = matcher.match_batch(unreadable, on_error="skip")
        assert found(ids) == [text for text in HOLDS if text in own]
    for text in HOLDS:
        assert dibs.backtest(text, list(EVENTS.values()), examples=0).count == len(HOLDS[text].split()), text


@given(expressions(), st.sampled_from([True, False, None]), events())
def test_two_valued_and_complementary(child: Expression, value: bool | None, event: dict[str, Any]) -> None:
    test = Truth(child, value)
    truth = evaluate(test, event)
    assert truth in (True, False)
    assert evaluate(Not(test), event) is evaluate(Truth(child, value, negated=True), event) is (not truth)
    asked = {True: evaluate(child, event) is True, False: evaluate(Not(child), event) is True}
    assert truth is (asked[value] if value is not None else not any(asked.values()))


def test_joins() -> None:
    """Below IS NOT TRUE a join must not hold for the row to be looked at, wherever constants come first."""
    texts = [
        "(EXISTS d (d.k = k)) IS NOT TRUE AND a = 1",
        "(price < (SELECT MIN(d.price) FROM history d WHERE d.k = k)) IS NOT TRUE AND a = 1",
        "((SELECT COUNT(*) FROM history d WHERE d.k = k) >= 2 OR b = 1) IS NOT TRUE",
        "((SELECT MIN(d.price) FROM history d WHERE d.k = k) > 5 AND a = 1) IS UNKNOWN",
        "a = 1 AND (b = 1 OR ((SELECT MAX(d.price) FROM history d WHERE d.k = k) < 5) IS NOT TRUE)",
    ]
    history = [{"k": 1, "price": 10}, {"k": 1, "price": 3}, {"k": 2, "price": 7}, {"k": 3}]
    values = itertools.product((1, 2, 3, 4, None), (1, 2), (1, None), (2, 8))
    batch = [dict(zip(("k", "a", "b", "price"), each)) for each in values]
    trees = [parse(text) for text in texts]
    expected = [[n for n, tree in enumerate(trees) if matches(tree, event, history)] for event in batch]
    for first in (True, False):
        with using(THRESHOLDS["smallest"](1)), Matcher() as matcher:
            matcher.add_many(enumerate(texts))
            matcher.history.load(history)
            matcher.plan_joins("constants" if first else "joins")
            assert list(matcher.match_batch(batch)) == expected
            assert [matcher.match(event) for event in batch] == expected
