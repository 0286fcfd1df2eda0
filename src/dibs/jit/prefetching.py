"""Asking for memory before it is needed: a kernel that looks up many values in tables larger than the cache waits for
one line after the other, unless it has asked for the next ones while it works on this one."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from dibs.jit.operations import operation


def data_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """The pointer to an array's first element, or the pointer that it is (see jit.borrowing)."""
    if isinstance(kind, types.CPointer):
        return array
    return context.make_array(kind)(context, builder, array).data


def place_of(context: Any, builder: Any, kind: Any, array: Any, at: Any, width: int = 1) -> Any:
    """The pointer to array[at], from which `width` items are read or written. Where Numba checks bounds
    (NUMBA_BOUNDSCHECK=1), so does this; a pointer has none."""
    if context.enable_boundscheck and isinstance(kind, types.Array):
        length = builder.extract_value(context.make_array(kind)(context, builder, array).shape, 0)
        at = at if at.type.width == length.type.width else builder.zext(at, length.type)
        for place in (at, builder.add(at, ir.Constant(at.type, width - 1))):
            cgutils.do_boundscheck(context, builder, place, length)
    return builder.gep(data_of(context, builder, kind, array), [at])


def _ask(builder: Any, place: Any, to_write: int) -> None:
    pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
    fetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], fnty=kind)
    options = (ir.Constant(number, x) for x in (to_write, 3, 1))  # into all caches, data
    builder.call(fetch, [builder.bitcast(place, pointer), *options])


def _plain_prefetch(array, at):
    pass


@operation(_plain_prefetch)
def prefetch(typingctx, array, at):
    """Asks for the cache line of array[at]."""

    def code(context, builder, signature, args):
        _ask(builder, builder.gep(data_of(context, builder, signature.args[0], args[0]), [args[1]]), 0)
        return context.get_dummy_value()

    return types.void(array, at), code


def _ask_at(to_write: int) -> Any:
    def code(context, builder, signature, args):
        _ask(builder, builder.inttoptr(args[0], ir.IntType(8).as_pointer()), to_write)
        return context.get_dummy_value()

    return types.void(types.int64), code


def _plain_prefetch_at(address):
    pass


@operation(_plain_prefetch_at)
def prefetch_at(typingctx, address):
    """Asks for the cache line at an address."""
    return _ask_at(0)


def _plain_prefetch_to_write(address):
    pass


@operation(_plain_prefetch_to_write)
def prefetch_to_write(typingctx, address):
    """Asks for the cache line at an address, to write there."""
    return _ask_at(1)
