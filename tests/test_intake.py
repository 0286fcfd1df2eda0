"""What may come in: every mistake of a user is a DibsError that says what to do, whichever call it is made in."""

from __future__ import annotations

import datetime as dt
import io
import math
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dibs
from dibs import ArgumentError, DibsError, ExpressionError, Matcher, SubscriptionErrors, UnknownId
from dibs.tuning import using


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "number": lambda: 5,
    "float": lambda: 1.5,
    "NaN": lambda: math.nan,
    "bool": lambda: True,
    "text": lambda: "x",
    "empty": lambda: "",
    "bytes": lambda: b"x",
    "list": lambda: [1],
    "dict": lambda: {"a": 1},
    "set": lambda: {1},
    "tuple": lambda: (1, 2, 3, 4),
    "object": object,
    "complex": lambda: 1j,
    "Decimal": lambda: Decimal("1.5"),
    "Fraction": lambda: Fraction(1, 3),
    "huge": lambda: 10**400,
    "more than huge": lambda: 10**5_000,  # which Python does not even print
    "date": lambda: dt.date(2024, 1, 1),
    "Path": lambda: Path("missing"),
    "generator": lambda: (i for i in range(2)),
    "array": lambda: np.arange(3),
    "array of strings": lambda: np.array(["x"]),
    "type": lambda: Unprintable,
    "lone surrogate": lambda: "\ud800",
    "NUL": lambda: "a\0b",
    "Series": lambda: pd.Series([1, 2]),
    "DataFrame": lambda: pd.DataFrame({"a": [1]}),
    "table": lambda: pa.table({"a": [1]}),
    "Arrow array": lambda: pa.array([1]),
    "Arrow scalar": lambda: pa.scalar(1),
    "file of text": lambda: io.StringIO("x"),
    "timedelta64": lambda: np.timedelta64(1),
    "unprintable": Unprintable,
    "negative": lambda: -1,
    "zero": lambda: 0,
    "JSON": lambda: '{"a": 1}',
}


def one() -> Matcher:
    matcher = Matcher()
    matcher.add("a", "p > 1")
    return matcher


EVENT = {"p": 2}
TABLE = pa.table({"id": ["b"], "expression": ["TRUE"]})

