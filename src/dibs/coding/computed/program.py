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
    ADD_MONTHS,
    AND,
    BOOLEAN,
    BOTH_ENDS,
    COALESCE,
    COMPARED,
    CONCAT,
    CONTAINS,
    DAY_OF,
    DAYS_BETWEEN,
    DEPTH,
    DIVIDE,
    ENDS_WITH,
    EPOCH,
    EXP,
    FIELD,
    FIND,
    FROM_EPOCH,
    GEO_DISTANCE,
    GREATEST,
    HOLE,
    IF,
    INTERVAL,
    IP_KEY,
    IS_NOT_NULL,
    IS_NULL,
    LAST_DAY,
    LEAST,
    LEFT_END,
    LENGTH,
    LIKE,
    LITERAL,
    LN,
    LOG2,
    LOG10,
    LOWER,
    LPAD,
    MICROSECONDS,
    MONTHS_LATER,
    MOST_STEPS,
    NEGATIVE,
    NOT,
    NOW,
    NULL,
    NULLIF,
    NUMBER,
    OR,
    POWER,
    REMAINDER,
    REPLACE,
    REVERSE,
    RIGHT_END,
    ROUND_TO,
    RPAD,
    SAME,
    SIGNS,
    SPLIT_PART,
    STARTS_WITH,
    STRING,
    SUBSTRING,
    TEXT_OF,
    TIME,
    TIME_PART,
    TO_BOOLEAN,
    TO_DOUBLE,
    TO_INTEGER,
    TO_TIME,
    TODAY,
    TRIM,
    TRIM_OF,
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
from dibs.language.functions.plain import MOST, Moment, Plain, is_integer, plain_of
from dibs.language.functions.times import PARTS
from dibs.language.scalars import Call, Field, Interval, Scalar, Value

