"""Pointers into arrays, for memory that holds structures of several types (betree.nodes): they are handed
from function to function for nothing, and have no length.

So nothing can check what is read and written by them. But where Numba checks bounds (NUMBA_BOUNDSCHECK=1), a pointer is
the array itself, flat and uncounted, and is checked like any other. There kernels also look (`if CHECKED: ...`) whether
what they write stays within its part of an array that holds many things, which bounds alone do not say.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.errors import TypingError
from numba.np.arrayobj import populate_array

from dibs.jit.operations import operation
from dibs.jit.prefetching import data_of

CHECKED = bool(config.BOUNDSCHECK)


def pointer_type(kind: Any) -> Any:
    """The type of a pointer to items of a Numba type."""
    return types.Array(kind, 1, "C") if CHECKED else types.CPointer(kind)


def _array(context: Any, builder: Any, kind: Any, data: Any, shape: list[Any]) -> Any:
    """An uncounted array."""
    size = ir.Constant(shape[0].type, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [size] if len(shape) == 1 else [builder.mul(shape[1], size), size]
    result = context.make_array(kind)(context, builder)
    populate_array(
        result,
        data=data,
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=size,
        meminfo=None,
    )
    return result._getvalue()


def _code(context, builder, signature, args):
    kind = signature.args[0]
    data = data_of(context, builder, kind, args[0])
    if not CHECKED:
        return data
    items = context.make_array(kind)(context, builder, args[0]).nitems
    return _array(context, builder, signature.return_type, data, [items])


def _plain_pointer_to(array):
    return array.reshape(-1)


@operation(_plain_pointer_to)
def pointer_to(typingctx, array):
    """The first element of a contiguous array that is only read."""
    if array.layout != "C":
        raise TypingError("a pointer leads through a contiguous array only: make a copy (numpy.ascontiguousarray)")
    return pointer_type(array.dtype)(array), _code


def _plain_pointer_to_write(array):
    return array.reshape(-1)


@operation(_plain_pointer_to_write)
def pointer_to_write(typingctx, array):
    """The first element of a contiguous array that is also written."""
    if array.layout != "C" or not array.mutable:
        raise TypingError("a pointer to write needs a contiguous array that is not read-only: make a copy")
    return pointer_type(array.dtype)(array), _code


def _plain_rows_from(pointer, rows, columns):
    return pointer[: rows * columns].reshape(rows, columns)


@operation(_plain_rows_from)
def rows_from(typingctx, pointer, rows, columns):
    """The array of two dimensions that begins at a pointer."""
    array = types.Array(pointer.dtype, 2, "C")

    def code(context, builder, signature, args):
        data = data_of(context, builder, signature.args[0], args[0])
        return _array(context, builder, array, data, [args[1], args[2]])

    return array(pointer, types.int64, types.int64), code
