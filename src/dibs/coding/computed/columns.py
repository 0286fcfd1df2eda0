"""Functions over columns.

A form takes columns and gives a column and which of its rows are done; the other rows are computed one by one by the
function's plain form (language.functions), once for equal arguments. So a form does what is common and fast, and what
is rare (an overflow, values of mixed kinds) need not be written twice. A row that a form does must be what the plain
form gives: tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.coding.computed.vectors import (
    BOOLEAN,
    INTERVAL,
    NULL,
    NUMBER,
    STRING,
    TIME,
    Vector,
    choose,
    empty,
    of_integers,
    of_numbers,
    of_plain,
    of_texts,
    to_plain,
)
from dibs.jit.undisturbed import bring
from dibs.language.functions import FUNCTIONS, Function, apply
from dibs.language.functions.plain import Plain, plain_of
from dibs.language.functions.times import DAY, SECOND, SIZES
from dibs.language.scalars import Call, Field, Interval, Scalar, Value

Done = tuple[Vector, NDArray[np.bool_]]  # a result, and the rows that it has
Form = Callable[..., "Done | None"]
FORMS: dict[str, Form] = {}


def evaluate(scalar: Scalar, fields: Mapping[str, Vector], rows: int) -> Vector:
    """The column of a computed value."""
    if isinstance(scalar, Field):
        return fields[scalar.name]
    if isinstance(scalar, Value):
        return of_plain([plain_of(scalar.literal)])
    if isinstance(scalar, Interval):
        return of_plain([scalar])
    assert isinstance(scalar, Call)  # what sees arrays as they came is computed event by event
    arguments = [evaluate(argument, fields, rows) for argument in scalar.arguments]
    return call(FUNCTIONS[scalar.function], arguments, rows)


def call(function: Function, arguments: list[Vector], rows: int) -> Vector:
    form = FORMS.get(function.name)
    found = form(*arguments) if form is not None else None
    if found is None:
        return _row_by_row(function, arguments, rows)
    result, done = found
    if len(result) == 1 and rows != 1:
        result = result.take(np.zeros(rows, np.int64))
    done = np.broadcast_to(done, rows)
    if done.all():
        return result
    if not function.takes_null:  # NULL for NULL
        for argument in arguments:
            done = done | (argument.kind == NULL)
    left = np.flatnonzero(~done)
    if not len(left):
        return result
    some = _row_by_row(function, [argument.take(left) for argument in arguments], len(left))
    place = np.zeros(rows, np.int64)
    place[left] = np.arange(len(left))
    return choose(done, result, some.take(place))


def _row_by_row(function: Function, arguments: list[Vector], rows: int) -> Vector:
    """By the plain form, once for equal arguments."""
    columns = [to_plain(argument) for argument in arguments]
    columns = [column if len(column) == rows else column * rows for column in columns]
    known: dict[tuple[object, ...], Plain] = {}
    found: list[Plain] = []
    for values in zip(*columns):
        key = tuple((type(value), value) for value in values)
        if key not in known:
            known[key] = apply(function, values)
        found.append(known[key])
    return of_plain(found)


def form(names: str) -> Callable[[Form], Form]:
    def declare(function: Form) -> Form:
        FORMS.update(dict.fromkeys(names.split(), function))
        return function

    return declare


# ---- numbers ----


def _both(a: Vector, b: Vector, kind: int) -> NDArray[np.bool_]:
    return (a.kind == kind) & (b.kind == kind)


def _arithmetic(sign: str, whole: Callable[..., NDArray[np.int64]], real: Callable[..., NDArray[np.float64]]) -> None:
    @form(sign)
    def arithmetic(a: Vector, b: Vector) -> Done:
        numbers = _both(a, b, NUMBER)
        integers = a.whole & b.whole
        with np.errstate(all="ignore"):
            exact, near = whole(a.integer, b.integer), real(a.number, b.number)
        # Far from the limits there is no overflow; what is near them is left.
        safe = np.abs(near) < 2.0**62
        done = numbers & (~integers | safe)
        as_integers = integers & safe
        made = of_numbers(np.where(as_integers, 0.5, near), numbers)
        made.integer[as_integers], made.whole[as_integers] = np.broadcast_to(exact, len(done))[as_integers], True
        made.number[as_integers] = made.integer[as_integers]
        return made, done


_arithmetic("+", np.add, np.add)
_arithmetic("-", np.subtract, np.subtract)
_arithmetic("*", np.multiply, np.multiply)
_numbers_minus, _numbers_plus = FORMS["-"], FORMS["+"]


@form("-")
def subtract(a: Vector, b: Vector) -> Done | None:
    """Also times: their difference, and with an interval of no months."""
    if a.months is not None or b.months is not None:
        return None
    done = _numbers_minus(a, b)
    times = (a.kind == TIME) & (b.kind == TIME)
    if not times.any():
        return done
    assert done is not None
    passed = a.integer - b.integer  # of times of the years 1 to 9999: far from an overflow
    safe = times & (np.abs(a.integer) < 2**60) & (np.abs(b.integer) < 2**60)
    return choose(safe, of_integers(np.broadcast_to(passed, len(safe)).copy(), safe, INTERVAL), done[0]), done[1] | safe


def _numeric(names: str, real: Callable[..., NDArray[np.float64]], undefined: Callable[..., NDArray[np.bool_]]) -> None:
    """Functions of one number that always give a float64; undefined: of which rows the plain form knows."""

    @form(names)
    def numeric(a: Vector) -> Done:
        there = a.kind == NUMBER
        with np.errstate(all="ignore"):
            done = there & ~undefined(a.number)
            result = real(np.where(done, a.number, 1.0))
        return of_numbers(result, done), done


_numeric("SQRT", np.sqrt, lambda x: ~(x >= 0))


@form("/")
def divide(a: Vector, b: Vector) -> Done:
    numbers = _both(a, b, NUMBER) & (b.number != 0)
    with np.errstate(all="ignore"):
        result = np.where(numbers, a.number / np.where(b.number == 0, 1.0, b.number), 0.0)
    return of_numbers(result, numbers), numbers


@form("% MOD")
def remainder(a: Vector, b: Vector) -> Done:
    done = _both(a, b, NUMBER) & a.whole & b.whole & (b.integer != 0) & (a.integer > np.iinfo(np.int64).min)
    with np.errstate(all="ignore"):
        result = np.fmod(a.integer, np.where(b.integer == 0, 1, b.integer))
    return of_integers(np.where(done, result, 0), done), done


@form("NEGATIVE")
def negative(a: Vector) -> Done:
    done = (a.kind == NUMBER) & ~(a.whole & (a.integer == np.iinfo(np.int64).min))
    made = of_numbers(-a.number, done)
    made.integer[:] = np.where(a.whole & done, -a.integer, made.integer)
    made.whole[:] = np.where(done, a.whole, False)
    return made, done


@form("ABS")
def absolute(a: Vector) -> Done:
    done = (a.kind == NUMBER) & ~(a.whole & (a.integer == np.iinfo(np.int64).min))
    made = of_numbers(np.abs(a.number), done)
    made.integer[:] = np.where(a.whole & done, np.abs(a.integer), made.integer)
    made.whole[:] = np.where(done, a.whole, False)
    return made, done


def _rounding(names: str, real: Callable[..., NDArray[np.float64]]) -> None:
    @form(names)
    def rounding(a: Vector) -> Done:
        done = (a.kind == NUMBER) & (a.whole | (np.abs(a.number) < 2.0**62))
        result = np.where(a.whole, a.integer, real(np.where(done & ~a.whole, a.number, 0.0)).astype(np.int64))
        return of_integers(np.where(done, result, 0), done), done


_rounding("CEIL CEILING", np.ceil)
_rounding("FLOOR", np.floor)


@form("GEO_DISTANCE")
def geo_distance(*places: Vector) -> Done:
    kernels: Any = bring("dibs.coding.computed.distance_kernels")
    rows = max(map(len, places))
    there = np.ones(rows, np.bool_)
    for place in places:
        there &= place.kind == NUMBER
    metres = np.empty(rows, np.float64)
    kernels.measure(*(np.ascontiguousarray(np.broadcast_to(place.number, rows)) for place in places), metres)
    return of_numbers(metres, there & ~np.isnan(metres)), np.ones(1, np.bool_)


# ---- comparisons and logic ----


def _comparison(sign: str, compare: Callable[..., NDArray[np.bool_]], text: Callable[..., pa.Array]) -> None:
    @form(sign)
    def comparison(a: Vector, b: Vector) -> Done:
        same = a.kind == b.kind
        null = (a.kind == NULL) | (b.kind == NULL)
        numbers = same & (a.kind == NUMBER)
        both_whole = a.whole & b.whole
        # A whole number beside a fraction, or two fractions: exact below 2^53, where both are float64; NaN is left.
        real = numbers & ~both_whole & (np.abs(a.number) < 2.0**53) & (np.abs(b.number) < 2.0**53)
        plain = (numbers & both_whole) | (same & ((a.kind == TIME) | (a.kind == BOOLEAN)))
        with np.errstate(invalid="ignore"):
            result = np.where(plain, compare(a.integer, b.integer), compare(a.number, b.number))
        done = null | plain | real
        strings = same & (a.kind == STRING)
        if strings.any():
            first, second = (v.text.cast(pa.large_binary()) for v in (a, b))  # bytes are ordered as characters are
            found = text(first if len(a) > 1 else first[0], second if len(b) > 1 else second[0])
            if isinstance(found, pa.Scalar):
                found = pa.array([found.as_py()])
            result = np.where(strings, found.fill_null(False).to_numpy(zero_copy_only=False), result)
            done = done | strings
        other = ~same & ~null & ~((a.kind == TIME) & (b.kind == STRING)) & ~((a.kind == STRING) & (b.kind == TIME))
        return _booleans(result, plain | real | strings), done | other


def _booleans(result: NDArray[np.bool_], there: NDArray[np.bool_]) -> Vector:
    return of_integers((result & there).astype(np.int64), there, BOOLEAN)


_comparison("=", np.equal, pc.equal)
_comparison("<>", np.not_equal, pc.not_equal)
_comparison("<", np.less, pc.less)
_comparison("<=", np.less_equal, pc.less_equal)
_comparison(">", np.greater, pc.greater)
_comparison(">=", np.greater_equal, pc.greater_equal)


def _truths(a: Vector) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where it is TRUE, and where FALSE."""
    boolean = a.kind == BOOLEAN
    return boolean & (a.integer == 1), boolean & (a.integer == 0)


