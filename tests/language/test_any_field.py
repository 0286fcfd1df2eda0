"""ANY(*): all strings of an event, at any depth, as one attribute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dibs
from dibs.language.sql import parse, validate
from dibs.matcher import Matcher
from lanes import check_lanes, check_without_kernels

EVENTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "numbers": {"a": 5, "b": [1, 2], "c": True, "d": None},
    "top": {"cmd": "run Mimikatz.exe", "a": 5},
    "deep": {"o": {"p": [{"q": "mimikatz"}, ["x"]]}},
    "other": {"cmd": "ls", "name": "x"},
    "times": {"cmd": "2024-02-29"},
    "empty": {"cmd": ""},
    "key": {"mimikatz": 1},
}
_INNER = pa.struct({"q": pa.string()})
SCHEMA = pa.schema({"cmd": pa.string(), "name": pa.dictionary(pa.int32(), pa.string()), "a": pa.int64()})
HOLDS = {
    "ANY(*) ILIKE '%mimikatz%'": ("top deep", "other times empty"),
    "ANY(*) LIKE '%mimikatz%'": ("deep", "top other times empty"),
    "(ANY(*) ILIKE '%mimikatz%') IS NOT TRUE": ("nothing numbers other times empty key", "top deep"),
    "ANY(*) = 'x'": ("deep other", "top times empty"),
    "ANY(*) IN ('ls', 'x')": ("deep other", "top times empty"),
    "any(*) RLIKE '^[a-z]+$'": ("deep other", "top times empty"),
    "ENDSWITH(ANY(*), '.exe') AND a = 5": ("top", "deep other times empty"),
    "ANY(*) IS NULL": ("nothing numbers key", "top deep other times empty"),
    "ANY(*) >= DATE '2024-01-01'": ("times", ""),
    "length(ANY(*)) = 0": ("empty", "top deep other times"),
    "ANY(*) = cmd": ("top other times empty", ""),
    "ANY(*) LIKE ANY ('%mimi%', 'l_')": ("deep other", "top times empty"),
    "ANY(*) BETWEEN 'x' AND 'y'": ("deep other", "top times empty"),
    "same_text(ANY(*), 'ls')": ("other", "top deep times empty"),
}


@pytest.mark.parametrize("text", HOLDS)
def test_without_kernels(text: str) -> None:
    check_without_kernels(text, HOLDS, EVENTS)


def test_every_lane() -> None:
    check_lanes(HOLDS, EVENTS, SCHEMA)


def test_nested_columns() -> None:
    rows = [
        {"o": {"p": [{"q": "mimikatz"}, None], "m": [("k", ["x"])]}},
        {"o": None},
        {"o": {"p": None, "m": [("mimikatz", [None, "y"])]}},
        {"o": {"p": [{"q": None}], "m": []}},
    ]
    inner = pa.struct({"p": pa.list_(_INNER), "m": pa.map_(pa.string(), pa.list_(pa.string()))})
    table = pa.table({"o": pa.array(rows, pa.struct({"o": inner})).field(0)})
    with Matcher() as matcher:
        matcher.add("bad", "ANY(*) = 'mimikatz'")
        matcher.add("x", "ANY(*) = 'x'")
        matcher.add("y", "ANY(*) >= 'y'")
        wanted = [["bad", "x"], [], ["y"], []]
        for several in (1, 7):
            assert [list(ids) for ids in matcher.match_batch(pa.concat_tables([table] * several))] == wanted * several
        assert [list(ids) for ids in matcher.match_batch(table.slice(2))] == wanted[2:]
        assert "*" in matcher.attributes


@pytest.mark.parametrize("test", ["= 5", "IN (5, 'x')", "BETWEEN 1 AND 2", "> TRUE", "* 2 > 2", ""])
def test_other_kinds_are_told(test: str) -> None:
    text = f"ANY(*) {test}"
    problems = validate(text)
    assert problems, text
    assert all(problem.advice and problem.start < problem.end for problem in problems)


def test_what_cannot_be_read_is_told() -> None:
    with Matcher() as matcher:
        matcher.add("it", "ANY(*) = 'x'")
        with pytest.raises(dibs.EventError) as caught:
            matcher.match_batch([{"a": "\ud800"}, {"a": "x"}])
        assert caught.value.attribute == "ANY(*)"
        found = matcher.match_batch([{"a": "\ud800", "b": "x"}, {"a": b"x"}], on_error="skip")
        assert [list(ids) for ids in found] == [["it"], []]
        assert [problem.attribute for problem in found.problems] == ["ANY(*)"]
        deep: Any = "x"
        for _ in range(201):
            deep = [deep]
        with pytest.raises(dibs.EventError, match="more than 200"):
            matcher.match({"a": deep})


def test_any_stays_a_name() -> None:
    assert parse("any = 1 AND a LIKE ANY ('x%', 'y%')") == parse("`any` = 1 AND (a LIKE 'x%' OR a LIKE 'y%')")
    assert validate("ANY(a) = 1")[0].advice.startswith("write the tests one by one")


def test_stored_events(tmp_path: Path) -> None:
    rows = [{"a": "x", "b": ["y"]}, {"a": "z", "b": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet")
    for events in (rows, str(tmp_path / "events.parquet")):
        assert dibs.backtest("ANY(*) = 'y'", events).count == 1
        assert dibs.backtest("size(b) = 1", events).count == 1
        with Matcher() as matcher:
            matcher.add("it", "ANY(*) = 'y'")
            assert matcher.replay(events).pairs == 1
