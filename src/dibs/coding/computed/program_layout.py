"""What programs (program.py) and the machine that runs them (program_kernels.py) agree on: the numbers of steps, and
the groups of arrays. It imports little: kernels are compiled again when it, or what it imports, changes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.language.expression import Kind

BOOLEAN, NUMBER, STRING, TIME = (int(kind) for kind in (Kind.BOOLEAN, Kind.NUMBER, Kind.STRING, Kind.TIME))
INTERVAL, NULL = 4, 5

# Steps. The argument of the first three is a place; of GREATEST and LEAST, how many values; of units, their size.
FIELD, HOLE, LITERAL = range(3)
ADD, SUBTRACT, MULTIPLY, DIVIDE, REMAINDER, QUOTIENT, BITS_AND, BITS_OR, BITS_XOR, LEFT, RIGHT = range(3, 14)
NEGATIVE, ABS, SQRT, CEIL, FLOOR, ROUND, SIGN, BITS_NOT, GEO_DISTANCE = range(14, 23)
COMPARED = 23  # = <> < <= > >=, in this order
SAME, AND, OR, NOT, IS_NULL, IS_NOT_NULL, IF, COALESCE, NULLIF, GREATEST, LEAST = range(29, 40)
LOWER, UPPER, LENGTH, CONCAT, IP_KEY = range(40, 45)
NOW, TODAY, MICROSECONDS, EPOCH, FROM_EPOCH, DAY_OF, DAYS_BETWEEN, ADD_DAYS, TRUNCATE, UNITS, UNIX = range(45, 56)
TEXT_OF = 56
TIME_PART = 57  # YEAR QUARTER MONTH DAY DAYOFWEEK WEEKDAY DAYOFYEAR WEEKOFYEAR HOUR MINUTE SECOND, in this order
EXP, LN, LOG10, LOG2, POWER, ROUND_TO = range(68, 74)
TO_INTEGER, TO_DOUBLE, TO_BOOLEAN, TO_TIME = range(74, 78)  # the argument of the first: bits
LAST_DAY, MONTHS_LATER, ADD_MONTHS = range(78, 81)
TRIM, REVERSE, TRIM_OF, FIND, STARTS_WITH, ENDS_WITH, CONTAINS, LIKE = range(81, 89)
SUBSTRING, SPLIT_PART, REPLACE, LPAD, RPAD = range(89, 94)
BOTH_ENDS, LEFT_END, RIGHT_END = range(3)  # that TRIM and TRIM_OF look at

SIGNS = ("=", "<>", "<", "<=", ">", ">=")
UNIT_SIZES = (1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 604_800_000_000)  # MICROSECOND to WEEK
SECOND, DAY, WEEK = 2, 5, 6  # places among these

FAILS, HOLDS, LEFT_OVER = range(3)  # of a test: the last one is for another evaluator
LOW_OPEN, HIGH_OPEN, TRUTH = 1, 2, 4  # flags of a test
DEPTH = 72  # of a stack: values are at most 64 deep within each other, and most have four arguments
MOST_STEPS = 256
MOST_COMBINATIONS = 10_000  # of the values of an event's arrays; a computed value of more is unknown


class Column(NamedTuple):
    """Values of any kind: those that programs read and make, constants, a stack. Row i is of kind[i]."""

    kind: NDArray[np.uint8]  # a Kind, INTERVAL or NULL
    number: NDArray[np.float64]  # of a number, the nearest float64
    integer: NDArray[np.int64]  # of a whole number the number; microseconds of times and intervals; 0 or 1 of booleans
    whole: NDArray[np.bool_]  # a number that is an integer of 64 bits
    start: NDArray[np.int64]  # of a string: where among bytes it begins, and ends
    end: NDArray[np.int64]


class ProgramLiterals(NamedTuple):
    """The constants of programs but for numbers in holes."""

    column: Column
    data: NDArray[np.uint8]


class Sources(NamedTuple):
    """What the steps of programs read. Of field k a row has the value at columns[places[k * width + place]], where the
    row says its place; below 0: none."""

    places: NDArray[np.int64]
    width: int
    columns: Column
    holes: Column
    literals: ProgramLiterals
    data: NDArray[np.uint8]  # the bytes of strings; behind them there is room for those that are made


class Machine(NamedTuple):
    """What runs a program: work space for blocks of so many rows."""

    stack: Column  # DEPTH values for each row, those of one depth together
    left: NDArray[np.bool_]  # of each row: the plain form decides
    place: NDArray[np.int64]  # of each row: which combination of fields, and where its numbers for holes begin
    hole: NDArray[np.int64]
    pair: NDArray[np.int64]  # for whom it is
    known: NDArray[np.float64]  # see distance_kernels
    groups: NDArray[np.int64]  # of an address
    free: NDArray[np.int64]  # one number: from where on bytes may be written


class Combinations(NamedTuple):
    """The combinations of values of each event."""

    start: NDArray[np.int64]  # of each event
    size: NDArray[np.int64]  # of each event


class TestEnds(NamedTuple):
    """See Residuals."""

    low: NDArray[np.float64]
    low_rest: NDArray[np.int16]
    high: NDArray[np.float64]
    high_rest: NDArray[np.int16]
    flags: NDArray[np.uint8]
