"""Machine operations for kernels that read bytes: several of them at once, at any place.

All of them read past the place that they are asked about, so whoever calls them keeps `PADDING` bytes behind the text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from dibs.jit.operations import check_place, operation
from dibs.jit.prefetching import place_of

WIDTH = 32  # bytes that are looked at together
PADDING = WIDTH  # bytes that must be readable (and, behind a target of copy_bytes, writable) after the last one

_WORD = ir.IntType(64)
_BYTE = ir.IntType(8)
_BYTES = ir.VectorType(_BYTE, WIDTH)


def _some_bytes(data: Any, at: int) -> Any:
    check_place(data, at, WIDTH)
    return np.asarray(data[at : at + WIDTH])


def _packed(flags: Any) -> Any:
    return np.uint64(int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little"))


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any, to: Any) -> Any:
    return builder.bitcast(place_of(context, builder, kind, array, at, WIDTH), to.as_pointer())


def _all(byte: int) -> Any:
    return ir.Constant(_BYTES, [byte] * WIDTH)


def _bits(builder: Any, flags: Any) -> Any:
    return builder.zext(builder.bitcast(flags, ir.IntType(WIDTH)), _WORD)


def _plain_special_bytes(data, at):
    x = _some_bytes(data, at)
    return _packed((x == 0x22) | (x == 0x5C) | (x < 0x20) | (x >= 0x80))


@operation(_plain_special_bytes)
def special_bytes(typingctx, data, at):
    """A bit for each of the WIDTH bytes from data[at] on that does not simply stand for itself in a JSON string: a
    quote, a backslash, a control character, or part of a character beyond ASCII."""

    def code(context, builder, signature, args):
        x = builder.load(_pointer(context, builder, signature.args[0], args[0], args[1], _BYTES), align=1)
        quotes = builder.icmp_unsigned("==", x, _all(0x22))
        backslashes = builder.icmp_unsigned("==", x, _all(0x5C))
        others = builder.icmp_signed("<", x, _all(0x20))  # signed: those from 0x80 on are negative
        return _bits(builder, builder.or_(builder.or_(quotes, backslashes), others))

    return types.uint64(data, types.int64), code


def _plain_equal_bytes(data, at, byte):
    return _packed(_some_bytes(data, at) == byte)


@operation(_plain_equal_bytes)
def equal_bytes(typingctx, data, at, byte):
    """A bit for each of the WIDTH bytes from data[at] on that equals the byte."""

    def code(context, builder, signature, args):
        x = builder.load(_pointer(context, builder, signature.args[0], args[0], args[1], _BYTES), align=1)
        one = builder.insert_element(ir.Constant(_BYTES, ir.Undefined), args[2], ir.Constant(ir.IntType(32), 0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        every = builder.shuffle_vector(one, ir.Constant(_BYTES, ir.Undefined), places)
        return _bits(builder, builder.icmp_unsigned("==", x, every))

    return types.uint64(data, types.int64, types.uint8), code


def _plain_different_bytes(a, a_at, b, b_at):
    return _packed(_some_bytes(a, a_at) != _some_bytes(b, b_at))


@operation(_plain_different_bytes)
def different_bytes(typingctx, a, a_at, b, b_at):
    """A bit for each of the WIDTH bytes from a[a_at] on that is not the same from b[b_at] on."""

    def code(context, builder, signature, args):
        x, y = (
            builder.load(_pointer(context, builder, signature.args[i], args[i], args[i + 1], _BYTES), align=1)
            for i in (0, 2)
        )
        return _bits(builder, builder.icmp_unsigned("!=", x, y))

    return types.uint64(a, types.int64, b, types.int64), code


def _plain_copy_bytes(data, at, target, to):
    target[to : to + WIDTH] = _some_bytes(data, at)


@operation(_plain_copy_bytes)
def copy_bytes(typingctx, data, at, target, to):
    """target[to:] = the WIDTH bytes from data[at] on."""

    def code(context, builder, signature, args):
        x = builder.load(_pointer(context, builder, signature.args[0], args[0], args[1], _BYTES), align=1)
        builder.store(x, _pointer(context, builder, signature.args[2], args[2], args[3], _BYTES), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, target, types.int64), code


def _plain_reverse_word(x):
    return np.uint64(x).byteswap()


@operation(_plain_reverse_word)
def reverse_word(typingctx, x):
    """A word with its 8 bytes in the other order."""

    def code(context, builder, signature, args):
        return builder.bswap(args[0])

    return types.uint64(types.uint64), code


def _plain_high_product(x, y):
    return np.uint64((int(x) * int(y)) >> 64)


@operation(_plain_high_product)
def high_product(typingctx, x, y):
    """The upper 64 bits of the product of two words."""

    def code(context, builder, signature, args):
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(factor, wide) for factor in args))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), _WORD)

    return types.uint64(types.uint64, types.uint64), code


def _plain_leading_zeros(x):
    return np.int64(64 - int(x).bit_length())


@operation(_plain_leading_zeros)
def leading_zeros(typingctx, x):
    """The number of zero bits above the highest set bit of a word that is not 0."""

    def code(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code
