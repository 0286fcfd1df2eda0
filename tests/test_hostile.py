"""Subscriptions and events that nobody would write by hand: they are matched in bounded time, or refused."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dibs
from dibs.language.sql import parse
from dibs.reference import matches
from dibs.tuning import smallest, using


def long_disjunctions(count: int, terms: int) -> list[tuple[int, str]]:
    return [(i, " OR ".join(f"(a{j} = {i} AND b{j} = 2)" for j in range(terms))) for i in range(count)]


def test_long_texts_are_compiled_once() -> None:
    """A few long texts added together: the next match does not read them again."""
    with dibs.Matcher() as m:
        m.add_many(long_disjunctions(20, 500))
        assert not m._layers.state.waiting
        assert m.match({"a3": 5, "b3": 2}) == [5]


def test_a_change_beside_long_texts_does_not_compile_them_again() -> None:
    with dibs.Matcher() as m:
        m.add_many((f"s{i}", f"a = {i}") for i in range(2000))
        for i, text in long_disjunctions(2, 5000):
            m.add(f"long{i}", text)
        assert m.match({"a3": 1, "b3": 2}) == ["long1"]
        segment = m.snapshot().layers[-1].segment
        m.add("new", "a = 7")
        assert m.match({"a3": 1, "b3": 2, "a": 7}) == ["long1", "new", "s7"]
        assert any(x.segment is segment for x in m.snapshot().layers)


@pytest.mark.parametrize("named", [False, True])
def test_a_million_ties(named: bool) -> None:
    """The first few of very many equal weights are selected: the others are no Python objects, and not sorted."""
    size = 300_000
    ids = pa.array([f"id{i}" for i in range(size)] if named else range(size))
    weights = pa.array([2.0 if i in (7, 299_999) else 1.0 for i in range(size)])
    with dibs.Matcher() as m:
        m.add_table(pa.table({"id": ids, "expression": pa.array(["a = 1"] * size), "weight": weights}))
        first = ["id299999", "id7", "id0", "id1"] if named else [7, 299_999, 0, 1]
        assert m.match({"a": 1}, top=4) == first
        found = m.match_batch([{"a": 1}, {"a": 2}, {"a": 1}], top=4)
        assert found.count == 2 * size  # ties are kept
        tracemalloc.start()
        try:
            assert found.top(4) == [first, [], first]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 80 * found.count  # bytes: objects for weight, id and their tuple would take 150


@pytest.mark.parametrize("selected", [1, 1000])
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30), st.integers(1, 6))
def test_top_is_what_sorting_gives(selected: int, given_: list[tuple[int, bool]], k: int) -> None:
    with using({"ties_selected": selected}), dibs.Matcher(index="scan") as m:
        weights = {(f"s{i}" if text else i): float(w) for i, (w, text) in enumerate(given_)}
        m.add_many((id, "a = 1", w) for id, w in weights.items())
        expected = sorted(weights, key=lambda id: (-weights[id], isinstance(id, str), id))[:k]
        assert m.match({"a": 1}, top=k) == expected
        assert m.match_batch([{"a": 1}, {}, {"a": 1}]).top(k) == [expected, [], expected]


def test_a_new_name_among_very_many() -> None:
    """The names are not all put in order again, and what is known of them is kept for the segments that have it."""
    size = 30_000
    with dibs.Matcher() as m:
        m.add_many((i, f"n{i:05} = 1 AND b.n{i % 7} > 0") for i in range(size))
        assert m.match({"n00003": 1, "b": {"n3": 1}}) == [3]
        before = m._matching.names
        codes = m.snapshot().layers[0].segment.domains.numbered.code
        m.add("new", "a_first = 1 AND zz.last = 2 AND n00003 = 1")
        event = {"n00003": 1, "b": {"n3": 1}, "zz": {"last": 2}, "a_first": 1}
        for form in (m.match(event), list(m.match_batch(pa.Table.from_pylist([event])))[0]):
            assert form == [3, "new"]
        assert m._matching.names.names[:-2] == before.names and not m._matching.names.is_sorted
        assert m.snapshot().layers[0].segment.domains.numbered.code is codes
        m.compact()
        assert m.match(event) == [3, "new"]


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c.d", "c.e", "f", "g.h.i"]), max_size=3), max_size=6))
def test_names_in_any_order(steps: list[list[str]]) -> None:
    """Events match alike whenever the names of their attributes came."""
    with using(smallest()), dibs.Matcher() as m:
        added: dict[str, str] = {}
        for step, names in enumerate(steps):
            for name in names:
                id = f"{step} {name} {len(m)}"
                added[id] = f"{name} = {step} OR {name} = 9"
                m.add(id, added[id])
            event = {"a": 9, "b": step, "c": {"d": 9, "e": 0}, "f": 1, "g": {"h": {"i": 9}}}
            expected = sorted(id for id, text in added.items() if matches(parse(text), event))
            assert m.match(event) == expected
            assert list(m.match_batch(pa.Table.from_pylist([event]))) == [expected]


MASKS = {"look_cost": 1e9, "mask_cost": -1.0, "one_by_one_events": 0}
RECORDS = {"look_cost": 0.0, "mask_cost": 1e9}


def many_values(random: Random) -> Any:
    """A value, a range, or an array of many of both."""
    constants = range(-5, 60)
    count = random.choice([1, 1, 1, 2, 12, 40, 200])
    found = [random.choice(constants) + random.choice([0, 0, 0.5]) for _ in range(count)]
    if random.random() < 0.3:
        found += [dibs.Range(x, x + random.choice([0, 1, 7, 30])) for x in found[: random.choice([1, 5])]]
    return found if len(found) > 1 else found[0]


@pytest.mark.parametrize("index", ["auto", "propagation", "betree", "kindex"])
@pytest.mark.parametrize("setting", [{}, MASKS, RECORDS, smallest()], ids=["default", "masks", "records", "smallest"])
@settings(max_examples=max(settings.default.max_examples // 4, 3))
@given(st.integers(0, 2**32))
def test_events_of_many_values_beside_others(setting: dict[str, Any], index: str, seed: int) -> None:
    """Events of many values are searched in other ways than those of few, in one batch."""
    random = Random(seed)
    rules = []
    for i in range(60):
        a, b = sorted(random.sample(range(-5, 60), 2))
        listed = ", ".join(map(str, random.sample(range(-5, 60), random.choice([2, 20, 40]))))
        texts = [f"n >= {a}", f"n < {b}", f"n BETWEEN {a} AND {b}", f"n = {a}", f"n <> {a}", f"n IN ({listed})"]
        texts += [f"n NOT IN ({listed}) AND m > {a}", f"n = {a} OR m = {b}", f"n NOT BETWEEN {a} AND {b}"]
        rules.append((i, random.choice(texts)))
    events = [
        {name: many_values(random) for name in ("n", "m") if random.random() < 0.8}
        for _ in range(random.choice([1, 3, 30, 90]))
    ]
    with dibs.Matcher(index="scan") as oracle, using(setting), dibs.Matcher(index=index) as matcher:
        oracle.add_many(rules)
        matcher.add_many(rules)
        right = list(oracle.match_batch(events))
        assert list(matcher.match_batch(events)) == right
        assert [matcher.match(event) for event in events[:10]] == right[:10]
