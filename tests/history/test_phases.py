"""Constants first or joins first: the same matches, and an order that is chosen by what was measured."""

from __future__ import annotations

import datetime as dt
import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.history.answering import Answerer
from dibs.history.coded.columns import DocumentSnapshot
from dibs.history.plan import LOOK_AGAIN, Costs, Sizes
from dibs.language.expression import Compare, Expression, literal
from dibs.language.printer import to_sql
from dibs.reference import matches
from dibs.tuning import using
from join_strategies import documents, subscriptions
from strategies import events


class ConstantsFirst(Costs):
    def constants_first(self, joins: int) -> bool:
        return True


@given(
    st.lists(subscriptions(), min_size=1, max_size=5),
    st.lists(documents(), max_size=5),
    st.lists(events(), min_size=1, max_size=4),
    st.sampled_from([1, 3, 1 << 20]),
    st.booleans(),
)
def test_constants_first(trees: list[Expression], older: list[Any], seen: list[Any], at_once: int, few: bool) -> None:
    with using({"derived_at_once": at_once}), dibs.Matcher(index="auto") as m:
        m._matching.costs = ConstantsFirst()
        m.add_many(list(enumerate(map(to_sql, trees))))
        m.history.load(older)
        expected = [[n for n, tree in enumerate(trees) if matches(tree, event, older)] for event in seen]
        found = [m.match(event) for event in seen] if few else [list(ids) for ids in m.match_batch(seen)]
        assert found == expected


@pytest.mark.parametrize(
    "value", [5, -1e300, math.nan, "x", "", True, dt.datetime(1, 1, 1), np.datetime64(2**60, "us")]
)
@pytest.mark.parametrize(
    "shape", ["{0} = (SELECT MAX(d.a) FROM history d)", "(SELECT MAX(d.a) FROM history d) IN ({1})"]
)
def test_values_of_every_kind_are_left_open(value: Any, shape: str) -> None:
    """Beside another join, which is needed only where the first one may hold."""
    is_late = isinstance(value, np.datetime64)  # later than any constant
    constant = "1" if is_late else dibs.to_sql(Compare("a", "=", literal(value))).split(" = ")[1]
    with dibs.Matcher() as m:
        m._matching.costs = ConstantsFirst()
        m.add(1, shape.format("b", constant) + " AND NOT EXISTS d (d.c = c)")
        m.history.add({"a": value})
        assert m.match({"b": value}) == ([] if is_late and "{1}" in shape else [1])


@given(st.lists(subscriptions(), min_size=1, max_size=4), st.lists(documents(), max_size=5))
def test_constants_first_and_remembering(trees: list[Expression], seen: list[Any]) -> None:
    with dibs.Matcher() as m:
        m._matching.costs = ConstantsFirst()
        m.add_many(list(enumerate(map(to_sql, trees))))
        expected = [
            [n for n, tree in enumerate(trees) if matches(tree, event, seen[:place])]
            for place, event in enumerate(seen)
        ]
        assert [list(ids) for ids in m.match_batch(seen, remember=True)] == expected


@pytest.mark.parametrize("index", ["scan", "counting", "betree", "opindex", "propagation"])
def test_every_index_takes_joins(index: str) -> None:
    random = Random(7)
    texts = [
        f"a = {n % 6} AND {random.choice(['', 'NOT '])}EXISTS d (d.b = b AND d.a > {random.randint(0, 5)})"
        for n in range(60)
    ]
    history = [{"a": random.randint(0, 5), "b": random.randint(0, 3)} for _ in range(6)]
    for costs in (Costs(), ConstantsFirst()):
        with dibs.Matcher(index=index) as m:
            m._matching.costs = costs
            m.add_many(list(enumerate(texts)))
            m.history.load(history)
            trees = [dibs.parse(text) for text in texts]
            for event in ({"a": 1, "b": 2}, {"a": 2}, {"a": 3, "b": [0, 1]}):
                assert m.match(event) == [n for n, tree in enumerate(trees) if matches(tree, event, history)]


def test_the_cheaper_order_is_chosen() -> None:
    costs = Costs()
    assert not costs.constants_first(5)  # few joins
    assert not costs.constants_first(1000)  # a join has to be measured
    costs.note(a_join=1e-5)
    assert costs.constants_first(1000)  # and now the other order
    costs.note(narrowing=1e-4, share=0.01)
    assert costs.constants_first(1000) and "constants first" in costs.tell(Sizes(1000, 100, 5000))
    assert [costs.constants_first(1000) for _ in range(LOOK_AGAIN)].count(False) == 1  # now and then it looks again
    costs.note(share=20.0)
    assert not costs.constants_first(1000) and "joins first" in costs.tell(Sizes(1000, 100, 5000))


def test_the_plan_is_told() -> None:
    with dibs.Matcher() as m:
        m.add_many([(n, f"kind = {n} AND EXISTS d (d.a = a AND d.b > {n})") for n in range(200)])
        m.history.load([{"a": 1, "b": 5}, {"a": 2, "b": 199}])
        assert "joins: 200 over 2 documents\n  order: not decided yet" in m.explain_plan()
        for _ in range(4):
            assert m.match({"kind": 3, "a": 1}) == [3]
            assert m.match({"kind": 3, "a": 3}) == []
        assert "order: constants first: about" in m.explain_plan()
        assert "1.0 joins are needed" in m.explain_plan()
        assert "joins" not in dibs.Matcher().explain_plan() and "every document" not in m.explain_plan()
        m.add("slow", "EXISTS d (d.name LIKE '%x%')")
        assert (
            "by testing every document: 1, as EXISTS (SELECT 1 FROM history d WHERE CONTAINS(d.name" in m.explain_plan()
        )


def test_what_took_long_once_does_not_decide() -> None:
    """As when a kernel was compiled meanwhile."""
    costs = Costs()
    costs.note(a_join=3.0)
    costs.note(narrowing=1e-3, share=0.9)
    assert costs.constants_first(1_000)
    costs.note(a_join=1e-7)
    assert not costs.constants_first(1_000)


def test_documents_of_a_batch_are_indexed_before_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each event tests those before it one by one. Runs of older documents stay whole."""
    asked: list[tuple[int, int, list[int]]] = []

    def answer(self: Answerer, values: Any, needed: Any, states: Any, snapshot: DocumentSnapshot) -> Any:
        for index in snapshot.indexes.values():
            asked.append((index.sorted, snapshot.size, [run.newest for run in index.runs]))
        return real(self, values, needed, states, snapshot)

    real = Answerer.answer
    monkeypatch.setattr(Answerer, "answer", answer)
    with dibs.Matcher() as m, using({"remembered_at_once": 200}):
        m.add("less", "EXISTS d (d.k = k AND d.n < n)")
        m.add("five", "(SELECT COUNT(*) FROM history d WHERE d.k = k) >= 5")
        found = list(m.match_batch([{"k": i % 3, "n": i} for i in range(600)], remember=True))
        assert found == [["five"] * (i >= 15) + ["less"] * (i >= 3) for i in range(600)]
        sizes = [len(index.runs) for index in m.history.state.coded.snapshot.indexes.values()]
    assert {size for _, size, _ in asked} == {200, 400, 600}
    assert all(size == sorted and runs[-1] == size - 1 for sorted, size, runs in asked)
    assert all(len(runs) == 1 or runs[-2] == size - 201 for _, size, runs in asked)
    assert max(sizes) < 3
