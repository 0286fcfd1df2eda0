"""Events as Arrow data: every type, every way to lay it out, and the same values as the same content in dicts."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from decoded_events import Decoded, decode
from hypothesis import given
from hypothesis import strategies as st

from dibs.coding.events import WantedNames, read_events
from dibs.coding.values import number_key
from dibs.errors import EventError

DAY = 86_400_000_000
INT64 = (-(2**63), 2**63 - 1)


def number(value: int | float) -> tuple[str, float, int]:
    return ("number", *number_key(value))


def column(array: pa.Array, wanted: Any = ("a",), **options: Any) -> Decoded:
    return decode(read_events(pa.table({"a": array}), wanted, **options))


def values_of(array: pa.Array) -> list[list[Any]]:
    """The decoded values of each row of a column that is wanted itself."""
    decoded = column(array)
    return [decoded.get(row, {}).get("a", []) for row in range(len(array))]


# ---------------------------------------------------------------- types

TYPES: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (pa.null(), [None, None], [None, None]),
    (pa.bool_(), [True, None, False], [("boolean", 1), None, ("boolean", 0)]),
    (pa.int8(), [-128, None, 127], [number(-128), None, number(127)]),
    (pa.int16(), [-32768, 32767], [number(-32768), number(32767)]),
    (pa.int32(), [-(2**31), 2**31 - 1], [number(-(2**31)), number(2**31 - 1)]),
    (pa.int64(), [*INT64, 2**53 + 1, None, 0], [*map(number, INT64), ("number", 2.0**53, 1), None, number(0)]),
    (pa.uint8(), [0, 255], [number(0), number(255)]),
    (pa.uint16(), [65535], [number(65535)]),
    (pa.uint32(), [2**32 - 1], [number(2**32 - 1)]),
    (pa.uint64(), [2**64 - 1, 2**53 + 1, None], [("number", 2.0**64, -1), ("number", 2.0**53, 1), None]),
    (pa.float16(), [np.float16(0.1), None], [number(float(np.float16(0.1))), None]),
    (pa.float32(), [0.1, None, math.nan], [number(float(np.float32(0.1))), None, ("number", math.inf, 1)]),
    (pa.float64(), [0.1, -0.0, -math.inf, math.nan], [number(x) for x in (0.1, 0, -math.inf, math.nan)]),
    (pa.decimal32(9, 2), [Decimal("12.50"), None], [number(12.5), None]),
    (pa.decimal64(18, 2), [Decimal("-90071992547409.93"), Decimal("90071992547409.00")],
     [number(-90071992547409.93), number(90071992547409)]),
    (pa.decimal128(38, 0), [Decimal(2**53 + 1), Decimal(2**64 - 1), Decimal(2**64 + 1), Decimal(-(2**63))],
     [("number", 2.0**53, 1), ("number", 2.0**64, -1), ("number", 2.0**64, 0), number(-(2**63))]),
    (pa.decimal128(18, 0), [Decimal(2**53 + 1), None, Decimal(-7)], [("number", 2.0**53, 1), None, number(-7)]),
    (pa.decimal128(38, 18), [Decimal("12.5"), Decimal("9007199254740993"), Decimal("0.1"), Decimal("1E-18")],
     [number(12.5), ("number", 2.0**53, 1), number(0.1), number(1e-18)]),
    (pa.decimal128(5, -3), [Decimal("12000"), Decimal("-99999000")], [number(12000), number(-99999000)]),
    (pa.decimal256(76, 40), [Decimal("0.1"), Decimal("9007199254740993"), Decimal("1E-40")],
     [number(0.1), ("number", 2.0**53, 1), number(1e-40)]),
    (pa.string(), ["", None, "naïve \U0001f600"], [("string", ""), None, ("string", "naïve \U0001f600")]),
    (pa.large_string(), ["x", None], [("string", "x"), None]),
    (pa.string_view(), ["short", None, "longer than twelve bytes"],
     [("string", "short"), None, ("string", "longer than twelve bytes")]),
    (pa.date32(), [dt.date(1970, 1, 2), None, dt.date(1, 1, 1)], [("time", DAY), None, ("time", -719162 * DAY)]),
    (pa.date64(), [dt.date(1969, 12, 31), None], [("time", -DAY), None]),
    (pa.timestamp("s"), [dt.datetime(1970, 1, 1, 0, 0, 1), None], [("time", 10**6), None]),
    (pa.timestamp("ms"), [-1, None], [("time", -1_000), None]),
    (pa.timestamp("us"), [INT64[0], INT64[1]], [("time", INT64[0]), ("time", INT64[1])]),
    (pa.timestamp("ns"), [-1, 1_999, INT64[0]], [("time", -1), ("time", 1), ("time", INT64[0] // 1_000)]),
    (pa.timestamp("us", "America/New_York"), [5, None], [("time", 5), None]),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "given_values", "expected"), TYPES, ids=[str(row[0]) for row in TYPES])
def test_types(type_: pa.DataType, given_values: list[Any], expected: list[Any]) -> None:
    """Alone, sliced, in chunks, in every kind of list, in a struct, in a map, and in other encodings."""
    array = pa.array(given_values, type_)
    single = [[] if value is None else [value] for value in expected]
    assert values_of(array) == single
    assert values_of(pa.concat_arrays([array, array])[1:]) == (single + single)[1:]
    assert values_of(pa.chunked_array([array, array[:0], array[1:], array])) == single + single[1:] + single

    size = len(array)
    pooled = sorted((value for value in expected if value is not None), key=repr)
    offsets = pa.array([0, 0, size], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, array)
    for nested in (
        lists,
        pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), array),
        pa.ListViewArray.from_arrays(pa.array([0, 0]), pa.array([0, size]), array),
        pa.ListArray.from_arrays(pa.array([0, 0, 2], pa.int32()), lists),
    ):
        assert column(nested).get(1, {}).get("a", []) == pooled
        assert column(nested).get(0, {}) == {}
    assert column(pa.FixedSizeListArray.from_arrays(array, size)).get(0, {}).get("a", []) == pooled

    struct = pa.StructArray.from_arrays([array], ["b"])
    decoded = column(struct[1:], ["a.b"])
    assert [decoded.get(row, {}).get("a.b", []) for row in range(size - 1)] == single[1:]
    keys = pa.array(["k", "other"] * size)[:size]
    maps = pa.MapArray.from_arrays(pa.array([0, size], pa.int32()), keys, array)
    in_map = sorted((value for value in expected[::2] if value is not None), key=repr)
    assert column(maps, ["a.k"]).get(0, {}).get("a.k", []) == in_map

    runs = pa.RunEndEncodedArray.from_arrays(pa.array(range(2, 2 * size + 1, 2), pa.int32()), array)
    assert values_of(runs[1:]) == [value for value in single for _ in range(2)][1:]
    indices = pa.array([*range(size), None, 0], pa.int8())
    if not pa.types.is_null(type_):
        dictionary = pa.DictionaryArray.from_arrays(indices, array)
        assert values_of(dictionary) == [*single, [], single[0]]
        assert values_of(dictionary[1:]) == [*single[1:], [], single[0]]


def test_decimals_are_rounded_correctly() -> None:
    """Python's own float(Decimal) is correctly rounded; Arrow's cast is not always."""
    random = np.random.default_rng(7)
    for type_ in (pa.decimal64(18, 9), pa.decimal128(38, 18), pa.decimal128(38, 30), pa.decimal256(70, 35)):
        lengths = random.integers(1, type_.precision, 300)
        digits = [tuple(random.integers(0, 10, length).tolist()) for length in lengths]
        array = pa.array([Decimal((row % 2, some, -type_.scale)) for row, some in enumerate(digits)], type_)
        expected = [[number(value)] for value in (_of_decimal(decimal) for decimal in array.to_pylist())]
        assert values_of(array) == expected


def _of_decimal(value: Decimal) -> int | float:
    return int(value) if value == int(value) and -(2**63) <= value < 2**64 else float(value)


def test_extension_types_are_their_storage() -> None:
    class Money(pa.ExtensionType):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(pa.decimal128(10, 2), "test.money")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

    money = pa.ExtensionArray.from_storage(Money(), pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)))
    assert values_of(money) == [[number(1.5)], []]
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))
    assert values_of(flags) == [[("boolean", 1)], [("boolean", 0)], []]
    assert values_of(pa.array(["{}"], pa.json_())) == [[("string", "{}")]]


# ---------------------------------------------------------------- structure


def test_nulls_at_every_level() -> None:
    inner = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    type_ = pa.struct([("s", inner), ("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner))])
    rows: list[Any] = [
        {"s": {"x": 1, "y": ["p", None]}, "l": [{"x": 2, "y": []}, None, {"x": None, "y": None}], "m": [("k", None)]},
        None,
        {"s": None, "l": None, "m": None},
        {"s": {"x": None, "y": [None]}, "l": [None], "m": [("k", {"x": 5, "y": ["q"]}), ("j", {"x": 6, "y": None})]},
    ]
    array = pa.array(rows, type_)
    wanted = ["a.s.x", "a.s.y", "a.l.x", "a.l.y", "a.m.k.x", "a.m.k.y", "a.m.j.x", "a", "a.s", "a.l", "a.m"]
    expected = {
        0: {"a.s.x": [number(1)], "a.s.y": [("string", "p")], "a.l.x": [number(2)]},
        3: {"a.m.k.x": [number(5)], "a.m.k.y": [("string", "q")], "a.m.j.x": [number(6)]},
    }
    assert column(array, wanted) == expected
    assert column(array, ["a.m.j.x"]) == {3: {"a.m.j.x": [number(6)]}}
    assert column(array[2:], wanted) == {1: expected[3]}


def test_values_under_a_null_do_not_count() -> None:
    """Arrow may keep anything below a null struct, list or map."""
    hidden = pa.array([False, True])
    numbers = pa.array([1, 2])
    struct = pa.StructArray.from_arrays([numbers], ["b"], mask=hidden)
    assert column(struct, ["a.b"]) == {0: {"a.b": [number(1)]}}
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), numbers, mask=hidden)
    assert values_of(lists) == [[number(1)], []]
    fixed = pa.FixedSizeListArray.from_arrays(numbers, 1, mask=hidden)
    assert values_of(fixed) == [[number(1)], []]
    views = pa.ListViewArray.from_arrays(pa.array([0, 1]), pa.array([1, 1]), numbers, mask=hidden)
    assert values_of(views) == [[number(1)], []]
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["k", "k"]), numbers, mask=hidden)
    assert column(maps, ["a.k"]) == {0: {"a.k": [number(1)]}}
    words = pa.array([None, {"b": None}], pa.struct([("b", pa.dictionary(pa.int8(), pa.string()))]))
    assert words.field(0).indices.to_pylist() == [0, None]  # and there is no word 0
    assert column(words, ["a.b"]) == {}
    whole = pa.StructArray.from_arrays([maps, lists], ["m", "l"], mask=pa.array([True, False]))
    assert column(whole, ["a.m.k", "a.l"]) == {}


def test_list_views_in_any_order() -> None:
    views = pa.ListViewArray.from_arrays(pa.array([2, 0, 1]), pa.array([1, 2, 0]), pa.array(["x", "y", "z"]))
    assert values_of(views) == [[("string", "z")], [("string", "x"), ("string", "y")], []]


def test_columns_of_one_name_and_of_one_path_are_pooled() -> None:
    struct = pa.StructArray.from_arrays([pa.array([1, None]), pa.array(["x", "y"])], ["b", "b"])
    table = pa.Table.from_arrays([struct, pa.array([2.5, 3.5]), pa.array([True, None])], ["a", "a.b", "a.b"])
    assert decode(read_events(table, {"a.b", "a"})) == {
        0: {"a.b": [("boolean", 1), number(1), number(2.5), ("string", "x")]},
        1: {"a.b": [number(3.5), ("string", "y")]},
    }


def test_a_map_of_maps_and_of_structs() -> None:
    inner = pa.map_(pa.string(), pa.struct([("x", pa.int32()), ("y", pa.string())]))
    rows = [
        [("p", [("q", {"x": 1, "y": "one"}), ("r", {"x": 2, "y": None})]), ("s", None)],
        None,
        [("p", []), ("s", [("q", {"x": 3, "y": "three"}), ("q.x", None)])],
    ]
    array = pa.array(rows, pa.map_(pa.string(), inner))
    wanted = ["a.p.q.x", "a.s.q.x", "a.p.r.x", "a.s.q.y", "a.p.q"]
    expected = {
        0: {"a.p.q.x": [number(1)], "a.p.r.x": [number(2)]},
        2: {"a.s.q.x": [number(3)], "a.s.q.y": [("string", "three")]},
    }
    assert column(array, wanted) == expected
    assert column(array[1:], wanted) == {1: expected[2]}
    top = [name.removeprefix("a.") for name in wanted]
    assert column(array, top, attributes="a") == {
        event: {name.removeprefix("a."): values for name, values in names.items()} for event, names in expected.items()
    }


@pytest.mark.parametrize("key_type", [pa.string(), pa.large_string(), pa.string_view()])
def test_map_keys_of_any_string_type(key_type: pa.DataType) -> None:
    maps = pa.MapArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array(["k", "é", "k"], key_type), pa.array([1, 2, 3])
    )
    assert column(maps, ["a.k", "a.é"]) == {0: {"a.k": [number(1)], "a.é": [number(2)]}, 1: {"a.k": [number(3)]}}
    coded = pa.MapArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array(["k", "é", "k"]).dictionary_encode(), pa.array([1, 2, 3])
    )
    assert column(coded[1:], ["a.k", "a.é"]) == {0: {"a.k": [number(3)]}}


def test_deep_types() -> None:
    array = pa.array([1, None, 2])
    for _ in range(400):
        array = pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)
    assert values_of(array) == [[number(1), number(2)]]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({}),
        pa.table({"a": pa.array([], pa.int64())}),
        pa.table({"a": pa.array([], pa.map_(pa.string(), pa.binary())), "b": pa.array([], pa.list_(pa.string()))}),
        pa.table({"a": pa.chunked_array([], pa.string())}),
        pa.record_batch({"a": pa.array([], pa.list_(pa.struct([("x", pa.binary())])))}),
    ],
    ids=lambda table: str(table.schema),
)
def test_no_rows(table: Any) -> None:
    values = read_events(table, {"a", "a.x", "b"})
    assert (values.events, decode(values), values.problems) == (0, {}, [])


def test_rows_without_wanted_columns_are_events() -> None:
    values = read_events(pa.table({"b": [1, 2, 3]}), {"a"})
    assert (values.events, decode(values)) == (3, {})


def test_sources() -> None:
    """Everything that is or hands over Arrow data; what hands over chunks goes on counting."""
    table = pa.table({"a": [1, 2, 3], "s": ["x", None, "z"], "n": [{"b": 1.5}, None, {"b": None}]})
    wanted = {"a", "s", "n.b"}
    expected = {
        0: {"a": [number(1)], "s": [("string", "x")], "n.b": [number(1.5)]},
        1: {"a": [number(2)]},
        2: {"a": [number(3)], "s": [("string", "z")]},
    }

    class Stream:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return table.__arrow_c_stream__(requested_schema)

    class Array:
        def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
            return table.to_batches()[0].__arrow_c_array__(requested_schema)

    sources = [
        table,
        table.to_batches()[0],
        pa.Table.from_batches(table.to_batches(max_chunksize=1)),
        table.to_reader(max_chunksize=2),
        Stream(),
        Array(),
        table.to_struct_array(),
        duckdb.from_arrow(table),
        table.to_pylist(),
        "\n".join(json.dumps(row) for row in table.to_pylist()),
    ]
    for source in sources:
        values = read_events(source, wanted)
        assert (values.events, decode(values)) == (3, expected)
    frame = pd.DataFrame({"a": [1, 2, 3], "s": ["x", None, "z"], "n.b": [1.5, None, None]}, index=["p", "q", "r"])
    assert decode(read_events(frame, wanted)) == expected


def test_what_does_not_hand_over_rows() -> None:
    with pytest.raises(EventError, match="the Int64Array does not hand over its rows as Arrow data"):
        read_events(pa.array([1, 2]), {"a"})
    mixed = pd.DataFrame({"a": [1, "x", b"y"]}, dtype=object)
    with pytest.raises(EventError, match="the DataFrame does not hand over its rows as Arrow data"):
        read_events(mixed, {"a"})


def test_what_nobody_wants_is_no_problem() -> None:
    broken = pa.array([b"\xff", b"\xff"])
    struct = pa.StructArray.from_arrays([pa.array([3, 4]), broken], ["x", "y"])
    table = pa.table({"a": [1, 2], "b": broken.view(pa.string()), "c": broken, "s": struct})
    assert decode(read_events(table, {"a", "bb", "b.c", "c.x", "s", "s.x"})) == {
        0: {"a": [number(1)], "s.x": [number(3)]},
        1: {"a": [number(2)], "s.x": [number(4)]},
    }


# ---------------------------------------------------------------- attributes=


ATTRIBUTES: list[tuple[str, pa.Array]] = [
    ("map", pa.array([[("a", 1), ("b.c", 2)], None, [], [("a", None)]], pa.map_(pa.string(), pa.int64()))),
    (
        "struct",
        pa.array(
            [{"a": 1, "b": {"c": 2}}, None, {"a": None, "b": None}, {"a": None, "b": {"c": None}}],
            pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.int64())]))]),
        ),
    ),
    ("json", pa.array(['{"a": 1, "b": {"c": 2}, "id": 9}', None, "{}", '{"a": null}'])),
    ("large json", pa.array(['{"a": 1, "b": {"c": 2}}', None, "{}", "{}"], pa.large_string())),
    ("json view", pa.array(['{"a": 1, "b": {"c": 2}}', None, "{}", "{}"], pa.string_view())),
    ("json dictionary", pa.array(['{"a": 1, "b": {"c": 2}}', None, "{}", "{}"]).dictionary_encode()),
    ("json type", pa.array(['{"a": 1, "b": {"c": 2}}', None, "{}", "{}"], pa.json_())),
]


@pytest.mark.parametrize("array", [row[1] for row in ATTRIBUTES], ids=[row[0] for row in ATTRIBUTES])
def test_attributes_in_one_column(array: pa.Array) -> None:
    table = pa.table({"a": ["no", "no", "no", "no"], "x": array})
    wanted = {"a", "b.c", "x.a", "x"}
    expected = {0: {"a": [number(1)], "b.c": [number(2)]}}
    for source in (table, table.to_batches()[0], table.to_reader(max_chunksize=1)):
        values = read_events(source, wanted, attributes="x")
        assert (values.events, decode(values)) == (4, expected)
    later = read_events(pa.concat_tables([table, table])[3:], wanted, attributes="x")
    assert (later.events, decode(later)) == (5, {1: expected[0]})


def test_an_attributes_column_of_nulls() -> None:
    values = read_events(pa.table({"x": pa.nulls(3)}), {"a"}, attributes="x")
    assert (values.events, decode(values)) == (3, {})


def test_broken_json_in_a_column() -> None:
    raw = pa.array([b'{"a": 1}', b'{"a"', b"", b'{"a": "\xff"}', b"[]", b'{"a": 2}'])
    table = pa.table({"x": raw.view(pa.string())})
    with pytest.raises(EventError, match=r"event 1: column 5: found broken JSON \("):
        read_events(table, {"a"}, attributes="x")
    values = read_events(table, {"a"}, attributes="x", on_error="skip")
    assert values.unreadable_events.tolist() == [1, 2, 3, 4]
    assert decode(values) == {0: {"a": [number(1)]}, 5: {"a": [number(2)]}}
    assert [problem.message for problem in values.problems][2:] == [
        "column 8: found bytes that are not UTF-8; expected a JSON object in UTF-8",
        "found an array; expected one JSON object",
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"b": [1], "c": [2]}), "no column is called 'x', as attributes= says; the columns are: 'b', 'c'"),
        (pa.table({}), "the columns are: none"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]), "several columns are called 'x'"),
        (pa.table({"x": [1]}), "column 'x' is of type int64; expected a map, a struct or strings of JSON"),
        (pa.table({"x": [b"{}"]}), "column 'x' is of type binary; expected a map"),
        (pa.table({"x": [["{}"]]}), "column 'x' is of type list<"),
    ],
)
def test_bad_attributes_column(table: pa.Table, message: str) -> None:
    for on_error in ("raise", "skip"):
        with pytest.raises(EventError) as caught:
            read_events(table, {"a"}, attributes="x", on_error=on_error)
        assert message in str(caught.value)


# ---------------------------------------------------------------- what cannot be read

UNION = pa.UnionArray.from_sparse(
    pa.array([0, 1, 0], pa.int8()), [pa.array([1, None, None]), pa.array(["x", "y", "z"])]
)  # [1, "y", null]
UNSUPPORTED = [
    pa.array([b"x", b"", None]),
    pa.array([b"x", b"", None], pa.large_binary()),
    pa.array([b"x", b"", None], pa.binary_view()),
    pa.array([b"x", b"y", None], pa.binary(1)),
    pa.array([1, 2, None], pa.time32("s")),
    pa.array([1, 2, None], pa.time64("us")),
    pa.array([1, 2, None], pa.duration("s")),
    pa.array([(1, 2, 3), (4, 5, 6), None], pa.month_day_nano_interval()),
    pa.array([b"x", b"", None]).dictionary_encode(),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, b"1" * 16, None], pa.binary(16))),
    UNION,
]


@pytest.mark.parametrize("array", UNSUPPORTED, ids=lambda array: str(array.type))
def test_unsupported_types(array: pa.Array) -> None:
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    plain_type = storage.type.value_type if pa.types.is_dictionary(storage.type) else storage.type
    message = f"found a value of Arrow type {plain_type}; expected a boolean, number, string, date or timestamp"
    table = pa.table({"b": [1, 2, 3], "a": array})
    with pytest.raises(EventError) as caught:
        read_events(table, {"a", "b"})
    assert str(caught.value).startswith(f"event 0, attribute 'a': {message}")
    values = read_events(table, {"a", "b"}, on_error="skip")
    unreadable = [("unreadable",)]
    assert decode(values) == {
        0: {"b": [number(1)], "a": unreadable},
        1: {"b": [number(2)], "a": unreadable},
        2: {"b": [number(3)]},
    }
    assert [(problem.event, problem.attribute) for problem in values.problems] == [(0, "a"), (1, "a")]
    assert all(problem.message.startswith(message) for problem in values.problems)

    assert decode(read_events(table, {"b"})) == {row: {"b": [number(row + 1)]} for row in range(3)}
    assert decode(read_events(table.slice(2), {"a", "b"})) == {0: {"b": [number(3)]}}  # a null is no bad value

    lists = pa.ListArray.from_arrays(pa.array([0, 3, 3], pa.int32()), array)
    in_lists = read_events(pa.table({"a": lists}), {"a"}, on_error="skip")
    assert decode(in_lists) == {0: {"a": [("unreadable",)] * 2}}
    assert len(in_lists.problems) == 1  # one for the event, however many elements
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["k", "l", "k"]), array)
    in_maps = read_events(pa.table({"a": maps}), {"a.l"}, on_error="skip")
    assert decode(in_maps) == {1: {"a.l": [("unreadable",)]}}


def test_text_that_is_not_utf8() -> None:
    raw = [b"ok", b"\xff", None, "é".encode(), b"\xc3", b"\xa9", b"\xed\xa0\x80", b""]
    good = {row for row, text in enumerate(raw) if text in (b"ok", "é".encode(), b"")}
    expected = {
        row: {"a": [("string", text.decode()) if row in good else ("unreadable",)]}
        for row, text in enumerate(raw)
        if text is not None
    }
    for array in (
        pa.array(raw).view(pa.string()),
        pa.array(raw, pa.large_binary()).view(pa.large_string()),
        pa.array(raw, pa.binary_view()).view(pa.string_view()),
    ):
        with pytest.raises(EventError, match="event 1, attribute 'a': found a string that is not UTF-8; expected"):
            column(array)
        values = read_events(pa.table({"a": array}), {"a"}, on_error="skip")
        assert decode(values) == expected
        assert [problem.event for problem in values.problems] == [1, 4, 5, 6]
        assert column(array[:1]) == {0: {"a": [("string", "ok")]}}


def test_map_keys_that_are_not_utf8_are_nobodys_attribute() -> None:
    keys = pa.array([b"k", b"\xff", "é".encode()]).view(pa.string())
    maps = pa.MapArray.from_arrays(pa.array([0, 3], pa.int32()), keys, pa.array([1, 2, 3]))
    assert column(maps, ["k", "é"], attributes="a") == {0: {"k": [number(1)], "é": [number(3)]}}


def test_map_keys_that_are_no_strings() -> None:
    maps = pa.array([[], [(1, 2)], None, [(3, 4)]], pa.map_(pa.int64(), pa.int64()))
    table = pa.table({"b": [1, 2, 3, 4], "a": maps})
    with pytest.raises(EventError, match="event 1: found a map with keys of type int64; expected keys that are"):
        read_events(table, {"b", "a.1"})
    values = read_events(table, {"b", "a.1"}, on_error="skip")
    assert values.unreadable_events.tolist() == [1, 3]
    assert [(problem.event, problem.attribute) for problem in values.problems] == [(1, None), (3, None)]
    assert decode(values) == {0: {"b": [number(1)]}, 2: {"b": [number(3)]}}
    assert read_events(table, {"b", "a"}).problems == []  # nothing below `a` is wanted


@pytest.mark.parametrize(
    ("type_", "inside"),
    [
        (pa.timestamp("s"), 9_223_372_036_854),
        (pa.timestamp("ms", "UTC"), 9_223_372_036_854_775),
        (pa.date32(), 106_751_991),
        (pa.date64(), 106_751_991 * 86_400_000),
    ],
    ids=str,
)
def test_times_outside_the_range(type_: pa.DataType, inside: int) -> None:
    day = 86_400_000 if pa.types.is_date64(type_) else 1
    plain = pa.int32() if pa.types.is_date32(type_) else pa.int64()
    array = pa.array([inside, inside + day, -inside, -inside - day, None], plain).view(type_)
    with pytest.raises(EventError, match="event 1, attribute 'a': found a date or timestamp outside the range"):
        column(array)
    decoded = column(array, on_error="skip")
    assert decoded[1] == decoded[3] == {"a": [("unreadable",)]}
    assert decoded[0]["a"][0][1] == -decoded[2]["a"][0][1] > 9.2e18
    assert 4 not in decoded


def test_the_first_event_with_a_problem_is_raised() -> None:
    table = pa.table({"a": pa.array([None, None, b"x"]), "b": pa.array([None, 5, None], pa.duration("s"))})
    with pytest.raises(EventError, match="event 1, attribute 'b': found a value of Arrow type duration"):
        read_events(table, {"a", "b"})


# ---------------------------------------------------------------- properties

LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(*INT64)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    (pa.decimal256(50, 0), st.integers(-(10**49), 10**49).map(Decimal)),
    (pa.string(), st.text(max_size=4)),
    (pa.large_string(), st.text(max_size=4)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.timezone.utc))),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["x", "y", "é"])),
]
NAMES = ["p", "q", "p.q"]


def typed(depth: int) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """An Arrow type, and a strategy for its values."""
    leaves = st.sampled_from(LEAVES)
    if not depth:
        return leaves
    inner = typed(depth - 1)
    return st.one_of(leaves, inner.map(_list), inner.map(_map), st.lists(inner, min_size=1, max_size=3).map(_struct))


def _nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, values, values, st.none())


def _list(element: Any) -> Any:
    return pa.list_(element[0]), st.lists(_nullable(element[1]), max_size=3)


def _map(item: Any) -> Any:
    values = st.dictionaries(st.sampled_from(NAMES), _nullable(item[1]), max_size=3)
    return pa.map_(pa.string(), item[0]), values.map(lambda entries: list(entries.items()))


def _struct(fields: Any) -> Any:
    names = NAMES[: len(fields)]
    values = {name: _nullable(field[1]) for name, field in zip(names, fields, strict=True)}
    return pa.struct([(name, field[0]) for name, field in zip(names, fields, strict=True)]), st.fixed_dictionaries(
        values
    )


def _paths(value: Any, path: str | None = None) -> set[str]:
    """The paths of all leaves and objects."""
    found = set() if path is None else {path}
    if isinstance(value, list):
        return found.union(*(_paths(element, path) for element in value))
    if isinstance(value, dict):
        found = found.union(*(_paths(inner, key if path is None else f"{path}.{key}") for key, inner in value.items()))
    return found


@given(st.data())
def test_arrow_is_dicts(data: st.DataObject) -> None:
    """Any nested table, cut and chunked anyhow, gives what its rows as dicts give."""
    columns = data.draw(st.lists(typed(3), min_size=1, max_size=3), "columns")
    count = data.draw(st.integers(1, 5), "rows")
    arrays = [
        pa.array(data.draw(st.lists(_nullable(values), min_size=count, max_size=count)), type_)
        for type_, values in columns
    ]
    names = ["a", "b", "a.p"][: len(arrays)]
    whole = pa.Table.from_arrays(arrays, names)
    cut = data.draw(st.integers(0, count), "cut")
    table = pa.concat_tables([whole[cut:], whole[:cut], whole])
    rows = table.to_pylist(maps_as_pydicts="strict")
    paths = sorted(set().union(*(_paths(row) for row in rows)) | {"a", "a.p.q.p.q"})
    left_out = data.draw(st.sets(st.sampled_from(paths), max_size=2), "left out")
    wanted = WantedNames(path for path in paths if path not in left_out)
    values = read_events(table, wanted)
    assert values.events == len(rows)
    assert decode(values) == decode(read_events(rows, wanted))
