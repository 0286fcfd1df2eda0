"""A test with a time reads a string as a time: every form, and every lane alike."""

from __future__ import annotations

import datetime as dt
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dibs
from dibs.errors import ExpressionError
from dibs.language.flatten import microseconds
from dibs.language.literals import read_time, time_of
from dibs.language.sql import parse
from dibs.language.time_kernels import read_times
from dibs.matcher import Matcher
from dibs.past.backtest import backtest
from dibs.reference import evaluate
from dibs.segments.compile import kept_form
from dibs.storage.manifest import HEAD
from dibs.tuning import smallest, using
from plain_matchers import plain_matching

# --- texts ---------------------------------------------------------------------------------------------------------

MAY = dt.datetime(2024, 5, 1)
HALF = MAY.replace(hour=10, minute=30)
READ: dict[str, dt.datetime] = {
    "2024": dt.datetime(2024, 1, 1),
    "2024-5": MAY,
    "2024-05-01": MAY,
    " 2024-5-1\t": MAY,
    "2024-05-01T10": MAY.replace(hour=10),
    "2024-05-01 1:2": MAY.replace(hour=1, minute=2),
    "2024-05-01T10:30:00": HALF,
    "2024-05-01T10:30Z": HALF,
    "2024-05-01T10:30:00 UTC": HALF,
    "2024-05-01 10:30:00GMT": HALF,
    "2024-05-01T10:30:00.": HALF,
    "2024-05-01T10:30:00.123456789Z": HALF.replace(microsecond=123456),
    "2024-05-01T10:30:00.5+02:00": HALF.replace(hour=8, microsecond=500_000),
    "2024-05-01T10:30:00+2": HALF.replace(hour=8),
    "2024-05-01T10:30:00+02:0": HALF.replace(hour=8),
    "2024-05-01T10:30:00-0230": HALF.replace(hour=13, minute=0),
    "2024-05-01T10:30:00UT-18": dt.datetime(2024, 5, 2, 4, 30),
    "2024-05-01T10:30:00GMT+02:00:30": HALF.replace(hour=8, minute=29, second=30),
    "2024-02-29T23:59:59.999999": dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    "0001-01-01": dt.datetime(1, 1, 1),
    "9999-12-31T23:59:59.999999Z": dt.datetime.max,
}
NO_TIMES = [
    "", " ", "abc", "12:30", "T12:30", "5", "20240501", "2024-13-01", "2023-02-29", "2024-05-01T", "2024-05-01T24:00",
    "2024-05-01T23:59:60", "2024-05-01T10Z", "2024-05-01T10:30:00+18:01", "2024-05-01T10:30:00+02:60",
    "2024-05-01T10:30:00z", "2024-05-01T10:30:00 Europe/Berlin", "2024-05-01  10:30:00", "2024-05-01T10:30:00,5",
    "2024/05/01", "0000-01-01", "10000-01-01", "+2024-01-01", "0001-01-01T00:00:00+02:00", "\xa02024-05-01",
    "２024-01-01", "2024-05-01T10:30:00Z Z", "2024-05-01T10:30:00+12345", "2024-05-01T10:30:00+1:2:3",
]  # fmt: skip


def read_all(texts: list[str]) -> list[int | None]:
    """As kernels read them."""
    encoded = [text.encode() for text in texts]
    starts = np.append(0, np.cumsum([len(text) for text in encoded])).astype(np.int64)
    is_time, found = read_times(np.frombuffer(bytearray(b"".join(encoded)), np.uint8), starts[:-1], starts[1:])
    return [value if good else None for good, value in zip(is_time.tolist(), found.tolist())]


def plain(text: str) -> int | None:
    moment = time_of(text)
    return None if moment is None else microseconds(moment)


def test_forms() -> None:
    assert {text: time_of(text) for text in READ} == READ
    assert [text for text in NO_TIMES if time_of(text) is not None] == []
    texts = [*READ, *NO_TIMES]
    assert read_all(texts) == [plain(text) for text in texts]


