"""Tests that are made last as programs of a stack, where they are arithmetic: a kernel runs them for all pairs of a
batch, or for the rows of one event, without columns in between (program_kernels.py).

    abs(price - c)        FIELD price, CONSTANT c, SUBTRACT, ABS

All values are numbers, or NULL: of what else there is, times and intervals could be subtracted, added and compared too,
so that a form in which that could come out TRUE has no program.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.computed.forms import ResidualForm
from dibs.language.scalars import Call, Field, Scalar

FIELD, CONSTANT, ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATIVE, ABS, SQRT, GEO_DISTANCE, TESTS = range(11)
COMPARED = ("=", "<>", "<", "<=", ">", ">=")  # operations from TESTS on, which are last
DEPTH = 72  # of a stack: values are at most 64 deep within each other, and have four arguments
_OPERATIONS = {
    "+": ADD,
    "-": SUBTRACT,
    "*": MULTIPLY,
    "/": DIVIDE,
    "NEGATIVE": NEGATIVE,
    "ABS": ABS,
    "SQRT": SQRT,
    "GEO_DISTANCE": GEO_DISTANCE,
}


class Combinations(NamedTuple):
    """The combinations of values of each event."""

    start: NDArray[np.int64]  # of each event
    size: NDArray[np.int64]  # of each event
    place: NDArray[np.int64]  # of each field and combination, in the columns; -1: it is missing
    holes: NDArray[np.int64]  # one number: the constants of a test


class NumberColumns(NamedTuple):
    kind: NDArray[np.uint8]
    number: NDArray[np.float64]
    integer: NDArray[np.int64]
    whole: NDArray[np.bool_]


class TestEnds(NamedTuple):
    """See Residuals."""

    low: NDArray[np.float64]
    low_rest: NDArray[np.int16]
    high: NDArray[np.float64]
    high_rest: NDArray[np.int16]
    flags: NDArray[np.uint8]


def program_of(form: ResidualForm) -> NDArray[np.int32] | None:
    """The operations with their arguments; None: it is more than arithmetic."""
    places = {name: (FIELD, k) for k, name in enumerate(form.fields)}
    places |= {name: (CONSTANT, k) for k, name in enumerate(form.holes)}
    steps: list[tuple[int, int]] = []
    scalar = form.scalar
    if isinstance(scalar, Call) and scalar.function in COMPARED:
        if not any(_is_number(side, form) for side in scalar.arguments):
            return None
        made = all(_add(side, places, steps) for side in scalar.arguments)
        steps.append((TESTS + COMPARED.index(scalar.function), 0))
    else:
        made = _add(scalar, places, steps)
    return np.array(steps, np.int32) if made and len(steps) <= DEPTH else None


def _add(scalar: Scalar, places: dict[str, tuple[int, int]], steps: list[tuple[int, int]]) -> bool:
    if isinstance(scalar, Field):
        steps.append(places[scalar.name])
        return True
    if not isinstance(scalar, Call) or scalar.function not in _OPERATIONS:
        return False
    if not all(_add(argument, places, steps) for argument in scalar.arguments):
        return False
    steps.append((_OPERATIONS[scalar.function], 0))
    return True


def _is_number(scalar: Scalar, form: ResidualForm) -> bool:
    """Whether it is a number or NULL, whatever the attributes are."""
    if isinstance(scalar, Field):
        return scalar.name in form.holes
    if not isinstance(scalar, Call):
        return False
    sides = [_is_number(argument, form) for argument in scalar.arguments]
    return any(sides) if scalar.function in ("+", "-") else scalar.function in _OPERATIONS and all(sides)
