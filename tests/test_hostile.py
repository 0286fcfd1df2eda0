"""Subscriptions and events that nobody would write by hand: they are matched in bounded time, or refused."""

from __future__ import annotations

import dibs


def long_disjunctions(count: int, terms: int) -> list[tuple[int, str]]:
    return [(i, " OR ".join(f"(a{j} = {i} AND b{j} = 2)" for j in range(terms))) for i in range(count)]


def test_long_texts_are_compiled_once() -> None:
    """A few long texts added together: the next match does not read them again."""
    with dibs.Matcher() as m:
        m.add_many(long_disjunctions(20, 500))
        assert not m._layers.waiting
        assert m.match({"a3": 5, "b3": 2}) == [5]


def test_a_change_beside_long_texts_does_not_compile_them_again() -> None:
    with dibs.Matcher() as m:
        m.add_many((f"s{i}", f"a = {i}") for i in range(2000))
        for i, text in long_disjunctions(2, 5000):
            m.add(f"long{i}", text)
        assert m.match({"a3": 1, "b3": 2}) == ["long1"]
        segment = m._snapshot().layers[-1].segment
        m.add("new", "a = 7")
        assert m.match({"a3": 1, "b3": 2, "a": 7}) == ["long1", "new", "s7"]
        assert any(x.segment is segment for x in m._snapshot().layers)
