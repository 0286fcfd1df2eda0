"""Groups of arrays (jit.groups) in kernels: by the address of their table, or of arrays that come one by one.

What is not used of a group costs nothing: LLVM leaves it out. But it is cheaper to compile what is asked for by name:
`part_at(table, Space, "work.slots")`. Nobody counts these arrays (jit.borrowing): whoever made the table holds them for
as long as it is used.

A call that is handed other arrays every time gets them one after the other, and puts them into groups by `grouped`: for
Python to write a table, or to hand groups over, takes longer than to hand over their arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import RequireLiteralValue, TypingError
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from dibs.jit.borrowing import uncounted
from dibs.jit.groups import ENTRY, Field, fields_of, find, size_of
from dibs.jit.operations import operation
from dibs.jit.plain import wrap

_WORD = ir.IntType(64)


def numba_type(group: type) -> Any:
    """The type that Numba gives the group."""
    return types.NamedTuple([_type(field) for field in fields_of(group)], group)


def _type(field: Field) -> Any:
    if field.kind is int:
        return types.int64
    if field.is_group:
        return numba_type(field.kind)
    return types.Array(from_dtype(field.kind), 2 if field.columns else 1, "C")


def _load(context: Any, builder: Any, table: Any, at: int, field: Field, kind: Any) -> Any:
    """The part that begins at this entry of a table (a pointer to its words)."""
    if field.is_group:
        parts = []
        for inner, inner_kind in zip(fields_of(field.kind), kind.types):
            parts.append(_load(context, builder, table, at, inner, inner_kind))
            at += size_of(inner.kind) // ENTRY if inner.is_group else 1
        return context.make_tuple(builder, kind, parts)
    first, second = (builder.load(builder.gep(table, [ir.Constant(_WORD, 2 * at + i)])) for i in range(2))
    if field.kind is int:
        return first
    item = context.get_data_type(kind.dtype)
    size = ir.Constant(_WORD, context.get_abi_sizeof(item))
    shape, strides = [second], [size]
    if field.columns:
        width = ir.Constant(_WORD, field.columns)
        shape, strides = [second, width], [builder.mul(width, size), size]
    array = context.make_array(kind)(context, builder)
    populate_array(
        array,
        data=builder.inttoptr(first, item.as_pointer()),
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=size,
        meminfo=None,
    )
    return array._getvalue()


def _plain_group_at(address: int, group: Any) -> Any:
    return wrap(_read(address, _whole(group)))


def _plain_part_at(address: int, group: Any, path: str) -> Any:
    at, field = find(group, path)
    return wrap(_read(address + ENTRY * at, field))


def _whole(group: type) -> Field:
    return Field("", group, 0, None, None)


def _read(address: int, field: Field) -> Any:
    address = int(address)
    if field.is_group:
        parts = []
        for inner in fields_of(field.kind):
            parts.append(_read(address, inner))
            address += size_of(inner.kind) if inner.is_group else ENTRY
        return field.kind._make(parts)
    first, second = (ctypes.c_int64 * 2).from_address(address)
    if field.kind is int:
        return np.int64(first)
    count = second * max(field.columns, 1)
    memory = (ctypes.c_char * (count * field.kind.itemsize)).from_address(first) if count else b""
    array = np.frombuffer(memory, field.kind)
    return array.reshape(-1, field.columns) if field.columns else array


@operation(_plain_group_at)
def group_at(typingctx, address, group):
    """The group (a class of NamedTuples) whose entries stand at an address."""
    field, kind = _whole(group.instance_class), numba_type(group.instance_class)

    def code(context, builder, signature, args):
        table = builder.inttoptr(args[0], _WORD.as_pointer())
        return _load(context, builder, table, 0, field, kind)

    return kind(types.int64, group), code


@operation(_plain_part_at, prefer_literal=True)
def part_at(typingctx, address, group, path):
    """A part of the group whose entries stand at an address: a constant text of names, with dots between."""
    if not isinstance(path, types.StringLiteral):
        raise RequireLiteralValue("the path of a part must be a constant")
    at, field = find(group.instance_class, path.literal_value)
    kind = _type(field)

    def code(context, builder, signature, args):
        table = builder.inttoptr(args[0], _WORD.as_pointer())
        return _load(context, builder, table, at, field, kind)

    return kind(types.int64, group, path), code


def _plain_grouped(parts: Any, group: Any) -> Any:
    return _gather(iter(parts), group)


def _gather(parts: Iterator[Any], group: Any) -> Any:
    return group._make([_gather(parts, f.kind) if f.is_group else next(parts) for f in fields_of(group)])


def _gather_types(parts: Iterator[Any], group: type) -> Any:
    kinds = [_gather_types(parts, f.kind) if f.is_group else next(parts) for f in fields_of(group)]
    return types.NamedTuple(kinds, group)


def _gather_values(context: Any, builder: Any, parts: Iterator[Any], kind: Any) -> Any:
    values = [
        _gather_values(context, builder, parts, inner) if isinstance(inner, types.BaseTuple) else next(parts)
        for inner in kind.types
    ]
    return context.make_tuple(builder, kind, values)


@operation(_plain_grouped)
def grouped(typingctx, parts, group):
    """The group of these arrays and numbers: those of its groups, one after the other, in a plain tuple. Only for what
    the kernel itself was handed (`*parts`): nobody counts them."""
    wanted = size_of(group.instance_class) // ENTRY
    if len(parts) != wanted:
        raise TypingError(f"{group.instance_class.__name__} has {wanted} parts, not {len(parts)}")
    kind = _gather_types(iter(parts), group.instance_class)

    def code(context, builder, signature, args):
        values = (uncounted(context, builder, own, builder.extract_value(args[0], i)) for i, own in enumerate(parts))
        return _gather_values(context, builder, values, kind)

    return kind(parts, group), code
