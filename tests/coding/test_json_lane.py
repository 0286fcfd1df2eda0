"""The kernels that read JSON against orjson and the dict entry: the same values, events, problems and errors for every
text, valid, broken or hostile."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from decoded_events import decode
from hypothesis import given
from hypothesis import strategies as st

from dibs.coding.arrange import Arranged, arrange_values
from dibs.coding.events import WantedNames, read_events
from dibs.coding.events.dicts import read_dicts
from dibs.coding.events.json import json_lines, json_text
from dibs.coding.events.json_lane import read_json_columns, read_json_lines
from dibs.coding.values import ArrangedValues, EventValues
from dibs.errors import EventError
from dibs.tuning import smallest, using


def content(values: EventValues) -> Any:
    return values.events, decode(values), values.unreadable_events.tolist(), values.problems


def outcome(read: Any, *arguments: Any) -> Any:
    """What it gives, or raises, if a broken event is an error."""
    try:
        return content(read(*arguments, "raise"))
    except EventError as error:
        return str(error), error.event, error.attribute


def check(lines: bytes, wanted: Collection[str] | WantedNames) -> EventValues:
    """Both ways, for both kinds of on_error; the values that the lane gives."""
    names = wanted if isinstance(wanted, WantedNames) else WantedNames(wanted)
    expected = read_dicts(json_lines(lines), names, "skip")
    found = read_json_lines(lines, names, "skip")
    assert content(found) == content(expected)
    check_arranged(found)
    assert outcome(read_json_lines, lines, names) == outcome(
        lambda x, *more: read_dicts(json_lines(x), *more), lines, names
    )
    return found


def check_arranged(values: EventValues) -> None:
    """The lane's own order of values is as good as that of coding.arrange."""
    own = values.arranged
    plain = EventValues(values.events, values.names, values.numbers, values.strings, booleans=values.booleans)
    expected = arrange_values(plain)
    assert (own is None) == (expected is None)
    if own is None or expected is None:
        return
    assert own.offsets.tolist() == expected.offsets.tolist()
    assert [column.dtype for column in own] == [column.dtype for column in expected]
    assert own.name.tolist() == expected.name.tolist()
    assert rows(own) == rows(expected)


def rows(values: Arranged) -> list[tuple[int, ...]]:
    event = np.repeat(np.arange(len(values.offsets) - 1), np.diff(values.offsets))
    return sorted(zip(event.tolist(), *(column.tolist() for column in values[1:]), strict=True))


def surely(lines: bytes, wanted: Collection[str]) -> EventValues:
    """Read by the kernels alone: what they are unsure of becomes plain columns."""
    values = check(lines, wanted)
    assert isinstance(values, ArrangedValues), "left to orjson"
    return values


def unsurely(lines: bytes, wanted: Collection[str]) -> EventValues:
    values = check(lines, wanted)
    assert not isinstance(values, ArrangedValues), "no longer left to orjson: say so in json_kernels.py"
    return values


# --------------------------------------------------------------------------------------------- what the kernels take


