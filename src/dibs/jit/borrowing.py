"""Arrays that compiled functions hand to each other without counting.

Numba counts who holds an array, atomically, from one compiled function to the next and for each array that is taken
out of a group. In inner loops that is more than the work itself: a match that was cut into functions took ten times as
long. What a kernel is handed lives until it returns, so nothing below it needs to count. Four ways, for four needs:

- `@phase` (jit.kernel), the rule: a function that makes no arrays is compiled without counting altogether, and is
  handed arrays and groups of them as they are. A kernel that makes arrays does so itself, and leaves loops to phases.
- `borrow`, where a kernel must make arrays within its loop (room that grows): what it was handed, uncounted.
- Pointers (jit.pointers), where there is no array to hand over: memory that holds structures of several types.
- `array_at` and `rows_at` make arrays of a table of addresses: a call from Python costs one number then, however many
  arrays there are (segments.single). Who made the table holds the arrays for as long as it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import RequireLiteralValue
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray


@intrinsic
def borrow(typingctx, arrays):
    """The array, or the tuple (named or not) of arrays and numbers, uncounted. Only for what the kernel itself was
    handed, whose caller holds it until the kernel is done; it must not be returned."""

    def uncounted(context, builder, kind, value):
        if not isinstance(kind, types.Array):
            return value
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = ir.Constant(array.meminfo.type, None)
        return array._getvalue()

    def code(context, builder, signature, args):
        kind, value = signature.args[0], args[0]
        if not isinstance(kind, types.BaseTuple):
            return uncounted(context, builder, kind, value)
        for i, part in enumerate(kind):
            own = uncounted(context, builder, part, builder.extract_value(value, i))
            value = builder.insert_value(value, own, i)
        return value

    return arrays(arrays), code


class Table:
    """Addresses and lengths of arrays, which it holds, at an address of its own; and plain numbers."""

    def __init__(self, numbers: NDArray[np.int64], held: Any):
        self._numbers, self._held = numbers, held
        self.address: int = numbers.__array_interface__["data"][0]


def entries_of(arrays: Iterable[NDArray[Any]]) -> list[int]:
    """Address and length of each array: what kernels read must be contiguous."""
    result: list[int] = []
    for array in arrays:
        assert array.flags.c_contiguous
        result += (array.__array_interface__["data"][0], len(array))
    return result


def _numbers_at(context, builder, table, entry, count):
    """The first numbers of an entry of a table that stands at an address (an int64): each entry has two."""
    words = builder.inttoptr(table, ir.IntType(64).as_pointer())
    at = builder.shl(entry, ir.Constant(entry.type, 1))
    return [builder.load(builder.gep(words, [builder.add(at, ir.Constant(at.type, i))])) for i in range(count)]


def _array_code(array, columns):
    def code(context, builder, signature, args):
        address, length = _numbers_at(context, builder, args[0], args[1], 2)
        kind = context.get_data_type(array.dtype)
        size = ir.Constant(length.type, context.get_abi_sizeof(kind))
        shape, strides = [length], [size]
        if columns:
            width = ir.Constant(length.type, columns)
            shape, strides = [length, width], [builder.mul(width, size), size]
        result = context.make_array(array)(context, builder)
        populate_array(
            result,
            data=builder.inttoptr(address, kind.as_pointer()),
            shape=cgutils.pack_array(builder, shape),
            strides=cgutils.pack_array(builder, strides),
            itemsize=size,
            meminfo=None,
        )
        return result._getvalue()

    return code


@intrinsic
def array_at(typingctx, table, entry, kind):
    """The array of `kind` (a NumPy type) whose address and length are an entry of the table at an address."""
    array = types.Array(kind.dtype, 1, "C")
    return array(types.int64, types.int64, kind), _array_code(array, 0)


@intrinsic
def rows_at(typingctx, table, entry, kind, columns):
    """The same for an array of two dimensions; `columns` is a constant."""
    if not isinstance(columns, types.IntegerLiteral):
        raise RequireLiteralValue("columns must be a constant")
    array = types.Array(kind.dtype, 2, "C")
    return array(types.int64, types.int64, kind, columns), _array_code(array, columns.literal_value)


@intrinsic
def number_at(typingctx, table, entry):
    """The number that is an entry of the table at an address."""

    def code(context, builder, signature, args):
        return _numbers_at(context, builder, args[0], args[1], 1)[0]

    return types.int64(types.int64, types.int64), code
