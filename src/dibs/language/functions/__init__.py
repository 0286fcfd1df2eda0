"""The functions of the language: which there are, and what each does to plain values.

table.py    what a function is, and how it is applied
plain.py    the values
numbers.py, places.py, texts.py, times.py, logic.py, casts.py, arrays.py, networks.py    the functions

`evaluate` computes a scalar (language.scalars) for one event, in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Union

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
from dibs.language.functions.logic import OPERATORS, compare
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


Evaluator = Callable[[Mapping[str, Plain], int, Union[Trials, None]], Plain]
_KEPT = 4_096  # evaluators
_evaluators: dict[int, tuple[Scalar, Evaluator]] = {}


def evaluate(scalar: Scalar, fields: Mapping[str, Plain], combinations: int = 1, trials: Trials | None = None) -> Plain:
    """The value of a scalar, where each attribute has one value, or none. combinations: for how many of the same event
    it is asked. trials: what is left of them, within a condition on elements."""
    known = _evaluators.get(id(scalar))
    if known is None or known[0] is not scalar:
        if len(_evaluators) >= _KEPT:
            _evaluators.clear()
        known = _evaluators[id(scalar)] = scalar, evaluator_of(scalar)
    return known[1](fields, combinations, trials)


def evaluator_of(scalar: Scalar) -> Evaluator:
    """What `evaluate` does, made once for many calls."""
    if isinstance(scalar, Field):
        name = scalar.name
        return lambda fields, combinations, trials: fields.get(name)
    if not isinstance(scalar, Call):
        constant: Plain = plain_of(scalar.literal) if isinstance(scalar, Value) else None
        constant = scalar if isinstance(scalar, Interval) else constant
        return lambda fields, combinations, trials: constant
    function, arguments = scalar
    if arguments and isinstance(arguments[-1], Lambda):
        return _quantifier(function, evaluator_of(arguments[0]), arguments[-1])
    parts, declared = [evaluator_of(argument) for argument in arguments], FUNCTIONS[function]
    if len(parts) == 2 and function in OPERATORS:
        first, second = parts
        return lambda fields, combinations, trials: compare(
            function, first(fields, combinations, trials), second(fields, combinations, trials)
        )
    return lambda fields, combinations, trials: apply(declared, [part(fields, combinations, trials) for part in parts])


def _quantifier(function: str, array: Evaluator, condition: Lambda) -> Evaluator:
    body = evaluator_of(condition.body)

    def ask(fields: Mapping[str, Plain], combinations: int, trials: Trials | None) -> Plain:
        if trials is None:
            try:
                return ask(fields, combinations, Trials(combinations))
            except TooManyTrials:
                return None

        def truth_of(own: Mapping[str, Plain]) -> Plain:
            return body(own, combinations, trials)

        found = array(fields, combinations, trials)
        return arrays.try_elements(function, found, condition, truth_of, fields, trials)

    return ask
