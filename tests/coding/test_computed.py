"""Computed values in every lane: what the reference says of an expression and an event, all entries say."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.coding.computed.program import program_of
from dibs.coding.computed.running import evaluate as evaluate_column
from dibs.coding.computed.vectors import of_plain, to_plain
from dibs.language.expression import Kind, Literal
from dibs.language.functions import FUNCTIONS, apply
from dibs.language.functions import evaluate as evaluate_plain
from dibs.language.functions.plain import Moment
from dibs.language.present import read_now
from dibs.language.scalars import Call, Field, Interval, Scalar, Value, fields_of
from dibs.language.sql import parse
from dibs.reference import evaluate
from dibs.tuning import smallest, using

MORNING = dt.datetime(2024, 2, 29, 9, 30)
EVENTS: list[dict[str, Any]] = [
    {"price": 10, "qty": 11, "a": 1, "b": 2},
    {"price": 10.5, "qty": 3, "a": 2, "b": 2.0},
    {"price": 2**62, "qty": 4, "a": 2**53 + 1, "b": 2.0**53},
    {"price": [1, 200], "qty": [1, 2], "a": [1, 5], "b": 3},
    {"price": "10", "qty": 2, "a": "x", "b": 1},
    {"price": None, "qty": 2, "a": [], "b": True},
    {"name": "ÉTÉ", "text": "  padded ", "at": MORNING, "until": MORNING + dt.timedelta(minutes=7)},
    {"name": "Phone", "text": "a,b,c", "at": "2024-02-29T23:59:59.5+02:00", "until": "2024-03-01"},
    {"name": ["x", "Y"], "text": "", "at": "soon", "until": MORNING},
    {"price": math.nan, "qty": -1, "a": -0.0, "b": 0, "name": "ß", "active": True},
    {"price": math.inf, "qty": 0, "a": True, "b": False, "active": "TRUE"},
    {"item": {"price": 5, "qty": 30}, "price": -(2**63), "qty": -1},
    {},
]
CONDITIONS = [
    "price * qty > 100",
    "NOT price * qty > 100",
    "price + qty IN (13.5, 21)",
    "price - 3 * qty BETWEEN -30 AND 2",
    "price / qty = 3.5",
    "price % 3 = 1",
    "price DIV qty >= 3",
    "-price < -5",
    "(price * qty) IS NULL",
    "(price * qty) IS NOT NULL AND a < b",
    "a < b",
    "NOT a < b",
    "a = b OR a <> b",
    "a + 1 > b",
    "a * a = a",
    "item.price * item.qty = 150",
    "abs(price) > 10.25",
    "ceil(price) = 11 OR floor(price) = 10",
    "round(price / 3, 1) = 3.5",
    "sqrt(price) > 3",
    "lower(name) = 'été'",
    "upper(name) LIKE 'PH%'",
    "length(name) = 3",
    "trim(text) || '!' = 'padded!'",
    "split_part(text, ',', 2) = 'b'",
    "substring(name, 2, 3) = 'hon'",
    "hour(at) >= 9 AND hour(at) < 18",
    "dayofweek(at) = 5",
    "until - at > INTERVAL 5 MINUTES",
    "at + INTERVAL 1 MONTH < until + INTERVAL 2 MONTHS",
    "date_trunc('DAY', at) = TIMESTAMP '2024-02-29 00:00:00'",
    "datediff(until, at) = 1",
    "CASE WHEN price > 10.2 THEN 'high' WHEN price > 5 THEN 'middle' ELSE 'low' END = 'middle'",
    "CASE qty WHEN 2 THEN 'two' END = 'two'",
    "if(a > 1 AND b IS NOT NULL, price, qty) > 4",
    "coalesce(price, qty, 0) = 2",
    "coalesce(active, FALSE)",
    "NOT coalesce(active, FALSE)",
    "nullif(a, b) IS NULL",
    "greatest(price, qty, 5) = 5",
    "CAST(price AS STRING) = '10'",
    "CAST(price AS DOUBLE) > 9",
    "price::BIGINT = 10",
    "qty & 1 = 1",
    "qty << 2 = 8",
    "a BETWEEN b - 1 AND b",
    "a NOT BETWEEN b - 1 AND b",
    "a IN (b, 7)",
    "a NOT IN (b, 7)",
    "(price + qty) * 2 > 100 AND (a < b OR lower(name) = 'phone')",
]


def entries(texts: list[str]) -> list[dibs.Matcher]:
    matcher = dibs.Matcher()
    matcher.add_many([(i, text) for i, text in enumerate(texts)])
    return [matcher]


@pytest.mark.parametrize("size", ["default", "smallest"])
def test_every_entry_says_what_the_reference_says(size: str) -> None:
    trees = [parse(text) for text in CONDITIONS]
    expected = [[i for i, tree in enumerate(trees) if evaluate(tree, event) is True] for event in EVENTS]
    assert all(any(i in ids for ids in expected) for i in range(len(trees))), "each holds for some event"
    with using({} if size == "default" else smallest()):
        (matcher,) = entries(CONDITIONS)
        assert [matcher.match(event) for event in EVENTS] == expected
        assert list(matcher.match_batch(EVENTS)) == expected
        for i, event in enumerate(EVENTS):
            for number in range(len(trees)):
                assert matcher.explain(number, event).matched == (number in expected[i]), CONDITIONS[number]


def json_event(event: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in event.items() if not isinstance(v, float) or math.isfinite(v)}


def test_json() -> None:
    texts = [orjson.dumps(json_event(event)) for event in EVENTS]
    events = [orjson.loads(text) for text in texts]
    trees = [parse(text) for text in CONDITIONS]
    expected = [[i for i, tree in enumerate(trees) if evaluate(tree, event) is True] for event in events]
    (matcher,) = entries(CONDITIONS)
    assert [matcher.match(text) for text in texts] == expected
    assert list(matcher.match_batch(b"\n".join(texts))) == expected


def test_a_single_event_is_computed_within_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has a program needs no Python; of the rest, events without its attributes."""
    texts = ["price * qty > 100", "a < b", "lower(name) = 'phone'", "at > now() - INTERVAL 1 HOUR", "hour(at) = 9"]
    texts += ["ip_in(host, '10.0.0.0/8')", "lower(a) || 'x' = 'bx' OR a + 1 > b", "substring(other, 1, 2) = 'ab'"]
    texts += ["exists(others, x -> x.price > 3)", "upper(name) IN ('PHONE', 'Y')", "price * qty IS NULL AND b = 2"]
    matcher = dibs.Matcher()
    matcher.add_many(enumerate(texts))
    matcher.match_batch([{}])
    events: list[dict[str, Any]] = [
        {"price": 10, "qty": [11, 1], "name": "Phone"},
        {"a": [1, 5], "b": [2, 9], "at": "2024-02-29T09:59:59Z", "host": "10.1.2.3"},
        {"a": "B", "b": 2, "name": ["x", "Y"], "price": None},
        {"a": 2**63 - 1, "b": -(2**63), "price": 1e308, "qty": 1e308, "host": "::1"},
        {},
    ]
    now = dt.datetime(2024, 2, 29, 10, 30)
    instant = read_now(now)
    trees = [parse(text) for text in texts]
    expected = [[i for i, tree in enumerate(trees) if evaluate(tree, event, now=instant) is True] for event in events]
    with monkeypatch.context() as patched:
        patched.setattr("dibs.segments.single.call.add_computed", None)
        assert [matcher.match(event, now=now) for event in events] == expected
    late = {"name": "ÉTÉ", "other": "abc", "others": [{"price": 2}, {"price": 4}], "price": 10, "qty": 11}
    wanted = [i for i, tree in enumerate(trees) if evaluate(tree, late, now=instant) is True]
    assert matcher.match(late, now=now) == wanted and {0, 7, 8} <= set(wanted)


