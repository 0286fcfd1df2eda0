"""What explanations of joins say: the values are those of the reference, and the document that is named makes it so.
And documents by time, by which retention finds the old ones."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.history.coded.program import compile_plans
from dibs.history.plan import plan_of
from dibs.history.state import ByTime
from dibs.history.witness import explain_join
from dibs.language.joins import join_of, joins_in
from dibs.language.sql import parse
from dibs.reference import find_key, values_of
from dibs.reference.joins import is_met, join_values
from dibs.tuning import smallest, using
from join_strategies import documents, subscriptions

# Of 72 conjunctions: kernels do not take it.
MANY = (
    "(d.a <> 1 OR d.b > b OR d.c < c) AND (d.a <= a OR d.s < s) AND (d.e <> e OR d.f <> f OR d.a > 3) "
    "AND (d.a > 0 OR d.g > g OR d.h > h OR d.i > i)"
)
EVENT = {"a": 5, "b": 1, "c": 1, "s": "a", "e": 1, "f": 1}
DOCUMENTS: list[dict[str, Any]] = [
    {"a": 5, "b": 2, "f": 2, "t": 1, "v": "x"},
    {"a": 1, "b": 1},
    {"a": 4, "b": 9, "f": 2, "t": 3, "v": ["y", 7]},
    {"a": 5, "b": 3, "e": [1, 2], "t": 2, "v": "z"},
]


def told_keys(values: list[Any]) -> list[Any]:
    return sorted((find_key(value) for value in values), key=repr)


def check(names: list[str], event: dict[str, Any], history: list[dict[str, Any]], m: dibs.Matcher) -> None:
    read, kept = values_of(event), [values_of(document) for document in history]
    for name, (values, reason) in explain_join(names, event, m.history.state).items():
        join = join_of(name)
        assert told_keys(values) == told_keys(join_values(join, read, kept)), reason
        for number in re.findall(r"\bdocument (\d+)", reason):
            assert is_met(join, read, kept[int(number)], kept), reason


@given(subscriptions(), st.lists(documents(), max_size=5), documents())
def test_explanations_say_what_the_reference_says(tree: Any, history: list[Any], event: Any) -> None:
    names = list(joins_in(tree))
    for settings in ({}, smallest()):
        with using(settings), dibs.Matcher() as m:
            for document in history:
                m.history.add(document)
            check(names, event, history, m)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"EXISTS d ({MANY})", "because of document 3: a 5 <= 5; a is 5"),
        (f"NOT EXISTS d ({MANY} AND d.a = 9)", "none of 4 documents does"),
        (f"(SELECT count(*) FROM history d WHERE {MANY}) = 3", "3 of 4 documents"),
        (
            f"b < (SELECT max(d.b) FROM history d WHERE {MANY})",
            "b is 1, the greatest b of 4 documents is 9 (document 2)",
        ),
        (f"b < (SELECT min(d.b) FROM history d WHERE {MANY})", "b is 1, the least b of 4 documents is 2 (document 0)"),
        (
            f"s < (SELECT max_by(d.v, d.t) FROM history d WHERE {MANY})",
            "s is 'a', the last v by t of 4 documents is 7 or 'y' (document 2)",
        ),
        ("EXISTS d (d.a = a AND d.b > 2)", "because of document 3: a 5 = 5; b is 3"),
        ("s < (SELECT max_by(d.v, d.t) FROM history d WHERE d.a <= a)", "7 or 'y' (document 2)"),
        ("b < (SELECT max(d.b) FROM history d WHERE d.a = a)", "the greatest b of 4 documents is 3 (document 3)"),
        ("(SELECT count(*) FROM history d WHERE d.z = a) = 0", "0 of 4 documents"),
        ("b < (SELECT min(d.z) FROM history d WHERE d.a = a)", "none of 4 documents that count has a z"),
    ],
)
def test_reasons(text: str, reason: str) -> None:
    assert (MANY in text) == bool(compile_plans(map(plan_of, joins_in(parse(text))))[1])
    with dibs.Matcher() as m:
        for document in DOCUMENTS:
            m.history.add(document)
        names = list(joins_in(parse(text)))
        check(names, EVENT, DOCUMENTS, m)
        ((_, told),) = explain_join(names, EVENT, m.history.state).values()
        assert reason in told


@given(st.lists(st.one_of(st.none(), st.integers(0, 20)), max_size=40), st.integers(1, 8), st.integers(0, 20))
def test_documents_by_time(times: list[int | None], tail: int, limit: int) -> None:
    with using({"history_tail": tail}):
        half = len(times) // 2
        found = first = ByTime.of((time, row) for row, time in enumerate(times[:half]))
        before = sorted(first.between(None, limit))
        for row, time in enumerate(times[half:], half):
            found = found.add(time, row)
        known = [(time, row) for row, time in enumerate(times) if time is not None]
        assert sorted(found.between(None, limit)) == [row for time, row in known if time < limit]
        assert sorted(found.between(5, limit)) == [row for time, row in known if 5 <= time < limit]
        assert sorted(first.between(None, limit)) == before, "a value never changes"
