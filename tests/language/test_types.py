"""Declared types: values are converted at the door, alike by every way; what does not fit is refused or listed."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.errors import ArgumentError, EventError, ExpressionError
from dibs.language.sql import parse, validate
from dibs.language.types import KINDS, check_types
from dibs.matcher import Matcher
from dibs.past.backtest import backtest
from dibs.reference import evaluate
from dibs.tuning import using

TYPES = {
    "price": "number",
    "code": "string",
    "on": "boolean",
    "day": "date",
    "at": "timestamp",
    "s": "timestamp_seconds",
    "ms": "timestamp_millis",
    "us": "timestamp_micros",
    "item.price": "number",
}
CONDITIONS = {
    "price > 5": [{"price": 6}, {"price": "6"}, {"price": " 6.5 "}, {"price": ["1", 7]}],
    "price = 9007199254740993": [{"price": "9007199254740993"}],
    "price IN ('5', 6)": [{"price": 5}, {"price": "5.0"}, {"price": "6"}],
    "price BETWEEN '5' AND 6": [{"price": 5}, {"price": "5.5"}],
    "price * 2 = 10": [{"price": "5"}, {"price": 5}],
    "code = 4625": [{"code": 4625}, {"code": "4625"}, {"code": 4625.0}],
    "code LIKE '46%'": [{"code": 4625}, {"code": "46"}],
    "code = TRUE": [{"code": True}, {"code": "true"}],
    "on": [{"on": True}, {"on": "yes"}, {"on": 1}, {"on": "1"}],
    "on = 'no'": [{"on": False}, {"on": "FALSE"}, {"on": 0}],
    "day = '2024-05-01'": [{"day": "2024-05-01"}, {"day": "2024-05-01 00:00:00"}, {"day": "2024-05-01T02:00+02:00"}],
    "at >= '2024-05-01T12:00:00Z'": [{"at": "2024-05-01T14:00:00+02:00"}, {"at": "2024-05-02"}],
    "at IN ('2024-05-01', '2024-05-02')": [{"at": "2024-05-01T00:00:00Z"}],
    "hour(at) = 12": [{"at": "2024-05-01T14:00:00+02:00"}],
    "s = '2024-05-01 12:00:00'": [{"s": 1714564800}, {"s": "1714564800"}, {"s": 1714564800.0}],
    "s > TIMESTAMP '2024-05-01 12:00:00'": [{"s": 1714564800.5}],
    "ms = TIMESTAMP '2024-05-01 12:00:00'": [{"ms": 1714564800000}, {"ms": "1714564800000"}],
    "us = 1714564800000000": [{"us": 1714564800000000}],
    "year(us) = 2024": [{"us": 1714564800000000}],
    "item.price > 5": [{"item": {"price": "6"}}, {"item.price": 6}, {"item": [{"price": 1}, {"price": "7"}]}],
    "price IS NULL": [{}, {"price": None}, {"other": "x"}],
    "if(price > '5', TRUE, FALSE)": [{"price": "6"}, {"price": 7}],
    "CASE code WHEN 4625 THEN 1 ELSE 2 END = 1": [{"code": 4625}, {"code": "4625"}],
    "coalesce(at BETWEEN '2024-05-01' AND '2024-05-02', FALSE)": [{"at": "2024-05-01T12:00:00Z"}],
    "greatest(price, '7') = 9 OR nullif(price, '8') = 10": [{"price": "9"}, {"price": 10}],
    "at - s > INTERVAL 1 MINUTE": [{"at": "2024-05-01T12:02:00Z", "s": 1714564800}],
}
EVENTS = [event for events in CONDITIONS.values() for event in events]
BAD: list[dict[str, Any]] = [
    {"price": "cheap"},
    {"price": True},
    {"on": 2},
    {"on": "maybe"},
    {"day": "2024-05-01T12:00:00Z"},
    {"day": "soon"},
    {"at": "12:30"},
    {"at": 5},
    {"ms": "x"},
    {"ms": 1.5},
    {"us": True},
    {"item": {"price": "x"}},
    {"price": [1, "x"]},
]
WRONG = [
    "price > 'x'",
    "price",
    "on = 2",
    "on = 'x'",
    "at > 5",
    "at = 'soon'",
    "at LIKE '2024%'",
    "price LIKE '5%'",
    "STARTSWITH(at, '2')",
    "price RLIKE 'x'",
    "day = TRUE",
    "ms > 'x'",
    "lower(at) = 'x'",
    "at IN ('x', '2024')",
    "price BETWEEN 1 AND 'x'",
    "EXISTS (SELECT 1 FROM history d WHERE d.price > 'x')",
    "hour(price) = 1",
    "if(price > 'x', TRUE, FALSE)",
    "CASE at WHEN 'soon' THEN 1 END = 1",
]


def expected() -> list[list[str]]:
    types = check_types(TYPES)
    trees = {text: parse(text, types) for text in CONDITIONS}
    return [sorted(text for text, tree in trees.items() if evaluate(tree, event, types=types)) for event in EVENTS]


def test_what_it_means() -> None:
    found = expected()
    at = 0
    for text, events in CONDITIONS.items():
        for event in events:
            assert text in found[at], (text, event)
            at += 1


@pytest.fixture(scope="module")
def matchers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Matcher]]:
    """All waiting; compiled from texts one by one, and at once; durable after a restart; saved."""
    folder = tmp_path_factory.mktemp("types")
    items = [(text, text) for text in CONDITIONS]
    waiting, many = Matcher(types=TYPES), Matcher(types=TYPES)
    for text in CONDITIONS:
        waiting.add(text, text)
    many.add_table(pa.table({"id": [id for id, _ in items], "expression": [text for _, text in items]}))
    many.compact()
    with Matcher.open(folder / "durable", types=TYPES) as durable:
        durable.add_many(items)
    many.save(folder / "saved")
    made = [waiting, many, Matcher.open(folder / "durable"), Matcher.load(folder / "saved")]
    yield made
    for matcher in made:
        matcher.close()


@pytest.mark.parametrize("few", [0, 4])
def test_every_way_gives_the_same(matchers: list[Matcher], few: int) -> None:
    right = expected()
    json = [orjson.dumps(event) for event in EVENTS]
    table = pa.table({"j": [text.decode() for text in json]})
    with using({"few_events": max(few, 1), "few_computed": few}):
        for matcher in matchers:
            assert matcher.types == TYPES
            assert [matcher.match(event) for event in EVENTS] == right
            assert [matcher.match(text) for text in json] == right
            assert list(matcher.match_batch(EVENTS)) == right
            assert list(matcher.match_batch(b"\n".join(json))) == right
            assert list(matcher.match_batch(table, attributes="j")) == right
            assert matcher.count(EVENTS).tolist() == list(map(len, right))
            for event, ids in zip(EVENTS[::3], right[::3]):
                assert [text for text in sorted(CONDITIONS) if matcher.explain(text, event).matched] == ids


def test_native_columns(matchers: list[Matcher]) -> None:
    moment = dt.datetime(2024, 5, 1, 12, tzinfo=dt.timezone.utc)
    table = pa.table({"at": [moment] * 20, "s": pa.array([1714564800] * 20, pa.int64()), "price": ["6"] * 20,
                      "day": [dt.date(2024, 5, 1)] * 20})  # fmt: skip
    for matcher in matchers:
        found = {tuple(ids) for ids in matcher.match_batch(table)}
        assert len(found) == 1
        assert set(*found) == {
            "price > 5",
            "at >= '2024-05-01T12:00:00Z'",
            "hour(at) = 12",
            "s = '2024-05-01 12:00:00'",
            "day = '2024-05-01'",
            "price IN ('5', 6)",
            "price BETWEEN '5' AND 6",
            "if(price > '5', TRUE, FALSE)",
            "coalesce(at BETWEEN '2024-05-01' AND '2024-05-02', FALSE)",
        }


@pytest.mark.parametrize("event", BAD)
def test_what_does_not_fit(matchers: list[Matcher], event: dict[str, Any]) -> None:
    text = orjson.dumps(event)
    name = "item.price" if "item" in event else next(iter(event))
    for matcher in matchers[:2]:
        for ask in (
            lambda m: m.match(event), lambda m: m.match(text), lambda m: m.match_batch([event] * 9),
            lambda m: m.match_batch(b"\n".join([text] * 9)), lambda m: m.count([event]),
        ):  # fmt: skip
            with pytest.raises(EventError, match="as types says") as raised:
                ask(matcher)
            assert raised.value.attribute == name
        for events in ([event, {"price": "6"}] * 5, b"\n".join([text, b'{"price": "6"}'] * 5)):
            found = matcher.match_batch(events, on_error="skip")
            assert [problem.event for problem in found.problems] == [0, 2, 4, 6, 8]
            assert "price > 5" in list(found)[1] and "price IS NULL" not in (list(found)[0] if name == "price" else ())


@pytest.mark.parametrize("text", WRONG)
def test_constants_that_do_not_fit_are_problems(text: str) -> None:
    found = validate(text, TYPES)
    assert found, text
    for problem in found:
        assert 0 <= problem.start < problem.end <= len(text) and problem.message and problem.advice
    with Matcher(types=TYPES) as matcher:
        with pytest.raises(ExpressionError):
            matcher.add(1, text)
        table = pa.table({"id": list(range(40)), "expression": [text, "price > 1"] * 20})
        assert [bad.position for bad in matcher.add_table(table, on_error="skip")] == list(range(0, 40, 2))
        assert len(matcher) == 20


def test_what_types_may_be(tmp_path: Path) -> None:
    for wrong in ({"a": "int"}, {"a": 5}, {5: "number"}, {"": "number"}, ["a"], "a=number", {"a": None}):
        with pytest.raises(ArgumentError, match="type"):
            dibs.Matcher(types=wrong)  # type: ignore[arg-type]
    with dibs.Matcher(types={"a": "text"}) as matcher:  # the word of CSV
        assert matcher.types == {"a": "string"}
    with dibs.Matcher.open(tmp_path / "folder", types={"a": "number"}) as durable:
        durable.add(1, "a = '5'")
    for other in ({"a": "string"}, {}, {"a": "number", "b": "date"}):
        with pytest.raises(ArgumentError, match="has the types"):
            dibs.Matcher.open(tmp_path / "folder", types=other)
    with dibs.Matcher.open(tmp_path / "folder", types={"a": "number"}, read_only=True) as reader:
        assert reader.match({"a": "5"}) == [1]
    with dibs.Matcher.open(tmp_path / "plain") as plain:
        plain.add(1, "a = 5")
    with pytest.raises(ArgumentError, match="has no types"):
        dibs.Matcher.open(tmp_path / "plain", types={"a": "number"})


def test_documents_are_kept_as_they_came_and_read_as_types_say(tmp_path: Path) -> None:
    """Windows over epoch numbers, and prices that are strings."""
    types = {"t": "timestamp_seconds", "price": "number"}
    window = "(SELECT COUNT(*) FROM history d WHERE d.user = user AND d.t > t - INTERVAL 10 MINUTES) >= 2"
    cheaper = "price < (SELECT MIN(d.price) FROM history d WHERE d.user = user)"
    with Matcher.open(tmp_path / "folder", types=types) as matcher:
        matcher.add("third", window)
        matcher.add("cheaper", cheaper)
        events = [{"user": "a", "t": 1714564800 + 60 * i, "price": f"{20 - 3 * i}"} for i in (0, 1, 2, 30)]
        found = [matcher.match(event, remember=True) for event in events]
        assert found == [[], ["cheaper"], ["cheaper", "third"], ["cheaper"]]
        with pytest.raises(EventError, match="expected a number"):
            matcher.history.add({"price": "x"})
    with Matcher.open(tmp_path / "folder") as matcher:
        assert len(matcher.history) == 4
        assert matcher.match({"user": "a", "t": 1714564800 + 60 * 31, "price": "-100"}) == ["cheaper"]
        assert matcher.match({"user": "a", "t": 1714564800 + 60 * 8, "price": 100}) == ["third"]


def test_replays_and_copies(tmp_path: Path) -> None:
    with Matcher(types=TYPES) as matcher:
        matcher.add(1, "price > 5")
        assert matcher.replay([{"price": "6"}, {"price": 7}, {"price": "1"}]).pairs == 2
        with pytest.raises(EventError):
            matcher.replay([{"price": "x"}])
    assert backtest("price > 5", [{"price": "6"}, {"price": 1}], types=TYPES).count == 1
    assert backtest("at > '2024'", [{"at": "2024-05-01"}], types=TYPES).count == 1


VALUES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "5",
            "1e3",
            "NaN",
            "-0",
            "true",
            "no",
            "2024-05-01",
            "2024-05-01T12:00:00Z",
            "1714564800",
            "9999999999999999999",
        ]
    ),
    st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)),
    st.dates(),
    st.lists(st.sampled_from(["1", 2, True]), max_size=3),
)


@given(st.lists(st.tuples(st.sampled_from(sorted(TYPES)), VALUES), min_size=1, max_size=12), st.sampled_from([0, 20]))
def test_random_values(pairs: list[tuple[str, Any]], few: int) -> None:
    """Converted by columns, one by one, by the single lane and by the reference alike."""
    types = check_types(TYPES)
    texts = {
        "number": "{} >= 0", "string": "{} >= '1'", "boolean": "{}", "date": "{} > DATE '2000-01-01'",
        **dict.fromkeys(KINDS.keys() - {"number", "string", "boolean", "date"}, "{} > TIMESTAMP '2000-01-01'"),
    }  # fmt: skip
    with Matcher(types=TYPES) as matcher, using({"few_events": max(few, 1)}):
        for name, type_ in TYPES.items():
            matcher.add(name, texts[type_].format(name))
            matcher.add(f"no {name}", f"{name} IS NULL")
        events = [{name: value} for name, value in pairs]
        right = [
            sorted(id for id in [*TYPES, *(f"no {name}" for name in TYPES)]
                   if evaluate(parse(matcher.expression(id), types), event, types=types))
            for event in events
        ]  # fmt: skip
        found = matcher.match_batch(events, on_error="skip")
        assert list(found) == right
        bad = {problem.event for problem in found.problems}
        for place, event in enumerate(events):
            if place not in bad:
                assert matcher.match(event) == right[place]
                value = next(iter(event.values()))
                if isinstance(value, (str, bool)) or (isinstance(value, float) and math.isfinite(value)):
                    assert matcher.match(orjson.dumps(event)) == right[place]
            else:
                with pytest.raises(EventError):
                    matcher.match(event)
