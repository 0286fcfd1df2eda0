"""The one decorator of compiled functions.

A kernel is compiled by Numba when it is first called, kept on the disk for the next process, and lets other threads run
Python meanwhile. It works on arrays that the caller has made; what belongs together comes as a NamedTuple.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(function: Callable[..., Any] | None = None, makes_arrays: bool = True, **options: Any) -> Any:
    """@kernel, or @kernel(inline="always") with options of Numba's.

    makes_arrays=False: neither it nor what is inlined into it makes or slices arrays (Numba refuses to compile it
    otherwise). Then references to arrays are not counted, which takes an atomic operation each: what makes groups of
    arrays free in an inner loop. (Numba itself leaves the counting out only where no group is handed over.)"""
    if not makes_arrays:
        options["_nrt"] = False
    decorate = njit(cache=True, nogil=True, **options)
    return decorate if function is None else decorate(function)
