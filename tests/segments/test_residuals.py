"""Tests of computed values that are made last: every entry says what the evaluator says."""

from __future__ import annotations

import datetime as dt
import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import dibs
from dibs.coding.computed.running import evaluate
from dibs.coding.computed.vectors import of_plain, to_plain
from dibs.coding.computed.verifying import Verifier
from dibs.language.functions.places import geo_distance
from dibs.language.normal_form import normal_form
from dibs.language.scalars import Call, Field
from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.reference import matches
from dibs.tuning import using
from settings import THRESHOLDS

TEXTS = (
    "category = 'x' AND abs(price - {a}) < {b}",
    "price * {f} <= {a}",
    "geo_distance(lat, lon, {lat}, {lon}) < {metres}",
    "category = 'y' AND price % {b} = 1",
    "category = 'x' AND price + {a} > stock",
    "category = 'x' AND NOT (price + {a} > stock)",
    "(category = 'y' OR stock < {b}) AND abs(price - {a}) < {b} AND abs(price - {b}) < {a}",
    "{a} - price > {b}",
    "price * -{f} > {b} AND item.price + {a} <= 40",
    "(abs(price - {a}) < {b}) IS NOT TRUE",
    "round(price * {f}, 1) = {a}",
    "abs(price - {a}) < {b} OR stock = {b}",
    "length(category) + {a} = {b}",
    "stock = {b}",
)


def texts_of(random: Random, count: int) -> list[str]:
    def numbers() -> dict[str, Any]:
        return {
            "a": random.choice([random.randrange(1, 30), round(random.uniform(1, 30), 1)]),
            "b": random.randrange(1, 12),
            "f": round(random.uniform(0.5, 2.5), 2),
            "lat": random.choice([52.5, 89.99, round(random.uniform(-90, 90), 2)]),
            "lon": random.choice([13.4, 179.99, round(random.uniform(-180, 180), 2)]),
            "metres": random.choice([5_000, 50_000, 3_000_000]),
        }

    return [random.choice(TEXTS).format(**numbers()) for _ in range(count)]


def event_of(random: Random) -> dict[str, Any]:
    number = random.choice([random.randrange(-5, 40), round(random.uniform(0, 30), 1), 2**53 + 1])
    event: dict[str, Any] = {"price": number, "category": random.choice("xyz"), "stock": random.randrange(12)}
    event["lat"] = random.choice([52.51, 90, -95, round(random.uniform(-90, 90), 2)])
    event["lon"] = random.choice([13.41, -179.99, 180, round(random.uniform(-180, 180), 2)])
    if random.random() < 0.3:
        event["item"] = [{"price": random.randrange(40)} for _ in range(random.randrange(3))]
    if random.random() < 0.3:
        event["price"] = random.choice([None, [], [number, 3, "x"], "17", True, [1, 15, 29]])
    if random.random() < 0.1:
        del event[random.choice(list(event))]
    return event


def unlike_json(random: Random) -> list[dict[str, Any]]:
    odd = [math.nan, math.inf, -math.inf, dibs.Range(1, 20), dt.datetime(2024, 1, 1), 2**64, -0.0]
    return [event_of(random) | {"price": value} for value in odd] + [{"price": [dibs.Range(1, 2), 15], "category": "x"}]


def expected(texts: dict[str, str], events: list[dict[str, Any]]) -> list[list[str]]:
    forms = {id: normal_form(parse(text)) for id, text in texts.items()}
    return [sorted(id for id, form in forms.items() if matches(form, event)) for event in events]


def check(matcher: Any, texts: dict[str, str], events: list[dict[str, Any]], odd: list[dict[str, Any]]) -> None:
    wanted = expected(texts, events)
    for event, found in zip(events, wanted):
        assert matcher.match(event) == found, event
        assert matcher.match(json.dumps(event).encode()) == found, event
    for several in (1, 4):
        batch = matcher.match_batch(events * several)
        assert [sorted(ids) for ids in batch] == wanted * several
        assert batch.count == sum(map(len, wanted)) * several
        lines = "\n".join(map(json.dumps, events * several)).encode()
        assert [sorted(ids) for ids in matcher.match_batch(lines)] == wanted * several
    assert [sorted(ids) for ids in matcher.match_batch(events[:3])] == wanted[:3]
    assert matcher.count(events).tolist() == list(map(len, wanted))
    for event, found in zip(events, wanted):
        best = matcher.match(event, top=2)
        assert set(best) <= set(found) and len(best) == min(2, len(found))
    others = expected(texts, odd)
    assert [matcher.match(event) for event in odd] == others
    assert [sorted(ids) for ids in matcher.match_batch(odd * 3)] == others * 3


