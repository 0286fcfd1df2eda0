"""Events to JSON text, where nothing is lost by it, and JSON text to events where something is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import orjson

from dibs.coding.events.json import json_content, json_line
from dibs.coding.lines import BYTE_ORDER_MARK
from dibs.errors import EventError

_is_plain = frozenset((bool, int, float, str, type(None))).issuperset


def text_of(event: object) -> bytes | None:
    """The JSON text of an event that is one, or a dict of plain values; None: it is something else, or orjson does not
    write it (integers of more than 64 bits, lone surrogates, keys that are no plain strings). Of floats it writes the
    digits that are read back as the same bits, but null for NaN and the infinities."""
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
    if not _is_plain(map(type, event.values())):
        return None
    try:
        text = orjson.dumps(event)
    except TypeError:
        return None
    if b"null" in text and not all(isfinite(value) for value in event.values() if type(value) is float):
        return None
    return text


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
