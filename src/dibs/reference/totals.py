"""SUM, AVG, STDDEV and COUNT(DISTINCT) over the values of documents, whatever their order: sums are exact fractions,
which are rounded once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from dibs.coding.values import Range
from dibs.language.expression import Kind
from dibs.language.joins import AVG, COUNT_DISTINCT, STDDEV, SUM, Join
from dibs.reference.values import OfNoKind, ValuesByName, find_key

LEAST, MOST = -(2**63), 2**63 - 1  # of an integer


def total(join: Join, found: list[ValuesByName]) -> list[Any]:
    """What the function gives for these documents; nothing: NULL. An array counts with all its elements, and what is no
    number with none, but for COUNT(DISTINCT)."""
    assert join.attribute is not None
    given = [value for document in found for value in document.get(join.attribute, [])]
    known = [value for value in given if not isinstance(value, (Range, OfNoKind))]
    if join.function == COUNT_DISTINCT:
        return [len({find_key(value) for value in known})]
    numbers = [value for value in known if find_key(value)[0] == Kind.NUMBER]
    if not numbers:
        return []
    result = sum_of(numbers) if join.function == SUM else _mean_or_spread(join.function, numbers)
    return [] if result is None else [result]


def sum_of(numbers: list[int | float]) -> int | float | None:
    """Of integers of 64 bits one of them, or NULL; else the nearest float64."""
    if all(math.isfinite(x) and x == int(x) and LEAST <= x <= MOST for x in numbers):
        whole = sum(map(int, numbers))
        return whole if LEAST <= whole <= MOST else None
    return rounded_sum(numbers)


def _mean_or_spread(function: str, numbers: list[int | float]) -> float | None:
    count = len(numbers)
    mean = rounded_sum(numbers) / count
    if function == AVG:
        return mean
    if function == STDDEV and count == 1:
        return None
    if not all(map(math.isfinite, numbers)):
        return math.nan
    squares = [_square(float(x) - mean) for x in numbers]
    return math.sqrt(rounded_sum(squares) / (count - 1 if function == STDDEV else count))


def _square(value: float) -> float:
    return value * value


def rounded_sum(numbers: Iterable[int | float]) -> float:
    """The nearest float64 of the sum."""
    exact, others = Fraction(0), []
    for x in numbers:
        if math.isfinite(x):
            exact += Fraction(x)
        else:
            others.append(x)
    if others:
        return math.nan if len(set(map(str, others))) > 1 or others[0] != others[0] else float(others[0])
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