@pytest.mark.parametrize("thresholds", ["default", "smallest"])
def test_every_entry(thresholds: str, tmp_path: Path) -> None:
    random = Random(thresholds)
    texts = {f"s{i}": text for i, text in enumerate(texts_of(random, 150))}
    events, odd = [event_of(random) for _ in range(40)], unlike_json(random)
    with using(THRESHOLDS[thresholds](1)), Matcher.open(tmp_path / "folder") as matcher:
        matcher.add_many(texts.items())
        check(matcher, texts, events, odd)
        residuals = [layer.segment.residuals for layer in matcher._layers.state.layers]
        assert any(tests is not None for tests in residuals)
        for id in list(texts)[::3]:
            matcher.remove(id)
            del texts[id]
        for i, text in enumerate(texts_of(random, 30)):
            texts[f"n{i}"] = text
            matcher.add(f"n{i}", text)
            if i % 5 == 0:
                event = event_of(random)
                assert [matcher.match(event)] == expected(texts, [event])
        check(matcher, texts, events, odd)
        matcher.compact()
        check(matcher, texts, events, odd)
        matcher.save(tmp_path / "saved")
    with Matcher.open(tmp_path / "folder") as matcher:
        check(matcher, texts, events, odd)
    with Matcher.load(tmp_path / "saved") as matcher:
        check(matcher, texts, events, odd)


@pytest.mark.parametrize("index", ["scan", "counting", "betree"])
def test_other_indexes(index: str) -> None:
    random = Random(index)
    texts = {f"s{i}": text for i, text in enumerate(texts_of(random, 80))}
    with Matcher(index=index) as matcher:
        matcher.add_many(texts.items())
        check(matcher, texts, [event_of(random) for _ in range(20)], unlike_json(random))


def test_arrow_and_declared_types() -> None:
    random = Random(5)
    texts = {f"s{i}": text for i, text in enumerate(texts_of(random, 60))}
    rows = [{"price": random.choice([None, random.randrange(40), 7.5]), "category": "x", "stock": 3} for _ in range(30)]
    with Matcher() as matcher:
        matcher.add_many(texts.items())
        assert [sorted(ids) for ids in matcher.match_batch(pa.Table.from_pylist(rows))] == expected(texts, rows)
    with Matcher(types={"price": "number"}) as matcher:
        matcher.add("it", "category = 'x' AND abs(price - 17) < 3")
        event = {"price": "18", "category": "x"}
        assert matcher.match(event) == ["it"] and list(matcher.match_batch([event] * 10)) == [["it"]] * 10


NUMBERS = (0, 1, -3, 0.5, 1.19, -2.5, 2**53 + 1, 2**62 + 1, 2**63 - 1, -(2**63), 3037000500, -3037000499, 1e300, 5e-324)
ARITHMETIC = (
    *("x + {a} < {b}", "x - {a} >= {b}", "{a} - x <= {b}", "x * {a} > {b}", "x / {a} <= {b}", "abs(x - {a}) <= {b}"),
    *("-x * {a} < {b}", "sqrt(x + {a}) > {b}", "abs(x) * abs(y) + {a} > {b}", "k = 1 AND x + {a} > y", "x * {a} = {b}"),
    *("k = 1 AND x * {a} <= y + {b}", "k = 1 AND (x - {a}) / y <> {b} - y", "k = 1 AND x - y < {a} - y"),
    *("k = 1 AND x * {a} = y", "k = 1 AND NOT (x + {a} = y)", "x + {a} BETWEEN {b} AND 1e15"),
)


def test_numbers_of_all_sizes() -> None:
    """The kernel overflows, divides and compares as the evaluator does."""
    random = Random(11)
    texts = {}
    for i in range(300):
        a, b = (f"{number!r}" for number in random.sample(NUMBERS, 2))
        text = ARITHMETIC[i % len(ARITHMETIC)].format(a=a, b=b)
        if not dibs.validate(text):
            texts[f"s{i}"] = text
    values = [*NUMBERS, math.nan, math.inf, -math.inf, "x", True, None, dt.datetime(2024, 1, 1), [1, 2**62, "x"]]
    events = [{"k": 1, "x": x, "y": random.choice(values)} for x in values * 3]
    events += [{"k": 1, "x": dt.datetime(2024, 1, 2), "y": dt.datetime(2024, 1, 1)}, {"k": 1, "y": 5}]
    wanted = expected(texts, events)
    assert len(texts) > 200 and 500 < sum(map(len, wanted))
    with Matcher() as matcher:
        matcher.add_many(texts.items())
        assert [sorted(ids) for ids in matcher.match_batch(events)] == wanted
        tests = matcher._layers.state.layers[0].segment.residuals
        assert tests is not None and sum(program is not None for program in tests.programs) >= 12
        assert [matcher.match(event) for event in events] == wanted


def test_times_are_no_numbers() -> None:
    """Differences of times are intervals, which compare with each other: no kernel of numbers decides on them."""
    days = [dt.datetime(2024, 1, day) for day in (1, 2, 4)]
    event = {"k": 1, "a": days[1], "b": days[0], "c": days[2], "d": days[1]}
    text = "k = 1 AND (a - b) * 3 > c - d"
    assert [expected({"it": text}, [event])] == [[["it"]]]
    with Matcher() as matcher:
        matcher.add("it", text)
        assert matcher.match(event) == ["it"] and list(matcher.match_batch([event] * 10)) == [["it"]] * 10


