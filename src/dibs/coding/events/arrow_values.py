"""The values of one Arrow array without nulls as flat NumPy arrays: numbers, texts, times. All of it vectorised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.arrays import from_numpy, to_numpy
from dibs.coding.events.scalars import MICROSECONDS_A_DAY, decimal_number
from dibs.coding.values import float_keys, integer_keys, number_key

_LIMITS = np.iinfo(np.int64)
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MILLISECONDS_A_DAY = 86_400_000


def number_keys(array: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """(value, rest) of integers, floats and decimals of any width."""
    type_ = array.type
    if pa.types.is_decimal(type_):
        return _decimal_keys(array)
    values = to_numpy(array)
    if pa.types.is_integer(type_):
        return integer_keys(values)
    return float_keys(values.astype(np.float64, copy=False))


def _decimal_keys(array: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """Three lanes, each exact for what it takes; most decimals end in the first.

    1. Unscaled values of 64 bits: integers as such; below 2**53 a quotient by a power of ten up to 10**22, both
       exact in float64, is rounded once and so correctly. (Arrow's own cast to float64 rounds more than once.)
    2. The rest by way of text, whose reading as float64 is correct. Integers below 2**53 come out exact.
    3. From 2**53 on an integral decimal needs its rest as well: Python's Decimal, for these values only.
    """
    scale = array.type.scale
    unscaled, fits = _unscale(array)
    if scale == 0 and fits.all():
        return integer_keys(unscaled)
    exact = fits & (np.abs(unscaled) < 2**53) & (unscaled != _LIMITS.min)
    if not 0 <= scale <= 22:
        exact = np.zeros(len(array), bool)
    value = unscaled / float(10 ** min(max(scale, 0), 22))
    others = np.flatnonzero(~exact)
    rest = np.zeros(len(array), np.int16)
    if len(others):
        remaining = array.take(from_numpy(others))
        value[others] = to_numpy(remaining.cast(pa.string()).cast(pa.float64()))
        large = np.flatnonzero(np.abs(value[others]) >= 2.0**53)
        for row, decimal in zip(others[large], remaining.take(from_numpy(large)).to_pylist(), strict=True):
            value[row], rest[row] = number_key(decimal_number(decimal))
    return value + 0.0, rest


def _unscale(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The lowest 64 bits of the unscaled values, and whether they are the whole of them."""
    width = array.type.bit_width
    count, offset, data = len(array), array.offset, array.buffers()[1]
    if width == 32:
        words = np.frombuffer(data, np.int32, count, offset * 4)
        return words.astype(np.int64), np.ones(count, bool)
    parts = width // 64
    wide = np.frombuffer(data, np.int64, count * parts, offset * parts * 8).reshape(count, parts)
    low = wide[:, 0]
    return low, (wide[:, 1:] == (low >> 63)[:, None]).all(axis=1)


def microseconds(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Microseconds since 1970 UTC of dates and timestamps, and which of them do not fit (None: all do).

    Arrow keeps a timestamp with a zone in UTC, so the zone only says how to show it. Nanoseconds round down. A date of
    milliseconds is the midnight at or before it.
    """
    type_ = array.type
    if pa.types.is_date32(type_):
        return _scale(to_numpy(array.view(pa.int32())).astype(np.int64), MICROSECONDS_A_DAY)
    ticks = to_numpy(array.view(pa.int64()))
    if pa.types.is_date64(type_):
        return _scale(ticks // _MILLISECONDS_A_DAY, MICROSECONDS_A_DAY)
    if type_.unit == "ns":
        return ticks // 1_000, None
    return _scale(ticks, _MICROSECONDS[type_.unit])


def _scale(ticks: NDArray[np.int64], factor: int) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    if factor == 1:
        return ticks, None
    outside = (ticks > _LIMITS.max // factor) | (ticks < -(_LIMITS.max // factor))
    return ticks * factor, outside if outside.any() else None


def text_buffers(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Offsets that start at 0, and the bytes, of a string or large_string array."""
    offset_type: Any = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    places = np.frombuffer(offsets, offset_type, len(array) + 1, array.offset * np.dtype(offset_type).itemsize)
    first, last = int(places[0]), int(places[-1])
    content = np.frombuffer(data, np.uint8, last - first, first) if last > first else np.empty(0, np.uint8)
    return places.astype(np.int64) - first, content


def invalid_texts(array: pa.Array, content: NDArray[np.uint8]) -> NDArray[np.bool_] | None:
    """Which strings are not UTF-8 (None: all are). Arrow itself takes any bytes for a string."""
    if not len(content) or content.max() < 128:
        return None
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raw = array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary()).to_pylist()
        return np.array([text is not None and not _decodes(text) for text in raw])
    return None


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
