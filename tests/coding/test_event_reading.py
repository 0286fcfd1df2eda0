"""Events as dicts and as JSON lines: what they are read to, and what is said of those that cannot be read."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
import reprlib
import uuid
from collections import OrderedDict, UserDict, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from decoded_events import decode
from hypothesis import given
from hypothesis import strategies as st

from dibs.coding.events import WantedNames, read_events
from dibs.coding.values import Range, number_key
from dibs.errors import ArgumentError, EventError

DAY = 86_400_000_000


def read(value: Any, **options: Any) -> Any:
    """The decoded values of one event {"a": value}."""
    return decode(read_events([{"a": value}], {"a"}, **options)).get(0, {}).get("a", [])


def shown(value: Any) -> str:
    """A test id: short, and the same in every process."""
    text = reprlib.repr(value)
    try:
        whole = repr(value)
    except RecursionError:
        whole = text
    return type(value).__name__ if " at 0x" in whole else text[:40]


def number(value: int | float) -> tuple[str, float, int]:
    return ("number", *number_key(value))


class Colour(enum.Enum):
    RED = "red"


class Size(str, enum.Enum):
    SMALL = "s"


class Level(enum.IntEnum):
    HIGH = 3


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        (True, [("boolean", 1)]),
        (np.bool_(False), [("boolean", 0)]),
        (5, [number(5)]),
        (5.0, [number(5)]),
        (-0.0, [("number", 0.0, 0)]),
        (math.nan, [("number", math.inf, 1)]),
        (math.inf, [("number", math.inf, 0)]),
        (-math.inf, [("number", -math.inf, 0)]),
        (2**53 + 1, [("number", 2.0**53, 1)]),
        (2**63 - 1, [("number", 2.0**63, -1)]),
        (-(2**63), [("number", -(2.0**63), 0)]),
        (2**64 - 1, [("number", 2.0**64, -1)]),
        (2**64 + 1, [("number", 2.0**64, 0)]),  # more than 64 bits: the nearest float64
        (10**400, [("number", math.inf, 0)]),
        (-(10**400), [("number", -math.inf, 0)]),
        (np.int64(2**53 + 1), [("number", 2.0**53, 1)]),
        (np.uint64(2**64 - 1), [("number", 2.0**64, -1)]),
        (np.int8(-3), [number(-3)]),
        (np.float32(0.1), [number(float(np.float32(0.1)))]),
        (np.float64(0.1), [number(0.1)]),
        (np.float16(0.5), [number(0.5)]),
        (np.longdouble(0.5), [number(0.5)]),
        (Level.HIGH, [number(3)]),
        (Decimal("12.50"), [number(12.5)]),
        (Decimal("9007199254740993"), [("number", 2.0**53, 1)]),
        (Decimal("9007199254740993.000"), [("number", 2.0**53, 1)]),
        (Decimal("18446744073709551615"), [("number", 2.0**64, -1)]),
        (Decimal("18446744073709551617"), [("number", 2.0**64, 0)]),
        (Decimal("0.1"), [number(0.1)]),
        (Decimal("NaN"), [("number", math.inf, 1)]),
        (Decimal("sNaN"), [("number", math.inf, 1)]),
        (Decimal("-Infinity"), [("number", -math.inf, 0)]),
        (Decimal("1E+999999999"), [("number", math.inf, 0)]),
        (Decimal("1E-999999999"), [("number", 0.0, 0)]),
        ("", [("string", "")]),
        ("naïve \U0001f600", [("string", "naïve \U0001f600")]),
        (np.str_("x"), [("string", "x")]),
        (Size.SMALL, [("string", "s")]),
        (dt.date(1970, 1, 2), [("time", DAY)]),
        (dt.date(1, 1, 1), [("time", -719162 * DAY)]),
        (dt.datetime(1970, 1, 1, 0, 0, 1, 5), [("time", 1_000_005)]),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), [("time", -1)]),
        (dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), [("time", 0)]),
        (
            dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
            [("time", -719162 * DAY - 14 * DAY // 24)],
        ),
        (np.datetime64("1970-01-02"), [("time", DAY)]),
        (np.datetime64("1971-02", "M"), [("time", (365 + 31) * DAY)]),
        (np.datetime64(-1, "ns"), [("time", -1)]),
        (np.datetime64(1_999, "ns"), [("time", 1)]),
        (np.datetime64("NaT"), []),
        (pd.NaT, []),
        (pd.NA, []),
        (pd.Timestamp("1970-01-01 00:00:01.000005006", tz="UTC"), [("time", 1_000_005)]),
        ([], []),
        ([None, []], []),
        ([1, "x", None, [True, [2.5]]], [("boolean", 1), number(1), number(2.5), ("string", "x")]),
        ((1, 2), [number(1), number(2)]),
        (Point(1, 2), [number(1), number(2)]),
        ({3}, [number(3)]),
        (frozenset({3}), [number(3)]),
        ([1, 1], [number(1), number(1)]),
        (np.array([[1, 2], [3, 4]]), [number(1), number(2), number(3), number(4)]),
        (np.array([1.5, math.nan]), [("number", 1.5, 0), ("number", math.inf, 1)]),
        (np.array(["x", "yy"]), [("string", "x"), ("string", "yy")]),
        (np.array(7), [number(7)]),
        (np.array([]), []),
        (np.array([1_000, None], "datetime64[ns]"), [("time", 1)]),
        (np.array([dt.date(1970, 1, 2), "x", None], object), [("string", "x"), ("time", DAY)]),
        ({"b": 1}, []),  # only leaves are attributes
        ([{"b": 1}, 5], [number(5)]),
    ],
    ids=shown,
)
def test_python_values(value: Any, expected: list[Any]) -> None:
    assert read(value) == sorted(expected, key=repr)


def test_nested_objects_are_dotted_paths() -> None:
    event = {
        "item": {"price": 3, "brand": {"name": "x"}},
        "tags": [{"k": "a"}, {"k": ["b", {"z": 1}]}, None, 7],
        "a.b": 1,
        "a": {"b": 2, "c": UserDict({"d": 4})},
        "": {"": "empty"},
    }
    wanted = ["item.price", "item.brand.name", "item", "tags.k", "tags.k.z", "tags", "a.b", "a.c.d", ".", "missing"]
    assert decode(read_events([event], wanted)) == {
        0: {
            "item.price": [number(3)],
            "item.brand.name": [("string", "x")],
            "tags.k": [("string", "a"), ("string", "b")],
            "tags.k.z": [number(1)],
            "tags": [number(7)],
            "a.b": [number(1), number(2)],
            "a.c.d": [number(4)],
            ".": [("string", "empty")],
        }
    }


def test_what_nobody_wants_is_not_looked_at() -> None:
    class Untouchable(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise AssertionError("looked at")

    event = {"a": 1, "b": b"bytes", "c": Untouchable(x=1), "ab": [b"bytes"], "d": {"x": b"bytes", "y": 2}, "e": {1: 1}}
    values = read_events([event], {"a", "d.y", "a.b", "zz"})
    assert decode(values) == {0: {"a": [number(1)], "d.y": [number(2)]}}
    assert read_events([event], {}).names == []


def test_event_numbers_names_and_missing_values() -> None:
    values = read_events([{}, {"a": 1, "b": "x"}, {"a": None}, {"b": ["y", "z"], "a": True}], {"a", "b"})
    assert values.events == 4
    assert values.problems == []
    assert decode(values) == {
        1: {"a": [number(1)], "b": [("string", "x")]},
        3: {"a": [("boolean", 1)], "b": [("string", "y"), ("string", "z")]},
    }


@pytest.mark.parametrize("events", [[], (), iter([]), b"", "", b"\n \n"])
def test_no_events(events: Any) -> None:
    values = read_events(events, {"a"})
    assert (values.events, decode(values)) == (0, {})


def test_any_iterable_and_any_mapping() -> None:
    events = (mapping for mapping in (OrderedDict(a=1), UserDict({"a": 2}), {np.str_("a"): 3}, {Size.SMALL: 4}))
    assert decode(read_events(events, WantedNames(["a", "s"]))) == {
        0: {"a": [number(1)]},
        1: {"a": [number(2)]},
        2: {"a": [number(3)]},
        3: {"s": [number(4)]},
    }


# ---------------------------------------------------------------- ranges


@pytest.mark.parametrize(
    ("given_range", "lo", "hi"),
    [
        (Range(1, 2.5), 1, 2.5),
        (Range(None, np.int64(2)), None, 2),
        (Range(Decimal("1.50"), None), 1.5, None),
        (Range(1, math.nan), 1, math.nan),
        (Range(math.nan, math.nan), math.nan, math.nan),
        (Range(2**53, 2**53 + 1), 2**53, 2**53 + 1),
        (Range("Z", "a"), "Z", "a"),
        (Range("\uffff", "\U00010000"), "\uffff", "\U00010000"),  # byte order, not that of UTF-16
        (Range(False, True), False, True),
        (Range(dt.date(2024, 1, 1), pd.Timestamp("2024-01-02")), dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)),
        (Range(dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc), None), dt.datetime(1970, 1, 1), None),
    ],
    ids=shown,
)
def test_ranges(given_range: Range, lo: Any, hi: Any) -> None:
    assert read(given_range) == [("range", repr(lo), repr(hi))]
    assert read([given_range, {"x": 1}, [given_range]]) == [("range", repr(lo), repr(hi))] * 2


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Range(None, None), "found a Range with both ends open; expected at least one end"),
        (Range(1, "x"), "found a Range from number to string; expected both ends of one kind"),
        (Range(1, True), "found a Range from number to boolean"),
        (Range(2, 1), "found Range(2, 1); expected its first end not to be above its second"),
        (Range(math.nan, math.inf), "expected its first end not to be above its second"),
        (Range(2**53 + 1, 2.0**53), "expected its first end not to be above its second"),
        (Range(dt.date(2024, 1, 2), dt.date(2024, 1, 1)), "expected its first end not to be above its second"),
        (Range([1], 2), "in a Range: found a value of type list"),
        (Range(b"x", None), "in a Range: found a value of type bytes"),
        (Range("\ud800", None), "in a Range: found a string with a lone surrogate"),
        (Range(np.datetime64("20000-01-01"), None), "in a Range: found a timestamp outside the years 1 to 9999"),
    ],
    ids=shown,
)
def test_bad_ranges(bad: Range, message: str) -> None:
    with pytest.raises(EventError) as caught:
        read(bad)
    assert message in str(caught.value)
    assert read(bad, on_error="skip") == [("unreadable",)]


# ---------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"x", "found a value of type bytes; expected a boolean, number, string, date or timestamp, or an array"),
        (b"x", ": decode it to a string"),
        (np.bytes_(b"x"), "found a value of type bytes_"),
        (uuid.UUID(int=1), "found a value of type UUID; expected a boolean"),
        (uuid.UUID(int=1), ": pass str(value)"),
        (Colour.RED, ": pass its .value"),
        (Fraction(1, 3), ": pass float(value)"),
        (1j, "found a value of type complex"),
        (dt.timedelta(1), "found a value of type timedelta"),
        (dt.time(1), "found a value of type time"),
        (np.timedelta64(1, "s"), "found a value of type timedelta64"),
        (object(), "found a value of type object"),
        ((x for x in [1]), "found a value of type generator"),
        ("\ud800", "found a string with a lone surrogate; expected text that UTF-8 can write"),
        (np.datetime64(2**62, "s"), "found a date or timestamp outside the range of 64-bit microseconds"),
        (np.array([b"x"]), "found a value of type bytes"),
    ],
    ids=shown,
)
def test_unreadable_values(value: Any, message: str) -> None:
    with pytest.raises(EventError) as caught:
        read_events([{"a": 1}, {"b": 1, "a": value}], {"a", "b"})
    assert str(caught.value).startswith("event 1, attribute 'a': ")
    assert message in str(caught.value)
    assert (caught.value.event, caught.value.attribute) == (1, "a")

    values = read_events([{"a": 1}, {"b": 1, "a": [2, value]}, {"a": value}], {"a", "b"}, on_error="skip")
    assert decode(values) == {
        0: {"a": [number(1)]},
        1: {"a": [number(2), ("unreadable",)], "b": [number(1)]},
        2: {"a": [("unreadable",)]},
    }
    assert [(problem.event, problem.attribute) for problem in values.problems] == [(1, "a"), (2, "a")]
    assert all(message in problem.message for problem in values.problems)
    assert len(values.unreadable_events) == 0


def deep(levels: int, array: bool, inside: Any = 1) -> Any:
    value = inside
    for _ in range(levels):
        value = [value] if array else {"a": value}
    return value


def holding_itself() -> list[Any]:
    value: list[Any] = [1]
    value += [value, value]
    return value


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({1: 2}, "found the key 1 of type int; expected keys that are strings"),
        ({"a": 1, None: 2}, "found the key None of type NoneType; expected keys that are strings"),
        ({"a": {"c": 1, 7: 2}}, "found the key 7 of type int below 'a'; expected keys that are strings"),
        ([("a", 1)], "found an event of type list; expected a dict of attribute names to values"),
        (None, "found an event of type NoneType; expected a dict"),
        ("a", "found an event of type str; expected a dict"),
        ({"a": deep(201, array=True)}, "found more than 200 objects and arrays inside each other, below 'a'"),
        ({"a": holding_itself()}, "(does the event hold itself?)"),
    ],
    ids=shown,
)
def test_unreadable_events(event: Any, message: str) -> None:
    wanted = {"a", "b", "a.b"}
    with pytest.raises(EventError) as caught:
        read_events([{"a": 1}, event], wanted)
    assert str(caught.value).startswith("event 1: ")
    assert message in str(caught.value)
    assert (caught.value.event, caught.value.attribute) == (1, None)

    good = {"a": [True, "é", dt.date(1970, 1, 1), Range(1, 2), 5]}
    values = read_events([good, event, good], wanted, on_error="skip")
    assert values.unreadable_events.tolist() == [1]
    assert [(problem.event, problem.attribute) for problem in values.problems] == [(1, None)]
    assert message in values.problems[0].message
    decoded = decode(values)
    assert decoded[0] == decoded[2]
    assert sorted(decoded) == [0, 2]


def test_values_before_the_place_where_an_event_breaks_are_dropped() -> None:
    event = {"a": ["é", 1, True, dt.date(1970, 1, 1), Range(1, 2), b""], 5: 1}
    values = read_events([{"a": "first"}, event, {"a": "last"}], {"a"}, on_error="skip")
    assert decode(values) == {0: {"a": [("string", "first")]}, 2: {"a": [("string", "last")]}}
    assert [problem.attribute for problem in values.problems] == ["a", None]


def test_depth_up_to_the_limit_is_read() -> None:
    assert read(deep(200, array=True)) == [number(1)]
    path = ".".join("a" * 200)
    assert decode(read_events([deep(200, array=False)], {path})) == {0: {path: [number(1)]}}
    itself: dict[str, Any] = {"b": 1}
    itself["a"] = itself  # ends by itself: nothing wanted is below a.a.b
    assert decode(read_events([itself], {"b", "a.a.b"})) == {0: {"b": [number(1)], "a.a.b": [number(1)]}}


def test_a_name_with_very_many_dots() -> None:
    name = "." * 200_000
    assert decode(read_events([{name: 1, "": {"": 2}}], {name, "."})) == {0: {name: [number(1)], ".": [number(2)]}}


def test_the_first_event_with_a_problem_is_raised() -> None:
    with pytest.raises(EventError, match="event 0, attribute 'a': found a string with a lone surrogate"):
        read_events([{"a": "\ud800"}, {"a": b""}], {"a"})
    with pytest.raises(EventError, match="event 0, attribute 'b': found a value of type bytes"):
        read_events([{"b": b""}, {"a": "\ud800"}], {"a", "b"})


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ({"a": 1}, "found one event of type dict; expected a list of dicts"),
        ({"a": 1}, "put it into a list"),
        (None, "found events of type NoneType; expected a list of dicts, an Arrow table, record batch or reader"),
        (5, "found events of type int"),
    ],
)
def test_what_is_no_batch_of_events(events: Any, message: str) -> None:
    with pytest.raises(EventError) as caught:
        read_events(events, {"a"}, on_error="skip")
    assert message in str(caught.value)
    assert caught.value.event is None


def test_on_error_is_checked() -> None:
    with pytest.raises(ArgumentError, match=r"""on_error must be "raise" or "skip", not str \('ignore'\)"""):
        read_events([], {"a"}, on_error="ignore")


# ---------------------------------------------------------------- JSON lines


@pytest.mark.parametrize("as_type", [bytes, bytearray, memoryview, lambda data: data.decode()])
def test_json_lines(as_type: Any) -> None:
    lines = '\ufeff{"a": 1}\r\n\n  \t\r\n{"a": "é", "b": {"c": [true, null]}}\n{}\n{"a": 1.5, "a": 2}'.encode()
    values = read_events(as_type(lines), {"a", "b.c"})
    assert values.events == 4  # blank lines are no events
    assert decode(values) == {
        0: {"a": [number(1)]},
        1: {"a": [("string", "é")], "b.c": [("boolean", 1)]},
        3: {"a": [number(2)]},  # of two keys the last one counts
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"a": 1', "line 4, column 8: found broken JSON ("),
        (b'{"a": 1}{', "line 4, column 9: found broken JSON ("),
        (b'{"a": NaN}', "line 4, column 7: found broken JSON ("),
        (b'{"a": 1e400}', "line 4, column 7: found broken JSON ("),
        (b'{"a": "\\ud800"}', "line 4, column "),
        (
            b'{"a": "' + "é".encode() + b'\xff"}',
            "line 4, column 9: found bytes that are not UTF-8; expected a JSON object",
        ),
        (b'{"a": "\xed\xa0\x80"}', "line 4, column 8: found bytes that are not UTF-8"),
        (b"[1]", "line 4: found an array; expected one JSON object"),
        (b"null", "line 4: found null; expected one JSON object"),
        (b'"x"', "line 4: found a string; expected one JSON object"),
        (b"1", "line 4: found a number; expected one JSON object"),
        (b"true", "line 4: found a boolean; expected one JSON object"),
        (b'{"a": ' + b"[" * 100_000, "line 4, column "),
        (b'{"a": ' + b"[" * 201 + b"]" * 201 + b"}", "found more than 200 objects and arrays inside each other"),
        (b'{"a": ' + b"[" * 1_030 + b"]" * 1_030 + b"}", "found more than 200 objects and arrays inside each other"),
    ],
    ids=shown,
)
def test_broken_json_lines(line: bytes, message: str) -> None:
    lines = b'{"a": 0}\n\n{"a": 1}\r\n' + line + b'\n{"a": 3}\n'
    with pytest.raises(EventError) as caught:
        read_events(lines, {"a"})
    assert str(caught.value).startswith("event 2: ")
    assert message in str(caught.value)
    assert caught.value.event == 2

    values = read_events(lines, {"a"}, on_error="skip")
    assert values.events == 4
    assert values.unreadable_events.tolist() == [2]
    assert [(problem.event, problem.attribute) for problem in values.problems] == [(2, None)]
    assert message in values.problems[0].message
    assert decode(values) == {0: {"a": [number(0)]}, 1: {"a": [number(1)]}, 3: {"a": [number(3)]}}


def test_a_lone_surrogate_in_text_breaks_one_line_only() -> None:
    values = read_events('{"a": "\ud800"}\n{"a": 1}', {"a"}, on_error="skip")
    assert values.unreadable_events.tolist() == [0]
    assert decode(values) == {1: {"a": [number(1)]}}


def test_attributes_under_a_key() -> None:
    events = [{"id": 1, "x": {"a": 1, "b": {"c": 2}}}, {"x": '{"a": "é"}'}, {"x": b'{"a": true}'}, {"x": None}]
    expected = {0: {"a": [number(1)], "b.c": [number(2)]}, 1: {"a": [("string", "é")]}, 2: {"a": [("boolean", 1)]}}
    values = read_events(events, {"a", "b.c", "id"}, attributes="x")
    assert (values.events, decode(values)) == (4, expected)
    lines = b'{"x": {"a": 1, "b": {"c": 2}}}\n{"x": "{\\"a\\": \\"\\u00e9\\"}"}\n{"x": {"a": true}}\n{"x": null}'
    assert decode(read_events(lines, {"a", "b.c"}, attributes="x")) == expected


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"y": 1}, "found no 'x'; expected the attributes there, as attributes= says"),
        ({"x": 5}, "found a value of type int as 'x'; expected an object or a JSON text of one"),
        ({"x": "{"}, "column 2: found broken JSON ("),
        ({"x": ""}, "column 1: found broken JSON ("),
        ({"x": "[1]"}, "found an array; expected one JSON object"),
        ({"x": "\ud800"}, "column 1: found bytes that are not UTF-8"),
        (7, "found an event of type int; expected a dict"),
    ],
    ids=shown,
)
def test_bad_attributes_under_a_key(event: Any, message: str) -> None:
    with pytest.raises(EventError) as caught:
        read_events([{"x": {}}, event], {"a"}, attributes="x")
    assert str(caught.value).startswith("event 1: " + message)
    values = read_events([event, {"x": {"a": 1}}], {"a"}, attributes="x", on_error="skip")
    assert values.unreadable_events.tolist() == [0]
    assert decode(values) == {1: {"a": [number(1)]}}


# ---------------------------------------------------------------- properties

KEYS = st.sampled_from(["a", "b", "a.b", "b.a", "", "é"])
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, 2**64 - 1, -(2**63), 2.0**53, 2.0**63, -0.0]),
    st.floats(allow_nan=False, allow_infinity=False),
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5))
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
EVENTS = st.lists(st.dictionaries(KEYS, VALUES, max_size=5), max_size=6)
WANTED = st.sets(st.lists(KEYS, min_size=1, max_size=3).map(".".join), max_size=12)


def plainly(event: dict[str, Any], wanted: set[str]) -> dict[str, list[Any]]:
    """The obvious reading of one event of JSON values."""
    found: dict[str, list[Any]] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{path}.{key}", inner)
        elif isinstance(value, list):
            for inner in value:
                walk(path, inner)
        elif value is not None and path in wanted:
            tag: tuple[Any, ...] = ("string", value)
            if isinstance(value, bool):
                tag = ("boolean", int(value))
            elif isinstance(value, (int, float)):
                tag = number(value)
            found.setdefault(path, []).append(tag)

    for key, value in event.items():
        walk(key, value)
    return {name: sorted(values, key=repr) for name, values in found.items()}


@given(EVENTS, WANTED)
def test_dicts_are_json_lines_are_the_obvious_reading(events: list[dict[str, Any]], wanted: set[str]) -> None:
    from_dicts = read_events(events, wanted)
    expected = {number: plainly(event, wanted) for number, event in enumerate(events)}
    assert decode(from_dicts) == {number: values for number, values in expected.items() if values}
    lines = "\n".join(json.dumps(event) for event in events)
    from_json = read_events(lines.encode(), WantedNames(wanted))
    assert decode(from_json) == decode(from_dicts)
    assert (from_dicts.events, from_json.events) == (len(events), len(events))
    assert set(from_dicts.names) <= wanted


@given(st.lists(st.one_of(NUMBERS, st.floats(), st.integers(-(10**320), 10**320)), min_size=1, max_size=20))
def test_number_keys_are_those_of_the_plain_twin(numbers: list[int | float]) -> None:
    assert read(numbers) == sorted((number(value) for value in numbers), key=repr)


@given(st.lists(st.one_of(VALUES, st.binary(max_size=2), st.just("\ud800")), max_size=6), st.booleans())
def test_one_bad_value_never_touches_the_others(values: list[Any], nested: bool) -> None:
    events = [{"a": value, "b": 1} for value in values]
    if nested:
        events = [{"x": event} for event in events]
    wanted = {"x.a", "x.b"} if nested else {"a", "b"}
    read_values = read_events(events, wanted, on_error="skip")
    decoded = decode(read_values)
    bad = [row for row, value in enumerate(values) if isinstance(value, bytes) or value == "\ud800"]
    assert [problem.event for problem in read_values.problems] == bad
    name_a, name_b = sorted(wanted)
    for row in range(len(values)):
        assert decoded[row][name_b] == [number(1)]
        assert (decoded[row].get(name_a) == [("unreadable",)]) == (row in bad)
