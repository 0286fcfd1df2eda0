"""The bits of a float64 as an integer and back, without an array between; and memory that comes as a number: what other
libraries hand over by address."""

from __future__ import annotations

import ctypes

import numpy as np
from llvmlite import ir
from numba import types

from dibs.jit.operations import operation


def _plain_bits_of_number(number):
    return np.float64(number).view(np.int64)


@operation(_plain_bits_of_number)
def bits_of_number(typingctx, number):
    def code(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), code


def _plain_number_of_bits(bits):
    return np.int64(bits).view(np.float64)


@operation(_plain_number_of_bits)
def number_of_bits(typingctx, bits):
    def code(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), code


def _plain_value_at(like, address):
    kind = np.dtype(type(like))
    return np.frombuffer((ctypes.c_char * kind.itemsize).from_address(int(address)), kind)[0]


@operation(_plain_value_at)
def value_at(typingctx, like, address):
    """The value at this address, which is of the same type as `like`."""

    def code(context, builder, signature, args):
        kind = context.get_data_type(like)
        return builder.load(builder.inttoptr(args[1], kind.as_pointer()), align=1)

    return like(like, address), code