def test_arrow() -> None:
    columns = {
        "price": pa.array([10.5, None, 3.0, 2.0**60]),
        "qty": pa.array([3, 4, None, 2**40]),
        "name": pa.array(["Phone", "ÉTÉ", None, ""]),
        "at": pa.array([MORNING, None, dt.datetime(1969, 12, 31, 23), MORNING]),
    }
    table = pa.table(columns)
    trees = [parse(text) for text in CONDITIONS]
    expected = [[i for i, tree in enumerate(trees) if evaluate(tree, row) is True] for row in table.to_pylist()]
    (matcher,) = entries(CONDITIONS)
    assert list(matcher.match_batch(table)) == expected


def test_an_event_cannot_pretend_to_have_computed_a_value() -> None:
    (matcher,) = entries(["price * 2 > 5"])
    (name,) = {p.attribute for p in [parse("price * 2 > 5")]}  # type: ignore[union-attr]
    assert list(matcher.match_batch([{name: 7}, {"price": 3}])) == [[], [0]]


def test_too_many_combinations_are_unknown() -> None:
    matcher = dibs.Matcher()
    matcher.add_many([(0, "a + b = 3"), (1, "(a + b) IS NULL"), (2, "(a + b) IS NOT NULL")])
    many = {"a": list(range(200)), "b": list(range(200))}
    few = {"a": list(range(100)), "b": list(range(100))}
    assert list(matcher.match_batch([many, few, {"a": 1}])) == [[], [0, 2], [1]]


# Arguments that must be constants, by function and place.
TYPE_NAMES = ["STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP"]
CONSTANTS: dict[str, dict[int, list[str | int]]] = {
    "CAST": {1: [*TYPE_NAMES]},
    "DATE_TRUNC": {0: ["DAY", "week", "QUARTER", "YEAR", "SECOND"]},
    "TIMESTAMPDIFF": {0: ["DAY", "week", "SECOND"]},
    "TIMESTAMPADD": {0: ["DAY", "MONTH", "year", "SECOND"], 1: [0, 1, -13, 2**39]},
    "DATE_PART": {0: ["YEAR", "mons", "DOW", "hour", "W", "SECOND"]},
    "RIGHT": {1: [0, 1, 2, -1, 100]},
    "LIKE": {1: ["", "%", "_", "a%", "%a", "%-0_-%", "_%É", "%,%,%", "__"]},
}


