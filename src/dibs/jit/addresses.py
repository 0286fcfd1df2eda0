"""Memory that comes as a number: what other libraries hand over by address."""

from __future__ import annotations

import ctypes

import numpy as np

from dibs.jit.operations import operation


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
