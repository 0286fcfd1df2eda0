"""Values as the language knows them: what an event holds for each attribute, and keys that order them."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from dibs.coding.values import Range
from dibs.errors import EventError
from dibs.language.expression import EPOCH, MICROSECOND, Kind, Literal
from dibs.language.literals import time_of

ValuesByName = Mapping[str, list[Any]]
EPOCH_UTC = EPOCH.replace(tzinfo=dt.timezone.utc)
DEEPEST = 200  # objects and arrays inside each other; also what ends an event that holds itself


class OfNoKind(NamedTuple):
    """A value that is there but of no kind: every predicate on it is unknown, IS NULL and IS NOT NULL included."""

    reason: str


def values_of(event: Mapping[str, Any], asked: Collection[str] | None = None) -> dict[str, list[Any]]:
    """The values of every attribute, or of those that are asked for: objects become dotted paths, arrays lists, and
    nulls are left out.

    Values are bool, int, float, str, datetime (or datetime64), Range, or OfNoKind.
    """
    if not isinstance(event, Mapping):
        raise EventError(f"an event is a mapping from attribute names to values, not {type(event).__name__}")
    found: dict[str, list[Any]] = {}
    todo: list[tuple[str | None, int, Any]] = [(None, 0, event)]
    names = None if asked is None else sorted(asked)
    while todo:
        name, depth, value = todo.pop()
        if isinstance(value, np.ndarray):
            depth += max(value.ndim - 1, 0)
        if depth > DEEPEST and isinstance(value, (Mapping, list, tuple, set, frozenset, np.ndarray)):
            raise EventError(
                f"found more than {DEEPEST} objects and arrays inside each other, below {(name or '')[:100]!r}"
            )
        if isinstance(value, Mapping):
            for key, inner in reversed(list(value.items())):
                if not isinstance(key, str):
                    raise EventError(f"the attribute name {key!r} is not a string", attribute=name)
                path = key if name is None else f"{name}.{key}"
                if names is None or _leads_to(path, names) or _leads_to(path + ".", names):
                    todo.append((path, depth + 1, inner))
        elif isinstance(value, (list, tuple, set, frozenset)):
            todo.extend((name, depth + 1, element) for element in reversed(list(value)))
        elif isinstance(value, np.ndarray):
            todo.extend((name, depth + 1, element) for element in reversed(value.ravel()))
        elif (read := read_value(value)) is not None:
            assert name is not None
            found.setdefault(name, []).append(read)
    return found


def _leads_to(path: str, names: list[str]) -> bool:
    """Whether one of the sorted names is this one, or, with a dot at its end, lies below."""
    place = bisect_left(names, path)
    return place < len(names) and (names[place] == path or (path[-1:] == "." and names[place].startswith(path)))


def read_value(value: Any) -> Any:
    """A value as one of the language, None for a null."""
    if isinstance(value, Range):
        return read_range(value)
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]")
        plain = value.item()
        return value if isinstance(plain, int) else plain  # datetime cannot hold the years beyond 9999
    if isinstance(value, np.generic):
        value = value.item()
    match value:
        case None | bool() | float():
            return value
        case int():
            return read_integer(value)
        case decimal.Decimal():
            if value.is_nan():
                return math.nan
            integral = value.is_finite() and abs(value) < 2**64 and value == int(value)
            return read_integer(int(value)) if integral else float(value)
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return OfNoKind("a string that is not valid Unicode")
            return value
        case dt.datetime():
            return None if value != value else value  # NaT, the null of pandas, is a datetime
        case dt.date():
            return dt.datetime(value.year, value.month, value.day)
    return None if type(value).__name__ == "NAType" else OfNoKind(f"a value of type {type(value).__name__}")


def read_integer(value: int) -> int | float:
    """Integers beyond 64 bits are read as the nearest float64."""
    if -(2**63) <= value < 2**64:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def read_range(value: Range) -> Range | OfNoKind:
    ends = [None if end is None else read_value(end) for end in (value.lo, value.hi)]
    given = [end for end in ends if end is not None]
    if not given:
        return OfNoKind("a range without ends")
    if any(isinstance(end, (Range, OfNoKind)) for end in given):
        return OfNoKind("a range with an end that is no single value")
    keys = [find_key(end) for end in given]
    if len({kind for kind, _ in keys}) > 1:
        return OfNoKind("a range from one kind of value to another")
    if keys != sorted(keys):
        return OfNoKind("a range whose low end is above its high end")
    return Range(*ends)


def find_key(value: Any) -> tuple[Kind, Any]:
    """The kind of a value that values_of gives, and a key that orders the values of that kind."""
    match value:
        case bool():
            return Kind.BOOLEAN, value
        case int() | float():  # Python compares the two by mathematical value; NaN goes above everything
            return Kind.NUMBER, (1, 0) if value != value else (0, value)
        case str():
            return Kind.STRING, value.encode()
    if isinstance(value, np.datetime64):
        return Kind.TIME, int(value.astype(np.int64))
    epoch = EPOCH if value.utcoffset() is None else EPOCH_UTC
    return Kind.TIME, (value - epoch) // MICROSECOND


def key_beside(value: Any, kind: Kind) -> Any:
    """The key of a value beside a constant of this kind, where a string beside a time is the time that it reads as;
    None: the two are not compared."""
    own, key = find_key(value)
    if own == Kind.STRING and kind == Kind.TIME:
        moment = time_of(value)
        return None if moment is None else find_key(moment)[1]
    return key if own == kind else None


def key_of(constant: Literal) -> Any:
    return find_key(read_value(constant.value))[1]
