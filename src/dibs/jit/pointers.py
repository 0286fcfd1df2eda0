"""Arrays as pointers, to hand them from one compiled function to another for nothing.

Numba counts the references to an array that a function is handed, atomically, and cannot always tell that it need not:
with a group of several arrays and a loop that has several ways out it cannot, and a search that is made of small
functions takes ten times as long. A pointer is indexed as the array is, by one number from 0 on, and is not counted. So
a kernel that calls many others turns its groups of arrays into groups of pointers when it begins. The arrays live until
it returns.
"""

from __future__ import annotations

from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from dibs.jit.prefetching import data_of


def _code(context, builder, signature, args):
    return data_of(context, builder, signature.args[0], args[0])


@intrinsic
def pointer_to(typingctx, array):
    """The first element of a contiguous array that is only read."""
    if array.layout != "C":
        raise TypingError("a pointer leads through a contiguous array only: make a copy (numpy.ascontiguousarray)")
    return types.CPointer(array.dtype)(array), _code


@intrinsic
def pointer_to_write(typingctx, array):
    """The first element of a contiguous array that is also written."""
    if array.layout != "C" or not array.mutable:
        raise TypingError("a pointer to write needs a contiguous array that is not read-only: make a copy")
    return types.CPointer(array.dtype)(array), _code
