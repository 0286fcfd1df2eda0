"""A column of values of any kinds, and how columns and plain values (language.functions.plain) become each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.language.expression import Kind
from dibs.language.functions.plain import Moment, Plain
from dibs.language.scalars import Interval

BOOLEAN, NUMBER, STRING, TIME = (int(kind) for kind in (Kind.BOOLEAN, Kind.NUMBER, Kind.STRING, Kind.TIME))
INTERVAL, NULL = 4, 5


@dataclass(frozen=True, eq=False)
class Vector:
    """Row i is of kind[i]. Constants have one row, which stands for as many as there are."""

    kind: NDArray[np.uint8]  # a Kind, INTERVAL or NULL
    number: NDArray[np.float64]  # of a number, the nearest float64
    integer: NDArray[np.int64]  # of a whole number the number; microseconds of times and intervals; 0 or 1 of booleans
    whole: NDArray[np.bool_]  # a number that is an integer of 64 bits
    text: pa.Array  # large_string, null but for strings
    months: NDArray[np.int64] | None = None  # of intervals; None: all are 0

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: NDArray[np.int64]) -> Vector:
        if len(self) == 1:
            rows = np.zeros(len(rows), np.int64)
        months = None if self.months is None else self.months[rows]
        return Vector(
            self.kind[rows],
            self.number[rows],
            self.integer[rows],
            self.whole[rows],
            self.text.take(pa.array(rows)),
            months,
        )


def nulls(rows: int) -> pa.Array:
    return pa.nulls(rows, pa.large_string())


def empty(rows: int) -> Vector:
    """All NULL."""
    return Vector(
        np.full(rows, NULL, np.uint8),
        np.zeros(rows, np.float64),
        np.zeros(rows, np.int64),
        np.zeros(rows, np.bool_),
        nulls(rows),
    )


def choose(condition: NDArray[np.bool_], yes: Vector, no: Vector) -> Vector:
    """Row by row one of the two."""
    condition = np.broadcast_to(condition, max(len(condition), len(yes), len(no)))
    months = None
    if yes.months is not None or no.months is not None:
        a, b = (np.zeros(1, np.int64) if v.months is None else v.months for v in (yes, no))
        months = np.where(condition, a, b)
    text = nulls(len(condition))
    if yes.text.null_count < len(yes) or no.text.null_count < len(no):
        parts = (v.text if len(v) > 1 else v.text[0] for v in (yes, no))
        text = pc.if_else(pa.array(condition), *parts)
    return Vector(
        np.where(condition, yes.kind, no.kind),
        np.where(condition, yes.number, no.number),
        np.where(condition, yes.integer, no.integer),
        np.where(condition, yes.whole, no.whole),
        text,
        months,
    )


def of_plain(values: Sequence[Plain]) -> Vector:
    """Plain values as a column."""
    made = empty(len(values))
    texts: list[str | None] | None = None
    months: NDArray[np.int64] | None = None
    for i, value in enumerate(values):
        if value is None:
            continue
        if isinstance(value, bool):
            made.kind[i], made.integer[i] = BOOLEAN, value
        elif isinstance(value, int):
            made.kind[i], made.integer[i], made.number[i], made.whole[i] = NUMBER, value, value, True
        elif isinstance(value, float):
            made.kind[i], made.number[i] = NUMBER, value
        elif isinstance(value, str):
            texts = texts or [None] * len(values)
            made.kind[i], texts[i] = STRING, value
        elif isinstance(value, Moment):
            made.kind[i], made.integer[i] = TIME, value.microseconds
        elif isinstance(value, Interval):
            made.kind[i], made.integer[i] = INTERVAL, value.microseconds
            if value.months:
                months = np.zeros(len(values), np.int64) if months is None else months
                months[i] = value.months
    text = made.text if texts is None else pa.array(texts, pa.large_string())
    return replace(made, text=text, months=months)


def to_plain(vector: Vector) -> list[Plain]:
    kind, integer, number = vector.kind.tolist(), vector.integer.tolist(), vector.number.tolist()
    whole = vector.whole.tolist()
    text: list[Any] = vector.text.to_pylist() if vector.text.null_count < len(vector) else [None] * len(vector)
    months = [0] * len(vector) if vector.months is None else vector.months.tolist()
    found: list[Plain] = []
    for i, k in enumerate(kind):
        if k == NUMBER:
            found.append(integer[i] if whole[i] else number[i])
        elif k == STRING:
            found.append(text[i])
        elif k == BOOLEAN:
            found.append(bool(integer[i]))
        elif k == TIME:
            found.append(Moment(integer[i]))
        else:
            found.append(Interval(months[i], integer[i]) if k == INTERVAL else None)
    return found
