"""The values of events for matching in plain Python (dibs.plain).

A dict of plain values is read here. Whatever is not plain (dates, ranges, subclasses, keys that are no strings, text
that is none) is left to the engine's reader, so that it means the same and its problems are told alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from dibs.jit.undisturbed import bring
from dibs.language.printer import WHOLE
from dibs.reference import ValuesByName

if TYPE_CHECKING:
    from dibs.coding.values import EventValues
    from dibs.plain import Asked

DEEP = 50  # objects and arrays inside each other in an event that is called plain
PLAIN_INTEGERS = range(-(2**63), 2**64)


def event_of(event: object) -> Any:
    """The event of a JSON text."""
    if isinstance(event, (bytes, bytearray, memoryview, str)):
        with suppress(orjson.JSONDecodeError):
            found = orjson.loads(event)
            if type(found) is dict:
                return found
    return bring("dibs.segments.single.texts").dict_of(event)  # which knows what to say


def plain_values(event: Mapping[str, Any], asked: Asked) -> ValuesByName | None:
    """The values of the attributes that are asked for; None if something is not plain and takes the careful reader."""
    values: dict[str, list[Any]] = {}
    plain = (
        not asked.has_raw
        and type(event) is dict
        and all(_take(key, value, asked, values, 0) for key, value in event.items())
    )
    return values if plain else None


def _take(path: Any, value: Any, asked: Asked, values: dict[str, list[Any]], depth: int) -> bool:
    """Whether all of it is plain."""
    if type(path) is not str or depth > DEEP:
        return False
    wanted = path in asked.names
    if not wanted and path not in asked.leading:
        return True
    kind = type(value)
    if kind is dict:
        return path not in asked.leading or all(
            type(key) is str and _take(f"{path}.{key}", inner, asked, values, depth + 1) for key, inner in value.items()
        )
    if kind is list:
        return all(_take(path, inner, asked, values, depth + 1) for inner in value)
    if value is None:
        return True
    if not wanted:
        return kind in (str, int, float, bool)
    if (kind is str and _is_text(value)) or (kind is int and value in PLAIN_INTEGERS) or kind is float or kind is bool:
        values.setdefault(path, []).append(value)
        return True
    return False


def extent(values: ValuesByName) -> int:
    """By how much the values of an event are more than one short value of each attribute: each is held against every
    predicate that asks for it."""
    more = sum(len(of_name) - 1 for of_name in values.values())
    return more + sum(len(value) >> 6 for of_name in values.values() for value in of_name if type(value) is str)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def values_by_event(batch: EventValues) -> list[ValuesByName]:
    """What the careful reader has read, as the evaluator takes it."""
    of_no_kind = bring("dibs.reference").OfNoKind
    found: list[dict[str, list[Any]]] = [{} for _ in range(batch.events)]

    def put(events: Any, names: Any, values: Iterable[Any]) -> None:
        for event, name, value in zip(events.tolist(), names.tolist(), values):
            found[event].setdefault(batch.names[name], []).append(value)

    n, s, t, b, u = batch.numbers, batch.strings, batch.times, batch.booleans, batch.unreadable
    put(n.event, n.name, map(_number, n.value.tolist(), n.rest.tolist()))
    data, ends = s.data.tobytes(), s.offsets.tolist()
    is_whole = [name[:2] == WHOLE for name in batch.names]
    decode = bring("dibs.coding.computed.wholes").decode if any(is_whole) else None
    texts = zip(s.name.tolist(), (data[x:y] for x, y in zip(ends, ends[1:])))
    put(s.event, s.name, [decode(text) if is_whole[name] and decode else text.decode() for name, text in texts])
    put(t.event, t.name, t.microseconds.astype("datetime64[us]"))
    put(b.event, b.name, map(bool, b.value.tolist()))
    put(u.event, u.name, [of_no_kind("")] * len(u.event))
    for event, name, range_ in batch.ranges:
        found[event].setdefault(batch.names[name], []).append(range_)
    return list(found)


def _number(near: float, rest: int) -> int | float:
    """The number of a key: see coding.values."""
    if near == float("inf"):
        return float("nan") if rest else near
    return int(near) + rest if rest else near
