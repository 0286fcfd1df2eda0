"""Requests are checked by the schemas that /openapi.json shows: the few words of JSON Schema that they use."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dibs.errors import show
from dibs.service.problems import Refusal
from dibs.service.routes import Parameter
from dibs.service.schemas import Schema

KINDS: dict[str, frozenset[type]] = {
    "object": frozenset([dict]),
    "array": frozenset([list]),
    "string": frozenset([str]),
    "integer": frozenset([int]),
    "number": frozenset([int, float]),
    "boolean": frozenset([bool]),
    "null": frozenset([type(None)]),
}
WHERE = "the body"  # a value without a place
TRUTHS = {"true": True, "1": True, "false": False, "0": False}


Check = Callable[[Any, str], str]  # what is wrong with a value of JSON, at this place; "": nothing
_made: dict[int, tuple[Schema, Check]] = {}  # by the identity of the schema


def problem_with(value: Any, schema: Schema, place: str = "") -> str:
    """What is wrong with a value, and where; "" if it is as the schema says."""
    found = _made.get(id(schema))
    if found is None:
        found = _made[id(schema)] = schema, _check_of(schema)
    return found[1](value, place)


def _check_of(schema: Schema) -> Check:
    """A schema is made into functions once: walking through it for each value takes three times as long."""
    if "anyOf" in schema:
        return _any_of(schema["anyOf"])
    kind = schema.get("type")
    if kind is None:
        return lambda value, place: ""
    types, more = KINDS[kind], _check_of_kind(kind, schema)

    def check(value: Any, place: str) -> str:
        if type(value) not in types:
            return f"{place or WHERE} must be {_article(kind)}, not {show(value)}"
        return "" if more is None else more(value, place)

    return check


def _any_of(parts: list[Schema]) -> Check:
    by_type: dict[type, list[Check]] = {}
    for part in parts:
        for each in KINDS[part["type"]]:
            by_type.setdefault(each, []).append(_check_of(part))
    kinds = [_article(part["type"]) for part in parts]
    wanted = f"{', '.join(kinds[:-1])} or {kinds[-1]}"

    def check(value: Any, place: str) -> str:
        fitting = by_type.get(type(value))
        if fitting is None:
            return f"{place or WHERE} must be {wanted}, not {show(value)}"
        return min([each(value, place) for each in fitting], key=len)

    return check


def _check_of_kind(kind: str, schema: Schema) -> Check | None:
    """Of a value of that kind. None: there is nothing more to check."""
    if "enum" in schema:
        words = schema["enum"]
        wanted = f"must be one of {', '.join(map(str, words))}"
        return lambda value, place: "" if value in words else f"{place or WHERE} {wanted}, not {show(value)}"
    if kind == "string" and "maxLength" in schema:
        most = schema["maxLength"]
        told = f"characters; at most {most:,} are taken"
        return lambda value, place: "" if len(value) <= most else f"{place or WHERE} has {len(value):,} {told}"
    if kind in ("integer", "number") and ("minimum" in schema or "maximum" in schema):
        least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        wanted = f"must be from {schema.get('minimum')} to {schema.get('maximum')}"
        return lambda value, place: "" if least <= value <= most else f"{place or WHERE} {wanted}, not {show(value)}"
    return _object_check(schema) if kind == "object" else None


def _object_check(schema: Schema) -> Check | None:
    known = {name: _check_of(each) for name, each in schema.get("properties", {}).items()}
    required, most, others = schema.get("required", ()), schema.get("maxProperties", math.inf), None
    is_closed = schema.get("additionalProperties") is False
    if isinstance(schema.get("additionalProperties"), dict):
        others = _check_of(schema["additionalProperties"])
    if not known and not required and most == math.inf and others is None:
        return None

    def check(value: Any, place: str) -> str:
        for name in required:
            if name not in value:
                return f"{place or WHERE} has no {name!r}, which is needed"
        if len(value) > most:
            return f"{place or WHERE} has {len(value):,} entries; at most {most:,} are taken"
        prefix = f"{place}." if place else ""
        for name, each in value.items():
            own = known.get(name, others)
            if own is not None:
                problem = own(each, prefix + name)
                if problem:
                    return problem
            elif is_closed:
                return f"{place or WHERE} has {show(name)}, which is not known; there are: {', '.join(known)}"
        return ""

    return check


def _article(kind: str) -> str:
    return {"null": "null"}.get(kind, f"a{'n' * (kind[0] in 'aio')} {kind}")


def check_parameters(given: dict[str, list[str]], parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """The query parameters by name, of their types, with the defaults."""
    known = {p.name: p for p in parameters}
    for name in given:
        if name not in known:
            there = f"there are: {', '.join(known)}" if known else "there are none"
            raise Refusal("argument", f"the parameter {show(name)} is not known here; {there}")
    found = {}
    for name, parameter in known.items():
        values = [_convert_type(text, parameter) for text in given.get(name, ())]
        if parameter.repeated:
            found[name] = values
        elif len(values) > 1:
            raise Refusal("argument", f"the parameter {name} is given {len(values)} times; once is enough")
        else:
            found[name] = values[0] if values else parameter.default
    return found


def _convert_type(text: str, parameter: Parameter) -> Any:
    if parameter.type == "boolean":
        if text not in TRUTHS:
            raise Refusal("argument", f"{parameter.name} must be true or false, not {show(text)}")
        return TRUTHS[text]
    if parameter.type == "integer":
        value = integer_of(text, parameter.name)
        if not (parameter.least is None or value >= parameter.least) or not (
            parameter.most is None or value <= parameter.most
        ):
            raise Refusal(
                "argument", f"{parameter.name} must be from {parameter.least} to {parameter.most}, not {value}"
            )
        return value
    if parameter.choices and text not in parameter.choices:
        raise Refusal("argument", f"{parameter.name} must be one of {', '.join(parameter.choices)}, not {show(text)}")
    return text


def integer_of(text: str, name: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise Refusal("argument", f"{name} must be an integer of 64 bits, not {show(text)}")
    return int(text)
