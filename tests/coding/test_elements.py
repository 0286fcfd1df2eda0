"""What is computed from arrays as they came, in batches, beside the reference: whatever an array holds."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.coding.computed.elements import over_elements
from dibs.language.normal_form import normal_form
from dibs.language.scalars import scalar_of
from dibs.language.sql import parse
from dibs.reference import evaluate
from dibs.segments.compile import compile_forms

OVER_COLUMNS = [
    "size(a) > 1",
    "size(a) = 0",
    "size(a) + k >= 3",
    "exists(a, x -> x > 1)",
    "exists(a, x -> x = 'a' OR x > k)",
    "forall(a, x -> x > k)",
    "forall(a, x -> x IS NOT NULL)",
    "NOT exists(a, x -> lower(x) = 'b')",
    "exists(o, x -> x.price < 10 AND x.stock > 0)",
    "exists(o, x -> x.price * x.stock > k)",
    "forall(o, x -> x.price IS NULL OR x.price >= 2)",
    "exists(o, x -> x.name LIKE 'b%')",
    "exists(o, x -> x IS NULL)",
    "array_contains(a, 'a')",
    "array_contains(a, 2) IS NULL",
    "NOT array_contains(a, 1.5)",
    "a[0] = 1",
    "a[1] IS NULL",
    "element_at(a, -1) = 'a'",
    "o[0].price > 1",
    "o[0].name = 'bé' AND k = 1",
    "element_at(a, 1) + 1 > k",
]
# These are computed event by event.
OTHERS = [
    "exists(o, x -> size(x.tags) > 1)",
    "arrays_overlap(a, array(1, 'b'))",
    "exists(a, x -> exists(a, y -> y > x))",
]


@pytest.mark.parametrize("text", OVER_COLUMNS)
def test_what_is_computed_over_columns(text: str) -> None:
    names = [name for name in attributes_of(text) if name[:1] == "\0"]
    assert names and all((found := over_elements(scalar_of(name))) and found.parts for name in names)


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_not(text: str) -> None:
    assert any(over_elements(scalar_of(name)) is None for name in attributes_of(text) if name[:1] == "\0")


def attributes_of(text: str) -> list[str]:
    return [name for name, _ in compile_forms([normal_form(parse(text))]).table.attributes]


SINGLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([1.5, 2**53 + 1, 2**63, -(2**63), 1e300, 0.1, 123456789.123456789]),
    st.sampled_from(["a", "b", "B", "bé", "", 'q"uote', "back\\slash", "null", "[1,2]", "2024-05-01", "x" * 40]),
)
INNER = st.one_of(SINGLE, st.lists(SINGLE, max_size=2), st.dictionaries(st.sampled_from(["price", "b"]), SINGLE))
OBJECTS = st.dictionaries(st.sampled_from(["price", "stock", "name", "tags", "na\\me"]), INNER, max_size=3)
EVENT = st.fixed_dictionaries(
    {},
    optional={
        "a": st.one_of(SINGLE, st.lists(SINGLE, max_size=4), st.lists(INNER, max_size=3)),
        "o": st.one_of(SINGLE, OBJECTS, st.lists(OBJECTS, max_size=3), st.lists(st.one_of(OBJECTS, INNER), max_size=3)),
        "k": st.one_of(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=2)),
    },
)
PYTHON_ONLY = st.sampled_from([math.nan, math.inf, dt.datetime(2024, 5, 1), 2**70, (1, 2)])


@given(st.lists(EVENT, min_size=9, max_size=12), st.lists(PYTHON_ONLY, max_size=3))
def test_batches_beside_the_reference(events: list[dict[str, Any]], more: list[Any]) -> None:
    texts = [*OVER_COLUMNS, *OTHERS]
    matcher = dibs.Matcher()
    matcher.add_many(enumerate(texts))
    trees = [parse(text) for text in texts]

    def expected(some: list[dict[str, Any]]) -> list[list[int]]:
        return [[i for i, tree in enumerate(trees) if evaluate(tree, event) is True] for event in some]

    lines = b"\n".join(map(orjson.dumps, [e for e in events if "9223372036854775808" not in repr(e)]))
    assert list(matcher.match_batch(lines)) == expected([orjson.loads(line) for line in lines.split(b"\n") if line])
    of_python = [*events, {"a": more}, {"a": [1, *more]}]
    assert list(matcher.match_batch(of_python)) == expected(of_python)


def test_arrow() -> None:
    rows: list[dict[str, Any]] = [
        {"a": [1, 2, None], "o": [{"price": 5, "stock": 2, "name": "bé"}, None], "k": 1},
        {"a": [], "o": [], "k": None},
        {"a": None, "o": [{"price": None, "stock": 1, "name": "b"}], "k": 0},
        {"a": [3], "o": None, "k": 2},
    ] * 5
    table = pa.Table.from_pylist(rows)
    matcher = dibs.Matcher()
    matcher.add_many(enumerate(OVER_COLUMNS))
    trees = [parse(text) for text in OVER_COLUMNS]
    there = [{name: value for name, value in row.items() if value is not None} for row in rows]
    expected = [[i for i, tree in enumerate(trees) if evaluate(tree, event) is True] for event in there]
    assert list(matcher.match_batch(table)) == expected
