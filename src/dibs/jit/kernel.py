"""The one decorator of compiled functions.

A kernel is compiled by Numba when it is first called, kept on the disk for the next process (jit.cache), and lets other
threads run Python meanwhile. It works on arrays that the caller has made; what belongs together comes as a NamedTuple.

With NUMBA_DISABLE_JIT=1 nothing is compiled, and kernels run as the Python that they are (jit.plain).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit
from numba.core.registry import CPUDispatcher
from numba.core.typeinfer import register_dispatcher

from dibs.jit.cache import keep_compiled
from dibs.jit.operations import COMPILES
from dibs.jit.plain import plain_kernel


def kernel(function: Callable[..., Any] | None = None, signature: Any = None, **options: Any) -> Any:
    """@kernel, or @kernel(inline="always") with options of Numba's.

    signature: the one form that there is of it; it is then compiled, or loaded, where it is defined."""
    if not COMPILES:
        return plain_kernel if function is None else plain_kernel(function)
    compiled = njit(nogil=True, **options)

    def decorate(plain: Callable[..., Any]) -> Any:
        result = keep_compiled(compiled(plain))
        if signature is not None:
            with register_dispatcher(result):  # it may call itself
                result.compile(signature)
            result.disable_compile()
        return result

    return decorate if function is None else decorate(function)


class Phase(CPUDispatcher):  # type: ignore[misc]  # Numba is untyped
    """A compiled function that Python must not call: there is no code for it."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"{self.py_func.__name__} is a phase, which only kernels call (.py_func is what it was made of)"
        )


def phase(function: Callable[..., Any] | None = None, *, inline: bool = True) -> Any:
    """@phase: a part of a kernel, which kernels call and Python does not; compiled into its callers, or a function of
    its own (@phase(inline=False)) where it is long. It is handed arrays and groups of them for nothing, because it does
    not count who holds them (see jit.borrowing): so it makes no arrays and slices none, or Numba refuses to compile
    it. It has no code for calls from Python either, which for many arrays takes as long to compile as the phase."""
    if function is None:
        return partial(phase, inline=inline)
    if not COMPILES:
        return plain_kernel(function)
    result = kernel(function, forceinline=inline, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)
    result.__class__ = Phase
    return result
