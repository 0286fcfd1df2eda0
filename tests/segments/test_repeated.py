"""Expressions that many subscribers have stand once in a segment: every entry says what the evaluator says of each."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs.coding.repeats
from dibs.coding.clauses import code_clauses
from dibs.coding.repeats import RowRuns, Spreading, find_repeats
from dibs.errors import FormatError
from dibs.language.normal_form import normal_form
from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.reference import matches
from dibs.segments.compile import compile_texts
from dibs.segments.segment import Segment
from dibs.storage import store
from dibs.storage.check import check_folder
from dibs.storage.files import read_file
from dibs.tuning import using
from settings import THRESHOLDS

FORMS = (
    "a = {0} AND b <= {1}",
    "a = {0} OR (b > {1} AND c IN (1, {0}, 5))",
    "(a = {0} OR b <= {1}) AND NOT host LIKE 'x{1}%'",
    "a NOT IN ({0}, {1}) AND host LIKE '%y{0}%'",
    "a = {0} AND abs(b - {1}.5) < 2 AND b * 1.{0} < 9.{1}",
    "a IS NULL",
    "a <> {0} AND a <> {1} AND c IN ({0}, 3, {1}, 9)",
)


def texts_of(random: Random, count: int) -> list[str]:
    """In several spellings."""
    made = [random.choice(FORMS).format(random.randrange(3), random.randrange(4)) for _ in range(count)]
    return [text + random.choice(["", " ", " /* mine */"]) for text in made]


def events_of(random: Random, count: int) -> list[dict[str, Any]]:
    made = []
    for _ in range(count):
        event: dict[str, Any] = {name: random.randrange(6) for name in "abc" if random.random() < 0.8}
        made.append(event | {"host": f"x{random.randrange(4)}y{random.randrange(4)}"})
    return made


def segments_of(matcher: Any) -> list[Segment]:
    return [layer.segment for layer in matcher._layers.state.layers]


def check(matcher: Any, texts: dict[Any, str], weights: dict[Any, float], events: list[dict[str, Any]]) -> None:
    forms = {text: normal_form(parse(text)) for text in set(texts.values())}
    wanted = []
    for event in events:
        true = {text for text, form in forms.items() if matches(form, event)}
        wanted.append(sorted(id for id, text in texts.items() if text in true))
    assert [matcher.match(event) for event in events] == wanted
    assert [matcher.match(json.dumps(event).encode()) for event in events] == wanted
    batch = matcher.match_batch(events)
    assert [list(ids) for ids in batch] == wanted and batch.count == sum(map(len, wanted))
    assert matcher.count(events).tolist() == list(map(len, wanted))
    best = [sorted(ids, key=lambda id: (-weights.get(id, 1.0), id))[:4] for ids in wanted]
    assert [matcher.match(event, top=4) for event in events] == best
    assert matcher.match_batch(events, top=4).top(4) == best
    for id in list(texts)[::29]:
        assert matcher.expression(id) == texts[id]
        assert matcher.explain(id, events[0]).matched == (id in wanted[0])


@pytest.mark.parametrize(("thresholds", "count"), [("default", 2_000), ("smallest", 400)])
def test_every_entry_while_they_come_and_go(thresholds: str, count: int, tmp_path: Path) -> None:
    random = Random(thresholds)
    texts: dict[Any, str] = dict(enumerate(texts_of(random, count)))
    weights = {id: float(random.randrange(9)) for id in texts}
    events = events_of(random, 12)
    own = {} | THRESHOLDS[thresholds](1) | {"residual_mentions": count}
    with using(own), Matcher.open(tmp_path / "folder") as matcher:
        columns = {"id": list(texts), "expression": list(texts.values()), "weight": list(weights.values())}
        matcher.add_table(pa.table(columns))
        (segment,) = segments_of(matcher)
        assert segment.repeats is not None and segment.spellings is not None and segment.residuals is not None
        assert len(segment.clauses) < len(segment.texts) < len(segment) / 2
        check(matcher, texts, weights, events)
        for id in list(texts)[::3]:
            matcher.remove(id)
            del texts[id]
        for id, text in zip(list(texts)[::7], texts_of(random, count)):
            matcher.replace(id, text)
            texts[id] = text
        check(matcher, texts, weights, events)
        matcher.compact()
        assert all(segment.repeats is not None for segment in segments_of(matcher))
        check(matcher, texts, weights, events)
        matcher.save(tmp_path / "saved")
    assert not [problem for finding in check_folder(tmp_path / "folder") for problem in finding.problems]
    with Matcher.open(tmp_path / "folder") as matcher:
        check(matcher, texts, weights, events)
    with Matcher.load(tmp_path / "saved") as matcher:
        (segment,) = segments_of(matcher)
        assert segment.repeats is not None and segment.spellings is not None
        check(matcher, texts, weights, events)


@pytest.mark.parametrize("index", ["scan", "counting", "betree"])
def test_other_indexes(index: str) -> None:
    random = Random(index)
    texts: dict[Any, str] = {f"s{i}": text for i, text in enumerate(texts_of(random, 150))}
    with using(THRESHOLDS["smallest"](1)), Matcher(index=index) as matcher:
        matcher.add_many(texts.items())
        assert segments_of(matcher)[0].repeats is not None
        check(matcher, texts, {}, events_of(random, 8))


def test_joins_are_asked_once_for_all_who_have_them() -> None:
    texts = {i: f"EXISTS d (d.key = key AND d.price > {i % 3})" + (" AND a = 1" if i % 2 else "") for i in range(60)}
    with using(THRESHOLDS["smallest"](1)), Matcher() as matcher:
        matcher.add_many(texts.items())
        assert len(segments_of(matcher)[0].clauses) == 6
        for price in (1, 2):
            matcher.history.add({"key": 7, "price": price})
            for event in ({"key": 7, "a": 1}, {"key": 7, "a": 2}, {"key": 8, "a": 1}):
                wanted = [i for i in texts if event["key"] == 7 and price > i % 3 and (event["a"] == 1 or not i % 2)]
                assert matcher.match(event) == wanted
                assert list(matcher.match_batch([event] * 5)) == [wanted] * 5


def test_distinct_ones_are_left_as_they_are() -> None:
    with Matcher() as matcher:
        matcher.add_table(pa.table({"id": range(4_000), "expression": [f"a = {i % 3_000}" for i in range(4_000)]}))
        assert segments_of(matcher)[0].repeats is None


def test_rows_that_are_in_order_already(tmp_path: Path) -> None:
    """Nothing has to move, and the texts stand once all the same."""
    texts = {i: f"a = {i // 500}" for i in range(2_000)}
    with Matcher() as matcher:
        matcher.add_table(pa.table({"id": list(texts), "expression": list(texts.values())}))
        matcher.save(tmp_path / "saved")
    with Matcher.load(tmp_path / "saved") as loaded:
        (segment,) = segments_of(loaded)
        assert len(segment.clauses) == len(segment.texts) == 4
        check(loaded, texts, {}, [{"a": 3}, {"a": 4}])


def test_what_one_clause_and_its_rows_cost(tmp_path: Path) -> None:
    """All of a matcher but the ids: bytes, and how many subscriptions an event looks at."""
    texts = [f"a = {i % 20} AND b <= {i % 5}" for i in range(20_000)]
    with Matcher() as matcher:
        matcher.add_table(pa.table({"id": range(len(texts)), "expression": texts}))
        (segment,) = segments_of(matcher)
        assert len(segment.clauses) == 20
        parts = segment.nbytes
        assert sum(parts.values()) - parts["ids"] - parts["versions"] < len(texts)
        assert matcher.match({"a": 3, "b": 1}) == list(range(3, len(texts), 20))
        assert matcher._matching.counters["false candidates"] == 0


def test_a_version_that_knows_nothing_of_it_refuses_the_file(tmp_path: Path) -> None:
    with using(THRESHOLDS["smallest"](1)), Matcher() as matcher:
        matcher.add_many((i, "a = 1") for i in range(9))
        matcher.save(tmp_path / "saved")
    (path,) = (tmp_path / "saved").glob("segment-*")
    about, arrays = read_file(path, "segment")
    assert "rows" not in about  # which every version before asks for
    assert arrays["repeats"].tolist() == [0, 9]


def test_runs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with using(THRESHOLDS["smallest"](1)), Matcher() as matcher:
        matcher.add_many((i, f"a = {i % 2}") for i in range(9))
        (segment,) = segments_of(matcher)
    for first in ([0, 9], [0, 9, 9], [1, 5, 9], [0, 5, 8]):
        segment.repeats = RowRuns(np.array(first, np.int32))
        store.save(segment, tmp_path / "bad")
        with pytest.raises(FormatError, match="differ in length"):
            store.load(tmp_path / "bad")


@given(st.lists(st.tuples(st.integers(0, len(FORMS) - 1), st.integers(0, 2)), min_size=4, max_size=40))
def test_rows_have_the_first_that_says_the_same(drawn: list[tuple[int, int]]) -> None:
    texts = [FORMS[form].format(k, k + 1) for form, k in drawn if form != 4]
    compiled = compile_texts(pa.array([*texts, *texts], pa.large_string()))
    first = find_repeats(code_clauses(compiled.table)[1], None)
    assert first is not None or not texts
    said = [(texts + texts)[i] for i in compiled.order.tolist()]
    assert not texts or first.tolist() == [said.index(text) for text in said]


def test_clauses_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_texts(pa.array([f"a = {i % 3} AND b <= 2" for i in range(30)], pa.large_string()))
    clauses = code_clauses(compiled.table)[1]
    monkeypatch.setattr(dibs.coding.repeats, "hash_rows", lambda rows, chosen: np.zeros(len(chosen), np.uint64))
    found = find_repeats(clauses, None)
    # Those that are equal to the first one are found; the others stand for themselves.
    assert found is not None and found.tolist() == [i if i % 3 else 0 for i in range(30)]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_pairs_are_spread_over_runs(sizes: list[int], data: st.DataObject) -> None:
    runs = RowRuns(np.cumsum([0, *sizes]).astype(np.int32))
    chosen = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=8))
    chunk = np.arange(len(chosen), dtype=np.int32), np.array(chosen, np.int32)
    wanted = [(e, r) for e, k in enumerate(chosen) for r in range(sum(sizes[:k]), sum(sizes[: k + 1]))]
    assert list(zip(*(x.tolist() for x in runs.spread(chunk)))) == wanted
    assert runs.at(np.arange(sum(sizes))).tolist() == [k for k, size in enumerate(sizes) for _ in range(size)]
    found: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dibs.coding.repeats, "SPREAD_AT_ONCE", data.draw(st.integers(1, 5)))
        spreading = Spreading(runs, lambda event, row: found.extend(zip(event.tolist(), row.tolist())))
        spreading(*chunk)
    assert found == wanted and spreading.count == len(wanted)