def has_program(name: str) -> bool:
    fields: list[Scalar] = [Field(str(i)) for i in range(max(FUNCTIONS[name].least, 1))]
    for place, some in CONSTANTS.get(name, {}).items():
        fields[place] = constant(some[0])
    with_two = [*fields, Field("more")]
    names = [field.name for field in with_two if isinstance(field, Field)]
    return any(program_of(Call(name, tuple(own)), names) is not None for own in (fields, with_two))


def constant(value: str | int) -> Value:
    return Value(Literal(Kind.STRING if isinstance(value, str) else Kind.NUMBER, value))


WITH_PROGRAMS = sorted(name for name in {function.name for function in FUNCTIONS.values()} if has_program(name))
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from([2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]),
    st.sampled_from([0.5, -0.5, 2.5, 1e300, -1e300, math.nan, math.inf, -math.inf, 9.5e18]),
    st.sampled_from([3.5, -3.5, 4.5e15 + 0.5, 0.49999999999999994, -0.3, 5e-324, 2.0**63, -(2.0**64)]),
    st.sampled_from(
        ["", "a", "B", "É", "ß", "2024-05-01", "12", "2024-02-29T23:30:00+01:00", "2023-02-29", "0001-01-01"]
    ),
    st.sampled_from(
        ["a,b,,c", ",", "aaa", " a ", "  ", "ÉaÉ", "Éa", "€uro \U0001f600!", "\t7 ", "-1.50", "+3.", ".5", "1e3"]
    ),
    st.sampled_from(
        [1.005, 2.675, -0.125, 1234.5678, 99.995, 1e-7, 123456789012345.67, 0.5000000000000001, -2.5, 1e15]
    ),
    st.sampled_from(
        ["10.0.0.1", "::ffff:1.2.3.4", "2001:DB8::1", "10.0.0.256", "9999-12-31 x", "2024-5-1", "20240-01-01"]
    ),
    st.sampled_from([0, -1, 1_709_197_200_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999, 2**62]).map(
        Moment
    ),
    st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999).map(Moment),
    st.sampled_from([Interval(0, 60_000_000), Interval(0, -1), Interval(1, 0)]),
)


def forms_of(name: str, random: st.DataObject) -> Call:
    """A call of the function with fields as arguments, and what it takes but as a constant."""
    function = FUNCTIONS[name]
    least = max(function.least, 2 if name in ("AND", "OR") else 1)
    most = 1 if name in ("NOW", "CURRENT_DATE") else function.most or least + 3
    arguments: list[Scalar] = [Field(str(i)) for i in range(random.draw(st.integers(least, most)))]
    for place, some in CONSTANTS.get(name, {}).items():
        arguments[place] = constant(random.draw(st.sampled_from(some)))
    if name in ("+", "-") and random.draw(st.booleans()):
        arguments[1] = Interval(random.draw(st.sampled_from([1, -13, 1200])), random.draw(st.sampled_from([0, -1, 90])))
    return Call(name, tuple(arguments))


@given(st.data())
def test_programs_do_what_plain_forms_do(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(WITH_PROGRAMS))
    scalar = forms_of(name, data)
    names = fields_of(scalar)
    rows = data.draw(st.integers(1, 6)) * data.draw(st.sampled_from([1, 1, 50]))
    some = [data.draw(st.lists(PLAIN, min_size=min(rows, 6), max_size=min(rows, 6))) for _ in names]
    columns = [(column * rows)[:rows] for column in some]
    constants = [data.draw(st.booleans()) and rows > 1 for _ in names]
    columns = [column[:1] * rows if constant else column for column, constant in zip(columns, constants)]
    vectors = {n: of_plain(c[:1] if constant else c) for n, c, constant in zip(names, columns, constants)}
    expected = [evaluate_plain(scalar, dict(zip(names, values))) for values in zip(*columns)]
    found = to_plain(evaluate_column(scalar, vectors, rows))
    found = found * rows if len(found) == 1 else found
    assert list(map(repr, found)) == list(map(repr, expected)), (scalar, columns)


def test_what_has_a_program() -> None:
    """No function loses its steps unseen."""
    assert len(WITH_PROGRAMS) == 104 and "RLIKE" not in WITH_PROGRAMS


def test_times_of_all_years() -> None:
    days = np.arange("0001-01-01", "9999-12-31", 97, dtype="datetime64[D]").astype("datetime64[us]").astype(np.int64)
    moments = [Moment(int(day) + 86_399_999_999) for day in days[:: len(days) // 2_000]]
    for name in ("YEAR", "QUARTER", "MONTH", "DAY", "WEEKDAY", "DAYOFWEEK", "HOUR", "MINUTE", "SECOND"):
        function = FUNCTIONS[name]
        found = evaluate_column(Call(name, (Field("at"),)), {"at": of_plain(moments)}, len(moments))
        assert to_plain(found) == [apply(function, [m]) for m in moments]