@form("AND")
def both(*values: Vector) -> Done:
    true, false = np.ones(1, np.bool_), np.zeros(1, np.bool_)
    for yes, no in map(_truths, values):
        true, false = true & yes, false | no
    return _booleans(true, true | false), np.ones(1, np.bool_)


@form("OR")
def either(*values: Vector) -> Done:
    true, false = np.zeros(1, np.bool_), np.ones(1, np.bool_)
    for yes, no in map(_truths, values):
        true, false = true | yes, false & no
    return _booleans(true, true | false), np.ones(1, np.bool_)


@form("NOT")
def opposite(a: Vector) -> Done:
    true, false = _truths(a)
    return _booleans(false, true | false), np.ones(1, np.bool_)


@form("ISNULL")
def is_null(a: Vector) -> Done:
    return _booleans(a.kind == NULL, np.ones(len(a), np.bool_)), np.ones(1, np.bool_)


@form("ISNOTNULL")
def is_not_null(a: Vector) -> Done:
    return _booleans(a.kind != NULL, np.ones(len(a), np.bool_)), np.ones(1, np.bool_)


@form("IF IFF")
def choose_one(condition: Vector, yes: Vector, no: Vector) -> Done:
    return choose(_truths(condition)[0], yes, no), np.ones(1, np.bool_)