_PARTS = ("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFWEEK", "WEEKDAY", "DAYOFYEAR", "WEEKOFYEAR")
_CLOCK = ("HOUR", "MINUTE", "SECOND")
_OF_A_NUMBER = ("NEGATIVE", "ABS", "SQRT", "CEIL", "FLOOR", "ROUND", "SIGN", "~")
_MINUTE, _SECOND, _MILLI = SIZES["MINUTE"], SIZES["SECOND"], SIZES["MILLISECOND"]
assert tuple(SIZES.values()) == UNIT_SIZES
# By function: its step, the argument of that, and how many values it takes.
_STEPS: dict[str, tuple[int, int, int]] = {
    **{sign: (ADD + i, 0, 2) for i, sign in enumerate(("+", "-", "*", "/", "%", "DIV", "&", "|", "^", "<<", ">>"))},
    **{sign: (COMPARED + i, 0, 2) for i, sign in enumerate(SIGNS)},
    **{part: (TIME_PART + i, 0, 1) for i, part in enumerate((*_PARTS, *_CLOCK))},
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
    "ADD_MONTHS": (ADD_MONTHS, 0, 2),
    "LAST_DAY": (LAST_DAY, 0, 1),
    "EXP": (EXP, 0, 1),
    "LN": (LN, 0, 1),
    "LOG10": (LOG10, 0, 1),
    "LOG2": (LOG2, 0, 1),
    "POWER": (POWER, 0, 2),
    "REVERSE": (REVERSE, 0, 1),
    "BTRIM": (TRIM_OF, BOTH_ENDS, 2),
    "INSTR": (FIND, 0, 2),
    "STARTSWITH": (STARTS_WITH, 0, 2),
    "ENDSWITH": (ENDS_WITH, 0, 2),
    "CONTAINS": (CONTAINS, 0, 2),
    "SUBSTRING": (SUBSTRING, 0, 3),
    "SPLIT_PART": (SPLIT_PART, 0, 3),
    "REPLACE": (REPLACE, 0, 3),
    "LPAD": (LPAD, 0, 3),
    "RPAD": (RPAD, 0, 3),
}
_ENDS = {"TRIM": BOTH_ENDS, "BTRIM": BOTH_ENDS, "LTRIM": LEFT_END, "RTRIM": RIGHT_END}
_LAST_ARGUMENT: dict[str, Plain] = {"SUBSTRING": 2**31, "REPLACE": "", "LPAD": " ", "RPAD": " "}  # where it is left out
_BITS = {"BIGINT": 64, "INT": 32, "SMALLINT": 16, "TINYINT": 8}
_CASTS = {
    "STRING": (TEXT_OF, 0),
    "DATE": (DAY_OF, 0),
    "TIMESTAMP": (TO_TIME, 0),
    "DOUBLE": (TO_DOUBLE, 0),
    "BOOLEAN": (TO_BOOLEAN, 0),
    **{name: (TO_INTEGER, bits) for name, bits in _BITS.items()},
}
_ONE, _STRING, _ESCAPE = Value(Literal(Kind.NUMBER, 1)), *(Value(Literal(Kind.STRING, s)) for s in ("STRING", "\\"))
_FOLDED = {"AND": AND, "OR": OR, "COALESCE": COALESCE, "NVL": COALESCE, "||": CONCAT, "CONCAT": CONCAT}
_EXTREMES = {"GREATEST": GREATEST, "LEAST": LEAST}
_MAKES_TEXTS = (LITERAL, LOWER, UPPER, CONCAT, IP_KEY, TEXT_OF, REVERSE, REPLACE, LPAD, RPAD)


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
        if isinstance(value, Interval) and (value.months or abs(value.microseconds) > MOST):
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
        if function in ("+", "-") and isinstance(arguments[1], Interval) and arguments[1].months:
            self._later(arguments[0], arguments[1], 1 if function == "+" else -1)
        elif known is not None and known[2] == len(arguments):
            self._all(arguments, *known)
        elif function in _LAST_ARGUMENT and len(arguments) == 2:
            for argument in arguments:
                self._add(argument)
            self._literal(_LAST_ARGUMENT[function])
            self._step(known[0], 0, 3)  # type: ignore[index]
        elif function in _FOLDED and len(arguments) > 1:
            self._add(arguments[0])
            for argument in arguments[1:]:
                self._add(argument)
                self._step(_FOLDED[function], 0, 2)
        elif function in _EXTREMES:
            self._all(arguments, _EXTREMES[function], len(arguments), len(arguments))
        elif function == "IN" and len(arguments) > 1:
            self._either(*arguments)
        elif function == "BETWEEN":
            value, low, high = arguments
            self._all((value, low), COMPARED + SIGNS.index(">="), 0, 2)
            self._all((value, high), COMPARED + SIGNS.index("<="), 0, 2)
            self._step(AND, 0, 2)
        elif function == "CASE":
            self._case(arguments)
        elif function == "CAST" and (cast := _CASTS.get(_said(arguments[1]) or "")):
            self._all(arguments[:1], *cast, 1)
        elif function in ("DATE_TRUNC", "TIMESTAMPDIFF", "TIMESTAMPADD", "DATE_PART"):
            self._with_unit(function, arguments)
        elif function == "ROUND":
            self._all(arguments, ROUND_TO, 0, 2)
        elif function == "SAME_TEXT":
            self._either(*(Call("CAST", (each, _STRING)) for each in arguments))
        elif function == "NVL2":
            self._call("IF", (Call("ISNOTNULL", arguments[:1]), *arguments[1:]))
        else:
            self._text_call(function, arguments)

    def _text_call(self, function: str, arguments: tuple[Scalar, ...]) -> None:
        if function in _ENDS:
            if len(arguments) == 1:
                self._all(arguments, TRIM, _ENDS[function], 1)
            else:  # what goes stands first
                self._all(arguments[::-1], TRIM_OF, _ENDS[function], 2)
        elif function == "LOCATE" and len(arguments) == 2:
            self._all(arguments[::-1], FIND, 0, 2)
        elif function == "LEFT":
            self._all((arguments[0], _ONE, arguments[1]), SUBSTRING, 0, 3)
        elif function == "RIGHT" and (size := _number_said(arguments[1])) is not None:
            self._add(arguments[0])
            self._literal(-size)
            self._literal(size)
            self._step(SUBSTRING, 0, 3)
        elif function == "LIKE" and _is_plain_pattern(*arguments[1:]):
            self._all(arguments[:2], LIKE, 0, 2)
        else:
            raise _NoProgram

    def _seconds(self) -> None:
        """Those of a minute, with their fraction."""
        self._step(EPOCH, 1, 1)
        for op, number in ((REMAINDER, _MINUTE), (ADD, _MINUTE), (REMAINDER, _MINUTE), (DIVIDE, _SECOND)):
            self._literal(number)
            self._step(op, 0, 2)

    def _later(self, value: Scalar, interval: Interval, sign: int) -> None:
        months, rest = sign * interval.months, sign * interval.microseconds
        if abs(months) >= 2**31:
            raise _NoProgram
        self._all((value,), MONTHS_LATER, months, 1)
        if rest:
            self._literal(Interval(0, rest))
            self._step(ADD, 0, 2)

    def _all(self, arguments: Sequence[Scalar], op: int, argument: int, takes: int) -> None:
        for each in arguments:
            self._add(each)
        self._step(op, argument, takes)

    def _either(self, value: Scalar, *others: Scalar) -> None:
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
        unit = (_said(arguments[0]) or "").upper()
        if function == "DATE_PART" and (part := PARTS.get(unit)) is not None:
            self._all(arguments[1:], NOW, 0, 1)
            if part == "SECOND":
                self._seconds()
            else:
                self._step(*_STEPS[part])
        elif function == "TIMESTAMPADD" and unit in (*SIZES, *MONTHS):
            number = _number_said(arguments[1])
            if number is None:
                raise _NoProgram
            later = Interval(number * MONTHS.get(unit, 0), number * SIZES.get(unit, 0))
            self._later(Call("TO_TIMESTAMP", arguments[2:]), later, 1)
        elif function == "TIMESTAMPDIFF" and unit in SIZES:
            self._all(arguments[1:], UNITS, _unit(SIZES[unit]), 2)
        elif function == "DATE_TRUNC" and unit in MONTHS:
            self._all(arguments[1:], TRUNCATE, -MONTHS[unit], 1)
        elif function == "DATE_TRUNC" and unit in SIZES:
            self._all(arguments[1:], TRUNCATE, _unit(SIZES[unit]), 1)
        else:
            raise _NoProgram


def _is_plain_pattern(pattern: Scalar, escape: Scalar = _ESCAPE) -> bool:
    """Whether it is a constant in which nothing is escaped."""
    form, sign = _said(pattern), _said(escape)
    return form is not None and sign is not None and len(sign) == 1 and sign not in form


def _said(scalar: Scalar) -> str | None:
    """The text of a constant."""
    value = plain_of(scalar.literal) if isinstance(scalar, Value) else None
    return value if isinstance(value, str) else None


def _number_said(scalar: Scalar) -> int | None:
    """A whole number that is a constant, and not too large to compute with."""
    value = plain_of(scalar.literal) if isinstance(scalar, Value) else None
    return int(value) if is_integer(value) and abs(value) < 2**40 else None  # type: ignore[arg-type]


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
