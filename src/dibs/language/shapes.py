"""What the shape of a predicate is made of (language.shape_kernels), and its examples. Nothing here imports Numba."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dibs.jit.undisturbed import bring
from dibs.language.expression import Kind, microseconds
from dibs.language.regex import like_regex
from dibs.language.table import after_prefix

# Bytes that stand for a hole.
A_NAME = 1
A_NUMBER = 2
A_STRING = 3  # also of LIKE, where it has no wildcards
AN_EMPTY_STRING = 4
A_PREFIX = 5  # of LIKE: wildcards only at its end; then only at its beginning; at both; and all others
A_SUFFIX = 6
A_PART = 7
A_PATTERN = 8
A_REGEX = 9
A_DATE = 14
A_TIMESTAMP = 15
A_LIST_OF_NUMBERS = 16
A_LIST_OF_STRINGS = 17

# Bytes that stand for a sign of two characters.
UNEQUAL = 11
AT_MOST = 12
AT_LEAST = 13
ARROW = 19
SIGNS = {UNEQUAL: "<>", AT_MOST: "<=", AT_LEAST: ">=", ARROW: "->"}

# The last byte of a predicate that IS [NOT] TRUE, FALSE or UNKNOWN follows without parentheses; and what stands for
# these in a frame.
TESTED = 18
TRUTHS = {"t": "TRUE", "f": "FALSE", "u": "UNKNOWN", "T": "NOT TRUE", "F": "NOT FALSE", "U": "NOT UNKNOWN"}

# Kinds of holes, beside the kinds of values.
NAME = 0  # in place of BOOLEAN, which TRUE and FALSE are
LIST = 7
LIKE, REGEX, DATE = 4, 5, 6  # what Python has to look at, always with:
HARD = 8

# What becomes of the bytes of a string.
SAME, AFTER, REVERSED, AFTER_REVERSED, ESCAPED, FIRST_IN, LAST_IN = range(7)


def _escape(text: bytes) -> bytes:
    re2 = bring("re2")  # most subscriptions do without
    return bytes(re2.escape(text.decode()).encode())


def keys_of(network: str) -> tuple[str, str] | None:
    """The keys of the first and last address of a network, if they say all that the grammar would make of it."""
    found: tuple[str, str] | None = bring("dibs.language.functions.networks").keys_of(network)
    return found


def _key_of(end: int, network: bytes) -> bytes:
    keys = keys_of(network.decode())
    assert keys is not None, "whoever fills it in has asked"
    return keys[end].encode()


CHANGES: tuple[Callable[[bytes], bytes], ...] = (
    bytes,
    after_prefix,
    lambda text: text[::-1],
    lambda text: after_prefix(text[::-1]),
    _escape,
    partial(_key_of, 0),
    partial(_key_of, 1),
)


class Source(NamedTuple):
    """Where a literal comes from."""

    hole: int  # of the predicate; all items, if it is a list. -1: the literal is always the same
    change: int = SAME  # of a string
    kind: int = 0  # of one that is always the same, and its value
    number: float = 0.0
    integer: int = 0


# ---- examples ----

_NAMED = "hole_{}_name"
_FIRST = 2**53 + 1  # and every second from there: no float64 holds them, so that a conversion shows


class Example:
    """The example of a shape, and what its holes would come out as."""

    def __init__(self, shape: bytes):
        self.names: dict[str, int] = {}
        self.sources: dict[tuple[int, object], Source] = {}
        self.second: set[tuple[int, object]] = set()  # of a list, which is two items here
        self.needed: set[int] = set()
        self.networks: list[int] = []
        words: list[str] = []
        opened: list[str] = []  # what stands before each parenthesis that is open
        at = hole = 0
        while at < len(shape):
            byte = shape[at]
            if (byte >= 32 and chr(byte).isalnum()) or byte == 95 or byte >= 128:
                end = shape.index(b" ", at)
                word = shape[at:end].decode()
                # As a blank of another alphabet is not, which kernels take for a letter.
                if not word.isdigit() and not all(part.isidentifier() for part in word.split(".")):
                    raise ValueError(word)
                words.append(word)
                at = end
            elif byte == A_STRING and opened[-1:] == ["IP_IN"] and words[-1] == ",":
                words.append(self.network(hole))
                hole += 1
            elif byte == A_NAME or byte in _WRITERS:
                words.append(self._fill(byte, hole))
                hole += 1
            else:
                sign = SIGNS.get(byte) or chr(byte)
                if sign == "(":
                    opened += words[-1:] or [""]
                elif sign == ")":
                    del opened[-1:]
                words.append(sign)
            at += 1
        self.text = " ".join(words)
        self.holes = hole
        self.has_interval = b"INTERVAL" in shape.upper()  # of which a number is made that is in no hole

    def _fill(self, byte: int, hole: int) -> str:
        if byte == A_NAME:
            name = _NAMED.format(hole)
            self.names[name] = hole
            return name
        if byte == AN_EMPTY_STRING:
            self.sources[Kind.STRING, b""] = Source(hole)
            return "''"
        self.needed.add(hole)
        return _WRITERS[byte](self, hole)

    def number(self, hole: int, item: int = 0) -> str:
        value = _FIRST + 2 * (2 * hole + item)
        self._add(hole, item, Kind.NUMBER, value)
        return str(value)

    def string(self, hole: int, item: int = 0) -> str:
        text = f"s-{hole}-{item}-e"
        for change in (SAME, AFTER, REVERSED, AFTER_REVERSED, ESCAPED):
            self._add(hole, item, Kind.STRING, CHANGES[change](text.encode()), change)
        return f"'{text}'"

    def like(self, before: str, after: str) -> Callable[[int], str]:
        return lambda hole: f"'{before}{self.string(hole)[1:-1]}{after}'"

    def pattern(self, hole: int) -> str:
        text = f"s{hole}_%e"
        self._add(hole, 0, Kind.STRING, like_regex(text).encode())
        return f"'{text}'"

    def network(self, hole: int) -> str:
        self.needed.add(hole)
        self.networks.append(hole)
        text = f"10.{hole >> 8}.{hole & 255}.64/26"  # that no other one is next to
        for change in (SAME, FIRST_IN, LAST_IN):
            self._add(hole, 0, Kind.STRING, CHANGES[change](text.encode()), change)
        return f"'{text}'"

    def time(self, hole: int) -> str:
        moment = dt.datetime(2001, 2, 3) + dt.timedelta(seconds=hole)
        self._add(hole, 0, Kind.TIME, microseconds(moment))
        return f"'{moment}'"

    def date(self, hole: int) -> str:
        day = dt.date(2001, 2, 3) + dt.timedelta(hole)
        self._add(hole, 0, Kind.TIME, microseconds(day))
        return f"'{day}'"

    def _add(self, hole: int, item: int, kind: Kind, value: object, change: int = SAME) -> None:
        self.sources[kind, value] = Source(hole, change)
        if item:
            self.second.add((kind, value))


_WRITERS: dict[int, Callable[[Example, int], str]] = {
    A_NUMBER: Example.number,
    A_STRING: Example.string,
    AN_EMPTY_STRING: Example.string,
    A_REGEX: Example.string,
    A_PREFIX: lambda example, hole: example.like("", "%")(hole),
    A_SUFFIX: lambda example, hole: example.like("%", "")(hole),
    A_PART: lambda example, hole: example.like("%", "%")(hole),
    A_PATTERN: Example.pattern,
    A_DATE: Example.date,
    A_TIMESTAMP: Example.time,
    A_LIST_OF_NUMBERS: lambda example, hole: f"({example.number(hole)}, {example.number(hole, 1)})",
    A_LIST_OF_STRINGS: lambda example, hole: f"({example.string(hole)}, {example.string(hole, 1)})",
}