# Each takes the value, and the names of those of WRONG that are right there.
CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "add id": (lambda v: one().add(v, "TRUE"), "number text empty NUL negative zero JSON"),
    "add expression": (lambda v: one().add("b", v), "text"),
    "add weight": (lambda v: one().add("b", "TRUE", v), "number float negative zero"),
    "add_many": (lambda v: one().add_many(v), ""),
    "add_many item": (lambda v: one().add_many([v]), ""),
    "add_many id": (lambda v: one().add_many([(v, "TRUE")]), "number text empty NUL negative zero JSON"),
    "add_many expression": (lambda v: one().add_many([("b", v)]), "text"),
    "add_many weight": (lambda v: one().add_many([("b", "TRUE", v)]), "number float negative zero"),
    "add_many on_error": (lambda v: one().add_many([("b", "TRUE")], on_error=v), ""),
    "add_many progress": (lambda v: one().add_many([("b", "TRUE")], progress=v), "None type"),
    "add_table": (lambda v: one().add_table(v), ""),
    "add_table on_error": (lambda v: one().add_table(TABLE, on_error=v), ""),
    "add_table progress": (lambda v: one().add_table(TABLE, progress=v), "None type"),
    "remove": (lambda v: one().remove(v), ""),
    "remove_many": (lambda v: one().remove_many(v), "dict"),
    "remove_many id": (lambda v: one().remove_many([v]), ""),
    "replace id": (lambda v: one().replace(v, "TRUE"), ""),
    "replace expression": (lambda v: one().replace("a", v), "text"),
    "replace weight": (lambda v: one().replace("a", "TRUE", v), "None number float negative zero"),
    "get": (lambda v: one().get(v), ""),
    "expression": (lambda v: one().expression(v), ""),
    "weight": (lambda v: one().weight(v), ""),
    "match": (lambda v: one().match(v), "dict|JSON"),
    "match top": (lambda v: one().match(EVENT, top=v), "None number huge|more than huge"),
    "match_batch": (lambda v: one().match_batch(v), "empty DataFrame table JSON"),
    "match_batch event": (lambda v: one().match_batch([v]), "dict"),
    "match_batch attributes": (lambda v: one().match_batch([EVENT], attributes=v), "None"),
    "match_batch attributes of a table": (lambda v: one().match_batch(pa.table({"p": [2]}), attributes=v), "None"),
    "match_batch on_error": (lambda v: one().match_batch([EVENT], on_error=v), ""),
    "match_batch top": (lambda v: one().match_batch([EVENT], top=v), "None number huge|more than huge"),
    "Matches.top": (lambda v: one().match_batch([EVENT]).top(v), "number huge|more than huge"),
    "Matches.pairs": (lambda v: one().match_batch([EVENT]).pairs(v, v), "bool"),
    "count": (lambda v: one().count(v), "empty DataFrame table JSON"),
    "count attributes": (lambda v: one().count([EVENT], attributes=v), "None"),
    "count on_error": (lambda v: one().count([EVENT], on_error=v), ""),
    "explain id": (lambda v: one().explain(v, EVENT), ""),
    "explain event": (lambda v: one().explain("a", v), "dict JSON"),
    "replay": (lambda v: one().replay(v), "DataFrame table"),
    "replay attributes": (lambda v: one().replay([EVENT], attributes=v), "None"),
    "replay on_error": (lambda v: one().replay([EVENT], on_error=v), ""),
    "replay progress": (lambda v: one().replay([EVENT], progress=v), "None type"),
    "replay on_matches": (lambda v: one().replay([EVENT], on_matches=v), "None type"),
    "backtest": (lambda v: dibs.backtest(v, [EVENT]), "text"),
    "backtest of several": (lambda v: dibs.backtest([v], [EVENT]), "text"),
    "backtest events": (lambda v: dibs.backtest("p = 1", v), "DataFrame table"),
    "backtest attributes": (lambda v: dibs.backtest("p = 1", [EVENT], attributes=v), "None"),
    "backtest time": (lambda v: dibs.backtest("p = 1", [EVENT], time=v), "None text empty NUL JSON"),
    "backtest examples": (lambda v: dibs.backtest("p = 1", [EVENT], examples=v), "number zero huge|more than huge"),
    "backtest threads": (lambda v: dibs.backtest("p = 1", [EVENT], threads=v), "None number"),
    "backtest on_error": (lambda v: dibs.backtest("p = 1", [EVENT], on_error=v), ""),
    "backtest progress": (lambda v: dibs.backtest("p = 1", [EVENT], progress=v), "None type"),
    "load": (lambda v: Matcher.load(v), ""),
    "open": (lambda v: Matcher.open(v).close(), "text Path JSON"),
    "open index": (lambda v: Matcher.open("folder", index=v).close(), "None"),
    "open threads": (lambda v: Matcher.open("folder", threads=v).close(), "None number"),
    "open read_only": (lambda v: Matcher.open("folder", read_only=v).close(), ""),
    "save": (lambda v: one().save(v), "text Path JSON"),
    "export": (lambda v: one().export(v), ""),
    "export progress": (lambda v: one().export("a.jsonl", progress=v), "None type"),
    "import_from": (lambda v: one().import_from(v), ""),
    "import_from on_error": (lambda v: Matcher().import_from("there.jsonl", on_error=v), ""),
    "import_from progress": (lambda v: Matcher().import_from("there.jsonl", progress=v), "None type"),
    "Matcher index": (lambda v: Matcher(index=v), ""),
    "Matcher threads": (lambda v: Matcher(threads=v), "None number"),
    "Matcher memory": (lambda v: Matcher(index="pbtree", memory=v), "None huge|more than huge"),
    "parse": (lambda v: dibs.parse(v), "text"),
    "to_sql": (lambda v: dibs.to_sql(v), ""),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_wrong_argument_is_a_dibs_error(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one().export("there.jsonl")
    monkeypatch.setattr(Unprintable, "__init__", lambda *_: None)
    function, fine = CALLS[call]
    right = {name for part in fine.split("|") for name in ([part] if part in WRONG else part.split())}
    taken, told = set(), []
    for name, make in WRONG.items():
        try:
            function(make())
            taken.add(name)
        except DibsError as error:
            told.append(str(error))
    assert taken == right
    assert len(told) == len(WRONG) - len(right)
    assert all(told)


def test_asking_for_what_is_no_id() -> None:
    matcher = one()
    assert [name for name, make in WRONG.items() if make() in matcher] == []
    assert all(isinstance(dibs.validate(make()), list) for make in WRONG.values())


# ---- NumPy's integers ----


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint64])
@pytest.mark.parametrize("few", [0, 16])
def test_numpy_integers_are_integers(kind: type, few: int) -> None:
    matcher = Matcher(threads=kind(2))
    with using({"added_one_by_one": few}):
        matcher.add_many([(kind(1), "p > 1"), (kind(2), "p > 2", kind(3))])
    matcher.add(kind(3), "TRUE", np.float32(0.5))
    assert kind(1) in matcher
    assert matcher.get(kind(2)).id == 2
    assert type(matcher.get(kind(2)).id) is int
    assert matcher.explain(kind(1), {"p": 2}).matched
    matcher.replace(kind(1), "p > 5", kind(7))
    assert matcher.match({"p": 9}, top=kind(2)) == [1, 2]
    assert matcher.match_batch([{"p": 9}], top=kind(1)).top(kind(1)) == [[1]]
    matcher.remove(kind(1))
    matcher.remove_many([kind(2)])
    assert matcher.match({"p": 9}) == [3]
    with pytest.raises(UnknownId):
        matcher.remove_many([3, kind(3)])
    assert len(matcher) == 1


