"""now(), current_timestamp and current_date: one instant for a call, the same by every way of asking."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import dibs
from dibs.errors import ArgumentError
from dibs.language.present import datetime_at, read_clock, read_now
from dibs.language.printer import to_sql
from dibs.language.sql import parse, validate
from dibs.matcher import Matcher
from dibs.past.backtest import backtest
from dibs.reference import evaluate
from dibs.tuning import using
from plain_matchers import plain_matcher

NOW = "2024-05-01T12:30:00Z"
MICROS = read_now(NOW)
EVENTS = [
    {"at": "2024-05-01T12:00:00Z", "day": "2024-05-01", "n": 5},
    {"at": "2024-05-01T11:00:00Z", "day": "2024-05-02"},
    {"at": "2024-05-01T12:45:00Z", "now": 3},
    {"at": ["2024-05-01T10:00:00Z", "2024-05-01T12:29:59Z"]},
    {"at": "soon", "day": "2024"},
    {"at": 5, "current_date": "x"},
    {},
    {"\0\3": "2020-01-01", "at": None},
]
# Of each condition, what it is of the events above at NOW: T, F or ? (unknown).
CONDITIONS = {
    "at > now() - INTERVAL 1 HOUR": "TFTT????",
    "at > now() - INTERVAL 2 HOURS": "TTTT????",
    "now() - INTERVAL 1 HOUR < at": "TFTT????",
    "at <= current_timestamp": "TTFT????",
    "NOT (at <= CURRENT_TIMESTAMP())": "FFTF????",
    "at BETWEEN now() - INTERVAL 1 HOUR AND now()": "TFFT????",
    "now() - at < INTERVAL 31 MINUTES": "TFTT????",
    "timestampdiff(MINUTE, at, now()) = 30": "TFFF????",
    "day = current_date": "TF??F???",
    "day >= current_date()": "TT??F???",
    "now() > TIMESTAMP '2024-05-01 12:00:00'": "TTTTTTTT",
    "now() > TIMESTAMP '2024-05-01 13:00:00'": "FFFFFFFF",
    "hour(now()) = 12 AND minute(now()) = 30": "TTTTTTTT",
    "now() IS NULL": "FFFFFFFF",
    "now() > 'x'": "????????",
    "at > now() - INTERVAL 1 MONTH": "TTTT????",
    "at >= date_trunc('HOUR', now())": "TFTT????",
    "`current_date` = 'x'": "?????T??",
    "now = 3": "??T?????",
    "n > 4 AND at < now()": "T?F?????",
}


def expected(text: str) -> list[bool]:
    return [letter == "T" for letter in CONDITIONS[text]]


@pytest.mark.parametrize("text", CONDITIONS)
def test_what_it_says(text: str) -> None:
    tree = parse(text)
    assert parse(to_sql(tree)) == tree
    found = [evaluate(tree, event, now=MICROS) for event in EVENTS]
    letters = "".join({True: "T", False: "F", None: "?"}[truth] for truth in found)
    # Over an array a test and its negation may both hold: only what is TRUE is compared there.
    assert letters.replace("F", "?") == CONDITIONS[text].replace("F", "?")
    assert [x for i, x in enumerate(letters) if i != 3] == [x for i, x in enumerate(CONDITIONS[text]) if i != 3]


@pytest.fixture(scope="module")
def matchers() -> Iterator[list[Matcher]]:
    """In plain Python, with all waiting, and compiled."""
    made = [plain_matcher(), Matcher(), Matcher()]
    for matcher in made:
        for text in CONDITIONS:
            matcher.add(text, text)
    made[2].compact()
    yield made
    for matcher in made:
        matcher.close()


@pytest.mark.parametrize("few", [0, 8])
def test_every_way_gives_the_same(matchers: list[Matcher], few: int) -> None:
    right = [sorted(text for text in CONDITIONS if expected(text)[i]) for i in range(len(EVENTS))]
    json = [orjson.dumps(event) for event in EVENTS]
    table = pa.table({"j": [text.decode() for text in json]})
    with using({"few_computed": few}):
        for matcher in matchers:
            assert [matcher.match(event, now=NOW) for event in EVENTS] == right
            assert [matcher.match(text, now=dt.datetime(2024, 5, 1, 12, 30)) for text in json] == right
            assert list(matcher.match_batch(EVENTS, now=NOW)) == right
            assert list(matcher.match_batch(b"\n".join(json), now=datetime_at(MICROS))) == right
            assert list(matcher.match_batch(table, attributes="j", now=NOW)) == right
            assert matcher.count(EVENTS, now=NOW).tolist() == [len(ids) for ids in right]
            for text in CONDITIONS:
                told = [matcher.explain(text, event, now=NOW).matched for event in EVENTS]
                assert told == expected(text), text


def test_native_times_in_columns(matchers: list[Matcher]) -> None:
    times = [dt.datetime(2024, 5, 1, 12), dt.datetime(2024, 5, 1, 11), None] * 10
    table = pa.table({"at": pa.array(times, pa.timestamp("us"))})
    for matcher in matchers:
        found = ["at > now() - INTERVAL 1 HOUR" in ids for ids in matcher.match_batch(table, now=NOW)]
        assert found == [True, False, False] * 10


def test_the_clock_is_read_once_for_a_call() -> None:
    with Matcher() as matcher:
        matcher.add(1, "at > now() - INTERVAL 1 HOUR")
        matcher.add(2, "at > now()")
        soon = datetime_at(read_clock()) + dt.timedelta(minutes=1)
        for event in ({"at": soon}, orjson.dumps({"at": soon.isoformat()})):
            assert matcher.match(event) == [1, 2]
            assert matcher.match(event, now=soon + dt.timedelta(hours=2)) == []
        matcher.add(3, "unix_micros(now()) % 2 = 0")
        counts = set(matcher.count([{"at": soon}] * 2_000).tolist())
        assert len(counts) == 1


def test_events_of_the_past_have_their_own_time(tmp_path: Path) -> None:
    events = [{"sent": "2024-05-01T12:00:00Z", "at": f"2024-05-01T{hour:02}:30:00Z"} for hour in range(8, 14)]
    events += [{"at": "2024-05-01T12:00:00Z"}, {"sent": "never", "at": "2024-05-01T12:00:00Z"}]
    text = "at > now() - INTERVAL 1 HOUR"
    right = [False, False, False, True, True, True, False, False]
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, events)))
    assert [evaluate(parse(text), event, now="sent") is True for event in events] == right
    assert backtest(text, events, now="sent").count == backtest(text, path, now="sent").count == 3
    assert backtest(text, path, now="2024-05-01T09:00:00Z").count == 8
    for matcher in (plain_matcher(stays=False), Matcher()):
        matcher.add(1, text)
        assert [matcher.match(event, now="sent") == [1] for event in events] == right
        assert [ids == [1] for ids in matcher.match_batch(events, now="sent")] == right
        assert matcher.count(events * 3, now="sent").tolist() == [int(x) for x in right] * 3
        assert matcher.explain(1, events[3], now="sent").matched
        assert matcher.replay(path, now="sent").pairs == matcher.replay(events, now="sent").pairs == 3
        assert matcher.replay(pa.Table.from_pylist(events), now="sent").pairs == 3
        assert matcher.attributes == {"at"}
        matcher.close()


def test_what_now_may_be() -> None:
    with Matcher() as matcher:
        matcher.add(1, "at > now()")
        askings: tuple[tuple[Any, Any], ...] = (
            (matcher.match, {}),
            (matcher.match_batch, [{}]),
            (matcher.count, [{}]),
            (partial(matcher.explain, 1), {}),
            (matcher.replay, [{}]),
            (partial(backtest, "a = 1"), [{}]),
        )
        for wrong in (5, 1.5, "", "2024-13-01", "12:30", b"2024", [NOW], True):
            for ask, given in askings:
                with pytest.raises(ArgumentError, match="now must be a datetime"):
                    ask(given, now=wrong)


def test_tests_of_how_long_ago_share_one_attribute() -> None:
    names = {parse(f"at > now() - INTERVAL {hours} HOURS").attribute for hours in range(1, 50)}
    assert len(names) == 1


@pytest.mark.parametrize("text", ["now", "current_date = `current_date`", "now = 1 AND `now` = 1", "curdate() = at"])
def test_names_stay_names(text: str) -> None:
    assert validate(text) == []
    tree = parse(text)
    assert parse(to_sql(tree)) == tree


def test_after_a_restart(tmp_path: Path) -> None:
    with dibs.Matcher.open(tmp_path / "folder") as matcher:
        matcher.add_many([(text, text) for text in CONDITIONS])
        before = list(matcher.match_batch(EVENTS, now=NOW))
    with dibs.Matcher.open(tmp_path / "folder") as matcher:
        assert list(matcher.match_batch(EVENTS, now=NOW)) == before
        matcher.save(tmp_path / "saved")
    with dibs.Matcher.load(tmp_path / "saved") as matcher:
        assert [matcher.match(event, now=NOW) for event in EVENTS] == before
