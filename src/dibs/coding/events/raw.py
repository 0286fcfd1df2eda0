"""What is asked for of an event as it came (language.scalars): arrays as wholes, whether a key is there, all strings.

    WHOLE a      a string: JSON of what stands at the path, in words of our own, which coding.computed reads
    HAS_KEY a    TRUE, or nothing
    EVERY        all strings of the event, at any depth

Names that begin as these do are none of an event's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from dibs.coding.computed.wholes import MARK
from dibs.coding.events.depth import DEEPEST, too_deep
from dibs.coding.events.scalars import LONE_SURROGATE, UnreadableValue, is_text, read_scalar
from dibs.coding.values import Range
from dibs.language.expression import Kind
from dibs.language.printer import EVERY, HAS_KEY, WHOLE
from dibs.language.scalars import is_raw, split_mark

_PLAIN = {str, bool, int, float}
_ARRAYS = (list, tuple, set, frozenset, np.ndarray)
RawValue = str | bool | UnreadableValue | None  # None: a Range is in it, so that nothing is known


class TooDeep(Exception):
    """An event has too many objects and arrays inside each other."""


class _HasRange(Exception):
    """A Range is in it."""


class RawNames:
    """Those of the wanted names that are read as they came."""

    def __init__(self, codes: Mapping[str, int]):
        marked = [(*split_mark(name), code) for name, code in codes.items()]
        self.wholes = [(path, code) for mark, path, code in marked if mark == WHOLE]
        self.presents = [(path, code) for mark, path, code in marked if mark == HAS_KEY]
        self.every = codes.get(EVERY)
        self.other_codes = {name: code for name, code in codes.items() if name[:1] != "\0"}
        self.is_raw = np.zeros(len(codes), np.bool_)
        self.is_raw[[code for name, code in codes.items() if is_raw(name)]] = True

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in (*self.wholes, *self.presents)]

    def may_lie_in(self, key: str) -> bool:
        """Whether something under this key of an event is asked for."""
        return self.every is not None or any(f"{path}.".startswith(f"{key}.") for path in self.paths)

    def find(self, event: Mapping[Any, Any]) -> Iterator[tuple[int, RawValue]]:
        """By name: the text of a whole, TRUE, or a string."""
        yield from self.find_paths(event)
        if self.every is not None:
            texts: list[str] = []
            take_strings(event, 0, texts)
            for text in texts:
                yield self.every, text

    def find_paths(self, event: Mapping[Any, Any]) -> Iterator[tuple[int, RawValue]]:
        for path, code in self.wholes:
            if type(event) is dict and "." not in path and (text := _plain_text(event.get(path))):
                yield code, text
                continue
            try:
                if found := find_at(event, path, 0):
                    yield code, orjson.dumps(joined_json(found)).decode()
            except _HasRange:
                yield code, None
            except UnreadableValue as problem:
                yield code, problem
        for path, code in self.presents:
            if has_path(event, path, 0):
                yield code, True


def path_of(name: str) -> str:
    """The attribute behind a name, as people know it."""
    return "ANY(*)" if name == EVERY else split_mark(name)[1]


# ---- paths ----


def find_at(value: Any, path: str, depth: int) -> list[Any]:
    """What stands at a path, as JSON has it; as language.functions.arrays.at_path finds it. depth: of the value."""
    if not path:
        return [_as_json(value, depth)]
    if isinstance(value, Mapping):
        _check_depth(depth, path)
        found = []
        for key, inner in value.items():
            if isinstance(key, str) and f"{path}.".startswith(f"{key}."):
                found += find_at(inner, path[len(key) + 1 :], depth + 1)
        return found
    if isinstance(value, _ARRAYS):
        _check_depth(depth, path)
        elements = _elements(value)
        if elements and not any(isinstance(element, (Mapping, *_ARRAYS)) for element in elements):
            return []
        return [[joined_json(find_at(element, path, depth + 1)) for element in elements]]
    return []


def has_path(value: Any, path: str, depth: int) -> bool:
    if not path:
        return True
    if isinstance(value, Mapping):
        _check_depth(depth, path)
        return any(
            has_path(inner, path[len(key) + 1 :], depth + 1)
            for key, inner in value.items()
            if isinstance(key, str) and f"{path}.".startswith(f"{key}.")
        )
    if not isinstance(value, _ARRAYS):
        return False
    _check_depth(depth, path)
    return any(has_path(element, path, depth + 1) for element in _elements(value))


def _check_depth(depth: int, path: str = "") -> None:
    if depth > DEEPEST:
        raise TooDeep(too_deep(path))


def joined_json(found: list[Any]) -> Any:
    if len(found) < 2:
        return found[0] if found else None
    arrays = [each if isinstance(each, list) else [each] for each in found if each is not None]
    return [element for array in arrays for element in array]


def _elements(value: Any) -> list[Any]:
    if not isinstance(value, np.ndarray):
        return list(value)
    # tolist() would make plain integers of datetime64[ns].
    elements = list(value.flat) if value.dtype.kind in "mM" else value.tolist()
    return elements if isinstance(elements, list) else [elements]


def take_strings(value: Any, depth: int, found: list[str]) -> None:
    """Adds all strings in a value."""
    kind = type(value)
    if kind is str:
        found.append(value)
    elif isinstance(value, (Mapping, *_ARRAYS)):
        _check_depth(depth)
        for inner in value.values() if isinstance(value, Mapping) else _elements(value):
            take_strings(inner, depth + 1, found)
    elif isinstance(value, str):
        found.append(str.__str__(value))


# ---- texts ----


def _plain_text(value: Any) -> str | None:
    """Of a list of plain values, or of dicts of such; None: somebody else must look, as orjson takes more than events
    may hold, and writes null for NaN."""
    if type(value) is not list or not _are_plain(value):
        return None
    try:
        text = orjson.dumps(value)
    except TypeError:
        return None
    return None if b"null" in text or b"\\" in text else text.decode()


def _are_plain(values: list[Any]) -> bool:
    kinds = set(map(type, values))
    return kinds <= _PLAIN or (kinds == {dict} and all(_PLAIN.issuperset(map(type, each.values())) for each in values))


def _as_json(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        if not is_text(value):
            raise UnreadableValue(LONE_SURROGATE)
        return value
    if kind is int or kind is float:
        return _number(value)
    if isinstance(value, (dict, *_ARRAYS)):
        return _structure(value, depth)
    if isinstance(value, Range):
        raise _HasRange
    if isinstance(value, UnreadableValue):  # as a column of Arrow had it
        raise value
    try:
        read = read_scalar(value)
    except UnreadableValue:
        if isinstance(value, Mapping):
            return _structure(value, depth)
        raise
    if read is None:
        return None
    if read[0] == Kind.TIME:
        return {MARK: read[1]}
    return _number(read[1]) if read[0] == Kind.NUMBER else _as_json(read[1], depth)


def _structure(value: Any, depth: int) -> Any:
    _check_depth(depth)
    if not isinstance(value, Mapping):
        return [_as_json(element, depth + 1) for element in _elements(value)]
    named = {str.__str__(key): inner for key, inner in value.items() if isinstance(key, str) and is_text(key)}
    return {key: _as_json(inner, depth + 1) for key, inner in named.items() if key[:1] != MARK}


def _number(value: int | float) -> Any:
    if isinstance(value, int):
        if -(2**63) <= value < 2**64:
            return value
        try:
            value = float(value)
        except OverflowError:
            value = math.inf if value > 0 else -math.inf
    return value if math.isfinite(value) else {MARK: str(value)}
