"""Arrays and objects as they came (language.scalars, WHOLE): JSON texts among the strings of a batch.

JSON has no times, NaN and infinities: they are objects with one key, which no event has here.
"""

from __future__ import annotations

from typing import Any

import orjson

from dibs.language.functions.plain import Array, Moment, Object, Plain, plain_value

MARK = "\0"  # the key of what JSON does not have


def decode(text: bytes | str) -> Plain:
    """The value of such a text."""
    return plain_json(orjson.loads(text))


def plain_json(value: Any, is_ours: bool = True) -> Plain:
    """What JSON says as a plain value. is_ours: it may say what JSON does not have."""
    kind = type(value)
    if kind is int or kind is float:
        return plain_value(value)
    if kind is list:
        return Array(tuple(plain_json(element, is_ours) for element in value))
    if kind is not dict:
        return value
    if is_ours and MARK in value:
        said = value[MARK]
        return float(said) if isinstance(said, str) else Moment(said)
    members = ((key, inner) for key, inner in value.items() if key[:1] != MARK)
    return Object(tuple((key, plain_json(inner, is_ours)) for key, inner in members))