def test_kinds_arrays_and_paths() -> None:
    line = (
        b'{"a": 1, "b": "x", "c": [true, null, 1.5, {"d": [2, {"e": "y"}]}, [[3]]], "f": {"g": {"h": false}, "i": {}},'
        b' "j.k": "dotted", "l": {"m.n": 1, "m": {"n": 2}}, "u": {"a": [1, {"b": {}}]}, "": {"": 4}}'
    )
    wanted = ["a", "b", "c", "c.d", "c.d.e", "f.g.h", "f", "j.k", "l.m.n", ".", "", "zz", "f.g.x.y"]
    values = surely(line, wanted)
    assert decode(values) == {
        0: {
            "a": [("number", 1.0, 0)],
            "b": [("string", "x")],
            "c": [("boolean", 1), ("number", 1.5, 0), ("number", 3.0, 0)],
            "c.d": [("number", 2.0, 0)],
            "c.d.e": [("string", "y")],
            "f.g.h": [("boolean", 0)],
            "j.k": [("string", "dotted")],
            "l.m.n": [("number", 1.0, 0), ("number", 2.0, 0)],
            ".": [("number", 4.0, 0)],
        }
    }


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b" \t{ \t} \r",
        b'{"a":1}',
        b'\t{ "a" : [ 1 , 2 ] , "b" : { } } \r',
        b'{"a":[]}',
        b'{"a":[[],[[]],{}]}',
        b'{"a":-0,"b":-0.0}',
        b'{"a":true,"b":false}',
        b'{"a":"' + b"x" * 1000 + b'","b":"' + "é".encode() * 500 + b'"}',
        b'{"a":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u0041\\u00e9\\u20ac\\ud83d\\ude00"}',
        b'{"\\u0061":1,"\\u00e9":2}',
        '{"é":1,"日本":"語"}'.encode(),
        b'{"a":9223372036854775807,"b":-9223372036854775808}',
        b'{"a":18446744073709551615,"b":10000000000000000000}',
        b'{"a":9007199254740993,"b":-9007199254740993}',
        b'{"a":-9999999999999999999}',
        b'{"a":0.1234567890123456789,"b":1e22,"z":1.7976931348623157e288}',
        b'{"a":0.00000000000000000000000000000000012345678901234567}',
        b'{"x":1,"x":2,"a":3}',  # twice, but nobody wants it
        b'{"a":[{"b":1},{"b":2}]}',  # one path, but two objects
    ],
)
def test_sure(line: bytes) -> None:
    surely(line, {"a", "b", "é", "日本", "a.b"})


@pytest.mark.parametrize(
    "line",
    [
        *(b"x", b"[", b"{", b"}", b"[]", b"1", b'"a"', b"null", b"{}{}", b"{} x", b"{,}", b'{"a"}', b'{"a":}', b"\xff"),
        *(b'{"a":1,}', b'{"a":[1,]}', b'{"a":[1 2]}', b'{"a":1]', b'{"a":[1}', b"{a:1}", b"{'a':1}", b'{"a":1', b'{"a'),
        *(b'{"a":01}', b'{"a":-}', b'{"a":1.}', b'{"a":.5}', b'{"a":1e}', b'{"a":1e+}', b'{"a":+1}', b'{"a":0x1}'),
        *(b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":1e999}', b'{"z":1e999}', b'{"a":nul}'),
        *(b'{"a":tru}', b'{"a":falsy}', b'{"a":True}', b'{"a":nulll}', b'{"a":truefalse}', b'{"a":1true}'),
        *(b'{"a":"\\x"}', b'{"a":"\\u12g4"}', b'{"a":"\\ud800"}', b'{"a":"\\udc00"}', b'{"a":"\\ud800\\u0041"}'),
        *(b'{"a":"\t"}', b'{"a":"\x00"}', b'{"\x01":1}', b'{"a":"\x7f\\"}', b'{"a":"b}', b'{"a":1}\x00', b"{}\x0c"),
        *(b'{"a":"\xff"}', b'{"a":"\xc3"}', b'{"a":"\xed\xa0\x80"}', b'{"z":"\xc0\x80"}', b'{"\xe9":1}'),
    ],
)
def test_broken(line: bytes) -> None:
    values = unsurely(b'{"a":1}\n' + line + b'\n{"a":2}', {"a", "b"})
    assert values.unreadable_events.tolist() == [1]


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":1,"a":2}',
        b'{"a":1,"a":null}',
        b'{"a":{"b":1},"a":{"c":2}}',
        b'{"a":1,"\\u0061":2}',
        b'{"a.b":1,"a":{"b":2},"a.b":3}',
        b'{"a":{"b":1,"b":2}}',
        b'{"z":123456789012345678901234567890}',
        b'{"a":0.12345678901234567890123}',
        b'{"a":5e-324,"b":1.7976931348623157e308}',
        b'{"z":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"a":' + b"[" * 1020 + b"]" * 1020 + b"}",
    ],
)
def test_unsure(line: bytes) -> None:
    values = unsurely(line, {"a", "b", "a.b", "a.c"})
    assert values.problems == [] or b"[[" in line


