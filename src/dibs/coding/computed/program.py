"""Computed values as programs of a stack: a small machine (program_kernels.py) runs them over blocks of rows, and over
the values of one event within its compiled call.

    abs(price - c)        FIELD price, NUMBER c, SUBTRACT, ABS
    lower(a) = 'x'        FIELD a, LOWER, LITERAL 'x', COMPARED + 0

Values are of any kind, as plain values are (language.functions.plain), and each step does what the plain form of its
function does, or leaves the row: then the plain form decides. What has no step here has no program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.computed.program_layout import (
    ADD,
    ADD_DAYS,
    AND,
    BOOLEAN,
    COALESCE,
    COMPARED,
    CONCAT,
    DAY_OF,
    DAYS_BETWEEN,
    DEPTH,
    EPOCH,
    FIELD,
    FROM_EPOCH,
    GEO_DISTANCE,
    GREATEST,
    HOLE,
    IF,
    INTERVAL,
    IP_KEY,
    IS_NOT_NULL,
    IS_NULL,
    LEAST,
    LENGTH,
    LITERAL,
    LOWER,
    MICROSECONDS,
    MOST_STEPS,
    NEGATIVE,
    NOT,
    NOW,
    NULL,
    NULLIF,
    NUMBER,
    OR,
    SAME,
    SIGNS,
    STRING,
    TEXT_OF,
    TIME,
    TIME_PART,
    TODAY,
    TRUNCATE,
    UNIT_SIZES,
    UNITS,
    UNIX,
    UPPER,
    Column,
    Machine,
    ProgramLiterals,
)
from dibs.language.expression import MONTHS, Kind, Literal
from dibs.language.expression import UNITS as SIZES
from dibs.language.functions.plain import Moment, Plain, plain_of
from dibs.language.scalars import Call, Field, Interval, Scalar, Value

_PARTS = ("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFWEEK", "WEEKDAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND")
_OF_A_NUMBER = ("NEGATIVE", "ABS", "SQRT", "CEIL", "FLOOR", "ROUND", "SIGN", "~")
_SECOND, _MILLI = SIZES["SECOND"], SIZES["MILLISECOND"]
assert tuple(SIZES.values()) == UNIT_SIZES
# By function: its step, the argument of that, and how many values it takes.
_STEPS: dict[str, tuple[int, int, int]] = {
    **{sign: (ADD + i, 0, 2) for i, sign in enumerate(("+", "-", "*", "/", "%", "DIV", "&", "|", "^", "<<", ">>"))},
    **{sign: (COMPARED + i, 0, 2) for i, sign in enumerate(SIGNS)},
    **{part: (TIME_PART + i, 0, 1) for i, part in enumerate(_PARTS)},
    **{name: (NEGATIVE + i, 0, 1) for i, name in enumerate(_OF_A_NUMBER)},
    "GEO_DISTANCE": (GEO_DISTANCE, 0, 4),
    "<=>": (SAME, 0, 2),
    "NOT": (NOT, 0, 1),
    "ISNULL": (IS_NULL, 0, 1),
    "ISNOTNULL": (IS_NOT_NULL, 0, 1),
    "IF": (IF, 0, 3),
    "NULLIF": (NULLIF, 0, 2),
    "LOWER": (LOWER, 0, 1),
    "UPPER": (UPPER, 0, 1),
    "LENGTH": (LENGTH, 0, 1),
    "IP_KEY": (IP_KEY, 0, 1),
    "NOW": (NOW, 0, 1),
    "TO_TIMESTAMP": (NOW, 0, 1),
    "CURRENT_DATE": (TODAY, 0, 1),
    "INTERVAL_MICROSECONDS": (MICROSECONDS, 0, 1),
    "UNIX_TIMESTAMP": (UNIX, 0, 1),
    "UNIX_SECONDS": (EPOCH, _SECOND, 1),
    "UNIX_MILLIS": (EPOCH, _MILLI, 1),
    "UNIX_MICROS": (EPOCH, 1, 1),
    "TIMESTAMP_SECONDS": (FROM_EPOCH, _SECOND, 1),
    "TIMESTAMP_MILLIS": (FROM_EPOCH, _MILLI, 1),
    "TIMESTAMP_MICROS": (FROM_EPOCH, 1, 1),
    "TO_DATE": (DAY_OF, 0, 1),
    "DATEDIFF": (DAYS_BETWEEN, 0, 2),
    "DATE_ADD": (ADD_DAYS, 1, 2),
    "DATE_SUB": (ADD_DAYS, -1, 2),
}
_FOLDED = {"AND": AND, "OR": OR, "COALESCE": COALESCE, "NVL": COALESCE, "||": CONCAT, "CONCAT": CONCAT}
_EXTREMES = {"GREATEST": GREATEST, "LEAST": LEAST}
_MAKES_TEXTS = (LITERAL, LOWER, UPPER, CONCAT, IP_KEY, TEXT_OF)


class Program(NamedTuple):
    code: NDArray[np.int32]  # steps with their arguments
    literals: list[Plain]
    makes_texts: bool  # so that it needs room for bytes


class _NoProgram(Exception):
    pass


def program_of(scalar: Scalar, fields: Sequence[str], holes: Sequence[str] = ()) -> Program | None:
    """fields, holes: the names of fields in the order of their places. None: it has no program."""
    try:
        return _Writer(fields, holes).write(scalar)
    except _NoProgram:
        return None


class _Writer:
    def __init__(self, fields: Sequence[str], holes: Sequence[str]):
        self._places = {name: (FIELD, k) for k, name in enumerate(fields)}
        self._places |= {name: (HOLE, k) for k, name in enumerate(holes)}
        self._steps: list[tuple[int, int]] = []
        self._literals: list[Plain] = []
        self._depth = 0

    def write(self, scalar: Scalar) -> Program:
        self._add(scalar)
        code = np.array(self._steps, np.int32).reshape(-1, 2)
        makes_texts = any(isinstance(literal, str) for literal in self._literals) or any(
            op in _MAKES_TEXTS and op != LITERAL for op, _ in self._steps
        )
        return Program(code, self._literals, makes_texts)

    def _step(self, op: int, argument: int, takes: int) -> None:
        self._steps.append((op, argument))
        self._depth += 1 - takes
        if self._depth > DEPTH or len(self._steps) > MOST_STEPS:
            raise _NoProgram

    def _literal(self, value: Plain) -> None:
        if isinstance(value, Interval) and value.months:
            raise _NoProgram
        self._literals.append(value)
        self._step(LITERAL, len(self._literals) - 1, 0)

    def _add(self, scalar: Scalar) -> None:
        if isinstance(scalar, Field):
            self._step(*self._places[scalar.name], 0)
        elif isinstance(scalar, Value):
            self._literal(plain_of(scalar.literal))
        elif isinstance(scalar, Interval):
            self._literal(scalar)
        elif isinstance(scalar, Call):
            self._call(scalar.function, scalar.arguments)
        else:
            raise _NoProgram

    def _call(self, function: str, arguments: tuple[Scalar, ...]) -> None:
        known = _STEPS.get(function)
        if known is not None and known[2] == len(arguments):
            self._all(arguments, *known)
        elif function in _FOLDED and len(arguments) > 1:
            self._add(arguments[0])
            for argument in arguments[1:]:
                self._add(argument)
                self._step(_FOLDED[function], 0, 2)
        elif function in _EXTREMES:
            self._all(arguments, _EXTREMES[function], len(arguments), len(arguments))
        elif function == "IN" and len(arguments) > 1:
            self._either(arguments[0], arguments[1:])
        elif function == "BETWEEN":
            value, low, high = arguments
            self._all((value, low), COMPARED + SIGNS.index(">="), 0, 2)
            self._all((value, high), COMPARED + SIGNS.index("<="), 0, 2)
            self._step(AND, 0, 2)
        elif function == "CASE":
            self._case(arguments)
        elif function == "CAST" and arguments[1] == Value(Literal(Kind.STRING, "STRING")):
            self._all(arguments[:1], TEXT_OF, 0, 1)
        elif function in ("DATE_TRUNC", "TIMESTAMPDIFF"):
            self._with_unit(function, arguments)
        else:
            raise _NoProgram

    def _all(self, arguments: Sequence[Scalar], op: int, argument: int, takes: int) -> None:
        for each in arguments:
            self._add(each)
        self._step(op, argument, takes)

    def _either(self, value: Scalar, others: Sequence[Scalar]) -> None:
        for i, other in enumerate(others):
            self._all((value, other), COMPARED + SIGNS.index("="), 0, 2)
            if i:
                self._step(OR, 0, 2)

    def _case(self, arguments: tuple[Scalar, ...]) -> None:
        for argument in arguments:
            self._add(argument)
        if len(arguments) % 2 == 0:
            self._literal(None)
        for _ in range(len(arguments) // 2):
            self._step(IF, 0, 3)

    def _with_unit(self, function: str, arguments: tuple[Scalar, ...]) -> None:
        said = arguments[0]
        unit = said.literal.value if isinstance(said, Value) and said.literal is not None else None
        unit = unit.upper() if isinstance(unit, str) else ""
        if function == "TIMESTAMPDIFF" and unit in SIZES:
            self._all(arguments[1:], UNITS, _unit(SIZES[unit]), 2)
        elif function == "DATE_TRUNC" and unit in MONTHS:
            self._all(arguments[1:], TRUNCATE, -MONTHS[unit], 1)
        elif function == "DATE_TRUNC" and unit in SIZES:
            self._all(arguments[1:], TRUNCATE, _unit(SIZES[unit]), 1)
        else:
            raise _NoProgram


def _unit(size: int) -> int:
    """The argument of a step that has a size: its place, as a day has more microseconds than an int32 holds."""
    return UNIT_SIZES.index(size)


def empty_column(rows: int) -> Column:
    """All NULL."""
    return Column(
        np.full(rows, NULL, np.uint8),
        np.zeros(rows, np.float64),
        np.zeros(rows, np.int64),
        np.zeros(rows, np.bool_),
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
    )


def literals_of(values: Sequence[Plain]) -> ProgramLiterals:
    """Plain values as constants of programs."""
    made, texts = empty_column(len(values)), b""
    for i, value in enumerate(values):
        if isinstance(value, bool):
            made.kind[i], made.integer[i] = BOOLEAN, value
        elif isinstance(value, (int, float)):
            made.kind[i], made.number[i] = NUMBER, value
            made.whole[i] = isinstance(value, int)
            made.integer[i] = value if isinstance(value, int) else 0
        elif isinstance(value, str):
            made.kind[i], made.start[i] = STRING, len(texts)
            texts += value.encode()
            made.end[i] = len(texts)
        elif isinstance(value, Moment):
            made.kind[i], made.integer[i] = TIME, value.microseconds
        elif isinstance(value, Interval):
            made.kind[i], made.integer[i] = INTERVAL, value.microseconds
    return ProgramLiterals(made, np.frombuffer(texts, np.uint8).copy())


def machine(rows: int) -> Machine:
    """For blocks of so many rows."""
    return Machine(
        empty_column(DEPTH * rows),
        np.zeros(rows, np.bool_),
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        np.full(4, np.nan),
        np.zeros(8, np.int64),
        np.zeros(1, np.int64),
    )
