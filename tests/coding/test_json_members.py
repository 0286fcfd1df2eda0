"""JSON lines whose attributes stand under a key, by kernels and by orjson: the same values, events and problems."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_json_lane import content

from dibs.coding.events import WantedNames, read_events
from dibs.coding.events.dicts import read_dicts
from dibs.coding.events.json import JsonTexts, attributes_of, json_lines, json_text
from dibs.coding.events.json_lane import read_json_lines, read_json_texts
from dibs.errors import EventError

WANTED = WantedNames(["a", "b", "a.b", "é", "x"])


def check(lines: bytes, key: str = "x") -> None:
    expected = read_dicts(attributes_of(json_lines(lines), key), WANTED, "skip")
    assert content(read_json_lines(lines, WANTED, "skip", key)) == content(expected)
    texts = [line for line in lines.split(b"\n") if line.strip()]
    expected = read_dicts(attributes_of([json_text(text) for text in texts], key), WANTED, "skip")
    assert content(read_json_texts(texts, WANTED, "skip", key)) == content(expected)


LINES = [
    b'{"x": {"a": 1, "b": "t"}}',
    b'{"id": [1, {"x": {"a": 7}}, "x"], "x": {"a": {"b": [1, "]}"]}}, "y": "\\"x\\": {"}',
    b'{"x":{}}',
    b'{"x": null}',
    b'{"x": {"a": 1}, "x": {"a": 2}}',
    b'{"x": {"a": 1}, "x": 7}',
    b'{"\\u0078": {"a": 1}}',
    b'{"y": "\\u0078", "x": {"a": 1}}',
    b'{"x": "{\\"a\\": 3}"}',
    b'{"x": "no json"}',
    b'{"x": [1]}',
    b'{"x": 7, "y": 1}',
    b'{"x": true}',
    b'{"y": {"a": 1}}',
    b'{"x.a": 1}',
    b'{"X": {"a": 1}, "xx": {"a": 1}, "": {"a": 1}}',
    b'{"x": {"a": 1}',
    b'{"x": {"a": 1}} y',
    b'{"x": {"a": 1}, "y": "\xff"}',
    b'{"x": {"a": 1}, "y": 01}',
    b"[1]",
    b"7",
    b"{}",
    b' { "x" \t: { "a" :1} , "y":-1.5e3 }\r',
    b'{"y": "' + b"z" * 70 + b'\\\\", "x": {"a": "' + "é".encode() * 40 + b'"}, "w": false}',
]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_lines(line: bytes) -> None:
    check(line)
    check(line, "y")


def test_many_lines_and_what_is_wrong_with_them() -> None:
    check(b"\n\n".join(LINES * 3))
    wrong = b"\n".join([LINES[0]] * 6 + [LINES[12]])
    with pytest.raises(EventError, match="found no 'x'; expected the attributes there") as error:
        read_events(wrong, WANTED, attributes="x")
    assert error.value.event == 6


def test_keys_that_are_not_ascii() -> None:
    line = '{"é": {"a": 1}, "e": 2, "": {"a": 2}}'.encode()
    for key in ("é", "e", "", "\ud800"):
        check(line, key)


VALUES: Any = st.recursive(
    st.sampled_from([None, True, 1, -2.5, "x", '"', "\\", "}", "é"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["x", "a", "b", "é", "a.b"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["x", "y", "é", "x\\"]), VALUES, max_size=3), max_size=8), st.booleans()
)
def test_any_events(events: list[dict[str, Any]], ascii_only: bool) -> None:
    lines = "\n".join(json.dumps(event, ensure_ascii=ascii_only) for event in events).encode()
    check(lines)
    check(lines, "é")


def test_texts_as_a_sequence() -> None:
    texts = JsonTexts([b'{"a": 1}', b"{", b'{"a": 2}'])
    assert len(texts) == 3
    assert texts[0] == {"a": 1}
    assert list(texts[1:])[1] == {"a": 2}
    assert content(read_events(texts, WANTED, on_error="skip")) == content(read_dicts(list(texts), WANTED, "skip"))