# ---- tables ----

COLUMNS = {"id": ["a", "b"], "expression": ["p > 1", "p > 2"], "weight": [1.0, None]}


@pytest.mark.parametrize(
    "table",
    [
        pa.table(COLUMNS),
        pa.record_batch(COLUMNS),
        pa.table(COLUMNS).to_reader(),
        pa.table({k: pa.array(v, pa.string_view()) if k != "weight" else v for k, v in COLUMNS.items()}),
        pa.table({k: pa.array(v).dictionary_encode() if k != "weight" else v for k, v in COLUMNS.items()}),
        pa.table({**COLUMNS, "weight": pa.array([1, None], pa.int8())}),
        pa.table({**COLUMNS, "weight": pa.array([Decimal("1.0"), None])}),
        pa.table({**COLUMNS, "weight": pa.nulls(2)}),
        pd.DataFrame({k: COLUMNS[k] for k in ("id", "expression")}),
    ],
    ids=lambda table: type(table).__name__,
)
def test_tables_of_many_kinds(table: Any) -> None:
    matcher = Matcher()
    matcher.add_table(table)
    assert matcher.match({"p": 3}) == ["a", "b"]
    assert matcher.weight("a") == matcher.weight("b") == 1.0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"weight": ["heavy", None]}, r"subscription 'a' \(number 0\): a weight must be a number, not string"),
        ({"weight": [True, False]}, "a weight must be a number, not bool"),
        ({"weight": [math.nan, 1.0]}, "the weight is NaN"),
        ({"id": [1.0, 2.0]}, "an id must be a string or an integer, not double"),
        ({"id": [b"a", b"b"]}, "an id must be a string or an integer, not binary"),
        ({"expression": [b"TRUE", b"TRUE"]}, "an expression must be a string, not binary"),
        ({"expression": [None, "TRUE"]}, "the expression is null"),
    ],
)
def test_columns_of_the_wrong_type(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(SubscriptionErrors, match=message):
        Matcher().add_table(pa.table({**COLUMNS, **columns}))


def test_a_column_twice() -> None:
    for name in ("id", "expression", "weight"):
        table = pa.table(COLUMNS).append_column(name, pa.array(["x", "y"]))
        with pytest.raises(SubscriptionErrors, match=f"the table has 2 columns '{name}': leave one of them"):
            Matcher().add_table(table)


def test_what_is_no_table() -> None:
    with pytest.raises(ArgumentError, match="add_many takes"):
        Matcher().add_table([("a", "TRUE")])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="use add_table for a DataFrame"):
        Matcher().add_many(pd.DataFrame(COLUMNS))
    with pytest.raises(ArgumentError, match=r"does not hand over its rows as Arrow data.*each of one type"):
        Matcher().add_table(pd.DataFrame({"id": [1, "a"], "expression": ["TRUE", "TRUE"]}))  # type: ignore[arg-type]


