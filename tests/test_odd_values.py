"""Every public function with a few hundred odd values in each argument: what comes out is a result or a DibsError.

What Python itself says of a call, before any function runs, stays what it is: a TypeError for an argument that is
missing, or too many, or has another name; and so does what a caller's own code raises (a function that is called back,
a class whose methods raise)."""

from __future__ import annotations

import copy as copies
import datetime as dt
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dibs
from odd_values import Call, raw_exceptions
from plain_matchers import plain_matcher

JOIN = "EXISTS d (d.a = a)"


def filled(m: Any) -> Any:
    m.add_many([("x", "a = 1"), ("y", "a > 0 AND b LIKE 'x%'"), (3, "a.b = 2 OR a IS NULL")])
    return m


def with_joins() -> dibs.Matcher:
    m = filled(dibs.Matcher())
    m.add("join", JOIN)
    m.history.load([{"a": 1, "time": dt.datetime(2024, 1, 1)}, {"a": 2}])
    return m


MATCHING: dict[str, Call] = {
    "match": Call(lambda m, v: m.match(v)),
    "match top": Call(lambda m, v: m.match({"a": 1}, top=v)),
    "match remember": Call(lambda m, v: m.match({"a": 1}, remember=v)),
    "match key": Call(lambda m, v: m.match({"a": 1}, key=v)),
    "match remember key": Call(lambda m, v: m.match({"a": 1}, remember=True, key=v)),
    "match remembered": Call(lambda m, v: m.match(v, remember=True)),
    "match a value": Call(lambda m, v: m.match({"a": v})),
    "match a value inside": Call(lambda m, v: m.match({"a": [{"b": v}, v]})),
    "match a remembered value": Call(lambda m, v: m.match({"a": [{"b": v}, v]}, remember=True)),
    "match_batch": Call(lambda m, v: m.match_batch(v)),
    "match_batch skip": Call(lambda m, v: m.match_batch(v, on_error="skip")),
    "match_batch of one": Call(lambda m, v: m.match_batch([v, {"a": v}], on_error="skip")),
    "match_batch attributes": Call(lambda m, v: m.match_batch([{"a": 1}], attributes=v)),
    "match_batch under a key": Call(lambda m, v: m.match_batch(v, attributes="a", on_error="skip")),
    "match_batch on_error": Call(lambda m, v: m.match_batch([{"a": 1}], on_error=v)),
    "match_batch top": Call(lambda m, v: m.match_batch([{"a": 1}], top=v)),
    "match_batch remember": Call(lambda m, v: m.match_batch([{"a": 1}], remember=v)),
    "match_batch key": Call(lambda m, v: m.match_batch([{"a": 1}], remember=True, key=v)),
    "match_batch remembered": Call(lambda m, v: m.match_batch(v, remember=True)),
    "match_batch remembered skip": Call(lambda m, v: m.match_batch(v, remember=True, on_error="skip")),
    "match_batch remembered under": Call(lambda m, v: m.match_batch(v, attributes="a", remember=True)),
    "match_batch keys": Call(lambda m, v: m.match_batch([{"a": 1, "k": v}], remember=True, key="k")),
    "count": Call(lambda m, v: m.count(v)),
    "count attributes": Call(lambda m, v: m.count([{"a": 1}], attributes=v)),
    "count on_error": Call(lambda m, v: m.count([{"a": 1}], on_error=v)),
    "explain id": Call(lambda m, v: m.explain(v, {"a": 1})),
    "explain": Call(lambda m, v: m.explain("y", v)),
    "explain a value": Call(lambda m, v: m.explain("y", {"a": v, "b": v})),
    "explain_text": Call(lambda m, v: m.explain_text(v, {"a": 1})),
    "explain_text event": Call(lambda m, v: m.explain_text(JOIN, v)),
    "explain_text value": Call(lambda m, v: m.explain_text(JOIN, {"a": v})),
    "explanation lines": Call(lambda m, v: m.explain("y", {"a": 1}).to_text(v)),
    "matches top": Call(lambda m, v: m.match_batch([{"a": 1}]).top(v)),
    "replay": Call(lambda m, v: m.replay(v)),
    "replay attributes": Call(lambda m, v: m.replay([{"a": 1}], attributes=v)),
    "replay on_error": Call(lambda m, v: m.replay([{"a": 1}], on_error=v)),
    "replay history": Call(lambda m, v: m.replay([{"a": 1}], history=v)),
    "replay progress": Call(lambda m, v: m.replay([{"a": 1}], progress=v), calls=True),
    "replay on_matches": Call(lambda m, v: m.replay([{"a": 1}], on_matches=v), calls=True),
    "replay busiest": Call(lambda m, v: m.replay([{"a": 1}]).busiest(v)),
    "replay to_dict": Call(lambda m, v: m.replay([{"a": 1}]).to_dict(v)),
    "plan_joins order": Call(lambda m, v: m.plan_joins(order=v)),
    "plan_joins prefilter": Call(lambda m, v: m.plan_joins(prefilter=v)),
    "threads": Call(lambda m, v: setattr(m, "threads", v)),
}
CHANGING: dict[str, Call] = {
    "add id": Call(lambda m, v: m.add(v, "a = 1")),
    "add": Call(lambda m, v: m.add("new", v)),
    "add weight": Call(lambda m, v: m.add("new", "a = 1", v)),
    "add_many": Call(lambda m, v: m.add_many(v)),
    "add_many skip": Call(lambda m, v: m.add_many([v, (v, v), ("z", "a = 1", v)], on_error="skip")),
    "add_many on_error": Call(lambda m, v: m.add_many([("z", "a = 1")], on_error=v)),
    "add_many progress": Call(lambda m, v: m.add_many([("z", "a = 1")], progress=v), calls=True),
    "add_table": Call(lambda m, v: m.add_table(v)),
    "add_table on_error": Call(lambda m, v: m.add_table(pa.table({"id": [9], "expression": ["a = 1"]}), on_error=v)),
    "add_table progress": Call(
        lambda m, v: m.add_table(pa.table({"id": [9], "expression": ["a = 1"]}), progress=v), calls=True
    ),
    "remove": Call(lambda m, v: m.remove(v)),
    "remove_many": Call(lambda m, v: m.remove_many(v)),
    "remove_many of one": Call(lambda m, v: m.remove_many([v])),
    "replace id": Call(lambda m, v: m.replace(v, "a = 1")),
    "replace": Call(lambda m, v: m.replace("x", v)),
    "replace weight": Call(lambda m, v: m.replace("x", "a = 2", v)),
    "get": Call(lambda m, v: m.get(v)),
    "expression": Call(lambda m, v: m.expression(v)),
    "weight": Call(lambda m, v: m.weight(v)),
    "in": Call(lambda m, v: v in m),
}
HISTORY: dict[str, Call] = {
    "add": Call(lambda m, v: m.history.add(v)),
    "add a value": Call(lambda m, v: m.history.add({"a": v, "other": v})),
    "add a value inside": Call(lambda m, v: m.history.add({"other": [{"b": [v]}]})),
    "add key": Call(lambda m, v: m.history.add({"a": 1}, key=v)),
    "load": Call(lambda m, v: m.history.load(v)),
    "load of one": Call(lambda m, v: m.history.load([v])),
    "load key": Call(lambda m, v: m.history.load([{"a": 1}], key=v)),
    "load keys": Call(lambda m, v: m.history.load([{"a": 1, "k": v}], key="k")),
    "load attributes": Call(lambda m, v: m.history.load([{"a": 1}], attributes=v)),
    "load under a key": Call(lambda m, v: m.history.load([{"a": v}], attributes="a")),
    "prune keep": Call(lambda m, v: m.history.prune(keep=v)),
    "prune before": Call(lambda m, v: m.history.prune(before=v)),
    "prune by": Call(lambda m, v: m.history.prune(before=dt.datetime(2024, 1, 1), by=v)),
    "prune keys": Call(lambda m, v: m.history.prune(keys=v)),
    "prune key": Call(lambda m, v: m.history.prune(keys=[v])),
    "in": Call(lambda m, v: v in m.history),
}
MAKING: dict[str, Call] = {
    "index": Call(lambda m, v: dibs.Matcher(v)),
    "threads": Call(lambda m, v: dibs.Matcher(threads=v)),
    "memory": Call(lambda m, v: dibs.Matcher("pbtree", memory=v)),
    "memory of auto": Call(lambda m, v: dibs.Matcher(memory=v)),
    "retain": Call(lambda m, v: dibs.Matcher(retain=v)),
    "options": Call(lambda m, v: dibs.Matcher("psthash", options=v)),
    "an option": Call(lambda m, v: dibs.Matcher("psthash", options={"dimensions": v})),
    "a name of options": Call(lambda m, v: dibs.Matcher("psthash", options=Names(v))),
    "validate": Call(lambda m, v: dibs.validate(v)),
    "parse": Call(lambda m, v: dibs.parse(v)),
    "to_sql": Call(lambda m, v: dibs.to_sql(v)),
    "history": Call(lambda m, v: dibs.History(v)),
    "range": Call(lambda m, v: m.match({"a": dibs.Range(v, None)})),
    "range high": Call(lambda m, v: m.match({"a": dibs.Range(1, v)})),
    "range itself": Call(lambda m, v: dibs.Range(v, 1) == dibs.Range(v, 1)),
    "retain count": Call(lambda m, v: dibs.Retain(v)),
    "retain age": Call(lambda m, v: dibs.Retain(age=v)),
    "retain by": Call(lambda m, v: dibs.Retain(age=dt.timedelta(1), by=v)),
    "backtest": Call(lambda m, v: dibs.backtest(v, [{"a": 1}])),
    "backtest several": Call(lambda m, v: dibs.backtest({"k": v}, [{"a": 1}])),
    "backtest events": Call(lambda m, v: dibs.backtest("a = 1", v)),
    "backtest events of one": Call(lambda m, v: dibs.backtest("a = 1", [v, {"a": v}], on_error="skip")),
    "backtest events before": Call(lambda m, v: dibs.backtest(JOIN, v)),
    "backtest attributes": Call(lambda m, v: dibs.backtest("a = 1", [{"a": 1}], attributes=v)),
    "backtest examples": Call(lambda m, v: dibs.backtest("a = 1", [{"a": 1}], examples=v)),
    "backtest time": Call(lambda m, v: dibs.backtest("a = 1", [{"a": 1}], time=v)),
    "backtest times": Call(lambda m, v: dibs.backtest("a = 1", [{"a": 1, "t": v}], time="t")),
    "backtest on_error": Call(lambda m, v: dibs.backtest("a = 1", [{"a": 1}], on_error=v)),
    "backtest progress": Call(lambda m, v: dibs.backtest("a = 1", [{"a": 1}], progress=v), calls=True),
    "backtest threads": Call(lambda m, v: dibs.backtest("a = 1", [{"a": 1}], threads=v)),
    "backtest history": Call(lambda m, v: dibs.backtest(JOIN, [{"a": 1}], history=v)),
    "backtest retain": Call(lambda m, v: dibs.backtest(JOIN, [{"a": 1}], retain=v)),
}
FILES: dict[str, Call] = {
    "open": Call(lambda m, v: dibs.Matcher.open(v), writes=True),
    "open read_only": Call(lambda m, v: dibs.Matcher.open(v, read_only=True)),
    "open index": Call(lambda m, v: dibs.Matcher.open("o1", index=v)),
    "open threads": Call(lambda m, v: dibs.Matcher.open("o2", threads=v)),
    "open with read_only": Call(lambda m, v: dibs.Matcher.open("o3", read_only=v)),
    "open memory": Call(lambda m, v: dibs.Matcher.open("o4", memory=v)),
    "open options": Call(lambda m, v: dibs.Matcher.open("o5", options=v)),
    "open retain": Call(lambda m, v: dibs.Matcher.open("o6", retain=v)),
    "load": Call(lambda m, v: dibs.Matcher.load(v)),
    "load threads": Call(lambda m, v: dibs.Matcher.load("saved", threads=v)),
    "load history": Call(lambda m, v: dibs.Matcher.load("saved", history=v)),
    "save": Call(lambda m, v: m.save(v), writes=True),
    "export": Call(lambda m, v: m.export(v), writes=True),
    "export progress": Call(lambda m, v: m.export("e.parquet", progress=v), calls=True),
    "import_from": Call(lambda m, v: m.import_from(v)),
    "import_from on_error": Call(lambda m, v: m.import_from("i.jsonl", on_error=v)),
    "import_from progress": Call(lambda m, v: m.import_from("i.jsonl", progress=v, on_error="skip"), calls=True),
}


