"""Arrow data that is not what it says: offsets that lead elsewhere, codes without a value, lengths that do not fit.

Whoever makes Arrow arrays of buffers, or reads a file that somebody else wrote, can hand over such data; Arrow does not
look unless it is asked to. Kernels follow what they are told, so it must be refused before they begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dibs
from dibs.coding.events import read_events
from dibs.coding.events.arrow_types import check_layout

FAR = 1 << 30
STRING = pa.string()
# A text can end behind its bytes, begin before them, or lead back; all but the first and last offsets are free to.
OFFSETS = {"far": [0, FAR, 6, 9], "back": [0, 9, 3, 9], "negative": [0, -FAR, 6, 9], "again": [0, 9, 0, 9]}


def texts(offsets: list[int], content: bytes = b"abcabcabc", kind: pa.DataType = STRING) -> pa.Array:
    width: Any = np.int64 if kind == pa.large_string() else np.int32
    return pa.Array.from_buffers(
        kind, len(offsets) - 1, [None, pa.py_buffer(np.array(offsets, width)), pa.py_buffer(content)]
    )


def lists(offsets: list[int], values: pa.Array, kind: Callable[[pa.DataType], pa.DataType] = pa.list_) -> pa.Array:
    width: Any = np.int64 if kind is pa.large_list else np.int32
    return pa.Array.from_buffers(
        kind(values.type), len(offsets) - 1, [None, pa.py_buffer(np.array(offsets, width))], children=[values]
    )


def maps(offsets: list[int], keys: pa.Array, items: pa.Array) -> pa.Array:
    fields = [pa.field("key", keys.type, False), pa.field("value", items.type)]
    entries = pa.StructArray.from_arrays([keys, items], fields=fields)
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32))]
    return pa.Array.from_buffers(pa.map_(keys.type, items.type), len(offsets) - 1, buffers, children=[entries])


def views(kind: pa.DataType) -> pa.Array:
    """Three of which the second is in a buffer that is not there."""
    sound = pa.array(["a long text of many bytes", "another long text, also", "abc"], kind)
    buffers = sound.buffers()
    words = np.frombuffer(buffers[1], np.int32).copy()
    words[4 + 2] = 7
    return pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(words), *buffers[2:]])


NUMBERS, WORDS = pa.array(range(9)), pa.array(["a", "b", "c"] * 3)
LIES: dict[str, pa.Array] = {
    **{f"texts {name}": texts(offsets) for name, offsets in OFFSETS.items()},
    **{f"large texts {name}": texts(offsets, kind=pa.large_string()) for name, offsets in OFFSETS.items()},
    **{f"lists {name}": lists(offsets, NUMBERS) for name, offsets in OFFSETS.items()},
    **{f"large lists {name}": lists(offsets, WORDS, pa.large_list) for name, offsets in OFFSETS.items()},
    **{f"maps {name}": maps(offsets, WORDS, NUMBERS) for name, offsets in OFFSETS.items()},
    "keys": maps([0, 1, 2, 3], texts(OFFSETS["far"]), NUMBERS[:3]),
    "items": maps([0, 1, 2, 3], WORDS[:3], texts(OFFSETS["far"])),
    "texts of lists": lists([0, 1, 2, 3], texts(OFFSETS["far"])),
    "texts of structs": pa.StructArray.from_arrays([texts(OFFSETS["far"])], ["b"]),
    "texts of a dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), texts(OFFSETS["far"])),
    "texts of runs": pa.Array.from_buffers(
        pa.run_end_encoded(pa.int32(), pa.string()), 3, [None],
        children=[pa.array([1, 2, 3], pa.int32()), texts(OFFSETS["far"])],
    ),
    "codes": pa.DictionaryArray.from_arrays(pa.array([0, FAR, 1]), pa.array(["a", "b"]), safe=False),
    "views": views(pa.string_view()),
    "list views": pa.ListViewArray.from_arrays(
        pa.array([0, FAR, 1], pa.int32()), pa.array([1, 2, 1], pa.int32()), NUMBERS
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("first", [0, 1])
def test_events_that_lie_are_refused(lie: str, first: int) -> None:
    """As an attribute, as the column of attributes, and as the JSON texts of them."""
    batch = pa.record_batch({"a": LIES[lie], "n": pa.array([1, 2, 3])}).slice(first)
    wanted = ["a", "a.b", "b", "n", "x", "y"]
    with pytest.raises(dibs.EventError, match="cannot be read"):
        read_events(batch, wanted)
    if lie != "codes" and "list" not in lie and "runs" not in lie:
        with pytest.raises(dibs.EventError, match="cannot be read"):
            read_events(batch, wanted, attributes="a")


@pytest.mark.parametrize("lie", LIES)
def test_documents_that_lie_are_refused(lie: str) -> None:
    with dibs.Matcher() as m:
        with pytest.raises(dibs.EventError, match="cannot be read"):
            m.history.load(pa.table({"a": LIES[lie], "n": [1, 2, 3]}))
        assert len(m.history) == 0


@pytest.mark.parametrize("column", ["id", "expression"])
@pytest.mark.parametrize("lie", [name for name in LIES if name.startswith(("texts", "large texts", "codes", "views"))])
def test_subscriptions_that_lie_are_refused(lie: str, column: str) -> None:
    sound = {"id": pa.array(["x", "y", "z"]), "expression": pa.array(["a = 1", "a = 2", "a = 3"])}
    with dibs.Matcher() as m:
        with pytest.raises(dibs.DibsError, match=r"cannot be read|must be a string"):
            m.add_table(pa.table(sound | {column: LIES[lie]}))
        assert len(m) == 0


def test_texts_that_overlap_have_no_room() -> None:
    """Texts that lead back again and again are more than their bytes, for which there would be room."""
    content = b"a = 1 AND b = 2 AND c IN (1, 2, 3, 4, 5, 6, 7, 8, 9)"
    offsets = [0, *([len(content), 0] * 2_000), len(content)]
    with dibs.Matcher() as m, pytest.raises(dibs.DibsError, match="out of order"):
        m.add_table(pa.table({"id": range(len(offsets) - 1), "expression": texts(offsets, content)}))
    with pytest.raises(dibs.EventError, match="non-monotonic"):
        read_events(pa.record_batch({"a": texts(offsets, content)}), ["a"])


def test_sound_arrays_are_taken() -> None:
    """Slices, empty ones, nulls, and codes below a null, which Arrow itself leaves out of range."""
    pair = [("k", 1), ("l", None)]
    columns = [
        pa.array(["é", None, "abc"]), pa.array(["é", None, "abc"], pa.large_string()), pa.array([[1, 2], None, []]),
        pa.array([{"k": 1}, None, {"k": None}]), pa.array([pair, None, []], pa.map_(pa.string(), pa.int8())),
        pa.array(["é", None, "a text that is long enough"], pa.string_view()), pa.array([None, None, None]),
        pa.array([[1], None, [2]], pa.list_view(pa.int8())), pa.array([[1], None, [2]], pa.list_(pa.int8(), 1)),
        pa.array(["a", None, "b"]).dictionary_encode(), pc.run_end_encode(pa.array(["a", None, "b"])),
        pa.array([True, None, False]), pa.array([b"a", None, b"b"]), texts([0, 1, 2, 3], b"\xff\xfe\xfd"),
    ]  # fmt: skip
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 99, 1]), pa.array(["a", "b"]), safe=False)
    columns.append(pa.StructArray.from_arrays([codes], ["k"], mask=pa.array([False, True, False])))
    for array in columns:
        for start in range(4):
            for stop in range(start, 4):
                check_layout(array[start:stop])
                read_events(pa.record_batch({"a": array[start:stop]}), ["a", "a.k"], on_error="skip")


def test_a_backtest_shows_no_column_that_lies() -> None:
    table = pa.table({"n": [1, 1, 1], "a": LIES["texts far"], "l": LIES["texts of lists"]})
    found = dibs.backtest("n = 1", table)
    assert [example.values["n"] for example in found.examples] == [1, 1, 1]
    assert found.examples[1].values["a"] == "unsound string"
    assert found.examples[1].values["l"].startswith("unsound list")