ALPHABET = "0123456789-:. TZ+UGMC\0é"
EDITS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", *ALPHABET]), st.booleans()), max_size=3)


@given(st.lists(st.tuples(st.sampled_from([*READ, *NO_TIMES]), EDITS), min_size=1, max_size=40))
def test_texts_that_are_nearly_times(made: list[tuple[str, list[tuple[int, str, bool]]]]) -> None:
    texts = []
    for text, edits in made:
        for place, character, replaces in edits:
            text = text[:place] + character + text[place + replaces :]
        texts.append(text)
    assert read_all(texts) == [plain(text) for text in texts]


@given(
    st.datetimes(timezones=st.timezones() | st.none()),
    st.sampled_from(["T", " "]),
    st.sampled_from(["auto", "minutes", "seconds", "milliseconds"]),
)
@example(dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), "T", "auto")
def test_as_python_reads(value: dt.datetime, separator: str, timespec: str) -> None:
    text = value.isoformat(separator, timespec)
    back = dt.datetime.fromisoformat(text)
    offset = back.utcoffset() or dt.timedelta()
    try:
        expected = None if offset.microseconds else back.replace(tzinfo=None) - offset
    except OverflowError:
        expected = None
    assert time_of(text) == expected
    assert read_all([text]) == [None if expected is None else microseconds(expected)]


# --- rules ---------------------------------------------------------------------------------------------------------

EARLY, LATE = "2024-05-01T09:00:00Z", "2024-05-01T12:00:00+02:00"  # the late one is at 10 UTC
AT = "TIMESTAMP '2024-05-01 10:00:00'"
DAY = dt.datetime(2024, 5, 1)
# A rule, and events for which it is TRUE, FALSE and UNKNOWN.
RULES: list[tuple[str, list[Any], list[Any], list[Any]]] = [
    (f"at >= {AT}", [LATE, DAY.replace(hour=11), "2025"], [EARLY, "2024-05-01", DAY], ["12:30", "abc", 5, True, None]),
    (f"at = {AT}", [LATE, "2024-05-01 10:00:00.0"], [EARLY], ["", 1714557600000000]),
    (f"at <> {AT}", [EARLY, [LATE, EARLY]], [LATE], ["x", ["x", 1]]),
    (f"NOT at < {AT}", [LATE], [EARLY], ["today"]),
    (f"at IN ({AT}, DATE '2024-05-02')", [LATE, "2024-05-02", dt.date(2024, 5, 2)], [EARLY], ["2"]),
    (f"at NOT IN ({AT}, DATE '2024-05-02')", [EARLY], [LATE, "2024-05-02 "], ["never"]),
    (f"at IN ('2024-05-01T10:00:00', {AT})", [LATE], [EARLY], ["x"]),
    (f"at NOT IN ('2024-05-02T00:00:00Z', {AT})", [EARLY], [LATE, "2024-05-02"], ["x"]),
    (f"at IN (5, {AT})", [5, LATE, [EARLY, 5]], [], [6, EARLY, "5", False]),
    (f"at BETWEEN DATE '2024-05-01' AND {AT}", [EARLY, LATE, DAY], ["2024-05-01T10:00:00.000001Z"], ["between"]),
    (f"at BETWEEN '2024-05-01' AND {AT}", [EARLY, LATE], ["2024-04-30"], ["between", 7]),
    (f"at NOT BETWEEN DATE '2024-05-01' AND {AT}", ["2025", "2024-04"], [EARLY, LATE], ["neither"]),
    (f"at > DATE '2024-04-30' AND at < {AT}", [EARLY], [LATE], ["x"]),
    (f"at >= {AT} OR at = 'now'", [LATE, "now"], [], ["later"]),
    ("at >= '2024-05-01T08' AND at < TIMESTAMP '2024-05-01 10:00:00Z'", [EARLY], ["2024-05-01T07:00:00Z", LATE], [1]),
    (f"a.b >= {AT} OR size = 3", [{"a": {"b": LATE}}, {"size": 3}], [{"a": {"b": EARLY}, "size": 4}], [{"size": 4}]),
    ("at IS NULL OR at = DATE '2024-05-01'", [None, "2024-05-01"], [EARLY], ["x"]),
    (f"({AT} > at OR b = 1) AND at LIKE '2024%'", [EARLY], ["2023"], ["2024-06", 4]),
]  # fmt: skip


