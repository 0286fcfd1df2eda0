"""Requests are checked by the schemas that /openapi.json shows: the few words of JSON Schema that they use."""

from __future__ import annotations

import math
from typing import Any

from dibs.errors import show
from dibs.service.problems import Refusal
from dibs.service.routes import Parameter
from dibs.service.schemas import Schema

KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def problem_with(value: Any, schema: Schema, place: str = "") -> str:
    """What is wrong with a value, and where; "" if it is as the schema says."""
    where = place or "the body"
    if "anyOf" in schema:
        problems = [problem_with(value, each, place) for each in schema["anyOf"]]
        fitting = [p for p, each in zip(problems, schema["anyOf"]) if _is_kind(value, each)]
        return "" if "" in problems else min(fitting or problems, key=len)
    kind = schema.get("type")
    if kind is not None and not _is_kind(value, schema):
        return f"{where} must be {_article(kind)}, not {show(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(map(str, schema['enum']))}, not {show(value)}"
    if isinstance(value, str) and len(value) > schema.get("maxLength", math.inf):
        return f"{where} has {len(value):,} characters; at most {schema['maxLength']:,} are taken"
    if kind in ("integer", "number") and not schema.get("minimum", -math.inf) <= value <= schema.get(
        "maximum", math.inf
    ):
        return f"{where} must be from {schema.get('minimum')} to {schema.get('maximum')}, not {show(value)}"
    if kind == "object":
        return _problem_in_object(value, schema, place)
    return ""


def _problem_in_object(value: dict[str, Any], schema: Schema, place: str) -> str:
    where, prefix = place or "the body", f"{place}." if place else ""
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} has no {name!r}, which is needed"
    if len(value) > schema.get("maxProperties", math.inf):
        return f"{where} has {len(value):,} entries; at most {schema['maxProperties']:,} are taken"
    others = schema.get("additionalProperties", True)
    for name, each in value.items():
        if name in known:
            problem = problem_with(each, known[name], prefix + name)
        elif others is False:
            problem = f"{where} has {show(name)}, which is not known; there are: {', '.join(known)}"
        else:
            problem = problem_with(each, others, prefix + name) if isinstance(others, dict) else ""
        if problem:
            return problem
    return ""


def _is_kind(value: Any, schema: Schema) -> bool:
    kind = schema.get("type")
    if kind is None:
        return True
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


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
