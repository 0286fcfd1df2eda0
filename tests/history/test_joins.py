"""Joins against the obvious evaluator, as the history grows."""

from __future__ import annotations

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
from dibs.thresholds import using
from join_strategies import documents, subscriptions
from settings import THRESHOLDS
from strategies import events


@given(subscriptions())
def test_print_and_parse_is_the_identity(tree: Expression) -> None:
    tree = parse(to_sql(tree))
    assert parse(to_sql(tree)) == tree
    for name in joins_in(tree):
        assert name_of(join_of(name)) == name


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