def test_lines() -> None:
    values = check(b'\xef\xbb\xbf\n  \r\n{"a":1}\r\n\t\n{"a":2}x\n\n{"a":3}', {"a"})
    assert decode(values) == {0: {"a": [("number", 1.0, 0)]}, 2: {"a": [("number", 3.0, 0)]}}
    assert "line 5" in values.problems[0].message
    for lines in (
        b"",
        b"\n",
        b"\xef\xbb\xbf",
        b" \n\t\r\n",
        b"{}",
        b"{}\n",
        b"\n{}",
        b"\x00",
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
    ):
        check(lines, {"a"})


def test_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = random.Random(5)
    parts = [
        b'{"a":1}',
        b'{"a":"' + b"x" * 40 + b'"}',
        b"",
        b"  ",
        b"broken",
        b'{"b":[1,2,3,true,"\\u00e9"]}',
        b'{"a":1,"a":2}',
    ]
    lines = b"\n".join(chosen.choice(parts) for _ in range(300))
    for block in (1, 2, 7, 16, 50, 1000):
        with using({"json_block": block}):
            check(lines, {"a", "b"})


def test_an_event_of_very_many_values() -> None:
    lines = json.dumps({"b": list(range(1500)), "a": 1}).encode() + b'\n{"b":1,"a":"x"}'
    values = surely(lines, {"a", "b"})
    assert values.arranged is None


# ------------------------------------------------------------------------------------------------------------ numbers


def numbers() -> Iterable[str]:
    chosen = random.Random(7)
    for _ in range(20_000):
        digits = str(chosen.randrange(10 ** chosen.randint(1, 21)))
        kind = chosen.randrange(4)
        if kind == 0:
            yield chosen.choice(["", "-"]) + digits
        elif kind == 1:
            yield f"{chosen.choice(['', '-'])}{digits}e{chosen.randint(-345, 310)}"
        elif kind == 2:
            yield f"{chosen.randrange(1000)}.{'0' * chosen.randrange(4)}{digits}"
        else:
            yield repr(np.float64(np.uint64(chosen.getrandbits(63)).view(np.float64)))
    for exponent in range(-320, 309):
        yield f"1e{exponent}"
        yield f"9007199254740993e{exponent}"
        yield f"17976931348623157E{exponent}"
    for power in range(50, 64):  # the middle between two floats, and beside it
        for offset in (-1, 0, 1):
            middle = 2**power + 2 ** (power - 53) if power >= 53 else 2**53 + 1
            yield f"{middle + offset}.0"
            yield str(middle + offset)
            yield f"-{middle + offset}"
            yield f"{middle + offset}e-3"


def test_numbers() -> None:
    texts = [text for text in numbers() if text not in ("nan", "inf")]
    check("\n".join(f'{{"a":{text}}}' for text in texts).encode(), {"a"})


def test_most_numbers_are_read_by_the_kernels() -> None:
    chosen = random.Random(3)
    texts = [repr(chosen.uniform(-1e6, 1e6)) for _ in range(10_000)]
    texts += [repr(chosen.random() * 10.0 ** chosen.randint(-300, 280)) for _ in range(10_000)]
    texts += [str(chosen.randrange(-(2**63), 2**64)) for _ in range(10_000)]
    surely("\n".join(f'{{"a":{text}}}' for text in texts).encode(), {"a"})


# ------------------------------------------------------------------------------------------------------------ strings