@form("COALESCE NVL IFNULL")
def coalesce(*values: Vector) -> Done:
    result = values[0]
    for value in values[1:]:
        result = choose(result.kind != NULL, result, value)
    return result, np.ones(1, np.bool_)


@form("CASE")
def case(*arguments: Vector) -> Done:
    last = arguments[-1] if len(arguments) % 2 else empty(1)
    for i in range(len(arguments) // 2 * 2 - 2, -1, -2):
        last = choose(_truths(arguments[i])[0], arguments[i + 1], last)
    return last, np.ones(1, np.bool_)


# ---- strings ----


def _ascii_form(names: str, ascii_form: Callable[[pa.Array], pa.Array]) -> None:
    """What is simple in ASCII and has its own rules beyond."""

    @form(names)
    def over_texts(a: Vector) -> Done:
        done = (a.kind == STRING) & pc.string_is_ascii(a.text).fill_null(False).to_numpy(zero_copy_only=False)
        return of_texts(ascii_form(a.text), done), done


_ascii_form("LOWER LCASE", pc.ascii_lower)
_ascii_form("UPPER UCASE", pc.ascii_upper)


@form("LENGTH CHAR_LENGTH CHARACTER_LENGTH LEN")
def length(a: Vector) -> Done:
    done = a.kind == STRING
    size = pc.utf8_length(a.text).fill_null(0).to_numpy(zero_copy_only=False)
    return of_integers(size.astype(np.int64), done), done


@form("CAST TRY_CAST")
def cast(a: Vector, to: Vector) -> Done | None:
    """Strings and whole numbers to strings."""
    if len(to) != 1 or to.text[0].as_py() != "STRING":
        return None
    strings = a.kind == STRING
    done = strings | ((a.kind == NUMBER) & a.whole)
    numbers = pa.array(a.integer).cast(pa.large_string())
    return of_texts(pc.if_else(pa.array(strings), a.text, numbers), done), done


@form("IP_KEY")
def ip_key(a: Vector) -> Done:
    kernels: Any = bring("dibs.coding.computed.network_kernels")
    _, ends, content = a.text.buffers()
    offsets = np.frombuffer(ends, np.int64)[a.text.offset : a.text.offset + len(a) + 1]
    data = np.frombuffer(content or b"", np.uint8)
    own, keys = np.empty(len(a) + 1, np.int64), np.empty(kernels.KEY * len(a), np.uint8)
    kernels.read_addresses(offsets, data, own, keys)
    there = (np.diff(own) > 0) & (a.kind == STRING)
    valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    texts = pa.Array.from_buffers(pa.large_string(), len(a), [valid, pa.py_buffer(own), pa.py_buffer(keys)])
    return of_texts(texts, there), np.ones(len(a), np.bool_)


# ---- times ----


def _time_part(names: str, part: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> None:
    @form(names)
    def over_times(a: Vector) -> Done:
        done = (a.kind == TIME) & (a.integer >= _FIRST) & (a.integer <= _LAST)
        return of_integers(part(np.where(done, a.integer, 0)).astype(np.int64), done), done


_FIRST, _LAST = -62_135_596_800 * SECOND, 253_402_300_799 * SECOND  # the years 1 to 9999


@form("NOW CURRENT_TIMESTAMP")
def present(a: Vector) -> Done:
    done = a.kind != STRING  # of an event's own time
    return choose(a.kind == TIME, a, empty(1)), done


def _months(micros: NDArray[np.int64]) -> NDArray[np.int64]:
    return micros.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def _day_of_month(micros: NDArray[np.int64]) -> NDArray[np.int64]:
    month = micros.astype("datetime64[us]").astype("datetime64[M]")
    return micros // DAY - month.astype("datetime64[D]").astype(np.int64) + 1


_time_part("YEAR", lambda t: _months(t) // 12 + 1970)
_time_part("MONTH", lambda t: _months(t) % 12 + 1)
_time_part("QUARTER", lambda t: _months(t) % 12 // 3 + 1)
_time_part("DAY DAYOFMONTH", _day_of_month)
_time_part("WEEKDAY", lambda t: (t // DAY + 3) % 7)
_time_part("DAYOFWEEK", lambda t: (t // DAY + 4) % 7 + 1)
_time_part("HOUR", lambda t: t // SIZES["HOUR"] % 24)
_time_part("MINUTE", lambda t: t // SIZES["MINUTE"] % 60)
_time_part("SECOND", lambda t: t // SECOND % 60)


@form("INTERVAL_MICROSECONDS")
def interval_microseconds(a: Vector) -> Done | None:
    if a.months is not None:
        return None
    done = a.kind == INTERVAL
    return of_integers(np.where(done, a.integer, 0), done), done
