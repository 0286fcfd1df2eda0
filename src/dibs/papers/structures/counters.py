"""Counters by row, looked at 64 at a time: which are zero, which have changed.

A structure that counts the predicates which hold has a counter for each row, of the narrowest type that does, and
after an event wants the rows whose counters are zero. LLVM does not make vectors of such a loop by itself (it ends in
a branch), so here is one comparison of 64 counters that gives a bit for each, and the pass over all of them that an
event ends with where it touched many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dibs.jit.kernel import kernel
from dibs.jit.lanes import count_bits, lowest_bit
from dibs.jit.prefetching import place_of

AT_ONCE = 64


def counters(sizes: NDArray[Any], most: int) -> NDArray[Any]:
    """The sizes as unsigned counters of a type that holds `most`; up to a multiple of 64, ones follow."""
    result = np.ones(-(-len(sizes) // AT_ONCE) * AT_ONCE, np.min_scalar_type(most))
    result[: len(sizes)] = sizes
    return result


def _vector(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """A pointer to the 64 counters from array[at] on."""
    pointer = place_of(context, builder, kind, array, at, AT_ONCE)
    vector = ir.VectorType(context.get_data_type(kind.dtype), AT_ONCE)
    return builder.bitcast(pointer, vector.as_pointer())


def _load(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.load(_vector(context, builder, kind, array, at), align=1)


@intrinsic
def zeros(typingctx, array, at):
    """A bit for each of array[at : at + 64]: it is 0."""

    def code(context, builder, signature, args):
        found = _load(context, builder, signature.args[0], args[0], args[1])
        equal = builder.icmp_unsigned("==", found, ir.Constant(found.type, [0] * AT_ONCE))
        return builder.bitcast(equal, ir.IntType(AT_ONCE))

    return types.uint64(array, types.int64), code


@intrinsic
def changes(typingctx, array, other, at):
    """A bit for each of array[at : at + 64]: it is not that of `other`, an array of the same type."""

    def code(context, builder, signature, args):
        x, y = (_load(context, builder, signature.args[i], args[i], args[2]) for i in (0, 1))
        return builder.bitcast(builder.icmp_unsigned("!=", x, y), ir.IntType(AT_ONCE))

    return types.uint64(array, other, types.int64), code


@intrinsic
def set_back(typingctx, array, other, at):
    """array[at : at + 64] = other[at : at + 64], arrays of the same type."""

    def code(context, builder, signature, args):
        source = _vector(context, builder, signature.args[1], args[1], args[2])
        target = _vector(context, builder, signature.args[0], args[0], args[2])
        builder.store(builder.load(source, align=1), target, align=1)
        return context.get_dummy_value()

    return types.void(array, other, types.int64), code


@kernel
def take_zeros(array, other, found):
    """Sets all counters back to `other`, an array of the same type and of a multiple of 64. How many were zero, whose
    rows are now the first of `found`, in order; and how many had changed."""
    n, changed = np.int64(0), np.int64(0)
    for r in range(0, len(array), AT_ONCE):
        changed += count_bits(changes(array, other, r))
        full = zeros(array, r)
        while full != 0:
            found[n] = r + lowest_bit(full)
            n += 1
            full &= full - np.uint64(1)
        set_back(array, other, r)
    return n, changed