def test_utf8() -> None:
    """All second bytes of all first ones, and characters at every place of a block of bytes."""
    bodies = [bytes([first, second]) for first in range(256) for second in range(0, 256, 3)]
    bodies += [bytes([first, second, 0x80]) for first in range(0xE0, 0x100) for second in range(0x70, 0xD0)]
    bodies += [bytes([first, second, 0x80, 0xBF]) for first in range(0xF0, 0x100) for second in range(0x70, 0xD0)]
    bodies += [bytes([0xE2, 0x82, third]) for third in range(256)] + [bytes([0xF0, 0x9F, 0x98, x]) for x in range(256)]
    bodies += [b"x" * n + "é€😀".encode() + b"x" * n for n in range(40)]
    lines = [b'{"a":"' + body + b'"}' for body in bodies if b"\n" not in body]
    check(b"\n".join(lines), {"a"})
    check(b"\n".join(b'{"' + body + b'":1}' for body in bodies if b"\n" not in body), {"a", "é", "€"})


def test_escapes() -> None:
    lines = [b'{"a":"\\u%04x"}' % code for code in range(0, 0x10000, 7)]
    lines += [b'{"a":"\\u%04X\\u%04x"}' % (0xD800 + x, 0xDBF8 + x) for x in range(0, 2050, 5) if x < 0x400 + 8]
    lines += [b'{"a":"x\\' + bytes([byte]) + b'"}' for byte in range(256) if byte != 10]
    check(b"\n".join(lines), {"a"})


# --------------------------------------------------------------------------------------------------------------- fuzz

KEYS = st.sampled_from(["a", "b", "a.b", "b.a", "", ".", "é", "long name of an attribute", "\x00", '"'])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)


class Repeated(list[Any]):
    """An object as its (key, value) pairs, so that it may have a key twice."""


VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(st.tuples(KEYS, inner), max_size=5).map(lambda pairs: Repeated(pairs))
    ),
    max_leaves=15,
)
EVENTS = st.lists(st.lists(st.tuples(KEYS, VALUES), max_size=6).map(lambda pairs: Repeated(pairs)), max_size=6)
WANTED = st.sets(st.lists(KEYS, min_size=1, max_size=3).map(".".join), max_size=12)


