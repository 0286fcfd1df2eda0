"""Computed values in plain Python: every combination of the values of an event, one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dibs.coding.values import Range
from dibs.language.expression import Kind
from dibs.language.functions import evaluate
from dibs.language.functions.arrays import values_in
from dibs.language.functions.plain import Array, Moment, Object, Plain, datetime_of, plain_value
from dibs.language.present import Present, read_clock
from dibs.language.scalars import PRESENT, Interval, Scalar, at_time_of, inputs_of, is_computed, scalar_of
from dibs.reference.values import OfNoKind, ValuesByName, find_key

MOST_COMBINATIONS = 10_000  # of the values of an event's arrays; a computed value of more is unknown


def with_computed(values: ValuesByName, names: Iterable[str], now: Present = None) -> ValuesByName:
    """The values of an event with those of the computed attributes among the names. now: the time of the match."""
    wanted = [name for name in dict.fromkeys(names) if is_computed(name)]
    if not wanted:
        return values
    plain: dict[str, list[Any]] = {name: of_name for name, of_name in values.items() if not is_computed(name)}
    if isinstance(now, str):
        return plain | {name: computed_values(at_time_of(scalar_of(name), now), plain) for name in wanted}
    plain[PRESENT] = [np.datetime64(read_clock() if now is None else now, "us")]
    return plain | {name: computed_values(scalar_of(name), plain) for name in wanted}


def computed_values(scalar: Scalar, values: ValuesByName) -> list[Any]:
    """The values of a computed attribute: one for each combination of values of the attributes that it is computed
    from, where that is not NULL."""
    fields = inputs_of(scalar)
    given = [values.get(field, []) for field in fields]
    if any(isinstance(value, (Range, OfNoKind)) for some in given for value in some):
        return [OfNoKind("computed from a range, or from what cannot be read")]
    if math.prod(max(len(some), 1) for some in given) > MOST_COMBINATIONS:
        return [OfNoKind(f"computed from more than {MOST_COMBINATIONS:,} combinations of values")]
    found: list[Any] = []
    combinations = math.prod(max(len(some), 1) for some in given)
    for combination in itertools.product(*(some or [None] for some in given)):
        row: Mapping[str, Plain] = dict(zip(fields, map(as_plain, combination)))
        found += map(as_value, values_in(evaluate(scalar, row, combinations)))
    return found


def as_plain(value: Any) -> Plain:
    if value is None or isinstance(value, (bool, str, Array, Object, Moment)):  # the latter as they came
        return value
    if isinstance(value, (int, float)):
        return plain_value(value)
    kind, key = find_key(value)
    assert kind == Kind.TIME
    return Moment(key)


def as_value(value: Plain) -> Any:
    """A result as values_of gives values."""
    if isinstance(value, Moment):
        day = datetime_of(value)
        return np.datetime64(value.microseconds, "us") if day is None else day
    return OfNoKind("an interval") if isinstance(value, Interval) else value
