"""Kernels as plain Python (NUMBA_DISABLE_JIT=1): the same code, which a debugger can follow line by line.

What differs is arithmetic. Compiled code computes with 64 bits whatever the type of an array, and wraps; scalars of
NumPy's keep the type of their array, so that a byte times 256 is 0. So arrays are handed to kernels as `Memory`, whose
items are 64 bits wide. Arrays that a kernel makes itself are wrapped when it hands them on.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

# Unsigned items become Python's integers, which go together with signed words and with unsigned ones.
_WIDE: dict[Any, Any] = {np.dtype(kind): np.int64 for kind in (np.int8, np.int16, np.int32)}
_WIDE |= {np.dtype(kind): int for kind in (np.uint8, np.uint16, np.uint32)}
_WIDE |= {np.dtype(np.float32): np.float64, np.dtype(np.bool_): bool}
_depth = threading.local()


class Memory(np.ndarray):
    """An array whose items are as wide as those that compiled code computes with."""

    def __getitem__(self, key: Any) -> Any:
        item = super().__getitem__(key)
        if isinstance(item, np.generic):
            wide = _WIDE.get(item.dtype)
            return item if wide is None else wide(item)
        return item

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(value) is int and self.dtype.kind in "iu":  # compiled code wraps; NumPy refuses
            value = np.array(value & 0xFFFFFFFFFFFFFFFF, np.uint64).astype(self.dtype)
        super().__setitem__(key, value)


def wrap(value: Any) -> Any:
    """Its arrays as kernels see them."""
    if type(value) is np.ndarray:
        return value.view(Memory)
    if isinstance(value, tuple):
        parts = [wrap(part) for part in value]
        return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value


def _unwrap(value: Any) -> Any:
    if type(value) is Memory:
        return value.view(np.ndarray)
    if isinstance(value, tuple):
        parts = [_unwrap(part) for part in value]
        return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value


def plain_kernel(function: Callable[..., Any]) -> Any:
    """The function, which is handed arrays as kernels see them, and gives them back as others do."""

    @wraps(function)
    def call(*args: Any) -> Any:
        inside = getattr(_depth, "inside", 0)
        _depth.inside = inside + 1
        try:
            result = function(*(wrap(arg) for arg in args))
        finally:
            _depth.inside = inside
        return wrap(result) if inside else _unwrap(result)

    call.py_func = function  # type: ignore[attr-defined]
    warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)  # compiled code wraps without a word
    return call
