"""Single bytes and eight at once, at any place of an array of bytes."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from dibs.jit.kernel import phase
from dibs.jit.operations import check_place, operation
from dibs.jit.prefetching import place_of


def _plain_word_at(data, at):
    check_place(data, at, 8)
    return np.ascontiguousarray(data[at : at + 8]).view(np.uint64)[0]


@operation(_plain_word_at)
def word_at(typingctx, data, at):
    """data[at:at + 8] as a little-endian integer. All eight bytes must be there."""

    def code(context, builder, signature, args):
        place = place_of(context, builder, signature.args[0], args[0], args[1], 8)
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, types.int64), code


def _plain_byte_at(data, at):
    check_place(data, at, 1)
    return data[at]


@operation(_plain_byte_at)
def byte_at(typingctx, data, at):
    """data[at], of a place that is not negative: Numba tests an index of a signed type for that, at every access."""

    def code(context, builder, signature, args):
        return builder.load(place_of(context, builder, signature.args[0], args[0], args[1]))

    return types.uint8(data, types.int64), code


@phase
def equal_bytes(a, a_start, b, b_start, length):
    """How many bytes are the same from the two places on, up to `length`."""
    k = 0
    while k + 8 <= length and word_at(a, a_start + k) == word_at(b, b_start + k):
        k += 8
    while k < length and a[a_start + k] == b[b_start + k]:
        k += 1
    return k
