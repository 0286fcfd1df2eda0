"""What a test of a computed value asks of the attributes that it is computed from.

    abs(price - 17) < 3        price between 14 and 20
    price * 1.19 <= 99         price at most 83.2
    geo_distance(lat, lon, 52.52, 13.40) < 5000        lat between 52.47 and 52.57, lon between 13.32 and 13.48

Interval arithmetic from the result back to the attributes, for all tests of one form at once: their constants are
columns. A range is wider than the truth, never narrower: computed values are float64 or exact integers, whose results
are within half an ulp of the truth, and every end is moved out by far more than that (SLACK of all that it is made of,
and TINY, for what underflows). What has no rule here has no range: it only asks that the attribute is there, which
holds for every function that gives NULL for NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dibs.coding.computed.running import evaluate
from dibs.coding.computed.vectors import NUMBER, Vector
from dibs.language.functions.places import DEGREE, RADIUS
from dibs.language.scalars import Call, Field, Scalar, inputs_of

SLACK, TINY = 1e-12, 1e-300
LARGEST = 1.7976931348623157e308
_WHOLE = 2.0**62  # beyond it CEIL and FLOOR do not always give the number next to it
_RADIANS = 1e-7  # 0.6 m: what haversine may be wrong by, near the other end of the earth too

Floats = NDArray[np.float64]


class Ranges(NamedTuple):
    """For each test a range of numbers, both ends included; inverted: the numbers not inside it, ends included too."""

    low: Floats
    high: Floats
    nan: NDArray[np.bool_]  # NaN too
    inverted: NDArray[np.bool_]

    def meet(self, other: Ranges) -> Ranges:
        """The numbers of both, or more."""
        plain = ~self.inverted & ~other.inverted
        return Ranges(
            np.where(plain, np.maximum(self.low, other.low), self.low),
            np.where(plain, np.minimum(self.high, other.high), self.high),
            np.where(plain, self.nan & other.nan, self.nan),
            self.inverted,
        )

    @property
    def are_bounds(self) -> NDArray[np.bool_]:
        """Which exclude some number at all."""
        return np.isfinite(self.low) | np.isfinite(self.high)


def ranges(low: Floats, high: Floats, nan: NDArray[np.bool_]) -> Ranges:
    """Widened by SLACK and TINY. An end that is not a number is none."""
    return _out(low, high, nan, 0.0)


def find_bounds(scalar: Scalar, wanted: Ranges, constants: Mapping[str, Vector]) -> dict[str, Ranges]:
    """The ranges of the attributes, if the value must lie in the wanted ones. Only attributes whose value must then be
    a number are among them. constants: the columns of the fields that are none of the event."""
    found: dict[str, Ranges] = {}
    _visit(scalar, wanted, constants, found)
    return found


def _visit(scalar: Scalar, wanted: Ranges, constants: Mapping[str, Vector], found: dict[str, Ranges]) -> None:
    if isinstance(scalar, Field):
        before = found.get(scalar.name)
        found[scalar.name] = wanted if before is None else before.meet(wanted)
    if not isinstance(scalar, Call):
        return
    fixed = [_fixed(argument, constants, len(wanted.low)) for argument in scalar.arguments]
    if scalar.function == "GEO_DISTANCE":
        for argument, known, box in zip(scalar.arguments, fixed, _around(wanted, fixed)):
            if known is None and box is not None and (isinstance(argument, Field) or not box.inverted.any()):
                _visit(argument, box, constants, found)
        return
    rule = _RULES.get(scalar.function)
    if rule is None:
        return
    for place, argument in enumerate(scalar.arguments):
        if fixed[place] is None:
            with np.errstate(all="ignore"):
                own = rule(wanted, place, fixed)
            if own is not None:
                _visit(argument, own, constants, found)


def _fixed(scalar: Scalar, constants: Mapping[str, Vector], tests: int) -> Floats | None:
    """The number of each test, of a part that nothing of the event is in; NaN where it is none."""
    if any(name not in constants for name in inputs_of(scalar)):
        return None
    value = evaluate(scalar, constants, tests)
    return np.broadcast_to(np.where(value.kind == NUMBER, value.number, math.nan), tests)


# ---- from the result of a function to its argument ----


def _out(low: Floats, high: Floats, nan: NDArray[np.bool_], scale: Floats | float) -> Ranges:
    """A range, widened. scale: the size of what its ends were made of."""
    with np.errstate(all="ignore"):
        down = low - (np.abs(low) + scale) * SLACK - TINY
        up = high + (np.abs(high) + scale) * SLACK + TINY
    # What overflows is infinite, and comes from large numbers.
    down = np.where(
        low == math.inf, LARGEST * (1 - 1e-9), np.where(np.isnan(down) | (low == -math.inf), -math.inf, down)
    )
    up = np.where(high == -math.inf, -LARGEST * (1 - 1e-9), np.where(np.isnan(up) | (high == math.inf), math.inf, up))
    return Ranges(down, up, np.broadcast_to(nan, len(down)), np.zeros(len(down), np.bool_))


Rule = Callable[[Ranges, int, "list[Floats | None]"], "Ranges | None"]


def _everything(wanted: Ranges) -> Ranges:
    """Any number."""
    n = len(wanted.low)
    return Ranges(np.full(n, -math.inf), np.full(n, math.inf), np.ones(n, np.bool_), np.zeros(n, np.bool_))


def _sum(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges:
    other = fixed[1 - place]
    if other is None:
        return _everything(wanted)
    scale = np.abs(other) + _size(wanted)
    return _out(wanted.low - other, wanted.high - other, _or_odd(wanted, other), scale)


def _difference(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges:
    other = fixed[1 - place]
    if other is None:
        return _everything(wanted)
    scale = np.abs(other) + _size(wanted)
    if place == 0:
        return _out(wanted.low + other, wanted.high + other, _or_odd(wanted, other), scale)
    return _out(other - wanted.high, other - wanted.low, _or_odd(wanted, other), scale)


def _product(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges:
    other = fixed[1 - place]
    if other is None:
        return _everything(wanted)
    return _scaled(wanted.low / other, wanted.high / other, other, wanted)


def _quotient(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges:
    other = fixed[1 - place]
    if other is None or place == 1:
        return _everything(wanted)
    return _scaled(wanted.low * other, wanted.high * other, other, wanted)


def _scaled(a: Floats, b: Floats, factor: Floats, wanted: Ranges) -> Ranges:
    """Ends that a factor has changed, and perhaps exchanged. One that is 0 or infinite says nothing."""
    odd = ~np.isfinite(factor) | (factor == 0)
    low, high = np.where(factor < 0, b, a), np.where(factor < 0, a, b)
    return _out(np.where(odd, -math.inf, low), np.where(odd, math.inf, high), wanted.nan | odd, 0.0)


def _negative(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges:
    return _out(-wanted.high, -wanted.low, wanted.nan, 0.0)


def _absolute(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges:
    high = np.maximum(wanted.high, 0.0)
    return _out(-high, high, wanted.nan, 0.0)


def _next_whole(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges:
    """CEIL and FLOOR: of NaN they are 0."""
    low = np.where(wanted.low < -_WHOLE, -math.inf, wanted.low - 1.0)
    high = np.where(wanted.high > _WHOLE, math.inf, wanted.high + 1.0)
    return _out(np.minimum(low, _WHOLE), np.maximum(high, -_WHOLE), wanted.nan | ((low <= 1.0) & (high >= -1.0)), 0.0)


def _rounded(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges | None:
    digits = fixed[1] if len(fixed) > 1 else np.zeros(len(wanted.low))
    if place == 1 or digits is None:
        return None
    unit = np.maximum(1.0, 10.0 ** np.minimum(-digits, 400.0))
    return _out(wanted.low - unit, wanted.high + unit, wanted.nan | np.isnan(unit), _size(wanted))


def _square_root(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges:
    """Of what is below 0 it is NaN."""
    low, high = np.maximum(wanted.low, 0.0), np.maximum(wanted.high, 0.0)
    return _out(np.where(wanted.nan, -math.inf, low * low - TINY), high * high, wanted.nan, 0.0)


def _logarithm(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges:
    low, high = np.exp(wanted.low - 1e-9), np.exp(wanted.high + 1e-9)
    return _out(low * (1 - 1e-9), high * (1 + 1e-9), wanted.nan, 0.0)


def _exponential(wanted: Ranges, place: int, fixed: list[Floats | None]) -> Ranges:
    low, high = (np.log(np.maximum(x, 1e-308)) for x in (wanted.low, wanted.high))
    return _out(np.where(wanted.low < 1e-300, -math.inf, low - 1e-9), np.maximum(high, -690.0) + 1e-9, wanted.nan, 1e3)


def _size(wanted: Ranges) -> Floats:
    return np.where(np.isfinite(wanted.low), np.abs(wanted.low), 0.0) + np.where(
        np.isfinite(wanted.high), np.abs(wanted.high), 0.0
    )


def _or_odd(wanted: Ranges, other: Floats) -> NDArray[np.bool_]:
    """Whether NaN may be among what gives what is wanted."""
    return wanted.nan | ~np.isfinite(other)


_RULES: dict[str, Rule] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
    "NEGATIVE": _negative,
    "ABS": _absolute,
    "CEIL": _next_whole,
    "CEILING": _next_whole,
    "FLOOR": _next_whole,
    "ROUND": _rounded,
    "SQRT": _square_root,
    "LN": _logarithm,
    "EXP": _exponential,
}


# ---- circles ----


def _around(wanted: Ranges, fixed: list[Floats | None]) -> list[Ranges | None]:
    """The box around a circle: of latitudes, and of longitudes, where it holds no pole. Beyond the date line it goes on
    at the other end. NaN is no latitude and no longitude."""
    middle = 0 if fixed[0] is not None and fixed[1] is not None else 2
    lat, lon = fixed[middle], fixed[middle + 1]
    if lat is None or lon is None:
        return [None] * 4
    with np.errstate(all="ignore"):
        angle = np.minimum(np.maximum(wanted.high, 0.0) / RADIUS * (1 + 1e-9) + _RADIANS, math.pi)
        angle = np.where(np.isnan(angle), math.pi, angle)
        degrees = angle / DEGREE
        has_pole = ~((lat + degrees < 89.9999) & (lat - degrees > -89.9999))  # also where it is no place
        aside = np.arcsin(np.minimum(1.0, np.sin(angle) / np.cos(lat * DEGREE))) / DEGREE + 1e-5
        aside = np.where(has_pole | np.isnan(aside), 360.0, aside)
        west, east = lon - aside, lon + aside
    nan = np.zeros(len(angle), np.bool_)
    over = (west < -180.0) | (east > 180.0)
    low = np.where(west < -180.0, east, np.where(east > 180.0, east - 360.0, west))
    high = np.where(west < -180.0, west + 360.0, np.where(east > 180.0, west, east))
    everywhere = ~(aside < 179.0) | (over & ~(low + 1e-6 < high - 1e-6))
    across = _out(np.where(everywhere, -math.inf, low), np.where(everywhere, math.inf, high), nan, 360.0)
    over &= ~everywhere
    # Of an inverted range it is the hole that must be smaller.
    low, high = np.where(over, low + 1e-6, across.low), np.where(over, high - 1e-6, across.high)
    far = ~(degrees < 179.0)
    along = np.where(far, -math.inf, lat - degrees - 1e-5), np.where(far, math.inf, lat + degrees + 1e-5)
    return [_out(*along, nan, 90.0), Ranges(low, high, nan, over)] * 2