def events_of(values: list[Any]) -> list[dict[str, Any]]:
    return [value if isinstance(value, dict) else {} if value is None else {"at": value} for value in values]


CASES = [
    (text, truth, event)
    for text, *groups in RULES
    for truth, values in zip((True, False, None), groups)
    for event in events_of(values)
]
TEXTS = [text for text, *_ in RULES]
EVENTS = [event for *_, event in CASES]


def expected() -> list[list[str]]:
    """The rules that each event satisfies, by the reference."""
    trees = {text: parse(text) for text in TEXTS}
    return [sorted(text for text, tree in trees.items() if evaluate(tree, event) is True) for event in EVENTS]


def as_json(event: dict[str, Any]) -> bytes | None:
    """None: it holds times, which JSON has not."""
    try:
        return orjson.dumps(event, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError:
        return None


def test_truths() -> None:
    for text, truth, event in CASES:
        assert evaluate(parse(text), event) is truth, (text, event)


@pytest.mark.parametrize("setting", ["default", "smallest"])
@pytest.mark.parametrize("index", ["auto", "scan", "betree"])
def test_all_lanes(index: str, setting: str) -> None:
    wanted = expected()
    with using({} if setting == "default" else smallest()):
        m = dibs.Matcher(index=index)
        m.add_many([(text, text) for text in TEXTS])
        assert [sorted(found) for found in m.match_batch(EVENTS)] == wanted
        assert [sorted(m.match(event)) for event in EVENTS] == wanted
        lines = [as_json(event) for event in EVENTS]
        of_json = [(line, found) for line, found in zip(lines, wanted) if line is not None]
        assert [sorted(m.match(line)) for line, _ in of_json] == [found for _, found in of_json]
        batch = m.match_batch(b"\n".join(line for line, _ in of_json))
        assert [sorted(found) for found in batch] == [found for _, found in of_json]
        strings = [(e["at"], w) for e, w in zip(EVENTS, wanted) if isinstance(e.get("at"), str)]
        for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
            table = pa.table({"at": pa.array([at for at, _ in strings]).cast(kind)})
            assert [sorted(found) for found in m.match_batch(table)] == [w for _, w in strings]
        assert all(m.explain(text, event).truth is truth for text, truth, event in CASES)
        for waiting, _ in enumerate(TEXTS):  # not built yet
            fresh = dibs.Matcher(index=index)
            fresh.add("other", "x = 1")
            fresh.match({"x": 1})
            fresh.add(0, TEXTS[waiting])
            found = [bool(fresh.match(line)) for line, _ in of_json]
            assert found == [TEXTS[waiting] in matched for _, matched in of_json], TEXTS[waiting]


def test_backtest() -> None:
    wanted = expected()
    result = backtest({text: text for text in TEXTS}, EVENTS)
    for text in TEXTS:
        assert result[text].count == sum(text in found for found in wanted), text


def test_before_the_kernels_are_there() -> None:
    m = plain_matching([(text, text) for text in TEXTS])
    assert [sorted(m.match(event)) for event in EVENTS] == expected()
    assert [sorted(found) for found in m.match_batch(EVENTS)] == expected()


def test_others_do_not_change() -> None:
    m = dibs.Matcher()
    m.add("text", "at >= '2024-05-01T'")
    m.add("there", "at IS NOT NULL")
    event = {"at": "2024-05-01 23:00:00"}  # a blank is below T
    assert m.match(event) == ["there"]
    m.add("time", f"at >= {AT}")
    assert m.match(event) == ["there", "time"] == next(iter(m.match_batch([event])))
    assert m.match({"at": MAY.replace(hour=11)}) == ["there", "time"]


def test_literals_are_the_texts_that_they_quote() -> None:
    for text in READ:
        assert read_time("TIMESTAMP", text).value == READ[text]
        assert evaluate(parse(f"at = TIMESTAMP '{text}'"), {"at": text}) is True


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"at IN ('abc', {AT})", "'abc'"),
        (f"at NOT IN ({AT}, '12:30')", "'12:30'"),
        (f"at BETWEEN 'x' AND {AT}", "'x'"),
        ("EXISTS d (d.at IN (DATE '2024-05-01', 'soon'))", "'soon'"),
    ],
)
def test_a_string_beside_a_time_must_be_one(text: str, place: str) -> None:
    [problem] = dibs.validate(text)
    assert text[problem.start : problem.end] == place
    assert "is no time" in problem.message and "TIMESTAMP" in problem.advice
    with pytest.raises(dibs.ExpressionError):
        dibs.Matcher().add(1, text)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (EARLY, "at is '2024-05-01T09:00:00Z', below 2024-05-01 10:00:00"),
        (LATE, "at is '2024-05-01T12:00:00+02:00', equal to 2024-05-01 10:00:00"),
        ("12:30", "at is '12:30', which reads as no time"),
        (5, "at is a number (5), compared with a time"),
    ],
)
def test_explained(at: Any, words: str) -> None:
    m = dibs.Matcher()
    m.add(1, f"at >= {AT}")
    assert words in str(m.explain(1, {"at": at}))


