"""Many columns at once: the same values as from their rows, wherever the buffers begin and however they are cut."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from decoded_events import decode

from dibs.coding.events import WantedNames, read_events
from dibs.coding.events.arrow_column_kernels import STRETCH
from dibs.errors import EventError

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 0, 127]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, 2**63 - 512, 2**53 + 1, -(2**53) - 1, 0, 7]),
    "uint8": (pa.uint8(), [0, 255]),
    "uint16": (pa.uint16(), [0, 2**16 - 1]),
    "uint32": (pa.uint32(), [0, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, 2**64 - 1024, 2**64 - 1025, 2**63, 2**53 + 1]),
    "float32": (pa.float32(), [0.5, -0.0, float("inf"), float("nan")]),
    "float64": (pa.float64(), [0.1, -0.0, float("-inf"), float("nan"), 1e300, 2.0**63]),
    "boolean": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", "a", "é€😀", "x" * 100]),
    "large": (pa.large_string(), ["", "b", "ß" * 30]),
    "time": (pa.timestamp("us"), [dt.datetime(1970, 1, 1), dt.datetime(2026, 11, 16, 12, 0, 0, 1)]),
    "zoned": (pa.timestamp("us", tz="Europe/Berlin"), [dt.datetime(2026, 7, 1, tzinfo=dt.timezone.utc)]),
    "seconds": (pa.timestamp("s"), [dt.datetime(2026, 11, 16)]),  # one by one, as are those below
    "date": (pa.date32(), [dt.date(2026, 11, 16)]),
    "list": (pa.list_(pa.int64()), [[1, 2], [], [None]]),
    "struct": (pa.struct([("x", pa.int64())]), [{"x": 1}, {"x": None}]),
}


def table(rows: int, columns: int, share: float, seed: int = 1) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Columns of all types in turns, of which a share is filled."""
    chosen = random.Random(seed)
    kinds = [list(TYPES)[i % len(TYPES)] for i in range(columns)]
    values = {
        f"{kind} {i}": [chosen.choice(TYPES[kind][1]) if chosen.random() < share else None for _ in range(rows)]
        for i, kind in enumerate(kinds)
    }
    arrays = {name: pa.array(column, TYPES[name.split()[0]][0]) for name, column in values.items()}
    return pa.table(arrays), [{name: column[row] for name, column in values.items()} for row in range(rows)]


def wanted_of(columns: pa.Table) -> WantedNames:
    names = [name for i, name in enumerate(columns.schema.names) if i % 5]
    return WantedNames([*names, *(f"{name}.x" for name in names if name.startswith("struct")), "not there"])


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
def test_columns_are_rows(share: float) -> None:
    columns, rows = table(200, 60, share)
    wanted = wanted_of(columns)
    assert decode(read_events(columns, wanted)) == decode(read_events(rows, wanted))


@pytest.mark.parametrize("start", [0, 1, 7, 8, 63, 64, 65, 130])
def test_slices(start: int) -> None:
    columns, rows = table(200, 40, 0.3)
    wanted = wanted_of(columns)
    for length in (0, 1, 5, 64, 70):
        expected = decode(read_events(rows[start : start + length], wanted))
        assert decode(read_events(columns.slice(start, length), wanted)) == expected
        batch = columns.combine_chunks().to_batches()[0].slice(start, length)
        assert decode(read_events(batch, wanted)) == expected
        inside = pa.RecordBatch.from_struct_array(batch.to_struct_array().slice(min(1, length)))
        assert decode(read_events(inside, wanted)) == decode(
            read_events(rows[start + min(1, length) : start + length], wanted)
        )


def test_more_rows_than_are_read_at_a_time() -> None:
    columns, rows = table(2 * STRETCH + 70, 20, 0.1)
    wanted = wanted_of(columns)
    for start in (0, 3):
        assert decode(read_events(columns.slice(start), wanted)) == decode(read_events(rows[start:], wanted))


def test_columns_in_different_chunks() -> None:
    columns, rows = table(100, 20, 0.4)
    chosen = random.Random(3)
    cut = pa.table(
        {
            name: pa.chunked_array(
                [columns[name].slice(a, b - a).combine_chunks() for a, b in zip(ends, ends[1:])], columns[name].type
            )
            for name in columns.schema.names
            for ends in [[0, *sorted(chosen.sample(range(100), chosen.randrange(4))), 100]]
        }
    )
    wanted = wanted_of(columns)
    assert decode(read_events(cut, wanted)) == decode(read_events(rows, wanted))
    reader = pa.RecordBatchReader.from_batches(columns.schema, columns.to_batches(max_chunksize=33))
    assert decode(read_events(reader, wanted)) == decode(read_events(rows, wanted))


def test_the_plan_follows_the_schema() -> None:
    wanted = WantedNames(["a", "b"])
    for values in ({"a": [1]}, {"a": ["x"]}, {"b": [1], "a": [True]}, {"c": [1]}, {"a": [1]}, {}):
        found = decode(read_events(pa.table(values), wanted))
        assert found == decode(read_events([{name: column[0] for name, column in values.items()}], wanted))


def test_a_name_that_two_columns_have() -> None:
    columns = pa.Table.from_arrays([pa.array([1, None]), pa.array(["x", "y"])], ["a", "a"])
    assert decode(read_events(columns, {"a"})) == {
        0: {"a": [("number", 1.0, 0), ("string", "x")]},
        1: {"a": [("string", "y")]},
    }


def test_strings_that_are_not_utf8() -> None:
    bad = pa.array([b"a", b"\xff", None, b"\xc3"]).view(pa.string())
    columns = pa.table({"a": bad, "b": ["x", "y", "é", None], "c": [1, 2, 3, 4]})
    values = read_events(columns, {"a", "b", "c"}, on_error="skip")
    assert [(p.event, p.attribute) for p in values.problems] == [(1, "a"), (3, "a")]
    assert decode(values)[1] == {"a": [("unreadable",)], "b": [("string", "y")], "c": [("number", 2.0, 0)]}
    with pytest.raises(EventError, match="not UTF-8") as raised:
        read_events(columns, {"a", "b", "c"})
    assert (raised.value.event, raised.value.attribute) == (1, "a")


@pytest.mark.parametrize("offsets", [[0, 5, 2, 3], [0, -4, 2, 3], [0, 1000, 2, 3]])
def test_offsets_that_lead_out_of_the_buffer(offsets: list[int]) -> None:
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"abc")]
    damaged = pa.Array.from_buffers(pa.string(), 3, buffers)
    with pytest.raises(EventError, match="Arrow data cannot be read"):
        read_events(pa.table({"a": damaged}), {"a"})
