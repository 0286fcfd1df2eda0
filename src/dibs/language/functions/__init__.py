"""The functions of the language: which there are, and what each does to plain values.

table.py    what a function is, and how it is applied
plain.py    the values
numbers.py, places.py, texts.py, times.py, logic.py, casts.py, arrays.py, networks.py    the functions

`evaluate` computes a scalar (language.scalars) for one event, in plain Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from dibs.language.functions import (  # they declare themselves
    arrays,
    casts,
    logic,
    networks,
    numbers,
    places,
    texts,
    time_formats,
    times,
)
from dibs.language.functions.arrays import TooManyTrials, Trials
from dibs.language.functions.plain import Plain, literal_of, plain_of
from dibs.language.functions.table import FUNCTIONS, Function, Kinds, apply, describe_call, describe_kinds
from dibs.language.scalars import Call, Field, Interval, Lambda, Scalar, Value

__all__ = [
    "FUNCTIONS",
    "Function",
    "Kinds",
    "apply",
    "arrays",
    "casts",
    "describe_call",
    "describe_kinds",
    "evaluate",
    "literal_of",
    "logic",
    "networks",
    "numbers",
    "places",
    "texts",
    "time_formats",
    "times",
]


def evaluate(scalar: Scalar, fields: Mapping[str, Plain], combinations: int = 1, trials: Trials | None = None) -> Plain:
    """The value of a scalar, where each attribute has one value, or none. combinations: for how many of the same event
    it is asked. trials: what is left of them, within a condition on elements."""
    if isinstance(scalar, Field):
        return fields.get(scalar.name)
    if isinstance(scalar, Value):
        return plain_of(scalar.literal)
    if not isinstance(scalar, Call):
        return scalar if isinstance(scalar, Interval) else None
    function, arguments = scalar
    if arguments and isinstance(arguments[-1], Lambda):
        if trials is None:
            try:
                return evaluate(scalar, fields, combinations, Trials(combinations))
            except TooManyTrials:
                return None
        found = evaluate(arguments[0], fields, combinations, trials)
        ask = partial(evaluate, combinations=combinations, trials=trials)
        return arrays.try_elements(function, found, arguments[-1], ask, fields, trials)
    return apply(FUNCTIONS[function], [evaluate(argument, fields, combinations, trials) for argument in arguments])
