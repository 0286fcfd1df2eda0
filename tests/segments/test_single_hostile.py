"""Single events that programs and strangers hand over: Python values of all kinds, JSON texts with mistakes in them.
What `match` says of them is what a scan says of a batch of one, and orjson of the text."""

from __future__ import annotations

import collections
import enum
import math
import types
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import orjson
import pytest

from dibs import DibsError, EventError, Matcher

NAMES = ["a", "b", "a.b", "a.b.c", "x y", "é", "a.", ".", ""]
CONSTANTS = ["0", "7", "-1", "1.5", "9007199254740993", "9223372036854775807", "18446744073709551615", "1e300", "-0.0"]
CONSTANTS += ["'7'", "'v7'", "''", "'é'", "'null'", "TRUE", "FALSE", "CAST('NaN' AS DOUBLE)"]


class Text(str):
    pass


class Whole(int):
    pass


class Bag(dict):
    pass


class Colour(str, enum.Enum):
    RED = "v7"


VALUES: list[Any] = [0, 7, -1, 1.5, 2**53 + 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**30, 1e308, 5e-324, -0.0]
VALUES += [
    math.nan,
    math.inf,
    "7",
    "v7",
    "",
    "é",
    "null",
    "\ud800",
    "a\0b",
    "v7" * 50,
    True,
    None,
    Text("v7"),
    Whole(7),
]
VALUES += [Colour.RED, np.int64(7), np.float32(0.1), np.bool_(True), np.str_("v7"), Decimal("1.5"), b"v7", object()]
VALUES += [(1, 7), {7}, range(3), Bag(b=7), collections.OrderedDict(b=7), types.MappingProxyType({"b": 7}), 1j, float]
KEYS: list[Any] = [Text("a"), 1, None, ("a",), b"a", Colour.RED, "\ud800"]


def value(random: Random, depth: int = 0) -> Any:
    kind = random.random()
    if depth < 4 and kind < 0.15:
        return {key(random): value(random, depth + 1) for _ in range(random.randint(0, 3))}
    if depth < 4 and kind < 0.3:
        return [value(random, depth + 1) for _ in range(random.randint(0, 3))]
    return random.choice(VALUES if kind < 0.8 else [7, "v7", 1.5, True])


def key(random: Random) -> Any:
    return random.choice(KEYS if random.random() < 0.04 else NAMES)


def event(random: Random) -> Any:
    made = {key(random): value(random) for _ in range(random.randint(0, 5))}
    kind = random.choice([dict] * 8 + [Bag, collections.OrderedDict, types.MappingProxyType])
    return kind(made)


def text(random: Random) -> bytes:
    """An event as JSON, with up to two mistakes."""
    while True:
        try:
            result = bytearray(orjson.dumps(event(random)))
            break
        except TypeError:
            pass
    for _ in range(random.choice([0, 1, 2])):
        at = random.randrange(len(result))
        result[at : at + random.randint(0, 1)] = bytes(
            random.choices(b'{}[]",:0179.eE-+\\utfn \n\x00\xff', k=random.randint(0, 1))
        )
    return bytes(result)


def expression(random: Random) -> str:
    parts = []
    for _ in range(random.randint(1, 3)):
        name = "`" + random.choice(NAMES[:-1]) + "`"
        forms = [f"{name} {op} {random.choice(CONSTANTS)}" for op in ("=", "<>", "<", "<=", ">", ">=")]
        forms += [f"{name} IS NULL", f"{name} IS NOT NULL", f"{name} LIKE '%7%'", f"{name} LIKE 'v%'"]
        parts.append(random.choice(forms))
    return random.choice([" AND ", " OR "]).join(parts)


def outcome(ask: Callable[..., Any], *given: Any, **options: Any) -> Any:
    try:
        return ask(*given, **options)
    except DibsError as error:
        return type(error)


@pytest.mark.parametrize("seed", range(4))
def test_unusual_values_and_broken_texts(seed: int) -> None:
    random = Random(seed)
    own, scan = Matcher(threads=1), Matcher("scan", threads=1)
    items = [(i if i % 3 else f"s{i}", expression(random), random.random()) for i in range(300)]
    for matcher in (own, scan):
        matcher.add_many(items)
        matcher.match_batch([{"a": 1}])
        matcher.add("waits", expression(Random(seed)))

    def by_scan(given: Any) -> list[Any]:
        (ids,) = scan.match_batch([given])
        return ids

    def of_orjson(content: bytes) -> Any:
        try:
            read = orjson.loads(content)
        except orjson.JSONDecodeError:
            return EventError
        return outcome(by_scan, read) if isinstance(read, dict) else EventError

    for _ in range(150):
        given, content = event(random), text(random)
        assert outcome(own.match, given) == outcome(by_scan, given), given
        assert outcome(own.match, given, top=3) == outcome(scan.match, given, top=3), given
        right = of_orjson(content)
        every_other = memoryview(bytes(byte for byte in content for _ in range(2)))[::2]
        for form in (content, bytearray(content), memoryview(content), every_other):
            assert outcome(own.match, form) == right, content
