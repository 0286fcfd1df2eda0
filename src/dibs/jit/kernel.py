"""The one decorator of compiled functions.

A kernel is compiled by Numba when it is first called, kept on the disk for the next process (jit.cache), and lets other
threads run Python meanwhile. It works on arrays that the caller has made; what belongs together comes as a NamedTuple.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.typeinfer import register_dispatcher

from dibs.jit.cache import keep_compiled


def kernel(
    function: Callable[..., Any] | None = None, makes_arrays: bool = True, signature: Any = None, **options: Any
) -> Any:
    """@kernel, or @kernel(inline="always") with options of Numba's.

    makes_arrays=False: neither it nor what is inlined into it makes or slices arrays (Numba refuses to compile it
    otherwise). Then references to arrays are not counted, which takes an atomic operation each: what makes groups of
    arrays free in an inner loop. (Numba itself leaves the counting out only where no group is handed over.)

    signature: the one form that there is of it; it is then compiled, or loaded, where it is defined."""
    if not makes_arrays:
        options["_nrt"] = False
    compiled = njit(nogil=True, **options)

    def decorate(plain: Callable[..., Any]) -> Any:
        result = keep_compiled(compiled(plain))
        if signature is not None and hasattr(result, "compile"):
            with register_dispatcher(result):  # it may call itself
                result.compile(signature)
            result.disable_compile()
        return result

    return decorate if function is None else decorate(function)


def helper(function: Callable[..., Any] | None = None, *, forceinline: bool = True) -> Any:
    """@helper: what only kernels call, compiled into them (@helper(forceinline=False) where it is long). It borrows its
    arrays: a kernel counts a reference to each array that it takes out of a group, and in a loop that cost six times
    the work itself. So a helper must neither make arrays nor return any."""
    return kernel(function, forceinline=forceinline, _nrt=False)


def phase(function: Callable[..., Any]) -> Any:
    """@phase: a part of a kernel, which kernels call and Python does not. It is compiled into its callers, so arrays
    and groups of them are handed over for nothing, and without the code for calls from Python, which for many arrays
    takes as long to compile as the phase itself."""
    return kernel(function, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
