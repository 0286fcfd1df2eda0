"""Everything that answers the same question gives the same answer: reference, normal form, index, and every entry."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import operator
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches import FORMS, Case
from dibs.coding.values import Range
from dibs.index import INDEXES
from dibs.language.expression import Between, Compare, Expression, In, IsNull, Kind, Like, StringTest, literal, number
from dibs.language.normal_form import normal_form
from dibs.language.printer import to_sql
from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.reference import evaluate, matches
from dibs.tuning import using
from entries import (
    MAKINGS,
    Making,
    Subscription,
    askings,
    backtested,
    check_counts,
    check_top,
    nothing_fails_unseen,
    replayed,
)
from settings import THRESHOLDS
from strategies import (
    ATTRIBUTES,
    CONSTANTS,
    EXTREMES,
    LIKE_PATTERNS,
    RANDOM,
    cases,
    events,
    expressions,
    json_events,
    neighbours,
)

COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Some properties take longer than others; all grow with DIBS_EXAMPLES (see conftest.py).
fewer = settings(max_examples=settings.default.max_examples // 2)
several_expressions = st.lists(expressions(extremes=True), min_size=1, max_size=8)


def matcher_of(subscriptions: list[Expression]) -> Matcher:
    matcher = Matcher()
    matcher.add_many((number, to_sql(expression)) for number, expression in enumerate(subscriptions))
    return matcher


def by_reference(subscriptions: list[Expression], batch: list[dict[str, Any]]) -> list[list[int]]:
    return [[i for i, expression in enumerate(subscriptions) if matches(expression, event)] for event in batch]


def assert_agrees(subscriptions: list[Expression], batch: list[dict[str, Any]], found: list[list[Any]]) -> None:
    expected = by_reference(subscriptions, batch)
    for event, right, wrong in zip(batch, expected, found, strict=True):
        for i in sorted(set(right) ^ set(wrong)):
            pytest.fail(f"{to_sql(subscriptions[i])}\n  on {event}\n  reference: {i in right}, index: {i in wrong}")
    assert found == expected


# --- the language ---


@given(expressions(extremes=True), events())
def test_normal_form_and_reference(expression: Expression, event: dict[str, Any]) -> None:
    assert matches(normal_form(expression), event) == matches(expression, event)


@given(expressions(extremes=True), events())
def test_printed_and_parsed_and_reference(expression: Expression, event: dict[str, Any]) -> None:
    assert matches(parse(to_sql(expression)), event) == matches(expression, event)


# --- the index ---


@given(several_expressions, st.lists(events(), min_size=1, max_size=6))
def test_matcher_and_reference(subscriptions: list[Expression], batch: list[dict[str, Any]]) -> None:
    matcher = matcher_of(subscriptions)
    assert_agrees(subscriptions, batch, list(matcher.match_batch(batch)))
    assert matcher.match(batch[0]) == by_reference(subscriptions, batch[:1])[0]


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name.lower())
def test_ranges_and_reference(kind: Kind) -> None:
    """Every range between two constants of a kind, open ends included, against every predicate over them."""
    few = {Kind.NUMBER: [0, 1.5, 2**53, 2**53 + 1], Kind.STRING: ["", "a", "ab", "abc", "b", "\U0001f600"]}
    constants = [literal(c) for c in few.get(kind, CONSTANTS[kind]) + EXTREMES.get(kind, [])]
    pairs = [(a, b) for a in constants for b in constants]
    subscriptions: list[Expression] = [Compare("a", symbol, c) for symbol in COMPARISONS for c in constants]
    subscriptions += [Between("a", low, high, negated) for low, high in pairs for negated in (False, True)]
    subscriptions += [In("a", pair, negated=True) for pair in pairs]
    subscriptions += [IsNull("a"), IsNull("a", True), Compare("a", "=", literal("x" if kind != Kind.STRING else 1))]
    if kind == Kind.STRING:
        texts = [c.value for c in constants]
        subscriptions += [StringTest("a", "STARTSWITH", text, n) for text in texts for n in (False, True)]
        subscriptions += [Like("a", pattern, negated=n) for pattern in LIKE_PATTERNS for n in (False, True)]
        subscriptions += [StringTest("a", "CONTAINS", text, n) for text in ("", "a") for n in (False, True)]
    ends = [c.value for c in constants]
    ranges = [Range(low, high) for low in [None, *ends] for high in [None, *ends]]
    batch = [{"a": r} for r in ranges if evaluate(IsNull("a", True), {"a": r})]  # the others cannot be read
    assert len(batch) >= len(ends) * (len(ends) + 1) / 2
    assert_agrees(subscriptions, batch, list(matcher_of(subscriptions).match_batch(batch)))


IDS = ["x", "y", 1, 2]
steps = st.one_of(
    st.tuples(st.sampled_from(["set", "set", "set"]), st.sampled_from(IDS), expressions(max_leaves=4)),
    st.tuples(st.just("remove"), st.sampled_from(IDS)),
    st.tuples(st.just("set several"), st.lists(st.tuples(st.sampled_from(IDS), expressions(max_leaves=4)), max_size=4)),
    st.tuples(st.just("match"), events()),
    st.tuples(st.just("compact")),
)


@fewer
@given(st.lists(steps, min_size=1, max_size=12), events())
def test_after_any_changes_still_the_reference(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[Any, ...]], event: dict[str, Any]
) -> None:
    matcher, model = Matcher(), dict[Any, Expression]()

    def expected(event: dict[str, Any]) -> list[Any]:
        ids = [id for id, expression in model.items() if matches(expression, event)]
        return sorted(ids, key=lambda id: (isinstance(id, str), id))

    for what, *arguments in [*changes, ("match", event)]:
        if what == "set":
            id, expression = arguments
            (matcher.replace if id in model else matcher.add)(id, to_sql(expression))
            model[id] = expression
        elif what == "set several":
            new = {id: expression for id, expression in arguments[0] if id not in model}
            matcher.add_many((id, to_sql(expression)) for id, expression in new.items())
            model |= new
        elif what == "remove" and arguments[0] in model:
            matcher.remove(arguments[0])
            del model[arguments[0]]
        elif what == "compact":
            matcher.compact()
        elif what == "match":
            assert matcher.match(arguments[0]) == expected(arguments[0])
        assert len(matcher) == len(model)
        assert [id for id in IDS if id in matcher] == [id for id in IDS if id in model]
    folder = tmp_path_factory.mktemp("saved") / "index"
    matcher.save(folder)
    assert Matcher.load(folder).match(event) == expected(event)


def test_all_removed_and_added_again() -> None:
    matcher = Matcher()
    for _ in range(2):
        matcher.add_many([("x", "a = 1")])
        assert matcher.match({"a": 1}) == ["x"]
        matcher.remove("x")
        matcher.compact()
        assert matcher.match({"a": 1}) == []


# --- the entries ---


@pytest.mark.parametrize("thresholds", THRESHOLDS)
@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_the_same_answer(form: str, thresholds: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """However a matcher of any index has come to its subscriptions, and however it is asked."""

    @fewer
    @given(cases(form=form), st.sampled_from(list(INDEXES)), st.sampled_from(list(MAKINGS)), RANDOM)
    def agree(case: Case, index: str, way: str, random: Random) -> None:
        expressions, batch = case
        expected = by_reference(expressions, batch.events)
        subscriptions = [
            Subscription(number, to_sql(expression), random.choice([1.0, 2.0]))
            for number, expression in enumerate(expressions)
        ]
        folder = tmp_path_factory.mktemp("made") / "index"
        making = Making(index, subscriptions, folder, random, batch.events[0])
        with using(THRESHOLDS[thresholds](len(expressions))), nothing_fails_unseen(), MAKINGS[way](making) as matcher:
            for ask in askings(batch).values():
                assert_agrees(expressions, batch.events, ask(matcher, batch))
            weights = {s.id: s.weight for s in subscriptions}
            assert not check_counts(matcher, batch, expected)
            assert not check_top(matcher, batch, expected, weights, 2)
            for each in batch.forms:
                assert_agrees(expressions, batch.events, replayed(matcher, batch, each))
            for number in range(len(expressions)):
                told = [matcher.explain(number, event).matched for event in batch.events]
                assert told == [number in ids for ids in expected]
        for each in batch.forms:
            assert_agrees(expressions, batch.events, backtested([s.text for s in subscriptions], batch, each))

    agree()


UNREADABLE = [b"x", 1j, dt.timedelta(1), "\ud800", Range(2, 1), Range(1, "x"), Range(None, None)]


@fewer
@given(several_expressions, st.lists(events(), min_size=1, max_size=4), st.data())
def test_unreadable_values_and_reference(
    subscriptions: list[Expression], batch: list[dict[str, Any]], data: st.DataObject
) -> None:
    bad = 0
    for event in batch:
        for name in ATTRIBUTES:
            if data.draw(st.integers(0, 3)) == 0:
                value = data.draw(st.sampled_from(UNREADABLE))
                event[name] = [event[name], value] if name in event else value
                bad += 1
    found = matcher_of(subscriptions).match_batch(batch, on_error="skip")
    assert_agrees(subscriptions, batch, list(found))
    assert len(found.problems) <= bad  # attributes that nobody asks for are not even read


@fewer
@given(several_expressions, st.lists(json_events(), min_size=1, max_size=6))
def test_json_and_dicts_and_reference(subscriptions: list[Expression], batch: list[dict[str, Any]]) -> None:
    matcher = matcher_of(subscriptions)
    lines = [json.dumps(event) for event in batch]
    assert_agrees(subscriptions, batch, list(matcher.match_batch(batch)))
    assert_agrees(subscriptions, batch, list(matcher.match_batch("\n".join(lines).encode())))
    column = pa.table({"id": range(len(lines)), "event": lines})
    assert_agrees(subscriptions, batch, list(matcher.match_batch(column, attributes="event")))


NUMBERS = [x for c in CONSTANTS[Kind.NUMBER] for x in neighbours(c) if type(x) in (int, float)] + [math.nan, -0.0]
INTEGERS = [x for x in NUMBERS if isinstance(x, int)]
STRINGS = [x for c in CONSTANTS[Kind.STRING] for x in neighbours(c)]
TIMES = [x for c in CONSTANTS[Kind.TIME] for x in neighbours(c) if type(x) is dt.datetime and x.tzinfo is None]
DATES = [x for c in CONSTANTS[Kind.TIME] for x in neighbours(c) if type(x) is dt.date]
WHOLE_SECONDS = [x for x in TIMES if x.microsecond == 0]


def _within(low: int, high: int) -> list[int]:
    return [x for x in INTEGERS if low <= x <= high]


ARROW_TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.null(), [None]),
    (pa.bool_(), [False, True]),
    (pa.int8(), _within(-128, 127)),
    (pa.uint16(), _within(0, 65535)),
    (pa.int32(), _within(-(2**31), 2**31 - 1)),
    (pa.int64(), _within(-(2**63), 2**63 - 1)),
    (pa.uint64(), _within(0, 2**64 - 1)),
    (pa.float32(), [0.0, -0.0, 1.5, 0.5, math.nan, math.inf, 2.0**53, 2.0**64, -1.0]),
    (pa.float64(), [float(x) for x in NUMBERS]),
    (pa.decimal128(38, 4), [decimal.Decimal(x) for x in ("0", "1.5", "2", "0.1", "9007199254740993", "-1.0001")]),
    (pa.decimal256(60, 0), [decimal.Decimal(x) for x in (2**64, 2**64 - 1, -(2**63), -(2**63) - 1, 10**40)]),
    (pa.string(), STRINGS),
    (pa.large_string(), STRINGS),
    (pa.string_view(), STRINGS),
    (pa.dictionary(pa.int8(), pa.string()), STRINGS),
    (pa.date32(), DATES),
    (pa.date64(), DATES),
    (pa.timestamp("s"), WHOLE_SECONDS),
    (pa.timestamp("ms", "Asia/Kolkata"), WHOLE_SECONDS),
    (pa.timestamp("us"), TIMES),
    (pa.timestamp("us", "UTC"), TIMES),
    (pa.timestamp("ns"), TIMES),
]


@st.composite
def arrow_columns(draw: st.DrawFn, rows: int) -> pa.ChunkedArray:
    """A column of some type with nulls, maybe of arrays, maybe in pieces."""
    type_, pool = draw(st.sampled_from(ARROW_TYPES))
    value = st.one_of(st.sampled_from(pool), st.sampled_from(pool), st.sampled_from(pool), st.none())
    listed = draw(st.sampled_from([None, None, pa.list_, pa.large_list]))
    if listed is not None and not pa.types.is_dictionary(type_):
        type_ = listed(type_)
        value = st.one_of(st.lists(value, max_size=3), st.lists(value, max_size=3), st.none())
    cells = draw(st.lists(value, min_size=rows, max_size=rows))
    padded = pa.array([cells[0], *cells, cells[-1]], type_).slice(1, rows)  # with an offset
    cut = draw(st.integers(0, rows))
    return pa.chunked_array([padded.slice(0, cut), padded.slice(cut)], type_)


@st.composite
def arrow_tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 5))
    columns = {name: draw(arrow_columns(rows)) for name in ATTRIBUTES if draw(st.integers(0, 3))}
    columns["other"] = pa.chunked_array([pa.array(range(rows))])
    if "c.d" in columns and draw(st.booleans()):
        inner = columns.pop("c.d").combine_chunks()
        present = pa.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
        columns["c"] = pa.chunked_array([pa.StructArray.from_arrays([inner], ["d"], mask=present)])
    return pa.table(columns)


@given(several_expressions, arrow_tables())
def test_arrow_and_dicts_and_reference(subscriptions: list[Expression], table: pa.Table) -> None:
    matcher = matcher_of(subscriptions)
    batch = table.to_pylist()
    assert_agrees(subscriptions, batch, list(matcher.match_batch(table)))
    assert_agrees(subscriptions, batch, list(matcher.match_batch(batch)))
    as_one = pa.table({"id": range(len(batch)), "event": table.to_struct_array()})
    assert_agrees(subscriptions, batch, list(matcher.match_batch(as_one, attributes="event")))
    (record_batch,) = table.combine_chunks().to_batches()
    assert_agrees(subscriptions, batch, list(matcher.match_batch(record_batch)))


@fewer
@given(several_expressions, st.sampled_from(ARROW_TYPES), st.data())
def test_maps_and_arrays_of_objects_and_reference(
    subscriptions: list[Expression], values: tuple[pa.DataType, list[Any]], data: st.DataObject
) -> None:
    type_, pool = values
    value = st.one_of(st.sampled_from(pool), st.none())
    batch = data.draw(st.lists(st.dictionaries(st.sampled_from(ATTRIBUTES), value), min_size=1, max_size=4))
    matcher = matcher_of(subscriptions)
    maps = pa.table({"event": pa.array([list(event.items()) for event in batch], pa.map_(pa.string(), type_))})
    assert_agrees(subscriptions, batch, list(matcher.match_batch(maps, attributes="event")))
    if pa.types.is_dictionary(type_):
        return
    objects = data.draw(st.lists(st.lists(st.one_of(value.map(lambda v: {"d": v}), st.none()), max_size=3), min_size=1))
    table = pa.table({"c": pa.array(objects, pa.list_(pa.struct({"d": type_})))})
    assert_agrees(subscriptions, table.to_pylist(), list(matcher.match_batch(table)))


# --- numbers ---

FINITE = [x for x in NUMBERS if math.isfinite(x)] + [2**63, 2**63 - 1024, 2.0**63 - 1024, 2.0**64, 1e19, 2.0**53 - 1]


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64(), pa.float64()], ids=str)
def test_numbers_compare_by_their_mathematical_value(type_: pa.DataType) -> None:
    """Against exact arithmetic, where SQL engines round."""
    values: list[Any] = [float(x) for x in FINITE]
    if pa.types.is_integer(type_):
        low, high = (0, 2**64) if type_ == pa.uint64() else (-(2**63), 2**63)
        values = [int(x) for x in FINITE if x == int(x) and low <= x < high]
    constants = [number(x) for x in FINITE]
    matcher = Matcher()
    texts = [(f"n {symbol} {c.value!r}", symbol, c.value) for c in constants for symbol in COMPARISONS]
    matcher.add_many((i, text) for i, (text, _, _) in enumerate(texts))
    found = list(matcher.match_batch(pa.table({"n": pa.array(values, type_)})))
    for value, ids in zip(values, found, strict=True):
        exact = [i for i, (_, s, c) in enumerate(texts) if COMPARISONS[s](Fraction(value), Fraction(c))]
        assert ids == exact, value
    assert found == list(matcher.match_batch([{"n": value} for value in values]))


def test_saved_files_are_used(tmp_path: Path) -> None:
    matcher = matcher_of([parse("a = 1"), parse("b LIKE '%x%' OR a IS NULL")])
    matcher.save(tmp_path / "index")
    assert list(Matcher.load(tmp_path / "index").match_batch([{"a": 1}, {}, {"a": 2, "b": "axb"}])) == [[0], [1], [1]]