def dumped(value: Any, ascii_only: bool, space: str) -> str:
    if isinstance(value, Repeated):
        inner = (f"{dumped(k, ascii_only, space)}{space}:{space}{dumped(v, ascii_only, space)}" for k, v in value)
        return "{" + space + f"{space},{space}".join(inner) + space + "}"
    if isinstance(value, list):
        return "[" + space + f"{space},".join(dumped(v, ascii_only, space) for v in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


@given(EVENTS, WANTED, st.booleans(), st.sampled_from(["", " ", "\t \r"]))
def test_any_events(events: list[Repeated], wanted: set[str], ascii_only: bool, space: str) -> None:
    lines = "\n".join(dumped(event, ascii_only, space) for event in events).encode()
    check(lines, wanted)
    with using(smallest()):
        check(lines, wanted)


def mutated(chosen: random.Random, text: bytes) -> bytes:
    result = bytearray(text)
    for _ in range(chosen.choice([1, 1, 1, 2, 5])):
        at = chosen.randrange(len(result) + 1)
        what = chosen.randrange(4)
        piece = chosen.choice([bytes([chosen.randrange(256)]), *b'"\\{}[],:0-.eu\xc3'.hex(" ").split()])
        piece = bytes.fromhex(piece) if isinstance(piece, str) else piece
        if what == 0:
            result[at:at] = piece
        elif what == 1:
            del result[at : at + chosen.randint(1, 3)]
        elif what == 2:
            result[at : at + 1] = piece
        else:
            start = chosen.randrange(len(result) + 1)
            result[at:at] = result[start : start + chosen.randint(1, 20)]
    return bytes(result)


def test_mutated_bytes() -> None:
    chosen = random.Random(11)
    seeds = [
        b'{"a":1,"b":"text","c":[1.5,true,null,{"d":"\\u00e9"}],"e":{"f":-4,"g":12345678901234567890}}',
        '{"name":"Größe 😀","a.b":{"a":[1,2,3]},"a":{"b":{"a":"\\ud83d\\ude00"}},"x":[[[]]]}'.encode(),
        b'{ "a" : -1.25e-7 , "b" : [ "x" , "\\"\\\\" ] , "c" : { "d" : false , "e.f" : { } } }',
    ]
    wanted = WantedNames(["a", "b", "c", "c.d", "e.f", "a.b.a", "c.e.f", "name", "x"])
    for _ in range(60):
        check(b"\n".join(mutated(chosen, chosen.choice(seeds)) for _ in range(100)), wanted)


@given(st.binary(max_size=200))
def test_any_bytes(lines: bytes) -> None:
    check(lines, {"a", "b.c"})


@given(st.lists(st.text(alphabet='{}[]",:\\ua01.e-+ tfn\n', max_size=30), max_size=8))
def test_structures_of_any_characters(lines: list[str]) -> None:
    check("\n".join(["{" + line for line in lines]).encode(), {"a", "", "a.a", "0"})


# -------------------------------------------------------------------------------------------------- columns and names


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_columns(kind: pa.DataType) -> None:
    texts = [
        '{"a":1}',
        None,
        "",
        " ",
        '{"a":"x"}',
        '\n{"a":\n2}\n',
        '{"a":1',
        "}",
        '{"a":"b',
        '"}',
        "null",
        '{"a":1,"a":3}',
    ]
    texts += ['{"a":"é"}', "{}", None]
    wanted = WantedNames(["a"])
    expected = read_dicts([{} if text is None else json_text(text) for text in texts], wanted, "skip")
    table = pa.table(
        {"x": pa.chunked_array([pa.array(texts[:5], kind), pa.array([], kind), pa.array(texts[5:], kind)])}
    )
    for block in (1, 16, 1 << 18):
        with using({"json_block": block}):
            assert content(read_events(table, wanted, attributes="x", on_error="skip")) == content(expected)
            later = read_events(table.slice(4), wanted, attributes="x", on_error="skip")
            assert decode(later) == {event - 4: names for event, names in decode(expected).items() if event >= 4}
    with pytest.raises(EventError) as raised:
        read_events(table, wanted, attributes="x")
    assert raised.value.event == 2


def test_a_text_does_not_read_on_into_the_next() -> None:
    texts = [
        b'{"a":1',
        b"2}",
        b'{"a":"x',
        b'y"}',
        b'{"a":',
        b"1}",
        b"{",
        b'"a":1}',
        b'{"a":tr',
        b"ue}",
        b'{"a":1}',
        b'{"a":1e',
        b"2}",
    ]
    array = pa.array([text.decode() for text in texts])
    values = read_json_columns([array], WantedNames(["a"]), "skip")
    assert decode(values) == {10: {"a": [("number", 1.0, 0)]}}


def test_columns_that_are_not_utf8() -> None:
    array = pa.array([b'{"a":"\xff"}', b'{"a":1}', b'{"z":"\xc3"}']).cast(pa.binary()).view(pa.string())
    values = read_events(pa.table({"x": array}), {"a"}, attributes="x", on_error="skip")
    assert values.unreadable_events.tolist() == [0, 2]


def test_extended_names() -> None:
    with using({"names_in_order": 0}):
        wanted = WantedNames([f"n{i}" for i in range(100)] + ["a.b"])
        line = b'{"n5":1,"a":{"b":2,"c":{"d":3}},"x":4,"a.c":{"d":5},"n":{"m":6}}'
        check(line, wanted)
        for more in (["x"], ["a.c.d"], ["n.m", "n"], ["a"]):
            extended = wanted.extend_by(more)
            assert extended is not None
            wanted = extended
            check(line, wanted)
        many = wanted.extend_by([".".join("abcdefghij" * 60)])
        assert many is not None
        check(line, many)
        path = ".".join("abcdefghij" * 6)
        check(b'{"a":' * 1 + b'{"b.c":{"d":1}}}', many)
        check(json.dumps({path: {"x": 1}}).encode(), many)


def test_names_with_very_many_dots() -> None:
    name = "a" + ".a" * 5_000
    check(json.dumps({name: 1, "a": {name[2:]: 2}, name + ".a": 3, name[:-2]: 4}).encode(), {name, name + ".b", "a.a"})
