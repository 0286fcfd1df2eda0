"""Joins over history in backtests and replays: each event sees those before it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dibs
from dibs.tuning import using
from join_judges import expression, rows

TEXTS = [
    "FORALL d (isbn <> d.isbn)",
    "price < (SELECT MIN(d.price) FROM history d WHERE d.isbn = isbn)",
    "(SELECT COUNT(*) FROM history d) >= 3 AND price > 0",
    "price > 5",
]
EVENTS: list[dict[str, Any]] = [
    {"isbn": 1, "price": 9},
    {"isbn": 2, "price": 5},
    {"isbn": 1, "price": 8},
    {"isbn": 2, "price": 7},
    {"isbn": 1, "price": 6},
]
FOUND = [[0, 3], [0], [1, 3], [2, 3], [1, 2, 3]]
OLD = [{"isbn": 1, "price": 7}]


def remembered(history: list[dict[str, Any]], **settings: Any) -> list[list[int]]:
    with dibs.Matcher(**settings) as m:
        m.add_many(list(enumerate(TEXTS)))
        m.history.load(history)
        return [m.match(event, remember=True) for event in EVENTS]


def by_expression(found: list[list[int]]) -> list[int]:
    return [sum(number in ids for ids in found) for number in range(len(TEXTS))]


@pytest.fixture(params=["dicts", "table", "lines", "parquet", "jsonl", "iterator"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The events in several forms."""
    table = pa.Table.from_pylist(EVENTS)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in EVENTS)
    (tmp_path / "a.jsonl").write_bytes(lines)
    return {
        "dicts": EVENTS,
        "table": table,
        "lines": lines,
        "parquet": tmp_path / "a.parquet",
        "jsonl": tmp_path / "a.jsonl",
        "iterator": iter(EVENTS),
    }[request.param]


def test_backtest(stored: Any) -> None:
    assert remembered([]) == FOUND
    found = dibs.backtest(TEXTS, stored)
    assert [result.count for result in found.values()] == by_expression(FOUND)
    assert [example.event for example in found[1].examples] == [2, 4]


def test_replay(stored: Any) -> None:
    with dibs.Matcher() as m:
        m.add_many(list(enumerate(TEXTS)))
        m.history.add({"isbn": 2, "price": 100})  # which is left alone
        pairs: list[tuple[int, Any]] = []

        def note(first: int, matches: dibs.Matches) -> None:
            pairs.extend((first + row, id) for row, ids in enumerate(matches) for id in ids)

        result = m.replay(stored, on_matches=note)
        assert pairs == [(row, id) for row, ids in enumerate(FOUND) for id in ids]
        assert result.counts()["count"].to_pylist() == by_expression(FOUND)
        assert len(m.history) == 1 and m.match({"isbn": 2, "price": 1}) == [1]


def test_documents_before_the_first_event_and_retention() -> None:
    expected = remembered(OLD)
    assert expected != FOUND
    found = dibs.backtest(TEXTS, EVENTS, history=OLD)
    assert [result.count for result in found.values()] == by_expression(expected)
    with dibs.Matcher() as m:
        m.add_many(list(enumerate(TEXTS)))
        assert m.replay(EVENTS, history=OLD).counts()["count"].to_pylist() == by_expression(expected)
    expected = remembered(OLD, retain=2)
    found = dibs.backtest(TEXTS, EVENTS, history=OLD, retain=2)
    assert [result.count for result in found.values()] == by_expression(expected)
    with dibs.Matcher(retain=2) as m:
        m.add_many(list(enumerate(TEXTS)))
        assert m.replay(EVENTS, history=OLD).counts()["count"].to_pylist() == by_expression(expected)


def test_a_subscription_that_comes_during_a_replay(tmp_path: Path) -> None:
    """It sees the events from the batch on for which there was a join, and those of its own batch."""
    from dibs.past.replay import replay_batches

    pq.write_table(pa.table({"a": [1] * 6, "b": [2] * 6, "c": [3] * 6}), tmp_path / "a.parquet")
    with dibs.Matcher() as m:
        m.add("a", "(SELECT COUNT(*) FROM history d WHERE d.a = a) >= 3")
        found = []
        for first, matches in replay_batches(m, tmp_path / "a.parquet", batch_size=2):
            found.append((first, [list(ids) for ids in matches]))
            if first == 0:
                m.add("b", "(SELECT COUNT(*) FROM history d WHERE d.b = b) >= 2")  # b was not read before
    assert found == [(0, [[], []]), (2, [[], ["a"]]), (4, [["a", "b"], ["a", "b"]])]


def test_what_cannot_be_read_is_not_seen() -> None:
    lines = b'{"isbn": 1}\n{broken\n{"isbn": 1}\n'
    for found in (
        dibs.backtest("(SELECT COUNT(*) FROM history d) = 1", lines, on_error="skip").count,
        _replayed("(SELECT COUNT(*) FROM history d) = 1", lines),
    ):
        assert found == 1


def _replayed(text: str, events: Any) -> int:
    with dibs.Matcher() as m:
        m.add(0, text)
        return m.replay(events, on_error="skip").pairs


def test_as_matches_that_remember() -> None:
    random = Random(3)
    texts, events = [expression(random) for _ in range(50)], rows(random, 30)
    with using({"few_joins": 0}):  # both orders of phases
        with dibs.Matcher() as m:
            m.add_many(list(enumerate(texts)))
            expected = [0] * len(texts)
            for ids in m.match_batch(events, remember=True):
                for id in ids:
                    expected[id] += 1
            m.history.clear()
            assert m.replay(events).counts()["count"].to_pylist() == expected
        assert [result.count for result in dibs.backtest(texts, events).values()] == expected