@pytest.mark.parametrize("lost", [False, True])
def test_a_folder_with_a_list_that_is_refused_today(tmp_path: Path, lost: bool) -> None:
    """Earlier versions took a string that is no time beside a time: it opens, and the string never matches. lost: what
    was compiled, so that all texts are read."""
    texts = {
        "in": ("at IN ('abc', DATE '2024-05-01')", True),
        "not in": ("at NOT IN ('abc', DATE '2024-05-02')", False),
        "between": ("at BETWEEN 'abc' AND DATE '2025-01-01'", False),
    }
    folder = tmp_path / "folder"
    with Matcher.open(folder) as matcher:
        for id, (text, _) in texts.items():
            with pytest.raises(ExpressionError):
                matcher.add(id, text)
            change = (id, text, 1.0, kept_form(text))
            matcher.changes.change(partial(matcher.changes.make, [change], new=True))
    if lost:
        (folder / HEAD).unlink()
    for read_only in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened = Matcher.open(folder, read_only=read_only)
        with opened as matcher:
            for event in ({"at": dt.date(2024, 5, 1)}, {"at": "2024-05-01"}, b'{"at": "2024-05-01"}'):
                assert matcher.match(event) == [id for id, (_, holds) in texts.items() if holds]
            assert list(matcher.match_batch([{"at": "abc"}, {"at": "2024-05-01"}])) == [[], ["in"]]
            for id, (text, holds) in texts.items():
                assert matcher.expression(id) == text
                assert matcher.explain(id, {"at": "2024-05-01"}).matched is holds


def test_retention_by_age_reads_strings() -> None:
    with Matcher(retain=dt.timedelta(hours=1)) as matcher:
        for hour in (9, 10, 11, 12):
            matcher.history.add({"time": f"2024-05-01T{hour:02}:00:00Z"})
        matcher.history.add({"time": "soon"})
        assert len(matcher.history) == 3
        matcher.history.load([{"time": dt.datetime(2024, 5, 1, 12, 30)}, {"time": "2024-05-01T13:10:00+00:00"}])
        assert len(matcher.history) == 3  # soon, 12:30 and 13:10
        assert matcher.history.prune(before=dt.datetime(2024, 5, 1, 13)) == 1