# ---- on_error="skip" refuses the bad ones only ----


def test_only_ids_that_do_not_fit_are_refused() -> None:
    matcher = Matcher()
    ids = pa.array([1, 2**63, 2**64 - 1, 4, None], pa.uint64())
    rejected = matcher.add_table(pa.table({"id": ids, "expression": ["TRUE"] * 5}), on_error="skip")
    assert [(r.position, r.id) for r in rejected] == [(1, 2**63), (2, 2**64 - 1), (4, None)]
    assert "64 bits" in str(rejected[0].error)
    assert matcher.match({}) == [1, 4]


@pytest.fixture(params=["few", "columns", "table"])
def add(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """The three ways by which many subscriptions are added."""

    def as_items(matcher: Matcher, items: list[tuple[Any, Any]]) -> Any:
        return matcher.add_many(items, on_error="skip")

    def as_table(matcher: Matcher, items: list[tuple[Any, Any]]) -> Any:
        ids, texts = zip(*items)
        return matcher.add_table(pa.table({"id": ids, "expression": texts}), on_error="skip")

    with using({"added_one_by_one": 0 if request.param == "columns" else 100, "changes_for_a_segment": 1}):
        yield as_table if request.param == "table" else as_items


def test_a_bad_text_leaves_its_id_to_a_later_one(add: Callable[..., Any]) -> None:
    matcher = one()
    items = [("b", "p >"), ("b", "p > 2"), ("b", "p > 3"), ("a", "p <"), ("a", "p > 4"), ("c", "p > 5")]
    rejected = add(matcher, items)
    assert [(r.position, type(r.error).__name__) for r in rejected] == [
        (0, "ExpressionError"),
        (2, "DuplicateId"),
        (3, "ExpressionError"),
        (4, "DuplicateId"),
    ]
    assert {id: matcher.expression(id) for id in "abc"} == {"a": "p > 1", "b": "p > 2", "c": "p > 5"}


def test_items_of_all_kinds_are_refused_one_by_one() -> None:
    matcher = Matcher()
    wrong = [(make(), "TRUE") for name, make in WRONG.items() if name in ("None", "bytes", "float", "bool", "huge")]
    items = [*wrong, "ab", ("b",), ("c", "TRUE", 1, 2), ("d", None), ("e", b"TRUE"), ("f", "TRUE", 10**400)]
    items.append(("g", "TRUE"))
    rejected = matcher.add_many(items, on_error="skip")
    assert [r.position for r in rejected] == list(range(11))
    assert matcher.match({}) == ["g"]
    assert isinstance(rejected[8].error, ExpressionError)


# ---- one parse for each text ----


@pytest.mark.parametrize("number", [10, 17, 100, 256, 257])
def test_many_subscriptions_are_parsed_once(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    real = dibs.parse
    for module in ("dibs.segments.compile", "dibs.language.sql"):
        monkeypatch.setattr(f"{module}.parse", lambda text, *types: parsed.append(text) or real(text))
    matcher = Matcher()
    matcher.add_many([(i, f"p > {i} OR q = NULL") for i in range(number)])  # which no template takes
    assert matcher.match({"p": 5}) == list(range(min(5, number)))
    assert len(parsed) == number


def test_a_table_without_rows() -> None:
    nothing = pa.array([], pa.string())
    assert Matcher().add_table(pa.table({"id": nothing.cast(pa.string_view()), "expression": nothing})) == []


def test_paths() -> None:
    for path in (b"x", os.fsencode("x"), "", "a\0b", "\ud800"):
        with pytest.raises(ArgumentError):
            Matcher.load(path)  # type: ignore[arg-type]
