"""Values that nobody should pass, and some do: for tests of what public functions make of them."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import io
import os
import threading
import uuid
from collections import ChainMap, OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

import dibs
from dibs.errors import show


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    """A string of another class."""


class Unhashable:
    __hash__ = None  # type: ignore[assignment]


class Unequal:
    """As arrays are: comparing gives no truth."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class FileLike:
    def __fspath__(self) -> Any:
        return b"bytes"


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _holding_itself() -> Any:
    value: dict[str, Any] = {"a": 1}
    value["a"] = [value]
    return value


NUMBERS: list[Any] = [
    0, 1, 2, -1, True, False, 2**31, 2**32, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**400, -(10**5000),
    0.0, -0.0, 1.0, 0.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"), 1j,
    decimal.Decimal("1.5"), decimal.Decimal("NaN"), decimal.Decimal("sNaN"), decimal.Decimal("1E+999999"),
    fractions.Fraction(1, 3), Number.ONE,
]  # fmt: skip
OF_NUMPY: list[Any] = [
    np.int8(1), np.int64(-1), np.uint64(2**64 - 1), np.float16(0.5), np.float32("nan"), np.float64(1), np.bool_(True),
    np.complex64(1), np.str_("a"), np.bytes_(b"a"), np.datetime64("2024-01-01"), np.datetime64("NaT"),
    np.datetime64(2**62, "s"), np.timedelta64(1, "D"), np.timedelta64("NaT"), np.void(b"x"), np.dtype("int64"),
    np.array(1), np.array("a"), np.array(None), np.array({"a": 1}, object), np.array([]), np.array([1, 2]),
    np.array(["a", "b"]), np.array([True]), np.array([[1, 2], [3, 4]]), np.array([None, {}], object),
    np.array([("a", 1)], dtype=[("id", "U1"), ("x", "i4")]), np.zeros((0, 3)), np.zeros((1,) * 32),
    np.ma.masked, np.ma.array([1, 2], mask=[True, False]), np.array(["2024-01-01", "NaT"], "datetime64[ns]"),
]  # fmt: skip
OF_PANDAS: list[Any] = [
    pd.NA, pd.NaT, pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-01", tz="Asia/Tokyo"), pd.Timedelta(days=1),
    pd.Series([1, 2]), pd.Series(["a", None]), pd.Series([], dtype=object), pd.Series([{"a": 1}]), pd.Series([pd.NA]),
    pd.DataFrame(), pd.DataFrame({"id": ["x"], "expression": ["a = 1"]}), pd.DataFrame({"a": [1, None]}),
    pd.DataFrame({0: [1]}), pd.DataFrame({"a": [{"x": 1}, [2]]}), pd.DataFrame({"a": [1]}, index=["r"]),
    pd.Index([1, 2]), pd.Categorical(["a", "b"]), pd.Interval(1, 2), pd.Period("2024-01"),
]  # fmt: skip
OF_ARROW: list[Any] = [
    pa.scalar(1), pa.scalar(None), pa.array([1, None]), pa.array(["a"]), pa.array([{"a": 1}]), pa.chunked_array([[1]]),
    pa.table({}), pa.table({"a": [1, 2]}), pa.table({"id": [1], "expression": ["a = 1"]}),
    pa.table({"id": [None], "expression": [None]}), pa.table({"id": [1.5], "expression": [b"x"]}),
    pa.table([[1], [2]], names=["a", "a"]), pa.table({"a": pa.array([None], pa.null())}),
    pa.table({"id": ["x"], "expression": ["a ="], "weight": ["heavy"]}), pa.table({"a": pa.array([], pa.int64())}),
    pa.record_batch({"a": [1]}), pa.table({"a": [[1], [2]]}).to_reader(), pa.schema({"a": pa.int64()}), pa.int64(),
    pa.table({"a": pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64()))}), pa.py_buffer(b"{}"),
    pa.table({"a": pa.array([b"\xff"], pa.binary())}), pa.table({"a": pa.array(["x"]).dictionary_encode()}),
    pa.table({"a": pa.array([2**62], pa.timestamp("s"))}), pa.table({"a": pa.array([1], pa.duration("s"))}),
]  # fmt: skip
TEXTS: list[Any] = [
    "", " ", "a", "a = 1", "a =", "(", "'", "\0", "a\0b", "\ud800", "é", "🦀" * 3, "x" * 300, "x" * 5000, "/", ".",
    "..", "a/b", "/dev/null", "/proc/self/mem", "/nowhere/at/all", "x" * 300 + ".jsonl", "x.parquet", "x.csv", "~",
    "raise", "skip", "joins", "auto", "scan", "betree", "none", "null", "nan", "{}", "{", "[1]", '{"a": 1}', '{"a":',
    '{"a": 1}\n{"a": 2}', '{"a": "\\ud800"}', "[" * 2000, '{"a":' * 2000, "\n\n", "\r\n", "﻿{}", "EXISTS d (d.a = a)",
    "2024-01-01", "http://", "http://127.0.0.1:1", "http://[", "1", "-1", "1e400", Text("a"), Text("a = 1"),
    b"", b"a", b"{}", b'{"a": 1}', b"\xff", b"\x80abc", b"[" * 2000, b"\0", b"\n", bytearray(b'{"a": 1}'),
    memoryview(b"{}"), memoryview(b"abcdef")[::2], memoryview(np.zeros((2, 2))), Path("x"), Path("/"), Path("x" * 300),
    PurePosixPath("a/b"), FileLike(),
]  # fmt: skip
TIMES: list[Any] = [
    dt.date(1, 1, 1), dt.date.max, dt.datetime(1, 1, 1), dt.datetime.max, dt.datetime(2024, 1, 1, fold=1),
    dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-23))),
    dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=23))), dt.time(1), dt.timedelta(0),
    dt.timedelta(-1), dt.timedelta.max, dt.timezone.utc,
]  # fmt: skip
COLLECTIONS: list[Callable[[], Any]] = [
    list, tuple, dict, set, frozenset, deque, lambda: [None], lambda: [1, 2], lambda: ["a", "b"], lambda: [""],
    lambda: [[]], lambda: [()], lambda: [{}], lambda: [{"a": 1}], lambda: [{"a": 1}, None], lambda: [{1: 2}],
    lambda: [{"a": {1: 2}}], lambda: [{"a": object()}], lambda: [{"a": dibs.Range(1, 2)}], lambda: [("x", "a = 1")],
    lambda: [("x", "a = 1", 1.0, 2)], lambda: [("x",)], lambda: [(None, None)], lambda: [("x", "a = 1", None)],
    lambda: [("x", "a = 1", "heavy")], lambda: [(1.5, "a = 1")], lambda: [("x", 5)], lambda: [("x", "a = 1")] * 2,
    lambda: [(i, "a =") for i in range(30)], lambda: [(np.array([1]), "a = 1")], lambda: [{"a": 1}] * 3,
    lambda: ["x.parquet"], lambda: [Path("nowhere.parquet")], lambda: [b"{}"], lambda: ['{"a": 1}'],
    lambda: {"a": 1}, lambda: {"a": None}, lambda: {1: 2}, lambda: {None: 1}, lambda: {"a": {1: 2}}, lambda: {"": 1},
    lambda: {"\ud800": 1}, lambda: {"a": "\ud800"}, lambda: {("a",): 1}, lambda: {"a": [1, "x", None, {"b": 2}]},
    lambda: {"a": np.array([1, 2])}, lambda: {"a": np.array(1)}, lambda: {"a": pd.NA}, lambda: {"a": object()},
    lambda: {"a": 10**400}, lambda: {"a": float("nan")}, lambda: {"a": dibs.Range(None, None)},
    lambda: {"a": dibs.Range(pd.NA, np.array([1]))}, lambda: {"a": dibs.Range(2, 1)}, lambda: {"a": _nested(300)},
    lambda: {"dimensions": 2}, lambda: {"dimensions": "x"}, lambda: {b"dimensions": 2}, lambda: {Text("a"): 1},
    lambda: {"x": "a = 1"}, lambda: {"x": None}, lambda: {"a": threading.Lock()}, _holding_itself,
    lambda: OrderedDict(a=1), lambda: UserDict(a=1), lambda: ChainMap({"a": 1}), lambda: MappingProxyType({"a": 1}),
    lambda: range(3), lambda: iter([]), lambda: iter([{"a": 1}]), lambda: ({"a": n} for n in range(2)),
    lambda: iter([("x", "a = 1")]), lambda: {1, "a"}, lambda: {"a"}, lambda: frozenset([1]), lambda: _nested(300),
    lambda: {"a": 1}.items(), lambda: {"a": 1}.keys(), lambda: zip("ab", ["a = 1", "b = 2"]), lambda: map(str, [1]),
]  # fmt: skip
OTHERS: list[Callable[[], Any]] = [
    lambda: None, lambda: ..., lambda: NotImplemented, object, lambda: object, lambda: int, lambda: len,
    lambda: (lambda: 1), lambda: (lambda *_: 1 / 0), lambda: dibs, lambda: Colour.RED, lambda: Colour,
    lambda: uuid.UUID(int=1), Unhashable, Unequal, Unshown, lambda: ValueError("x"), threading.Lock,
    lambda: io.BytesIO(b'{"a": 1}'), lambda: io.StringIO('{"a": 1}'), lambda: io.BytesIO(b"\xff"),
    lambda: dibs.Range(1, 2), lambda: dibs.Range("a", "b"), lambda: dibs.Range(None, None), dibs.Retain,
    lambda: dibs.Retain(1), lambda: slice(1, 2), lambda: (n for n in ()), lambda: dibs.Problem("x"),
]  # fmt: skip