class Names(dict[Any, Any]):
    """Options of one name, which may be one that no dict takes."""

    def __init__(self, name: Any):
        super().__init__()
        self.name = name

    def items(self) -> Any:
        return [(self.name, 1)]


@pytest.fixture(autouse=True)
def _quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", MATCHING)
def test_matching(name: str) -> None:
    with with_joins() as m:
        assert list(raw_exceptions(MATCHING[name], m)) == []


@pytest.mark.parametrize("name", [name for name in (*MATCHING, *CHANGING) if "remember" not in name])
def test_without_kernels(name: str) -> None:
    """In plain Python it refuses what the engine does."""
    call = (MATCHING | CHANGING)[name]
    with filled(plain_matcher()) as m:
        assert list(raw_exceptions(call, m, name, share=3)) == []


@pytest.mark.parametrize("name", CHANGING)
def test_changing(name: str) -> None:
    with with_joins() as m:
        assert list(raw_exceptions(CHANGING[name], m)) == []
        m.match({"a": 1})


@pytest.mark.parametrize("name", HISTORY)
@pytest.mark.parametrize("durable", [False, True])
def test_history(name: str, durable: bool) -> None:
    with dibs.Matcher.open("m") if durable else with_joins() as m:
        assert list(raw_exceptions(HISTORY[name], m, name, share=3 if durable else 1)) == []
        m.match({"a": 1})
    if durable:
        with dibs.Matcher.open("m") as m:
            m.match({"a": 1})


@pytest.mark.parametrize("name", MAKING)
def test_making(name: str) -> None:
    with filled(dibs.Matcher()) as m:
        assert list(raw_exceptions(MAKING[name], m)) == []


@pytest.mark.parametrize("name", FILES)
def test_files(name: str) -> None:
    with filled(dibs.Matcher()) as m:
        m.save("saved")
        Path("i.jsonl").write_text('{"id": "i", "expression": "a = 1"}\n')
        assert list(raw_exceptions(FILES[name], m)) == []


@pytest.mark.parametrize("make", [dibs.Matcher, plain_matcher])
def test_a_matcher_is_not_copied(make: Any) -> None:
    with filled(make()) as m:
        for copy in (pickle.dumps, copies.copy, copies.deepcopy):
            with pytest.raises(dibs.ArgumentError, match=r"save\(\) it and load\(\) it there"):
                copy(m)


def test_a_file_that_is_not_there() -> None:
    with dibs.Matcher() as m, pytest.raises(dibs.MissingFile, match=r"nowhere\.jsonl: No such file"):
        m.history.load("nowhere.jsonl")
