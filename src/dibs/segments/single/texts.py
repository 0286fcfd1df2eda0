"""Events to JSON text, where nothing is lost by it, and JSON text to events where something is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import orjson

from dibs.coding.events.dicts import BrokenEvent
from dibs.coding.events.json import json_content, json_line
from dibs.coding.lines import BYTE_ORDER_MARK
from dibs.errors import EventError

_PLAIN = frozenset((bool, int, float, str, type(None)))
_NESTED = frozenset((dict, list))
_is_plain, _is_json = _PLAIN.issuperset, (_PLAIN | _NESTED).issuperset


def text_of(event: object) -> bytes | None:
    """The JSON text of an event that is one, or a dict of plain values, of dicts and lists of them; None: it is
    something else, or orjson does not write it (integers of more than 64 bits, lone surrogates, keys that are no plain
    strings). Of floats it writes the digits that are read back as the same bits, but null for NaN and the
    infinities."""
    kind = type(event)
    if kind is bytes:
        return event  # type: ignore[return-value]
    if kind is dict:
        return _text_of_dict(event)  # type: ignore[arg-type]
    if kind is str:
        try:
            return event.encode()  # type: ignore[attr-defined]
        except UnicodeEncodeError:
            return None
    return bytes(event) if isinstance(event, (bytearray, memoryview)) else None


def _text_of_dict(event: dict[str, Any]) -> bytes | None:
    values = event.values()
    flat = _is_plain(map(type, values))
    if not flat and not _is_json(map(type, values)):
        return None
    try:
        text = orjson.dumps(event)
        if not flat and not _is_plain_inside(values):
            return None
        if b"null" in text and not _is_finite(values):
            return None
    except (TypeError, RecursionError):  # the caller may have come far already
        return None
    return text


def _is_plain_inside(values: Iterable[Any]) -> bool:
    """Whether all that objects and arrays hold is plain. They are no deeper than orjson writes."""
    return all(
        _is_json(map(type, inside)) and _is_plain_inside(inside)
        for inside in (value.values() if type(value) is dict else value for value in values if type(value) in _NESTED)
    )


def _is_finite(values: Iterable[Any]) -> bool:
    return all(
        isfinite(value)
        if type(value) is float
        else type(value) not in _NESTED or _is_finite(value.values() if type(value) is dict else value)
        for value in values
    )


def read_event(event: object) -> Mapping[str, Any]:
    """The attributes of one event. Raises EventError for what match refuses as a whole."""
    found = dict_of(event)
    if isinstance(found, BrokenEvent):
        raise EventError(found.message)
    return found


def dict_of(event: object) -> Any:
    """What match_batch takes as one event."""
    if isinstance(event, Mapping):
        return event
    if isinstance(event, (bytes, bytearray, memoryview, str)):
        return json_line(1, json_content(event).removeprefix(BYTE_ORDER_MARK))
    raise EventError(
        f"an event is a dict of attributes, or a JSON text of one, not {type(event).__name__}; "
        "use match_batch for several"
    )