def odd_values() -> Iterator[Any]:
    """All of them, new ones at each call: some can be read only once."""
    for value in (*NUMBERS, *OF_NUMPY, *OF_PANDAS, *OF_ARROW, *TEXTS, *TIMES):
        yield pa.table({"a": [[1], [2]]}).to_reader() if isinstance(value, pa.RecordBatchReader) else value
    for make in (*COLLECTIONS, *OTHERS):
        yield make()


# ---- trying them ----


class Call(NamedTuple):
    """A function of one argument, made for each odd value from a matcher that has something in it."""

    ask: Callable[[Any, Any], Any]
    writes: bool = False  # the argument is a path that is written to
    calls: bool = False  # the argument is called back


def consume(found: Any) -> None:
    """All that a result can be asked for."""
    if isinstance(found, (dibs.Matches, dibs.ServedMatches)):
        list(found), found.pairs(), found.top(2), repr(found)
    elif isinstance(found, dibs.Explanation):
        str(found), found.deciding, found.to_dict(), found._repr_html_()
    elif isinstance(found, (dibs.Backtest, dibs.Backtests, dibs.Replay)):
        str(found)
    elif isinstance(found, (dibs.History, dibs.Retain, dibs.Range)):
        repr(found), hash(found)
    elif isinstance(found, dibs.Matcher):
        found.close()


def is_elsewhere(value: Any) -> bool:
    """A path that leads out of the folder at hand, where nothing is to be written."""
    try:
        path = Path(os.fspath(value))
    except (TypeError, ValueError):
        return False
    return path.is_absolute() or ".." in path.parts


def raw_exceptions(call: Call, m: Any, name: str = "", share: int = 1) -> Iterator[str]:
    """What came out that is neither a result nor a DibsError. share: of so many values one is tried, others for other
    names."""
    for value in islice(odd_values(), len(name) % share, None, share):
        if (call.writes and is_elsewhere(value)) or (call.calls and callable(value)):
            continue
        try:
            consume(call.ask(m, value))
        except dibs.DibsError as error:
            if not str(error):
                yield f"{show(value)[:100]}: an error without a message"
        except Exception as error:
            yield f"{show(value)[:100]}: {type(error).__name__}: {str(error)[:200]}"
