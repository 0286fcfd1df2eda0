"""Joins against the obvious evaluator, as the history grows."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.language.expression import Expression
from dibs.language.joins import join_of, joins_in, name_of
from dibs.language.printer import to_sql
from dibs.language.sql import parse
from dibs.reference import matches
from dibs.tuning import using
from join_strategies import documents, subscriptions
from settings import THRESHOLDS
from strategies import events


@given(subscriptions())
def test_print_and_parse_is_the_identity(tree: Expression) -> None:
    tree = parse(to_sql(tree))
    assert parse(to_sql(tree)) == tree
    for name in joins_in(tree):
        assert name_of(join_of(name)) == name


def test_what_exists_selects_does_not_matter() -> None:
    plain = parse("EXISTS d (d.a = a)")
    for selected in ("1", "*", "d.a", "a", "17"):
        assert parse(f"EXISTS (SELECT {selected} FROM history d WHERE d.a = a)") == plain


def expected(trees: list[Expression], event: dict[str, Any], history: list[dict[str, Any]]) -> list[int]:
    return [number for number, tree in enumerate(trees) if matches(tree, event, history)]


@pytest.mark.parametrize("thresholds", THRESHOLDS)
@given(
    st.lists(subscriptions(), min_size=1, max_size=5),
    st.lists(documents(), max_size=6),
    st.lists(events(), min_size=1, max_size=3),
    st.integers(0, 2**16),
)
def test_as_the_history_grows(
    thresholds: str, trees: list[Expression], older: list[Any], seen: list[Any], seed: int
) -> None:
    with using(THRESHOLDS[thresholds](seed)), dibs.Matcher() as m:
        m.add_many(list(enumerate(map(to_sql, trees))))
        history: list[dict[str, Any]] = []
        for document in [None, *older]:
            if document is not None:
                m.history.add(document)
                history.append(document)
            for event in seen:
                assert m.match(event) == expected(trees, event, history)
        assert [list(ids) for ids in m.match_batch(seen)] == [expected(trees, event, history) for event in seen]


@given(
    st.lists(subscriptions(), min_size=1, max_size=4), st.lists(documents(), max_size=5), st.sampled_from([None, 2, 3])
)
def test_remembering(trees: list[Expression], seen: list[Any], kept: int | None) -> None:
    """One by one and all at once, as if each came after the other."""
    with dibs.Matcher(retain=kept) as one, dibs.Matcher(retain=kept) as all_at_once:
        history: list[dict[str, Any]] = []
        wanted = []
        for m in (one, all_at_once):
            m.add_many(list(enumerate(map(to_sql, trees))))
        for event in seen:
            wanted.append(expected(trees, event, history[-kept:] if kept else history))
            assert one.match(event, remember=True) == wanted[-1]
            history.append(event)
        assert [list(ids) for ids in all_at_once.match_batch(seen, remember=True)] == wanted
        assert len(one.history) == len(all_at_once.history) == min(len(history), kept or len(history))


MULTIPLES = [
    (10, 9, "price < 0.9 * ({})", False),
    (10, 8.99, "price < 0.9 * ({})", True),
    (3, 0.3, "price < ({}) * 0.1", True),  # 0.30000000000000004
    (2**53 + 1, 2**53, "price = 1 * ({})", True),  # the nearest float64
    (math.nan, 5, "price < 0.5 * ({})", True),
    (math.inf, 5, "price < 0 * ({})", True),  # NaN, which is above all numbers
    ("x", "x", "price = 1 * ({})", False),
    ("x", "x", "NOT (price = 1 * ({}))", False),
    (-4, 8, "price = -2 * ({})", True),
    (0, -0.0, "price = -2 * ({})", True),
    ([1, 5], 10, "price = 2 * ({})", True),
]


@pytest.mark.parametrize(("value", "price", "text", "expected"), MULTIPLES)
def test_multiples(value: Any, price: Any, text: str, expected: bool) -> None:
    query = "SELECT MAX(d.price) FROM history d WHERE d.sku = sku"
    event, document = {"sku": 1, "price": price}, {"sku": 1, "price": value}
    with dibs.Matcher() as m:
        m.add(1, text.format(query))
        m.history.add(document)
        assert m.match(event) == [1] * expected
        assert matches(dibs.parse(text.format(query)), event, [document]) == expected
        assert m.explain(1, event).matched == expected
