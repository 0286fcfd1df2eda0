"""Computed values of a single event, as members of its JSON text: the compiled call then reads them as attributes.

An event with a value that JSON cannot say (a time, NaN) is left to the batch, as is one whose JSON cannot be read.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import orjson

from dibs.coding.computed.naming import MOST_COMBINATIONS, ComputedNames
from dibs.coding.computed.wholes import plain_json
from dibs.coding.events.raw import TooDeep, find_at, has_path, joined_json, take_strings
from dibs.language.functions import evaluate
from dibs.language.functions.arrays import values_in
from dibs.language.functions.plain import Plain, plain_value
from dibs.language.printer import EVERY, HAS_KEY
from dibs.language.scalars import split_mark

_PLAIN = (str, bool, int, float)
_DEEPEST = 100  # objects and arrays inside each other; the batch reads deeper ones


def add_computed(text: bytes, names: ComputedNames) -> bytes | None:
    """The text of an event with what is computed from it; None: the batch knows what to do with it."""
    try:
        event = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    try:
        return _with_members(text, event, names)
    except (TooDeep, RecursionError):
        return None


def _with_members(text: bytes, event: Any, names: ComputedNames) -> bytes | None:
    if type(event) is not dict or any(key[:1] == "\0" for key in event):
        return None
    members = []
    for scalar, fields, key in zip(names.scalars, names.fields, names.keys):
        values = _values(event, fields)
        if values is None:
            return None
        found: list[Plain] = []
        several = math.prod(map(len, values))
        all_found = (evaluate(scalar, dict(zip(fields, each)), several) for each in itertools.product(*values))
        for value in itertools.chain.from_iterable(map(values_in, all_found)):
            if type(value) not in _PLAIN or (type(value) is float and not math.isfinite(value)):
                return None
            found.append(value)
        if found:
            members.append(key + orjson.dumps(found[0] if len(found) == 1 else found))
    if names.every_key is not None:
        texts: list[str] = []
        take_strings(event, 0, texts)
        members.append(names.every_key + orjson.dumps(texts))
    if not members:
        return text
    whole = text.rstrip()
    return b"%b%b%b}" % (whole[:-1], b"," if event else b"", b",".join(members))


def _values(event: dict[str, Any], fields: list[str]) -> list[list[Plain]] | None:
    """The values of each field, or [None]; None: there is something unusual about them."""
    found: list[list[Plain]] = []
    for field in fields:
        if field[:1] == "\0":
            found.append(_as_it_came(event, field))
            continue
        value = event.get(field)
        if "." in field or type(value) in (list, dict):
            own: list[Plain] = []
            if not _find(event, field, 0, own):
                return None
            found.append(own or [None])
        else:
            found.append([_number(value)])
    return found if math.prod(map(len, found)) <= MOST_COMBINATIONS else None


def _as_it_came(event: dict[str, Any], field: str) -> list[Plain]:
    """An array as a whole, or whether a key is there."""
    mark, path = split_mark(field)
    if field == EVERY:
        texts: list[str] = []
        take_strings(event, 0, texts)
        return list(texts) or [None]
    if mark == HAS_KEY:
        return [has_path(event, path, 0)]
    if "." not in path:
        return [plain_json(event.get(path), is_ours=False)]
    found = find_at(event, path, 0)
    return [plain_json(joined_json(found))]


def _find(value: Any, path: str, depth: int, found: list[Plain]) -> bool:
    """Adds the values at a path, of which some parts may be one key; False: it is too deep."""
    if depth > _DEEPEST:
        return False
    if type(value) is list:
        return all(_find(element, path, depth + 1, found) for element in value)
    if type(value) is dict:
        rests = ((path[len(key) + 1 :], inner) for key, inner in value.items() if (path + ".").startswith(key + "."))
        return all(_find(inner, rest, depth + 1, found) for rest, inner in rests if path)
    if not path and value is not None:
        found.append(_number(value))
    return True


def _number(value: Any) -> Any:
    return plain_value(value) if type(value) in (int, float) else value
