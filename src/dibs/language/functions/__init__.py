"""The functions of the language: which there are, and what each does to plain values.

table.py    what a function is, and how it is applied
plain.py    the values
numbers.py, texts.py, times.py, logic.py, casts.py    the functions

`evaluate` computes a scalar (language.scalars) for one event, in plain Python.
"""

from __future__ import annotations

from collections.abc import Mapping

from dibs.language.functions import casts, logic, numbers, texts, times  # they declare themselves
from dibs.language.functions.plain import Plain, literal_of, plain_of
from dibs.language.functions.table import FUNCTIONS, Function, Kinds, apply, describe_call, describe_kinds
from dibs.language.scalars import Call, Field, Scalar, Value

__all__ = [
    "FUNCTIONS",
    "Function",
    "Kinds",
    "apply",
    "casts",
    "describe_call",
    "describe_kinds",
    "evaluate",
    "literal_of",
    "logic",
    "numbers",
    "texts",
    "times",
]


def evaluate(scalar: Scalar, fields: Mapping[str, Plain]) -> Plain:
    """The value of a scalar, where each attribute has one value, or none."""
    if isinstance(scalar, Field):
        return fields.get(scalar.name)
    if isinstance(scalar, Value):
        return plain_of(scalar.literal)
    if isinstance(scalar, Call):
        return apply(FUNCTIONS[scalar.function], [evaluate(argument, fields) for argument in scalar.arguments])
    return scalar
