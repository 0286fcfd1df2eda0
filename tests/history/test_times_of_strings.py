"""Windows over documents and events of JSON: with an INTERVAL, or beside a time, strings are read as times."""

from __future__ import annotations

import datetime as dt
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.language.sql import parse
from dibs.reference import matches
from dibs.tuning import smallest, using

NOON = dt.datetime(2024, 5, 1, 12)
RULES = [
    "EXISTS d (d.at > at - INTERVAL 10 MINUTES)",
    "NOT EXISTS d (d.user = user AND d.at >= at - INTERVAL 10 MINUTES AND d.at <= at)",
    "(SELECT COUNT(*) FROM history d WHERE d.user = user AND d.at > at - INTERVAL 10 MINUTES) >= 2",
    "EXISTS d (d.at = at + INTERVAL 10 MINUTES)",
    "EXISTS d (d.at <> at + INTERVAL 0 SECONDS)",
    "EXISTS d (d.at > TIMESTAMP '2024-05-01 12:00:00' AND d.user = user)",
    "FORALL d (d.at <> DATE '2024-05-01')",
    "EXISTS d (d.at NOT IN (DATE '2024-05-01', '2024-05-01T12:00:00Z'))",
    "EXISTS d (d.at NOT BETWEEN TIMESTAMP '2024-05-01 11:55:00' AND '2024-05-01T12:05:00+00:00')",
    "EXISTS d (d.at = at AND d.at >= at - INTERVAL 1 HOUR)",
    "(SELECT MAX(d.at) FROM history d WHERE d.user = user) >= TIMESTAMP '2024-05-01 12:00:00'",
    "'x' < (SELECT MAX_BY(d.user, d.at) FROM history d WHERE d.at > at - INTERVAL 10 MINUTES)",
    "at >= TIMESTAMP '2024-05-01 12:00:00' AND EXISTS d (d.at < at)",
    "at = '2024-05-01T12:00:00Z' AND EXISTS d (d.at > at - INTERVAL 10 MINUTES)",
]
TIMES: list[Any] = [
    "2024-05-01T12:00:00Z", "2024-05-01T14:00:00+02:00", "2024-05-01 11:50:00", "2024-05-01T11:50:00.000001Z",
    "2024-05-01", "12:00", "soon", NOON, NOON - dt.timedelta(minutes=10), NOON + dt.timedelta(minutes=10), 5, None,
    ["2024-05-01T12:00:00Z", "never"], ["2024-05-01T11:00:00", "2024-05-01T12:10:00"],
]  # fmt: skip
THINGS = st.fixed_dictionaries({"at": st.sampled_from(TIMES), "user": st.sampled_from(["x", "y"])})


@pytest.mark.parametrize("setting", ["default", "smallest"])
@given(documents=st.lists(THINGS, max_size=8), events=st.lists(THINGS, min_size=1, max_size=4))
def test_as_the_reference(setting: str, documents: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    trees = {text: parse(text) for text in RULES}
    with using({} if setting == "default" else smallest()):
        m = dibs.Matcher()
        m.add_many([(text, text) for text in RULES])
        for document in documents:
            m.history.add(document)
        for event in events:
            wanted = sorted(text for text, tree in trees.items() if matches(tree, event, documents))
            assert sorted(m.match(event)) == wanted, event
            for text in RULES:
                assert m.explain(text, event).matched == (text in wanted)
        found = [sorted(ids) for ids in m.match_batch(events, remember=True)]
        seen = list(documents)
        for event, ids in zip(events, found):
            assert ids == sorted(text for text, tree in trees.items() if matches(tree, event, seen)), event
            seen.append(event)


def test_the_fifth_failed_login_in_json() -> None:
    m = dibs.Matcher()
    m.add("fifth", "result = 'fail' AND (SELECT COUNT(*) FROM history d WHERE d.user = user AND d.result = 'fail' "
          "AND d.time > time - INTERVAL 10 MINUTES) >= 4")  # fmt: skip
    found = []
    for minute in (0, 2, 4, 6, 8, 9, 14, 15):
        event = {"user": "eve", "result": "fail", "time": f"2024-01-01T12:{minute:02}:00Z"}
        found.append(m.match(orjson.dumps(event), remember=True))
    assert [bool(ids) for ids in found] == [False] * 4 + [True, True, False, True]
