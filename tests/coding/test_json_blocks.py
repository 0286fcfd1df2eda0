"""Where the kernels of JSON look at several bytes at once: numbers with runs of 8 and 16 digits, and everything that
JSON has across the edges of blocks of 32 bytes. The judge is orjson, as in test_json_lane.py."""

from __future__ import annotations

from random import Random

import orjson
import pytest
from test_json_lane import check, surely

from dibs import Matcher
from dibs.jit.scanning import WIDTH


def digits(random: Random, count: int) -> str:
    """Without a leading zero, unless it is alone; runs of nines and zeros are what carries go wrong in."""
    kind = random.choice(["9", "0", "any"])
    text = "".join(random.choice("0123456789") if kind == "any" else kind for _ in range(count))
    return text if count < 2 or text[0] != "0" else random.choice("123456789") + text[1:]


def number(random: Random) -> str:
    whole = digits(random, random.choice([1, 7, 8, 9, 15, 16, 17, 18, 19]))
    part = "." + digits(random, random.choice([1, 7, 8, 9, 15, 16, 17])) if random.random() < 0.5 else ""
    power = random.choice(["", "", "", "e5", "E-7", "e+16", "e-300", "e290", "e-320"])
    return random.choice(["", "-"]) + whole + part + power


def test_runs_of_digits() -> None:
    random = Random(1)
    for _ in range(40):
        lines = "\n".join(f'{{"a": {number(random)}, "b": [{number(random)},{number(random)}]}}' for _ in range(50))
        check(lines.encode(), {"a", "b"})


@pytest.mark.parametrize("count", [8, 16])
def test_integers_of_whole_words_are_read_by_the_kernels(count: int) -> None:
    random = Random(count)
    for _ in range(200):
        text = digits(random, count)
        values = surely(b'{"a":%s}' % text.encode(), {"a"})
        assert values.numbers.value.tolist() == [float(int(text))]
        assert values.numbers.rest.tolist() == [int(text) - int(float(int(text)))]


@pytest.mark.parametrize(
    "piece",
    [
        b'"a":"\\n"',
        b'"a":"\\u00e9x"',
        b'"a":"\\ud83d\\ude00"',
        '"a":"é"'.encode(),
        '"a":"\U0001f600"'.encode(),
        b'"a":"plain"',
        b'"a":1234567812345678.5',
        b'"a":"x\\',
        b'"a":"\xed\xa0\x80"',
        b'"a":"\x1f"',
        b'"a":12345678]',
        b'"a":{"b":[true,null,{}]},"\\u0061":1',
        '"a":{"é":"日本語","b":"'.encode() + b"y" * WIDTH + b'"}',
    ],
)
def test_every_place_in_a_block(piece: bytes) -> None:
    """Behind a string, a key and spaces of every length up to two blocks."""
    lines = []
    for size in range(2 * WIDTH + 2):
        fill = b"z" * size
        lines += [b'{"p":"' + fill + b'",' + piece + b"}", b'{"' + fill + b'":0,' + piece + b',"q":1}']
        lines += [b"{" + b" " * size + piece + b" " * size + b"}", b'{"p":"' + fill + b'\\"",' + piece + b"}"]
    check(b"\n".join(lines), {"a", "a.b", "a.é", "p", "q"})


def test_names_that_differ_in_any_byte() -> None:
    names = ["n" * size for size in range(1, 40)]
    names += [f"{'n' * at}m{'n' * (19 - at)}" for at in range(20)]
    for name in names:
        check(orjson.dumps({name: 1, name + "x": 2, "x" + name: 3}), names[::2])
    check(orjson.dumps({name: i for i, name in enumerate(names)}), names[::2])


def test_nested_dicts_by_single_events() -> None:
    """Objects in objects and arrays, dotted and not, as dicts, as text and in a batch."""
    paths = ["a", "a.b", "a.b.c", "a.d", "e.f.g.h", "e.f", "long name of more than eight bytes.x"]
    matcher = Matcher(threads=1)
    matcher.add_many(
        [(f"{path} {op} {v}", f"`{path}` {op} {v}") for path in paths for op in ("=", "<>") for v in (1, 2)]
    )
    random = Random(3)

    def value(depth: int) -> object:
        shape = random.random() if depth < 4 else 0.0
        if shape < 0.4:
            return random.choice([1, 2, 3, None, "1", True])
        if shape < 0.6:
            return [value(depth + 1) for _ in range(random.randint(0, 3))]
        keys = ["a", "b", "c", "d", "e", "f", "g", "h", "b.c", "f.g", "long name of more than eight bytes", "x"]
        return {key: value(depth + 1) for key in random.sample(keys, random.randint(0, 4))}

    for _ in range(300):
        event = {
            key: value(1) for key in ("a", "e", "a.b", "long name of more than eight bytes") if random.random() < 0.7
        }
        (right,) = matcher.match_batch([event])
        assert matcher.match(event) == right, event
        assert matcher.match(orjson.dumps(event)) == right, event
    assert matcher._matching.singles.served > 500
