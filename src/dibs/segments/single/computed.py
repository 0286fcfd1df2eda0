"""Computed values of a single event, as members of its JSON text: the compiled call then reads them as attributes.

An event with a value that JSON cannot say (a time, NaN) is left to the batch, as is one whose JSON cannot be read.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import orjson

from dibs.coding.computed.naming import ComputedNames
from dibs.coding.computed.program_layout import MOST_COMBINATIONS
from dibs.coding.computed.wholes import plain_json
from dibs.coding.events.declared import FACTORS, DeclaredNames
from dibs.coding.events.raw import TooDeep, find_at, has_path, joined_json, take_strings
from dibs.language.expression import Kind
from dibs.language.functions import evaluate
from dibs.language.functions.arrays import values_in
from dibs.language.functions.plain import Moment, Plain, datetime_of, plain_value
from dibs.language.functions.time_texts import read_moment
from dibs.language.present import Present, read_clock
from dibs.language.printer import EVERY, HAS_KEY
from dibs.language.scalars import PRESENT, split_mark
from dibs.language.types import fit, kind_of_type

_PLAIN = (str, bool, int, float)
_DEEPEST = 100  # objects and arrays inside each other; the batch reads deeper ones


def add_computed(
    text: bytes, names: ComputedNames | None, now: Present = None, declared: DeclaredNames | None = None
) -> bytes | None:
    """The text of an event with what is computed from it; None: the batch knows what to do with it. now: the time of
    the match (language.present). declared: the attributes whose types are."""
    try:
        event = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    try:
        return _with_members(text, event, names, now, declared)
    except (TooDeep, RecursionError):
        return None


def _with_members(
    text: bytes, event: Any, names: ComputedNames | None, now: Present, declared: DeclaredNames | None
) -> bytes | None:
    if type(event) is not dict or any(key[:1] == "\0" for key in event):
        return None
    is_empty = not event
    members: list[bytes] = []
    if names is not None and names.every_key is not None:  # as they came
        texts: list[str] = []
        take_strings(event, 0, texts)
        members.append(names.every_key + orjson.dumps(texts))
    if declared is not None:
        converted = _convert(event, declared)
        if converted is None:
            return None
        if converted:
            text = orjson.dumps({**event, **converted})
            event.update(converted)
        if names is not None:
            event.update({name: moment for name, _, type_ in declared.plain if (moment := _moment(event, name, type_))})
    if names is not None and not _compute(event, names, now, members):
        return None
    if not members:
        return text
    whole = text.rstrip()
    return b"%b%b%b}" % (whole[:-1], b"" if is_empty else b",", b",".join(members))


def _convert(event: dict[str, Any], declared: DeclaredNames) -> dict[str, Any] | None:
    """The values that are of another type than is declared, as JSON has them; None: one does not fit, or there is
    something unusual. Times are strings in a text: all tests of such attributes read these."""
    converted: dict[str, Any] = {}
    for name, _, type_ in declared.plain:
        value = event.get(name)
        if type(value) in (list, dict):
            return None
        if value is None:
            continue
        found = fit(_number(value), type_)
        if found is None or (type(found) is float and not math.isfinite(found)):
            return None
        if isinstance(found, Moment):
            if type_ in FACTORS:
                day = datetime_of(found)
                if day is None:
                    return None
                converted[name] = day.isoformat() + "Z"
        elif type(found) is not type(value):
            converted[name] = found
    return None if any(_has(event, name) for name in declared.paths) else converted


def _moment(event: dict[str, Any], name: str, type_: str) -> Moment | None:
    """The time of a declared attribute, whose value is a string that says it: for what is computed with it."""
    value = event.get(name)
    return read_moment(value) if kind_of_type(type_) == Kind.TIME and isinstance(value, str) else None


def _has(event: dict[str, Any], path: str) -> bool:
    found: list[Plain] = []
    return not _find(event, path, 0, found) or bool(found)


def _compute(event: dict[str, Any], names: ComputedNames, now: Present, members: list[bytes]) -> bool:
    """False: the batch knows what to do."""
    if names.present is not None:
        if isinstance(now, str):
            return False
        event[PRESENT] = Moment(read_clock() if now is None else now)
    for scalar, fields, key in zip(names.scalars, names.fields, names.keys):
        values = values_of(event, fields)
        if values is None:
            return False
        found: list[Plain] = []
        several = math.prod(map(len, values))
        all_found = (evaluate(scalar, dict(zip(fields, each)), several) for each in itertools.product(*values))
        for value in itertools.chain.from_iterable(map(values_in, all_found)):
            if type(value) not in _PLAIN or (type(value) is float and not math.isfinite(value)):
                return False
            found.append(value)
        if found:
            members.append(key + orjson.dumps(found[0] if len(found) == 1 else found))
    return True


def values_of(event: dict[str, Any], fields: list[str]) -> list[list[Plain]] | None:
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
