"""Kernels that keep Python's interpreter.

A kernel lets other threads run Python meanwhile. To get the interpreter back from them may take milliseconds, again and
again, when they have much to do. For work of microseconds it is better not given away: of a few events, if
subscriptions are few too.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from numba import njit

from dibs.jit.cache import keep_compiled
from dibs.jit.operations import COMPILES


def keeping(kernel: Any) -> Any:
    """A twin of the kernel that keeps the interpreter. It has a name of its own, by which Numba's cache tells it from
    the kernel."""
    if not COMPILES:
        return kernel
    own = kernel.py_func
    twin = FunctionType(own.__code__, own.__globals__, f"{own.__name__}_keeping", own.__defaults__, own.__closure__)
    twin.__qualname__, twin.__module__ = f"{own.__qualname__}_keeping", own.__module__
    return keep_compiled(njit(twin))
