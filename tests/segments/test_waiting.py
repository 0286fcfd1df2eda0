"""What waits, matched by single events as it was read: the same answers as a scan, whatever changes in between."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs import Range
from dibs.language.expression import Expression
from dibs.language.printer import to_sql
from dibs.matcher import Matcher
from dibs.tuning import smallest, using
from strategies import RANDOM, events, expressions, json_events

fewer = settings(max_examples=settings.default.max_examples // 4)
some_expressions = st.lists(expressions(extremes=True, max_leaves=5), min_size=4, max_size=16)
some_events = st.lists(st.one_of(json_events(), json_events(), events()), min_size=1, max_size=6)


class Pair:
    """A matcher and its twin, which scans and is asked for batches only."""

    def __init__(self, texts: list[str]):
        self.own, self.twin = Matcher(threads=1), Matcher("scan", threads=1)
        self.ids: list[Any] = []
        self.add_many([(i if i % 2 else f"s{i}", text) for i, text in enumerate(texts)])

    def add_many(self, items: list[tuple[Any, str]]) -> None:
        for matcher in (self.own, self.twin):
            matcher.add_many(items)
        self.ids += [id for id, _ in items]

    def remove(self, id: Any) -> None:
        for matcher in (self.own, self.twin):
            matcher.remove(id)
        self.ids.remove(id)

    def replace(self, id: Any, text: str) -> None:
        for matcher in (self.own, self.twin):
            matcher.replace(id, text)

    def right(self, event: dict[str, Any]) -> list[Any]:
        return list(self.twin.match_batch([event]))[0]

    def check(self, event: dict[str, Any], way: int) -> None:
        right = self.right(event)
        if way == 1:
            try:
                text = orjson.dumps(event)
            except TypeError:
                way = 0
            else:
                assert self.own.match(text) == self.right(orjson.loads(text)), (event, "text")
        if way == 0:
            assert self.own.match(event) == right, (event, "dict")
        if way == 2:
            assert list(self.own.match_batch([event])) == [right], (event, "batch")

    @property
    def waiting(self) -> int:
        return len(self.own._layers.state.waiting)


def live(random: Random, trees: list[Expression], batch: list[dict[str, Any]]) -> None:
    """A life of changes, with events of all kinds in between; batches are rare, because after them nothing waits."""
    texts = [to_sql(tree) for tree in trees]
    pair = Pair(texts[:3])
    pair.check(batch[0], 2)
    for number in range(24):
        change = random.random()
        if change < 0.5 or not pair.ids:
            id: Any = 1_000 + number if random.random() < 0.5 else f"new {number}"
            pair.add_many([(id, random.choice(texts))])
        elif change < 0.7:
            pair.remove(random.choice(pair.ids))
        elif change < 0.85:
            pair.replace(random.choice(pair.ids), random.choice(texts))
        for _ in range(random.randint(0, 2)):
            pair.check(random.choice(batch), random.choice([0, 0, 0, 1, 1, 1, 2] if number % 6 == 0 else [0, 1]))


@fewer
@given(RANDOM, some_expressions, some_events)
def test_changes_between_single_events(random: Random, trees: list[Expression], batch: list[dict[str, Any]]) -> None:
    live(random, trees, batch)


@fewer
@given(RANDOM, some_expressions, some_events)
def test_the_same_at_the_smallest_thresholds(
    random: Random, trees: list[Expression], batch: list[dict[str, Any]]
) -> None:
    with using(smallest()):
        live(random, trees, batch)


def literals() -> list[str]:
    """Constants of all kinds, as SQL."""
    return [*("TRUE", "FALSE"), *map(str, (0, 1, 1.5, -1, 2**53, 2**53 + 1, 2**63 - 1, "CAST('NaN' AS DOUBLE)"))] + [
        *("''", "'a'", "'ab'", "'zürich'", "'12345678'", "'123456789'", "DATE '2024-02-29'")
    ]


def predicates() -> list[str]:
    """Every operator with constants of every kind, and some of two kinds."""
    texts = [f"a {operator} {c}" for c in literals() for operator in ("=", "<>", "<", "<=", ">", ">=")]
    for low, high in [("0", "1.5"), ("1", "0"), ("'a'", "'b'"), ("1", "'a'"), ("'a'", "1"), ("FALSE", "'ab'")]:
        texts += [f"a BETWEEN {low} AND {high}", f"a NOT BETWEEN {low} AND {high}"]
        texts += [f"a IN ({low}, {high})", f"a NOT IN ({low}, {high})", f"NOT (a > {low} AND a < {high})"]
    texts += ["a NOT IN (TRUE, 'ab')", "a LIKE 'ab%'", "a NOT LIKE 'ab%'", "a LIKE '%'", "NOT a LIKE '%'"]
    texts += ["a IS NULL", "a IS NOT NULL", "a IS NULL OR a = 1", "a IS NOT NULL AND b IS NULL", "NOT (a = 1 OR b = 2)"]
    return [*texts, "a = 1 OR a = 'ab' AND b IS NULL", "TRUE", "c.d = 1", "c.d <> 1 AND a = 1"]


def values() -> list[Any]:
    near = [0, 1, 2, -1, 0.5, 1.5, 2.0**53, 2**53 + 1, 2**53 + 2, 2**63, 2**64 - 1, "", "a", "ab", "abc", "b", "zürich"]
    return [*near, "1234567", "12345678", "123456789", "1234567\0", True, False, None, [], [1, "ab"], [None, [2, 1.5]]]


def test_every_operator_with_values_of_every_kind() -> None:
    pair = Pair([f"price = {i}" for i in range(50)])
    pair.check({"price": 1}, 2)
    pair.add_many([(f"w{i}", text) for i, text in enumerate(predicates()[:250])])
    for value in values():
        for event in ({"a": value}, {"a": value, "b": 2, "c": {"d": value}}):
            pair.check(event, 0)
            pair.check(event, 1)
    assert pair.waiting == min(250, len(predicates())), "something was built"
    assert pair.own._matching.singles.served == 4 * len(values())


def test_a_change_builds_nothing() -> None:
    pair = Pair([f"a = {i}" for i in range(2_000)])
    pair.check({"a": 1}, 0)
    layers = pair.own._layers.state.layers
    for i in range(100):
        pair.add_many([(10_000 + i, f"a = {i} AND b.c IN ('x', 'y')")])
        pair.check({"a": i, "b": {"c": "y"}}, i % 2)
    assert pair.waiting == 100
    assert pair.own._layers.state.layers is layers
    assert pair.own._matching.singles.served == 101


def test_a_segment_that_nobody_has_asked_has_no_index() -> None:
    """Most small segments are merged before anybody asks them, and to plan an index takes longer than all else."""
    matcher = Matcher(threads=1)
    matcher.add_many([(i, f"a = {i} AND b <= {i % 7}") for i in range(300)])
    for i in range(300, 1_000):
        matcher.add(i, f"a = {i} AND b <= {i % 7}")
    layers = matcher._layers.state.layers
    assert layers and not any(layer.segment.is_indexed or layer.segment.has_pending_work for layer in layers)
    assert matcher.match({"a": 5, "b": 5}) == [5] and matcher.match({"a": 999, "b": 0}) == [999]
    assert all(layer.segment.is_indexed for layer in matcher._layers.state.layers)
    assert sum(matcher.match_batch([{"a": i, "b": 0} for i in range(1_000)]).count for _ in range(2)) == 2_000
    matcher.close()


def test_names_that_come_with_what_waits() -> None:
    pair = Pair([f"a = {i}" for i in range(100)])
    pair.check({"a": 1}, 0)
    for i in range(30):
        pair.add_many([(f"new {i}", f"n{i}.x = {i} OR `n{i} y` = 1")])
        pair.check({"a": 1, f"n{i}": {"x": [i, i + 1]}}, 0)
        pair.check({f"n{i - 1}.x": i - 1, f"n{i} y": 1}, 1)
    assert pair.waiting == 30


@pytest.mark.parametrize("text", ["a LIKE '%x%'", "a RLIKE 'x+'", "EXISTS d (d.a = a)", "CONTAINS(a, 'x') OR b = 1"])
def test_what_cannot_wait_is_built(text: str) -> None:
    matcher = Matcher(threads=1)
    matcher.add_many([(i, f"a = '{i}'") for i in range(20)])
    assert matcher.match({"a": "7"}) == [7]
    matcher.history.load([{"a": "xx"}])
    matcher.add("new", text)
    matcher.add("plain", "a = 'xx'")
    assert matcher.match({"a": "xx"}) == ["new", "plain"]
    assert matcher.match(b'{"a": "xx"}') == ["new", "plain"]
    assert matcher.match({"a": "7"}) == [7]


def test_very_many_wait_no_longer() -> None:
    pair = Pair([f"a = {i}" for i in range(2_000)])
    pair.check({"a": 1}, 0)
    for i in range(400):
        pair.add_many([(10_000 + i, f"a <= {i}")])
        if i % 20 == 0:
            pair.check({"a": i // 2}, 0)
    pair.check({"a": 0}, 1)
    assert 0 < pair.waiting < 400


def test_more_rows_than_there_is_room_for() -> None:
    with using({"first_room": 8}):
        pair = Pair([f"a >= {i}" for i in range(6)])
        pair.check({"a": 9}, 0)
        pair.add_many([(f"new {i}", "a >= 0") for i in range(20)])
        pair.check({"a": 9}, 0)
        pair.check({"a": 9}, 1)


def test_a_value_that_cannot_be_read_beside_a_segment_without_attributes() -> None:
    pair = Pair([f"a = {i} AND b = 1" for i in range(2_000)])
    pair.check({"a": 1}, 2)
    pair.add_many([("all", "TRUE")])
    assert list(pair.own.match_batch([{"a": object(), "b": Range(1, 2)}], on_error="skip")) == [["all"]]
    assert len(pair.own._layers.state.layers) == 3
