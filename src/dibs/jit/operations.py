"""The one decorator of machine operations: what Numba has no name for, written in LLVM's terms.

Each has a plain twin, which says in Python what it does. Where Numba compiles nothing (NUMBA_DISABLE_JIT=1), the twin
is called instead, so that kernels can be followed line by line; and tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import config
from numba.extending import intrinsic

COMPILES = not config.DISABLE_JIT


def operation(plain: Callable[..., Any], **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """@operation(plain): the intrinsic that a function of types gives, or its twin. options: Numba's."""

    def decorate(typed: Callable[..., Any]) -> Any:
        plain.__doc__ = typed.__doc__
        if not COMPILES:
            return plain
        result = intrinsic(**options)(typed) if options else intrinsic(typed)
        result.plain = plain
        return result

    return decorate


def check_place(array: Any, at: Any, count: int) -> None:
    """For twins that read or write several items: a slice that reaches too far would be shorter, or from the end."""
    if not 0 <= at <= len(array) - count:
        raise IndexError(f"{at} to {at + count} of {len(array)}")
