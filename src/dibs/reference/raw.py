"""What is read of an event as it came, in plain Python: arrays as wholes, whether a key is there, all strings.

It shares no code with the coding stage; what a path means in a plain value is told by language.functions.arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from dibs.coding.values import Range
from dibs.errors import EventError
from dibs.language.expression import Kind
from dibs.language.functions.arrays import at_path, has_path, joined
from dibs.language.functions.plain import Array, Moment, Object, Plain, plain_value
from dibs.language.printer import EVERY, WHOLE
from dibs.language.scalars import is_raw, split_mark
from dibs.reference.values import DEEPEST, OfNoKind, find_key, read_value

_ARRAYS = (list, tuple, set, frozenset)


class _NoPlainValue(Exception):
    """A Range is in it, or what cannot be read."""


def raw_values(event: Mapping[str, Any], names: Iterable[str]) -> dict[str, list[Any]]:
    """The values of those of the names that are read of the event as it came: plain values, or OfNoKind."""
    found: dict[str, list[Any]] = {}
    for name in dict.fromkeys(filter(is_raw, names)):
        if name == EVERY:
            values = list(_strings(event, 0))
        else:
            values = _at_name(event, *split_mark(name))
        if values:
            found[name] = values
    return found


def _at_name(event: Mapping[str, Any], mark: str, path: str) -> list[Any]:
    own = {key: value for key, value in event.items() if isinstance(key, str) and f"{path}.".startswith(f"{key}.")}
    try:
        plain = _plain(own, path, 0)
    except _NoPlainValue as problem:
        return [OfNoKind(str(problem))] if mark == WHOLE else [True] if _is_there(own, path) else []
    if mark != WHOLE:
        return [True] if has_path(plain, path) else []
    values = at_path(plain, path)
    return [joined(values)] if values else []


def _is_there(value: Any, path: str) -> bool:
    if not path:
        return True
    if isinstance(value, Mapping):
        keys = (key for key in value if isinstance(key, str) and f"{path}.".startswith(f"{key}."))
        return any(_is_there(value[key], path[len(key) + 1 :]) for key in keys)
    return isinstance(value, (*_ARRAYS, np.ndarray)) and any(_is_there(element, path) for element in value)


def _plain(value: Any, path: str, depth: int) -> Plain:
    """path: what is left of it; beside it nothing is looked at."""
    if isinstance(value, (Mapping, *_ARRAYS, np.ndarray)) and depth > DEEPEST:
        raise EventError(f"found more than {DEEPEST} objects and arrays inside each other")
    if isinstance(value, Mapping):
        members = []
        for key, inner in value.items():
            if isinstance(key, str) and key[:1] != "\0" and (not path or f"{path}.".startswith(f"{key}.")):
                members.append((key, _plain(inner, path[len(key) + 1 :], depth + 1)))
        return Object(tuple(members))
    if isinstance(value, (*_ARRAYS, np.ndarray)):
        return Array(tuple(_plain(element, path, depth + 1) for element in value))
    if path:
        return None  # a single value, which has nothing in it
    read = read_value(value)
    if isinstance(read, (Range, OfNoKind)):
        raise _NoPlainValue("a range, or what cannot be read, is in it")
    if read is None or isinstance(read, (bool, str)):
        return read
    if isinstance(read, (int, float)):
        return plain_value(read)
    kind, key = find_key(read)
    assert kind == Kind.TIME
    return Moment(key)


def _strings(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, (Mapping, *_ARRAYS, np.ndarray)):
        if depth > DEEPEST:
            raise EventError(f"found more than {DEEPEST} objects and arrays inside each other")
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(inner, depth + 1)
    elif isinstance(value, str):
        yield read_value(value)