def test_it_is_not_computed_for_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    pairs = Verifier.pairs

    def counted(self: Verifier, event: Any, row: Any) -> Any:
        nonlocal asked
        asked += len(row)
        return pairs(self, event, row)

    with Matcher() as matcher:
        matcher.add_many((i, f"category = {i % 50} AND abs(price - {i}.5) < 2") for i in range(2_000))
        assert not any(name[:1] == "\0" for name in matcher._layers.flush().layers[0].segment.names)
        monkeypatch.setattr(Verifier, "pairs", counted)
        found = matcher.match_batch([{"category": i % 50, "price": i} for i in range(1_000)])
        assert 900 < found.count <= asked < 1.2 * found.count
        assert "tests of computed values that are made last: 2,000" in matcher.explain_plan()


def test_what_every_event_computes_is_told() -> None:
    with Matcher() as matcher:
        matcher.add_many([("a", "price % 10 = 3"), ("b", "price * qty > 5"), ("c", "abs(price - 1) < 2")])
        matcher.match_batch([{}] * 10)
        plan = matcher.explain_plan()
        assert "computed for every event, with a constant of few subscriptions: 1, (price % 10) among them" in plan
    with Matcher() as matcher:  # neither has a bound
        matcher.add_many([("a", "coalesce(price * 7, 2) = 7"), ("b", "substring(name, 2, 3) LIKE '%x%'")])
        matcher.match_batch([{}] * 10)
        plan = matcher.explain_plan()
        assert "with a constant of few subscriptions: 2, coalesce((price * 7), 2) among them" in plan


def test_what_stands_beside_it_counts() -> None:
    """A value that many ask for, of whom an event reaches few, is not computed for every event."""
    with Matcher() as matcher:
        texts = [f"category = 'c{i % 500}' AND price * {1 + i % 20}.5 <= {i}" for i in range(2_000)]
        matcher.add_many(enumerate(texts))
        assert not any(name[:1] == "\0" for name in matcher._layers.flush().layers[0].segment.names)
        events = [{"category": f"c{i}", "price": i / 2} for i in range(60)]
        wanted = [[k for k in range(2_000) if k % 500 == i and i / 2 * (1.5 + k % 20) <= k] for i in range(len(events))]
        assert list(matcher.match_batch(events)) == wanted
        assert [matcher.match(event) for event in events[:20]] == wanted[:20]


def test_distances_are_the_same_bits_everywhere() -> None:
    random = Random(3)
    places = [[random.uniform(-95, 95), random.uniform(-185, 185)] for _ in range(600)]
    places += [[0, 0], [90, 180], [-90, -180], [math.nan, 0], [52, 13]]
    pairs = [(*a, *b) for a, b in zip(places, random.sample(places, len(places)))]
    fields = {str(i): of_plain(list(column)) for i, column in enumerate(zip(*pairs))}
    found = evaluate(Call("GEO_DISTANCE", tuple(map(Field, fields))), fields, len(pairs))
    wanted = [geo_distance(*pair) for pair in pairs]
    assert to_plain(found) == wanted and any(wanted) and None in wanted


def test_tests_that_take_null_and_tests_below_not() -> None:
    """A value that is missing is not equal to a number by <=>, so its negation holds."""
    texts = [
        "x + 1 <=> 3",
        "NOT (x + 1 <=> 3)",
        "(x + 1 <=> 3) IS FALSE",
        "(x + 1 <=> 3) IS NOT TRUE",
        "NOT (x * 2 <=> y)",
        "y = 1 OR NOT (x - 4 <=> 7)",
        "NOT (abs(x - 2) < 1)",
        "NOT (x * 1.5 = 3)",
        "(abs(x - 2) < 1) IS NOT TRUE AND y = 1",
    ]
    events: list[dict[str, Any]] = [{"x": 2}, {"x": 3}, {}, {"x": None, "y": 1}, {"y": 1}, {"x": 11, "y": 1}]
    events += [{"x": [2, 9]}, {"x": "a"}, {"x": 2, "y": 4}, {"x": 2.5}]
    matcher = Matcher()
    matcher.add_many(enumerate(texts))
    expected = [[i for i, text in enumerate(texts) if matches(parse(text), event)] for event in events]
    assert list(matcher.match_batch(events)) == [matcher.match(event) for event in events] == expected
    assert len({tuple(found) for found in expected}) > 4


def test_the_heaviest_of_a_batch() -> None:
    late, plain = Matcher(), Matcher()
    late.add_many([(i, f"abs(price - {i}) < 3", float(i)) for i in range(20)])
    plain.add_many([(i, f"price > {i - 3} AND price < {i + 3}", float(i)) for i in range(20)])
    events = [{"price": 10}, {"price": 100}, {"price": 1}]
    found = late.match_batch(events, top=2)
    assert list(found) == list(plain.match_batch(events, top=2))
    assert [set(ids) for ids in found] == [{11, 12}, set(), {2, 3}]
